//! Queries of analyzed text in one field: `match`, `match_phrase`, `match_phrase_prefix`, `match_bool_prefix`.
//!
//! A field that is not text takes the whole value as one term. Terms at one position (n-grams) are alternatives of one clause.

use serde_json::{Map, Value};
use tantivy::Term;
use tantivy::query::{BooleanQuery, Occur, PhrasePrefixQuery, PhraseQuery};
use tantivy::schema::Field;

use crate::analysis::{AnalyzedTerm, Analyzer};
use crate::document::text_of;
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};

use super::compound::minimum_should_match;
use super::highlighted::HighlightTerm;
use super::term_level::FuzzyOptions;
use super::term_scan::{TermScanQuery, TermTest};
use super::values::term_query;
use super::{
    BoxedQuery, EXPANSIONS_MAX, QueryBuilder, all, boost_of, boosted, constant, count_of, failed, field_of, flag_of,
    known_only, none, parameters_of,
};

/// The farthest that terms of a phrase may lie apart: positions are numbers of 32 bits, to which it is added.
const SLOP_MAX: u32 = 1 << 20;

/// How the terms of a text must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextMatch {
    /// Some or all of them.
    Terms,
    /// One after the other.
    Phrase,
    /// One after the other, the last as a beginning.
    PhrasePrefix,
    /// Some or all of them, the last as a beginning.
    BoolPrefix,
}

/// The parameters of a query of text.
#[derive(Clone, Debug)]
pub(super) struct TextOptions {
    pub(super) how: TextMatch,
    pub(super) all_terms: bool,
    pub(super) minimum: Option<Value>,
    pub(super) fuzzy: Option<FuzzyOptions>,
    pub(super) analyzer: Option<String>,
    /// A text without a term matches everything.
    pub(super) zero_terms_all: bool,
    /// A value that the field cannot hold matches nothing instead of being refused.
    pub(super) lenient: bool,
    pub(super) slop: u32,
    pub(super) max_expansions: u32,
}

/// Parameters that all queries of text know.
pub(super) const TEXT_PARAMETERS: [&str; 15] = [
    "query",
    "operator",
    "minimum_should_match",
    "fuzziness",
    "prefix_length",
    "max_expansions",
    "fuzzy_transpositions",
    "fuzzy_rewrite",
    "analyzer",
    "zero_terms_query",
    "lenient",
    "auto_generate_synonyms_phrase_query",
    "slop",
    "type",
    "fields",
];

impl TextOptions {
    /// Reads them. Errors: one that cannot be read.
    pub(super) fn of(name: &str, how: TextMatch, body: &Map<String, Value>) -> Result<TextOptions, SearchError> {
        let zero_terms_all = match body.get("zero_terms_query") {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) if text.eq_ignore_ascii_case("none") => false,
            Some(Value::String(text)) if text.eq_ignore_ascii_case("all") => true,
            Some(other) => {
                return Err(SearchError::parsing(format!("Unsupported zero_terms_query value [{other}]")));
            }
        };
        let analyzer = match body.get("analyzer") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(other) => return Err(SearchError::parsing(format!("[{name}] [analyzer] is a name, not [{other}]"))),
        };
        let slop = count_of(name, body, "slop", 0)?.min(SLOP_MAX);
        if how == TextMatch::PhrasePrefix && slop > 0 {
            return Err(SearchError::unsupported(format!("[slop] of a phrase prefix in [{name}]")));
        }
        Ok(TextOptions {
            how,
            all_terms: operator_and(name, "operator", body)?.unwrap_or(false),
            minimum: body.get("minimum_should_match").filter(|given| !given.is_null()).cloned(),
            fuzzy: FuzzyOptions::of(name, body, None)?,
            analyzer,
            zero_terms_all,
            lenient: flag_of(name, body, "lenient")?,
            slop,
            max_expansions: count_of(name, body, "max_expansions", 50)?.clamp(1, EXPANSIONS_MAX),
        })
    }
}

/// Whether an operator is AND; none if it is not given. Errors: it is neither AND nor OR.
pub(super) fn operator_and(name: &str, key: &str, body: &Map<String, Value>) -> Result<Option<bool>, SearchError> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("and") => Ok(Some(true)),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("or") => Ok(Some(false)),
        Some(other) => Err(SearchError::argument(format!("[{name}] [{key}] is [and] or [or], not [{other}]"))),
    }
}

/// The terms of a text of a query. Errors: they are more than a query has clauses, whatever else it has.
pub(super) fn bounded(analyzer: &Analyzer, text: &str) -> Result<Vec<AnalyzedTerm>, SearchError> {
    analyzer.analyze_at_most(text, super::CLAUSES_MAX + 1).ok_or_else(super::too_many_clauses)
}

