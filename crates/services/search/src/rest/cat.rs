//! `_cat`: tables for people, in aligned columns; programs read the same with `format=json`.

use serde_json::Value;

use super::api::{Answer, Api, AskedRequest, any_state};
use super::cluster::counts;
use super::documents::replicas;
use super::message::{RestMethod, RestResponse};
use super::routing::CatRoute;
use super::searches::{limits_of, targets};
use super::tables::{CatColumn, CatTable, bytes, hidden, left, right};
use crate::error::SearchError;
use crate::hits;
use crate::indices::{Expand, ResolveOptions, Resolved};
use crate::mapping::matches_pattern;

/// `GET /_cat/...`.
pub(super) fn answer(api: &Api, request: &AskedRequest<'_>, route: CatRoute, names: Option<&str>) -> Answer {
    if !matches!(request.method, RestMethod::Get | RestMethod::Head) {
        return Err(SearchError::new(405, "illegal_argument_exception", "_cat answers GET"));
    }
    let all = names.unwrap_or("_all");
    let table = match route {
        CatRoute::Help => return Ok(RestResponse::text(200, help())),
        CatRoute::Indices => indices(api, request, all)?,
        CatRoute::Count => count(api, request, all)?,
        CatRoute::Health => health(api, request)?,
        CatRoute::Shards => shards(api, request, all)?,
        CatRoute::Segments => segments(api, request, all)?,
        CatRoute::Aliases => aliases(api, request, names.unwrap_or("*")),
        CatRoute::Nodes => nodes(api),
        CatRoute::Templates => templates(api, names.unwrap_or("*"))?,
        CatRoute::Master => master(api),
        CatRoute::Tasks => super::task_requests::cat(api, request)?,
        CatRoute::Other => return Err(SearchError::unsupported(format!("_cat/{}", request.path[1..].join("/")))),
    };
    table.answer(request)
}

fn help() -> String {
    let names =
        ["aliases", "count", "health", "indices", "master", "nodes", "segments", "shards", "tasks", "templates"];
    let mut out = "=^.^=\n".to_owned();
    names.iter().for_each(|name| out.push_str(&format!("/_cat/{name}\n")));
    out
}

/// Seconds since 1970, and the same as the time of day.
fn now() -> (String, String) {
    let seconds = crate::index::now_millis() / 1_000;
    let day = seconds % 86_400;
    (seconds.to_string(), format!("{:02}:{:02}:{:02}", day / 3_600, day / 60 % 60, day % 60))
}

fn found(api: &Api, request: &AskedRequest<'_>, names: &str) -> Result<Vec<Resolved>, SearchError> {
    let all = Expand { open: true, closed: true, hidden: false };
    api.indices.resolve(names, ResolveOptions { expand: all, ..any_state() }.of(&request.parameters)?, &request.asker)
}

const INDICES: &[CatColumn] = &[
    left("health", "h", "current health status"),
    left("status", "s", "open/close status"),
    left("index", "i,idx", "index name"),
    left("uuid", "id,uuid", "index uuid"),
    right("pri", "p,shards.primary,shardsPrimary", "number of primary shards"),
    right("rep", "r,shards.replica,shardsReplica", "number of replica shards"),
    right("docs.count", "dc,docsCount", "available docs"),
    right("docs.deleted", "dd,docsDeleted", "deleted docs"),
    hidden("creation.date", "cd", "index creation date (millisecond value)"),
    hidden("creation.date.string", "cds", "index creation date (as string)"),
    right("store.size", "ss,storeSize", "store size of primaries & replicas"),
    right("pri.store.size", "", "store size of primaries"),
    hidden("dataset.size", "", "total dataset size"),
];

fn indices(api: &Api, request: &AskedRequest<'_>, names: &str) -> Result<CatTable, SearchError> {
    let health = request.parameter("health");
    if let Some(other) = health.filter(|health| !matches!(*health, "green" | "yellow" | "red")) {
        return Err(SearchError::argument(format!("unknown cluster health status [{other}]")));
    }
    let mut rows = Vec::new();
    for Resolved { index, .. } in found(api, request, names)? {
        let definition = index.definition();
        let copies = replicas(&index);
        let status = if copies == 0 { "green" } else { "yellow" };
        if health.is_some_and(|wanted| wanted != status) {
            continue;
        }
        let deleted: u64 = index.segments().iter().map(|(_, _, deleted)| u64::from(*deleted)).sum();
        let size = bytes(request, index.file_bytes());
        let state = if definition.closed { "close" } else { "open" };
        let is_blank = definition.closed || !request.asker.sees_statistics_of(&index);
        let count = |number: u64| if is_blank { String::new() } else { number.to_string() };
        let created = jiff::Timestamp::from_millisecond(definition.created)
            .map_or_else(|_| String::new(), |at| format!("{at:.3}"));
        let sized = |size: &String| if is_blank { String::new() } else { size.clone() };
        rows.push(vec![
            status.to_owned(),
            state.to_owned(),
            definition.name.clone(),
            definition.uuid.clone(),
            index.shards().count.to_string(),
            copies.to_string(),
            count(index.document_count()),
            count(deleted),
            definition.created.to_string(),
            created,
            sized(&size),
            sized(&size),
            sized(&size),
        ]);
    }
    for red in api.indices.red() {
        let name = red.definition.name;
        if names.split(',').any(|pattern| pattern == "_all" || matches_pattern(pattern, &name))
            && health.is_none_or(|health| health == "red")
            && request.asker.may(&name)
        {
            let mut row = vec!["red".to_owned(), "open".to_owned(), name, red.definition.uuid];
            row.resize(INDICES.len(), String::new());
            rows.push(row);
        }
    }
    Ok(CatTable { columns: INDICES.to_vec(), rows })
}

