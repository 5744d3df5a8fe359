//! [`Renderer`]: from what the library found to the response: names, numbers about values, and aggregations of one bucket.
//!
//! Everything can be shown without a result, as an aggregation over nothing; so empty buckets have the shape of all others.

use std::cell::Cell;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tantivy::aggregation::Key;
use tantivy::aggregation::agg_result::{AggregationResult, AggregationResults, BucketResult, MetricResult};
use tantivy::aggregation::metric::{ExtendedStats, PercentileValues, TopHitsVecEntry};
use tantivy::columnar::MonotonicallyMappableToU64;

use super::native::NANOS;
use super::node::AggregationNode;
use super::node::{HitOrder, Metric, NodeKind};
use super::seq_ref::{SEQ_REF, seq_ref};
use super::too_many_buckets;
use crate::error::SearchError;
use crate::mapping::FieldKind;
use crate::memory::MemoryUse;
use crate::stop::SearchStop;

/// Shows results.
pub(super) struct Renderer {
    limit: u32,
    typed_keys: bool,
    /// The index of all hits, if there is one.
    index: String,
    /// Segments that were searched.
    pub(super) segments: usize,
    /// Buckets shown so far.
    pub(super) buckets: Cell<u32>,
    /// Memory of what is shown.
    pub(super) memory: Arc<MemoryUse>,
}

/// Memory of a bucket without its key and its aggregations: an object of two or three entries.
const BUCKET_BYTES: u64 = 600;

/// Count and sub-aggregations of a bucket that the library found.
pub(super) type FoundBucket<'a> = (u64, &'a AggregationResults);

impl Renderer {
    pub(super) fn new(limit: u32, typed_keys: bool, (index, segments): (&str, usize), stop: &SearchStop) -> Renderer {
        let (index, memory) = (index.to_owned(), Arc::clone(stop.memory()));
        Renderer { limit, typed_keys, index, segments, buckets: Cell::new(0), memory }
    }

    /// Counts a bucket. Errors: there are too many, or they take too much memory.
    pub(super) fn count_bucket(&self) -> Result<(), SearchError> {
        self.memory.take(BUCKET_BYTES)?;
        self.buckets.set(self.buckets.get() + 1);
        if self.buckets.get() > self.limit { Err(too_many_buckets(self.limit)) } else { Ok(()) }
    }

    /// Name of an aggregation in the response.
    pub(super) fn name(&self, node: &AggregationNode) -> String {
        if !self.typed_keys {
            return node.name.clone();
        }
        let prefix = match &node.kind {
            NodeKind::Terms(_) => match node.values() {
                Some(FieldKind::Real(_)) => "dterms",
                Some(FieldKind::Keyword | FieldKind::Text | FieldKind::Ip) => "sterms",
                Some(FieldKind::UnsignedLong) => "ulterms",
                Some(_) => "lterms",
                None => "umterms",
            },
            NodeKind::Histogram { .. } => "histogram",
            NodeKind::DateHistogram { .. } => "date_histogram",
            NodeKind::Range { of_dates: true, .. } => "date_range",
            NodeKind::Range { .. } => "range",
            NodeKind::Filter(_) => "filter",
            NodeKind::Filters { .. } => "filters",
            NodeKind::Missing => "missing",
            NodeKind::Global => "global",
            NodeKind::Metric { metric, .. } => match metric {
                Metric::Avg => "avg",
                Metric::Sum => "sum",
                Metric::Min => "min",
                Metric::Max => "max",
                Metric::Stats => "stats",
                Metric::ExtendedStats { .. } => "extended_stats",
                Metric::ValueCount => "value_count",
            },
            NodeKind::Percentiles { .. } => "tdigest_percentiles",
            NodeKind::Cardinality { .. } => "cardinality",
            NodeKind::Composite(_) => "composite",
            NodeKind::TopHits { .. } => "top_hits",
            NodeKind::Own(kind) => kind.prefix(),
            NodeKind::Pipeline(pipeline) => pipeline.prefix(),
        };
        format!("{prefix}#{}", node.name)
    }

