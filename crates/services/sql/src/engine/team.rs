//! [`Team`]: the threads that run one query. Each query has its own, so that one that computes without a pause holds up no
//! other, no login and no cancel: the processors are shared out by the operating system.
//!
//! A team is a runtime without sockets. It is handed on to the next query if nothing is left running on it; else it is given
//! up, and its threads end with what they do.

use std::sync::Arc;

use device::HeapCount;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use super::budget::Account;
use crate::{Report, STACK_BYTES, SqlError};

/// Teams that wait for queries, at most: starting one takes two or three system calls a thread.
const WAITING_MAX: usize = 4;

/// All teams of an engine.
#[derive(Debug)]
pub(crate) struct Teams {
    threads: usize,
    waiting: Mutex<Vec<(Runtime, Arc<HeapCount>)>>,
}

/// Threads that are one query's until this is dropped.
#[derive(Debug)]
pub(crate) struct Team {
    teams: Arc<Teams>,
    runtime: Option<Runtime>,
    /// What its threads take of memory, which is a part of this account.
    count: Arc<HeapCount>,
    account: Arc<Account>,
    handle: Handle,
}

impl Teams {
    /// Teams of so many threads each.
    pub(crate) fn new(threads: usize) -> Arc<Teams> {
        Arc::new(Teams { threads, waiting: Mutex::default() })
    }

    /// A team that nobody has, whose memory is a part of this account. Errors: 53000 where the system gives no more threads.
    pub(crate) fn take(self: &Arc<Teams>, account: &Arc<Account>) -> Result<Team, SqlError> {
        let waiting = self.waiting.lock().pop();
        let (runtime, count) = match waiting {
            Some(waiting) => waiting,
            None => self.start()?,
        };
        count.set(0);
        account.join(&count);
        let (teams, handle) = (self.clone(), runtime.handle().clone());
        Ok(Team { teams, handle, runtime: Some(runtime), count, account: account.clone() })
    }

    fn start(&self) -> Result<(Runtime, Arc<HeapCount>), SqlError> {
        let count = Arc::new(HeapCount::default());
        let counts = count.clone();
        let runtime = Builder::new_multi_thread()
            .worker_threads(self.threads)
            .thread_name("sql query")
            .thread_stack_size(STACK_BYTES)
            .enable_time()
            .on_thread_start(move || device::heap::count_here(&counts))
            .on_thread_park(device::heap::give_back_here)
            .build()
            .map_err(|error| {
                SqlError::Engine(Box::new(Report::new("53000", format!("no threads for the query: {error}"))))
            })?;
        Ok((runtime, count))
    }
}

impl Drop for Teams {
    fn drop(&mut self) {
        for (runtime, _) in self.waiting.get_mut().drain(..) {
            runtime.shutdown_background();
        }
    }
}

impl Team {
    /// What starts work on it.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let is_idle = runtime.metrics().num_alive_tasks() == 0;
        self.account.leave(&self.count, is_idle);
        let mut waiting = self.teams.waiting.lock();
        if waiting.len() < WAITING_MAX && is_idle {
            waiting.push((runtime, self.count.clone()));
        } else {
            drop(waiting);
            runtime.shutdown_background();
        }
    }
}
