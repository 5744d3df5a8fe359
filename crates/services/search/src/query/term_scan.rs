//! [`TermScanQuery`]: documents with a term that a test accepts, among those with a literal beginning.
//!
//! The library's own automaton queries determinize a pattern before they run: a short pattern can need more states than they
//! allow. Here each term of the range is tested by itself, in time linear in the term, whatever the pattern.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::SearchError;
use crate::hash::murmur3;
use tantivy::query::{BitSetDocSet, ConstScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::termdict::TermStreamer;
use tantivy::{
    BitSet, DocId, DocSet, InvertedIndexReader, Score, Searcher, SegmentReader, TERMINATED, TantivyError, Term,
};

use crate::stop::SearchStop;

/// Terms, and blocks of documents, between two looks at the clock: a pattern on a term of a kilobyte takes some microseconds.
const CHECK: u32 = 1_024;

/// Which terms are accepted.
#[derive(Clone, Debug)]
pub(super) enum TermTest {
    /// All with the beginning.
    Any,
    /// Those that an expression, anchored at both ends, matches.
    Pattern(Arc<regex::Regex>),
    /// Those that are at most so many edits away from a text; `true` if a transposition is one edit.
    Edits(String, u8, bool),
    /// Ids of this slice, of so many.
    Slice(u32, u32),
}

impl TermTest {
    pub(super) fn accepts(&self, term: &[u8]) -> bool {
        self.distance(term).is_some()
    }

    /// A term that is accepted, with its edits; 0 where these do not count.
    fn distance<'a>(&self, term: &'a [u8]) -> Option<(u8, &'a str)> {
        let term = std::str::from_utf8(term).ok()?;
        let accepted = match self {
            TermTest::Any => true,
            TermTest::Pattern(pattern) => pattern.is_match(term),
            TermTest::Edits(text, distance, transpositions) => {
                return edit_distance(text, term, *distance, *transpositions).map(|distance| (distance, term));
            }
            TermTest::Slice(slice, slices) => {
                let hash = murmur3(term.as_bytes(), SLICE_SEED) as i32;
                i64::from(hash).rem_euclid(i64::from(*slices)) == i64::from(*slice)
            }
        };
        accepted.then_some((0, term))
    }
}

/// Documents with a term in `field` that begins with `prefix` and that `test` accepts; all score 1.
#[derive(Clone, Debug)]
pub(super) struct TermScanQuery {
    pub(super) field: Field,
    pub(super) prefix: String,
    pub(super) test: TermTest,
    /// When to end before all terms are tested.
    pub(super) stop: Option<Arc<SearchStop>>,
}

impl TermScanQuery {
    /// The first terms that are accepted over all segments, as many as may be; those of a test of edits that are nearest. If the time of the search
    /// is over, of the terms seen until then. Errors: the search was cancelled.
    pub(super) fn expanded(&self, searcher: &Searcher, most: usize) -> Result<Vec<Term>, SearchError> {
        let mut best = BTreeSet::new();
        let mut steps = 0_u32;
        'segments: for reader in searcher.segment_readers() {
            let index = reader.inverted_index(self.field)?;
            let mut terms = self.range(&index)?;
            let mut accepted = 0;
            while terms.advance() {
                steps = steps.wrapping_add(1);
                if steps.is_multiple_of(CHECK) && self.stop.as_ref().map_or(Ok(false), |stop| stop.is_over())? {
                    break 'segments;
                }
                let Some((distance, term)) = self.test.distance(terms.key()) else { continue };
                best.insert((distance, term.to_owned()));
                if best.len() > most {
                    best.pop_last();
                }
                accepted += 1;
                // They come in their order: those behind are none of the first.
                if accepted == most && !matches!(self.test, TermTest::Edits(..)) {
                    break;
                }
            }
        }
        Ok(best.into_iter().map(|(_, term)| Term::from_field_text(self.field, &term)).collect())
    }

    /// The terms with the beginning.
    fn range<'a>(&self, index: &'a InvertedIndexReader) -> tantivy::Result<TermStreamer<'a>> {
        let mut range = index.terms().range().ge(self.prefix.as_bytes());
        if let Some(end) = prefix_end(self.prefix.as_bytes()) {
            range = range.lt(&end);
        }
        Ok(range.into_stream()?)
    }
}

impl Query for TermScanQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for TermScanQuery {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let index = reader.inverted_index(self.field)?;
        let mut docs = BitSet::with_max_value(reader.max_doc());
        let mut terms = self.range(&index)?;
        let mut steps = 0_u32;
        let mut step = || {
            steps = steps.wrapping_add(1);
            match &self.stop {
                Some(stop) if steps.is_multiple_of(CHECK) => stop.check(),
                _ => Ok(()),
            }
        };
        while terms.advance() {
            step()?;
            if !self.test.accepts(terms.key()) {
                continue;
            }
            let mut postings = index.read_block_postings_from_terminfo(terms.value(), IndexRecordOption::Basic)?;
            while !postings.docs().is_empty() {
                step()?;
                for doc in postings.docs() {
                    docs.insert(*doc);
                }
                postings.advance();
            }
        }
        Ok(Box::new(ConstScorer::new(BitSetDocSet::from(docs), boost)))
    }

    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        let mut scorer = self.scorer(reader, 1.0)?;
        if doc == TERMINATED || scorer.doc() > doc || scorer.seek(doc) != doc {
            return Err(TantivyError::InvalidArgument(format!("Document #({doc}) does not match")));
        }
        Ok(Explanation::new("a term fits", 1.0))
    }
}

/// The seed of the hash by which documents lie in slices: another one than that of shards.
const SLICE_SEED: u32 = 7919;

/// The first bytes after all that begin with `prefix`; none if there are none.
pub(super) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// The edits from one text to another, in characters; `None` if they are more than `limit`.
pub(super) fn edit_distance(from: &str, to: &str, limit: u8, transpositions: bool) -> Option<u8> {
    let limit = usize::from(limit);
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    if from.len().abs_diff(to.len()) > limit {
        return None;
    }
    // Rows of the table of distances: the one before the last, the last, the one being filled.
    let mut older: Vec<usize> = vec![usize::MAX / 2; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for row in 1..=from.len() {
        let mut next = vec![row; to.len() + 1];
        for column in 1..=to.len() {
            let same = from[row - 1] == to[column - 1];
            let mut best = (last[column - 1] + usize::from(!same)).min(last[column] + 1).min(next[column - 1] + 1);
            let crossed = transpositions
                && row > 1
                && column > 1
                && from[row - 1] == to[column - 2]
                && from[row - 2] == to[column - 1];
            if crossed {
                best = best.min(older[column - 2] + 1);
            }
            next[column] = best;
        }
        if next.iter().all(|distance| *distance > limit) {
            return None;
        }
        older = std::mem::replace(&mut last, next);
    }
    last.last().filter(|distance| **distance <= limit).map(|distance| *distance as u8)
}
