//! [`Checkpoints`]: determines which thread runs checkpoints.
//!
//! ```text
//!   with threads      Checkpointer: a dedicated thread; the applier waits in `admit` while too much is dirty
//!   without threads   the applier runs whole checkpoints itself, when a limit is reached, between two batches
//!   while opening     the same: the thread starts when the journal is applied
//! ```
//!
//! The dirty pages are passed in through a [`CheckpointSource`]: this module depends on neither trees nor journal.
//!
//! Invariant: one checkpoint at a time. The lock of `runner` is held for the whole checkpoint if it runs on the calling
//! thread, and only briefly if the checkpointer runs it.

use std::sync::Arc;
use std::time::Duration;

use journal::Lsn;
use parking_lot::Mutex;

use crate::StoreError;
use crate::checkpoint::checkpointer::{CheckpointSource, CheckpointStats, Checkpointer};
use crate::checkpoint::pace::{CheckpointOptions, Load, Urgency, urgency};
use crate::checkpoint::writer::{Checkpoint, CheckpointSummary, CheckpointWriter};
use crate::space::poison::Poison;

/// Checkpoints on the calling thread.
struct Inline {
    writer: CheckpointWriter,
    /// One that found no space, to be continued.
    unfinished: Option<Checkpoint>,
    /// The redo LSN of the last one that began.
    begun: Lsn,
    stats: CheckpointStats,
}

enum Runner {
    /// Checkpoints run on the thread that applies.
    Inline(Box<Inline>),
    /// Checkpoints run on a dedicated thread.
    Thread(Arc<Checkpointer>),
    /// No checkpoints run: the store is closed.
    Closed,
}

/// See the head comment of this file.
pub(crate) struct Checkpoints {
    options: CheckpointOptions,
    poison: Poison,
    runner: Mutex<Runner>,
}

/// Work that is done between two checkpoints.
pub(crate) type BetweenCheckpoints<'a> = &'a mut dyn FnMut(&CheckpointWriter) -> Result<(), StoreError>;

impl Checkpoints {
    /// Runs checkpoints on the calling thread.
    pub(crate) fn inline(writer: CheckpointWriter, options: CheckpointOptions, poison: Poison) -> Checkpoints {
        let begun = writer.superblock().redo_lsn;
        let stats = CheckpointStats { redo_lsn: begun, ..CheckpointStats::default() };
        let inline = Inline { writer, unfinished: None, begun, stats };
        Checkpoints { options, poison, runner: Mutex::new(Runner::Inline(Box::new(inline))) }
    }

    /// Starts the thread that runs checkpoints from now on.
    ///
    /// Errors: [`StoreError::Refused`] if the system cannot start a thread.
    pub(crate) fn start(&self, source: Arc<dyn CheckpointSource>) -> Result<(), StoreError> {
        let mut runner = self.runner.lock();
        let Runner::Inline(mut inline) = std::mem::replace(&mut *runner, Runner::Closed) else { return Ok(()) };
        if let Err(error) = inline.writer.reserve(self.options.dirty_bytes) {
            // Retried by the checkpoint that needs it.
            tracing::warn!(%error, "no space was reserved for write images");
        }
        let checkpointer = Checkpointer::start(inline.writer, source, self.options, self.poison.clone())?;
        *runner = Runner::Thread(Arc::new(checkpointer));
        Ok(())
    }

    /// The checkpointer, if there is a thread. Errors: [`StoreError::Refused`] once closed.
    fn checkpointer(&self) -> Result<Option<Arc<Checkpointer>>, StoreError> {
        match &*self.runner.lock() {
            Runner::Thread(checkpointer) => Ok(Some(checkpointer.clone())),
            Runner::Inline(_) => Ok(None),
            Runner::Closed => Err(StoreError::closed()),
        }
    }

    /// Waits, or writes, while too much is dirty. Called by the thread that applies, without the applier's lock.
    pub(crate) fn admit(&self, source: &dyn CheckpointSource) -> Result<(), StoreError> {
        match self.checkpointer()? {
            Some(checkpointer) => checkpointer.admit(),
            None => self.run_if_due(source),
        }
    }

