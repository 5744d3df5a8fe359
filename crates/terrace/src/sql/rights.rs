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

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use hl7::Path;
use hl7::mask::Masker;
use interop::history;
use interop::record::Stored;
use node::audit::{Audit, AuditEntry, AuditOutcome, EntryMarks, Reads};
use node::identity::{Action, Caller, Object, RightsView};
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
    /// The services whose rows it has had, and how the caller may read them.
    used: RwLock<BTreeMap<String, Used>>,
    /// Whether a row was masked.
    has_masked: AtomicBool,
}

/// How the rows of a service were had.
#[derive(Clone, Copy, Default)]
struct Used {
    /// Some of them as they are.
    unmasked: bool,
    self_granted: bool,
    break_glass: bool,
}

/// Reads what is locked: what panicked while it was held left whole values.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
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
        let (used, has_masked) = (RwLock::default(), AtomicBool::new(false));
        let rights = ScanRights { identity, caller, view, version, needed, table, audit, masker, used, has_masked };
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
        let guard = self.identity.guard();
        // What was decided holds as long as no right has changed.
        if guard.version() == self.version && read(&self.used).contains_key(service) {
            return Ok(true);
        }
        let had = self.had(service);
        let is_revoked = || guard.may(&self.caller, self.needed, Object::Service(service)).is_err();
        if had && guard.version() != self.version && is_revoked() {
            return Err(SqlError::statement("42501", "permission denied: a right of this statement was revoked"));
        }
        if had {
            self.keep(service, false);
        }
        Ok(had)
    }

    /// A row of a service is made: its rights are asked again while the statement runs, and said in the audit.
    fn keep(&self, service: &str, unmasked: bool) {
        let is_kept = |used: &Used| used.unmasked || !unmasked;
        if read(&self.used).get(service).is_some_and(is_kept) {
            return;
        }
        let action = if unmasked { Action::Unmasked } else { self.needed };
        self.identity.uses(action, service);
        let grant = self.view.may(&self.caller, action, Object::Service(service)).ok();
        let mut all = self.used.write().unwrap_or_else(PoisonError::into_inner);
        let used = all.entry(service.to_owned()).or_default();
        used.unmasked |= unmasked;
        used.self_granted |= grant.is_some_and(|grant| grant.self_granted);
        used.break_glass |= grant.is_some_and(|grant| grant.break_glass);
    }

    /// Rows are made of an index alone, for who may see those of all services.
    pub(super) fn keep_all(&self) {
        self.identity.uses(Action::MessageMetadata, NO_SERVICE);
    }

    /// A message as the caller sees it; its keys only where they are wanted. Of one who may see it unmasked no more, it is masked
    /// from now on.
    pub(super) fn seen(&self, stored: Stored, wants_keys: bool) -> Stored {
        let (guard, service) = (self.identity.guard(), Object::Service(&stored.service));
        if guard.version() == self.version && read(&self.used).get(&stored.service).is_some_and(|used| used.unmasked) {
            return stored;
        }
        let unmasked = self.view.may(&self.caller, Action::Unmasked, service);
        let is_unmasked = unmasked.is_ok()
            && (guard.version() == self.version || guard.may(&self.caller, Action::Unmasked, service).is_ok());
        if is_unmasked {
            self.keep(&stored.service, true);
            return stored;
        }
        self.has_masked.store(true, Ordering::Relaxed);
        history::masked(&self.masker, stored, wants_keys)
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
        let _ = audit.record_bounded(self.entry().ended(AuditOutcome::Refused, "no right"));
    }

    /// Records that bodies of these messages leave now. Durable when it returns.
    ///
    /// Errors: 58030 if it cannot be recorded: then they must not leave.
    pub(super) fn read(&self, reads: Reads) -> Result<(), SqlError> {
        let Some(audit) = self.audit.as_ref().filter(|_| self.needed == Action::MessageBody && !reads.is_empty())
        else {
            return Ok(());
        };
        let any = |is: fn(&Used) -> bool| read(&self.used).values().any(is);
        let marks = EntryMarks {
            self_granted: any(|used| used.self_granted),
            break_glass: any(|used| used.break_glass),
            masked: Some(self.has_masked.load(Ordering::Relaxed)),
        };
        let mut entry = self.entry().marked(marks);
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
