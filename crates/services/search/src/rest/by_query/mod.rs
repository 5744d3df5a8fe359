//! `_delete_by_query`, `_update_by_query`, `_reindex`: the same for all documents that a query finds.
//!
//! ```text
//!   request --read--> ByQueryJob --a thread of its own--> run: batch by batch, each durable before it is counted
//!      |                                                       |-- listed by _tasks, cancelled by _tasks/<id>/_cancel
//!      +-- wait_for_completion: waits; else: the task's id     +-- its result is kept for GET _tasks/<id>
//! ```
//!
//! The documents are those of the moment when the request began; one that changed since is a version conflict. A client that leaves
//! does not end the work, as in Elasticsearch. One thread does it, whatever `slices` says: an index lies in one place.
//!
//! Not here, on purpose: scripts, pipelines, other clusters, manual slices. These are refused by their names.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest};
use super::conditions::invalid;
use super::message::RestResponse;
use super::searches::targets;
use super::tasks::{Progress, per_second};
use crate::error::SearchError;
use crate::hits::SearchTarget;
use crate::index::{guarded, now_millis};
use crate::query::query_string_of;

mod copying;
mod run;
#[cfg(test)]
mod tests;

use copying::Copying;
pub(super) use copying::reindex;
use run::ByQueryJob;

/// Documents of a batch where nothing is said, and at most (Elasticsearch's).
const BATCH: usize = 1_000;
const BATCH_MAX: usize = 10_000;

/// How often a request that waits looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(100);

/// What is done to each document.
#[derive(Debug)]
enum ByQueryWork {
    /// It is deleted.
    Delete,
    /// It is stored again as it is, by the present mapping.
    Update,
    /// It is stored in another index.
    Copy(Copying),
}

impl ByQueryWork {
    fn action(&self) -> &'static str {
        match self {
            ByQueryWork::Delete => "indices:data/write/delete/byquery",
            ByQueryWork::Update => "indices:data/write/update/byquery",
            ByQueryWork::Copy(_) => "indices:data/write/reindex",
        }
    }

    /// The counters that its response shows besides those of all.
    fn shows(&self) -> &'static [&'static str] {
        match self {
            ByQueryWork::Delete => &[],
            ByQueryWork::Update => &["updated"],
            ByQueryWork::Copy(_) => &["updated", "created"],
        }
    }
}

/// What all requests by query say.
#[derive(Debug)]
struct ByQueryOptions {
    /// At most so many documents.
    max_docs: Option<u64>,
    /// Documents that changed meanwhile are counted, and the others go on.
    proceed: bool,
    /// Documents of a batch.
    batch: usize,
    /// Makes the changes searchable at the end.
    refresh: bool,
    /// Documents of a second; infinite for no bound.
    per_second: f32,
}

fn both(name: &str) -> SearchError {
    SearchError::argument(format!("[{name}] set to two different values"))
}

impl ByQueryOptions {
    /// Reads the parameters, and `max_docs`, `conflicts` and the size of batches of the body. Errors: what cannot be, or is not built.
    fn read(
        request: &AskedRequest<'_>,
        body: &Map<String, Value>,
        size: Option<&Value>,
    ) -> Result<ByQueryOptions, SearchError> {
        for name in ["pipeline", "routing", "sort", "search_timeout", "terminate_after", "from"] {
            if request.parameter(name).is_some_and(|value| !value.is_empty() && value != "_none") {
                return Err(SearchError::unsupported(format!("parameter [{name}] of a request by query")));
            }
        }
        match request.parameter("slices") {
            None | Some("auto" | "1") => {}
            Some(text) if text.parse::<u32>().is_ok_and(|slices| slices > 0) => {
                let reason = format!("[slices] of [{text}] (an index lies in one place: use [1] or [auto])");
                return Err(SearchError::unsupported(reason));
            }
            Some(text) => {
                let reason = format!("[slices] must be a positive integer or the string \"auto\", but was [{text}]");
                return Err(SearchError::argument(reason));
            }
        }
        let texts = [request.parameter("conflicts"), body.get("conflicts").map(|value| value.as_str().unwrap_or(""))];
        let mut proceed = false;
        for text in texts.into_iter().flatten() {
            proceed = match text {
                "proceed" => true,
                "abort" => false,
                other => {
                    let reason = format!("conflicts may only be \"proceed\" or \"abort\" but was [{other}]");
                    return Err(SearchError::argument(reason));
                }
            };
        }
        let in_body = body.get("max_docs").map(|value| value.as_i64().unwrap_or(i64::MIN));
        // The older name of the same.
        let by_parameter = request.parameter("max_docs").or(request.parameter("size"));
        let by_parameter = by_parameter.map(|text| text.parse().unwrap_or(i64::MIN));
        if in_body.zip(by_parameter).is_some_and(|(a, b)| a != b) {
            return Err(both("max_docs"));
        }
        let max_docs = match in_body.or(by_parameter) {
            None | Some(-1) => None,
            Some(most) if most > 0 => Some(most as u64),
            Some(_) => {
                return Err(invalid(
                    "maxDocs should be greater than 0 if the request is limited to some number of documents or -1 if it isn't",
                ));
            }
        };
        let by_parameter = request.number("scroll_size")?.map(|size| size as usize);
        let size = size.map(|size| size.as_u64().map_or(0, |size| size as usize)).or(by_parameter).unwrap_or(BATCH);
        if size == 0 || size > BATCH_MAX {
            return Err(SearchError::argument(format!("a batch has 1 to {BATCH_MAX} documents, not [{size}]")));
        }
        Ok(ByQueryOptions {
            max_docs,
            proceed,
            batch: size,
            refresh: request.flag("refresh")?.unwrap_or(false),
            per_second: per_second(request)?.unwrap_or(f32::INFINITY),
        })
    }
}

