//! [`SessionTransaction`]: the transaction of a session. BEGIN begins it, or the first change of a statement outside of
//! BEGIN.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use node::identity::Guard;
use parking_lot::Mutex;
use store::{Lsn, Savepoint, Transaction, TreeId};

use crate::engine::plan::access::OwnObjects;
use crate::engine::plan::compiled_checks::CompiledChecks;
use crate::engine::{Canceller, Engine};
use crate::table::{Table, View};
use crate::{ErrorFields, SqlError};

/// An open transaction.
pub(crate) struct SessionTransaction {
    engine: Arc<Engine>,
    owner: u64,
    /// The session's canceller: each access checks whether the statement may continue.
    canceller: Canceller,
    /// The time when the transaction began: the result of `now()` in it.
    pub(crate) began: DateTime<Utc>,
    transaction: Arc<Mutex<Option<Transaction>>>,
    savepoints: Vec<(String, Savepoint)>,
    /// Rows added to the delta store minus rows deleted there, by storage.
    rows: Mutex<HashMap<u64, i64>>,
    /// Whether a rollback to a savepoint has undone some of the counted rows.
    went_back: bool,
    /// The tables that it has locked, and whether exclusively.
    locks: Vec<(u64, bool)>,
    /// The compiled constraints of tables into which it writes.
    checks: Mutex<HashMap<u64, Arc<CompiledChecks>>>,
    /// What it created and renamed, with the owners.
    pub(crate) own: OwnObjects,
    /// Whose rights it changes, also with its objects: they are put in force after the commit.
    pub(crate) refreshes: Option<Arc<Guard>>,
    /// Whether it changes the catalog.
    pub(crate) defines: bool,
    /// Whether changes are refused.
    pub(crate) read_only: bool,
    /// Whether the engine began it, and not BEGIN.
    pub(crate) implicit: bool,
}

impl SessionTransaction {
    /// A transaction of the session with this number.
    pub(crate) fn new(engine: Arc<Engine>, owner: u64, canceller: Canceller) -> SessionTransaction {
        let transaction = Arc::new(Mutex::new(Some(engine.store.begin())));
        SessionTransaction {
            engine,
            owner,
            canceller,
            began: Utc::now(),
            transaction,
            savepoints: Vec::new(),
            rows: Mutex::default(),
            went_back: false,
            locks: Vec::new(),
            checks: Mutex::default(),
            own: OwnObjects::default(),
            refreshes: None,
            defines: false,
            read_only: false,
            implicit: false,
        }
    }

    /// Its engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The view that its statements read.
    pub(crate) fn view(&self) -> View {
        let guard = self.transaction.lock();
        match guard.as_ref() {
            Some(transaction) if transaction.is_read_only() => View::Snapshot(transaction.snapshot().clone()),
            _ => View::Transaction(self.transaction.clone()),
        }
    }

