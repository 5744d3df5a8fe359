//! [`RowGroupWriter`]: writes rows directly into row groups, for bulk loads and for the move from the delta store.
//!
//! A row group's rows are ordered by primary key; input that is already in order is only checked. Keys are compared
//! with each other, with the table's rows in the delta store, and with the row groups whose keys overlap, by merging. A
//! load in key order behind the existing keys compares two keys for each row group.
//!
//! These checks cover what the transaction sees. Rows that other transactions add meanwhile are found as conflicts: a
//! transaction that adds a row in the delta store changes its key in the tree of rows, and the keys of a row group
//! count as changed there too, without being stored. So two transactions that add one key conflict, in whichever store
//! each of them adds it, and the first to commit wins.
//!
//! Values of unique indexes are searched in their trees, in which the entries of the row group are written too.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use store::{Direction, KEY_BYTES_MAX, Lsn, StoreError, Transaction};

use super::VECTOR_ROWS;
use super::chunk::encode;
use super::index_entries;
use super::metadata::{ColumnMetadata, RowGroupMetadata, Zone};
use super::row_groups::{Address, LAST_ROW_ID, RowGroupCache, Trees, chunk_key, deleted, read_rows};
use crate::SqlError;
use crate::table::Table;
use crate::table::key::{self, KeyColumn};

/// Adds rows to a table's row groups in one transaction, which the caller commits. Waiting rows are lost if the writer
/// is dropped instead of finished.
#[derive(Debug)]
pub struct RowGroupWriter {
    table: Arc<Table>,
    shared: Arc<RowGroupCache>,
    waiting: Vec<RecordBatch>,
    rows: usize,
    /// Memory of the waiting rows, and the bound at which a row group is written with fewer rows than a full one.
    bytes: usize,
    bytes_max: usize,
    /// The caller has checked the keys: the rows come from this table.
    moved: bool,
    /// Numbers of the row groups written.
    written: Vec<u32>,
    /// Whether the written row groups are forgotten when this is dropped: no view sees them, now or later.
    in_vain: bool,
}

impl RowGroupWriter {
    pub(crate) fn new(table: Arc<Table>, shared: Arc<RowGroupCache>, moved: bool) -> RowGroupWriter {
        let (waiting, written) = (Vec::new(), Vec::new());
        RowGroupWriter {
            table,
            shared,
            waiting,
            rows: 0,
            bytes: 0,
            bytes_max: usize::MAX,
            moved,
            written,
            in_vain: moved,
        }
    }

    /// The same writer, which also writes a row group of fewer rows when the waiting rows take more than `bytes_max`
    /// bytes of memory.
    pub(crate) fn within(mut self, bytes_max: usize) -> RowGroupWriter {
        self.bytes_max = bytes_max;
        self
    }

    /// Adds rows with all of the table's columns in their order and of their types; full row groups are written.
    ///
    /// Errors: 23505 if a primary key exists already; the transaction must then be rolled back.
    pub fn push(&mut self, transaction: &mut Transaction, batch: RecordBatch) -> Result<(), SqlError> {
        let bytes = batch.get_array_memory_size();
        // Wide rows make row groups of fewer rows: writing a row group takes several times its own memory, and so do the scans that read it.
        if self.bytes > self.bytes_max / 2 && self.bytes.saturating_add(bytes) > self.bytes_max {
            self.write(transaction, self.rows)?;
        }
        self.rows += batch.num_rows();
        self.waiting.push(batch);
        self.bytes += bytes;
        let whole = self.shared.row_group_rows;
        while self.rows >= whole {
            self.write(transaction, whole)?;
        }
        if self.bytes > self.bytes_max && self.rows > 0 {
            self.write(transaction, self.rows)?;
        }
        Ok(())
    }

