//! Checkpoints: where a checkpoint of the pages is made, who runs checkpoints, and how far the journal is needed.
//!
//! ```text
//!   with threads      Checkpointer: a thread of its own; the applier waits in `admit` where too much is dirty
//!   without threads   the applier runs whole checkpoints itself, when a limit is reached, between two batches
//!   while opening     the same: threads start when the journal is applied
//! ```
//!
//! The *redo LSN*, from where the journal is to be applied again after a crash, is the smallest of: what is durable; the oldest record in
//! the queue; the record that is being applied; the record that is on its way from the journal to the queue. Applying again
//! from an earlier record than necessary does no harm: a put or a deletion done twice is done. So a checkpoint may even stand in the
//! middle of a spilled transaction.
//!
//! A backup of such a state can be restored only to moments from the batch's end on: the *consistent LSN*.
//!
//! Invariants: the redo LSN never goes back. A checkpoint holds the applier's lock and no other, and takes no time that grows with what is dirty
//! but for the list of it.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use journal::Lsn;
use parking_lot::Mutex;

use crate::StoreError;
use crate::apply::Applier;
use crate::checkpoint::checkpointer::{CheckpointSource, CheckpointStats, Checkpointer};
use crate::checkpoint::dirty::CacheDirtyPages;
use crate::checkpoint::pace::{CheckpointOptions, Load, Urgency, urgency};
use crate::checkpoint::writer::{Checkpoint, CheckpointBegin, CheckpointSummary, CheckpointWriter};
use crate::store::Inner;

/// Checkpoints on the calling thread.
pub(crate) struct Inline {
    pub(crate) writer: CheckpointWriter,
    /// One that found no room, to be gone on with.
    unfinished: Option<Checkpoint>,
    stats: CheckpointStats,
}

/// Who runs checkpoints.
pub(crate) enum Checkpoints {
    /// Whoever applies.
    Inline(Box<Inline>),
    /// A thread.
    Thread(Arc<Checkpointer>),
    /// Nobody any more: the store is closed.
    Closed,
}

impl Checkpoints {
    /// On the calling thread.
    pub(crate) fn inline(writer: CheckpointWriter) -> Checkpoints {
        let stats = CheckpointStats { redo_lsn: writer.superblock().redo_lsn, ..CheckpointStats::default() };
        Checkpoints::Inline(Box::new(Inline { writer, unfinished: None, stats }))
    }
}

/// What the thread of the checkpoints sees of the store; the store may be gone meanwhile.
struct WeakSource(Weak<Inner>);

impl CheckpointSource for WeakSource {
    fn begin_checkpoint(&self) -> Result<CheckpointBegin, StoreError> {
        match self.0.upgrade() {
            Some(inner) => inner.begin_checkpoint(),
            None => Err(closed()),
        }
    }

    fn load(&self) -> (u64, Lsn) {
        self.0.upgrade().map_or((0, Lsn::ZERO), |inner| (inner.dirty_bytes(), inner.applied()))
    }

    fn over(&self, redo_lsn: Lsn) -> Result<(), StoreError> {
        self.0.upgrade().map_or(Ok(()), |inner| inner.truncate(redo_lsn))
    }
}

/// What a closed store answers.
pub(crate) fn closed() -> StoreError {
    StoreError::Refused("the store is closed; open it again".into())
}

impl Inner {
    fn checkpoint_options(&self) -> CheckpointOptions {
        self.options.checkpoint_options()
    }

    /// Hands checkpoints over to a thread.
    pub(crate) fn start_checkpointer(self: &Arc<Inner>) -> Result<(), StoreError> {
        let mut checkpoints = self.checkpoints.lock();
        let Checkpoints::Inline(mut inline) = std::mem::replace(&mut *checkpoints, Checkpoints::Closed) else {
            return Ok(());
        };
        if let Err(error) = inline.writer.reserve(self.checkpoint_options().dirty_bytes) {
            // Tried again by the checkpoint that needs it.
            tracing::warn!(%error, "no room was made ahead for write images");
        }
        let subject = Arc::new(WeakSource(Arc::downgrade(self)));
        let checkpointer = Checkpointer::start(inline.writer, subject, self.checkpoint_options(), self.poison.clone())?;
        *checkpoints = Checkpoints::Thread(Arc::new(checkpointer));
        Ok(())
    }

