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
//!
//! A change goes on to its end though its client hangs up, so that its entries say what became of it. Work that reports how far it
//! has come ends then by itself, and fails. A change at which the node ends may have neither.

use std::sync::Arc;
use std::time::Duration;

use device::supervise::caught;
use node::audit::{AuditEntry, AuditOutcome, AuditRequest, AuditTicket, Reads};
use node::control::LocalPeer;
use node::identity::IdentityRequest;
use node::task::session;
use node::{Audit, NodeError};
use serde_json::{Value, json};
use tokio::sync::oneshot;

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

/// Most details of an entry that changes of roles and rights have. Each change is visible there, or it is not made.
const CHANGE_DETAILS_MAX: usize = 12;

/// The entry of a request; none for one that has none.
///
/// # Errors
/// `Refused` where an entry has no room for all that it would change.
fn entry_of(line: &str) -> Result<Option<(Audited, AuditEntry)>, InteropError> {
    let (word, rest) = first_word(line);
    let change = |action: &str, object: &str| Some((Audited::Change, AuditEntry::new(action, object)));
    Ok(match word {
        "reload" => change("production.reload", ""),
        "resend" => {
            let (id, operations) = first_word(rest);
            let mut entry = AuditEntry::new("message.resend", format!("message {id}"));
            if !operations.is_empty() {
                entry = entry.with_long("operations", operations);
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
        "message-search" => Some((Audited::Read, AuditEntry::new("message.search", "").with_long("query", rest))),
        "audit" => audit_request(rest),
        "identity" => identity(rest)?,
        "volume" => volume(rest),
        "" | "status" | "messages" | "count" | "check" | "verify" => None,
        _ => change(&format!("request.{word}"), rest),
    })
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
            let entry = AuditEntry::new("audit.read", "").with_long("filter", &json!(query.filter).to_string());
            Some((Audited::Shown, from.into_iter().fold(entry, |entry, from| entry.with("from", from))))
        }
        Err(_) => Some((Audited::Shown, AuditEntry::new("audit.unreadable", ""))),
    }
}

/// A request about roles and rights: what is changed, without any secret. Reports have no entry.
///
/// # Errors
/// `Refused` where one entry cannot show all changes.
fn identity(request: &str) -> Result<Option<(Audited, AuditEntry)>, InteropError> {
    let entry = match serde_json::from_str(request) {
        Ok(IdentityRequest::List | IdentityRequest::Show { .. }) => return Ok(None),
        Ok(IdentityRequest::Change { changes }) => {
            let entry =
                changes.iter().enumerate().fold(AuditEntry::new("identity.change", ""), |entry, (at, change)| {
                    entry.with_long(&format!("change {}", at + 1), &change.without_secrets().to_string())
                });
            let is_cut = entry.details.values().any(|value| value.len() > AuditEntry::VALUE_BYTES_MAX);
            if entry.details.len() > CHANGE_DETAILS_MAX || is_cut {
                let (most, bytes) = (CHANGE_DETAILS_MAX, AuditEntry::VALUE_BYTES_MAX);
                return Err(InteropError::Refused(format!(
                    "nothing was changed: one entry of the audit shows {most} changes at most, and a change of more than {bytes} bytes \
                     counts for several; send these {} in several requests",
                    changes.len()
                )));
            }
            entry
        }
        Ok(IdentityRequest::DrawToken { role, name, until_us }) => {
            let entry = AuditEntry::new("identity.token", format!("role {role}")).with("token", name);
            until_us.into_iter().fold(entry, |entry, until| entry.with("until_us", until.to_string()))
        }
        Err(_) => AuditEntry::new("identity.unreadable", ""),
    };
    Ok(Some((Audited::Change, entry)))
}