    /// Returns the waiting rows: less than a full row group.
    pub fn into_rest(mut self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.waiting)
    }

    /// Whether it has written a row group.
    pub(crate) fn has_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// The number of waiting rows.
    pub(crate) fn rows_left(&self) -> usize {
        self.rows
    }

    /// The waiting rows as one batch. Its primary keys are checked to be unique in the batch and new in the table.
    /// Errors: 23505.
    pub(crate) fn into_checked_rest(self, transaction: &Transaction) -> Result<RecordBatch, SqlError> {
        let (rest, keys) = self.ordered(concat_batches(&self.table.schema, &self.waiting)?)?;
        if let Some(keys) = keys.filter(|keys| keys.len() > 0) {
            self.check_unique(transaction, &rest, &keys)?;
        }
        index_entries::check_batch(transaction, &self.table, &rest)?;
        Ok(rest)
    }

    /// Writes the waiting rows. Errors as for [`push`](RowGroupWriter::push).
    pub fn finish(mut self, transaction: &mut Transaction) -> Result<(), SqlError> {
        match self.rows {
            0 => Ok(()),
            rows => self.write(transaction, rows),
        }
    }

    /// Writes the waiting rows and commits.
    pub(crate) fn commit(mut self, mut transaction: Transaction) -> Result<Lsn, SqlError> {
        if self.rows > 0 {
            self.write(&mut transaction, self.rows)?;
        }
        let done = transaction.commit();
        // If the commit poisoned the store, its outcome is known only after reopening.
        self.in_vain = !matches!(done, Ok(_) | Err(StoreError::Poisoned { .. }));
        Ok(done?)
    }

    fn write(&mut self, transaction: &mut Transaction, rows: usize) -> Result<(), SqlError> {
        let all = concat_batches(&self.table.schema, &self.waiting)?;
        let (now, later) = (all.slice(0, rows), all.slice(rows, all.num_rows() - rows));
        self.rows = later.num_rows();
        self.bytes = if self.rows == 0 { 0 } else { later.get_array_memory_size() };
        self.waiting = if self.rows == 0 { Vec::new() } else { vec![later] };
        let trees = Trees::make(transaction, self.table.storage)?;
        let (now, keys) = self.ordered(now)?;
        if let (Some(keys), false) = (&keys, self.moved) {
            self.check_unique(transaction, &now, keys)?;
            transaction.count_as_changed(self.table.rows, keys.all());
        }
        if !self.moved {
            index_entries::check_batch(transaction, &self.table, &now)?;
        }
        let seen = last_row_group(transaction, &trees)?;
        let row_group = self.shared.next(seen);
        let metadata = write_row_group(transaction, &trees, row_group, &now, keys.as_ref())?;
        transaction.put(trees.row_groups, &row_group.to_be_bytes(), &metadata.encode()?)?;
        self.shared.enter(row_group, metadata);
        self.written.push(row_group);
        self.put_entries(transaction, &now, keys.as_ref(), row_group)
    }

    /// Adds the rows of a row group to the indexes. Of rows that come from the table only the addresses are new.
    fn put_entries(
        &self,
        transaction: &mut Transaction,
        batch: &RecordBatch,
        keys: Option<&BatchKeys>,
        row_group: u32,
    ) -> Result<(), SqlError> {
        match keys {
            Some(_) if self.moved => Ok(()),
            Some(keys) => {
                let reference = |row: usize, out: &mut Vec<u8>| out.extend_from_slice(keys.get(row));
                index_entries::put_batch(transaction, &self.table, batch, &reference)
            }
            None => {
                let address = |row: usize| Address { row_group, row: row as u32 }.encode();
                let reference = |row: usize, out: &mut Vec<u8>| out.extend(address(row));
                index_entries::put_batch(transaction, &self.table, batch, &reference)
            }
        }
    }

    /// The rows in the order of their keys, and the keys. Errors if two keys are equal.
    fn ordered(&self, batch: RecordBatch) -> Result<(RecordBatch, Option<BatchKeys>), SqlError> {
        if self.table.key.is_empty() {
            return Ok((batch, None));
        }
        let keys = BatchKeys::of(&batch, &self.table.key);
        if let Some(bytes) = keys.all().map(<[u8]>::len).max().filter(|bytes| *bytes > KEY_BYTES_MAX) {
            return Err(key::too_long(bytes));
        }
        if (1..keys.len()).all(|row| keys.get(row - 1) < keys.get(row)) {
            return Ok((batch, Some(keys)));
        }
        let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
        order.sort_by(|&a, &b| keys.get(a as usize).cmp(keys.get(b as usize)));
        let batch = take_record_batch(&batch, &UInt32Array::from(order))?;
        let keys = BatchKeys::of(&batch, &self.table.key);
        match (1..keys.len()).find(|&row| keys.get(row - 1) == keys.get(row)) {
            Some(row) => Err(key::duplicate(&self.table, batch.columns(), row)),
            None => Ok((batch, Some(keys))),
        }
    }

    fn check_unique(&self, transaction: &Transaction, batch: &RecordBatch, keys: &BatchKeys) -> Result<(), SqlError> {
        let duplicate = |row| key::duplicate(&self.table, batch.columns(), row);
        let (first, last) = (keys.get(0), keys.get(keys.len() - 1));
        let range = (Bound::Included(first), Bound::Included(last));
        let mut cursor = transaction.scan(self.table.rows, range.0, range.1, Direction::Forward);
        while let Some((known, _)) = cursor.next()? {
            if let Some(row) = keys.find(&known) {
                return Err(duplicate(row));
            }
        }
        let Some((trees, meeting)) = self.shared.meeting(transaction, &self.table, first, last)? else {
            return Ok(());
        };
        let get = |key: &[u8]| Ok(transaction.get(trees.chunks, key)?);
        for (row_group, metadata) in meeting {
            let gone = deleted(transaction, &trees, Some(row_group))?.remove(&row_group).unwrap_or_default();
            let Some((end, firsts)) = metadata.keys.split_last() else { continue };
            for (vector, begin) in firsts.iter().enumerate() {
                let end = firsts.get(vector + 1).unwrap_or(end);
                if end.as_slice() < first || begin.as_slice() > last {
                    continue;
                }
                let rows = metadata.vector_rows(vector);
                let at = (row_group, metadata.as_ref());
                let known = read_rows(&get, &self.table, at, vector, &self.table.key, (0, rows))?;
                let known = BatchKeys::of_columns(&known, rows);
                let there = |at: &usize| gone.binary_search(&((vector * VECTOR_ROWS + at) as u32)).is_err();
                if let Some(row) = (0..rows).filter(there).find_map(|at| keys.find(known.get(at))) {
                    return Err(duplicate(row));
                }
            }
        }
        Ok(())
    }
}

