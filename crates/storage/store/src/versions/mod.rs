//! Old versions: the value of a key before it was changed, for the snapshots that still see it.
//!
//! ```text
//!   tree 1007   key "a"  -> [ (replaced at 500: "x"), (replaced at 900: absent) ]      ordered by key and by LSN
//!               key "b"  -> [ (replaced at 900: "y") ]
//!
//!   snapshot at 400 reads "a": first version replaced after 400 -> "x"
//!   snapshot at 900 reads "a": none replaced after 900 -> the value in the tree
//! ```
//!
//! Most versions exist for one batch only, because no snapshot is that old. So the replacements of a batch in a tree
//! are a sorted list, a *version batch*, which is built by appending and dropped as a whole. If snapshots stay open and
//! version batches become many, the oldest are merged into an ordered map, so that a lookup does not take longer for
//! older snapshots.
//!
//! Invariants:
//! 1. A version is stored here *before* its key changes in the tree. So a thread that reads the tree first and the
//!    versions second gets what its snapshot must see: if it read the tree after the change, it finds the version.
//! 2. A version replaced at L is kept while a snapshot before L is open, or could be opened (L is not visible yet).
//! 3. Versions are dropped in the order of their replacement; but those of a batch that alone exceeds the limit are
//!    dropped at once. The *floor* is raised before anything is dropped that an open snapshot could need: a snapshot
//!    below the floor is too old, and its reader checks that after reading.
//!
//! All of this is in memory: no snapshot outlives the process. Dropped versions with pages of their own (large values,
//! dropped trees) are returned to the caller.

mod snapshots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::TreeId;
use crate::range::is_empty;
use crate::tree::Cell;

pub(crate) use snapshots::{Held, Snapshots};

/// Memory of a version without key and value: its entries in map, list and log, rounded up.
const OVERHEAD_BYTES: u64 = 160;

/// The value of a key until it was replaced; `None`: it was absent.
#[derive(Clone, Debug)]
struct Version {
    replaced: u64,
    old: Option<Cell>,
}

/// The replacements of one batch in a tree, in key order.
#[derive(Debug)]
struct VersionBatch {
    lsn: u64,
    keys: Vec<(Bytes, Option<Cell>)>,
}

/// Longest list of a version batch whose memory is kept for the next one, versions: about 600 KiB.
const SPARE_MAX: usize = 8 << 10;

/// Number of version batches of a tree at which the older half of them is merged.
const BATCHES_MAX: usize = 16;

#[derive(Debug, Default)]
struct State {
    /// The last batches, oldest first.
    recent: VecDeque<VersionBatch>,
    /// Earlier batches, merged.
    merged: BTreeMap<Bytes, VecDeque<Version>>,
    /// The keys of each batch in `merged`, oldest first.
    batches: VecDeque<(u64, Vec<Bytes>)>,
    /// The empty list of a batch that was dropped, for the next one.
    spare: Vec<(Bytes, Option<Cell>)>,
}

#[derive(Debug, Default)]
struct Tree {
    /// The last replacement in this tree: snapshots from there on need not search it.
    newest: AtomicU64,
    state: RwLock<State>,
}

impl State {
    /// Begins the version batch of a batch.
    fn begin(&mut self, lsn: u64) {
        if self.recent.back().is_some_and(|last| last.lsn == lsn) {
            return;
        }
        if self.recent.len() >= BATCHES_MAX {
            for VersionBatch { lsn, keys } in self.recent.drain(..BATCHES_MAX / 2) {
                self.batches.push_back((lsn, keys.iter().map(|(key, _)| key.clone()).collect()));
                for (key, old) in keys {
                    // Most keys have one; a list that grows by itself would start with space for four.
                    let versions = self.merged.entry(key).or_insert_with(|| VecDeque::with_capacity(1));
                    versions.push_back(Version { replaced: lsn, old });
                }
            }
        }
        self.recent.push_back(VersionBatch { lsn, keys: std::mem::take(&mut self.spare) });
    }

