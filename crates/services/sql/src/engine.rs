//! [`Engine`] and [`Session`]: statements in, rows and counts out. No sockets, no protocol.
//!
//! ```text
//!   text --parse--> Prepared --execute--> Answer::Rows       queries, SHOW
//!                                         Answer::Done       everything that only counts
//!                                         Answer::CopyIn     COPY .. FROM STDIN: the caller pushes batches
//!                                         Answer::CopyOut    COPY .. TO STDOUT: the caller formats batches
//! ```
//!
//! A session is one connection: it runs one statement at a time. Its rows are streams: they must be read to the end or
//! dropped before the next statement.

mod alter;
mod answer;
mod apart;
mod apply;
mod assign;
mod averages;
mod block;
pub(crate) mod budget;
mod bulk;
mod calls;
mod cancel;
mod casts;
mod change;
mod check;
mod checked;
mod context;
pub(crate) mod control;
mod conversion;
mod copy;
mod defaults;
mod define;
mod definitions;
mod depth;
mod dialect;
mod digests;
mod exact;
mod explain;
mod external;
mod gate;
mod growth;
mod insert;
pub(crate) mod kinds;
mod locks;
mod meaning;
mod meant;
mod moments;
pub(crate) mod names;
mod numbers;
mod operators;
mod owned;
pub(crate) mod parse;
mod patterns;
mod pool;
mod prepared;
mod quick;
mod quotient;
mod rules;
mod series;
mod session;
pub(crate) mod settings;
mod spill;
mod sums;
pub(crate) mod syntax;
mod target;
mod team;
pub(crate) mod titles;
mod untyped;
mod upsert;
mod views;
mod watch;
mod windows;

use std::collections::HashMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use parking_lot::Mutex;
use store::{Direction, TreeId};

use store::Store;

use budget::Budget;
use conversion::{Conversion, Worker};
use definitions::Definitions;
use locks::Locks;
use pool::Pool;
use team::Teams;

pub use answer::{Answer, CopyFormat, CopyIn, CopyOut};
pub use cancel::Canceller;
pub use check::{TableReport, read_tables};
pub use conversion::{ConversionOptions, ConversionStats};
pub(crate) use kinds::NUMERIC;
pub use prepared::Prepared;
pub use session::{Session, SessionState};
pub use settings::Settings;
pub use spill::SpillOptions;

use crate::column::{Columns, SEGMENT_ROWS};
use crate::external::{Files, Folders, runtime};
use crate::table::catalog::CATALOG_TREE;
use crate::table::counts::RowCounts;
use crate::table::key;
use crate::table::{Catalog, ColumnForm, Table, View};
use crate::{Relation, SqlError};

/// What of the memory is for what is not counted, if that is less than a half: small blocks, pages that the allocator gives back a little
/// later, and what is made between two questions whether there is room.
const UNCOUNTED_BYTES_MAX: usize = 256 << 20;

/// How an engine works, and what it shows besides its own tables.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Read-only tables from outside, by name: `schema.name`, or a name alone, which lies in schema `public`. No tables
    /// of these names can be made. Default none.
    pub relations: Vec<(String, Arc<dyn Relation>)>,
    /// Threads that one query may use. Default: one for each core.
    pub threads: usize,
    /// What `statement_timeout` is where a session does not say: how long a statement may take, at most. Zero, which is the
    /// default: as long as it needs.
    pub statement: Duration,
    /// What `idle_in_transaction_session_timeout` is where a session does not say: how long a transaction may wait for its
    /// client, at most. Zero, which is the default: for ever.
    pub idle_in_transaction: Duration,
    /// Memory that all statements together may take, in bytes. A quarter of it is for sorting, grouping and joining, which spill
    /// what does not fit, and copy it on the way. Default 1 GiB.
    pub query_bytes: usize,
    /// Where they spill to. Default none: to the system's folder of temporary files, at most 100 GB.
    pub spill: Option<SpillOptions>,
    /// Rows of a whole column segment: 1 to 122,880, which is the default and the best for scans.
    pub segment_rows: usize,
    /// When rows move from row form to column segments, on a thread of the engine's own. None: only when
    /// [`Engine::convert`] is called. Default: [`ConversionOptions::default`].
    pub conversion: Option<ConversionOptions>,
    /// The folders that external tables may lie in. Default none: there are no external tables.
    pub external: Vec<PathBuf>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        EngineOptions {
            relations: Vec::new(),
            threads,
            statement: Duration::ZERO,
            idle_in_transaction: Duration::ZERO,
            query_bytes: 1 << 30,
            spill: None,
            segment_rows: SEGMENT_ROWS,
            conversion: Some(ConversionOptions::default()),
            external: Vec::new(),
        }
    }
}

