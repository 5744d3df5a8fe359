//! [`Translator`]: from aggregations to the library's request for one index.
//!
//! What the library lacks is made of what it has: `filters` and `missing` are filters, ranges that overlap are one range request
//! each, a calendar's buckets are ranges between boundaries, numbers about booleans are counts of the two terms. `global` is not
//! translated here: it is a search of its own.
//!
//! A column that an index does not have has a name that no schema has; the library then finds no values.

use std::collections::HashMap;

use serde_json::{Value, json};
use tantivy::aggregation::Key;
use tantivy::aggregation::agg_req::{Aggregation, AggregationVariants, Aggregations};
use tantivy::aggregation::bucket::{
    AfterKey, CalendarInterval, CompositeAggregation, CompositeAggregationSource, CustomOrder,
    DateHistogramCompositeAggregationSource, FilterAggregation, HistogramAggregation,
    HistogramCompositeAggregationSource, IncludeExcludeParam, MissingOrder, Order, OrderTarget, RangeAggregation,
    RangeAggregationRange, TermCompositeAggregationSource, TermsAggregation,
};
use tantivy::aggregation::intermediate_agg_result::CompositeIntermediateKey;
use tantivy::aggregation::metric::{
    AverageAggregation, CardinalityAggregationReq, CountAggregation, ExtendedStatsAggregation, MaxAggregation,
    MinAggregation, PercentilesAggregationReq, StatsAggregation, SumAggregation, TopHitsAggregationReq,
};
use tantivy::query::{AllQuery, BooleanQuery, Occur, Query, TermQuery};
use tantivy::schema::IndexRecordOption;
use tantivy::{TantivyError, Term};

use super::QueryBuilderFn;
use super::collect::BuiltQuery;
use super::node::AggregationNode;
use super::node::{CompositeOptions, KeyBy, KeySource};
use super::node::{HitOrder, Metric, NodeKind, RangeOption, TermsOptions};
use super::rounding::DateRounding;
use crate::dates::{CalendarUnit, DateFormats};
use crate::document;
use crate::error::SearchError;
use crate::mapping::FieldKind;
use crate::schema;
use crate::view::IndexView;

/// A name that no column has.
const NO_COLUMN: &str = "_no_column";

/// Nanoseconds of a millisecond: the unit of the library's dates.
pub(super) const NANOS: f64 = 1_000_000.0;

/// Bounds lie half a millisecond before the dates that they stand for: dates are whole milliseconds, but the library compares
/// nanoseconds with a precision of some hundred.
pub(super) const HALF: f64 = 0.5;

/// Buckets of date histograms, each with its beginning and end, one after the other, by the ids of their nodes.
pub(super) type DateSpans = HashMap<usize, Vec<(i64, i64)>>;

/// The parts of so many milliseconds in which there are dates.
pub(super) fn even_dates(field: String, length: i64) -> HistogramAggregation {
    HistogramAggregation {
        field,
        interval: length as f64,
        offset: Some(-HALF),
        min_doc_count: Some(1),
        ..HistogramAggregation::default()
    }
}

/// Translates for one index.
pub(super) struct Translator<'a> {
    pub(super) view: &'a IndexView,
    pub(super) build: &'a QueryBuilderFn<'a>,
    /// Of each date histogram that has other buckets than of one length, by its id.
    pub(super) boundaries: &'a DateSpans,
    /// The most terms of one aggregation.
    pub(super) terms_max: u32,
}

