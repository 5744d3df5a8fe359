//! `terrace message tail`: what a node streams, as lines.

use std::process::ExitCode;

use anyhow::Context;
use hl7::Reading;
use interop::history::bytes_of;
use interop::record::DeliveryOutcome;
use interop::running::{TailMessage, TailOutcome, TailPart, TailRequest};
use node::control;
use serde_json::{Value, json};

use crate::cli::MessageTailArgs;
use crate::show::time;

/// Runs it, until the node or Ctrl-C ends it.
pub fn run(args: &MessageTailArgs) -> anyhow::Result<ExitCode> {
    let from = match args.from.as_str() {
        "now" => None,
        id => Some(id.parse().with_context(|| format!("`{id}` is neither the id of a message nor `now`"))?),
    };
    let request = TailRequest {
        service: args.service.clone(),
        operation: args.operation.clone(),
        kind: args.kind.clone(),
        bodies: args.bodies,
        from,
    };
    let print = &mut |part: Value| if args.json { print_json(&part) } else { print_part(part) };
    control::request_with_parts(&args.place.data, &format!("tail {}", json!(request)), print)?;
    println!("the node is stopping");
    Ok(ExitCode::SUCCESS)
}

fn print_json(part: &Value) {
    if part["event"] != "quiet" {
        println!("{part}");
    }
}

fn print_part(part: Value) {
    match serde_json::from_value(part) {
        Ok(TailPart::Began { .. } | TailPart::Quiet { .. }) => {}
        Ok(TailPart::Message(message)) => print_message(&message),
        Ok(TailPart::Outcome(outcome)) => println!("{}", outcome_line(&outcome)),
        Ok(TailPart::LeftOut { count }) => {
            let some = count.map_or_else(|| "some".to_owned(), |count| format!("up to {count}"));
            println!("-- {some} messages and outcomes were left out here: they came faster than they were read");
        }
        // A part of another release.
        Err(_) => {}
    }
}

/// Time, id, service, type and control id, as all lines begin.
fn head(at_us: i64, id: u64, service: &str, (kind, control_id): (&str, &str)) -> String {
    format!("{}  {id:<10}  {service:<14}  {kind:<12}  {control_id:<20}", time(at_us))
}

fn message_line(message: &TailMessage) -> String {
    let line = &message.line;
    if let Some(why) = &line.damaged {
        return format!("damaged: message {} cannot be read: {why}", line.id);
    }
    let mut decision = format!("{:?}", line.status).to_lowercase();
    let names: Vec<&str> = line.outputs.iter().map(|(operation, _)| operation.as_str()).collect();
    if !names.is_empty() {
        decision = format!("{decision} to {}", names.join(", "));
    }
    if line.duplicate {
        decision += ", duplicate";
    }
    for (what, origin) in [("resent", line.resent_from), ("reprocessed", line.reprocessed_from)] {
        if let Some(origin) = origin {
            decision += &format!(", {what} from {origin}");
        }
    }
    let took = message.took_us.map(|us| format!(", durable after {} ms", milliseconds(us))).unwrap_or_default();
    format!("{}  {decision}{took}", head(line.received_us, line.id, &line.service, (&line.kind, &line.control_id)))
}

fn outcome_line(outcome: &TailOutcome) -> String {
    let head = head(outcome.at_us, outcome.id, &outcome.service, (&outcome.kind, &outcome.control_id));
    let by = match outcome.outcome {
        DeliveryOutcome::SetAside => format!(" by {}", outcome.by),
        DeliveryOutcome::Delivered | DeliveryOutcome::Failed => String::new(),
    };
    let (operation, name, detail) = (&outcome.operation, outcome.outcome.name(), &outcome.detail);
    format!("{head}  {operation}: {name}{by}: {detail}, {} ms", outcome.ms)
}

/// Microseconds as milliseconds with one place.
fn milliseconds(us: u64) -> String {
    format!("{}.{}", us / 1_000, us % 1_000 / 100)
}

fn print_message(message: &TailMessage) {
    println!("{}", message_line(message));
    if let Some(why) = &message.withheld {
        println!("    {why}");
    }
    let Some(body) = message.body.as_deref().and_then(bytes_of) else { return };
    let text = Reading::lenient(&body, None).shown().into_owned();
    for line in text.replace("\r\n", "\n").replace('\r', "\n").trim_end().lines() {
        println!("    {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_a_line_with_what_is_known() {
        let message: TailMessage = serde_json::from_value(json!({
            "id": 8240, "received_us": 0, "service": "adt", "kind": "ADT^A01", "control_id": "C1", "status": "routed",
            "duplicate": true, "resent_from": null, "bytes": 9, "outputs": [["lab", "waiting"], ["pacs", "waiting"]],
            "took_us": 2_340,
        }))
        .expect("a message");
        let line = message_line(&message);
        for word in ["8240", "adt", "ADT^A01", "C1", "routed to lab, pacs, duplicate, durable after 2.3 ms"] {
            assert!(line.contains(word), "{line}");
        }
        let outcome: TailOutcome = serde_json::from_value(json!({
            "id": 8240, "at_us": 9, "service": "adt", "type": "ADT^A01", "control_id": "C1", "operation": "lab", "output": 0,
            "outcome": "set-aside", "detail": "not needed", "by": "ann", "ms": 12,
        }))
        .expect("an outcome");
        assert!(
            outcome_line(&outcome).ends_with("lab: set-aside by ann: not needed, 12 ms"),
            "{}",
            outcome_line(&outcome)
        );
    }
}
