//! Aggregations: from the `aggs` object of a search to the `aggregations` object of its response.
//!
//! ```text
//!   aggs -- request, kinds --> nodes -- native --> a request of the library for each index
//!                                |                        | collect: run, merged over segments and indices
//!                                +------ render <---------+
//!                                            | own: what the library lacks, over lists of documents
//!                                            | pipeline: what is made of the response
//! ```
//!
//! Invariants: an index without a field, or whose field has no column yet, contributes no values; the shape of the response
//! depends on the request alone. The buckets of a response are counted as they are made, gaps of histograms too.
//!
//! What it deliberately does not do: scripts, and to read documents. The hits of `top_hits` name the
//! mark of their document (`seq_ref`); the caller puts `_id` and `_source` in its place (and leaves `_source` out
//! or filters it as the hit's `_source_spec` says, which is the request's `_source`, if it has one).

use serde_json::Value;
use tantivy::aggregation::agg_req::{Aggregation, AggregationVariants, Aggregations};
use tantivy::aggregation::agg_result::{AggregationResult, AggregationResults, MetricResult};
use tantivy::aggregation::intermediate_agg_result::IntermediateAggregationResults;
use tantivy::aggregation::metric::StatsAggregation;
use tantivy::aggregation::{AggContextParams, AggregationLimitsGuard, DistributedAggregationCollector};
use tantivy::query::{AllQuery, Query};
use tantivy::tokenizer::TokenizerManager;

use crate::error::SearchError;
use crate::memory::MemoryHold;
use crate::stop::SearchStop;
use crate::view::IndexView;
use collect::{StoppableCollector, StoppableCount};
use native::{DateSpans, HALF, NANOS, Translator, native_error};
use node::{AggregationNode, NodeKind, Reader};
use render::Renderer;
use rounding::DateRounding;

mod collect;
mod direct;
mod fields;
mod key_value;
mod kinds;
mod native;
mod node;
mod options;
mod own;
mod own_kinds;
mod own_read;
mod pipeline;
mod pipeline_kinds;
mod render;
mod render_buckets;
mod request;
mod rounding;
pub(crate) mod seq_ref;
mod sources;
mod tally;
#[cfg(test)]
mod tests;

/// What to aggregate over in one index.
pub struct AggregationInput<'a> {
    /// The index.
    pub view: &'a IndexView,
    /// The documents of it that count.
    pub query: Box<dyn Query>,
    /// All documents of it that may be seen: those of the alias's filter. `global`, and keys without a document, know no others.
    pub base: Box<dyn Query>,
}

/// Builds the query of a filter, as the search's own query is built.
pub type QueryBuilderFn<'a> = dyn Fn(&IndexView, &Value) -> Result<Box<dyn Query>, SearchError> + 'a;

/// What the aggregations of one search may use.
#[derive(Clone, Copy, Debug)]
pub struct AggregationLimits {
    /// Buckets of the response (Elasticsearch's `search.max_buckets`).
    pub buckets: u32,
    /// Memory of the library's buckets.
    pub memory_bytes: u64,
    /// What `now` is in the dates of a request, in milliseconds since 1970.
    pub now: i64,
}

