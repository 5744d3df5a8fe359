//! Aggregations of many buckets in the response: their keys, their order, and the empty ones between them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use tantivy::aggregation::Key;
use tantivy::aggregation::agg_result::{
    AggregationResult, AggregationResults, BucketEntries, BucketResult, CompositeKey, RangeBucketEntry,
};

use super::native::{HALF, NANOS, native_order, range_key};
use super::node::AggregationNode;
use super::node::{CompositeOptions, KeyBy, KeySource};
use super::node::{HistogramOptions, NodeKind, RangeOption, TermsOptions};
use super::render::{FoundBucket, Renderer, filter_bucket};
use super::rounding::DateRounding;
use crate::dates;
use crate::document;
use crate::error::SearchError;
use crate::mapping::FieldKind;

/// A key, as buckets are sorted by it.
#[derive(Clone, Debug)]
enum SortedKey {
    Whole(i128),
    Real(f64),
    Address(IpAddr),
    Text(String),
}

impl SortedKey {
    fn compare(&self, other: &SortedKey) -> Ordering {
        match (self, other) {
            (SortedKey::Whole(a), SortedKey::Whole(b)) => a.cmp(b),
            (SortedKey::Real(a), SortedKey::Real(b)) => a.total_cmp(b),
            (SortedKey::Whole(a), SortedKey::Real(b)) => (*a as f64).total_cmp(b),
            (SortedKey::Real(a), SortedKey::Whole(b)) => a.total_cmp(&(*b as f64)),
            (SortedKey::Address(a), SortedKey::Address(b)) => a.cmp(b),
            (SortedKey::Text(a), SortedKey::Text(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            SortedKey::Whole(_) | SortedKey::Real(_) => 0,
            SortedKey::Address(_) => 1,
            SortedKey::Text(_) => 2,
        }
    }
}

/// A bucket on its way into the response.
struct ShownBucket {
    key: SortedKey,
    doc_count: u64,
    /// Buckets that it counts as, with those in it.
    cost: u32,
    /// Memory that it takes.
    bytes: u64,
    json: Map<String, Value>,
}

/// Count and sub-aggregations of dates from a moment on.
type DateBuckets<'a> = BTreeMap<i64, FoundBucket<'a>>;

impl Renderer {
    fn shown(
        &self,
        node: &AggregationNode,
        key: SortedKey,
        names: Map<String, Value>,
        found: Option<FoundBucket<'_>>,
    ) -> Result<ShownBucket, SearchError> {
        let (before, taken) = (self.buckets.get(), self.memory.used());
        self.count_bucket()?;
        names.values().try_for_each(|name| self.memory.take_value(name))?;
        let mut json = names;
        json.extend(self.bucket(node, found)?);
        let (cost, bytes) = (self.buckets.get() - before, self.memory.used() - taken);
        Ok(ShownBucket { key, doc_count: found.map_or(0, |(count, _)| count), cost, bytes, json })
    }

    pub(super) fn terms(
        &self,
        node: &AggregationNode,
        options: &TermsOptions,
        found: Option<&AggregationResult>,
    ) -> Result<Value, SearchError> {
        let (entries, mut others, error) = match found {
            Some(AggregationResult::BucketResult(BucketResult::Terms {
                buckets,
                sum_other_doc_count,
                doc_count_error_upper_bound,
            })) => (buckets.as_slice(), *sum_other_doc_count, doc_count_error_upper_bound.unwrap_or(0)),
            _ => (&[][..], 0, 0),
        };
        // The library bounds the error by the best term that a segment did not return. Of one segment all counts are exact.
        let error = if self.segments > 1 { error } else { 0 };
        let sorts = native_order(node, options).is_none();
        let mut buckets = Vec::new();
        for entry in entries {
            let (key, names) = term_names(node, &entry.key)?;
            if sorts && !is_listed(node, options, &names) {
                continue;
            }
            buckets.push(self.shown(node, key, names, Some((entry.doc_count, &entry.sub_aggregation)))?);
        }
        if sorts {
            let order = [("_count".to_owned(), true)];
            self.sort(node, if options.order.is_empty() { &order } else { &options.order }, &mut buckets)?;
        }
        let size = options.size as usize;
        for cut in buckets.drain(size.min(buckets.len())..) {
            others += cut.doc_count;
            self.buckets.set(self.buckets.get() - cut.cost);
            self.memory.give(cut.bytes);
        }
        Ok(json!({
            "doc_count_error_upper_bound": error,
            "sum_other_doc_count": others,
            "buckets": buckets.into_iter().map(|bucket| bucket.json).collect::<Vec<_>>(),
        }))
    }

    /// Sorts by keys, counts and values of sub-aggregations; ties by key. Buckets without the value come last.
    fn sort(
        &self,
        node: &AggregationNode,
        order: &[(String, bool)],
        buckets: &mut Vec<ShownBucket>,
    ) -> Result<(), SearchError> {
        let mut all: Vec<(Vec<Option<f64>>, ShownBucket)> = Vec::with_capacity(buckets.len());
        for bucket in buckets.drain(..) {
            let mut values = Vec::new();
            for (path, _) in order.iter().filter(|(path, _)| path != "_key" && path != "_count") {
                values.push(self.value_at(&node.subs, &bucket.json, path)?);
            }
            all.push((values, bucket));
        }
        all.sort_by(|(a_values, a), (b_values, b)| {
            let mut values = a_values.iter().zip(b_values);
            for (path, descending) in order {
                let turned = |ordering: Ordering| if *descending { ordering.reverse() } else { ordering };
                let ordering = match path.as_str() {
                    "_key" => turned(a.key.compare(&b.key)),
                    "_count" => turned(a.doc_count.cmp(&b.doc_count)),
                    _ => match values.next() {
                        Some((Some(a), Some(b))) => turned(a.total_cmp(b)),
                        Some((a, b)) => b.is_some().cmp(&a.is_some()),
                        None => Ordering::Equal,
                    },
                };
                if ordering != Ordering::Equal {
                    return ordering;
                }
            }
            a.key.compare(&b.key)
        });
        buckets.extend(all.into_iter().map(|(_, bucket)| bucket));
        Ok(())
    }

    /// The number at `filter>stats.avg`.
    pub(super) fn value_at(
        &self,
        subs: &[AggregationNode],
        json: &Map<String, Value>,
        path: &str,
    ) -> Result<Option<f64>, SearchError> {
        let (first, rest) = match path.split_once('>') {
            Some((first, rest)) => (first.trim(), Some(rest.trim())),
            None => (path, None),
        };
        let wrong = || {
            SearchError::argument(format!(
                "Invalid aggregation order path [{path}]. Buckets can only be sorted on a sub-aggregator path that is built out \
                 of zero or more single-bucket aggregations within the path and a final single-bucket or a metrics aggregation \
                 at the path end."
            ))
        };
        let exact = subs.iter().find(|sub| sub.name == first);
        let (sub, property) = match exact {
            Some(sub) => (sub, None),
            None => {
                let cut = first.rfind(['.', '[']).ok_or_else(wrong)?;
                let (name, property) = first.split_at(cut);
                // A percentile can have a point of its own: the longest name that there is.
                let sub = subs.iter().filter(|sub| first.starts_with(&sub.name)).max_by_key(|sub| sub.name.len());
                let sub = sub.ok_or_else(wrong)?;
                let property = if sub.name == name { property } else { first.split_at(sub.name.len()).1 };
                (sub, Some(property.trim_matches(['.', '[', ']'])))
            }
        };
        let shown = json.get(&self.name(sub)).ok_or_else(wrong)?;
        if let Some(rest) = rest {
            let inside = shown.as_object().filter(|inside| inside.contains_key("doc_count")).ok_or_else(wrong)?;
            return self.value_at(&sub.subs, inside, rest);
        }
        let value = match (property, &sub.kind) {
            (Some("doc_count" | "_count"), _) => shown.get("doc_count"),
            (Some(percent), NodeKind::Percentiles { percents, keyed, .. }) => {
                let wanted: f64 = percent.parse().map_err(|_| wrong())?;
                let place = percents.iter().position(|percent| *percent == wanted).ok_or_else(wrong)?;
                match keyed {
                    true => shown["values"].get(format!("{wanted:?}")),
                    false => shown["values"].get(place).and_then(|entry| entry.get("value")),
                }
            }
            (Some(property), _) => shown.get(property),
            (None, _) => shown.get("value").or_else(|| shown.get("doc_count")),
        };
        Ok(value.ok_or_else(wrong)?.as_f64())
    }

    fn histogram_buckets(
        &self,
        node: &AggregationNode,
        options: &HistogramOptions,
        mut buckets: Vec<ShownBucket>,
    ) -> Result<Value, SearchError> {
        if !options.order.is_empty() {
            self.sort(node, &options.order, &mut buckets)?;
        }
        if !options.keyed {
            return Ok(json!({"buckets": buckets.into_iter().map(|bucket| bucket.json).collect::<Vec<_>>()}));
        }
        let name = |json: &Map<String, Value>| match json.get("key_as_string").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => json.get("key").map(Value::to_string).unwrap_or_default(),
        };
        let map: Map<_, _> =
            buckets.into_iter().map(|bucket| (name(&bucket.json), Value::Object(bucket.json))).collect();
        Ok(json!({ "buckets": map }))
    }

    pub(super) fn histogram(
        &self,
        node: &AggregationNode,
        (interval, offset): (f64, f64),
        options: &HistogramOptions,
        found: Option<&AggregationResult>,
    ) -> Result<Value, SearchError> {
        let base = offset.rem_euclid(interval);
        let place = |key: f64| ((key - base) / interval).round() as i64;
        let floor = |value: f64| ((value - base) / interval).floor() as i64;
        let inside =
            |key: f64| options.hard.is_none_or(|(min, max)| key >= floor(min) as f64 * interval + base && key <= max);
        let mut known: BTreeMap<i64, FoundBucket<'_>> = BTreeMap::new();
        for (key, bucket) in histogram_entries(found, false) {
            if inside(key) {
                known.insert(place(key), bucket);
            }
        }
        let (mut first, mut last) = (known.keys().next().copied(), known.keys().next_back().copied());
        if let Some((min, max)) = options.extended.filter(|_| options.min_doc_count == 0) {
            if min.is_finite() {
                first = Some(first.map_or(floor(min), |first| first.min(floor(min))));
                last = last.or(first);
            }
            if max.is_finite() {
                last = Some(last.map_or(floor(max), |last| last.max(floor(max))));
                first = first.or(last);
            }
        }
        let mut buckets = Vec::new();
        let mut show = |place: i64, found: Option<FoundBucket<'_>>| {
            let key = place as f64 * interval + base;
            let names = Map::from_iter([("key".to_owned(), json!(key))]);
            buckets.push(self.shown(node, SortedKey::Real(key), names, found)?);
            Ok::<_, SearchError>(())
        };
        match (first, last) {
            (Some(first), Some(last)) if options.min_doc_count == 0 => {
                for place in first..=last {
                    show(place, known.get(&place).copied())?;
                }
            }
            _ => {
                for (place, found) in known.iter().filter(|(_, found)| found.0 >= options.min_doc_count) {
                    show(*place, Some(*found))?;
                }
            }
        }
        self.histogram_buckets(node, options, buckets)
    }

