//! Aggregations of many buckets that the library does not have: keys of several fields, rare terms, ranges of addresses, filters
//! and their pairs, histograms whose interval follows from the dates.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tantivy::DocId;

use super::OwnRun;
use super::docs::DocSets;
use super::values::Values;
use crate::aggregation::key_value::{KeyValue, address_text};
use crate::aggregation::node::AggregationNode;
use crate::aggregation::own_kinds::{IpRangeOption, MultiTermsOptions, RareTermsOptions, TermSource};
use crate::aggregation::rounding::DateRounding;
use crate::dates::CalendarUnit;
use crate::error::SearchError;

/// Where a document lies: index, segment, number.
type Place = (u32, u32, DocId);

/// Memory of a document of a bucket, and about that of a key.
const PLACE_BYTES: u64 = size_of::<Place>() as u64;
const KEY_BYTES: u64 = 128;

/// The most keys of one document.
const KEYS_MAX: usize = 1_000;

/// Documents by their keys.
type Grouped = BTreeMap<Vec<KeyValue>, Vec<Place>>;

/// Intervals of `auto_date_histogram`: a unit, and how many of it.
const INTERVALS: &[(CalendarUnit, &str, &[usize])] = &[
    (CalendarUnit::Second, "s", &[1, 5, 10, 30]),
    (CalendarUnit::Minute, "m", &[1, 5, 10, 30]),
    (CalendarUnit::Hour, "h", &[1, 3, 12]),
    (CalendarUnit::Day, "d", &[1, 7]),
    (CalendarUnit::Month, "M", &[1, 3]),
    (CalendarUnit::Year, "y", &[1, 5, 10, 20, 50, 100]),
];

