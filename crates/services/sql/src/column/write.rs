//! [`Appender`]: rows straight into segments, for bulk loads and for the move from row form.
//!
//! A segment's rows are ordered by primary key; input that comes in order is only looked through. Keys are checked against
//! each other, against the table's rows in row form, and against the segments whose keys overlap, by merging: a load in key
//! order behind what is there compares two keys for each segment.
//!
//! That is about what the transaction sees. About what others add meanwhile: whoever adds a row in row form changes its key in
//! the tree of rows, and the keys of a segment count as changed there too, without being stored. So two that add one key
//! conflict, whichever form each of them chose, and the first to commit wins.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use store::{Direction, KEY_BYTES_MAX, Lsn, StoreError, Transaction};

use super::VECTOR_ROWS;
use super::chunk::encode;
use super::descriptor::{Column, Descriptor, Zone};
use super::form::LAST_ROW_ID;
use super::segments::{Shared, Trees, chunk_key, deleted, read_rows};
use crate::SqlError;
use crate::table::Table;
use crate::table::key::{self, KeyColumn};

/// Adds rows to a table's segments in one transaction, which the caller commits. What is left in it when it is dropped
/// instead of finished is lost.
#[derive(Debug)]
pub struct Appender {
    table: Arc<Table>,
    shared: Arc<Shared>,
    waiting: Vec<RecordBatch>,
    rows: usize,
    /// Memory of those that wait, and where a segment is written of fewer rows than a whole one has.
    bytes: usize,
    bytes_max: usize,
    /// Keys were checked by whoever gives the rows: they come from this very table.
    moved: bool,
    /// Numbers of the segments written.
    written: Vec<u32>,
    /// They are forgotten when this is dropped: no view sees them, and none will.
    in_vain: bool,
}

impl Appender {
    pub(crate) fn new(table: Arc<Table>, shared: Arc<Shared>, moved: bool) -> Appender {
        let (waiting, written) = (Vec::new(), Vec::new());
        Appender { table, shared, waiting, rows: 0, bytes: 0, bytes_max: usize::MAX, moved, written, in_vain: moved }
    }

    /// The same, which writes segments of fewer rows where their rows take more than so many bytes of memory.
    pub(crate) fn within(mut self, bytes_max: usize) -> Appender {
        self.bytes_max = bytes_max;
        self
    }

    /// Adds rows with all of the table's columns in their order and of their types; full segments are written.
    ///
    /// Errors: 23505 where a primary key is there already; the transaction is to be rolled back then.
    pub fn push(&mut self, transaction: &mut Transaction, batch: RecordBatch) -> Result<(), SqlError> {
        self.rows += batch.num_rows();
        let bytes = batch.get_array_memory_size();
        self.waiting.push(batch);
        self.bytes += bytes;
        let whole = self.shared.segment_rows;
        while self.rows >= whole {
            self.write(transaction, whole)?;
        }
        // Wide rows make segments of fewer rows: writing one takes several times what it has.
        if self.bytes > self.bytes_max && self.rows > 0 {
            self.write(transaction, self.rows)?;
        }
        Ok(())
    }

