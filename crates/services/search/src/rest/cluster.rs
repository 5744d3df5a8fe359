//! Requests about the cluster, which is this node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest, any_state};
use super::documents::replicas;
use super::message::RestResponse;
use super::templates::acknowledged;
use crate::error::SearchError;
use crate::index::SearchIndex;
use crate::indices::{ResolveOptions, Resolved, duration};

/// The version of Elasticsearch whose API this is; clients read it.
pub(super) const VERSION: &str = "8.19.0";

/// How long a request waits for a state at most: it holds a place of few meanwhile.
const HEALTH_WAIT_MAX: Duration = Duration::from_secs(60);

/// Shards of the node in its states.
pub(super) struct ShardCounts {
    pub(super) active: u64,
    pub(super) unassigned: u64,
    pub(super) red: u64,
}

impl ShardCounts {
    pub(super) fn status(&self) -> &'static str {
        match (self.red, self.unassigned) {
            (0, 0) => "green",
            (0, _) => "yellow",
            _ => "red",
        }
    }

    pub(super) fn percent(&self) -> f64 {
        let all = self.active + self.unassigned + self.red;
        if all == 0 { 100.0 } else { self.active as f64 * 100.0 / all as f64 }
    }
}

/// `GET /`.
pub(super) fn info(api: &Api) -> RestResponse {
    RestResponse::json(
        200,
        json!({
            "name": api.node,
            "cluster_name": "terrace",
            "cluster_uuid": api.indices.uuid(),
            "version": {
                "number": VERSION,
                "build_flavor": "default",
                "build_type": "tar",
                "build_hash": env!("CARGO_PKG_VERSION"),
                "build_date": "2026-11-24T00:00:00.000Z",
                "build_snapshot": false,
                "lucene_version": "9.12.2",
                "minimum_wire_compatibility_version": "7.17.0",
                "minimum_index_compatibility_version": "7.0.0",
            },
            "tagline": "You Know, for Search",
        }),
    )
}

pub(super) fn counts(api: &Api, found: &[Resolved], with_red: bool) -> ShardCounts {
    ShardCounts {
        active: found.iter().map(|resolved| resolved.index.shards().count).sum(),
        unassigned: found.iter().map(|resolved| resolved.index.shards().count * replicas(&resolved.index)).sum(),
        red: if with_red { api.indices.red().iter().map(|red| red.definition.shards().count).sum() } else { 0 },
    }
}

/// `GET /_cluster/health`.
pub(super) fn health(api: &Api, request: &AskedRequest<'_>, names: Option<&str>) -> Answer {
    let level = request.parameter("level").unwrap_or("cluster");
    let wait = request.parameter("timeout").map_or(Some(Duration::from_secs(30)), duration);
    let wait = wait.ok_or_else(|| SearchError::argument("failed to parse [timeout]"))?.min(HEALTH_WAIT_MAX);
    let wanted = match request.parameter("wait_for_status").map(str::to_lowercase).as_deref() {
        None | Some("red") => 0,
        Some("yellow") => 1,
        Some("green") => 2,
        Some(other) => return Err(SearchError::argument(format!("unknown cluster health status [{other}]"))),
    };
    let nodes = request.parameter("wait_for_nodes").is_none_or(nodes_fit);
    let active = match request.parameter("wait_for_active_shards") {
        None | Some("all") => 0,
        Some(text) => text
            .parse()
            .map_err(|_| SearchError::argument(format!("cannot parse [{text}] of wait_for_active_shards")))?,
    };
    let from = Instant::now();
    loop {
        let options = ResolveOptions { ignore_unavailable: true, ..any_state() }.of(&request.parameters)?;
        let options =
            ResolveOptions { expand: crate::indices::Expand { open: true, closed: true, hidden: true }, ..options };
        let found = match api.indices.resolve(names.unwrap_or("_all"), options, &request.asker) {
            Err(error) if error.status == 503 => Vec::new(),
            found => found?,
        };
        let red = names.is_none() || found.is_empty();
        let counts = counts(api, &found, red);
        let missing = names.is_some_and(|names| !names.contains('*') && found.is_empty() && names != "_all");
        let all_active = request.parameter("wait_for_active_shards") != Some("all") || counts.unassigned == 0;
        let rank = match counts.status() {
            "green" => 2,
            "yellow" => 1,
            _ => 0,
        };
        let done = rank >= wanted && nodes && counts.active >= active && all_active && !missing;
        let over = from.elapsed() >= wait || request.is_cancelled();
        if !done && !over {
            std::thread::sleep(Duration::from_millis(20).min(wait));
            continue;
        }
        let status = if missing { "red" } else { counts.status() };
        let mut body = json!({
            "cluster_name": "terrace",
            "status": status,
            "timed_out": !done,
            "number_of_nodes": 1,
            "number_of_data_nodes": 1,
            "active_primary_shards": counts.active,
            "active_shards": counts.active,
            "relocating_shards": 0,
            "initializing_shards": 0,
            "unassigned_shards": counts.unassigned + counts.red,
            "delayed_unassigned_shards": 0,
            "number_of_pending_tasks": 0,
            "number_of_in_flight_fetch": 0,
            "task_max_waiting_in_queue_millis": 0,
            "active_shards_percent_as_number": counts.percent(),
        });
        if level == "indices" || level == "shards" {
            body["indices"] = indices_health(&found, level == "shards");
        }
        return Ok(RestResponse::json(if done { 200 } else { 408 }, body));
    }
}

