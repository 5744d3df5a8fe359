//! [`ReferencedRows`]: rows by the references to which entries of indexes lead, one after the other.
//!
//! A reference is a row's primary key, or its address in a table without one. What was decoded for a row of
//! a row group is kept for its neighbours.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use store::StoreError;

use super::column_store::{ColumnRows, ColumnStore};
use super::definition::{ROW_TAG, Table};
use super::row_encoding::BatchBuilder;
use super::view::View;
use crate::SqlError;

/// Reads rows of a table, in some columns.
pub(crate) struct ReferencedRows {
    table: Arc<Table>,
    view: View,
    /// The columns, as positions in the addressed schema.
    projection: Vec<usize>,
    schema: SchemaRef,
    builder: BatchBuilder,
    rows: Box<dyn ColumnRows>,
}

impl ReferencedRows {
    /// Reads the columns at those positions of [`Table::addressed`].
    pub(crate) fn new(
        table: &Arc<Table>,
        view: &View,
        columns: &dyn ColumnStore,
        projection: &[usize],
    ) -> Result<ReferencedRows, SqlError> {
        let schema: SchemaRef = Arc::new(table.addressed.project(projection)?);
        let stored: Vec<usize> = projection.iter().copied().filter(|at| *at < table.columns.len()).collect();
        Ok(ReferencedRows {
            table: table.clone(),
            view: view.clone(),
            projection: projection.to_vec(),
            builder: BatchBuilder::new(table, projection, schema.clone(), 1),
            schema,
            rows: columns.rows(view, table, &stored),
        })
    }

    /// The row of a reference, which the index of that name has; it may lie in arrays of more rows.
    ///
    /// Errors: damaged, if the row is not there.
    pub(crate) fn get(&mut self, index: &str, reference: &[u8]) -> Result<RecordBatch, SqlError> {
        let missing = || StoreError::Corrupt(format!("index {index} has an entry of a row that is not there").into());
        self.find(reference)?.ok_or_else(|| missing().into())
    }

    fn find(&mut self, reference: &[u8]) -> Result<Option<RecordBatch>, SqlError> {
        let key = match reference.split_first() {
            _ if !self.table.key.is_empty() => reference,
            Some((&ROW_TAG, key)) => key,
            _ => return self.in_row_group(reference),
        };
        if let Some(row) = self.view.get(self.table.rows, key)? {
            self.builder.push(key, &row)?;
            return self.builder.finish().map(Some);
        }
        if self.table.key.is_empty() {
            return Ok(None);
        }
        match self.rows.with_key(&self.table, key)? {
            Some(address) => self.in_row_group(&address),
            None => Ok(None),
        }
    }

    /// The row at an address in the column store.
    fn in_row_group(&mut self, address: &[u8]) -> Result<Option<RecordBatch>, SqlError> {
        let Some((columns, row)) = self.rows.at(&self.table, address)? else { return Ok(None) };
        let mut columns = columns.iter().map(|column| column.slice(row, 1));
        let stored = self.table.columns.len();
        let next = |at: &usize| match *at < stored {
            true => columns.next(),
            false => Some(Arc::new(BinaryArray::from_vec(vec![address])) as ArrayRef),
        };
        let all: Vec<ArrayRef> = self.projection.iter().filter_map(next).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        Ok(Some(RecordBatch::try_new_with_options(self.schema.clone(), all, &options)?))
    }
}
