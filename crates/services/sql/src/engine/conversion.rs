//! [`Conversion`]: moves rows from row form into column segments, and compacts these, in the background.
//!
//! ```text
//!   every second:  for each table with a whole segment's rows in row form, and some more
//!                     move one segment's rows in a transaction        pause: nine times as long as that took
//!                  for each table with a segment that has lost a quarter of its rows
//!                     compact it in a transaction                     pause: the same
//! ```
//!
//! A move is a transaction like any other: of it and a statement that changes one of its rows the first to commit wins. Where
//! that was the statement, nothing was moved, and the table is tried again in the next round. The pauses keep the share of a
//! processor, and of the store's applier, small however much there is to move. What segments have lost is known from the
//! addresses of all deleted rows: the longer it took to read these, the longer until it is done again.
//!
//! The thread is the engine's, one for a node. It ends when the engine is closed or dropped, which waits for it, and when the
//! store is poisoned: nothing can be moved any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::supervise;
use parking_lot::{Condvar, Mutex};
use store::{Store, TreeId};

use super::definitions::Definitions;
use crate::column::{Columns, Compacted};
use crate::table::counts::RowCounts;
use crate::table::{Catalog, Table, View};
use crate::{Relation, SqlError};

/// When rows move to column form, and segments are compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConversionOptions {
    /// How often tables are looked at. Default 1 second.
    pub every: Duration,
    /// The most that moving takes of the time of one thread, above 0 to 1. Default 0.1.
    pub share: f64,
    /// Rows that stay in row form beside those of the segment: those with the largest keys, which often are the ones that still
    /// change. Default 8192.
    pub keep: usize,
}

impl Default for ConversionOptions {
    fn default() -> ConversionOptions {
        ConversionOptions { every: Duration::from_secs(1), share: 0.1, keep: crate::column::VECTOR_ROWS }
    }
}

impl ConversionOptions {
    /// How long to rest after work that took so long.
    fn pause(&self, took: Duration) -> Duration {
        took.mul_f64(1.0 / self.share.clamp(0.001, 1.0) - 1.0)
    }
}

/// What was moved and compacted since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversionStats {
    /// Segments made of rows in row form.
    pub segments: u64,
    /// Rows in them.
    pub rows: u64,
    /// Segments that have lost rows and were written anew, alone or with others.
    pub compacted: u64,
    /// Moves and compactions given up because a statement changed one of the rows first.
    pub conflicts: u64,
}

