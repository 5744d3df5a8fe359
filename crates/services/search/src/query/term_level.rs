//! Queries of terms as they are, without analysis: `term`, `terms`, `exists`, `prefix`, `wildcard`, `regexp`, `fuzzy`, `ids`.

use serde_json::{Map, Value};
use tantivy::Term;
use tantivy::query::{BooleanQuery, FuzzyTermQuery, TermSetQuery};
use tantivy::schema::Field;

use crate::document::text_of;
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField, matches_pattern};

use super::highlighted::HighlightTerm;
use super::patterns::{self, TermPattern};
use super::term_scan::{TermScanQuery, TermTest};
use super::values::ColumnValue;
use super::{
    BoxedQuery, EXPANSIONS_MAX, QueryBuilder, TERMS_MAX, all, boost_of, boosted, constant, count_of, failed, field_of,
    flag_of, known_only, needed, none, parameters_of,
};

/// The longest text that a fuzzy query compares, in characters; also what all of a query's may have together, by 16.
const FUZZY_CHARS_MAX: usize = 255;

/// How far terms may be from a fuzzy query's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FuzzyOptions {
    pub(super) fuzziness: Fuzziness,
    pub(super) prefix_length: u32,
    pub(super) transpositions: bool,
    /// How many of the nearest terms are looked up, where the query says so.
    pub(super) most: Option<u32>,
}

/// Edits that a term may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fuzziness {
    /// So many.
    Edits(u8),
    /// None for shorter texts than the first, one for shorter than the second, else two.
    Auto(usize, usize),
}

impl Fuzziness {
    /// Reads `AUTO`, `AUTO:3,6`, 0, 1 or 2. Errors: it is something else.
    pub(super) fn of(value: &Value) -> Result<Fuzziness, SearchError> {
        let text = text_of(value).map_err(SearchError::parsing)?;
        let unreadable = || SearchError::argument(format!("Invalid fuzziness value: {text}"));
        let upper = text.to_ascii_uppercase();
        if upper == "AUTO" {
            return Ok(Fuzziness::Auto(3, 6));
        }
        if let Some(ends) = upper.strip_prefix("AUTO:") {
            let (low, high) = ends.split_once(',').ok_or_else(unreadable)?;
            let parsed = low.trim().parse().ok().zip(high.trim().parse().ok());
            let (low, high) = parsed.ok_or_else(unreadable)?;
            return Ok(Fuzziness::Auto(low, high));
        }
        match text.parse::<f64>() {
            Ok(edits) if (0.0..=2.0).contains(&edits) => Ok(Fuzziness::Edits(edits as u8)),
            _ => Err(unreadable()),
        }
    }

    pub(super) fn edits(self, text: &str) -> u8 {
        match self {
            Fuzziness::Edits(edits) => edits,
            Fuzziness::Auto(low, high) => match text.chars().count() {
                length if length < low => 0,
                length if length < high => 1,
                _ => 2,
            },
        }
    }
}

impl FuzzyOptions {
    /// Of the parameters of a query; none if it has no fuzziness. Errors: one that cannot be read.
    pub(super) fn of(
        name: &str,
        body: &Map<String, Value>,
        default: Option<Fuzziness>,
    ) -> Result<Option<FuzzyOptions>, SearchError> {
        let fuzziness = match body.get("fuzziness") {
            None | Some(Value::Null) => default,
            Some(value) => Some(Fuzziness::of(value)?),
        };
        let Some(fuzziness) = fuzziness else { return Ok(None) };
        let transpositions = ["transpositions", "fuzzy_transpositions"].into_iter().find(|key| body.contains_key(*key));
        let transpositions = transpositions.map_or(Ok(true), |key| flag_of(name, body, key))?;
        let prefix = if body.contains_key("fuzzy_prefix_length") { "fuzzy_prefix_length" } else { "prefix_length" };
        let most = ["max_expansions", "fuzzy_max_expansions"].into_iter().find(|key| body.contains_key(*key));
        let most = most.map(|key| count_of(name, body, key, 50)).transpose()?.map(|most| most.clamp(1, EXPANSIONS_MAX));
        let prefix_length = count_of(name, body, prefix, 0)?;
        Ok(Some(FuzzyOptions { fuzziness, prefix_length, transpositions, most }))
    }
}

