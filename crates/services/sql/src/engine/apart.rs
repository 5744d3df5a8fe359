//! [`run`]: a plan's rows, made on a team of threads and read elsewhere.
//!
//! At most two batches wait for who reads: one handed over and one in hand. Who stops reading, and a statement that is asked
//! to end, end the work: what waits is dropped, and what computes finds out between two batches (see [`checked`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, SessionState as Planning, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::budget::{Account, OUT_OF_MEMORY};
use super::cancel::Running;
use super::checked;
use super::team::Team;
use crate::{Report, SqlError};

/// Rows of a batch where memory is little.
const FEW_ROWS: usize = 128;

/// What a sort then makes one batch of: two or three of them. It merges fewer, for which it keeps a row each, and does not count the texts of
/// one as often as it cuts it into others (DataFusion 55.2).
const FEW_TOGETHER_BYTES: usize = 48 << 10;

/// What the work of one plan asks whether it shall go on.
#[derive(Debug)]
pub(crate) struct GoOn {
    running: Arc<Running>,
    account: Arc<Account>,
    /// Nobody reads its rows any more.
    left: AtomicBool,
}

impl GoOn {
    /// Errors: also 53200 where there is no room for what was made.
    pub(crate) fn check_room(&self) -> Result<(), SqlError> {
        self.check()?;
        self.account.check()
    }

    /// Errors: 53200 where there is no room for so many bytes more.
    pub(crate) fn afford(&self, bytes: usize) -> Result<(), SqlError> {
        self.account.afford(bytes as u128)
    }

    /// The account of its session.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Errors: what the statement was asked to end with.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        if self.left.load(Ordering::Acquire) {
            return Err(SqlError::Cancelled);
        }
        self.running.check()
    }
}

struct Apart {
    schema: SchemaRef,
    batches: mpsc::Receiver<DfResult<RecordBatch>>,
    task: JoinHandle<()>,
    go_on: Arc<GoOn>,
    ended: bool,
    _team: Team,
}

/// A plan, and what it runs with.
type Planned = (Arc<dyn ExecutionPlan>, Arc<TaskContext>);

/// A query to be run.
pub(crate) struct Query {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) context: Arc<TaskContext>,
    /// The same in another way, and what it runs with, to be made if there is no room for this one.
    pub(crate) again: BoxFuture<'static, DfResult<Planned>>,
}

/// The same query, to be planned for little memory: few rows at a time, one part after the other instead of side by side, so that what
/// sorts and groups has all of the room, joins of sorted rows, which spill, for those that keep one side in memory, and all rows sorted
/// where the first ones would be kept. All that is slower.
pub(crate) fn with_little_memory(
    mut state: Planning,
    plan: LogicalPlan,
    physical: &Arc<dyn ExecutionPlan>,
) -> BoxFuture<'static, DfResult<Planned>> {
    let has_hash_join = physical.exists(|plan| Ok(plan.downcast_ref::<HashJoinExec>().is_some()));
    let config = state.config_mut();
    *config = config.clone().with_batch_size(config.batch_size().min(FEW_ROWS));
    let options = config.options_mut();
    options.optimizer.prefer_hash_join = false;
    options.execution.sort_in_place_threshold_bytes = FEW_TOGETHER_BYTES;
    // With one part DataFusion does not ask what is preferred. The question does not fail.
    options.execution.target_partitions = if has_hash_join.unwrap_or(false) { 2 } else { 1 };
    async move {
        let context = state.task_ctx();
        Ok((state.create_physical_plan(&plan).await?.transform_up(sorted_whole)?.data, context))
    }
    .boxed()
}

/// Sorts all rows where the first ones would be kept in memory, from where they do not spill, and takes those of the sorted.
fn sorted_whole(plan: Arc<dyn ExecutionPlan>) -> DfResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let first = plan.downcast_ref::<SortExec>().and_then(|sort| Some((sort, sort.fetch()?)));
    let Some((sort, fetch)) = first else { return Ok(Transformed::no(plan)) };
    Ok(Transformed::yes(Arc::new(LocalLimitExec::new(Arc::new(sort.with_fetch(None)), fetch))))
}

/// Runs a plan for a statement on a team.
pub(crate) fn run(
    query: Query,
    team: Team,
    running: &Arc<Running>,
    account: &Arc<Account>,
) -> Result<SendableRecordBatchStream, SqlError> {
    let go_on = Arc::new(GoOn { running: running.clone(), account: account.clone(), left: AtomicBool::new(false) });
    let schema = query.plan.schema();
    let (sender, batches) = mpsc::channel(1);
    let asked = go_on.clone();
    let task = team.handle().spawn(async move {
        // Nobody listens where the statement was given up.
        if let Err(error) = work(query, &asked, &sender).await {
            let _ = sender.send(Err(error)).await;
        }
    });
    Ok(Box::pin(Apart { schema, batches, task, go_on, ended: false, _team: team }))
}

