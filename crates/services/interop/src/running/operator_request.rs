//! [`OperatorRequest`]: what operators ask of a running production, typed: the requests, their answers, the right that each needs, and
//! its entry in the audit.
//!
//! ```text
//!   set-aside | start | reprocess | resend-edited | todo | operations | operation     --verbs--> SetAsideMessage | ReprocessPage | id | TodoPage ...
//! ```
//!
//! Not here: how they are answered (`verbs`, `reprocess`, `resend`, `todo`, `waiting`).

use bytes::Bytes;
use node::audit::AuditEntry;
use node::identity::{Action, Object};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::audited::Audited;
use super::requirement::{Needs, Requirement};
use crate::error::InteropError;
use crate::record::search::content;
use crate::record::{MessageOrigin, Status, Stored};
use crate::todo::{TodoChange, TodoComment, TodoReason};

/// Messages of one page at most.
pub(super) const PAGE_MAX: usize = 100;

/// The word of a request with an edited body.
pub(super) const EDITED: &str = "resend-edited";

/// What who sends an edited body needs: it can be made of what is masked, and tells by its outcome what is in the message.
const EDITS: &[Action] = &[Action::MessageEdit, Action::MessageBody, Action::Unmasked];

/// A request of an operator.
pub(super) enum OperatorRequest {
    ResendEdited(Box<EditedRequest>),
    Reprocess(ReprocessRequest),
    SetAside(SetAsideRequest),
    Start(StartRequest),
    Todo(TodoRequest),
    Operations,
    Operation(String),
}

/// Reads a request as JSON.
fn request_of<T: DeserializeOwned>(text: &str) -> Result<T, InteropError> {
    serde_json::from_str(text).map_err(|error| InteropError::Refused(format!("`{text}` is no such request: {error}")))
}

/// Reads a request with a body, which is not repeated in an error.
fn edited(text: &str) -> Result<EditedRequest, InteropError> {
    let read = serde_json::from_str(text);
    read.map_err(|_| InteropError::Refused("the request with an edited body cannot be read by this release".to_owned()))
}

impl OperatorRequest {
    /// Reads a line. None: no request of an operator.
    ///
    /// # Errors
    /// What follows the word is wrong.
    pub(super) fn of(word: &str, rest: &str) -> Result<Option<OperatorRequest>, InteropError> {
        Ok(Some(match (word, rest) {
            ("operations", "") => OperatorRequest::Operations,
            (_, "") => return Ok(None),
            (EDITED, _) => OperatorRequest::ResendEdited(Box::new(edited(rest)?)),
            ("reprocess", _) => {
                let request: ReprocessRequest = request_of(rest)?;
                request.check()?;
                OperatorRequest::Reprocess(request)
            }
            ("set-aside", _) => {
                let request: SetAsideRequest = request_of(rest)?;
                request.check()?;
                OperatorRequest::SetAside(request)
            }
            ("start", _) => OperatorRequest::Start(request_of(rest)?),
            ("todo", _) => {
                let request: TodoRequest = request_of(rest)?;
                if let TodoRequest::Change { change, .. } = &request {
                    change.check().map_err(InteropError::Refused)?;
                }
                OperatorRequest::Todo(request)
            }
            ("operation", name) if !name.contains(char::is_whitespace) => OperatorRequest::Operation(name.to_owned()),
            _ => return Ok(None),
        }))
    }