    /// The aggregations of a bucket with so many documents, or of the search.
    pub(super) fn all(
        &self,
        nodes: &[AggregationNode],
        results: Option<&AggregationResults>,
        total: u64,
    ) -> Result<Map<String, Value>, SearchError> {
        let mut all = Map::new();
        for node in nodes.iter().filter(|node| !matches!(node.kind, NodeKind::Own(_) | NodeKind::Pipeline(_))) {
            let mut shown = self.one(node, results, total)?;
            // What is in buckets, and in one bucket, was counted where it was shown.
            match shown.get("buckets") {
                Some(_) => {}
                None if node.subs.is_empty() => self.memory.take_value(&shown)?,
                None => self.memory.take(BUCKET_BYTES)?,
            }
            if let (Some(meta), Some(shown)) = (&node.meta, shown.as_object_mut()) {
                shown.insert("meta".to_owned(), meta.clone());
            }
            all.insert(self.name(node), shown);
        }
        Ok(all)
    }

    fn one(
        &self,
        node: &AggregationNode,
        results: Option<&AggregationResults>,
        total: u64,
    ) -> Result<Value, SearchError> {
        let found = results.and_then(|results| results.0.get(&node.native()));
        match &node.kind {
            NodeKind::Terms(options) => self.terms(node, options, found),
            NodeKind::Histogram { interval, offset, buckets } => {
                self.histogram(node, (*interval, *offset), buckets, found)
            }
            NodeKind::DateHistogram { rounding, buckets } => self.date_histogram(node, rounding, buckets, found),
            NodeKind::Range { ranges, keyed, of_dates } => self.ranges(node, ranges, (*keyed, *of_dates), results),
            NodeKind::Filters { filters, other, keyed } => {
                self.filters(node, filters, (other.as_deref(), *keyed), results)
            }
            NodeKind::Filter(_) | NodeKind::Missing => self.single(node, filter_bucket(found)),
            NodeKind::Global | NodeKind::Own(_) | NodeKind::Pipeline(_) => self.single(node, None),
            NodeKind::Composite(options) => self.composite(node, options, found),
            NodeKind::Metric { metric, .. } => metric_value(node, *metric, found),
            NodeKind::Percentiles { percents, keyed, .. } => percentiles(node, percents, *keyed, found),
            NodeKind::Cardinality { .. } => Ok(json!({"value": single(found).unwrap_or(0.0).round() as u64})),
            NodeKind::TopHits { sort, from, size, source } => {
                let part = |part| filter_bucket(results.and_then(|results| results.0.get(&node.native_part(part))));
                let parts = [part(0), part(1)].into_iter().flatten().map(|(_, subs)| subs.0.get(&node.native()));
                let hits = std::iter::once(found).chain(parts).flat_map(|found| match found {
                    Some(AggregationResult::MetricResult(MetricResult::TopHits(hits))) => hits.hits.as_slice(),
                    _ => &[],
                });
                let hits = hits.skip(*from as usize).take(*size as usize);
                Ok(top_hits(&self.index, (sort, source.as_ref()), hits, total))
            }
        }
    }

    /// An aggregation that is one bucket; its `meta` is put in by whoever shows it among others.
    pub(super) fn single(&self, node: &AggregationNode, found: Option<FoundBucket<'_>>) -> Result<Value, SearchError> {
        let mut shown = self.bucket(node, found)?;
        if let (Some(meta), NodeKind::Global) = (&node.meta, &node.kind) {
            shown.insert("meta".to_owned(), meta.clone());
        }
        Ok(Value::Object(shown))
    }

    /// `doc_count` and sub-aggregations of a bucket.
    pub(super) fn bucket(
        &self,
        node: &AggregationNode,
        found: Option<FoundBucket<'_>>,
    ) -> Result<Map<String, Value>, SearchError> {
        let doc_count = found.map_or(0, |(count, _)| count);
        let mut shown = self.all(&node.subs, found.map(|(_, subs)| subs), doc_count)?;
        shown.insert("doc_count".to_owned(), json!(doc_count));
        Ok(shown)
    }
}

/// The bucket of a filter.
pub(super) fn filter_bucket(found: Option<&AggregationResult>) -> Option<FoundBucket<'_>> {
    match found {
        Some(AggregationResult::BucketResult(BucketResult::Filter(bucket))) => {
            Some((bucket.doc_count, &bucket.sub_aggregations))
        }
        _ => None,
    }
}

