//! Aggregations that the library lacks, and those inside of its buckets: over lists of documents.
//!
//! ```text
//!   documents of the search --+-- own aggregation: buckets, each with a list of documents -- aggregations in it, in the same way
//!                             +-- bucket of the library, as it is shown -- its documents by a filter -- own aggregations in it
//! ```
//!
//! Invariants: lists count against the memory of the search, and are made only for a search with such an aggregation; what the
//! library can do inside of a bucket, it does, over the list of that bucket.

use serde_json::{Map, Value, json};
use tantivy::query::Query;

use super::node::{AggregationNode, NodeKind};
use super::own_kinds::OwnKind;
use super::render::Renderer;
use super::{AggregationInput, AggregationLimits, AggregationSearches, QueryBuilderFn};
use crate::error::SearchError;
use crate::mapping::FieldKind;
use crate::stop::SearchStop;
use crate::view::IndexView;
use docs::{Budget, DocSets};

mod buckets;
mod digest;
mod docs;
mod metrics;
mod rounded;
#[cfg(test)]
mod tests;
mod values;

/// Runs the aggregations of one search that are made here.
pub(super) struct OwnRun<'a> {
    views: Vec<&'a IndexView>,
    /// Of each view, all documents that may be seen.
    bases: Vec<Box<dyn Query>>,
    build: &'a QueryBuilderFn<'a>,
    limits: &'a AggregationLimits,
    stop: &'a SearchStop,
    renderer: &'a Renderer,
    budget: Budget<'a>,
}

impl<'a> OwnRun<'a> {
    pub(super) fn new(searches: &AggregationSearches<'a>, renderer: &'a Renderer) -> OwnRun<'a> {
        OwnRun {
            views: searches.inputs.iter().map(|input| input.view).collect(),
            bases: searches.inputs.iter().map(|input| input.base.box_clone()).collect(),
            build: searches.build,
            limits: searches.limits,
            stop: searches.stop,
            renderer,
            budget: Budget::new(searches.stop),
        }
    }

    /// Adds to the response of a search what is made here. Errors: as for [`run`](super::run).
    pub(super) fn fill_all(
        &self,
        nodes: &[AggregationNode],
        inputs: &[AggregationInput<'_>],
        response: &mut Map<String, Value>,
    ) -> Result<(), SearchError> {
        let queries: Vec<Box<dyn Query>> = inputs.iter().map(|input| input.query.box_clone()).collect();
        let mut of_hits = None;
        for node in nodes.iter().filter(|node| node.has_own()) {
            if let NodeKind::Global = node.kind {
                let all: Vec<Box<dyn Query>> = inputs.iter().map(|input| input.base.box_clone()).collect();
                let docs = DocSets::matching(&self.views, &all, &self.budget)?;
                if let Some(Value::Object(shown)) = response.get_mut(&self.renderer.name(node)) {
                    self.fill(&node.subs, shown, &docs)?;
                }
                continue;
            }
            let docs = match &of_hits {
                Some(docs) => docs,
                None => of_hits.insert(DocSets::matching(&self.views, &queries, &self.budget)?),
            };
            self.fill(std::slice::from_ref(node), response, docs)?;
        }
        Ok(())
    }

    /// Adds what is made here to what the library found about the same documents.
    fn fill(
        &self,
        nodes: &[AggregationNode],
        shown: &mut Map<String, Value>,
        docs: &DocSets,
    ) -> Result<(), SearchError> {
        for node in nodes.iter().filter(|node| node.has_own()) {
            let name = self.renderer.name(node);
            if let NodeKind::Own(kind) = &node.kind {
                let mut value = self.own(node, kind, docs)?;
                if value.get("buckets").is_none() {
                    self.stop.memory().take_value(&value)?;
                }
                if let (Some(meta), Some(value)) = (&node.meta, value.as_object_mut()) {
                    value.insert("meta".to_owned(), meta.clone());
                }
                shown.insert(name, value);
                continue;
            }
            let Some(Value::Object(of_node)) = shown.get_mut(&name) else { continue };
            match of_node.get_mut("buckets") {
                Some(Value::Array(buckets)) => {
                    for (number, bucket) in buckets.iter_mut().enumerate() {
                        self.fill_bucket(node, &number.to_string(), bucket, docs)?;
                    }
                }
                Some(Value::Object(buckets)) => {
                    for (key, bucket) in buckets {
                        self.fill_bucket(node, key, bucket, docs)?;
                    }
                }
                _ => {
                    let query = single_query(node)?;
                    self.fill(&node.subs, of_node, &self.matching(&query, docs)?)?;
                }
            }
        }
        Ok(())
    }

    fn fill_bucket(
        &self,
        node: &AggregationNode,
        name: &str,
        bucket: &mut Value,
        docs: &DocSets,
    ) -> Result<(), SearchError> {
        let query = bucket_query(node, name, bucket)?;
        let Some(shown) = bucket.as_object_mut() else { return Ok(()) };
        let inside = self.matching(&query, docs)?;
        self.fill(&node.subs, shown, &inside)?;
        self.budget.give(inside.bytes());
        Ok(())
    }

    /// The documents that a query of a request matches.
    fn matching(&self, query: &Value, docs: &DocSets) -> Result<DocSets, SearchError> {
        let queries =
            self.views.iter().map(|view| (self.build)(view, query)).collect::<Result<Vec<Box<dyn Query>>, _>>()?;
        docs.filtered(&self.views, &queries, &self.budget)
    }

    fn own(&self, node: &AggregationNode, kind: &OwnKind, docs: &DocSets) -> Result<Value, SearchError> {
        match kind {
            OwnKind::Percentiles { percents, keyed, missing, method } => {
                self.percentiles(node, (percents, *keyed, false), (*missing, *method), docs)
            }
            OwnKind::PercentileRanks { values, keyed, missing, method } => {
                self.percentiles(node, (values, *keyed, true), (*missing, *method), docs)
            }
            OwnKind::Deviation { compression, missing } => self.deviation(node, (*compression, *missing), docs),
            OwnKind::WeightedAvg { value, weight } => self.weighted((value, weight), docs),
            OwnKind::MultiTerms(options) => self.multi_terms(node, options, docs),
            OwnKind::RareTerms(options) => self.rare_terms(node, options, docs),
            OwnKind::IpRange { ranges, keyed } => self.ip_ranges(node, (ranges, *keyed), docs),
            OwnKind::Adjacency { filters, separator, pairs_only } => {
                self.adjacency(node, (filters, separator, *pairs_only), docs)
            }
            OwnKind::AutoDates { buckets, least } => self.auto_dates(node, (*buckets, *least), docs),
        }
    }

    /// `doc_count` and aggregations of a bucket with these documents.
    fn bucket(&self, node: &AggregationNode, docs: &DocSets) -> Result<Map<String, Value>, SearchError> {
        let mut shown = Map::new();
        if !node.subs.is_empty() {
            let input = |(number, view): (usize, &&'a IndexView)| {
                let base = self.bases[number].box_clone();
                AggregationInput { view, query: docs.query(number, view), base }
            };
            let inputs: Vec<AggregationInput<'_>> = self.views.iter().enumerate().map(input).collect();
            let searches =
                AggregationSearches { inputs: &inputs, build: self.build, limits: self.limits, stop: self.stop };
            let found = searches.run(&node.subs, false)?;
            shown = self.renderer.all(&node.subs, Some(&found.results), found.total)?;
            self.fill(&node.subs, &mut shown, docs)?;
        }
        shown.insert("doc_count".to_owned(), json!(docs.count()));
        Ok(shown)
    }
}

