//! Moves rows from the delta store into row groups, in ordinary transactions: any view sees a row in exactly one of the
//! two.
//!
//! Rows are moved in the order of their keys, from the smallest on, a row group at a time. The rows with the largest
//! keys stay, because these are the newest if keys grow, and still change. If a transaction changes a row while it is
//! moved, one of the two fails; nothing is lost, and the move is tried again later. Rows that a transaction has locked stay too.
//!
//! Entries of indexes lead to primary keys, which stay; where there is none they lead to addresses, and are written anew.

use std::ops::Bound;
use std::sync::Arc;

use store::{Direction, Transaction, TreeId};

use super::row_groups::{LAST_ROW_ID, Trees};
use super::{RowGroupStore, index_entries};
use crate::SqlError;
use crate::table::Table;
use crate::table::index;
use crate::table::row_encoding::BatchBuilder;

impl RowGroupStore {
    /// Moves the rows of one row group, if the table has that many in the delta store and `keep` more. Returns the
    /// number of moved rows, 0 if there are too few. Durable when it returns. The transaction must have just begun, and
    /// `table` must be as it sees it. Rows of the table's tree for whose keys `is_locked` says so are left there. `reserve` is called
    /// before the commit with the keys of the others.
    ///
    /// Errors: those of `reserve`; [`SqlError::Again`] if there are too few rows beside locked ones, or another transaction changed
    /// one of the rows meanwhile: nothing was moved.
    pub fn move_rows(
        &self,
        mut transaction: Transaction,
        table: &Arc<Table>,
        keep: usize,
        is_locked: impl Fn(TreeId, &[u8]) -> bool,
        reserve: impl FnOnce(TreeId, &[&[u8]]) -> Result<(), SqlError>,
    ) -> Result<usize, SqlError> {
        let whole = self.row_group_rows();
        let mut cursor = transaction.scan(table.rows, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let all: Vec<usize> = (0..table.schema.fields().len()).collect();
        let mut batch = BatchBuilder::new(table, &all, table.schema.clone(), whole);
        let (mut keys, mut locked) = (Vec::new(), 0);
        let too_few = |locked: usize| match locked {
            0 => Ok(0),
            _ => Err(SqlError::Again("open transactions have locked rows, and there are few others".into())),
        };
        // Wide rows make row groups of fewer rows: a full one of rows of 12 KB would take 1.5 GB of memory.
        while keys.len() < whole && batch.bytes() < self.row_group_bytes() {
            let Some((key, row)) = cursor.next()? else { return too_few(locked) };
            if is_locked(table.rows, &key) {
                locked += 1;
                continue;
            }
            batch.push(&key, &row)?;
            keys.push(key);
        }
        for _ in 0..keep {
            if cursor.next()?.is_none() {
                return too_few(locked);
            }
        }
        drop(cursor);
        let batch = batch.finish()?;
        if table.key.is_empty() && !table.indexes.is_empty() {
            // The writer adds them with the new addresses.
            let reference = |row: usize, out: &mut Vec<u8>| index::reference_of_key(table, &keys[row], out);
            index_entries::delete_batch(&mut transaction, table, &batch, &reference)?;
        }
        let mut appender = self.moved(table);
        appender.push(&mut transaction, batch)?;
        for key in &keys {
            transaction.delete(table.rows, key)?;
        }
        if table.key.is_empty() {
            let last = keys.last().cloned().unwrap_or_default();
            let trees = Trees::make(&mut transaction, table.storage)?;
            let known = transaction.get(trees.row_groups, LAST_ROW_ID)?;
            // Row ids are 8 bytes, big-endian: the larger number is the larger string.
            if known.is_none_or(|known| known < last) {
                transaction.put(trees.row_groups, LAST_ROW_ID, &last)?;
            }
        }
        reserve(table.rows, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>())?;
        appender.commit(transaction)?;
        Ok(keys.len())
    }
}
