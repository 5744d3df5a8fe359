//! The `intervals` query: rules about where terms of a text lie to each other.

use std::sync::Arc;

use serde_json::{Map, Value};
use tantivy::postings::{Postings, SegmentPostings};
use tantivy::query::{BitSetDocSet, ConstScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{BitSet, DocId, DocSet, Score, SegmentReader, TERMINATED, TantivyError, Term};

use super::interval_rules::{IntervalFilter, IntervalOrder, IntervalRule};
use super::term_level::{Fuzziness, FuzzyOptions};
use super::term_scan::{TermTest, prefix_end};
use super::{
    BoxedQuery, CLAUSES_MAX, QueryBuilder, body_of, boost_of, boosted, constant, failed, field_of, flag_of, known_only,
    needed, none, patterns,
};
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};
use crate::stop::SearchStop;

/// The most terms that a beginning or a pattern stands for (Lucene's `Intervals.DEFAULT_MAX_EXPANSIONS`).
const EXPANSIONS_MAX: usize = 128;

/// Documents and terms between two looks at what ends a search.
const CHECK: u32 = 1 << 10;

/// The terms of a leaf of the rules.
#[derive(Clone, Debug)]
enum IntervalTerms {
    /// One of these.
    These(Vec<String>),
    /// Those with a beginning that a test accepts.
    Scanned(String, TermTest),
}

/// A rule being read for one field.
struct RuleReader<'b, 'a> {
    builder: &'b mut QueryBuilder<'a>,
    field: Arc<MappedField>,
    leaves: Vec<IntervalTerms>,
}

/// `{"intervals": {field: {"match": {..}}}}`
pub(super) fn intervals(builder: &mut QueryBuilder<'_>, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
    let (path, rule) = field_of("intervals", body)?;
    let rule = body_of("intervals", rule)?;
    let boost = boost_of("intervals", rule)?;
    let Some(field) = builder.view.mapping.field(path).cloned() else { return Ok(none()) };
    if field.kind != FieldKind::Text || !field.indexed {
        return Err(failed(format!(
            "Can only use interval queries on text fields - not on [{path}] which is of type [{}]",
            field.type_name
        )));
    }
    let column = builder.view.column(&field);
    let mut reader = RuleReader { builder, field, leaves: Vec::new() };
    let rule = reader.rule(rule)?;
    let leaves = Arc::new(reader.leaves);
    let stop = builder.context.stop.clone();
    let Some(column) = column else { return Ok(none()) };
    Ok(boosted(constant(Box::new(IntervalsQuery { field: column, rule, leaves, stop }) as BoxedQuery, 1.0), boost))
}

impl RuleReader<'_, '_> {
    fn rule(&mut self, rule: &Map<String, Value>) -> Result<IntervalRule, SearchError> {
        let mut rules = rule.iter().filter(|(key, _)| !matches!(key.as_str(), "boost" | "_name"));
        let first = rules.next().ok_or_else(|| SearchError::parsing("a rule of [intervals] is empty"))?;
        if let Some((second, _)) = rules.next() {
            return Err(SearchError::parsing(format!(
                "Only one interval rule can be specified, found [{}] and [{second}]",
                first.0
            )));
        }
        let (name, body) = (first.0.as_str(), body_of(first.0, first.1)?);
        if self.builder.depth >= super::QUERY_DEPTH_MAX {
            return Err(SearchError::argument(format!(
                "rules of [intervals] are nested deeper than [{}]",
                super::QUERY_DEPTH_MAX
            )));
        }
        self.builder.depth += 1;
        self.builder.count_clauses(1)?;
        let found = self.named(name, body);
        self.builder.depth -= 1;
        found
    }

