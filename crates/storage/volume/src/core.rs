//! [`Core`]: the state that all parts of an opened volume share, and the shell of [`crate::membership`].
//!
//! ```text
//!   attaching   one copy is attached at a time: none takes the slot of another
//!   gate        shared by each write; exclusive for a moment: a checkpoint's cut, a copy that is attached or joins
//!   control     the membership; held while a set is being recorded. Who needs another set waits here
//!   slots       the copies that take part: in sync and working, or syncing
//! ```
//!
//! Locks are taken in this order: attaching, checkpointing, gate, stripes, control, slots. Nobody waits for the gate under control.
//!
//! Invariants:
//! 1. A copy that failed leaves its slot before its exclusion is recorded: nothing more is read from it.
//! 2. `in_sync` changes only when the set is recorded on all of its members (rule 2). It grows only while the gate is held
//!    exclusively: a write in progress sees it shrink at most.
//! 3. A thread that waits for a copy waits a bounded time, unless the volume has no threads.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use device::AlignedBuffer;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use crate::copy::VolumeCopy;
use crate::encryption::BlockSealer;
use crate::error::VolumeError;
use crate::members::{COPIES_MAX, Epoch, Members, Set};
use crate::membership::{Action, Event, Membership};
use crate::metrics::Metrics;
use crate::options::{Disagreement, Options, Threads};
use crate::overlay::Overlay;
use crate::record::Order;
use crate::rules::{Rule, obeys};
use crate::space::ThinState;
use crate::stripes::Stripes;
use crate::superblock::Superblock;
use crate::tables::Tables;
use crate::workers::Workers;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) volume: [u8; 16],
    pub(crate) copies: u8,
    pub(crate) min_copies: u8,
    /// The term of this owner, as copies have promised it.
    pub(crate) promised: Epoch,
    pub(crate) tables: Tables,
    /// Of an encrypted volume.
    pub(crate) sealer: Option<BlockSealer>,
    pub(crate) overlay: Overlay,
    /// Of a thin volume.
    pub(crate) thin: Option<Arc<ThinState>>,
    pub(crate) stripes: Stripes,
    pub(crate) gate: RwLock<()>,
    pub(crate) attaching: Mutex<()>,
    pub(crate) checkpointing: Mutex<()>,
    slots: [RwLock<Option<Arc<VolumeCopy>>>; COPIES_MAX],
    control: Mutex<Membership>,
    changed: Condvar,
    /// The in-sync set that is served.
    in_sync: AtomicU8,
    /// Copies of it that work.
    working: AtomicU8,
    /// Copies that receive writes and are not in sync yet.
    syncing: AtomicU8,
    is_frozen: AtomicBool,
    is_closed: AtomicBool,
    /// Opened with too few copies: what the journals contain may differ from that of the missing ones, and is kept.
    is_unequal: AtomicBool,
    is_inline: AtomicBool,
    /// The epoch of another owner, or 0.
    superseded: AtomicU64,
    sequence: AtomicU64,
    /// Bytes that the journals have of the window, with their frames and padding: from a record's append until they are truncated.
    pub(crate) journaled: AtomicU64,
    /// Since when checkpoints are tried and none has ended well.
    pub(crate) unsaved_since: Mutex<Option<Instant>>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) metrics: Metrics,
    workers: Arc<Workers>,
    /// What was in the slots last, as long as a call on it has not ended.
    leaving: Mutex<[Weak<()>; COPIES_MAX]>,
}

/// Wakes those who wait for journals to become durable, and the thread for upkeep.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    ticks: AtomicU64,
    lock: Mutex<()>,
    moved: Condvar,
}

impl Progress {
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Acquire)
    }

    pub(crate) fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::AcqRel);
        // With the lock: nobody begins to wait between their look at the count and this call.
        let _lock = self.lock.lock();
        self.moved.notify_all();
    }

    /// Waits until the count differs from `seen`, or until the time is over.
    pub(crate) fn wait(&self, seen: u64, time: Duration) {
        let mut lock = self.lock.lock();
        if self.ticks() == seen {
            self.moved.wait_for(&mut lock, time);
        }
    }
}

