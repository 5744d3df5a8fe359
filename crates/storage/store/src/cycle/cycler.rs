//! [`Cycler`]: the thread that runs write cycles, and the waiting that keeps dirty pages within bounds.
//!
//! ```text
//!   applier    admit() -- waits while too much is dirty --> lock, apply, unlock          never admit under the lock: cutting needs it
//!   thread     load? -> cut (takes the applier's lock) -> step, pause, step, pause ... -> over(X): the journal is truncated
//!   others     run() waits for a cycle that begins after the call;  close() runs two, the second marks the store as closed
//! ```
//!
//! A cycle that finds no room for its images is gone on with once there is some; until then [`admit`](Cycler::admit) answers
//! [`StoreError::Full`] instead of waiting for ever. Every other failure freezes the store.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::supervise;
use journal::Lsn;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::StoreError;
use crate::cycle::pace::{CycleOptions, Load, THREADS, Urgency, pause, threads, urgency};
use crate::cycle::write::{Cycle, Moment, Writer, Written};
use crate::space::freeze::Freeze;

/// What a cycler needs of the store.
pub(crate) trait Subject: Send + Sync {
    /// Cuts: takes the applier's lock, shortly.
    fn cut(&self) -> Result<Moment, StoreError>;

    /// Dirty bytes in the cache, and everything before which LSN is applied.
    fn load(&self) -> (u64, Lsn);

    /// A cycle is over: nothing before this is needed for recovery. Truncates the journal, as far as nobody else needs it.
    /// Errors are reported, and freeze nothing: more of the journal stays.
    fn over(&self, applied: Lsn) -> Result<(), StoreError>;
}

/// What cycles did since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleStats {
    /// Cycles that are over.
    pub cycles: u64,
    /// Pages that went straight home.
    pub fresh_pages: u64,
    /// Pages that went through the write image journal.
    pub changed_pages: u64,
    /// Bytes written to the write image journal.
    pub image_bytes: u64,
    /// Bytes written home by cycles.
    pub home_bytes: u64,
    /// How long the last one took, pauses included.
    pub last_duration: Duration,
    /// Everything before this is at home: where a recovery would begin.
    pub applied: Lsn,
    /// How often the applier waited for a cycle.
    pub waits: u64,
}

#[derive(Debug, Default)]
struct State {
    stats: CycleStats,
    /// Cycles asked for, and how many of those asked for had been when the last one that is over was cut.
    asked: u64,
    served: u64,
    is_running: bool,
    wants_close: bool,
    stop: bool,
    /// Why the cycle that runs cannot go on for now.
    full: Option<StoreError>,
}

struct Shared {
    subject: Arc<dyn Subject>,
    options: CycleOptions,
    freeze: Freeze,
    writer: Mutex<Writer>,
    state: Mutex<State>,
    /// Somebody asked, or stops.
    work: Condvar,
    /// A cycle is over, or will not be.
    done: Condvar,
}

/// Runs write cycles on a thread of its own until it is closed or dropped; dropping runs no last cycle.
pub(crate) struct Cycler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Cycler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cycler").field("state", &self.shared.state).finish_non_exhaustive()
    }
}

/// How often the thread looks whether something is due.
const LOOK: Duration = Duration::from_millis(50);

/// How long it waits before it tries again where there was no room.
const AGAIN: Duration = Duration::from_millis(500);

impl Cycler {
    /// Starts the thread.
    ///
    /// Errors: [`StoreError::Refused`] where the system gives no thread.
    pub(crate) fn start(
        writer: Writer,
        subject: Arc<dyn Subject>,
        options: CycleOptions,
        freeze: Freeze,
    ) -> Result<Cycler, StoreError> {
        let stats = CycleStats { applied: writer.superblock().applied, ..CycleStats::default() };
        let shared = Arc::new(Shared {
            subject,
            options,
            freeze,
            writer: Mutex::new(writer),
            state: Mutex::new(State { stats, ..State::default() }),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let (runner, told) = (shared.clone(), shared.clone());
        let panicked = move |why: &str| _ = told.freeze.freeze(&why);
        let spawned = supervise::thread("store-cycle", move || runner.serve(), panicked);
        let thread =
            spawned.map_err(|error| StoreError::Refused(format!("no thread for write cycles: {error}").into()))?;
        Ok(Cycler { shared, thread: Some(thread) })
    }

    /// Waits while so much is dirty, or so much journal would have to be redone, that a cycle must end first. To be called by
    /// whoever applies, without the applier's lock.
    ///
    /// Errors: [`StoreError::Frozen`]; [`StoreError::Full`] while the cycle that would help has no room.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.freeze.check()?;
        if shared.urgency(Duration::ZERO) < Urgency::Stop {
            return Ok(());
        }
        let mut state = shared.state.lock();
        state.stats.waits += 1;
        loop {
            shared.freeze.check()?;
            if let Some(full) = &state.full {
                return Err(full.clone());
            }
            shared.work.notify_one();
            shared.done.wait_for(&mut state, LOOK);
            drop(state);
            if shared.urgency(Duration::ZERO) < Urgency::Stop {
                return Ok(());
            }
            state = shared.state.lock();
        }
    }

    /// Runs a cycle that is cut after this call, as fast as it goes; returns when it is over.
    ///
    /// Errors: [`StoreError::Frozen`]; [`StoreError::Full`]: it has no room now, and is tried again.
    pub(crate) fn run(&self) -> Result<Written, StoreError> {
        self.shared.request(false)
    }

    /// Writes everything home, marks the store as closed, ends the thread. Nothing may be applied meanwhile.
    ///
    /// Errors: as for [`run`](Cycler::run); the thread has ended all the same.
    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        // The mark goes in a cycle of its own: when it is at home, everything else is.
        let result = self.run().and_then(|_| self.shared.request(true)).map(|_| ());
        self.stop();
        result
    }

