//! [`Bulk`]: the rows of COPY, INSERT .. SELECT and CREATE TABLE AS.
//!
//! Rows wait until they fill a whole segment, 122,880 of them; then they go straight to column form. What is left at the
//! end, less than one segment, goes to row form like any other row: small statements never make small segments. Both in the
//! session's transaction, so that ROLLBACK and savepoints undo both.
//!
//! NULL is refused when rows come; a primary key that is there only when their segment is full, or at the end. In either case
//! the statement fails as a whole.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};

use super::Engine;
use super::apply::{Existing, check_nulls};
use super::block::Block;
use crate::SqlError;
use crate::column::Appender;
use crate::table::Table;

/// Rows of a segment may take this part of the memory of statements before they are written: sorted, encoded and handed to the store they
/// take four times as much.
const SEGMENT_OF: usize = 16;

/// Many rows on their way into a table.
pub(crate) struct Bulk {
    engine: Arc<Engine>,
    table: Arc<Table>,
    appender: Appender,
    rows: u64,
}

impl Bulk {
    pub(crate) fn new(engine: &Arc<Engine>, table: &Arc<Table>) -> Bulk {
        let appender = engine.columns.append(table).within(engine.options.query_bytes / SEGMENT_OF);
        Bulk { engine: engine.clone(), table: table.clone(), appender, rows: 0 }
    }

    /// Adds rows that have all of the table's columns, in its types.
    pub(crate) fn push(&mut self, block: &Block, columns: Vec<ArrayRef>) -> Result<(), SqlError> {
        check_nulls(&self.table, &columns)?;
        let batch = RecordBatch::try_new(self.table.schema.clone(), columns)?;
        self.rows += batch.num_rows() as u64;
        block.with(|transaction| self.appender.push(transaction, batch))
    }

    /// Writes what is left, and says how many rows there were.
    pub(crate) fn finish(self, block: &Block) -> Result<u64, SqlError> {
        for batch in self.appender.into_rest() {
            self.engine.insert_rows(block, &self.table, batch.columns(), Existing::Refuse)?;
        }
        Ok(self.rows)
    }
}
