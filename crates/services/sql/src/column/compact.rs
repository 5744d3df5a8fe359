//! Compaction: writes the remaining rows of row groups that have lost rows as one row group, in ordinary transactions.
//!
//! ```text
//!   row group 3   ##..#.#.#..#   \
//!   row group 7   .#.....#....    }  row group 12   ###########
//!   row group 8   ###            /
//!   row group 9   ############       stays
//! ```
//!
//! A row group that has lost a quarter of its rows is due. Its neighbours in the order of keys are compacted with it if
//! they are due too, or fill less than half of a row group, as long as all rows fit in one. The measure is the table's largest row group: where
//! rows are wide, all have fewer rows. Any view sees a row in one
//! row group only. If a transaction deletes a row while its row group is rewritten, one of the two fails: every
//! remaining row counts as changed under its old address.
//!
//! The space of a row group is free again when no snapshot sees it any more.

use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use store::{Transaction, TreeId};

use super::row_groups::{Address, RowGroup, Trees, chunk_key, deleted, list, read_rows, with_deleted};
use super::writer::last_row_group;
use super::{RowGroupStore, VECTOR_ROWS, index_entries};
use crate::SqlError;
use crate::table::Table;

/// A row group is due when it has lost more than one row in this many. At a quarter, three rows are rewritten for each
/// deleted one, and queries, which read the addresses of all deleted rows first, have few to read.
const LOST_ONE_IN: usize = 4;

/// The result of one compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Row groups that were replaced.
    pub row_groups: usize,
    /// Rows that were in them and are now in the new row group.
    pub rows: usize,
}

impl RowGroupStore {
    /// Writes some of the table's row groups that have lost many rows as one; `None` if none is due. Durable when it
    /// returns. The transaction must have just begun, and `table` must be as it sees it. `reserve` is called before the commit with
    /// the keys of the rows in the tree of deleted rows.
    ///
    /// Errors: those of `reserve`; [`SqlError::Again`] if another transaction deleted one of the rows meanwhile: nothing has changed.
    pub fn compact(
        &self,
        mut transaction: Transaction,
        table: &Arc<Table>,
        reserve: impl FnOnce(TreeId, &[&[u8]]) -> Result<(), SqlError>,
    ) -> Result<Option<Compacted>, SqlError> {
        let shared = self.shared(table.storage);
        shared.forget_unseen(transaction.snapshot().store().oldest());
        let Some(trees) = Trees::find(&transaction, table.storage)? else { return Ok(None) };
        let gone = deleted(&transaction, &trees, None)?;
        if gone.is_empty() {
            return Ok(None);
        }
        let listed = list(&transaction, &trees, &table.schema, &shared)?;
        let together = choose(with_deleted(listed, gone).collect());
        if together.is_empty() {
            return Ok(None);
        }
        shared.prepare_leaving(&transaction, table, last_row_group(&transaction, &trees)?)?;
        let mut appender = self.moved(table);
        let mut rows = 0;
        let leads_to_addresses = table.key.is_empty() && !table.indexes.is_empty();
        for row_group in &together {
            rows += row_group.rows();
            for (batch, first) in left(&transaction, &trees, table, row_group)? {
                if leads_to_addresses {
                    // The writer adds them with the new addresses.
                    let there: Vec<u32> = (first..).filter(|row| row_group.has(*row)).take(batch.num_rows()).collect();
                    let reference = |nth: usize, out: &mut Vec<u8>| {
                        out.extend(Address { row_group: row_group.id, row: there[nth] }.encode());
                    };
                    index_entries::delete_batch(&mut transaction, table, &batch, &reference)?;
                }
                appender.push(&mut transaction, batch)?;
            }
        }
        let mut addresses = Vec::new();
        for row_group in &together {
            addresses.extend(remove(&mut transaction, &trees, row_group)?);
        }
        reserve(trees.deleted, &addresses.iter().map(|key| &key[..]).collect::<Vec<_>>())?;
        let lsn = appender.commit(transaction)?;
        together.iter().for_each(|row_group| shared.leaves(row_group.id, lsn));
        Ok(Some(Compacted { row_groups: together.len(), rows }))
    }
}

/// The row groups that become one: the first that is due, and its successors.
fn choose(mut row_groups: Vec<RowGroup>) -> Vec<RowGroup> {
    let whole = row_groups.iter().map(|row_group| row_group.metadata.rows).max().unwrap_or(0);
    let is_due = |row_group: &RowGroup| row_group.deleted.len() * LOST_ONE_IN > row_group.metadata.rows;
    row_groups.retain(|row_group| is_due(row_group) || row_group.rows() * 2 < whole);
    // Row groups without a primary key are in the order of their numbers.
    row_groups.sort_by(|a, b| (a.metadata.keys.first(), a.id).cmp(&(b.metadata.keys.first(), b.id)));
    let Some(first) = row_groups.iter().position(is_due) else { return Vec::new() };
    let mut rows = 0;
    let fitting = row_groups.drain(first..).take_while(|row_group| {
        rows += row_group.rows();
        rows <= whole
    });
    fitting.collect()
}

/// The remaining rows of a row group, a batch for each vector, with the number of the vector's first row.
fn left(
    transaction: &Transaction,
    trees: &Trees,
    table: &Table,
    row_group: &RowGroup,
) -> Result<Vec<(RecordBatch, u32)>, SqlError> {
    let get = |key: &[u8]| Ok(transaction.get(trees.chunks, key)?);
    let all: Vec<usize> = (0..table.columns.len()).collect();
    let mut batches = Vec::new();
    for (vector, first) in (0..row_group.metadata.rows).step_by(VECTOR_ROWS).enumerate() {
        let rows = row_group.metadata.vector_rows(vector);
        let there: BooleanArray = (first..first + rows).map(|row| Some(row_group.has(row as u32))).collect();
        if there.true_count() == 0 {
            continue;
        }
        let columns = read_rows(&get, table, (row_group.id, &row_group.metadata), vector, &all, (0, rows))?;
        let batch = RecordBatch::try_new(table.schema.clone(), columns)?;
        batches.push((filter_record_batch(&batch, &there)?, first as u32));
    }
    Ok(batches)
}

/// Removes a row group, with its chunks and the addresses of its deleted rows. Returns the addresses of the others.
fn remove(transaction: &mut Transaction, trees: &Trees, row_group: &RowGroup) -> Result<Vec<[u8; 8]>, SqlError> {
    let id = row_group.id;
    transaction.delete(trees.row_groups, &id.to_be_bytes())?;
    for (column, facts) in row_group.metadata.columns.iter().enumerate() {
        for chunk in 0..facts.chunks.len() {
            transaction.delete(trees.chunks, &chunk_key(id, column, chunk))?;
        }
    }
    for &row in row_group.deleted.iter() {
        transaction.delete(trees.deleted, &Address { row_group: id, row }.key())?;
    }
    let there = (0..row_group.metadata.rows as u32).filter(|&row| row_group.has(row));
    let there: Vec<_> = there.map(|row| Address { row_group: id, row }.key()).collect();
    transaction.count_as_changed(trees.deleted, there.iter().map(|key| &key[..]));
    Ok(there)
}
