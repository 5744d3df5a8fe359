//! [`RowGroups`]: a table's row groups as one view sees them.
//!
//! Metadata is read once and kept while the process runs: a row group never changes and its number is not used again.
//! The metadata of a compacted row group is dropped when no view sees the row group any more. The keys in the tree
//! decide what a view sees; the kept metadata does not. A scan reads all keys of the tree. A search for a primary key
//! first reads the ranges in memory, and mostly nothing else.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::{Mutex, RwLock};
use store::cache::Hint;
use store::{Cursor, Direction, Lsn, Transaction, TreeId};

use super::chunk::{ColumnChunk, PickedRows};
use super::key_ranges::KeyRanges;
use super::metadata::RowGroupMetadata;
use super::{VECTOR_ROWS, damaged};
use crate::SqlError;
use crate::table::key::KeyColumn;
use crate::table::{COLUMN_TAG, Table, View};

/// The source through which row groups are read: a view, or the transaction that writes them.
pub(crate) trait Source {
    /// The value of a key.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, SqlError>;
    /// A range of keys, in their order.
    fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Cursor, SqlError>;
    /// The tree with this name.
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

/// The position of a row in the column store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The row group.
    pub row_group: u32,
    /// The row in it.
    pub row: u32,
}

/// Length of an encoded address.
pub(crate) const ADDRESS_BYTES: usize = 9;

impl Address {
    /// The address with the tag in front, as scans return it.
    pub fn encode(&self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[0] = COLUMN_TAG;
        bytes[1..].copy_from_slice(&self.key());
        bytes
    }

    /// The key that marks the row as deleted.
    pub(crate) fn key(&self) -> [u8; 8] {
        (u64::from(self.row_group) << 32 | u64::from(self.row)).to_be_bytes()
    }

    /// Reads an address that [`encode`](Address::encode) wrote. Errors: damaged.
    pub fn decode(bytes: &[u8]) -> Result<Address, SqlError> {
        match bytes.split_first() {
            Some((&COLUMN_TAG, key)) => Address::of_key(key),
            _ => Err(damaged("an address of a row in the column store begins with its tag")),
        }
    }

    fn of_key(key: &[u8]) -> Result<Address, SqlError> {
        let bytes: [u8; 8] = key.try_into().map_err(|_| damaged("an address of a row has 8 bytes"))?;
        let number = u64::from_be_bytes(bytes);
        Ok(Address { row_group: (number >> 32) as u32, row: number as u32 })
    }
}

/// Key in the tree of row groups, behind all numbers: its value is the largest row id that was moved.
pub(crate) const LAST_ROW_ID: &[u8] = b"\xFF\xFF\xFF\xFFrow id";

/// The three trees of a table in the column store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trees {
    pub(crate) row_groups: TreeId,
    pub(crate) chunks: TreeId,
    pub(crate) deleted: TreeId,
}

impl Trees {
    pub(crate) fn names(storage: u64) -> [String; 3] {
        ["segments", "chunks", "deleted"].map(|what| format!("columns.{storage}.{what}"))
    }

    /// The trees as a source sees them; `None` if the table never had a row group.
    pub(crate) fn find(source: &impl Source, storage: u64) -> Result<Option<Trees>, SqlError> {
        let [row_groups, chunks, deleted] = Trees::names(storage);
        match (source.tree(&row_groups)?, source.tree(&chunks)?, source.tree(&deleted)?) {
            (Some(row_groups), Some(chunks), Some(deleted)) => Ok(Some(Trees { row_groups, chunks, deleted })),
            _ => Ok(None),
        }
    }

    /// The trees in a transaction; missing ones are created.
    pub(crate) fn make(transaction: &mut Transaction, storage: u64) -> Result<Trees, SqlError> {
        if let Some(trees) = Trees::find(transaction, storage)? {
            return Ok(trees);
        }
        let [row_groups, chunks, deleted] = Trees::names(storage);
        Ok(Trees {
            row_groups: transaction.create_tree(&row_groups)?,
            chunks: transaction.create_tree(&chunks)?,
            deleted: transaction.create_tree(&deleted)?,
        })
    }
}

