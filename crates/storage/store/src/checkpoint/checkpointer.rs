//! [`Checkpointer`]: the thread that runs checkpoints, and the back pressure that bounds the dirty pages.
//!
//! ```text
//!   applier    admit() -- waits while too much is dirty --> lock, apply, unlock      never admit under the lock: begin needs it
//!   thread     load? -> begin (takes the applier's lock) -> step, pause, step, pause ... -> over(redo LSN): truncates the journal
//!   others     run() waits for a checkpoint that begins after the call;  close() runs two, the second marks the store as closed
//! ```
//!
//! A checkpoint that finds no space for its images waits, and continues once there is some. Until then
//! [`admit`](Checkpointer::admit) returns [`StoreError::Full`] instead of waiting for ever. Every other failure poisons
//! the store.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::{Distribution, Noted, supervise};
use journal::Lsn;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::StoreError;
use crate::checkpoint::pace::{CheckpointOptions, Load, THREADS, Urgency, pause, threads, urgency};
use crate::checkpoint::writer::{Checkpoint, CheckpointBegin, CheckpointSummary, CheckpointWriter};
use crate::space::poison::Poison;

/// The parts of the store that a checkpointer needs.
pub(crate) trait CheckpointSource: Send + Sync {
    /// Begins a checkpoint: takes the applier's lock for a short time.
    fn begin_checkpoint(&self) -> Result<CheckpointBegin, StoreError>;

    /// Dirty bytes in the cache, and the LSN before which everything is applied.
    fn load(&self) -> (u64, Lsn);

    /// Called when a checkpoint is over: recovery needs nothing before this LSN. Truncates the journal as far as
    /// nothing else needs it. Errors are logged and do not poison the store: a longer journal stays.
    fn over(&self, redo_lsn: Lsn) -> Result<(), StoreError>;
}

/// Counters of checkpoints since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Fresh pages, written in place without an image.
    pub fresh_pages: u64,
    /// Pages that went through the write image journal.
    pub changed_pages: u64,
    /// Bytes written to the write image journal.
    pub image_bytes: u64,
    /// Bytes written in place by checkpoints.
    pub data_bytes: u64,
    /// Duration of the last one, including pauses.
    pub last_duration: Duration,
    /// Everything before this is in the pages: a recovery would begin here.
    pub redo_lsn: Lsn,
    /// How often the applier waited for a checkpoint.
    pub waits: u64,
}

impl CheckpointStats {
    /// Adds a completed checkpoint.
    pub(crate) fn add(&mut self, written: &CheckpointSummary) {
        self.checkpoints += 1;
        self.fresh_pages += written.fresh_pages;
        self.changed_pages += written.changed_pages;
        self.image_bytes += written.image_bytes;
        self.data_bytes += written.data_bytes;
        self.redo_lsn = written.redo_lsn;
    }
}

#[derive(Debug, Default)]
struct State {
    stats: CheckpointStats,
    /// Number of checkpoints requested; and that number at the moment when the last completed one began.
    asked: u64,
    served: u64,
    is_running: bool,
    wants_close: bool,
    stop: bool,
    /// Why the current checkpoint cannot continue for now.
    full: Option<StoreError>,
}

struct Shared {
    source: Arc<dyn CheckpointSource>,
    options: CheckpointOptions,
    poison: Poison,
    writer: Mutex<CheckpointWriter>,
    state: Mutex<State>,
    /// Notified when a checkpoint is requested, or the thread must end.
    work: Condvar,
    /// Notified when a checkpoint is over, or will not complete.
    done: Condvar,
    /// How long checkpoints took, with their pauses.
    durations: Distribution<1>,
    dirty_bytes: Distribution<1>,
}

/// Runs checkpoints on a dedicated thread until it is closed or dropped; dropping runs no last checkpoint.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpointer").field("state", &self.shared.state).finish_non_exhaustive()
    }
}

/// How often the thread checks whether a checkpoint is due.
const LOOK: Duration = Duration::from_millis(50);

/// How long it waits for space before it retries.
const AGAIN: Duration = Duration::from_millis(500);

