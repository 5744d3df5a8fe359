//! [`checked`]: a plan that checks between two batches whether its statement was asked to end.
//!
//! DataFusion drops work only where it waits. Work that loops without waiting, inside one poll, never reaches such a
//! place: a join may compare for hours before it has rows to return, and a count reads all rows in one poll. So the
//! plan checks at each of its steps, and in the conditions of joins, which are evaluated once for at most a batch of
//! pairs. It also requests memory for values that are made.
//!
//! This is the last step before a plan runs: the optimizer does not see it.
//!
//! A nested loop join without room for its left side reads that side a second time, and spills it (DataFusion 55.2).
//! Some plans cannot be read twice: they panic, or return only the remaining rows. And if the right side has several
//! partitions, each of them treats left rows that it did not match itself as unmatched. Such a join gets no spill
//! files: it reports that there is no room.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DfResult;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, PiecewiseMergeJoinExec,
    SortMergeJoinExec,
};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};

use super::owned_batches;
use super::query_limits::QueryLimits;
use crate::SqlError;
use crate::column::RowGroupScan;
use crate::engine::limits::window_values;
use crate::table::barrier::BarrierScan;
use crate::table::index_scan::IndexScan;
use crate::table::row_scan::RowScan;

/// A larger constant is treated as large, if a batch contains a copy of it for each row.
const LARGE_BYTES: usize = 1024;

/// The same plan, which ends when its statement is asked to end.
pub(crate) fn checked(
    plan: Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    limits: &Arc<QueryLimits>,
) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
    let asks = |plan: Arc<dyn ExecutionPlan>| {
        let plan = match plan.downcast_ref::<BarrierScan>() {
            Some(barrier) => barrier.with_inner(checked(barrier.inner().clone(), context, limits)?),
            None => plan,
        };
        let plan = match plan.downcast_ref::<IndexScan>() {
            Some(scan) => Arc::new(scan.within(limits.clone())) as Arc<dyn ExecutionPlan>,
            None => plan,
        };
        let plan = with_checked_values(plan, limits)?;
        let plan = with_checked_filter(&plan, limits)?.unwrap_or(plan);
        let plan = window_values::with_accounted_functions(plan, limits.account())?;
        let own_context = may_not_spill(&plan).then(|| without_files(context)).transpose()?;
        let plan = with_bounded_inputs(plan, context, limits)?;
        Ok(Transformed::yes(Arc::new(CheckedPlan {
            inner: plan,
            limits: limits.clone(),
            own_context,
            is_kept: false,
            is_held: false,
            row_bytes: 0,
            repeats: Repeats::None,
        }) as Arc<dyn ExecutionPlan>))
    };
    Ok(plan.transform_up(asks)?.data)
}

/// The context of a join that must not spill. Its functions are in its expressions.
fn without_files(context: &Arc<TaskContext>) -> DfResult<Arc<TaskContext>> {
    let files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled).build()?;
    let mut runtime = context.runtime_env().as_ref().clone();
    runtime.disk_manager = Arc::new(files);
    let (task, session, config) = (context.task_id(), context.session_id(), context.session_config().clone());
    let none = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    Ok(Arc::new(TaskContext::new(task, session, config, none.0, none.1, none.2, none.3, Arc::new(runtime))))
}

/// Whether the plan is a join that must not spill: it would read its left side twice although that is not possible, or
/// return wrong rows.
fn may_not_spill(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() else { return false };
    join.right().output_partitioning().partition_count() > 1 || !gives_all_rows_again(join.left())
}

/// Whether a plan returns all of its rows again when it is executed again: known for plans that keep no state between
/// executions.
fn gives_all_rows_again(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(checked) = plan.downcast_ref::<CheckedPlan>() {
        return gives_all_rows_again(&checked.inner);
    }
    if let Some(barrier) = plan.downcast_ref::<BarrierScan>() {
        return gives_all_rows_again(barrier.inner());
    }
    let is_known = plan.downcast_ref::<RowScan>().is_some()
        || plan.downcast_ref::<IndexScan>().is_some()
        || plan.downcast_ref::<RowGroupScan>().is_some()
        || plan.downcast_ref::<FilterExec>().is_some()
        || plan.downcast_ref::<ProjectionExec>().is_some()
        || plan.downcast_ref::<UnionExec>().is_some()
        || plan.downcast_ref::<CooperativeExec>().is_some()
        || plan.downcast_ref::<CoalescePartitionsExec>().is_some();
    is_known && plan.children().into_iter().all(gives_all_rows_again)
}