/// Runs the aggregations of a search (its `aggs` object) over one or more indices; returns the response's `aggregations` object.
/// If its time is over, they are of the documents seen so far.
///
/// Errors: what cannot be read or is not built (400), too many buckets (400), too much memory (429), it was cancelled.
pub fn run(
    inputs: &[AggregationInput<'_>],
    aggs: &Value,
    build: &QueryBuilderFn<'_>,
    limits: &AggregationLimits,
    typed_keys: bool,
    stop: &SearchStop,
) -> Result<Value, SearchError> {
    let views = inputs.iter().map(|input| input.view).collect();
    let nodes = Reader { views, now: limits.now, count: 0 }.nodes(aggs, 1)?;
    refuse_hidden_keys(inputs, &nodes)?;
    let searches = AggregationSearches { inputs, build, limits, stop };
    let (globals, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| matches!(node.kind, NodeKind::Global));
    let index = inputs.first().map_or("", |input| &input.view.name);
    let segments = inputs.iter().map(|input| input.view.searcher.segment_readers().len()).sum();
    let renderer = Renderer::new(limits.buckets, typed_keys, (index, segments), stop);
    let found = searches.run(&others, false)?;
    let others: Vec<AggregationNode> = others.into_iter().map(|node| node.found_in(&found.results)).collect();
    let mut response = renderer.all(&others, Some(&found.results), found.total)?;
    for global in &globals {
        let found = searches.run(&global.subs, true)?;
        let shown = renderer.single(global, Some((found.total, &found.results)))?;
        response.insert(renderer.name(global), shown);
    }
    let nodes: Vec<AggregationNode> = others.into_iter().chain(globals).collect();
    if nodes.iter().any(AggregationNode::has_own) {
        own::OwnRun::new(&searches, &renderer).fill_all(&nodes, inputs, &mut response)?;
    }
    pipeline::apply(&renderer, &nodes, &mut response)?;
    Ok(Value::Object(response))
}

/// The library lists keys without a document from the dictionary of a whole segment, and so those of documents that an alias
/// hides. Errors: 400.
fn refuse_hidden_keys(inputs: &[AggregationInput<'_>], nodes: &[AggregationNode]) -> Result<(), SearchError> {
    fn has_them(node: &AggregationNode) -> bool {
        matches!(&node.kind, NodeKind::Terms(options) if options.min_doc_count == 0) || node.subs.iter().any(has_them)
    }
    if inputs.iter().all(|input| input.base.is::<AllQuery>()) || !nodes.iter().any(has_them) {
        return Ok(());
    }
    Err(SearchError::argument("[terms] with [min_doc_count] 0 is not supported through an alias with a filter"))
}

/// Elasticsearch's refusal of a response with too many buckets.
fn too_many_buckets(limit: u32) -> SearchError {
    let reason = format!("Trying to create too many buckets. Must be less than or equal to: [{limit}]");
    SearchError::new(400, "too_many_buckets_exception", reason)
}

/// Memory that the library gets first: that of some thousand buckets.
const FIRST_BYTES: u64 = 1 << 20;

/// How many times more it gets where that does not do.
const MORE: u64 = 8;

/// How often its buckets are in memory, where it counts them once: in its tables, and in what was made of them.
const COPIES: u64 = 2;

/// What the library found.
struct FoundResults<'a> {
    results: AggregationResults,
    /// The memory of the results.
    _memory: MemoryHold<'a>,
    /// Documents; 0 if no aggregation needs to know.
    total: u64,
}

/// The searches of one request.
struct AggregationSearches<'a> {
    inputs: &'a [AggregationInput<'a>],
    build: &'a QueryBuilderFn<'a>,
    limits: &'a AggregationLimits,
    stop: &'a SearchStop,
}

