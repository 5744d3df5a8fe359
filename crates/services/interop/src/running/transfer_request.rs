//! [`ExportRequest`] and [`ImportRequest`] as requests of the control socket: the right that each needs,
//! and its entry in the audit.
//!
//! | request | right | entry |
//! |---|---|---|
//! | `export` | `message-metadata`, `message-body` and, unless masked, `unmasked`, each on some service; the answer holds only what the caller has all of them on | `message.export` for each page, with the bodies that leave |
//! | `import` | `message-import` on the service | `message.import` for each page, before it |
//!
//! Not here: how they are answered (`transfer`).

use std::collections::BTreeSet;

use node::audit::AuditEntry;
use node::identity::{Action, Object};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::audited::Audited;
use super::requirement::{Needs, Requirement};
use crate::error::InteropError;
use crate::history::{EXPORT_IDS_MAX, ExportRequest, bytes_of, text_of};
use crate::record::{KEY_TEXT_MAX, MessageOrigin, shown_source};

/// The word of a request to import.
pub(super) const IMPORT: &str = "import";

/// Messages of one request at most.
pub(super) const MESSAGES_MAX: usize = 500;

/// What who exports needs, on each service of a message.
pub(super) const UNMASKED: &[Action] = &[Action::MessageMetadata, Action::MessageBody, Action::Unmasked];

/// The same for masked bodies.
pub(super) const MASKED: &[Action] = &[Action::MessageMetadata, Action::MessageBody];

/// A request to take in messages from elsewhere, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// The service that takes them, with its rules and settings.
    pub service: String,
    /// Decided on and stored with the time at which their source received them, as far as it is known; otherwise with the time of now.
    #[serde(default)]
    pub replay: bool,
    /// Only tell what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// The bodies are masked; for the audit.
    #[serde(default)]
    pub masked: bool,
    /// The messages, 500 at most.
    pub messages: Vec<ImportMessage>,
}

/// A message from elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportMessage {
    /// Its id or number at its source.
    pub number: u64,
    /// The source, 1 to 100 bytes: of one source and one number a message is stored once.
    pub source: String,
    /// When its source received it, microseconds since 1970.
    #[serde(default)]
    pub received_us: Option<i64>,
    /// The charset of the body where it declares none.
    #[serde(default)]
    pub charset: Option<String>,
    /// Its bytes: byte b is character U+00b.
    pub body: String,
}

impl ImportMessage {
    /// Of bytes.
    #[must_use]
    pub fn with_body(self, body: &[u8]) -> ImportMessage {
        ImportMessage { body: text_of(body), ..self }
    }

    /// The bytes of the body.
    pub(super) fn bytes(&self) -> Option<bytes::Bytes> {
        bytes_of(&self.body)
    }
}

/// What became of a page of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportPage {
    /// The result of each message, in their order; fewer than were sent where the page ended early.
    pub results: Vec<ImportResult>,
    /// Why it ended early: the messages behind were not looked at, and can be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportResult {
    /// What.
    pub outcome: ImportOutcome,
    /// The message here: now, or of an import before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Why it was not stored, or not routed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// See [`ImportResult`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImportOutcome {
    /// Stored, and goes out.
    Routed,
    /// Stored; a rule dropped it.
    Dropped,
    /// Stored; no rule matches.
    Unmatched,
    /// Stored; the service refuses it.
    Rejected,
    /// Stored; a rule or a transform fails on it.
    Errored,
    /// It was imported before: nothing was done now.
    Again,
    /// The service has seen it before, and drops duplicates.
    Duplicate,
    /// Not stored; see the reason.
    Refused,
}

impl ImportOutcome {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ImportOutcome::Routed => "routed",
            ImportOutcome::Dropped => "dropped",
            ImportOutcome::Unmatched => "unmatched",
            ImportOutcome::Rejected => "rejected",
            ImportOutcome::Errored => "errored",
            ImportOutcome::Again => "again",
            ImportOutcome::Duplicate => "duplicate",
            ImportOutcome::Refused => "refused",
        }
    }
}

/// A request of this module.
pub(super) enum TransferRequest {
    Export(Box<ExportRequest>),
    Import(Box<ImportRequest>),
}

fn refused(text: String) -> InteropError {
    InteropError::Refused(text)
}

impl TransferRequest {
    /// Reads a line. None: no request of this kind.
    ///
    /// # Errors
    /// What follows the word is wrong.
    pub(super) fn of(word: &str, rest: &str) -> Result<Option<TransferRequest>, InteropError> {
        match (word, rest) {
            (_, "") => Ok(None),
            ("export", _) => {
                let read = serde_json::from_str(rest);
                let request: ExportRequest = read.map_err(|error| refused(format!("it is no export: {error}")))?;
                if request.ids.len() > EXPORT_IDS_MAX {
                    return Err(refused(format!("a request names {EXPORT_IDS_MAX} messages at most")));
                }
                Ok(Some(TransferRequest::Export(Box::new(request))))
            }
            (IMPORT, _) => {
                // The text has bodies: it is not repeated.
                let read = serde_json::from_str(rest);
                let request: ImportRequest =
                    read.map_err(|_| refused("the import cannot be read by this release".to_owned()))?;
                check(&request)?;
                Ok(Some(TransferRequest::Import(Box::new(request))))
            }
            _ => Ok(None),
        }
    }

