//! [`Engine`] and [`Session`]: statements in, rows and counts out. No sockets, no protocol.
//!
//! ```text
//!   text --parse--> Prepared --execute--> StatementResult::Rows       queries, SHOW
//!                                         StatementResult::Done       everything that only counts
//!                                         StatementResult::CopyIn     COPY .. FROM STDIN: the caller pushes batches
//!                                         StatementResult::CopyOut    COPY .. TO STDOUT: the caller formats batches
//! ```
//!
//! | folder | content |
//! |---|---|
//! | [`parse`] | text to statements: which are supported, how deep they may nest, PostgreSQL's syntax rewritten for DataFusion |
//! | [`semantics`] | PostgreSQL's meaning of an expression where DataFusion's differs |
//! | [`limits`] | cancelling, time, memory, temporary files |
//! | [`plan`] | statements to plans: the planner's context, names, column labels, prepared statements |
//! | [`run`] | plans to rows, on threads of a query |
//! | [`session`] | one connection: its transaction, settings, locks |
//! | [`statements`] | INSERT, UPDATE, COPY, CREATE, .. and the fast path for single rows |
//! | [`notifications`] | who listens to which channel, and what waits to be sent |
//! | [`sequences`] | where sequences stand, and how they give out values |
//! | [`tuple_mover`], [`table_check`] | the engine's own thread; reading every row of every table |
//!
//! A session is one connection: it runs one statement at a time. Its rows are streams: they must be read to the end or
//! dropped before the next statement.

pub(crate) mod limits;
pub(crate) mod notifications;
pub(crate) mod parse;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod semantics;
pub(crate) mod sequences;
pub(crate) mod session;
mod statement_result;
pub(crate) mod statements;
mod table_check;
mod tuple_mover;

use std::collections::HashMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use node::identity::{Caller, Guard};
use parking_lot::Mutex;
use store::{Direction, TreeId};

use store::Store;

use limits::memory_budget::Budget;
use limits::memory_pool::Pool;
use limits::spill_options::spill_files;
use notifications::Notifications;
use plan::catalog_cache::CatalogCache;
use run::query_threads::QueryThreadPool;
use sequences::Sequences;
use session::row_locks::RowLocks;
use session::table_locks::Locks;
use tuple_mover::{TupleMover, Worker};

pub use limits::cancellation::Canceller;
pub use limits::spill_options::SpillOptions;
pub use notifications::of_messages::{MessageSource, NewMessage};
pub use plan::prepared::Prepared;
pub(crate) use semantics::cast_types::NUMERIC;
pub use session::settings::Settings;
pub use session::{Session, SessionState};
pub use statement_result::{CopyFormat, CopyIn, CopyOut, StatementResult};
pub use table_check::{TableReport, read_tables};
pub use tuple_mover::{TupleMoverOptions, TupleMoverStats};

use crate::column::{ROW_GROUP_ROWS, RowGroupStore};
use crate::external::{AllowedFolders, FileCache, runtime};
use crate::identity::SessionIdentity;
use crate::table::catalog::CATALOG_TREE;
use crate::table::key;
use crate::table::row_counts::RowCounts;
use crate::table::{Catalog, ColumnStore, Table, View};
use crate::{SqlError, VirtualTable};

/// The part of the memory that is reserved for allocations that are not counted, if that is less than a half: small
/// blocks, pages that the allocator returns a little later, and allocations between two checks of the limit.
const UNCOUNTED_BYTES_MAX: usize = 256 << 20;

/// The memory of statements divided by this number is the bound for the rows of a row group. While these rows are
/// sorted, encoded and passed to the store, they take four times as much.
const ROW_GROUP_OF: usize = 32;