impl Checkpointer {
    /// Starts the thread.
    ///
    /// Errors: [`StoreError::Refused`] if the system cannot start a thread.
    pub(crate) fn start(
        writer: CheckpointWriter,
        source: Arc<dyn CheckpointSource>,
        options: CheckpointOptions,
        poison: Poison,
    ) -> Result<Checkpointer, StoreError> {
        let stats = CheckpointStats { redo_lsn: writer.superblock().redo_lsn, ..CheckpointStats::default() };
        let shared = Arc::new(Shared {
            source,
            options,
            poison,
            writer: Mutex::new(writer),
            state: Mutex::new(State { stats, ..State::default() }),
            work: Condvar::new(),
            done: Condvar::new(),
            durations: Distribution::default(),
            dirty_bytes: Distribution::default(),
        });
        let (runner, poisoned) = (shared.clone(), shared.clone());
        let panicked = move |why: &str| _ = poisoned.poison.set(&why);
        let spawned = supervise::thread("store-checkpoint", move || runner.serve(), panicked);
        let thread =
            spawned.map_err(|error| StoreError::Refused(format!("no thread for checkpoints: {error}").into()))?;
        Ok(Checkpointer { shared, thread: Some(thread) })
    }

    /// Waits while so much is dirty, or so much journal would have to be redone, that a checkpoint must end first.
    /// Called by the thread that applies, without the applier's lock.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`] while the checkpoint that would help has no space.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.poison.check()?;
        if shared.urgency(Duration::ZERO) < Urgency::Stop {
            return Ok(());
        }
        let mut state = shared.state.lock();
        state.stats.waits += 1;
        loop {
            shared.poison.check()?;
            if let Some(full) = &state.full {
                return Err(full.clone());
            }
            if state.stop {
                return Err(StoreError::closed());
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

    /// Runs a checkpoint that begins after this call, at full speed; returns when it is over.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`]: it has no space now, and is retried.
    pub(crate) fn run(&self) -> Result<CheckpointSummary, StoreError> {
        self.shared.request(false)
    }

    /// Writes everything back, marks the store as closed, ends the thread. Nothing may be applied meanwhile.
    ///
    /// Errors: as for [`run`](Checkpointer::run); the thread has ended in any case.
    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        // The clean mark is written by a second checkpoint: when the mark is persistent, everything else is.
        let result = self.run().and_then(|_| self.shared.request(true)).map(|_| ());
        self.stop();
        result
    }

    /// Why the current checkpoint cannot continue for now, if it cannot.
    pub(crate) fn full(&self) -> Option<StoreError> {
        self.shared.state.lock().full.clone()
    }

    /// How long each checkpoint took, with its pauses.
    pub(crate) fn durations(&self) -> Noted {
        self.shared.durations.noted()
    }

    /// How many bytes of changed pages each checkpoint had to write.
    pub(crate) fn dirty_bytes(&self) -> Noted {
        self.shared.dirty_bytes.noted()
    }

    /// Counters since opening.
    pub(crate) fn stats(&self) -> CheckpointStats {
        self.shared.state.lock().stats
    }

    /// Runs `work` while no checkpoint runs and none begins: the data devices contain the state of the last one,
    /// unchanged.
    ///
    /// Errors: [`StoreError::Poisoned`]: a checkpoint ended half way, so the data devices contain no consistent state;
    /// those of `work`.
    pub(crate) fn between_checkpoints<T>(
        &self,
        work: impl FnOnce(&CheckpointWriter) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let writer = self.shared.writer.lock();
        self.shared.poison.check()?;
        work(&writer)
    }

    /// Lets the thread end: it begins no checkpoint, and waits for space no more.
    pub(crate) fn begin_stop(&self) {
        self.shared.state.lock().stop = true;
        self.shared.work.notify_all();
    }

    fn stop(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take() {
            // If it panicked, that has poisoned the store.
            let _ = thread.join();
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Poisons the store if the thread panics, so that no thread waits for it.
struct PoisonOnPanic<'a>(&'a Shared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison.set(&"the thread of checkpoints panicked");
            self.0.done.notify_all();
        }
    }
}

impl Shared {
    fn load(&self) -> Load {
        let (dirty_bytes, redo_lsn) = self.source.load();
        let base = self.state.lock().stats.redo_lsn;
        Load { dirty_bytes, journal_bytes: redo_lsn.0.saturating_sub(base.0) }
    }

