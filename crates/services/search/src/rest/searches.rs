//! Requests that search: `_search`, `_msearch`, `_count`, scrolls and points in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::identity::Action;
use serde_json::{Value, json};

use super::api::{Answer, Api, AskedRequest};
use super::conditions::invalid;
use super::contexts::{NOTHING, OpenContext, keep_alive};
use super::documents::SOURCE_BYTES;
use super::lookups;
use super::message::{RestMethod, RestRequest, RestResponse};
use crate::error::SearchError;
use crate::hits::{self, SearchBody, SearchLimits, SearchTarget};
use crate::index::now_millis;
use crate::indices::{Indices, ResolveOptions, Resolved};
use crate::memory::MemoryUse;
use crate::query::query_string_of;
use crate::rights::Asker;

/// Most searches of one `_msearch`.
const SEARCHES_MAX: usize = 1_000;

/// Memory of the aggregations of one search inside of the library, in bytes.
const AGGREGATION_BYTES: u64 = 128 << 20;

/// Memory of what one search finds, in bytes: the sources of a response, as JSON in memory.
const FOUND_BYTES: u64 = 256 << 20;

/// How long the searches of one `_msearch` take together that end for lack of memory; then the rest is not tried.
const WAITED_MAX: Duration = Duration::from_secs(15);

/// Bytes of all responses of one `_msearch`.
const RESPONSE_BYTES: usize = 128 << 20;

/// The furthest hit where an index says nothing (Elasticsearch's `index.max_result_window`).
const WINDOW: usize = 10_000;

/// Buckets of one response (Elasticsearch's `search.max_buckets`).
const BUCKETS: u32 = 65_535;

/// What a search of these indices may use.
pub(super) fn limits_of(targets: &[SearchTarget]) -> SearchLimits {
    let window = |target: &SearchTarget| {
        let value = target.index.setting("index.max_result_window");
        value.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(WINDOW)
    };
    SearchLimits {
        buckets: BUCKETS,
        memory_bytes: AGGREGATION_BYTES,
        found_bytes: FOUND_BYTES,
        of_all: None,
        owner: None,
        part_of: None,
        source_bytes: SOURCE_BYTES,
        cheap: false,
        now: now_millis() as i64,
        // More would be hundreds of megabytes of hits.
        window: targets.iter().map(window).min().unwrap_or(WINDOW).min(1_000_000),
    }
}

/// The same, with the cluster's setting of buckets, which is never more than the default, and within the memory of all searches.
fn limits_in(api: &Api, request: &AskedRequest<'_>, targets: &[SearchTarget]) -> SearchLimits {
    let value = api.indices.cluster_setting("search.max_buckets");
    let most = value.and_then(|value| match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    });
    let buckets = most.and_then(|most| u32::try_from(most).ok()).map_or(BUCKETS, |most| most.min(BUCKETS));
    let of_all = Some(Arc::clone(api.indices.found_memory()));
    let owner = Some(request.asker.caller().session());
    SearchLimits { buckets, of_all, owner, cheap: is_cheap(&api.indices), ..limits_of(targets) }
}

/// Whether the cluster's settings refuse queries that look at many terms.
pub(super) fn is_cheap(indices: &Indices) -> bool {
    let value = indices.cluster_setting("search.allow_expensive_queries");
    value.is_some_and(|value| value == "false" || value == Value::Bool(false))
}

/// The indices of a search, each as it is now.
pub(super) fn targets(api: &Api, request: &AskedRequest<'_>, names: &str) -> Result<Vec<SearchTarget>, SearchError> {
    let options = ResolveOptions::default().of(&request.parameters)?;
    Ok(views(api.indices.resolve(names, options, &request.asker)?, &request.asker))
}

fn views(found: Vec<Resolved>, asker: &Asker) -> Vec<SearchTarget> {
    let notes = || asker.notes().clone();
    let target = |Resolved { index, filter, scope }: Resolved| {
        let named = SearchTarget { view: index.view(), index, filter, is_partial: false, notes: notes() };
        named.within(scope.as_deref())
    };
    found.into_iter().map(target).collect()
}