    /// Why the cycle that runs cannot go on for now, if so.
    pub(crate) fn full(&self) -> Option<StoreError> {
        self.shared.state.lock().full.clone()
    }

    /// What was done since opening.
    pub(crate) fn stats(&self) -> CycleStats {
        self.shared.state.lock().stats
    }

    /// Runs `work` while no cycle runs and none begins: what is at home is the state of the last one, and stays it.
    ///
    /// Errors: [`StoreError::Frozen`]: a cycle ended half way, so that home is no state; those of `work`.
    pub(crate) fn between_cycles<T>(
        &self,
        work: impl FnOnce(&Writer) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let writer = self.shared.writer.lock();
        self.shared.freeze.check()?;
        work(&writer)
    }

    fn stop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it panicked, that froze the store.
            let _ = thread.join();
        }
    }
}

impl Drop for Cycler {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Freezes the store if the thread ends by a panic, so that nobody waits for it.
struct FreezeOnPanic<'a>(&'a Shared);

impl Drop for FreezeOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.freeze.freeze(&"the thread of write cycles panicked");
            self.0.done.notify_all();
        }
    }
}

impl Shared {
    fn load(&self) -> Load {
        let (dirty_bytes, applied) = self.subject.load();
        let base = self.state.lock().stats.applied;
        Load { dirty_bytes, journal_bytes: applied.0.saturating_sub(base.0) }
    }

    fn urgency(&self, since: Duration) -> Urgency {
        urgency(&self.options, self.load(), since)
    }

    /// Whether somebody waits for a cycle.
    fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        state.asked > state.served || state.stop
    }

    fn request(&self, close: bool) -> Result<Written, StoreError> {
        let mut state = self.state.lock();
        state.asked += 1;
        state.wants_close |= close;
        let mine = state.asked;
        self.work.notify_all();
        while state.served < mine {
            self.freeze.check()?;
            if let Some(full) = &state.full {
                return Err(full.clone());
            }
            self.done.wait_for(&mut state, LOOK);
        }
        Ok(Written { applied: state.stats.applied, ..Written::default() })
    }

    /// The thread.
    fn serve(&self) {
        let _guard = FreezeOnPanic(self);
        let mut began = Instant::now();
        loop {
            let due = self.urgency(began.elapsed()) > Urgency::None;
            let mut state = self.state.lock();
            if state.stop || self.freeze.check().is_err() {
                self.done.notify_all();
                return;
            }
            if !due && state.asked == state.served {
                self.work.wait_for(&mut state, LOOK);
                continue;
            }
            began = Instant::now();
            supervise::rehearse("store-cycle");
            if let Err(error) = self.cycle(state) {
                // Frozen: said where it happened.
                tracing::warn!(%error, "a write cycle ended early");
            }
            self.done.notify_all();
        }
    }

    fn cycle(&self, mut state: MutexGuard<'_, State>) -> Result<(), StoreError> {
        let (asked, close) = (state.asked, std::mem::take(&mut state.wants_close));
        state.is_running = true;
        drop(state);
        let began = Instant::now();
        let mut writer = self.writer.lock();
        let moment = self.subject.cut().map_err(|error| self.freeze.freeze(&error))?;
        let mut cycle = writer.begin(moment, close);
        let written = self.write(&mut writer, &mut cycle, began)?;
        let Some(written) = written else { return Ok(()) };
        drop(writer);
        if let Err(error) = self.subject.over(written.applied) {
            tracing::warn!(%error, "the journal was not truncated");
        }
        let mut state = self.state.lock();
        state.is_running = false;
        state.served = asked;
        let stats = &mut state.stats;
        stats.cycles += 1;
        stats.fresh_pages += written.fresh_pages;
        stats.changed_pages += written.changed_pages;
        stats.image_bytes += written.image_bytes;
        stats.home_bytes += written.home_bytes;
        stats.applied = written.applied;
        stats.last_duration = began.elapsed();
        Ok(())
    }

    /// Steps until the cycle is over; none where it was told to stop before anything was written.
    fn write(&self, writer: &mut Writer, cycle: &mut Cycle, began: Instant) -> Result<Option<Written>, StoreError> {
        loop {
            writer.set_threads(if self.is_awaited() { THREADS } else { threads(&self.options, self.load()) });
            match writer.step(cycle) {
                Ok(Some(written)) => return Ok(Some(written)),
                Ok(None) => self.state.lock().full = None,
                Err(error @ StoreError::Full(_)) => {
                    tracing::warn!(%error, "a write cycle waits for room");
                    let mut state = self.state.lock();
                    state.full = Some(error);
                    self.done.notify_all();
                    self.work.wait_for(&mut state, AGAIN);
                    if state.stop {
                        return Ok(None);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            }
            let (done, total) = cycle.progress();
            if self.is_awaited() || self.urgency(Duration::ZERO) >= Urgency::Hurry {
                continue;
            }
            let pause = pause(&self.options, done, total, began.elapsed());
            let mut state = self.state.lock();
            if !pause.is_zero() && !state.stop {
                self.work.wait_for(&mut state, pause);
            }
        }
    }
}
