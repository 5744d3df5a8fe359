//! Which parameters of its URL each route knows. Any other one refuses the request, as in Elasticsearch: one that is misspelt would make
//! it do more than it asks for.
//!
//! The lists are those of the REST specification of OpenSearch 3.1 and of the clients for Python of Elasticsearch 8.19 and OpenSearch
//! 3.0. A parameter of a list that is not built is refused by its handler, or changes nothing that a client can see (`preference`).
//!
//! A body may stand in the URL for clients that cannot send one with GET: `source`, with `source_content_type`.

use bytes::Bytes;

use super::message::RestRequest;
use super::routing::{CatRoute, DocumentRoute, IndexRoute, NodeRoute, Route, SearchRoute};
use crate::error::SearchError;

type Names = &'static [&'static str];

/// Of every route: the form of the response.
const ALL: Names = &["pretty", "human", "error_trace", "filter_path", "format"];
/// A body in the URL.
const SOURCE: Names = &["source", "source_content_type"];
/// How long a change of the cluster may take.
const MASTER: Names = &["master_timeout", "cluster_manager_timeout", "timeout"];
const LOCAL: Names = &["local", "master_timeout", "cluster_manager_timeout"];
/// Which indices names stand for.
const INDICES: Names = &["ignore_unavailable", "allow_no_indices", "expand_wildcards", "ignore_throttled"];
const ACTIVE: Names = &["wait_for_active_shards"];
const DEFAULTS: Names = &["flat_settings", "include_defaults"];
const FLAT: Names = &["flat_settings"];
/// A query in the URL.
const QUERY: Names = &["q", "df", "analyzer", "analyze_wildcard", "default_operator", "lenient"];
/// Parts of the source; the two older names are those of Elasticsearch 6.
const FILTER: Names = &["_source", "_source_includes", "_source_excludes", "_source_include", "_source_exclude"];
/// Of every write of a document.
const WRITE: Names = &["refresh", "routing", "timeout", "wait_for_active_shards"];
const NEW: Names = &["pipeline", "require_alias", "require_data_stream", "include_source_on_error"];
const SEQUENCE: Names = &["if_seq_no", "if_primary_term"];
const VERSION: Names = &["version", "version_type"];
/// Of every read by id.
const READ: Names = &["preference", "realtime", "refresh", "routing", "stored_fields"];
const TASKS: Names = &["actions", "nodes", "node_id", "group_by", "parent_task_id", "wait_for_completion"];
const STATS: Names =
    &["completion_fields", "fielddata_fields", "fields", "groups", "level", "include_unloaded_segments"];

const CAT: Names = &[
    "actions",
    "bytes",
    "detailed",
    "full_id",
    "h",
    "health",
    "help",
    "include_bootstrap",
    "include_unloaded_segments",
    "nodes",
    "parent_task_id",
    "pri",
    "s",
    "time",
    "timeout",
    "ts",
    "v",
    "wait_for_completion",
];

const HEALTH: Names = &[
    "awareness_attribute",
    "ensure_node_weighed_in",
    "level",
    "wait_for_events",
    "wait_for_no_initializing_shards",
    "wait_for_no_relocating_shards",
    "wait_for_nodes",
    "wait_for_status",
];

const NODES: Names = &[
    "ignore_idle_threads",
    "include_segment_file_sizes",
    "interval",
    "snapshots",
    "sort",
    "threads",
    "timeout",
    "type",
    "types",
];

const SEARCH: Names = &[
    "allow_partial_search_results",
    "batched_reduce_size",
    "cancel_after_time_interval",
    "ccs_minimize_roundtrips",
    "docvalue_fields",
    "explain",
    "force_synthetic_source",
    "from",
    "include_named_queries_score",
    "max_concurrent_shard_requests",
    "min_compatible_shard_node",
    "phase_took",
    "pre_filter_shard_size",
    "preference",
    "request_cache",
    "rest_total_hits_as_int",
    "routing",
    "scroll",
    "search_pipeline",
    "search_type",
    "seq_no_primary_term",
    "size",
    "sort",
    "stats",
    "stored_fields",
    "suggest_field",
    "suggest_mode",
    "suggest_size",
    "suggest_text",
    "terminate_after",
    "timeout",
    "track_scores",
    "track_total_hits",
    "typed_keys",
    "verbose_pipeline",
    "version",
];

const MULTI_SEARCH: Names = &[
    "ccs_minimize_roundtrips",
    "include_named_queries_score",
    "max_concurrent_searches",
    "max_concurrent_shard_requests",
    "pre_filter_shard_size",
    "rest_total_hits_as_int",
    "routing",
    "search_type",
    "typed_keys",
];

const OPEN_POINT: Names = &[
    "allow_partial_pit_creation",
    "allow_partial_search_results",
    "keep_alive",
    "max_concurrent_shard_requests",
    "preference",
    "routing",
];