fn check_body(request: &AskedRequest<'_>, body: &SearchBody) -> Result<(), SearchError> {
    let total = request.parameter("rest_total_hits_as_int").is_some_and(|value| value != "false");
    if total
        && body.track_total_hits != u64::MAX
        && body.track_total_hits != 0
        && body.track_total_hits != WINDOW as u64
    {
        return Err(SearchError::argument(format!(
            "[rest_total_hits_as_int] cannot be used if the tracking of total hits is not accurate, got {}",
            body.track_total_hits
        )));
    }
    Ok(())
}

fn read(api: &Api, request: &AskedRequest<'_>) -> Result<SearchBody, SearchError> {
    let mut json = request.json()?;
    json.as_mut().map_or(Ok(()), |json| lookups::expand(api, &request.asker, json))?;
    let mut body = SearchBody::read(json.as_ref(), &request.parameters)?;
    let total = request.parameter("rest_total_hits_as_int").is_some_and(|value| value != "false");
    let says = json.as_ref().is_some_and(|json| json.get("track_total_hits").is_some())
        || request.parameter("track_total_hits").is_some();
    if total && !says {
        body.counts_all();
    }
    check_body(request, &body)?;
    Ok(body)
}

/// `GET /<index>/_search`.
pub(super) fn search(api: &Api, request: &AskedRequest<'_>, names: Option<&str>) -> Answer {
    let mut body = read(api, request)?;
    if let Some(pit) = body.pit.take() {
        if names.is_some() {
            return Err(invalid("[indices] cannot be used with point in time"));
        }
        if request.parameter("scroll").is_some() {
            return Err(invalid("using [point in time] is not allowed in a scroll context"));
        }
        return search_point_in_time(api, request, &body, &pit, None);
    }
    if let Some(keep) = request.parameter("scroll") {
        return begin_scroll(api, request, body, keep, names.unwrap_or("_all"));
    }
    check_slice(&body, false)?;
    let options = ResolveOptions { forbid_closed: false, ..ResolveOptions::default() }.of(&request.parameters)?;
    body.boosted_names().try_for_each(|name| api.indices.resolve(name, options, &request.asker).map(drop))?;
    let targets = targets(api, request, names.unwrap_or("_all"))?;
    let found = hits::search(&targets, &body, &limits_in(api, request, &targets), &request.cancelled)?;
    Ok(RestResponse::json(200, found.response).within(found.memory))
}

/// Errors: a part of the documents outside of a scroll and a point in time.
fn check_slice(body: &SearchBody, in_context: bool) -> Result<(), SearchError> {
    match body.is_slice() && !in_context {
        true => Err(invalid("`slice` cannot be used outside of a scroll context or PIT context")),
        false => Ok(()),
    }
}

fn search_point_in_time(
    api: &Api,
    request: &AskedRequest<'_>,
    body: &SearchBody,
    pit: &Value,
    part_of: Option<u64>,
) -> Answer {
    let id = pit["id"].as_str().ok_or_else(|| SearchError::argument("point in time id is missing"))?;
    let keep = pit["keep_alive"].as_str().map(|keep| keep_alive(&api.indices, keep)).transpose()?;
    let context = api.contexts.get(id, keep, &request.asker)?;
    request.asker.use_as(&context.asker);
    context.asker.still()?;
    let limits = SearchLimits { part_of, ..limits_in(api, request, &context.targets) };
    let found = hits::search(&context.targets, body, &limits, &request.cancelled)?;
    let mut response = found.response;
    context.asker.still()?;
    response["pit_id"] = json!(id);
    Ok(RestResponse::json(200, response).within(found.memory))
}

