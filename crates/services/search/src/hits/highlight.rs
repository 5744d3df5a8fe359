//! Highlighting: the parts of a text that a query found, marked.
//!
//! The text of the source is analyzed again; where a term is one of the query's, its place in the text is marked. Fragments are cut
//! at places between tokens, about `fragment_size` long.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::analysis::AnalyzedTerm;
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField, matches_pattern};
use crate::query::{HighlightTerm, QueryContext, highlight_terms};
use crate::source::values_at;
use crate::stop::SearchStop;
use crate::view::IndexView;

/// Longest text that is analyzed, in characters (Elasticsearch's `index.highlight.max_analyzed_offset`).
const TEXT_MAX: usize = 1_000_000;

/// Memory of a term of a text that is analyzed, with its text.
const TERM_BYTES: usize = size_of::<AnalyzedTerm>() + 32;

/// Most fields of a highlight.
const FIELDS_MAX: usize = 100;

/// How one field is highlighted.
#[derive(Clone, Debug)]
struct HighlightOptions {
    before: String,
    after: String,
    fragments: usize,
    size: usize,
    no_match: usize,
    same_field: bool,
    by_score: bool,
    html: bool,
    /// Shared by the fields of a highlight: it may be large.
    query: Option<Arc<Value>>,
}

/// What a request wants highlighted.
#[derive(Clone, Debug)]
pub(super) struct HighlightRequest {
    fields: Vec<(String, HighlightOptions)>,
}

impl HighlightOptions {
    fn read(mut self, object: &Map<String, Value>, top: bool) -> Result<HighlightOptions, SearchError> {
        let tag = |value: &Value| match value {
            Value::Array(tags) => tags.first().and_then(Value::as_str).map(str::to_owned),
            Value::String(tag) => Some(tag.clone()),
            _ => None,
        };
        let count = |name: &str, value: &Value| {
            let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
            number
                .map(|number| number.min(TEXT_MAX as u64) as usize)
                .ok_or_else(|| SearchError::argument(format!("[{name}] of a highlight is a number, not [{value}]")))
        };
        for (name, value) in object {
            match name.as_str() {
                "fields" if top => {}
                "pre_tags" => self.before = tag(value).unwrap_or_default(),
                "post_tags" => self.after = tag(value).unwrap_or_default(),
                "number_of_fragments" => self.fragments = count(name, value)?,
                "fragment_size" => self.size = count(name, value)?,
                "no_match_size" => self.no_match = count(name, value)?,
                "require_field_match" => self.same_field = value.as_bool().unwrap_or(true),
                "order" => self.by_score = value == "score",
                "encoder" => self.html = value == "html",
                "highlight_query" => self.query = Some(Arc::new(value.clone())),
                "tags_schema" if value == "default" => {}
                "type" => match value.as_str().unwrap_or_default() {
                    "plain" | "unified" => {}
                    other => return Err(SearchError::unsupported(format!("highlighter [{other}]"))),
                },
                // They tune how fragments are cut; ours are cut between tokens.
                "fragmenter"
                | "boundary_scanner"
                | "boundary_scanner_locale"
                | "boundary_chars"
                | "boundary_max_scan"
                | "phrase_limit"
                | "max_analyzed_offset"
                | "options" => {}
                other => return Err(SearchError::unsupported(format!("[{other}] of a highlight"))),
            }
        }
        Ok(self)
    }
}

impl HighlightRequest {
    /// Memory of its queries.
    pub(super) fn query_bytes(&self) -> usize {
        let queries = self.fields.iter().filter_map(|(_, options)| options.query.as_deref());
        queries.map(crate::memory::value_bytes).sum()
    }

    /// Reads the `highlight` of a search. Errors: a part that is not known.
    pub(super) fn read(value: &Value) -> Result<HighlightRequest, SearchError> {
        let Value::Object(object) = value else { return Err(SearchError::parsing("[highlight] is an object")) };
        let defaults = HighlightOptions {
            before: "<em>".to_owned(),
            after: "</em>".to_owned(),
            fragments: 5,
            size: 100,
            no_match: 0,
            same_field: true,
            by_score: false,
            html: false,
            query: None,
        };
        let options = defaults.read(object, true)?;
        let mut fields = Vec::new();
        let mut add = |field: &Map<String, Value>| -> Result<(), SearchError> {
            for (name, own) in field {
                let own = own.as_object().ok_or_else(|| SearchError::parsing("a field of [highlight] is an object"))?;
                fields.push((name.clone(), options.clone().read(own, false)?));
            }
            Ok(())
        };
        match object.get("fields") {
            Some(Value::Object(names)) => add(names)?,
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_object).try_for_each(&mut add)?,
            _ => {}
        }
        match fields.len() > FIELDS_MAX {
            true => Err(SearchError::argument(format!("a highlight has at most {FIELDS_MAX} fields"))),
            false => Ok(HighlightRequest { fields }),
        }
    }
}