/// The documents of an aggregation of one bucket.
fn single_query(node: &AggregationNode) -> Result<Value, SearchError> {
    match &node.kind {
        NodeKind::Filter(query) => Ok(query.clone()),
        NodeKind::Missing => Ok(without(node)),
        _ => Err(SearchError::unsupported(format!("what is in aggregation [{}]", node.name))),
    }
}

/// The documents without a value of an aggregation's field.
fn without(node: &AggregationNode) -> Value {
    json!({"bool": {"must_not": {"exists": {"field": node.path}}}})
}

/// The documents of a bucket as it is shown; `name` is its key where buckets have names, else its number.
fn bucket_query(node: &AggregationNode, name: &str, bucket: &Value) -> Result<Value, SearchError> {
    let path = node.path.as_deref().unwrap_or_default();
    let range = |from: &Value, to: &Value| {
        let mut ends = json!({"gte": from, "lt": to});
        if node.values() == Some(FieldKind::Date) {
            ends["format"] = json!("epoch_millis");
        }
        json!({"range": {path: ends}})
    };
    let key = &bucket["key"];
    Ok(match &node.kind {
        NodeKind::Terms(options) => {
            let term = match node.values() {
                Some(FieldKind::Date) => {
                    json!({"range": {path: {"gte": key, "lte": key, "format": "epoch_millis"}}})
                }
                Some(FieldKind::Boolean) => json!({"term": {path: bucket["key_as_string"]}}),
                _ => json!({"term": {path: key}}),
            };
            match options.missing.as_ref().is_some_and(|missing| missing == key || missing == &bucket["key_as_string"])
            {
                true => json!({"bool": {"should": [term, without(node)]}}),
                false => term,
            }
        }
        NodeKind::Histogram { interval, .. } => {
            let from = key.as_f64().unwrap_or_default();
            range(&json!(from), &json!(from + interval))
        }
        NodeKind::DateHistogram { rounding, .. } => {
            let from = key.as_i64().unwrap_or_default();
            let to = rounding.next(from);
            let to = to.ok_or_else(|| SearchError::argument("a date histogram goes beyond all dates"))?;
            range(&json!(from), &json!(to))
        }
        NodeKind::Range { .. } => {
            let end = |name: &str| bucket.get(name).and_then(Value::as_f64);
            match (end("from"), end("to"), node.values()) {
                (None, None, _) => json!({"exists": {"field": path}}),
                (from, to, Some(FieldKind::Date)) => {
                    let whole = |end: Option<f64>| json!(end.map(|end| end as i64));
                    range(&whole(from), &whole(to))
                }
                (from, to, _) => range(&json!(from), &json!(to)),
            }
        }
        NodeKind::Filters { filters, keyed, .. } => {
            let found = match keyed {
                true => filters.iter().find(|(key, _)| key.as_deref() == Some(name)),
                false => name.parse::<usize>().ok().and_then(|number| filters.get(number)),
            };
            match found {
                Some((_, query)) => query.clone(),
                None => {
                    let all: Vec<&Value> = filters.iter().map(|(_, query)| query).collect();
                    json!({"bool": {"must_not": all}})
                }
            }
        }
        _ => return Err(SearchError::unsupported(format!("what is in the buckets of aggregation [{}]", node.name))),
    })
}
