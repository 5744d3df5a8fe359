//! Classes of requests: each runs a bounded number at a time on threads, has a bounded number wait, and refuses the others.
//!
//! ```text
//!   read    searches, counts, gets         a flood of one class takes no turn from the others: under a load of searches
//!   write   bulks, documents, indices      the node is still observable, and a search can be cancelled
//!   light   the node, its tasks, _cat
//!   long    requests by query, merges, and those that wait for tasks
//! ```
//!
//! A turn ends when its request has ended on its thread, not when its client has gone away: the bound is on the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::options::{HttpOptions, LaneBounds};
use crate::rest::message::RestMethod;

/// Which requests share their turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestClass {
    /// Reads documents.
    Read,
    /// Changes documents or indices.
    Write,
    /// About the node: cheap.
    Light,
    /// Takes as long as it takes: most of them wait for other threads.
    Long,
}

/// First segments of light requests.
const LIGHT: &[&str] = &["_cluster", "_nodes", "_cat", "_tasks"];

/// Reads whose method does not say so.
const READS: &[&str] = &[
    "_search",
    "_msearch",
    "_count",
    "_mget",
    "_explain",
    "_validate",
    "_analyze",
    "_field_caps",
    "_pit",
    "_async_search",
    "_terms_enum",
    "_termvectors",
    "_mtermvectors",
    "_rank_eval",
    "_render",
];

/// Changes that are allowed with GET.
const WRITES: &[&str] = &["_refresh", "_flush"];

/// What takes long.
const LONG: &[&str] = &["_delete_by_query", "_update_by_query", "_reindex", "_forcemerge"];

impl RequestClass {
    /// The class of a request that may wait for tasks.
    pub(super) fn of_request(method: RestMethod, path: &[String], waits_for_tasks: bool) -> RequestClass {
        match RequestClass::of(method, path) {
            RequestClass::Light if waits_for_tasks => RequestClass::Long,
            class => class,
        }
    }

    /// The class of a request.
    pub(super) fn of(method: RestMethod, path: &[String]) -> RequestClass {
        // The operation is the first or the second segment: `_search`, `index/_search`. Those behind it may be any names.
        let operation = path.iter().take(2).map(String::as_str).find(|segment| segment.starts_with('_'));
        let is = |names: &[&str]| operation.is_some_and(|operation| names.contains(&operation));
        match method {
            _ if path.first().is_none_or(|first| LIGHT.contains(&first.as_str())) => RequestClass::Light,
            RestMethod::Get | RestMethod::Head if is(WRITES) => RequestClass::Write,
            RestMethod::Get | RestMethod::Head => RequestClass::Read,
            RestMethod::Put => RequestClass::Write,
            RestMethod::Post if path.last().is_some_and(|last| last == "_rethrottle") => RequestClass::Light,
            RestMethod::Post if is(LONG) => RequestClass::Long,
            RestMethod::Post | RestMethod::Delete if is(READS) => RequestClass::Read,
            RestMethod::Post | RestMethod::Delete => RequestClass::Write,
        }
    }

    /// Its name, in refusals.
    pub(super) fn name(self) -> &'static str {
        match self {
            RequestClass::Read => "read",
            RequestClass::Write => "write",
            RequestClass::Light => "light",
            RequestClass::Long => "long",
        }
    }
}

/// The turns of one class.
#[derive(Debug)]
pub(super) struct RequestLane {
    turns: Arc<Semaphore>,
    bounds: LaneBounds,
    waiting: AtomicUsize,
}

/// One that waits, counted until it is dropped.
struct WaitingOne<'a>(&'a AtomicUsize);

impl Drop for WaitingOne<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestLane {
    pub(super) fn new(bounds: LaneBounds) -> RequestLane {
        RequestLane { turns: Arc::new(Semaphore::new(bounds.running)), bounds, waiting: AtomicUsize::new(0) }
    }

