//! `_tasks`: lists tasks, shows one, cancels, and changes the speed of requests by query.
//!
//! A task belongs to who sent its request. Others see that it runs by the right `search-monitor`; what it is about, its results, and
//! its end are theirs by `search-manage`. Without these it is not there, as one that never was.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use node::identity::{Action, Caller};
use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest};
use super::message::{RestRequest, RestResponse};
use super::nodes;
use super::tables::{CatTable, hidden, left};
use super::tasks::{RunningTask, description, per_second, shown};
use crate::error::SearchError;
use crate::indices::duration;
use crate::mapping::matches_pattern;
use crate::rights::is_same;

/// How long a request waits for tasks where it says nothing (Elasticsearch's default), and at most.
const WAIT: Duration = Duration::from_secs(30);
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Which tasks a request means.
struct WantedTasks<'a> {
    actions: Option<&'a str>,
    parent: Option<&'a str>,
    this_node: bool,
}

impl<'a> WantedTasks<'a> {
    fn of(api: &Api, request: &'a RestRequest) -> WantedTasks<'a> {
        let nodes = request.parameter("nodes").or(request.parameter("node_id"));
        let is_this = |name: &str| {
            matches!(name, "" | "_all" | "_local" | "_master")
                || name == api.node_id()
                || matches_pattern(name, &api.node)
        };
        WantedTasks {
            actions: request.parameter("actions"),
            parent: request.parameter("parent_task_id"),
            this_node: nodes.is_none_or(|nodes| nodes.split(',').any(is_this)),
        }
    }

    fn has(&self, task: &RunningTask) -> bool {
        let fits = |actions: &str| actions.split(',').any(|pattern| matches_pattern(pattern.trim(), task.action));
        // No task of this node has a parent.
        self.this_node && self.parent.is_none() && self.actions.is_none_or(fits)
    }
}

/// What a caller may do with a task of this owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sight {
    Nothing,
    ThatItRuns,
    All,
}

fn sight(request: &AskedRequest<'_>, owner: &Caller) -> Sight {
    if is_same(owner, &request.caller) || request.asker.may_on_node(Action::SearchManage) {
        Sight::All
    } else if request.asker.may_on_node(Action::SearchMonitor) {
        Sight::ThatItRuns
    } else {
        Sight::Nothing
    }
}

/// The tasks that run and that a caller may do this with.
fn running(api: &Api, request: &AskedRequest<'_>, least: Sight) -> impl Iterator<Item = Arc<RunningTask>> {
    let mut all = api.tasks.running();
    all.retain(|task| sight(request, &task.owner) >= least);
    all.into_iter()
}

/// One of them.
fn one(api: &Api, request: &AskedRequest<'_>, id: u64, least: Sight) -> Option<Arc<RunningTask>> {
    api.tasks.one(id).filter(|task| sight(request, &task.owner) >= least)
}

/// Uses the right to manage for tasks of others, whose use is recorded. Errors: the audit takes no entry.
fn manage<'t>(request: &AskedRequest<'_>, mut owners: impl Iterator<Item = &'t Caller>) -> Result<(), SearchError> {
    if owners.any(|owner| !is_same(owner, &request.caller)) {
        request.asker.node(Action::SearchManage)?;
        request.asker.record()?;
    }
    Ok(())
}

/// The tasks as a response groups them.
fn grouped(api: &Api, request: &AskedRequest<'_>, tasks: &[Arc<RunningTask>]) -> Result<Value, SearchError> {
    let detailed = request.flag("detailed")?.unwrap_or(false);
    if detailed {
        let shown = tasks.iter().map(|task| &task.owner).filter(|owner| sight(request, owner) == Sight::All);
        manage(request, shown)?;
    }
    let node = api.node_id();
    let each = tasks.iter().map(|task| {
        (format!("{node}:{}", task.id), shown(node, task, detailed && sight(request, &task.owner) == Sight::All))
    });
    Ok(match request.parameter("group_by") {
        Some("none") => json!({"tasks": each.map(|(_, task)| task).collect::<Vec<_>>()}),
        Some("parents") => json!({"tasks": each.collect::<Map<_, _>>()}),
        None | Some("nodes") if tasks.is_empty() => json!({"nodes": {}}),
        None | Some("nodes") => {
            let mut identity = nodes::identity(api);
            identity.insert("tasks".to_owned(), Value::Object(each.collect()));
            json!({"nodes": {node: identity}})
        }
        Some(other) => {
            return Err(SearchError::argument(format!("[group_by] is [nodes], [parents] or [none], not [{other}]")));
        }
    })
}