/// Terms by the field that they are looked for in.
type QueryTerms = BTreeMap<String, Vec<HighlightTerm>>;

/// A highlight for one index.
pub(super) struct Highlighter<'a> {
    view: &'a IndexView,
    request: &'a HighlightRequest,
    terms: QueryTerms,
    own: Vec<Option<QueryTerms>>,
    text_max: usize,
    stop: &'a SearchStop,
}

impl<'a> Highlighter<'a> {
    /// Errors: the query cannot be read.
    pub(super) fn new(
        view: &'a IndexView,
        request: &'a HighlightRequest,
        query: &Value,
        (context, stop): (&QueryContext, &'a SearchStop),
        text_max: Option<usize>,
    ) -> Result<Highlighter<'a>, SearchError> {
        let terms = highlight_terms(view, query, context)?;
        let own = |(_, options): &(String, HighlightOptions)| {
            options.query.as_ref().map(|query| highlight_terms(view, query, context)).transpose()
        };
        let own = request.fields.iter().map(own).collect::<Result<_, _>>()?;
        Ok(Highlighter { view, request, terms, own, text_max: text_max.unwrap_or(TEXT_MAX).min(TEXT_MAX), stop })
    }

    /// The `highlight` of a hit; `None` if nothing is to be marked.
    pub(super) fn hit(&self, source: &Map<String, Value>) -> Result<Option<Value>, SearchError> {
        let mut shown = Map::new();
        for ((pattern, options), own) in self.request.fields.iter().zip(&self.own) {
            let terms = own.as_ref().unwrap_or(&self.terms);
            for field in self.view.mapping.fields() {
                let fits =
                    matches!(field.kind, FieldKind::Text | FieldKind::Keyword) && matches_pattern(pattern, &field.path);
                if !fits || shown.contains_key(&field.path) {
                    continue;
                }
                if self.stop.is_fetch_over()? {
                    return Ok(None);
                }
                let fragments = self.field(field, options, terms, source)?;
                if !fragments.is_empty() {
                    shown.insert(field.path.clone(), json!(fragments));
                }
            }
        }
        Ok((!shown.is_empty()).then_some(Value::Object(shown)))
    }

    fn field(
        &self,
        field: &MappedField,
        options: &HighlightOptions,
        terms: &QueryTerms,
        source: &Map<String, Value>,
    ) -> Result<Vec<String>, SearchError> {
        let wanted: Vec<&HighlightTerm> = match options.same_field {
            true => terms.get(&field.path).into_iter().flatten().collect(),
            false => terms.values().flatten().collect(),
        };
        // The source has the values of a multi-field under the name of its field.
        let path = match field.is_multi {
            true => field.path.rsplit_once('.').map_or(field.path.as_str(), |(parent, _)| parent),
            false => &field.path,
        };
        let mut values = Vec::new();
        values_at(path, source, &mut values);
        // Those that are copied to it are found in it too.
        self.view.mapping.copied_to(path).for_each(|from| values_at(&from.path, source, &mut values));
        let mut found: Vec<(usize, String)> = Vec::new();
        for value in &values {
            let Value::String(text) = value else { continue };
            if field.ignore_above.is_some_and(|most| text.chars().count() > most) {
                continue;
            }
            if text.len() > self.text_max {
                return Err(SearchError::argument(format!(
                    "The length [{}] of field [{}] has exceeded [{}] - maximum allowed to be analyzed for highlighting.",
                    text.len(),
                    field.path,
                    self.text_max
                )));
            }
            if wanted.is_empty() {
                continue;
            }
            let terms = self.analyzed(field, text)?;
            let bytes = (terms.len() * TERM_BYTES) as u64;
            self.stop.memory().take(bytes)?;
            let marks = self.marks(&terms, &wanted)?;
            self.stop.memory().give(bytes);
            if !marks.is_empty() {
                fragments(text, &marks, options, &mut found);
            }
        }
        if found.is_empty() && options.no_match > 0 {
            let text = values.iter().find_map(Value::as_str).unwrap_or_default();
            let end = text.char_indices().nth(options.no_match).map_or(text.len(), |(at, _)| at);
            return Ok(if text.is_empty() { Vec::new() } else { vec![encoded(&text[..end], options)] });
        }
        if options.by_score {
            found.sort_by_key(|(hits, _)| std::cmp::Reverse(*hits));
        }
        let most = if options.fragments == 0 { usize::MAX } else { options.fragments };
        Ok(found.into_iter().take(most).map(|(_, text)| text).collect())
    }