    /// Everything before this is applied, and stays so.
    fn applied(&self) -> Lsn {
        // The order counts: see `append_queued`.
        let durable = self.journal.durable().0;
        let appending = self.appending.load(Ordering::SeqCst);
        let waiting = self.queue.first().unwrap_or(u64::MAX);
        let applying = self.applying.load(Ordering::SeqCst);
        let found = durable.min(appending).min(waiting).min(applying);
        Lsn(self.redo_lsn.load(Ordering::SeqCst).max(found))
    }

    fn begin_checkpoint(&self) -> Result<CheckpointBegin, StoreError> {
        let applier = self.applier.lock();
        self.begin_checkpoint_locked(&applier)
    }

    /// Begins a checkpoint of the pages as they are now; with the applier's lock. Not where applying failed half way: a tree may be split in
    /// part, and must not be written. Errors: [`StoreError::Poisoned`].
    fn begin_checkpoint_locked(&self, applier: &Applier) -> Result<CheckpointBegin, StoreError> {
        self.poison.check()?;
        let redo_lsn = self.applied();
        self.consistent_lsn.fetch_max(redo_lsn.0.max(applier.last + 1), Ordering::SeqCst);
        self.redo_lsn.store(redo_lsn.0, Ordering::SeqCst);
        self.space.set_horizon(Lsn(self.snapshots.oldest()));
        let map = self.space.begin_checkpoint(redo_lsn);
        let dirty = Box::new(CacheDirtyPages::new(self.forest.cache.begin_checkpoint()));
        let catalog = self.forest.root();
        Ok(CheckpointBegin { redo_lsn, catalog, next_tree: 0, micros: (self.options.clock)(), dirty, map })
    }

