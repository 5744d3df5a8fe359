//! [`Tasks`]: what the node is doing for clients now, and how requests ended that nobody waited for.
//!
//! ```text
//!   request ---begin---> running <---- _tasks lists, _cancel sets the flag that the work looks at
//!   by query --begin---> running --end--> result, kept for a while for GET _tasks/<id>
//! ```
//!
//! Invariants: a task is listed from before its work until after it, also where the work panics; results are bounded in number,
//! bytes and time. A start of the node forgets them all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::identity::Caller;
use parking_lot::{Condvar, Mutex};
use serde_json::Value;

use super::message::RestRequest;
use crate::error::SearchError;
use crate::index::now_millis;

mod actions;
mod progress;
mod shown;
#[cfg(test)]
mod tests;

pub(super) use progress::{Progress, add, count, per_second};
pub(super) use shown::{description, shown};

/// Results that are kept.
const RESULTS_MAX: usize = 1_000;

/// Bytes of all results that are kept.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// How long a result is kept.
const RESULT_AGE: Duration = Duration::from_secs(24 * 3600);

/// Requests by query that run at a time: each holds a thread, a snapshot of its indices and two batches of documents.
const BY_QUERY_MAX: usize = 8;

/// Requests by query of one role at a time: another one finds a place in any case.
const ROLE_BY_QUERY_MAX: usize = BY_QUERY_MAX / 2;

/// Results that are kept of one role: many of one do not push those of others out.
const ROLE_RESULTS_MAX: usize = RESULTS_MAX / 10;

/// How often a wait looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// What a task is about.
#[derive(Debug)]
pub(super) enum TaskAbout {
    /// A search of these indices.
    Search(String, Bytes),
    /// So many bytes of operations on these indices.
    Bulk(String, usize),
    /// Anything else.
    Text(String),
}

/// A task that runs.
#[derive(Debug)]
pub(super) struct RunningTask {
    pub(super) id: u64,
    pub(super) action: &'static str,
    about: TaskAbout,
    pub(super) started: Instant,
    pub(super) started_millis: u64,
    pub(super) opaque_id: Option<String>,
    /// Whose it is.
    pub(super) owner: Caller,
    /// What the work looks at: set when the task is to end.
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) is_cancellable: bool,
    /// Of a request by query.
    pub(super) progress: Option<Arc<Progress>>,
}

/// How a task ended.
#[derive(Debug)]
struct KeptResult {
    id: u64,
    owner: Caller,
    at: Instant,
    task: Value,
    outcome: Result<Value, SearchError>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct TaskState {
    last: u64,
    running: BTreeMap<u64, Arc<RunningTask>>,
    results: VecDeque<KeptResult>,
    is_closed: bool,
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    state: Mutex<TaskState>,
    /// Rung when a task ends.
    ended: Condvar,
}

/// A task until it is dropped or ended.
pub(super) struct TaskGuard {
    tasks: Arc<Tasks>,
    task: Arc<RunningTask>,
}

impl TaskGuard {
    /// The task.
    pub(super) fn task(&self) -> &Arc<RunningTask> {
        &self.task
    }

    /// Its number.
    pub(super) fn id(&self) -> u64 {
        self.task.id
    }

    /// Ends the task, and keeps how it ended. `node` names the node in its description.
    pub(super) fn keep(&self, node: &str, outcome: Result<Value, SearchError>) {
        let task = shown::shown(node, &self.task, true);
        let size = |value: &Value| value.to_string().len();
        let bytes = size(&task) + outcome.as_ref().map_or(1_000, size);
        let kept =
            KeptResult { id: self.task.id, owner: self.task.owner.clone(), at: Instant::now(), task, outcome, bytes };
        let mut state = self.tasks.state.lock();
        let role = kept.owner.session();
        let own = |result: &KeptResult| result.owner.session() == role;
        if state.results.iter().filter(|result| own(result)).count() >= ROLE_RESULTS_MAX
            && let Some(oldest) = state.results.iter().position(own)
        {
            state.results.remove(oldest);
        }
        state.results.push_back(kept);
        state.forget();
        state.running.remove(&self.task.id);
        drop(state);
        self.tasks.ended.notify_all();
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.tasks.state.lock().running.remove(&self.task.id);
        self.tasks.ended.notify_all();
    }
}

impl TaskState {
    /// Forgets results that are too many, too large or too old.
    fn forget(&mut self) {
        let mut bytes: usize = self.results.iter().map(|result| result.bytes).sum();
        while let Some(first) = self.results.front() {
            let fits = bytes <= RESULT_BYTES_MAX && self.results.len() <= RESULTS_MAX;
            if fits && first.at.elapsed() < RESULT_AGE {
                return;
            }
            bytes -= first.bytes;
            self.results.pop_front();
        }
    }

