//! What the threads of a journal share: one mutex over the plain state machine, and who waits for what.
//!
//! ```text
//!   append ----> state (mutex) <---- commit: leader takes a batch, unlocks, writes + flushes, locks, finishes
//!                  |                          followers wait in the slot of their batch
//!                  +-- chain of segments <--- segment pool (own mutex): makes the next segment, recycles truncated ones
//! ```
//!
//! Lock order: `pool`, then `state`. No I/O under `state`, unless a write is a matter of instructions
//! ([`device::Device::is_inline`]): it takes less time than waking whoever waited for it would. A panic under `state` is an assert that found the journal's
//! own bookkeeping wrong: every later call then panics too, which is the safe answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use device::{DeviceError, Shelf};

use crate::error::JournalError;
use crate::lsn::Lsn;
use crate::options::{Options, Preparation, Stats};
use crate::pipeline::{Pipeline, Write};
use crate::reader::Source;
use crate::segment::{Chain, Segment};
use crate::segment_pool::SegmentPool;

/// Waiting committers are kept apart by batch, so that a finished batch wakes its own and nobody else. More than the
/// batches that can be between filling and finished (one per buffer, and the one to come).
const SLOTS: usize = 8;
const _: () = assert!(SLOTS > crate::options::BUFFERS + 1);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) shelf: Arc<dyn Shelf>,
    pub(crate) options: Options,
    state: Mutex<State>,
    pub(crate) pool: Mutex<SegmentPool>,
    /// The device writes at once, on the committing thread: batches are written under the lock of `state`.
    pub(crate) inline: bool,
    /// A copy of the pipeline's `durable`, for readers.
    pub(crate) durable: AtomicU64,
    /// The journal has failed, or is about to be told so: whoever waits without the lock stops waiting.
    failed: AtomicBool,
    /// Committers, by the number of their batch.
    slots: [Condvar; SLOTS],
    /// The appender that holds the append lock, for a buffer.
    pub(crate) buffer_freed: Condvar,
    /// Appenders, for the append lock.
    pub(crate) append_lock_freed: Condvar,
    /// The appender that holds the append lock, for a segment.
    pub(crate) prepared: Condvar,
    /// The preparing thread, for work.
    pub(crate) work: Condvar,
    /// Callers of `wait_appended`.
    pub(crate) appended: Condvar,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pipeline: Pipeline,
    pub(crate) chain: Chain,
    /// The segment in which the next batch starts, or which it has filled.
    pub(crate) tail: Arc<Segment>,
    /// An append that takes more than one frame, or has to wait, holds the append lock: the others wait.
    pub(crate) append_lock: bool,
    pub(crate) append_lock_waiters: u32,
    pub(crate) append_waiters: u32,
    /// Committers in each slot.
    waiting: [u32; SLOTS],
    /// The next segment is asked for.
    pub(crate) wanted: bool,
    /// Why it could not be made, until the append that needs it is told.
    pub(crate) preparation_failure: Option<JournalError>,
    /// It is tried again and again, for want of a file descriptor.
    pub(crate) lacks_descriptor: bool,
    /// The journal is closed, or about to be: nothing more is appended.
    pub(crate) closed: bool,
    /// The thread that prepares segments is to end.
    pub(crate) stop: bool,
    pub(crate) stats: Stats,
}

pub(crate) type Guard<'a> = MutexGuard<'a, State>;

impl Shared {
    pub(crate) fn new(
        shelf: Arc<dyn Shelf>,
        options: Options,
        pool: SegmentPool,
        chain: Chain,
        pipeline: Pipeline,
    ) -> Shared {
        let tail = chain.find(pipeline.next()).or(chain.back()).expect("opening made at least one segment").clone();
        let durable = AtomicU64::new(pipeline.durable().0);
        let inline = tail.device_to_write().is_inline();
        let state = State {
            pipeline,
            chain,
            tail,
            append_lock: false,
            append_lock_waiters: 0,
            append_waiters: 0,
            waiting: [0; SLOTS],
            wanted: false,
            preparation_failure: None,
            lacks_descriptor: false,
            closed: false,
            stop: false,
            stats: Stats::default(),
        };
        Shared {
            shelf,
            options,
            state: Mutex::new(state),
            pool: Mutex::new(pool),
            inline,
            durable,
            failed: AtomicBool::new(false),
            slots: Default::default(),
            buffer_freed: Condvar::new(),
            append_lock_freed: Condvar::new(),
            prepared: Condvar::new(),
            work: Condvar::new(),
            appended: Condvar::new(),
        }
    }