impl<'a> AggregationSearches<'a> {
    /// Runs aggregations over the hits, or over all documents.
    fn run(&self, nodes: &[AggregationNode], global: bool) -> Result<FoundResults<'a>, SearchError> {
        let mut total = 0;
        if global || nodes.iter().any(|node| matches!(node.kind, NodeKind::TopHits { .. })) {
            for input in self.inputs {
                let query: &dyn Query = if global { &*input.base } else { &*input.query };
                total += self.count(input.view, query)?;
            }
        }
        let direct = direct::run(self.inputs, nodes, global, (self.limits.buckets, self.stop))?;
        let rest = |node: &&AggregationNode| !direct.0.contains_key(&node.native());
        let boundaries = self.boundaries(nodes, global)?;
        let (mut results, memory) = self.collect(global, node::bytes_in_bucket(nodes), &|view| {
            Translator {
                view,
                build: self.build,
                boundaries: &boundaries,
                terms_max: self.limits.buckets.saturating_add(1),
            }
            .aggregations(nodes.iter().filter(rest))
        })?;
        results.0.extend(direct.0);
        Ok(FoundResults { results, _memory: memory, total })
    }

    /// The documents that match; those that there is time for.
    fn count(&self, view: &IndexView, query: &dyn Query) -> Result<u64, SearchError> {
        let counted = view.searcher.search(query, &StoppableCount { stop: self.stop });
        Ok(self.stop.cut(counted.map_err(SearchError::from))?.unwrap_or(0))
    }

    /// Runs the library's requests, with so much memory in each bucket that the library does not count, and merges what they find.
    ///
    /// The library does not say how much memory it takes, only that it would be more than it may. So it gets little first, and more where
    /// that does not do: small aggregations go on beside large ones, which take turns.
    fn collect(
        &self,
        global: bool,
        in_bucket: u64,
        request: &dyn Fn(&IndexView) -> Result<Aggregations, SearchError>,
    ) -> Result<(AggregationResults, MemoryHold<'a>), SearchError> {
        let memory = self.stop.memory();
        let requests = self.inputs.iter().map(|input| request(input.view)).collect::<Result<Vec<_>, _>>()?;
        if requests.iter().all(Aggregations::is_empty) {
            return Ok((AggregationResults::default(), memory.hold(0)?));
        }
        let most = self.limits.memory_bytes.min(memory.most_held() / COPIES);
        let mut bytes = most.min(FIRST_BYTES);
        loop {
            let mut hold = memory.hold(bytes * COPIES)?;
            match self.collect_within(global, bytes / (node::BUCKET_BYTES + in_bucket) * node::BUCKET_BYTES, &requests)
            {
                Ok(found) => {
                    hold.keep(bytes);
                    return Ok((found, hold));
                }
                Err(error) if error.kind == "circuit_breaking_exception" && bytes < most => {
                    bytes = most.min(bytes.saturating_mul(MORE));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The same, with so much of what the library counts.
    fn collect_within(
        &self,
        global: bool,
        memory_bytes: u64,
        requests: &[Aggregations],
    ) -> Result<AggregationResults, SearchError> {
        // Terms that are sorted here are more than those that are shown: the buckets of the response are counted later.
        let guard = AggregationLimitsGuard::new(Some(memory_bytes), Some(u32::MAX));
        let failed = |error| native_error(error, self.limits.buckets);
        let mut merged: Option<(IntermediateAggregationResults, Aggregations)> = None;
        for (input, aggs) in self.inputs.iter().zip(requests).filter(|(_, aggs)| !aggs.is_empty()) {
            let context = AggContextParams::new(guard.clone(), TokenizerManager::default());
            let inner = DistributedAggregationCollector::from_aggs(aggs.clone(), context);
            let collector = StoppableCollector { inner, stop: self.stop };
            let query: &dyn Query = if global { &*input.base } else { &*input.query };
            let found = self.stop.cut(input.view.searcher.search(query, &collector).map_err(failed))?;
            let Some(found) = found else { continue };
            match &mut merged {
                Some((merged, _)) => merged.merge_fruits(found).map_err(failed)?,
                None => merged = Some((found, aggs.clone())),
            }
        }
        match merged {
            Some((merged, aggs)) => merged.into_final_result(aggs, guard).map_err(failed),
            None => Ok(AggregationResults::default()),
        }
    }

    /// The buckets of the date histograms whose buckets have different lengths: all from the first to the last date of the hits, or, if
    /// these are too many and empty ones are not shown, those near dates.
    fn boundaries(&self, nodes: &[AggregationNode], global: bool) -> Result<DateSpans, SearchError> {
        let mut uneven = Vec::new();
        find_uneven(nodes, &mut uneven);
        let mut spans = DateSpans::new();
        if uneven.is_empty() {
            return Ok(spans);
        }
        let column =
            |view: &IndexView, node: &AggregationNode| native::column(view, node.path.as_deref().unwrap_or_default());
        let (found, _memory) = self.collect(global, 0, &|view| {
            let stats = |(node, _, _): &UnevenHistogram<'_>| {
                let agg = AggregationVariants::Stats(StatsAggregation::from_field_name(column(view, node)));
                (node.native(), Aggregation { agg, sub_aggregation: Aggregations::default() })
            };
            Ok(uneven.iter().map(stats).collect())
        })?;
        let mut sparse = Vec::new();
        for (node, rounding, least) in uneven {
            let Some(AggregationResult::MetricResult(MetricResult::Stats(stats))) = found.0.get(&node.native()) else {
                continue;
            };
            let (Some(min), Some(max)) = (stats.min, stats.max) else { continue };
            let (min, max) = ((min / NANOS).round() as i64, (max / NANOS).round() as i64);
            match rounding.boundaries(min, max, self.limits.buckets) {
                Ok(all) => drop(spans.insert(node.id, all.windows(2).map(|two| (two[0], two[1])).collect())),
                Err(error) if least == 0 || error.kind != "too_many_buckets_exception" => return Err(error),
                Err(_) => sparse.push((node, rounding, least)),
            }
        }
        if sparse.is_empty() {
            return Ok(spans);
        }
        let (found, _memory) = self.collect(global, 0, &|view| {
            let histogram = |(node, rounding, _): &UnevenHistogram<'_>| {
                let agg = AggregationVariants::Histogram(native::even_dates(column(view, node), rounding.length()));
                (node.native(), Aggregation { agg, sub_aggregation: Aggregations::default() })
            };
            Ok(sparse.iter().map(histogram).collect())
        })?;
        for (node, rounding, _) in sparse {
            let dates = render_buckets::histogram_entries(found.0.get(&node.native()), true);
            let dates = dates.filter(|(_, (count, _))| *count > 0).map(|(key, _)| (key + HALF).round() as i64);
            spans.insert(node.id, rounding.near(dates, self.limits.buckets)?);
        }
        Ok(spans)
    }
}

/// A date histogram whose buckets have different lengths, with its least number of documents.
type UnevenHistogram<'a> = (&'a AggregationNode, &'a DateRounding, u64);

fn find_uneven<'a>(nodes: &'a [AggregationNode], found: &mut Vec<UnevenHistogram<'a>>) {
    for node in nodes {
        match &node.kind {
            NodeKind::DateHistogram { rounding: DateRounding::Fixed { .. }, .. } => {}
            NodeKind::DateHistogram { rounding, buckets } => found.push((node, rounding, buckets.min_doc_count)),
            _ => {}
        }
        find_uneven(&node.subs, found);
    }
}