    /// Gives `old` back if it is not stored: the batch has already changed the key, and only the value from before the
    /// batch counts.
    fn push(&mut self, key: Bytes, old: Option<Cell>) -> Result<(), Option<Cell>> {
        let keys = &mut self.recent.back_mut().expect("the batch was begun").keys;
        if keys.last().is_none_or(|(last, _)| *last < key) {
            keys.push((key, old));
            return Ok(());
        }
        match keys.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(_) => Err(old),
            Err(place) => {
                keys.insert(place, (key, old));
                Ok(())
            }
        }
    }

    /// Removes what was pushed for a key in this batch.
    fn take_back(&mut self, key: &[u8]) {
        let keys = &mut self.recent.back_mut().expect("the batch was begun").keys;
        if let Ok(place) = keys.binary_search_by(|(other, _)| other.as_ref().cmp(key)) {
            keys.remove(place);
        }
    }

    fn get(&self, key: &[u8], at: u64) -> Option<Option<Cell>> {
        let merged = self.merged.get(key).and_then(|versions| versions.iter().find(|version| version.replaced > at));
        if let Some(found) = merged {
            return Some(found.old.clone());
        }
        let find = |batch: &VersionBatch| {
            let place = batch.keys.binary_search_by(|(other, _)| other.as_ref().cmp(key)).ok()?;
            Some(batch.keys[place].1.clone())
        };
        self.recent.iter().filter(|batch| batch.lsn > at).find_map(find)
    }

    fn range(&self, range: (Bound<&[u8]>, Bound<&[u8]>), at: u64) -> Vec<(Bytes, Option<Cell>)> {
        let mut found = BTreeMap::new();
        for (key, versions) in self.merged.range::<[u8], _>(range) {
            if let Some(version) = versions.iter().find(|version| version.replaced > at) {
                found.insert(key.clone(), version.old.clone());
            }
        }
        for batch in self.recent.iter().filter(|batch| batch.lsn > at) {
            let start = batch.keys.partition_point(|(key, _)| match range.0 {
                Bound::Included(from) => key.as_ref() < from,
                Bound::Excluded(from) => key.as_ref() <= from,
                Bound::Unbounded => false,
            });
            let inside = |key: &Bytes| match range.1 {
                Bound::Included(to) => key.as_ref() <= to,
                Bound::Excluded(to) => key.as_ref() < to,
                Bound::Unbounded => true,
            };
            for (key, old) in batch.keys[start..].iter().take_while(|(key, _)| inside(key)) {
                found.entry(key.clone()).or_insert_with(|| old.clone());
            }
        }
        found.into_iter().collect()
    }

    /// Drops the replacements up to `lsn`.
    fn forget(&mut self, lsn: u64, garbage: &mut Garbage) {
        while let Some((_, keys)) = self.batches.pop_front_if(|(batch, _)| *batch <= lsn) {
            for key in keys {
                let Some(versions) = self.merged.get_mut(&key) else { continue };
                while let Some(version) = versions.pop_front_if(|version| version.replaced <= lsn) {
                    garbage.take(version.old);
                }
                if versions.is_empty() {
                    self.merged.remove(&key);
                }
            }
        }
        while let Some(mut batch) = self.recent.pop_front_if(|batch| batch.lsn <= lsn) {
            batch.keys.drain(..).for_each(|(_, old)| garbage.take(old));
            if (self.spare.capacity()..=SPARE_MAX).contains(&batch.keys.capacity()) {
                self.spare = batch.keys;
            }
        }
    }
}

/// The old versions of all trees.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    trees: RwLock<HashMap<TreeId, Arc<Tree>, foldhash::fast::FixedState>>,
    log: Mutex<VecDeque<Replaced>>,
    /// Snapshots before this are too old.
    floor: AtomicU64,
    bytes: AtomicU64,
    count: AtomicU64,
    /// The largest number of bytes of one batch when it was applied.
    #[cfg(test)]
    pub(crate) most: AtomicU64,
}

/// The replacements of one batch.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    lsn: u64,
    /// The trees; some more than once.
    trees: Vec<TreeId>,
    versions: u64,
    /// Trees that it drops: their pages are versions too.
    dropped: Vec<TreeId>,
    /// Keys are slices of something larger, which they must not keep in memory.
    copies_keys: bool,
    /// Nothing of it is kept: no snapshot before it is left, or all of them are too old.
    lets_go: bool,
    bytes: u64,
    /// Memory of what earlier attempts to apply the batch have stored.
    earlier_bytes: u64,
}

