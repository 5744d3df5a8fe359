//! Workers: a few threads, each with an event loop of its own, on which sessions run.
//!
//! A session stays on its worker: its requests, its buffers and its replies never change the thread. A new one goes to
//! the worker that has the fewest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::pool::BufferPool;
use crate::error::NbdError;

/// Threads of a worker for calls that wait: looking extents up, keeping epochs.
const BLOCKING_THREADS: usize = 4;

/// How long calls that wait may take when a worker ends.
const END_TIME: Duration = Duration::from_secs(2);

/// One thread.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) handle: Handle,
    pub(super) pool: Arc<BufferPool>,
    sessions: AtomicUsize,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A session's place on a worker.
pub(super) struct Seat(Arc<[Worker]>, usize);

impl Seat {
    pub(super) fn worker(&self) -> &Worker {
        &self.0[self.1]
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.worker().sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place on the worker with the fewest sessions.
pub(super) fn seat(workers: &Arc<[Worker]>) -> Seat {
    let fewest = (0..workers.len()).min_by_key(|at| workers[*at].sessions.load(Ordering::Relaxed));
    let at = fewest.expect("a server has workers");
    workers[at].sessions.fetch_add(1, Ordering::Relaxed);
    Seat(Arc::clone(workers), at)
}

/// Starts a worker; `failed` gets the text of a panic of its loop.
///
/// # Errors
/// [`NbdError::Thread`].
pub(super) fn start(number: usize, failed: Arc<dyn Fn(&str) + Send + Sync>) -> Result<Worker, NbdError> {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(BLOCKING_THREADS).build().map_err(NbdError::Thread)?;
    let handle = runtime.handle().clone();
    let (end, ended) = oneshot::channel();
    let work = move || {
        let _ = runtime.block_on(ended);
        runtime.shutdown_timeout(END_TIME);
    };
    let thread = device::supervise::thread(&format!("nbd-{number}"), work, move |why| failed(why));
    let thread = Some(thread.map_err(NbdError::Thread)?);
    Ok(Worker { handle, pool: Arc::default(), sessions: AtomicUsize::new(0), end: Some(end), thread })
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.end.take());
        // The last reference may be a session's own, on this very thread.
        let own = std::thread::current().id();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != own
        {
            let _ = thread.join();
        }
    }
}
