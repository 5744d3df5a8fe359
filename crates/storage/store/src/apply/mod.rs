//! Applying: durable records become changes of trees, in the order of the log, and visible.
//!
//! ```text
//!   queue --> batch of durable records --> interpreter --> changes, sorted by tree and key, the last of each key
//!                                                               |
//!         old value -> versions, then the tree changes          v
//!         all of them: visible = LSN of the batch's last record, old versions collected
//! ```
//!
//! One thread at a time applies, whoever has the role (see [`crate::commit::waiters`]): a committer that must see its own change,
//! or the thread of the background. Nobody can have a snapshot between two records of a batch, so the batch is one step:
//! of several changes of a key the last one counts, and the trees are changed in the order of their keys.
//!
//! A spilled transaction is a batch of its own, applied piece by piece from its runs.
//!
//! Whatever dirties more than a part of the cache is applied in pieces: between two of them the lock is given back, and a
//! checkpoint may begin. So no record is too large for the cache. What a checkpoint has then is applied again from the batch's first record
//! after a crash: putting and deleting twice does no harm.
//!
//! A batch that finds no room on the medium stays as far as it came, unseen; it is read from the journal and applied again,
//! from its first record, until there is room. Updates are refused meanwhile, the store is not poisoned.
//!
//! Invariants:
//! 1. What is changed in a tree is durable.
//! 2. Snapshots up to `visible` read what they should at any moment, also beside a batch half applied, also if it fails there.
//! 3. While a batch is begun and not ended, `applying` is its first record, so that no checkpoint takes it for applied.

mod background;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use device::supervise;
use journal::Lsn;
use parking_lot::MutexGuard;

use crate::commit::queue::{QueuedRecord, RecordBody};
use crate::interpreter::{Changes, Foreign};
use crate::pages::Pages;
use crate::record::{self, Change, Op};
use crate::store::{CATALOG, Inner, entry_of};
use crate::versions::Replaced;
use crate::writes::{RunCursor, SortedRun};
use crate::{StoreError, TreeId};

pub(crate) use background::{Background, start};

/// Payload of one batch, bytes: what a busy node makes in a few of the background's pauses, little enough that a committer behind
/// it waits for some milliseconds; behind a batch of nothing but small rows, for some tens.
const BATCH_BYTES: usize = 4 << 20;

/// Changes of a spilled transaction gathered at a time.
const PIECE_CHANGES: usize = 4096;

/// Of the cache, as much may become dirty before a checkpoint may begin.
const PIECE_OF_CACHE: u64 = 32;

/// What only the applier uses, under its lock. A checkpoint of the pages takes the lock: it stands between two batches.
#[derive(Debug, Default)]
pub(crate) struct Applier {
    /// The next tree that is made gets at least this id.
    pub(crate) next_tree: u32,
    /// Records applied since opening.
    pub(crate) records: u64,
    /// Changes applied since opening.
    pub(crate) changes: u64,
    /// What became dirty at most since a checkpoint could begin, in bytes.
    dirtied: u64,
    /// The last record of the batch that was begun last.
    pub(crate) last: u64,
    /// The first and the last record of a batch that found no room.
    waiting: Option<(Lsn, Lsn)>,
    /// What the batch that is begun and not ended changes, sorted; but for that of a spilled transaction. Between two pieces of it
    /// some of this is nowhere else to be looked up.
    pub(crate) batch: Arc<Vec<Change>>,
}

/// The applier's lock.
pub(crate) type Guard<'a> = MutexGuard<'a, Applier>;

/// Poisons the store where applying panics: the record is taken from the queue, and the trees may be changed by half.
struct PoisonOnPanic<'a>(&'a Inner);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison.set(&"applying a durable record panicked");
        }
    }
}

impl Inner {
    /// Applies one batch of what is durable. Answers whether there was one. Where that fails or panics the store is poisoned
    /// before the applier's lock is released: no checkpoint may begin with trees that are changed by half. Errors: [`StoreError::Poisoned`].
    pub(crate) fn apply_batch(&self) -> Result<bool, StoreError> {
        let mut applier = self.applier.lock();
        if self.is_poisoned() || self.closed.load(Ordering::Acquire) {
            return Ok(false);
        }
        let _poisoned = PoisonOnPanic(self);
        supervise::rehearse("batch");
        let entries = match applier.waiting {
            Some((first, last)) => match self.read_again(first, last) {
                // There is no descriptor to read it with: it waits on.
                Err(error @ StoreError::Full(_)) => return Err(error),
                read => read.map_err(|error| self.poison_with(error))?,
            },
            None => self.queue.take(self.journal.durable(), BATCH_BYTES),
        };
        let is_some = !entries.is_empty();
        let applied = if is_some { self.apply_entries(&mut applier, entries) } else { self.collect() };
        match applied {
            Ok(()) => Ok(is_some),
            Err(error @ StoreError::Full(_)) if applier.waiting.is_some() => Err(error),
            Err(error) => Err(self.poison_with(error)),
        }
    }

