//! Which requests of the control socket have an entry in the audit, and when it is written.
//!
//! ```text
//!   a change       entry "granted", durable --> done            and if it fails: entry "failed", which names the first one
//!   a read         read --> entry with its outcome, durable --> the response        the bodies of a message, the audit itself
//!   all others     no entry: status, counts, lists of messages without bodies
//!
//!   the audit takes no entry: a change is not begun, a body is not shown          but for `stop` and reading the audit,
//!                                                                                 with which a full audit is set right
//! ```
//!
//! What is not known here has no entry of its own: requests of other services that change something are those of volumes.

use std::sync::Arc;
use std::time::Duration;

use node::audit::{AuditEntry, AuditOutcome, AuditTicket, Reads};
use node::control::LocalPeer;
use node::{Audit, NodeError};
use serde_json::Value;

use crate::error::InteropError;

/// How long a request that goes on without its entry waits for it: a medium that hangs must not keep a node from being stopped.
const PATIENCE: Duration = Duration::from_secs(3);

/// When the entry of a request is written, and what happens if it cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audited {
    /// Before it; without it the change is not begun.
    Change,
    /// The same, but the change happens without an entry too.
    Allowed,
    /// With its outcome, before the response; without it there is no response.
    Read,
    /// The same, but the response is given without an entry too.
    Shown,
}

/// The entry of a request; none for one that has none.
fn entry_of(line: &str) -> Option<(Audited, AuditEntry)> {
    let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let rest = rest.trim();
    let change = |action: &str, object: &str| Some((Audited::Change, AuditEntry::new(action, object)));
    match word {
        "reload" => change("production.reload", ""),
        "resend" => {
            let (id, operations) = rest.split_once(' ').unwrap_or((rest, ""));
            let mut entry = AuditEntry::new("message.resend", format!("message {id}"));
            if !operations.trim().is_empty() {
                entry = entry.with("operations", operations.trim());
            }
            Some((Audited::Change, entry))
        }
        "suspend" => change("operation.suspend", rest),
        "resume" => change("operation.resume", rest),
        "confirm-clock" => change("clock.confirm", ""),
        "backup" => change("node.backup", &serde_json::from_str::<String>(rest).unwrap_or_else(|_| rest.to_owned())),
        "stop" => Some((Audited::Allowed, AuditEntry::new("node.stop", ""))),
        "message" => {
            let entry = AuditEntry::new("message.body", format!("message {rest}"));
            Some((Audited::Read, entry))
        }
        "audit" => {
            let request: Value = serde_json::from_str(rest).ok()?;
            // The first page of a reading stands for the rest; heads and checks show no entry.
            let is_first = request["verb"] == "read" && request["query"]["from"].is_null();
            let entry = || AuditEntry::new("audit.read", "").with("filter", request["query"]["filter"].to_string());
            is_first.then(|| (Audited::Shown, entry()))
        }
        "volume" => volume(rest),
        _ => None,
    }
}

/// A request about volumes: every one that is not known to change nothing has an entry.
fn volume(request: &str) -> Option<(Audited, AuditEntry)> {
    let request: Value = serde_json::from_str(request).ok()?;
    let verb = request["verb"].as_str()?;
    let name = request["name"].as_str().unwrap_or_default();
    (verb != "status").then(|| {
        let entry = AuditEntry::new(format!("volume.{verb}"), name);
        // What else it says, such as sizes and copies; a key file is a path, and no key.
        (Audited::Change, entry.with("request", request.to_string()))
    })
}

/// Handles a request, with its entries.
///
/// # Errors
/// Those of the request, and `Audit` where it was not done because the audit takes no entry.
pub(super) async fn handle(
    audit: &Arc<Audit>,
    line: &str,
    peer: &LocalPeer,
    work: impl Future<Output = Result<Value, InteropError>>,
) -> Result<Value, InteropError> {
    let Some((audited, entry)) = entry_of(line) else { return work.await };
    let entry = entry.by(peer);
    match audited {
        Audited::Change | Audited::Allowed => {
            let written = write(audit, audited, entry.clone()).await?;
            let done = work.await;
            if let (Err(error), Some(ticket)) = (&done, written) {
                let failed = entry.with("entry", ticket.number.to_string());
                let failed = audit.write(failed.ended(AuditOutcome::Failed, error.to_string())).await;
                if let Err(why) = failed {
                    tracing::error!(%why, entry = ticket.number, "that a change failed could not be written to the audit");
                }
            }
            done
        }
        Audited::Read | Audited::Shown => {
            let read = work.await;
            let entry = match (&read, audited) {
                (Ok(_), Audited::Read) => AuditEntry { reads: reads_of(line), ..entry },
                (Ok(_), _) => entry,
                (Err(error), _) => entry.ended(AuditOutcome::Failed, error.to_string()),
            };
            write(audit, audited, entry).await?;
            read
        }
    }
}

/// The bodies that a request for a message has read.
fn reads_of(line: &str) -> Reads {
    let id = line.split_whitespace().nth(1).and_then(|id| id.parse().ok());
    id.map_or_else(Reads::default, Reads::one)
}

/// Writes an entry. None where there is none and the request goes on nevertheless.
async fn write(audit: &Arc<Audit>, audited: Audited, entry: AuditEntry) -> Result<Option<AuditTicket>, InteropError> {
    if matches!(audited, Audited::Change | Audited::Read) {
        return Ok(Some(audit.write(entry).await.map_err(NodeError::from)?));
    }
    let why = match tokio::time::timeout(PATIENCE, audit.write(entry)).await {
        Ok(Ok(ticket)) => return Ok(Some(ticket)),
        Ok(Err(refused)) => refused.to_string(),
        Err(_) => "it is not durable yet".to_owned(),
    };
    tracing::error!(why, "an entry of the audit could not be written; the request goes on, since it needs none");
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_and_what_shows_a_body_has_an_entry_and_nothing_else() {
        let found = |line: &str| entry_of(line).map(|(audited, entry)| (audited, entry.action, entry.object));
        let entry = |audited, action: &str, object: &str| Some((audited, action.to_owned(), object.to_owned()));
        for (line, expected) in [
            ("reload", entry(Audited::Change, "production.reload", "")),
            ("resend 7 a b", entry(Audited::Change, "message.resend", "message 7")),
            ("suspend out", entry(Audited::Change, "operation.suspend", "out")),
            ("resume  out ", entry(Audited::Change, "operation.resume", "out")),
            ("confirm-clock", entry(Audited::Change, "clock.confirm", "")),
            ("backup \"/b 1\"", entry(Audited::Change, "node.backup", "/b 1")),
            ("stop", entry(Audited::Allowed, "node.stop", "")),
            ("message 7", entry(Audited::Read, "message.body", "message 7")),
            ("volume {\"verb\":\"delete\",\"name\":\"v\"}", entry(Audited::Change, "volume.delete", "v")),
            ("volume {\"verb\":\"status\",\"names\":[]}", None),
            ("audit {\"verb\":\"read\",\"query\":{}}", entry(Audited::Shown, "audit.read", "")),
            ("audit {\"verb\":\"read\",\"query\":{\"from\":9}}", None),
            ("audit {\"verb\":\"head\"}", None),
            ("status", None),
            ("messages {}", None),
            ("count", None),
            ("check", None),
            ("verify", None),
        ] {
            assert_eq!(found(line), expected, "{line}");
        }
        assert_eq!(reads_of("message 7"), Reads::one(7));
    }
}
