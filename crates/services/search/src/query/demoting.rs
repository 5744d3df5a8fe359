//! [`DemotingQuery`]: what matches one query, with less score where another matches too (the `boosting` query).
//!
//! The library's boolean query can only add scores, so the second query is consulted document by document.

use tantivy::query::{EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{DocId, DocSet, Score, SegmentReader, TERMINATED, TantivyError, Term};

/// What matches `positive`, its score multiplied with `factor` where `negative` matches too.
#[derive(Debug)]
pub(super) struct DemotingQuery {
    pub(super) positive: Box<dyn Query>,
    pub(super) negative: Box<dyn Query>,
    pub(super) factor: Score,
}

impl Clone for DemotingQuery {
    fn clone(&self) -> DemotingQuery {
        let (positive, negative) = (self.positive.box_clone(), self.negative.box_clone());
        DemotingQuery { positive, negative, factor: self.factor }
    }
}

impl Query for DemotingQuery {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        let positive = self.positive.weight(scoring)?;
        let EnableScoring::Enabled { searcher, .. } = scoring else { return Ok(positive) };
        let negative = self.negative.weight(EnableScoring::disabled_from_searcher(searcher))?;
        Ok(Box::new(DemotingWeight { positive, negative, factor: self.factor }))
    }

    fn query_terms<'a>(&'a self, visitor: &mut dyn FnMut(&'a Term, bool)) {
        self.positive.query_terms(visitor);
    }
}

struct DemotingWeight {
    positive: Box<dyn Weight>,
    negative: Box<dyn Weight>,
    factor: Score,
}

impl Weight for DemotingWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let positive = self.positive.scorer(reader, boost)?;
        let negative = self.negative.scorer(reader, 1.0)?;
        Ok(Box::new(DemotingScorer { positive, negative, factor: self.factor }))
    }

    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        let mut scorer = self.scorer(reader, 1.0)?;
        if scorer.doc() > doc || scorer.seek(doc) != doc {
            return Err(TantivyError::InvalidArgument(format!("Document #({doc}) does not match")));
        }
        Ok(Explanation::new("score, less where the negative query matches", scorer.score()))
    }
}

struct DemotingScorer {
    positive: Box<dyn Scorer>,
    negative: Box<dyn Scorer>,
    factor: Score,
}

impl DocSet for DemotingScorer {
    fn advance(&mut self) -> DocId {
        self.positive.advance()
    }

    fn seek(&mut self, target: DocId) -> DocId {
        self.positive.seek(target)
    }

    fn doc(&self) -> DocId {
        self.positive.doc()
    }

    fn size_hint(&self) -> u32 {
        self.positive.size_hint()
    }
}

impl Scorer for DemotingScorer {
    fn score(&mut self) -> Score {
        let doc = self.positive.doc();
        let score = self.positive.score();
        let negative = if self.negative.doc() < doc { self.negative.seek(doc) } else { self.negative.doc() };
        if negative == doc && doc != TERMINATED { score * self.factor } else { score }
    }
}