    /// The right that it needs, and its entry.
    pub(super) fn requirement(&self) -> Requirement<'_> {
        match self {
            TransferRequest::Export(request) => {
                let needs = Needs::SomeOfEach(if request.masked { MASKED } else { UNMASKED });
                let mut entry = AuditEntry::new("message.export", "");
                // What is the default says nothing.
                let mut filter = json!(request.filter);
                if let Some(filter) = filter.as_object_mut() {
                    filter.retain(|_, value| !value.is_null() && *value != json!([]) && *value != json!(0));
                }
                entry = entry.with_long("filter", &filter.to_string());
                if !request.ids.is_empty() {
                    let ids: Vec<String> = request.ids.iter().map(u64::to_string).collect();
                    entry = entry.with("ids", ids.len().to_string()).with("first id", ids[0].clone());
                }
                entry = request.after.iter().fold(entry, |entry, place| entry.with("after", place.id.to_string()));
                entry = entry.with("bodies", if request.masked { "masked" } else { "as received" });
                Requirement { needs, entry: Some((Audited::Read, entry)) }
            }
            TransferRequest::Import(request) => {
                let needs = Needs::Right(Action::MessageImport, Object::Service(&request.service));
                let entry = import_entry(request);
                let audited = if request.dry_run { Audited::Used } else { Audited::Change };
                Requirement { needs, entry: Some((audited, entry)) }
            }
        }
    }

    /// Its number among the examples of all requests, behind those of operators.
    #[cfg(test)]
    pub(super) fn number(&self) -> usize {
        match self {
            TransferRequest::Export(_) => 0,
            TransferRequest::Import(request) => 1 + usize::from(request.dry_run),
        }
    }
}

fn import_entry(request: &ImportRequest) -> AuditEntry {
    let mut entry = AuditEntry::new("message.import", format!("service {}", request.service))
        .with("messages", request.messages.len().to_string());
    let numbers = request.messages.iter().map(|message| message.number);
    if let Some((least, most)) = numbers.clone().min().zip(numbers.max()) {
        let sources: BTreeSet<&str> = request.messages.iter().map(|message| shown_source(&message.source)).collect();
        entry = entry.with("source", sources.first().copied().unwrap_or_default());
        entry = entry.with("sources", sources.len().to_string()).with("numbers", format!("{least} to {most}"));
    }
    for (is_so, name) in [(request.replay, "replay"), (request.masked, "masked"), (request.dry_run, "dry run")] {
        if is_so {
            entry = entry.with(name, "yes");
        }
    }
    entry
}

fn check(request: &ImportRequest) -> Result<(), InteropError> {
    if !(1..=MESSAGES_MAX).contains(&request.messages.len()) {
        return Err(refused(format!("a request has 1 to {MESSAGES_MAX} messages")));
    }
    for message in &request.messages {
        MessageOrigin::check_key(&message.source)
            .map_err(|_| refused(format!("a source has 1 to {KEY_TEXT_MAX} bytes and no control characters")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<TransferRequest>, InteropError> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        TransferRequest::of(word, rest)
    }

    #[test]
    fn exports_and_imports_have_their_rights_and_their_entries_and_what_is_wrong_is_refused() {
        let one = r#"{"number":7,"source":"file-1","body":"MSH|"}"#;
        for (line, needs, audited, action) in [
            ("export {}".to_owned(), Needs::SomeOfEach(UNMASKED), Audited::Read, "message.export"),
            (r#"export {"masked":true}"#.to_owned(), Needs::SomeOfEach(MASKED), Audited::Read, "message.export"),
            (
                format!(r#"import {{"service":"in","messages":[{one}]}}"#),
                Needs::Right(Action::MessageImport, Object::Service("in")),
                Audited::Change,
                "message.import",
            ),
            (
                format!(r#"import {{"service":"in","dry_run":true,"messages":[{one}]}}"#),
                Needs::Right(Action::MessageImport, Object::Service("in")),
                Audited::Used,
                "message.import",
            ),
        ] {
            let request = read(&line).ok().flatten().unwrap_or_else(|| panic!("{line} is a request"));
            let requirement = request.requirement();
            assert_eq!(requirement.needs, needs, "{line}");
            let (found, entry) = requirement.entry.expect("each has one");
            assert_eq!((found, entry.action.as_str()), (audited, action), "{line}");
            assert!(!format!("{entry:?}").contains("MSH"), "no body is in an entry: {entry:?}");
        }
        for line in [
            "export x",
            r#"export {"invented":1}"#,
            "import x",
            r#"import {"service":"in","messages":[]}"#,
            r#"import {"service":"in","messages":[{"number":7,"source":"","body":""}]}"#,
            r#"import {"service":"in","messages":[{"number":7,"source":"a\nb","body":""}]}"#,
        ] {
            assert!(read(line).is_err(), "{line}");
        }
        for line in ["export", "import", "exports {}"] {
            assert!(matches!(read(line), Ok(None)), "{line}");
        }
        let mixed = r#"import {"service":"in","messages":[{"number":9,"source":"file-12345678ff","body":""},{"number":2,"source":"node-1 ff","body":""},{"number":5,"source":"node-1 ee","body":""}]}"#;
        let request = read(mixed).ok().flatten().expect("a request");
        let (_, entry) = request.requirement().entry.expect("it has one");
        let of = |name: &str| entry.details[name].as_str();
        assert_eq!((of("sources"), of("source"), of("numbers")), ("2", "file-12345678", "2 to 9"));
        let error = read(r#"import {"service":1,"body":"SECRET"}"#).err().expect("it is wrong").to_string();
        assert!(!error.contains("SECRET"), "{error}");
    }
}
