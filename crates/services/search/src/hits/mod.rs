//! Searches: from the body of a request to the hits and aggregations of its response, over one or more indices.
//!
//! ```text
//!   SearchBody -- query of each index --> collect: the best hits of each --> merge --> documents of the store --> response
//!                          +------------> aggregations
//! ```
//!
//! Invariants: a response shows documents as they were in the views that it was made from; the memory of a search is bounded by its
//! limits, whatever it asks for.
//!
//! It deliberately does not do: scripts, rescoring, suggestions, nested hits. These are refused by their names.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use node::identity::RoleId;
use serde_json::{Map, Value, json};
use tantivy::query::{AllQuery, BooleanQuery, Occur, Query};

use crate::aggregation::{self, AggregationInput, AggregationLimits};
use crate::error::SearchError;
use crate::index::{Counters, OpenView, SearchIndex, StoredDocument};
use crate::mapping::matches_pattern;
use crate::memory::{MemoryPatience, MemoryUse, SearchMemory};
use crate::query::{FixedScoreQuery, QueryContext, boosted, build};
use crate::recording::ReadNotes;
use crate::rights::MessageScope;
use crate::stop::{FETCH_GRACE, SearchStop};

mod best;
mod body;
mod collapse;
mod collapse_parts;
mod collect;
mod fetch;
mod highlight;
mod key_reader;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod paging_tests;
mod shown;
mod sort;
mod sort_value;
#[cfg(test)]
mod tests;
mod walk;
mod zoned;
#[cfg(test)]
mod zoned_tests;

pub use body::{HiddenKeys, SearchBody};
pub use sort::SortKey;
pub use walk::Walk;

use best::{FoundHit, Wanted};
use collect::{Found, place_base};
use fetch::{Fetcher, TopDocuments};

/// An index that is searched.
#[derive(Clone)]
pub struct SearchTarget {
    /// The index.
    pub index: Arc<SearchIndex>,
    /// As of when.
    pub view: OpenView,
    /// The filter of the alias by which it was named, and of what the caller may see.
    pub filter: Option<Value>,
    /// Whether the caller may see a part of it only: then scores depend on nothing that is not in a hit itself.
    pub is_partial: bool,
    /// Where it is noted which documents are read, of an index whose reads are recorded.
    pub(crate) notes: ReadNotes,
}

impl SearchTarget {
    /// A whole index as it is now. Nobody asks what was read of it.
    pub fn whole(index: Arc<SearchIndex>) -> SearchTarget {
        SearchTarget { view: index.view(), index, filter: None, is_partial: false, notes: ReadNotes::default() }
    }

    /// The part of an index of messages that its asker may see; none: all of it.
    #[must_use]
    pub fn within(self, scope: Option<&MessageScope>) -> SearchTarget {
        let Some(scope) = scope else { return self };
        let filters: Vec<Value> = self.filter.into_iter().chain([scope.filter()]).collect();
        SearchTarget { filter: Some(json!({"bool": {"filter": filters}})), is_partial: true, ..self }
    }

    /// Shards into which its settings divide it.
    pub fn shards(&self) -> u64 {
        self.index.shards().count
    }

    /// A document that was found. Everything that a response shows of documents comes from here, but for what aggregations count.
    ///
    /// Errors: as for [`SearchIndex::document_at`].
    pub(crate) fn document_at(&self, seq: u64) -> Result<StoredDocument, SearchError> {
        if self.index.is_fed() {
            self.notes.read(seq);
        }
        self.index.document_at(seq)
    }
}

impl SearchLimits {
    /// Memory of one search, which waits for it until it is cancelled or its time is over.
    pub(crate) fn memory(&self, cancelled: &Arc<AtomicBool>, until: Option<Instant>) -> MemoryUse {
        // As long as the documents of hits may be read.
        let until = until.map(|until| until + FETCH_GRACE);
        let patience = MemoryPatience::new(Arc::clone(cancelled), until);
        MemoryUse::new(self.of_all.clone(), self.found_bytes).waiting(self.owner, patience).part_of(self.part_of)
    }

    /// The same for a search that is a part of the one with this memory.
    pub(crate) fn for_part_of(&self, memory: &MemoryUse) -> SearchLimits {
        SearchLimits { part_of: memory.number(), ..self.clone() }
    }
}

impl std::fmt::Debug for SearchTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view.fmt(f)
    }
}