/// Of all requests by query.
const BY_QUERY: Names = &[
    "conflicts",
    "from",
    "max_docs",
    "pipeline",
    "preference",
    "refresh",
    "request_cache",
    "requests_per_second",
    "routing",
    "scroll",
    "scroll_size",
    "search_timeout",
    "search_type",
    "size",
    "slices",
    "sort",
    "stats",
    "terminate_after",
    "timeout",
    "wait_for_active_shards",
    "wait_for_completion",
];

const REINDEX: Names = &[
    "max_docs",
    "refresh",
    "requests_per_second",
    "require_alias",
    "scroll",
    "slices",
    "timeout",
    "wait_for_active_shards",
    "wait_for_completion",
];

/// The parameters of a search of `_msearch`, in its header.
const HEADER: Names = &[
    "allow_partial_search_results",
    "cancel_after_time_interval",
    "ccs_minimize_roundtrips",
    "max_concurrent_shard_requests",
    "preference",
    "request_cache",
    "rest_total_hits_as_int",
    "routing",
    "search_type",
    "typed_keys",
];

fn of_node(route: NodeRoute) -> &'static [Names] {
    use NodeRoute as Of;
    match route {
        Of::Info | Of::Authenticate => &[],
        Of::Health => &[HEALTH, INDICES, LOCAL, MASTER, ACTIVE],
        Of::Settings => &[DEFAULTS, MASTER],
        Of::PutSettings => &[FLAT, MASTER, SOURCE],
        Of::State => &[INDICES, FLAT, LOCAL, &["wait_for_metadata_version", "wait_for_timeout"]],
        Of::Stats => &[FLAT, &["timeout", "include_remotes", "node_id"]],
        Of::PendingTasks => &[LOCAL],
        Of::Nodes => &[STATS, NODES, FLAT],
        Of::Tasks => &[TASKS, &["detailed", "timeout"]],
        Of::Task => &[&["timeout", "wait_for_completion"]],
        Of::CancelTask => &[TASKS],
        Of::Rethrottle => &[&["requests_per_second"]],
        Of::Templates => &[DEFAULTS, LOCAL],
        Of::PutTemplate => &[MASTER, SOURCE, &["create", "order", "cause"]],
        Of::DeleteTemplate => &[MASTER],
    }
}

fn of_index(route: IndexRoute) -> &'static [Names] {
    use IndexRoute as Of;
    match route {
        Of::Create => &[MASTER, ACTIVE, SOURCE],
        Of::Delete => &[INDICES, MASTER],
        Of::Exists => &[INDICES, DEFAULTS, LOCAL],
        Of::Get => &[INDICES, DEFAULTS, LOCAL, &["features"]],
        Of::Mapping => &[INDICES, LOCAL],
        Of::PutMapping => &[INDICES, MASTER, SOURCE, &["write_index_only"]],
        Of::FieldMapping => &[INDICES, LOCAL, &["include_defaults"]],
        Of::Settings => &[INDICES, DEFAULTS, LOCAL],
        Of::PutSettings => &[INDICES, MASTER, FLAT, SOURCE, &["preserve_existing", "reopen"]],
        Of::Open => &[INDICES, MASTER, ACTIVE, &["wait_for_completion", "task_execution_timeout"]],
        Of::Close => &[INDICES, MASTER, ACTIVE],
        Of::UpdateAliases => &[MASTER, SOURCE],
        Of::Aliases => &[INDICES, LOCAL],
        Of::PutAlias => &[MASTER, SOURCE],
        Of::DeleteAlias => &[MASTER],
        Of::Refresh => &[INDICES],
        Of::Flush => &[INDICES, &["force", "wait_if_ongoing"]],
        Of::ForceMerge => {
            &[INDICES, &["flush", "max_num_segments", "only_expunge_deletes", "primary_only", "wait_for_completion"]]
        }
        Of::ClearCache => &[INDICES, &["fielddata", "fields", "file", "index", "query", "request"]],
        Of::Stats => &[INDICES, STATS, &["forbid_closed_indices", "include_segment_file_sizes"]],
        Of::Analyze => &[SOURCE, &["index", "text", "analyzer", "field", "tokenizer"]],
        Of::FieldCaps => {
            &[INDICES, SOURCE, &["fields", "filters", "include_empty_fields", "include_unmapped", "types"]]
        }
        Of::Resolve => &[INDICES],
    }
}

fn of_search(route: SearchRoute) -> &'static [Names] {
    use SearchRoute as Of;
    match route {
        Of::Search => &[INDICES, QUERY, FILTER, SEARCH, SOURCE],
        Of::Scroll => &[SOURCE, &["rest_total_hits_as_int", "scroll", "scroll_id"]],
        Of::ClearScroll => &[SOURCE, &["scroll_id"]],
        Of::OpenPoint => &[INDICES, OPEN_POINT],
        Of::ClosePoint => &[SOURCE],
        Of::CloseAllPoints | Of::Points => &[],
        Of::MultiSearch => &[INDICES, MULTI_SEARCH, SOURCE],
        Of::Count => &[INDICES, QUERY, SOURCE, &["min_score", "preference", "routing", "terminate_after"]],
        Of::Validate => &[INDICES, QUERY, SOURCE, &["all_shards", "explain", "rewrite"]],
        Of::DeleteByQuery | Of::UpdateByQuery => &[INDICES, QUERY, FILTER, BY_QUERY, VERSION, SOURCE],
        Of::Reindex => &[REINDEX, SOURCE],
    }
}

