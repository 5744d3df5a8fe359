//! Reading tables and relations: [`StoredTable`] and [`RelationTable`] are what DataFusion plans with.
//!
//! A plan may be kept and run again: it takes the view, and with it the moment, when it is made physical, from what the
//! session shares. Batches are made straight from the cursor's keys and values, with the projected columns only. A scan
//! reads its pages on the thread that asks for the batch.

use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::union::UnionExec;
use futures::stream;
use store::{Cursor, Direction, TreeId};

use super::definition::Table;
use super::form::{ColumnForm, FormRequest};
use super::range::{self, KeyRange};
use super::relation::{Relation, ScanRequest};
use super::row::BatchBuilder;
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
    pub(crate) columns: Option<Arc<dyn ColumnForm>>,
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
        let one = |filter: &&Expr| match self.columns.is_some() || range::is_useful(&self.table, filter) {
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
        let all = (0..self.schema().fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let schema = Arc::new(self.table.addressed.project(projection)?);
        let view = self.reads.view();
        let limit = limit.filter(|_| filters.is_empty());
        let rows: Arc<dyn PartitionStream> = Arc::new(RowScan {
            table: self.table.clone(),
            view: view.clone(),
            projection: projection.clone(),
            range: range::key_range(&self.table, filters)?,
            schema: schema.clone(),
            limit,
        });
        let rows: Arc<dyn ExecutionPlan> =
            Arc::new(StreamingTableExec::try_new(schema, vec![rows], None, [], false, limit)?);
        let Some(form) = &self.columns else {
            return Ok(rows);
        };
        let partitions = state.config().target_partitions();
        let request = FormRequest { projection, filters, limit, partitions };
        match form.scan(&view, &self.table, request)? {
            // Without a union the segments can say how their rows are ordered and dealt out.
            Some(segments) if is_empty(&view, self.table.rows)? => Ok(segments),
            Some(segments) => UnionExec::try_new(vec![segments, rows]),
            None => Ok(rows),
        }
    }
}

fn is_empty(view: &View, tree: TreeId) -> Result<bool, SqlError> {
    Ok(view.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?.next()?.is_none())
}

/// The rows in row form of one range of keys.
#[derive(Debug)]
struct RowScan {
    table: Arc<Table>,
    view: View,
    projection: Vec<usize>,
    range: KeyRange,
    schema: SchemaRef,
    limit: Option<usize>,
}

impl PartitionStream for RowScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let most = context.session_config().batch_size();
        let batches = match self.open() {
            Ok(source) => {
                let rows = most.min(self.limit.unwrap_or(most));
                let builder = BatchBuilder::new(&self.table, &self.projection, self.schema.clone(), rows);
                Batches { source: Some(source), builder, most, left: self.limit.unwrap_or(usize::MAX), failed: None }
            }
            Err(error) => {
                let builder = BatchBuilder::new(&self.table, &self.projection, self.schema.clone(), 0);
                Batches { source: None, builder, most, left: 0, failed: Some(error) }
            }
        };
        let batches = batches.map(|batch| batch.map_err(DataFusionError::from));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream::iter(batches)))
    }
}

#[expect(clippy::large_enum_variant, reason = "one a scan, never many beside each other")]
enum Source {
    Range(Cursor),
    Point(Vec<u8>, bytes::Bytes),
}

impl RowScan {
    fn open(&self) -> Result<Source, SqlError> {
        let as_slice = |bound: &'_ Bound<Vec<u8>>| -> Bound<Vec<u8>> { bound.clone() };
        if let Some(key) = &self.range.point
            && let Some(row) = self.view.get(self.table.rows, key)?
        {
            return Ok(Source::Point(key.clone(), row));
        }
        let (from, to) = (as_slice(&self.range.from), as_slice(&self.range.to));
        let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        Ok(Source::Range(self.view.scan(self.table.rows, from, to, Direction::Forward)?))
    }
}

/// Batches of a scan, until the first error.
struct Batches {
    source: Option<Source>,
    builder: BatchBuilder,
    most: usize,
    left: usize,
    failed: Option<SqlError>,
}

impl Batches {
    fn fill(&mut self) -> Result<(), SqlError> {
        while self.builder.rows() < self.most && self.left > 0 {
            let next = match self.source.as_mut() {
                Some(Source::Range(cursor)) => cursor.next()?,
                Some(Source::Point(..)) => match self.source.take() {
                    Some(Source::Point(key, row)) => Some((key.into(), row)),
                    _ => None,
                },
                None => None,
            };
            let Some((key, row)) = next else {
                self.source = None;
                break;
            };
            self.builder.push(&key, &row)?;
            self.left -= 1;
        }
        Ok(())
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        self.source.as_ref()?;
        if let Err(error) = self.fill() {
            self.source = None;
            return Some(Err(error));
        }
        (self.builder.rows() > 0).then(|| self.builder.finish())
    }
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
