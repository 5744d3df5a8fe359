//! [`AggregationNode`]: one aggregation of a request, with its parameters read: plain data that reading makes, and that running and
//! showing results use.
//!
//! Invariants: a node's id is unique in its request (the library's names are made of it, so that names of users cannot collide
//! with anything); a field is none, or is mapped with types that can be aggregated together.

use std::sync::Arc;

use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use tantivy::aggregation::agg_result::AggregationResults;

use super::own_kinds::OwnKind;
use super::pipeline_kinds::Pipeline;
use super::rounding::DateRounding;
use crate::dates::{self, CalendarUnit};
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};
use crate::view::IndexView;

/// What an aggregation does.
pub(super) enum NodeKind {
    Terms(TermsOptions),
    Histogram {
        interval: f64,
        offset: f64,
        buckets: HistogramOptions,
    },
    DateHistogram {
        rounding: DateRounding,
        buckets: HistogramOptions,
    },
    Range {
        ranges: Vec<RangeOption>,
        keyed: bool,
        of_dates: bool,
    },
    Filter(Value),
    Filters {
        filters: Vec<(Option<String>, Value)>,
        other: Option<String>,
        keyed: bool,
    },
    Missing,
    Global,
    Metric {
        metric: Metric,
        missing: Option<f64>,
    },
    Percentiles {
        percents: Vec<f64>,
        keyed: bool,
        missing: Option<f64>,
    },
    Cardinality {
        missing: Option<Value>,
    },
    Composite(CompositeOptions),
    TopHits {
        sort: Vec<HitOrder>,
        from: u64,
        size: u64,
        source: Option<Value>,
    },
    /// Made here, not by the library.
    Own(OwnKind),
    /// Made of the response.
    Pipeline(Pipeline),
}

/// A number, or a few, about the values of a field.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Metric {
    Avg,
    Sum,
    Min,
    Max,
    Stats,
    ExtendedStats { sigma: Option<f64> },
    ValueCount,
}

/// What top_hits sorts by.
pub(super) struct HitOrder {
    pub(super) path: String,
    pub(super) kind: Option<FieldKind>,
    pub(super) descending: bool,
}

/// Parameters of `terms`.
pub(super) struct TermsOptions {
    pub(super) size: u32,
    pub(super) shard_size: u32,
    pub(super) min_doc_count: u64,
    /// Empty: by count, the greatest first.
    pub(super) order: Vec<(String, bool)>,
    pub(super) missing: Option<Value>,
    pub(super) include: Option<Value>,
    pub(super) exclude: Option<Value>,
}

/// Parameters that both histograms have.
pub(super) struct HistogramOptions {
    pub(super) min_doc_count: u64,
    /// Buckets from the first to the second bound are there even if they are empty.
    pub(super) extended: Option<(f64, f64)>,
    /// Values outside count nowhere.
    pub(super) hard: Option<(f64, f64)>,
    pub(super) keyed: bool,
    pub(super) order: Vec<(String, bool)>,
}

/// One range: from inclusive, to exclusive.
#[derive(Clone)]
pub(super) struct RangeOption {
    pub(super) key: Option<String>,
    pub(super) from: Option<f64>,
    pub(super) to: Option<f64>,
}

impl NodeKind {
    /// Whether it can have aggregations in it.
    pub(super) fn has_buckets(&self) -> bool {
        match self {
            NodeKind::Own(kind) => kind.has_buckets(),
            NodeKind::Metric { .. }
            | NodeKind::Percentiles { .. }
            | NodeKind::Cardinality { .. }
            | NodeKind::TopHits { .. }
            | NodeKind::Pipeline(_) => false,
            _ => true,
        }
    }
}

/// One aggregation.
pub(super) struct AggregationNode {
    pub(super) id: usize,
    /// As the user calls it.
    pub(super) name: String,
    pub(super) kind: NodeKind,
    /// What it aggregates; none for those without a field, and for a field that no index has.
    pub(super) field: Option<Arc<MappedField>>,
    /// The field's name, mapped or not.
    pub(super) path: Option<String>,
    /// How dates are shown.
    pub(super) format: String,
    pub(super) zone: TimeZone,
    pub(super) subs: Vec<AggregationNode>,
    pub(super) meta: Option<Value>,
}

impl AggregationNode {
    /// What its field's values are.
    pub(super) fn values(&self) -> Option<FieldKind> {
        self.field.as_ref().map(|field| field.kind)
    }

    /// Whether it or one in it is made here, not by the library.
    pub(super) fn has_own(&self) -> bool {
        matches!(self.kind, NodeKind::Own(_)) || self.subs.iter().any(AggregationNode::has_own)
    }

    /// Whether it or one in it is made of the response.
    pub(super) fn has_pipeline(&self) -> bool {
        matches!(self.kind, NodeKind::Pipeline(_)) || self.subs.iter().any(AggregationNode::has_pipeline)
    }

