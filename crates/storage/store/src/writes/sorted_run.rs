//! [`SortedRun`]: sorted changes of a spilled transaction in spill chunks in the journal, and [`RunCursor`] over them.
//!
//! ```text
//!   first keys   [ a ......... ][ f ......... ][ q ......... ]      in memory, one for each spill chunk
//!   spill chunks lsn 4096        lsn 266240     lsn 528384          in the journal
//!   hashes       of all keys, sorted: 8 bytes a key                 in memory: for conflicts, and to skip absent keys
//! ```

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use journal::{Journal, Lsn};
use parking_lot::Mutex;

use super::{Growth, Layer};
use crate::range::Direction;
use crate::record::{self, Change, Op, RecordWriter};
use crate::write_set::{self, WHOLE};
use crate::{StoreError, TreeId};

/// Size of a spill chunk, at least: one read of the journal, and a small part of a write buffer.
const SPILL_CHUNK_BYTES: usize = 256 << 10;

#[derive(Debug)]
struct Fragment {
    lsn: Lsn,
    first: (TreeId, Bytes),
}

/// The spill chunk read last.
type Kept = Mutex<Option<(usize, Arc<Vec<Change>>)>>;

/// See the head comment of this file.
#[derive(Debug)]
pub(crate) struct SortedRun {
    chunks: Vec<Fragment>,
    /// Sorted.
    pub(crate) hashes: Arc<Vec<u64>>,
    /// Each once.
    pub(crate) trees: Vec<TreeId>,
    pub(crate) dropped: Vec<TreeId>,
    pub(super) growth: Growth,
    kept: Kept,
}

impl SortedRun {
    /// Appends the changes; there must be at least one.
    pub(super) fn write(
        layer: &Layer,
        append: &mut dyn FnMut(&[u8]) -> Result<Lsn, StoreError>,
    ) -> Result<SortedRun, StoreError> {
        let mut chunks = Vec::new();
        let mut hashes = Vec::with_capacity(layer.values().map(BTreeMap::len).sum());
        let mut growth = Growth::default();
        let mut first: Option<(TreeId, Bytes)> = None;
        let mut writer = RecordWriter::new(0, SPILL_CHUNK_BYTES);
        for (tree, key, op) in layer.iter().flat_map(|(tree, keys)| keys.iter().map(move |(key, op)| (*tree, key, op)))
        {
            if let Some(start) = first.take_if(|_| writer.len() + key.len() + op.bytes() > SPILL_CHUNK_BYTES) {
                let full = std::mem::replace(&mut writer, RecordWriter::new(0, SPILL_CHUNK_BYTES));
                chunks.push(Fragment { lsn: append(&full.finish())?, first: start });
            }
            first.get_or_insert_with(|| (tree, key.clone()));
            writer.push(tree, key, op);
            growth.add(key, op);
            hashes.push(write_set::hash(tree, key));
        }
        let first = first.expect("a run has changes");
        chunks.push(Fragment { lsn: append(&writer.finish())?, first });
        hashes.sort_unstable();
        let used = |keys: &BTreeMap<Bytes, Op>| !keys.is_empty();
        let trees = layer.iter().filter(|(_, keys)| used(keys)).map(|(tree, _)| *tree).collect();
        let dropped = layer.iter().filter(|(_, keys)| keys.contains_key(WHOLE)).map(|(tree, _)| *tree).collect();
        Ok(SortedRun { chunks, hashes: Arc::new(hashes), trees, dropped, growth, kept: Mutex::default() })
    }

    /// A run that a commit record refers to, to be walked as a whole: only its LSNs are known.
    pub(crate) fn of_commit_record(lsns: &record::SpilledRun) -> SortedRun {
        let chunk = |lsn: &Lsn| Fragment { lsn: *lsn, first: (TreeId(0), Bytes::new()) };
        let (hashes, trees, dropped) = (Arc::default(), Vec::new(), Vec::new());
        let (chunks, growth) = (lsns.iter().map(chunk).collect(), Growth::default());
        SortedRun { chunks, hashes, trees, dropped, growth, kept: Mutex::default() }
    }

    /// The LSNs of its spill chunks.
    pub(crate) fn lsns(&self) -> record::SpilledRun {
        self.chunks.iter().map(|chunk| chunk.lsn).collect()
    }

    fn load(&self, journal: &Journal, chunk: usize) -> Result<Arc<Vec<Change>>, StoreError> {
        if let Some((number, changes)) = &*self.kept.lock()
            && *number == chunk
        {
            return Ok(changes.clone());
        }
        let changes = Arc::new(read(journal, self.chunks[chunk].lsn)?);
        *self.kept.lock() = Some((chunk, changes.clone()));
        Ok(changes)
    }

    /// Gives up the chunk that the last search kept.
    pub(super) fn release(&self) {
        *self.kept.lock() = None;
    }

    /// The number of spill chunks that begin before a key; only the last of them can contain the key.
    fn begun(&self, tree: TreeId, key: &[u8]) -> usize {
        self.chunks.partition_point(|chunk| (chunk.first.0, chunk.first.1.as_ref()) <= (tree, key))
    }