    /// Gives back what is left: less than a whole segment.
    pub fn into_rest(mut self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.waiting)
    }

    /// Writes what is left. Errors as for [`push`](Appender::push).
    pub fn finish(mut self, transaction: &mut Transaction) -> Result<(), SqlError> {
        match self.rows {
            0 => Ok(()),
            rows => self.write(transaction, rows),
        }
    }

    /// Writes what is left and commits.
    pub(crate) fn commit(mut self, mut transaction: Transaction) -> Result<Lsn, SqlError> {
        if self.rows > 0 {
            self.write(&mut transaction, self.rows)?;
        }
        let done = transaction.commit();
        // Whether it happened where that poisoned the store is known after opening again.
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
        let seen = last_segment(transaction, &trees)?;
        let segment = self.shared.next(seen);
        let descriptor = write_segment(transaction, &trees, segment, &now, keys.as_ref())?;
        transaction.put(trees.segments, &segment.to_be_bytes(), &descriptor.encode()?)?;
        self.shared.enter(segment, descriptor);
        self.written.push(segment);
        Ok(())
    }

    /// Rows in the order of their keys, and the keys; errors where two are the same.
    fn ordered(&self, batch: RecordBatch) -> Result<(RecordBatch, Option<Keys>), SqlError> {
        if self.table.key.is_empty() {
            return Ok((batch, None));
        }
        let keys = Keys::of(&batch, &self.table.key);
        if let Some(bytes) = keys.all().map(<[u8]>::len).max().filter(|bytes| *bytes > KEY_BYTES_MAX) {
            return Err(key::too_long(bytes));
        }
        if (1..keys.len()).all(|row| keys.get(row - 1) < keys.get(row)) {
            return Ok((batch, Some(keys)));
        }
        let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
        order.sort_by(|&a, &b| keys.get(a as usize).cmp(keys.get(b as usize)));
        let batch = take_record_batch(&batch, &UInt32Array::from(order))?;
        let keys = Keys::of(&batch, &self.table.key);
        match (1..keys.len()).find(|&row| keys.get(row - 1) == keys.get(row)) {
            Some(row) => Err(key::duplicate(&self.table, batch.columns(), row)),
            None => Ok((batch, Some(keys))),
        }
    }

    fn check_unique(&self, transaction: &Transaction, batch: &RecordBatch, keys: &Keys) -> Result<(), SqlError> {
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
        for (segment, descriptor) in meeting {
            let gone = deleted(transaction, &trees, Some(segment))?.remove(&segment).unwrap_or_default();
            let Some((end, firsts)) = descriptor.keys.split_last() else { continue };
            for (vector, begin) in firsts.iter().enumerate() {
                let end = firsts.get(vector + 1).unwrap_or(end);
                if end.as_slice() < first || begin.as_slice() > last {
                    continue;
                }
                let rows = descriptor.vector_rows(vector);
                let at = (segment, descriptor.as_ref());
                let known = read_rows(&get, &self.table, at, vector, &self.table.key, (0, rows))?;
                let known = Keys::of_columns(&known, rows);
                let there = |at: &usize| gone.binary_search(&((vector * VECTOR_ROWS + at) as u32)).is_err();
                if let Some(row) = (0..rows).filter(there).find_map(|at| keys.find(known.get(at))) {
                    return Err(duplicate(row));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        if self.in_vain {
            self.shared.forget(&self.written);
        }
    }
}

/// Encoded primary keys of a batch.
pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    pub(crate) fn of(batch: &RecordBatch, key: &[usize]) -> Keys {
        let columns: Vec<ArrayRef> = key.iter().map(|&at| batch.column(at).clone()).collect();
        Keys::of_columns(&columns, batch.num_rows())
    }

    pub(crate) fn of_columns(columns: &[ArrayRef], rows: usize) -> Keys {
        let columns: Vec<KeyColumn<'_>> = columns.iter().map(KeyColumn::new).collect();
        let mut keys = Keys { bytes: Vec::new(), ends: Vec::with_capacity(rows) };
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

    /// The row of a key; the keys are in order.
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

pub(crate) fn last_segment(transaction: &Transaction, trees: &Trees) -> Result<u32, SqlError> {
    let end = Bound::Excluded(LAST_ROW_ID);
    let mut cursor = transaction.scan(trees.segments, Bound::Unbounded, end, Direction::Backward);
    let last = cursor.next()?.and_then(|(key, _)| key.as_ref().try_into().ok());
    Ok(last.map_or(0, u32::from_be_bytes))
}

/// Writes the chunks of a segment; gives its descriptor.
fn write_segment(
    transaction: &mut Transaction,
    trees: &Trees,
    segment: u32,
    batch: &RecordBatch,
    keys: Option<&Keys>,
) -> Result<Descriptor, SqlError> {
    let rows = batch.num_rows();
    let mut columns = Vec::new();
    for (number, column) in batch.columns().iter().enumerate() {
        let mut firsts = Vec::new();
        for (at, (first, bytes)) in encode(column)?.into_iter().enumerate() {
            transaction.put(trees.chunks, &chunk_key(segment, number, at), &bytes)?;
            firsts.push(first);
        }
        let part = |from: usize| column.slice(from, VECTOR_ROWS.min(rows - from));
        let vectors = (0..rows).step_by(VECTOR_ROWS).map(|from| Zone::of(&part(from)));
        let vectors = vectors.collect::<Result<Vec<_>, _>>()?;
        columns.push(Column::new(firsts, distinct(column)?, Zone::of(column)?, vectors)?);
    }
    let keys = keys.map_or(Vec::new(), |keys| {
        let firsts = (0..rows).step_by(VECTOR_ROWS).map(|row| keys.get(row).to_vec());
        firsts.chain([keys.get(rows - 1).to_vec()]).collect()
    });
    Ok(Descriptor { rows, keys, columns })
}

/// About how many values differ: linear counting (Whang et al., 1990) over twice as many bits as there are rows.
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