fn indices_health(found: &[Resolved], with_shards: bool) -> Value {
    let mut all = Map::new();
    for Resolved { index, .. } in found {
        let (shards, replicas) = (index.shards().count, replicas(index));
        let status = if replicas == 0 { "green" } else { "yellow" };
        let mut one = json!({
            "status": status, "number_of_shards": shards, "number_of_replicas": replicas, "active_primary_shards": shards,
            "active_shards": shards, "relocating_shards": 0, "initializing_shards": 0,
            "unassigned_shards": shards * replicas,
        });
        if with_shards {
            let shard = json!({
                "status": status, "primary_active": true, "active_shards": 1, "relocating_shards": 0,
                "initializing_shards": 0, "unassigned_shards": replicas,
            });
            one["shards"] = (0..shards).map(|number| (number.to_string(), shard.clone())).collect();
        }
        all.insert(index.name(), one);
    }
    Value::Object(all)
}

/// Whether one node fits `>=1`, `<3`, `1` and so on.
fn nodes_fit(text: &str) -> bool {
    let at = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
    let number: i64 = text[at..].trim_end_matches(')').parse().unwrap_or(1);
    match &text[..at] {
        ">=" | "ge(" => 1 >= number,
        "<=" | "le(" => 1 <= number,
        ">" | "gt(" => 1 > number,
        "<" | "lt(" => 1 < number,
        _ => number == 1,
    }
}

/// `GET /_cluster/settings`.
pub(super) fn settings(api: &Api, request: &AskedRequest<'_>) -> Answer {
    let flat = request.flag("flat_settings")?.unwrap_or(false);
    let (persistent, transient) = api.indices.cluster_settings()?;
    let shown = |settings| if flat { json!(settings) } else { crate::indices::Indices::nested_settings(&settings) };
    let mut body = json!({"persistent": shown(persistent), "transient": shown(transient)});
    if request.flag("include_defaults")?.unwrap_or(false) {
        body["defaults"] = json!({"node": {"name": api.node, "attr": {}}, "search": {"max_buckets": "65536"}});
    }
    Ok(RestResponse::json(200, body))
}

/// `PUT /_cluster/settings`.
pub(super) fn put_settings(api: &Api, request: &AskedRequest<'_>) -> Answer {
    let body = request.json()?.ok_or_else(|| SearchError::body("request body is required"))?;
    for name in body.as_object().into_iter().flatten().map(|(name, _)| name.as_str()) {
        if !matches!(name, "persistent" | "transient") {
            return Err(SearchError::parsing(format!("[cluster_update_settings_request] unknown field [{name}]")));
        }
    }
    api.indices.put_cluster_settings(&body["persistent"], &body["transient"])?;
    let flat = request.flag("flat_settings")?.unwrap_or(false);
    let shown = |settings: &Value| -> Result<Value, SearchError> {
        let flat_form = crate::indices::flat_values(settings)?;
        Ok(if flat { json!(flat_form) } else { crate::indices::Indices::nested_settings(&flat_form) })
    };
    let mut response = acknowledged();
    response.body = super::message::RestBody::Json(json!({
        "acknowledged": true, "persistent": shown(&body["persistent"])?, "transient": shown(&body["transient"])?,
    }));
    Ok(response)
}