impl Replaced {
    /// The replacements of a batch that ends with that record.
    pub(crate) fn at(lsn: u64) -> Replaced {
        Replaced { lsn, ..Replaced::default() }
    }

    /// The replacements of a batch before which there is no snapshot: used at opening.
    pub(crate) fn unseen(lsn: u64) -> Replaced {
        Replaced { lsn, lets_go: true, ..Replaced::default() }
    }

    /// Counts the versions that an earlier attempt to apply the batch has stored.
    pub(crate) fn count_earlier(&mut self, bytes: u64) {
        self.earlier_bytes = bytes;
    }

    /// Memory of the batch's versions, those of earlier attempts included.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.earlier_bytes + self.bytes
    }

    /// Copies the keys from here on.
    pub(crate) fn copy_keys(&mut self) {
        self.copies_keys = true;
    }

    /// Adds a dropped tree.
    pub(crate) fn drop_tree(&mut self, tree: TreeId) {
        self.dropped.push(tree);
    }
}

/// Values and trees that no snapshot sees any more; their pages may be reused.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    pub(crate) values: Vec<Cell>,
    pub(crate) trees: Vec<TreeId>,
}

impl Garbage {
    fn take(&mut self, old: Option<Cell>) {
        self.values.extend(old.filter(Cell::has_pages));
    }
}

impl Versions {
    fn tree(&self, tree: TreeId) -> Option<Arc<Tree>> {
        self.trees.read().get(&tree).cloned()
    }

    fn tree_or_new(&self, tree: TreeId) -> Arc<Tree> {
        match self.tree(tree) {
            Some(found) => found,
            None => self.trees.write().entry(tree).or_default().clone(),
        }
    }

    /// Returns a writer for versions of one tree.
    pub(crate) fn writer<'a>(&self, tree: TreeId, replaced: &'a mut Replaced) -> VersionWriter<'a> {
        let target = self.tree_or_new(tree);
        target.newest.fetch_max(replaced.lsn, Ordering::AcqRel);
        target.state.write().begin(replaced.lsn);
        replaced.trees.push(tree);
        VersionWriter { tree: target, replaced, pushed: None }
    }

    /// Drops the versions of a batch, and keeps none from here on: they alone exceed the limit. Every snapshot before
    /// the batch is too old, even one that begins before the batch is visible.
    pub(crate) fn let_go(&self, replaced: &mut Replaced) -> Garbage {
        self.floor.fetch_max(replaced.lsn, Ordering::AcqRel);
        let mut garbage = Garbage::default();
        for tree in &replaced.trees {
            if let Some(tree) = self.tree(*tree) {
                let mut state = tree.state.write();
                if let Some(batch) = state.recent.back_mut().filter(|last| last.lsn == replaced.lsn) {
                    std::mem::take(&mut batch.keys).into_iter().for_each(|(_, old)| garbage.take(old));
                }
            }
        }
        (replaced.lets_go, replaced.bytes, replaced.versions, replaced.earlier_bytes) = (true, 0, 0, 0);
        garbage
    }

    /// Called when the batch is applied: its versions can be dropped once no snapshot needs them.
    pub(crate) fn publish(&self, replaced: Replaced) {
        #[cfg(test)]
        self.most.fetch_max(replaced.bytes, Ordering::Relaxed);
        self.bytes.fetch_add(replaced.bytes, Ordering::Relaxed);
        self.count.fetch_add(replaced.versions, Ordering::Relaxed);
        self.log.lock().push_back(replaced);
    }

    /// Returns the value of `key` at `at`, if it was replaced since: `None` if the value in the tree counts,
    /// `Some(None)` for absent.
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], at: u64) -> Option<Option<Cell>> {
        let tree = self.tree(tree)?;
        if tree.newest.load(Ordering::Acquire) <= at {
            return None;
        }
        tree.state.read().get(key, at)
    }

    /// Returns the values at `at` of those keys of a range that were replaced since, in order.
    pub(crate) fn range(
        &self,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        at: u64,
    ) -> Vec<(Bytes, Option<Cell>)> {
        let Some(tree) = self.tree(tree) else { return Vec::new() };
        if tree.newest.load(Ordering::Acquire) <= at || is_empty(range) {
            return Vec::new();
        }
        tree.state.read().range(range, at)
    }

    /// Whether a key was replaced after `at`.
    pub(crate) fn is_replaced(&self, tree: TreeId, key: &[u8], at: u64) -> bool {
        self.get(tree, key, at).is_some()
    }

    /// Whether versions that a snapshot needs may have been dropped. Call it after reading.
    pub(crate) fn is_too_old(&self, at: u64) -> bool {
        at < self.floor.load(Ordering::Acquire)
    }

    /// The first moment that a snapshot can read. It is after the visible LSN while a batch is applied that [drops its
    /// versions](Versions::let_go).
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Bytes of memory, and versions.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.count.load(Ordering::Relaxed))
    }

    /// Drops what no snapshot from `oldest` on sees. Then, while more than `limit` bytes are kept, drops what the
    /// oldest snapshots see; they are too old from then on. `visible` is where new snapshots begin: what they see is
    /// never dropped.
    pub(crate) fn collect(&self, oldest: u64, visible: u64, limit: u64) -> Garbage {
        let mut garbage = Garbage::default();
        let mut log = self.log.lock();
        while let Some(first) = log.front() {
            let needed = first.lsn > oldest;
            if needed && (first.lsn > visible || self.bytes.load(Ordering::Relaxed) <= limit) {
                break;
            }
            if needed {
                self.floor.fetch_max(first.lsn, Ordering::AcqRel);
            }
            let replaced = log.pop_front().expect("it has a front");
            self.forget(replaced, &mut garbage);
        }
        garbage
    }

    /// Removes a tree that no snapshot can see, at opening.
    pub(crate) fn forget_tree(&self, tree: TreeId) {
        self.trees.write().remove(&tree);
    }

    fn forget(&self, replaced: Replaced, garbage: &mut Garbage) {
        self.bytes.fetch_sub(replaced.bytes, Ordering::Relaxed);
        self.count.fetch_sub(replaced.versions, Ordering::Relaxed);
        for tree in replaced.trees {
            if let Some(tree) = self.tree(tree) {
                tree.state.write().forget(replaced.lsn, garbage);
            }
        }
        for tree in replaced.dropped {
            self.trees.write().remove(&tree);
            garbage.trees.push(tree);
        }
    }
}

