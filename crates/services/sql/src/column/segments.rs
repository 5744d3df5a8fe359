//! [`Segments`]: a table's segments as one view sees them.
//!
//! Descriptors are read once and kept for the life of the process: a segment never changes and its number is never used
//! again; that of one that was compacted is dropped when no view sees it. What a view sees is decided by the keys in the tree,
//! not by what is kept. A scan goes through all keys of the tree;
//! a search for a primary key asks the ranges in memory first, and mostly nothing else.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::{Mutex, RwLock};
use store::cache::Hint;
use store::{Cursor, Direction, Lsn, Transaction, TreeId};

use super::chunk::{Chunk, Rows};
use super::descriptor::Descriptor;
use super::form::LAST_ROW_ID;
use super::ranges::Ranges;
use super::{VECTOR_ROWS, damaged};
use crate::SqlError;
use crate::table::key::KeyColumn;
use crate::table::{COLUMN_TAG, Table, View};

/// What segments are read through: a view, or the transaction that writes them.
pub(crate) trait Source {
    /// The value of a key.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, SqlError>;
    /// A range of keys, in their order.
    fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Cursor, SqlError>;
    /// The tree of a name.
    fn tree(&self, name: &str) -> Result<Option<TreeId>, SqlError>;
}

impl Source for View {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, SqlError> {
        View::get(self, tree, key)
    }

    fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Cursor, SqlError> {
        View::scan(self, tree, from, to, Direction::Forward)
    }

    fn tree(&self, name: &str) -> Result<Option<TreeId>, SqlError> {
        View::tree(self, name)
    }
}

impl Source for Transaction {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, SqlError> {
        Ok(Transaction::get(self, tree, key)?)
    }

    fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Cursor, SqlError> {
        Ok(Transaction::scan(self, tree, from, to, Direction::Forward))
    }

    fn tree(&self, name: &str) -> Result<Option<TreeId>, SqlError> {
        Ok(Transaction::tree(self, name)?)
    }
}

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

    /// The trees as a source sees them; `None` where the table never had a segment.
    pub(crate) fn find(source: &impl Source, storage: u64) -> Result<Option<Trees>, SqlError> {
        let [segments, chunks, deleted] = Trees::names(storage);
        match (source.tree(&segments)?, source.tree(&chunks)?, source.tree(&deleted)?) {
            (Some(segments), Some(chunks), Some(deleted)) => Ok(Some(Trees { segments, chunks, deleted })),
            _ => Ok(None),
        }
    }

    /// The trees in a transaction, made where they are missing.
    pub(crate) fn make(transaction: &mut Transaction, storage: u64) -> Result<Trees, SqlError> {
        if let Some(trees) = Trees::find(transaction, storage)? {
            return Ok(trees);
        }
        let [segments, chunks, deleted] = Trees::names(storage);
        Ok(Trees {
            segments: transaction.create_tree(&segments)?,
            chunks: transaction.create_tree(&chunks)?,
            deleted: transaction.create_tree(&deleted)?,
        })
    }
}

/// The trees of a table's segments, as a snapshot sees them: those that are there.
pub(crate) fn segment_trees(snapshot: &store::Snapshot, storage: u64) -> Result<Vec<TreeId>, store::StoreError> {
    let names = Trees::names(storage);
    names.iter().filter_map(|name| snapshot.tree(name).transpose()).collect()
}

/// What is kept of a table's segments between views.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Rows of a whole segment.
    pub(crate) segment_rows: usize,
    descriptors: Mutex<HashMap<u32, Arc<Descriptor>>>,
    ranges: RwLock<Ranges>,
    /// Segments that were compacted, and from which record on no view sees them.
    left: Mutex<Vec<(u32, Lsn)>>,
    used: AtomicU32,
    /// Bytes of chunks that were asked for.
    pub(crate) asked: Arc<AtomicU64>,
}

impl Shared {
    pub(crate) fn new(segment_rows: usize) -> Shared {
        Shared {
            segment_rows,
            descriptors: Mutex::default(),
            ranges: RwLock::default(),
            left: Mutex::default(),
            used: AtomicU32::new(0),
            asked: Arc::default(),
        }
    }

