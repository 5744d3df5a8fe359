//! [`BarrierTable`]: a view into which nothing of the query around it is pushed.
//!
//! ```text
//!   select * from v where 1 / a > 0        Filter: 1 / a > 0        runs on what the view returns
//!                                            BarrierScan: v         a leaf: no rule looks into it
//!                                              the view's own plan, its own condition first
//! ```
//!
//! A condition that runs before the view's own sees rows that the view hides: it may fail and quote a value, and EXPLAIN
//! ANALYZE would count them. Invariants: the view is planned by itself, with only the columns that are read, a limit, and
//! conditions that cannot fail ([`is_leakproof`]); it has no children and no statistics, so no rule of the optimizer moves
//! another condition, an expression or a bound that is found while it runs across it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::ViewTable;
use datafusion::error::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

/// A view that is a barrier.
#[derive(Debug)]
pub(crate) struct BarrierTable {
    /// Its name in plans.
    pub(crate) name: String,
    pub(crate) view: ViewTable,
    /// Its columns, of the types that they have when it runs.
    pub(crate) schema: SchemaRef,
}

#[async_trait]
impl TableProvider for BarrierTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.view.get_table_definition()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let answer = |filter: &&Expr| match is_leakproof(filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(answer).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        assert!(filters.iter().all(is_leakproof), "no other condition was taken");
        let schema = match projection {
            Some(projection) => Arc::new(self.schema.project(projection)?),
            None => self.schema.clone(),
        };
        let inner = self.view.scan(state, projection, filters, limit).await?;
        Ok(Arc::new(BarrierScan::new(self.name.clone(), schema, inner)))
    }
}

/// Whether a condition may run on rows that the view hides: it compares a column with a constant, which cannot fail and tells
/// nobody what it saw. PostgreSQL calls such functions leakproof. So a key still finds its row behind a view.
fn is_leakproof(condition: &Expr) -> bool {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(_));
    let is_constant = |expr: &Expr| matches!(expr, Expr::Literal(..));
    match condition {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq,
            right,
        }) => (is_column(left) && is_constant(right)) || (is_constant(left) && is_column(right)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            is_leakproof(left) && is_leakproof(right)
        }
        Expr::IsNull(column) | Expr::IsNotNull(column) => is_column(column),
        Expr::Between(Between { expr, low, high, .. }) => is_column(expr) && is_constant(low) && is_constant(high),
        Expr::InList(InList { expr, list, .. }) => is_column(expr) && list.iter().all(is_constant),
        _ => false,
    }
}

/// A view's own plan, as a leaf of the plan around it.
#[derive(Debug)]
pub(crate) struct BarrierScan {
    name: String,
    inner: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl BarrierScan {
    fn new(name: String, schema: SchemaRef, inner: Arc<dyn ExecutionPlan>) -> BarrierScan {
        let partitions = inner.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            inner.pipeline_behavior(),
            inner.boundedness(),
        );
        BarrierScan { name, inner, properties: Arc::new(properties) }
    }

    /// The view's own plan. It is complete: only what is done to a whole plan before it runs is done to it too.
    pub(crate) fn inner(&self) -> &Arc<dyn ExecutionPlan> {
        &self.inner
    }

    /// The same view with another form of its plan.
    pub(crate) fn with_inner(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(BarrierScan::new(self.name.clone(), self.schema(), inner))
    }
}

impl DisplayAs for BarrierScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BarrierScan: {}", self.name)
    }
}

impl ExecutionPlan for BarrierScan {
    fn name(&self) -> &str {
        "BarrierScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let schema = self.schema();
        let batches = self.inner.execute(partition, context)?;
        let same = schema.clone();
        let batches = batches.map(move |batch| {
            let batch = batch?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = batch.columns().to_vec();
            Ok(RecordBatch::try_new_with_options(same.clone(), columns, &options)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;

    #[test]
    fn only_comparisons_of_a_column_with_a_constant_run_on_what_the_view_hides() {
        for leakproof in [
            col("a").eq(lit(1)),
            lit(1).lt_eq(col("a")),
            col("a").gt(lit(1)).and(col("b").not_eq(lit("x")).or(col("c").is_null())),
            col("a").between(lit(1), lit(2)),
            col("a").in_list(vec![lit(1), lit(2)], true),
            col("a").is_not_null(),
        ] {
            assert!(is_leakproof(&leakproof), "{leakproof}");
        }
        for other in [
            (lit(1) / col("a")).eq(lit(1)),
            cast(col("a"), datafusion::arrow::datatypes::DataType::Int32).eq(lit(1)),
            col("a").eq(col("b")),
            col("a").eq(lit(1)).and((lit(1) / col("a")).gt(lit(0))),
            col("a").between(lit(1), lit(1) / col("b")),
            col("a").in_list(vec![lit(1), col("b")], false),
            col("a").like(lit("x%")),
            col("a"),
            !col("a").eq(lit(1)),
        ] {
            assert!(!is_leakproof(&other), "{other}");
        }
    }
}
