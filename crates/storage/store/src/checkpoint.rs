//! Checkpoints: where a cut of the pages is made, who runs write cycles, and how far the journal is needed.
//!
//! ```text
//!   with threads      Cycler: a thread of its own; the applier waits in `admit` where too much is dirty
//!   without threads   the applier runs whole cycles itself, when a limit is reached, between two batches
//!   while opening     the same: threads start when the journal is applied
//! ```
//!
//! *X*, from where the journal is to be applied again after a crash, is the smallest of: what is durable; the oldest record in
//! the queue; the record that is being applied; the record that is on its way from the journal to the queue. Applying again
//! from an earlier record than necessary does no harm: a put or a deletion done twice is done. So a cut may even stand in the
//! middle of a huge transaction.
//!
//! A backup of such a state can be restored only to moments from the batch's end on: *reached* says where that is.
//!
//! Invariants: X never goes back. A cut holds the applier's lock and no other, and takes no time that grows with what is dirty
//! but for the list of it.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use journal::Lsn;
use parking_lot::Mutex;

use crate::StoreError;
use crate::apply::Applier;
use crate::cycle::cycler::{CycleStats, Cycler, Subject};
use crate::cycle::frozen::FrozenCut;
use crate::cycle::pace::{CycleOptions, Load, Urgency, urgency};
use crate::cycle::write::{Cycle, Moment, Writer, Written};
use crate::store::Inner;

/// Cycles on the calling thread.
pub(crate) struct Inline {
    pub(crate) writer: Writer,
    /// One that found no room, to be gone on with.
    unfinished: Option<Cycle>,
    stats: CycleStats,
}

/// Who runs write cycles.
pub(crate) enum Cycles {
    /// Whoever applies.
    Inline(Box<Inline>),
    /// A thread.
    Thread(Arc<Cycler>),
    /// Nobody any more: the store is closed.
    Closed,
}

impl Cycles {
    /// On the calling thread.
    pub(crate) fn inline(writer: Writer) -> Cycles {
        let stats = CycleStats { applied: writer.superblock().applied, ..CycleStats::default() };
        Cycles::Inline(Box::new(Inline { writer, unfinished: None, stats }))
    }
}

/// What the thread of the cycles sees of the store; the store may be gone meanwhile.
struct Watched(Weak<Inner>);

impl Subject for Watched {
    fn cut(&self) -> Result<Moment, StoreError> {
        match self.0.upgrade() {
            Some(inner) => inner.cut(),
            None => Err(closed()),
        }
    }

    fn load(&self) -> (u64, Lsn) {
        self.0.upgrade().map_or((0, Lsn::ZERO), |inner| (inner.dirty_bytes(), inner.applied()))
    }

    fn over(&self, applied: Lsn) -> Result<(), StoreError> {
        self.0.upgrade().map_or(Ok(()), |inner| inner.truncate(applied))
    }
}

/// What a closed store answers.
pub(crate) fn closed() -> StoreError {
    StoreError::Refused("the store is closed; open it again".into())
}

impl Inner {
    fn cycle_options(&self) -> CycleOptions {
        self.options.write_cycles()
    }

    /// Hands cycles over to a thread.
    pub(crate) fn start_cycles(self: &Arc<Inner>) -> Result<(), StoreError> {
        let mut cycles = self.cycles.lock();
        let Cycles::Inline(mut inline) = std::mem::replace(&mut *cycles, Cycles::Closed) else { return Ok(()) };
        if let Err(error) = inline.writer.reserve(self.cycle_options().dirty_bytes) {
            // Tried again by the cycle that needs it.
            tracing::warn!(%error, "no room was made ahead for write images");
        }
        let subject = Arc::new(Watched(Arc::downgrade(self)));
        let cycler = Cycler::start(inline.writer, subject, self.cycle_options(), self.freeze.clone())?;
        *cycles = Cycles::Thread(Arc::new(cycler));
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
        Lsn(self.cut_at.load(Ordering::SeqCst).max(found))
    }

    fn cut(&self) -> Result<Moment, StoreError> {
        let applier = self.applier.lock();
        self.cut_locked(&applier)
    }

    /// Freezes the pages as they are now; with the applier's lock. Not where applying failed half way: a tree may be split in
    /// part, and must not come home. Errors: [`StoreError::Frozen`].
    fn cut_locked(&self, applier: &Applier) -> Result<Moment, StoreError> {
        self.freeze.check()?;
        let applied = self.applied();
        self.reached.fetch_max(applied.0.max(applier.last + 1), Ordering::SeqCst);
        self.cut_at.store(applied.0, Ordering::SeqCst);
        self.space.set_horizon(Lsn(self.snapshots.oldest()));
        let map = self.space.cut(applied);
        let frozen = Box::new(FrozenCut::new(self.forest.cache.cut()));
        let catalog = self.forest.root();
        Ok(Moment { applied, catalog, next_tree: 0, micros: (self.options.clock)(), frozen, map })
    }

