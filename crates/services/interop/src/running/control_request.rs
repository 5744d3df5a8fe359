//! [`ControlRequest`]: every request of the control socket, the right that each needs, and its entry in the audit. One table for
//! both: what is refused to whom, and what is recorded.
//!
//! ```text
//!   a line --read--> ControlRequest --requirement--> Needs: an action on an object       --> node::identity decides
//!                                             entry, and when it is written      --> audited
//! ```
//!
//! The `match` is exhaustive: a new request does not compile without its right. A line is read once: what is decided and recorded is
//! what is done.
//!
//! Not here: how requests are answered (`requests`), and the rights of requests about roles, which `node::identity` decides itself.

use std::path::PathBuf;

use node::audit::{AuditEntry, AuditRequest, EntryMarks};
use node::encryption::KeyChange;
use node::identity::{self, Action, Caller, IdentityChange, IdentityRequest, Object};
use serde_json::{Value, json};

use super::audited::Audited;
use super::generations::{PRODUCTION_REQUEST, ProductionRequest};
use super::operator_request::OperatorRequest;
use super::requirement::{Needs, Requirement};
use super::tail_lines::TailRequest;
use super::transfer_request::TransferRequest;
use crate::error::InteropError;
use crate::history::{Filter, ListQuery};

/// Most details of an entry that changes of roles and rights have. Each change is visible there, or it is not made.
const CHANGE_DETAILS_MAX: usize = 12;

/// A request of another service of the node, as that service has read it.
pub trait ServiceRequest: Send + Sync {
    /// What it asks for.
    fn requirement(&self) -> Requirement<'_>;

    /// Answers it; what it [needs](Requirement::needs) was decided before. It may block for as long as a search takes.
    ///
    /// # Errors
    /// The text for who asked.
    fn answer(&self, caller: &Caller) -> Result<Value, String>;
}

/// Reads what follows the word of a request of another service. Errors: it is no request, or the service does not work.
pub type ReadRequest = dyn Fn(&str) -> Result<Box<dyn ServiceRequest>, String> + Send + Sync;

/// A request.
pub(super) enum ControlRequest {
    Status,
    Reload {
        shown: Option<String>,
    },
    Resend {
        id: u64,
        operations: Vec<String>,
    },
    Operator(OperatorRequest),
    Transfer(TransferRequest),
    Switch {
        operation: String,
        suspended: bool,
    },
    ConfirmClock,
    Stop,
    Verify,
    Backup(PathBuf),
    Keys(KeyChange),
    Production(ProductionRequest),
    Messages(Box<Filter>),
    MessagePage(Box<ListQuery>),
    Message {
        id: u64,
        bodies: bool,
    },
    /// With the entry of bodies that it shows, by who asks.
    Tail {
        request: TailRequest,
        reads: Option<AuditEntry>,
    },
    Count,
    Check,
    Audit(AuditRequest),
    Identity(IdentityRequest),
    OfService {
        request: Box<dyn ServiceRequest>,
        at_once: bool,
    },
}

