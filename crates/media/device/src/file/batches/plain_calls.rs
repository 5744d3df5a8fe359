//! A helper thread of a ring: plain calls that wait, for requests that do not go through the ring.
//!
//! ```text
//!   flushes   [ flush a | write+flush a | flush b | flush a ]  -->  fdatasync a, for three   fdatasync b
//!   others    [ discard | zeros | what the kernel had no memory for ]  -->  one after the other
//! ```
//!
//! Flushes of one device that wait together are one call: what arrives while it runs is covered by the next one. It is the plain
//! [`crate::Device::flush`]: so the turns of `flushers.rs` and the poison are the same ones. The first of a group that fails has the error, the
//! others are told that the device is poisoned, as threads are that wait for the turn.
//!
//! Invariant: what was pushed is done, or handed back by [`PlainCalls::push`]; closing waits for nothing.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::job::Job;
use crate::{DeviceError, Operation};

/// See the head comment of this file.
#[derive(Default)]
pub(super) struct PlainCalls {
    state: Mutex<PlainState>,
    arrived: Condvar,
}

#[derive(Default)]
struct PlainState {
    jobs: Vec<Job>,
    is_closed: bool,
}

impl PlainCalls {
    /// Gives the job back if the helper is closed.
    pub(super) fn push(&self, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(job);
        }
        state.jobs.push(job);
        self.arrived.notify_one();
        Ok(())
    }

    /// Calls `work` with all that waits, until the helper is closed and nothing does.
    pub(super) fn run(&self, work: impl Fn(Vec<Job>)) {
        let _closing = Closing(self);
        loop {
            let mut state = self.state.lock();
            while state.jobs.is_empty() {
                if state.is_closed {
                    return;
                }
                self.arrived.wait(&mut state);
            }
            let jobs = std::mem::take(&mut state.jobs);
            drop(state);
            work(jobs);
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.arrived.notify_all();
    }
}

/// Closes a helper whose thread ends, however that happens; what waits then ends with an error.
struct Closing<'a>(&'a PlainCalls);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
        let left = std::mem::take(&mut self.0.state.lock().jobs);
        drop(left);
    }
}

/// Flushes each device once, for all its jobs.
pub(super) fn flush_together(mut jobs: Vec<Job>) {
    while let Some(first) = jobs.first() {
        let (file, offset) = (Arc::clone(first.file()), first.request().offset);
        let group: Vec<Job> = jobs.extract_if(.., |job| Arc::ptr_eq(job.file(), &file)).collect();
        let flushed = catch_unwind(AssertUnwindSafe(|| file.flush_for(offset))).unwrap_or_else(|_| {
            let source = io::Error::other("the call panicked");
            Err(file.poison(file.failed(Operation::Flush, offset, source)))
        });
        // The jobs keep it open, and the last of them closes it if nobody else has it.
        drop(file);
        let (is_ok, mut error) = (flushed.is_ok(), flushed.err());
        for job in group {
            let name = || job.file().name.clone();
            let result = if is_ok {
                Ok(())
            } else {
                Err(error.take().unwrap_or_else(|| DeviceError::Poisoned { name: name() }))
            };
            job.end(result);
        }
    }
}

/// Does jobs one after the other.
pub(super) fn perform_each(jobs: Vec<Job>) {
    jobs.into_iter().for_each(Job::perform);
}
