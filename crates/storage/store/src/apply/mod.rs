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
//! or the background thread. Nobody can have a snapshot between two records of a batch, so the batch is one step:
//! of several changes of a key the last one counts, and the trees are changed in the order of their keys.
//!
//! A spilled transaction is a batch of its own, applied piece by piece from its runs.
//!
//! Whatever dirties more than a part of the cache is applied in pieces: between two of them the lock is given back, and a
//! checkpoint may begin. So no record is too large for the cache. What a checkpoint has then is applied again after a crash, from
//! the batch's first record: putting and deleting twice does no harm.
//!
//! A batch that finds no room on the medium stays as far as it came, unseen; it is read from the journal and applied again,
//! from its first record, until there is room. Updates are refused meanwhile, the store is not poisoned.
//!
//! Invariants:
//! 1. What is changed in a tree is durable.
//! 2. Snapshots up to `visible` read what they should at any moment, also beside a batch half applied, also if it fails there.
//! 3. While a batch is begun and not ended, the [redo position](RedoPosition) knows its first record, so that no checkpoint takes it
//!    for applied.

#[cfg(test)]
mod tests;

mod recovery;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use device::supervise;
use journal::{Journal, Lsn};
use parking_lot::{Mutex, MutexGuard};

use crate::catalog::{CATALOG, NEXT_TREE, id_of};
use crate::checkpoint::checkpointer::CheckpointSource;
use crate::checkpoint::dirty::CacheDirtyPages;
use crate::checkpoint::runner::Checkpoints;
use crate::checkpoint::writer::{CheckpointBegin, CheckpointSummary};
use crate::interpreter::{Changes, Foreign};
use crate::options::Options;
use crate::pages::Pages;
use crate::queue::{Queue, QueuedRecord, RecordBody};
use crate::record::{Change, Op, SpilledRun};
use crate::redo::RedoPosition;
use crate::retention::Retention;
use crate::space::Space;
use crate::space::poison::Poison;
use crate::versioned::VersionedTrees;
use crate::versions::Replaced;
use crate::writes::{RunCursor, SortedRun};
use crate::{StoreError, TreeId};

pub(crate) use recovery::Recovery;

/// Payload of one batch, bytes: what a busy node makes in a few of the background's pauses, little enough that a committer behind
/// it waits for some milliseconds; behind a batch of nothing but small rows, for some tens.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// Changes of a spilled transaction gathered at a time.
const PIECE_CHANGES: usize = 4096;

/// Of the cache, as much may become dirty before a checkpoint may begin.
const PIECE_OF_CACHE: u64 = 32;

/// What only the applier uses, under its lock. A checkpoint that begins takes the lock: it stands between two batches, or two
/// pieces of one.
#[derive(Debug, Default)]
pub(crate) struct ApplyState {
    /// The next tree that is made gets at least this id.
    pub(crate) next_tree: u32,
    /// Records applied since opening.
    pub(crate) records: u64,
    /// Changes applied since opening.
    pub(crate) changes: u64,
    /// What became dirty at most since a checkpoint could begin, in bytes.
    dirtied: u64,
    /// The last record of the batch that was begun last.
    last: u64,
    /// The first and the last record of a batch that found no room.
    waiting: Option<(Lsn, Lsn)>,
    /// What the batch that is begun and not ended changes, sorted; but for that of a spilled transaction. Between two pieces of
    /// it some of this is nowhere else to be looked up.
    pub(crate) batch: Arc<Vec<Change>>,
}

/// The applier's lock.
pub(crate) type ApplyGuard<'a> = MutexGuard<'a, ApplyState>;

/// Changes the trees as the journal says, and hands what became dirty to checkpoints.
pub(crate) struct Applier {
    pub(crate) journal: Arc<Journal>,
    pub(crate) options: Arc<Options>,
    pub(crate) trees: Arc<VersionedTrees>,
    pub(crate) space: Arc<Space>,
    pub(crate) queue: Queue,
    pub(crate) redo: RedoPosition,
    pub(crate) retention: Arc<Retention>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) poison: Poison,
    /// No updates any more.
    closed: AtomicBool,
    state: Mutex<ApplyState>,
}

/// What an applier is made of.
pub(crate) struct ApplierParts {
    pub(crate) journal: Arc<Journal>,
    pub(crate) options: Arc<Options>,
    pub(crate) trees: Arc<VersionedTrees>,
    pub(crate) space: Arc<Space>,
    pub(crate) redo: RedoPosition,
    pub(crate) retention: Arc<Retention>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) poison: Poison,
}

/// Poisons the store where applying panics: the record is taken from the queue, and the trees may be changed by half.
struct PoisonOnPanic<'a>(&'a Poison);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(&"applying a durable record panicked");
        }
    }
}

/// What the thread of the checkpoints sees of the applier; the store may be gone meanwhile.
struct WeakSource(Weak<Applier>);