    fn run_if_due(&self, source: &dyn CheckpointSource) -> Result<(), StoreError> {
        let begun = match &*self.runner.lock() {
            Runner::Inline(inline) => inline.begun,
            Runner::Thread(_) | Runner::Closed => return Err(StoreError::closed()),
        };
        let (dirty_bytes, applied) = source.load();
        let load = Load { dirty_bytes, journal_bytes: applied.0.saturating_sub(begun.0) };
        match urgency(&self.options, load, Duration::ZERO) {
            Urgency::Hurry | Urgency::Stop => self.run_inline(source, false).map(drop),
            Urgency::None | Urgency::Leisure => Ok(()),
        }
    }

    /// Whether the current checkpoint has space. Errors: [`StoreError::Full`].
    pub(crate) fn check_room(&self) -> Result<(), StoreError> {
        match &*self.runner.lock() {
            Runner::Thread(checkpointer) => checkpointer.full().map_or(Ok(()), Err),
            Runner::Inline(_) | Runner::Closed => Ok(()),
        }
    }

    /// Runs a whole checkpoint, which begins after this call.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`]: it has no space now, and is retried.
    pub(crate) fn run(&self, source: &dyn CheckpointSource) -> Result<CheckpointSummary, StoreError> {
        match self.checkpointer()? {
            Some(checkpointer) => checkpointer.run(),
            None => self.run_inline(source, false),
        }
    }

    /// As [`Self::run`], on the calling thread; `is_clean` marks the store as closed.
    pub(crate) fn run_inline(
        &self,
        source: &dyn CheckpointSource,
        is_clean: bool,
    ) -> Result<CheckpointSummary, StoreError> {
        let mut runner = self.runner.lock();
        let Runner::Inline(inline) = &mut *runner else { return Err(StoreError::closed()) };
        let unfinished = inline.unfinished.take();
        let resumed = unfinished.is_some();
        let mut written = inline.run(unfinished, source, is_clean)?;
        if resumed {
            // The resumed one began before the call.
            written = inline.run(None, source, is_clean)?;
        }
        drop(runner);
        if let Err(error) = source.over(written.redo_lsn) {
            tracing::warn!(%error, "the journal was not truncated");
        }
        Ok(written)
    }

    /// Writes everything back and marks the store as closed; nothing may be applied any more.
    ///
    /// Errors: as for [`run`](Checkpoints::run); in any case no further checkpoints run.
    pub(crate) fn close(&self, source: &dyn CheckpointSource) -> Result<(), StoreError> {
        let runner = {
            let mut runner = self.runner.lock();
            match &*runner {
                Runner::Inline(_) => None,
                Runner::Thread(_) | Runner::Closed => Some(std::mem::replace(&mut *runner, Runner::Closed)),
            }
        };
        match runner {
            Some(Runner::Thread(checkpointer)) => unshared(checkpointer).close(),
            Some(_) => Ok(()),
            None => {
                // The clean mark is written by a second checkpoint: when the mark is persistent, everything else is.
                let result = self.run_inline(source, false).and_then(|_| self.run_inline(source, true)).map(drop);
                *self.runner.lock() = Runner::Closed;
                result
            }
        }
    }

    /// Ends the thread, without another checkpoint.
    pub(crate) fn stop(&self) {
        let runner = std::mem::replace(&mut *self.runner.lock(), Runner::Closed);
        if let Runner::Thread(checkpointer) = runner {
            // Before it is the only reference: others may wait for what the thread holds.
            checkpointer.begin_stop();
            drop(unshared(checkpointer));
        }
    }

    /// How long checkpoints of the thread took.
    pub(crate) fn durations(&self) -> device::Noted {
        match &*self.runner.lock() {
            Runner::Thread(checkpointer) => checkpointer.durations(),
            Runner::Inline(_) | Runner::Closed => device::Noted::default(),
        }
    }

    /// How many bytes of changed pages checkpoints of the thread had to write.
    pub(crate) fn dirty_bytes(&self) -> device::Noted {
        match &*self.runner.lock() {
            Runner::Thread(checkpointer) => checkpointer.dirty_bytes(),
            Runner::Inline(_) | Runner::Closed => device::Noted::default(),
        }
    }