    fn named(&mut self, name: &str, body: &Map<String, Value>) -> Result<IntervalRule, SearchError> {
        if body.get("use_field").is_some_and(|field| !field.is_null()) {
            return Err(SearchError::unsupported("[use_field] of [intervals]"));
        }
        if body.get("max_expansions").is_some_and(|most| !most.is_null()) {
            return Err(SearchError::unsupported("[max_expansions] of [intervals]"));
        }
        match name {
            "match" => self.matching(body),
            "all_of" => {
                known_only(name, body, &["intervals", "ordered", "mode", "max_gaps", "filter"])?;
                let parts = self.parts(name, body)?;
                let rule = IntervalRule::All { parts, order: order(name, body)?, max_gaps: max_gaps(name, body)? };
                self.filtered(rule, body)
            }
            "any_of" => {
                known_only(name, body, &["intervals", "filter"])?;
                let rule = IntervalRule::Any(self.parts(name, body)?);
                self.filtered(rule, body)
            }
            "prefix" => {
                known_only(name, body, &["prefix", "analyzer", "use_field"])?;
                let prefix = self.normal(text(name, body, "prefix")?, body)?;
                Ok(self.leaf(IntervalTerms::Scanned(prefix, TermTest::Any)))
            }
            "wildcard" => {
                known_only(name, body, &["pattern", "analyzer", "use_field", "case_insensitive", "max_expansions"])?;
                let pattern = self.normal(text(name, body, "pattern")?, body)?;
                let pattern = patterns::wildcard(&pattern, flag_of(name, body, "case_insensitive")?)?;
                self.builder.count_clauses(pattern.clauses)?;
                Ok(self.leaf(IntervalTerms::Scanned(pattern.prefix, TermTest::Pattern(pattern.regex))))
            }
            "regexp" => {
                let known = ["pattern", "use_field", "case_insensitive", "max_expansions", "flags", "flags_value"];
                known_only(name, body, &known)?;
                let any_case = flag_of(name, body, "case_insensitive")?;
                let pattern =
                    patterns::regexp(text(name, body, "pattern")?, any_case, self.builder.view.bounds.regex_chars)?;
                self.builder.count_clauses(pattern.clauses)?;
                Ok(self.leaf(IntervalTerms::Scanned(pattern.prefix, TermTest::Pattern(pattern.regex))))
            }
            "fuzzy" => self.fuzzy(body),
            other => Err(SearchError::parsing(format!(
                "Unknown interval type [{other}], expecting one of [match, any_of, all_of, prefix, wildcard, regexp, fuzzy]"
            ))),
        }
    }

    fn leaf(&mut self, terms: IntervalTerms) -> IntervalRule {
        self.leaves.push(terms);
        IntervalRule::Leaf(self.leaves.len() - 1)
    }

    fn matching(&mut self, body: &Map<String, Value>) -> Result<IntervalRule, SearchError> {
        known_only("match", body, &["query", "max_gaps", "ordered", "mode", "analyzer", "filter", "use_field"])?;
        let analyzer = self.builder.analyzer_for(&self.field, body.get("analyzer").and_then(Value::as_str))?;
        let terms = super::full_text::bounded(analyzer, text("match", body, "query")?)?;
        let mut places: Vec<(usize, Vec<String>)> = Vec::new();
        for term in terms {
            match places.last_mut() {
                Some((position, texts)) if *position == term.position => texts.push(term.text),
                _ => places.push((term.position, vec![term.text])),
            }
        }
        self.builder.count_clauses(places.len())?;
        let (order, max_gaps) = (order("match", body)?, max_gaps("match", body)?);
        let mut parts: Vec<IntervalRule> =
            places.into_iter().map(|(_, texts)| self.leaf(IntervalTerms::These(texts))).collect();
        let rule = match parts.len() {
            0 => IntervalRule::None,
            1 => parts.remove(0),
            _ => IntervalRule::All { parts, order, max_gaps },
        };
        self.filtered(rule, body)
    }