    /// The records of a batch, from the journal.
    fn read_again(&self, first: Lsn, last: Lsn) -> Result<Vec<QueuedRecord>, StoreError> {
        let mut entries = Vec::new();
        for record in self.journal.read(first) {
            let record = record?;
            if record.lsn > last {
                break;
            }
            entries.extend(entry_of(record)?);
        }
        Ok(entries)
    }

    /// Applies records as one step. Errors leave snapshots as they are; but for [`StoreError::Full`] the store must be poisoned then.
    pub(crate) fn apply_entries(&self, applier: &mut Guard<'_>, entries: Vec<QueuedRecord>) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let (first, last, records) = (first.lsn, last.lsn, entries.len());
        self.applying.store(first, Ordering::SeqCst);
        applier.last = last;
        self.space.applying(Lsn(last));
        let recovering = self.recovering.load(Ordering::Acquire);
        let mut replaced = if recovering { Replaced::unseen(last) } else { Replaced::at(last) };
        let applied = self.apply_step(applier, entries, last, &mut replaced);
        // Also where only a part is applied: nobody may see it before the whole is.
        self.versions.publish(replaced);
        if let Err(error) = applied {
            let is_full = matches!(error, StoreError::Full(_));
            applier.waiting = is_full.then_some((Lsn(first), Lsn(last)));
            return Err(error);
        }
        applier.waiting = None;
        applier.batch = Arc::default();
        applier.records += records as u64;
        self.snapshots.publish(last);
        self.applying.store(u64::MAX, Ordering::SeqCst);
        self.collect()
    }

    fn apply_step(
        &self,
        applier: &mut Guard<'_>,
        entries: Vec<QueuedRecord>,
        lsn: u64,
        replaced: &mut Replaced,
    ) -> Result<(), StoreError> {
        let mut changes = Changes::default();
        for entry in entries {
            match entry.what {
                RecordBody::Changes(list) if changes.list.is_empty() => changes.list = list,
                RecordBody::Changes(list) => changes.list.extend(list),
                RecordBody::Foreign { kind, payload } => {
                    if let Some(interpreter) = &self.options.interpreter {
                        let record = Foreign { lsn: Lsn(entry.lsn), kind, payload: &payload };
                        interpreter.apply(&record, &self.interpreted, &mut changes)?;
                    }
                }
                RecordBody::Spilled(runs) => self.apply_spilled(applier, lsn, &runs, replaced)?,
            }
        }
        let changes = Arc::new(sorted(changes.list));
        applier.batch = Arc::clone(&changes);
        self.apply_sorted(applier, lsn, &changes, &mut HashSet::new(), replaced)
    }

    /// Notes what a change may make dirty, and lets a checkpoint begin where that is much.
    fn dirtied(&self, applier: &mut Guard<'_>, bytes: u64) -> Result<(), StoreError> {
        applier.dirtied += bytes;
        if applier.dirtied <= self.options.cache_bytes / PIECE_OF_CACHE {
            return Ok(());
        }
        applier.dirtied = 0;
        MutexGuard::unlocked(applier, || self.admit())
    }

    /// Merges the runs, the newest first, and applies them piece by piece.
    fn apply_spilled(
        &self,
        applier: &mut Guard<'_>,
        lsn: u64,
        runs: &[record::SpilledRun],
        replaced: &mut Replaced,
    ) -> Result<(), StoreError> {
        replaced.copy_keys();
        let mut sources = Vec::with_capacity(runs.len());
        for run in runs.iter().rev() {
            let mut cursor = RunCursor::all(SortedRun::of_commit_record(run).into());
            let ahead = cursor.next(&self.journal)?;
            sources.push((cursor, ahead));
        }
        let mut dropped = HashSet::new();
        let mut piece = Vec::with_capacity(PIECE_CHANGES);
        let place = |change: &Change| (change.tree, change.key.clone());
        while let Some(next) = sources.iter().filter_map(|(_, ahead)| ahead.as_ref()).map(place).min() {
            let mut newest = None;
            for (cursor, ahead) in &mut sources {
                if ahead.as_ref().is_some_and(|change| (change.tree, &change.key) == (next.0, &next.1)) {
                    let following = cursor.next(&self.journal)?;
                    let taken = std::mem::replace(ahead, following);
                    newest = newest.or(taken);
                }
            }
            piece.extend(newest);
            if piece.len() >= PIECE_CHANGES {
                let full = std::mem::take(&mut piece);
                self.apply_sorted(applier, lsn, &full, &mut dropped, replaced)?;
            }
        }
        self.apply_sorted(applier, lsn, &piece, &mut dropped, replaced)
    }

