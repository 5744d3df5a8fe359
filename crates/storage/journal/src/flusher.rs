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
//!    and after a failure. It may be called under the journal's lock: it must not call the journal, and only wake a thread.

use std::sync::Arc;
use std::thread::JoinHandle;

use device::supervise;

use crate::error::JournalError;
use crate::shared::{FailOnPanic, Shared};

/// See [`Journal::flush_soon`](crate::Journal::flush_soon).
pub(crate) fn flush_soon(shared: &Shared) {
    if shared.flush.request() {
        // With the lock: the flusher does not begin to wait between its look at the request and this call.
        let _state = shared.lock_to_reserve();
        shared.flush.work.notify_one();
    }
}

fn flush_when_requested(shared: &Shared) {
    // Declared before the guard, so that a panic releases the lock first.
    let panicking = FailOnPanic(shared);
    loop {
        let state = shared.lock();
        if state.stop {
            break;
        }
        if !shared.flush.take() {
            drop(shared.wait(&shared.flush.work, state));
            continue;
        }
        drop(state);
        supervise::rehearse("journal-flush");
        let state = shared.lock();
        let appended = state.pipeline.appended();
        if shared.commit_or_wait(state, appended).is_err() {
            break;
        }
    }
    std::mem::forget(panicking);
}

/// Starts the flusher, with its observer. Errors: [`JournalError::Thread`].
pub(crate) fn start(
    shared: &Arc<Shared>,
    observer: Box<dyn Fn() + Send + Sync>,
) -> Result<JoinHandle<()>, JournalError> {
    shared.flush.observe(observer);
    let work = {
        let shared = shared.clone();
        move || flush_when_requested(&shared)
    };
    // The panic has failed the journal by then.
    let panicked = |why: &str| tracing::error!(why, "the journal has failed");
    supervise::thread("journal-flush", work, panicked).map_err(JournalError::Thread)
}
