//! From the query DSL of a search body to a query of the library, for one index at one moment.
//!
//! ```text
//!   {"bool": {"must": [..], "filter": [..]}} --[ build ]--> BooleanQuery [ TermQuery, ConstScoreQuery [ RangeQuery ] ]
//! ```
//!
//! Invariants: whatever a request says, building a query needs bounded depth, bounded clauses and bounded memory; a field that
//! the mapping or the index does not have matches nothing; text scores as BM25, everything else scores as a constant.
//!
//! It deliberately does not know nested documents, scripts, places or vectors: these are refused by their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use tantivy::query::{AllQuery, BoostQuery, EmptyQuery, Query, TermSetQuery};
use tantivy::schema::Field;

use crate::error::SearchError;
use crate::mapping::MappedField;
use crate::stop::SearchStop;
use crate::view::{IndexView, TERMS_MAX};

mod column_range;
mod compound;
mod demoting;
mod fixed_score;
mod full_text;
mod highlighted;
mod interval_rules;
mod intervals;
mod lucene;
mod multi_match;
mod patterns;
mod range;
mod simple;
mod string;
mod term_level;
mod term_scan;
mod values;

pub(crate) use fixed_score::{FixedScoreQuery, fixed_score, matches_all, unscored};
pub use highlighted::HighlightTerm;
pub use string::query_string_of;
use term_scan::TermScanQuery;

/// The deepest queries in queries (Elasticsearch's `indices.query.bool.max_nested_depth`).
pub const QUERY_DEPTH_MAX: usize = 30;

/// The most clauses of a query, all levels together (Elasticsearch's `indices.query.bool.max_clause_count`).
pub const CLAUSES_MAX: usize = 4096;

/// What a query is read with, apart from the index.
#[derive(Clone, Debug)]
pub struct QueryContext {
    /// What `now` is in date math, in milliseconds.
    pub now: i64,
    /// When to end: scans of terms look at it. `None`: when they are done.
    pub stop: Option<Arc<SearchStop>>,
    /// Whether queries are refused that look at many terms (Elasticsearch's `search.allow_expensive_queries: false`).
    pub cheap: bool,
}

/// The most terms that the last one of a phrase prefix, or one that is fuzzy, stands for where a query says how many.
const EXPANSIONS_MAX: u32 = 1024;

/// Fields of metadata that some queries cannot look into.
const METADATA: &[&str] = &[
    "_id",
    "_index",
    "_source",
    "_seq_no",
    "_primary_term",
    "_version",
    "_routing",
    "_ignored",
    "_field_names",
    "_doc_count",
    "_nested_path",
    "_tier",
    "_size",
];

/// A query of the library.
type BoxedQuery = Box<dyn Query>;

/// From the DSL to a query of the library for one index. Errors: a query that is not known or cannot be read, more than the
/// limits allow, a value that its field cannot hold.
pub fn build(view: &IndexView, dsl: &Value, context: &QueryContext) -> Result<Box<dyn Query>, SearchError> {
    QueryBuilder::new(view, context).query(dsl)
}

/// The documents of one slice of so many: by a hash of their ids.
pub fn slice(view: &IndexView, (slice, slices): (u32, u32), context: &QueryContext) -> Box<dyn Query> {
    let test = term_scan::TermTest::Slice(slice, slices);
    Box::new(term_scan::TermScanQuery { field: view.own.id, prefix: String::new(), test, stop: context.stop.clone() })
}

/// The terms that a query highlights, by field. Errors: as for [`build`].
pub fn highlight_terms(
    view: &IndexView,
    dsl: &Value,
    context: &QueryContext,
) -> Result<BTreeMap<String, Vec<HighlightTerm>>, SearchError> {
    let mut builder = QueryBuilder::new(view, context);
    builder.query(dsl)?;
    Ok(builder.highlights)
}

/// One query being built.
struct QueryBuilder<'a> {
    view: &'a IndexView,
    context: &'a QueryContext,
    depth: usize,
    clauses: usize,
    /// Characters of fuzzy terms so far: each costs a piece of an automaton.
    fuzzy_chars: usize,
    /// Above 0 inside of what must not match, which is not highlighted.
    silent: usize,
    highlights: BTreeMap<String, Vec<HighlightTerm>>,
}

