//! [`RowScan`]: the rows in the delta store of one range of keys, as a plan of DataFusion.
//!
//! It has one partition, in the order of the primary key. Batches are made directly from the cursor's keys and values,
//! with the projected columns only; the thread that requests a batch reads the pages. A scan of more than one key reads
//! its pages as pages that will not be read again, so it does not evict the pages of other readers.
//!
//! Its statistics for the optimizer are estimates: the number of rows is counted from time to time, and the values are
//! assumed to be similar to those of the table's row groups, if it has any.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::projection::{ProjectionExec, all_alias_free_columns, new_projections_for_columns};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions};
use futures::stream;
use store::{Cursor, Direction};

use super::definition::Table;
use super::key_range::KeyRange;
use super::row_encoding::BatchBuilder;
use super::view::View;
use crate::SqlError;

/// A plan without inputs; see the head of this file.
#[derive(Clone, Debug)]
pub(crate) struct RowScan {
    table: Arc<Table>,
    view: View,
    /// The columns, as positions in the addressed schema.
    projection: Vec<usize>,
    range: KeyRange,
    fetch: Option<usize>,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
}

impl RowScan {
    /// A scan of the columns at those positions of [`Table::addressed`]. `rows` is the approximate number of rows;
    /// `like` contains statistics of the same columns in the column store.
    pub(crate) fn new(
        table: &Arc<Table>,
        view: &View,
        projection: &[usize],
        range: KeyRange,
        fetch: Option<usize>,
        (rows, like): (usize, Option<&Statistics>),
    ) -> Result<RowScan, SqlError> {
        let rows = match range.point {
            Some(_) => rows.min(1),
            None => fetch.map_or(rows, |fetch| rows.min(fetch)),
        };
        let kinds = projection.iter().map(|&at| table.addressed.field(at).data_type());
        let bytes: usize = kinds.map(|kind| rows * kind.primitive_width().unwrap_or(32)).sum();
        let columns = match like {
            Some(like) => like.column_statistics.iter().map(|column| estimate(column, rows)).collect(),
            None => projection.iter().map(|_| ColumnStatistics::new_unknown()).collect(),
        };
        let statistics = Statistics {
            num_rows: Precision::Inexact(rows),
            total_byte_size: Precision::Inexact(bytes),
            column_statistics: columns,
        };
        Ok(RowScan {
            table: table.clone(),
            view: view.clone(),
            projection: projection.to_vec(),
            range,
            fetch,
            statistics: Arc::new(statistics),
            properties: properties(table, projection)?,
        })
    }

    fn open(&self) -> Result<Source, SqlError> {
        if let Some(key) = &self.range.point
            && let Some(row) = self.view.get(self.table.rows, key)?
        {
            return Ok(Source::Point(key.clone(), row));
        }
        let (from, to) = (self.range.from.as_ref().map(Vec::as_slice), self.range.to.as_ref().map(Vec::as_slice));
        Ok(Source::Range(self.view.scan(self.table.rows, from, to, Direction::Forward)?.once()))
    }
}

/// The statistics of a column in the column store, applied to `rows` rows of the delta store.
fn estimate(like: &ColumnStatistics, rows: usize) -> ColumnStatistics {
    let mut column = like.clone().to_inexact();
    column.null_count = Precision::Absent;
    column.sum_value = Precision::Absent;
    column.byte_size = Precision::Absent;
    if let Some(distinct) = column.distinct_count.get_value() {
        column.distinct_count = Precision::Inexact((*distinct).min(rows));
    }
    column
}

fn properties(table: &Table, projection: &[usize]) -> Result<Arc<PlanProperties>, SqlError> {
    let schema: SchemaRef = Arc::new(table.addressed.project(projection)?);
    let sorted = |position: &usize| {
        let at = projection.iter().position(|wanted| wanted == position)?;
        // Systems do not agree on the order of NaN.
        let is_float = matches!(schema.field(at).data_type(), DataType::Float32 | DataType::Float64);
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(at).name(), at));
        (!is_float).then(|| PhysicalSortExpr::new(column, SortOptions::default()))
    };
    let ordering: Vec<_> = table.key.iter().map_while(sorted).collect();
    let known = match ordering.is_empty() {
        true => EquivalenceProperties::new(schema.clone()),
        false => EquivalenceProperties::new_with_orderings(schema.clone(), [ordering]),
    };
    let partitioning = Partitioning::UnknownPartitioning(1);
    Ok(Arc::new(PlanProperties::new(known, partitioning, EmissionType::Incremental, Boundedness::Bounded)))
}

impl DisplayAs for RowScan {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.properties.eq_properties.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        if !matches!(kind, DisplayFormatType::TreeRender) {
            write!(f, "RowScan: ")?;
        }
        write!(f, "columns=[{}]", names.join(", "))?;
        let range = match (&self.range.point, &self.range.from, &self.range.to) {
            (Some(_), _, _) => ", one key",
            (None, Bound::Unbounded, Bound::Unbounded) => "",
            _ => ", a range of keys",
        };
        write!(f, "{range}")?;
        match self.fetch {
            Some(fetch) => write!(f, ", fetch={fetch}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for RowScan {
    fn name(&self) -> &str {
        "RowScan"
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
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.properties.eq_properties.schema().clone();
        let most = context.session_config().batch_size();
        let left = self.fetch.unwrap_or(usize::MAX);
        let builder = BatchBuilder::new(&self.table, &self.projection, schema.clone(), most.min(left));
        let batches = match self.open() {
            Ok(source) => Batches { source: Some(source), builder, most, left, failed: None },
            Err(error) => Batches { source: None, builder, most, left: 0, failed: Some(error) },
        };
        let batches = batches.map(|batch| batch.map_err(DataFusionError::from));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches))))
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(self.statistics.clone())
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(RowScan { fetch, ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if !all_alias_free_columns(projection.expr()) {
            return Ok(None);
        }
        let here: Vec<usize> = (0..self.projection.len()).collect();
        let kept = new_projections_for_columns(projection.expr(), &here);
        let columns = kept.iter().map(|&at| self.statistics.column_statistics[at].clone()).collect();
        let statistics = Statistics { column_statistics: columns, ..self.statistics.as_ref().clone() };
        let projection: Vec<usize> = kept.iter().map(|&at| self.projection[at]).collect();
        let properties = properties(&self.table, &projection)?;
        Ok(Some(Arc::new(RowScan { projection, properties, statistics: Arc::new(statistics), ..self.clone() })))
    }
}

#[expect(clippy::large_enum_variant, reason = "one a scan, never many beside each other")]
enum Source {
    Range(Cursor),
    Point(Vec<u8>, bytes::Bytes),
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
        while self.builder.rows() < self.most && !self.builder.is_full() && self.left > 0 {
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
