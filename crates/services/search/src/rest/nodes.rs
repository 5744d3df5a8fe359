//! `_nodes`: what tools read about the nodes of a cluster. There is one, and it is no Java program: where they expect a virtual
//! machine's figures they get zeros or empty objects.

use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest};
use super::cluster::{Totals, VERSION, totals};
use super::message::RestResponse;

/// `GET /_nodes`, `/_nodes/<node or metrics>`, `/_nodes/stats/<metrics>`, `/_nodes/<node>/stats/<metrics>`.
pub(super) fn answer((api, request): (&Api, &AskedRequest<'_>), rest: &[&str]) -> Answer {
    let node = match rest {
        ["stats", ..] => stats(api, request),
        [_, "stats", ..] => stats(api, request),
        _ => info(api),
    };
    Ok(RestResponse::json(
        200,
        json!({
            "_nodes": {"total": 1, "successful": 1, "failed": 0},
            "cluster_name": "terrace",
            "nodes": {api.node_id(): node},
        }),
    ))
}

/// What names the node wherever responses describe it.
pub(super) fn identity(api: &Api) -> Map<String, Value> {
    let body = json!({
        "name": api.node,
        "transport_address": "127.0.0.1:9300",
        "host": "127.0.0.1",
        "ip": "127.0.0.1",
        "version": VERSION,
        "roles": ["data", "ingest", "master"],
        "attributes": {},
    });
    body.as_object().cloned().unwrap_or_default()
}

fn info(api: &Api) -> Value {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut node = identity(api);
    let more = json!({
        "build_flavor": "default",
        "build_type": "tar",
        "build_hash": env!("CARGO_PKG_VERSION"),
        "settings": {"cluster": {"name": "terrace"}, "node": {"name": api.node}},
        "os": {
            "name": std::env::consts::OS, "pretty_name": std::env::consts::OS, "arch": std::env::consts::ARCH, "version": "",
            "available_processors": processors, "allocated_processors": processors,
        },
        "process": {"id": std::process::id(), "mlockall": false},
        "jvm": {
            "pid": std::process::id(), "version": "none", "vm_name": "none", "vm_version": "none", "vm_vendor": "none",
            "gc_collectors": [], "memory_pools": [], "mem": {},
        },
        "thread_pool": {},
        "transport": {"bound_address": [], "publish_address": "127.0.0.1:9300", "profiles": {}},
        "http": {"bound_address": [], "publish_address": "127.0.0.1:9200"},
        "plugins": [],
        "modules": [],
        "ingest": {"processors": []},
    });
    node.extend(more.as_object().cloned().unwrap_or_default());
    Value::Object(node)
}

fn stats(api: &Api, request: &AskedRequest<'_>) -> Value {
    let Totals { documents, bytes } = totals(api, request);
    let memory = resident_bytes();
    let mut node = identity(api);
    let more = json!({
        "timestamp": 0,
        "indices": {"docs": {"count": documents, "deleted": 0}, "store": {"size_in_bytes": bytes}},
        "os": {"cpu": {"percent": 0}, "mem": {"total_in_bytes": 0, "free_in_bytes": 0, "used_in_bytes": 0}},
        "process": {
            "open_file_descriptors": 0, "max_file_descriptors": 0, "cpu": {"percent": 0, "total_in_millis": 0},
            "mem": {"total_virtual_in_bytes": memory},
        },
        "jvm": {
            "uptime_in_millis": api.started.elapsed().as_millis() as u64,
            "mem": {"heap_used_in_bytes": memory, "heap_max_in_bytes": memory, "pools": {}},
            "gc": {"collectors": {}},
            "buffer_pools": {},
        },
        "thread_pool": {},
        "fs": {"total": {}, "data": []},
        "transport": {},
        "http": {"current_open": 0, "total_opened": 0},
        "breakers": {},
        "ingest": {"total": {"count": 0, "time_in_millis": 0, "current": 0, "failed": 0}, "pipelines": {}},
        "indexing_pressure": {},
    });
    node.extend(more.as_object().cloned().unwrap_or_default());
    Value::Object(node)
}

/// Memory of the process that is in use, in bytes; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
