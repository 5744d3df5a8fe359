//! The state that the threads of a journal share: one mutex over the plain state machine, and the conditions they wait
//! for.
//!
//! ```text
//!   append ----> state (mutex) <---- commit: leader takes a batch, unlocks, writes + flushes, locks, finishes
//!                  |                          followers wait in the slot of their batch
//!                  +-- chain of segments <--- segment pool (own mutex): makes the next segment, recycles truncated ones
//! ```
//!
//! Lock order: `pool`, then `state`. No I/O is done under `state`, unless a write takes only instructions
//! ([`device::Device::is_inline`]): it then takes less time than waking a waiting thread. A panic under `state` is an
//! assertion that found the journal's own bookkeeping wrong: every later call then panics too, which is safe.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use device::{DeviceError, Shelf};
use encryption::Sealer;

use crate::encrypt::encrypt;
use crate::error::JournalError;
use crate::flush_requests::FlushRequests;
use crate::format::CLOSE;
use crate::lsn::{Lsn, Nonce};
use crate::options::{GroupCommits, Options, Preparation, Stats};
use crate::pipeline::{Pipeline, Place, Write};
use crate::reader::Source;
use crate::segment::{Chain, Segment};
use crate::segment_pool::SegmentPool;

/// Waiting committers are separated by batch: a finished batch wakes only its own committers. There are more slots than
/// batches that can exist between being filled and being finished (one per buffer, and the next one).
const SLOTS: usize = 8;
const _: () = assert!(SLOTS > crate::options::BUFFERS + 1);