    pub(super) fn date_histogram(
        &self,
        node: &AggregationNode,
        rounding: &DateRounding,
        options: &HistogramOptions,
        found: Option<&AggregationResult>,
    ) -> Result<Value, SearchError> {
        let floor = |bound: f64| bound.is_finite().then(|| rounding.floor(bound as i64)).flatten();
        let known: DateBuckets<'_> = match rounding {
            DateRounding::Fixed { .. } => {
                histogram_entries(found, true).map(|(key, bucket)| ((key + HALF).round() as i64, bucket)).collect()
            }
            _ => range_entries(found)
                .filter(|entry| entry.doc_count > 0 && matches!(&entry.key, Key::Str(key) if key.starts_with('r')))
                .filter_map(|entry| {
                    let from = ((entry.from? / NANOS) + HALF).round() as i64;
                    Some((from, (entry.doc_count, &entry.sub_aggregation)))
                })
                .collect(),
        };
        let inside = |key: i64| {
            options.hard.is_none_or(|(min, max)| floor(min).is_none_or(|min| key >= min) && key as f64 <= max)
        };
        let known: DateBuckets<'_> = known.into_iter().filter(|(key, _)| inside(*key)).collect();
        let (mut first, mut last) = (known.keys().next().copied(), known.keys().next_back().copied());
        if let Some((min, max)) = options.extended.filter(|_| options.min_doc_count == 0) {
            for bound in [floor(min), floor(max)].into_iter().flatten() {
                first = Some(first.map_or(bound, |first| first.min(bound)));
                last = Some(last.map_or(bound, |last| last.max(bound)));
            }
        }
        let mut buckets = Vec::new();
        let mut show = |key: i64, found: Option<FoundBucket<'_>>| {
            let names =
                Map::from_iter([("key".to_owned(), json!(key)), ("key_as_string".to_owned(), json!(node.date(key)?))]);
            buckets.push(self.shown(node, SortedKey::Whole(key.into()), names, found)?);
            Ok::<_, SearchError>(())
        };
        match (first, last) {
            (Some(first), Some(last)) if options.min_doc_count == 0 => {
                let mut at = first;
                while at <= last {
                    show(at, known.get(&at).copied())?;
                    at = rounding
                        .next(at)
                        .ok_or_else(|| SearchError::argument("a date histogram goes beyond all dates"))?;
                }
            }
            _ => {
                for (key, found) in known.iter().filter(|(_, found)| found.0 >= options.min_doc_count) {
                    show(*key, Some(*found))?;
                }
            }
        }
        self.histogram_buckets(node, options, buckets)
    }

    pub(super) fn ranges(
        &self,
        node: &AggregationNode,
        ranges: &[RangeOption],
        (keyed, of_dates): (bool, bool),
        results: Option<&AggregationResults>,
    ) -> Result<Value, SearchError> {
        let (mut list, mut map) = (Vec::new(), Map::new());
        for (part, range) in ranges.iter().enumerate() {
            let text = |end: Option<f64>| match end {
                None => Ok("*".to_owned()),
                Some(end) if of_dates => node.date(end as i64),
                Some(end) => Ok(format!("{end:?}")),
            };
            let (from, to) = (text(range.from)?, text(range.to)?);
            let key = range.key.clone().unwrap_or_else(|| format!("{from}-{to}"));
            let mut names = Map::new();
            for (name, end, text) in [("from", range.from, from), ("to", range.to, to)] {
                if let Some(end) = end {
                    names.insert(name.to_owned(), json!(end));
                    if of_dates {
                        names.insert(format!("{name}_as_string"), json!(text));
                    }
                }
            }
            if !keyed {
                names.insert("key".to_owned(), json!(key));
            }
            let native = range_key(part);
            let found = [node.native(), node.native_part(part)].iter().find_map(|name| {
                let found = results.and_then(|results| results.0.get(name));
                range_entries(found).find(|entry| matches!(&entry.key, Key::Str(key) if *key == native))
            });
            let found = found.map(|entry| (entry.doc_count, &entry.sub_aggregation));
            let shown = Value::Object(self.shown(node, SortedKey::Whole(part as i128), names, found)?.json);
            if keyed {
                map.insert(key, shown);
            } else {
                list.push(shown);
            }
        }
        Ok(if keyed { json!({ "buckets": map }) } else { json!({ "buckets": list }) })
    }

    pub(super) fn filters(
        &self,
        node: &AggregationNode,
        filters: &[(Option<String>, Value)],
        (other, keyed): (Option<&str>, bool),
        results: Option<&AggregationResults>,
    ) -> Result<Value, SearchError> {
        let (mut list, mut map) = (Vec::new(), Map::new());
        let names = filters.iter().map(|(name, _)| name.as_deref()).chain(other.map(Some));
        for (part, name) in names.enumerate() {
            let found = results.and_then(|results| results.0.get(&node.native_part(part)));
            self.count_bucket()?;
            let mut shown = self.bucket(node, filter_bucket(found))?;
            match name {
                Some(name) if keyed => {
                    map.insert(name.to_owned(), Value::Object(shown));
                    continue;
                }
                Some(name) if filters.iter().all(|(name, _)| name.is_some()) => {
                    shown.insert("key".to_owned(), json!(name));
                }
                _ => {}
            }
            list.push(Value::Object(shown));
        }
        Ok(if keyed { json!({ "buckets": map }) } else { json!({ "buckets": list }) })
    }

    pub(super) fn composite(
        &self,
        node: &AggregationNode,
        options: &CompositeOptions,
        found: Option<&AggregationResult>,
    ) -> Result<Value, SearchError> {
        let entries = match found {
            Some(AggregationResult::BucketResult(BucketResult::Composite { buckets, .. })) => buckets.as_slice(),
            _ => &[],
        };
        let mut buckets = Vec::new();
        let mut last = None;
        for entry in entries {
            let mut key = Map::new();
            for source in &options.sources {
                let part = entry.key.get(&source.name).map_or(Ok(Value::Null), |part| composite_part(source, part))?;
                key.insert(source.name.clone(), part);
            }
            let names = Map::from_iter([("key".to_owned(), Value::Object(key.clone()))]);
            let shown =
                self.shown(node, SortedKey::Whole(0), names, Some((entry.doc_count, &entry.sub_aggregation)))?;
            buckets.push(shown.json);
            last = Some(key);
        }
        let mut shown = json!({ "buckets": buckets });
        if let Some(key) = last {
            shown["after_key"] = Value::Object(key);
        }
        Ok(shown)
    }
}