impl OwnRun<'_> {
    /// The documents by the keys that `keys` makes of each. Errors: they need too much memory.
    fn grouped(&self, sources: &[(&str, Option<&KeyValue>)], docs: &DocSets) -> Result<Grouped, SearchError> {
        let mut grouped = Grouped::new();
        for (number, view) in self.views.iter().enumerate() {
            for (segment, reader) in view.searcher.segment_readers().iter().enumerate() {
                let docs = &docs.of_index[number][segment];
                if docs.is_empty() || self.budget.is_over()? {
                    continue;
                }
                let values = sources.iter().map(|(path, _)| Values::of(view, reader, path));
                let values = values.collect::<Result<Vec<_>, _>>()?;
                for doc in docs.iter() {
                    let mut keys: Vec<Vec<KeyValue>> = vec![Vec::new()];
                    for (values, (_, missing)) in values.iter().zip(sources) {
                        let mut of_field = values.keys(*doc)?;
                        if of_field.is_empty() {
                            of_field.extend(missing.cloned());
                        }
                        if keys.len() * of_field.len() > KEYS_MAX {
                            return Err(SearchError::argument(format!("a document has more than {KEYS_MAX} keys")));
                        }
                        keys = of_field
                            .iter()
                            .flat_map(|value| {
                                keys.iter().map(move |key| [&key[..], std::slice::from_ref(value)].concat())
                            })
                            .collect();
                    }
                    self.budget.take(keys.len() as u64 * PLACE_BYTES)?;
                    for key in keys {
                        if !grouped.contains_key(&key) {
                            self.budget.take(KEY_BYTES + key.iter().map(KeyValue::text_bytes).sum::<u64>())?;
                        }
                        grouped.entry(key).or_default().push((number as u32, segment as u32, *doc));
                    }
                }
            }
        }
        Ok(grouped)
    }

    /// The documents of places.
    fn sets(&self, places: &[Place], docs: &DocSets) -> DocSets {
        let mut lists = docs.like();
        for (number, segment, doc) in places {
            lists[*number as usize][*segment as usize].push(*doc);
        }
        DocSets::of_lists(lists)
    }

    pub(super) fn multi_terms(
        &self,
        node: &AggregationNode,
        options: &MultiTermsOptions,
        docs: &DocSets,
    ) -> Result<Value, SearchError> {
        let sources: Vec<_> =
            options.sources.iter().map(|source| (source.path.as_str(), source.missing.as_ref())).collect();
        let mut grouped = self.grouped(&sources, docs)?;
        if options.min_doc_count == 0 {
            // Keys of the other documents are shown too, without a document.
            let all = DocSets::matching(&self.views, &self.bases, &self.budget)?;
            for key in self.grouped(&sources, &all)?.into_keys() {
                grouped.entry(key).or_default();
            }
        }
        let found: Vec<(Vec<KeyValue>, Vec<Place>)> =
            grouped.into_iter().filter(|(_, places)| places.len() as u64 >= options.min_doc_count).collect();
        let (shown, others) = self.ordered(node, options, found, docs)?;
        Ok(json!({"doc_count_error_upper_bound": 0, "sum_other_doc_count": others, "buckets": shown}))
    }

    /// The first buckets in the order that is asked for, and the count of documents in the others.
    fn ordered(
        &self,
        node: &AggregationNode,
        options: &MultiTermsOptions,
        mut found: Vec<(Vec<KeyValue>, Vec<Place>)>,
        docs: &DocSets,
    ) -> Result<(Vec<Value>, usize), SearchError> {
        let default = [("_count".to_owned(), true)];
        let order = if options.order.is_empty() { &default[..] } else { &options.order };
        let by_parts = order.iter().any(|(name, _)| name != "_key" && name != "_count");
        let turned = |ordering: Ordering, descending: bool| if descending { ordering.reverse() } else { ordering };
        let compare = |a: &(Vec<KeyValue>, Vec<Place>), b: &(Vec<KeyValue>, Vec<Place>)| {
            let of = |(name, descending): &(String, bool)| match name.as_str() {
                "_key" => turned(a.0.cmp(&b.0), *descending),
                _ => turned(a.1.len().cmp(&b.1.len()), *descending),
            };
            order.iter().map(of).find(|ordering| ordering.is_ne()).unwrap_or_else(|| a.0.cmp(&b.0))
        };
        let mut others = 0;
        if !by_parts {
            found.sort_by(compare);
            others = found.drain(options.size.min(found.len())..).map(|(_, places)| places.len()).sum();
        }
        let mut shown = Vec::new();
        for (key, places) in found {
            self.renderer.count_bucket()?;
            let mut bucket = key_names(&options.sources, &key, node)?;
            bucket.extend(self.bucket(node, &self.sets(&places, docs))?);
            let parts = order.iter().filter(|_| by_parts).map(|(name, _)| match name.as_str() {
                "_key" => Ok(None),
                "_count" => Ok(Some(places.len() as f64)),
                path => self.renderer.value_at(&node.subs, &bucket, path),
            });
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            shown.push((parts, key, places.len(), Value::Object(bucket)));
        }
        if by_parts {
            shown.sort_by(|a, b| {
                for ((name, descending), (a_part, b_part)) in order.iter().zip(a.0.iter().zip(&b.0)) {
                    let ordering = match (name.as_str(), a_part, b_part) {
                        ("_key", ..) => turned(a.1.cmp(&b.1), *descending),
                        (_, Some(a), Some(b)) => turned(a.total_cmp(b), *descending),
                        (_, a, b) => b.is_some().cmp(&a.is_some()),
                    };
                    if ordering.is_ne() {
                        return ordering;
                    }
                }
                a.1.cmp(&b.1)
            });
            others = shown.drain(options.size.min(shown.len())..).map(|(_, _, count, _)| count).sum();
        }
        Ok((shown.into_iter().map(|(.., bucket)| bucket).collect(), others))
    }

    pub(super) fn rare_terms(
        &self,
        node: &AggregationNode,
        options: &RareTermsOptions,
        docs: &DocSets,
    ) -> Result<Value, SearchError> {
        let path = node.path.as_deref().unwrap_or_default();
        let grouped = self.grouped(&[(path, options.missing.as_ref())], docs)?;
        let is_wanted = |key: &KeyValue| {
            options.include.as_ref().is_none_or(|list| list.contains(key))
                && !options.exclude.as_ref().is_some_and(|list| list.contains(key))
        };
        let mut found: Vec<(KeyValue, Vec<Place>)> = grouped
            .into_iter()
            .filter(|(_, places)| places.len() as u64 <= options.most)
            .filter_map(|(mut key, places)| Some((key.pop().filter(is_wanted)?, places)))
            .collect();
        found.sort_by_key(|(_, places)| places.len());
        let mut buckets = Vec::new();
        for (key, places) in found {
            self.renderer.count_bucket()?;
            let (name, text) = key.names((&node.format, &node.zone))?;
            let mut bucket = Map::from_iter([("key".to_owned(), name)]);
            if let Some(text) = text {
                bucket.insert("key_as_string".to_owned(), json!(text));
            }
            bucket.extend(self.bucket(node, &self.sets(&places, docs))?);
            buckets.push(Value::Object(bucket));
        }
        Ok(json!({ "buckets": buckets }))
    }

    pub(super) fn ip_ranges(
        &self,
        node: &AggregationNode,
        (ranges, keyed): (&[IpRangeOption], bool),
        docs: &DocSets,
    ) -> Result<Value, SearchError> {
        let path = node.path.as_deref().unwrap_or_default();
        let (mut list, mut map) = (Vec::new(), Map::new());
        for range in ranges {
            let (from, to) = (range.from.map(address_text), range.to.map(address_text));
            let mut query = json!({"exists": {"field": path}});
            if from.is_some() || to.is_some() {
                query = json!({"range": {path: {"gte": from, "lt": to}}});
            }
            self.renderer.count_bucket()?;
            let mut bucket = self.bucket(node, &self.matching(&query, docs)?)?;
            let end = |end: &Option<String>| end.clone().unwrap_or_else(|| "*".to_owned());
            let key = range.key.clone().unwrap_or_else(|| format!("{}-{}", end(&from), end(&to)));
            for (name, end) in [("from", from), ("to", to)] {
                if let Some(end) = end {
                    bucket.insert(name.to_owned(), json!(end));
                }
            }
            if keyed {
                map.insert(key, Value::Object(bucket));
            } else {
                bucket.insert("key".to_owned(), json!(key));
                list.push(Value::Object(bucket));
            }
        }
        Ok(if keyed { json!({ "buckets": map }) } else { json!({ "buckets": list }) })
    }

    pub(super) fn adjacency(
        &self,
        node: &AggregationNode,
        (filters, separator, pairs_only): (&[(String, Value)], &str, bool),
        docs: &DocSets,
    ) -> Result<Value, SearchError> {
        let mut found = Vec::new();
        for (name, query) in filters {
            found.push((name, query, self.matching(query, docs)?));
        }
        let mut sets: Vec<(String, DocSets)> = Vec::new();
        for (number, (name, _, docs)) in found.iter().enumerate() {
            if !pairs_only {
                sets.push(((*name).clone(), docs.clone()));
            }
            for (other, query, _) in &found[number + 1..] {
                sets.push((format!("{name}{separator}{other}"), self.matching(query, docs)?));
            }
        }
        sets.retain(|(_, docs)| docs.count() > 0);
        sets.sort_by(|a, b| a.0.cmp(&b.0));
        let mut buckets = Vec::new();
        for (name, docs) in sets {
            self.renderer.count_bucket()?;
            let mut bucket = self.bucket(node, &docs)?;
            bucket.insert("key".to_owned(), json!(name));
            buckets.push(Value::Object(bucket));
        }
        Ok(json!({ "buckets": buckets }))
    }

    pub(super) fn auto_dates(
        &self,
        node: &AggregationNode,
        (most, least): (u32, Option<CalendarUnit>),
        docs: &DocSets,
    ) -> Result<Value, SearchError> {
        let path = node.path.as_deref().unwrap_or_default();
        let grouped = self.grouped(&[(path, None)], docs)?;
        let dates = |key: &Vec<KeyValue>| match key[..] {
            [KeyValue::Date(millis)] => Some(millis),
            _ => None,
        };
        let ends = grouped.keys().next().and_then(dates).zip(grouped.keys().next_back().and_then(dates));
        let Some((first, last)) = ends else { return Ok(json!({"buckets": [], "interval": "1s"})) };
        let (starts, interval) = starts(node, (most, least), (first, last))?;
        let mut places: Vec<Vec<Place>> = vec![Vec::new(); starts.len()];
        for (key, of_key) in grouped {
            let Some(millis) = dates(&key) else { continue };
            let bucket = starts.partition_point(|start| *start <= millis).saturating_sub(1);
            places[bucket].extend(of_key);
        }
        let mut buckets = Vec::new();
        for (start, mut places) in starts.into_iter().zip(places) {
            self.renderer.count_bucket()?;
            // A document with several dates counts once.
            places.sort_unstable();
            places.dedup();
            let mut bucket = self.bucket(node, &self.sets(&places, docs))?;
            bucket.insert("key".to_owned(), json!(start));
            bucket.insert("key_as_string".to_owned(), json!(node.date(start)?));
            buckets.push(Value::Object(bucket));
        }
        Ok(json!({"buckets": buckets, "interval": interval}))
    }
}

