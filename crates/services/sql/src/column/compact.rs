//! Compaction: what is left of segments that have lost rows, written as one segment, in ordinary transactions.
//!
//! ```text
//!   segment 3   ##..#.#.#..#   \
//!   segment 7   .#.....#....    }  segment 12   ###########
//!   segment 8   ###            /
//!   segment 9   ############       stays
//! ```
//!
//! A segment that has lost a quarter of its rows is due. With it go those beside it, in the order of keys, that are due too or
//! fill less than half of a segment, as long as all fits in one. Any view sees a row in one segment only. A transaction that
//! deletes a row while its segment is written anew makes one of the two fail: every row that is there counts as changed under
//! its old address.
//!
//! What a segment took is free again when no snapshot sees it any more.

use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use store::Transaction;

use super::segments::{Address, Segment, Trees, chunk_key, deleted, list, read_rows, with_deleted};
use super::write::last_segment;
use super::{Columns, VECTOR_ROWS};
use crate::SqlError;
use crate::table::Table;

/// A segment is due that has lost more than one of so many of its rows. At a quarter, three rows are written again for each that
/// was deleted, and queries, which read the addresses of all deleted rows first, have few to read.
const LOST_ONE_IN: usize = 4;

/// What one compaction has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Segments that are gone.
    pub segments: usize,
    /// Rows that were in them and are in the one that took their place.
    pub rows: usize,
}

impl Columns {
    /// Writes some of the table's segments that have lost many rows as one; `None` where none is due. Durable when it returns.
    /// The transaction has just begun, and the table is as it sees it.
    ///
    /// Errors: [`SqlError::Again`] where somebody deleted one of the rows meanwhile: nothing has changed.
    pub fn compact(&self, mut transaction: Transaction, table: &Arc<Table>) -> Result<Option<Compacted>, SqlError> {
        let shared = self.shared(table.storage);
        shared.forget_unseen(transaction.snapshot().store().oldest());
        let Some(trees) = Trees::find(&transaction, table.storage)? else { return Ok(None) };
        let gone = deleted(&transaction, &trees, None)?;
        if gone.is_empty() {
            return Ok(None);
        }
        let listed = list(&transaction, &trees, &table.schema, &shared)?;
        let together = choose(with_deleted(listed, gone).collect(), self.segment_rows());
        if together.is_empty() {
            return Ok(None);
        }
        shared.prepare_leaving(&transaction, table, last_segment(&transaction, &trees)?)?;
        let mut appender = self.moved(table);
        let mut rows = 0;
        for segment in &together {
            rows += segment.rows();
            for batch in left(&transaction, &trees, table, segment)? {
                appender.push(&mut transaction, batch)?;
            }
        }
        for segment in &together {
            remove(&mut transaction, &trees, segment)?;
        }
        let lsn = appender.commit(transaction)?;
        together.iter().for_each(|segment| shared.leaves(segment.id, lsn));
        Ok(Some(Compacted { segments: together.len(), rows }))
    }
}

/// The segments that become one: the first that is due, and those behind it.
fn choose(mut segments: Vec<Segment>, whole: usize) -> Vec<Segment> {
    let is_due = |segment: &Segment| segment.deleted.len() * LOST_ONE_IN > segment.descriptor.rows;
    segments.retain(|segment| is_due(segment) || segment.rows() * 2 < whole);
    // Without a primary key in the order of their numbers.
    segments.sort_by(|a, b| (a.descriptor.keys.first(), a.id).cmp(&(b.descriptor.keys.first(), b.id)));
    let Some(first) = segments.iter().position(is_due) else { return Vec::new() };
    let mut rows = 0;
    let fitting = segments.drain(first..).take_while(|segment| {
        rows += segment.rows();
        rows <= whole
    });
    fitting.collect()
}

/// The rows of a segment that are there, a batch for each vector.
fn left(
    transaction: &Transaction,
    trees: &Trees,
    table: &Table,
    segment: &Segment,
) -> Result<Vec<RecordBatch>, SqlError> {
    let get = |key: &[u8]| Ok(transaction.get(trees.chunks, key)?);
    let all: Vec<usize> = (0..table.columns.len()).collect();
    let mut batches = Vec::new();
    for (vector, first) in (0..segment.descriptor.rows).step_by(VECTOR_ROWS).enumerate() {
        let rows = segment.descriptor.vector_rows(vector);
        let there: BooleanArray = (first..first + rows).map(|row| Some(segment.has(row as u32))).collect();
        if there.true_count() == 0 {
            continue;
        }
        let columns = read_rows(&get, table, (segment.id, &segment.descriptor), vector, &all, (0, rows))?;
        let batch = RecordBatch::try_new(table.schema.clone(), columns)?;
        batches.push(filter_record_batch(&batch, &there)?);
    }
    Ok(batches)
}

/// Takes a segment away, with its chunks and the addresses of its deleted rows.
fn remove(transaction: &mut Transaction, trees: &Trees, segment: &Segment) -> Result<(), SqlError> {
    let id = segment.id;
    transaction.delete(trees.segments, &id.to_be_bytes())?;
    for (column, facts) in segment.descriptor.columns.iter().enumerate() {
        for chunk in 0..facts.chunks.len() {
            transaction.delete(trees.chunks, &chunk_key(id, column, chunk))?;
        }
    }
    for &row in segment.deleted.iter() {
        transaction.delete(trees.deleted, &Address { segment: id, row }.key())?;
    }
    let there = (0..segment.descriptor.rows as u32).filter(|&row| segment.has(row));
    let there: Vec<_> = there.map(|row| Address { segment: id, row }.key()).collect();
    transaction.count_as_changed(trees.deleted, there.iter().map(|key| &key[..]));
    Ok(())
}