    fn urgency(&self, since: Duration) -> Urgency {
        urgency(&self.options, self.load(), since)
    }

    /// Whether a thread waits for a checkpoint.
    fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        state.asked > state.served || state.stop
    }

    fn request(&self, close: bool) -> Result<CheckpointSummary, StoreError> {
        let mut state = self.state.lock();
        state.asked += 1;
        state.wants_close |= close;
        let mine = state.asked;
        self.work.notify_all();
        while state.served < mine {
            self.poison.check()?;
            if let Some(full) = &state.full {
                return Err(full.clone());
            }
            if state.stop {
                return Err(StoreError::closed());
            }
            self.done.wait_for(&mut state, LOOK);
        }
        Ok(CheckpointSummary { redo_lsn: state.stats.redo_lsn, ..CheckpointSummary::default() })
    }

    /// The thread's main loop.
    fn serve(&self) {
        let _guard = PoisonOnPanic(self);
        let mut began = Instant::now();
        loop {
            let due = self.urgency(began.elapsed()) > Urgency::None;
            let mut state = self.state.lock();
            if state.stop || self.poison.check().is_err() {
                self.done.notify_all();
                return;
            }
            if !due && state.asked == state.served {
                self.work.wait_for(&mut state, LOOK);
                continue;
            }
            began = Instant::now();
            supervise::rehearse("store-checkpoint");
            if let Err(error) = self.checkpoint(state) {
                // The cause was logged where it occurred.
                tracing::warn!(%error, "a checkpoint ended early");
            }
            self.done.notify_all();
        }
    }

    fn checkpoint(&self, mut state: MutexGuard<'_, State>) -> Result<(), StoreError> {
        let (asked, close) = (state.asked, std::mem::take(&mut state.wants_close));
        state.is_running = true;
        drop(state);
        let began = Instant::now();
        let mut writer = self.writer.lock();
        let begin = self.source.begin_checkpoint().map_err(|error| self.poison.set(&error))?;
        let mut checkpoint = writer.begin(begin, close);
        let written = self.write(&mut writer, &mut checkpoint, began)?;
        let Some(written) = written else { return Ok(()) };
        drop(writer);
        if let Err(error) = self.source.over(written.redo_lsn) {
            tracing::warn!(%error, "the journal was not truncated");
        }
        let mut state = self.state.lock();
        state.is_running = false;
        state.served = asked;
        state.stats.add(&written);
        state.stats.last_duration = began.elapsed();
        self.durations.note(1, 0, began.elapsed());
        self.dirty_bytes.note_value(written.data_bytes);
        Ok(())
    }

    /// Steps until the checkpoint is over; `None` if it had to stop before anything was written.
    fn write(
        &self,
        writer: &mut MutexGuard<'_, CheckpointWriter>,
        checkpoint: &mut Checkpoint,
        began: Instant,
    ) -> Result<Option<CheckpointSummary>, StoreError> {
        loop {
            writer.set_threads(if self.is_awaited() { THREADS } else { threads(&self.options, self.load()) });
            match writer.step(checkpoint) {
                Ok(Some(written)) => return Ok(Some(written)),
                Ok(None) => self.state.lock().full = None,
                Err(error @ StoreError::Full(_)) => {
                    tracing::warn!(%error, "a checkpoint waits for room");
                    // Nothing was written: whoever reads the state of the last checkpoint may do so meanwhile.
                    let stops = MutexGuard::unlocked_fair(writer, || {
                        let mut state = self.state.lock();
                        state.full = Some(error);
                        self.done.notify_all();
                        self.work.wait_for(&mut state, AGAIN);
                        state.stop
                    });
                    if stops {
                        return Ok(None);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            }
            let (done, total) = checkpoint.progress();
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
