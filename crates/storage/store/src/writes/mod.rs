//! [`WriteBuffer`]: what a transaction has changed so far, and nobody else sees.
//!
//! ```text
//!   layer    in memory: tree -> key -> operation                    newest
//!   runs     spilled: sorted spill chunks in the journal, run by run    older the earlier
//!   undo     for each change since the first savepoint: what the layer held before
//! ```
//!
//! *Savepoints* are positions in the undo log; going back takes the changes back one by one. Nothing is cloned.
//!
//! *Spilling*: beyond a limit of memory the layer becomes a run of spill chunks in the journal, which are durable before
//! they are read. A commit record that names the spill chunks makes them count; without one they are skipped by recovery, so that
//! neither a rollback nor a crash leaves anything behind. The spill chunks are the only copy: they are read back where the
//! transaction looks at its own changes, and when they are applied.
//!
//! With savepoints in force the layer is spilled as several runs, one for the changes up to the first savepoint and one
//! for those behind each: going back to a savepoint then leaves out the runs behind it.
//!
//! Invariants:
//! 1. A key's operation is that of the layer, else of the newest run that has the key.
//! 2. After a spill the layer and the undo log are empty, and each savepoint is a number of runs.
//! 3. A dropped tree takes no more changes; the mark is the operation of its empty key.

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

/// What a change takes in memory beside key and value, rounded up.
const OVERHEAD_BYTES: usize = 128;

type Layer = BTreeMap<TreeId, BTreeMap<Bytes, Op>>;

/// What the layer held before a change.
#[derive(Debug)]
struct Undo {
    tree: TreeId,
    key: Bytes,
    before: Option<Op>,
}

/// How much changes add.
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
}

/// See the file's essay.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    layer: Layer,
    bytes: usize,
    undo: Vec<Undo>,
    marks: Vec<Mark>,
    runs: Vec<Arc<SortedRun>>,
    /// Hashes of keys that count as changed when it comes to conflicts, and are not.
    counted: BTreeMap<TreeId, Vec<u64>>,
    /// Trees that it makes; of those taken back, too.
    pub(crate) created: Vec<TreeId>,
    /// Of the journal, from the first spill chunk on.
    pub(crate) claim: Option<Claim>,
}

impl WriteBuffer {
    /// Whether nothing is changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.layer.values().all(BTreeMap::is_empty)
    }

    /// Memory taken by what can be spilled.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The runs spilled so far, oldest first.
    pub(crate) fn runs(&self) -> &[Arc<SortedRun>] {
        &self.runs
    }

    /// What this transaction has done to a key.
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

    /// Changes a key.
    pub(crate) fn set(&mut self, tree: TreeId, key: Bytes, op: Op) {
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

    /// Counts keys as changed, as far as conflicts go. Going back to a savepoint leaves that as it is.
    pub(crate) fn count_as_changed<'a>(&mut self, tree: TreeId, keys: impl IntoIterator<Item = &'a [u8]>) {
        let hashes = keys.into_iter().map(|key| write_set::hash(tree, key));
        self.counted.entry(tree).or_default().extend(hashes);
    }

    /// Remembers this moment; answers its number.
    pub(crate) fn savepoint(&mut self) -> usize {
        self.marks.push(Mark { runs: self.runs.len(), undo: self.undo.len() });
        self.marks.len() - 1
    }

    /// Goes back to it; it stays, later ones are gone. Panics if it is none of this transaction's.
    pub(crate) fn rollback_to(&mut self, savepoint: usize) {
        self.marks.truncate(savepoint + 1);
        let mark = self.marks[savepoint];
        self.runs.truncate(mark.runs);
        self.undo_to(mark.undo);
    }

    /// Takes the newest changes back, to that length of the undo log.
    fn undo_to(&mut self, length: usize) {
        for Undo { tree, key, before } in self.undo.drain(length..).rev() {
            self.bytes -= OVERHEAD_BYTES;
            let keys = self.layer.entry(tree).or_default();
            let undone = match before {
                Some(before) => keys.insert(key.clone(), before),
                None => keys.remove(&key),
            };
            let op = undone.expect("an undone change is in the layer");
            self.bytes -= OVERHEAD_BYTES + key.len() + op.bytes();
        }
    }

    /// Moves the layer into the journal, as runs.
    ///
    /// Errors: those of `append`; the write buffer is of no more use then.
    pub(crate) fn spill(&mut self, append: &mut dyn FnMut(&[u8]) -> Result<Lsn, StoreError>) -> Result<(), StoreError> {
        let parts = self.split();
        let mut boundaries = Vec::with_capacity(parts.len());
        for part in parts {
            if part.values().any(|keys| !keys.is_empty()) {
                let run = SortedRun::write(&part, append)?;
                self.runs.push(Arc::new(run));
            }
            boundaries.push(self.runs.len());
        }
        // The marks in memory are the last ones, one at the end of each part but the last.
        let in_memory = boundaries.len() - 1;
        let first = self.marks.len() - in_memory;
        for (mark, runs) in self.marks[first..].iter_mut().zip(&boundaries) {
            *mark = Mark { runs: *runs, undo: 0 };
        }
        Ok(())
    }

    /// Takes the layer apart at the savepoints, oldest part first, and leaves it empty.
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
        parts.reverse();
        parts
    }

    /// Bytes of rows that it sets; none where it removes more rows than that: what makes room is not refused for want of it.
    pub(crate) fn grows(&self) -> u64 {
        let mut sum = Growth::default();
        self.layer.values().flatten().for_each(|(key, op)| sum.add(key, op));
        self.runs.iter().for_each(|run| sum.join(run.growth));
        if sum.removed > sum.set { 0 } else { sum.bytes }
    }

    /// The trees that it changes, maybe some more than once.
    pub(crate) fn trees(&self) -> impl Iterator<Item = TreeId> {
        self.layer.keys().copied().chain(self.runs.iter().flat_map(|run| run.trees.iter().copied()))
    }

    /// The layer's changes, sorted; what remains are the runs.
    pub(crate) fn take_layer(&mut self) -> Vec<Change> {
        let layer = std::mem::take(&mut self.layer);
        let count = layer.values().map(BTreeMap::len).sum();
        let mut changes = Vec::with_capacity(count);
        for (tree, keys) in layer {
            changes.extend(keys.into_iter().map(|(key, op)| Change { tree, key, op }));
        }
        changes
    }

    /// What it conflicts with; asked once.
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

    /// What one record takes that holds the layer.
    pub(crate) fn record_bytes(&self) -> usize {
        let of = |(key, op): (&Bytes, &Op)| record::CHANGE_BYTES + key.len() + op.bytes();
        record::HEADER_BYTES + self.layer.values().flatten().map(of).sum::<usize>()
    }
}
