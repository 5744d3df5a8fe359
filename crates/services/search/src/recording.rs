//! What one request used and read, and its entries in the audit.
//!
//! ```text
//!   Asker --a right is used----> UsedRights --before a change, or before the response--> search.index-manage ..   durable
//!         --a right is refused-->             --at the end, bounded----------------------> the same, refused
//!   a document of messages is read, wherever in a search --> ReadNotes --before the response--> message.body with the ids
//! ```
//!
//! Invariants: an entry of a use is durable before what it allows is done; what was read is noted where the document is read, so a
//! client cannot shape a response so that it is missing; a request is refused whether or not that can be recorded.
//!
//! It decides nothing: [`crate::rights`] asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use node::Audit;
use node::audit::{AuditEntry, AuditOutcome, AuditTicket, EntryMarks, Reads};
use node::identity::{Action, Grant};
use parking_lot::Mutex;

use crate::error::SearchError;
use crate::waiting::waiting;

/// Refusals of one request that have an entry at most.
const REFUSALS_MAX: usize = 16;

/// A right that was used: the action on an index or alias, or on the node or a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UsedRight {
    Node(Action),
    Index(Action, String),
    /// On all services.
    Services(Action),
    /// On one.
    Service(Action, String),
}

impl UsedRight {
    pub(crate) fn action(&self) -> Action {
        match self {
            UsedRight::Node(action)
            | UsedRight::Index(action, _)
            | UsedRight::Services(action)
            | UsedRight::Service(action, _) => *action,
        }
    }

    /// Whether it is a right to messages.
    fn is_of_messages(&self) -> bool {
        matches!(self, UsedRight::Services(_) | UsedRight::Service(..))
    }

    /// Its action and its object, as entries name them.
    fn shown(&self) -> (String, String) {
        let action = format!("search.{}", self.action().name());
        match self {
            UsedRight::Node(_) => (action, "node".to_owned()),
            UsedRight::Index(_, name) => (action, format!("index {name}")),
            UsedRight::Services(action) => (of_messages(*action), "service *".to_owned()),
            UsedRight::Service(action, name) => (of_messages(*action), format!("service {name}")),
        }
    }
}

/// The name of an action on messages, as entries have it.
fn of_messages(action: Action) -> String {
    let name = action.name();
    format!("message.{}", name.strip_prefix("message-").unwrap_or(name))
}

/// What is known of the use of a right.
#[derive(Clone, Copy, Debug)]
struct RightUse {
    /// Whether it is recorded.
    audited: bool,
    marks: EntryMarks,
    /// The number of its entry, once it has one.
    entry: Option<u64>,
    /// It has an entry that says that what it allowed failed.
    failed: bool,
}

/// What was used by one request, and what it was refused.
#[derive(Debug, Default)]
pub(crate) struct UsedRights {
    rights: BTreeMap<UsedRight, RightUse>,
    /// The last right that was not there: a refusal if the request is refused for it, and nothing where a list leaves something out.
    denied: Option<UsedRight>,
    refused: BTreeSet<UsedRight>,
    /// An index of messages was searched.
    searches_messages: bool,
}

impl UsedRights {
    /// Notes rights that were granted. Those of messages have entries of their own.
    pub(crate) fn granted(&mut self, rights: Vec<(UsedRight, Grant)>) {
        for (right, grant) in rights {
            let audited = grant.audited && !right.is_of_messages();
            let marks = EntryMarks::of(&grant);
            self.rights.entry(right).or_insert(RightUse { audited, marks, entry: None, failed: false });
        }
    }

    /// Notes a right that was not there.
    pub(crate) fn denied(&mut self, right: UsedRight) {
        self.denied = Some(right);
    }

    /// The request, or a part of it, is refused for the last right that was not there.
    pub(crate) fn refuse(&mut self) {
        let recorded = self.denied.take().filter(|right| right.action().is_audited());
        self.refused.extend(recorded.filter(|_| self.refused.len() < REFUSALS_MAX));
    }

    /// All rights that were used.
    pub(crate) fn all(&self) -> impl Iterator<Item = &UsedRight> {
        self.rights.keys()
    }

    /// Takes over what another request used, for a use of its own.
    pub(crate) fn use_as(&mut self, other: &UsedRights) {
        self.searches_messages |= other.searches_messages;
        for (right, used) in &other.rights {
            self.rights.entry(right.clone()).or_insert(RightUse { entry: None, failed: false, ..*used });
        }
    }

    /// Messages are searched, though by no right on any of them: none of them is shown.
    pub(crate) fn note_messages(&mut self) {
        self.searches_messages = true;
    }

    /// Whether what is in messages was used.
    pub(crate) fn has_messages(&self) -> bool {
        self.searches_messages || self.rights.keys().any(UsedRight::is_of_messages)
    }

    /// How the rights on messages were given.
    pub(crate) fn message_marks(&self) -> EntryMarks {
        let mut all = EntryMarks::default();
        for (_, used) in self.rights.iter().filter(|(right, _)| right.is_of_messages()) {
            all.self_granted |= used.marks.self_granted;
            all.break_glass |= used.marks.break_glass;
        }
        all
    }