fn begin_scroll(api: &Api, request: &AskedRequest<'_>, mut body: SearchBody, keep: &str, names: &str) -> Answer {
    let keep = keep_alive(&api.indices, keep)?;
    if body.size == 0 {
        return Err(invalid("[size] cannot be [0] in a scroll context"));
    }
    if body.from > 0 {
        return Err(invalid("using [from] is not allowed in a scroll context"));
    }
    if body.continues() {
        return Err(invalid("`search_after` cannot be used in a scroll context."));
    }
    if body.collapses() {
        return Err(invalid("cannot use `collapse` in a scroll context"));
    }
    if request.flag("request_cache")?.unwrap_or(false) {
        return Err(invalid("[request_cache] cannot be used in a scroll context"));
    }
    if body.track_total_hits != u64::MAX && request.parameter("track_total_hits").is_some() {
        return Err(invalid("disabling [track_total_hits] is not allowed in a scroll context"));
    }
    let targets = targets(api, request, names)?;
    let limits = limits_in(api, request, &targets);
    if body.size > limits.window {
        return Err(SearchError::argument(format!(
            "Batch size is too large, size must be less than or equal to: [{}] but was [{}]. Scroll batch sizes cost as much memory \
             as result windows so they are controlled by the [index.max_result_window] index level setting.",
            limits.window, body.size
        )));
    }
    body.counts_all();
    let hidden = body.hide_ties();
    let found = hits::search(&targets, &body, &limits, &request.cancelled)?;
    let mut response = found.response;
    hidden.strip(&mut response);
    // Pages after the first have none.
    body.without_aggregations();
    let (asker, bytes) = (request.asker.clone(), body.query_bytes() + request.body.len());
    let context = OpenContext { asker, targets, scroll: Some((body, found.last, hidden)), kept: keep, bytes };
    let id = api.contexts.open(context)?;
    response["_scroll_id"] = json!(id);
    Ok(RestResponse::json(200, response).within(found.memory))
}

/// `POST /_search/scroll`.
pub(super) fn scroll(api: &Api, request: &AskedRequest<'_>, in_path: Option<&str>) -> Answer {
    let body = request.json()?.unwrap_or_else(|| json!({}));
    for (name, _) in body.as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "scroll_id" | "scroll") {
            return Err(SearchError::argument(format!(
                "Unknown parameter [{name}] in request body or parameter is of the wrong type"
            )));
        }
    }
    let id = body["scroll_id"].as_str().or(in_path).or(request.parameter("scroll_id"));
    let id = id.ok_or_else(|| invalid("scrollId is missing"))?.to_owned();
    let keep = body["scroll"].as_str().or(request.parameter("scroll"));
    let keep = keep.map(|keep| keep_alive(&api.indices, keep)).transpose()?;
    let total_as_int = request.flag("rest_total_hits_as_int")?.unwrap_or(false);
    if id == NOTHING {
        let mut body = SearchBody::read(None, &BTreeMap::new())?;
        body.size = 0;
        body.counts_all();
        body.shows_total_as(total_as_int);
        let mut response = hits::search(&[], &body, &limits_in(api, request, &[]), &request.cancelled)?.response;
        response["_scroll_id"] = json!(id);
        return Ok(RestResponse::json(200, response));
    }
    // One page at a time: the context is taken out while it works.
    let mut context = api.contexts.take(&id, &request.asker)?;
    let page = next_page(api, &mut context, request, total_as_int);
    if let Some(keep) = keep {
        context.kept = keep;
    }
    api.contexts.put_back(&id, context);
    let (mut response, memory) = page?;
    response["_scroll_id"] = json!(id);
    Ok(RestResponse::json(200, response).within(memory))
}

fn next_page(
    api: &Api,
    context: &mut OpenContext,
    request: &AskedRequest<'_>,
    total_as_int: bool,
) -> Result<(Value, Arc<MemoryUse>), SearchError> {
    request.asker.use_as(&context.asker);
    context.asker.still()?;
    let limits = limits_in(api, request, &context.targets);
    let Some((body, last, hidden)) = &mut context.scroll else {
        return Err(SearchError::argument("a point in time is not a scroll: search it with [pit]"));
    };
    let mut next = body.clone();
    next.shows_total_as(total_as_int);
    next.without_aggregations();
    match last.clone() {
        Some(values) => next.continue_after(values),
        // The last page was empty.
        None => next.size = 0,
    }
    let found = hits::search(&context.targets, &next, &limits, &request.cancelled)?;
    context.asker.still()?;
    *last = found.last;
    let mut response = found.response;
    hidden.strip(&mut response);
    Ok((response, found.memory))
}

