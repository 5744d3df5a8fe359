//! Which requests of the control socket have an entry in the audit, and when it is written.
//!
//! ```text
//!   a change       entry "granted", durable --> done            and if it fails: entry "failed", which names the first one
//!   a read         read --> entry with its outcome, durable --> the response        the bodies of a message, the audit itself
//!   harmless       no entry: the words that are listed here: status, counts, lists of messages without bodies
//!
//!   the audit takes no entry: a change is not begun, a body is not shown          but for `stop` and reading the audit,
//!                                                                                 with which a full audit is set right
//! ```
//!
//! What is not known here is a change. A request is divided into words as those who handle it divide it.

use std::sync::Arc;
use std::time::Duration;

use node::audit::{AuditEntry, AuditOutcome, AuditRequest, AuditTicket, Reads};
use node::control::LocalPeer;
use node::identity::IdentityRequest;
use node::{Audit, NodeError};
use serde_json::{Value, json};

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
    let (word, rest) = first_word(line);
    let change = |action: &str, object: &str| Some((Audited::Change, AuditEntry::new(action, object)));
    match word {
        "reload" => change("production.reload", ""),
        "resend" => {
            let (id, operations) = first_word(rest);
            let mut entry = AuditEntry::new("message.resend", format!("message {id}"));
            if !operations.is_empty() {
                entry = entry.with("operations", operations);
            }
            Some((Audited::Change, entry))
        }
        "suspend" => change("operation.suspend", rest),
        "resume" => change("operation.resume", rest),
        // Without a clock retention does not go on, and a full audit would stay full.
        "confirm-clock" => Some((Audited::Allowed, AuditEntry::new("clock.confirm", ""))),
        "backup" => change("node.backup", &serde_json::from_str::<String>(rest).unwrap_or_else(|_| rest.to_owned())),
        "stop" => Some((Audited::Allowed, AuditEntry::new("node.stop", ""))),
        "message" => {
            let entry = AuditEntry::new("message.body", format!("message {rest}"));
            Some((Audited::Read, entry))
        }
        "message-search" => Some((Audited::Read, AuditEntry::new("message.search", "").with("query", rest))),
        "audit" => audit_request(rest),
        "identity" => identity(rest),
        "volume" => volume(rest),
        "" | "status" | "messages" | "count" | "check" | "verify" => None,
        _ => change(&format!("request.{word}"), rest),
    }
}

/// The first word of a line, and the rest without blanks around it.
fn first_word(line: &str) -> (&str, &str) {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (word, rest.trim())
}

/// A request about the audit: each page that is shown has an entry; heads and checks show none.
fn audit_request(request: &str) -> Option<(Audited, AuditEntry)> {
    match serde_json::from_str(request) {
        Ok(AuditRequest::Head | AuditRequest::Verify { .. }) => None,
        Ok(AuditRequest::Read { query }) => {
            let from = query.from.map(|from| from.to_string());
            let entry = AuditEntry::new("audit.read", "").with("filter", json!(query.filter).to_string());
            Some((Audited::Shown, from.into_iter().fold(entry, |entry, from| entry.with("from", from))))
        }
        Err(_) => Some((Audited::Shown, AuditEntry::new("audit.unreadable", ""))),
    }
}

/// A request about roles and rights: what is changed, without any secret. Reports have no entry.
fn identity(request: &str) -> Option<(Audited, AuditEntry)> {
    let entry = match serde_json::from_str(request) {
        Ok(IdentityRequest::List | IdentityRequest::Show { .. }) => return None,
        Ok(IdentityRequest::Change { changes }) => {
            changes.iter().enumerate().fold(AuditEntry::new("identity.change", ""), |entry, (at, change)| {
                entry.with(format!("change {}", at + 1), change.without_secrets().to_string())
            })
        }
        Ok(IdentityRequest::DrawToken { role, name, until_us }) => {
            let entry = AuditEntry::new("identity.token", format!("role {role}")).with("token", name);
            until_us.into_iter().fold(entry, |entry, until| entry.with("until_us", until.to_string()))
        }
        Err(_) => AuditEntry::new("identity.unreadable", ""),
    };
    Some((Audited::Change, entry))
}