/// The body of a request, an empty one if there is none. Errors: it is no object.
fn body_of(request: &AskedRequest<'_>) -> Result<Map<String, Value>, SearchError> {
    match request.json()? {
        None => Ok(Map::new()),
        Some(Value::Object(body)) => Ok(body),
        Some(_) => Err(SearchError::body("the body of the request is not an object")),
    }
}

/// Errors: a part of the body that is not known, or not built.
fn known_only(what: &str, body: &Map<String, Value>, known: &[&str]) -> Result<(), SearchError> {
    for name in body.keys() {
        match name.as_str() {
            name if known.contains(&name) => {}
            "script" | "slice" | "sort" | "runtime_mappings" => {
                return Err(SearchError::unsupported(format!("[{name}] of {what}")));
            }
            other => return Err(SearchError::parsing(format!("{what} does not support [{other}]"))),
        }
    }
    Ok(())
}

/// `POST /<index>/_delete_by_query`.
pub(super) fn delete(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    of_query(api, request, names, ByQueryWork::Delete)
}

/// `POST /<index>/_update_by_query`.
pub(super) fn update(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    of_query(api, request, names, ByQueryWork::Update)
}

fn of_query(api: &Api, request: &AskedRequest<'_>, names: &str, work: ByQueryWork) -> Answer {
    let (body, is_delete) = (body_of(request)?, matches!(work, ByQueryWork::Delete));
    let what = if is_delete { "_delete_by_query" } else { "_update_by_query" };
    known_only(what, &body, &["query", "max_docs", "conflicts"])?;
    let options = ByQueryOptions::read(request, &body, None)?;
    let query = query_string_of(|name| request.parameter(name)).or_else(|| body.get("query").cloned());
    if is_delete && query.is_none() {
        return Err(invalid("query is missing"));
    }
    let targets = targets(api, request, names)?;
    targets.iter().try_for_each(|target| target.index.check_writable())?;
    let verb = if is_delete { "delete-by-query" } else { "update-by-query" };
    start(api, request, (format!("{verb} [{names}]"), work), (targets, query, options))
}

/// Begins the work, and waits for it if the request does.
fn start(
    api: &Api,
    request: &AskedRequest<'_>,
    (about, work): (String, ByQueryWork),
    (targets, query, options): (Vec<SearchTarget>, Option<Value>, ByQueryOptions),
) -> Answer {
    request.asker.record()?;
    let waits = request.flag("wait_for_completion")?.unwrap_or(true);
    let progress = Arc::new(Progress::new(options.per_second, work.shows()));
    let guard = api.tasks.begin_by_query(work.action(), about, request, &progress)?;
    let (id, node) = (guard.id(), api.node_id().to_owned());
    let query = query.unwrap_or_else(|| json!({"match_all": {}}));
    let job = ByQueryJob {
        indices: Arc::clone(&api.indices),
        asker: request.asker.clone(),
        audit: api.audit.clone(),
        targets,
        query,
        now: now_millis() as i64,
        options,
        work,
        progress,
        failures: Vec::new(),
    };
    let (sender, receiver) = channel();
    let kept_by = node.clone();
    let done = move || {
        // Its task has a result in any case. The text of a panic may contain a part of a document.
        let outcome = guarded(|| job.run(guard.task())).unwrap_or_else(|_| {
            tracing::error!("a request by query ended by a panic; report it");
            Err(SearchError::internal("the request ended by a fault of the program"))
        });
        if !waits {
            guard.keep(&kept_by, outcome.clone().map(|(_, response)| response));
        }
        drop(guard);
        // Nobody may wait any more.
        let _ = sender.send(outcome);
    };
    let panicked = |_: &str| tracing::error!("a request by query has no result; report it");
    device::supervise::thread("search by query", done, panicked)
        .map_err(|error| SearchError::busy(format!("the system starts no thread: {error}")))?;
    if !waits {
        return Ok(RestResponse::json(200, json!({"task": format!("{node}:{id}")})));
    }
    let (status, response) = wait(request, &receiver)?;
    Ok(RestResponse::json(status, response))
}

fn wait(
    request: &AskedRequest<'_>,
    receiver: &Receiver<Result<(u16, Value), SearchError>>,
) -> Result<(u16, Value), SearchError> {
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) if request.is_cancelled() => return Err(SearchError::cancelled()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SearchError::internal("a request by query did not respond"));
            }
        }
    }
}