    fn analyzed(&self, field: &MappedField, text: &str) -> Result<Vec<AnalyzedTerm>, SearchError> {
        if field.kind == FieldKind::Text {
            let name = field.analyzer.as_deref().unwrap_or("default");
            return Ok(self.view.analyzers.get(name)?.analyze(text));
        }
        let term = match &field.analyzer {
            Some(name) => self.view.analyzers.normalizer(name)?.normalize(text),
            None => text.to_owned(),
        };
        Ok(vec![AnalyzedTerm { text: term, from: 0, to: text.len(), position: 0 }])
    }

    /// Where a text is marked, in bytes; in order, without overlaps. Nothing if there is no time for it. Errors: it was cancelled.
    fn marks(&self, terms: &[AnalyzedTerm], wanted: &[&HighlightTerm]) -> Result<Vec<(usize, usize)>, SearchError> {
        let mut marks = Vec::new();
        for want in wanted {
            // A query has thousands of terms, and a text more.
            if self.stop.is_fetch_over()? {
                return Ok(Vec::new());
            }
            match want {
                HighlightTerm::Phrase(phrase) if !phrase.is_empty() => {
                    for start in terms.windows(phrase.len()) {
                        if start.iter().zip(phrase).all(|(term, own)| term.text == *own) {
                            marks.extend(start.iter().map(|term| (term.from, term.to)));
                        }
                    }
                }
                want => {
                    marks.extend(terms.iter().filter(|term| want.matches(&term.text)).map(|term| (term.from, term.to)));
                }
            }
        }
        Ok(joined(marks))
    }
}

/// Sorts marks, and joins those that overlap.
fn joined(mut marks: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    marks.sort_unstable();
    marks.dedup();
    let mut apart: Vec<(usize, usize)> = Vec::new();
    for (from, to) in marks {
        match apart.last_mut() {
            Some(last) if from < last.1 => last.1 = last.1.max(to),
            _ => apart.push((from, to)),
        }
    }
    apart
}

fn encoded(text: &str, options: &HighlightOptions) -> String {
    match options.html {
        false => text.to_owned(),
        true => text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"),
    }
}

fn marked(text: &str, (from, to): (usize, usize), marks: &[(usize, usize)], options: &HighlightOptions) -> String {
    let (mut out, mut at) = (String::new(), from);
    for (start, end) in marks.iter().filter(|(start, end)| *start >= from && *end <= to) {
        out.push_str(&encoded(&text[at..*start], options));
        out.push_str(&options.before);
        out.push_str(&encoded(&text[*start..*end], options));
        out.push_str(&options.after);
        at = *end;
    }
    out.push_str(&encoded(&text[at..to], options));
    out
}

/// Cuts a text into fragments with marks, each with the number of its marks.
fn fragments(text: &str, marks: &[(usize, usize)], options: &HighlightOptions, found: &mut Vec<(usize, String)>) {
    if options.fragments == 0 || options.size == 0 || text.len() <= options.size {
        found.push((marks.len(), marked(text, (0, text.len()), marks, options)));
        return;
    }
    let mut next = 0;
    let mut done = 0;
    while next < marks.len() {
        let first = marks[next];
        let mut last = next;
        while last + 1 < marks.len() && marks[last + 1].1 - first.0 <= options.size {
            last += 1;
        }
        let inside = marks[last].1 - first.0;
        let spare = options.size.saturating_sub(inside) / 2;
        let from = boundary(text, first.0.saturating_sub(spare).max(done), first.0);
        let to = end_boundary(text, (marks[last].1 + spare).min(text.len()), marks[last].1);
        found.push((last + 1 - next, marked(text, (from, to), marks, options).trim().to_owned()));
        done = to;
        next = last + 1;
    }
}

/// The first beginning of a word from `at` on, not after `most`.
fn boundary(text: &str, at: usize, most: usize) -> usize {
    if at == 0 {
        return 0;
    }
    let blank = text.get(..most).and_then(|before| {
        before
            .char_indices()
            .find(|(place, c)| *place >= at && c.is_whitespace())
            .map(|(place, c)| place + c.len_utf8())
    });
    blank.unwrap_or(most).min(most)
}

/// The last end of a word up to `at`, not before `least`.
fn end_boundary(text: &str, at: usize, least: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    let after = text.char_indices().filter(|(place, c)| *place >= least && *place <= at && c.is_whitespace());
    after.map(|(place, _)| place).next_back().unwrap_or(least).max(least)
}