impl Translator<'_> {
    /// The library's request. Errors: a filter that cannot be built, a value that its field cannot hold.
    pub(super) fn aggregations<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n AggregationNode>,
    ) -> Result<Aggregations, SearchError> {
        let mut all = Aggregations::default();
        for node in nodes {
            self.add(node, &mut all)?;
        }
        Ok(all)
    }

    fn column(&self, path: &str) -> String {
        column(self.view, path)
    }

    /// What the values are in this index, or in others.
    fn values(&self, node: &AggregationNode) -> Option<FieldKind> {
        let own = node.path.as_deref().and_then(|path| self.view.mapping.field(path));
        own.map(|field| field.kind).or_else(|| node.values())
    }

    fn add(&self, node: &AggregationNode, all: &mut Aggregations) -> Result<(), SearchError> {
        let field = self.column(node.path.as_deref().unwrap_or_default());
        let agg = match &node.kind {
            NodeKind::Global | NodeKind::Own(_) | NodeKind::Pipeline(_) => return Ok(()),
            NodeKind::Filter(query) => {
                let query = (self.build)(self.view, query)?;
                return self.add_filter(node, node.native(), query, all);
            }
            NodeKind::Missing => {
                return self.add_filter(
                    node,
                    node.native(),
                    self.without(node.path.as_deref().unwrap_or_default()),
                    all,
                );
            }
            NodeKind::Filters { filters, other, .. } => return self.add_filters(node, filters, other.is_some(), all),
            NodeKind::Range { ranges, .. } => return self.add_ranges(node, &field, ranges, all),
            NodeKind::DateHistogram { rounding: DateRounding::Fixed { interval, offset }, .. } => {
                AggregationVariants::Histogram(HistogramAggregation {
                    field,
                    interval: *interval as f64,
                    offset: Some(*offset as f64 - HALF),
                    min_doc_count: Some(1),
                    ..HistogramAggregation::default()
                })
            }
            NodeKind::DateHistogram { .. } => return self.add_boundaries(node, field, all),
            NodeKind::Histogram { interval, offset, .. } => AggregationVariants::Histogram(HistogramAggregation {
                field,
                interval: *interval,
                offset: Some(offset.rem_euclid(*interval)),
                min_doc_count: Some(1),
                ..HistogramAggregation::default()
            }),
            NodeKind::Terms(options) => AggregationVariants::Terms(self.terms(node, field, options)?),
            NodeKind::Metric { metric, missing } => self.metric(node, field, *metric, *missing),
            NodeKind::Percentiles { percents, missing, .. } => {
                AggregationVariants::Percentiles(PercentilesAggregationReq {
                    percents: Some(percents.clone()),
                    keyed: false,
                    missing: *missing,
                    ..PercentilesAggregationReq::from_field_name(field)
                })
            }
            NodeKind::Cardinality { missing } => {
                let missing = missing.as_ref().map(|missing| missing_key(missing, self.values(node))).transpose()?;
                AggregationVariants::Cardinality(CardinalityAggregationReq { field, missing })
            }
            NodeKind::Composite(options) => AggregationVariants::Composite(self.composite(options)?),
            NodeKind::TopHits { sort, from, size, .. } => {
                let mut by: Vec<Value> = sort
                    .iter()
                    .map(|order| json!({ self.column(&order.path): if order.descending { "desc" } else { "asc" } }))
                    .collect();
                // It names the document. As a value of a field, each hit would have a map with its name and two lists: seconds for the
                // hits of thousands of buckets, in which the library cannot be stopped.
                by.push(json!({ schema::SEQ: "asc" }));
                // The library fails for no hits at all, and where there are fewer hits than are left out: both are cut later.
                let size = (from + size).max(1);
                let request = json!({"sort": by, "size": size});
                let request: TopHitsAggregationReq = serde_json::from_value(request)
                    .map_err(|error| SearchError::internal(format!("the request of top_hits: {error}")))?;
                let agg = AggregationVariants::TopHits(request);
                return self.add_hits(node, agg, sort.first(), all);
            }
        };
        all.insert(node.native(), self.with_subs(agg, node)?);
        Ok(())
    }

    /// The library puts documents without a value before all others: those without the first one are sorted apart, and shown
    /// last. For further sort keys it stays as the library has it.
    fn add_hits(
        &self,
        node: &AggregationNode,
        agg: AggregationVariants,
        first: Option<&HitOrder>,
        all: &mut Aggregations,
    ) -> Result<(), SearchError> {
        let hits = Aggregation { agg, sub_aggregation: Aggregations::default() };
        let Some(first) = first else {
            all.insert(node.native(), hits);
            return Ok(());
        };
        let without = self.without(&first.path);
        let any: (Occur, Box<dyn Query>) = (Occur::Must, Box::new(AllQuery));
        let with: Box<dyn Query> = Box::new(BooleanQuery::new(vec![any, (Occur::MustNot, without.box_clone())]));
        for (part, query) in [with, without].into_iter().enumerate() {
            let filter = FilterAggregation::new_with_builder(Box::new(BuiltQuery(query)));
            let sub_aggregation = Aggregations::from_iter([(node.native(), hits.clone())]);
            let agg = AggregationVariants::Filter(filter);
            all.insert(node.native_part(part), Aggregation { agg, sub_aggregation });
        }
        Ok(())
    }

    fn with_subs(&self, agg: AggregationVariants, node: &AggregationNode) -> Result<Aggregation, SearchError> {
        Ok(Aggregation { agg, sub_aggregation: self.aggregations(&node.subs)? })
    }

    fn add_filter(
        &self,
        node: &AggregationNode,
        name: String,
        query: Box<dyn Query>,
        all: &mut Aggregations,
    ) -> Result<(), SearchError> {
        let filter = FilterAggregation::new_with_builder(Box::new(BuiltQuery(query)));
        all.insert(name, self.with_subs(AggregationVariants::Filter(filter), node)?);
        Ok(())
    }

    /// The documents without a value of the field.
    fn without(&self, path: &str) -> Box<dyn Query> {
        let Some(field) = self.view.mapping.field(path) else { return Box::new(AllQuery) };
        let term = Term::from_field_text(self.view.own.names, &field.path);
        let with: Box<dyn Query> = Box::new(TermQuery::new(term, IndexRecordOption::Basic));
        Box::new(BooleanQuery::new(vec![(Occur::Must, Box::new(AllQuery)), (Occur::MustNot, with)]))
    }

    fn add_filters(
        &self,
        node: &AggregationNode,
        filters: &[(Option<String>, Value)],
        other: bool,
        all: &mut Aggregations,
    ) -> Result<(), SearchError> {
        let mut none: Vec<(Occur, Box<dyn Query>)> = vec![(Occur::Must, Box::new(AllQuery))];
        for (part, (_, query)) in filters.iter().enumerate() {
            let query = (self.build)(self.view, query)?;
            none.push((Occur::MustNot, query.box_clone()));
            self.add_filter(node, node.native_part(part), query, all)?;
        }
        if other {
            self.add_filter(node, node.native_part(filters.len()), Box::new(BooleanQuery::new(none)), all)?;
        }
        Ok(())
    }

    fn add_ranges(
        &self,
        node: &AggregationNode,
        field: &str,
        ranges: &[RangeOption],
        all: &mut Aggregations,
    ) -> Result<(), SearchError> {
        let end = |end: f64| match self.values(node) {
            Some(FieldKind::Date) => (end - HALF) * NANOS,
            // The library drops the fraction of the end.
            Some(FieldKind::Integer(_) | FieldKind::UnsignedLong) => end.ceil(),
            _ => end,
        };
        // Which parts there are depends on the request alone: results of indices with different columns are merged.
        let mut kept: Vec<RangeAggregationRange> = Vec::new();
        let mut parts: Vec<usize> = Vec::new();
        for (part, range) in ranges.iter().enumerate() {
            // A range that nothing lies in is shown as an empty bucket without the library.
            if range.from.zip(range.to).is_some_and(|(from, to)| from >= to) {
                continue;
            }
            let (mut from, mut to) = (range.from.map(end), range.to.map(end));
            if from.zip(to).is_some_and(|(from, to)| from >= to) {
                // Between two whole numbers: at the end of all values.
                (from, to) = (Some(f64::MAX), Some(f64::MAX));
            }
            kept.push(RangeAggregationRange { key: Some(range_key(part)), from, to });
            parts.push(part);
        }
        let whole = ranges.iter().all(|range| [range.from, range.to].iter().flatten().all(|end| end.fract() == 0.0));
        let apart =
            parts.windows(2).all(|two| ranges[two[0]].to.zip(ranges[two[1]].from).is_some_and(|(to, from)| to <= from));
        let request = |ranges| RangeAggregation { field: field.to_owned(), ranges, keyed: false };
        if whole && apart && !kept.is_empty() {
            all.insert(node.native(), self.with_subs(AggregationVariants::Range(request(kept)), node)?);
            return Ok(());
        }
        for (range, part) in kept.into_iter().zip(parts) {
            let request = request(vec![range]);
            all.insert(node.native_part(part), self.with_subs(AggregationVariants::Range(request), node)?);
        }
        Ok(())
    }

    fn add_boundaries(&self, node: &AggregationNode, field: String, all: &mut Aggregations) -> Result<(), SearchError> {
        let Some(boundaries) = self.boundaries.get(&node.id) else { return Ok(()) };
        let end = |millis: i64| Some((millis as f64 - HALF) * NANOS);
        let range = |(part, (from, to)): (usize, &(i64, i64))| RangeAggregationRange {
            key: Some(range_key(part)),
            from: end(*from),
            to: end(*to),
        };
        let ranges = boundaries.iter().enumerate().map(range).collect();
        let request = RangeAggregation { field, ranges, keyed: false };
        all.insert(node.native(), self.with_subs(AggregationVariants::Range(request), node)?);
        Ok(())
    }

    fn terms(
        &self,
        node: &AggregationNode,
        field: String,
        options: &TermsOptions,
    ) -> Result<TermsAggregation, SearchError> {
        let order = native_order(node, options);
        let size = if order.is_some() { options.size.min(self.terms_max) } else { self.terms_max };
        let segment_size = size.saturating_mul(10).max(options.shard_size).min(self.terms_max.saturating_mul(10));
        let natively = lists_natively(node, options);
        let some_of = |value: &Option<Value>| value.as_ref().filter(|_| natively).map(texts).transpose();
        Ok(TermsAggregation {
            field,
            size: Some(size),
            segment_size: Some(segment_size.max(size)),
            show_term_doc_count_error: Some(true),
            min_doc_count: Some(options.min_doc_count),
            order: order.or_else(|| Some(CustomOrder::default())),
            missing: options.missing.as_ref().map(|key| missing_key(key, self.values(node))).transpose()?,
            include: some_of(&options.include)?,
            exclude: some_of(&options.exclude)?,
        })
    }

    fn metric(
        &self,
        node: &AggregationNode,
        field: String,
        metric: Metric,
        missing: Option<f64>,
    ) -> AggregationVariants {
        if self.values(node) == Some(FieldKind::Boolean) && metric != Metric::ValueCount {
            return AggregationVariants::Terms(TermsAggregation {
                field,
                size: Some(2),
                ..TermsAggregation::default()
            });
        }
        match metric {
            Metric::Avg => AggregationVariants::Average(AverageAggregation {
                missing,
                ..AverageAggregation::from_field_name(field)
            }),
            Metric::Sum => {
                AggregationVariants::Sum(SumAggregation { missing, ..SumAggregation::from_field_name(field) })
            }
            Metric::Min => {
                AggregationVariants::Min(MinAggregation { missing, ..MinAggregation::from_field_name(field) })
            }
            Metric::Max => {
                AggregationVariants::Max(MaxAggregation { missing, ..MaxAggregation::from_field_name(field) })
            }
            Metric::Stats => {
                AggregationVariants::Stats(StatsAggregation { missing, ..StatsAggregation::from_field_name(field) })
            }
            Metric::ExtendedStats { sigma } => {
                AggregationVariants::ExtendedStats(ExtendedStatsAggregation { field, missing, sigma })
            }
            Metric::ValueCount => {
                AggregationVariants::Count(CountAggregation { missing, ..CountAggregation::from_field_name(field) })
            }
        }
    }

    fn composite(&self, options: &CompositeOptions) -> Result<CompositeAggregation, SearchError> {
        let sources = options.sources.iter().map(|source| self.key_source(source)).collect();
        let after = match &options.after {
            None => Default::default(),
            Some(after) => options
                .sources
                .iter()
                .map(|source| {
                    let kind = self.view.mapping.field(&source.path).map(|field| field.kind).or(source.kind);
                    let value = after.get(&source.name).unwrap_or(&Value::Null);
                    Ok((source.name.clone(), AfterKey(after_key(source, kind, value)?)))
                })
                .collect::<Result<_, SearchError>>()?,
        };
        Ok(CompositeAggregation { sources, size: options.size, after })
    }

    fn key_source(&self, source: &KeySource) -> CompositeAggregationSource {
        let (name, field) = (source.name.clone(), self.column(&source.path));
        let order = if source.descending { Order::Desc } else { Order::Asc };
        let missing_bucket = source.missing;
        let missing_order = match source.missing_first {
            None => MissingOrder::Default,
            Some(true) => MissingOrder::First,
            Some(false) => MissingOrder::Last,
        };
        let dates = |fixed_interval, calendar_interval| {
            CompositeAggregationSource::DateHistogram(DateHistogramCompositeAggregationSource {
                name: name.clone(),
                field: field.clone(),
                fixed_interval,
                calendar_interval,
                order,
                missing_bucket,
                missing_order,
            })
        };
        match source.by {
            KeyBy::FixedDates(millis) => dates(Some(format!("{millis}ms")), None),
            KeyBy::CalendarDates(CalendarUnit::Year) => dates(None, Some(CalendarInterval::Year)),
            KeyBy::CalendarDates(CalendarUnit::Week) => dates(None, Some(CalendarInterval::Week)),
            KeyBy::CalendarDates(_) => dates(None, Some(CalendarInterval::Month)),
            KeyBy::Interval(interval) => CompositeAggregationSource::Histogram(HistogramCompositeAggregationSource {
                name,
                field,
                interval,
                order,
                missing_bucket,
                missing_order,
            }),
            KeyBy::Value => CompositeAggregationSource::Terms(TermCompositeAggregationSource {
                name,
                field,
                order,
                missing_bucket,
                missing_order,
            }),
        }
    }
}