/// The names of a bucket of `multi_terms`.
fn key_names(
    sources: &[TermSource],
    key: &[KeyValue],
    node: &AggregationNode,
) -> Result<Map<String, Value>, SearchError> {
    let (mut parts, mut texts) = (Vec::new(), Vec::new());
    for (source, value) in sources.iter().zip(key) {
        let (name, text) = value.names((&source.format, &node.zone))?;
        let part = match (value, &text) {
            (KeyValue::Flag(flag), _) => json!(flag),
            (KeyValue::Date(_), Some(text)) => json!(text),
            _ => name,
        };
        texts.push(part.as_str().map_or_else(|| part.to_string(), str::to_owned));
        parts.push(part);
    }
    Ok(Map::from_iter([("key".to_owned(), Value::Array(parts)), ("key_as_string".to_owned(), json!(texts.join("|")))]))
}

/// The beginnings of the buckets of `auto_date_histogram`, at most so many, and the name of their interval: the shortest that
/// does. Several units are counted from the first bucket on.
fn starts(
    node: &AggregationNode,
    (most, least): (u32, Option<CalendarUnit>),
    (first, last): (i64, i64),
) -> Result<(Vec<i64>, String), SearchError> {
    let from = least.map_or(Ok(0), |least| {
        let place = INTERVALS.iter().position(|(unit, ..)| *unit == least);
        place.ok_or_else(|| {
            SearchError::argument("minimum_interval must be one of [year, month, day, hour, minute, second]")
        })
    })?;
    for (place, (unit, name, counts)) in INTERVALS.iter().enumerate().skip(from) {
        let rounding = DateRounding::calendar(*unit, node.zone.clone(), 0);
        let most_units = counts.last().copied().unwrap_or(1).saturating_mul(most as usize);
        let is_last = place + 1 == INTERVALS.len();
        // The longest interval is taken however many buckets it makes; the limit of buckets bounds them.
        let bound = if is_last { u32::MAX } else { most_units as u32 };
        let Ok(all) = rounding.boundaries(first, last, bound) else { continue };
        let all = &all[..all.len().saturating_sub(1)];
        for (number, count) in counts.iter().enumerate() {
            let fits = all.len().div_ceil(*count) <= most as usize;
            if fits || (is_last && number + 1 == counts.len()) {
                return Ok((all.iter().copied().step_by(*count).collect(), format!("{count}{name}")));
            }
        }
    }
    Err(SearchError::argument("a date is outside of the years that a date histogram can have"))
}