/// How long a request waits for tasks; `None` if it does not.
fn patience(request: &RestRequest) -> Result<Option<Duration>, SearchError> {
    if !request.flag("wait_for_completion")?.unwrap_or(false) {
        return Ok(None);
    }
    let Some(text) = request.parameter("timeout") else { return Ok(Some(WAIT)) };
    let time = duration(text).ok_or_else(|| {
        SearchError::argument(format!("failed to parse setting [timeout] with value [{text}] as a time value"))
    })?;
    Ok(Some(time.min(WAIT_MAX)))
}

fn wait(api: &Api, request: &AskedRequest<'_>, tasks: &[Arc<RunningTask>]) -> Result<(), SearchError> {
    let Some(patience) = patience(request)? else { return Ok(()) };
    // Requests about tasks would wait for themselves.
    let awaited = tasks.iter().filter(|task| !task.action.starts_with("cluster:")).map(|task| task.id);
    api.tasks.wait(&awaited.collect::<Vec<_>>(), patience, &request.cancelled)
}

/// `GET /_tasks`.
pub(super) fn list(api: &Api, request: &AskedRequest<'_>) -> Answer {
    let wanted = WantedTasks::of(api, request);
    let tasks: Vec<_> = running(api, request, Sight::ThatItRuns).filter(|task| wanted.has(task)).collect();
    wait(api, request, &tasks)?;
    Ok(RestResponse::json(200, grouped(api, request, &tasks)?))
}

fn no_task(reason: String) -> SearchError {
    SearchError::new(404, "resource_not_found_exception", reason)
}

/// The number of a task of this node. Errors: it is none, or another node's.
fn number(api: &Api, text: &str) -> Result<u64, SearchError> {
    let parts = text.rsplit_once(':').and_then(|(node, number)| Some((node, number.parse().ok()?)));
    let (node, number) = parts.ok_or_else(|| SearchError::argument(format!("malformed task id {text}")))?;
    if node != api.node_id() {
        return Err(no_task(format!(
            "task [{text}] belongs to the node [{node}] which isn't part of the cluster and there is no record of the task"
        )));
    }
    Ok(number)
}

/// `GET /_tasks/<id>`.
pub(super) fn get(api: &Api, request: &AskedRequest<'_>, text: &str) -> Answer {
    let id = number(api, text)?;
    if let Some(patience) = patience(request)?
        && one(api, request, id, Sight::ThatItRuns).is_some()
    {
        api.tasks.wait(&[id], patience, &request.cancelled)?;
    }
    // First those that run: one that ends meanwhile has its result before it is gone.
    if let Some(task) = one(api, request, id, Sight::ThatItRuns) {
        let detailed = sight(request, &task.owner) == Sight::All;
        manage(request, detailed.then_some(&task.owner).into_iter())?;
        let body = json!({"completed": false, "task": shown(api.node_id(), &task, detailed)});
        return Ok(RestResponse::json(200, body));
    }
    let missing = || no_task(format!("task [{text}] isn't running and hasn't stored its results"));
    let found = api.tasks.result(id, |owner| sight(request, owner) == Sight::All);
    let (owner, task, outcome) = found.ok_or_else(missing)?;
    manage(request, [&owner].into_iter())?;
    let mut body = json!({"completed": true, "task": task});
    match outcome {
        Ok(response) => body["response"] = response,
        Err(error) => body["error"] = error.cause(),
    }
    Ok(RestResponse::json(200, body))
}

