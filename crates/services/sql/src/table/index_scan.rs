//! [`IndexScan`]: the rows to which entries of an index lead, as a plan of DataFusion.
//!
//! The entries were read when the plan was made, in its view. It has one partition. A plan that reads a transaction reads its
//! rows when it starts, since the transaction may change them later. Its query may be ended before each row, and each row keeps its own
//! bytes only.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
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

use super::BATCH_BYTES;
use super::column_copies::{copied, owned};
use super::column_store::ColumnStore;
use super::definition::Table;
use super::index_ranges::IndexedRows;
use super::referenced_rows::ReferencedRows;
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
    /// Errors: why the statement must end; 53200 if it has taken too much memory, what was read before included.
    fn may_go_on(&self) -> Result<(), SqlError>;
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

    /// The next rows as a batch; at most a batch's number and memory.
    fn batch(
        &self,
        rows: &mut ReferencedRows,
        references: &mut impl Iterator<Item = Bytes>,
        most: usize,
    ) -> Result<Option<RecordBatch>, SqlError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        while found.len() < most && bytes < BATCH_BYTES {
            let Some(reference) = references.next() else { break };
            if let Some(limits) = &self.limits {
                limits.may_go_on()?;
            }
            // Without the rest of the arrays in which it lies.
            let row = owned(&rows.get(&self.found.index, &reference)?, copied)?;
            bytes += row.get_array_memory_size();
            found.push(row);
        }
        match found.is_empty() {
            true => Ok(None),
            false => Ok(Some(concat_batches(self.schema_now(), &found)?)),
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
        let mut rows = ReferencedRows::new(&self.table, &self.view, &*self.columns, &self.projection)?;
        let mut references = self.found.references.clone().into_iter();
        let is_transaction = matches!(self.view, View::Transaction(_));
        let mut failed = false;
        let batches = std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let batch = scan.batch(&mut rows, &mut references, most).transpose();
            failed = matches!(batch, Some(Err(_)));
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
    use datafusion::arrow::array::{Array, ArrayRef, BinaryArray, Int64Array, StringViewArray};
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
