//! [`TransactionState`]: the open transaction of a session, and whether one of its statements failed.
//!
//! ```text
//!   Idle --BEGIN--> InTransaction --error--> Failed --ROLLBACK, or COMMIT, which then rolls back--> Idle
//!                         ^                     |
//!                         +---ROLLBACK TO-------+
//! ```
//!
//! A COPY FROM in a transaction borrows the transaction, because its rows come after the statement has returned. It
//! returns the transaction after its last row, or when it is dropped, on any thread.
//!
//! Invariants: the transaction is in one place, here or with a COPY. The [`Failure`] of a statement is shared with the
//! row streams and COPYs that outlive it: they report it when they fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::SessionState;
use super::row_locks::LockOwner;
use super::transaction::SessionTransaction;
use crate::SqlError;

/// The place where a COPY returns the transaction that it borrowed.
pub(crate) type Lent = Arc<Mutex<Option<SessionTransaction>>>;

/// The transaction of one session.
#[derive(Default)]
pub(crate) struct TransactionState {
    open: Option<SessionTransaction>,
    lent: Lent,
    failed: Arc<AtomicBool>,
}

/// How a statement reports that it has failed.
#[derive(Clone)]
pub(crate) struct Failure {
    failed: Arc<AtomicBool>,
    /// The open transaction's locks of rows, and how many of them are from before its last savepoint.
    locks: Option<(Arc<LockOwner>, Arc<AtomicUsize>)>,
}

impl Failure {
    /// The transaction has failed: what follows can only go back to a savepoint, or end it. The rows behind the last savepoint are
    /// released for others, who would wait for a client that may have given up.
    pub(crate) fn report(&self) {
        self.failed.store(true, Ordering::Release);
        if let Some((locks, kept)) = &self.locks {
            locks.give_back_to(kept.load(Ordering::Acquire));
        }
    }
}

impl TransactionState {
    /// The state of the session.
    pub(crate) fn state(&self) -> SessionState {
        let lent = self.lent.lock();
        match self.open.as_ref().or(lent.as_ref()) {
            Some(transaction) if !transaction.implicit && self.has_failed() => SessionState::Failed,
            Some(transaction) if !transaction.implicit => SessionState::InTransaction,
            _ => SessionState::Idle,
        }
    }

    /// The open transaction.
    pub(crate) fn open(&self) -> Option<&SessionTransaction> {
        self.open.as_ref()
    }

    /// The same, mutable.
    pub(crate) fn open_mut(&mut self) -> Option<&mut SessionTransaction> {
        self.open.as_mut()
    }

    /// Whether a transaction is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the open transaction was begun by the engine and not by BEGIN.
    pub(crate) fn is_implicit(&self) -> bool {
        self.open.as_ref().is_some_and(|transaction| transaction.implicit)
    }

    /// Begins a transaction. An open one is rolled back.
    pub(crate) fn begin(&mut self, transaction: SessionTransaction) {
        self.open = Some(transaction);
    }

    /// Takes the open transaction, to commit it, to lend it to a COPY, or to drop it, which rolls it back.
    pub(crate) fn take(&mut self) -> Option<SessionTransaction> {
        self.open.take()
    }

    /// The place where a COPY returns the transaction that it borrows.
    pub(crate) fn lent(&self) -> Lent {
        self.lent.clone()
    }

    /// Takes back a transaction that a COPY has returned.
    pub(crate) fn take_back(&mut self) {
        if let Some(transaction) = self.lent.lock().take() {
            self.open = Some(transaction);
        }
    }

    /// Forgets that a statement of the transaction has failed.
    pub(crate) fn clear_failed(&self) {
        self.failed.store(false, Ordering::Release);
    }

    /// Whether a statement of the transaction failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The flag that is set by parts of a statement that fail after the statement has returned.
    pub(crate) fn failure(&self) -> Failure {
        Failure { failed: self.failed.clone(), locks: self.open.as_ref().map(SessionTransaction::locks_at_failure) }
    }

    /// The open transaction, if BEGIN began it. Errors: 25P01, which names the statement that needs it.
    pub(crate) fn in_block(&mut self, statement: &str) -> Result<&mut SessionTransaction, SqlError> {
        match &mut self.open {
            Some(transaction) if !transaction.implicit => Ok(transaction),
            _ => Err(SqlError::transaction("25P01", format!("{statement} can only be used in transaction blocks"))),
        }
    }

    /// The open transaction, for a statement that changes something. Errors: 25006 in a transaction that only reads; 55006 while a
    /// cursor reads its changes.
    pub(crate) fn changing(&mut self, statement: &str) -> Result<&mut SessionTransaction, SqlError> {
        match &mut self.open {
            Some(transaction) if transaction.read_only => {
                Err(SqlError::transaction("25006", format!("cannot execute {statement} in a read-only transaction")))
            }
            Some(transaction) => transaction.cursors.check_change(statement).map(|()| transaction),
            None => Err(SqlError::transaction("25P01", "there is no transaction in progress")),
        }
    }
}