/// `GET /_cluster/state/<metrics>/<indices>`.
pub(super) fn state(api: &Api, request: &AskedRequest<'_>, metrics: &str, names: &str) -> Answer {
    let wants = |name: &str| metrics.split(',').any(|metric| metric == "_all" || metric == name);
    let found = api.indices.resolve(names, any_state(), &request.asker)?;
    let mut body = json!({"cluster_name": "terrace", "cluster_uuid": api.indices.uuid()});
    if wants("version") {
        body["version"] = json!(1);
        body["state_uuid"] = json!(api.indices.uuid());
    }
    if wants("master_node") {
        body["master_node"] = json!(api.node_id());
    }
    if wants("blocks") {
        body["blocks"] = json!({});
    }
    if wants("nodes") {
        body["nodes"] =
            json!({api.node_id(): {"name": api.node, "transport_address": "127.0.0.1:9300", "attributes": {}}});
    }
    if wants("metadata") {
        let mut indices = Map::new();
        for Resolved { index, .. } in &found {
            let definition = index.definition();
            let aliases: Vec<&String> = definition.aliases.keys().collect();
            indices.insert(
                definition.name.clone(),
                json!({
                    "state": if definition.closed { "close" } else { "open" },
                    "settings": crate::indices::Indices::nested_settings(&definition.settings),
                    "mappings": {"_doc": index.mapping().to_json()},
                    "aliases": aliases,
                    "routing_num_shards": index.shards().routing,
                }),
            );
        }
        body["metadata"] = json!({"cluster_uuid": api.indices.uuid(), "templates": {}, "indices": indices});
    }
    if wants("routing_table") {
        let table = |found: &Resolved| {
            let (name, node) = (found.index.name(), api.node_id());
            let shard = |number: u64| {
                let shard = json!({"state": "STARTED", "primary": true, "node": node, "shard": number, "index": name});
                (number.to_string(), json!([shard]))
            };
            let shards: Map<String, Value> = (0..found.index.shards().count).map(shard).collect();
            (name.clone(), json!({ "shards": shards }))
        };
        let tables: Map<String, Value> = found.iter().map(table).collect();
        body["routing_table"] = json!({"indices": tables});
    }
    Ok(RestResponse::json(200, body))
}

/// What all indices have together that a caller sees the statistics of.
pub(super) struct Totals {
    pub(super) documents: u64,
    pub(super) bytes: u64,
}

/// Adds them up.
pub(super) fn totals(api: &Api, request: &AskedRequest<'_>) -> Totals {
    let mut all = api.indices.all();
    all.retain(|index| request.asker.sees_statistics_of(index));
    Totals {
        documents: all.iter().map(|index| index.document_count()).sum(),
        bytes: all.iter().map(|index| index.file_bytes()).sum(),
    }
}

/// `GET /_cluster/stats`.
pub(super) fn stats(api: &Api, request: &AskedRequest<'_>) -> Answer {
    let all = api.indices.all();
    let resolved = |index: &Arc<SearchIndex>| Resolved { index: Arc::clone(index), filter: None, scope: None };
    let found: Vec<Resolved> = all.iter().map(resolved).collect();
    let Totals { documents, bytes } = totals(api, request);
    let shards: u64 = all.iter().map(|index| index.shards().count).sum();
    Ok(RestResponse::json(
        200,
        json!({
            "_nodes": {"total": 1, "successful": 1, "failed": 0},
            "cluster_name": "terrace",
            "cluster_uuid": api.indices.uuid(),
            "status": counts(api, &found, true).status(),
            "indices": {
                "count": all.len(), "shards": {"total": shards, "primaries": shards},
                "docs": {"count": documents, "deleted": 0}, "store": {"size_in_bytes": bytes},
            },
            "nodes": {"count": {"total": 1, "data": 1, "master": 1, "ingest": 0}, "versions": [VERSION]},
        }),
    ))
}