impl Drop for RowGroupWriter {
    fn drop(&mut self) {
        if self.in_vain {
            self.shared.forget(&self.written);
        }
    }
}

/// Encoded primary keys of a batch.
pub(crate) struct BatchKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl BatchKeys {
    pub(crate) fn of(batch: &RecordBatch, key: &[usize]) -> BatchKeys {
        let columns: Vec<ArrayRef> = key.iter().map(|&at| batch.column(at).clone()).collect();
        BatchKeys::of_columns(&columns, batch.num_rows())
    }

    pub(crate) fn of_columns(columns: &[ArrayRef], rows: usize) -> BatchKeys {
        let columns: Vec<KeyColumn<'_>> = columns.iter().map(KeyColumn::new).collect();
        let mut keys = BatchKeys { bytes: Vec::new(), ends: Vec::with_capacity(rows) };
        for row in 0..rows {
            columns.iter().for_each(|column| column.encode(row, &mut keys.bytes));
            keys.ends.push(keys.bytes.len());
        }
        keys
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, row: usize) -> &[u8] {
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[from..self.ends[row]]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// The row with this key; the keys are in order.
    fn find(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }
}

pub(crate) fn last_row_group(transaction: &Transaction, trees: &Trees) -> Result<u32, SqlError> {
    let end = Bound::Excluded(LAST_ROW_ID);
    let mut cursor = transaction.scan(trees.row_groups, Bound::Unbounded, end, Direction::Backward);
    let last = cursor.next()?.and_then(|(key, _)| key.as_ref().try_into().ok());
    Ok(last.map_or(0, u32::from_be_bytes))
}

/// Writes the chunks of a row group. Returns its metadata.
fn write_row_group(
    transaction: &mut Transaction,
    trees: &Trees,
    row_group: u32,
    batch: &RecordBatch,
    keys: Option<&BatchKeys>,
) -> Result<RowGroupMetadata, SqlError> {
    let rows = batch.num_rows();
    let mut columns = Vec::new();
    for (number, column) in batch.columns().iter().enumerate() {
        let mut firsts = Vec::new();
        for (at, (first, bytes)) in encode(column)?.into_iter().enumerate() {
            transaction.put(trees.chunks, &chunk_key(row_group, number, at), &bytes)?;
            firsts.push(first);
        }
        let part = |from: usize| column.slice(from, VECTOR_ROWS.min(rows - from));
        let vectors = (0..rows).step_by(VECTOR_ROWS).map(|from| Zone::of(&part(from)));
        let vectors = vectors.collect::<Result<Vec<_>, _>>()?;
        columns.push(ColumnMetadata::new(firsts, distinct(column)?, Zone::of(column)?, vectors)?);
    }
    let keys = keys.map_or(Vec::new(), |keys| {
        let firsts = (0..rows).step_by(VECTOR_ROWS).map(|row| keys.get(row).to_vec());
        firsts.chain([keys.get(rows - 1).to_vec()]).collect()
    });
    Ok(RowGroupMetadata { rows, keys, columns })
}

/// The approximate number of distinct values: linear counting (Whang et al., 1990) over twice as many bits as there are
/// rows.
fn distinct(column: &ArrayRef) -> Result<u32, SqlError> {
    let bits = (column.len() * 2).next_power_of_two().max(64);
    let mut hashes = vec![0u64; column.len()];
    create_hashes(std::slice::from_ref(column), &RandomState::with_seed(1), &mut hashes)?;
    let mut seen = vec![0u64; bits / 64];
    for hash in hashes {
        let bit = hash as usize % bits;
        seen[bit / 64] |= 1 << (bit % 64);
    }
    let empty = bits - seen.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    let estimate = bits as f64 * (bits as f64 / empty.max(1) as f64).ln();
    Ok((estimate.round() as u32).clamp(1, column.len().max(1) as u32))
}
