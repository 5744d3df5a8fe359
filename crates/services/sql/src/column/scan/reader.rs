//! [`Reader`]: one segment while it is scanned: chunks as they are needed, each read once.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::arrow::compute::concat;

use super::Scanned;
use crate::SqlError;
use crate::column::chunk::{Chunk, Rows};
use crate::column::segments::{Segment, absent};
use crate::column::{Address, VECTOR_ROWS, damaged};

/// A segment's chunks by column and number; those not read yet are absent.
pub(crate) struct Reader {
    scanned: Arc<Scanned>,
    pub(crate) segment: Segment,
    chunks: Vec<Vec<Option<Arc<Chunk>>>>,
}

impl Reader {
    pub(crate) fn new(scanned: Arc<Scanned>, segment: usize) -> Reader {
        let segment = scanned.segments.list[segment].clone();
        let chunks = segment.descriptor.columns.iter().map(|column| vec![None; column.chunks.len()]).collect();
        Reader { scanned, segment, chunks }
    }

    /// Which columns were read so far.
    pub(crate) fn touched(&self) -> Vec<usize> {
        let read = |chunks: &Vec<Option<Arc<Chunk>>>| chunks.iter().any(Option::is_some);
        self.chunks.iter().enumerate().filter(|(_, chunks)| read(chunks)).map(|(column, _)| column).collect()
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

    /// Whether the segment has that column.
    pub(crate) fn has(&self, column: usize) -> bool {
        column < self.chunks.len()
    }

    fn numbered(&mut self, column: usize, number: usize) -> Result<Arc<Chunk>, SqlError> {
        if let Some(chunk) = &self.chunks[column][number] {
            return Ok(chunk.clone());
        }
        let chunk = self.scanned.segments.chunk(self.segment.id, column, number)?;
        let facts = &self.segment.descriptor.columns[column];
        let first = usize::from(facts.chunks[number]) * VECTOR_ROWS;
        let end =
            facts.chunks.get(number + 1).map_or(self.segment.descriptor.rows, |&next| usize::from(next) * VECTOR_ROWS);
        if chunk.rows() != end - first {
            return Err(damaged(format!("chunk {number} of column {column} of segment {}", self.segment.id)));
        }
        let chunk = Arc::new(chunk);
        self.chunks[column][number] = Some(chunk.clone());
        Ok(chunk)
    }

    /// The chunk that holds a row, with its number, its first row and the row behind its last.
    pub(crate) fn chunk_at(&mut self, column: usize, row: usize) -> Result<(Arc<Chunk>, usize, usize), SqlError> {
        let firsts = &self.segment.descriptor.columns[column].chunks;
        let number = firsts.partition_point(|&first| usize::from(first) * VECTOR_ROWS <= row) - 1;
        let first = usize::from(firsts[number]) * VECTOR_ROWS;
        Ok((self.numbered(column, number)?, number, first))
    }

    /// Values of a column of the addressed schema at rows of the segment.
    pub(crate) fn column(&mut self, column: usize, rows: Rows<'_>) -> Result<ArrayRef, SqlError> {
        if column == self.scanned.segments.schema().fields().len() {
            return Ok(self.addresses(rows));
        }
        if !self.has(column) {
            return absent(&self.scanned.segments.table, column, rows.len());
        }
        match rows {
            Rows::Range(from, length) => {
                let mut pieces = Vec::new();
                let mut at = from;
                while at < from + length {
                    let (chunk, _, first) = self.chunk_at(column, at)?;
                    let end = (first + chunk.rows()).min(from + length);
                    pieces.push(chunk.decode(Rows::Range(at - first, end - at))?);
                    at = end;
                }
                joined(pieces)
            }
            Rows::At(mut rows) => {
                let mut pieces = Vec::new();
                while let Some(&row) = rows.first() {
                    let (chunk, _, first) = self.chunk_at(column, row as usize)?;
                    let here = rows.partition_point(|&row| (row as usize) < first + chunk.rows());
                    let (some, rest) = rows.split_at(here);
                    if first == 0 {
                        pieces.push(chunk.decode(Rows::At(some))?);
                    } else {
                        let inside: Vec<u32> = some.iter().map(|&row| row - first as u32).collect();
                        pieces.push(chunk.decode(Rows::At(&inside))?);
                    }
                    rows = rest;
                }
                joined(pieces)
            }
        }
    }

    fn addresses(&self, rows: Rows<'_>) -> ArrayRef {
        let address = |row: u32| Address { segment: self.segment.id, row }.encode();
        let all: Vec<_> = match rows {
            Rows::Range(from, length) => (from as u32..(from + length) as u32).map(address).collect(),
            Rows::At(rows) => rows.iter().map(|&row| address(row)).collect(),
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
        (_, None) => Err(damaged("no rows were asked for")),
    }
}