    /// The right that it needs, and its entry.
    pub(super) fn requirement(&self) -> Requirement<'_> {
        let status = Needs::Right(Action::NodeStatus, Object::Node);
        let (needs, entry) = match self {
            OperatorRequest::ResendEdited(request) => {
                let EditedRequest { id, to, body } = &**request;
                let mut entry = AuditEntry::new("message.edit", format!("message {id}"));
                let sum = request.bytes().map(|bytes| format!("{:016x}", content(&bytes))).unwrap_or_default();
                entry = entry.with("edited_crc64", sum).with("edited_bytes", body.chars().count().to_string());
                if !to.is_empty() {
                    entry = entry.with_long("operations", &to.join(" "));
                }
                (Needs::EveryOfMessage(EDITS, *id), Some((Audited::Change, entry)))
            }
            OperatorRequest::Reprocess(request) => (Needs::Some(Action::MessageResend), Some(reprocess_entry(request))),
            OperatorRequest::SetAside(SetAsideRequest { operation, message, reason }) => {
                let entry = AuditEntry::new("operation.set-aside", operation).with_long("reason", reason);
                let message = message.map_or_else(|| "head".to_owned(), |id| id.to_string());
                let needs = Needs::Right(Action::OperationSetAside, Object::Operation(operation));
                (needs, Some((Audited::Change, entry.with("message", message))))
            }
            OperatorRequest::Start(StartRequest { operation, until_us }) => {
                let entry = AuditEntry::new("operation.start", operation).with("until_us", until_us.to_string());
                let needs = Needs::Right(Action::OperationSuspend, Object::Operation(operation));
                (needs, Some((Audited::Change, entry)))
            }
            OperatorRequest::Todo(TodoRequest::List { .. }) => {
                (Needs::Some(Action::MessageMetadata), Some((Audited::Used, AuditEntry::new("todo.list", ""))))
            }
            OperatorRequest::Todo(TodoRequest::Change { id, change }) => {
                let (verb, text) = match change {
                    TodoChange::Take => ("todo.take", None),
                    TodoChange::Assign(owner) => ("todo.assign", Some(("owner", owner))),
                    TodoChange::Comment(text) => ("todo.comment", Some(("comment", text))),
                    TodoChange::Done => ("todo.done", None),
                };
                let entry = AuditEntry::new(verb, format!("message {id}"));
                let entry = text.into_iter().fold(entry, |entry, (key, text)| entry.with_long(key, text));
                (Needs::OfMessage(Action::MessageResend, *id), Some((Audited::Change, entry)))
            }
            OperatorRequest::Operations => (status, None),
            OperatorRequest::Operation(name) => {
                (status, Some((Audited::Used, AuditEntry::new("operation.answers", name))))
            }
        };
        Requirement { needs, entry }
    }

    /// Its number among the examples of all requests.
    #[cfg(test)]
    pub(super) fn number(&self) -> usize {
        match self {
            OperatorRequest::ResendEdited(_) => 0,
            OperatorRequest::Reprocess(request) => 1 + usize::from(request.preview),
            OperatorRequest::SetAside(_) => 3,
            OperatorRequest::Operations => 4,
            OperatorRequest::Operation(_) => 5,
            OperatorRequest::Todo(TodoRequest::List { .. }) => 6,
            OperatorRequest::Todo(TodoRequest::Change { .. }) => 7,
            // Behind those of the others.
            OperatorRequest::Start(_) => 15,
        }
    }
}

/// A request to send an edited body in the place of a stored message's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditedRequest {
    /// The stored message.
    pub id: u64,
    /// Operations that it went to; empty: the one that it went to.
    #[serde(default)]
    pub to: Vec<String>,
    /// The edited body: byte b is character U+00b.
    pub body: String,
}

impl EditedRequest {
    /// Of bytes.
    pub fn new(id: u64, to: Vec<String>, body: &[u8]) -> EditedRequest {
        EditedRequest { id, to, body: body.iter().map(|byte| char::from(*byte)).collect() }
    }

    /// The bytes of the body.
    pub(super) fn bytes(&self) -> Option<Bytes> {
        let bytes: Option<Vec<u8>> = self.body.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect();
        bytes.map(Bytes::from)
    }
}

/// The request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReprocessRequest {
    /// These messages, 100 at most; or none, and a search.
    pub ids: Vec<u64>,
    /// All messages that match, oldest first.
    pub search: Option<ReprocessSearch>,
    /// Of a search: only ids above this. What the page before said.
    pub after: u64,
    /// Of a search: so many of those that match at most; 0, or more than 100: 100.
    pub limit: usize,
    /// The idempotency key: under the same one no message is made twice from another.
    pub key: Option<String>,
    /// Only tell what would be done.
    pub preview: bool,
    /// Only by this generation of the production, which a preview told: where another one is in force, the page ends there.
    pub generation: Option<u32>,
}