fn count(api: &Api, request: &AskedRequest<'_>, names: &str) -> Result<CatTable, SearchError> {
    // Not the numbers of the indices: of an alias only the documents of its filter count.
    let targets = targets(api, request, names)?;
    let documents = hits::count(&targets, None, &limits_of(&targets), None, &request.cancelled)?;
    let (epoch, time) = now();
    let columns = vec![
        left("epoch", "t,time", "seconds since 1970-01-01 00:00:00"),
        left("timestamp", "ts,hms,hhmmss", "time in HH:MM:SS"),
        left("count", "dc,docs.count,docsCount", "the document count"),
    ];
    Ok(CatTable { columns, rows: vec![vec![epoch, time, documents.to_string()]] })
}

fn health(api: &Api, request: &AskedRequest<'_>) -> Result<CatTable, SearchError> {
    let shards = counts(api, &found(api, request, "_all")?, true);
    let (epoch, time) = now();
    let mut columns = vec![
        left("epoch", "t,time", "seconds since 1970-01-01 00:00:00"),
        left("timestamp", "ts,hms,hhmmss", "time in HH:MM:SS"),
        left("cluster", "cl", "cluster name"),
        left("status", "st", "health status"),
        right("node.total", "nt,nodeTotal", "total number of nodes"),
        right("node.data", "nd,nodeData", "number of nodes that can store data"),
        right("shards", "t,sh,shards.total,shardsTotal", "total number of shards"),
        right("pri", "p,shards.primary,shardsPrimary", "number of primary shards"),
        right("relo", "r,shards.relocating,shardsRelocating", "number of relocating nodes"),
        right("init", "i,shards.initializing,shardsInitializing", "number of initializing nodes"),
        right("unassign", "u,shards.unassigned,shardsUnassigned", "number of unassigned shards"),
        right("pending_tasks", "pt,pendingTasks", "number of pending tasks"),
        right("max_task_wait_time", "mtwt,maxTaskWaitTime", "wait time of longest task pending"),
        right("active_shards_percent", "asp,activeShardsPercent", "active number of shards in percent"),
    ];
    let mut row = vec![
        epoch,
        time,
        "terrace".to_owned(),
        shards.status().to_owned(),
        "1".to_owned(),
        "1".to_owned(),
        shards.active.to_string(),
        shards.active.to_string(),
        "0".to_owned(),
        "0".to_owned(),
        (shards.unassigned + shards.red).to_string(),
        "0".to_owned(),
        "-".to_owned(),
        format!("{:.1}%", shards.percent()),
    ];
    if request.flag("ts")? == Some(false) {
        columns.drain(..2);
        row.drain(..2);
    }
    Ok(CatTable { columns, rows: vec![row] })
}

fn shards(api: &Api, request: &AskedRequest<'_>, names: &str) -> Result<CatTable, SearchError> {
    let columns = vec![
        left("index", "i,idx", "index name"),
        left("shard", "s,sh", "shard name"),
        left("prirep", "p,pr,primaryOrReplica", "primary or replica"),
        left("state", "st", "shard state"),
        right("docs", "d,dc", "number of docs in shard"),
        right("store", "sto", "store size of shard (how much disk it uses)"),
        left("ip", "", "ip of node where it lives"),
        left("node", "n", "name of node where it lives"),
    ];
    let mut rows = Vec::new();
    for Resolved { index, .. } in found(api, request, names)? {
        let text = str::to_owned;
        let is_blank = !request.asker.sees_statistics_of(&index);
        let shown = |figure: String| if is_blank { String::new() } else { figure };
        for number in 0..index.shards().count {
            // What all shards have together is shown with the first one: it is not kept apart.
            let (documents, size) = if number == 0 { (index.document_count(), index.file_bytes()) } else { (0, 0) };
            rows.push(vec![
                index.name(),
                number.to_string(),
                text("p"),
                text("STARTED"),
                shown(documents.to_string()),
                shown(bytes(request, size)),
                text("127.0.0.1"),
                api.node.clone(),
            ]);
            for _ in 0..replicas(&index) {
                let mut row = vec![index.name(), number.to_string(), text("r"), text("UNASSIGNED")];
                row.resize(columns.len(), String::new());
                rows.push(row);
            }
        }
    }
    Ok(CatTable { columns, rows })
}