    fn begin(&mut self, task: RunningTask) -> Arc<RunningTask> {
        self.last += 1;
        let task = Arc::new(RunningTask { id: self.last, ..task });
        self.running.insert(task.id, Arc::clone(&task));
        task
    }
}

impl Tasks {
    /// Lists a request while it runs; `None` if its kind is not listed.
    pub(super) fn begin_request(self: &Arc<Tasks>, request: &RestRequest) -> Option<TaskGuard> {
        let kind = actions::of_request(request)?;
        let task = RunningTask {
            id: 0,
            action: kind.action,
            about: kind.about,
            started: Instant::now(),
            started_millis: now_millis(),
            opaque_id: request.opaque_id.clone(),
            owner: request.caller.clone(),
            cancelled: Arc::clone(&request.cancelled),
            is_cancellable: kind.is_cancellable,
            progress: None,
        };
        let task = self.state.lock().begin(task);
        Some(TaskGuard { tasks: Arc::clone(self), task })
    }

    /// Lists a request by query.
    ///
    /// Errors: too many run, of its role or in all; the node ends.
    pub(super) fn begin_by_query(
        self: &Arc<Tasks>,
        action: &'static str,
        about: String,
        request: &RestRequest,
        progress: &Arc<Progress>,
    ) -> Result<TaskGuard, SearchError> {
        let mut state = self.state.lock();
        let owner = request.caller.session();
        let by_query = || state.running.values().filter(|task| task.progress.is_some());
        let (running, own) = (by_query().count(), by_query().filter(|task| task.owner.session() == owner).count());
        if state.is_closed {
            return Err(SearchError::new(503, "node_closed_exception", "the node ends"));
        }
        if running >= BY_QUERY_MAX {
            return Err(SearchError::busy(format!(
                "rejected execution: {running} requests by query run, and at most {BY_QUERY_MAX} may: see GET _tasks"
            )));
        }
        if own >= ROLE_BY_QUERY_MAX {
            return Err(SearchError::busy(format!(
                "rejected execution: {own} requests by query of this user run, and at most {ROLE_BY_QUERY_MAX} may: wait for one, or \
                 end one with POST _tasks/<id>/_cancel"
            )));
        }
        let task = state.begin(RunningTask {
            id: 0,
            action,
            about: TaskAbout::Text(about),
            started: Instant::now(),
            started_millis: now_millis(),
            opaque_id: request.opaque_id.clone(),
            owner: request.caller.clone(),
            cancelled: Arc::default(),
            is_cancellable: true,
            progress: Some(Arc::clone(progress)),
        });
        Ok(TaskGuard { tasks: Arc::clone(self), task })
    }

    /// All that run.
    pub(super) fn running(&self) -> Vec<Arc<RunningTask>> {
        self.state.lock().running.values().cloned().collect()
    }

    /// A task that runs.
    pub(super) fn one(&self, id: u64) -> Option<Arc<RunningTask>> {
        self.state.lock().running.get(&id).cloned()
    }

    /// How a task ended that `may_see` is true of: whose it was, its description and its outcome.
    pub(super) fn result(
        &self,
        id: u64,
        may_see: impl Fn(&Caller) -> bool,
    ) -> Option<(Caller, Value, Result<Value, SearchError>)> {
        let mut state = self.state.lock();
        state.forget();
        let found = state.results.iter().find(|result| result.id == id && may_see(&result.owner))?;
        Some((found.owner.clone(), found.task.clone(), found.outcome.clone()))
    }

    /// Waits until none of these tasks runs. Errors: that took too long, or nobody waits any more.
    pub(super) fn wait(&self, ids: &[u64], timeout: Duration, cancelled: &AtomicBool) -> Result<(), SearchError> {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        while ids.iter().any(|id| state.running.contains_key(id)) {
            if cancelled.load(Ordering::Relaxed) {
                return Err(SearchError::cancelled());
            }
            if Instant::now() >= until {
                let reason = "Timed out waiting for completion of tasks";
                return Err(SearchError::new(500, "timeout_exception", reason));
            }
            self.ended.wait_for(&mut state, LOOK);
        }
        Ok(())
    }

    /// Cancels all requests by query, accepts no more, and returns when none runs.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let by_query = |state: &TaskState| -> Vec<Arc<RunningTask>> {
            state.running.values().filter(|task| task.progress.is_some()).cloned().collect()
        };
        by_query(&state).iter().for_each(|task| task.cancelled.store(true, Ordering::Relaxed));
        while !by_query(&state).is_empty() {
            self.ended.wait_for(&mut state, LOOK);
        }
    }
}
