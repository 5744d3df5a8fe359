//! Classes of requests: each runs a bounded number at a time on threads, has a bounded number wait, and refuses the others.
//!
//! ```text
//!   read    searches, counts, gets         a flood of one class takes no turn from the others: under a load of searches
//!   write   bulks, documents, indices      the node is still observable, and a search can be cancelled
//!   light   the node, its tasks, _cat
//!   long    requests by query, merges, and those that wait for tasks
//! ```
//!
//! A turn ends when its request has ended on its thread, not when its client has gone away: the bound is on the work. Whose is next is
//! [`turns`].

use std::sync::Arc;

use super::options::HttpOptions;
use crate::rest::message::RestMethod;

mod turns;

pub(super) use turns::{ConnectionUse, RequestLane, RequestTurn, TurnAsker, TurnOwner};

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

    /// What a request of this class does, among those that take turns with each other; nothing for those that are all alike.
    pub(super) fn operation(self, path: &[String]) -> &'static str {
        let named = path.iter().take(2).find_map(|segment| READS.iter().find(|known| **known == segment.as_str()));
        named.filter(|_| self == RequestClass::Read).copied().unwrap_or_default()
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

/// The turns of all classes.
#[derive(Debug)]
pub(super) struct RequestLanes {
    read: Arc<RequestLane>,
    write: Arc<RequestLane>,
    light: Arc<RequestLane>,
    long: Arc<RequestLane>,
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

    pub(super) fn of(&self, class: RequestClass) -> &Arc<RequestLane> {
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

    #[test]
    fn reads_are_told_apart_by_their_operation_and_changes_are_all_alike() {
        use RequestClass::{Read, Write};
        for (class, path, operation) in [
            (Read, "_search", "_search"),
            (Read, "a/_count", "_count"),
            (Read, "a/_doc/_count", ""),
            (Read, "a", ""),
            (Write, "_bulk", ""),
            (Write, "a/_search", ""),
        ] {
            let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
            assert_eq!(class.operation(&segments), operation, "{path}");
        }
    }
}