/// The SQL engine over one store; shared by all sessions.
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) options: EngineOptions,
    /// What of the tables is in column form.
    pub(crate) columns: Arc<Columns>,
    pub(crate) runtime: Arc<RuntimeEnv>,
    pub(crate) files: Arc<Files>,
    pub(crate) locks: Locks,
    /// The threads of queries.
    pub(crate) teams: Arc<Teams>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) definitions: Arc<Definitions>,
    /// About how many rows are in row form.
    pub(crate) counts: Arc<RowCounts>,
    conversion: Arc<Conversion>,
    /// The thread of the conversion.
    worker: Option<Worker>,
    /// The tree of the catalog.
    pub(crate) catalog: TreeId,
    /// The next number of a table or of its storage.
    next: AtomicU64,
    sessions: AtomicU64,
    /// The next row id of tables without a primary key, by storage.
    row_ids: Mutex<HashMap<u64, u64>>,
}

impl Engine {
    /// An engine over a store. Tables are found in the store; an empty one has none.
    pub fn new(store: Store, options: EngineOptions) -> Result<Arc<Engine>, SqlError> {
        let catalog = match store.snapshot().tree(CATALOG_TREE)? {
            Some(tree) => tree,
            None => {
                let mut transaction = store.begin();
                let tree = transaction.create_tree(CATALOG_TREE)?;
                transaction.commit()?;
                tree
            }
        };
        let pool = Arc::new(Pool::new(options.query_bytes / 4));
        let mut builder = RuntimeEnvBuilder::new().with_memory_pool(pool);
        if let Some(spill) = &options.spill {
            builder = builder.with_disk_manager_builder(spill.prepare()?);
        }
        let files = Arc::new(Files::new(&store, Folders::new(&options.external)?));
        let runtime = Arc::new(runtime(builder, &files)?);
        let known = Catalog::load(&View::Snapshot(store.snapshot()), catalog, &options.relations)?;
        let last = known.tables().map(|table| table.id.max(table.storage)).max().unwrap_or(0);
        let columns = Arc::new(Columns::with_segments_of(options.segment_rows));
        let conversion = Arc::new(Conversion::new(&store, &columns, catalog, &options.relations));
        let worker = options.conversion.map(|options| Worker::start(&conversion, options)).transpose()?;
        let counted = options.query_bytes - (options.query_bytes / 2).min(UNCOUNTED_BYTES_MAX);
        let (teams, budget) = (Teams::new(options.threads), Budget::new(counted));
        Ok(Arc::new(Engine {
            store,
            teams,
            budget,
            options,
            columns,
            runtime,
            files,
            locks: Locks::default(),
            definitions: conversion.definitions.clone(),
            counts: conversion.counts.clone(),
            conversion,
            worker,
            catalog,
            next: AtomicU64::new(last + 1),
            sessions: AtomicU64::new(1),
            row_ids: Mutex::default(),
        }))
    }

    /// A connection of `user`, who is already authenticated.
    pub fn session(self: &Arc<Self>, user: &str) -> Session {
        Session::new(self.clone(), user)
    }

    /// Moves rows from row form to column segments, now: of each table whole segments, as long as `keep` rows stay. Gives how
    /// many rows that were.
    pub fn convert(&self, keep: usize) -> Result<usize, SqlError> {
        self.conversion.run(keep)
    }

    /// Compacts column segments, now: those that have lost a quarter of their rows are written anew. Gives how many went.
    pub fn compact(&self) -> Result<usize, SqlError> {
        self.conversion.compact()
    }

    /// What was moved and compacted so far.
    pub fn conversion(&self) -> ConversionStats {
        self.conversion.stats()
    }

    /// Ends the engine's own thread, and waits for it. Sessions go on.
    pub fn close(&self) {
        if let Some(worker) = &self.worker {
            worker.stop();
        }
    }

    /// The store beneath.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// All schemas, tables and views as they are now.
    pub fn tables(&self) -> Result<Arc<Catalog>, SqlError> {
        let snapshot = self.store.snapshot();
        let lsn = snapshot.lsn().0;
        self.definitions.at(lsn, &View::Snapshot(snapshot), |view| self.load(view))
    }

    pub(crate) fn load(&self, view: &View) -> Result<Catalog, SqlError> {
        Catalog::load(view, self.catalog, &self.options.relations)
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that no table and no storage has.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A table's storage is new and empty: its first row id is 1.
    pub(crate) fn fresh(&self, storage: u64) {
        self.row_ids.lock().insert(storage, 1);
    }

    /// Takes row ids for so many rows of a table and returns the first. Ids only grow; some are lost with rollbacks.
    pub(crate) fn row_ids(&self, table: &Table, rows: u64) -> Result<u64, SqlError> {
        let mut row_ids = self.row_ids.lock();
        let next = match row_ids.get_mut(&table.storage) {
            Some(next) => next,
            None => {
                let view = View::Snapshot(self.store.snapshot());
                let mut last = view.scan(table.rows, Bound::Unbounded, Bound::Unbounded, Direction::Backward)?;
                let last = last.next()?.map_or(Ok(0), |(key, _)| key::read_row_id(&key))?;
                let moved = self.columns.last_row_id(&view, table)?;
                row_ids.entry(table.storage).or_insert(last.max(moved) + 1)
            }
        };
        let first = *next;
        *next += rows;
        Ok(first)
    }
}
