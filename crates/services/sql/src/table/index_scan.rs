//! [`IndexScan`]: the rows to which entries of an index lead, as a plan of DataFusion.
//!
//! The entries were read when the plan was made, in its view. It has one partition. A plan that reads a transaction reads its
//! rows when it starts, since the transaction may change them later. Its query may be ended before each row, and each row keeps its own
//! bytes only.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions};
use futures::stream;
use store::StoreError;

use super::BATCH_BYTES;
use super::column_copies::{copied, owned};
use super::column_store::ColumnStore;
use super::definition::{ROW_TAG, Table};
use super::index_ranges::IndexedRows;
use super::row_encoding::BatchBuilder;
use super::view::View;
use crate::SqlError;

/// A plan without inputs; see the head of this file.
#[derive(Clone, Debug)]
pub(crate) struct IndexScan {
    table: Arc<Table>,
    view: View,
    columns: Arc<dyn ColumnStore>,
    /// The columns, as positions in the addressed schema.
    projection: Vec<usize>,
    found: Arc<IndexedRows>,
    /// Those of the query that runs.
    limits: Option<Arc<dyn ReadLimits>>,
    properties: Arc<PlanProperties>,
}

/// What a plan asks while it reads rows between two batches.
pub(crate) trait ReadLimits: fmt::Debug + Send + Sync {
    /// Errors: why the statement must end; 53200 if there is no memory for so many bytes.
    fn may_hold(&self, bytes: usize) -> Result<(), SqlError>;
}

impl IndexScan {
    /// A scan of the columns at those positions of [`Table::addressed`].
    pub(crate) fn new(
        table: &Arc<Table>,
        view: &View,
        columns: &Arc<dyn ColumnStore>,
        projection: &[usize],
        found: IndexedRows,
    ) -> Result<IndexScan, SqlError> {
        let schema: SchemaRef = Arc::new(table.addressed.project(projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(IndexScan {
            table: table.clone(),
            view: view.clone(),
            columns: columns.clone(),
            projection: projection.to_vec(),
            found: Arc::new(found),
            limits: None,
            properties: Arc::new(properties),
        })
    }

    fn schema_now(&self) -> &SchemaRef {
        self.properties.eq_properties.schema()
    }

    /// The same scan, which asks these limits before each row.
    pub(crate) fn within(&self, limits: Arc<dyn ReadLimits>) -> IndexScan {
        IndexScan { limits: Some(limits), ..self.clone() }
    }

    /// The projected columns of a row.
    fn row(&self, reference: &[u8]) -> Result<RecordBatch, SqlError> {
        let key = match reference.split_first() {
            _ if !self.table.key.is_empty() => Some(reference),
            Some((&ROW_TAG, key)) => Some(key),
            _ => None,
        };
        let wanted: Vec<usize> = self.projection.iter().copied().filter(|at| *at < self.table.columns.len()).collect();
        let found = match key {
            Some(key) => match self.view.get(self.table.rows, key)? {
                Some(row) => {
                    let mut builder = BatchBuilder::new(&self.table, &self.projection, self.schema_now().clone(), 1);
                    builder.push(key, &row)?;
                    Some(builder.finish()?)
                }
                None if self.table.key.is_empty() => None,
                None => match self.columns.find(&self.view, &self.table, key)? {
                    Some((address, row)) => {
                        let columns = wanted.iter().map(|at| row.column(*at).clone()).collect();
                        Some(self.with_address(&address, columns)?)
                    }
                    None => None,
                },
            },
            None => match self.columns.row_at(&self.view, &self.table, reference, &wanted)? {
                Some(columns) => Some(self.with_address(reference, columns)?),
                None => None,
            },
        };
        let name = &self.found.index;
        let missing = || StoreError::Corrupt(format!("index {name} has an entry of a row that is not there").into());
        found.ok_or_else(|| missing().into())
    }

    /// A row with its address where that is projected; `columns` are the others.
    fn with_address(&self, address: &[u8], columns: Vec<ArrayRef>) -> Result<RecordBatch, SqlError> {
        let address: ArrayRef = Arc::new(BinaryArray::from_vec(vec![address]));
        let mut columns = columns.into_iter();
        let next = |at: &usize| match *at < self.table.columns.len() {
            true => columns.next(),
            false => Some(address.clone()),
        };
        let all: Vec<ArrayRef> = self.projection.iter().filter_map(next).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        Ok(RecordBatch::try_new_with_options(self.schema_now().clone(), all, &options)?)
    }

    /// The next rows as a batch; at most a batch's number and memory. `held` are the bytes of the batches that wait to be read.
    fn batch(
        &self,
        references: &mut impl Iterator<Item = Bytes>,
        most: usize,
        held: usize,
    ) -> Result<Option<RecordBatch>, SqlError> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < most && bytes < BATCH_BYTES {
            let Some(reference) = references.next() else { break };
            if let Some(limits) = &self.limits {
                limits.may_hold(held)?;
            }
            // Without the rest of the arrays in which it lies.
            let row = owned(&self.row(&reference)?, copied)?;
            bytes += row.get_array_memory_size();
            rows.push(row);
        }
        match rows.is_empty() {
            true => Ok(None),
            false => Ok(Some(concat_batches(self.schema_now(), &rows)?)),
        }
    }
}

impl DisplayAs for IndexScan {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema_now().fields().iter().map(|field| field.name().as_str()).collect();
        if !matches!(kind, DisplayFormatType::TreeRender) {
            write!(f, "IndexScan: ")?;
        }
        write!(f, "index={}, columns=[{}]", self.found.index, names.join(", "))
    }
}

impl ExecutionPlan for IndexScan {
    fn name(&self) -> &str {
        "IndexScan"
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
        let (scan, most) = (self.clone(), context.session_config().batch_size());
        let mut references = self.found.references.clone().into_iter();
        let is_transaction = matches!(self.view, View::Transaction(_));
        let (mut failed, mut held) = (false, 0);
        let batches = std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let batch = scan.batch(&mut references, most, held).transpose();
            failed = matches!(batch, Some(Err(_)));
            if let (true, Some(Ok(batch))) = (is_transaction, &batch) {
                held += batch.get_array_memory_size();
            }
            batch.map(|batch| batch.map_err(DataFusionError::from))
        });
        let schema = self.schema_now().clone();
        if is_transaction {
            let batches: Vec<_> = batches.collect();
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches))));
        }
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches))))
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(self.schema_now());
        statistics.num_rows = Precision::Inexact(self.found.references.len());
        Ok(Arc::new(statistics))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, Int64Array, StringViewArray};
    use datafusion::arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn a_row_lets_go_of_the_others_of_its_vector() {
        let text = |row: usize| (!row.is_multiple_of(7)).then(|| format!("a text that is not short, {row}"));
        let columns: Vec<ArrayRef> = vec![
            Arc::new((0..9000).map(text).collect::<StringViewArray>()),
            Arc::new((0..9000).map(text).map(|text| text.map(String::into_bytes)).collect::<BinaryArray>()),
            Arc::new((0..9000_i64).map(Some).collect::<Int64Array>()),
        ];
        let field = |column: &ArrayRef| Field::new("", column.data_type().clone(), true);
        let fields: Vec<Field> = columns.iter().map(field).collect();
        let all = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns fit their schema");
        for at in [0, 1, 8999] {
            let row = all.slice(at, 1);
            let own = owned(&row, copied).expect("it is copied");
            assert_eq!(own, row);
            let bytes = own.get_array_memory_size();
            assert!(bytes < 8 << 10, "row {at}: {bytes} bytes");
        }
    }
}