/// A line of each request of the node itself, about the message 1 and the operation `out`: for tests that walk all of them from
/// outside. Other services have their own, which they register.
pub const CONTROL_EXAMPLES: &[&str] = &[
    "status",
    "reload",
    "resend 1",
    "resend-edited {\"id\":1,\"body\":\"MSH|\"}",
    "reprocess {\"ids\":[1]}",
    "reprocess {\"ids\":[1],\"preview\":true}",
    "set-aside {\"operation\":\"out\",\"message\":1,\"reason\":\"a test\"}",
    "start {\"operation\":\"out\",\"until_us\":4102444800000000}",
    "operations",
    "operation out",
    "export {}",
    "import {\"service\":\"adt\",\"messages\":[{\"number\":1,\"source\":\"file-1\",\"body\":\"MSH|\"}]}",
    "import {\"service\":\"adt\",\"dry_run\":true,\"messages\":[{\"number\":1,\"source\":\"file-1\",\"body\":\"MSH|\"}]}",
    "todo {\"verb\":\"list\"}",
    "todo {\"verb\":\"change\",\"id\":1,\"change\":\"take\"}",
    "suspend out",
    "resume out",
    "confirm-clock",
    "stop",
    "verify",
    "backup \"/nowhere/backup\"",
    "encryption rotate-data-key",
    "encryption rotate-key-encryption-key \"file:/nowhere/key\"",
    "production {\"verb\":\"generations\"}",
    "production {\"verb\":\"diff\",\"from\":\"1\",\"to\":\"disk\"}",
    "production {\"verb\":\"texts\",\"generation\":1}",
    "production {\"verb\":\"rule\",\"generation\":1,\"service\":\"adt\",\"reason\":\"main: all\"}",
    "production {\"verb\":\"back\",\"generation\":1}",
    "messages {}",
    "messages {\"mrn\":\"1\"}",
    "message-page {}",
    "message-page {\"filter\":{\"mrn\":\"1\"}}",
    "message 1",
    "message 1 metadata",
    "tail {}",
    "tail {\"bodies\":true}",
    "count",
    "check",
    "audit {\"verb\":\"head\"}",
    "audit {\"verb\":\"read\",\"query\":{}}",
    "audit {\"verb\":\"verify\",\"heads\":[]}",
    "identity {\"verb\":\"list\"}",
    "identity {\"verb\":\"show\",\"role\":\"administrator\"}",
    "identity {\"verb\":\"change\",\"changes\":[{\"drop\":{\"role\":\"administrator\",\"cascade\":true}}]}",
    "identity {\"verb\":\"draw-token\",\"role\":\"administrator\",\"name\":\"x\",\"until_us\":null}",
];

/// The first word of a line, and the rest without blanks around it.
pub(super) fn first_word(line: &str) -> (&str, &str) {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (word, rest.trim())
}

fn message_id(text: &str) -> Result<u64, InteropError> {
    text.parse().map_err(|_| InteropError::Refused(format!("`{text}` is not a message id")))
}

impl ControlRequest {
    /// Reads a line. None: no request of the node itself.
    ///
    /// # Errors
    /// What follows the word is wrong.
    pub(super) fn of(line: &str) -> Result<Option<ControlRequest>, InteropError> {
        let (word, rest) = first_word(line);
        if let Some(request) = OperatorRequest::of(word, rest)? {
            return Ok(Some(ControlRequest::Operator(request)));
        }
        if let Some(request) = TransferRequest::of(word, rest)? {
            return Ok(Some(ControlRequest::Transfer(request)));
        }
        let words: Vec<&str> = rest.split_whitespace().collect();
        let request = match (word, words.as_slice()) {
            ("status", []) => ControlRequest::Status,
            ("reload", []) => ControlRequest::Reload { shown: None },
            ("reload", [shown]) => ControlRequest::Reload { shown: Some((*shown).to_owned()) },
            ("resend", [id, operations @ ..]) => {
                let operations = operations.iter().map(|name| (*name).to_owned()).collect();
                ControlRequest::Resend { id: message_id(id)?, operations }
            }
            ("suspend" | "resume", [operation]) => {
                ControlRequest::Switch { operation: (*operation).to_owned(), suspended: word == "suspend" }
            }
            ("confirm-clock", []) => ControlRequest::ConfirmClock,
            ("stop", []) => ControlRequest::Stop,
            ("verify", []) => ControlRequest::Verify,
            ("backup", [_, ..]) => match serde_json::from_str(rest) {
                Ok(folder) => ControlRequest::Backup(folder),
                Err(_) => return Err(InteropError::Refused(format!("`{rest}` is no folder as a JSON text"))),
            },
            ("encryption", [_, ..]) => ControlRequest::Keys(KeyChange::of(rest)?),
            (PRODUCTION_REQUEST, [_, ..]) => ControlRequest::Production(ProductionRequest::of(rest)?),
            ("messages", [_, ..]) => match serde_json::from_str(rest) {
                Ok(filter) => ControlRequest::Messages(Box::new(filter)),
                Err(error) => return Err(InteropError::Refused(format!("`{rest}` is no filter: {error}"))),
            },
            ("message-page", [_, ..]) => match serde_json::from_str(rest) {
                Ok(query) => ControlRequest::MessagePage(Box::new(query)),
                Err(error) => return Err(InteropError::Refused(format!("`{rest}` is no query of a page: {error}"))),
            },
            ("message", [id]) => ControlRequest::Message { id: message_id(id)?, bodies: true },
            ("message", [id, "metadata"]) => ControlRequest::Message { id: message_id(id)?, bodies: false },
            ("tail", [_, ..]) => match serde_json::from_str(rest) {
                Ok(request) => ControlRequest::Tail { request, reads: None },
                Err(error) => return Err(InteropError::Refused(format!("`{rest}` is no request of a tail: {error}"))),
            },
            ("count", []) => ControlRequest::Count,
            ("check", []) => ControlRequest::Check,
            ("audit", [_, ..]) => ControlRequest::Audit(AuditRequest::of(rest)?),
            (identity::REQUEST, [_, ..]) => match serde_json::from_str(rest) {
                Ok(request) => {
                    fits(&request)?;
                    ControlRequest::Identity(request)
                }
                // The text may hold a secret: it is not repeated.
                Err(error) => {
                    let text = format!("the request about roles cannot be read by this release: {error}");
                    return Err(InteropError::Refused(text));
                }
            },
            _ => return Ok(None),
        };
        Ok(Some(request))
    }