    fn fuzzy(&mut self, body: &Map<String, Value>) -> Result<IntervalRule, SearchError> {
        let known = ["term", "prefix_length", "transpositions", "fuzziness", "analyzer", "use_field"];
        known_only("fuzzy", body, &known)?;
        let term = self.normal(text("fuzzy", body, "term")?, body)?;
        let options = FuzzyOptions::of("fuzzy", body, Some(Fuzziness::Auto(3, 6)))?;
        let Some(options) = options else { return Ok(self.leaf(IntervalTerms::These(vec![term]))) };
        self.builder.count_fuzzy(&term)?;
        let edits = options.fuzziness.edits(&term);
        let prefix = term.chars().take(options.prefix_length as usize).collect();
        let test = TermTest::Edits(term, edits, options.transpositions);
        Ok(self.leaf(IntervalTerms::Scanned(prefix, test)))
    }

    /// A text as one term, as the analyzer writes it.
    fn normal(&self, text: &str, body: &Map<String, Value>) -> Result<String, SearchError> {
        match body.get("analyzer").and_then(Value::as_str) {
            Some(name) => Err(SearchError::unsupported(format!("[analyzer: {name}] of this rule of [intervals]"))),
            None => self.builder.normalized(&self.field, text),
        }
    }

    fn parts(&mut self, name: &str, body: &Map<String, Value>) -> Result<Vec<IntervalRule>, SearchError> {
        let list = needed(name, body, "intervals")?.as_array();
        let list = list.ok_or_else(|| SearchError::parsing(format!("[intervals] of [{name}] is a list")))?;
        list.iter().map(|part| self.rule(body_of(name, part)?)).collect()
    }

    fn filtered(&mut self, rule: IntervalRule, body: &Map<String, Value>) -> Result<IntervalRule, SearchError> {
        let Some(filter) = body.get("filter").filter(|filter| !filter.is_null()) else { return Ok(rule) };
        let filter = body_of("filter", filter)?;
        let one = filter.iter().next().filter(|_| filter.len() == 1);
        let (name, by) = one.ok_or_else(|| SearchError::parsing("[filter] of [intervals] has one rule"))?;
        let (filter, negated) = match name.as_str() {
            "containing" => (IntervalFilter::Containing, false),
            "not_containing" => (IntervalFilter::Containing, true),
            "contained_by" => (IntervalFilter::ContainedBy, false),
            "not_contained_by" => (IntervalFilter::ContainedBy, true),
            "overlapping" => (IntervalFilter::Overlapping, false),
            "not_overlapping" => (IntervalFilter::Overlapping, true),
            "before" => (IntervalFilter::Before, false),
            "after" => (IntervalFilter::After, false),
            other => return Err(SearchError::unsupported(format!("filter [{other}] of [intervals]"))),
        };
        let by = Box::new(self.rule(body_of(name, by)?)?);
        Ok(IntervalRule::Filtered { rule: Box::new(rule), filter, negated, by })
    }
}

fn text<'v>(name: &str, body: &'v Map<String, Value>, key: &str) -> Result<&'v str, SearchError> {
    needed(name, body, key)?
        .as_str()
        .ok_or_else(|| SearchError::parsing(format!("[{key}] of rule [{name}] of [intervals] is a text")))
}

fn order(name: &str, body: &Map<String, Value>) -> Result<IntervalOrder, SearchError> {
    match body.get("mode").and_then(Value::as_str) {
        None if flag_of(name, body, "ordered")? => Ok(IntervalOrder::Ordered),
        None | Some("unordered") => Ok(IntervalOrder::Unordered),
        Some("ordered") => Ok(IntervalOrder::Ordered),
        Some("unordered_no_overlap") => Ok(IntervalOrder::Apart),
        Some(other) => Err(SearchError::argument(format!(
            "Unknown mode [{other}] of [intervals]: it is [ordered], [unordered] or [unordered_no_overlap]"
        ))),
    }
}

/// Positions between the parts; none for any number. Errors: it is no whole number from -1 on.
fn max_gaps(name: &str, body: &Map<String, Value>) -> Result<Option<u32>, SearchError> {
    match body.get("max_gaps") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64() {
            Some(-1) => Ok(None),
            Some(most) if most >= 0 => Ok(Some(u32::try_from(most).unwrap_or(u32::MAX))),
            _ => Err(SearchError::argument(format!("[max_gaps] of rule [{name}] is -1 or more, not [{value}]"))),
        },
    }
}