/// The trees of a table's row groups that exist in a snapshot.
pub(crate) fn row_group_trees(snapshot: &store::Snapshot, storage: u64) -> Result<Vec<TreeId>, store::StoreError> {
    let names = Trees::names(storage);
    names.iter().filter_map(|name| snapshot.tree(name).transpose()).collect()
}

/// Data about a table's row groups that is kept between views.
#[derive(Debug)]
pub(crate) struct RowGroupCache {
    /// Rows of a whole row group.
    pub(crate) row_group_rows: usize,
    known_metadata: Mutex<HashMap<u32, Arc<RowGroupMetadata>>>,
    ranges: RwLock<KeyRanges>,
    /// Row groups that were compacted, each with the record from which on no view sees it.
    left: Mutex<Vec<(u32, Lsn)>>,
    used: AtomicU32,
    /// Bytes of chunks that were requested.
    pub(crate) asked: Arc<AtomicU64>,
}

impl RowGroupCache {
    pub(crate) fn new(row_group_rows: usize) -> RowGroupCache {
        RowGroupCache {
            row_group_rows,
            known_metadata: Mutex::default(),
            ranges: RwLock::default(),
            left: Mutex::default(),
            used: AtomicU32::new(0),
            asked: Arc::default(),
        }
    }

    /// A number for a new row group, larger than `seen` and than any given before.
    pub(crate) fn next(&self, seen: u32) -> u32 {
        self.used.fetch_max(seen, Ordering::AcqRel);
        self.used.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Adds a row group that is about to be written.
    pub(crate) fn enter(&self, row_group: u32, metadata: RowGroupMetadata) {
        self.ranges.write().enter([(row_group, Arc::new(metadata))]);
    }

    /// Prepares the removal of row groups. No number up to `last` is given again. From now on a search for keys finds
    /// these row groups among the ranges, as long as a view sees them.
    pub(crate) fn prepare_leaving(&self, source: &impl Source, table: &Table, last: u32) -> Result<(), SqlError> {
        self.used.fetch_max(last, Ordering::AcqRel);
        self.ensure_complete(source, table)
    }

    /// A row group is removed for every view that sees the record at `lsn`.
    pub(crate) fn leaves(&self, row_group: u32, lsn: Lsn) {
        self.left.lock().push((row_group, lsn));
    }

    /// Forgets the row groups that no view sees any more; the oldest view sees everything up to `oldest`.
    pub(crate) fn forget_unseen(&self, oldest: Lsn) {
        let unseen: Vec<u32> =
            self.left.lock().extract_if(.., |(_, lsn)| *lsn <= oldest).map(|(row_group, _)| row_group).collect();
        self.forget(&unseen);
    }

    /// Forgets row groups that no view sees, now or later.
    pub(crate) fn forget(&self, row_groups: &[u32]) {
        if !row_groups.is_empty() {
            self.ranges.write().remove(row_groups);
            let mut known_metadata = self.known_metadata.lock();
            row_groups.iter().for_each(|row_group| drop(known_metadata.remove(row_group)));
        }
    }

    /// The row groups that a source sees and whose key ranges meet the range between two keys; without their deleted
    /// rows.
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
        for (row_group, metadata) in meeting {
            if source.get(trees.row_groups, &row_group.to_be_bytes())?.is_some() {
                there.push((row_group, metadata));
            }
        }
        Ok(Some((trees, there)))
    }

