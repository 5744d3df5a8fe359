//! [`TupleMover`]: moves rows from the delta store into row groups, and compacts these, in the background.
//!
//! ```text
//!   every second:  for each table that has the rows of a full row group in the delta store, and some more
//!                     move the rows of one row group in a transaction   pause: nine times as long as that took
//!                  for each table with a row group that has lost a quarter of its rows
//!                     compact it in a transaction                     pause: the same
//! ```
//!
//! A move is a transaction like any other: if a statement changes one of its rows at the same time, the first to commit
//! wins. If that was the statement, nothing is moved, and the mover tries the table again in the next round. It leaves rows out that
//! open transactions have locked, which would have to run again. It locks the others while it commits, and moves nothing if one was
//! locked meanwhile. The pauses, also after a move that was given up, bound the mover's share of a processor, and of the store's
//! applier, whatever the number of rows to move. The mover
//! reads the addresses of all deleted rows to find out what row groups have lost: the longer this reading takes, the
//! longer it waits before it reads them again.
//!
//! The thread is the engine's, one for a node. It ends when the engine is closed or dropped, which waits for it. It
//! also ends when the store is poisoned, because nothing can be moved then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::supervise;
use parking_lot::{Condvar, Mutex};
use store::{Store, Transaction, TreeId};

use super::plan::catalog_cache::CatalogCache;
use super::session::row_locks::{LockOwner, RowLocks};
use super::session::table_locks::Locks;
use crate::column::{Compacted, RowGroupStore};
use crate::table::catalog::take_name;
use crate::table::row_counts::RowCounts;
use crate::table::{Catalog, Table, View};
use crate::{SqlError, VirtualTable};

/// When rows move to the column store, and row groups are compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TupleMoverOptions {
    /// How often the tables are checked. Default 1 second.
    pub every: Duration,
    /// The largest share of one thread's time that moving takes, above 0 to 1. Default 0.1.
    pub share: f64,
    /// Rows that stay in the delta store beside those of the row group: those with the largest keys, because these rows
    /// often still change. Default 8192.
    pub keep: usize,
}

impl Default for TupleMoverOptions {
    fn default() -> TupleMoverOptions {
        TupleMoverOptions { every: Duration::from_secs(1), share: 0.1, keep: crate::column::VECTOR_ROWS }
    }
}

impl TupleMoverOptions {
    /// How long the thread rests after work of this duration.
    fn pause(&self, took: Duration) -> Duration {
        took.mul_f64(1.0 / self.share.clamp(0.001, 1.0) - 1.0)
    }
}

/// What was moved and compacted since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TupleMoverStats {
    /// Row groups made from rows in the delta store.
    pub row_groups: u64,
    /// Rows in them.
    pub rows: u64,
    /// Row groups that had lost rows and were rewritten, alone or with others.
    pub compacted: u64,
    /// Moves and compactions given up because a statement changed one of the rows first.
    pub conflicts: u64,
}

/// The data that a move needs; shared with the thread.
#[derive(Debug)]
pub(crate) struct TupleMover {
    pub(crate) store: Store,
    pub(crate) columns: Arc<RowGroupStore>,
    pub(crate) definitions: Arc<CatalogCache>,
    pub(crate) counts: Arc<RowCounts>,
    /// The rows that transactions have locked: they are not moved.
    pub(crate) row_locks: Arc<RowLocks>,
    /// The locks of tables: of one whose definition a transaction changes no rows are moved.
    pub(crate) table_locks: Arc<Locks>,
    /// The tree of the catalog.
    pub(crate) catalog: TreeId,
    /// The other tables of the engine's catalog: both use the same one.
    pub(crate) virtual_tables: Vec<(String, Arc<dyn VirtualTable>)>,
    row_groups: AtomicU64,
    rows: AtomicU64,
    compacted: AtomicU64,
    conflicts: AtomicU64,
    /// Held by a VACUUM while it compacts: each locks many rows. Who waits for it can be ended.
    vacuums: tokio::sync::Mutex<()>,
    stop: Mutex<bool>,
    wake: Condvar,
}