impl Core {
    /// The term of `found` is promised, durably: from here on blocks may be sealed.
    ///
    /// Errors: [`VolumeError::Randomness`].
    pub(crate) fn new(options: Options, found: &Superblock, tables: Tables, set: Set) -> Result<Core, VolumeError> {
        let overlay = Overlay::new(tables.geometry.blocks());
        let sealer = options.keys.as_ref().map(|keys| keys.sealer(found.volume, found.promised)).transpose()?;
        Ok(Core {
            sealer,
            volume: found.volume,
            copies: found.copies,
            min_copies: found.min_copies,
            promised: found.promised,
            overlay,
            thin: found.is_thin.then(Arc::default),
            tables,
            stripes: Stripes::new(),
            gate: RwLock::new(()),
            attaching: Mutex::new(()),
            checkpointing: Mutex::new(()),
            slots: Default::default(),
            control: Mutex::new(Membership::new(set, found.min_copies, options.owner)),
            changed: Condvar::new(),
            in_sync: AtomicU8::new(set.in_sync.0),
            working: AtomicU8::new(set.in_sync.0),
            syncing: AtomicU8::new(0),
            is_frozen: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_unequal: AtomicBool::new(false),
            is_inline: AtomicBool::new(false),
            superseded: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            journaled: AtomicU64::new(0),
            unsaved_since: Mutex::new(None),
            progress: Arc::default(),
            metrics: Metrics::new(),
            workers: Arc::default(),
            leaving: Mutex::default(),
            options,
        })
    }

    /// The in-sync set that is served.
    pub(crate) fn in_sync(&self) -> Members {
        Members(self.in_sync.load(Ordering::Acquire))
    }

    /// Copies that are in sync and work.
    pub(crate) fn working(&self) -> Members {
        Members(self.working.load(Ordering::Acquire))
    }

    /// Copies that are being brought up to date.
    pub(crate) fn syncing(&self) -> Members {
        Members(self.syncing.load(Ordering::Acquire))
    }

    /// Copies that take every write: those that work, and those that are being brought up to date.
    pub(crate) fn attached(&self) -> Members {
        Members(self.working().0 | self.syncing().0)
    }

    /// Whether too few copies work.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// Whether the journals must stay as they are.
    pub(crate) fn is_unequal(&self) -> bool {
        self.is_unequal.load(Ordering::Acquire)
    }

    /// The journals stay as they are until the volume is opened with enough copies.
    pub(crate) fn keep_journals(&self) {
        self.is_unequal.store(true, Ordering::Release);
    }

    pub(crate) fn set(&self) -> Set {
        self.control.lock().set()
    }

    pub(crate) fn copy(&self, number: u8) -> Option<Arc<VolumeCopy>> {
        self.slots[number as usize].read().clone()
    }

    /// The epoch of another owner that has taken the volume over.
    pub(crate) fn superseded(&self) -> Option<Epoch> {
        let number = self.superseded.load(Ordering::Acquire);
        (number > 0).then_some(Epoch { number, mint: 0 })
    }