impl<'a> QueryBuilder<'a> {
    fn new(view: &'a IndexView, context: &'a QueryContext) -> QueryBuilder<'a> {
        QueryBuilder { view, context, depth: 0, clauses: 0, fuzzy_chars: 0, silent: 0, highlights: BTreeMap::new() }
    }

    /// A query of any kind.
    fn query(&mut self, dsl: &Value) -> Result<BoxedQuery, SearchError> {
        let Value::Object(object) = dsl else {
            return Err(SearchError::parsing("[_na] query malformed, must start with start_object"));
        };
        let mut keys = object.iter();
        let Some((name, body)) = keys.next() else {
            return Err(SearchError::argument("query malformed, empty clause found"));
        };
        if keys.next().is_some() {
            return Err(SearchError::parsing(format!(
                "[{name}] malformed query, expected [END_OBJECT] but found [FIELD_NAME]"
            )));
        }
        self.deeper(|builder| builder.named(name, body))
    }

    /// Runs `of` one level deeper. Errors: that is too deep.
    fn deeper<T>(&mut self, of: impl FnOnce(&mut Self) -> Result<T, SearchError>) -> Result<T, SearchError> {
        if self.depth >= QUERY_DEPTH_MAX {
            return Err(SearchError::argument(format!(
                "The nested depth of the query exceeds the maximum nested depth for queries set in \
                 [indices.query.bool.max_nested_depth] to [{QUERY_DEPTH_MAX}]"
            )));
        }
        self.depth += 1;
        let result = of(self);
        self.depth -= 1;
        result
    }

    fn named(&mut self, name: &str, body: &Value) -> Result<BoxedQuery, SearchError> {
        self.count_clauses(1)?;
        // Clients branch on the names that a hit shows; without them they would take the wrong branch.
        if body.get("_name").is_some() {
            return Err(SearchError::unsupported("[_name] of a query"));
        }
        match name {
            "match_all" => {
                let body = body_of(name, body)?;
                known_only(name, body, &[])?;
                Ok(boosted(all(1.0), boost_of(name, body)?))
            }
            "match_none" => Ok(none()),
            "bool" => self.bool_query(body_of(name, body)?),
            "constant_score" => self.constant_score(body_of(name, body)?),
            "dis_max" => self.dis_max(body_of(name, body)?),
            "boosting" => self.boosting(body_of(name, body)?),
            "term" => self.term(body_of(name, body)?),
            "terms" => self.terms(body_of(name, body)?),
            "range" => self.range(body_of(name, body)?),
            "exists" => self.exists(body_of(name, body)?),
            "prefix" => self.prefix(body_of(name, body)?),
            "wildcard" => self.wildcard(body_of(name, body)?),
            "regexp" => self.regexp(body_of(name, body)?),
            "fuzzy" => self.fuzzy(body_of(name, body)?),
            "ids" => self.ids(body_of(name, body)?),
            "intervals" => intervals::intervals(self, body_of(name, body)?),
            "match" | "match_phrase" | "match_phrase_prefix" | "match_bool_prefix" => {
                self.match_query(name, body_of(name, body)?)
            }
            "multi_match" => self.multi_match(body_of(name, body)?),
            "query_string" => self.query_string(body_of(name, body)?),
            "simple_query_string" => self.simple_query_string(body_of(name, body)?),
            "nested" | "has_child" | "has_parent" | "parent_id" if self.context.cheap => self.expensive("joining", ""),
            "nested" | "has_child" | "has_parent" | "parent_id" | "geo_distance" | "geo_bounding_box"
            | "geo_polygon" | "geo_shape" | "geo_grid" | "shape" | "script" | "script_score" | "function_score"
            | "more_like_this" | "percolate" | "knn" | "distance_feature" | "rank_feature" | "combined_fields"
            | "pinned" | "rule" | "semantic" | "sparse_vector" | "text_expansion" | "weighted_tokens" | "terms_set"
            | "wrapper" | "type" | "common" | "span_term" | "span_near" | "span_first" | "span_or" | "span_not"
            | "span_multi" | "span_containing" | "span_within" | "span_field_masking" => {
                Err(SearchError::unsupported(format!("query [{name}]")))
            }
            _ => Err(SearchError::parsing(format!("unknown query [{name}]"))),
        }
    }

    /// Errors: the cluster allows no such query.
    fn check_cheap(&self, name: &str, more: &str) -> Result<(), SearchError> {
        if self.context.cheap { self.expensive(name, more) } else { Ok(()) }
    }

    fn expensive<T>(&self, name: &str, more: &str) -> Result<T, SearchError> {
        Err(SearchError::argument(format!(
            "[{name}] queries{more} cannot be executed when 'search.allow_expensive_queries' is set to false."
        )))
    }

    /// The documents that one of the first, or nearest, terms of a scan has; all score 1. Errors: the search was cancelled.
    fn expanded(&self, scan: TermScanQuery, most: u32) -> Result<BoxedQuery, SearchError> {
        if !self.view.bounds.expansions {
            return Ok(constant(Box::new(scan) as BoxedQuery, 1.0));
        }
        let terms = scan.expanded(&self.view.searcher, most as usize)?;
        Ok(if terms.is_empty() { none() } else { constant(Box::new(TermSetQuery::new(terms)) as BoxedQuery, 1.0) })
    }

    /// Counts clauses. Errors: they are too many.
    fn count_clauses(&mut self, more: usize) -> Result<(), SearchError> {
        self.clauses = self.clauses.saturating_add(more);
        if self.clauses > CLAUSES_MAX {
            return Err(too_many_clauses());
        }
        Ok(())
    }

    /// A mapped field and where it lies; none if no document can have it.
    fn resolve(&self, path: &str) -> Result<Option<(Arc<MappedField>, Field)>, SearchError> {
        let Some(field) = self.view.mapping.field(path) else {
            // They are there in every document, so finding nothing would be wrong.
            return match METADATA.contains(&path) {
                true => Err(failed(format!("such a query on the metadata field [{path}] is not supported"))),
                false => Ok(None),
            };
        };
        if !field.indexed && !field.doc_values {
            return Err(failed(format!("Cannot search on field [{path}] since it is not indexed nor has doc values.")));
        }
        self.view.used.note(&field.column);
        Ok(self.view.column(field).map(|column| (field.clone(), column)))
    }

    /// Notes a term to highlight.
    fn highlight(&mut self, field: &MappedField, term: HighlightTerm) {
        if self.silent == 0 {
            self.highlights.entry(field.path.clone()).or_default().push(term);
        }
    }
}