/// What one search may use.
#[derive(Clone, Debug)]
pub struct SearchLimits {
    /// Buckets of the aggregations (Elasticsearch's `search.max_buckets`).
    pub buckets: u32,
    /// Memory of the aggregations inside of the library, in bytes.
    pub memory_bytes: u64,
    /// Memory of what it finds, in bytes: lists of documents, buckets and hits.
    pub found_bytes: u64,
    /// What of that all searches have together; none: each has its own.
    pub of_all: Option<Arc<SearchMemory>>,
    /// Whose searches share a part of that; none: nobody's.
    pub owner: Option<RoleId>,
    /// The search of which it is a part, by its number there: what both hold counts as that one's. None: it is one by itself.
    pub part_of: Option<u64>,
    /// Bytes of the sources of a response.
    pub source_bytes: usize,
    /// What `now` is, in milliseconds.
    pub now: i64,
    /// The furthest hit that `from` and `size` reach (Elasticsearch's `index.max_result_window`).
    pub window: usize,
    /// Whether queries are refused that look at many terms (Elasticsearch's `search.allow_expensive_queries: false`).
    pub cheap: bool,
}

/// What a search found.
pub struct SearchResult {
    /// The body of the response.
    pub response: Value,
    /// The sort values of the last hit for the next page, exact where the response shows them in a coarser format.
    pub last: Option<Vec<Value>>,
    /// Hits of this page.
    pub hits: usize,
    /// Memory of the response.
    pub memory: Arc<MemoryUse>,
}

/// A hit of one of the targets.
struct TargetHit {
    target: usize,
    hit: FoundHit,
}

/// The documents of a response have more bytes than it may have.
pub(crate) fn too_large() -> SearchError {
    let reason = "the sources of this response are too large: ask for fewer documents at a time";
    SearchError::new(429, "circuit_breaking_exception", reason)
}

pub(crate) fn invalid(reason: &str) -> SearchError {
    SearchError::new(400, "action_request_validation_exception", format!("Validation Failed: 1: {reason};"))
}

/// A score as responses show it: with the digits that tell it from others of its precision.
fn score_json(score: f32) -> Value {
    json!(score.to_string().parse::<f64>().unwrap_or(f64::from(score)))
}

/// The query of a target: the request's, with the alias's filter and the index's boost.
fn query_of(target: &SearchTarget, body: &SearchBody, context: &QueryContext) -> Result<Box<dyn Query>, SearchError> {
    let view = &target.view.view;
    let mut query = build(view, &body.query, context)?;
    if let Some(filter) = &target.filter {
        let filter = build(view, filter, context)?;
        query = filtered(query, filter);
    }
    if let Some(slice) = body.slice {
        query = filtered(query, crate::query::slice(view, slice, context));
    }
    let boost = body.indices_boost.iter().find(|(pattern, _)| {
        matches_pattern(pattern, &view.name) || target.index.definition().aliases.contains_key(pattern)
    });
    Ok(match boost {
        Some((_, boost)) => boosted(query, *boost),
        None => query,
    })
}

/// A query whose hits must also match a filter, which does not change their scores.
fn filtered(query: Box<dyn Query>, filter: Box<dyn Query>) -> Box<dyn Query> {
    let filter: Box<dyn Query> = Box::new(FixedScoreQuery::new(filter, 0.0));
    Box::new(BooleanQuery::new(vec![(Occur::Must, query), (Occur::Must, filter)]))
}

/// The best hits of all targets.
struct Gathered {
    hits: Vec<TargetHit>,
    total: u64,
    max_score: Option<f32>,
    terminated: bool,
}

/// Memory of a value that hits are sorted by, with its text.
const KEY_BYTES: u64 = 64;

fn sort_hits(hits: &mut [TargetHit], body: &SearchBody) {
    hits.sort_by(|a, b| collect::compare(&a.hit, &b.hit, &body.sort).then(a.target.cmp(&b.target)));
}

