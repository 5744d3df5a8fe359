//! [`QueryThreads`]: the threads that run one query. Each query has its own threads. So a query that computes without a
//! pause delays no other query, no login and no cancel: the operating system divides the processors.
//!
//! A team is a runtime without sockets. The next query gets it if no work is left on it and its query was short.
//! Otherwise the team is given up, and its threads end with their work. The allocator keeps pages for the thread that
//! had them, even while the thread is idle: the memory of a long query goes back to the system when its threads end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::HeapCount;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::engine::limits::memory_budget::Account;
use crate::{ErrorFields, STACK_BYTES, SqlError};

/// Most teams that wait for queries: starting one takes two or three system calls for each thread.
const WAITING_MAX: usize = 4;

/// The longest time of a query whose team is kept: for longer queries a new team costs less than a hundredth. A join of
/// 1 M texts in 64 MiB left 46 MiB with its threads, the next one 67 (2026-11-23); with new threads 28 and 24.
const SHORT: Duration = Duration::from_millis(50);

/// Threads of queries that clients read in part: those of cursors and of portals keep their teams, which do nothing meanwhile.
const KEPT_THREADS_MAX: usize = 1024;

/// At least so many of these queries on a machine of many processors: one transaction has 64 cursors at most, and is half of them.
const KEPT_LEAST: usize = 128;

/// All teams of an engine.
#[derive(Debug)]
pub(crate) struct QueryThreadPool {
    threads: usize,
    waiting: Mutex<Vec<(Runtime, Arc<HeapCount>)>>,
    /// How many queries are read in part, by user.
    kept: Mutex<HashMap<String, usize>>,
}

/// The place of a query that is read in part, until this is dropped.
#[derive(Debug)]
pub(crate) struct KeptQuery {
    teams: Arc<QueryThreadPool>,
    user: String,
}

impl Drop for KeptQuery {
    fn drop(&mut self) {
        let mut kept = self.teams.kept.lock();
        if let Some(count) = kept.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                kept.remove(&self.user);
            }
        }
    }
}

/// Threads that belong to one query until this is dropped.
#[derive(Debug)]
pub(crate) struct QueryThreads {
    teams: Arc<QueryThreadPool>,
    runtime: Option<Runtime>,
    /// The memory of its threads, which is a part of this account.
    count: Arc<HeapCount>,
    account: Arc<Account>,
    handle: Handle,
    begun: Instant,
}

impl QueryThreadPool {
    /// A pool of teams with `threads` threads each.
    pub(crate) fn new(threads: usize) -> Arc<QueryThreadPool> {
        Arc::new(QueryThreadPool { threads, waiting: Mutex::default(), kept: Mutex::default() })
    }

    /// Takes a free team, or starts one; its memory is a part of this account. Errors: 53000 if the system starts no
    /// more threads.
    pub(crate) fn take(self: &Arc<QueryThreadPool>, account: &Arc<Account>) -> Result<QueryThreads, SqlError> {
        let waiting = self.waiting.lock().pop();
        let (runtime, count) = match waiting {
            Some(waiting) => waiting,
            None => self.start()?,
        };
        count.set(0);
        account.join(&count);
        let (teams, handle) = (self.clone(), runtime.handle().clone());
        let account = account.clone();
        Ok(QueryThreads { teams, handle, runtime: Some(runtime), count, account, begun: Instant::now() })
    }

    /// A place for a query that a user reads in part, and whose team is kept meanwhile. One user has half of the places at most.
    ///
    /// Errors: 53300.
    pub(crate) fn keep(self: &Arc<QueryThreadPool>, user: &str) -> Result<KeptQuery, SqlError> {
        let most = (KEPT_THREADS_MAX / self.threads.max(1)).max(KEPT_LEAST);
        let mut kept = self.kept.lock();
        let own = kept.get(user).copied().unwrap_or(0);
        if own >= most / 2 || kept.values().sum::<usize>() >= most {
            let message = "too many cursors and portals are read in part";
            let error = SqlError::Engine(Box::new(ErrorFields::new("53300", message)));
            return Err(error.with_hint("Fetch all of their rows, close them, or end their transactions."));
        }
        *kept.entry(user.to_owned()).or_default() += 1;
        Ok(KeptQuery { teams: self.clone(), user: user.to_owned() })
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
            .on_thread_stop(device::heap::give_back_at_end)
            .build()
            .map_err(|error| {
                SqlError::Engine(Box::new(ErrorFields::new(
                    "53000",
                    format!("cannot start threads for the query: {error}"),
                )))
            })?;
        Ok((runtime, count))
    }
}

impl Drop for QueryThreadPool {
    fn drop(&mut self) {
        for (runtime, _) in self.waiting.get_mut().drain(..) {
            runtime.shutdown_background();
        }
    }
}

impl QueryThreads {
    /// The handle that starts work on the team.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for QueryThreads {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let is_idle = runtime.metrics().num_alive_tasks() == 0;
        self.account.leave(&self.count, is_idle);
        let is_short = self.begun.elapsed() < SHORT;
        let mut waiting = self.teams.waiting.lock();
        if waiting.len() < WAITING_MAX && is_idle && is_short {
            waiting.push((runtime, self.count.clone()));
        } else {
            drop(waiting);
            if is_idle {
                self.account.ends(&self.count);
            }
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_that_are_read_in_part_are_bounded_and_one_user_has_half_of_the_places() {
        for (threads, most) in [(1, 1024), (4, 256), (64, KEPT_LEAST)] {
            let teams = QueryThreadPool::new(threads);
            let all = |user: &str| -> Vec<KeptQuery> { std::iter::from_fn(|| teams.keep(user).ok()).collect() };
            let (first, second) = (all("a"), all("b"));
            assert_eq!((first.len(), second.len()), (most / 2, most / 2), "{threads} threads");
            assert_eq!(teams.keep("c").expect_err("there are enough").code(), "53300");
            drop(second);
            assert!(teams.keep("a").is_err(), "it has half");
            assert_eq!(all("c").len(), most / 2);
            drop(first);
            assert_eq!(all("a").len(), most / 2);
            assert!(teams.kept.lock().is_empty());
        }
    }
}