    /// Counters of the checkpoints.
    pub(crate) fn stats(&self) -> CheckpointStats {
        match &*self.runner.lock() {
            Runner::Thread(checkpointer) => checkpointer.stats(),
            Runner::Inline(inline) => inline.stats,
            Runner::Closed => CheckpointStats::default(),
        }
    }

    /// Runs `work` while no checkpoint runs and none begins: the data devices contain the state of the last one.
    ///
    /// Errors: [`StoreError::Poisoned`], those of `work`; [`StoreError::Refused`] once closed.
    pub(crate) fn between(&self, work: BetweenCheckpoints<'_>) -> Result<(), StoreError> {
        let runner = self.runner.lock();
        match &*runner {
            Runner::Thread(checkpointer) => {
                let checkpointer = checkpointer.clone();
                drop(runner);
                checkpointer.between_checkpoints(work)
            }
            Runner::Inline(inline) => {
                self.poison.check()?;
                // A checkpoint that found no space has written nothing.
                work(&inline.writer)
            }
            Runner::Closed => Err(StoreError::closed()),
        }
    }
}

/// Waits until this is the only reference: others exist for a short time only.
fn unshared(mut checkpointer: Arc<Checkpointer>) -> Checkpointer {
    loop {
        match Arc::try_unwrap(checkpointer) {
            Ok(checkpointer) => return checkpointer,
            Err(shared) => checkpointer = shared,
        }
        // A check or a backup keeps its reference longer.
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Inline {
    /// Continues a checkpoint, or begins one, and steps it to its end.
    fn run(
        &mut self,
        unfinished: Option<Checkpoint>,
        source: &dyn CheckpointSource,
        is_clean: bool,
    ) -> Result<CheckpointSummary, StoreError> {
        let mut checkpoint = match unfinished {
            Some(checkpoint) => checkpoint,
            None => {
                let begin = source.begin_checkpoint()?;
                self.begun = begin.redo_lsn;
                self.writer.begin(begin, is_clean)
            }
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
        self.stats.add(&written);
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tests::toy::{Toy, ToyOp};
    use crate::checkpoint::writer::CheckpointBegin;

    /// A toy as a checkpoint source.
    struct ToySource(Mutex<Toy>);

    impl CheckpointSource for ToySource {
        fn begin_checkpoint(&self) -> Result<CheckpointBegin, StoreError> {
            Ok(self.0.lock().begin_checkpoint())
        }

        fn load(&self) -> (u64, Lsn) {
            let toy = self.0.lock();
            (toy.dirty_bytes(), toy.redo_lsn)
        }

        fn over(&self, redo_lsn: Lsn) -> Result<(), StoreError> {
            let toy = self.0.lock();
            toy.space.set_horizon(redo_lsn);
            Ok(toy.journal.truncate(redo_lsn)?)
        }
    }

    #[test]
    fn without_a_thread_a_limit_runs_a_checkpoint_on_the_caller_and_closing_ends_them() {
        let shelf = Arc::new(device::MemoryShelf::new());
        let mut toy = Toy::open_on(shelf.clone(), shelf).expect("opens");
        let (writer, poison) = (toy.take_writer(), toy.poison.clone());
        let options = CheckpointOptions { dirty_bytes: 1 << 14, ..CheckpointOptions::default() };
        let source = ToySource(Mutex::new(toy));
        let checkpoints = Checkpoints::inline(writer, options, poison);
        checkpoints.admit(&source).expect("nothing is due");
        assert_eq!(checkpoints.stats().checkpoints, 0);
        for slot in 0..6 {
            let op = ToyOp { slot, what: 2, pages: 3 };
            source.0.lock().change(op).expect("works");
            checkpoints.admit(&source).expect("works");
        }
        let stats = checkpoints.stats();
        assert!(stats.checkpoints > 0 && source.load().0 < 1 << 14, "{stats:?}");
        checkpoints.close(&source).expect("writes everything back");
        assert!(matches!(checkpoints.admit(&source), Err(StoreError::Refused(_))));
        assert!(matches!(checkpoints.run(&source), Err(StoreError::Refused(_))));
        assert!(matches!(checkpoints.between(&mut |_| Ok(())), Err(StoreError::Refused(_))));
    }
}