    /// Appends an entry for each use that is recorded and has none. Returns the last one, to be waited for.
    fn append(
        &mut self,
        audit: &Audit,
        entry: &dyn Fn(&str, &str) -> AuditEntry,
    ) -> Result<Option<AuditTicket>, SearchError> {
        let mut last = None;
        for (right, used) in self.rights.iter_mut().filter(|(_, used)| used.audited && used.entry.is_none()) {
            let (action, object) = right.shown();
            let ticket = audit.record(entry(&action, &object).marked(used.marks)).map_err(no_entry)?;
            used.entry = Some(ticket.number);
            last = Some(ticket);
        }
        Ok(last)
    }

    /// Entries that say that what was allowed failed: of the uses of an index, or of all.
    fn failures(&mut self, of: Option<&str>, entry: &dyn Fn(&str, &str) -> AuditEntry, why: &str) -> Vec<AuditEntry> {
        let is_meant = |right: &UsedRight| match (of, right) {
            (None, _) => true,
            (Some(name), UsedRight::Index(_, index)) => name == index,
            _ => false,
        };
        let mut entries = Vec::new();
        for (right, used) in self.rights.iter_mut().filter(|(right, used)| is_meant(right) && !used.failed) {
            let Some(number) = used.entry else { continue };
            used.failed = true;
            let (action, object) = right.shown();
            let entry = entry(&action, &object).marked(used.marks).with("entry", number.to_string());
            entries.push(entry.ended(AuditOutcome::Failed, why));
        }
        entries
    }
}

/// The answer where the audit takes no entry.
fn no_entry(refused: impl std::fmt::Display) -> SearchError {
    let reason = format!("the audit takes no entry, so nothing is done or answered: {refused}");
    SearchError::new(503, "security_exception", reason)
}

/// Writes an entry; durable when it returns. Errors: the audit takes none.
pub(crate) fn write(audit: &Audit, entry: AuditEntry) -> Result<(), SearchError> {
    waiting(|| audit.record(entry).and_then(|ticket| audit.wait(ticket))).map_err(no_entry)
}

/// Writes the entries of the uses that are recorded and have none; durable when it returns. Errors: the audit takes none.
pub(crate) fn write_uses(
    used: &Mutex<UsedRights>,
    audit: &Audit,
    entry: &dyn Fn(&str, &str) -> AuditEntry,
) -> Result<(), SearchError> {
    if !used.lock().rights.values().any(|used| used.audited && used.entry.is_none()) {
        return Ok(());
    }
    let last = waiting(|| used.lock().append(audit, entry))?;
    last.map_or(Ok(()), |ticket| waiting(|| audit.wait(ticket)).map_err(no_entry))
}

/// Writes that what was allowed failed.
pub(crate) fn write_failures(
    used: &Mutex<UsedRights>,
    audit: &Audit,
    (of, error): (Option<&str>, &SearchError),
    entry: &dyn Fn(&str, &str) -> AuditEntry,
) {
    let entries = used.lock().failures(of, entry, &error.reason);
    for entry in entries {
        if let Err(error) = write(audit, entry) {
            tracing::error!(%error, "that a change of search failed could not be written to the audit");
        }
    }
}

/// Writes what was refused, as bounded in number as for all ports. The refusal does not wait for its entry.
pub(crate) fn write_refusals(used: &Mutex<UsedRights>, audit: &Arc<Audit>, entry: &dyn Fn(&str, &str) -> AuditEntry) {
    let refused = std::mem::take(&mut used.lock().refused);
    for right in refused {
        let (action, object) = right.shown();
        let entry = entry(&action, &object).ended(AuditOutcome::Refused, "the right is not there");
        if let Err(error) = waiting(|| audit.record_bounded(entry)) {
            tracing::warn!(%error, "a refusal of search is not in the audit");
        }
    }
}

/// What was read of messages.
#[derive(Debug, Default)]
struct NotedReads {
    ids: BTreeSet<u64>,
    aggregates: bool,
}

/// Notes what is read of messages, for the entry of the request that reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadNotes(Arc<Mutex<NotedReads>>);

impl ReadNotes {
    /// Notes that a message was read.
    pub(crate) fn read(&self, id: u64) {
        self.0.lock().ids.insert(id);
    }

    /// Notes that values of messages were counted or summed up: they may be in the response without a document.
    pub(crate) fn aggregated(&self) {
        self.0.lock().aggregates = true;
    }

    /// The messages that were read, each once, and whether values of messages were summed up.
    pub(crate) fn taken(&self) -> (Reads, bool) {
        let noted = std::mem::take(&mut *self.0.lock());
        let (mut reads, mut run) = (Reads::default(), None::<(u64, u64)>);
        for id in noted.ids {
            match &mut run {
                Some((_, last)) if *last + 1 == id => *last = id,
                other => {
                    if let Some((first, last)) = other.replace((id, id)) {
                        reads.push_run(first, last, last - first + 1);
                    }
                }
            }
        }
        if let Some((first, last)) = run {
            reads.push_run(first, last, last - first + 1);
        }
        (reads, noted.aggregates)
    }
}