    /// The right that it needs, and its entry.
    pub(super) fn requirement(&self) -> Requirement<'_> {
        let node = |action| Needs::Right(action, Object::Node);
        let change = |action: &str, object: &str| Some((Audited::Change, AuditEntry::new(action, object)));
        let (needs, entry) = match self {
            ControlRequest::Status | ControlRequest::Count => (node(Action::NodeStatus), None),
            ControlRequest::Reload { .. } => (node(Action::ProductionLoad), change("production.reload", "")),
            ControlRequest::Resend { id, operations } => {
                let mut entry = AuditEntry::new("message.resend", format!("message {id}"));
                if !operations.is_empty() {
                    entry = entry.with_long("operations", &operations.join(" "));
                }
                (Needs::OfMessage(Action::MessageResend, *id), Some((Audited::Change, entry)))
            }
            ControlRequest::Operator(request) => return request.requirement(),
            ControlRequest::Transfer(request) => return request.requirement(),
            ControlRequest::Switch { operation, suspended } => {
                let action = if *suspended { "operation.suspend" } else { "operation.resume" };
                (Needs::Right(Action::OperationSuspend, Object::Operation(operation)), change(action, operation))
            }
            // Without a clock retention does not go on, and a full audit would stay full.
            ControlRequest::ConfirmClock => {
                (node(Action::ClockConfirm), Some((Audited::Allowed, AuditEntry::new("clock.confirm", ""))))
            }
            ControlRequest::Stop => {
                (node(Action::NodeStop), Some((Audited::Allowed, AuditEntry::new("node.stop", ""))))
            }
            ControlRequest::Verify => {
                (node(Action::NodeVerify), Some((Audited::Allowed, AuditEntry::new("node.verify", "pages"))))
            }
            ControlRequest::Check => {
                (node(Action::NodeVerify), Some((Audited::Allowed, AuditEntry::new("node.verify", "rows"))))
            }
            ControlRequest::Backup(folder) => {
                (node(Action::NodeBackup), change("node.backup", &folder.display().to_string()))
            }
            // Who has the keys has everything.
            ControlRequest::Keys(keys) => {
                (node(Action::RightsGrant), Some((Audited::Change, AuditEntry::of_keys(keys))))
            }
            ControlRequest::Production(ProductionRequest::Back { generation }) => {
                (node(Action::ProductionLoad), change("production.back", &format!("generation {generation}")))
            }
            ControlRequest::Production(_) => (node(Action::ProductionRead), None),
            ControlRequest::Messages(filter) => list_requirement(filter),
            ControlRequest::MessagePage(query) => list_requirement(&query.filter),
            ControlRequest::Message { id, bodies } => {
                let object = format!("message {id}");
                let entry = match bodies {
                    true => (Audited::Read, AuditEntry::new("message.body", object)),
                    false => (Audited::Used, AuditEntry::new("message.metadata", object)),
                };
                (Needs::OfMessage(Action::MessageMetadata, *id), Some(entry))
            }
            // What follows the beginning has entries of its own, as far as bodies are shown.
            ControlRequest::Tail { request, .. } => {
                let entry = AuditEntry::new("message.tail", "").with_long("request", &json!(request).to_string());
                let needs = match request.bodies {
                    true => Needs::SomeOfEach(&[Action::MessageMetadata, Action::MessageBody]),
                    false => Needs::Some(Action::MessageMetadata),
                };
                (needs, Some((Audited::Begun, entry)))
            }
            ControlRequest::Audit(request) => (node(Action::AuditRead), audit_entry(request)),
            ControlRequest::Identity(request) => (Needs::ByIdentity, identity_entry(request)),
            ControlRequest::OfService { request, .. } => return request.requirement(),
        };
        Requirement { needs, entry }
    }
}