/// The body of a query. Errors: it is no object.
fn body_of<'v>(name: &str, body: &'v Value) -> Result<&'v Map<String, Value>, SearchError> {
    body.as_object()
        .ok_or_else(|| SearchError::parsing(format!("[{name}] query malformed, no start_object after query name")))
}

/// The one field of a query and what it says about it. Errors: no field, or several.
fn field_of<'v>(name: &str, body: &'v Map<String, Value>) -> Result<(&'v str, &'v Value), SearchError> {
    let mut fields = body.iter().filter(|(key, _)| !matches!(key.as_str(), "boost" | "_name"));
    let Some((field, value)) = fields.next() else {
        return Err(SearchError::argument(format!("[{name}] requires a field name: fieldName is null or empty")));
    };
    if let Some((second, _)) = fields.next() {
        return Err(SearchError::parsing(format!(
            "[{name}] query doesn't support multiple fields, found [{field}] and [{second}]"
        )));
    }
    Ok((field, value))
}

/// The parameters of a field's query, whose short form is the value of `key` alone.
fn parameters_of<'v>(key: &str, value: &'v Value) -> std::borrow::Cow<'v, Map<String, Value>> {
    match value {
        Value::Object(object) => std::borrow::Cow::Borrowed(object),
        value => std::borrow::Cow::Owned(Map::from_iter([(key.to_owned(), value.clone())])),
    }
}

