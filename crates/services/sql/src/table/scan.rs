//! Reading tables and relations: [`StoredTable`] and [`RelationTable`] are what DataFusion plans with.
//!
//! A plan may be kept and run again: it takes the view, and with it the moment, when it is made physical, from what the
//! session shares. A table's scan is that of its segments beside that of its rows in row form, in one view; where it has but
//! one of the two forms, it is that one's alone.

use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::union::UnionExec;
use futures::stream;
use store::{Direction, TreeId};

use super::counts::RowCounts;
use super::definition::Table;
use super::form::{ColumnForm, FormRequest};
use super::range;
use super::relation::{Relation, ScanRequest};
use super::rows::RowScan;
use super::view::View;
use crate::SqlError;

/// Gives the view that the session's running statement reads.
pub(crate) trait Reads: Send + Sync + std::fmt::Debug {
    fn view(&self) -> View;
}

/// A table of ours in a query.
#[derive(Debug)]
pub(crate) struct StoredTable {
    pub(crate) table: Arc<Table>,
    pub(crate) reads: Arc<dyn Reads>,
    pub(crate) columns: Arc<dyn ColumnForm>,
    pub(crate) counts: Arc<RowCounts>,
    /// Whether the address is the last column.
    pub(crate) addressed: bool,
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        if self.addressed { self.table.addressed.clone() } else { self.table.schema.clone() }
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        // Segments use what they can of any condition, and the optimizer then finds out that they apply it.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let all = (0..self.schema().fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let view = self.reads.view();
        let limit = limit.filter(|_| filters.is_empty());
        let partitions = state.config().target_partitions();
        let request = FormRequest { projection, filters, limit, partitions };
        let segments = self.columns.scan(&view, &self.table, request)?;
        let range = range::key_range(&self.table, filters)?;
        let rows = |like: Option<&Statistics>| {
            let count = self.counts.get(&view, &self.table)?;
            RowScan::new(&self.table, &view, projection, range, limit, (count, like))
        };
        let Some(segments) = segments else { return Ok(Arc::new(rows(None)?)) };
        if is_empty(&view, self.table.rows)? {
            // Without a union the segments can say how their rows are ordered and dealt out.
            return Ok(segments);
        }
        let like = segments.statistics_from_inputs(&[], &StatisticsArgs::default())?;
        UnionExec::try_new(vec![segments, Arc::new(rows(Some(&like))?)])
    }
}

fn is_empty(view: &View, tree: TreeId) -> Result<bool, SqlError> {
    Ok(view.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?.next()?.is_none())
}

/// A relation in a query.
#[derive(Debug)]
pub(crate) struct RelationTable {
    pub(crate) relation: Arc<dyn Relation>,
    pub(crate) reads: Arc<dyn Reads>,
}

#[async_trait]
impl TableProvider for RelationTable {
    fn schema(&self) -> SchemaRef {
        self.relation.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let schema = self.relation.schema();
        let one = |filter: &&Expr| match range::is_bound(&schema, filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(one).collect())
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let schema = self.relation.schema();
        let projection = projection.cloned().unwrap_or_else(|| (0..schema.fields().len()).collect());
        let (bounds, complete) = range::bounds(&schema, filters);
        let schema = Arc::new(schema.project(&projection)?);
        let limit = limit.filter(|_| complete);
        let request = ScanRequest { projection, bounds, limit, batch_rows: 0 };
        let partition: Arc<dyn PartitionStream> = Arc::new(RelationScan {
            relation: self.relation.clone(),
            view: self.reads.view(),
            request,
            schema: schema.clone(),
        });
        // A relation may return rows outside the bounds, so the limit is for DataFusion to keep.
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![partition], None, [], false, None)?))
    }
}

#[derive(Debug)]
struct RelationScan {
    relation: Arc<dyn Relation>,
    view: View,
    request: ScanRequest,
    schema: SchemaRef,
}

impl PartitionStream for RelationScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let request = ScanRequest { batch_rows: context.session_config().batch_size(), ..self.request.clone() };
        let opened = self.view.snapshot().and_then(|snapshot| self.relation.scan(&snapshot, &request));
        let batches: Box<dyn Iterator<Item = _> + Send> = match opened {
            Ok(batches) => batches,
            Err(error) => Box::new(std::iter::once(Err(error))),
        };
        let batches = batches.map(|batch| batch.map_err(DataFusionError::from));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream::iter(batches)))
    }
}