/// On the team: sends batches until there are no more, or nobody takes them.
async fn work(query: Query, go_on: &Arc<GoOn>, sender: &mpsc::Sender<DfResult<RecordBatch>>) -> DfResult<()> {
    let Query { plan, context, again } = query;
    let mut stream = execute_stream(checked::checked(plan, go_on)?, context)?;
    let mut next = stream.next().await;
    if matches!(&next, Some(Err(error)) if is_out_of_memory(error)) {
        drop((stream, next));
        go_on.account.returned().await;
        let (plan, context) = again.await?;
        stream = execute_stream(checked::checked(plan, go_on)?, context)?;
        next = stream.next().await;
    }
    while let Some(batch) = next {
        // An operator that has failed is not to be asked again: it may be half way.
        if sender.send(Ok(batch?)).await.is_err() {
            return Ok(());
        }
        next = stream.next().await;
    }
    Ok(())
}

/// Whether an operator could not reserve what it needs, or the session took more than it may.
fn is_out_of_memory(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => true,
        DataFusionError::External(inner) => {
            inner.downcast_ref::<SqlError>().is_some_and(|error| error.code() == OUT_OF_MEMORY)
        }
        _ => false,
    }
}

impl Stream for Apart {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.batches.poll_recv(context) {
            Poll::Ready(Some(batch)) => return Poll::Ready(Some(batch)),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => {}
        }
        // All rows came, or the task panicked: then what came is not all.
        let Poll::Ready(outcome) = Pin::new(&mut self.task).poll(context) else { return Poll::Pending };
        self.ended = true;
        Poll::Ready(outcome.err().map(|error| {
            tracing::error!(%error, "a query ended by a panic");
            let report = Report::new("XX000", "the query ended by a fault of this engine: see the node's log");
            Err(SqlError::Engine(Box::new(report)).into())
        }))
    }
}

impl RecordBatchStream for Apart {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.go_on.left.store(true, Ordering::Release);
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt;
    use store::{Options, Store};

    use crate::{Answer, Engine, EngineOptions, Session, SqlError};

    /// Queries that are far from their end when they are left, by what loops in them.
    const ENDLESS: [(&str, &str); 6] = [
        ("a condition that nothing fulfils", "select count(*) from n a, n b where a.x * b.x < 0"),
        ("all pairs", "select count(*) from n a cross join n b"),
        ("pairs of one key", "select count(*) from n a join n b on a.x % 1 = b.x % 1"),
        (
            "pairs of one key and a condition",
            "select count(*) from n a join n b on a.x % 1 = b.x % 1 and a.x * b.x < 0",
        ),
        ("numbers", "select count(*) from generate_series(1, 1000000000000)"),
        ("recursion", "with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r"),
    ];

    async fn answered(session: &mut Session, sql: &str) -> Result<Answer, SqlError> {
        let prepared = session.prepare(sql, &[]).await?;
        session.execute(&prepared[0], &[]).await
    }

    #[tokio::test]
    async fn work_that_is_cancelled_or_left_ends() {
        let store = Store::in_memory(Options::default()).expect("memory is enough");
        let engine = Engine::new(store, EngineOptions { threads: 2, ..EngineOptions::default() }).expect("it starts");
        let mut session = engine.session("a");
        answered(&mut session, "create view n as select x from generate_series(1, 200000) s(x)")
            .await
            .expect("it is new");
        for (what, sql) in ENDLESS {
            for cancels in [true, false] {
                let Ok(Answer::Rows { mut stream, .. }) = answered(&mut session, sql).await else { panic!("{what}") };
                let running = std::sync::Arc::downgrade(&session.canceller.current());
                let first = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
                assert!(first.is_err(), "{what}: it came to an end");
                if cancels {
                    session.canceller().cancel();
                    let error = stream.next().await.expect("it is told").expect_err("it is cancelled");
                    assert_eq!(SqlError::from(error).code(), "57014");
                }
                drop(stream);
                drop(answered(&mut session, "select 1").await.expect("the session goes on"));
                let ended = async {
                    while running.upgrade().is_some() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                // A hang; in a second on a machine that does nothing else.
                assert!(tokio::time::timeout(Duration::from_secs(60), ended).await.is_ok(), "{what}: it goes on");
            }
        }
    }
}