    /// Bytes of changes that are not home; fresh pages count half, for they can be written home at any time.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let dirty = self.forest.cache.dirty_bytes();
        dirty.changed + dirty.cut + dirty.fresh / 2
    }

    /// Gives up the journal before `applied`, as far as nobody needs it.
    fn truncate(&self, applied: Lsn) -> Result<(), StoreError> {
        let kept = self.keep_journal.load(Ordering::Acquire).min(self.upkeep.retention.before(applied).0);
        // For a commitment that is kept its fragments are, wherever they lie.
        let needed = self.spills.needed(kept);
        self.spills.forget(kept);
        Ok(self.journal.truncate(Lsn(needed))?)
    }

    /// Waits, or writes, while too much is dirty. By whoever applies, without the applier's lock.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let cycler = match &*self.cycles.lock() {
            Cycles::Thread(cycler) => Some(cycler.clone()),
            Cycles::Inline(_) => None,
            Cycles::Closed => return Err(closed()),
        };
        match cycler {
            Some(cycler) => cycler.admit(),
            None => self.cycle_if_due(),
        }
    }

    /// Whether the cycle that runs has room. Errors: [`StoreError::Full`].
    pub(crate) fn room_for_cycles(&self) -> Result<(), StoreError> {
        match &*self.cycles.lock() {
            Cycles::Thread(cycler) => cycler.full().map_or(Ok(()), Err),
            Cycles::Inline(_) | Cycles::Closed => Ok(()),
        }
    }

    fn cycle_if_due(&self) -> Result<(), StoreError> {
        let journal_bytes = self.applied().0.saturating_sub(self.cut_at.load(Ordering::SeqCst));
        let load = Load { dirty_bytes: self.dirty_bytes(), journal_bytes };
        match urgency(&self.cycle_options(), load, Duration::ZERO) {
            Urgency::Hurry | Urgency::Stop => self.cycle_inline(false).map(drop),
            Urgency::None | Urgency::Leisure => Ok(()),
        }
    }

    /// A whole cycle, now.
    pub(crate) fn run_cycle(&self) -> Result<Written, StoreError> {
        let cycler = match &*self.cycles.lock() {
            Cycles::Thread(cycler) => Some(cycler.clone()),
            Cycles::Inline(_) => None,
            Cycles::Closed => return Err(closed()),
        };
        match cycler {
            Some(cycler) => cycler.run(),
            None => self.cycle_inline(false),
        }
    }

    pub(crate) fn cycle_inline(&self, is_clean: bool) -> Result<Written, StoreError> {
        let mut cycles = self.cycles.lock();
        let Cycles::Inline(inline) = &mut *cycles else { return Err(closed()) };
        let cycle = inline.unfinished.take();
        let resumed = cycle.is_some();
        let mut written = inline.run(cycle, || self.cut(), is_clean)?;
        if resumed {
            // That one was cut earlier.
            written = inline.run(None, || self.cut(), is_clean)?;
        }
        drop(cycles);
        if !self.recovering.load(Ordering::Acquire)
            && let Err(error) = self.truncate(written.applied)
        {
            tracing::warn!(%error, "the journal was not truncated");
        }
        Ok(written)
    }

    /// Writes everything home and marks the store as closed; nothing may be applied any more.
    pub(crate) fn close_cycles(&self) -> Result<(), StoreError> {
        let cycler = {
            let mut cycles = self.cycles.lock();
            match &*cycles {
                Cycles::Inline(_) => None,
                Cycles::Thread(_) | Cycles::Closed => Some(std::mem::replace(&mut *cycles, Cycles::Closed)),
            }
        };
        match cycler {
            Some(Cycles::Thread(cycler)) => unshared(cycler).close(),
            Some(_) => Ok(()),
            None => {
                // The mark goes in a cycle of its own: when it is at home, everything else is.
                let result = self.cycle_inline(false).and_then(|_| self.cycle_inline(true)).map(drop);
                *self.cycles.lock() = Cycles::Closed;
                result
            }
        }
    }

    /// Ends the thread, without another cycle.
    pub(crate) fn stop_cycles(&self) {
        let cycles = std::mem::replace(&mut *self.cycles.lock(), Cycles::Closed);
        if let Cycles::Thread(cycler) = cycles {
            drop(unshared(cycler));
        }
    }

    /// What cycles did.
    pub(crate) fn cycle_stats(&self) -> CycleStats {
        match &*self.cycles.lock() {
            Cycles::Thread(cycler) => cycler.stats(),
            Cycles::Inline(inline) => inline.stats,
            Cycles::Closed => CycleStats::default(),
        }
    }
}

/// Others hold it for a moment only.
fn unshared(mut cycler: Arc<Cycler>) -> Cycler {
    loop {
        match Arc::try_unwrap(cycler) {
            Ok(cycler) => return cycler,
            Err(shared) => cycler = shared,
        }
        // A check or a backup holds it longer than that.
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Inline {
    /// Goes on with a cycle, or cuts one, and steps it to its end.
    fn run(
        &mut self,
        cycle: Option<Cycle>,
        cut: impl FnOnce() -> Result<Moment, StoreError>,
        is_clean: bool,
    ) -> Result<Written, StoreError> {
        let mut cycle = match cycle {
            Some(cycle) => cycle,
            None => self.writer.begin(cut()?, is_clean),
        };
        let written = loop {
            match self.writer.step(&mut cycle) {
                Ok(Some(written)) => break written,
                Ok(None) => {}
                Err(error) => {
                    self.unfinished = Some(cycle);
                    return Err(error);
                }
            }
        };
        self.stats.cycles += 1;
        self.stats.fresh_pages += written.fresh_pages;
        self.stats.changed_pages += written.changed_pages;
        self.stats.image_bytes += written.image_bytes;
        self.stats.home_bytes += written.home_bytes;
        self.stats.applied = written.applied;
        Ok(written)
    }
}

/// The lock that cycles are run under.
pub(crate) type CyclesLock = Mutex<Cycles>;
