//! [`SessionTransaction`]: the transaction of a session. BEGIN begins it, or the first change of a statement outside of
//! BEGIN.
//!
//! In one of READ COMMITTED each statement takes a new snapshot ([`renew`](SessionTransaction::renew)). A statement that meets a
//! row of another transaction waits for that one's end and runs again: what it has done until then is undone
//! ([`mark`](SessionTransaction::mark)), what earlier statements did stays.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use node::identity::Guard;
use parking_lot::{Mutex, MutexGuard};
use store::{Lsn, Savepoint, Transaction, TreeId};

use super::cursors::Cursors;
use super::isolation::Isolation;
use super::pending_keys::PendingKeys;
use super::row_locks::{LockMode, LockOwner};
use super::table_locks::{TABLES, table_key};
use crate::engine::limits::memory_budget::Account;
use crate::engine::notifications::{Mailbox, PendingNotifications};
use crate::engine::plan::access::OwnObjects;
use crate::engine::plan::compiled_checks::CheckCache;
use crate::engine::{Canceller, Engine};
use crate::table::View;
use crate::{ErrorFields, SqlError};

/// The state of a transaction before a statement.
pub(crate) struct Mark {
    /// `None`: it had changed nothing.
    savepoint: Option<Savepoint>,
    rows: HashMap<u64, i64>,
}

/// A savepoint: of the store, and how many locks, cursors, notifications and counters there were.
struct Saved {
    name: String,
    savepoint: Savepoint,
    locks: usize,
    cursors: usize,
    notifications: (usize, usize),
    /// Made and ended.
    counters: (usize, usize),
}

/// The counters of sequences that a transaction makes and ends.
#[derive(Default)]
pub(crate) struct CountersOfTransaction {
    /// They are gone if it does not commit.
    pub(crate) made: Vec<u64>,
    /// They are gone once it has committed.
    pub(crate) ended: Vec<u64>,
}

impl CountersOfTransaction {
    /// A sequence has another counter.
    pub(crate) fn replaced(&mut self, old: u64, new: u64) {
        self.ended.push(old);
        self.made.push(new);
    }
}

/// A table that a transaction has locked.
struct HeldTable {
    table: u64,
    alone: bool,
    /// Whether it may have changed the table: else it only keeps the definition.
    writes: bool,
}

/// An open transaction.
pub(crate) struct SessionTransaction {
    engine: Arc<Engine>,
    owner: u64,
    /// The session's account, if it has a thread of its own.
    pub(crate) on_own_thread: Option<Arc<Account>>,
    /// The session's canceller: each access checks whether the statement may continue.
    canceller: Canceller,
    /// The time when the transaction began: the result of `now()` in it.
    pub(crate) began: DateTime<Utc>,
    transaction: Arc<Mutex<Option<Transaction>>>,
    savepoints: Vec<Saved>,
    /// How many locks of rows it had at its last savepoint: a failed statement leaves only these.
    kept_locks: Arc<AtomicUsize>,
    /// Cursors over its queries.
    pub(crate) cursors: Cursors,
    pub(crate) counters: CountersOfTransaction,
    /// The rows that it has locked.
    row_locks: Arc<LockOwner>,
    /// What its statement has still to ask of foreign keys.
    pending_keys: Mutex<PendingKeys>,
    /// Whether it locks the rows that it changes.
    pub(crate) locks_rows: bool,
    pub(crate) isolation: Isolation,
    /// Whether a statement has read its snapshot.
    has_read: bool,
    /// Rows added to the delta store minus rows deleted there, by storage.
    rows: Mutex<HashMap<u64, i64>>,
    /// Whether a rollback to a savepoint has undone some of the counted rows.
    went_back: bool,
    /// The tables that it has locked.
    locks: Vec<HeldTable>,
    /// The session's compiled constraints.
    checks: Arc<CheckCache>,
    /// What it created and renamed, with the owners.
    pub(crate) own: OwnObjects,
    /// Whose rights it changes, also with its objects: they are put in force after the commit.
    pub(crate) refreshes: Option<Arc<Guard>>,
    /// What it sends when it commits, and to what its session listens then.
    pub(crate) notifications: PendingNotifications,
    /// Who sends it.
    pub(crate) sender: (Arc<Mailbox>, i32),
    /// Whether it changes the catalog.
    pub(crate) defines: bool,
    /// Whether changes are refused.
    pub(crate) read_only: bool,
    /// Whether the engine began it, and not BEGIN.
    pub(crate) implicit: bool,
}

