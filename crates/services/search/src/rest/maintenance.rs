//! Requests that keep indices and look into them: refresh, flush, merge, statistics, analysis, fields.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest, resolved};
use super::conditions::invalid;
use super::documents::replicas;
use super::message::RestResponse;
use crate::error::SearchError;
use crate::index::{Counters, SearchIndex};
use crate::indices::{ResolveOptions, Resolved};
use crate::mapping::{FieldKind, matches_pattern};

/// The `_shards` of a request to whole indices.
pub(super) fn shards(found: &[Resolved]) -> Value {
    let shards = |resolved: &Resolved| resolved.index.shards().count;
    let total: u64 = found.iter().map(|resolved| shards(resolved) * (1 + replicas(&resolved.index))).sum();
    json!({"total": total, "successful": found.iter().map(shards).sum::<u64>(), "failed": 0})
}

/// `POST /<index>/_refresh`.
pub(super) fn refresh(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let found = resolved(api, request, names, ResolveOptions::default())?;
    request.asker.record()?;
    for Resolved { index, .. } in &found {
        index.feed()?;
        index.refresh()?;
    }
    Ok(RestResponse::json(200, json!({"_shards": shards(&found)})))
}

/// `POST /<index>/_flush`.
pub(super) fn flush(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    if request.flag("force")? == Some(true) && request.flag("wait_if_ongoing")? == Some(false) {
        return Err(invalid("wait_if_ongoing must be true for a force flush"));
    }
    let found = resolved(api, request, names, ResolveOptions::default())?;
    request.asker.record()?;
    for Resolved { index, .. } in &found {
        let counters = index.counters();
        let before = counters.persists.load(Ordering::Relaxed);
        index.persist()?;
        Counters::add(&counters.flushes, 1);
        Counters::add(&counters.flush_persists, counters.persists.load(Ordering::Relaxed).saturating_sub(before));
    }
    Ok(RestResponse::json(200, json!({"_shards": shards(&found)})))
}

/// `POST /<index>/_forcemerge`.
pub(super) fn force_merge(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let most = request.number("max_num_segments")?;
    let only_deletes = request.flag("only_expunge_deletes")?.unwrap_or(false);
    if only_deletes && most.is_some() {
        return Err(invalid(
            "cannot set only_expunge_deletes and max_num_segments at the same time, those two parameters are mutually exclusive",
        ));
    }
    let primary_only = request.flag("primary_only")?.unwrap_or(false);
    let found = resolved(api, request, names, ResolveOptions::default())?;
    request.asker.record()?;
    let merge = |resolved: &Resolved| resolved.index.force_merge(most.unwrap_or(1) as usize);
    found.iter().try_for_each(merge)?;
    let mut of_shards = shards(&found);
    if primary_only {
        of_shards["total"] = of_shards["successful"].clone();
    }
    Ok(RestResponse::json(200, json!({ "_shards": of_shards })))
}

/// `POST /<index>/_cache/clear`: there is no cache of responses.
pub(super) fn clear_cache(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let found = resolved(api, request, names, ResolveOptions::default())?;
    request.asker.record()?;
    Ok(RestResponse::json(200, json!({"_shards": shards(&found)})))
}

/// The statistics of the searches of an index.
fn search_stats(counters: &Counters) -> Value {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let millis = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) / 1_000;
    json!({
        "open_contexts": 0, "query_total": count(&counters.searches), "query_time_in_millis": millis(&counters.search_us),
        "query_current": 0, "fetch_total": count(&counters.searches), "fetch_time_in_millis": 0, "fetch_current": 0,
        "scroll_total": 0, "scroll_time_in_millis": 0, "scroll_current": 0, "suggest_total": 0,
        "suggest_time_in_millis": 0, "suggest_current": 0,
    })
}