/// The column of a field in an index, or a name that no column has.
pub(super) fn column(view: &IndexView, path: &str) -> String {
    let field = view.mapping.field(path).filter(|field| view.column(field).is_some());
    field.map_or_else(|| NO_COLUMN.to_owned(), |field| field.column.clone())
}

/// The key of a range in the library's request.
pub(super) fn range_key(part: usize) -> String {
    format!("r{part}")
}

/// The library's order of terms; none if it has no such order: then all terms are asked for, and sorted and cut afterwards.
pub(super) fn native_order(node: &AggregationNode, options: &TermsOptions) -> Option<CustomOrder> {
    if (options.include.is_some() || options.exclude.is_some()) && !lists_natively(node, options) {
        return None;
    }
    let names: Vec<(&str, bool)> =
        options.order.iter().map(|(name, descending)| (name.as_str(), *descending)).collect();
    let (target, descending) = match names[..] {
        [] => (OrderTarget::Count, true),
        [("_count", descending)] | [("_count", descending), ("_key", false)] => (OrderTarget::Count, descending),
        // The library sorts the keys of dates and addresses as texts.
        [("_key", descending), ..] if !matches!(node.values(), Some(FieldKind::Date | FieldKind::Ip)) => {
            (OrderTarget::Key, descending)
        }
        _ => return None,
    };
    Some(CustomOrder { target, order: if descending { Order::Desc } else { Order::Asc } })
}

