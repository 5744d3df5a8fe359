//! Applying: durable records become changes of trees, in the order of the log, and then visible.
//!
//! ```text
//!   queue --> batch of durable records --> interpreter --> changes, sorted by tree and key, the last of each key
//!                                                               |
//!         old value -> versions, then the tree changes          v
//!         all of them: visible = LSN of the batch's last record, old versions collected
//! ```
//!
//! One thread at a time applies: the thread that has the applier's role (see [`crate::commit::waiters`]). It is a
//! committer that must see its own change, or the background thread. No snapshot can be taken between two records of a
//! batch, so the batch is one step: of several changes of a key only the last one counts, and the trees are changed in
//! key order.
//!
//! A spilled transaction is a batch of its own, applied piece by piece from its runs.
//!
//! A batch that dirties more than a part of the cache is applied in pieces. Between two pieces the lock is released and
//! a checkpoint may begin; so no record is too large for the cache. After a crash, changes that such a checkpoint
//! already contains are applied again, from the first record of the batch. Puts and deletions are idempotent, so this
//! does no harm.
//!
//! A batch that finds the medium full keeps the changes that it has made, which are not visible. It is read from the
//! journal and applied again, from its first record, until there is space. Updates are refused meanwhile, but the store
//! is not poisoned.
//!
//! Invariants:
//! 1. Only durable changes are made in a tree.
//! 2. Snapshots up to `visible` always read consistent data, also while a batch is half applied, and also if it fails
//!    there.
//! 3. From the beginning to the end of a batch, the [redo position](RedoPosition) contains its first record, so that no
//!    checkpoint counts the batch as applied.

#[cfg(test)]
mod tests;

mod merge;
mod recovery;
mod sort;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use device::{DeviceError, supervise};
use journal::{Journal, JournalError, Lsn};
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
use crate::tree::Cell;
use crate::versioned::VersionedTrees;
use crate::versions::Replaced;
use crate::{StoreError, TreeId};

use merge::MergedRuns;
pub(crate) use recovery::Recovery;
use sort::SortBuffer;

/// Payload of one batch, bytes: about the load that a busy node produces in a few pauses of the background thread. It
/// is small enough that a committer waits some milliseconds for such a batch; if the batch consists of small rows only,
/// some tens.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// Changes of a spilled transaction that are gathered at a time.
const PIECE_CHANGES: usize = 4096;

/// The part of the cache that may become dirty before a checkpoint may begin: one in this many.
const PIECE_OF_CACHE: u64 = 32;

/// The applier's state, under its lock. A checkpoint takes this lock to begin: so it begins between two batches, or
/// between two pieces of one.
#[derive(Debug, Default)]
pub(crate) struct ApplyState {
    /// The next tree that is created gets at least this id.
    pub(crate) next_tree: u32,
    /// Records applied since opening.
    pub(crate) records: u64,
    /// Changes applied since opening.
    pub(crate) changes: u64,
    /// Upper bound of the bytes that became dirty since a checkpoint could last begin.
    dirtied: u64,
    /// The last record of the batch that began last.
    last: u64,
    /// The first and the last record of a batch that found no space.
    waiting: Option<(Lsn, Lsn)>,
    /// Memory of the old versions that this batch has stored so far.
    waiting_versions: u64,
    /// The changes of the batch that has begun and not ended, sorted; except those of a spilled transaction. Between
    /// two pieces of the batch, some of them can be looked up nowhere else.
    pub(crate) batch: Arc<Vec<Change>>,
    /// The empty list of the batch before, for the next one.
    spare: SortBuffer,
}

/// The applier's lock.
pub(crate) type ApplyGuard<'a> = MutexGuard<'a, ApplyState>;

/// Changes the trees according to the journal, and passes the dirty pages to checkpoints.
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
    /// Updates are refused, because the store is closed.
    closed: AtomicBool,
    state: Mutex<ApplyState>,
}