/// The statistics of an index, each by the name of its metric.
fn stats_of(index: &SearchIndex) -> Map<String, Value> {
    let counters = index.counters();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let millis = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) / 1_000;
    let segments = index.segments();
    let bytes = index.file_bytes();
    let periodic = count(&counters.persists).saturating_sub(count(&counters.flush_persists));
    let operations = index.unpersisted_operations();
    let unpersisted = index.writer_state().map_or(0, |state| state.bytes);
    let deleted: u64 = segments.iter().map(|(_, _, deleted)| u64::from(*deleted)).sum();
    let body = json!({
        "docs": {"count": index.document_count(), "deleted": deleted},
        "shard_stats": {"total_count": 1},
        "store": {"size_in_bytes": bytes, "total_data_set_size_in_bytes": bytes, "reserved_in_bytes": 0},
        "indexing": {
            "index_total": count(&counters.indexed), "index_time_in_millis": millis(&counters.index_us), "index_current": 0,
            "index_failed": 0, "delete_total": count(&counters.deleted), "delete_time_in_millis": 0, "delete_current": 0,
            "noop_update_total": count(&counters.noops), "is_throttled": false, "throttle_time_in_millis": 0,
        },
        "get": {
            "total": count(&counters.gets), "time_in_millis": 0, "exists_total": count(&counters.found), "exists_time_in_millis": 0,
            "missing_total": count(&counters.gets).saturating_sub(count(&counters.found)), "missing_time_in_millis": 0, "current": 0,
        },
        "search": search_stats(counters),
        "merges": {
            "current": 0, "current_docs": 0, "current_size_in_bytes": 0, "total": count(&counters.merges),
            "total_time_in_millis": 0, "total_docs": 0, "total_size_in_bytes": 0, "total_stopped_time_in_millis": 0,
            "total_throttled_time_in_millis": 0, "total_auto_throttle_in_bytes": 0,
        },
        "refresh": {
            "total": count(&counters.refreshes), "total_time_in_millis": millis(&counters.refresh_us),
            "external_total": count(&counters.refreshes), "external_total_time_in_millis": millis(&counters.refresh_us),
            "listeners": 0,
        },
        "flush": {
            "total": count(&counters.flushes) + periodic, "periodic": periodic, "total_time_in_millis": 0,
            "total_time_excluding_waiting_on_lock_in_millis": 0,
        },
        "warmer": {"current": 0, "total": 0, "total_time_in_millis": 0},
        "query_cache": {
            "memory_size_in_bytes": 0, "total_count": 0, "hit_count": 0, "miss_count": 0, "cache_size": 0, "cache_count": 0,
            "evictions": 0,
        },
        "fielddata": {"memory_size_in_bytes": 0, "evictions": 0},
        "completion": {"size_in_bytes": 0},
        "segments": {
            "count": segments.len(), "memory_in_bytes": 0, "terms_memory_in_bytes": 0, "stored_fields_memory_in_bytes": 0,
            "norms_memory_in_bytes": 0, "doc_values_memory_in_bytes": 0, "index_writer_memory_in_bytes": 0,
            "version_map_memory_in_bytes": 0, "fixed_bit_set_memory_in_bytes": 0, "max_unsafe_auto_id_timestamp": -1,
            "file_sizes": {},
        },
        "translog": {
            "operations": operations, "size_in_bytes": unpersisted, "uncommitted_operations": operations,
            "uncommitted_size_in_bytes": unpersisted, "earliest_last_modified_age": 0,
        },
        "request_cache": {"memory_size_in_bytes": 0, "evictions": 0, "hit_count": 0, "miss_count": 0},
        "recovery": {"current_as_source": 0, "current_as_target": 0, "throttle_time_in_millis": 0},
        "bulk": {
            "total_operations": 0, "total_time_in_millis": 0, "total_size_in_bytes": 0, "avg_time_in_millis": 0,
            "avg_size_in_bytes": 0,
        },
    });
    match body {
        Value::Object(body) => body,
        _ => Map::new(),
    }
}