impl QueryBuilder<'_> {
    /// `{"term": {field: value}}`
    pub(super) fn term(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let (path, inner) = field_of("term", body)?;
        if inner.is_array() {
            return Err(SearchError::parsing("[term] query does not support array of values"));
        }
        let inner = parameters_of("value", inner);
        known_only("term", &inner, &["value", "case_insensitive"])?;
        let value = needed("term", &inner, "value")?;
        let query = self.term_of(path, value, flag_of("term", &inner, "case_insensitive")?)?;
        Ok(boosted(query, boost_of("term", &inner)? * boost_of("term", body)?))
    }

    /// Documents whose field has a value as it is.
    pub(super) fn term_of(&mut self, path: &str, value: &Value, any_case: bool) -> Result<BoxedQuery, SearchError> {
        match path {
            "_id" => return self.with_ids(std::slice::from_ref(value)),
            "_index" => return Ok(self.of_index(&text_of(value).map_err(failed)?)),
            crate::schema::IGNORED => {
                return Ok(self.has_any_name(vec![crate::schema::ignored_name(&text_of(value).map_err(failed)?)]));
            }
            _ => {}
        }
        let Some((field, column)) = self.resolve(path)? else { return Ok(none()) };
        if matches!(field.kind, FieldKind::Text | FieldKind::Keyword) {
            let text = self.normalized(&field, &text_of(value).map_err(failed)?)?;
            if any_case {
                let pattern: String = text.chars().flat_map(|c| ['\\', c]).collect();
                return self.with_pattern((&field, column), patterns::wildcard(&pattern, true)?);
            }
            self.highlight(&field, HighlightTerm::Term(text));
        }
        self.exact((&field, column), value)
    }

    /// All documents if the index has that name, which may have `*`.
    fn of_index(&self, name: &str) -> BoxedQuery {
        if matches_pattern(name, &self.view.name) { all(1.0) } else { none() }
    }

    /// `{"terms": {field: [..]}}`
    pub(super) fn terms(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let (path, values) = field_of("terms", body)?;
        let boost = boost_of("terms", body)?;
        let values = match values {
            Value::Array(values) => values,
            Value::Object(_) => return Err(SearchError::unsupported("a lookup of [terms]")),
            _ => return Err(SearchError::parsing(format!("[terms] query requires an array of values for [{path}]"))),
        };
        let most = self.view.bounds.terms;
        if values.len() > most {
            return Err(SearchError::argument(format!(
                "The number of terms [{}] used in the Terms Query request has exceeded the allowed maximum of \
                 [{most}]. This maximum can be set by changing the [index.max_terms_count] index level setting.",
                values.len()
            )));
        }
        Ok(boosted(self.terms_of(path, values)?, boost))
    }

    fn terms_of(&mut self, path: &str, values: &[Value]) -> Result<BoxedQuery, SearchError> {
        match path {
            "_id" => return self.with_ids(values),
            "_index" => {
                let mut names = values.iter().filter_map(Value::as_str);
                let matches = names.any(|name| matches_pattern(name, &self.view.name));
                return Ok(if matches { all(1.0) } else { none() });
            }
            crate::schema::IGNORED => {
                let names = values.iter().filter_map(Value::as_str).map(crate::schema::ignored_name);
                return Ok(self.has_any_name(names.collect()));
            }
            _ => {}
        }
        let Some((field, column)) = self.resolve(path)? else { return Ok(none()) };
        let by_terms = field.indexed && field.kind != FieldKind::Date;
        if !by_terms && matches!(field.kind, FieldKind::Text | FieldKind::Keyword | FieldKind::Boolean) {
            return Err(failed(format!("Cannot search on field [{path}] since it is not indexed.")));
        }
        let (mut terms, mut spans) = (Vec::new(), Vec::new());
        for value in values {
            if value.is_null() {
                return Err(SearchError::argument("No value specified for terms query"));
            }
            match self.column_value((&field, column), value)? {
                ColumnValue::Nothing => {}
                ColumnValue::Span(from, to) => spans.push((from, to)),
                ColumnValue::One(term) if by_terms => terms.push(term),
                ColumnValue::One(term) => spans.push((term.clone(), term)),
            }
            if matches!(field.kind, FieldKind::Text | FieldKind::Keyword) {
                let text = self.normalized(&field, &text_of(value).map_err(failed)?)?;
                self.highlight(&field, HighlightTerm::Term(text));
            }
        }
        // Each range is a pass over the column: the same one twice is one.
        spans.sort();
        spans.dedup();
        self.count_clauses(spans.len())?;
        let mut queries: Vec<BoxedQuery> = spans.into_iter().map(|(from, to)| self.span(from, to)).collect();
        if !terms.is_empty() {
            queries.push(Box::new(TermSetQuery::new(terms)));
        }
        Ok(match queries.len() {
            0 => none(),
            1 => constant(queries.remove(0), 1.0),
            _ => constant(Box::new(BooleanQuery::union(queries)) as BoxedQuery, 1.0),
        })
    }

    /// `{"ids": {"values": [..]}}`
    pub(super) fn ids(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        known_only("ids", body, &["values", "type"])?;
        let query = match body.get("values") {
            Some(Value::Array(values)) if values.len() > TERMS_MAX => {
                return Err(SearchError::argument(format!("[ids] takes at most [{TERMS_MAX}] values")));
            }
            Some(Value::Array(values)) => self.with_ids(values)?,
            Some(one @ (Value::String(_) | Value::Number(_))) => self.with_ids(std::slice::from_ref(one))?,
            _ => return Err(SearchError::parsing("[ids] requires providing a [values] element")),
        };
        Ok(boosted(query, boost_of("ids", body)?))
    }

    /// Documents with one of the ids.
    pub(super) fn with_ids(&mut self, values: &[Value]) -> Result<BoxedQuery, SearchError> {
        let mut ids = Vec::with_capacity(values.len());
        for value in values {
            let id = text_of(value).map_err(|error| SearchError::parsing(format!("[ids] {error}")))?;
            ids.push(Term::from_field_text(self.view.own.id, &id));
        }
        Ok(if ids.is_empty() { none() } else { constant(Box::new(TermSetQuery::new(ids)) as BoxedQuery, 1.0) })
    }

    /// `{"exists": {"field": ..}}`
    pub(super) fn exists(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        known_only("exists", body, &["field"])?;
        let path = match body.get("field") {
            Some(Value::String(path)) if !path.is_empty() => path,
            _ => return Err(SearchError::parsing("[exists] must be provided with a [field]")),
        };
        let boost = boost_of("exists", body)?;
        match path.as_str() {
            // Every document has them.
            "_id" | "_index" | "_seq_no" | "_version" => Ok(boosted(all(1.0), boost)),
            "_source" => Err(failed("Cannot run exists query on [_source]")),
            _ => Ok(boosted(self.exists_of(path)?, boost)),
        }
    }

    /// The full names of the fields that a name, a pattern or an object stands for.
    pub(super) fn names_of(&self, path: &str) -> Vec<String> {
        let mapping = &self.view.mapping;
        if path == crate::schema::ROUTING || path == crate::schema::IGNORED {
            return vec![path.to_owned()];
        }
        if mapping.field(path).is_none() && mapping.is_object(path) {
            let inside = format!("{path}.");
            let fields = mapping.fields().filter(|field| field.path.starts_with(&inside));
            return fields.map(|field| field.path.clone()).collect();
        }
        mapping.matching(path).into_iter().map(|field| field.path.clone()).collect()
    }

    /// Documents that have one of the fields.
    pub(super) fn has_any_name(&self, names: Vec<String>) -> BoxedQuery {
        let terms: Vec<Term> = names.iter().map(|name| Term::from_field_text(self.view.own.names, name)).collect();
        if terms.is_empty() { none() } else { constant(Box::new(TermSetQuery::new(terms)) as BoxedQuery, 1.0) }
    }

    /// A field of texts for a query of patterns. Errors: it has other values.
    fn texts(&self, name: &str, path: &str) -> Result<Option<(std::sync::Arc<MappedField>, Field)>, SearchError> {
        let Some((field, column)) = self.resolve(path)? else { return Ok(None) };
        match field.kind {
            FieldKind::Text | FieldKind::Keyword if field.indexed => Ok(Some((field, column))),
            FieldKind::Text | FieldKind::Keyword => {
                Err(failed(format!("Cannot search on field [{path}] since it is not indexed.")))
            }
            _ => Err(failed(format!(
                "Can only use {name} queries on keyword, text and wildcard fields - not on [{path}] which is of type [{}]",
                field.type_name
            ))),
        }
    }

    /// `{"prefix": {field: "ab"}}`
    pub(super) fn prefix(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let (path, inner) = field_of("prefix", body)?;
        let inner = parameters_of("value", inner);
        known_only("prefix", &inner, &["value", "case_insensitive", "rewrite"])?;
        let prefix = text_of(needed("prefix", &inner, "value")?).map_err(SearchError::parsing)?;
        let any_case = flag_of("prefix", &inner, "case_insensitive")?;
        Ok(boosted(self.prefix_of(path, &prefix, any_case)?, boost_of("prefix", &inner)?))
    }

    /// Documents whose field has a term with a beginning.
    pub(super) fn prefix_of(&mut self, path: &str, prefix: &str, any_case: bool) -> Result<BoxedQuery, SearchError> {
        if path == "_index" {
            return Ok(self.of_index(&format!("{prefix}*")));
        }
        let Some((field, column)) = self.texts("prefix", path)? else { return Ok(none()) };
        if self.context.cheap {
            let error = self.expensive("prefix", "");
            return error.map_err(|error: SearchError| SearchError {
                reason: format!(
                    "{} For optimised prefix queries on text fields please enable [index_prefixes].",
                    error.reason
                ),
                ..error
            });
        }
        let prefix = self.normalized(&field, prefix)?;
        if any_case {
            let pattern: String = prefix.chars().flat_map(|c| ['\\', c]).chain(['*']).collect();
            return self.with_pattern((&field, column), patterns::wildcard(&pattern, true)?);
        }
        self.highlight(&field, HighlightTerm::Prefix(prefix.clone()));
        Ok(constant(
            Box::new(TermScanQuery { field: column, prefix, test: TermTest::Any, stop: self.context.stop.clone() })
                as BoxedQuery,
            1.0,
        ))
    }

    /// `{"wildcard": {field: "a*b?"}}`
    pub(super) fn wildcard(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let (path, inner) = field_of("wildcard", body)?;
        let inner = parameters_of("value", inner);
        known_only("wildcard", &inner, &["value", "wildcard", "case_insensitive", "rewrite"])?;
        let key = if inner.contains_key("wildcard") { "wildcard" } else { "value" };
        let pattern = text_of(needed("wildcard", &inner, key)?).map_err(SearchError::parsing)?;
        let any_case = flag_of("wildcard", &inner, "case_insensitive")?;
        Ok(boosted(self.wildcard_of(path, &pattern, any_case)?, boost_of("wildcard", &inner)?))
    }

    /// Documents whose field has a term that a wildcard pattern fits.
    pub(super) fn wildcard_of(&mut self, path: &str, pattern: &str, any_case: bool) -> Result<BoxedQuery, SearchError> {
        if path == "_index" {
            return Ok(self.of_index(pattern));
        }
        let Some((field, column)) = self.texts("wildcard", path)? else { return Ok(none()) };
        self.check_cheap("wildcard", "")?;
        let pattern = self.normalized(&field, pattern)?;
        self.with_pattern((&field, column), patterns::wildcard(&pattern, any_case)?)
    }

    /// `{"regexp": {field: "a.*"}}`
    pub(super) fn regexp(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let (path, inner) = field_of("regexp", body)?;
        let inner = parameters_of("value", inner);
        let known = ["value", "flags", "flags_value", "case_insensitive", "max_determinized_states", "rewrite"];
        known_only("regexp", &inner, &known)?;
        let pattern = text_of(needed("regexp", &inner, "value")?).map_err(SearchError::parsing)?;
        let any_case = flag_of("regexp", &inner, "case_insensitive")?;
        Ok(boosted(self.regexp_of(path, &pattern, any_case)?, boost_of("regexp", &inner)?))
    }

    /// Documents whose field has a term that a regular expression fits.
    pub(super) fn regexp_of(&mut self, path: &str, pattern: &str, any_case: bool) -> Result<BoxedQuery, SearchError> {
        // Read even where the field is missing: a request that is wrong is wrong on every index.
        let pattern = patterns::regexp(pattern, any_case, self.view.bounds.regex_chars)?;
        let Some((field, column)) = self.texts("regexp", path)? else { return Ok(none()) };
        self.check_cheap("regexp", "")?;
        self.with_pattern((&field, column), pattern)
    }

    fn with_pattern(
        &mut self,
        (field, column): (&MappedField, Field),
        pattern: TermPattern,
    ) -> Result<BoxedQuery, SearchError> {
        self.count_clauses(pattern.clauses)?;
        self.highlight(field, HighlightTerm::Pattern(pattern.regex.clone()));
        let (prefix, test) = (pattern.prefix, TermTest::Pattern(pattern.regex));
        let query = TermScanQuery { field: column, prefix, test, stop: self.context.stop.clone() };
        Ok(constant(Box::new(query) as BoxedQuery, 1.0))
    }

    /// `{"fuzzy": {field: {"value": "ab", "fuzziness": 1}}}`
    pub(super) fn fuzzy(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let (path, inner) = field_of("fuzzy", body)?;
        let inner = parameters_of("value", inner);
        let known = ["value", "fuzziness", "prefix_length", "max_expansions", "transpositions", "rewrite"];
        known_only("fuzzy", &inner, &known)?;
        let text = text_of(needed("fuzzy", &inner, "value")?).map_err(SearchError::parsing)?;
        let options = FuzzyOptions::of("fuzzy", &inner, Some(Fuzziness::Auto(3, 6)))?;
        let boost = boost_of("fuzzy", &inner)?;
        let Some((field, column)) = self.texts("fuzzy", path)? else { return Ok(none()) };
        let text = self.normalized(&field, &text)?;
        match options {
            Some(options) => Ok(boosted(self.fuzzy_of((&field, column), &text, options)?, boost)),
            None => Ok(none()),
        }
    }

    /// Counts the characters of a fuzzy term. Errors: they are too many.
    pub(super) fn count_fuzzy(&mut self, text: &str) -> Result<(), SearchError> {
        let chars = text.chars().count();
        self.fuzzy_chars += chars;
        if chars > FUZZY_CHARS_MAX || self.fuzzy_chars > FUZZY_CHARS_MAX * 16 {
            return Err(SearchError::argument(format!(
                "a fuzzy text has at most {FUZZY_CHARS_MAX} characters, all of a query {}",
                FUZZY_CHARS_MAX * 16
            )));
        }
        Ok(())
    }

    /// Documents whose field has a term that is near to a text.
    pub(super) fn fuzzy_of(
        &mut self,
        (field, column): (&MappedField, Field),
        text: &str,
        options: FuzzyOptions,
    ) -> Result<BoxedQuery, SearchError> {
        self.check_cheap("fuzzy", "")?;
        let edits = options.fuzziness.edits(text);
        let term = Term::from_field_text(column, text);
        if edits == 0 {
            self.highlight(field, HighlightTerm::Term(text.to_owned()));
            return Ok(super::values::term_query(term));
        }
        self.count_fuzzy(text)?;
        self.highlight(field, HighlightTerm::Fuzzy(text.to_owned(), edits));
        if options.prefix_length == 0 && options.most.is_none() {
            let query = FuzzyTermQuery::new(term, edits, options.transpositions);
            return Ok(constant(Box::new(query) as BoxedQuery, 1.0));
        }
        let prefix: String = text.chars().take(options.prefix_length as usize).collect();
        let test = TermTest::Edits(text.to_owned(), edits, options.transpositions);
        let scan = TermScanQuery { field: column, prefix, test, stop: self.context.stop.clone() };
        match options.most {
            Some(most) => self.expanded(scan, most),
            None => Ok(constant(Box::new(scan) as BoxedQuery, 1.0)),
        }
    }
}