/// What a move needs to know; shared with the thread.
#[derive(Debug)]
pub(crate) struct Conversion {
    pub(crate) store: Store,
    pub(crate) columns: Arc<Columns>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) counts: Arc<RowCounts>,
    /// The tree of the catalog.
    pub(crate) catalog: TreeId,
    /// What else the engine's catalog has: it is one for both.
    pub(crate) relations: Vec<(String, Arc<dyn Relation>)>,
    segments: AtomicU64,
    rows: AtomicU64,
    compacted: AtomicU64,
    conflicts: AtomicU64,
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Conversion {
    pub(crate) fn new(
        store: &Store,
        columns: &Arc<Columns>,
        catalog: TreeId,
        relations: &[(String, Arc<dyn Relation>)],
    ) -> Conversion {
        Conversion {
            store: store.clone(),
            columns: columns.clone(),
            definitions: Arc::default(),
            counts: Arc::default(),
            catalog,
            relations: relations.to_vec(),
            segments: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            stop: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    pub(crate) fn stats(&self) -> ConversionStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ConversionStats {
            segments: of(&self.segments),
            rows: of(&self.rows),
            compacted: of(&self.compacted),
            conflicts: of(&self.conflicts),
        }
    }

    fn tables(&self, view: &View) -> Result<Arc<Catalog>, SqlError> {
        let lsn = view.snapshot()?.lsn().0;
        self.definitions.at(lsn, view, |view| Catalog::load(view, self.catalog, &self.relations))
    }

    /// The tables that have enough rows to move.
    fn due(&self, keep: usize) -> Result<Vec<u64>, SqlError> {
        let view = View::Snapshot(self.store.snapshot());
        let mut due = Vec::new();
        for table in self.tables(&view)?.tables() {
            if self.counts.get(&view, table)? >= self.columns.segment_rows() + keep {
                due.push(table.id);
            }
        }
        Ok(due)
    }

    /// Moves one segment's rows of a table; gives how many rows that were. 0 where there are too few, the table is gone, or
    /// somebody changed one of the rows first.
    fn move_one(&self, id: u64, keep: usize) -> Result<usize, SqlError> {
        let transaction = self.store.begin();
        // Rows are read as the table was when the transaction began.
        let catalog = self.tables(&View::Snapshot(transaction.snapshot().clone()))?;
        let Some(table) = catalog.tables().find(|table| table.id == id) else { return Ok(0) };
        match self.columns.convert(transaction, table, keep) {
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
                tracing::debug!(table = table.display(), "rows stay in row form for now: somebody changed one of them");
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Compacts some segments of a table. `None` where none is due, the table is gone, or somebody deleted one of the rows
    /// first.
    fn compact_one(&self, id: u64) -> Result<Option<Compacted>, SqlError> {
        let transaction = self.store.begin();
        let catalog = self.tables(&View::Snapshot(transaction.snapshot().clone()))?;
        let Some(table) = catalog.tables().find(|table| table.id == id) else { return Ok(None) };
        match self.columns.compact(transaction, table) {
            Ok(done) => {
                let segments = done.map_or(0, |done| done.segments as u64);
                self.compacted.fetch_add(segments, Ordering::Relaxed);
                Ok(done)
            }
            Err(SqlError::Again(_)) => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(table = table.display(), "segments stay for now: somebody deleted one of the rows");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn moved(&self, table: &Table, rows: usize) {
        self.counts.add(table.storage, -(rows as i64));
        self.segments.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// All tables there are now.
    fn all(&self) -> Result<Vec<u64>, SqlError> {
        let catalog = self.tables(&View::Snapshot(self.store.snapshot()))?;
        Ok(catalog.tables().map(|table| table.id).collect())
    }

    /// Compacts what there is to compact, now. Gives how many segments went.
    pub(crate) fn compact(&self) -> Result<usize, SqlError> {
        let mut segments = 0;
        for table in self.all()? {
            while let Some(done) = self.compact_one(table)? {
                segments += done.segments;
            }
        }
        Ok(segments)
    }

    /// Moves what there is to move, now. Gives how many rows that were.
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

    /// Sleeps; whether to go on.
    fn sleep(&self, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, time);
        }
        !*stop
    }

    /// One round; whether to go on.
    fn round(&self, options: ConversionOptions) -> Result<bool, SqlError> {
        for id in self.due(options.keep)? {
            loop {
                let before = Instant::now();
                let rows = told(id, self.move_one(id, options.keep));
                if rows == 0 {
                    break;
                }
                let took = before.elapsed();
                tracing::info!(table = id, rows, ms = took.as_millis() as u64, "rows moved to column form");
                if !self.sleep(options.pause(took)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// One round of compaction: how long to wait with the next one; `None` to end.
    fn compactions(&self, options: ConversionOptions) -> Result<Option<Duration>, SqlError> {
        let mut looked = Duration::ZERO;
        for id in self.all()? {
            loop {
                let before = Instant::now();
                let done = told(id, self.compact_one(id));
                let took = before.elapsed();
                let Some(Compacted { segments, rows }) = done else {
                    looked += took;
                    break;
                };
                tracing::info!(table = id, segments, rows, ms = took.as_millis() as u64, "segments compacted");
                if !self.sleep(options.pause(took)) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(options.pause(looked)))
    }

    fn work(&self, options: ConversionOptions) {
        let mut compact_at = Instant::now();
        while self.sleep(options.every) {
            supervise::rehearse("sql-convert");
            if let Some(cause) = self.store.poisoned() {
                tracing::warn!(%cause, "rows stay in row form: the store is poisoned");
                return;
            }
            match self.round(options) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::warn!(%error, "rows could not be moved to column form"),
            }
            if Instant::now() < compact_at {
                continue;
            }
            match self.compactions(options) {
                Ok(Some(pause)) => compact_at = Instant::now() + pause,
                Ok(None) => return,
                Err(error) => tracing::warn!(%error, "segments could not be compacted"),
            }
        }
    }
}

/// What is wrong with a table is told to whoever reads it; others go on.
fn told<T: Default>(id: u64, done: Result<T, SqlError>) -> T {
    done.unwrap_or_else(|error| {
        tracing::warn!(table = id, %error, "rows stay as they are");
        T::default()
    })
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Worker {
    conversion: Arc<Conversion>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts it. Errors: the system gives no thread.
    pub(crate) fn start(conversion: &Arc<Conversion>, options: ConversionOptions) -> Result<Worker, SqlError> {
        let work = {
            let conversion = conversion.clone();
            move || conversion.work(options)
        };
        let store = conversion.store.clone();
        let thread = supervise::thread("sql-convert", work, move |why| store.fail(&why));
        let thread = thread.map_err(|error| {
            SqlError::statement("53000", format!("the thread that moves rows to column form cannot start: {error}"))
        })?;
        Ok(Worker { conversion: conversion.clone(), thread: Mutex::new(Some(thread)) })
    }

    /// Ends it, when the move under way is done.
    pub(crate) fn stop(&self) {
        *self.conversion.stop.lock() = true;
        self.conversion.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // Its panic was told when it came.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}