    /// Bytes of changes that are not written back; fresh pages count half, for they can be written in place at any time.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let dirty = self.forest.cache.dirty_bytes();
        dirty.changed + dirty.checkpoint + dirty.fresh / 2
    }

    /// Gives up the journal before `applied`, as far as nobody needs it.
    fn truncate(&self, redo_lsn: Lsn) -> Result<(), StoreError> {
        let kept = self.keep_journal.load(Ordering::Acquire).min(self.maintenance.retention.before(redo_lsn).0);
        // For a commit record that is kept its spill chunks are, wherever they lie.
        let needed = self.spills.needed(kept);
        self.spills.forget(kept);
        Ok(self.journal.truncate(Lsn(needed))?)
    }

    /// Waits, or writes, while too much is dirty. By whoever applies, without the applier's lock.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let checkpointer = match &*self.checkpoints.lock() {
            Checkpoints::Thread(checkpointer) => Some(checkpointer.clone()),
            Checkpoints::Inline(_) => None,
            Checkpoints::Closed => return Err(closed()),
        };
        match checkpointer {
            Some(checkpointer) => checkpointer.admit(),
            None => self.checkpoint_if_due(),
        }
    }

    /// Whether the checkpoint that runs has room. Errors: [`StoreError::Full`].
    pub(crate) fn room_for_checkpoint(&self) -> Result<(), StoreError> {
        match &*self.checkpoints.lock() {
            Checkpoints::Thread(checkpointer) => checkpointer.full().map_or(Ok(()), Err),
            Checkpoints::Inline(_) | Checkpoints::Closed => Ok(()),
        }
    }

    fn checkpoint_if_due(&self) -> Result<(), StoreError> {
        let journal_bytes = self.applied().0.saturating_sub(self.redo_lsn.load(Ordering::SeqCst));
        let load = Load { dirty_bytes: self.dirty_bytes(), journal_bytes };
        match urgency(&self.checkpoint_options(), load, Duration::ZERO) {
            Urgency::Hurry | Urgency::Stop => self.checkpoint_inline(false).map(drop),
            Urgency::None | Urgency::Leisure => Ok(()),
        }
    }

    /// A whole checkpoint, now.
    pub(crate) fn run_checkpoint(&self) -> Result<CheckpointSummary, StoreError> {
        let checkpointer = match &*self.checkpoints.lock() {
            Checkpoints::Thread(checkpointer) => Some(checkpointer.clone()),
            Checkpoints::Inline(_) => None,
            Checkpoints::Closed => return Err(closed()),
        };
        match checkpointer {
            Some(checkpointer) => checkpointer.run(),
            None => self.checkpoint_inline(false),
        }
    }

    pub(crate) fn checkpoint_inline(&self, is_clean: bool) -> Result<CheckpointSummary, StoreError> {
        let mut checkpoints = self.checkpoints.lock();
        let Checkpoints::Inline(inline) = &mut *checkpoints else { return Err(closed()) };
        let checkpoint = inline.unfinished.take();
        let resumed = checkpoint.is_some();
        let mut written = inline.run(checkpoint, || self.begin_checkpoint(), is_clean)?;
        if resumed {
            // That one began earlier.
            written = inline.run(None, || self.begin_checkpoint(), is_clean)?;
        }
        drop(checkpoints);
        if !self.recovering.load(Ordering::Acquire)
            && let Err(error) = self.truncate(written.redo_lsn)
        {
            tracing::warn!(%error, "the journal was not truncated");
        }
        Ok(written)
    }

    /// Writes everything back and marks the store as closed; nothing may be applied any more.
    pub(crate) fn close_checkpoints(&self) -> Result<(), StoreError> {
        let checkpointer = {
            let mut checkpoints = self.checkpoints.lock();
            match &*checkpoints {
                Checkpoints::Inline(_) => None,
                Checkpoints::Thread(_) | Checkpoints::Closed => {
                    Some(std::mem::replace(&mut *checkpoints, Checkpoints::Closed))
                }
            }
        };
        match checkpointer {
            Some(Checkpoints::Thread(checkpointer)) => unshared(checkpointer).close(),
            Some(_) => Ok(()),
            None => {
                // The mark goes in a checkpoint of its own: when it is persistent, everything else is.
                let result = self.checkpoint_inline(false).and_then(|_| self.checkpoint_inline(true)).map(drop);
                *self.checkpoints.lock() = Checkpoints::Closed;
                result
            }
        }
    }

    /// Ends the thread, without another checkpoint.
    pub(crate) fn stop_checkpointer(&self) {
        let checkpoints = std::mem::replace(&mut *self.checkpoints.lock(), Checkpoints::Closed);
        if let Checkpoints::Thread(checkpointer) = checkpoints {
            drop(unshared(checkpointer));
        }
    }

    /// What checkpoints did.
    pub(crate) fn checkpoint_stats(&self) -> CheckpointStats {
        match &*self.checkpoints.lock() {
            Checkpoints::Thread(checkpointer) => checkpointer.stats(),
            Checkpoints::Inline(inline) => inline.stats,
            Checkpoints::Closed => CheckpointStats::default(),
        }
    }
}

/// Others hold it for a moment only.
fn unshared(mut checkpointer: Arc<Checkpointer>) -> Checkpointer {
    loop {
        match Arc::try_unwrap(checkpointer) {
            Ok(checkpointer) => return checkpointer,
            Err(shared) => checkpointer = shared,
        }
        // A check or a backup holds it longer than that.
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Inline {
    /// Goes on with a checkpoint, or begins one, and steps it to its end.
    fn run(
        &mut self,
        checkpoint: Option<Checkpoint>,
        begin: impl FnOnce() -> Result<CheckpointBegin, StoreError>,
        is_clean: bool,
    ) -> Result<CheckpointSummary, StoreError> {
        let mut checkpoint = match checkpoint {
            Some(checkpoint) => checkpoint,
            None => self.writer.begin(begin()?, is_clean),
        };
        let written = loop {
            match self.writer.step(&mut checkpoint) {
                Ok(Some(written)) => break written,
                Ok(None) => {}
                Err(error) => {
                    self.unfinished = Some(checkpoint);
                    return Err(error);
                }
            }
        };
        self.stats.checkpoints += 1;
        self.stats.fresh_pages += written.fresh_pages;
        self.stats.changed_pages += written.changed_pages;
        self.stats.image_bytes += written.image_bytes;
        self.stats.data_bytes += written.data_bytes;
        self.stats.redo_lsn = written.redo_lsn;
        Ok(written)
    }
}

/// The lock that checkpoints are run under.
pub(crate) type CheckpointsLock = Mutex<Checkpoints>;
