//! `collapse`: of all hits with the same value of a field, the best one.
//!
//! ```text
//!   hits of a search     a  b  a  a  c  b          the first of each value:  a  b  c
//!   the next search leaves out the values that were seen; so each one finds at least one more
//! ```
//!
//! Invariant: the total, the best score and the aggregations are those of the whole search.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::body::ShownField;
use super::collapse_parts::{Collapse, InnerHits};
use super::{SearchBody, SearchLimits, SearchResult, SearchTarget, invalid};
use crate::error::SearchError;
use crate::mapping::FieldKind;
use crate::memory::MemoryUse;

/// Hits of one search for groups, at least.
const HITS_MIN: usize = 100;

/// Errors: the field is none of keywords or numbers.
fn check(collapse: &Collapse, targets: &[SearchTarget]) -> Result<(), SearchError> {
    for target in targets {
        let mapping = &target.view.view.mapping;
        match mapping.field(&collapse.field) {
            Some(field) if (field.kind == FieldKind::Keyword || field.kind.is_number()) && field.doc_values => {}
            Some(_) => {
                return Err(SearchError::argument(format!(
                    "unknown type for collapse field `{}`, only keywords and numbers are accepted",
                    collapse.field
                )));
            }
            None => {
                return Err(SearchError::argument(format!(
                    "no mapping found for `{}` in order to collapse on",
                    collapse.field
                )));
            }
        }
    }
    Ok(())
}

/// The search of the hits of each group. Errors: a part that is wrong.
fn inner_body(hits: &InnerHits) -> Result<SearchBody, SearchError> {
    let parts = Value::Object(hits.parts.clone());
    let mut body = SearchBody::read(Some(&parts), &std::collections::BTreeMap::new())?;
    if !hits.parts.contains_key("size") {
        // Elasticsearch's default of inner hits.
        body.size = 3;
    }
    body.collapse = hits.collapse.as_deref().cloned();
    body.counts_all();
    Ok(body)
}

/// Documents with this value of a field; or without one.
fn group(field: &str, value: &Value) -> Value {
    match value {
        Value::Null => json!({"bool": {"must_not": {"exists": {"field": field}}}}),
        value => json!({"term": {field: value}}),
    }
}

/// The hits of a query beside those of the values that were seen.
fn unseen(query: &Value, field: &str, groups: &[(Value, Value)]) -> Value {
    let values: Vec<&Value> = groups.iter().map(|(value, _)| value).filter(|value| !value.is_null()).collect();
    let mut seen = vec![json!({"terms": {field: values}})];
    if values.len() < groups.len() {
        seen.push(group(field, &Value::Null));
    }
    json!({"bool": {"must": query, "must_not": seen}})
}

/// A search whose hits are collapsed, while it runs.
struct CollapsedSearch<'a> {
    targets: &'a [SearchTarget],
    limits: &'a SearchLimits,
    cancelled: &'a Arc<AtomicBool>,
    until: Option<Instant>,
    /// Memory of the hits of the response.
    memory: Arc<MemoryUse>,
    timed_out: bool,
}

/// Runs a search whose hits are collapsed. Errors: as for [`search`](super::search).
pub(super) fn search(
    targets: &[SearchTarget],
    (body, collapse): (&SearchBody, &Collapse),
    limits: &SearchLimits,
    cancelled: &Arc<AtomicBool>,
) -> Result<SearchResult, SearchError> {
    if body.search_after.is_some() {
        return Err(invalid("cannot use `collapse` in conjunction with `search_after`"));
    }
    check(collapse, targets)?;
    let until = body.timeout.map(|timeout| Instant::now() + timeout);
    let memory = Arc::new(limits.memory(cancelled, until));
    // Its searches wait for others, and not for it.
    let limits = &limits.for_part_of(&memory);
    let mut search = CollapsedSearch { targets, limits, cancelled, until, memory, timed_out: false };
    let (mut found, groups) = search.groups(body, collapse)?;
    let shows = body.docvalue_fields.iter().any(|shown| shown.pattern == collapse.field);
    let inner_searches = collapse.inner.iter().map(inner_body).collect::<Result<Vec<_>, _>>()?;
    let mut shown = Vec::new();
    for (value, mut hit) in groups.into_iter().skip(body.from).take(body.size) {
        if !shows || value.is_null() {
            hit["fields"][&collapse.field] = json!([value]);
        }
        let mut inner = Map::new();
        for (InnerHits { name, .. }, of_group) in collapse.inner.iter().zip(&inner_searches) {
            let filter = group(&collapse.field, &value);
            let query = json!({"bool": {"must": body.query, "filter": filter}});
            let of_group = SearchBody { query, post_filter: body.post_filter.clone(), ..of_group.clone() };
            let mut found = search.run(&SearchBody { total_as_int: body.total_as_int, ..of_group })?;
            let hits = found.response["hits"].take();
            search.memory.take_value(&hits)?;
            inner.insert(name.clone(), json!({ "hits": hits }));
        }
        if !inner.is_empty() {
            hit["inner_hits"] = Value::Object(inner);
        }
        shown.push(hit);
    }
    found.hits = shown.len();
    found.response["hits"]["hits"] = Value::Array(shown);
    found.response["timed_out"] = json!(search.timed_out);
    Ok(found)
}

impl CollapsedSearch<'_> {
    /// One search, for as long as there is time.
    fn run(&mut self, body: &SearchBody) -> Result<SearchResult, SearchError> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let found =
            super::search(self.targets, &SearchBody { timeout: left, ..body.clone() }, self.limits, self.cancelled)?;
        self.timed_out |= found.response["timed_out"] == json!(true);
        Ok(found)
    }

    /// The response of the whole search, without its hits, and the best hit of each value: as many as are asked for, and those
    /// before them.
    fn groups(
        &mut self,
        body: &SearchBody,
        collapse: &Collapse,
    ) -> Result<(SearchResult, Vec<(Value, Value)>), SearchError> {
        let wanted = body.from + body.size;
        let mut next = SearchBody { collapse: None, from: 0, ..body.clone() };
        next.size = wanted.saturating_mul(2).max(HITS_MIN).min(self.limits.window);
        next.docvalue_fields.push(ShownField { pattern: collapse.field.clone(), format: None });
        let mut first: Option<SearchResult> = None;
        let (mut groups, mut known): (Vec<(Value, Value)>, HashSet<String>) = (Vec::new(), HashSet::new());
        loop {
            let mut found = self.run(&next)?;
            let (hits, before) = (found.response["hits"]["hits"].take(), groups.len());
            for hit in hits.as_array().into_iter().flatten() {
                let values = &hit["fields"][&collapse.field];
                if values.as_array().is_some_and(|values| values.len() > 1) {
                    return Err(SearchError::argument(format!(
                        "cannot collapse on field `{}`: a document has several values",
                        collapse.field
                    )));
                }
                if groups.len() < wanted && known.insert(values[0].to_string()) {
                    self.memory.take_value(hit)?;
                    groups.push((values[0].clone(), hit.clone()));
                }
            }
            let is_last = found.hits < next.size || groups.len() == before || self.timed_out;
            let first = first.get_or_insert(found);
            if is_last || groups.len() >= wanted {
                self.memory.take_value(&first.response)?;
                let memory = Arc::clone(&self.memory);
                let whole = SearchResult { response: first.response.take(), last: None, hits: 0, memory };
                return Ok((whole, groups));
            }
            next.query = unseen(&body.query, &collapse.field, &groups);
            next.aggs = None;
            next.track_total_hits = 0;
        }
    }
}
