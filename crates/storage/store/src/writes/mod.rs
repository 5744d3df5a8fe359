//! [`WriteBuffer`]: the changes of a transaction, which no other transaction sees.
//!
//! ```text
//!   layer    in memory: tree -> key -> operation                    newest
//!   runs     spilled: sorted spill chunks in the journal, by run    earlier runs are older
//!   undo     for each change since the first savepoint: the previous entry of the layer
//! ```
//!
//! *Savepoints* are positions in the undo log; a rollback undoes the changes one by one. Nothing is cloned.
//!
//! *Spilling*: beyond a limit of memory the layer becomes a run of spill chunks in the journal, which are durable
//! before they are read. They count only if a commit record refers to them; without one recovery skips them, so that
//! neither a rollback nor a crash leaves a trace. The spill chunks are the only copy: they are read back when the
//! transaction reads its own changes, and when they are applied.
//!
//! If there are savepoints, the layer is spilled as several runs: one for the changes before the first savepoint, and
//! one for those after each. A rollback to a savepoint then omits the runs after it.
//!
//! Invariants:
//! 1. The operation of a key is the layer's, or else that of the newest run that has the key.
//! 2. After a spill the layer and the undo log are empty, and each savepoint is a number of runs.
//! 3. A dropped tree refuses further changes; the mark of the drop is the operation of its empty key.

mod sorted_run;

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use journal::{Journal, Lsn};

use crate::range::is_empty;
use crate::record::{self, Change, Op};
use crate::spills::Claim;
use crate::write_set::{self, WHOLE, WriteSet};
use crate::{StoreError, TreeId};

pub(crate) use sorted_run::{RunCursor, SortedRun};

/// Memory of a change without key and value, rounded up.
const OVERHEAD_BYTES: usize = 128;

type Layer = BTreeMap<TreeId, BTreeMap<Bytes, Op>>;

/// The entry of the layer before a change.
#[derive(Debug)]
struct Undo {
    tree: TreeId,
    key: Bytes,
    before: Option<Op>,
}

/// The growth that changes cause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    set: u64,
    removed: u64,
    bytes: u64,
}

impl Growth {
    fn add(&mut self, key: &Bytes, op: &Op) {
        match op {
            Op::Put(value) => {
                self.set += 1;
                self.bytes += (record::CHANGE_BYTES + key.len() + value.len()) as u64;
            }
            Op::Delete | Op::DropTree => self.removed += 1,
        }
    }

    fn join(&mut self, other: Growth) {
        self.set += other.set;
        self.removed += other.removed;
        self.bytes += other.bytes;
    }
}

/// A savepoint.
#[derive(Clone, Copy, Debug)]
struct Mark {
    runs: usize,
    undo: usize,
    counted: usize,
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    layer: Layer,
    bytes: usize,
    undo: Vec<Undo>,
    marks: Vec<Mark>,
    runs: Vec<Arc<SortedRun>>,
    /// Hashes of the layer's keys, if a transaction that renews its snapshot needs them.
    hashes: Option<HashSet<u64>>,
    /// Hashes of keys that count as changed for conflicts only: lists that no savepoint divides.
    counted: Vec<(TreeId, Vec<u64>)>,
    /// Trees that it creates, including those that were rolled back.
    pub(crate) created: Vec<TreeId>,
    /// The claim on the journal, from the first spill chunk on.
    pub(crate) claim: Option<Claim>,
}