/// Entries of the library's histogram. Keys of dates are in milliseconds.
pub(super) fn histogram_entries(
    found: Option<&AggregationResult>,
    of_dates: bool,
) -> impl Iterator<Item = (f64, FoundBucket<'_>)> {
    let entries = match found {
        Some(AggregationResult::BucketResult(BucketResult::Histogram { buckets: BucketEntries::Vec(entries) })) => {
            entries.as_slice()
        }
        _ => &[],
    };
    // The library turns nanoseconds into milliseconds, and adds a text, unless the first segment has no dates.
    let scale = move |text: &Option<String>| if of_dates && text.is_none() { NANOS } else { 1.0 };
    entries.iter().filter_map(move |entry| match entry.key {
        Key::F64(key) => Some((key / scale(&entry.key_as_string), (entry.doc_count, &entry.sub_aggregation))),
        _ => None,
    })
}

/// Entries of the library's ranges.
fn range_entries(found: Option<&AggregationResult>) -> impl Iterator<Item = &RangeBucketEntry> {
    let entries = match found {
        Some(AggregationResult::BucketResult(BucketResult::Range { buckets: BucketEntries::Vec(entries) })) => {
            entries.as_slice()
        }
        _ => &[],
    };
    entries.iter()
}

/// The key of a term: as it is sorted, and `key` and `key_as_string`.
fn term_names(node: &AggregationNode, key: &Key) -> Result<(SortedKey, Map<String, Value>), SearchError> {
    let mut names = Map::new();
    let sorted = match (key, node.values()) {
        (Key::Str(text), Some(FieldKind::Date)) => match text.parse::<jiff::Timestamp>() {
            Ok(at) => {
                names.insert("key_as_string".to_owned(), json!(node.date(at.as_millisecond())?));
                SortedKey::Whole(at.as_millisecond().into())
            }
            Err(_) => SortedKey::Text(text.clone()),
        },
        (Key::Str(text), Some(FieldKind::Ip)) => match text.parse::<IpAddr>() {
            Ok(address) => SortedKey::Address(address),
            Err(_) => SortedKey::Text(text.clone()),
        },
        (Key::Str(text), _) => SortedKey::Text(text.clone()),
        (Key::F64(number), _) => SortedKey::Real(*number),
        (Key::I64(number), _) => SortedKey::Whole((*number).into()),
        (Key::U64(number), _) => SortedKey::Whole((*number).into()),
    };
    if node.values() == Some(FieldKind::Boolean) {
        names.insert(
            "key_as_string".to_owned(),
            json!(if matches!(sorted, SortedKey::Whole(1)) { "true" } else { "false" }),
        );
    }
    let shown = match (&sorted, key) {
        (SortedKey::Whole(number), _) => {
            i64::try_from(*number).map_or_else(|_| json!(*number as u64), |number| json!(number))
        }
        (SortedKey::Real(number), _) => json!(number),
        (_, Key::Str(text)) => json!(text),
        (_, _) => Value::Null,
    };
    names.insert("key".to_owned(), shown);
    Ok((sorted, names))
}

