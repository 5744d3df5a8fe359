//! Which requests are listed as tasks, and by which names.

use super::TaskAbout;
use crate::rest::message::{RestMethod, RestRequest};

/// A kind of task.
pub(super) struct TaskKind {
    pub(super) action: &'static str,
    pub(super) is_cancellable: bool,
    pub(super) about: TaskAbout,
}

/// The kind of a request; `None` if it is not listed: the others take no time, or list themselves.
pub(super) fn of_request(request: &RestRequest) -> Option<TaskKind> {
    use RestMethod::{Delete, Get, Head, Post};
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    let at = path.iter().take(2).position(|segment| segment.starts_with('_') && *segment != "_all")?;
    let indices = if at == 1 { path[0].to_owned() } else { String::new() };
    let text = |text: String| TaskAbout::Text(text);
    let search = || TaskAbout::Search(indices.clone(), request.body.clone());
    let named = || text(format!("indices[{indices}]"));
    let (action, is_cancellable, about) = match (request.method, &path[at..]) {
        (Delete, ["_search" | "_pit", ..]) => return None,
        (_, ["_search", "scroll", ..]) => ("indices:data/read/scroll", true, text("scroll".to_owned())),
        (_, ["_search", "point_in_time"] | ["_pit"]) => ("indices:data/read/open_point_in_time", false, named()),
        (_, ["_search"] | ["_count"]) => ("indices:data/read/search", true, search()),
        (_, ["_msearch"]) => ("indices:data/read/msearch", true, search()),
        (_, ["_mget"]) => ("indices:data/read/mget", true, named()),
        (_, ["_bulk"]) => ("indices:data/write/bulk", false, TaskAbout::Bulk(indices, request.body.len())),
        (Get | Head, ["_doc" | "_source", _]) => ("indices:data/read/get", false, named()),
        (Delete, ["_doc", _]) => ("indices:data/write/delete", false, named()),
        (_, ["_doc" | "_create", ..]) => ("indices:data/write/index", false, named()),
        (_, ["_update", _]) => ("indices:data/write/update", false, named()),
        (_, ["_forcemerge"]) => ("indices:admin/forcemerge", false, text(format!("Force-merge indices [{indices}]"))),
        (_, ["_refresh"]) => ("indices:admin/refresh", false, named()),
        (_, ["_flush"]) => ("indices:admin/flush", false, named()),
        (Get, ["_tasks"] | ["_cat", "tasks"]) => ("cluster:monitor/tasks/lists", false, text(String::new())),
        (Get, ["_tasks", id]) => ("cluster:monitor/task/get", false, text((*id).to_owned())),
        (Post, ["_tasks", ..]) => ("cluster:admin/tasks/cancel", false, text(String::new())),
        _ => return None,
    };
    Some(TaskKind { action, is_cancellable, about })
}