    /// The state, with nothing reserved that is not durable.
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.wait_all_published(self.lock_to_reserve())
    }

    /// The state, with places that others are about to publish.
    pub(crate) fn lock_to_reserve(&self) -> Guard<'_> {
        self.state.lock().expect("no thread panicked inside the journal")
    }

    fn wait_all_published<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        while let Some(end) = state.pipeline.reserved() {
            if self.wait_published(end) {
                state.pipeline.all_published();
            } else if state.pipeline.failure().is_some() {
                break;
            } else {
                // Whoever failed needs the lock to say why.
                drop(state);
                std::thread::yield_now();
                state = self.lock_to_reserve();
            }
        }
        state
    }

    /// Has everything refused that is not being appended yet, and waits until that is; `false`: somebody else did.
    pub(crate) fn stop_appends(&self) -> bool {
        let mut state = self.lock();
        if std::mem::replace(&mut state.closed, true) {
            return false;
        }
        // A thread that panicked keeps the append lock for ever, and has failed the journal.
        while state.append_lock && state.check().is_ok() {
            state.append_lock_waiters += 1;
            state = self.wait(&self.append_lock_freed, state);
            state.append_lock_waiters -= 1;
        }
        true
    }

    pub(crate) fn wait<'a>(&'a self, condition: &Condvar, state: Guard<'a>) -> Guard<'a> {
        self.wait_all_published(condition.wait(state).expect("no thread panicked inside the journal"))
    }

    /// The same, for so long at most.
    pub(crate) fn wait_for<'a>(&'a self, condition: &Condvar, state: Guard<'a>, timeout: Duration) -> Guard<'a> {
        self.wait_all_published(
            condition.wait_timeout(state, timeout).expect("no thread panicked inside the journal").0,
        )
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Fails the journal: a write failed whose thread does not hold the lock.
    pub(crate) fn fail(&self, error: DeviceError) {
        self.failed.store(true, Ordering::Release);
        self.lock_to_reserve().pipeline.fail(Arc::new(error));
        self.wake_everybody();
    }

    /// Why it failed; waits until whoever failed has said so.
    #[cold]
    pub(crate) fn failure(&self) -> JournalError {
        loop {
            if let Err(error) = self.lock_to_reserve().check() {
                return error;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Waits until everything before `target` is durable, writing whatever waits to be written if nobody else does.
    pub(crate) fn commit_before<'a>(&'a self, state: Guard<'a>, target: Lsn) -> Result<(), JournalError> {
        // Declared before the guard, so that a panic lets go of the lock first.
        let panicking = FailOnPanic(self);
        let result = self.commit_or_wait(state, target);
        std::mem::forget(panicking);
        result
    }

    fn commit_or_wait<'a>(&'a self, mut state: Guard<'a>, target: Lsn) -> Result<(), JournalError> {
        loop {
            if state.pipeline.durable() >= target {
                return Ok(());
            }
            state.check()?;
            if let Some(write) = state.pipeline.take() {
                state = self.write(state, write);
                continue;
            }
            assert!(state.pipeline.is_in_flight() || state.append_lock, "somebody will move what is durable");
            let slot = slot_of(state.pipeline.batch_of(target));
            state.waiting[slot] += 1;
            state = self.wait(&self.slots[slot], state);
            state.waiting[slot] -= 1;
        }
    }

    /// Writes and flushes one batch, without the lock unless the device is inline, and tells everybody whom that concerns.
    pub(crate) fn write<'a>(&'a self, mut state: Guard<'a>, write: Write) -> Guard<'a> {
        let segment = state.chain.find(write.start).expect("a batch in flight keeps its segment").clone();
        let stats = &mut state.stats;
        stats.batches += 1;
        stats.written_bytes += write.buffer.len() as u64;
        stats.batch_records_max = stats.batch_records_max.max(u64::from(write.records));
        stats.batches_overlapped += u64::from(write.overlaps);
        let (device, offset) = (segment.device_to_write(), segment.offset(write.start));
        let (mut state, result) = if self.inline {
            let result = device.write_flush(offset, &write.buffer);
            (state, result)
        } else {
            drop(state);
            let panicking = FailOnPanic(self);
            let result = device.write_flush(offset, &write.buffer);
            std::mem::forget(panicking);
            (self.lock(), result)
        };
        let result = result.map_err(|error| error.named(&segment.name()));
        let finished = state.pipeline.finish(write, result);
        self.publish_durable(&state);
        if state.pipeline.failure().is_some() {
            self.wake_everybody();
            return state;
        }
        if segment.end() <= state.pipeline.persisted() {
            segment.finish();
        }
        for batch in finished {
            if state.waiting[slot_of(batch)] > 0 {
                self.slots[slot_of(batch)].notify_all();
            }
        }
        if state.append_lock {
            self.buffer_freed.notify_one();
        }
        // The next leader: one of those whom the waiting batches serve.
        if state.pipeline.may_take()
            && let Some(batch) = state.pipeline.waiting_batches().find(|batch| state.waiting[slot_of(*batch)] > 0)
        {
            self.slots[slot_of(batch)].notify_one();
        }
        state
    }

    /// Tells readers what is durable now.
    pub(crate) fn publish_durable(&self, state: &State) {
        self.durable.store(state.pipeline.durable().0, Ordering::Release);
    }

    /// Ends the preparing thread, also after a panic.
    pub(crate) fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.work.notify_all();
    }

    pub(crate) fn wake_everybody(&self) {
        self.slots.iter().for_each(Condvar::notify_all);
        for condition in [&self.buffer_freed, &self.append_lock_freed, &self.prepared, &self.work, &self.appended] {
            condition.notify_all();
        }
    }
}

