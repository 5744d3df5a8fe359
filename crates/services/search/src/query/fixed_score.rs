//! [`FixedScoreQuery`]: what another query matches, with one score for all, and [`fixed_score`], the score that all hits of a query
//! have if it can be seen from the query.
//!
//! Where all hits have one score, the first ones are the best ones, and a search ends as soon as it has counted far enough. The
//! library has a query for a constant score too, but does not show what is in it.

use tantivy::Term;
use tantivy::query::{AllQuery, BooleanQuery, ConstScoreQuery, EnableScoring, Occur, Query, Weight};

use super::term_scan::TermScanQuery;

/// What `query` matches, with this score.
#[derive(Debug)]
pub(crate) struct FixedScoreQuery {
    query: Box<dyn Query>,
    score: f32,
}

impl FixedScoreQuery {
    pub(crate) fn new(query: Box<dyn Query>, score: f32) -> FixedScoreQuery {
        FixedScoreQuery { query, score }
    }

    /// The same with the score multiplied.
    pub(super) fn boosted(&self, boost: f32) -> FixedScoreQuery {
        FixedScoreQuery { query: self.query.box_clone(), score: self.score * boost }
    }
}

impl Clone for FixedScoreQuery {
    fn clone(&self) -> FixedScoreQuery {
        self.boosted(1.0)
    }
}

impl Query for FixedScoreQuery {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        ConstScoreQuery::new(self.query.box_clone(), self.score).weight(scoring)
    }

    fn query_terms<'a>(&'a self, visitor: &mut dyn FnMut(&'a Term, bool)) {
        self.query.query_terms(visitor);
    }
}

/// The score of every hit, if all have the same and it can be seen from the query.
pub(crate) fn fixed_score(query: &dyn Query) -> Option<f32> {
    if let Some(fixed) = query.downcast_ref::<FixedScoreQuery>() {
        return Some(fixed.score);
    }
    if query.is::<TermScanQuery>() {
        return Some(1.0);
    }
    let clauses = query.downcast_ref::<BooleanQuery>()?.clauses();
    let mut score = 0.0;
    for (occur, clause) in clauses {
        match occur {
            Occur::Must => score += fixed_score(&**clause)?,
            Occur::MustNot => {}
            // One that matches may be one that does not have to.
            Occur::Should => return None,
        }
    }
    Some(score)
}

/// Whether every document matches, as can be seen from the query.
pub(crate) fn matches_all(query: &dyn Query) -> bool {
    match query.downcast_ref::<FixedScoreQuery>() {
        Some(fixed) => matches_all(&*fixed.query),
        None => query.is::<AllQuery>(),
    }
}

/// The query without its score.
pub(crate) fn unscored(query: &dyn Query) -> Option<&dyn Query> {
    query.downcast_ref::<FixedScoreQuery>().map(|fixed| &*fixed.query)
}
