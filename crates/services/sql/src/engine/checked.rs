//! [`checked`]: a plan that finds out, between two batches, that its statement was asked to end.
//!
//! DataFusion drops work where it waits. What loops without waiting, inside one poll, never comes there: a join may compare for
//! hours before it has rows to hand on, and what counts rows takes all of them in one poll. So the plan asks at its leaves, above
//! what makes many rows of few, and in the conditions of joins, which are evaluated once for at most a batch of pairs.
//!
//! It is the last step before a plan is run: the optimizer does not see it.

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions};
use futures::StreamExt;

use super::apart::GoOn;
use crate::SqlError;

/// A constant beyond this is large where a batch has a copy of it for each row.
const LARGE_BYTES: usize = 1024;

/// The same plan, which ends when its statement is asked to.
pub(crate) fn checked(plan: Arc<dyn ExecutionPlan>, go_on: &Arc<GoOn>) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
    let asks = |plan: Arc<dyn ExecutionPlan>| {
        let plan = with_checked_values(plan, go_on)?;
        let with_filter = with_checked_filter(&plan, go_on)?;
        let makes_rows = with_filter.is_some()
            || plan.children().is_empty()
            || plan.downcast_ref::<ProjectionExec>().is_some()
            || plan.downcast_ref::<HashJoinExec>().is_some()
            || plan.downcast_ref::<SortMergeJoinExec>().is_some()
            || plan.downcast_ref::<NestedLoopJoinExec>().is_some()
            || plan.downcast_ref::<CrossJoinExec>().is_some()
            || plan.downcast_ref::<UnnestExec>().is_some();
        Ok(match makes_rows {
            true => {
                let inner = with_filter.unwrap_or(plan);
                Transformed::yes(Arc::new(Checked { inner, go_on: go_on.clone() }) as Arc<dyn ExecutionPlan>)
            }
            false => Transformed::no(plan),
        })
    };
    Ok(plan.transform_up(asks)?.data)
}

/// A projection whose large constants ask before they are copied for each row.
fn with_checked_values(plan: Arc<dyn ExecutionPlan>, go_on: &Arc<GoOn>) -> DfResult<Arc<dyn ExecutionPlan>> {
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(plan) };
    let is_large = |expr: &Arc<dyn PhysicalExpr>| {
        expr.downcast_ref::<Literal>().is_some_and(|literal| literal.value().size() > LARGE_BYTES)
    };
    if !projection.expr().iter().any(|one| is_large(&one.expr)) {
        return Ok(plan);
    }
    let asks = |one: &ProjectionExpr| match is_large(&one.expr) {
        true => {
            let expr = Arc::new(CheckedCondition { inner: one.expr.clone(), go_on: go_on.clone() });
            ProjectionExpr { expr, alias: one.alias.clone() }
        }
        false => one.clone(),
    };
    let exprs: Vec<ProjectionExpr> = projection.expr().iter().map(asks).collect();
    Ok(Arc::new(ProjectionExec::try_new(exprs, projection.input().clone())?))
}

/// A join whose condition asks; none where there is no condition.
fn with_checked_filter(plan: &Arc<dyn ExecutionPlan>, go_on: &Arc<GoOn>) -> DfResult<Option<Arc<dyn ExecutionPlan>>> {
    let asks = |filter: &JoinFilter| {
        let inner = filter.expression().clone();
        let expression = Arc::new(CheckedCondition { inner, go_on: go_on.clone() });
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

/// A plan that asks before each batch.
#[derive(Debug)]
struct Checked {
    inner: Arc<dyn ExecutionPlan>,
    go_on: Arc<GoOn>,
}

impl DisplayAs for Checked {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Checked")
    }
}

impl ExecutionPlan for Checked {
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
        Ok(Arc::new(Checked { inner, go_on: self.go_on.clone() }))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let inner = children.pop().unwrap_or_else(|| self.inner.clone());
        Ok(Arc::new(Checked { inner, go_on: self.go_on.clone() }))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let stream = self.inner.execute(partition, context)?;
        let (schema, go_on) = (stream.schema(), self.go_on.clone());
        let batches = stream.map(move |batch| {
            go_on.check_room()?;
            batch
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// A condition that asks before it is evaluated, or a constant that asks before it is copied.
#[derive(Debug)]
struct CheckedCondition {
    inner: Arc<dyn PhysicalExpr>,
    go_on: Arc<GoOn>,
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
        self.go_on.check()?;
        let value = self.inner.evaluate(batch)?;
        if let ColumnarValue::Scalar(value) = &value
            && value.size() > LARGE_BYTES
        {
            self.go_on.afford(value.size().saturating_mul(batch.num_rows()))?;
        }
        Ok(value)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> DfResult<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| self.inner.clone());
        Ok(Arc::new(CheckedCondition { inner, go_on: self.go_on.clone() }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