    /// A number for a new segment, larger than `seen` and than any given before.
    pub(crate) fn next(&self, seen: u32) -> u32 {
        self.used.fetch_max(seen, Ordering::AcqRel);
        self.used.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A segment is about to be written.
    pub(crate) fn enter(&self, segment: u32, descriptor: Descriptor) {
        self.ranges.write().enter([(segment, Arc::new(descriptor))]);
    }

    /// Segments are about to leave. None of their numbers, up to `last`, is given again, and who asks for keys from now on finds
    /// them among the ranges, as long as there is a view that sees them.
    pub(crate) fn prepare_leaving(&self, source: &impl Source, table: &Table, last: u32) -> Result<(), SqlError> {
        self.used.fetch_max(last, Ordering::AcqRel);
        self.ensure_complete(source, table)
    }

    /// A segment is gone for whoever sees the record at `lsn`.
    pub(crate) fn leaves(&self, segment: u32, lsn: Lsn) {
        self.left.lock().push((segment, lsn));
    }

    /// Forgets the segments that no view sees any more; the oldest that there is sees everything up to `oldest`.
    pub(crate) fn forget_unseen(&self, oldest: Lsn) {
        let unseen: Vec<u32> =
            self.left.lock().extract_if(.., |(_, lsn)| *lsn <= oldest).map(|(segment, _)| segment).collect();
        self.forget(&unseen);
    }

    /// Forgets segments that no view sees, and none will.
    pub(crate) fn forget(&self, segments: &[u32]) {
        if !segments.is_empty() {
            self.ranges.write().remove(segments);
            let mut descriptors = self.descriptors.lock();
            segments.iter().for_each(|segment| drop(descriptors.remove(segment)));
        }
    }

    /// The segments that a source sees with keys around or between two keys; without their deleted rows.
    pub(crate) fn meeting(
        &self,
        source: &impl Source,
        table: &Table,
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<(Trees, Listed)>, SqlError> {
        self.ensure_complete(source, table)?;
        let meeting = self.ranges.read().meeting(from, to);
        if meeting.is_empty() {
            return Ok(None);
        }
        let Some(trees) = Trees::find(source, table.storage)? else { return Ok(None) };
        let mut there = Vec::with_capacity(meeting.len());
        for (segment, descriptor) in meeting {
            if source.get(trees.segments, &segment.to_be_bytes())?.is_some() {
                there.push((segment, descriptor));
            }
        }
        Ok(Some((trees, there)))
    }

    /// Enters what was stored before, if that is not done. Any source knows all of it: what came later was entered by those
    /// who wrote it, and nothing leaves before this was done.
    fn ensure_complete(&self, source: &impl Source, table: &Table) -> Result<(), SqlError> {
        if self.ranges.read().is_complete {
            return Ok(());
        }
        let mut ranges = self.ranges.write();
        if let Some(trees) = Trees::find(source, table.storage)? {
            let listed = list(source, &trees, &table.schema, self)?;
            ranges.enter(listed);
        }
        ranges.is_complete = true;
        Ok(())
    }
}

/// Segments by their numbers.
pub(crate) type Listed = Vec<(u32, Arc<Descriptor>)>;

/// One segment of a view.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) id: u32,
    pub(crate) descriptor: Arc<Descriptor>,
    /// Rows deleted in this view, ascending.
    pub(crate) deleted: Arc<[u32]>,
}

impl Segment {
    /// Rows that are there.
    pub(crate) fn rows(&self) -> usize {
        self.descriptor.rows - self.deleted.len()
    }

    /// Whether a row is there.
    pub(crate) fn has(&self, row: u32) -> bool {
        self.deleted.binary_search(&row).is_err()
    }
}

/// Segments with their deleted rows.
pub(crate) fn with_deleted(listed: Listed, mut deleted: HashMap<u32, Vec<u32>>) -> impl Iterator<Item = Segment> {
    listed.into_iter().map(move |(id, descriptor)| {
        let deleted = deleted.remove(&id).unwrap_or_default().into();
        Segment { id, descriptor, deleted }
    })
}

/// A table's segments in one view.
#[derive(Clone, Debug)]
pub struct Segments {
    pub(crate) view: View,
    pub(crate) trees: Trees,
    pub(crate) table: Arc<Table>,
    /// The segments, in the order of their numbers.
    pub(crate) list: Arc<[Segment]>,
    /// How chunks are read.
    pub(crate) hint: Hint,
    asked: Arc<AtomicU64>,
}

impl Segments {
    /// The segments of a table as a view sees them; `None` where it has none.
    pub(crate) fn open(view: &View, table: &Arc<Table>, shared: &Shared) -> Result<Option<Segments>, SqlError> {
        let Some(trees) = Trees::find(view, table.storage)? else { return Ok(None) };
        let listed = list(view, &trees, &table.schema, shared)?;
        if listed.is_empty() {
            return Ok(None);
        }
        let list = with_deleted(listed, deleted(view, &trees, None)?).collect();
        Ok(Some(Segments {
            view: view.clone(),
            trees,
            table: table.clone(),
            list,
            hint: Hint::Point,
            asked: shared.asked.clone(),
        }))
    }

    /// So that a large scan does not displace what others use: one of more than a quarter of near memory reads its chunks as one
    /// that does not come back, which is where PostgreSQL draws the line too. How many bytes chunks have is not known before
    /// they are read; it is taken to be half of what the values take in Arrow.
    pub(crate) fn hint_for(&self, columns: &[usize]) -> Result<Hint, SqlError> {
        let rows: u64 = self.list.iter().map(|segment| segment.descriptor.rows as u64).sum();
        let kinds = columns.iter().map(|&column| self.table.addressed.field(column).data_type());
        let bytes: u64 = kinds.map(|kind| rows * kind.primitive_width().unwrap_or(16) as u64 / 2).sum();
        let near = self.view.snapshot()?.store().cache_bytes();
        Ok(if bytes > near / 4 { Hint::Scan } else { Hint::Point })
    }

