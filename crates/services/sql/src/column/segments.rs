//! [`Segments`]: a table's segments as one view sees them.
//!
//! Descriptors are read once and kept for the life of the process: a segment never changes and its number is never used
//! again. What a view sees is decided by the keys in the tree, not by what is kept.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use store::{Cursor, Direction, Transaction, TreeId};

use super::chunk::{Chunk, Rows};
use super::descriptor::Descriptor;
use super::form::LAST_ROW_ID;
use super::{VECTOR_ROWS, damaged};
use crate::SqlError;
use crate::table::key::KeyColumn;
use crate::table::{COLUMN_TAG, View};

/// Where a row in column form lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The segment.
    pub segment: u32,
    /// The row in it.
    pub row: u32,
}

/// Length of an encoded address.
pub(crate) const ADDRESS_BYTES: usize = 9;

impl Address {
    /// With the tag in front, as scans give it.
    pub fn encode(&self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[0] = COLUMN_TAG;
        bytes[1..].copy_from_slice(&self.key());
        bytes
    }

    /// The key of a deleted row.
    pub(crate) fn key(&self) -> [u8; 8] {
        (u64::from(self.segment) << 32 | u64::from(self.row)).to_be_bytes()
    }

    /// Reads what [`encode`](Address::encode) wrote. Errors: damaged.
    pub fn decode(bytes: &[u8]) -> Result<Address, SqlError> {
        match bytes.split_first() {
            Some((&COLUMN_TAG, key)) => Address::of_key(key),
            _ => Err(damaged("an address of a row in column form begins with its tag")),
        }
    }

    fn of_key(key: &[u8]) -> Result<Address, SqlError> {
        let bytes: [u8; 8] = key.try_into().map_err(|_| damaged("an address of a row has 8 bytes"))?;
        let number = u64::from_be_bytes(bytes);
        Ok(Address { segment: (number >> 32) as u32, row: number as u32 })
    }
}

/// The three trees of a table in column form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trees {
    pub(crate) segments: TreeId,
    pub(crate) chunks: TreeId,
    pub(crate) deleted: TreeId,
}

impl Trees {
    pub(crate) fn names(storage: u64) -> [String; 3] {
        ["segments", "chunks", "deleted"].map(|what| format!("columns.{storage}.{what}"))
    }

    /// The trees as a view sees them; `None` where the table never had a segment.
    pub(crate) fn find(view: &View, storage: u64) -> Result<Option<Trees>, SqlError> {
        Trees::with(storage, |name| tree(view, name))
    }

    /// The trees in a transaction, made where they are missing.
    pub(crate) fn make(transaction: &mut Transaction, storage: u64) -> Result<Trees, SqlError> {
        if let Some(trees) = Trees::with(storage, |name| Ok(transaction.tree(name)?))? {
            return Ok(trees);
        }
        let [segments, chunks, deleted] = Trees::names(storage);
        Ok(Trees {
            segments: transaction.create_tree(&segments)?,
            chunks: transaction.create_tree(&chunks)?,
            deleted: transaction.create_tree(&deleted)?,
        })
    }

    pub(crate) fn with(
        storage: u64,
        tree: impl Fn(&str) -> Result<Option<TreeId>, SqlError>,
    ) -> Result<Option<Trees>, SqlError> {
        let [segments, chunks, deleted] = Trees::names(storage);
        match (tree(&segments)?, tree(&chunks)?, tree(&deleted)?) {
            (Some(segments), Some(chunks), Some(deleted)) => Ok(Some(Trees { segments, chunks, deleted })),
            _ => Ok(None),
        }
    }
}

/// What is kept of a table's segments between views.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    descriptors: Mutex<HashMap<u32, Arc<Descriptor>>>,
    used: AtomicU32,
    /// Bytes of chunks that were asked for.
    pub(crate) asked: Arc<AtomicU64>,
}

impl Shared {
    /// A number for a new segment, larger than `seen` and than any given before.
    pub(crate) fn next(&self, seen: u32) -> u32 {
        self.used.fetch_max(seen, Ordering::AcqRel);
        self.used.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// One segment of a view.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) id: u32,
    pub(crate) descriptor: Arc<Descriptor>,
    /// Rows deleted in this view, ascending.
    pub(crate) deleted: Arc<[u32]>,
}

impl Segment {
    pub(crate) fn is_deleted(&self, row: u32) -> bool {
        self.deleted.binary_search(&row).is_ok()
    }