/// Whoever panics leaves something undone for ever (a batch in flight, a segment unmade, an append lock held), and others waiting
/// for it: they are woken and told.
pub(crate) struct FailOnPanic<'a>(pub(crate) &'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        let name = "the journal's device (it panicked)".into();
        self.0.failed.store(true, Ordering::Release);
        // If the panic was under the lock, everybody who locks it panics too, and nobody waits.
        if let Ok(mut state) = self.0.state.lock() {
            state.pipeline.fail(Arc::new(DeviceError::Poisoned { name }));
        }
        self.0.wake_everybody();
    }
}

fn slot_of(batch: u64) -> usize {
    (batch % SLOTS as u64) as usize
}

impl State {
    /// Errors: [`JournalError::Poisoned`].
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        match self.pipeline.failure() {
            Some(cause) => Err(JournalError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Whether a record may be appended. Errors: [`JournalError::Poisoned`], [`JournalError::Closed`].
    pub(crate) fn accepts(&self) -> Result<(), JournalError> {
        self.check()?;
        if self.closed { Err(JournalError::Closed) } else { Ok(()) }
    }

    /// Makes sure that a batch is being filled, in the tail segment or the one behind it, and asks for the segment
    /// after that in time. `false`: no buffer is free, or no segment is ready.
    pub(crate) fn open_batch(&mut self, shared: &Shared) -> bool {
        let next = self.pipeline.next();
        if next == self.tail.end() {
            let Some(segment) = self.chain.find(next) else { return false };
            self.tail = segment.clone();
            self.pipeline.enter(self.tail.start());
        }
        self.prepare_ahead(shared, next);
        self.pipeline.open_batch(self.tail.end(), self.tail.header.unit)
    }
}

impl State {
    /// Asks for the next segment once half of the last one is used.
    pub(crate) fn prepare_ahead(&mut self, shared: &Shared, next: Lsn) {
        let half = self.tail.header.base.plus(self.tail.header.bytes / 2);
        if next < half || self.wanted || self.chain.end() != self.tail.end() || self.preparation_failure.is_some() {
            return;
        }
        if shared.options.preparation == Preparation::Background {
            self.wanted = true;
            shared.work.notify_one();
        }
    }
}

impl Source for Shared {
    fn first(&self) -> Lsn {
        self.lock().chain.first()
    }

    fn limit(&self) -> Lsn {
        self.durable()
    }

    fn segment(&self, lsn: Lsn) -> Option<Arc<Segment>> {
        self.lock().chain.find(lsn).cloned()
    }

    fn is_truncated(&self, lsn: Lsn) -> Result<bool, JournalError> {
        Ok(lsn < self.first())
    }
}