impl TupleMover {
    pub(crate) fn new(
        store: &Store,
        columns: &Arc<RowGroupStore>,
        catalog: TreeId,
        virtual_tables: &[(String, Arc<dyn VirtualTable>)],
    ) -> TupleMover {
        TupleMover {
            store: store.clone(),
            columns: columns.clone(),
            definitions: Arc::default(),
            counts: Arc::default(),
            row_locks: Arc::default(),
            table_locks: Arc::default(),
            catalog,
            virtual_tables: virtual_tables.to_vec(),
            row_groups: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            vacuums: tokio::sync::Mutex::default(),
            stop: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    pub(crate) fn stats(&self) -> TupleMoverStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TupleMoverStats {
            row_groups: of(&self.row_groups),
            rows: of(&self.rows),
            compacted: of(&self.compacted),
            conflicts: of(&self.conflicts),
        }
    }

    fn tables(&self, view: &View) -> Result<Arc<Catalog>, SqlError> {
        let lsn = view.snapshot()?.lsn().0;
        self.definitions.at(lsn, view, |view| Catalog::load(view, self.catalog, &self.virtual_tables))
    }

    /// The tables that have enough rows to move.
    fn due(&self, keep: usize) -> Result<Vec<u64>, SqlError> {
        let view = View::Snapshot(self.store.snapshot());
        let mut due = Vec::new();
        for table in self.tables(&view)?.tables() {
            let is_enough = self.counts.get(&view, table)? >= self.columns.row_group_rows() + keep;
            if is_enough && !self.table_locks.is_alone(table.id) {
                due.push(table.id);
            }
        }
        Ok(due)
    }

    /// Moves the rows of one row group of a table. Returns the number of rows; 0 if there are too few, the table no
    /// longer exists, or a statement changed one of the rows first.
    fn move_one(&self, id: u64, keep: usize) -> Result<usize, SqlError> {
        let mut transaction = self.store.begin();
        // The table is read as it was when the transaction began.
        let catalog = self.tables(&View::Snapshot(transaction.snapshot().clone()))?;
        let Some(table) = catalog.tables().find(|table| table.id == id) else { return Ok(0) };
        self.keep_definition(&mut transaction, table);
        let mut reserved = None;
        let is_locked = |tree, key: &[u8]| self.row_locks.is_locked(tree, key);
        match self.columns.move_rows(transaction, table, keep, is_locked, self.reserving(&mut reserved)) {
            Ok(0) => {
                self.counts.forget(table.storage);
                Ok(0)
            }
            Ok(rows) => {
                self.moved(table, rows);
                Ok(rows)
            }
            Err(SqlError::Again(_)) => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(
                    table = table.display(),
                    "rows stay in the delta store for now: a statement changed one of them"
                );
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Compacts some row groups of a table. `None` if none is due, the table no longer exists, or a statement deleted
    /// one of the rows first.
    fn compact_one(&self, id: u64) -> Result<Option<Compacted>, SqlError> {
        let mut transaction = self.store.begin();
        let catalog = self.tables(&View::Snapshot(transaction.snapshot().clone()))?;
        let Some(table) = catalog.tables().find(|table| table.id == id) else { return Ok(None) };
        self.keep_definition(&mut transaction, table);
        let mut reserved = None;
        match self.columns.compact(transaction, table, self.reserving(&mut reserved)) {
            Ok(done) => {
                let row_groups = done.map_or(0, |done| done.row_groups as u64);
                self.compacted.fetch_add(row_groups, Ordering::Relaxed);
                Ok(done)
            }
            Err(SqlError::Again(_)) => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(
                    table = table.display(),
                    "row groups stay for now: a statement deleted one of the rows"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Lets a transaction that moves rows conflict with what makes an index for their old addresses at the same time. Entries that lead
    /// to primary keys stay.
    fn keep_definition(&self, transaction: &mut Transaction, table: &Table) {
        if table.key.is_empty() {
            take_name(transaction, self.catalog, &table.schema_name, &table.name);
        }
    }

    /// Locks rows by their keys in a tree until `reserved` is dropped.
    fn reserving<'a>(
        &'a self,
        reserved: &'a mut Option<Arc<LockOwner>>,
    ) -> impl FnOnce(TreeId, &[&[u8]]) -> Result<(), SqlError> + 'a {
        move |tree, keys| {
            let keys: Vec<_> = keys.iter().map(|key| self.row_locks.key(tree, key)).collect();
            *reserved = self.row_locks.reserve(&keys);
            match reserved {
                Some(_) => Ok(()),
                None => Err(SqlError::Again("an open transaction has locked one of the rows".into())),
            }
        }
    }

    fn moved(&self, table: &Table, rows: usize) {
        self.counts.add(table.storage, -(rows as i64));
        self.row_groups.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// All existing tables whose definition nobody changes.
    fn all(&self) -> Result<Vec<u64>, SqlError> {
        let catalog = self.tables(&View::Snapshot(self.store.snapshot()))?;
        let free = catalog.tables().filter(|table| !self.table_locks.is_alone(table.id));
        Ok(free.map(|table| table.id).collect())
    }

    /// Compacts some row groups of a table that are due, unless a transaction changes its definition: its work would be in vain. Returns
    /// the number of row groups that were replaced.
    pub(crate) async fn compact_table(&self, table: u64) -> Result<usize, SqlError> {
        let _alone = self.vacuums.lock().await;
        if self.table_locks.is_alone(table) {
            return Ok(0);
        }
        Ok(self.compact_one(table)?.map_or(0, |done| done.row_groups))
    }

    /// Compacts all row groups that are due, now. Returns the number of row groups that were replaced.
    pub(crate) fn compact(&self) -> Result<usize, SqlError> {
        let mut row_groups = 0;
        for table in self.all()? {
            while let Some(done) = self.compact_one(table)? {
                row_groups += done.row_groups;
            }
        }
        Ok(row_groups)
    }

    /// Lets each VACUUM wait until the returned guard is dropped.
    #[cfg(test)]
    pub(crate) async fn without_vacuum(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.vacuums.lock().await
    }

    /// Moves all rows that are due, now. Returns their number.
    pub(crate) fn run(&self, keep: usize) -> Result<usize, SqlError> {
        let mut rows = 0;
        for table in self.due(keep)? {
            loop {
                match self.move_one(table, keep)? {
                    0 => break,
                    moved => rows += moved,
                }
            }
        }
        Ok(rows)
    }

    /// Sleeps. Returns whether to continue.
    fn sleep(&self, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, time);
        }
        !*stop
    }

    /// Runs one round. Returns whether to continue.
    fn round(&self, options: TupleMoverOptions) -> Result<bool, SqlError> {
        for id in self.due(options.keep)? {
            loop {
                let before = Instant::now();
                let rows = logged(id, self.move_one(id, options.keep));
                let took = before.elapsed();
                if rows > 0 {
                    tracing::info!(table = id, rows, ms = took.as_millis() as u64, "rows moved to the column store");
                }
                if !self.sleep(options.pause(took)) {
                    return Ok(false);
                }
                if rows == 0 {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// Runs one round of compaction. Returns how long to wait until the next one; `None` to end.
    fn compactions(&self, options: TupleMoverOptions) -> Result<Option<Duration>, SqlError> {
        let mut looked = Duration::ZERO;
        for id in self.all()? {
            loop {
                let before = Instant::now();
                let done = logged(id, self.compact_one(id));
                let took = before.elapsed();
                let Some(Compacted { row_groups, rows }) = done else {
                    looked += took;
                    break;
                };
                tracing::info!(table = id, row_groups, rows, ms = took.as_millis() as u64, "row groups compacted");
                if !self.sleep(options.pause(took)) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(options.pause(looked)))
    }

    fn work(&self, options: TupleMoverOptions) {
        let mut compact_at = Instant::now();
        while self.sleep(options.every) {
            supervise::rehearse("sql-convert");
            if let Some(cause) = self.store.poisoned() {
                tracing::warn!(%cause, "rows stay in the delta store: the store is poisoned");
                return;
            }
            match self.round(options) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::warn!(%error, "rows could not be moved to the column store"),
            }
            if Instant::now() < compact_at {
                continue;
            }
            match self.compactions(options) {
                Ok(Some(pause)) => compact_at = Instant::now() + pause,
                Ok(None) => return,
                Err(error) => tracing::warn!(%error, "row groups could not be compacted"),
            }
        }
    }
}

/// Logs the error of one table; the mover continues with the others. Statements that read the table report the fault
/// too.
fn logged<T: Default>(id: u64, done: Result<T, SqlError>) -> T {
    done.unwrap_or_else(|error| {
        tracing::warn!(table = id, %error, "the rows of a table could not be moved or compacted");
        T::default()
    })
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Worker {
    mover: Arc<TupleMover>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts the thread. Errors: the system cannot start one.
    pub(crate) fn start(mover: &Arc<TupleMover>, options: TupleMoverOptions) -> Result<Worker, SqlError> {
        let work = {
            let mover = mover.clone();
            move || mover.work(options)
        };
        let store = mover.store.clone();
        let thread = supervise::thread("sql-convert", work, move |why| store.fail(&why));
        let thread = thread.map_err(|error| {
            SqlError::statement(
                "53000",
                format!("the thread that moves rows to the column store cannot start: {error}"),
            )
        })?;
        Ok(Worker { mover: mover.clone(), thread: Mutex::new(Some(thread)) })
    }

    /// Ends the thread after the current move.
    pub(crate) fn stop(&self) {
        *self.mover.stop.lock() = true;
        self.mover.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // Its panic was logged when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}