    /// The next turn; none if too many wait already. It can be dropped while it waits.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Some(turn);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _counted = WaitingOne(&self.waiting);
        if before >= self.bounds.waiting {
            return None;
        }
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// Waits until none runs.
    async fn ended(&self) {
        let all = u32::try_from(self.bounds.running).unwrap_or(u32::MAX);
        // This fails only if the semaphore is closed, which nobody does.
        let _ = self.turns.acquire_many(all).await;
    }
}

/// The turns of all classes.
#[derive(Debug)]
pub(super) struct RequestLanes {
    read: RequestLane,
    write: RequestLane,
    light: RequestLane,
    long: RequestLane,
}

impl RequestLanes {
    pub(super) fn new(options: &HttpOptions) -> RequestLanes {
        RequestLanes {
            read: RequestLane::new(options.reads),
            write: RequestLane::new(options.writes),
            light: RequestLane::new(options.light),
            long: RequestLane::new(options.long),
        }
    }

    pub(super) fn of(&self, class: RequestClass) -> &RequestLane {
        match class {
            RequestClass::Read => &self.read,
            RequestClass::Write => &self.write,
            RequestClass::Light => &self.light,
            RequestClass::Long => &self.long,
        }
    }

    /// Waits until no request runs on any thread.
    pub(super) async fn ended(&self) {
        for lane in [&self.read, &self.write, &self.light, &self.long] {
            lane.ended().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_class_of_their_operation_and_not_of_names_in_their_path() {
        use RequestClass::{Light, Long, Read, Write};
        use RestMethod::{Delete, Get, Head, Post, Put};
        for (method, path, class) in [
            (Get, "", Light),
            (Head, "", Light),
            (Get, "_cat/indices", Light),
            (Post, "_tasks/n:1/_cancel", Light),
            (Get, "_search", Read),
            (Post, "a/_search", Read),
            (Delete, "_search/scroll", Read),
            (Delete, "_pit", Read),
            (Post, "a/_pit", Read),
            (Get, "a/_doc/1", Read),
            (Head, "a", Read),
            (Post, "_bulk", Write),
            (Put, "a/_bulk", Write),
            (Put, "a/_doc/_search", Write),
            (Post, "a/_update/1", Write),
            (Delete, "a/_doc/1", Write),
            (Put, "a", Write),
            (Delete, "a", Write),
            (Get, "a/_refresh", Write),
            (Post, "_aliases", Write),
            (Post, "a/_delete_by_query", Long),
            (Post, "_reindex", Long),
            (Post, "_reindex/n:1/_rethrottle", Light),
            (Post, "a/_forcemerge", Long),
            (Put, "a/_doc/_reindex", Write),
        ] {
            let segments: Vec<String> = path.split('/').filter(|one| !one.is_empty()).map(str::to_owned).collect();
            assert_eq!(RequestClass::of(method, &segments), class, "{method:?} {path}");
        }
        let tasks = ["_tasks".to_owned()];
        assert_eq!(
            RequestClass::of_request(Get, &tasks, true),
            Long,
            "one that waits takes no turn from those that do not"
        );
        assert_eq!(RequestClass::of_request(Get, &tasks, false), Light);
    }

    #[tokio::test]
    async fn a_lane_runs_some_has_some_wait_and_refuses_the_others() {
        let lane = Arc::new(RequestLane::new(LaneBounds { running: 1, waiting: 1 }));
        let first = lane.turn().await.expect("there is a turn");
        let waits = {
            let lane = Arc::clone(&lane);
            tokio::spawn(async move { lane.turn().await.is_some() })
        };
        while lane.waiting.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        assert!(lane.turn().await.is_none(), "one waits already");
        waits.abort();
        assert!(waits.await.expect_err("it was ended").is_cancelled());
        assert_eq!(lane.waiting.load(Ordering::Relaxed), 0, "one that goes away is no longer counted");
        drop(first);
        assert!(lane.turn().await.is_some());
        lane.ended().await;
    }
}
