//! `terrace operation`: what the operations of a running node do, and the orders to them.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use interop::production::units::Span;
use interop::queue::progress::{ConnectionState, LastAnswer, span};
use interop::running::{LaneReport, OperationReport, OperationStatus, SetAsideMessage, SetAsideRequest, StartRequest};
use node::{Clock, control};
use serde_json::json;

use crate::cli::OperationCommand;
use crate::moments::moment;
use crate::show::{TextTable, count, time};

/// Runs one of the commands.
pub fn run(command: OperationCommand) -> anyhow::Result<ExitCode> {
    match command {
        OperationCommand::List { place, json } => list(&place.data, json),
        OperationCommand::Show { name, place, json } => show(&place.data, &name, json),
        OperationCommand::Suspend(args) => {
            control::request(&args.place.data, &format!("suspend {}", args.name))?;
            println!("operation {} is suspended; its messages wait", args.name);
            Ok(ExitCode::SUCCESS)
        }
        OperationCommand::Resume(args) => {
            control::request(&args.place.data, &format!("resume {}", args.name))?;
            println!("operation {} is resumed", args.name);
            Ok(ExitCode::SUCCESS)
        }
        OperationCommand::Start { operation, until, place } => {
            let until_us = until_us(&until)?;
            let request = StartRequest { operation, until_us };
            control::request(&place.data, &format!("start {}", json!(request)))?;
            println!("operation {} works until {}, whatever its schedule says", request.operation, time(until_us));
            Ok(ExitCode::SUCCESS)
        }
        OperationCommand::SetAside { operation, message, reason, place } => {
            let request = SetAsideRequest { operation, message, reason };
            let answer = control::request(&place.data, &format!("set-aside {}", json!(request)))?;
            let done: SetAsideMessage = control::read_response(answer)?;
            let next =
                done.next.map_or_else(|| "nothing waits behind it".to_owned(), |id| format!("message {id} is next"));
            println!("message {} is set aside in operation {}; {next}", done.message, done.operation);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// A time to come: a time of day, or a span from now on; microseconds since 1970.
fn until_us(text: &str) -> anyhow::Result<i64> {
    match text.parse::<Span>() {
        Ok(span) => {
            let span = i64::try_from(span.0.as_micros()).context("that is too long")?;
            Ok(Clock::system().now_us().saturating_add(span))
        }
        Err(_) => moment(text),
    }
}

fn list(data: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let answer = control::request(data, "operations")?;
    if json {
        println!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    let operations: Vec<OperationStatus> = control::read_response(answer)?;
    let mut table = TextTable::new(&["operation", "to", "state", "waiting", "oldest", "age", "why it waits"]);
    for operation in &operations {
        table.row(&[
            &operation.name,
            &operation.at,
            state(operation),
            &count(operation.waiting as u64),
            &operation.oldest.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            &age(operation.oldest_us),
            if operation.cause.is_empty() { "-" } else { &operation.cause },
        ]);
    }
    print!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// The state of an operation in one or two words.
pub fn state(operation: &OperationStatus) -> &'static str {
    match (operation.suspended, operation.retired, operation.connection) {
        (true, ..) => "suspended",
        (_, true, _) => "ending",
        _ if operation.closed => "outside schedule",
        _ if operation.waits_for.is_some() => "waits for another",
        (.., ConnectionState::Down) => "not connected",
        _ => "running",
    }
}

/// How long ago a message came in.
fn age(received_us: Option<i64>) -> String {
    received_us.map_or_else(|| "-".to_owned(), |at_us| span(Clock::system().now_us().saturating_sub(at_us)))
}

fn show(data: &Path, name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let answer = control::request(data, &format!("operation {name}"))?;
    if json {
        println!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    let report: OperationReport = control::read_response(answer)?;
    let status = &report.status;
    println!("operation  {name}, {} to {}", status.kind, status.at);
    println!("state      {}", state(status));
    if let (Some(since_us), Some(because)) = (status.suspended_since_us, &status.suspended_because) {
        println!("suspended  {}: {because}", time(since_us));
    }
    if let Some(until_us) = status.started_until_us {
        println!("started    until {}, whatever its schedule says", time(until_us));
    }
    let since = "since the start";
    println!(
        "{since}: {} delivered, {} failed, {} set aside, {} tries repeated\n",
        count(status.delivered),
        count(status.failed),
        count(status.set_aside),
        count(status.retried)
    );
    report.lanes.iter().for_each(show_lane);
    if let Some(why) = &report.withheld {
        println!("note: {why}");
    }
    Ok(ExitCode::SUCCESS)
}

fn show_lane(lane: &LaneReport) {
    println!("lane {}: {} waiting, {}", lane.lane, count(lane.waiting as u64), connection(lane.connection));
    if let Some(LastAnswer { answer, text, at_us, .. }) = &lane.last {
        let text = text.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
        println!("  last try {}: {answer}{text}", time(*at_us));
    }
    if !lane.cause.is_empty() {
        println!("  {}", lane.cause);
    }
    if !lane.next.is_empty() {
        let mut table = TextTable::new(&["message", "output", "received", "age"]);
        for next in &lane.next {
            table.row(&[
                &next.id.to_string(),
                &next.output.to_string(),
                &time(next.received_us),
                &age(Some(next.received_us)),
            ]);
        }
        println!("{table}");
    }
}

fn connection(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::None => "no connection",
        ConnectionState::Connected => "connected",
        ConnectionState::Down => "not connected",
        ConnectionState::Closed => "connection closed after the last answer",
    }
}