/// `POST /_tasks/_cancel` and `POST /_tasks/<id>/_cancel`.
pub(super) fn cancel(api: &Api, request: &AskedRequest<'_>, id: Option<&str>) -> Answer {
    let tasks = match id {
        Some(text) => {
            let task = one(api, request, number(api, text)?, Sight::All);
            let task = task.ok_or_else(|| no_task(format!("task [{text}] is not found")))?;
            if !task.is_cancellable {
                return Err(SearchError::argument(format!("task [{text}] doesn't support cancellation")));
            }
            vec![task]
        }
        None => {
            let wanted = WantedTasks::of(api, request);
            let running = running(api, request, Sight::All);
            running.filter(|task| task.is_cancellable && wanted.has(task)).collect()
        }
    };
    manage(request, tasks.iter().map(|task| &task.owner))?;
    for task in &tasks {
        task.cancelled.store(true, Ordering::Relaxed);
        tracing::info!(task = task.id, action = task.action, "a task of search was cancelled");
    }
    wait(api, request, &tasks)?;
    Ok(RestResponse::json(200, grouped(api, request, &tasks)?))
}

/// `POST /_reindex/<id>/_rethrottle`, and the same of the other requests by query.
pub(super) fn rethrottle(api: &Api, request: &AskedRequest<'_>, text: &str) -> Answer {
    let id = number(api, text)?;
    let per_second =
        per_second(request)?.ok_or_else(|| SearchError::argument("requests_per_second is a required parameter"))?;
    let task = one(api, request, id, Sight::All).filter(|task| task.progress.is_some());
    let task = task.ok_or_else(|| no_task(format!("task [{text}] is missing, or is no request by query")))?;
    manage(request, [&task.owner].into_iter())?;
    if let Some(progress) = &task.progress {
        progress.rethrottle(per_second);
    }
    Ok(RestResponse::json(200, grouped(api, request, &[task])?))
}

/// `GET /_cat/tasks`.
pub(super) fn cat(api: &Api, request: &AskedRequest<'_>) -> Result<CatTable, SearchError> {
    let wanted = WantedTasks::of(api, request);
    let mut columns = vec![
        hidden("id", "id", "id of the task with the node"),
        left("action", "ac", "task action"),
        left("task_id", "ti", "unique task id"),
        left("parent_task_id", "pti", "parent task id"),
        left("type", "ty", "task type"),
        left("start_time", "start", "start time in ms"),
        left("timestamp", "ts,hms,hhmmss", "start time in HH:MM:SS"),
        hidden("running_time_ns", "time", "running time ns"),
        left("running_time", "time", "running time"),
        hidden("node_id", "ni", "unique node id"),
        left("ip", "i", "ip address"),
        left("node", "n", "node name"),
        hidden("x_opaque_id", "x", "X-Opaque-ID header"),
        hidden("description", "desc", "task action"),
    ];
    if request.flag("detailed")?.unwrap_or(false) {
        columns.last_mut().expect("there are columns").shown = true;
    }
    let tasks: Vec<Arc<RunningTask>> =
        running(api, request, Sight::ThatItRuns).filter(|task| wanted.has(task)).collect();
    if columns.last().is_some_and(|description| description.shown) || request.parameter("h").is_some() {
        let shown = tasks.iter().map(|task| &task.owner).filter(|owner| sight(request, owner) == Sight::All);
        manage(request, shown)?;
    }
    let row = |task: Arc<RunningTask>| {
        let (day, ran) = (task.started_millis / 1_000 % 86_400, task.started.elapsed());
        vec![
            task.id.to_string(),
            task.action.to_owned(),
            format!("{}:{}", api.node_id(), task.id),
            "-".to_owned(),
            "transport".to_owned(),
            task.started_millis.to_string(),
            format!("{:02}:{:02}:{:02}", day / 3_600, day / 60 % 60, day % 60),
            ran.as_nanos().to_string(),
            format!("{:.1}ms", ran.as_secs_f64() * 1e3),
            api.node_id().to_owned(),
            "127.0.0.1".to_owned(),
            api.node.clone(),
            task.opaque_id.clone().unwrap_or_else(|| "-".to_owned()),
            if sight(request, &task.owner) == Sight::All { description(&task) } else { String::new() },
        ]
    };
    let rows = tasks.into_iter().map(row).collect();
    Ok(CatTable { columns, rows })
}