/// The right that a list needs, and its entry: whether a message matches may say something about its body.
fn list_requirement(filter: &Filter) -> (Needs<'static>, Option<(Audited, AuditEntry)>) {
    let entry = AuditEntry::new("message.list", "").with_long("filter", &json!(filter).to_string());
    match filter.reads_bodies() {
        true => (Needs::Some(Action::MessageBody), Some((Audited::Read, entry))),
        false => (Needs::Some(Action::MessageMetadata), Some((Audited::Used, entry))),
    }
}

/// The entry of a request about the audit: each page that is shown has one; heads and checks show none.
fn audit_entry(request: &AuditRequest) -> Option<(Audited, AuditEntry)> {
    match request {
        AuditRequest::Head | AuditRequest::Verify { .. } => None,
        AuditRequest::Read { query } => {
            let from = query.from.map(|from| from.to_string());
            let entry = AuditEntry::new("audit.read", "").with_long("filter", &json!(query.filter).to_string());
            Some((Audited::Shown, from.into_iter().fold(entry, |entry, from| entry.with("from", from))))
        }
    }
}

/// The entry of a request about roles and rights: what is changed, without any secret. Reports have none.
fn identity_entry(request: &IdentityRequest) -> Option<(Audited, AuditEntry)> {
    let entry = match request {
        IdentityRequest::List | IdentityRequest::Show { .. } => return None,
        IdentityRequest::Change { changes } => {
            let entry =
                changes.iter().enumerate().fold(AuditEntry::new("identity.change", ""), |entry, (at, change)| {
                    entry.with_long(&format!("change {}", at + 1), &change.without_secrets().to_string())
                });
            let break_glass = changes.iter().any(|change| matches!(change, IdentityChange::BreakGlass { .. }));
            entry.marked(EntryMarks { break_glass, ..EntryMarks::default() })
        }
        IdentityRequest::DrawToken { role, name, until_us } => {
            let entry = AuditEntry::new("identity.token", format!("role {role}")).with("token", name.clone());
            until_us.iter().fold(entry, |entry, until| entry.with("until_us", until.to_string()))
        }
    };
    Some((Audited::Change, entry))
}