/// Which messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReprocessSearch {
    /// With this status, which is not routed.
    pub status: Status,
    /// Only from this service.
    #[serde(default)]
    pub service: Option<String>,
    /// Only received at or after, microseconds since 1970.
    #[serde(default)]
    pub since_us: Option<i64>,
    /// Only received before, microseconds since 1970.
    #[serde(default)]
    pub until_us: Option<i64>,
}

/// What became of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReprocessPage {
    /// Each message that was named or found.
    pub results: Vec<ReprocessResult>,
    /// Where the search goes on: ids above this; none at its end.
    pub next: Option<u64>,
    /// Why the page ended early, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The generation of the production that decided, or would; 0 where it has no number.
    #[serde(default)]
    pub generation: u32,
}

/// What became of a message, or would become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReprocessResult {
    /// The stored message.
    pub id: u64,
    /// What became of it.
    pub outcome: ReprocessOutcome,
    /// Why: the rule, or the error.
    pub reason: String,
    /// The message that was made from it: now, or before.
    pub new: Option<u64>,
    /// Where the new message goes, an operation for each output.
    pub operations: Vec<String>,
}

/// See [`ReprocessResult`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReprocessOutcome {
    /// A new message goes out.
    Routed,
    /// A rule drops it now; a new message says so.
    Dropped,
    /// It was reprocessed before, under this key: nothing was done now.
    Again,
    /// It was reprocessed before, and the request has no key or another one: a search leaves it out.
    Already,
    /// A rule or a transform fails on it: nothing was stored.
    Errored,
    /// It is refused: nothing was stored.
    Rejected,
    /// No rule matches: nothing was stored.
    Unmatched,
    /// It cannot be decided on: see the reason.
    Refused,
}

impl ReprocessOutcome {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ReprocessOutcome::Routed => "routed",
            ReprocessOutcome::Dropped => "dropped",
            ReprocessOutcome::Again => "again",
            ReprocessOutcome::Already => "already",
            ReprocessOutcome::Errored => "errored",
            ReprocessOutcome::Rejected => "rejected",
            ReprocessOutcome::Unmatched => "unmatched",
            ReprocessOutcome::Refused => "refused",
        }
    }

    pub(super) fn of(status: Status) -> ReprocessOutcome {
        match status {
            Status::Routed => ReprocessOutcome::Routed,
            Status::Dropped => ReprocessOutcome::Dropped,
            Status::Unmatched => ReprocessOutcome::Unmatched,
            Status::Rejected => ReprocessOutcome::Rejected,
            Status::Errored => ReprocessOutcome::Errored,
        }
    }
}

impl ReprocessRequest {
    /// Refuses what is no request.
    ///
    /// # Errors
    /// `Refused`, with what is wrong.
    fn check(&self) -> Result<(), InteropError> {
        let refused = |text: &str| Err(InteropError::Refused(text.to_owned()));
        match (&self.search, self.ids.len()) {
            (None, 0) => return refused("nothing is to be reprocessed: name messages, or a status"),
            (None, 1..=PAGE_MAX) => {}
            (None, _) => return refused("a request names 100 messages at most"),
            (Some(_), 1..) => return refused("name messages, or a status, and not both"),
            (Some(search), _) if search.status == Status::Routed => {
                return refused(
                    "a search is for errored, unmatched, rejected or dropped messages; name routed ones by their ids",
                );
            }
            (Some(_), _) => {}
        }
        self.key.as_deref().map_or(Ok(()), MessageOrigin::check_key).map_err(InteropError::Refused)
    }

    pub(super) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }
}

impl ReprocessSearch {
    /// Whether a message is one of those.
    pub(super) fn matches(&self, stored: &Stored) -> bool {
        stored.status == self.status
            && self.service.as_ref().is_none_or(|service| *service == stored.service)
            && self.since_us.is_none_or(|since| stored.received_us >= since)
            && self.until_us.is_none_or(|until| stored.received_us < until)
    }
}

/// Longest reason that is taken, in bytes: it fits the record of the outcome and one detail of the audit.
const REASON_MAX: usize = 500;