/// The parts of an applier.
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

/// Poisons the store if applying panics: the record is no longer in the queue, and the trees may be partly changed.
struct PoisonOnPanic<'a>(&'a Poison);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(&"applying a durable record panicked");
        }
    }
}

/// The applier as the checkpointer sees it; the store may have been dropped meanwhile.
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
    /// Takes the applier's lock. Refuses if applying failed half way: a tree may be partly split, and must not be
    /// written.
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

    /// Bytes of changes that are not written back. Fresh pages count half, because they can be written in place at any
    /// time.
    fn load(&self) -> (u64, Lsn) {
        let dirty = self.trees.forest.cache.dirty_bytes();
        (dirty.changed + dirty.checkpoint + dirty.fresh / 2, self.applied())
    }

    fn over(&self, redo_lsn: Lsn) -> Result<(), StoreError> {
        if self.redo.is_recovering() {
            return Ok(());
        }
        let gave_way = self.retention.gave_way();
        let truncated = self.journal.truncate(self.retention.truncation(redo_lsn));
        if let Err(JournalError::Device(DeviceError::Poisoned { .. })) = &truncated {
            // Said again behind each checkpoint: it does not pass.
            tracing::error!(
                "the folder of the journal could not be synced: the journal gives up no segment, and has no new one, until the node is \
                 started again"
            );
        }
        truncated?;
        self.retention.truncated(gave_way);
        Ok(())
    }
}

impl Applier {
    /// Creates an applier that has applied nothing yet: call [`recover`](Applier::recover) first.
    pub(crate) fn new(parts: ApplierParts) -> Applier {
        let ApplierParts { journal, options, trees, space, redo, retention, checkpoints, poison } = parts;
        let (queue, closed, state) = (Queue::default(), AtomicBool::new(false), Mutex::default());
        Applier { journal, options, trees, space, queue, redo, retention, checkpoints, poison, closed, state }
    }