    /// The same as one of the library's, if its result is among these: it was read without lists of documents.
    pub(super) fn found_in(mut self, results: &AggregationResults) -> AggregationNode {
        if results.0.contains_key(&self.native())
            && let NodeKind::Own(OwnKind::Percentiles { percents, keyed, missing, .. }) = self.kind
        {
            self.kind = NodeKind::Percentiles { percents, keyed, missing };
        }
        self
    }

    /// Name in the library's request.
    pub(super) fn native(&self) -> String {
        format!("n{}", self.id)
    }

    /// Name of a part in the library's request, for those that need several.
    pub(super) fn native_part(&self, part: usize) -> String {
        format!("n{}_{part}", self.id)
    }

    /// A date as it is shown.
    pub(super) fn date(&self, millis: i64) -> Result<String, SearchError> {
        dates::write(millis, &self.format, &self.zone)
    }
}

/// What the library counts for a bucket, about: its place in a table, with half of the table empty.
pub(super) const BUCKET_BYTES: u64 = 64;

/// Memory of a hit that `top_hits` keeps: its sort values, and its place. The library has room for twice as many.
const HIT_BYTES: u64 = 2 * 48;

/// Memory of a sketch of percentiles with few values.
const SKETCH_BYTES: u64 = 2 << 10;

/// Memory of a sketch of distinct values with few of them.
const DISTINCT_BYTES: u64 = 256;

/// The most memory in one bucket of these aggregations that the library does not count: it counts buckets, and not what metrics keep in
/// each. A `top_hits` of a hundred in each of a million terms would have 10 GB.
pub(super) fn bytes_in_bucket(nodes: &[AggregationNode]) -> u64 {
    fn inside(node: &AggregationNode) -> u64 {
        node.subs.iter().map(|sub| of_metric(&sub.kind) + inside(sub)).sum()
    }
    nodes.iter().map(inside).max().unwrap_or(0)
}

fn of_metric(kind: &NodeKind) -> u64 {
    match kind {
        NodeKind::TopHits { from, size, .. } => (from + size) * HIT_BYTES,
        NodeKind::Percentiles { .. } => SKETCH_BYTES,
        NodeKind::Cardinality { .. } => DISTINCT_BYTES,
        _ => 0,
    }
}

/// Reads requests.
pub(super) struct Reader<'a> {
    pub(super) views: Vec<&'a IndexView>,
    pub(super) now: i64,
    pub(super) count: usize,
}

impl Reader<'_> {
    /// The field of that name in the first index that has it. Errors: it is a text, is kept without a column, or is something
    /// else in another index.
    pub(super) fn field(&self, path: &str) -> Result<Option<Arc<MappedField>>, SearchError> {
        let mut found: Option<Arc<MappedField>> = None;
        for field in self.views.iter().filter_map(|view| view.mapping.field(path)) {
            if field.kind == FieldKind::Text {
                return Err(SearchError::argument(format!(
                    "Fielddata is disabled on [{path}]: its type is [{}], and the terms of a text cannot be aggregated. Text \
                     fields are not optimised for operations that require per-document field data: aggregate a keyword field \
                     instead",
                    field.type_name
                )));
            }
            if !field.doc_values {
                return Err(SearchError::argument(format!(
                    "Can't load fielddata on [{path}] because fielddata is unsupported on fields of type [{}]. Use doc values \
                     instead.",
                    field.type_name
                )));
            }
            match &found {
                Some(known) if class(known.kind) != class(field.kind) => {
                    return Err(SearchError::argument(format!(
                        "field [{path}] is [{}] in one index and [{}] in another: they cannot be aggregated together",
                        known.type_name, field.type_name
                    )));
                }
                Some(_) => {}
                None => found = Some(field.clone()),
            }
        }
        Ok(found)
    }
}

/// Kinds with the same number have the same column type in the library.
fn class(kind: FieldKind) -> u8 {
    match kind {
        FieldKind::Text => 0,
        FieldKind::Keyword => 1,
        FieldKind::Integer(_) | FieldKind::UnsignedLong | FieldKind::Real(_) => 2,
        FieldKind::Boolean => 3,
        FieldKind::Date => 4,
        FieldKind::Ip => 5,
        FieldKind::Opaque => 6,
    }
}

/// Parameters of `composite`.
pub(super) struct CompositeOptions {
    pub(super) size: u32,
    pub(super) sources: Vec<KeySource>,
    /// The key after which the page begins.
    pub(super) after: Option<Map<String, Value>>,
}

/// A part of the keys.
pub(super) struct KeySource {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) kind: Option<FieldKind>,
    pub(super) by: KeyBy,
    pub(super) descending: bool,
    pub(super) missing: bool,
    /// Whether documents without a value come first; none: as the order says.
    pub(super) missing_first: Option<bool>,
    /// How dates are shown, if not as milliseconds.
    pub(super) format: Option<String>,
}

/// How values become parts of keys.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum KeyBy {
    Value,
    Interval(f64),
    /// In milliseconds.
    FixedDates(i64),
    /// Years, months or weeks.
    CalendarDates(CalendarUnit),
}
