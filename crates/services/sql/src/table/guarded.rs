//! [`GuardedTable`]: a table or view of which a caller may read some columns.
//!
//! Invariant: a scan of it names every column that the query computes with, and each is asked for. Therefore a view behind
//! it shows no plan of its own, into which the optimizer could look past it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::SqlError;

/// Asks for columns. Errors: 42501.
pub(crate) type AskColumns = dyn Fn(Vec<String>) -> Result<(), SqlError> + Send + Sync;

/// A table of which some columns may be read.
pub(crate) struct GuardedTable {
    pub(crate) inner: Arc<dyn TableProvider>,
    pub(crate) ask: Box<AskColumns>,
}

impl std::fmt::Debug for GuardedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardedTable").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for GuardedTable {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        self.inner.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        self.inner.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let all = (0..schema.fields().len()).collect();
        let mut names: Vec<String> =
            projection.unwrap_or(&all).iter().map(|at| schema.field(*at).name().clone()).collect();
        names.extend(filters.iter().flat_map(|filter| filter.column_refs()).map(|column| column.name.clone()));
        (self.ask)(names)?;
        self.inner.scan(state, projection, filters, limit).await
    }
}