impl CheckpointSource for WeakSource {
    fn begin_checkpoint(&self) -> Result<CheckpointBegin, StoreError> {
        match self.0.upgrade() {
            Some(applier) => applier.begin_checkpoint(),
            None => Err(StoreError::closed()),
        }
    }

    fn load(&self) -> (u64, Lsn) {
        self.0.upgrade().map_or((0, Lsn::ZERO), |applier| applier.load())
    }

    fn over(&self, redo_lsn: Lsn) -> Result<(), StoreError> {
        self.0.upgrade().map_or(Ok(()), |applier| applier.over(redo_lsn))
    }
}

impl CheckpointSource for Applier {
    /// With the applier's lock. Not where applying failed half way: a tree may be split in part, and must not be written.
    fn begin_checkpoint(&self) -> Result<CheckpointBegin, StoreError> {
        let state = self.state.lock();
        self.poison.check()?;
        let redo_lsn = self.applied();
        self.redo.begin_checkpoint(redo_lsn, Lsn(state.last));
        self.space.set_horizon(Lsn(self.trees.snapshots.oldest()));
        let map = self.space.begin_checkpoint(redo_lsn);
        let dirty = Box::new(CacheDirtyPages::new(self.trees.forest.cache.begin_checkpoint()));
        let catalog = self.trees.forest.root();
        Ok(CheckpointBegin { redo_lsn, catalog, next_tree: 0, micros: (self.options.clock)(), dirty, map })
    }

    /// Bytes of changes that are not written back; fresh pages count half, for they can be written in place at any time.
    fn load(&self) -> (u64, Lsn) {
        let dirty = self.trees.forest.cache.dirty_bytes();
        (dirty.changed + dirty.checkpoint + dirty.fresh / 2, self.applied())
    }

    fn over(&self, redo_lsn: Lsn) -> Result<(), StoreError> {
        if self.redo.is_recovering() {
            return Ok(());
        }
        Ok(self.journal.truncate(self.retention.truncation(redo_lsn))?)
    }
}

impl Applier {
    /// With nothing applied yet: [`recover`](Applier::recover) comes before anything else.
    pub(crate) fn new(parts: ApplierParts) -> Applier {
        let ApplierParts { journal, options, trees, space, redo, retention, checkpoints, poison } = parts;
        let (queue, closed, state) = (Queue::default(), AtomicBool::new(false), Mutex::default());
        Applier { journal, options, trees, space, queue, redo, retention, checkpoints, poison, closed, state }
    }

