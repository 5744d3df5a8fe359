//! Moving rows from row form into segments, in ordinary transactions: any view sees a row in one form.
//!
//! Rows go in the order of their keys, from the smallest on, a segment at a time; the ones with the largest keys, which are
//! the newest where keys grow, stay where they are, because they are the ones that still change. A transaction that changes
//! a row while it is moved makes one of the two fail; nothing is lost, and the move is tried again later.

use std::ops::Bound;
use std::sync::Arc;

use store::{Direction, Transaction};

use super::Columns;
use super::form::LAST_ROW_ID;
use super::segments::Trees;
use crate::SqlError;
use crate::table::Table;
use crate::table::row::BatchBuilder;

impl Columns {
    /// Moves one segment's rows, if the table has that many in row form and `keep` more; gives how many were moved, 0 where
    /// there are too few. Durable when it returns. The transaction has just begun, and the table is as it sees it.
    ///
    /// Errors: [`SqlError::Again`] where somebody changed one of the rows meanwhile: nothing was moved.
    pub fn convert(&self, mut transaction: Transaction, table: &Arc<Table>, keep: usize) -> Result<usize, SqlError> {
        let whole = self.segment_rows();
        let mut cursor = transaction.scan(table.rows, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let all: Vec<usize> = (0..table.schema.fields().len()).collect();
        let mut batch = BatchBuilder::new(table, &all, table.schema.clone(), whole);
        let mut keys = Vec::new();
        while keys.len() < whole {
            let Some((key, row)) = cursor.next()? else { return Ok(0) };
            batch.push(&key, &row)?;
            keys.push(key);
        }
        for _ in 0..keep {
            if cursor.next()?.is_none() {
                return Ok(0);
            }
        }
        drop(cursor);
        let mut appender = self.moved(table);
        appender.push(&mut transaction, batch.finish()?)?;
        for key in &keys {
            transaction.delete(table.rows, key)?;
        }
        if table.key.is_empty() {
            let last = keys.last().cloned().unwrap_or_default();
            let trees = Trees::make(&mut transaction, table.storage)?;
            let known = transaction.get(trees.segments, LAST_ROW_ID)?;
            // Row ids are 8 bytes, big-endian: the larger number is the larger string.
            if known.is_none_or(|known| known < last) {
                transaction.put(trees.segments, LAST_ROW_ID, &last)?;
            }
        }
        appender.commit(transaction)?;
        Ok(keys.len())
    }
}