    /// Rows that are there.
    pub(crate) fn rows(&self) -> usize {
        self.descriptor.rows - self.deleted.len()
    }
}

/// A table's segments in one view.
#[derive(Clone, Debug)]
pub struct Segments {
    pub(crate) view: View,
    pub(crate) trees: Trees,
    /// The table's columns.
    pub(crate) schema: SchemaRef,
    /// Positions of the primary key.
    pub(crate) key: Arc<[usize]>,
    /// The segments, in the order of their numbers.
    pub(crate) list: Arc<[Segment]>,
    asked: Arc<AtomicU64>,
}

impl Segments {
    /// The segments of a table as a view sees them; `None` where it has none.
    pub(crate) fn open(
        view: &View,
        storage: u64,
        schema: &SchemaRef,
        key: &[usize],
        shared: &Shared,
    ) -> Result<Option<Segments>, SqlError> {
        let Some(trees) = Trees::find(view, storage)? else { return Ok(None) };
        let scan = |tree| view.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let list = list(scan(trees.segments)?, scan(trees.deleted)?, schema, shared)?;
        let (schema, asked) = (schema.clone(), shared.asked.clone());
        let segments = Segments { view: view.clone(), trees, schema, key: key.into(), list, asked };
        Ok(Some(segments).filter(|segments| !segments.list.is_empty()))
    }

    /// Reads a chunk.
    pub(crate) fn chunk(&self, segment: u32, column: usize, chunk: usize) -> Result<Chunk, SqlError> {
        let get = |key: &[u8]| {
            let bytes = self.view.get(self.trees.chunks, key)?;
            self.asked.fetch_add(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64), Ordering::Relaxed);
            Ok(bytes)
        };
        read_chunk(&get, &self.schema, segment, column, chunk)
    }

    /// Some rows of one vector, of the table's columns named; deleted ones as well.
    fn rows(
        &self,
        segment: &Segment,
        vector: usize,
        columns: &[usize],
        rows: (usize, usize),
    ) -> Result<Vec<ArrayRef>, SqlError> {
        let get = |key: &[u8]| self.view.get(self.trees.chunks, key);
        read_rows(&get, &self.schema, segment, vector, columns, rows)
    }

    /// The row of an encoded primary key.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<(Address, RecordBatch)>, SqlError> {
        for segment in self.list.iter() {
            let Some((last, firsts)) = segment.descriptor.keys.split_last() else { continue };
            let vector = firsts.partition_point(|first| first.as_slice() <= key);
            if vector == 0 || key > last.as_slice() {
                continue;
            }
            let vector = vector - 1;
            if let Some(at) = self.search(segment, vector, key)? {
                let address = Address { segment: segment.id, row: (vector * VECTOR_ROWS + at) as u32 };
                if segment.is_deleted(address.row) {
                    continue;
                }
                let all: Vec<usize> = (0..self.schema.fields().len()).collect();
                let columns = self.rows(segment, vector, &all, (at, 1))?;
                return Ok(Some((address, RecordBatch::try_new(self.schema.clone(), columns)?)));
            }
        }
        Ok(None)
    }

    /// The place of a key in a vector, by halves.
    fn search(&self, segment: &Segment, vector: usize, key: &[u8]) -> Result<Option<usize>, SqlError> {
        let rows = segment.descriptor.vector_rows(vector);
        let columns = self.rows(segment, vector, &self.key, (0, rows))?;
        let columns: Vec<KeyColumn<'_>> = columns.iter().map(KeyColumn::new).collect();
        let (mut low, mut high) = (0, rows);
        let mut here = Vec::new();
        while low < high {
            let middle = low + (high - low) / 2;
            here.clear();
            columns.iter().for_each(|column| column.encode(middle, &mut here));
            match here.as_slice().cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(Some(middle)),
            }
        }
        Ok(None)
    }
}