/// Whether the library chooses terms by `include` and `exclude`: it does so for texts, and then loses the documents without a
/// value in segments that have none at all.
fn lists_natively(node: &AggregationNode, options: &TermsOptions) -> bool {
    options.missing.is_none() && matches!(node.values(), None | Some(FieldKind::Keyword))
}

/// A list of terms, or a regular expression.
fn texts(value: &Value) -> Result<IncludeExcludeParam, SearchError> {
    match value {
        Value::Array(list) => Ok(IncludeExcludeParam::Values(
            list.iter()
                .map(|value| document::text_of(value).map_err(SearchError::parsing))
                .collect::<Result<_, _>>()?,
        )),
        other => Ok(IncludeExcludeParam::Regex(document::text_of(other).map_err(SearchError::parsing)?)),
    }
}

/// What documents without a value count as.
fn missing_key(value: &Value, kind: Option<FieldKind>) -> Result<Key, SearchError> {
    let wrong = SearchError::argument;
    Ok(match (kind, value) {
        (Some(FieldKind::Keyword), value) => Key::Str(document::text_of(value).map_err(wrong)?),
        (Some(FieldKind::Integer(_)), value) => Key::I64(document::integer(value, 64, true).map_err(wrong)?),
        (Some(FieldKind::UnsignedLong), value) => Key::U64(document::unsigned(value).map_err(wrong)?),
        (Some(FieldKind::Real(_)), value) => Key::F64(document::real(value).map_err(wrong)?),
        (None, Value::Number(number)) => match number.as_i64() {
            Some(whole) => Key::I64(whole),
            None => Key::F64(document::real(value).map_err(wrong)?),
        },
        (None, value) => Key::Str(document::text_of(value).map_err(wrong)?),
        (Some(_), _) => return Err(SearchError::unsupported("[missing] of a field of booleans, dates or addresses")),
    })
}

