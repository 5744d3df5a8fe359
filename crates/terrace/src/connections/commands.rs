//! `terrace connection`: the connections of a running node, and the end of one.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use node::connections::KINDS;
use node::control::{self, read_response};
use node::{Clock, ConnectionLine};
use serde_json::Value;

use super::{ClosedConnection, ConnectionRequest, ListedConnections, REQUEST, what_follows};
use crate::place::Place;
use crate::show::{TextTable, bytes, count, time};

/// `terrace connection ...`
#[derive(Debug, Subcommand)]
pub enum ConnectionCommand {
    /// List the connections of every port, and those that operations and volumes have opened
    ///
    ///   terrace connection list
    ///   terrace connection list --port mllp
    ///   terrace connection list --statements        # with what sessions of SQL run
    ///
    /// Bytes are those inside TLS. A request is a message, a statement or a request of HTTP or NBD. The role is
    /// known once somebody has logged in; over HTTP it is that of the last request.
    #[command(verbatim_doc_comment)]
    List(ConnectionListArgs),
    /// End one connection within a second, and no other
    ///
    ///   terrace connection list --port mllp
    ///   terrace connection close 17
    ///
    /// What was acknowledged stays acknowledged; what was not is as if the peer had gone away. A client may
    /// connect again: `[access]` and `terrace user lock` keep it out. It needs the right connection-close, and has
    /// an entry in the audit.
    #[command(verbatim_doc_comment)]
    Close {
        /// Its number, as `list` shows it
        id: u64,
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `terrace connection list`
#[derive(Debug, Args)]
pub struct ConnectionListArgs {
    #[command(flatten)]
    pub place: Place,
    /// Only of this kind of port
    #[arg(long, value_name = "KIND", value_parser = clap::builder::PossibleValuesParser::new(KINDS))]
    pub port: Option<String>,
    /// With states and statements of SQL, of sessions whose statements you may see; it has an entry in the audit
    #[arg(long)]
    pub statements: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn answer_of(place: &Place, request: &ConnectionRequest) -> anyhow::Result<Value> {
    Ok(control::request(&place.data, &format!("{REQUEST} {}", serde_json::to_string(request)?))?)
}

/// Runs one of the commands.
pub fn run(command: &ConnectionCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConnectionCommand::List(args) => list(args)?,
        ConnectionCommand::Close { id, place, json } => close(*id, place, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How long ago, in the largest unit that is whole.
fn age(at_us: i64, now_us: i64) -> String {
    let seconds = now_us.saturating_sub(at_us).max(0) / 1_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Who is at the other end.
fn who(line: &ConnectionLine) -> String {
    match (&line.role, &line.user) {
        (Some(role), Some(user)) => format!("{role}, {user}"),
        (Some(who), None) | (None, Some(who)) => who.clone(),
        (None, None) => "-".to_owned(),
    }
}

/// What it is doing.
fn doing(line: &ConnectionLine) -> String {
    let closing = line.closing.then(|| "closing".to_owned());
    let about = line.about.as_ref().map(|about| format!("export {about}"));
    let statement = match (&line.state, &line.statement) {
        (Some(state), Some(statement)) => Some(format!("{state}: {statement}")),
        (Some(state), None) => Some(state.clone()),
        _ => None,
    };
    let parts: Vec<String> = [closing, about, statement].into_iter().flatten().collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn list(args: &ConnectionListArgs) -> anyhow::Result<()> {
    let request = ConnectionRequest::List { port: args.port.clone(), statements: args.statements };
    let answer = answer_of(&args.place, &request)?;
    if args.json {
        println!("{}", answer["connections"]);
        return Ok(());
    }
    let listed: ListedConnections = read_response(answer)?;
    if listed.connections.is_empty() {
        println!("no connection is open");
        return Ok(());
    }
    let now_us = Clock::system().now_us();
    let headings =
        ["id", "port", "service", "remote", "who", "tls", "since", "silent for", "in", "out", "requests", "doing"];
    let mut table = TextTable::new(&headings);
    for line in &listed.connections {
        let direction = if line.outgoing { "to " } else { "" };
        table.row(&[
            &line.id.to_string(),
            &line.port,
            if line.service == line.port { "-" } else { &line.service },
            &format!("{direction}{}", line.remote),
            &who(line),
            if line.tls { "yes" } else { "no" },
            &time(line.since_us),
            &age(line.idle_since_us, now_us),
            &bytes(line.received_bytes),
            &bytes(line.sent_bytes),
            &count(line.requests),
            &doing(line),
        ]);
    }
    print!("{table}");
    Ok(())
}

fn close(id: u64, place: &Place, json: bool) -> anyhow::Result<()> {
    let answer = answer_of(place, &ConnectionRequest::Close { id })?;
    if json {
        println!("{answer}");
        return Ok(());
    }
    let ClosedConnection { connection, ended } = read_response(answer)?;
    let (port, service, remote) = (&connection.port, &connection.service, &connection.remote);
    let name = if port == service { port.clone() } else { format!("{port} {service}") };
    println!("closed connection {id}: {name}, {remote}, {}", who(&connection));
    if !ended {
        println!(
            "its socket has ended, and what it had begun is still at work: `terrace connection list` shows it until it ends"
        );
    }
    if let Some(next) = what_follows(&connection) {
        println!("{next}");
    }
    Ok(())
}