/// Documents in which a rule is found; all score 1.
#[derive(Clone, Debug)]
struct IntervalsQuery {
    field: Field,
    rule: IntervalRule,
    leaves: Arc<Vec<IntervalTerms>>,
    /// When to end before all documents are looked at.
    stop: Option<Arc<SearchStop>>,
}

impl Query for IntervalsQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl IntervalsQuery {
    /// The postings of a leaf in a segment; `left` is how many all leaves together may still have. Errors: too many terms.
    fn postings(
        &self,
        reader: &SegmentReader,
        terms: &IntervalTerms,
        left: &mut usize,
    ) -> tantivy::Result<Vec<SegmentPostings>> {
        let index = reader.inverted_index(self.field)?;
        let option = IndexRecordOption::WithFreqsAndPositions;
        match terms {
            IntervalTerms::These(texts) => {
                let mut all = Vec::new();
                for text in texts {
                    all.extend(index.read_postings(&Term::from_field_text(self.field, text), option)?);
                }
                Ok(all)
            }
            IntervalTerms::Scanned(prefix, test) => {
                let mut range = index.terms().range().ge(prefix.as_bytes());
                if let Some(end) = prefix_end(prefix.as_bytes()) {
                    range = range.lt(&end);
                }
                let (mut terms, mut all, mut steps) = (range.into_stream()?, Vec::new(), 0_u32);
                while terms.advance() {
                    steps = steps.wrapping_add(1);
                    match &self.stop {
                        Some(stop) if steps.is_multiple_of(CHECK) => stop.check()?,
                        _ => {}
                    }
                    if !test.accepts(terms.key()) {
                        continue;
                    }
                    if all.len() >= EXPANSIONS_MAX || *left == 0 {
                        return Err(TantivyError::InvalidArgument(format!(
                            "rules of [intervals] expanded to too many terms (limit {EXPANSIONS_MAX}, all of a query {CLAUSES_MAX})"
                        )));
                    }
                    *left -= 1;
                    all.push(index.read_postings_from_terminfo(terms.value(), option)?);
                }
                Ok(all)
            }
        }
    }
}

impl Weight for IntervalsQuery {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let mut left = CLAUSES_MAX;
        let leaves = self.leaves.iter().map(|terms| self.postings(reader, terms, &mut left));
        let mut leaves = leaves.collect::<tantivy::Result<Vec<_>>>()?;
        let mut docs = BitSet::with_max_value(reader.max_doc());
        let mut positions: Vec<Vec<u32>> = vec![Vec::new(); leaves.len()];
        let mut of_term = Vec::new();
        let mut steps = 0_u32;
        loop {
            steps = steps.wrapping_add(1);
            match &self.stop {
                Some(stop) if steps.is_multiple_of(CHECK) => stop.check()?,
                _ => {}
            }
            // The next document with any of the terms.
            let doc = leaves.iter().flatten().map(DocSet::doc).min().unwrap_or(TERMINATED);
            if doc == TERMINATED {
                break;
            }
            let can = self.rule.can_match(&|leaf| leaves[leaf].iter().any(|postings| postings.doc() == doc));
            for (postings, positions) in leaves.iter_mut().zip(&mut positions) {
                positions.clear();
                for postings in postings.iter_mut().filter(|postings| postings.doc() == doc) {
                    if can {
                        postings.positions(&mut of_term);
                        positions.extend_from_slice(&of_term);
                    }
                    postings.advance();
                }
                positions.sort_unstable();
            }
            if can && !self.rule.find(&positions).is_empty() {
                docs.insert(doc);
            }
        }
        Ok(Box::new(ConstScorer::new(BitSetDocSet::from(docs), boost)))
    }

    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        let mut scorer = self.scorer(reader, 1.0)?;
        if doc == TERMINATED || scorer.doc() > doc || scorer.seek(doc) != doc {
            return Err(TantivyError::InvalidArgument(format!("Document #({doc}) does not match")));
        }
        Ok(Explanation::new("a rule fits", 1.0))
    }
}