/// A part of the key after which a page begins.
fn after_key(
    source: &KeySource,
    kind: Option<FieldKind>,
    value: &Value,
) -> Result<CompositeIntermediateKey, SearchError> {
    let wrong = |why: String| SearchError::argument(format!("Invalid value for [after.{}]: {why}", source.name));
    if value.is_null() {
        if !source.missing {
            return Err(wrong("it is null, and [missing_bucket] is false".to_owned()));
        }
        return Ok(CompositeIntermediateKey::Null);
    }
    if let KeyBy::Interval(_) = source.by {
        return Ok(CompositeIntermediateKey::F64(document::real(value).map_err(wrong)?));
    }
    let of_dates = source.by != KeyBy::Value || kind == Some(FieldKind::Date);
    if of_dates {
        let millis = match (value.as_i64(), &source.format) {
            (Some(millis), _) => millis,
            (None, Some(format)) => DateFormats::parse_list(format)?.value(value)?,
            (None, None) => DateFormats::default().value(value)?,
        };
        let nanos = millis.checked_mul(1_000_000).ok_or_else(|| wrong("it is out of range".to_owned()))?;
        return Ok(CompositeIntermediateKey::DateTime(nanos));
    }
    Ok(match kind {
        Some(FieldKind::Integer(_)) => {
            CompositeIntermediateKey::I64(document::integer(value, 64, true).map_err(wrong)?)
        }
        Some(FieldKind::UnsignedLong) => CompositeIntermediateKey::U64(document::unsigned(value).map_err(wrong)?),
        Some(FieldKind::Real(_)) => CompositeIntermediateKey::F64(document::real(value).map_err(wrong)?),
        Some(FieldKind::Boolean) => CompositeIntermediateKey::Bool(document::boolean(value).map_err(wrong)?),
        Some(FieldKind::Ip) => {
            let text = document::text_of(value).map_err(wrong)?;
            CompositeIntermediateKey::IpAddr(document::address(&text).map_err(wrong)?)
        }
        _ => CompositeIntermediateKey::Str(document::text_of(value).map_err(wrong)?),
    })
}

/// The library's error as one of the API.
pub(super) fn native_error(error: TantivyError, buckets: u32) -> SearchError {
    use tantivy::aggregation::AggregationError;
    match error {
        TantivyError::AggregationError(AggregationError::MemoryExceeded { limit, .. }) => SearchError::new(
            429,
            "circuit_breaking_exception",
            format!("the aggregations of this search need more memory than [{limit}]"),
        ),
        TantivyError::AggregationError(AggregationError::BucketLimitExceeded { .. }) => {
            super::too_many_buckets(buckets)
        }
        other => SearchError::from(other),
    }
}