/// Adds times and sizes as people read them to those that programs read.
fn for_people(stats: &mut Value) {
    let Some(stats) = stats.as_object_mut() else { return };
    let mut texts = Vec::new();
    for (name, value) in stats.iter_mut() {
        for_people(value);
        let number = value.as_u64();
        if let Some((name, millis)) = name.strip_suffix("_in_millis").zip(number) {
            texts.push((name.to_owned(), if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") }));
        }
        if let Some((name, bytes)) = name.strip_suffix("_in_bytes").zip(number) {
            texts.push((name.to_owned(), super::tables::shown_bytes(bytes)));
        }
    }
    if stats.contains_key("exists_time_in_millis") {
        // The statistics of reads have their time under two names.
        texts.extend(
            texts.iter().find(|(name, _)| name == "time").map(|(_, time)| ("getTime".to_owned(), time.clone())),
        );
    }
    stats.extend(texts.into_iter().map(|(name, text)| (name, json!(text))));
}

/// Adds numbers to numbers, through all levels.
fn add(sum: &mut Value, other: &Value) {
    match (sum, other) {
        (Value::Object(sum), Value::Object(other)) => {
            for (name, value) in other {
                match sum.get_mut(name) {
                    Some(known) => add(known, value),
                    None => drop(sum.insert(name.clone(), value.clone())),
                }
            }
        }
        (sum, other) => {
            if let (Some(a), Some(b)) = (sum.as_u64(), other.as_u64()) {
                *sum = json!(a + b);
            }
        }
    }
}

/// The names by which a request asks for statistics, and those that responses have.
fn metric_name(asked: &str) -> &str {
    match asked {
        "merge" => "merges",
        other => other,
    }
}

/// Errors: a metric that is not known, or all and one of them.
fn check_metrics(asked: &str, metrics: &[&str]) -> Result<(), SearchError> {
    let mut unknown: Vec<&str> = metrics.to_vec();
    let template = [
        "docs",
        "shard_stats",
        "store",
        "indexing",
        "get",
        "search",
        "merges",
        "refresh",
        "flush",
        "warmer",
        "query_cache",
        "fielddata",
        "completion",
        "segments",
        "translog",
        "request_cache",
        "recovery",
        "bulk",
        "_all",
        "suggest",
    ];
    unknown.retain(|name| !template.contains(name));
    if let Some(name) = unknown.first() {
        let near = template
            .iter()
            .find(|known| known.len() + 1 == name.len() + 1 || known.starts_with(&name[..name.floor_char_boundary(4)]));
        let hint = near.map_or_else(String::new, |known| format!(" -> did you mean [{known}]?"));
        let reason = format!("request [/_stats/{}] contains unrecognized metric: [{name}]{hint}", asked);
        return Err(SearchError::argument(reason));
    }
    if metrics.len() > 1 && metrics.contains(&"_all") {
        return Err(SearchError::argument(format!(
            "request [/_stats/{}] contains _all and individual metrics [{}]",
            asked, asked
        )));
    }
    Ok(())
}

/// `GET /<index>/_stats/<metric>`.
pub(super) fn stats(api: &Api, request: &AskedRequest<'_>, names: &str, metric: Option<&str>) -> Answer {
    let metrics: Vec<&str> =
        metric.unwrap_or("_all").split(',').map(metric_name).filter(|name| !name.is_empty()).collect();
    let level = request.parameter("level").unwrap_or("indices");
    if !matches!(level, "cluster" | "indices" | "shards") {
        return Err(SearchError::argument(format!(
            "level parameter must be one of [cluster] or [indices] or [shards] but was [{level}]"
        )));
    }
    let mut found =
        resolved(api, request, names, ResolveOptions { forbid_closed: false, ..ResolveOptions::default() })?;
    found.retain(|resolved| request.asker.sees_statistics_of(&resolved.index));
    check_metrics(metric.unwrap_or_default(), &metrics)?;
    let (mut all, mut indices) = (json!({}), Map::new());
    for Resolved { index, .. } in &found {
        let mut stats = stats_of(index);
        if !metrics.contains(&"_all") {
            stats.retain(|name, _| metrics.contains(&name.as_str()));
        }
        select_fields(request, index, &mut stats)?;
        if index.definition().closed && request.flag("include_unloaded_segments")? != Some(true) {
            // A closed index has none that are loaded.
            stats.entry("segments").and_modify(|segments| segments["count"] = json!(0));
        }
        let mut stats = Value::Object(stats);
        if request.flag("human")?.unwrap_or(false) {
            for_people(&mut stats);
        }
        add(&mut all, &stats);
        let definition = index.definition();
        let health = if replicas(index) == 0 { "green" } else { "yellow" };
        let status = if definition.closed { "close" } else { "open" };
        let mut shown = json!({
            "uuid": definition.uuid, "health": health, "status": status, "primaries": stats, "total": stats,
        });
        if level == "shards" {
            let mut shard = stats.clone();
            shard["routing"] =
                json!({"state": "STARTED", "primary": true, "node": api.node_id(), "relocating_node": null});
            shard["commit"] =
                json!({"id": definition.uuid, "generation": 1, "user_data": {}, "num_docs": index.document_count()});
            let highest = index.highest_seq().map_or(-1, |seq| seq as i64);
            shard["seq_no"] = json!({"max_seq_no": highest, "local_checkpoint": highest, "global_checkpoint": highest});
            shown["shards"] = json!({"0": [shard]});
        }
        indices.insert(definition.name.clone(), shown);
    }
    let mut body = json!({"_shards": shards(&found), "_all": {"primaries": all, "total": all}});
    if level != "cluster" {
        body["indices"] = Value::Object(indices);
    }
    Ok(RestResponse::json(200, body))
}

/// Adds the parts that parameters ask for: statistics of fields are counted for none.
fn select_fields(
    request: &AskedRequest<'_>,
    index: &SearchIndex,
    stats: &mut Map<String, Value>,
) -> Result<(), SearchError> {
    let wants = |names: &[&str]| names.iter().any(|name| request.parameter(name).is_some());
    for (part, parameters) in
        [("fielddata", &["fields", "fielddata_fields"][..]), ("completion", &["fields", "completion_fields"])]
    {
        if wants(parameters) && stats.contains_key(part) {
            stats[part]["fields"] = json!({});
        }
    }
    if wants(&["groups"]) && stats.contains_key("search") {
        let mut groups = Map::new();
        let patterns: Vec<&str> = request.parameter("groups").unwrap_or_default().split(',').collect();
        for (name, (searches, micros)) in index.counters().groups() {
            if patterns.iter().any(|pattern| matches_pattern(pattern, &name)) {
                groups.insert(
                    name,
                    json!({"query_total": searches, "query_time_in_millis": micros / 1_000, "query_current": 0}),
                );
            }
        }
        if !groups.is_empty() {
            stats["search"]["groups"] = Value::Object(groups);
        }
    }
    Ok(())
}

/// Longest text of `_analyze`, in bytes.
const ANALYZE_BYTES_MAX: usize = 1 << 20;

/// Most terms of `_analyze` (Elasticsearch's `index.analyze.max_token_count`).
const ANALYZE_TERMS_MAX: usize = 10_000;

/// The analyzer that `_analyze` asks for. Errors: it is not there.
fn analyzer_of(body: &Value, index: Option<&SearchIndex>) -> Result<crate::analysis::Analyzer, SearchError> {
    let analyzers = match index {
        Some(index) => index.analyzers(),
        None => std::sync::Arc::new(crate::analysis::Analyzers::default()),
    };
    Ok(match (body.get("analyzer"), body.get("field"), body.get("normalizer")) {
        (Some(Value::String(name)), ..) => analyzers.get(name)?.clone(),
        (None, Some(Value::String(field)), _) => {
            let index = index.ok_or_else(|| SearchError::argument("a [field] needs an index"))?;
            let mapping = index.mapping();
            let field = mapping.field(field);
            match field {
                Some(field) if field.kind == FieldKind::Text => {
                    analyzers.get(field.analyzer.as_deref().unwrap_or("default"))?.clone()
                }
                Some(field) if field.analyzer.is_some() => {
                    analyzers.normalizer(field.analyzer.as_deref().unwrap_or_default())?.clone()
                }
                Some(_) => analyzers.get("keyword")?.clone(),
                None => analyzers.get("default")?.clone(),
            }
        }
        (None, None, Some(Value::String(name))) => analyzers.normalizer(name)?.clone(),
        _ if ["tokenizer", "filter", "char_filter"].iter().any(|part| body.get(part).is_some()) => {
            analyzers.of_request(body)?
        }
        _ => analyzers.get("default")?.clone(),
    })
}

/// `POST /<index>/_analyze`.
pub(super) fn analyze(api: &Api, request: &AskedRequest<'_>, name: Option<&str>) -> Answer {
    let mut body = request.json()?.unwrap_or_else(|| json!({}));
    for (name, value) in &request.parameters {
        if matches!(name.as_str(), "text" | "analyzer" | "field" | "tokenizer") && body.get(name).is_none() {
            body[name] = json!(value);
        }
    }
    let texts: Vec<&str> = match &body["text"] {
        Value::String(text) => vec![text],
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect(),
        _ => return Err(invalid("text is missing")),
    };
    if texts.iter().map(|text| text.len()).sum::<usize>() > ANALYZE_BYTES_MAX {
        return Err(SearchError::argument(format!("_analyze reads at most {ANALYZE_BYTES_MAX} bytes")));
    }
    let index = match name {
        Some(name) => api
            .indices
            .resolve(name, ResolveOptions::default(), &request.asker)?
            .into_iter()
            .next()
            .map(|found| found.index),
        None => None,
    };
    let analyzer = analyzer_of(&body, index.as_deref())?;
    let (mut tokens, mut position, mut offset) = (Vec::new(), 0, 0);
    for text in texts {
        let terms = analyzer.analyze(text);
        if tokens.len() + terms.len() > ANALYZE_TERMS_MAX {
            return Err(SearchError::new(
                500,
                "illegal_state_exception",
                format!(
                    "The number of tokens produced by calling _analyze has exceeded the allowed maximum of [{ANALYZE_TERMS_MAX}]."
                ),
            ));
        }
        let mut units = Utf16Offsets { text, byte: 0, units: 0 };
        let mut chars = |byte: usize| units.at(byte);
        for term in &terms {
            tokens.push(json!({
                "token": term.text, "start_offset": offset + chars(term.from), "end_offset": offset + chars(term.to),
                "type": if term.text.chars().all(|c| c.is_ascii_digit()) { "<NUM>" } else { "<ALPHANUM>" },
                "position": position + term.position,
            }));
        }
        position += terms.last().map_or(0, |term| term.position + 1) + 100;
        offset += text.encode_utf16().count() + 1;
    }
    Ok(RestResponse::json(200, json!({"tokens": tokens})))
}

/// Offsets in a text as UTF-16 counts them. It goes on from the last one: terms follow each other, and a text may be long.
struct Utf16Offsets<'a> {
    text: &'a str,
    byte: usize,
    units: usize,
}

impl Utf16Offsets<'_> {
    fn at(&mut self, byte: usize) -> usize {
        if byte < self.byte {
            (self.byte, self.units) = (0, 0);
        }
        self.units += self.text.get(self.byte..byte).map_or(0, |part| part.encode_utf16().count());
        self.byte = byte;
        self.units
    }
}