    /// Returns the operation on a key.
    pub(super) fn get(&self, journal: &Journal, tree: TreeId, key: &[u8]) -> Result<Option<Op>, StoreError> {
        if self.hashes.binary_search(&write_set::hash(tree, key)).is_err() {
            return Ok(None);
        }
        let Some(chunk) = self.begun(tree, key).checked_sub(1) else { return Ok(None) };
        let changes = self.load(journal, chunk)?;
        let found = changes.binary_search_by(|change| (change.tree, change.key.as_ref()).cmp(&(tree, key)));
        Ok(found.ok().map(|at| changes[at].op.clone()))
    }
}

fn read(journal: &Journal, lsn: Lsn) -> Result<Vec<Change>, StoreError> {
    let record = journal.read_at(lsn)?;
    if record.kind != record::KIND_SPILL_CHUNK {
        return Err(damaged(lsn, "it is a record of another kind"));
    }
    record::decode(record.payload.into()).map_err(|damage| damaged(lsn, &damage.to_string()))
}

fn damaged(lsn: Lsn, what: &str) -> StoreError {
    StoreError::Corrupt(format!("the spill chunk of a transaction at lsn {lsn}: {what}").into())
}

/// Walks over the changes of a run, or over those in a range of one tree.
#[derive(Debug)]
pub(crate) struct RunCursor {
    run: Arc<SortedRun>,
    range: Option<(TreeId, Bound<Bytes>, Bound<Bytes>)>,
    direction: Direction,
    /// The next spill chunk to load.
    next: Option<usize>,
    /// The rest of the loaded one, next change last.
    left: Vec<Change>,
}

impl RunCursor {
    /// All changes, smallest first.
    pub(crate) fn all(run: Arc<SortedRun>) -> RunCursor {
        RunCursor { run, range: None, direction: Direction::Forward, next: Some(0), left: Vec::new() }
    }

    /// The changes of a tree's range.
    pub(crate) fn range(
        run: Arc<SortedRun>,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> RunCursor {
        let edge = |bound: Bound<&[u8]>, open: usize| match bound {
            Bound::Included(key) | Bound::Excluded(key) => run.begun(tree, key).saturating_sub(1),
            Bound::Unbounded => open,
        };
        let next = match direction {
            Direction::Forward => edge(range.0, run.begun(tree, &[]).saturating_sub(1)),
            // The first key of the next tree is after every key of this one.
            Direction::Backward => edge(range.1, run.begun(TreeId(tree.0.saturating_add(1)), &[]).saturating_sub(1)),
        };
        let own = |bound: Bound<&[u8]>| bound.map(Bytes::copy_from_slice);
        let range = Some((tree, own(range.0), own(range.1)));
        RunCursor { run, range, direction, next: Some(next), left: Vec::new() }
    }

    /// The next change.
    pub(crate) fn next(&mut self, journal: &Journal) -> Result<Option<Change>, StoreError> {
        loop {
            if let Some(change) = self.left.pop() {
                return Ok(Some(change));
            }
            let Some(chunk) = self.next.filter(|next| *next < self.run.chunks.len()) else { return Ok(None) };
            let changes = self.run.load(journal, chunk)?;
            if self.range.is_none() {
                // A walk over everything comes to each chunk once.
                self.run.release();
            }
            self.next = match self.direction {
                Direction::Forward => Some(chunk + 1),
                Direction::Backward => chunk.checked_sub(1),
            };
            let inside: Vec<Change> = changes.iter().filter(|change| self.contains(change)).cloned().collect();
            self.left = inside;
            // The next ones are outside the range: they need not be loaded.
            let beyond = match (self.direction, changes.last(), changes.first()) {
                (Direction::Forward, Some(last), _) => self.is_behind(last),
                (Direction::Backward, _, Some(first)) => self.is_before(first),
                _ => false,
            };
            if beyond {
                self.next = None;
            }
            if self.direction == Direction::Forward {
                self.left.reverse();
            }
        }
    }

    fn contains(&self, change: &Change) -> bool {
        let Some((tree, from, to)) = &self.range else { return true };
        let bounds = (from.as_ref().map(Bytes::as_ref), to.as_ref().map(Bytes::as_ref));
        *tree == change.tree && RangeBounds::<[u8]>::contains(&bounds, change.key.as_ref())
    }

    fn is_behind(&self, change: &Change) -> bool {
        let Some((tree, _, to)) = &self.range else { return false };
        let behind = match to {
            Bound::Included(key) | Bound::Excluded(key) => change.key > *key,
            Bound::Unbounded => false,
        };
        change.tree > *tree || (change.tree == *tree && behind)
    }

    fn is_before(&self, change: &Change) -> bool {
        let Some((tree, from, _)) = &self.range else { return false };
        let before = match from {
            Bound::Included(key) | Bound::Excluded(key) => change.key < *key,
            Bound::Unbounded => false,
        };
        change.tree < *tree || (change.tree == *tree && before)
    }
}
