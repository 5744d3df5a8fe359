//! Maintains the chain of segments: adds one to its end before it is needed, and removes truncated ones from its front.
//!
//! Order of a truncation: first the segment leaves the log on the shelf, from the front only, by a rename that is
//! persistent when it returns. Then it leaves the chain in memory. Only then may its blocks be written again; all of
//! this happens under the `pool` lock. A reader that finds foreign bytes checks whether its place was truncated before
//! it reports damage.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use device::supervise;

use crate::error::JournalError;
use crate::lsn::Lsn;
use crate::shared::{FailOnPanic, Shared};

/// How long the preparing thread waits before it retries to get a descriptor: short against the time to fill half a
/// segment (64 MiB at 200 MB/s: 160 ms), and a negligible load on a core.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);

impl Shared {
    /// Adds one segment to the end of the chain; logs when a lack of descriptors begins and ends.
    pub(crate) fn prepare(&self) -> Result<(), JournalError> {
        let result = self.prepare_one();
        let lacks = matches!(result, Err(JournalError::NoDescriptors));
        if std::mem::replace(&mut self.lock().lacks_descriptor, lacks) != lacks {
            let waits = if lacks { "waits for a file descriptor" } else { "no longer waits for a file descriptor" };
            tracing::error!("the next journal segment {waits}");
        }
        result
    }

    fn prepare_one(&self) -> Result<(), JournalError> {
        let mut pool = self.pool.lock().expect("no thread panicked inside the journal");
        let (base, nonce, durable) = {
            let state = self.lock();
            (state.chain.end(), state.pipeline.nonce(), state.pipeline.persisted())
        };
        let prepared = pool.prepare(&*self.shelf, &self.options, base, nonce, durable)?;
        let mut state = self.lock();
        state.chain.push(&self.shelf, prepared.installed);
        if prepared.recycled {
            state.stats.segments_recycled += 1;
        } else {
            state.stats.segments_created += 1;
        }
        Ok(())
    }

    /// See [`Journal::reserve_segments`](crate::Journal::reserve_segments).
    pub(crate) fn reserve_segments(&self, count: usize) -> Result<(), JournalError> {
        let mut pool = self.pool.lock().expect("no thread panicked inside the journal");
        Ok(pool.keep(&*self.shelf, &self.options, count)?)
    }

    /// The preparing thread: works on request, until the journal is closed. If there is no descriptor it retries: other
    /// threads release theirs, and no append is affected until the current segment is full.
    pub(crate) fn prepare_on_request(&self) {
        let panicking = FailOnPanic(self);
        let mut state = self.lock();
        while !state.stop {
            if !state.wanted && !state.lacks_descriptor {
                state = self.wait(&self.work, state);
                continue;
            }
            drop(state);
            supervise::rehearse("journal-prepare");
            let result = self.prepare();
            state = self.lock();
            state.wanted = false;
            state.preparation_failure = result.err();
            self.prepared.notify_all();
            if state.lacks_descriptor && !state.stop {
                state = self.wait_for(&self.work, state, DESCRIPTOR_PAUSE);
            }
        }
        std::mem::forget(panicking);
    }

    /// Waits until no thread adds or removes segments. Threads that come later find the journal closed.
    pub(crate) fn finish_upkeep(&self) {
        drop(self.pool.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// See [`Journal::frees`](crate::Journal::frees).
    pub(crate) fn frees(&self, before: Lsn) -> bool {
        let state = self.lock();
        let front = state.chain.front().expect("the tail segment stays");
        let in_use = Arc::ptr_eq(front, &state.tail) || front.end() > state.pipeline.durable();
        !in_use && front.end() <= before
    }

    /// Removes the segments that end at or before `before`, except those that are being written.
    pub(crate) fn truncate(&self, before: Lsn) -> Result<(), JournalError> {
        let mut pool = self.pool.lock().expect("no thread panicked inside the journal");
        loop {
            let segment = {
                let state = self.lock();
                if state.closed {
                    return Err(JournalError::Closed);
                }
                let front = state.chain.front().expect("the tail segment stays").clone();
                let in_use = Arc::ptr_eq(&front, &state.tail) || front.end() > state.pipeline.durable();
                if in_use || front.end() > before {
                    return Ok(());
                }
                front
            };
            pool.retire(&*self.shelf, &segment, self.options.spare_segments)?;
            self.lock().chain.pop_front();
        }
    }
}