/// A request to set a message aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAsideRequest {
    /// The operation.
    pub operation: String,
    /// The message; none: the one at the head, where there is one head only.
    #[serde(default)]
    pub message: Option<u64>,
    /// Why. It is shown with the message's metadata: no patient data belongs in it.
    pub reason: String,
}

impl SetAsideRequest {
    /// Refuses what is no reason.
    ///
    /// # Errors
    /// `Refused`, with what is wrong.
    fn check(&self) -> Result<(), InteropError> {
        let is_plain = !self.reason.chars().any(char::is_control);
        if !self.reason.trim().is_empty() && self.reason.len() <= REASON_MAX && is_plain {
            return Ok(());
        }
        let text = format!("a reason is needed, of {REASON_MAX} bytes at most, on one line");
        Err(InteropError::Refused(text))
    }
}

/// A request to have an operation work outside its schedule. It ends a suspension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The operation.
    pub operation: String,
    /// Up to when, microseconds since 1970; then its schedule counts again.
    pub until_us: i64,
}

/// A message was set aside, durably.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAsideMessage {
    /// The operation.
    pub operation: String,
    /// The message.
    pub message: u64,
    /// How many of its outputs to this operation.
    pub outputs: usize,
    /// By whom.
    pub by: String,
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// The message that is now at the head of its lane; none where nothing else waits there.
    pub next: Option<u64>,
}

/// A request about the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum TodoRequest {
    /// A page of the list, oldest first.
    List {
        /// Only ids above this: what the page before said.
        #[serde(default)]
        after: u64,
        /// So many at most; 0, or more than 100: 100.
        #[serde(default)]
        limit: usize,
        /// Only those that this role or user takes care of.
        #[serde(default)]
        owner: Option<String>,
        /// Also those that are done.
        #[serde(default)]
        done: bool,
    },
    /// Changes what is noted about a message.
    Change {
        /// The message.
        id: u64,
        /// What.
        change: TodoChange,
    },
}

/// A page of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoPage {
    /// The items.
    pub items: Vec<TodoItem>,
    /// Where the list goes on: ids above this; none at its end.
    pub next: Option<u64>,
}

/// A message that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// The message.
    pub id: u64,
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// The service that took it.
    pub service: String,
    /// Why it needs one.
    pub reason: TodoReason,
    /// The words of the decision or the outcome.
    pub detail: String,
    /// Who takes care of it.
    pub owner: Option<String>,
    /// Whether it is done.
    pub done: bool,
    /// What was said, the newest last.
    pub comments: Vec<TodoComment>,
}