/// Terms by their positions.
fn by_position(terms: Vec<AnalyzedTerm>) -> Vec<(usize, Vec<String>)> {
    let mut positions: Vec<(usize, Vec<String>)> = Vec::new();
    for term in terms {
        match positions.last_mut() {
            Some((position, texts)) if *position == term.position => texts.push(term.text),
            _ => positions.push((term.position, vec![term.text])),
        }
    }
    positions
}

impl QueryBuilder<'_> {
    /// `{"match": {field: "a text"}}` and its like.
    pub(super) fn match_query(&mut self, name: &str, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let (path, inner) = field_of(name, body)?;
        if inner.is_array() {
            return Err(SearchError::parsing(format!("[{name}] unknown token [START_ARRAY] after [{path}]")));
        }
        let inner = parameters_of("query", inner);
        known_only(name, &inner, &TEXT_PARAMETERS[..14])?;
        let how = match name {
            "match_phrase" => TextMatch::Phrase,
            "match_phrase_prefix" => TextMatch::PhrasePrefix,
            "match_bool_prefix" => TextMatch::BoolPrefix,
            _ => TextMatch::Terms,
        };
        let value = match inner.get("query") {
            Some(value) if !value.is_null() && !value.is_object() && !value.is_array() => value,
            _ => return Err(SearchError::parsing("No text specified for text query")),
        };
        let options = TextOptions::of(name, how, &inner)?;
        Ok(boosted(self.text_query(path, value, &options)?, boost_of(name, &inner)?))
    }

    /// The query of a text in a field.
    pub(super) fn text_query(
        &mut self,
        path: &str,
        value: &Value,
        options: &TextOptions,
    ) -> Result<BoxedQuery, SearchError> {
        let lenient = |result: Result<BoxedQuery, SearchError>| match result {
            Err(error) if options.lenient && error.kind == "query_shard_exception" => Ok(none()),
            result => result,
        };
        if matches!(path, "_id" | "_index") {
            return self.term_of(path, value, false);
        }
        let resolved = match self.resolve(path) {
            Err(_) if options.lenient => return Ok(none()),
            resolved => resolved?,
        };
        let Some((field, column)) = resolved else { return Ok(none()) };
        match field.kind {
            FieldKind::Text => lenient(self.analyzed((&field, column), value, options)),
            FieldKind::Keyword if options.analyzer.is_some() && options.how == TextMatch::Terms => {
                lenient(self.analyzed((&field, column), value, options))
            }
            FieldKind::Keyword => match (options.how, options.fuzzy) {
                (TextMatch::BoolPrefix, _) => {
                    let text = text_of(value).map_err(failed)?;
                    lenient(self.prefix_of(path, &text, false))
                }
                (TextMatch::Terms, Some(fuzzy)) if field.indexed => {
                    let text = self.normalized(&field, &text_of(value).map_err(failed)?)?;
                    self.fuzzy_of((&field, column), &text, fuzzy)
                }
                (TextMatch::PhrasePrefix, _) => lenient(Err(failed(phrase_prefix_refused(&field)))),
                _ => lenient(self.term_of(path, value, false)),
            },
            _ if matches!(options.how, TextMatch::PhrasePrefix) => lenient(Err(failed(phrase_prefix_refused(&field)))),
            _ => lenient(self.term_of(path, value, false)),
        }
    }

    /// The analyzer of a query of text.
    pub(super) fn analyzer_for(&self, field: &MappedField, name: Option<&str>) -> Result<&Analyzer, SearchError> {
        match name {
            Some(name) => self.view.analyzers.get(name),
            None => self.view.search_analyzer(field),
        }
    }

    fn analyzed(
        &mut self,
        (field, column): (&MappedField, Field),
        value: &Value,
        options: &TextOptions,
    ) -> Result<BoxedQuery, SearchError> {
        if !field.indexed {
            return Err(failed(format!("Cannot search on field [{}] since it is not indexed.", field.path)));
        }
        let text = text_of(value).map_err(failed)?;
        let terms = bounded(self.analyzer_for(field, options.analyzer.as_deref())?, &text)?;
        if terms.is_empty() {
            return Ok(if options.zero_terms_all { all(1.0) } else { none() });
        }
        self.count_clauses(terms.len() - 1)?;
        match options.how {
            TextMatch::Phrase => self.phrase((field, column), terms, options.slop),
            TextMatch::PhrasePrefix => self.phrase_prefix((field, column), terms, options.max_expansions),
            TextMatch::Terms | TextMatch::BoolPrefix => self.some_terms((field, column), terms, options),
        }
    }

    fn some_terms(
        &mut self,
        (field, column): (&MappedField, Field),
        terms: Vec<AnalyzedTerm>,
        options: &TextOptions,
    ) -> Result<BoxedQuery, SearchError> {
        let positions = by_position(terms);
        let last = positions.len() - 1;
        let mut clauses = Vec::with_capacity(positions.len());
        for (index, (_, texts)) in positions.into_iter().enumerate() {
            let mut alternatives = Vec::with_capacity(texts.len());
            for text in texts {
                let query = if options.how == TextMatch::BoolPrefix && index == last {
                    self.highlight(field, HighlightTerm::Prefix(text.clone()));
                    let scan = TermScanQuery {
                        field: column,
                        prefix: text,
                        test: TermTest::Any,
                        stop: self.context.stop.clone(),
                    };
                    constant(Box::new(scan) as BoxedQuery, 1.0)
                } else if let Some(fuzzy) = options.fuzzy {
                    self.fuzzy_of((field, column), &text, fuzzy)?
                } else {
                    self.highlight(field, HighlightTerm::Term(text.clone()));
                    term_query(Term::from_field_text(column, &text))
                };
                alternatives.push(query);
            }
            clauses.push(match alternatives.len() {
                1 => alternatives.remove(0),
                _ => Box::new(BooleanQuery::union(alternatives)),
            });
        }
        combined(clauses, options.all_terms, options.minimum.as_ref())
    }

    /// Terms one after the other; one term is a query of that term.
    pub(super) fn phrase(
        &mut self,
        (field, column): (&MappedField, Field),
        mut terms: Vec<AnalyzedTerm>,
        slop: u32,
    ) -> Result<BoxedQuery, SearchError> {
        if terms.len() == 1 {
            let text = terms.remove(0).text;
            self.highlight(field, HighlightTerm::Term(text.clone()));
            return Ok(term_query(Term::from_field_text(column, &text)));
        }
        self.highlight(field, HighlightTerm::Phrase(terms.iter().map(|term| term.text.clone()).collect()));
        let terms = terms.into_iter().map(|term| (term.position, Term::from_field_text(column, &term.text)));
        Ok(Box::new(PhraseQuery::new_with_offset_and_slop(terms.collect(), slop.min(SLOP_MAX))))
    }

    fn phrase_prefix(
        &mut self,
        (field, column): (&MappedField, Field),
        mut terms: Vec<AnalyzedTerm>,
        max_expansions: u32,
    ) -> Result<BoxedQuery, SearchError> {
        if let Some(last) = terms.last() {
            self.highlight(field, HighlightTerm::Prefix(last.text.clone()));
        }
        if terms.len() == 1 {
            let scan = TermScanQuery {
                field: column,
                prefix: terms.remove(0).text,
                test: TermTest::Any,
                stop: self.context.stop.clone(),
            };
            return self.expanded(scan, max_expansions);
        }
        for term in &terms[..terms.len() - 1] {
            self.highlight(field, HighlightTerm::Term(term.text.clone()));
        }
        let terms = terms.into_iter().map(|term| (term.position, Term::from_field_text(column, &term.text)));
        let mut query = PhrasePrefixQuery::new_with_offset(terms.collect());
        query.set_max_expansions(if self.view.bounds.expansions { max_expansions } else { EXPANSIONS_MAX });
        Ok(Box::new(query))
    }
}

fn phrase_prefix_refused(field: &MappedField) -> String {
    format!(
        "Can only use phrase prefix queries on text fields - not on [{}] which is of type [{}]",
        field.path, field.type_name
    )
}

/// Clauses of which all, or some, must match.
pub(super) fn combined(
    mut clauses: Vec<BoxedQuery>,
    all_of_them: bool,
    minimum: Option<&Value>,
) -> Result<BoxedQuery, SearchError> {
    let minimum = match minimum {
        Some(given) if !all_of_them => minimum_should_match(given, clauses.len())?,
        _ => 1,
    };
    if clauses.len() == 1 && minimum <= 1 {
        return Ok(clauses.remove(0));
    }
    let occur = if all_of_them { Occur::Must } else { Occur::Should };
    let minimum = if all_of_them { 0 } else { minimum };
    let clauses = clauses.into_iter().map(|clause| (occur, clause)).collect();
    Ok(Box::new(BooleanQuery::with_minimum_required_clauses(clauses, minimum)))
}