fn of_document(route: DocumentRoute) -> &'static [Names] {
    use DocumentRoute as Of;
    match route {
        Of::Bulk => &[WRITE, NEW, FILTER, &["batch_size", "list_executed_pipelines", "type"]],
        Of::MultiGet => &[READ, FILTER, SOURCE, &["force_synthetic_source"]],
        Of::Index => &[WRITE, NEW, SEQUENCE, VERSION, &["op_type"]],
        Of::Create => &[WRITE, NEW, SEQUENCE, VERSION],
        Of::Get => &[READ, FILTER, VERSION, &["force_synthetic_source"]],
        Of::Source => &[READ, FILTER, VERSION],
        Of::Delete => &[WRITE, SEQUENCE, VERSION],
        Of::Update => &[
            WRITE,
            FILTER,
            SEQUENCE,
            VERSION,
            &["doc_as_upsert", "lang", "pipeline", "retry_on_conflict", "require_alias", "include_source_on_error"],
        ],
    }
}

/// All names that a route knows.
fn known(route: Route) -> impl Iterator<Item = &'static str> + Clone {
    let lists = match route {
        Route::Node(route) => of_node(route),
        Route::Cat(CatRoute::Help) => &[CAT],
        Route::Cat(_) => &[CAT, INDICES, LOCAL],
        Route::Index(route) => of_index(route),
        Route::Search(route) => of_search(route),
        Route::Document(route) => of_document(route),
    };
    lists.iter().chain(&[ALL]).flat_map(|names| names.iter().copied())
}

/// Errors: a parameter of the URL that the route does not know.
pub(super) fn check(request: &RestRequest, route: Route) -> Result<(), SearchError> {
    let known = known(route);
    let unknown: Vec<&str> = request
        .parameters
        .keys()
        .map(String::as_str)
        .filter(|name| !known.clone().any(|other| other == *name))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = unknown.iter().map(|name| format!("[{name}]{}", hint(name, known.clone()))).collect();
    let plural = if unknown.len() > 1 { "s" } else { "" };
    let path = request.path.join("/");
    Err(SearchError::argument(format!(
        "request [/{path}] contains unrecognized parameter{plural}: {}",
        shown.join(", ")
    )))
}

/// Errors: a parameter that a search of `_msearch` cannot have.
pub(super) fn check_header(name: &str) -> Result<(), SearchError> {
    match HEADER.contains(&name) || INDICES.contains(&name) {
        true => Ok(()),
        false => Err(SearchError::argument(format!("key [{name}] is not supported in the metadata section"))),
    }
}

/// The names of which more than half of the letters are those of `name`, the nearest first.
fn hint(name: &str, known: impl Iterator<Item = &'static str>) -> String {
    // Longer than every name that there is.
    if name.len() > 64 {
        return String::new();
    }
    let share = |other: &str| {
        let longest = name.chars().count().max(other.chars().count());
        (distance(name, other) * 1000).checked_div(longest).unwrap_or(1000)
    };
    let mut near: Vec<(usize, &str)> = known.map(|other| (share(other), other)).filter(|(far, _)| *far < 500).collect();
    near.sort_unstable();
    near.dedup();
    match near.as_slice() {
        [] => String::new(),
        [(_, one)] => format!(" -> did you mean [{one}]?"),
        several => {
            let names: Vec<&str> = several.iter().map(|(_, name)| *name).collect();
            format!(" -> did you mean any of [{}]?", names.join(", "))
        }
    }
}

/// Letters to change, add and leave out to make one text the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (at, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The request with the body that stands in its URL; none if none does. Errors: it has another body, or its type is not JSON.
pub(super) fn with_source(request: &RestRequest, route: Route) -> Result<Option<RestRequest>, SearchError> {
    let Some(source) = request.parameter("source") else { return Ok(None) };
    if !known(route).any(|name| name == "source") {
        return Ok(None);
    }
    if !request.body.iter().all(u8::is_ascii_whitespace) {
        return Err(SearchError::argument("a request has a body or the parameter [source], not both"));
    }
    let Some(kind) = request.parameter("source_content_type") else {
        return Err(SearchError::argument("source and source_content_type parameters are required"));
    };
    if !kind.contains("json") {
        return Err(SearchError::unsupported(format!("[source_content_type] of [{kind}]")));
    }
    let mut read = RestRequest { body: Bytes::from(source.to_owned()), ..request.clone() };
    read.parameters.retain(|name, _| !SOURCE.contains(&name.as_str()));
    Ok(Some(read))
}