/// Adds the versions of one tree in one batch; fastest in key order.
pub(crate) struct VersionWriter<'a> {
    tree: Arc<Tree>,
    replaced: &'a mut Replaced,
    /// Memory of the version that the last push for the present key has stored, if it has stored one.
    pushed: Option<u64>,
}

impl VersionWriter<'_> {
    /// Memory of the batch's versions in all trees, those of earlier attempts included.
    pub(crate) fn bytes(&self) -> u64 {
        self.replaced.all_bytes()
    }

    /// The replacements of the batch so far. What was pushed last is not taken back any more.
    pub(crate) fn replaced(&mut self) -> &mut Replaced {
        self.pushed = None;
        self.replaced
    }

    /// Called before each change of a key: nothing is pushed for it so far, whatever was for the one before.
    pub(crate) fn next_key(&mut self) {
        self.pushed = None;
    }

    /// Stores the old value of a key that is about to be changed. Returns `old` if no snapshot will read it: if nothing
    /// is kept, or if the same batch wrote it, which happens only when a batch is applied again.
    pub(crate) fn push(&mut self, key: &Bytes, old: Option<Cell>) -> Option<Cell> {
        self.pushed = None;
        if self.replaced.lets_go {
            return old;
        }
        let bytes = OVERHEAD_BYTES + key.len() as u64 + old.as_ref().map_or(0, Cell::memory_bytes);
        let key = if self.replaced.copies_keys { Bytes::copy_from_slice(key) } else { key.clone() };
        if let Err(unseen) = self.tree.state.write().push(key, old) {
            return unseen;
        }
        self.replaced.bytes += bytes;
        self.replaced.versions += 1;
        self.pushed = Some(bytes);
        None
    }

    /// Removes the version that the last [`push`](VersionWriter::push) has stored, if it has stored one: the change to the
    /// key was not made. What an earlier attempt to apply the batch has stored stays.
    pub(crate) fn take_back(&mut self, key: &[u8]) {
        if let Some(bytes) = self.pushed.take() {
            self.tree.state.write().take_back(key);
            self.replaced.bytes -= bytes;
            self.replaced.versions -= 1;
        }
    }
}