/// A plan with wrapped inputs. The inputs return batches without the rest of the arrays that they lie in. They also
/// request memory for what the plan makes of them without reserving it in the pool: the plan keeps all rows and copies
/// them into one batch, returns one row many times, or copies a constant for each row.
fn with_bounded_inputs(
    plan: Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    limits: &Arc<QueryLimits>,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    let is_cross = plan.downcast_ref::<CrossJoinExec>().is_some();
    let repeats = if is_cross {
        Repeats::All
    } else if is_join(&plan) {
        Repeats::Copied
    } else {
        Repeats::None
    };
    let window = plan.downcast_ref::<WindowAggExec>();
    let keeps_all = window.is_some();
    let row_bytes = constant_bytes(&plan) + window.map_or(0, window_values::row_bytes);
    // A plan that spills keeps only what fits in the pool.
    let keeps_left = is_cross
        || plan.downcast_ref::<NestedLoopJoinExec>().is_some() && may_not_spill(&plan)
        || plan.downcast_ref::<HashJoinExec>().is_some();
    let holds_all = keeps_all
        || plan.downcast_ref::<SortExec>().is_some()
        || plan.downcast_ref::<SortPreservingMergeExec>().is_some()
        || plan.downcast_ref::<BoundedWindowAggExec>().is_some()
        || plan.downcast_ref::<SortMergeJoinExec>().is_some()
        || plan.downcast_ref::<PiecewiseMergeJoinExec>().is_some()
        || hands_on(&plan);
    if !holds_all && repeats == Repeats::None && row_bytes == 0 {
        return Ok(plan);
    }
    let bounded = |(at, input): (usize, &Arc<dyn ExecutionPlan>)| {
        let is_kept = keeps_all || keeps_left && at == 0;
        let is_held = holds_all || is_kept;
        let (inner, limits, own_context) = (input.clone(), limits.clone(), Some(context.clone()));
        Arc::new(CheckedPlan { inner, limits, own_context, is_kept, is_held, row_bytes, repeats })
            as Arc<dyn ExecutionPlan>
    };
    let inputs = plan.children().into_iter().enumerate().map(bounded).collect();
    plan.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
}

/// Whether a plan passes batches unchanged from thread to thread, and counts the waiting ones.
fn hands_on(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let repartition = plan.downcast_ref::<RepartitionExec>();
    repartition.is_some_and(|plan| matches!(plan.partitioning(), Partitioning::RoundRobinBatch(_)))
}

/// Bytes of the large constants among the arguments of aggregates and window functions: each row gets a copy.
fn constant_bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let args: Vec<Arc<dyn PhysicalExpr>> = if let Some(groups) = plan.downcast_ref::<AggregateExec>() {
        groups.aggr_expr().iter().flat_map(|aggregate| aggregate.expressions()).collect()
    } else if let Some(window) = plan.downcast_ref::<WindowAggExec>() {
        window.window_expr().iter().flat_map(|function| function.expressions()).collect()
    } else if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        window.window_expr().iter().flat_map(|function| function.expressions()).collect()
    } else {
        return 0;
    };
    let sizes = args.iter().filter_map(|arg| arg.downcast_ref::<Literal>()).map(|literal| literal.value().size());
    sizes.filter(|bytes| *bytes > LARGE_BYTES).sum()
}

fn is_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<NestedLoopJoinExec>().is_some()
        || plan.downcast_ref::<HashJoinExec>().is_some()
        || plan.downcast_ref::<SortMergeJoinExec>().is_some()
}

/// The part of a row that its reader copies each time it returns the row again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    /// Nothing.
    None,
    /// Values, except those that are views of texts.
    Copied,
    /// All values.
    All,
}

/// Bytes of a row whose values are the widest of each column.
fn widest(batch: &RecordBatch, repeats: Repeats) -> usize {
    fn most<'a, T: AsRef<[u8]> + ?Sized + 'a>(values: impl Iterator<Item = Option<&'a T>>) -> usize {
        values.flatten().map(|value| value.as_ref().len()).max().unwrap_or(0)
    }
    let of = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8 => most(column.as_string::<i32>().iter()),
        DataType::LargeUtf8 => most(column.as_string::<i64>().iter()),
        DataType::Binary => most(column.as_binary::<i32>().iter()),
        DataType::LargeBinary => most(column.as_binary::<i64>().iter()),
        DataType::Utf8View if repeats == Repeats::All => most(column.as_string_view().iter()),
        DataType::BinaryView if repeats == Repeats::All => most(column.as_binary_view().iter()),
        DataType::List(_) => {
            // A list's values lie in one array with those of all rows: their mean size counts.
            let list = column.as_list::<i32>();
            let longest = (0..list.len()).map(|row| list.value_length(row)).max().unwrap_or(0);
            let each = list.values().get_array_memory_size().div_ceil(list.values().len().max(1));
            usize::try_from(longest).unwrap_or(0).saturating_mul(each)
        }
        _ => 16,
    };
    batch.columns().iter().map(of).sum()
}

/// A projection whose large constants request memory before they are copied for each row.
fn with_checked_values(plan: Arc<dyn ExecutionPlan>, limits: &Arc<QueryLimits>) -> DfResult<Arc<dyn ExecutionPlan>> {
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(plan) };
    let is_large = |expr: &Arc<dyn PhysicalExpr>| {
        expr.downcast_ref::<Literal>().is_some_and(|literal| literal.value().size() > LARGE_BYTES)
    };
    if !projection.expr().iter().any(|one| is_large(&one.expr)) {
        return Ok(plan);
    }
    let asks = |one: &ProjectionExpr| match is_large(&one.expr) {
        true => {
            let expr = Arc::new(CheckedCondition { inner: one.expr.clone(), limits: limits.clone() });
            ProjectionExpr { expr, alias: one.alias.clone() }
        }
        false => one.clone(),
    };
    let exprs: Vec<ProjectionExpr> = projection.expr().iter().map(asks).collect();
    Ok(Arc::new(ProjectionExec::try_new(exprs, projection.input().clone())?))
}

