//! Tables and virtual tables for DataFusion: [`StoredTable`] and [`VirtualTableProvider`] are used in its plans.
//!
//! A plan may be kept and run again. It takes the view, which fixes the snapshot, when the physical plan is made, from
//! the session's shared state. A table's scan combines those of its row groups and of its rows in the delta store, in
//! one view; if the table has only one of the two, the scan is that one.

use std::fmt;
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
use parking_lot::Mutex;
use store::{Direction, TreeId};

use super::BATCH_BYTES;
use super::column_store::{ColumnScanRequest, ColumnStore};
use super::definition::Table;
use super::index_ranges::{self, IndexedRows};
use super::index_scan::IndexScan;
use super::key_range;
use super::row_counts::RowCounts;
use super::row_scan::RowScan;
use super::view::View;
use super::virtual_table::{ScanRequest, VirtualRows, VirtualScan, VirtualTable};
use crate::SqlError;
use crate::identity::SessionIdentity;

/// A scan of fewer rows is quick without an index.
const ROWS_LEAST: usize = 256;
/// An index is used for at most one row in this many: in row groups half of a vector.
const ONE_ROW_IN: usize = 4096;
/// In the delta store a row by its key costs some tens of rows of a scan.
const ONE_DELTA_ROW_IN: usize = 64;
/// The bounds of that number. It is known when the query is planned, and so are the references.
const INDEXED_LEAST: usize = 16;
const INDEXED_MOST: usize = 1024;

/// Returns the view that the session's running statement reads.
pub(crate) trait Reads: Send + Sync + std::fmt::Debug {
    fn view(&self) -> View;
}

/// A stored table in a query.
#[derive(Debug)]
pub(crate) struct StoredTable {
    pub(crate) table: Arc<Table>,
    pub(crate) reads: Arc<dyn Reads>,
    pub(crate) columns: Arc<dyn ColumnStore>,
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
        // Row groups use the parts of a condition that they can, and the optimizer then finds that they apply it.
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
        let request = ColumnScanRequest { projection, filters, limit, partitions };
        let row_groups = self.columns.scan(&view, &self.table, request)?;
        let range = key_range::key_range(&self.table, filters)?;
        if range.point.is_none()
            && let Some(found) = self.by_index(&view, filters, row_groups.as_deref())?
        {
            return Ok(Arc::new(IndexScan::new(&self.table, &view, &self.columns, projection, found)?));
        }
        let rows = |like: Option<&Statistics>| {
            let count = self.counts.get(&view, &self.table)?;
            RowScan::new(&self.table, &view, projection, range, limit, (count, like))
        };
        let Some(row_groups) = row_groups else { return Ok(Arc::new(rows(None)?)) };
        if is_empty(&view, self.table.rows)? {
            // Without a union the row groups can declare how their rows are ordered and partitioned.
            return Ok(row_groups);
        }
        let like = row_groups.statistics_from_inputs(&[], &StatisticsArgs::default())?;
        UnionExec::try_new(vec![row_groups, Arc::new(rows(Some(&like))?)])
    }
}

impl StoredTable {
    /// The rows that can fulfil the conditions, if an index of a large table leads to few.
    fn by_index(
        &self,
        view: &View,
        filters: &[Expr],
        row_groups: Option<&dyn ExecutionPlan>,
    ) -> Result<Option<IndexedRows>, SqlError> {
        if self.table.indexes.is_empty() || filters.is_empty() {
            return Ok(None);
        }
        let in_delta_store = self.counts.get(view, &self.table)?;
        let in_row_groups = match row_groups {
            Some(plan) => plan.statistics_from_inputs(&[], &StatisticsArgs::default())?.num_rows.get_value().copied(),
            None => None,
        };
        if row_groups.is_none() && in_delta_store < ROWS_LEAST {
            return Ok(None);
        }
        let most = in_delta_store / ONE_DELTA_ROW_IN + in_row_groups.unwrap_or(0) / ONE_ROW_IN;
        index_ranges::find(view, &self.table, filters, most.clamp(INDEXED_LEAST, INDEXED_MOST))
    }
}

fn is_empty(view: &View, tree: TreeId) -> Result<bool, SqlError> {
    Ok(view.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?.next()?.is_none())
}

/// A virtual table in a query.
#[derive(Debug)]
pub(crate) struct VirtualTableProvider {
    pub(crate) table: Arc<dyn VirtualTable>,
    pub(crate) reads: Arc<dyn Reads>,
    /// Who asks, with the rights of a view's owner within one.
    pub(crate) identity: Option<SessionIdentity>,
}

#[async_trait]
impl TableProvider for VirtualTableProvider {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let schema = self.table.schema();
        let one = |filter: &&Expr| match key_range::is_bound(&schema, filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(one).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let schema = self.table.schema();
        let projection = projection.cloned().unwrap_or_else(|| (0..schema.fields().len()).collect());
        let (bounds, complete) = key_range::bounds(&schema, filters);
        let schema = Arc::new(schema.project(&projection)?);
        let limit = limit.filter(|_| complete);
        let (identity, batch_bytes) = (self.identity.clone(), BATCH_BYTES);
        let request = ScanRequest { projection, bounds, limit, batch_bytes, identity, ..ScanRequest::default() };
        let partitions = match limit {
            Some(_) => 1,
            None => self.table.partitions(&request, state.config().target_partitions()).max(1),
        };
        let request = ScanRequest { partitions, ..request };
        let (table, view, begun) = (self.table.clone(), self.reads.view(), Mutex::default());
        let scan = Arc::new(RelationScan { table, view, request, begun });
        let partition = |partition| {
            let (scan, schema) = (scan.clone(), schema.clone());
            Arc::new(RelationPartition { scan, partition, schema }) as Arc<dyn PartitionStream>
        };
        let partitions = (0..partitions).map(partition).collect();
        // A virtual table may return rows outside the bounds, so DataFusion applies the limit.
        Ok(Arc::new(StreamingTableExec::try_new(schema.clone(), partitions, None, [], false, None)?))
    }
}

/// A scan of a virtual table. It begins when the first of its partitions is read.
struct RelationScan {
    table: Arc<dyn VirtualTable>,
    view: View,
    request: ScanRequest,
    begun: Mutex<Option<Arc<dyn VirtualScan>>>,
}

impl RelationScan {
    fn rows(&self, partition: usize, batch_rows: usize) -> Result<VirtualRows, SqlError> {
        let mut begun = self.begun.lock();
        let scan = match &*begun {
            Some(scan) => scan.clone(),
            None => {
                let request = ScanRequest { batch_rows, ..self.request.clone() };
                begun.insert(self.table.scan(&self.view.snapshot()?, &request)?).clone()
            }
        };
        drop(begun);
        Ok(scan.rows(partition))
    }
}

struct RelationPartition {
    scan: Arc<RelationScan>,
    partition: usize,
    schema: SchemaRef,
}

impl fmt::Debug for RelationPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelationPartition")
            .field("table", &self.scan.table)
            .field("partition", &self.partition)
            .finish()
    }
}

impl PartitionStream for RelationPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = match self.scan.rows(self.partition, context.session_config().batch_size()) {
            Ok(batches) => batches,
            Err(error) => Box::new(std::iter::once(Err(error))),
        };
        let batches = batches.map(|batch| batch.map_err(DataFusionError::from));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream::iter(batches)))
    }
}