/// Errors: a parameter that the query does not have.
fn known_only(name: &str, body: &Map<String, Value>, known: &[&str]) -> Result<(), SearchError> {
    match body.keys().find(|key| !known.contains(&key.as_str()) && key.as_str() != "boost") {
        Some(key) if key == "_name" => Err(SearchError::unsupported("[_name] of a query")),
        Some(key) => Err(SearchError::parsing(format!("[{name}] query does not support [{key}]"))),
        None => Ok(()),
    }
}

/// A needed parameter. Errors: it is not there.
fn needed<'v>(name: &str, body: &'v Map<String, Value>, key: &str) -> Result<&'v Value, SearchError> {
    match body.get(key) {
        None | Some(Value::Null) => Err(SearchError::argument(format!("[{name}] requires [{key}]: it is null"))),
        Some(value) => Ok(value),
    }
}

/// A number, or a text that is one. Errors: it is neither.
fn number_of(name: &str, key: &str, value: &Value) -> Result<f64, SearchError> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number
        .filter(|number| number.is_finite())
        .ok_or_else(|| SearchError::parsing(format!("[{name}] [{key}] is a number, not [{value}]")))
}

/// A whole number that is not negative, `default` if it is not given. Errors: it is something else.
fn count_of(name: &str, body: &Map<String, Value>, key: &str, default: u32) -> Result<u32, SearchError> {
    let Some(value) = body.get(key) else { return Ok(default) };
    let number = number_of(name, key, value)?;
    if number < 0.0 || number > f64::from(i32::MAX) {
        return Err(SearchError::argument(format!("[{name}] [{key}] must be at least 0, not [{number}]")));
    }
    Ok(number as u32)
}

/// True or false, `false` if it is not given. Errors: it is something else.
fn flag_of(name: &str, body: &Map<String, Value>, key: &str) -> Result<bool, SearchError> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(value) => {
            crate::document::boolean(value).map_err(|error| SearchError::parsing(format!("[{name}] [{key}]: {error}")))
        }
    }
}

/// The boost. Errors: it is negative or no number.
fn boost_of(name: &str, body: &Map<String, Value>) -> Result<f32, SearchError> {
    let Some(value) = body.get("boost") else { return Ok(1.0) };
    let boost = number_of(name, "boost", value)? as f32;
    if boost < 0.0 || !boost.is_finite() {
        return Err(SearchError::argument(format!(
            "negative [boost] are not allowed in [{name}], use a value between 0 and 1 to deboost"
        )));
    }
    Ok(boost)
}

/// A query with its score multiplied.
pub(crate) fn boosted(query: BoxedQuery, boost: f32) -> BoxedQuery {
    if boost == 1.0 || is_none(&query) {
        return query;
    }
    match query.downcast_ref::<FixedScoreQuery>() {
        Some(fixed) => Box::new(fixed.boosted(boost)),
        None => Box::new(BoostQuery::new(query, boost)),
    }
}

/// A query with this score whatever matches.
fn constant(query: impl Into<BoxedQuery>, score: f32) -> BoxedQuery {
    Box::new(FixedScoreQuery::new(query.into(), score))
}

/// All documents. The wrapper keeps the score, which the library drops for a bare `AllQuery` among other clauses.
fn all(score: f32) -> BoxedQuery {
    constant(Box::new(AllQuery) as BoxedQuery, score)
}

/// No document.
fn none() -> BoxedQuery {
    Box::new(EmptyQuery)
}

/// Whether a query was built to match nothing.
fn is_none(query: &BoxedQuery) -> bool {
    query.is::<EmptyQuery>()
}

/// The refusal of a query that can be read but not run on this index.
fn failed(reason: impl std::fmt::Display) -> SearchError {
    SearchError::new(400, "query_shard_exception", format!("failed to create query: {reason}"))
}

/// The refusal of a query with more clauses than it may have.
fn too_many_clauses() -> SearchError {
    let reason = format!("Query contains too many nested clauses; maxClauseCount is set to {CLAUSES_MAX}");
    SearchError::new(400, "too_many_nested_clauses", reason)
}

#[cfg(test)]
mod tests;