/// Reads values of the tree of chunks.
type Get<'a> = dyn Fn(&[u8]) -> Result<Option<Bytes>, SqlError> + 'a;

fn read_chunk(get: &Get<'_>, schema: &SchemaRef, segment: u32, column: usize, chunk: usize) -> Result<Chunk, SqlError> {
    match get(&chunk_key(segment, column, chunk))? {
        Some(bytes) => Chunk::read(bytes, schema.field(column).data_type()),
        None => Err(damaged(format!("segment {segment} has no chunk {chunk} of column {column}"))),
    }
}

/// Some rows of a vector, as the first and how many, of some columns.
pub(crate) fn read_rows(
    get: &Get<'_>,
    schema: &SchemaRef,
    segment: &Segment,
    vector: usize,
    columns: &[usize],
    (from, rows): (usize, usize),
) -> Result<Vec<ArrayRef>, SqlError> {
    let read = |&column: &usize| {
        let Some(facts) = segment.descriptor.columns.get(column) else {
            return super::scan::absent(schema, column, rows);
        };
        let chunk = facts.chunks.partition_point(|&first| usize::from(first) <= vector) - 1;
        let first = usize::from(facts.chunks[chunk]) * VECTOR_ROWS;
        let read = read_chunk(get, schema, segment.id, column, chunk)?;
        let from = vector * VECTOR_ROWS + from - first;
        if from + rows > read.rows() {
            return Err(damaged(format!("chunk {chunk} of column {column} of segment {} is too short", segment.id)));
        }
        read.decode(Rows::Range(from, rows))
    };
    columns.iter().map(read).collect()
}

/// The tree of that name as a view sees it.
fn tree(view: &View, name: &str) -> Result<Option<TreeId>, SqlError> {
    match view {
        View::Snapshot(snapshot) => Ok(snapshot.tree(name)?),
        View::Transaction(shared) => match shared.lock().as_ref() {
            Some(transaction) => Ok(transaction.tree(name)?),
            // Its next read says that it has ended.
            None => Ok(None),
        },
    }
}

/// The key of a chunk.
pub(crate) fn chunk_key(segment: u32, column: usize, chunk: usize) -> [u8; 8] {
    (u64::from(segment) << 32 | (column as u64) << 16 | chunk as u64).to_be_bytes()
}

/// The segments in a tree, from cursors over it and over the tree of deleted rows.
pub(crate) fn list(
    mut segments: Cursor,
    deleted: Cursor,
    schema: &SchemaRef,
    shared: &Shared,
) -> Result<Arc<[Segment]>, SqlError> {
    let mut deleted = all_deleted(deleted)?;
    let mut list = Vec::new();
    while let Some((number, bytes)) = segments.next()? {
        if number.as_ref() == LAST_ROW_ID {
            continue;
        }
        let id = number.as_ref().try_into().map(u32::from_be_bytes);
        let id = id.map_err(|_| damaged("the number of a segment has 4 bytes"))?;
        let known = shared.descriptors.lock().get(&id).cloned();
        let descriptor = match known {
            Some(descriptor) => descriptor,
            None => {
                let read = Arc::new(Descriptor::decode(&bytes, schema)?);
                shared.descriptors.lock().insert(id, read.clone());
                read
            }
        };
        let deleted = deleted.remove(&id).unwrap_or_default().into();
        list.push(Segment { id, descriptor, deleted });
    }
    Ok(list.into())
}

fn all_deleted(mut cursor: Cursor) -> Result<HashMap<u32, Vec<u32>>, SqlError> {
    let mut all: HashMap<u32, Vec<u32>> = HashMap::new();
    while let Some((key, _)) = cursor.next()? {
        let address = Address::of_key(&key)?;
        all.entry(address.segment).or_default().push(address.row);
    }
    Ok(all)
}

/// Marks a row as deleted. Errors: damaged, where there is no such segment.
pub(crate) fn delete(transaction: &mut Transaction, storage: u64, address: Address) -> Result<(), SqlError> {
    match Trees::with(storage, |name| Ok(transaction.tree(name)?))? {
        Some(trees) => Ok(transaction.put(trees.deleted, &address.key(), &[])?),
        None => Err(damaged("the table of a row in column form has no segments")),
    }
}