/// The value of an aggregation that has one.
fn single(found: Option<&AggregationResult>) -> Option<f64> {
    match found {
        Some(AggregationResult::MetricResult(
            MetricResult::Average(one)
            | MetricResult::Sum(one)
            | MetricResult::Min(one)
            | MetricResult::Max(one)
            | MetricResult::Count(one)
            | MetricResult::Cardinality(one),
        )) => one.value.filter(|value| value.is_finite()),
        _ => None,
    }
}

/// What is known of some values.
#[derive(Default)]
struct ValueSummary {
    count: u64,
    sum: f64,
    min: Option<f64>,
    max: Option<f64>,
    avg: Option<f64>,
}

/// A summary, in the unit in which values are shown.
fn summary(node: &AggregationNode, found: Option<&AggregationResult>) -> ValueSummary {
    let scale = if node.values() == Some(FieldKind::Date) { NANOS } else { 1.0 };
    let scaled = |value: Option<f64>| value.map(|value| value / scale);
    match found {
        Some(AggregationResult::BucketResult(BucketResult::Terms { buckets, .. })) => {
            let of = |value: u64| {
                buckets.iter().find(|bucket| bucket.key == Key::U64(value)).map_or(0, |bucket| bucket.doc_count)
            };
            let (zeros, ones) = (of(0), of(1));
            if zeros + ones == 0 {
                return ValueSummary::default();
            }
            ValueSummary {
                count: zeros + ones,
                sum: ones as f64,
                min: Some(if zeros > 0 { 0.0 } else { 1.0 }),
                max: Some(if ones > 0 { 1.0 } else { 0.0 }),
                avg: Some(ones as f64 / (zeros + ones) as f64),
            }
        }
        Some(AggregationResult::MetricResult(MetricResult::Stats(stats))) => ValueSummary {
            count: stats.count,
            sum: stats.sum / scale,
            min: scaled(stats.min),
            max: scaled(stats.max),
            avg: scaled(stats.avg),
        },
        Some(AggregationResult::MetricResult(MetricResult::ExtendedStats(stats))) => ValueSummary {
            count: stats.count,
            sum: stats.sum / scale,
            min: scaled(stats.min),
            max: scaled(stats.max),
            avg: scaled(stats.avg),
        },
        other => {
            let value = scaled(single(other));
            ValueSummary { count: 0, sum: value.unwrap_or(0.0), min: value, max: value, avg: value }
        }
    }
}

/// A value as a text, for dates and booleans.
fn value_text(node: &AggregationNode, value: f64) -> Result<Option<String>, SearchError> {
    match node.values() {
        Some(FieldKind::Date) => node.date(value.round() as i64).map(Some),
        Some(FieldKind::Boolean) => Ok(Some((value != 0.0).to_string())),
        _ => Ok(None),
    }
}

fn metric_value(
    node: &AggregationNode,
    metric: Metric,
    found: Option<&AggregationResult>,
) -> Result<Value, SearchError> {
    if metric == Metric::ValueCount {
        return Ok(json!({"value": single(found).unwrap_or(0.0) as u64}));
    }
    let summary = summary(node, found);
    let value = match metric {
        Metric::Avg => summary.avg,
        Metric::Min => summary.min,
        Metric::Max => summary.max,
        Metric::Sum => Some(summary.sum),
        Metric::Stats | Metric::ExtendedStats { .. } | Metric::ValueCount => {
            return statistics(node, metric, &summary, found);
        }
    };
    let mut shown = json!({"value": value});
    if let Some(text) = value.map(|value| value_text(node, value)).transpose()?.flatten() {
        shown["value_as_string"] = json!(text);
    }
    Ok(shown)
}