/// `DELETE /_search/scroll`.
pub(super) fn clear_scroll(api: &Api, request: &AskedRequest<'_>, in_path: Option<&str>) -> Answer {
    let body = request.json()?.unwrap_or_else(|| json!({}));
    let ids = ids_of(&body["scroll_id"], in_path);
    let freed = match ids.iter().any(|id| id == "_all") {
        true => api.contexts.close_scrolls(&request.caller),
        false => ids.iter().filter(|id| api.contexts.close(id, &request.caller)).count(),
    };
    if ids.is_empty() {
        return Err(invalid("no scroll ids specified"));
    }
    let status = if freed == 0 && !ids.iter().any(|id| id == "_all") { 404 } else { 200 };
    Ok(RestResponse::json(status, json!({"succeeded": true, "num_freed": freed})))
}

fn ids_of(value: &Value, in_path: Option<&str>) -> Vec<String> {
    match value {
        Value::String(id) => vec![id.clone()],
        Value::Array(ids) => ids.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => in_path.map(|ids| ids.split(',').map(str::to_owned).collect()).unwrap_or_default(),
    }
}

/// `POST /<index>/_pit` and `POST /<index>/_search/point_in_time`.
pub(super) fn open_point_in_time(api: &Api, request: &AskedRequest<'_>, names: &str, key: &str) -> Answer {
    let keep = request.parameter("keep_alive").ok_or_else(|| invalid("[keep_alive] is not specified"))?;
    let keep = keep_alive(&api.indices, keep)?;
    let targets = targets(api, request, names)?;
    let shards = shards(&targets);
    let id =
        api.contexts.open(OpenContext { asker: request.asker.clone(), targets, scroll: None, kept: keep, bytes: 0 })?;
    Ok(RestResponse::json(200, json!({key: id, "_shards": shards, "creation_time": now_millis()})))
}

/// `GET /_search/point_in_time/_all`.
pub(super) fn points_in_time(api: &Api, request: &AskedRequest<'_>) -> RestResponse {
    let shown = |(id, opened, kept): (String, u64, std::time::Duration)| json!({"pit_id": id, "creation_time": opened, "keep_alive": kept.as_millis() as u64});
    let points: Vec<Value> = api.contexts.points(&request.caller).into_iter().map(shown).collect();
    RestResponse::json(200, json!({ "pits": points }))
}

/// `DELETE /_pit` and `DELETE /_search/point_in_time`.
pub(super) fn close_point_in_time(api: &Api, request: &AskedRequest<'_>, all: bool) -> Answer {
    let body = request.json()?.unwrap_or_else(|| json!({}));
    if all {
        let closed = api.contexts.close_points(&request.caller);
        let closed: Vec<Value> = closed.into_iter().map(|id| json!({"pit_id": id, "successful": true})).collect();
        return Ok(RestResponse::json(200, json!({"pits": closed})));
    }
    if let Some(ids) = body.get("pit_id") {
        let closed = ids_of(ids, None)
            .into_iter()
            .map(|id| json!({"successful": api.contexts.close(&id, &request.caller), "pit_id": id}));
        return Ok(RestResponse::json(200, json!({"pits": closed.collect::<Vec<_>>()})));
    }
    let id = body["id"].as_str().ok_or_else(|| invalid("point in time id is missing"))?;
    let freed = usize::from(api.contexts.close(id, &request.caller));
    let status = if freed == 0 { 404 } else { 200 };
    Ok(RestResponse::json(status, json!({"succeeded": freed > 0, "num_freed": freed})))
}