    /// Adds the row groups that were stored before this process started, if that is not done yet. Any source sees all
    /// of them: later row groups were added by their writers, and none is removed before this is done.
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

/// Row groups by their numbers.
pub(crate) type Listed = Vec<(u32, Arc<RowGroupMetadata>)>;

/// One row group of a view.
#[derive(Clone, Debug)]
pub(crate) struct RowGroup {
    pub(crate) id: u32,
    pub(crate) metadata: Arc<RowGroupMetadata>,
    /// Rows deleted in this view, ascending.
    pub(crate) deleted: Arc<[u32]>,
}

impl RowGroup {
    /// Rows that are not deleted.
    pub(crate) fn rows(&self) -> usize {
        self.metadata.rows - self.deleted.len()
    }

    /// Whether a row exists and is not deleted.
    pub(crate) fn has(&self, row: u32) -> bool {
        self.deleted.binary_search(&row).is_err()
    }
}

/// Row groups with their deleted rows.
pub(crate) fn with_deleted(listed: Listed, mut deleted: HashMap<u32, Vec<u32>>) -> impl Iterator<Item = RowGroup> {
    listed.into_iter().map(move |(id, metadata)| {
        let deleted = deleted.remove(&id).unwrap_or_default().into();
        RowGroup { id, metadata, deleted }
    })
}

/// A table's row groups in one view.
#[derive(Clone, Debug)]
pub struct RowGroups {
    pub(crate) view: View,
    pub(crate) trees: Trees,
    pub(crate) table: Arc<Table>,
    /// The row groups, in the order of their numbers.
    pub(crate) list: Arc<[RowGroup]>,
    /// The cache hint with which chunks are read.
    pub(crate) hint: Hint,
    asked: Arc<AtomicU64>,
}

impl RowGroups {
    /// The row groups of a table as a view sees them; `None` if it has none.
    pub(crate) fn open(view: &View, table: &Arc<Table>, shared: &RowGroupCache) -> Result<Option<RowGroups>, SqlError> {
        let Some(trees) = Trees::find(view, table.storage)? else { return Ok(None) };
        let listed = list(view, &trees, &table.schema, shared)?;
        if listed.is_empty() {
            return Ok(None);
        }
        let list = with_deleted(listed, deleted(view, &trees, None)?).collect();
        Ok(Some(RowGroups {
            view: view.clone(),
            trees,
            table: table.clone(),
            list,
            hint: Hint::Point,
            asked: shared.asked.clone(),
        }))
    }