/// Whether `include` and `exclude` of a field that is no keyword let a term through.
fn is_listed(node: &AggregationNode, options: &TermsOptions, names: &Map<String, Value>) -> bool {
    let formats = node.field.as_ref().filter(|field| field.kind == FieldKind::Date).map(|field| &field.formats);
    let is_in = |list: &Value| {
        let of_list = |value: &Value| {
            let fits = |name: &str| match (names.get(name), value) {
                (Some(Value::Number(a)), value) => document::real(value).ok() == a.as_f64(),
                (Some(a), value) => document::text_of(a).ok() == document::text_of(value).ok(),
                (None, _) => false,
            };
            let is_date = |formats: &crate::dates::DateFormats| {
                formats.value(value).ok() == names.get("key").and_then(Value::as_i64)
            };
            fits("key") || fits("key_as_string") || formats.is_some_and(is_date)
        };
        list.as_array().is_none_or(|list| list.iter().any(of_list))
    };
    options.include.as_ref().is_none_or(is_in)
        && !options.exclude.as_ref().is_some_and(|list| list.is_array() && is_in(list))
}

/// A part of a key of `composite`.
fn composite_part(source: &KeySource, part: &CompositeKey) -> Result<Value, SearchError> {
    let of_dates =
        source.kind == Some(FieldKind::Date) || matches!(source.by, KeyBy::FixedDates(_) | KeyBy::CalendarDates(_));
    Ok(match (part, &source.format) {
        (CompositeKey::I64(millis), Some(format)) if of_dates => {
            json!(dates::write(*millis, format.split("||").next().unwrap_or(format), &jiff::tz::TimeZone::UTC)?)
        }
        (CompositeKey::Bool(flag), _) => json!(flag),
        (CompositeKey::Str(text), _) => json!(text),
        (CompositeKey::I64(number), _) => json!(number),
        (CompositeKey::U64(number), _) => json!(number),
        (CompositeKey::F64(number), _) => json!(number),
        (CompositeKey::Null, _) => Value::Null,
    })
}
