//! `query_string` and `simple_query_string`: what was written, in the fields of the index; and the `q=` of a URL.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use tantivy::query::{BooleanQuery, Occur};

use crate::error::SearchError;
use crate::mapping::FieldKind;

use super::compound::{best_of, minimum_should_match, tie_breaker};
use super::full_text::{TextMatch, TextOptions, operator_and};
use super::lucene::{LuceneNode, parse_lucene, unescaped};
use super::multi_match::SearchedFields;
use super::patterns::{WildcardPiece, wildcard_pieces};
use super::simple::parse_simple;
use super::term_level::{Fuzziness, FuzzyOptions};
use super::{BoxedQuery, QueryBuilder, all, boost_of, boosted, count_of, failed, flag_of, known_only, none};

/// The `query_string` query of a URL's `q`, `df`, `default_operator`, `analyzer`, `lenient` and `analyze_wildcard`; none if
/// there is no `q`.
pub fn query_string_of<'p>(parameter: impl Fn(&str) -> Option<&'p str>) -> Option<Value> {
    let mut body = json!({"query": parameter("q")?});
    for (name, key) in [
        ("df", "default_field"),
        ("default_operator", "default_operator"),
        ("analyzer", "analyzer"),
        ("lenient", "lenient"),
        ("analyze_wildcard", "analyze_wildcard"),
    ] {
        match parameter(name) {
            // A flag without a value is set.
            Some("") if matches!(name, "lenient" | "analyze_wildcard") => body[key] = json!(true),
            Some(value) => body[key] = json!(value),
            None => {}
        }
    }
    Some(json!({"query_string": body}))
}

/// How the parts of a query string become queries.
struct StringOptions {
    text: TextOptions,
    phrase: TextOptions,
    tie: f32,
    across: bool,
    fuzzy: FuzzyOptions,
    leading_wildcard: bool,
    time_zone: Option<Value>,
}

const STRING_PARAMETERS: [&str; 28] = [
    "query",
    "default_field",
    "fields",
    "default_operator",
    "analyzer",
    "quote_analyzer",
    "allow_leading_wildcard",
    "auto_generate_phrase_queries",
    "enable_position_increments",
    "fuzzy_max_expansions",
    "fuzzy_prefix_length",
    "fuzziness",
    "fuzzy_transpositions",
    "fuzzy_rewrite",
    "phrase_slop",
    "tie_breaker",
    "type",
    "analyze_wildcard",
    "rewrite",
    "minimum_should_match",
    "lenient",
    "time_zone",
    "max_determinized_states",
    "escape",
    "auto_generate_synonyms_phrase_query",
    "lowercase_expanded_terms",
    "flags",
    "locale",
];

impl StringOptions {
    fn of(name: &str, body: &Map<String, Value>, are_all: bool) -> Result<StringOptions, SearchError> {
        let kind = body.get("type").and_then(Value::as_str).unwrap_or("best_fields");
        let (how, tie) = match kind {
            "best_fields" | "cross_fields" => (TextMatch::Terms, 0.0),
            "most_fields" => (TextMatch::Terms, 1.0),
            "phrase" => (TextMatch::Phrase, 0.0),
            "phrase_prefix" => (TextMatch::PhrasePrefix, 0.0),
            "bool_prefix" => (TextMatch::BoolPrefix, 1.0),
            other => {
                return Err(SearchError::body(format!("failed to parse [{name}] query type [{other}]. unknown type.")));
            }
        };
        // Fuzziness and its parameters are for words marked with ~, not for all words.
        let fuzzy = FuzzyOptions::of(name, body, Some(Fuzziness::Auto(3, 6)))?;
        let fuzzy = fuzzy.ok_or_else(|| SearchError::argument(format!("[{name}] [fuzziness] is missing")))?;
        let plain: Map<String, Value> = body
            .iter()
            .filter(|(key, _)| matches!(key.as_str(), "analyzer" | "minimum_should_match" | "lenient"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut text = TextOptions::of(name, how, &plain)?;
        text.all_terms = operator_and(name, "default_operator", body)?.unwrap_or(false);
        // Not every field can hold every word: with all of them, leniency is the default.
        text.lenient |= are_all && !body.contains_key("lenient");
        let slop = count_of(name, body, "phrase_slop", 0)?;
        let mut phrase = TextOptions { how: TextMatch::Phrase, slop, ..text.clone() };
        if let Some(analyzer) = body.get("quote_analyzer").and_then(Value::as_str) {
            phrase.analyzer = Some(analyzer.to_owned());
        }
        Ok(StringOptions {
            text,
            phrase,
            tie: tie_breaker(name, body, tie)?,
            across: kind == "cross_fields",
            fuzzy,
            leading_wildcard: !body.contains_key("allow_leading_wildcard")
                || flag_of(name, body, "allow_leading_wildcard")?,
            time_zone: body.get("time_zone").cloned(),
        })
    }
}

impl QueryBuilder<'_> {
    /// `{"query_string": {"query": "a AND b"}}`
    pub(super) fn query_string(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let name = "query_string";
        let (written, fields) = self.string_parts(name, body)?;
        let escaped: Cow<'_, str> = match flag_of(name, body, "escape")? {
            true => written
                .chars()
                .flat_map(|c| if c.is_alphanumeric() || c.is_whitespace() { vec![c] } else { vec!['\\', c] })
                .collect(),
            false => Cow::Borrowed(written),
        };
        let options = StringOptions::of(name, body, fields.are_all)?;
        let node = parse_lucene(&escaped, options.text.all_terms).map_err(|why| {
            let shown: String = written.chars().take(256).collect();
            SearchError::body(format!("Failed to parse query [{shown}]: {why}"))
        })?;
        self.string_query(name, body, (node, &fields), &options)
    }