fn segments(api: &Api, request: &AskedRequest<'_>, names: &str) -> Result<CatTable, SearchError> {
    let columns = vec![
        left("index", "i,idx", "index name"),
        left("shard", "s,sh", "shard name"),
        left("prirep", "p,pr,primaryOrReplica", "primary or replica"),
        left("ip", "", "ip of node where it lives"),
        left("segment", "seg", "segment name"),
        right("docs.count", "dc,docsCount", "number of docs in segment"),
        right("docs.deleted", "dd,docsDeleted", "number of deleted docs in segment"),
    ];
    let mut rows = Vec::new();
    for Resolved { index, .. } in
        api.indices.resolve(names, ResolveOptions::default().of(&request.parameters)?, &request.asker)?
    {
        if !request.asker.sees_statistics_of(&index) {
            continue;
        }
        for (name, documents, deleted) in index.segments() {
            let text = str::to_owned;
            let row = [
                index.name(),
                text("0"),
                text("p"),
                text("127.0.0.1"),
                name,
                documents.to_string(),
                deleted.to_string(),
            ];
            rows.push(row.to_vec());
        }
    }
    Ok(CatTable { columns, rows })
}

fn aliases(api: &Api, request: &AskedRequest<'_>, names: &str) -> CatTable {
    let columns = vec![
        left("alias", "a", "alias name"),
        left("index", "i,idx", "index alias points to"),
        left("filter", "f,fi", "filter"),
        left("routing.index", "ri,routingIndex", "index routing"),
        left("routing.search", "rs,routingSearch", "search routing"),
        left("is_write_index", "w,isWriteIndex", "write index"),
    ];
    let mut rows = Vec::new();
    for index in api.indices.all() {
        let may_index = request.asker.may(&index.name());
        for (alias, body) in &index.definition().aliases {
            if !may_index && !request.asker.may(alias) {
                continue;
            }
            if names.split(',').any(|pattern| pattern == "_all" || matches_pattern(pattern, alias)) {
                let text = str::to_owned;
                let filter = if body.get("filter").is_some() { "*" } else { "-" };
                let write = body.get("is_write_index").map_or_else(|| text("-"), Value::to_string);
                rows.push(vec![alias.clone(), index.name(), text(filter), text("-"), text("-"), write]);
            }
        }
    }
    CatTable { columns, rows }
}

fn nodes(api: &Api) -> CatTable {
    let columns = vec![
        left("ip", "i", "ip address"),
        left("node.role", "r,role,nodeRole", "roles"),
        left("master", "m", "*: elected"),
        left("name", "n", "node name"),
        hidden("version", "v", "version"),
        hidden("id", "nodeId", "unique node id"),
    ];
    let row = ["127.0.0.1", "dim", "*", &api.node, super::cluster::VERSION, api.node_id()];
    CatTable { columns, rows: vec![row.into_iter().map(str::to_owned).collect()] }
}

fn master(api: &Api) -> CatTable {
    let columns = vec![
        left("id", "", "node id"),
        left("host", "h", "host name"),
        left("ip", "", "ip address"),
        left("node", "n", "node name"),
    ];
    let row = [api.node_id(), "127.0.0.1", "127.0.0.1", &api.node];
    CatTable { columns, rows: vec![row.into_iter().map(str::to_owned).collect()] }
}

fn templates(api: &Api, names: &str) -> Result<CatTable, SearchError> {
    use crate::indices::TemplateKind::{Index, Legacy};
    let columns = vec![
        left("name", "n", "template name"),
        left("index_patterns", "t", "template index patterns"),
        left("order", "o,p", "template application order/priority number"),
        left("version", "v", "version"),
        left("composed_of", "c", "component templates comprising index template"),
    ];
    let mut rows = Vec::new();
    for (kind, order) in [(Legacy, "order"), (Index, "priority")] {
        for (name, template) in api.indices.templates.all(kind)? {
            if !names.split(',').any(|pattern| matches_pattern(pattern, &name)) {
                continue;
            }
            let list = |value: &Value| {
                let texts: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                format!("[{}]", texts.join(", "))
            };
            let number = |name: &str| template.get(name).map_or_else(String::new, Value::to_string);
            let order = if template.get(order).is_none() { "0".to_owned() } else { number(order) };
            let composed = if kind == Index { list(&template["composed_of"]) } else { String::new() };
            rows.push(vec![name, list(&template["index_patterns"]), order, number("version"), composed]);
        }
    }
    Ok(CatTable { columns, rows })
}