    /// Changes the trees; of several changes of a key the last counts.
    fn apply_sorted(
        &self,
        applier: &mut Guard<'_>,
        lsn: u64,
        changes: &[Change],
        dropped: &mut HashSet<TreeId>,
        replaced: &mut Replaced,
    ) -> Result<(), StoreError> {
        applier.changes += changes.len() as u64;
        for of_one in changes.chunk_by(|a, b| a.tree == b.tree) {
            let tree = of_one[0].tree;
            if of_one[0].op == Op::DropTree && dropped.insert(tree) {
                replaced.drop_tree(tree);
                self.forest.hide(tree, lsn);
            }
            if dropped.contains(&tree) {
                continue;
            }
            let mut writer = self.forest.change(tree, lsn)?;
            let mut replacing = self.versions.writer(tree, replaced);
            // An old value that nobody will look at.
            let (mut made, mut unseen) = (None, None);
            for (at, change) in of_one.iter().enumerate() {
                let value = match &change.op {
                    Op::Put(value) => Some(value.as_ref()),
                    Op::Delete | Op::DropTree => None,
                };
                if tree == CATALOG {
                    // Also of one that a later record of the batch drops again.
                    made = made.max(value.and_then(id_of));
                }
                if of_one.get(at + 1).is_some_and(|next| next.key == change.key) {
                    continue;
                }
                writer.set(&change.key, value, |old| {
                    // A crash goes back to a state without it, whoever reads it until then.
                    old.iter().for_each(|cell| self.forest.mark_pending_free(cell, &self.space));
                    // Nothing was there and nothing is: no change.
                    if old.is_some() || value.is_some() {
                        unseen = replacing.push(&change.key, old);
                    }
                })?;
                unseen.take().iter().for_each(|cell| self.forest.free(cell));
                if replacing.bytes() > self.options.versions_bytes {
                    let garbage = self.versions.let_go(replacing.replaced());
                    garbage.values.iter().for_each(|cell| self.forest.free(cell));
                }
                self.dirtied(applier, self.forest.cache.page_bytes() as u64 + change.op.bytes() as u64)?;
            }
            if let Some(made) = made.filter(|made| made.0 >= applier.next_tree) {
                applier.next_tree = made.0 + 1;
                let key = Bytes::from_static(NEXT_TREE);
                writer.set(&key, Some(&applier.next_tree.to_le_bytes()), |old| drop(replacing.push(&key, old)))?;
            }
        }
        Ok(())
    }

    /// Drops the old versions that nobody sees, and those beyond the limit. In the applier's role.
    pub(crate) fn collect(&self) -> Result<(), StoreError> {
        let (oldest, visible) = (self.snapshots.oldest(), self.snapshots.visible());
        let garbage = self.versions.collect(oldest, visible, self.options.versions_bytes);
        garbage.values.iter().for_each(|cell| self.forest.free(cell));
        garbage.trees.iter().try_for_each(|tree| self.forest.drop_tree(*tree, visible))?;
        self.space.set_horizon(Lsn(oldest));
        Ok(())
    }
}

/// By tree and key, changes of one key in their order. Most comparisons are of numbers.
fn sorted(changes: Vec<Change>) -> Vec<Change> {
    if changes.is_sorted_by(|a, b| (a.tree, &a.key) <= (b.tree, &b.key)) {
        return changes;
    }
    let head = |key: &[u8]| {
        let mut head = [0; 8];
        let bytes = key.len().min(8);
        head[..bytes].copy_from_slice(&key[..bytes]);
        u64::from_be_bytes(head)
    };
    let mut places: Vec<(TreeId, u64, u32)> =
        changes.iter().enumerate().map(|(at, change)| (change.tree, head(&change.key), at as u32)).collect();
    let key = |at: u32| (&changes[at as usize].key, at);
    places.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| key(a.2).cmp(&key(b.2))));
    let mut changes: Vec<Option<Change>> = changes.into_iter().map(Some).collect();
    places.iter().filter_map(|(_, _, at)| changes[*at as usize].take()).collect()
}

/// In the catalog, behind a byte that no name has: the id that the next tree gets, so that none is used twice.
pub(crate) const NEXT_TREE: &[u8] = b"\0next";

/// The tree that a row of the catalog names.
pub(crate) fn id_of(value: &[u8]) -> Option<TreeId> {
    Some(TreeId(u32::from_le_bytes(value.try_into().ok()?)))
}
