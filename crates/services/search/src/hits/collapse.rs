//! `collapse`: of all hits with the same value of a field, the best one.
//!
//! ```text
//!   hits of a search     a  b  a  a  c  b          the first of each value:  a  b  c
//!   the next search leaves out the values that were seen; so each one finds at least one more
//! ```
//!
//! Invariant: the total, the best score and the aggregations are those of the whole search.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};

use super::body::ShownField;
use super::collapse_parts::{Collapse, InnerHits};
use super::{SearchBody, SearchLimits, SearchResult, SearchTarget, invalid};
use crate::error::SearchError;
use crate::mapping::FieldKind;

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
    let inner_searches = collapse.inner.iter().map(inner_body).collect::<Result<Vec<_>, _>>()?;
    let wanted = body.from.saturating_add(body.size);
    let mut next = SearchBody { collapse: None, from: 0, ..body.clone() };
    next.size = wanted.saturating_mul(2).max(HITS_MIN).min(limits.window);
    next.docvalue_fields.push(ShownField { pattern: collapse.field.clone(), format: None });
    let shows = body.docvalue_fields.iter().any(|shown| shown.pattern == collapse.field);
    let (mut first, mut groups, mut last): (Option<Value>, Vec<(Value, Value)>, _) = (None, Vec::new(), None);
    while groups.len() < wanted || first.is_none() {
        let mut found = super::search(targets, &next, limits, cancelled)?;
        let hits = found.response["hits"]["hits"].take();
        let count = found.hits;
        last = found.last;
        if first.is_none() {
            first = Some(found.response);
        }
        let before = groups.len();
        for hit in hits.as_array().into_iter().flatten() {
            let value = hit["fields"][&collapse.field][0].clone();
            if !groups.iter().any(|(known, _)| *known == value) {
                groups.push((value, hit.clone()));
            }
        }
        if count < next.size || groups.len() == before {
            break;
        }
        let seen: Vec<Value> = groups.iter().map(|(value, _)| group(&collapse.field, value)).collect();
        next.query = json!({"bool": {"must": body.query, "must_not": seen}});
        next.aggs = None;
        next.track_total_hits = 0;
    }
    let mut response = first.unwrap_or_default();
    let mut shown = Vec::new();
    for (value, mut hit) in groups.into_iter().skip(body.from).take(body.size) {
        if let (false, Some(fields)) = (shows, hit["fields"].as_object_mut()) {
            // A hit without a value shows that.
            fields.insert(collapse.field.clone(), json!([value]));
        }
        if value.is_null() {
            hit["fields"][&collapse.field] = json!([null]);
        }
        let mut inner = Map::new();
        for (InnerHits { name, .. }, of_group) in collapse.inner.iter().zip(&inner_searches) {
            let filter = group(&collapse.field, &value);
            let query = json!({"bool": {"must": body.query, "filter": filter}});
            let of_group = SearchBody { query, post_filter: body.post_filter.clone(), ..of_group.clone() };
            let of_group = SearchBody { total_as_int: body.total_as_int, ..of_group };
            let mut found = super::search(targets, &of_group, limits, cancelled)?;
            inner.insert(name.clone(), json!({"hits": found.response["hits"].take()}));
        }
        if !inner.is_empty() {
            hit["inner_hits"] = Value::Object(inner);
        }
        shown.push(hit);
    }
    let hits = shown.len();
    response["hits"]["hits"] = Value::Array(shown);
    Ok(SearchResult { response, last, hits })
}
