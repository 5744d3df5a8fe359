//! [`run`]: produces a plan's rows on a team of threads, for a reader elsewhere.
//!
//! At most two batches wait for the reader: one in the channel and one in the sender's hand. If the reader stops
//! reading, or the statement is asked to end, the work ends: waiting batches are dropped, and computing threads check
//! between two batches (see [`checked_plan`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, SessionState as Planning, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::checked_plan;
use super::query_limits::QueryLimits;
use super::query_threads::QueryThreads;
use super::sorted_joins::SortedJoins;
use crate::engine::limits::cancellation::Running;
use crate::engine::limits::memory_budget::{Account, OUT_OF_MEMORY};
use crate::table::barrier::BarrierScan;
use crate::{ErrorFields, SqlError};

/// Rows of a batch in plans for little memory.
const FEW_ROWS: usize = 128;

/// The size of a batch that a sort makes in such plans: two or three of the input's. It then merges fewer of them, and
/// keeps one row of each. It also counts the texts of a batch less often when it cuts the batch into others (DataFusion
/// 55.2).
const FEW_TOGETHER_BYTES: usize = 48 << 10;

struct QueryRows {
    schema: SchemaRef,
    batches: mpsc::Receiver<DfResult<RecordBatch>>,
    task: JoinHandle<()>,
    limits: Arc<QueryLimits>,
    ended: bool,
    _team: QueryThreads,
}

/// A plan, and its context.
type Planned = (Arc<dyn ExecutionPlan>, Arc<TaskContext>);

/// A query to run.
pub(crate) struct Query {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) context: Arc<TaskContext>,
    /// Plans the query in another way, with its own context, if there is no room for this plan.
    pub(crate) again: BoxFuture<'static, DfResult<Planned>>,
}

/// Plans the same query for little memory: batches of few rows; one partition after the other instead of side by side,
/// so sorts and groups have all of the memory; joins of sorted rows, which spill, instead of joins that keep one side
/// in memory; and sorts of all rows where only the first ones would be kept. All of this is slower.
pub(crate) fn with_little_memory(mut state: Planning, plan: LogicalPlan) -> BoxFuture<'static, DfResult<Planned>> {
    let config = state.config_mut();
    *config = config.clone().with_batch_size(config.batch_size().min(FEW_ROWS));
    let options = config.options_mut();
    options.execution.sort_in_place_threshold_bytes = FEW_TOGETHER_BYTES;
    options.execution.target_partitions = 1;
    let state = SortedJoins::in_state(state);
    async move {
        let context = state.task_ctx();
        Ok((state.create_physical_plan(&plan).await?.transform_up(sorted_whole)?.data, context))
    }
    .boxed()
}

/// Replaces a sort that keeps only the first rows in memory, and does not spill, by a sort of all rows with a limit.
fn sorted_whole(plan: Arc<dyn ExecutionPlan>) -> DfResult<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(barrier) = plan.downcast_ref::<BarrierScan>() {
        let inner = barrier.inner().clone().transform_up(sorted_whole)?;
        return Ok(Transformed::yes(barrier.with_inner(inner.data)));
    }
    let first = plan.downcast_ref::<SortExec>().and_then(|sort| Some((sort, sort.fetch()?)));
    let Some((sort, fetch)) = first else { return Ok(Transformed::no(plan)) };
    Ok(Transformed::yes(Arc::new(LocalLimitExec::new(Arc::new(sort.with_fetch(None)), fetch))))
}

/// Runs a plan for a statement on a team.
pub(crate) fn run(
    query: Query,
    team: QueryThreads,
    running: &Arc<Running>,
    account: &Arc<Account>,
) -> Result<SendableRecordBatchStream, SqlError> {
    let limits = Arc::new(QueryLimits::new(running, account));
    let schema = query.plan.schema();
    let (sender, batches) = mpsc::channel(1);
    let asked = limits.clone();
    let task = team.handle().spawn(async move {
        // This fails only if the statement was given up.
        if let Err(error) = work(query, &asked, &sender).await {
            let _ = sender.send(Err(error)).await;
        }
    });
    Ok(Box::pin(QueryRows { schema, batches, task, limits, ended: false, _team: team }))
}

/// Runs on the team: sends batches until there are no more, or the reader has gone.
async fn work(query: Query, limits: &Arc<QueryLimits>, sender: &mpsc::Sender<DfResult<RecordBatch>>) -> DfResult<()> {
    let Query { plan, context, again } = query;
    let mut stream = execute_stream(checked_plan::checked(plan, &context, limits)?, context)?;
    let mut next = stream.next().await;
    if matches!(&next, Some(Err(error)) if is_out_of_memory(error)) {
        drop((stream, next));
        limits.account().returned().await;
        let (plan, context) = again.await?;
        stream = execute_stream(checked_plan::checked(plan, &context, limits)?, context)?;
        next = stream.next().await;
    }
    while let Some(batch) = next {
        // A failed operator must not be polled again: its state may be inconsistent.
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

impl Stream for QueryRows {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.limits.set_reader_busy(false);
        match self.batches.poll_recv(context) {
            Poll::Ready(Some(batch)) => {
                self.limits.set_reader_busy(true);
                return Poll::Ready(Some(batch));
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => {}
        }
        // Either all rows came, or the task panicked: then the rows are not complete.
        let Poll::Ready(outcome) = Pin::new(&mut self.task).poll(context) else { return Poll::Pending };
        self.ended = true;
        Poll::Ready(outcome.err().map(|error| {
            tracing::error!(%error, "a query ended by a panic");
            let report =
                ErrorFields::new("XX000", "the query ended because of a fault in this engine: see the node's log");
            Err(SqlError::Engine(Box::new(report)).into())
        }))
    }
}

impl RecordBatchStream for QueryRows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Drop for QueryRows {
    fn drop(&mut self) {
        self.limits.abandon();
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt;
    use store::{Options, Store};

    use crate::{Engine, EngineOptions, Session, SqlError, StatementResult};

    /// Queries that are far from their end when they are dropped, by the part that loops.
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

    async fn answered(session: &mut Session, sql: &str) -> Result<StatementResult, SqlError> {
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
                let Ok(StatementResult::Rows { mut stream, .. }) = answered(&mut session, sql).await else {
                    panic!("{what}")
                };
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
                // This bound detects a hang; on an idle machine it takes a second.
                assert!(tokio::time::timeout(Duration::from_secs(60), ended).await.is_ok(), "{what}: it goes on");
            }
        }
    }
}
