//! [`Session`]: one connection, its transaction and what runs in it.
//!
//! ```text
//!   Idle --BEGIN--> InTransaction --error--> Failed --ROLLBACK, or COMMIT, which then rolls back--> Idle
//!                         ^                     |
//!                         +---ROLLBACK TO-------+
//! ```
//!
//! Isolation is snapshot isolation: what a transaction sees is fixed when it begins, and the first to commit a change of
//! a row wins. REPEATABLE READ means that; READ COMMITTED and READ UNCOMMITTED are accepted, because drivers ask for
//! them, and give the same, stronger isolation; `SHOW transaction_isolation` says `repeatable read`. SERIALIZABLE is
//! refused: write skew is possible.
//!
//! A statement outside of BEGIN that changes rows is a transaction of its own. If another one was faster, it is run
//! again, unseen, up to a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datafusion::execution::{SendableRecordBatchStream, SessionState as Planning};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement;
use parking_lot::Mutex;

use super::block::Block;
use super::budget::Account;
use super::control::Ends;
use super::names::Shared;
use super::settings::Settings;
use super::watch::Watched;
use super::{Answer, Canceller, Engine, Prepared, apart, context, titles};
use crate::SqlError;
use crate::table::View;

/// How often a statement of its own transaction is run again after a conflict, and the longest pause before.
const AGAIN_MOST: u32 = 50;
const AGAIN_PAUSE_MOST: Duration = Duration::from_millis(50);

/// Where a session stands, as ReadyForQuery reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// No transaction: `I`.
    Idle,
    /// Inside a transaction: `T`.
    InTransaction,
    /// Inside a transaction in which a statement failed; only ROLLBACK is heard: `E`.
    Failed,
}

