//! `multi_match`: one text in several fields, and which fields a request means.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tantivy::Term;

use crate::document::text_of;
use crate::error::SearchError;
use crate::mapping::FieldKind;

use super::compound::{best_of, tie_breaker};
use super::full_text::{TEXT_PARAMETERS, TextMatch, TextOptions, combined};
use super::highlighted::HighlightTerm;
use super::values::term_query;
use super::{BoxedQuery, QueryBuilder, boost_of, boosted, failed, known_only, none};

/// Fields of a query, each with its boost, and whether they are all fields of the index.
#[derive(Clone, Debug)]
pub(super) struct SearchedFields {
    pub(super) fields: Vec<(String, f32)>,
    pub(super) are_all: bool,
}

impl QueryBuilder<'_> {
    /// The fields that a list names, with `*` and boosts. Errors: an entry that is no name.
    pub(super) fn searched_fields(&self, name: &str, given: Option<&Value>) -> Result<SearchedFields, SearchError> {
        let given = match given {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(names)) => names.iter().collect(),
            Some(one) => vec![one],
        };
        let mut fields = Vec::new();
        let mut are_all = given.is_empty();
        for field in given {
            let Some(text) = field.as_str() else {
                return Err(match field {
                    Value::Null => SearchError::parsing(format!("[{name}] field name in [fields] cannot be null")),
                    other => SearchError::parsing(format!("[{name}] [fields] are names, not [{other}]")),
                });
            };
            let (pattern, boost) = match text.rsplit_once('^') {
                None => (text, 1.0),
                Some((pattern, boost)) => {
                    let parsed = boost.parse::<f32>().ok().filter(|boost| *boost >= 0.0 && boost.is_finite());
                    let unreadable = || SearchError::argument(format!("[{name}] the boost of [{text}] is no number"));
                    (pattern, parsed.ok_or_else(unreadable)?)
                }
            };
            are_all |= pattern == "*";
            fields.extend(self.fields_of_pattern(pattern).into_iter().map(|field| (field, boost)));
        }
        if fields.is_empty() && are_all {
            fields.extend(self.fields_of_pattern("*").into_iter().map(|field| (field, 1.0)));
        }
        Ok(SearchedFields { fields, are_all })
    }

    /// The searchable fields that a pattern names.
    pub(super) fn fields_of_pattern(&self, pattern: &str) -> Vec<String> {
        if !pattern.contains('*') {
            return vec![pattern.to_owned()];
        }
        let fields = self.view.mapping.matching(pattern).into_iter();
        fields.filter(|field| field.indexed).map(|field| field.path.clone()).collect()
    }

    /// `{"multi_match": {"query": "a text", "fields": ["a", "b^2"]}}`
    pub(super) fn multi_match(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let name = "multi_match";
        if body.get("type").and_then(Value::as_str) == Some("bool_prefix")
            && let Some(key) = ["slop", "cutoff_frequency"].into_iter().find(|key| body.contains_key(*key))
        {
            return Err(SearchError::argument(format!("[{key}] not allowed for type [bool_prefix]")));
        }
        let known: Vec<&str> = TEXT_PARAMETERS.into_iter().chain(["tie_breaker"]).collect();
        known_only(name, body, &known)?;
        let value = match body.get("query") {
            Some(value) if !value.is_null() && !value.is_object() && !value.is_array() => value,
            _ => return Err(SearchError::parsing("No text specified for multi_match query")),
        };
        let kind = match body.get("type") {
            None | Some(Value::Null) => "best_fields",
            Some(Value::String(kind)) => kind.as_str(),
            Some(other) => return Err(SearchError::parsing(format!("[{name}] [type] is a name, not [{other}]"))),
        };
        let (how, tie) = match kind {
            "best_fields" => (TextMatch::Terms, 0.0),
            "most_fields" => (TextMatch::Terms, 1.0),
            "cross_fields" => (TextMatch::Terms, 0.0),
            "phrase" => (TextMatch::Phrase, 0.0),
            "phrase_prefix" => (TextMatch::PhrasePrefix, 0.0),
            "bool_prefix" => (TextMatch::BoolPrefix, 1.0),
            other => {
                return Err(SearchError::body(format!("failed to parse [{name}] query type [{other}]. unknown type.")));
            }
        };
        if kind == "cross_fields" && body.contains_key("fuzziness") {
            return Err(SearchError::argument("Fuzziness not allowed for type [cross_fields]"));
        }
        let mut options = TextOptions::of(name, how, body)?;
        let tie = tie_breaker(name, body, tie)?;
        let searched = self.searched_fields(name, body.get("fields"))?;
        options.lenient |= searched.are_all && !body.contains_key("lenient");
        let query = match kind {
            "cross_fields" => self.across_fields(&searched, value, &options, tie)?,
            _ => self.in_each_field(&searched, value, &options, tie)?,
        };
        Ok(boosted(query, boost_of(name, body)?))
    }

    /// The text in each field by itself; the best of them counts.
    pub(super) fn in_each_field(
        &mut self,
        searched: &SearchedFields,
        value: &Value,
        options: &TextOptions,
        tie: f32,
    ) -> Result<BoxedQuery, SearchError> {
        let mut queries = Vec::new();
        for (field, boost) in &searched.fields {
            self.count_clauses(1)?;
            queries.push(boosted(self.text_query(field, value, options)?, *boost));
        }
        Ok(best_of(queries, tie))
    }

    /// The text in the fields as if they were one: each term may be in any of them. Fields with different analyzers make
    /// groups, as the terms differ; a term's score is that of its best field.
    pub(super) fn across_fields(
        &mut self,
        searched: &SearchedFields,
        value: &Value,
        options: &TextOptions,
        tie: f32,
    ) -> Result<BoxedQuery, SearchError> {
        let text = text_of(value).map_err(failed)?;
        let mut groups: BTreeMap<String, Vec<(String, f32)>> = BTreeMap::new();
        let mut queries = Vec::new();
        for (path, boost) in &searched.fields {
            match self.view.mapping.field(path) {
                Some(field) if field.kind == FieldKind::Text => {
                    let own = field.search_analyzer.as_deref().unwrap_or("default");
                    let analyzer = options.analyzer.as_deref().unwrap_or(own).to_owned();
                    groups.entry(analyzer).or_default().push((path.clone(), *boost));
                }
                _ => queries.push(boosted(self.text_query(path, value, options)?, *boost)),
            }
        }
        for (analyzer, fields) in groups {
            let terms = super::full_text::bounded(self.view.analyzers.get(&analyzer)?, &text)?;
            self.count_clauses(terms.len().saturating_mul(fields.len()))?;
            let mut clauses = Vec::with_capacity(terms.len());
            for term in terms {
                let mut places = Vec::with_capacity(fields.len());
                for (path, boost) in &fields {
                    let Some((field, column)) = self.resolve(path)? else { continue };
                    self.highlight(&field, HighlightTerm::Term(term.text.clone()));
                    places.push(boosted(term_query(Term::from_field_text(column, &term.text)), *boost));
                }
                clauses.push(best_of(places, tie));
            }
            queries.push(match clauses.is_empty() {
                true => none(),
                false => combined(clauses, options.all_terms, options.minimum.as_ref())?,
            });
        }
        Ok(best_of(queries, tie))
    }
}
