//! [`Workers`]: threads for calls of copies that may hang: whoever waits for one waits a bounded time, and the thread is left behind.
//!
//! There are as many threads as calls at one moment: a call never waits for another one, since that may hang. A thread that has had
//! nothing to do for some seconds ends.
//!
//! Invariant: a call that was taken is run to its end, also if nobody waits for it any more.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::supervise;
use parking_lot::{Condvar, Mutex};

/// How long a thread waits for something to do.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
}

#[derive(Default)]
pub(crate) struct Workers {
    state: Mutex<State>,
    arrived: Condvar,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Workers {
    /// Runs a call on a thread of its own, at once. Errors: there is no thread.
    pub(crate) fn run(self: &Arc<Workers>, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.idle <= state.jobs.len() {
            let workers = self.clone();
            let panicked = |why: &str| tracing::error!(why, "work on a copy of the volume");
            supervise::thread("volume-copy", move || workers.work(), panicked)?;
        }
        state.jobs.push_back(Box::new(job));
        self.arrived.notify_one();
        Ok(())
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let is_over = self.arrived.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if is_over && state.jobs.is_empty() {
                return;
            }
        }
    }
}
