//! What of the message history a caller may read, and the audit of it.
//!
//! ```text
//!   message-metadata on the service   its rows are there
//!   message-body on the service       and what is in them: bodies, values of fields, keys and texts that quote them
//!   unmasked on the service           as they are; else rows are made of the masked message, and of nothing else
//! ```
//!
//! A query that reads what is in messages has only the rows of services whose bodies the caller may read, and is refused
//! if there is no such service. Invariant: bodies are in the audit, durable, before the batch that has them leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hl7::Path;
use hl7::mask::Masker;
use interop::history;
use interop::record::Stored;
use node::audit::{Audit, AuditEntry, AuditOutcome, EntryMarks, Reads};
use node::identity::{Action, Caller, Grant, Object, RightsView};
use sql::{ColumnBound, ScanRequest, SessionIdentity, SqlError};

/// What a scan may read.
pub(super) struct ScanRights {
    identity: SessionIdentity,
    caller: Caller,
    /// The rights at the begin, and their version.
    view: Arc<RightsView>,
    version: u64,
    /// What the caller needs on the service of each row.
    needed: Action,
    table: &'static str,
    audit: Option<Arc<Audit>>,
    masker: Arc<Masker>,
    used: UsedRights,
}

/// What is remarkable about the rights that rows of the scan were read by so far.
#[derive(Default)]
struct UsedRights {
    self_granted: AtomicBool,
    break_glass: AtomicBool,
    /// Whether a row was masked.
    masked: AtomicBool,
}

impl UsedRights {
    fn note(&self, grant: &Grant) {
        self.self_granted.fetch_or(grant.self_granted, Ordering::Relaxed);
        self.break_glass.fetch_or(grant.break_glass, Ordering::Relaxed);
    }

    fn marks(&self) -> EntryMarks {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        EntryMarks {
            self_granted: is(&self.self_granted),
            break_glass: is(&self.break_glass),
            masked: Some(is(&self.masked)),
        }
    }
}

/// Only a pattern of all names matches a name that no service has.
const NO_SERVICE: &str = "\u{1}*";

/// A name that a star of a pattern may stand for.
const ANY: &str = "x";

impl ScanRights {
    /// The rights of a request that reads what is in messages, or not; `None`: the node itself asks.
    ///
    /// Errors: 42501 if it reads bodies, and there is no service whose bodies the caller may read.
    pub(super) fn of(
        request: &ScanRequest,
        reads_bodies: bool,
        table: &'static str,
        (audit, masker): (Option<Arc<Audit>>, Arc<Masker>),
    ) -> Result<Option<ScanRights>, SqlError> {
        let Some(identity) = &request.identity else { return Ok(None) };
        let needed = if reads_bodies { Action::MessageBody } else { Action::MessageMetadata };
        let (identity, caller, version) = (identity.clone(), identity.caller().clone(), identity.guard().version());
        let view = identity.guard().view();
        let rights =
            ScanRights { identity, caller, view, version, needed, table, audit, masker, used: UsedRights::default() };
        if reads_bodies && !rights.has_any() {
            rights.refused();
            let error = SqlError::statement("42501", format!("permission denied for table {table}"));
            return Err(error.with_hint("What is in messages needs message-body on their services."));
        }
        Ok(Some(rights))
    }

    /// Whether there is a service that the caller has the right on.
    fn has_any(&self) -> bool {
        let granted = self.view.directory().privileges().keys().filter(|key| key.action == self.needed);
        granted.map(|key| key.object.parts().1.replace('*', ANY)).any(|service| self.had(&service))
    }

    fn had(&self, service: &str) -> bool {
        self.view.may(&self.caller, self.needed, Object::Service(service)).is_ok()
    }

    /// Whether the rows of a service are there.
    ///
    /// Errors: 42501 if the right was revoked since the scan began: its rows must not just be missing.
    pub(super) fn may(&self, service: &str) -> Result<bool, SqlError> {
        let (had, guard) = (self.view.may(&self.caller, self.needed, Object::Service(service)), self.identity.guard());
        let is_revoked = || guard.may(&self.caller, self.needed, Object::Service(service)).is_err();
        let Ok(grant) = had else { return Ok(false) };
        self.used.note(&grant);
        if guard.version() != self.version && is_revoked() {
            return Err(SqlError::statement("42501", "permission denied: a right of this statement was revoked"));
        }
        Ok(true)
    }

    /// A message as the caller sees it. Of one who may see it unmasked no more, it is masked from now on.
    pub(super) fn seen(&self, stored: Stored) -> Stored {
        let (guard, service) = (self.identity.guard(), Object::Service(&stored.service));
        let unmasked = self.view.may(&self.caller, Action::Unmasked, service);
        let is_unmasked = unmasked.is_ok()
            && (guard.version() == self.version || guard.may(&self.caller, Action::Unmasked, service).is_ok());
        match unmasked {
            Ok(grant) if is_unmasked => {
                self.used.note(&grant);
                stored
            }
            _ => {
                self.used.masked.store(true, Ordering::Relaxed);
                history::masked(&self.masker, stored)
            }
        }
    }

    /// The bounds that an index may be asked for. It has the values as they came in: of a caller who sees any of them
    /// masked, a condition on one must not narrow what is read, which EXPLAIN ANALYZE and the time would show.
    /// `paths`: the columns that have values of messages, and their paths.
    pub(super) fn bounds(&self, bounds: &[ColumnBound], paths: &[(usize, &str)]) -> Vec<ColumnBound> {
        let sees_all = self.view.may(&self.caller, Action::Unmasked, Object::Service(NO_SERVICE)).is_ok();
        let covers = |path: &str| path.parse::<Path>().is_ok_and(|path| self.masker.covers(&path));
        let is_masked = |column| !sees_all && paths.iter().any(|(of, path)| *of == column && covers(path));
        bounds.iter().filter(|bound| !is_masked(bound.column)).cloned().collect()
    }

    fn entry(&self) -> AuditEntry {
        let entry = AuditEntry::new("message.body", format!("table hl7.{}", self.table));
        entry.by_role("sql", &self.caller, &self.view)
    }

    fn refused(&self) {
        let Some(audit) = &self.audit else { return };
        // A refusal that cannot be recorded is a refusal all the same.
        let _ = audit.record_refused(self.entry().ended(AuditOutcome::Refused, "no right"));
    }

    /// Records that bodies of these messages leave now. Durable when it returns.
    ///
    /// Errors: 58030 if it cannot be recorded: then they must not leave.
    pub(super) fn read(&self, reads: Reads) -> Result<(), SqlError> {
        let Some(audit) = self.audit.as_ref().filter(|_| self.needed == Action::MessageBody && !reads.is_empty())
        else {
            return Ok(());
        };
        let mut entry = self.entry().marked(self.used.marks());
        entry.reads = reads;
        let recorded = audit.record(entry).and_then(|ticket| audit.wait(ticket));
        recorded.map_err(|error| SqlError::statement("58030", format!("bodies are not shown: {error}")))
    }
}

/// Whether an index without the services is enough: the caller has the right on all of them.
pub(super) fn has_all(identity: Option<&SessionIdentity>) -> bool {
    identity.is_none_or(|identity| {
        identity.guard().may(identity.caller(), Action::MessageMetadata, Object::Service(NO_SERVICE)).is_ok()
    })
}
