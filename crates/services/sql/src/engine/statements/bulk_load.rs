//! [`BulkLoad`]: the rows of COPY, INSERT .. SELECT and CREATE TABLE AS.
//!
//! Rows wait until they fill a whole row group of 122,880 rows; then they go directly to the column store. The rest at
//! the end, less than one row group, goes to the delta store like any other row, so small statements never make small
//! row groups. Both are written in the session's transaction: ROLLBACK and savepoints undo both.
//!
//! NULL, and what a CHECK constraint excludes, is refused when rows come. An existing primary key is refused only when its row group is full, or at the end.
//! In both cases the whole statement fails.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};

use super::references;
use super::row_changes::{Existing, check_rows};
use crate::SqlError;
use crate::column::RowGroupWriter;
use crate::engine::Engine;
use crate::engine::run::owned_batches;
use crate::engine::session::transaction::SessionTransaction;
use crate::table::Table;

/// If row groups were written and at least this many rows remain, their keys are searched as those of a row group are,
/// by a walk over the keys of the table: the transaction may have spilled these keys, and each single search would read
/// them from the journal. In other cases keys are searched one by one, whatever the size of the table.
const CHECKED_TOGETHER: usize = 1024;

/// A large number of rows on their way into a table.
pub(crate) struct BulkLoad {
    engine: Arc<Engine>,
    table: Arc<Table>,
    appender: RowGroupWriter,
    row_group_bytes: usize,
    rows: u64,
}

impl BulkLoad {
    pub(crate) fn new(engine: &Arc<Engine>, table: &Arc<Table>) -> BulkLoad {
        let (row_group_bytes, appender) = (engine.columns.row_group_bytes(), engine.columns.append(table));
        BulkLoad { engine: engine.clone(), table: table.clone(), appender, row_group_bytes, rows: 0 }
    }

    /// Adds rows that have all of the table's columns, in its types.
    pub(crate) fn push(&mut self, transaction: &SessionTransaction, columns: Vec<ArrayRef>) -> Result<(), SqlError> {
        if self.table.refers_to(self.table.id) {
            // Its rows are looked for while others come: they cannot wait for a row group.
            self.rows += columns.first().map_or(0, |column| column.len()) as u64;
            return self.engine.insert_rows(transaction, &self.table, &columns, Existing::Refuse).map(drop);
        }
        check_rows(transaction, &self.table, &columns)?;
        if !self.table.foreign_keys.is_empty() {
            let rows: Vec<usize> = (0..columns.first().map_or(0, |column| column.len())).collect();
            references::note_written(transaction, &self.table, &columns, &rows)?;
        }
        let batch = RecordBatch::try_new(self.table.schema.clone(), columns)?;
        self.rows += batch.num_rows() as u64;
        // Waiting rows are counted by the memory that they hold: a slice of a row group's texts would count as all of
        // them.
        let rows = self.rows_at_once(&batch);
        for part in owned_batches::parts(Ok(batch), rows) {
            let part = part?;
            transaction.with(|transaction| self.appender.push(transaction, part))?;
        }
        Ok(())
    }

    /// The number of rows of a batch that take about as much memory as the waiting rows may.
    fn rows_at_once(&self, batch: &RecordBatch) -> usize {
        let parts = batch.get_array_memory_size().div_ceil(self.row_group_bytes.max(1));
        batch.num_rows().div_ceil(parts.max(1)).max(1)
    }

    /// Writes the remaining rows, and returns the number of all rows.
    pub(crate) fn finish(self, transaction: &SessionTransaction) -> Result<u64, SqlError> {
        // The keys to which its rows refer were looked for when they came.
        let table = Table { foreign_keys: Vec::new(), ..(*self.table).clone() };
        if !self.appender.has_written() || self.appender.rows_left() < CHECKED_TOGETHER {
            for batch in self.appender.into_rest() {
                self.engine.insert_rows(transaction, &table, batch.columns(), Existing::Refuse)?;
            }
            return Ok(self.rows);
        }
        let rest = transaction.with(|transaction| self.appender.into_checked_rest(transaction))?;
        self.engine.insert_rows(transaction, &table, rest.columns(), Existing::NoneIs)?;
        Ok(self.rows)
    }
}
