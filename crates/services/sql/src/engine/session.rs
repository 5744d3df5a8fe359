//! [`Session`]: one connection, its transaction and what runs in it.
//!
//! A session has an engine, a planner's context, the view that its statements read ([`StatementView`]), its settings
//! ([`SessionSettings`]) and its transaction ([`TransactionState`]). The statements themselves are in `statements`:
//! functions that take the session.
//!
//! READ COMMITTED, the default, gives each statement a snapshot of its own; READ UNCOMMITTED is the same. REPEATABLE READ is
//! snapshot isolation: the snapshot of a transaction is fixed when it begins, and the first to commit a change of a row
//! wins. SERIALIZABLE is refused: write skew is possible.
//!
//! A statement that changes rows locks them ([`row_locks`]). Where another transaction has one, it waits until that one has
//! ended, and runs again (`statements::repeats`). A statement outside of BEGIN that changes rows is a transaction of its own.

pub(crate) mod advisory_locks;
pub(crate) mod cursors;
mod ignored_settings;
pub(crate) mod isolation;
pub(crate) mod key_locks;
pub(crate) mod lock_queues;
pub(crate) mod named_statements;
pub(crate) mod pending_keys;
pub(crate) mod row_locks;
pub(crate) mod session_role;
pub(crate) mod session_settings;
pub(crate) mod settings;
pub(crate) mod table_locks;
pub(crate) mod transaction;
pub(crate) mod transaction_state;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, SessionState as Planning};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use futures::StreamExt;
use node::identity::{Caller, ObjectChange};

use super::limits::memory_budget::Account;
use super::notifications::Listener;
use super::plan::access::{self, Access};
use super::plan::compiled_checks::CheckCache;
use super::plan::meanwhile::Meanwhile;
use super::plan::planner_context;
use super::plan::session_catalog::StatementView;
use super::run::query_task;
use super::{Canceller, Engine};
use crate::SqlError;
use crate::identity::SessionIdentity;
use crate::table::providers::Reads;
use crate::table::{Catalog, View};
use advisory_locks::AdvisoryLocks;
use isolation::Isolation;
use named_statements::NamedStatements;
use row_locks::LockOwner;
use session_settings::SessionSettings;
use settings::Settings;
use transaction::SessionTransaction;
use transaction_state::TransactionState;

/// How often a statement outside of a transaction takes a newer snapshot because definitions changed while it began.
const REFRESHES_MOST: u32 = 10;

/// The state of a session, as ReadyForQuery reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// No transaction: `I`.
    Idle,
    /// Inside a transaction: `T`.
    InTransaction,
    /// Inside a transaction in which a statement failed; only ROLLBACK is accepted: `E`.
    Failed,
}