    /// The applier's lock.
    pub(crate) fn lock(&self) -> ApplyGuard<'_> {
        self.state.lock()
    }

    /// Starts the checkpointer.
    pub(crate) fn start_checkpointer(self: &Arc<Applier>) -> Result<(), StoreError> {
        self.checkpoints.start(Arc::new(WeakSource(Arc::downgrade(self))))
    }

    /// Waits, or writes, while too much is dirty; called without the applier's lock.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        self.checkpoints.admit(self)
    }

    /// Runs a whole checkpoint, which begins after this call.
    pub(crate) fn checkpoint(&self) -> Result<CheckpointSummary, StoreError> {
        self.checkpoints.run(self)
    }

    /// Refuses updates and applies nothing from now on. A batch that is being applied has ended when it returns.
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

    /// Poisons the store: the first cause counts. Returns the error for the caller.
    pub(crate) fn poison_with(&self, error: StoreError) -> StoreError {
        match error {
            poisoned @ StoreError::Poisoned { .. } if self.is_poisoned() => poisoned,
            // The store was closed before this error: it is not a failure.
            refused @ StoreError::Refused(_) if self.closed.load(Ordering::Acquire) => refused,
            error => self.poison.set(&error),
        }
    }

    /// Truncates the journal if something that kept it has given way.
    pub(crate) fn truncate_if_wanted(&self) {
        if self.retention.take_wanted()
            && let Err(error) = self.over(self.checkpoints.stats().redo_lsn)
        {
            tracing::warn!(%error, "the journal was not truncated");
        }
    }

    /// Everything before this is applied, and remains so.
    fn applied(&self) -> Lsn {
        self.redo.applied(self.journal.durable(), || self.queue.first())
    }

    /// Applies one batch of durable records. Returns whether there was one. If that fails or panics, the store is
    /// poisoned before the applier's lock is released: no checkpoint may begin with trees that are partly changed.
    /// Errors: [`StoreError::Poisoned`].
    pub(crate) fn apply_batch(&self) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        if self.check_updates().is_err() {
            return Ok(false);
        }
        let _on_panic = PoisonOnPanic(&self.poison);
        supervise::rehearse("batch");
        let entries = match state.waiting {
            Some((first, last)) => match self.read_again(first, last) {
                // No descriptor is free to read the journal: the batch continues to wait.
                Err(error @ StoreError::Full(_)) => return Err(error),
                read => read.map_err(|error| self.poison_with(error))?,
            },
            None => self.queue.take(self.journal.durable(), BATCH_BYTES),
        };
        let entries = match self.read_deferred(&mut state, entries) {
            // As above.
            Err(error @ StoreError::Full(_)) => return Err(error),
            read => read.map_err(|error| self.poison_with(error))?,
        };
        let is_some = !entries.is_empty();
        let applied = if is_some { self.apply_entries(&mut state, entries) } else { self.collect() };
        match applied {
            Ok(()) => Ok(is_some),
            Err(error @ StoreError::Full(_)) if state.waiting.is_some() => Err(error),
            Err(error) => Err(self.poison_with(error)),
        }
    }

    /// If a record of a batch is in the journal only, reads the batch from there. If that fails the batch waits.
    fn read_deferred(
        &self,
        state: &mut ApplyGuard<'_>,
        entries: Vec<QueuedRecord>,
    ) -> Result<Vec<QueuedRecord>, StoreError> {
        let is_deferred = |entry: &QueuedRecord| matches!(entry.what, RecordBody::InJournal { .. });
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(entries) };
        if !entries.iter().any(is_deferred) {
            return Ok(entries);
        }
        let (first, last) = (Lsn(first.lsn), Lsn(last.lsn));
        self.redo.begin_batch(first);
        state.waiting = Some((first, last));
        self.read_again(first, last)
    }

    /// Reads the records of a batch from the journal.
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

    /// Applies records as one step. An error does not change any snapshot; after any error except [`StoreError::Full`]
    /// the caller must poison the store.
    fn apply_entries(&self, state: &mut ApplyGuard<'_>, entries: Vec<QueuedRecord>) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let (first, last, records) = (first.lsn, last.lsn, entries.len());
        let is_spilled = matches!(entries[0].what, RecordBody::Spilled(_));
        self.redo.begin_batch(Lsn(first));
        state.last = last;
        self.space.applying(Lsn(last));
        let mut replaced = if self.redo.is_recovering() { Replaced::unseen(last) } else { Replaced::at(last) };
        replaced.count_earlier(std::mem::take(&mut state.waiting_versions));
        let applied = self.apply_step(state, entries, last, &mut replaced);
        let versions_bytes = replaced.all_bytes();
        // Also if only a part was applied: no snapshot may see that part before the whole is applied.
        self.trees.versions.publish(replaced);
        if let Err(error) = applied {
            let is_full = matches!(error, StoreError::Full(_));
            state.waiting = is_full.then_some((Lsn(first), Lsn(last)));
            state.waiting_versions = versions_bytes;
            return Err(error);
        }
        state.waiting = None;
        let batch = std::mem::take(&mut state.batch);
        state.spare.take_back(batch);
        state.records += records as u64;
        self.trees.snapshots.publish(last);
        self.queue.batch_is_applied();
        if is_spilled && !self.redo.is_recovering() {
            self.queue.spilled_is_applied();
        }
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
        let mut changes = Changes { list: std::mem::take(&mut state.spare.list) };
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
                RecordBody::InJournal { .. } => unreachable!("it was read from the journal"),
            }
        }
        let mut list = changes.list;
        state.spare.sort(&mut list);
        let changes = Arc::new(list);
        state.batch = Arc::clone(&changes);
        self.apply_sorted(state, lsn, &changes, &mut HashSet::new(), replaced)
    }

    /// Counts bytes that a change may dirty, and lets a checkpoint begin if there are many.
    fn dirtied(&self, state: &mut ApplyGuard<'_>, bytes: u64) -> Result<(), StoreError> {
        state.dirtied += bytes;
        if state.dirtied <= self.options.cache_bytes / PIECE_OF_CACHE {
            return Ok(());
        }
        state.dirtied = 0;
        MutexGuard::unlocked(state, || self.admit())
    }

    /// Merges the runs, and applies them piece by piece.
    fn apply_spilled(
        &self,
        state: &mut ApplyGuard<'_>,
        lsn: u64,
        runs: &[SpilledRun],
        replaced: &mut Replaced,
    ) -> Result<(), StoreError> {
        replaced.copy_keys();
        let mut merged = MergedRuns::of(&self.journal, runs)?;
        let mut dropped = HashSet::new();
        let mut piece = Vec::with_capacity(PIECE_CHANGES);
        while let Some(change) = merged.next(&self.journal)? {
            piece.push(change);
            if piece.len() >= PIECE_CHANGES {
                self.apply_sorted(state, lsn, &piece, &mut dropped, replaced)?;
                piece.clear();
            }
        }
        self.apply_sorted(state, lsn, &piece, &mut dropped, replaced)
    }

    /// Changes the trees; of several changes of a key the last one counts.
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
            // An old value that no snapshot will read.
            let (mut made, mut unseen) = (None, None);
            // An old value with pages of its own.
            let mut left: Option<Cell> = None;
            for (at, change) in of_one.iter().enumerate() {
                let value = match &change.op {
                    Op::Put(value) => Some(value.as_ref()),
                    Op::Delete | Op::DropTree => None,
                };
                if tree == CATALOG {
                    // Counted also for a tree that a later record of the batch drops again.
                    made = made.max(value.and_then(id_of));
                }
                if of_one.get(at + 1).is_some_and(|next| next.key == change.key) {
                    continue;
                }
                replacing.next_key();
                let set = writer.set(&change.key, value, |old| {
                    left = old.as_ref().filter(|cell| cell.has_pages()).cloned();
                    // The key did not exist before and does not exist now: there is no change.
                    if old.is_some() || value.is_some() {
                        unseen = replacing.push(&change.key, old);
                    }
                });
                if let Err(error) = set {
                    // Without space the tree is as it was: it still uses the old value, and no version of it is needed.
                    replacing.take_back(&change.key);
                    return Err(error);
                }
                // Only now, because a change that finds no space still needs it. And only pending: after a crash the store returns
                // to a state that uses this cell, even if no snapshot reads it now.
                left.take().iter().for_each(|cell| self.trees.forest.mark_pending_free(cell, &self.space));
                unseen.take().iter().for_each(|cell| self.trees.forest.free(cell));
                if replacing.bytes() > self.options.versions_bytes {
                    let garbage = self.trees.versions.let_go(replacing.replaced());
                    garbage.values.iter().for_each(|cell| self.trees.forest.free(cell));
                }
                self.dirtied(state, self.trees.forest.cache.page_bytes() as u64 + change.op.bytes() as u64)?;
            }
            if let Some(made) = made.filter(|made| made.0 >= state.next_tree) {
                let (key, next) = (Bytes::from_static(NEXT_TREE), made.0 + 1);
                replacing.next_key();
                let set = writer.set(&key, Some(&next.to_le_bytes()), |old| drop(replacing.push(&key, old)));
                set.inspect_err(|_| replacing.take_back(&key))?;
                // Not before: if there is no space, the next attempt must set it.
                state.next_tree = next;
            }
        }
        Ok(())
    }

    /// Drops old versions that no snapshot sees, and those beyond the limit. Called in the applier's role.
    fn collect(&self) -> Result<(), StoreError> {
        let oldest = self.trees.collect(self.options.versions_bytes)?;
        self.space.set_horizon(oldest);
        Ok(())
    }
}