impl WriteBuffer {
    /// Whether there are no changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.layer.values().all(BTreeMap::is_empty)
    }

    /// Whether there is nothing that another transaction could conflict with.
    pub(crate) fn is_free(&self) -> bool {
        self.is_empty() && self.counted.is_empty()
    }

    /// Memory that can be spilled.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The runs spilled so far, oldest first.
    pub(crate) fn runs(&self) -> &[Arc<SortedRun>] {
        &self.runs
    }

    /// Returns the operation of this transaction on a key.
    pub(crate) fn get(&self, journal: &Journal, tree: TreeId, key: &[u8]) -> Result<Option<Op>, StoreError> {
        if self.is_dropped(tree) {
            return Ok(Some(Op::Delete));
        }
        if let Some(op) = self.layer.get(&tree).and_then(|keys| keys.get(key)) {
            return Ok(Some(op.clone()));
        }
        for run in self.runs.iter().rev() {
            if let Some(op) = run.get(journal, tree, key)? {
                return Ok(Some(op));
            }
        }
        Ok(None)
    }

    /// Whether this transaction drops the tree.
    pub(crate) fn is_dropped(&self, tree: TreeId) -> bool {
        self.layer.get(&tree).is_some_and(|keys| keys.contains_key(WHOLE))
            || self.runs.iter().any(|run| run.dropped.contains(&tree))
    }

    /// From now on it knows the hashes of its keys. To be called before [`meets`](WriteBuffer::meets), each time.
    pub(crate) fn keep_hashes(&mut self) {
        let counted = self.counted.iter_mut().map(|(_, counted)| counted);
        counted.filter(|counted| !counted.is_sorted()).for_each(|counted| counted.sort_unstable());
        if self.hashes.is_none() {
            let of = |(tree, keys): (&TreeId, &BTreeMap<Bytes, Op>)| -> Vec<u64> {
                keys.keys().map(|key| write_set::hash(*tree, key)).collect()
            };
            self.hashes = Some(self.layer.iter().flat_map(of).collect());
        }
    }

    /// Whether one of these hashes is that of a key that it changes or counts as changed. Needs
    /// [`keep_hashes`](WriteBuffer::keep_hashes).
    pub(crate) fn meets(&self, theirs: &[u64]) -> bool {
        let is_own = |key: &u64| {
            self.hashes.as_ref().is_some_and(|own| own.contains(key))
                || self.sorted_hashes().any(|own| own.binary_search(key).is_ok())
        };
        theirs.iter().any(is_own)
    }

    /// Hashes of the layer's keys. Needs [`keep_hashes`](WriteBuffer::keep_hashes).
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.hashes.iter().flatten().copied()
    }

    /// Hashes of the other keys that it changes or counts as changed, in sorted lists. Needs
    /// [`keep_hashes`](WriteBuffer::keep_hashes).
    pub(crate) fn sorted_hashes(&self) -> impl Iterator<Item = &[u64]> {
        let runs = self.runs.iter().map(|run| run.hashes.as_slice());
        runs.chain(self.counted.iter().map(|(_, counted)| counted.as_slice()))
    }

    /// How many hashes these are.
    pub(crate) fn hash_count(&self) -> usize {
        self.hashes.as_ref().map_or(0, HashSet::len) + self.sorted_hashes().map(<[u64]>::len).sum::<usize>()
    }

    /// The trees that it drops.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = TreeId> {
        let in_layer = self.layer.iter().filter(|(_, keys)| keys.contains_key(WHOLE)).map(|(tree, _)| *tree);
        in_layer.chain(self.runs.iter().flat_map(|run| run.dropped.iter().copied()))
    }

    /// Changes a key.
    pub(crate) fn set(&mut self, tree: TreeId, key: Bytes, op: Op) {
        if let Some(hashes) = &mut self.hashes {
            hashes.insert(write_set::hash(tree, &key));
        }
        let taken = |key: &Bytes, op: &Op| OVERHEAD_BYTES + key.len() + op.bytes();
        self.bytes += taken(&key, &op);
        let keys = self.layer.entry(tree).or_default();
        let before = if self.marks.is_empty() {
            match keys.get_mut(&key) {
                Some(held) => Some(std::mem::replace(held, op)),
                None => keys.insert(key.clone(), op),
            }
        } else {
            let before = keys.insert(key.clone(), op);
            self.bytes += OVERHEAD_BYTES;
            self.undo.push(Undo { tree, key: key.clone(), before });
            return;
        };
        if let Some(before) = before {
            self.bytes -= taken(&key, &before);
        }
    }

    /// Counts keys as changed, for conflicts only.
    pub(crate) fn count_as_changed<'a>(&mut self, tree: TreeId, keys: impl IntoIterator<Item = &'a [u8]>) {
        let hashes = keys.into_iter().map(|key| write_set::hash(tree, key));
        let kept = self.marks.last().map_or(0, |mark| mark.counted);
        match self.counted[kept..].iter_mut().find(|(of, _)| *of == tree) {
            Some((_, counted)) => counted.extend(hashes),
            None => {
                let hashes: Vec<u64> = hashes.collect();
                if !hashes.is_empty() {
                    self.counted.push((tree, hashes));
                }
            }
        }
    }

    /// Sets a savepoint; returns its number.
    pub(crate) fn savepoint(&mut self) -> usize {
        self.marks.push(Mark { runs: self.runs.len(), undo: self.undo.len(), counted: self.counted.len() });
        self.marks.len() - 1
    }

    /// Rolls back to a savepoint, which stays; later ones are removed. Panics if it is not one of this transaction.
    pub(crate) fn rollback_to(&mut self, savepoint: usize) {
        self.marks.truncate(savepoint + 1);
        let mark = self.marks[savepoint];
        self.runs.truncate(mark.runs);
        if self.runs.is_empty() {
            // Nothing of it is in the journal any more.
            self.claim = None;
        }
        self.counted.truncate(mark.counted);
        self.undo_to(mark.undo);
    }

    /// Removes a savepoint and later ones; their changes stay. Panics if it is not one of this transaction.
    pub(crate) fn release(&mut self, savepoint: usize) {
        assert!(savepoint < self.marks.len(), "the savepoint is one of this transaction");
        self.marks.truncate(savepoint);
        if self.marks.is_empty() {
            // What the changes replaced is not kept any more.
            for Undo { key, before, .. } in self.undo.drain(..) {
                self.bytes -= OVERHEAD_BYTES + before.map_or(0, |op| OVERHEAD_BYTES + key.len() + op.bytes());
            }
        }
    }

    /// Undoes the newest changes, down to that length of the undo log.
    fn undo_to(&mut self, length: usize) {
        for Undo { tree, key, before } in self.undo.drain(length..).rev() {
            self.bytes -= OVERHEAD_BYTES;
            let keys = self.layer.entry(tree).or_default();
            let undone = match before {
                Some(before) => keys.insert(key.clone(), before),
                None => {
                    if let Some(hashes) = &mut self.hashes {
                        hashes.remove(&write_set::hash(tree, &key));
                    }
                    keys.remove(&key)
                }
            };
            let op = undone.expect("an undone change is in the layer");
            self.bytes -= OVERHEAD_BYTES + key.len() + op.bytes();
        }
    }

    /// Moves the layer into the journal, as runs.
    ///
    /// Errors: those of `append`; the write buffer cannot be used any more then.
    pub(crate) fn spill(&mut self, append: &mut dyn FnMut(&[u8]) -> Result<Lsn, StoreError>) -> Result<(), StoreError> {
        // Only runs that are read again keep a chunk: a transaction of many runs would keep as many chunks.
        self.runs.iter().for_each(|run| run.release());
        let parts = self.split();
        let mut boundaries = Vec::with_capacity(parts.len());
        for part in parts {
            if part.values().any(|keys| !keys.is_empty()) {
                let run = SortedRun::write(&part, append)?;
                self.runs.push(Arc::new(run));
            }
            boundaries.push(self.runs.len());
        }
        // The marks in memory are the last ones, one at the end of each part except the last.
        let in_memory = boundaries.len() - 1;
        let first = self.marks.len() - in_memory;
        for (mark, runs) in self.marks[first..].iter_mut().zip(&boundaries) {
            *mark = Mark { runs: *runs, undo: 0, ..*mark };
        }
        Ok(())
    }

    /// Splits the layer at the savepoints, oldest part first, and leaves it empty.
    fn split(&mut self) -> Vec<Layer> {
        let spilled = self.runs.len();
        let in_memory: Vec<usize> =
            self.marks.iter().filter(|mark| mark.runs == spilled).map(|mark| mark.undo).collect();
        let mut parts = Vec::with_capacity(in_memory.len() + 1);
        for undo in in_memory.into_iter().rev() {
            let mut part = Layer::new();
            for change in &self.undo[undo..] {
                let op = self.layer.get(&change.tree).and_then(|keys| keys.get(&change.key)).expect("it was changed");
                part.entry(change.tree).or_default().insert(change.key.clone(), op.clone());
            }
            parts.push(part);
            self.undo_to(undo);
        }
        self.undo.clear();
        self.bytes = 0;
        parts.push(std::mem::take(&mut self.layer));
        if let Some(hashes) = &mut self.hashes {
            hashes.clear();
        }
        parts.reverse();
        parts
    }

    /// Bytes of rows that it sets; 0 if it removes more: a transaction that frees space is not refused for lack of it.
    pub(crate) fn grows(&self) -> u64 {
        let mut sum = Growth::default();
        self.layer.values().flatten().for_each(|(key, op)| sum.add(key, op));
        self.runs.iter().for_each(|run| sum.join(run.growth));
        if sum.removed > sum.set { 0 } else { sum.bytes }
    }

    /// The trees that it changes, some possibly more than once.
    pub(crate) fn trees(&self) -> impl Iterator<Item = TreeId> {
        self.layer.keys().copied().chain(self.runs.iter().flat_map(|run| run.trees.iter().copied()))
    }

    /// Takes the layer's changes, sorted; the runs remain.
    pub(crate) fn take_layer(&mut self) -> Vec<Change> {
        let layer = std::mem::take(&mut self.layer);
        let count = layer.values().map(BTreeMap::len).sum();
        let mut changes = Vec::with_capacity(count);
        for (tree, keys) in layer {
            changes.extend(keys.into_iter().map(|(key, op)| Change { tree, key, op }));
        }
        changes
    }

    /// Returns its write set; called once.
    pub(crate) fn write_set(&mut self) -> WriteSet {
        let mut found = WriteSet::default();
        let mut trees = HashSet::new();
        for (tree, keys) in self.layer.iter().filter(|(_, keys)| !keys.is_empty()) {
            trees.insert(*tree);
            found.keys.extend(keys.keys().map(|key| write_set::hash(*tree, key)));
            if keys.contains_key(WHOLE) {
                found.dropped.push(*tree);
            }
        }
        for run in &self.runs {
            trees.extend(run.trees.iter().copied());
            found.dropped.extend(run.dropped.iter().copied());
            found.runs.push(run.hashes.clone());
        }
        for (tree, mut hashes) in std::mem::take(&mut self.counted) {
            trees.insert(tree);
            hashes.sort_unstable();
            found.runs.push(Arc::new(hashes));
        }
        found.trees = trees.into_iter().collect();
        found.trees.sort_unstable();
        found
    }

    /// The layer's changes of a range, in order.
    pub(crate) fn range(&self, tree: TreeId, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Vec<(Bytes, Op)> {
        let Some(keys) = self.layer.get(&tree) else { return Vec::new() };
        if is_empty(range) {
            return Vec::new();
        }
        keys.range::<[u8], _>(range).map(|(key, op)| (key.clone(), op.clone())).collect()
    }

    /// The size of one record with the whole layer.
    pub(crate) fn record_bytes(&self) -> usize {
        let of = |(key, op): (&Bytes, &Op)| record::CHANGE_BYTES + key.len() + op.bytes();
        record::HEADER_BYTES + self.layer.values().flatten().map(of).sum::<usize>()
    }
}