    /// The cache hint for a scan. A scan of more than a quarter of near memory reads its chunks as pages that will not
    /// be read again, so it does not evict the pages of other readers. PostgreSQL uses the same bound. The size of
    /// chunks is not known before they are read; it is estimated as half of the size of the values in Arrow.
    pub(crate) fn hint_for(&self, columns: &[usize]) -> Result<Hint, SqlError> {
        let rows: u64 = self.list.iter().map(|row_group| row_group.metadata.rows as u64).sum();
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
    pub(crate) fn chunk(&self, row_group: u32, column: usize, chunk: usize) -> Result<ColumnChunk, SqlError> {
        let get = |key: &[u8]| {
            let bytes = self.view.get_with(self.trees.chunks, key, self.hint)?;
            self.asked.fetch_add(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64), Ordering::Relaxed);
            Ok(bytes)
        };
        read_chunk(&get, self.schema(), row_group, column, chunk)
    }
}

/// How many vectors a [`SearchedKeys`] keeps. Row groups that are searched in turn have keys in one range.
const SEARCHED_MOST: usize = 8;

/// The keys of the vectors that were searched last, by row group and vector.
#[derive(Debug, Default)]
pub(crate) struct SearchedKeys {
    vectors: Vec<((u32, usize), Vec<ArrayRef>)>,
}

impl SearchedKeys {
    fn of(
        &mut self,
        vector: (u32, usize),
        read: impl FnOnce() -> Result<Vec<ArrayRef>, SqlError>,
    ) -> Result<&[ArrayRef], SqlError> {
        let at = match self.vectors.iter().position(|(known, _)| *known == vector) {
            Some(at) => at,
            None => {
                if self.vectors.len() == SEARCHED_MOST {
                    self.vectors.remove(0);
                }
                self.vectors.push((vector, read()?));
                self.vectors.len() - 1
            }
        };
        Ok(self.vectors[at].1.as_slice())
    }
}

/// Where the row with an encoded primary key is.
pub(crate) fn locate(
    view: &View,
    table: &Table,
    key: &[u8],
    shared: &RowGroupCache,
    searched: &mut SearchedKeys,
) -> Result<Option<(Trees, Arc<RowGroupMetadata>, Address)>, SqlError> {
    let Some((trees, meeting)) = shared.meeting(view, table, key, key)? else { return Ok(None) };
    let get = |key: &[u8]| view.get(trees.chunks, key);
    for (id, metadata) in meeting {
        let Some((_, firsts)) = metadata.keys.split_last() else { continue };
        let Some(vector) = firsts.partition_point(|first| first.as_slice() <= key).checked_sub(1) else { continue };
        let rows = metadata.vector_rows(vector);
        let read = || read_rows(&get, table, (id, &metadata), vector, &table.key, (0, rows));
        let Some(at) = search(searched.of((id, vector), read)?, rows, key) else { continue };
        let address = Address { row_group: id, row: (vector * VECTOR_ROWS + at) as u32 };
        if view.get(trees.deleted, &address.key())?.is_none() {
            return Ok(Some((trees, metadata, address)));
        }
    }
    Ok(None)
}

/// The row with this encoded primary key, in some columns.
pub(crate) fn find(
    view: &View,
    table: &Table,
    key: &[u8],
    shared: &RowGroupCache,
    columns: &[usize],
) -> Result<Option<(Address, RecordBatch)>, SqlError> {
    let found = locate(view, table, key, shared, &mut SearchedKeys::default())?;
    let Some((trees, metadata, address)) = found else { return Ok(None) };
    let get = |key: &[u8]| view.get(trees.chunks, key);
    let (vector, at) = (address.row as usize / VECTOR_ROWS, address.row as usize % VECTOR_ROWS);
    let values = read_rows(&get, table, (address.row_group, &metadata), vector, columns, (at, 1))?;
    let schema = Arc::new(table.schema.project(columns)?);
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    Ok(Some((address, RecordBatch::try_new_with_options(schema, values, &options)?)))
}

/// The position of a key among those of a vector, by binary search.
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

/// A function that reads values of the tree of chunks.
type Get<'a> = dyn Fn(&[u8]) -> Result<Option<Bytes>, SqlError> + 'a;

fn read_chunk(
    get: &Get<'_>,
    schema: &SchemaRef,
    row_group: u32,
    column: usize,
    chunk: usize,
) -> Result<ColumnChunk, SqlError> {
    match get(&chunk_key(row_group, column, chunk))? {
        Some(bytes) => ColumnChunk::read(bytes, schema.field(column).data_type()),
        None => Err(damaged(format!("row group {row_group} has no chunk {chunk} of column {column}"))),
    }
}

/// Some rows of a vector, given by the first row and the number of rows, in some columns.
pub(crate) fn read_rows(
    get: &Get<'_>,
    table: &Table,
    (row_group, metadata): (u32, &RowGroupMetadata),
    vector: usize,
    columns: &[usize],
    (from, rows): (usize, usize),
) -> Result<Vec<ArrayRef>, SqlError> {
    let read = |&column: &usize| {
        let Some(facts) = metadata.columns.get(column) else { return absent(table, column, rows) };
        let chunk = facts.chunks.partition_point(|&first| usize::from(first) <= vector) - 1;
        let first = usize::from(facts.chunks[chunk]) * VECTOR_ROWS;
        let read = read_chunk(get, &table.schema, row_group, column, chunk)?;
        let from = vector * VECTOR_ROWS + from - first;
        if from + rows > read.rows() {
            return Err(damaged(format!("chunk {chunk} of column {column} of row group {row_group} is too short")));
        }
        read.decode(PickedRows::Range(from, rows))
    };
    columns.iter().map(read).collect()
}

/// The values of a column that was added to the table after the row group was written.
pub(crate) fn absent(table: &Table, column: usize, rows: usize) -> Result<ArrayRef, SqlError> {
    table.columns[column].absent(rows)
}

/// The key of a chunk.
pub(crate) fn chunk_key(row_group: u32, column: usize, chunk: usize) -> [u8; 8] {
    (u64::from(row_group) << 32 | (column as u64) << 16 | chunk as u64).to_be_bytes()
}

/// The row groups in a tree, in the order of their numbers.
pub(crate) fn list(
    source: &impl Source,
    trees: &Trees,
    schema: &SchemaRef,
    shared: &RowGroupCache,
) -> Result<Listed, SqlError> {
    let mut row_groups = source.scan(trees.row_groups, Bound::Unbounded, Bound::Unbounded)?;
    let mut list = Vec::new();
    while let Some((number, bytes)) = row_groups.next()? {
        if number.as_ref() == LAST_ROW_ID {
            continue;
        }
        let id = number.as_ref().try_into().map(u32::from_be_bytes);
        let id = id.map_err(|_| damaged("the number of a row group has 4 bytes"))?;
        list.push((id, known(shared, schema, id, &bytes)?));
    }
    Ok(list)
}

/// The metadata of one row group; `None` if the source does not see it.
pub(crate) fn metadata_of(
    source: &impl Source,
    trees: &Trees,
    schema: &SchemaRef,
    shared: &RowGroupCache,
    id: u32,
) -> Result<Option<Arc<RowGroupMetadata>>, SqlError> {
    let bytes = source.get(trees.row_groups, &id.to_be_bytes())?;
    bytes.map(|bytes| known(shared, schema, id, &bytes)).transpose()
}

/// The metadata of a row group, which is decoded once.
fn known(shared: &RowGroupCache, schema: &SchemaRef, id: u32, bytes: &[u8]) -> Result<Arc<RowGroupMetadata>, SqlError> {
    if let Some(metadata) = shared.known_metadata.lock().get(&id) {
        return Ok(metadata.clone());
    }
    let read = Arc::new(RowGroupMetadata::decode(bytes, schema)?);
    shared.known_metadata.lock().insert(id, read.clone());
    Ok(read)
}

/// The deleted rows by row group, ascending; of all row groups or of one.
pub(crate) fn deleted(
    source: &impl Source,
    trees: &Trees,
    row_group: Option<u32>,
) -> Result<HashMap<u32, Vec<u32>>, SqlError> {
    let row = |row| row_group.map(|row_group| Address { row_group, row }.key());
    let (first, last) = (row(0), row(u32::MAX));
    let bound = |key: &'_ Option<[u8; 8]>| key.map_or(Bound::Unbounded, Bound::Included);
    let (from, to) = (bound(&first), bound(&last));
    let mut cursor = source.scan(trees.deleted, from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]))?;
    let mut all: HashMap<u32, Vec<u32>> = HashMap::new();
    while let Some((key, _)) = cursor.next()? {
        let address = Address::of_key(&key)?;
        all.entry(address.row_group).or_default().push(address.row);
    }
    Ok(all)
}

/// Marks a row as deleted. Returns the tree of deleted rows. Errors: damaged, if there is no such row group.
pub(crate) fn delete(transaction: &mut Transaction, storage: u64, address: Address) -> Result<TreeId, SqlError> {
    match Trees::find(transaction, storage)? {
        Some(trees) => {
            transaction.put(trees.deleted, &address.key(), &[])?;
            Ok(trees.deleted)
        }
        None => Err(damaged("the table of a row in the column store has no row groups")),
    }
}