/// Finds the best hits of each target and merges them.
fn gather(
    targets: &[SearchTarget],
    queries: &[Box<dyn Query>],
    body: &SearchBody,
    (limits, context): (&SearchLimits, &QueryContext),
    stop: &SearchStop,
) -> Result<Gathered, SearchError> {
    let most = (body.from + body.size).min(limits.window);
    let views = || targets.iter().map(|target| &target.view.view);
    body.sort.iter().try_for_each(|key| key.check_together(views()))?;
    let scores = body.track_scores || (body.sort.is_empty() && body.size > 0);
    let (mut all, mut total, mut max_score, mut terminated) = (Vec::<TargetHit>::new(), 0, None::<f32>, false);
    // What the best hits take until they are shown; as JSON they take more, and are counted again.
    let (hit_bytes, mut counted) = (size_of::<TargetHit>() as u64 + body.sort.len() as u64 * KEY_BYTES, 0_u64);
    for (number, (target, query)) in targets.iter().zip(queries).enumerate() {
        // A scroll or a point in time may outlive its index, whose documents are gone then.
        target.index.check_deleted()?;
        let view = &target.view.view;
        let after = match &body.search_after {
            Some(values) => {
                let pairs = body.sort.iter().zip(values);
                Some(pairs.map(|(key, value)| key.after(view, value)).collect::<Result<Vec<_>, _>>()?)
            }
            None => None,
        };
        let hits_query: Box<dyn Query> = match &body.post_filter {
            Some(filter) => filtered(query.box_clone(), build(view, filter, context)?),
            None => query.box_clone(),
        };
        let wanted = Wanted {
            keys: &body.sort,
            most,
            after,
            count: body.track_total_hits,
            min_score: body.min_score,
            scores,
            terminate_after: body.terminate_after,
            base: place_base(number, 0),
            is_partial: target.is_partial,
        };
        let expected = (most as u64).min(view.searcher.num_docs()) * hit_bytes;
        stop.memory().take(expected)?;
        counted += expected;
        let found = stop.cut(collect::collect(view, &*hits_query, &wanted, stop))?;
        let Found { hits, total: found, max_score: max, terminated: ended } = found.unwrap_or_default();
        all.extend(hits.into_iter().map(|hit| TargetHit { target: number, hit }));
        if all.len() > most.saturating_mul(2) {
            sort_hits(&mut all, body);
            all.truncate(most);
        }
        let kept = counted.min(all.len() as u64 * hit_bytes);
        stop.memory().give(counted - kept);
        counted = kept;
        total += found;
        max_score = max.into_iter().chain(max_score).max_by(f32::total_cmp);
        terminated |= ended;
    }
    sort_hits(&mut all, body);
    stop.memory().give(counted);
    Ok(Gathered { hits: all, total, max_score, terminated })
}

/// Runs a search until it is done, its `timeout` is over or `cancelled` is set.
///
/// Errors: what the request asks for cannot be, or is not built; more than the limits allow; it was cancelled.
pub fn search(
    targets: &[SearchTarget],
    body: &SearchBody,
    limits: &SearchLimits,
    cancelled: &Arc<AtomicBool>,
) -> Result<SearchResult, SearchError> {
    let started = Instant::now();
    if body.from.saturating_add(body.size) > limits.window {
        return Err(SearchError::argument(format!(
            "Result window is too large, from + size must be less than or equal to: [{}] but was [{}]. See the scroll api for a \
             more efficient way to request large data sets. This limit can be set by changing the [index.max_result_window] \
             index level setting.",
            limits.window,
            body.from.saturating_add(body.size)
        )));
    }
    if let Some(collapse) = &body.collapse {
        return collapse::search(targets, (body, collapse), limits, cancelled);
    }
    check_fields(targets, body)?;
    let until = body.timeout.map(|timeout| started + timeout);
    let stop = Arc::new(SearchStop::new(Arc::clone(cancelled), until).within(limits.memory(cancelled, until)));
    let context = QueryContext { now: limits.now, stop: Some(Arc::clone(&stop)), cheap: limits.cheap };
    let queries = targets.iter().map(|target| query_of(target, body, &context)).collect::<Result<Vec<_>, _>>()?;
    let Gathered { hits: all, total, max_score, terminated } =
        gather(targets, &queries, body, (limits, &context), &stop)?;
    let page: Vec<TargetHit> = all.into_iter().skip(body.from).take(body.size).collect();
    let aggregations = aggregate(targets, &queries, body, limits, &context)?;
    let with_score = body.sort.is_empty() || body.track_scores || body.sort.iter().any(SortKey::is_score);
    let mut hits = Map::new();
    if let Some(total) = body.total(total.min(body.track_total_hits), total <= body.track_total_hits) {
        hits.insert("total".to_owned(), total);
    }
    let best = max_score.filter(|_| with_score && body.size > 0 && total_is_known(&page, total));
    hits.insert("max_score".to_owned(), best.map_or(Value::Null, score_json));
    let left = limits.source_bytes;
    let mut fetcher =
        Fetcher { targets, body, with_score, context: &context, stop: &stop, left, last: None, seqs: HashMap::new() };
    let shown = fetcher.all(page)?;
    let count = shown.len();
    hits.insert("hits".to_owned(), Value::Array(shown));
    let took = started.elapsed();
    for target in targets {
        Counters::add(&target.index.counters().searches, 1);
        Counters::add(&target.index.counters().search_us, took.as_micros() as u64);
        target.index.counters().add_groups(&body.groups, took);
    }
    let mut response = Map::new();
    response.insert("took".to_owned(), json!(took.as_millis() as u64));
    response.insert("timed_out".to_owned(), json!(stop.is_cut_short()));
    if body.terminate_after > 0 {
        response.insert("terminated_early".to_owned(), json!(terminated));
    }
    let shards: u64 = targets.iter().map(|target| target.shards()).sum();
    response.insert("_shards".to_owned(), json!({"total": shards, "successful": shards, "skipped": 0, "failed": 0}));
    response.insert("hits".to_owned(), Value::Object(hits));
    if let Some(aggregations) = aggregations {
        response.insert("aggregations".to_owned(), aggregations);
    }
    let memory = Arc::clone(stop.memory());
    Ok(SearchResult { response: Value::Object(response), last: fetcher.last, hits: count, memory })
}