    /// `{"simple_query_string": {"query": "a + b"}}`
    pub(super) fn simple_query_string(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let name = "simple_query_string";
        let (written, fields) = self.string_parts(name, body)?;
        if let Some(flags) = body.get("flags").filter(|flags| **flags != "ALL" && **flags != -1) {
            return Err(SearchError::unsupported(format!("[flags: {flags}] of [{name}]")));
        }
        let options = StringOptions::of(name, body, fields.are_all)?;
        let node = parse_simple(written, options.text.all_terms)
            .map_err(|why| SearchError::body(format!("Failed to parse query: {why}")))?;
        self.string_query(name, body, (node, &fields), &options)
    }

    /// The text of a query string and the fields it is sought in.
    fn string_parts<'v>(
        &self,
        name: &str,
        body: &'v Map<String, Value>,
    ) -> Result<(&'v str, SearchedFields), SearchError> {
        known_only(name, body, &STRING_PARAMETERS)?;
        let Some(written) = body.get("query").and_then(Value::as_str) else {
            return Err(SearchError::parsing(format!("[{name}] must be provided with a [query]")));
        };
        let fields = self.searched_fields(name, body.get("fields").or_else(|| body.get("default_field")))?;
        Ok((written, fields))
    }

    fn string_query(
        &mut self,
        name: &str,
        body: &Map<String, Value>,
        (node, fields): (Option<LuceneNode>, &SearchedFields),
        options: &StringOptions,
    ) -> Result<BoxedQuery, SearchError> {
        let boost = boost_of(name, body)?;
        let query = match node {
            None => none(),
            Some(LuceneNode::Clauses(clauses)) => {
                self.string_clauses(&clauses, fields, options, options.text.minimum.as_ref())?
            }
            Some(node) => self.string_node(&node, fields, options)?,
        };
        Ok(boosted(query, boost))
    }

    fn string_clauses(
        &mut self,
        clauses: &[(Occur, LuceneNode)],
        fields: &SearchedFields,
        options: &StringOptions,
        minimum: Option<&Value>,
    ) -> Result<BoxedQuery, SearchError> {
        let mut queries = Vec::with_capacity(clauses.len() + 1);
        for (occur, node) in clauses {
            let excluded = usize::from(*occur == Occur::MustNot);
            self.silent += excluded;
            let query = self.deeper(|builder| builder.string_node(node, fields, options));
            self.silent -= excluded;
            queries.push((*occur, query?));
        }
        let count = |wanted: Occur| queries.iter().filter(|(occur, _)| *occur == wanted).count();
        let (required, optional) = (count(Occur::Must), count(Occur::Should));
        let minimum = match minimum {
            Some(given) if optional > 0 => minimum_should_match(given, optional)?,
            _ => usize::from(required == 0 && optional > 0),
        };
        if required == 0 && optional == 0 {
            queries.push((Occur::Must, all(0.0)));
        }
        Ok(Box::new(BooleanQuery::with_minimum_required_clauses(queries, minimum)))
    }

    fn string_node(
        &mut self,
        node: &LuceneNode,
        fields: &SearchedFields,
        options: &StringOptions,
    ) -> Result<BoxedQuery, SearchError> {
        self.count_clauses(1)?;
        match node {
            LuceneNode::Clauses(clauses) => self.string_clauses(clauses, fields, options, None),
            LuceneNode::Boosted(inner, boost) => Ok(boosted(self.string_node(inner, fields, options)?, *boost)),
            LuceneNode::In(field, inner) => match (field.as_str(), &**inner) {
                ("*", LuceneNode::Pattern(pattern)) if pattern == "*" => Ok(all(1.0)),
                ("_exists_", LuceneNode::Text(path)) => self.exists_of(path),
                ("_exists_", LuceneNode::Pattern(path)) => self.exists_of(&unescaped(path)),
                (pattern, inner) => {
                    let of_pattern = self.fields_of_pattern(pattern).into_iter().map(|field| (field, 1.0));
                    let inside = SearchedFields { fields: of_pattern.collect(), are_all: false };
                    self.string_node(inner, &inside, options)
                }
            },
            LuceneNode::Pattern(pattern) if pattern == "*" && fields.are_all => Ok(all(1.0)),
            LuceneNode::Text(text) => {
                let value = Value::String(text.clone());
                match options.across {
                    true => self.across_fields(fields, &value, &options.text, options.tie),
                    false => self.in_each_field(fields, &value, &options.text, options.tie),
                }
            }
            LuceneNode::Phrase(text, slop) => {
                let phrase = match slop {
                    Some(slop) => Cow::Owned(TextOptions { slop: *slop, ..options.phrase.clone() }),
                    None => Cow::Borrowed(&options.phrase),
                };
                self.in_each_field(fields, &Value::String(text.clone()), &phrase, options.tie)
            }
            leaf => {
                let mut queries = Vec::with_capacity(fields.fields.len());
                for (field, boost) in &fields.fields {
                    self.count_clauses(1)?;
                    let query = match self.string_leaf(leaf, field, options) {
                        Err(error) if options.text.lenient && error.kind == "query_shard_exception" => none(),
                        query => query?,
                    };
                    queries.push(boosted(query, *boost));
                }
                Ok(best_of(queries, options.tie))
            }
        }
    }

    /// What is not analyzed, in one field.
    fn string_leaf(
        &mut self,
        node: &LuceneNode,
        path: &str,
        options: &StringOptions,
    ) -> Result<BoxedQuery, SearchError> {
        match node {
            LuceneNode::Pattern(pattern) if pattern == "*" => self.exists_of(path),
            LuceneNode::Pattern(pattern) => {
                if pattern.starts_with(['*', '?']) && !options.leading_wildcard {
                    return Err(SearchError::body(format!(
                        "Failed to parse query [{pattern}]: '*' or '?' not allowed as first character in WildcardQuery"
                    )));
                }
                let pattern = self.normalized_text(path, pattern)?;
                let pieces = wildcard_pieces(&pattern);
                let begins = pieces.split_last().filter(|(last, _)| **last == WildcardPiece::Any);
                let literal = |pieces: &[WildcardPiece]| -> Option<String> {
                    let chars = pieces.iter().map(|piece| match piece {
                        WildcardPiece::Literal(c) => Some(*c),
                        _ => None,
                    });
                    chars.collect()
                };
                match begins.and_then(|(_, pieces)| literal(pieces)) {
                    Some(prefix) => self.prefix_of(path, &prefix, false),
                    None => self.wildcard_of(path, &pattern, false),
                }
            }
            LuceneNode::Fuzzy(text, edits) => {
                let text = self.normalized_text(path, text)?;
                let Some((field, column)) = self.resolve(path)? else { return Ok(none()) };
                if !matches!(field.kind, FieldKind::Text | FieldKind::Keyword) || !field.indexed {
                    return Err(failed(format!(
                        "Can only use fuzzy queries on keyword and text fields - not on [{path}] which is of type [{}]",
                        field.type_name
                    )));
                }
                let fuzziness = edits.as_deref().map(|edits| edits_of(edits, &text)).transpose()?;
                let fuzzy = FuzzyOptions { fuzziness: fuzziness.unwrap_or(options.fuzzy.fuzziness), ..options.fuzzy };
                self.fuzzy_of((&field, column), &text, fuzzy)
            }
            LuceneNode::Regex(regex) => self.regexp_of(path, regex, false),
            LuceneNode::Range(lower, upper) => {
                let mut body = Map::new();
                for (end, keys) in [(lower, ["gt", "gte"]), (upper, ["lt", "lte"])] {
                    if let Some((text, included)) = end {
                        body.insert(keys[usize::from(*included)].to_owned(), json!(self.normalized_text(path, text)?));
                    }
                }
                body.extend(options.time_zone.iter().map(|zone| ("time_zone".to_owned(), zone.clone())));
                self.range_of(path, &body)
            }
            other => Err(SearchError::internal(format!("a part of a query string was taken for another: {other:?}"))),
        }
    }

    /// A pattern or a bound as the analyzer of a text field writes it.
    fn normalized_text(&self, path: &str, text: &str) -> Result<String, SearchError> {
        match self.view.mapping.field(path) {
            Some(field) if field.kind == FieldKind::Text => Ok(self.analyzer_for(field, None)?.normalize(text)),
            _ => Ok(text.to_owned()),
        }
    }
}

/// The edits of `word~2`, or of `word~0.8`, an old way to name a part of the word's length that must be the same.
fn edits_of(written: &str, text: &str) -> Result<Fuzziness, SearchError> {
    let number: f64 = written.parse().map_err(|_| SearchError::body(format!("Failed to parse query: ~{written}")))?;
    let edits = match number {
        number if number >= 1.0 => number.min(2.0),
        0.0 => 0.0,
        number => ((1.0 - number) * text.chars().count() as f64).min(2.0),
    };
    Ok(Fuzziness::Edits(edits as u8))
}