/// Refuses changes of roles and rights that one entry of the audit cannot show.
///
/// # Errors
/// `Refused`.
fn fits(request: &IdentityRequest) -> Result<(), InteropError> {
    let IdentityRequest::Change { changes } = request else { return Ok(()) };
    let Some((_, entry)) = identity_entry(request) else { return Ok(()) };
    let is_cut = entry.details.values().any(|value| value.len() > AuditEntry::VALUE_BYTES_MAX);
    if entry.details.len() > CHANGE_DETAILS_MAX || is_cut {
        let (most, bytes) = (CHANGE_DETAILS_MAX, AuditEntry::VALUE_BYTES_MAX);
        return Err(InteropError::Refused(format!(
            "nothing was changed: one entry of the audit shows {most} changes at most, and a change of more than {bytes} bytes \
             counts for several; send these {} in several requests",
            changes.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<ControlRequest> {
        ControlRequest::of(line).ok().flatten()
    }

    #[test]
    fn every_request_has_its_right_and_what_is_audited_its_entry() {
        let entry = |audited, action: &str, object: &str| Some((audited, action.to_owned(), object.to_owned()));
        let node = |action| Needs::Right(action, Object::Node);
        let out = Needs::Right(Action::OperationSuspend, Object::Operation("out"));
        let metadata = Needs::OfMessage(Action::MessageMetadata, 7);
        for (line, needs, expected) in [
            ("reload", node(Action::ProductionLoad), entry(Audited::Change, "production.reload", "")),
            (
                "resend 7 a b",
                Needs::OfMessage(Action::MessageResend, 7),
                entry(Audited::Change, "message.resend", "message 7"),
            ),
            ("suspend out", out, entry(Audited::Change, "operation.suspend", "out")),
            ("resume  out ", out, entry(Audited::Change, "operation.resume", "out")),
            ("resume\tout", out, entry(Audited::Change, "operation.resume", "out")),
            (
                "production {\"verb\":\"back\",\"generation\":7}",
                node(Action::ProductionLoad),
                entry(Audited::Change, "production.back", "generation 7"),
            ),
            ("production {\"verb\":\"generations\"}", node(Action::ProductionRead), None),
            ("confirm-clock", node(Action::ClockConfirm), entry(Audited::Allowed, "clock.confirm", "")),
            ("backup \"/b 1\"", node(Action::NodeBackup), entry(Audited::Change, "node.backup", "/b 1")),
            (
                "encryption rotate-data-key",
                node(Action::RightsGrant),
                entry(Audited::Change, "encryption.rotate-data-key", ""),
            ),
            ("stop", node(Action::NodeStop), entry(Audited::Allowed, "node.stop", "")),
            ("message 7", metadata, entry(Audited::Read, "message.body", "message 7")),
            ("message 7 metadata", metadata, entry(Audited::Used, "message.metadata", "message 7")),
            (
                "audit {\"verb\":\"read\",\"query\":{}}",
                node(Action::AuditRead),
                entry(Audited::Shown, "audit.read", ""),
            ),
            ("audit {\"verb\":\"head\"}", node(Action::AuditRead), None),
            (
                "identity {\"verb\":\"change\",\"changes\":[]}",
                Needs::ByIdentity,
                entry(Audited::Change, "identity.change", ""),
            ),
            ("identity [\"change\",[]]", Needs::ByIdentity, entry(Audited::Change, "identity.change", "")),
            ("identity {\"verb\":\"list\"}", Needs::ByIdentity, None),
            ("status", node(Action::NodeStatus), None),
            ("count", node(Action::NodeStatus), None),
            ("messages {}", Needs::Some(Action::MessageMetadata), entry(Audited::Used, "message.list", "")),
            ("messages {\"mrn\":\"1\"}", Needs::Some(Action::MessageBody), entry(Audited::Read, "message.list", "")),
            ("message-page {}", Needs::Some(Action::MessageMetadata), entry(Audited::Used, "message.list", "")),
            ("tail {}", Needs::Some(Action::MessageMetadata), entry(Audited::Begun, "message.tail", "")),
            ("check", node(Action::NodeVerify), entry(Audited::Allowed, "node.verify", "rows")),
            ("verify", node(Action::NodeVerify), entry(Audited::Allowed, "node.verify", "pages")),
        ] {
            let request = read(line).unwrap_or_else(|| panic!("{line} is a request"));
            let requirement = request.requirement();
            assert_eq!(requirement.needs, needs, "{line}");
            if let (Needs::Right(action, _) | Needs::OfMessage(action, _), false) =
                (requirement.needs, line.starts_with("audit"))
            {
                let is_recorded = requirement.entry.as_ref().is_some_and(|(audited, _)| *audited != Audited::Used);
                assert_eq!(action.is_audited() || line == "message 7", is_recorded, "{line}");
            }
            let found = requirement.entry.map(|(audited, entry)| (audited, entry.action, entry.object));
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn every_request_has_an_example() {
        let number = |request: &ControlRequest| match request {
            ControlRequest::Operator(request) => 24 + request.number(),
            ControlRequest::Transfer(request) => 42 + request.number(),
            ControlRequest::Status => 0,
            ControlRequest::Reload { .. } => 1,
            ControlRequest::Resend { .. } => 2,
            ControlRequest::Switch { suspended, .. } => 3 + usize::from(*suspended),
            ControlRequest::ConfirmClock => 5,
            ControlRequest::Stop => 6,
            ControlRequest::Verify => 7,
            ControlRequest::Backup(_) => 8,
            ControlRequest::Messages(filter) => 9 + usize::from(filter.reads_bodies()),
            ControlRequest::Message { bodies, .. } => 11 + usize::from(*bodies),
            ControlRequest::Count => 13,
            ControlRequest::Check => 14,
            ControlRequest::Audit(AuditRequest::Head) => 15,
            ControlRequest::Audit(AuditRequest::Read { .. }) => 16,
            ControlRequest::Audit(AuditRequest::Verify { .. }) => 17,
            ControlRequest::Identity(IdentityRequest::List) => 18,
            ControlRequest::Identity(IdentityRequest::Show { .. }) => 19,
            ControlRequest::Identity(IdentityRequest::Change { .. }) => 20,
            ControlRequest::Identity(IdentityRequest::DrawToken { .. }) => 21,
            ControlRequest::Keys(KeyChange::DataKey) => 22,
            ControlRequest::Keys(KeyChange::KeyEncryptionKey(_)) => 23,
            ControlRequest::Production(ProductionRequest::Generations { .. }) => 32,
            ControlRequest::Production(ProductionRequest::Diff { .. }) => 33,
            ControlRequest::Production(ProductionRequest::Texts { .. }) => 34,
            ControlRequest::Production(ProductionRequest::Rule { .. }) => 35,
            ControlRequest::Production(ProductionRequest::Back { .. }) => 36,
            ControlRequest::MessagePage(query) => 37 + usize::from(query.filter.reads_bodies()),
            ControlRequest::Tail { request, .. } => 40 + usize::from(request.bodies),
            ControlRequest::OfService { .. } => unreachable!("it is no request of the node itself"),
        };
        let mut found: Vec<usize> = CONTROL_EXAMPLES
            .iter()
            .map(|line| number(&read(line).unwrap_or_else(|| panic!("{line} is a request"))))
            .collect();
        found.sort_unstable();
        assert_eq!(found, (0..CONTROL_EXAMPLES.len()).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_request_is_not_read_as_one() {
        for line in ["", "invented 1", "status now", "resend", "resume", "volume {}", "stop it", "identity", "Stop"] {
            assert!(matches!(ControlRequest::of(line), Ok(None)), "{line}");
        }
        for line in [
            "resend x",
            "message 7x",
            "backup nowhere",
            "encryption x",
            "messages x",
            "message-page x",
            "tail x",
            "audit x",
            "identity x",
        ] {
            assert!(ControlRequest::of(line).is_err(), "{line}");
        }
    }

    #[test]
    fn no_secret_is_in_the_entry_of_a_change_of_roles() {
        let change =
            r#"{"credential":{"role":"ann","change":{"password":{"scram":null,"hash":null,"must_change":true}}}}"#;
        let request = read(&format!("identity {{\"verb\":\"change\",\"changes\":[{change}]}}")).expect("a change");
        let (_, entry) = request.requirement().entry.expect("a change has one");
        let change = &entry.details["change 1"];
        assert!(change.contains("ann") && change.contains("must_change"), "{entry:?}");
    }

    #[test]
    fn changes_of_roles_that_one_entry_cannot_show_are_refused() {
        let request = |count: usize, length: usize| {
            let drop = json!({ "drop": { "role": "r".repeat(length), "cascade": false } });
            ControlRequest::of(&format!("identity {}", json!({ "verb": "change", "changes": vec![drop; count] })))
        };
        for (count, length, details) in [(1, 20, Some(1)), (12, 20, Some(12)), (13, 20, None), (1, 700, Some(2))] {
            let found = request(count, length).ok().flatten();
            let found = found.and_then(|request| Some(request.requirement().entry?.1.details.len()));
            assert_eq!(found, details, "{count} changes of {length} bytes");
        }
        let Err(refused) = request(1, 60_000) else { panic!("it would be cut") };
        assert!(refused.to_string().contains("12 changes at most"), "{refused}");
    }

    #[test]
    fn a_long_request_is_divided_over_details() {
        let request = read(&format!("resend 7 {}", "operation ".repeat(100))).expect("it fits");
        let (_, entry) = request.requirement().entry.expect("a change");
        assert_eq!(entry.details.keys().collect::<Vec<_>>(), ["operations", "operations part 2"]);
    }
}