fn statistics(
    node: &AggregationNode,
    metric: Metric,
    summary: &ValueSummary,
    found: Option<&AggregationResult>,
) -> Result<Value, SearchError> {
    let ValueSummary { count, sum, min, max, avg } = summary;
    let mut shown = json!({"count": count, "min": min, "max": max, "avg": avg, "sum": sum});
    if *count > 0 {
        for (name, value) in [("min", *min), ("max", *max), ("avg", *avg), ("sum", Some(*sum))] {
            if let Some(text) = value.map(|value| value_text(node, value)).transpose()?.flatten() {
                shown[format!("{name}_as_string")] = json!(text);
            }
        }
    }
    if metric == Metric::Stats {
        return Ok(shown);
    }
    let stats: Option<&ExtendedStats> = match found {
        Some(AggregationResult::MetricResult(MetricResult::ExtendedStats(stats))) if *count > 0 => Some(stats),
        _ => None,
    };
    let scale = if node.values() == Some(FieldKind::Date) { NANOS } else { 1.0 };
    let square = |value: fn(&ExtendedStats) -> Option<f64>| stats.and_then(value).map(|value| value / scale / scale);
    let root = |value: fn(&ExtendedStats) -> Option<f64>| stats.and_then(value).map(|value| value / scale);
    shown["sum_of_squares"] = json!(square(|stats| stats.sum_of_squares));
    shown["variance"] = json!(square(|stats| stats.variance));
    shown["variance_population"] = json!(square(|stats| stats.variance_population));
    shown["variance_sampling"] = json!(square(|stats| stats.variance_sampling));
    shown["std_deviation"] = json!(root(|stats| stats.std_deviation));
    shown["std_deviation_population"] = json!(root(|stats| stats.std_deviation_population));
    shown["std_deviation_sampling"] = json!(root(|stats| stats.std_deviation_sampling));
    let bounds = stats.and_then(|stats| stats.std_deviation_bounds.as_ref());
    let bound = |value: fn(&tantivy::aggregation::metric::StandardDeviationBounds) -> f64| {
        json!(bounds.map(|bounds| value(bounds) / scale))
    };
    shown["std_deviation_bounds"] = json!({
        "upper": bound(|bounds| bounds.upper),
        "lower": bound(|bounds| bounds.lower),
        "upper_population": bound(|bounds| bounds.upper_population),
        "lower_population": bound(|bounds| bounds.lower_population),
        "upper_sampling": bound(|bounds| bounds.upper_sampling),
        "lower_sampling": bound(|bounds| bounds.lower_sampling),
    });
    Ok(shown)
}

fn percentiles(
    node: &AggregationNode,
    percents: &[f64],
    keyed: bool,
    found: Option<&AggregationResult>,
) -> Result<Value, SearchError> {
    let scale = if node.values() == Some(FieldKind::Date) { NANOS } else { 1.0 };
    let values = match found {
        Some(AggregationResult::MetricResult(MetricResult::Percentiles(found))) => match &found.values {
            PercentileValues::Vec(values) => values.as_slice(),
            PercentileValues::HashMap(_) => &[],
        },
        _ => &[],
    };
    let mut map = Map::new();
    let mut list = Vec::new();
    for (place, percent) in percents.iter().enumerate() {
        let value = values.get(place).map(|entry| entry.value / scale).filter(|value| value.is_finite());
        let text = value.map(|value| value_text(node, value)).transpose()?.flatten();
        let key = format!("{percent:?}");
        let mut entry = json!({"key": percent, "value": value});
        if let Some(text) = text {
            entry["value_as_string"] = json!(text);
            map.insert(format!("{key}_as_string"), json!(text));
        }
        map.insert(key, json!(value));
        list.push(entry);
    }
    Ok(if keyed { json!({"values": map}) } else { json!({"values": list}) })
}

fn top_hits<'a>(
    index: &str,
    (sort, source): (&[HitOrder], Option<&Value>),
    found: impl Iterator<Item = &'a TopHitsVecEntry>,
    total: u64,
) -> Value {
    let mut hits = Vec::new();
    for hit in found {
        // The last key of every sort.
        let Some(Some(seq)) = hit.sort.last() else { continue };
        let mut shown = json!({"_index": index, SEQ_REF: seq_ref(*seq), "_score": null});
        if let Some(source) = source {
            shown["_source_spec"] = source.clone();
        }
        if !sort.is_empty() {
            let value = |(order, value): (&HitOrder, &Option<u64>)| match (order.kind, value) {
                (_, None) => Value::Null,
                (Some(FieldKind::Date), Some(value)) => json!(i64::from_u64(*value).div_euclid(1_000_000)),
                (Some(FieldKind::Real(_)), Some(value)) => json!(f64::from_u64(*value)),
                (Some(FieldKind::Integer(_)), Some(value)) => json!(i64::from_u64(*value)),
                (_, Some(value)) => json!(value),
            };
            shown["sort"] = sort.iter().zip(&hit.sort).map(value).collect();
        }
        hits.push(shown);
    }
    json!({"hits": {"total": {"value": total, "relation": "eq"}, "max_score": null, "hits": hits}})
}
