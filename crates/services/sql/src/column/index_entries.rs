//! The entries of indexes for many rows at once: those of row groups that are written, moved or compacted, and of an index that
//! is made for a table with rows.
//!
//! They are searched and written in the order of their keys. A transaction that has spilled its changes then reads each of their
//! parts once, and not once for each row.

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use store::Transaction;

use crate::SqlError;
use crate::table::Table;
use crate::table::index::{self, IndexEncoder};

/// Appends the reference to the row at a position.
pub(crate) type Reference<'a> = dyn Fn(usize, &mut Vec<u8>) + 'a;

/// Entries in the order of their keys.
struct SortedEntries {
    keys: Vec<u8>,
    ends: Vec<usize>,
    /// Positions of the rows, in the order of their keys.
    order: Vec<u32>,
}

impl SortedEntries {
    fn of(encoder: &IndexEncoder<'_>, rows: usize, reference: &Reference<'_>) -> Result<SortedEntries, SqlError> {
        let mut entries = SortedEntries { keys: Vec::new(), ends: Vec::with_capacity(rows), order: Vec::new() };
        let (mut key, mut row_reference) = (Vec::new(), Vec::new());
        for row in 0..rows {
            row_reference.clear();
            reference(row, &mut row_reference);
            encoder.encode(row, &row_reference, &mut key)?;
            entries.keys.extend_from_slice(&key);
            entries.ends.push(entries.keys.len());
        }
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order.sort_by(|a, b| entries.key(*a).cmp(entries.key(*b)));
        entries.order = order;
        Ok(entries)
    }

    fn key(&self, row: u32) -> &[u8] {
        let row = row as usize;
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.keys[from..self.ends[row]]
    }
}

/// Checks that no two of the rows have the same values in a unique index, and no row of the index has them. Returns the row that
/// has them, if there is one.
fn find_duplicate(
    transaction: &Transaction,
    encoder: &IndexEncoder<'_>,
    rows: usize,
) -> Result<Option<usize>, SqlError> {
    if !encoder.index.unique {
        return Ok(None);
    }
    let entries = SortedEntries::of(encoder, rows, &|_, _| {})?;
    let mut last = None;
    for row in entries.order.iter().copied().filter(|row| encoder.is_unique(*row as usize)) {
        let key = entries.key(row);
        if last == Some(key) || transaction.get(encoder.index.tree(), key)?.is_some() {
            return Ok(Some(row as usize));
        }
        last = Some(key);
    }
    Ok(None)
}

/// Adds the entries of rows to an index.
fn put(
    transaction: &mut Transaction,
    encoder: &IndexEncoder<'_>,
    rows: usize,
    reference: &Reference<'_>,
) -> Result<(), SqlError> {
    let entries = SortedEntries::of(encoder, rows, reference)?;
    let mut value = Vec::new();
    for row in &entries.order {
        value.clear();
        reference(*row as usize, &mut value);
        transaction.put(encoder.index.tree(), entries.key(*row), &value)?;
    }
    Ok(())
}

/// Adds rows of a table to an index that is made for it; `indexed` are the index's columns. Errors: 23505, 54000.
pub(crate) fn make(
    transaction: &mut Transaction,
    table: &Table,
    encoder: &IndexEncoder<'_>,
    rows: usize,
    reference: &Reference<'_>,
    indexed: &[ArrayRef],
) -> Result<(), SqlError> {
    match find_duplicate(transaction, encoder, rows)? {
        Some(row) => Err(index::cannot_be_made(table, encoder.index, indexed, row)),
        None => put(transaction, encoder, rows, reference),
    }
}

/// Checks the rows of a batch against all unique indexes of their table. Errors: 23505.
pub(crate) fn check_batch(transaction: &Transaction, table: &Table, batch: &RecordBatch) -> Result<(), SqlError> {
    for one in &table.indexes {
        let encoder = IndexEncoder::new(one, batch.columns());
        if let Some(row) = find_duplicate(transaction, &encoder, batch.num_rows())? {
            let columns: Vec<_> = one.columns.iter().map(|at| batch.column(*at).clone()).collect();
            return Err(index::duplicate(table, one, &columns, row));
        }
    }
    Ok(())
}

/// Adds the rows of a batch to all indexes of their table.
pub(crate) fn put_batch(
    transaction: &mut Transaction,
    table: &Table,
    batch: &RecordBatch,
    reference: &Reference<'_>,
) -> Result<(), SqlError> {
    for one in &table.indexes {
        put(transaction, &IndexEncoder::new(one, batch.columns()), batch.num_rows(), reference)?;
    }
    Ok(())
}

/// Removes the rows of a batch, which is to be written elsewhere, from all indexes of their table.
pub(crate) fn delete_batch(
    transaction: &mut Transaction,
    table: &Table,
    batch: &RecordBatch,
    reference: &Reference<'_>,
) -> Result<(), SqlError> {
    for one in &table.indexes {
        let encoder = IndexEncoder::new(one, batch.columns());
        let entries = SortedEntries::of(&encoder, batch.num_rows(), reference)?;
        for row in &entries.order {
            transaction.delete(one.tree(), entries.key(*row))?;
        }
    }
    Ok(())
}