impl SessionTransaction {
    /// A transaction of the session with this number, with these locks of rows.
    pub(crate) fn new(
        engine: Arc<Engine>,
        owner: u64,
        canceller: Canceller,
        (row_locks, checks): (Arc<LockOwner>, Arc<CheckCache>),
    ) -> SessionTransaction {
        let transaction = Arc::new(Mutex::new(Some(engine.store.begin())));
        SessionTransaction {
            engine,
            owner,
            on_own_thread: None,
            canceller,
            began: Utc::now(),
            transaction,
            savepoints: Vec::new(),
            kept_locks: Arc::default(),
            cursors: Cursors::default(),
            counters: CountersOfTransaction::default(),
            row_locks,
            pending_keys: Mutex::default(),
            locks_rows: true,
            isolation: Isolation::ReadCommitted,
            has_read: false,
            rows: Mutex::default(),
            went_back: false,
            locks: Vec::new(),
            checks,
            own: OwnObjects::default(),
            refreshes: None,
            notifications: PendingNotifications::default(),
            sender: (Arc::default(), 0),
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

    /// Locks a row that will be changed: its key in a tree of rows, or in a tree of deleted rows of the column store.
    ///
    /// Errors: [`SqlError::Again`] if another transaction has it: the statement waits for that one and runs again.
    pub(crate) fn lock_row(&self, tree: TreeId, key: &[u8]) -> Result<(), SqlError> {
        match !self.locks_rows || self.row_locks.try_take(tree, key, LockMode::Alone) {
            true => Ok(()),
            false => Err(SqlError::Again("another transaction has changed the row and has not ended".into())),
        }
    }

    /// The rows that it has locked.
    pub(crate) fn row_locks(&self) -> &Arc<LockOwner> {
        &self.row_locks
    }

    /// What its statement has still to ask of foreign keys.
    pub(crate) fn pending_keys(&self) -> MutexGuard<'_, PendingKeys> {
        self.pending_keys.lock()
    }

    /// SET TRANSACTION ISOLATION LEVEL. Errors: 25001.
    pub(crate) fn set_isolation(&mut self, isolation: Isolation) -> Result<(), SqlError> {
        if self.has_read && self.isolation != isolation {
            let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
            return Err(SqlError::transaction("25001", message));
        }
        self.isolation = isolation;
        Ok(())
    }

    /// Whether a statement has read its snapshot.
    pub(crate) fn has_read(&self) -> bool {
        self.has_read
    }

    /// Says whether one has: REPEATABLE READ keeps the snapshot then.
    pub(crate) fn set_read(&mut self, has_read: bool) {
        self.has_read = has_read;
    }

    /// The statement that begins reads what is committed now; in REPEATABLE READ only the first one does. `is_read`: rows of an
    /// earlier statement are still being read, in a view that must stay.
    ///
    /// Errors: [`SqlError::Again`] if another transaction has changed a row that this one has changed without a lock.
    pub(crate) fn renew(&mut self, is_read: bool) -> Result<(), SqlError> {
        if std::mem::replace(&mut self.has_read, true) && self.isolation != Isolation::ReadCommitted {
            return Ok(());
        }
        match self.transaction.lock().as_mut() {
            Some(transaction) if is_read && !transaction.is_read_only() => Ok(()),
            Some(transaction) => Ok(transaction.renew()?),
            None => Ok(()),
        }
    }

    /// What it has changed was as its snapshot says: in READ COMMITTED the statement's rows are locked now. `is_read`: as in
    /// [`renew`](SessionTransaction::renew).
    ///
    /// Errors: [`SqlError::Again`].
    pub(crate) fn check_changes(&mut self, is_read: bool) -> Result<(), SqlError> {
        match self.moves(is_read) || self.isolation != Isolation::ReadCommitted {
            true => self.renew(is_read),
            false => self.with(|transaction| Ok(transaction.check_renewal()?)),
        }
    }

    /// Whether a statement that runs again has a newer snapshot.
    pub(crate) fn moves(&self, is_read: bool) -> bool {
        let has_changed = || self.transaction.lock().as_ref().is_some_and(|transaction| !transaction.is_read_only());
        self.isolation == Isolation::ReadCommitted && !(is_read && has_changed())
    }

    /// Refuses what a key says that another transaction has changed since the snapshot. In REPEATABLE READ, where the statement cannot
    /// have a newer one, what is still there counts as it is.
    ///
    /// Errors: [`SqlError::Again`].
    pub(crate) fn check_newest(&self, tree: TreeId, key: &[u8]) -> Result<(), SqlError> {
        let newest = || View::Snapshot(self.engine.store.snapshot()).get(tree, key);
        match self.is_current(tree, key)? || self.isolation == Isolation::RepeatableRead && newest()?.is_some() {
            true => Ok(()),
            false => Err(SqlError::Again("another transaction has changed the row".into())),
        }
    }

    /// Whether no other transaction has changed a row since the snapshot.
    pub(crate) fn is_current(&self, tree: TreeId, key: &[u8]) -> Result<bool, SqlError> {
        self.with(|transaction| Ok(transaction.is_current(tree, key)))
    }

    /// The same for many rows.
    pub(crate) fn are_current(&self, rows: &[(TreeId, Vec<u8>)]) -> Result<Vec<bool>, SqlError> {
        self.with(|transaction| Ok(transaction.are_current(rows.iter().map(|(tree, key)| (*tree, key.as_slice())))))
    }

    /// The present state, for [`back_to`](SessionTransaction::back_to).
    pub(crate) fn mark(&self) -> Result<Mark, SqlError> {
        let rows = self.rows.lock().clone();
        let is_restarted = self.isolation == Isolation::ReadCommitted && self.savepoints.is_empty();
        self.with(|transaction| {
            let is_new = is_restarted && transaction.is_read_only();
            Ok(Mark { savepoint: (!is_new).then(|| transaction.savepoint()), rows })
        })
    }

    /// Undoes what happened since; the mark stays. Locks of rows stay too.
    pub(crate) fn back_to(&self, mark: &Mark) {
        self.rows.lock().clone_from(&mark.rows);
        if let Some(transaction) = self.transaction.lock().as_mut() {
            match mark.savepoint {
                Some(savepoint) => transaction.rollback_to(savepoint),
                None => *transaction = self.engine.store.begin(),
            }
        }
    }

    /// Keeps what happened since.
    pub(crate) fn forget(&self, mark: &Mark) {
        if let (Some(savepoint), Some(transaction)) = (mark.savepoint, self.transaction.lock().as_mut()) {
            transaction.release(savepoint);
        }
    }

    /// Counts rows of a storage that were added to the delta store, or deleted there.
    pub(crate) fn count(&self, storage: u64, rows: i64) {
        *self.rows.lock().entry(storage).or_default() += rows;
    }

    /// The compiled constraints of the tables into which its session has written.
    pub(crate) fn checks(&self) -> &CheckCache {
        &self.checks
    }

    /// Takes the lock of a table that will be changed.
    pub(crate) fn lock(&mut self, table: u64, alone: bool) -> Result<(), SqlError> {
        if !alone && !self.row_locks.try_take(TABLES, &table_key(table), LockMode::Shared) {
            return Err(SqlError::Again("another transaction has locked the table and has not ended".into()));
        }
        self.lock_definition(table, alone, true)
    }

    /// Keeps the definition of a table as it is until the transaction ends.
    pub(crate) fn keep_definition(&mut self, table: u64) -> Result<(), SqlError> {
        self.lock_definition(table, false, false)
    }

    fn lock_definition(&mut self, table: u64, alone: bool, writes: bool) -> Result<(), SqlError> {
        if let Some(held) = self.locks.iter_mut().find(|held| held.table == table && held.alone >= alone) {
            held.writes |= writes;
            return Ok(());
        }
        let seen = self.with(|transaction| Ok(transaction.snapshot().lsn()))?;
        self.engine.locks.take(table, self.owner, alone, seen.0)?;
        match self.locks.iter_mut().find(|held| held.table == table) {
            Some(held) => (held.alone, held.writes) = (alone, held.writes || writes),
            None => self.locks.push(HeldTable { table, alone, writes }),
        }
        Ok(())
    }

    /// Whether it has a table alone, as who has created, emptied or altered it.
    pub(crate) fn has_alone(&self, table: u64) -> bool {
        self.locks.iter().any(|held| held.table == table && held.alone)
    }

    /// Whether it may have changed rows of a table, or its definition.
    pub(crate) fn has_written(&self, table: u64) -> bool {
        self.locks.iter().any(|held| held.table == table && held.writes)
    }

    /// Refuses a look at all rows of a table that it has locked alone, if the snapshot is older than one of them.
    ///
    /// Errors: [`SqlError::Again`].
    pub(crate) fn sees_all(&self, table: u64) -> Result<(), SqlError> {
        let seen = self.with(|transaction| Ok(transaction.snapshot().lsn()))?;
        self.engine.locks.check_newest(table, seen.0)
    }

    /// SAVEPOINT.
    pub(crate) fn savepoint(&mut self, name: &str) -> Result<(), SqlError> {
        let savepoint = self.with(|transaction| Ok(transaction.savepoint()))?;
        let (locks, cursors) = (self.row_locks.count(), self.cursors.count());
        let notifications = self.notifications.count();
        let counters = (self.counters.made.len(), self.counters.ended.len());
        self.savepoints.push(Saved { name: name.into(), savepoint, locks, cursors, notifications, counters });
        self.kept_locks.store(locks, Ordering::Release);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, SqlError> {
        self.savepoints
            .iter()
            .rposition(|saved| saved.name == name)
            .ok_or_else(|| SqlError::transaction("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    /// ROLLBACK TO SAVEPOINT: the savepoint stays, later ones are removed.
    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<(), SqlError> {
        let at = self.find(name)?;
        let Saved { savepoint, locks, cursors, notifications, counters: (made, ended), .. } = self.savepoints[at];
        self.savepoints.truncate(at + 1);
        self.went_back = true;
        // A statement that was ended while it wrote what nobody else can see has not said that it is over.
        self.locks_rows = true;
        self.with(|transaction| {
            transaction.rollback_to(savepoint);
            // What could not be spilled is lost, and with it what was before the savepoint.
            Ok(transaction.check()?)
        })?;
        self.row_locks.give_back_to(locks);
        self.kept_locks.store(locks, Ordering::Release);
        self.cursors.keep(cursors);
        self.notifications.keep(notifications);
        self.counters.ended.truncate(ended);
        self.engine.sequences.retire(0, self.counters.made.split_off(made));
        Ok(())
    }

    /// What a statement that fails gives back: its locks, and how many of them it keeps.
    pub(crate) fn locks_at_failure(&self) -> (Arc<LockOwner>, Arc<AtomicUsize>) {
        (self.row_locks.clone(), self.kept_locks.clone())
    }

    /// RELEASE SAVEPOINT: it and later ones are removed, their changes stay.
    pub(crate) fn release(&mut self, name: &str) -> Result<(), SqlError> {
        let at = self.find(name)?;
        let savepoint = self.savepoints[at].savepoint;
        self.savepoints.truncate(at);
        // The store forgets it too: each savepoint that it knows divides what a large transaction spills.
        self.with(|transaction| {
            transaction.release(savepoint);
            Ok(())
        })?;
        self.kept_locks.store(self.savepoints.last().map_or(0, |saved| saved.locks), Ordering::Release);
        Ok(())
    }

    /// Commits. Returns when the changes are durable and visible. A commit that has begun runs to its end, even if the
    /// caller stops waiting.
    pub(crate) async fn commit(mut self) -> Result<(), SqlError> {
        // Their threads are given back by the session's own.
        self.cursors.keep(0);
        if self.engine.store.is_inline() {
            return self.commit_here();
        }
        // A session's own thread waits itself: to hand the commit to another thread and to be woken by it takes longer than all else
        // that a small commit does.
        if let Some(account) = self.on_own_thread.take() {
            return account.not_counted(|| self.commit_here());
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

    /// Commits, and sends its notifications: others that have some wait for that, so that all arrive in one order.
    fn commit_here(mut self) -> Result<(), SqlError> {
        let notifications = std::mem::take(&mut self.notifications);
        let (engine, (mailbox, process)) = (self.engine.clone(), self.sender.clone());
        let order = engine.notifications.in_order(&notifications);
        self.commit_changes()?;
        engine.notifications.apply(notifications, (&mailbox, process));
        drop(order);
        Ok(())
    }

    fn commit_changes(mut self) -> Result<(), SqlError> {
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
        // After an error it may be that the next opening finds the commit: what it made stays.
        let CountersOfTransaction { ended, .. } = std::mem::take(&mut self.counters);
        if let Ok(lsn) = &outcome {
            self.engine.sequences.retire(lsn.0, ended);
        }
        Ok(outcome.map(|_| ())?)
    }

    fn give_back(&mut self, committed: Option<&Lsn>) {
        for HeldTable { table, alone, writes } in self.locks.drain(..) {
            // A definition that was only kept says nothing about rows.
            let committed = committed.filter(|_| writes).map(|lsn| lsn.0);
            self.engine.locks.give_back(table, self.owner, alone, committed);
        }
    }
}

impl Drop for SessionTransaction {
    fn drop(&mut self) {
        // If there was no commit, this is the rollback: plans that still read the transaction get the error that it has
        // ended.
        self.transaction.lock().take();
        self.engine.sequences.retire(0, std::mem::take(&mut self.counters.made));
        self.give_back(None);
    }
}