/// How often a waiting thread checks `durable` before it yields: writing a place takes less time than a context switch.
const SPINS: u32 = 200;

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
    /// The journal has failed, and `pipeline` has recorded that or is about to: threads that wait without the lock stop
    /// waiting.
    failed: AtomicBool,
    /// Wakes committers, by the number of their batch.
    slots: [Condvar; SLOTS],
    /// Wakes the appender that holds the append lock and waits for a buffer.
    pub(crate) buffer_freed: Condvar,
    /// Wakes appenders that wait for the append lock.
    pub(crate) append_lock_freed: Condvar,
    /// Wakes the appender that holds the append lock and waits for a segment.
    pub(crate) prepared: Condvar,
    /// Wakes the thread that prepares segments.
    pub(crate) work: Condvar,
    /// Wakes callers of `wait_appended`.
    pub(crate) appended: Condvar,
    /// The flusher's work and its observer.
    pub(crate) flush: FlushRequests,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pipeline: Pipeline,
    pub(crate) chain: Chain,
    /// The segment in which the next batch starts, or which the last batch has filled.
    pub(crate) tail: Arc<Segment>,
    /// Set while an append holds the append lock, because it takes more than one frame or has to wait: other appends
    /// wait.
    pub(crate) append_lock: bool,
    pub(crate) append_lock_waiters: u32,
    pub(crate) append_waiters: u32,
    /// Number of committers that wait in each slot.
    waiting: [u32; SLOTS],
    /// The next segment has been requested.
    pub(crate) wanted: bool,
    /// Units at the end of the last segment are kept, see [`usable_end`](State::usable_end).
    keeps_units: bool,
    /// Why the next segment could not be created, until the append that needs it has returned that error.
    pub(crate) preparation_failure: Option<JournalError>,
    /// Preparing is retried because no file descriptor is free.
    pub(crate) lacks_descriptor: bool,
    /// The journal is closed, or is being closed: appends are refused.
    pub(crate) closed: bool,
    /// The threads that prepare segments and flush must end.
    pub(crate) stop: bool,
    pub(crate) stats: Stats,
    /// None until somebody asks for them: nobody else does their work, which is for each record, under the lock.
    pub(crate) group_commits: Option<Box<GroupCommits>>,
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
            keeps_units: options.preparation == Preparation::Background,
            preparation_failure: None,
            lacks_descriptor: false,
            closed: false,
            stop: false,
            stats: Stats::default(),
            group_commits: None,
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
            flush: FlushRequests::default(),
        }
    }

    /// Locks the state, after every reserved place has become durable.
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.wait_all_published(self.lock_to_reserve())
    }

    /// Locks the state; there may be reserved places that other threads have not published yet.
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
                // The thread that failed needs the lock to record the cause.
                drop(state);
                std::thread::yield_now();
                state = self.lock_to_reserve();
            }
        }
        state
    }

    /// Waits until everything before the place is durable, then makes the place durable; returns `false` if the journal
    /// has failed.
    #[inline]
    pub(crate) fn publish(&self, place: Place) -> bool {
        let mut spins = 0;
        while self.durable() < place.start {
            if self.is_failed() {
                break;
            }
            pause(&mut spins);
        }
        if self.is_failed() {
            return false;
        }
        self.durable.store(place.end.0, Ordering::Release);
        true
    }

    /// Waits until every place reserved before `end` is published; returns `false` if the journal has failed, so that
    /// one of them never will be.
    fn wait_published(&self, end: Lsn) -> bool {
        let mut spins = 0;
        while self.durable() < end {
            if self.is_failed() {
                return false;
            }
            pause(&mut spins);
        }
        true
    }

    /// Refuses new appends, and waits until those in progress have ended. Returns `false` if another thread has already
    /// done so.
    pub(crate) fn stop_appends(&self) -> bool {
        let mut state = self.lock();
        if std::mem::replace(&mut state.closed, true) {
            return false;
        }
        // A thread that panicked never releases the append lock, but it has failed the journal.
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

    /// As [`Self::wait`], with a timeout.
    pub(crate) fn wait_for<'a>(&'a self, condition: &Condvar, state: Guard<'a>, timeout: Duration) -> Guard<'a> {
        self.wait_all_published(
            condition.wait_timeout(state, timeout).expect("no thread panicked inside the journal").0,
        )
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Fails the journal after a write of a thread that does not hold the lock.
    pub(crate) fn fail(&self, error: DeviceError) {
        self.failed.store(true, Ordering::Release);
        self.lock_to_reserve().pipeline.fail(Arc::new(error));
        self.wake_everybody();
    }

    /// Returns why the journal failed; waits until the failing thread has recorded the cause.
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

    /// Waits until everything before `target` is durable; writes waiting batches if no other thread does.
    pub(crate) fn commit_before<'a>(&'a self, state: Guard<'a>, target: Lsn) -> Result<(), JournalError> {
        // Declared before the guard, so that a panic releases the lock first.
        let panicking = FailOnPanic(self);
        let result = self.commit_or_wait(state, target);
        std::mem::forget(panicking);
        result
    }

    pub(crate) fn commit_or_wait<'a>(&'a self, mut state: Guard<'a>, target: Lsn) -> Result<(), JournalError> {
        loop {
            if state.pipeline.durable() >= target {
                return Ok(());
            }
            state.check()?;
            if let Some(write) = state.pipeline.take() {
                state = self.write(state, write);
                continue;
            }
            assert!(state.pipeline.is_in_flight() || state.append_lock, "another thread will move what is durable");
            let slot = slot_of(state.pipeline.batch_of(target));
            state.waiting[slot] += 1;
            state = self.wait(&self.slots[slot], state);
            state.waiting[slot] -= 1;
        }
    }

    /// Writes and flushes one batch, without the lock unless the device is inline, and notifies the threads that waited
    /// for it.
    pub(crate) fn write<'a>(&'a self, mut state: Guard<'a>, mut write: Write) -> Guard<'a> {
        let segment = state.chain.find(write.start).expect("a batch in flight keeps its segment").clone();
        let stats = &mut state.stats;
        stats.batches += 1;
        stats.written_bytes += write.buffer.len() as u64;
        stats.batch_records_max = stats.batch_records_max.max(u64::from(write.records));
        stats.batches_overlapped += u64::from(write.overlaps);
        if let Some(counted) = &mut state.group_commits {
            counted.batch_records[GroupCommits::class(write.records.into())] += 1;
        }
        let (device, offset) = (segment.device_to_write(), segment.offset(write.start));
        let nonce = state.pipeline.nonce();
        let begun = Instant::now();
        let (mut state, result, took) = if self.inline {
            self.encrypt(&mut write, nonce);
            let result = device.write_flush(offset, &write.buffer);
            (state, result, begun.elapsed())
        } else {
            drop(state);
            let panicking = FailOnPanic(self);
            self.encrypt(&mut write, nonce);
            let result = device.write_flush(offset, &write.buffer);
            std::mem::forget(panicking);
            let took = begun.elapsed();
            (self.lock(), result, took)
        };
        state.stats.write_ns += took.as_nanos() as u64;
        let result = result.map_err(|error| error.named(&segment.name()));
        let finished = state.pipeline.finish(write, result);
        self.publish_durable(&state);
        self.flush.notify_observer();
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
        // The next leader: one of the committers of the waiting batches.
        if state.pipeline.may_take()
            && let Some(batch) = state.pipeline.waiting_batches().find(|batch| state.waiting[slot_of(*batch)] > 0)
        {
            self.slots[slot_of(batch)].notify_one();
        }
        state
    }

    /// Encrypts a batch that was taken, if the journal is encrypted.
    fn encrypt(&self, write: &mut Write, nonce: Nonce) {
        if let Some(sealer) = &self.options.sealer {
            encrypt(sealer, &mut write.buffer, write.start, nonce, write.bytes);
        }
    }

    /// Publishes to readers what is durable now.
    pub(crate) fn publish_durable(&self, state: &State) {
        self.durable.store(state.pipeline.durable().0, Ordering::Release);
    }

    /// Ends the journal's threads, also after a panic.
    pub(crate) fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.work.notify_all();
        self.flush.wake();
    }

    pub(crate) fn wake_everybody(&self) {
        self.slots.iter().for_each(Condvar::notify_all);
        for condition in [&self.buffer_freed, &self.append_lock_freed, &self.prepared, &self.work, &self.appended] {
            condition.notify_all();
        }
        self.flush.wake();
        self.flush.notify_observer();
    }

    pub(crate) fn commit_record(&self, lsn: Lsn) -> Result<(), JournalError> {
        if self.durable() > lsn {
            return Ok(());
        }
        let state = self.lock();
        let appended = state.pipeline.appended();
        // A record at `lsn` is durable once `durable()` is after its start. If no record starts there yet, everything
        // before it counts.
        let target = if lsn < appended { lsn.plus(1) } else { appended };
        self.commit_before(state, target)
    }

    /// Writes a batch without records. A closing batch is omitted if the segment has no block left for it: it would only
    /// make damage easier to recognise.
    pub(crate) fn write_marker(&self, flag: u8) -> Result<(), JournalError> {
        let mut state = self.lock();
        state.check()?;
        if state.pipeline.is_between_batches() {
            if flag == CLOSE && state.pipeline.next() >= state.usable_end() {
                return Ok(());
            }
            // The next opening needs what is kept for it.
            let end = if flag == CLOSE { state.usable_end() } else { state.tail.end() };
            let opened = state.open_batch_before(self, end);
            assert!(opened, "nothing is in flight and there is a block");
        }
        state.pipeline.mark(flag);
        state.pipeline.seal();
        let write = state.pipeline.take().expect("a sealed batch waits and nothing is in flight");
        let state = self.write(state, write);
        state.check()
    }
}