/// The entry of a request to decide anew; a preview changes nothing.
fn reprocess_entry(request: &ReprocessRequest) -> (Audited, AuditEntry) {
    let object = match request.ids[..] {
        [id] => format!("message {id}"),
        _ => String::new(),
    };
    let mut entry = AuditEntry::new("message.reprocess", object);
    if request.ids.len() > 1 {
        let ids: Vec<String> = request.ids.iter().map(u64::to_string).collect();
        entry = entry.with_long("messages", &ids.join(" "));
    }
    if let Some(search) = &request.search {
        entry = entry.with_long("search", &json!(search).to_string()).with("after", request.after.to_string());
    }
    let entry = request.key.iter().fold(entry, |entry, key| entry.with("key", key.clone()));
    let entry = request.generation.iter().fold(entry, |entry, number| entry.with("generation", number.to_string()));
    if request.preview {
        return (Audited::Used, entry.with("preview", "yes"));
    }
    (Audited::Change, entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<OperatorRequest>, InteropError> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        OperatorRequest::of(word, rest)
    }

    #[test]
    fn every_request_of_operators_has_its_right_and_its_entry() {
        let entry = |audited, action: &str, object: &str| Some((audited, action.to_owned(), object.to_owned()));
        let node = |action| Needs::Right(action, Object::Node);
        for (line, needs, expected) in [
            (
                "resend-edited {\"id\":7,\"body\":\"MSH|\"}",
                Needs::EveryOfMessage(EDITS, 7),
                entry(Audited::Change, "message.edit", "message 7"),
            ),
            (
                "reprocess {\"ids\":[7]}",
                Needs::Some(Action::MessageResend),
                entry(Audited::Change, "message.reprocess", "message 7"),
            ),
            (
                "reprocess {\"search\":{\"status\":\"errored\"}}",
                Needs::Some(Action::MessageResend),
                entry(Audited::Change, "message.reprocess", ""),
            ),
            (
                "reprocess {\"ids\":[7],\"preview\":true}",
                Needs::Some(Action::MessageResend),
                entry(Audited::Used, "message.reprocess", "message 7"),
            ),
            (
                "set-aside {\"operation\":\"out\",\"reason\":\"ticket 4711\"}",
                Needs::Right(Action::OperationSetAside, Object::Operation("out")),
                entry(Audited::Change, "operation.set-aside", "out"),
            ),
            (
                "start {\"operation\":\"out\",\"until_us\":7}",
                Needs::Right(Action::OperationSuspend, Object::Operation("out")),
                entry(Audited::Change, "operation.start", "out"),
            ),
            ("todo {\"verb\":\"list\"}", Needs::Some(Action::MessageMetadata), entry(Audited::Used, "todo.list", "")),
            (
                "todo {\"verb\":\"change\",\"id\":7,\"change\":{\"comment\":\"asked them\"}}",
                Needs::OfMessage(Action::MessageResend, 7),
                entry(Audited::Change, "todo.comment", "message 7"),
            ),
            (
                "todo {\"verb\":\"change\",\"id\":7,\"change\":{\"assign\":\"ann\"}}",
                Needs::OfMessage(Action::MessageResend, 7),
                entry(Audited::Change, "todo.assign", "message 7"),
            ),
            ("operations", node(Action::NodeStatus), None),
            ("operation out", node(Action::NodeStatus), entry(Audited::Used, "operation.answers", "out")),
        ] {
            let request = read(line).ok().flatten().unwrap_or_else(|| panic!("{line} is a request"));
            let requirement = request.requirement();
            assert_eq!(requirement.needs, needs, "{line}");
            let found = requirement.entry.map(|(audited, entry)| (audited, entry.action, entry.object));
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_in_a_request_of_an_operator_is_refused_and_what_is_none_is_not_read_as_one() {
        let long = format!("set-aside {{\"operation\":\"out\",\"reason\":\"{}\"}}", "r".repeat(501));
        for line in [
            "set-aside x",
            "set-aside {\"operation\":\"out\",\"reason\":\" \"}",
            "set-aside {\"operation\":\"out\"}",
            &long,
            "reprocess {}",
            "resend-edited {}",
            "start out",
            "start {\"operation\":\"out\"}",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
        for line in ["operations now", "operation", "operation a b", "set-aside", "todo", "invented 1"] {
            assert!(matches!(read(line), Ok(None)), "{line}");
        }
    }

    #[test]
    fn a_request_names_messages_or_a_status_of_few_and_a_plain_key() {
        let of = |text: &str| {
            let request: ReprocessRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
            request.check().map_err(|error| error.to_string())
        };
        for (text, is_right) in [
            (r#"{"ids":[1,2]}"#, true),
            (r#"{"ids":[1],"key":"ticket 7","preview":true}"#, true),
            (r#"{"search":{"status":"errored","service":"in"},"after":7,"limit":5}"#, true),
            (r#"{}"#, false),
            (r#"{"ids":[1],"search":{"status":"errored"}}"#, false),
            (r#"{"search":{"status":"routed"}}"#, false),
            (r#"{"search":{"status":"errored","mrn":"1"}}"#, false),
            (r#"{"ids":[1],"key":""}"#, false),
            (r#"{"ids":[1],"invented":1}"#, false),
        ] {
            assert_eq!(of(text).is_ok(), is_right, "{text}: {:?}", of(text));
        }
        let many: Vec<String> = (0..=PAGE_MAX).map(|id| id.to_string()).collect();
        assert!(of(&format!("{{\"ids\":[{}]}}", many.join(","))).is_err());
    }
}