/// One connection: its transaction and its settings. Dropping it rolls back.
pub struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) user: String,
    /// Who its statements ask for; `None`: the node itself.
    identity: Option<SessionIdentity>,
    number: u64,
    pub(crate) context: SessionContext,
    pub(crate) shared: Arc<StatementView>,
    pub(crate) settings: SessionSettings,
    pub(crate) transaction: TransactionState,
    pub(crate) canceller: Canceller,
    /// The memory that the session takes.
    pub(crate) account: Arc<Account>,
    /// Others hold this while they read rows of the session's statements.
    pub(crate) readers: Arc<()>,
    pub(crate) advisory: AdvisoryLocks,
    /// Its prepared statements.
    pub(crate) named: Arc<NamedStatements>,
    /// Its place among those that listen.
    pub(crate) listener: Listener,
    checks: Arc<CheckCache>,
    /// Whether it has a thread of its own.
    has_thread: AtomicBool,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, user: &str, identity: Option<SessionIdentity>) -> Session {
        let shared = Arc::new(StatementView::new(&engine));
        shared.set_identity(identity.clone());
        let canceller = Canceller::default();
        let account = engine.budget.account();
        let context = planner_context::make(&engine, &shared, &canceller, &account);
        let number = engine.next_session();
        let listener = Listener::new(engine.notifications.clone(), identity.clone());
        Session {
            context,
            number,
            advisory: AdvisoryLocks::new(engine.row_locks.owner(number)),
            user: user.into(),
            identity,
            shared,
            settings: SessionSettings::new(Settings::new(
                user,
                engine.options.statement,
                engine.options.idle_in_transaction,
            )),
            transaction: TransactionState::default(),
            canceller,
            account,
            readers: Arc::default(),
            named: Arc::default(),
            listener,
            checks: Arc::default(),
            has_thread: AtomicBool::new(false),
            engine,
        }
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Its number: no other session of the engine has it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Who its statements ask for. `None` in a session of the node itself, which may do everything.
    pub fn identity(&self) -> Option<&SessionIdentity> {
        self.identity.as_ref()
    }

    /// SET ROLE and RESET ROLE: the statements from now on ask for this caller, which the guard made
    /// (`RightsView::set_role`). A session of the node itself stays the node's.
    pub fn set_caller(&mut self, caller: Caller) {
        if let Some(identity) = &mut self.identity {
            *identity = identity.with_caller(caller);
            let is_administrator = identity.guard().view().is_administrator(identity.caller().current());
            self.shared.set_identity(Some(identity.clone()));
            self.listener.mailbox.set_reader(Some(identity.clone()));
            self.settings.now_mut().set_superuser(is_administrator);
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The settings that SET changes and SHOW returns.
    pub fn settings(&self) -> &Settings {
        self.settings.now()
    }

    /// The same, for settings that a client sends when it connects.
    pub fn settings_mut(&mut self) -> &mut Settings {
        self.settings.now_mut()
    }

    /// DataFusion's context of this session: register functions and schemas such as `pg_catalog` here. Run statements
    /// through [`execute`](Session::execute) only.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The state of the session.
    pub fn state(&self) -> SessionState {
        self.transaction.state()
    }

    /// Makes the calling thread this session's own: its memory is counted from now on, and it waits for commits.
    pub fn count_here(&self) {
        self.has_thread.store(true, Ordering::Relaxed);
        self.account.count_here();
    }

    /// The account of the session's memory.
    pub(crate) fn account(&self) -> Arc<Account> {
        self.account.clone()
    }

    /// Errors: 53200 if there is no room for this number of further bytes.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), SqlError> {
        self.account.check_room(bytes as u128)
    }

    /// A handle that ends this session's statements from another thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Begins a transaction for several statements that a client sent as one text, if none is open: either all of them
    /// take effect or none. A BEGIN among them makes it an ordinary transaction.
    pub fn begin_implicit(&mut self) {
        self.transaction.take_back();
        if !self.transaction.is_open() {
            self.transaction.clear_failed();
            self.transaction.begin(self.new_transaction(true));
            self.settings.begin();
        }
    }

    /// A new transaction of this session.
    pub(crate) fn new_transaction(&self, implicit: bool) -> SessionTransaction {
        self.new_transaction_with(implicit, self.engine.row_locks.owner(self.number))
    }

    /// The same, with locks of rows that were taken for it.
    pub(crate) fn new_transaction_with(&self, implicit: bool, locks: Arc<LockOwner>) -> SessionTransaction {
        let settings = self.settings.now();
        let (read_only, isolation) = (settings.is_on("default_transaction_read_only"), settings.default_isolation());
        let mut transaction = SessionTransaction::new(
            self.engine.clone(),
            self.number,
            self.canceller.clone(),
            (locks, self.checks.clone()),
        );
        transaction.sender = self.listener.sender();
        (transaction.implicit, transaction.read_only, transaction.isolation) = (implicit, read_only, isolation);
        transaction.on_own_thread = self.has_thread.load(Ordering::Relaxed).then(|| self.account.clone());
        transaction
    }

    /// Ends a transaction that [`begin_implicit`](Session::begin_implicit) began, if it is still open: commits, or
    /// rolls back if a statement failed.
    pub async fn end_implicit(&mut self) -> Result<(), SqlError> {
        self.transaction.take_back();
        if !self.transaction.is_implicit() {
            return Ok(());
        }
        let outcome = match (self.transaction.take(), self.transaction.has_failed()) {
            (Some(transaction), false) => transaction.commit().await.map(|()| true),
            _ => Ok(false),
        };
        self.settings.end(matches!(outcome, Ok(true)));
        let followed = session_role::follow_role(self);
        outcome.and(followed)
    }

    /// The session waits for its client, which has read its rows: outside a transaction the session releases its
    /// snapshot.
    pub fn rest(&mut self) {
        if !self.transaction.is_open() {
            self.shared.let_go();
        }
    }

    /// Lets plans read the present state from now on.
    pub(crate) fn refresh(&mut self) -> Result<(), SqlError> {
        let mut tries = 0;
        let is_read = self.is_read();
        let renews = self.transaction.open().is_none_or(|open| open.isolation == Isolation::ReadCommitted);
        loop {
            let (view, defines) = match self.transaction.open_mut() {
                Some(transaction) => {
                    transaction.renew(is_read)?;
                    (transaction.view(), transaction.defines)
                }
                None => (View::Snapshot(self.engine.store.snapshot()), false),
            };
            let lsn = view.snapshot()?.lsn().0;
            let catalog = match defines {
                true => Arc::new(self.engine.load(&view)?),
                false => self.engine.definitions.at(lsn, &view, |view| self.engine.load(view))?,
            };
            // Rights come after the snapshot, and the names of now after the rights: what was made after the rights were taken
            // has none among them.
            self.renew_access();
            let is_changed = self.identity.is_some() && !self.engine.definitions.is_of_now(lsn);
            if is_changed && renews && tries < REFRESHES_MOST {
                tries += 1;
                continue;
            }
            let meanwhile = match is_changed {
                true => Some(Meanwhile { before: self.before(&view, defines, &catalog)?, now: self.engine.tables()? }),
                false => None,
            };
            let on = |open: &SessionTransaction| open.read_only;
            let by_setting = || self.settings.now().is_on("default_transaction_read_only");
            self.shared.set_read_only(self.transaction.open().map_or_else(by_setting, on));
            self.shared.set(view, catalog, meanwhile);
            return Ok(());
        }
    }

    /// The names of a view's snapshot, without own changes.
    fn before(&self, view: &View, defines: bool, catalog: &Arc<Catalog>) -> Result<Arc<Catalog>, SqlError> {
        match defines {
            true => Ok(Arc::new(self.engine.load(&View::Snapshot(view.snapshot()?))?)),
            false => Ok(Arc::clone(catalog)),
        }
    }

    /// The statement that begins has the rights of now.
    pub(crate) fn renew_access(&self) {
        let own = self.transaction.open().map(|transaction| transaction.own.clone()).unwrap_or_default();
        self.shared.renew_access(own);
    }

    /// What the running statement may do; `None`: everything.
    pub(crate) fn access(&self) -> Option<Access> {
        self.shared.access()
    }

    /// Writes what happened to objects in the transaction in which it happens.
    pub(crate) fn objects_changed(&mut self, what: &str, changes: Vec<ObjectChange>) -> Result<(), SqlError> {
        let Some(access) = self.access().filter(|_| !changes.is_empty()) else { return Ok(()) };
        let guard = Arc::clone(access.identity().guard());
        let transaction = self.changing(what)?;
        transaction
            .with(|transaction| guard.stored().objects_changed(transaction, &changes).map_err(access::failed))?;
        changes.iter().for_each(|change| access.note(change));
        transaction.refreshes = Some(guard);
        Ok(())
    }

    /// The open transaction, for a statement that changes something. Errors: 25006 in a transaction that only reads; 55006 while a
    /// cursor reads its changes.
    pub(crate) fn changing(&mut self, what: &str) -> Result<&mut SessionTransaction, SqlError> {
        self.transaction.changing(what)
    }

    /// The same for one that has a table alone, and may drop what rows are read from.
    ///
    /// Errors: also 55006 while rows are read in a view with the transaction's changes; [`SqlError::Again`].
    pub(crate) fn changing_alone(&mut self, what: &str, table: u64) -> Result<&mut SessionTransaction, SqlError> {
        let is_read = self.is_read();
        let transaction = self.transaction.changing(what)?;
        if is_read {
            let message = format!("cannot execute {what} while rows of an earlier query of this transaction are read");
            return Err(SqlError::transaction("55006", message));
        }
        transaction.lock(table, true)?;
        Ok(transaction)
    }

    /// Runs a query's plan.
    pub(crate) async fn run(
        &self,
        plan: LogicalPlan,
        parameters: &[ScalarValue],
    ) -> Result<SendableRecordBatchStream, SqlError> {
        let plan = if parameters.is_empty() { plan } else { plan.with_param_values(parameters.to_vec())? };
        let state = self.planning();
        let context = state.task_ctx();
        let physical = state.create_physical_plan(&plan).await?;
        let query = query_task::Query { again: query_task::with_little_memory(state, plan), plan: physical, context };
        self.account.ended().await;
        let team = self.engine.teams.take(&self.account)?;
        let rows = query_task::run(query, team, &self.canceller.current(), &self.account)?;
        Ok(match self.access() {
            // Rows that a statement writes are no more its own than those that it sends.
            Some(access) => {
                let allowed = move |batch| access.recheck().map(|()| batch).map_err(DataFusionError::from);
                let (schema, rows) = (rows.schema(), rows.map(move |batch| batch.and_then(&allowed)));
                Box::pin(RecordBatchStreamAdapter::new(schema, rows))
            }
            None => rows,
        })
    }

    /// Rows that may be read while other statements run: until the last one, the view that they are read in stays.
    pub(crate) fn held(&self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let Some(reader) = self.reader() else { return rows };
        let schema = rows.schema();
        let rows = rows.inspect(move |_| _ = &reader);
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }

    /// Whether rows of an earlier statement are read in a view with the transaction's changes.
    pub(crate) fn is_read(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    /// Rows whose threads are kept while other statements run, until the last one. Errors: 53300 if there are too many such queries.
    pub(crate) fn kept(&self, rows: SendableRecordBatchStream) -> Result<SendableRecordBatchStream, SqlError> {
        let (schema, kept) = (rows.schema(), self.engine.teams.keep(&self.user)?);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.inspect(move |_| _ = &kept))))
    }

    /// For who reads rows of the running statement. A view with a transaction's own changes moves with the transaction; a snapshot
    /// stays as it is, and needs nothing.
    pub(crate) fn reader(&self) -> Option<Arc<()>> {
        matches!(self.shared.view(), View::Transaction(_)).then(|| self.readers.clone())
    }

    /// DataFusion's state for a statement that begins now. `now()` returns the time when the transaction began.
    pub(crate) fn planning(&self) -> Planning {
        let mut state = self.context.state();
        if let Some(transaction) = self.transaction.open() {
            state.execution_props_mut().query_execution_start_time = Some(transaction.began);
        }
        state
    }
}