/// Fails the journal when its thread panics. Such a thread leaves something unfinished (a batch in flight, a segment,
/// the append lock) for which other threads wait: they are woken and return the error.
pub(crate) struct FailOnPanic<'a>(pub(crate) &'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        let name = "the journal's device (it panicked)".into();
        self.0.failed.store(true, Ordering::Release);
        // If the panic happened under the lock, every thread that locks it panics too, and none waits.
        if let Ok(mut state) = self.0.state.lock() {
            state.pipeline.fail(Arc::new(DeviceError::Poisoned { name }));
        }
        self.0.wake_everybody();
    }
}

fn pause(spins: &mut u32) {
    if *spins < SPINS {
        *spins += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
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

    /// Ensures that a batch is being filled, in the tail segment or the one after it, and requests the segment after
    /// that in time. Returns `false` if no buffer is free or no segment is ready.
    pub(crate) fn open_batch(&mut self, shared: &Shared) -> bool {
        let next = self.pipeline.next();
        if next == self.tail.end() {
            let Some(segment) = self.chain.find(next) else { return false };
            self.tail = segment.clone();
            self.pipeline.enter(self.tail.start());
        }
        let end = self.usable_end();
        self.open_batch_before(shared, end)
    }

    fn open_batch_before(&mut self, shared: &Shared, end: Lsn) -> bool {
        let next = self.pipeline.next();
        self.prepare_ahead(shared, next);
        next < end && self.pipeline.open_batch(end, self.tail.header.unit)
    }

    /// Bytes of the last segment that records may not fill now.
    pub(crate) fn kept(&self) -> u64 {
        let last = self.chain.back().filter(|_| self.keeps_units);
        last.map_or(0, |last| last.end().since(last.usable_end()))
    }

    /// Up to where records may fill the tail segment. While there is no further segment, some units at its end are kept for
    /// the marks of the next openings: a journal whose shelf is full can then be opened, and truncated. Not without the
    /// preparing thread: there the next segment is never ready before this one is full.
    pub(crate) fn usable_end(&self) -> Lsn {
        match self.keeps_units && self.chain.end() == self.tail.end() {
            true => self.tail.usable_end(),
            false => self.tail.end(),
        }
    }
}

impl State {
    /// Requests the next segment once half of the last one is used.
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

    fn sealer(&self) -> Option<&Sealer> {
        self.options.sealer.as_deref()
    }

    fn is_truncated(&self, lsn: Lsn) -> Result<bool, JournalError> {
        Ok(lsn < self.first())
    }
}
