//! Entries of the audit for what sessions do: changes of roles and rights, uses of rights that are recorded, exports, logins.
//!
//! ```text
//!   decided (Guard) --> recorded, durable --> done
//! ```
//!
//! Invariants: an entry is durable before what it says is done, and without one it is not done. A transaction that is rolled back
//! leaves entries of what it was allowed to do. A statement has one entry for a use of a right on an object, however often it
//! asks. A refusal is a refusal without an entry too.

use std::sync::Arc;

use node::Audit;
use node::audit::{AuditEntry, AuditOutcome, EntryMarks};
use node::error::AuditRefused;
use node::identity::{Action, Caller, Grant, IdentityChange, RightsView};
use parking_lot::Mutex;

use crate::{ErrorFields, SqlError};

/// The name of this port in entries.
const PORT: &str = "sql";

/// An entry of what a caller does.
pub(crate) fn entry(action: &str, object: impl Into<String>, (view, caller): (&RightsView, &Caller)) -> AuditEntry {
    AuditEntry::new(action, object).by_role(PORT, caller, view)
}

/// The same, with what is to be seen of how the caller has the right.
pub(crate) fn marked(entry: AuditEntry, grant: Option<&Grant>) -> AuditEntry {
    entry.marked(grant.map(EntryMarks::of).unwrap_or_default())
}

fn failed(error: AuditRefused) -> SqlError {
    SqlError::Engine(Box::new(ErrorFields::new("58030", error.to_string())))
}

/// Records an entry. Blocks until it is durable.
///
/// Errors: 58030 if it cannot be recorded.
pub(crate) fn durable(audit: &Audit, entry: AuditEntry) -> Result<(), SqlError> {
    audit.record(entry).and_then(|ticket| audit.wait(ticket)).map_err(failed)
}

/// Records changes of roles and rights, without secrets. Blocks until they are durable.
///
/// Errors: 58030 if they cannot be recorded.
pub(crate) fn changes(audit: &Audit, by: (&RightsView, &Caller), changes: &[IdentityChange]) -> Result<(), SqlError> {
    let mut last = None;
    for change in changes {
        let entry = entry("identity.change", "", by);
        let text = change.without_secrets().to_string();
        last = Some(audit.record(entry.with_long("change", &text)).map_err(failed)?);
    }
    last.map_or(Ok(()), |ticket| audit.wait(ticket).map_err(failed))
}

/// The name of an action in the audit: `table.own` for `table-own`.
fn name_of(action: Action) -> String {
    action.name().replacen('-', ".", 1)
}

/// What a session's statements record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail {
    audit: Option<Arc<Audit>>,
    running: Arc<Mutex<RunningStatement>>,
}

/// The running statement, as far as entries say.
#[derive(Debug, Default)]
struct RunningStatement {
    /// Its first words; empty for a query.
    words: &'static str,
    /// What was recorded of it: the action, the object, whether it was granted.
    recorded: Vec<(String, String, bool)>,
}

impl Trail {
    /// Entries go to this audit, if there is one.
    pub(crate) fn new(audit: Option<Arc<Audit>>) -> Trail {
        Trail { audit, running: Arc::default() }
    }

    /// A statement begins.
    pub(crate) fn begin(&self, words: &'static str) {
        *self.running.lock() = RunningStatement { words, recorded: Vec::new() };
    }

    /// Whether this is the statement's first use or refusal.
    fn is_first(&self, action: &str, object: &str, is_granted: bool) -> bool {
        let mut running = self.running.lock();
        let this = (action.to_owned(), object.to_owned(), is_granted);
        let is_first = !running.recorded.contains(&this);
        if is_first {
            running.recorded.push(this);
        }
        is_first
    }

    fn with_words(&self, entry: AuditEntry) -> AuditEntry {
        match self.running.lock().words {
            "" => entry,
            words => entry.with("statement", words),
        }
    }

    /// Records the use of a right that each use is recorded of. Blocks until it is durable.
    ///
    /// Errors: 58030 if it cannot be recorded: then it must not be done.
    pub(crate) fn used(
        &self,
        action: Action,
        object: &str,
        by: (&RightsView, &Caller),
        grant: Option<&Grant>,
    ) -> Result<(), SqlError> {
        let Some(audit) = self.audit.as_ref().filter(|_| action.is_audited()) else { return Ok(()) };
        let name = name_of(action);
        match self.is_first(&name, object, true) {
            true => durable(audit, self.with_words(marked(entry(&name, object, by), grant))),
            false => Ok(()),
        }
    }

    /// Records a refusal of such a right.
    pub(crate) fn refused(&self, action: Action, object: &str, by: (&RightsView, &Caller)) {
        let Some(audit) = self.audit.as_ref().filter(|_| action.is_audited()) else { return };
        let name = name_of(action);
        if self.is_first(&name, object, false) {
            // A refusal that cannot be recorded is a refusal all the same.
            let entry = self.with_words(entry(&name, object, by));
            let _ = audit.record_bounded(entry.ended(AuditOutcome::Refused, "no right"));
        }
    }

    /// Records that rows leave by COPY, which needs no right of its own: bounded in number. Blocks until it is durable.
    ///
    /// Errors: 58030 if it cannot be recorded.
    pub(crate) fn exported(&self, object: &str, query: &str, by: (&RightsView, &Caller)) -> Result<(), SqlError> {
        let Some(audit) = &self.audit else { return Ok(()) };
        let ticket = audit.record_bounded(entry("sql.export", object, by).with_long("query", query)).map_err(failed)?;
        ticket.map_or(Ok(()), |ticket| audit.wait(ticket).map_err(failed))
    }
}
