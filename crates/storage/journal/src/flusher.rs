//! Makes records durable for callers that do not wait in [`commit`](crate::Journal::commit): they append, request a
//! flush, and are notified when `durable` has moved.
//!
//! ```text
//!   append, flush_soon    append, flush_soon    append, flush_soon          callers, none of which waits
//!        |                                          |
//!        +--> flusher: takes the batch, writes it --+--> takes the next one ...
//!                                     |
//!                                     +--> durable moves --> observer
//! ```
//!
//! The flusher is a committer like any other: it leads, or follows a thread that leads. So there is one group commit,
//! and records of all callers share its batches. While the flusher writes a batch the next one fills.
//!
//! Invariants:
//! 1. A record that was appended before `flush_soon` becomes durable without another call, or the journal fails.
//! 2. The observer is called after each move of `durable` that a write of a batch has caused, whichever thread wrote it,
//!    and after a failure. It is called under the journal's lock: it must not call the journal, and only wake a thread.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, OnceLock};
use std::thread::JoinHandle;

use device::supervise;

use crate::error::JournalError;
use crate::shared::{FailOnPanic, Shared};

/// What callers and the flusher share.
#[derive(Default)]
pub(crate) struct FlushRequests {
    /// A flush was requested that the flusher has not begun.
    pending: AtomicBool,
    /// Wakes the flusher.
    work: Condvar,
    observer: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for FlushRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlushRequests").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl FlushRequests {
    /// Calls the observer, if there is one.
    pub(crate) fn notify_observer(&self) {
        if let Some(observer) = self.observer.get() {
            observer();
        }
    }

    /// Wakes the flusher, so that it sees that it must end.
    pub(crate) fn wake(&self) {
        self.work.notify_all();
    }
}

impl Shared {
    /// See [`Journal::flush_soon`](crate::Journal::flush_soon).
    pub(crate) fn flush_soon(&self) {
        // If the flusher has not begun since the last request, it will see this record too.
        if !self.flush.pending.swap(true, Ordering::AcqRel) {
            // With the lock: the flusher does not begin to wait between its look at `pending` and this call.
            let _state = self.lock_to_reserve();
            self.flush.work.notify_one();
        }
    }

    fn flush_when_requested(&self) {
        // Declared before the guard, so that a panic releases the lock first.
        let panicking = FailOnPanic(self);
        let mut state = self.lock();
        while !state.stop {
            if !self.flush.pending.swap(false, Ordering::AcqRel) {
                state = self.wait(&self.flush.work, state);
                continue;
            }
            supervise::rehearse("journal-flush");
            let appended = state.pipeline.appended();
            if self.commit_or_wait(state, appended).is_err() {
                break;
            }
            state = self.lock();
        }
        std::mem::forget(panicking);
    }
}

/// Starts the flusher, with its observer. Errors: [`JournalError::Thread`].
pub(crate) fn start(
    shared: &Arc<Shared>,
    observer: Box<dyn Fn() + Send + Sync>,
) -> Result<JoinHandle<()>, JournalError> {
    assert!(shared.flush.observer.set(observer).is_ok(), "a journal has one flusher");
    let work = {
        let shared = shared.clone();
        move || shared.flush_when_requested()
    };
    // The panic has failed the journal by then.
    let panicked = |why: &str| tracing::error!(why, "the journal has failed");
    supervise::thread("journal-flush", work, panicked).map_err(JournalError::Thread)
}