/// How an engine works, and which tables it shows besides its own.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Read-only tables of other services, by name: `schema.name`, or a name alone, which is in schema `public`. Tables
    /// with these names cannot be created. Default none.
    pub virtual_tables: Vec<(String, Arc<dyn VirtualTable>)>,
    /// Threads that one query may use. Default: one for each core.
    pub threads: usize,
    /// The value of `statement_timeout` in a session that does not set it: the longest time of a statement. Zero, the
    /// default, means no limit.
    pub statement: Duration,
    /// The value of `idle_in_transaction_session_timeout` in a session that does not set it: the longest time that a
    /// transaction waits for its client. Zero, the default, means no limit.
    pub idle_in_transaction: Duration,
    /// Memory that all statements together may take, in bytes. A quarter of it is for sorting, grouping and joining;
    /// these spill what does not fit, and copy it meanwhile. Default 1 GiB.
    pub query_bytes: usize,
    /// The folder for spilled rows. Default none: the system's folder of temporary files, at most 100 GB. Files of a store that is
    /// encrypted are encrypted too.
    pub spill: Option<SpillOptions>,
    /// Rows of a full row group: 1 to 122,880, which is the default and the best for scans.
    pub row_group_rows: usize,
    /// When the engine's own thread moves rows from the delta store to row groups. None: only when
    /// [`Engine::move_rows`] is called. Default: [`TupleMoverOptions::default`].
    pub tuple_mover: Option<TupleMoverOptions>,
    /// The folders that may contain external tables. Default none: there are no external tables.
    pub external: Vec<PathBuf>,
    /// The audit of the node: changes of roles and rights, and failed logins, are recorded there. Default none.
    pub audit: Option<Arc<node::Audit>>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        EngineOptions {
            virtual_tables: Vec::new(),
            threads,
            statement: Duration::ZERO,
            idle_in_transaction: Duration::ZERO,
            query_bytes: 1 << 30,
            spill: None,
            row_group_rows: ROW_GROUP_ROWS,
            tuple_mover: Some(TupleMoverOptions::default()),
            external: Vec::new(),
            audit: None,
        }
    }
}

/// The SQL engine over one store; shared by all sessions.
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) options: EngineOptions,
    /// The tables' part in the column store.
    pub(crate) columns: Arc<RowGroupStore>,
    pub(crate) runtime: Arc<RuntimeEnv>,
    pub(crate) files: Arc<FileCache>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) row_locks: Arc<RowLocks>,
    /// The threads of queries.
    pub(crate) teams: Arc<QueryThreadPool>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) definitions: Arc<CatalogCache>,
    /// The approximate number of rows in the delta store.
    pub(crate) counts: Arc<RowCounts>,
    /// Where sequences stand.
    pub(crate) sequences: Arc<Sequences>,
    /// Who listens to which channel.
    pub(crate) notifications: Arc<Notifications>,
    tuple_mover: Arc<TupleMover>,
    /// The thread of the tuple mover.
    worker: Option<Worker>,
    /// The tree of the catalog.
    pub(crate) catalog: TreeId,
    /// The next number of a table, of its storage or of an index.
    next: AtomicU64,
    sessions: AtomicU64,
    /// The next row id of tables without a primary key, by storage.
    row_ids: Mutex<HashMap<u64, u64>>,
}