/// The most slices where an index says nothing (Elasticsearch's `index.max_slices_per_scroll`).
const SLICES_MAX: u32 = 1024;

/// Errors: more values of columns or more slices than an index allows.
fn check_fields(targets: &[SearchTarget], body: &SearchBody) -> Result<(), SearchError> {
    let asked = body.docvalue_fields.len();
    for target in targets.iter().filter(|_| body.slice.is_some()) {
        let setting = target.index.setting("index.max_slices_per_scroll");
        let most = setting.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(SLICES_MAX);
        if let Some((_, slices)) = body.slice.filter(|(_, slices)| *slices > most) {
            return Err(SearchError::argument(format!(
                "The number of slices [{slices}] is too large. It must be less than [{most}]. This limit can be set by changing \
                 the [index.max_slices_per_scroll] index level setting."
            )));
        }
    }
    for target in targets.iter().filter(|_| asked > 0) {
        let setting = target.index.setting("index.max_docvalue_fields_search");
        let most = setting.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok());
        if let Some(most) = most.filter(|most: &usize| asked > *most) {
            return Err(SearchError::argument(format!(
                "Trying to retrieve too many docvalue_fields. Must be less than or equal to: [{most}] but was [{asked}]. This \
                 limit can be set by changing the [index.max_docvalue_fields_search] index level setting."
            )));
        }
    }
    Ok(())
}

fn total_is_known(page: &[TargetHit], total: u64) -> bool {
    !page.is_empty() || total > 0
}

/// Runs the aggregations of a search, and puts the documents of their `top_hits` in.
fn aggregate(
    targets: &[SearchTarget],
    queries: &[Box<dyn Query>],
    body: &SearchBody,
    limits: &SearchLimits,
    context: &QueryContext,
) -> Result<Option<Value>, SearchError> {
    let (Some(aggs), Some(stop)) = (&body.aggs, &context.stop) else { return Ok(None) };
    targets.iter().filter(|target| target.index.is_fed()).for_each(|target| target.notes.aggregated());
    let inputs = targets.iter().zip(queries).map(|(target, query)| {
        let view = &target.view.view;
        let base = target.filter.as_ref().map(|filter| build(view, filter, context)).transpose()?;
        Ok(AggregationInput { view, query: query.box_clone(), base: base.unwrap_or_else(|| Box::new(AllQuery)) })
    });
    let inputs = inputs.collect::<Result<Vec<AggregationInput<'_>>, SearchError>>()?;
    let source_bytes = limits.source_bytes;
    let limits = AggregationLimits { buckets: limits.buckets, memory_bytes: limits.memory_bytes, now: limits.now };
    let builder = |view: &crate::view::IndexView, dsl: &Value| build(view, dsl, context);
    let mut found = aggregation::run(&inputs, aggs, &builder, &limits, body.typed_keys, stop)?;
    TopDocuments { targets, stop, left: source_bytes }.put_in(&mut found)?;
    Ok(Some(found))
}

/// Counts the documents that match. Errors: as for [`search`].
pub fn count(
    targets: &[SearchTarget],
    query: Option<&Value>,
    limits: &SearchLimits,
    min_score: Option<f32>,
    cancelled: &Arc<AtomicBool>,
) -> Result<u64, SearchError> {
    let mut body = SearchBody { size: 0, min_score, ..SearchBody::default() };
    body.counts_all();
    if let Some(query) = query {
        body.query = query.clone();
    }
    let found = search(targets, &body, limits, cancelled)?;
    Ok(found.response["hits"]["total"]["value"].as_u64().unwrap_or(0))
}