/// `GET /<index>/_count`.
pub(super) fn count(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let mut body = request.json()?.unwrap_or_else(|| json!({}));
    lookups::expand(api, &request.asker, &mut body)?;
    for (name, _) in body.as_object().into_iter().flatten() {
        if name != "query" {
            return Err(SearchError::parsing(format!("request does not support [{name}]")));
        }
    }
    if request.number("terminate_after")?.unwrap_or(0) > 0 {
        return Err(SearchError::unsupported("[terminate_after] of a count"));
    }
    let by_text = query_string_of(|name| request.parameter(name));
    let query = by_text.or_else(|| body.get("query").cloned());
    let least = request.parameter("min_score").map(|text| {
        text.parse().map_err(|_| {
            SearchError::argument(format!("Failed to parse float parameter [min_score] with value [{text}]"))
        })
    });
    let targets = targets(api, request, names)?;
    let count = hits::count(
        &targets,
        query.as_ref(),
        &limits_in(api, request, &targets),
        least.transpose()?,
        &request.cancelled,
    )?;
    Ok(RestResponse::json(200, json!({"count": count, "_shards": shards(&targets)})))
}

/// The `_shards` of a response.
fn shards(targets: &[SearchTarget]) -> Value {
    let shards: u64 = targets.iter().map(SearchTarget::shards).sum();
    json!({"total": shards, "successful": shards, "skipped": 0, "failed": 0})
}

/// `POST /_msearch`: pairs of lines, what to search and the search.
pub(super) fn multi_search(api: &Api, request: &AskedRequest<'_>, default: Option<&str>) -> Answer {
    let text = std::str::from_utf8(&request.body).map_err(|_| SearchError::body("the body is not UTF-8"))?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(SearchError::argument("The msearch request must be terminated by a newline [\\n]"));
    }
    let parse = |line: &str| {
        crate::strict::value(line.as_bytes()).map_err(|error| SearchError::body(format!("a line of _msearch: {error}")))
    };
    let mut lines = text.lines();
    let mut pairs = Vec::new();
    while let Some(header) = lines.next() {
        if header.trim().is_empty() && pairs.is_empty() {
            continue;
        }
        let header = if header.trim().is_empty() { "{}" } else { header };
        // Without its header nobody knows which line is a body: that is an error of all. A body is one of its search. They are read again when
        // it is their turn: all of them together take much more memory than their text.
        drop(parse(header)?);
        let body = lines.next().ok_or_else(|| SearchError::argument("a search of _msearch has two lines"))?;
        pairs.push((header, body));
        if pairs.len() > SEARCHES_MAX {
            return Err(SearchError::argument(format!("_msearch has at most {SEARCHES_MAX} searches")));
        }
    }
    if pairs.is_empty() {
        return Err(invalid("no requests added"));
    }
    let (started, mut waited) = (Instant::now(), Duration::ZERO);
    let (mut body, memory) =
        (b"{\"responses\":[".to_vec(), limits_in(api, request, &[]).memory(&request.cancelled, None));
    for (number, (header, search)) in pairs.into_iter().enumerate() {
        if request.is_cancelled() {
            return Err(SearchError::cancelled());
        }
        let (header, search) = (parse(header)?, parse(search));
        let since = Instant::now();
        let found = match waited < WAITED_MAX {
            true => search.and_then(|search| one_of_many(api, request, default, (&header, &search), memory.number())),
            false => Err(waited_in_vain()),
        };
        let (response, held) = match found {
            Ok((mut response, held)) => {
                response["status"] = json!(200);
                (response, held)
            }
            Err(error) => {
                if error.kind == "circuit_breaking_exception" {
                    waited += since.elapsed();
                }
                (error.to_json(), None)
            }
        };
        if number > 0 {
            body.push(b',');
        }
        let before = body.capacity();
        body.extend_from_slice(response.to_string().as_bytes());
        // Whoever waits for memory should hold as little of it as can be.
        drop((response, held));
        memory.take((body.capacity() - before) as u64)?;
        if body.len() > RESPONSE_BYTES {
            return Err(crate::hits::too_large());
        }
    }
    body.extend_from_slice(format!("],\"took\":{}}}", started.elapsed().as_millis()).as_bytes());
    Ok(RestResponse::raw_json(200, body).within(Arc::new(memory)))
}