    /// The applier's lock.
    pub(crate) fn lock(&self) -> ApplyGuard<'_> {
        self.state.lock()
    }

    /// Hands checkpoints over to a thread.
    pub(crate) fn start_checkpointer(self: &Arc<Applier>) -> Result<(), StoreError> {
        self.checkpoints.start(Arc::new(WeakSource(Arc::downgrade(self))))
    }

    /// Waits, or writes, while too much is dirty; without the applier's lock.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        self.checkpoints.admit(self)
    }

    /// A whole checkpoint, which begins after this call.
    pub(crate) fn checkpoint(&self) -> Result<CheckpointSummary, StoreError> {
        self.checkpoints.run(self)
    }

    /// From now on nothing is applied, and no update is taken. What is being applied is done when it returns.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        drop(self.state.lock());
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.cause().is_some()
    }

    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Refused`] after closing.
    pub(crate) fn check_updates(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::closed());
        }
        self.poison.check()
    }

    /// Poisons the store: the first cause counts. Answers what to tell the caller.
    pub(crate) fn poison_with(&self, error: StoreError) -> StoreError {
        match error {
            poisoned @ StoreError::Poisoned { .. } if self.is_poisoned() => poisoned,
            // It came late, and closing goes on.
            refused @ StoreError::Refused(_) if self.closed.load(Ordering::Acquire) => refused,
            error => self.poison.set(&error),
        }
    }

    /// Everything before this is applied, and stays so.
    fn applied(&self) -> Lsn {
        self.redo.applied(self.journal.durable(), || self.queue.first())
    }

    /// Applies one batch of what is durable. Answers whether there was one. Where that fails or panics the store is poisoned
    /// before the applier's lock is released: no checkpoint may begin with trees that are changed by half. Errors:
    /// [`StoreError::Poisoned`].
    pub(crate) fn apply_batch(&self) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        if self.check_updates().is_err() {
            return Ok(false);
        }
        let _on_panic = PoisonOnPanic(&self.poison);
        supervise::rehearse("batch");
        let entries = match state.waiting {
            Some((first, last)) => match self.read_again(first, last) {
                // There is no descriptor to read it with: it waits on.
                Err(error @ StoreError::Full(_)) => return Err(error),
                read => read.map_err(|error| self.poison_with(error))?,
            },
            None => self.queue.take(self.journal.durable(), BATCH_BYTES),
        };
        let is_some = !entries.is_empty();
        let applied = if is_some { self.apply_entries(&mut state, entries) } else { self.collect() };
        match applied {
            Ok(()) => Ok(is_some),
            Err(error @ StoreError::Full(_)) if state.waiting.is_some() => Err(error),
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
            entries.extend(QueuedRecord::of(record)?);
        }
        Ok(entries)
    }

    /// Applies records as one step. Errors leave snapshots as they are; but for [`StoreError::Full`] the store must be poisoned then.
    fn apply_entries(&self, state: &mut ApplyGuard<'_>, entries: Vec<QueuedRecord>) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let (first, last, records) = (first.lsn, last.lsn, entries.len());
        self.redo.begin_batch(Lsn(first));
        state.last = last;
        self.space.applying(Lsn(last));
        let mut replaced = if self.redo.is_recovering() { Replaced::unseen(last) } else { Replaced::at(last) };
        let applied = self.apply_step(state, entries, last, &mut replaced);
        // Also where only a part is applied: nobody may see it before the whole is.
        self.trees.versions.publish(replaced);
        if let Err(error) = applied {
            let is_full = matches!(error, StoreError::Full(_));
            state.waiting = is_full.then_some((Lsn(first), Lsn(last)));
            return Err(error);
        }
        state.waiting = None;
        state.batch = Arc::default();
        state.records += records as u64;
        self.trees.snapshots.publish(last);
        self.redo.end_batch(Lsn(last));
        self.collect()
    }

    fn apply_step(
        &self,
        state: &mut ApplyGuard<'_>,
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
                        interpreter.apply(&record, self.trees.interpreted(), &mut changes)?;
                    }
                }
                RecordBody::Spilled(runs) => self.apply_spilled(state, lsn, &runs, replaced)?,
            }
        }
        let changes = Arc::new(sorted(changes.list));
        state.batch = Arc::clone(&changes);
        self.apply_sorted(state, lsn, &changes, &mut HashSet::new(), replaced)
    }

    /// Notes what a change may make dirty, and lets a checkpoint begin where that is much.
    fn dirtied(&self, state: &mut ApplyGuard<'_>, bytes: u64) -> Result<(), StoreError> {
        state.dirtied += bytes;
        if state.dirtied <= self.options.cache_bytes / PIECE_OF_CACHE {
            return Ok(());
        }
        state.dirtied = 0;
        MutexGuard::unlocked(state, || self.admit())
    }

    /// Merges the runs, the newest first, and applies them piece by piece.
    fn apply_spilled(
        &self,
        state: &mut ApplyGuard<'_>,
        lsn: u64,
        runs: &[SpilledRun],
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
                self.apply_sorted(state, lsn, &full, &mut dropped, replaced)?;
            }
        }
        self.apply_sorted(state, lsn, &piece, &mut dropped, replaced)
    }

    /// Changes the trees; of several changes of a key the last counts.
    fn apply_sorted(
        &self,
        state: &mut ApplyGuard<'_>,
        lsn: u64,
        changes: &[Change],
        dropped: &mut HashSet<TreeId>,
        replaced: &mut Replaced,
    ) -> Result<(), StoreError> {
        state.changes += changes.len() as u64;
        for of_one in changes.chunk_by(|a, b| a.tree == b.tree) {
            let tree = of_one[0].tree;
            if of_one[0].op == Op::DropTree && dropped.insert(tree) {
                replaced.drop_tree(tree);
                self.trees.forest.hide(tree, lsn);
            }
            if dropped.contains(&tree) {
                continue;
            }
            let mut writer = self.trees.forest.change(tree, lsn)?;
            let mut replacing = self.trees.versions.writer(tree, replaced);
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
                    old.iter().for_each(|cell| self.trees.forest.mark_pending_free(cell, &self.space));
                    // Nothing was there and nothing is: no change.
                    if old.is_some() || value.is_some() {
                        unseen = replacing.push(&change.key, old);
                    }
                })?;
                unseen.take().iter().for_each(|cell| self.trees.forest.free(cell));
                if replacing.bytes() > self.options.versions_bytes {
                    let garbage = self.trees.versions.let_go(replacing.replaced());
                    garbage.values.iter().for_each(|cell| self.trees.forest.free(cell));
                }
                self.dirtied(state, self.trees.forest.cache.page_bytes() as u64 + change.op.bytes() as u64)?;
            }
            if let Some(made) = made.filter(|made| made.0 >= state.next_tree) {
                state.next_tree = made.0 + 1;
                let key = Bytes::from_static(NEXT_TREE);
                writer.set(&key, Some(&state.next_tree.to_le_bytes()), |old| drop(replacing.push(&key, old)))?;
            }
        }
        Ok(())
    }

    /// Drops the old versions that no snapshot sees, and those beyond the limit. In the applier's role.
    fn collect(&self) -> Result<(), StoreError> {
        let oldest = self.trees.collect(self.options.versions_bytes)?;
        self.space.set_horizon(oldest);
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