/// A request about volumes: every one that is not known to change nothing has an entry.
fn volume(request: &str) -> Option<(Audited, AuditEntry)> {
    let read: Value = serde_json::from_str(request).unwrap_or(Value::Null);
    let (verb, name) = (read["verb"].as_str().unwrap_or("unreadable"), read["name"].as_str().unwrap_or_default());
    (verb != "status").then(|| {
        let entry = AuditEntry::new(format!("volume.{verb}"), name);
        // What else it says, such as sizes and copies; a key file is a path, and no key.
        (Audited::Change, entry.with_long("request", request))
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
    work: impl Future<Output = Result<Value, InteropError>> + Send + 'static,
) -> Result<Value, InteropError> {
    let Some((audited, entry)) = entry_of(line)? else { return work.await };
    let entry = entry.by(peer);
    match audited {
        Audited::Change | Audited::Allowed => {
            let (audit, (answer, answered)) = (Arc::clone(audit), oneshot::channel());
            session("change", async move {
                // Who asked for it may be gone.
                let _ = answer.send(change(&audit, audited, entry, work).await);
            });
            answered.await.unwrap_or(Err(InteropError::Stopping))
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

/// Makes a change, with its entries.
async fn change(
    audit: &Arc<Audit>,
    audited: Audited,
    entry: AuditEntry,
    work: impl Future<Output = Result<Value, InteropError>>,
) -> Result<Value, InteropError> {
    let written = write(audit, audited, entry.clone()).await?;
    let done = caught(work).await.unwrap_or_else(|why| {
        tracing::error!(why, action = entry.action, "a change ended by a panic, and no other; report it");
        Err(InteropError::Refused("a fault of the program ended it, and the node's log has the text".to_owned()))
    });
    if let (Err(error), Some(ticket)) = (&done, written) {
        let failed = entry.with("entry", ticket.number.to_string());
        if let Err(why) = audit.write(failed.ended(AuditOutcome::Failed, error.to_string())).await {
            tracing::error!(%why, entry = ticket.number, "that a change failed could not be written to the audit");
        }
    }
    done
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use device::{MemoryShelf, Shelf};
    use node::{AuditSettings, Clock};
    use store::{Places, Store};

    use super::*;

    fn audit() -> Arc<Audit> {
        let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
        let interpreter = Some(crate::rows::interpreter());
        let (store, _) = Store::open(places, store::Options { interpreter, ..Default::default() }).expect("it opens");
        Audit::open(&store, AuditSettings::default(), Clock::system())
    }

    #[tokio::test]
    async fn a_change_whose_client_hangs_up_goes_on_to_its_end() {
        let (audit, peer, is_done) = (audit(), LocalPeer::this_process(), Arc::new(AtomicBool::new(false)));
        let ((began, begun), (go, gone)) = (oneshot::channel(), oneshot::channel::<()>());
        let done = Arc::clone(&is_done);
        let work = async move {
            began.send(()).expect("the test waits");
            gone.await.expect("the test lives");
            done.store(true, Ordering::Release);
            Err(InteropError::Refused("no".to_owned()))
        };
        tokio::select! {
            _ = handle(&audit, "reload", &peer, work) => panic!("it has not ended"),
            begun = begun => begun.expect("it begins"),
        }
        assert_eq!(audit.head().number, 1);
        go.send(()).expect("it waits");
        while audit.head().number < 2 {
            tokio::task::yield_now().await;
        }
        assert!(is_done.load(Ordering::Acquire), "the second entry says that it failed");
        let panics = async { panic!("on purpose") };
        handle(&audit, "reload", &peer, panics).await.expect_err("a panic is an error of the request");
        assert_eq!(audit.head().number, 4);
    }

    #[test]
    fn what_changes_something_and_what_shows_a_body_has_an_entry_and_nothing_else() {
        let found = |line: &str| {
            let found = entry_of(line).expect("an entry has room for it");
            found.map(|(audited, entry)| (audited, entry.action, entry.object))
        };
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
        let (_, entry) = entry_of(&line).expect("an entry has room for it").expect("a change");
        let change = &entry.details["change 1"];
        assert!(change.contains("ann") && change.contains("must_change"), "{entry:?}");
    }

    #[test]
    fn changes_of_roles_that_one_entry_cannot_show_are_refused() {
        let request = |count: usize, length: usize| {
            let drop = json!({ "drop": { "role": "r".repeat(length), "cascade": false } });
            entry_of(&format!("identity {}", json!({ "verb": "change", "changes": vec![drop; count] })))
        };
        for (count, length, details) in [(1, 20, Some(1)), (12, 20, Some(12)), (13, 20, None), (1, 700, Some(2))] {
            let found = request(count, length).ok().flatten().map(|(_, entry)| entry.details.len());
            assert_eq!(found, details, "{count} changes of {length} bytes");
        }
        let refused = request(1, 60_000).expect_err("it would be cut").to_string();
        assert!(refused.contains("12 changes at most"), "{refused}");
    }

    #[test]
    fn a_long_request_is_divided_over_details() {
        let (_, entry) =
            entry_of(&format!("resend 7 {}", "operation ".repeat(100))).expect("it fits").expect("a change");
        assert_eq!(entry.details.keys().collect::<Vec<_>>(), ["operations", "operations part 2"]);
    }
}