    /// The table's columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.table.schema
    }

    /// Reads a chunk.
    pub(crate) fn chunk(&self, segment: u32, column: usize, chunk: usize) -> Result<Chunk, SqlError> {
        let get = |key: &[u8]| {
            let bytes = self.view.get_with(self.trees.chunks, key, self.hint)?;
            self.asked.fetch_add(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64), Ordering::Relaxed);
            Ok(bytes)
        };
        read_chunk(&get, self.schema(), segment, column, chunk)
    }
}

/// The row of an encoded primary key.
pub(crate) fn find(
    view: &View,
    table: &Table,
    key: &[u8],
    shared: &Shared,
) -> Result<Option<(Address, RecordBatch)>, SqlError> {
    let Some((trees, meeting)) = shared.meeting(view, table, key, key)? else { return Ok(None) };
    let get = |key: &[u8]| view.get(trees.chunks, key);
    for (id, descriptor) in meeting {
        let Some((_, firsts)) = descriptor.keys.split_last() else { continue };
        let Some(vector) = firsts.partition_point(|first| first.as_slice() <= key).checked_sub(1) else { continue };
        let rows = descriptor.vector_rows(vector);
        let columns = read_rows(&get, table, (id, &descriptor), vector, &table.key, (0, rows))?;
        let Some(at) = search(&columns, rows, key) else { continue };
        let address = Address { segment: id, row: (vector * VECTOR_ROWS + at) as u32 };
        if view.get(trees.deleted, &address.key())?.is_some() {
            continue;
        }
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let columns = read_rows(&get, table, (id, &descriptor), vector, &all, (at, 1))?;
        return Ok(Some((address, RecordBatch::try_new(table.schema.clone(), columns)?)));
    }
    Ok(None)
}

/// The place of a key among those of a vector, by halves.
fn search(columns: &[ArrayRef], rows: usize, key: &[u8]) -> Option<usize> {
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
            std::cmp::Ordering::Equal => return Some(middle),
        }
    }
    None
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
    table: &Table,
    (segment, descriptor): (u32, &Descriptor),
    vector: usize,
    columns: &[usize],
    (from, rows): (usize, usize),
) -> Result<Vec<ArrayRef>, SqlError> {
    let read = |&column: &usize| {
        let Some(facts) = descriptor.columns.get(column) else { return absent(table, column, rows) };
        let chunk = facts.chunks.partition_point(|&first| usize::from(first) <= vector) - 1;
        let first = usize::from(facts.chunks[chunk]) * VECTOR_ROWS;
        let read = read_chunk(get, &table.schema, segment, column, chunk)?;
        let from = vector * VECTOR_ROWS + from - first;
        if from + rows > read.rows() {
            return Err(damaged(format!("chunk {chunk} of column {column} of segment {segment} is too short")));
        }
        read.decode(Rows::Range(from, rows))
    };
    columns.iter().map(read).collect()
}

/// A column that a segment was written without: it was added to the table later.
pub(crate) fn absent(table: &Table, column: usize, rows: usize) -> Result<ArrayRef, SqlError> {
    table.columns[column].absent(rows)
}

/// The key of a chunk.
pub(crate) fn chunk_key(segment: u32, column: usize, chunk: usize) -> [u8; 8] {
    (u64::from(segment) << 32 | (column as u64) << 16 | chunk as u64).to_be_bytes()
}

/// The segments in a tree, in the order of their numbers.
pub(crate) fn list(
    source: &impl Source,
    trees: &Trees,
    schema: &SchemaRef,
    shared: &Shared,
) -> Result<Listed, SqlError> {
    let mut segments = source.scan(trees.segments, Bound::Unbounded, Bound::Unbounded)?;
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
        list.push((id, descriptor));
    }
    Ok(list)
}

/// The deleted rows by segment, ascending; of all segments or of one.
pub(crate) fn deleted(
    source: &impl Source,
    trees: &Trees,
    segment: Option<u32>,
) -> Result<HashMap<u32, Vec<u32>>, SqlError> {
    let row = |row| segment.map(|segment| Address { segment, row }.key());
    let (first, last) = (row(0), row(u32::MAX));
    let bound = |key: &'_ Option<[u8; 8]>| key.map_or(Bound::Unbounded, Bound::Included);
    let (from, to) = (bound(&first), bound(&last));
    let mut cursor = source.scan(trees.deleted, from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]))?;
    let mut all: HashMap<u32, Vec<u32>> = HashMap::new();
    while let Some((key, _)) = cursor.next()? {
        let address = Address::of_key(&key)?;
        all.entry(address.segment).or_default().push(address.row);
    }
    Ok(all)
}

/// Marks a row as deleted. Errors: damaged, where there is no such segment.
pub(crate) fn delete(transaction: &mut Transaction, storage: u64, address: Address) -> Result<(), SqlError> {
    match Trees::find(transaction, storage)? {
        Some(trees) => Ok(transaction.put(trees.deleted, &address.key(), &[])?),
        None => Err(damaged("the table of a row in column form has no segments")),
    }
}