impl Engine {
    /// An engine over a store. Its tables are those in the store; an empty store has none.
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
        if let Some(spill) = spill_files(options.spill.as_ref(), store.sealer().is_some())? {
            builder = builder.with_disk_manager_builder(spill);
        }
        let files = Arc::new(FileCache::new(&store, AllowedFolders::new(&options.external)?));
        let runtime = Arc::new(runtime(builder, &files)?);
        let known = Catalog::load(&View::Snapshot(store.snapshot()), catalog, &options.virtual_tables)?;
        let (sequences, counter) = Sequences::open(&store, &known)?;
        let numbers = known.tables().map(|table| table.id.max(table.storage));
        let indexes = known.tables().flat_map(|table| table.indexes.iter().map(|index| index.number));
        let numbers = numbers.chain(indexes).chain(known.sequences().map(|sequence| sequence.id.max(sequence.counter)));
        let last = numbers.chain([counter]).max().unwrap_or(0);
        let columns = RowGroupStore::with_row_groups_of(options.row_group_rows);
        let columns = Arc::new(columns.with_row_group_bytes(options.query_bytes / ROW_GROUP_OF));
        let tuple_mover = Arc::new(TupleMover::new(&store, &columns, catalog, &options.virtual_tables));
        let worker = options.tuple_mover.map(|options| Worker::start(&tuple_mover, options)).transpose()?;
        let counted = options.query_bytes - (options.query_bytes / 2).min(UNCOUNTED_BYTES_MAX);
        let (teams, budget) = (QueryThreadPool::new(options.threads), Budget::new(counted));
        Ok(Arc::new(Engine {
            store,
            teams,
            budget,
            options,
            columns,
            runtime,
            files,
            locks: tuple_mover.table_locks.clone(),
            row_locks: tuple_mover.row_locks.clone(),
            definitions: tuple_mover.definitions.clone(),
            counts: tuple_mover.counts.clone(),
            sequences: Arc::new(sequences),
            notifications: Arc::default(),
            tuple_mover,
            worker,
            catalog,
            next: AtomicU64::new(last + 1),
            sessions: AtomicU64::new(1),
            row_ids: Mutex::default(),
        }))
    }

    /// Opens a session of the node itself, under this name: for embedders and tests. It may do everything.
    pub fn session(self: &Arc<Self>, user: &str) -> Session {
        Session::new(self.clone(), user, None)
    }

    /// Opens a session for a caller that the guard has logged in: for ports. Its statements ask the guard.
    ///
    /// Errors: 28000 if the caller's role is gone.
    pub fn session_of(self: &Arc<Self>, guard: Arc<Guard>, caller: Caller) -> Result<Session, SqlError> {
        let view = guard.view();
        let gone = || SqlError::statement("28000", "the role of this login is not there any more");
        let user = view.name(caller.session()).ok_or_else(gone)?.to_owned();
        let is_administrator = view.is_administrator(caller.session());
        let mut session = Session::new(self.clone(), &user, Some(SessionIdentity::new(guard, caller)));
        session.settings_mut().set_superuser(is_administrator);
        Ok(session)
    }

    /// Moves rows from the delta store to row groups, now: full row groups of each table, as long as `keep` rows stay.
    /// Returns the number of moved rows.
    pub fn move_rows(&self, keep: usize) -> Result<usize, SqlError> {
        self.tuple_mover.run(keep)
    }

    /// Compacts row groups, now: row groups that have lost a quarter of their rows are rewritten. Returns the number of
    /// row groups that were replaced.
    pub fn compact(&self) -> Result<usize, SqlError> {
        self.tuple_mover.compact()
    }

    /// Compacts some row groups of a table that are due, now. Returns their number; 0 if there are none.
    pub(crate) async fn compact_table(&self, table: u64) -> Result<usize, SqlError> {
        self.tuple_mover.compact_table(table).await
    }

    /// Lets each VACUUM wait until the returned guard is dropped.
    #[cfg(test)]
    pub(crate) async fn without_vacuum(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.tuple_mover.without_vacuum().await
    }

    /// What the tuple mover has moved and compacted so far.
    pub fn tuple_mover_stats(&self) -> TupleMoverStats {
        self.tuple_mover.stats()
    }

    /// The sessions that wait for a row of another one's transaction, by their numbers.
    pub fn waiting_sessions(&self) -> Vec<u64> {
        self.row_locks.waiting()
    }

    /// The sessions for whose rows this one waits, by their numbers.
    pub fn blockers_of(&self, session: u64) -> Vec<u64> {
        self.row_locks.blockers(session)
    }

    /// The sessions that wait for a row of another one's transaction, by their numbers, each with those for which it waits.
    pub fn row_waits(&self) -> Vec<(u64, Vec<u64>)> {
        self.row_locks.waits()
    }

    /// New messages come from there: it is told when a session begins to listen to them.
    pub fn set_message_source(&self, source: Arc<dyn MessageSource>) {
        self.notifications.set_message_source(source);
    }

    /// Waits until a session listens to new messages.
    pub async fn until_messages_are_wanted(&self) {
        self.notifications.until_messages_are_wanted().await;
    }

    /// Whether a session listens to new messages.
    pub fn are_messages_wanted(&self) -> bool {
        self.notifications.are_messages_wanted()
    }

    /// Tells sessions that listen of messages that `hl7.messages` shows; `is_masked`: their type is masked for readers without
    /// `unmasked`. Each session is told what it may see.
    pub fn send_messages(&self, messages: &[NewMessage], is_masked: bool) {
        self.notifications.send_messages(messages, is_masked);
    }

    /// Tells sessions that listen to messages that more have come than could be told.
    pub fn send_gap(&self) {
        self.notifications.send_gap();
    }

    /// Ends the engine's own thread and waits for it. Sessions continue.
    pub fn close(&self) {
        if let Some(worker) = &self.worker {
            worker.stop();
        }
    }

    /// The store below the engine.
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
        Catalog::load(view, self.catalog, &self.options.virtual_tables)
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that no table and no storage has yet.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers a new, empty storage of a table: its first row id is 1.
    pub(crate) fn fresh(&self, storage: u64) {
        self.row_ids.lock().insert(storage, 1);
    }

    /// Reserves row ids for `rows` rows of a table and returns the first. Ids only grow; a rollback loses some.
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