/// A join whose condition checks first; `None` if there is no condition.
fn with_checked_filter(
    plan: &Arc<dyn ExecutionPlan>,
    limits: &Arc<QueryLimits>,
) -> DfResult<Option<Arc<dyn ExecutionPlan>>> {
    let asks = |filter: &JoinFilter| {
        let inner = filter.expression().clone();
        let expression = Arc::new(CheckedCondition { inner, limits: limits.clone() });
        JoinFilter::new(expression, filter.column_indices().to_vec(), filter.schema().clone())
    };
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(asks(filter))).build()?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
    {
        return Ok(Some(join.builder().with_filter(Some(asks(filter))).build_exec()?));
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>()
        && let Some(filter) = join.filter()
    {
        let (left, right, on) = (join.left().clone(), join.right().clone(), join.on().to_vec());
        let (kind, options, nulls) = (join.join_type(), join.sort_options().to_vec(), join.null_equality());
        let filter = Some(asks(filter));
        return Ok(Some(Arc::new(SortMergeJoinExec::try_new(left, right, on, filter, kind, options, nulls)?)));
    }
    Ok(None)
}

/// A plan that checks before each batch.
#[derive(Debug)]
struct CheckedPlan {
    inner: Arc<dyn ExecutionPlan>,
    limits: Arc<QueryLimits>,
    /// The context to run with, instead of the reader's.
    own_context: Option<Arc<TaskContext>>,
    /// The reader keeps all batches, and copies them.
    is_kept: bool,
    /// The reader holds some of the batches, and counts their memory.
    is_held: bool,
    /// Additional bytes that the reader takes for each row.
    row_bytes: usize,
    /// The part of a row that the reader copies each time it returns the row.
    repeats: Repeats,
}

impl DisplayAs for CheckedPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Checked")
    }
}

impl ExecutionPlan for CheckedPlan {
    fn name(&self) -> &str {
        "Checked"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.inner]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let inner = children.pop().unwrap_or_else(|| self.inner.clone());
        Ok(Arc::new(CheckedPlan { inner, limits: self.limits.clone(), own_context: self.own_context.clone(), ..*self }))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let inner = children.pop().unwrap_or_else(|| self.inner.clone());
        Ok(Arc::new(CheckedPlan { inner, limits: self.limits.clone(), own_context: self.own_context.clone(), ..*self }))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let rows = context.session_config().batch_size();
        let context = self.own_context.clone().unwrap_or(context);
        let stream = self.inner.execute(partition, context)?;
        let stream = if window_values::is_window(&self.inner) { window_values::counted(stream) } else { stream };
        let (schema, limits, is_kept, repeats) = (stream.schema(), self.limits.clone(), self.is_kept, self.repeats);
        let (mut kept, row_bytes) = (0, self.row_bytes);
        let batches = match self.is_held {
            true => stream.flat_map(move |batch| stream::iter(owned_batches::parts(batch, rows))).boxed(),
            false => stream.boxed(),
        };
        let waits = limits.clone();
        let batches = batches.then(move |batch| {
            let waits = waits.clone();
            async move { waits.room().await.map(|()| batch) }
        });
        let batches = batches.map(move |batch| {
            let batch = batch??;
            if is_kept {
                kept += batch.get_array_memory_size() + batch.num_rows() * row_bytes;
                limits.check_room(kept)?;
            } else if row_bytes > 0 {
                limits.check_room(batch.num_rows().saturating_mul(row_bytes))?;
            }
            // A single row may be as wide as the whole batch.
            if repeats != Repeats::None && batch.get_array_memory_size() > LARGE_BYTES {
                limits.check_room(widest(&batch, repeats).saturating_mul(rows))?;
            }
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// A condition that checks before it is evaluated, or a constant that requests memory before it is copied.
#[derive(Debug)]
struct CheckedCondition {
    inner: Arc<dyn PhysicalExpr>,
    limits: Arc<QueryLimits>,
}

impl PartialEq for CheckedCondition {
    fn eq(&self, other: &CheckedCondition) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for CheckedCondition {}

impl Hash for CheckedCondition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl Display for CheckedCondition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for CheckedCondition {
    fn return_field(&self, schema: &Schema) -> DfResult<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        self.limits.check()?;
        let value = self.inner.evaluate(batch)?;
        if let ColumnarValue::Scalar(value) = &value
            && value.size() > LARGE_BYTES
        {
            self.limits.check_room(value.size().saturating_mul(batch.num_rows()))?;
        }
        Ok(value)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> DfResult<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| self.inner.clone());
        Ok(Arc::new(CheckedCondition { inner, limits: self.limits.clone() }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