fn waited_in_vain() -> SearchError {
    let reason =
        "[request] Data too large: searches of this request before this one waited for memory in vain: repeat it later";
    SearchError::new(429, "circuit_breaking_exception", reason)
}

/// The response of a search of an `_msearch`, with its memory, which counts as that of the whole.
fn one_of_many(
    api: &Api,
    request: &AskedRequest<'_>,
    default: Option<&str>,
    (header, body): (&Value, &Value),
    part_of: Option<u64>,
) -> Result<(Value, Option<Arc<MemoryUse>>), SearchError> {
    let mut parameters = request.parameters.clone();
    let mut names = default.unwrap_or("_all").to_owned();
    for (name, value) in header.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("index" | "indices", Value::String(index)) => names.clone_from(index),
            ("index" | "indices", Value::Array(indices)) => {
                names = indices.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
            }
            (other, value) => {
                super::parameters::check_header(other)?;
                match value {
                    Value::String(text) => drop(parameters.insert(other.to_owned(), text.clone())),
                    Value::Null => drop(parameters.remove(other)),
                    value => drop(parameters.insert(other.to_owned(), value.to_string())),
                }
            }
        }
    }
    let one = RestRequest {
        method: RestMethod::Post,
        path: Vec::new(),
        parameters,
        body: bytes::Bytes::from(body.to_string()),
        caller: request.caller.clone(),
        opaque_id: None,
        cancelled: std::sync::Arc::clone(&request.cancelled),
    };
    let one =
        AskedRequest { request: &one, asker: request.asker.asking("indices:data/read/search", &[Action::IndexRead]) };
    let search = read(api, &one)?;
    if let Some(pit) = &search.pit {
        let response = search_point_in_time(api, &one, &search, pit, part_of)?;
        return match response.body {
            super::message::RestBody::Json(body) => Ok((body, response.memory)),
            _ => Err(SearchError::internal("a search answered with something else")),
        };
    }
    check_slice(&search, false)?;
    let targets = targets(api, &one, &names)?;
    let limits = SearchLimits { part_of, ..limits_in(api, request, &targets) };
    let found = hits::search(&targets, &search, &limits, &request.cancelled)?;
    Ok((found.response, Some(found.memory)))
}

/// `GET /<index>/_validate/query`.
pub(super) fn validate(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let body = request.json()?.unwrap_or_else(|| json!({}));
    if let Some(name) = body.as_object().into_iter().flatten().map(|(name, _)| name).find(|name| *name != "query") {
        return Err(SearchError::parsing(format!("request does not support [{name}]")));
    }
    let by_text = query_string_of(|name| request.parameter(name));
    let query = by_text.or_else(|| body.get("query").cloned()).unwrap_or_else(|| json!({"match_all": {}}));
    let targets = targets(api, request, names)?;
    let context = crate::query::QueryContext { now: now_millis() as i64, stop: None, cheap: is_cheap(&api.indices) };
    let mut answer = json!({"valid": true, "_shards": {"total": 1, "successful": 1, "failed": 0}});
    let explain = request.flag("explain")?.unwrap_or(false);
    let mut explanations = Vec::new();
    for target in &targets {
        match crate::query::build(&target.view.view, &query, &context) {
            Ok(built) => {
                // What a query becomes may depend on all terms of the index.
                let text = if target.is_partial { query.to_string() } else { format!("{built:?}") };
                explanations.push(json!({"index": target.index.name(), "valid": true, "explanation": text}));
            }
            Err(error) => {
                answer["valid"] = json!(false);
                explanations.push(json!({"index": target.index.name(), "valid": false, "error": error.reason}));
            }
        }
    }
    if explain {
        answer["explanations"] = Value::Array(explanations);
    }
    Ok(RestResponse::json(200, answer))
}