    /// Runs a function on the transaction. Errors: also the request to end the statement.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut Transaction) -> Result<R, SqlError>) -> Result<R, SqlError> {
        self.canceller.current().check()?;
        match self.transaction.lock().as_mut() {
            Some(transaction) => run(transaction),
            None => Err(SqlError::transaction("25000", "the transaction has ended")),
        }
    }

    /// The view of the transaction with its own changes, even if there are none.
    pub(crate) fn own_view(&self) -> View {
        View::Transaction(self.transaction.clone())
    }

    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, SqlError> {
        self.with(|transaction| Ok(transaction.get(tree, key)?))
    }

    pub(crate) fn put(&self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), SqlError> {
        self.with(|transaction| Ok(transaction.put(tree, key, value)?))
    }

    /// Counts rows of a storage that were added to the delta store, or deleted there.
    pub(crate) fn count(&self, storage: u64, rows: i64) {
        *self.rows.lock().entry(storage).or_default() += rows;
    }

    /// The compiled constraints of a table, if they were prepared.
    pub(crate) fn checks_of(&self, table: &Table) -> Option<Arc<CompiledChecks>> {
        self.checks.lock().get(&table.id).filter(|checks| checks.are_of(table)).cloned()
    }

    /// Keeps the compiled constraints of a table.
    pub(crate) fn keep_checks(&self, table: u64, checks: Arc<CompiledChecks>) {
        self.checks.lock().insert(table, checks);
    }

    /// Takes the lock of a table that will be changed.
    pub(crate) fn lock(&mut self, table: u64, alone: bool) -> Result<(), SqlError> {
        if self.locks.iter().any(|(held, was_alone)| *held == table && *was_alone >= alone) {
            return Ok(());
        }
        let seen = self.with(|transaction| Ok(transaction.snapshot().lsn()))?;
        self.engine.locks.take(table, self.owner, alone, seen.0)?;
        self.locks.push((table, alone));
        Ok(())
    }

    /// SAVEPOINT.
    pub(crate) fn savepoint(&mut self, name: &str) -> Result<(), SqlError> {
        let savepoint = self.with(|transaction| Ok(transaction.savepoint()))?;
        self.savepoints.push((name.into(), savepoint));
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, SqlError> {
        self.savepoints
            .iter()
            .rposition(|(known, _)| known == name)
            .ok_or_else(|| SqlError::transaction("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    /// ROLLBACK TO SAVEPOINT: the savepoint stays, later ones are removed.
    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<(), SqlError> {
        let at = self.find(name)?;
        let savepoint = self.savepoints[at].1;
        self.savepoints.truncate(at + 1);
        self.went_back = true;
        self.with(|transaction| {
            transaction.rollback_to(savepoint);
            Ok(())
        })
    }

    /// RELEASE SAVEPOINT: it and later ones are removed, their changes stay.
    pub(crate) fn release(&mut self, name: &str) -> Result<(), SqlError> {
        let at = self.find(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Commits. Returns when the changes are durable and visible. A commit that has begun runs to its end, even if the
    /// caller stops waiting.
    pub(crate) async fn commit(self) -> Result<(), SqlError> {
        if self.engine.store.is_inline() {
            return self.commit_here();
        }
        // The commit waits for the journal, together with all other commits of this moment: it must not block a thread
        // that serves sockets.
        match tokio::task::spawn_blocking(move || self.commit_here()).await {
            Ok(outcome) => outcome,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(SqlError::Engine(Box::new(ErrorFields::new("57P01", "the node is stopping")))),
            },
        }
    }

    fn commit_here(mut self) -> Result<(), SqlError> {
        let Some(transaction) = self.transaction.lock().take() else {
            return Ok(());
        };
        if transaction.is_read_only() {
            return Ok(());
        }
        if self.defines {
            self.engine.definitions.begin();
        }
        let outcome = transaction.commit();
        if self.defines {
            self.engine.definitions.end(outcome.as_ref().ok().map(|lsn| lsn.0));
        }
        if let (Ok(_), Some(guard)) = (&outcome, self.refreshes.take())
            && let Err(error) = guard.refresh()
        {
            // It is stored; the next change of rights reads it again.
            tracing::error!(%error, "changed owners and rights are not in force yet");
        }
        if outcome.is_ok() {
            for (storage, rows) in self.rows.get_mut().drain() {
                match self.went_back {
                    true => self.engine.counts.forget(storage),
                    false => self.engine.counts.add(storage, rows),
                }
            }
        }
        self.give_back(outcome.as_ref().ok());
        Ok(outcome.map(|_| ())?)
    }

    fn give_back(&mut self, committed: Option<&Lsn>) {
        for (table, alone) in self.locks.drain(..) {
            self.engine.locks.give_back(table, self.owner, committed.filter(|_| alone).map(|lsn| lsn.0));
        }
    }
}

impl Drop for SessionTransaction {
    fn drop(&mut self) {
        // If there was no commit, this is the rollback: plans that still read the transaction get the error that it has
        // ended.
        self.transaction.lock().take();
        self.give_back(None);
    }
}