    /// Whether requests are served at all. Errors: [`VolumeError::Closed`], [`VolumeError::Fenced`].
    pub(crate) fn check(&self) -> Result<(), VolumeError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(VolumeError::Closed);
        }
        match self.superseded.load(Ordering::Acquire) {
            0 => Ok(()),
            found => Err(VolumeError::Fenced { found, ours: self.promised.number }),
        }
    }

    /// The next place in the order of writes.
    pub(crate) fn next_order(&self) -> Order {
        Order { epoch: self.promised.number, sequence: self.sequence.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    pub(crate) fn below_minimum(&self) -> VolumeError {
        VolumeError::BelowMinimum { working: self.working().count(), needed: self.min_copies }
    }

    /// Puts a copy into its slot: as working if `is_syncing` is false. The caller holds the gate, or is opening the volume.
    pub(crate) fn attach(&self, copy: Arc<VolumeCopy>, is_syncing: bool) {
        let number = copy.number;
        self.thin.iter().for_each(|state| copy.attached(state));
        *self.slots[number as usize].write() = Some(copy);
        let copies = self.slots.iter().filter_map(|slot| slot.read().clone());
        let is_inline = copies.into_iter().all(|copy| copy.is_inline() && copy.commits_at_once());
        self.is_inline.store(is_inline, Ordering::Release);
        if is_syncing {
            self.syncing.fetch_or(1 << number, Ordering::AcqRel);
        }
    }

    /// Begins the first epoch of this owner: with the members that could be opened, recorded on all of them.
    ///
    /// Fewer than `min_copies` are not recorded: the volume is frozen then, and reads are served.
    pub(crate) fn begin(&self, set: Set, working: Members) -> Result<(), VolumeError> {
        let mut control = self.control.lock();
        let action = control.begin(self.promised, set.in_sync.minus(working), self.options.accept_loss);
        self.drive(&mut control, Some(action));
        self.check()
    }

    /// Whether no copy that was attached last needs waiting for its medium.
    pub(crate) fn is_inline(&self) -> bool {
        self.is_inline.load(Ordering::Acquire)
    }

    /// Waits until enough copies work, or until `deadline`.
    pub(crate) fn wait_thawed(&self, deadline: Instant) -> Result<(), VolumeError> {
        let mut control = self.control.lock();
        while control.is_frozen() {
            self.check()?;
            if self.options.threads == Threads::Callers || self.changed.wait_until(&mut control, deadline).timed_out() {
                return Err(self.below_minimum());
            }
        }
        Ok(())
    }

    /// A copy failed: it is excluded, durably, before this returns `Ok`; or it stops being brought up to date. Another copy that has
    /// taken its slot meanwhile is left alone.
    ///
    /// Errors: [`VolumeError::BelowMinimum`], [`VolumeError::Fenced`].
    pub(crate) fn fail(&self, copy: &Arc<VolumeCopy>, why: &VolumeError) -> Result<(), VolumeError> {
        self.exclude(copy.number, Some(copy), Some(why))
    }

    /// Excludes whatever is in a slot; with `copy`, only if it is this one. Without a reason, it was asked for.
    ///
    /// Errors: as [`fail`](Core::fail).
    pub(crate) fn exclude(
        &self,
        number: u8,
        copy: Option<&Arc<VolumeCopy>>,
        why: Option<&VolumeError>,
    ) -> Result<(), VolumeError> {
        let mut control = self.control.lock();
        let is_over = match (self.copy(number), copy) {
            (Some(current), Some(copy)) => !Arc::ptr_eq(&current, copy),
            (Some(_), None) => false,
            (None, _) => !control.working().has(number),
        };
        if is_over {
            // Another thread was here first: what it recorded holds for this one too.
            return self.outcome(&control);
        }
        match why {
            Some(why) => {
                tracing::warn!(copy = number, %why, "a copy of the volume has failed");
                self.metrics.copy(number).failed();
            }
            None => tracing::info!(copy = number, "a copy of the volume is taken out"),
        }
        self.detach(number);
        let action = control.apply(Event::Failed(number));
        self.drive(&mut control, action);
        self.outcome(&control)
    }

    /// A region was copied to a copy, all of it: it is clean. Returns `false`, and changes nothing, if the slot does not hold the copy
    /// any more: another one may be there, which has not got the region.
    pub(crate) fn copied(&self, copy: &Arc<VolumeCopy>, region: u64) -> bool {
        // The slot is held until the bit is cleared. Who attaches another copy marks its regions after this one has left the slot.
        let slot = self.slots[copy.number as usize].read();
        let is_there = slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, copy));
        if is_there {
            self.tables.clear_dirty(copy.number, region);
        }
        is_there
    }

    /// Whether a copy is still the one in its slot, and is being brought up to date.
    pub(crate) fn is_syncing(&self, copy: &Arc<VolumeCopy>) -> bool {
        let number = copy.number;
        self.syncing().has(number) && self.copy(number).is_some_and(|current| Arc::ptr_eq(&current, copy))
    }

    /// A copy that is up to date joins, with others that are and had to wait: where two are missing, one alone may be too few. The
    /// caller holds the gate exclusively.
    ///
    /// Errors: as [`fail`](Core::fail), and [`VolumeError::Stalled`] if the copy could not record the set, or is not there any more.
    pub(crate) fn join(&self, copy: &Arc<VolumeCopy>) -> Result<(), VolumeError> {
        let (number, mut control) = (copy.number, self.control.lock());
        if !self.is_syncing(copy) {
            return Err(VolumeError::Stalled(number));
        }
        copy.is_ready.store(true, Ordering::Release);
        let is_ready = |other: &u8| {
            let copy = self.copy(*other).is_some_and(|copy| copy.is_ready.load(Ordering::Acquire));
            copy && self.tables.next_dirty(*other, 0).is_none()
        };
        let joining = self.syncing().iter().filter(is_ready).fold(Members::NONE, Members::with);
        let action = control.apply(Event::Join(joining));
        self.drive(&mut control, action);
        self.outcome(&control)?;
        if control.set().in_sync.has(number) { Ok(()) } else { Err(VolumeError::Stalled(number)) }
    }

    /// A copy returns: another owner may have recorded a set on it. With too few copies left to this one, the other has taken the volume
    /// over, and this one ends: it would serve old blocks. With enough of them the other has only accepted a loss, and keeps this copy.
    ///
    /// Errors: [`VolumeError::Fenced`].
    pub(crate) fn check_taken(&self, found: &Superblock) -> Result<(), VolumeError> {
        let other = found.set.epoch;
        if other.term() <= self.promised.term() || !obeys(Rule::Fencing) {
            return Ok(());
        }
        let mut control = self.control.lock();
        if control.is_frozen() {
            let action = control.apply(Event::Superseded(other.number));
            self.drive(&mut control, action);
        }
        Err(VolumeError::Fenced { found: other.number, ours: self.promised.number })
    }

    /// A copy that is out will be replaced.
    ///
    /// Errors: as [`fail`](Core::fail).
    pub(crate) fn expect(&self, number: u8) -> Result<(), VolumeError> {
        let mut control = self.control.lock();
        let action = control.apply(Event::Replaced(number));
        self.drive(&mut control, action);
        self.check()
    }

    /// Lets the journal of a copy report what has become durable.
    pub(crate) fn observe(&self, copy: &VolumeCopy) -> Result<(), VolumeError> {
        if self.options.threads == Threads::Callers || copy.journal.is_inline() {
            return Ok(());
        }
        let progress = self.progress.clone();
        Ok(copy.journal.start_flusher(move || progress.tick())?)
    }

    fn outcome(&self, control: &Membership) -> Result<(), VolumeError> {
        self.check()?;
        if control.is_frozen() { Err(self.below_minimum()) } else { Ok(()) }
    }

    /// Performs actions until there is none. The control lock is held meanwhile: there is one change at a time.
    fn drive(&self, control: &mut MutexGuard<'_, Membership>, first: Option<Action>) {
        let mut action = first;
        while let Some(current) = action.take() {
            match current {
                Action::Record(members, set) => action = self.record(control, members, &set),
                Action::Serve(_) | Action::Freeze => {}
                Action::StepDown(epoch) => self.superseded.store(epoch.max(1), Ordering::Release),
            }
        }
        let (set, working) = (control.set(), control.working());
        // A member that is missing may be syncing: it is one that works only when a set is recorded with it.
        self.syncing.fetch_and(!working.0, Ordering::AcqRel);
        self.in_sync.store(set.in_sync.0, Ordering::Release);
        self.working.store(working.0, Ordering::Release);
        self.is_frozen.store(control.is_frozen(), Ordering::Release);
        self.changed.notify_all();
        self.progress.tick();
    }

    /// Records a set on its members; returns the next action.
    fn record(&self, control: &mut MutexGuard<'_, Membership>, members: Members, set: &Set) -> Option<Action> {
        if let Some(coordinator) = &self.options.coordinator {
            match coordinator.change(&control.set(), set) {
                Ok(()) => {}
                Err(Disagreement::Superseded(epoch)) => return control.apply(Event::Superseded(epoch)),
                Err(Disagreement::Unreachable) => return control.apply(Event::Superseded(set.epoch.number)),
            }
        }
        for number in members.iter() {
            let recorded = match self.copy(number) {
                _ if !obeys(Rule::ExclusionFirst) => Ok(()),
                Some(copy) => {
                    let (copy, set) = (copy.clone(), *set);
                    self.in_time(number, self.options.copy_timeout, move || copy.record(&set))
                }
                None => Err(VolumeError::Stalled(number)),
            };
            let event = match recorded {
                Ok(()) => Event::Recorded(number),
                Err(VolumeError::Fenced { found, .. }) => Event::Superseded(found),
                Err(why) => {
                    tracing::warn!(copy = number, %why, "a copy of the volume cannot record the in-sync set");
                    self.detach(number);
                    Event::RecordFailed(number)
                }
            };
            if let Some(action) = control.apply(event) {
                return Some(action);
            }
        }
        None
    }

    /// Takes a copy out of its slot. Blocks that it has received while it was syncing are marked: they may be in its journal only.
    fn detach(&self, number: u8) {
        let was_syncing = self.syncing.fetch_and(!(1 << number), Ordering::AcqRel) >> number & 1 == 1;
        self.working.fetch_and(!(1 << number), Ordering::AcqRel);
        if was_syncing {
            self.overlay.snapshot().iter().for_each(|(block, _)| self.tables.mark_dirty(number, *block));
        }
        let Some(copy) = self.slots[number as usize].write().take() else { return };
        self.is_leaving(number, Arc::downgrade(copy.presence()));
    }

    /// A call on the copy of a slot may be under way, as long as somebody has its presence.
    pub(crate) fn is_leaving(&self, number: u8, presence: Weak<()>) {
        self.leaving.lock()[number as usize] = presence;
    }

    /// Waits until every call on the copy that was in a slot has ended: one that hangs could write over what a copy that is attached
    /// again receives.
    ///
    /// Errors: [`VolumeError::Stalled`].
    pub(crate) fn wait_left(&self, number: u8) -> Result<(), VolumeError> {
        let deadline = Instant::now() + self.options.copy_timeout;
        let is_there = || self.leaving.lock()[number as usize].strong_count() > 0;
        while is_there() {
            if self.options.threads == Threads::Callers || Instant::now() >= deadline {
                return Err(VolumeError::Stalled(number));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Reads blocks in place from a copy, and waits no longer than `copy_timeout`: then the copy has failed.
    ///
    /// Errors: [`VolumeError::Device`]; [`VolumeError::Stalled`]: it is excluded, or writes wait.
    pub(crate) fn read_copy(&self, copy: &Arc<VolumeCopy>, block: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        if self.options.threads == Threads::Callers || copy.is_inline() {
            return Ok(copy.read(block, buffer)?);
        }
        let (source, bytes) = (copy.clone(), buffer.len());
        let work = move || {
            let mut buffer = AlignedBuffer::zeroed(bytes);
            source.read(block, &mut buffer)?;
            Ok(buffer)
        };
        let found = self.in_time(copy.number, self.options.copy_timeout, work);
        self.note_stalled(copy, &found);
        buffer.copy_from_slice(&found?);
        Ok(())
    }

    /// Writes blocks in place on a copy, persistently if `flush`, in the same time.
    ///
    /// Errors: as [`read_copy`](Core::read_copy).
    pub(crate) fn write_copy(
        &self,
        copy: &Arc<VolumeCopy>,
        block: u64,
        bytes: &[u8],
        flush: bool,
    ) -> Result<(), VolumeError> {
        let (target, bytes) = (copy.clone(), AlignedBuffer::from(bytes));
        let work = move || {
            if !bytes.is_empty() {
                target.write(block, &bytes)?;
            }
            if flush { Ok(target.flush()?) } else { Ok(()) }
        };
        let written = self.in_time(copy.number, self.options.copy_timeout, work);
        self.note_stalled(copy, &written);
        written
    }

    fn note_stalled<T>(&self, copy: &Arc<VolumeCopy>, result: &Result<T, VolumeError>) {
        if let Err(why @ VolumeError::Stalled(_)) = result
            && let Err(error) = self.fail(copy, why)
        {
            tracing::error!(%error, "after a copy did not answer");
        }
    }

    /// Runs work on a copy, and waits for it no longer than `time`.
    ///
    /// Errors: those of the work, [`VolumeError::Stalled`], [`VolumeError::Thread`].
    pub(crate) fn in_time<T: Send + 'static>(
        &self,
        number: u8,
        time: Duration,
        work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        if self.options.threads == Threads::Callers {
            return work();
        }
        self.start(work)?.recv_timeout(time).unwrap_or(Err(VolumeError::Stalled(number)))
    }

    /// Starts work on a thread, or does it at once if the volume has no threads.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<mpsc::Receiver<Result<T, VolumeError>>, VolumeError> {
        let (report, reported) = mpsc::channel();
        // If nobody waits any more, the copy has been excluded.
        let progress = self.progress.clone();
        let run = move || {
            drop(report.send(work()));
            progress.tick();
        };
        if self.options.threads == Threads::Callers {
            run();
        } else {
            self.workers.run(run).map_err(VolumeError::Thread)?;
        }
        Ok(reported)
    }

    /// Ends the volume: nothing is served any more. Returns whether it was open.
    pub(crate) fn close(&self) -> bool {
        let was_open = !self.is_closed.swap(true, Ordering::AcqRel);
        self.changed.notify_all();
        self.progress.tick();
        was_open
    }

    /// Takes all copies out of their slots.
    pub(crate) fn take_copies(&self) -> Vec<Arc<VolumeCopy>> {
        self.slots.iter().filter_map(|slot| slot.write().take()).collect()
    }
}
