//! `terrace message search`: asks a running node for the messages that match a query, and shows them.

use std::io::Write;
use std::process::ExitCode;

use interop::history::History;
use node::control;
use serde::{Deserialize, Serialize};

use crate::cli::MessageSearchArgs;
use crate::show::{TextTable, count, time};
use crate::terminal;

/// The word that the request begins with.
pub const REQUEST: &str = "message-search";

/// What is wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MessageQuery {
    /// In the language of Elasticsearch's `query_string`.
    pub query: String,
    /// At most so many.
    pub last: usize,
    /// The best first, not the newest.
    pub by_score: bool,
    /// Only received at or after, microseconds since 1970.
    pub since_us: Option<i64>,
    /// Only received before, microseconds since 1970.
    pub until_us: Option<i64>,
    /// How long it may take, milliseconds.
    #[serde(default = "time_max_ms")]
    pub time_max_ms: u64,
}

/// How long a search may take where nothing is said: a person waits for it.
fn time_max_ms() -> u64 {
    30_000
}

/// What was found.
#[derive(Debug, Serialize, Deserialize)]
pub struct FoundMessages {
    /// Messages that match.
    pub total: u64,
    /// Whether there are no more.
    pub total_is_exact: bool,
    /// How long it took, microseconds.
    pub took_us: u64,
    /// Whether messages are stored that are not indexed yet.
    pub is_behind: bool,
    /// The newest or the best of them.
    pub messages: Vec<FoundMessage>,
}

/// One message that was found.
#[derive(Debug, Serialize, Deserialize)]
pub struct FoundMessage {
    /// The id.
    pub id: u64,
    /// When it came in, microseconds since 1970; exact to a millisecond.
    pub received_us: i64,
    /// The service.
    pub service: String,
    /// Type and event.
    pub kind: String,
    /// MSH-10.
    pub control_id: String,
    /// Numbers of the patient.
    pub mrn: Vec<String>,
    /// Parts of the patient's name.
    pub name: String,
    /// The decision.
    pub status: String,
    /// Why it cannot be read; then only the id counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Runs the command.
pub fn run(args: &MessageSearchArgs) -> anyhow::Result<ExitCode> {
    let data = &args.place.data;
    if !control::is_running(data) {
        // Says what is wrong with the folder, if anything is.
        History::open(data)?;
        anyhow::bail!(
            "no node runs on {}: start it with `terrace serve`; a stopped node's messages can be listed with `terrace message list`",
            data.display()
        );
    }
    let query = MessageQuery {
        query: args.query.join(" "),
        last: args.last,
        by_score: args.best,
        since_us: args.since.as_deref().map(crate::moments::moment).transpose()?,
        until_us: args.until.as_deref().map(crate::moments::moment).transpose()?,
        time_max_ms: args.timeout.map_or_else(time_max_ms, |seconds| seconds.saturating_mul(1_000)),
    };
    let request = format!("{REQUEST} {}", serde_json::to_string(&query)?);
    let answer = control::request(data, &request).map_err(|error| match error.to_string() {
        text if text.contains("is not a request") => {
            anyhow::anyhow!("this node has no search service: add [search] to its terrace.toml, and start it again")
        }
        _ => error.into(),
    })?;
    let found: FoundMessages = serde_json::from_value(answer)?;
    let mut out = terminal::out();
    if args.json {
        for message in &found.messages {
            writeln!(out, "{}", serde_json::to_string(message)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    show(&mut out, found)?;
    Ok(ExitCode::SUCCESS)
}

fn show(out: &mut impl Write, mut found: FoundMessages) -> anyhow::Result<()> {
    let shown = found.messages.len() as u64;
    // The newest last, next to the prompt, as `list` shows them.
    found.messages.reverse();
    let mut table = TextTable::new(&["id", "received", "service", "type", "control id", "mrn", "name", "status"]);
    for message in found.messages.iter().filter(|message| message.unreadable.is_none()) {
        table.row(&[
            &message.id.to_string(),
            &time(message.received_us),
            &message.service,
            &message.kind,
            &message.control_id,
            &message.mrn.join(" "),
            &message.name,
            &message.status,
        ]);
    }
    if table.is_empty() {
        writeln!(out, "no message matches")?;
    } else {
        write!(out, "{table}")?;
        let total = format!("{}{}", count(found.total), if found.total_is_exact { "" } else { " or more" });
        let (messages, took) = (if found.total == 1 { "message" } else { "messages" }, found.took_us as f64 / 1e3);
        let part = if shown < found.total { format!(", {shown} shown") } else { String::new() };
        writeln!(out, "{total} {messages}{part}, {took:.1} ms")?;
    }
    for (id, why) in found.messages.iter().filter_map(|message| Some((message.id, message.unreadable.as_ref()?))) {
        writeln!(out, "damaged: message {id} matches, and cannot be read: {why}")?;
    }
    if found.is_behind {
        writeln!(out, "the newest messages are not indexed yet: search again in a moment")?;
    }
    Ok(())
}
