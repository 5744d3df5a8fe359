//! [`RowGroupReader`]: reads one row group during a scan: each chunk when it is needed, once, until the
//! scan has passed it.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::arrow::compute::concat;

use super::Scanned;
use crate::SqlError;
use crate::column::chunk::{ColumnChunk, PickedRows};
use crate::column::row_groups::{RowGroup, absent};
use crate::column::{Address, VECTOR_ROWS, damaged};
use crate::table::BATCH_BYTES;

/// A row group's chunks by column and number; chunks that were not read yet, or that the scan has passed, are absent.
pub(crate) struct RowGroupReader {
    scanned: Arc<Scanned>,
    pub(crate) row_group: RowGroup,
    chunks: Vec<Vec<Option<Arc<ColumnChunk>>>>,
    /// The columns of which a chunk was read.
    is_touched: Vec<bool>,
}

impl RowGroupReader {
    pub(crate) fn new(scanned: Arc<Scanned>, row_group: usize) -> RowGroupReader {
        let row_group = scanned.row_groups.list[row_group].clone();
        let chunks = row_group.metadata.columns.iter().map(|column| vec![None; column.chunks.len()]).collect();
        let is_touched = vec![false; row_group.metadata.columns.len()];
        RowGroupReader { scanned, row_group, chunks, is_touched }
    }

    /// The columns that were read so far.
    pub(crate) fn touched(&self) -> Vec<usize> {
        (0..self.is_touched.len()).filter(|&column| self.is_touched[column]).collect()
    }

    /// Reads all chunks of some columns.
    pub(crate) fn read_ahead(&mut self, columns: &[usize]) -> Result<(), SqlError> {
        for &column in columns {
            for number in 0..self.chunks.get(column).map_or(0, Vec::len) {
                self.numbered(column, number)?;
            }
        }
        Ok(())
    }

    /// Gives up the chunks whose rows all lie before this row: the scan does not come back to them.
    pub(crate) fn release_before(&mut self, row: usize) {
        for (chunks, facts) in self.chunks.iter_mut().zip(&self.row_group.metadata.columns) {
            let ends = facts.chunks.iter().skip(1);
            let passed = ends.take_while(|&&first| usize::from(first) * VECTOR_ROWS <= row).count();
            chunks[..passed].fill(None);
        }
    }

    /// Whether the row group has that column.
    pub(crate) fn has(&self, column: usize) -> bool {
        column < self.chunks.len()
    }

    fn numbered(&mut self, column: usize, number: usize) -> Result<Arc<ColumnChunk>, SqlError> {
        if let Some(chunk) = &self.chunks[column][number] {
            return Ok(chunk.clone());
        }
        let chunk = self.scanned.row_groups.chunk(self.row_group.id, column, number)?;
        let facts = &self.row_group.metadata.columns[column];
        let first = usize::from(facts.chunks[number]) * VECTOR_ROWS;
        let end =
            facts.chunks.get(number + 1).map_or(self.row_group.metadata.rows, |&next| usize::from(next) * VECTOR_ROWS);
        if chunk.rows() != end - first {
            let place = format!("chunk {number} of column {column} of row group {}", self.row_group.id);
            return Err(damaged(format!("{place} has the wrong number of rows")));
        }
        let chunk = Arc::new(chunk);
        self.is_touched[column] = true;
        self.chunks[column][number] = Some(chunk.clone());
        Ok(chunk)
    }

    /// The chunk that contains a row, with its number, its first row and the row behind its last.
    pub(crate) fn chunk_at(&mut self, column: usize, row: usize) -> Result<(Arc<ColumnChunk>, usize, usize), SqlError> {
        let firsts = &self.row_group.metadata.columns[column].chunks;
        let number = firsts.partition_point(|&first| usize::from(first) * VECTOR_ROWS <= row) - 1;
        let first = usize::from(firsts[number]) * VECTOR_ROWS;
        Ok((self.numbered(column, number)?, number, first))
    }

    /// The number of rows that fill a batch's memory, if all are as wide in these columns as those from `row` on; at
    /// least one.
    pub(crate) fn rows_at_once(&mut self, columns: &[usize], row: usize) -> Result<usize, SqlError> {
        let mut bytes = 0;
        for &column in columns {
            bytes += if self.has(column) { self.chunk_at(column, row)?.0.row_bytes() } else { 0 };
        }
        Ok((BATCH_BYTES / bytes.max(1)).max(1))
    }

    /// Values of a column of the addressed schema in rows of the row group.
    pub(crate) fn column(&mut self, column: usize, rows: PickedRows<'_>) -> Result<ArrayRef, SqlError> {
        if column == self.scanned.row_groups.schema().fields().len() {
            return Ok(self.addresses(rows));
        }
        if !self.has(column) {
            return absent(&self.scanned.row_groups.table, column, rows.len());
        }
        match rows {
            PickedRows::Range(from, length) => {
                let mut pieces = Vec::new();
                let mut at = from;
                while at < from + length {
                    let (chunk, _, first) = self.chunk_at(column, at)?;
                    let end = (first + chunk.rows()).min(from + length);
                    pieces.push(chunk.decode(PickedRows::Range(at - first, end - at))?);
                    at = end;
                }
                joined(pieces)
            }
            PickedRows::At(mut rows) => {
                let mut pieces = Vec::new();
                while let Some(&row) = rows.first() {
                    let (chunk, _, first) = self.chunk_at(column, row as usize)?;
                    let here = rows.partition_point(|&row| (row as usize) < first + chunk.rows());
                    let (some, rest) = rows.split_at(here);
                    if first == 0 {
                        pieces.push(chunk.decode(PickedRows::At(some))?);
                    } else {
                        let inside: Vec<u32> = some.iter().map(|&row| row - first as u32).collect();
                        pieces.push(chunk.decode(PickedRows::At(&inside))?);
                    }
                    rows = rest;
                }
                joined(pieces)
            }
        }
    }

    fn addresses(&self, rows: PickedRows<'_>) -> ArrayRef {
        let address = |row: u32| Address { row_group: self.row_group.id, row }.encode();
        let all: Vec<_> = match rows {
            PickedRows::Range(from, length) => (from as u32..(from + length) as u32).map(address).collect(),
            PickedRows::At(rows) => rows.iter().map(|&row| address(row)).collect(),
        };
        Arc::new(BinaryArray::from_iter_values(all))
    }
}

fn joined(mut pieces: Vec<ArrayRef>) -> Result<ArrayRef, SqlError> {
    match (pieces.len(), pieces.pop()) {
        (1, Some(only)) => Ok(only),
        (_, Some(last)) => {
            pieces.push(last);
            let all: Vec<&dyn datafusion::arrow::array::Array> = pieces.iter().map(|piece| piece.as_ref()).collect();
            Ok(concat(&all)?)
        }
        (_, None) => Err(damaged("no rows were requested")),
    }
}