/// One connection: its transaction, its settings. Dropping it rolls back.
pub struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) user: String,
    pub(crate) number: u64,
    pub(crate) context: SessionContext,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Settings,
    /// While a transaction is open that BEGIN began.
    pub(crate) ends: Option<Ends>,
    pub(crate) block: Option<Block>,
    /// Where a COPY gives the transaction back that it was lent.
    pub(crate) lent: Arc<Mutex<Option<Block>>>,
    failed: Arc<AtomicBool>,
    pub(crate) canceller: Canceller,
    /// The memory that it takes.
    pub(crate) account: Arc<Account>,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, user: &str) -> Session {
        let view = View::Snapshot(engine.store.snapshot());
        let shared = Arc::new(Shared::new(view, &engine));
        let canceller = Canceller::default();
        let account = engine.budget.account();
        Session {
            context: context::make(&engine, &shared, &canceller, &account),
            number: engine.next_session(),
            user: user.into(),
            shared,
            settings: Settings::new(user, engine.options.statement, engine.options.idle_in_transaction),
            ends: None,
            block: None,
            lent: Arc::default(),
            failed: Arc::default(),
            canceller,
            account,
            engine,
        }
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The settings, as SET changes them and SHOW shows them.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The same, for what a client sends when it connects.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// DataFusion's context of this session: register functions and schemas such as `pg_catalog` here. Run statements
    /// through [`execute`](Session::execute) only.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Where the session stands.
    pub fn state(&self) -> SessionState {
        let lent = self.lent.lock();
        match self.block.as_ref().or(lent.as_ref()) {
            Some(block) if !block.implicit && self.has_failed() => SessionState::Failed,
            Some(block) if !block.implicit => SessionState::InTransaction,
            _ => SessionState::Idle,
        }
    }

    /// The thread that calls is this session's own from now on: what it takes of memory is counted.
    pub fn count_here(&self) {
        self.account.count_here();
    }

    /// What it takes of memory.
    pub(crate) fn account(&self) -> Arc<Account> {
        self.account.clone()
    }

    /// Errors: 53200 where there is no room for so many bytes more.
    pub(crate) fn afford(&self, bytes: usize) -> Result<(), SqlError> {
        self.account.afford(bytes as u128)
    }

    /// Ends this session's statements from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Begins a transaction for several statements that a client sent as one text, if none is open: they all happen or
    /// none. BEGIN among them makes it an ordinary one.
    pub fn begin_implicit(&mut self) {
        self.take_back();
        if self.block.is_none() {
            self.failed.store(false, Ordering::Release);
            self.block = Some(self.new_block(true));
            self.keep_settings();
        }
    }

    /// A new transaction of this session.
    pub(crate) fn new_block(&self, implicit: bool) -> Block {
        let read_only = self.settings.is_on("default_transaction_read_only");
        Block::new(self, implicit, read_only)
    }

    /// Ends what [`begin_implicit`](Session::begin_implicit) began, if it is still open: commits, or rolls back if a
    /// statement failed.
    pub async fn end_implicit(&mut self) -> Result<(), SqlError> {
        self.take_back();
        if self.block.as_ref().is_none_or(|block| !block.implicit) {
            return Ok(());
        }
        let outcome = match (self.block.take(), self.failed.load(Ordering::Acquire)) {
            (Some(block), false) => block.commit().await.map(|()| true),
            _ => Ok(false),
        };
        self.end_settings(matches!(outcome, Ok(true)));
        outcome.map(drop)
    }

    /// Runs a statement. `parameters` are the values of `$1`, `$2`, ...
    pub async fn execute(&mut self, prepared: &Prepared, parameters: &[ScalarValue]) -> Result<Answer, SqlError> {
        let Some(statement) = &prepared.statement else {
            return Ok(Answer::Done { tag: String::new() });
        };
        self.take_back();
        if self.block.is_none() {
            self.failed.store(false, Ordering::Release);
        } else if self.failed.load(Ordering::Acquire) && !ends_failure(statement) {
            return Err(SqlError::transaction(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        let begins = self.block.is_none();
        self.account.begin(!begins);
        let running = self.canceller.begin(self.settings.statement_timeout());
        let outcome = tokio::select! {
            biased;
            outcome = self.dispatch(statement, prepared, parameters) => outcome,
            why = running.asked() => Err(why),
        };
        let failed = self.failed.clone();
        let watch = |stream| -> SendableRecordBatchStream { Box::pin(Watched::new(stream, &running, failed.clone())) };
        match outcome {
            Ok(Answer::Rows { schema, stream, tag }) => Ok(Answer::Rows { schema, stream: watch(stream), tag }),
            Ok(Answer::CopyOut(mut copy)) => {
                copy.stream = watch(copy.stream);
                Ok(Answer::CopyOut(copy))
            }
            // It goes on: its rows are still to come.
            Ok(Answer::CopyIn(copy)) => Ok(Answer::CopyIn(copy)),
            Ok(answer) => {
                running.end();
                Ok(answer)
            }
            Err(error) => {
                running.end();
                // Cancelled in its midst, a statement leaves the transaction that is its own.
                if begins && self.block.as_ref().is_some_and(|block| block.implicit) {
                    self.block = None;
                }
                self.failed.store(true, Ordering::Release);
                Err(error)
            }
        }
    }

    async fn dispatch(
        &mut self,
        statement: &Statement,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Answer, SqlError> {
        if let Some(answer) = self.control(statement).await? {
            return Ok(answer);
        }
        match statement {
            Statement::Query(_) => {
                self.refresh()?;
                self.query(statement, prepared, parameters).await
            }
            Statement::Explain { .. } => {
                self.refresh()?;
                self.explain(statement, parameters).await
            }
            Statement::Copy { .. } => self.copy(statement).await,
            _ if self.block.is_some() => {
                self.refresh()?;
                self.change(statement, parameters).await
            }
            _ => self.alone(statement, parameters).await,
        }
    }

    /// A statement that changes something, as a transaction of its own.
    async fn alone(&mut self, statement: &Statement, parameters: &[ScalarValue]) -> Result<Answer, SqlError> {
        let mut tries = 0;
        loop {
            self.block = Some(self.new_block(true));
            let outcome = match self.refresh() {
                Ok(()) => self.change(statement, parameters).await,
                Err(error) => Err(error),
            };
            let Some(block) = self.block.take() else { return outcome };
            let outcome = match outcome.and_then(|answer| self.canceller.close().map(|()| answer)) {
                Ok(answer) => block.commit().await.map(|()| answer),
                Err(error) => Err(error),
            };
            match outcome {
                Err(SqlError::Again(_)) if tries < AGAIN_MOST => {
                    tries += 1;
                    self.canceller.reopen();
                    let pause = Duration::from_micros(100 << tries.min(10)).min(AGAIN_PAUSE_MOST);
                    tokio::time::sleep(pause).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Plans read what is there now, from here on.
    pub(crate) fn refresh(&mut self) -> Result<(), SqlError> {
        let (view, defines) = match &self.block {
            Some(block) => (block.view(), block.defines),
            None => (View::Snapshot(self.engine.store.snapshot()), false),
        };
        let catalog = match defines {
            true => Arc::new(self.engine.load(&view)?),
            false => {
                let lsn = view.snapshot()?.lsn().0;
                self.engine.definitions.at(lsn, &view, |view| self.engine.load(view))?
            }
        };
        self.shared.set(view, catalog);
        Ok(())
    }

    /// The open transaction of a statement that changes something. Errors: 25006 in one that only reads.
    pub(crate) fn changing(&mut self, what: &str) -> Result<&mut Block, SqlError> {
        match &mut self.block {
            Some(block) if block.read_only => {
                Err(SqlError::transaction("25006", format!("cannot execute {what} in a read-only transaction")))
            }
            Some(block) => Ok(block),
            None => Err(SqlError::transaction("25P01", "there is no transaction in progress")),
        }
    }

    async fn query(
        &mut self,
        statement: &Statement,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Answer, SqlError> {
        if let Some(answer) = self.quick_query(statement, parameters)? {
            return Ok(answer);
        }
        let plan = match prepared.plan(&self.shared.catalog()) {
            Some(plan) => plan,
            None => self.plan_with(statement, &prepared.parameters).await?.0,
        };
        let stream = self.run(plan, parameters).await?;
        let schema = titles::titled(statement, &stream.schema());
        let stream = titles::entitle(stream, schema.clone());
        Ok(Answer::Rows { schema, stream, tag: "SELECT" })
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
        let query = apart::Query { again: apart::with_little_memory(state, plan, &physical), plan: physical, context };
        self.account.ended().await;
        let team = self.engine.teams.take(&self.account)?;
        apart::run(query, team, &self.canceller.current(), &self.account)
    }

    /// DataFusion's state for a statement that begins now. `now()` is when the transaction began.
    pub(crate) fn planning(&self) -> Planning {
        let mut state = self.context.state();
        if let Some(block) = &self.block {
            state.execution_props_mut().query_execution_start_time = Some(block.began);
        }
        state
    }

    async fn change(&mut self, statement: &Statement, parameters: &[ScalarValue]) -> Result<Answer, SqlError> {
        match statement {
            Statement::Insert(insert) => self.insert(insert, parameters).await,
            Statement::Update(update) => self.update(update, parameters).await,
            Statement::Delete(delete) => self.delete(delete, parameters).await,
            _ => self.define(statement).await,
        }
    }
}

/// What is heard inside a transaction that failed.
fn ends_failure(statement: &Statement) -> bool {
    matches!(statement, Statement::Rollback { .. } | Statement::Commit { .. })
}

impl Session {
    /// The block has failed, or not any more.
    pub(crate) fn set_failed(&mut self, failed: bool) {
        self.failed.store(failed, Ordering::Release);
    }

    /// The transaction that a COPY was lent and has given back.
    pub(crate) fn take_back(&mut self) {
        if let Some(block) = self.lent.lock().take() {
            self.block = Some(block);
        }
    }

    /// What says that the block failed, for those who run after the statement has been answered.
    pub(crate) fn failed_flag(&self) -> Arc<AtomicBool> {
        self.failed.clone()
    }

    /// Whether a statement of the block failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}