/// A request about volumes: every one that is not known to change nothing has an entry.
fn volume(request: &str) -> Option<(Audited, AuditEntry)> {
    let read: Value = serde_json::from_str(request).unwrap_or(Value::Null);
    let (verb, name) = (read["verb"].as_str().unwrap_or("unreadable"), read["name"].as_str().unwrap_or_default());
    (verb != "status").then(|| {
        let entry = AuditEntry::new(format!("volume.{verb}"), name);
        // What else it says, such as sizes and copies; a key file is a path, and no key.
        (Audited::Change, entry.with("request", request))
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

/// The bodies that a request for a message has read; a search shows names and numbers, and no body.
fn reads_of(line: &str) -> Reads {
    let (word, id) = first_word(line);
    let id = id.parse().ok().filter(|_| word == "message");
    id.map_or_else(Reads::default, Reads::one)
}

/// Writes an entry. None where there is none and the request goes on nevertheless.
async fn write(audit: &Arc<Audit>, audited: Audited, entry: AuditEntry) -> Result<Option<AuditTicket>, InteropError> {
    if matches!(audited, Audited::Change | Audited::Read) {
        return Ok(Some(audit.write(entry).await.map_err(NodeError::from)?));
    }
    // On a thread: a medium that hangs holds an append up too.
    let writing = Arc::clone(audit);
    let written = tokio::task::spawn_blocking(move || {
        let ticket = writing.record(entry)?;
        writing.wait(ticket).map(|()| ticket)
    });
    let why = match tokio::time::timeout(PATIENCE, written).await {
        Ok(Ok(Ok(ticket))) => return Ok(Some(ticket)),
        Ok(Ok(Err(refused))) => refused.to_string(),
        Ok(Err(_)) => "the node is stopping".to_owned(),
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
            ("resume\tout", entry(Audited::Change, "operation.resume", "out")),
            ("resend\u{a0}7\ta", entry(Audited::Change, "message.resend", "message 7")),
            ("confirm-clock", entry(Audited::Allowed, "clock.confirm", "")),
            ("backup \"/b 1\"", entry(Audited::Change, "node.backup", "/b 1")),
            ("stop", entry(Audited::Allowed, "node.stop", "")),
            ("message 7", entry(Audited::Read, "message.body", "message 7")),
            ("volume {\"verb\":\"delete\",\"name\":\"v\"}", entry(Audited::Change, "volume.delete", "v")),
            ("volume {\"verb\":\"status\",\"names\":[]}", None),
            ("audit {\"verb\":\"read\",\"query\":{}}", entry(Audited::Shown, "audit.read", "")),
            ("backup\t\"/b\"", entry(Audited::Change, "node.backup", "/b")),
            ("volume [\"delete\",\"v\"]", entry(Audited::Change, "volume.unreadable", "")),
            ("volume delete v", entry(Audited::Change, "volume.unreadable", "")),
            ("message-search {\"query\":\"MRN:1\"}", entry(Audited::Read, "message.search", "")),
            ("identity {\"verb\":\"change\",\"changes\":[]}", entry(Audited::Change, "identity.change", "")),
            ("identity [\"change\",[]]", entry(Audited::Change, "identity.change", "")),
            ("identity x", entry(Audited::Change, "identity.unreadable", "")),
            ("identity {\"verb\":\"list\"}", None),
            ("invented 1", entry(Audited::Change, "request.invented", "1")),
            ("audit {\"verb\":\"read\",\"query\":{\"from\":9}}", entry(Audited::Shown, "audit.read", "")),
            ("audit [\"read\",{}]", entry(Audited::Shown, "audit.read", "")),
            ("audit {\"verb\":\"head\"}", None),
            ("status", None),
            ("messages {}", None),
            ("count", None),
            ("check", None),
            ("verify", None),
        ] {
            assert_eq!(found(line), expected, "{line}");
        }
        assert_eq!(reads_of("message\t7"), Reads::one(7));
        assert_eq!(reads_of("message-search 7"), Reads::default());
    }

    #[test]
    fn no_secret_is_in_the_entry_of_a_change_of_roles() {
        let change =
            r#"{"credential":{"role":"ann","change":{"password":{"scram":null,"hash":null,"must_change":true}}}}"#;
        let line = format!("identity {{\"verb\":\"change\",\"changes\":[{change}]}}");
        let (_, entry) = entry_of(&line).expect("a change");
        let change = &entry.details["change 1"];
        assert!(change.contains("ann") && change.contains("must_change"), "{entry:?}");
    }
}