/// What fields of one name have in common over the indices.
#[derive(Default)]
struct FieldCaps {
    indices: Vec<String>,
    searchable: bool,
    aggregatable: bool,
}

/// `GET /<index>/_field_caps`.
pub(super) fn field_caps(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let body = request.json()?.unwrap_or_else(|| json!({}));
    if let Some(name) = body.as_object().into_iter().flatten().map(|(name, _)| name).find(|name| *name != "fields") {
        return Err(SearchError::unsupported(format!("[{name}] of _field_caps")));
    }
    let patterns: Vec<String> = match (request.parameter("fields"), &body["fields"]) {
        (Some(names), _) => names.split(',').map(str::to_owned).collect(),
        (None, Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        (None, Value::String(name)) => vec![name.clone()],
        _ => return Err(invalid("no fields specified")),
    };
    let found = resolved(api, request, names, ResolveOptions::default())?;
    let mut fields: BTreeMap<String, BTreeMap<String, FieldCaps>> = BTreeMap::new();
    for Resolved { index, .. } in &found {
        let mapping = index.mapping();
        // Also by the names that fields of the type `alias` give them.
        for (name, field) in mapping.named("*") {
            if patterns.iter().any(|pattern| matches_pattern(pattern, name)) {
                let caps = fields.entry(name.to_owned()).or_default().entry(field.type_name.clone()).or_default();
                caps.indices.push(index.name());
                caps.searchable |= field.indexed;
                caps.aggregatable |= field.doc_values;
            }
        }
    }
    let mut shown = Map::new();
    for (path, types) in fields {
        let several = types.len() > 1;
        let mut by_type = Map::new();
        for (kind, caps) in types {
            let mut one = json!({
                "type": kind, "metadata_field": false, "searchable": caps.searchable, "aggregatable": caps.aggregatable,
            });
            if several {
                one["indices"] = json!(caps.indices);
            }
            by_type.insert(kind, one);
        }
        shown.insert(path, Value::Object(by_type));
    }
    let indices: Vec<String> = found.iter().map(|resolved| resolved.index.name()).collect();
    Ok(RestResponse::json(200, json!({"indices": indices, "fields": shown})))
}
