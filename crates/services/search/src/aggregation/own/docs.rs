//! [`DocSets`]: the documents of a search or of a bucket, as lists for each segment of each index, and [`DocListQuery`], which
//! gives such a list to the library as a query.
//!
//! Invariant: the documents of a segment are in ascending order, without repetition.

use std::sync::Arc;

use tantivy::index::SegmentId;
use tantivy::query::{ConstScorer, EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{DocId, DocSet, Score, SegmentReader, TERMINATED, TantivyError};

use crate::error::SearchError;
use crate::stop::SearchStop;
use crate::view::IndexView;

/// Documents between two looks at what ends a search.
const DOCS_PER_CHECK: usize = 1 << 16;

/// Bytes of a document in a list.
const DOC_BYTES: u64 = size_of::<DocId>() as u64;

/// Memory that lists take, and what ends the search.
pub(super) struct Budget<'a> {
    stop: &'a SearchStop,
}

impl<'a> Budget<'a> {
    pub(super) fn new(stop: &'a SearchStop) -> Budget<'a> {
        Budget { stop }
    }

    /// Whether the time of the search is over: the rest is left out. Errors: the search was cancelled.
    pub(super) fn is_over(&self) -> Result<bool, SearchError> {
        self.stop.is_over()
    }

    /// What work inside of the library ended in; none if the time was over. Errors: its own; the search was cancelled.
    pub(super) fn cut<T>(&self, done: tantivy::Result<T>) -> Result<Option<T>, SearchError> {
        self.stop.cut(done.map_err(SearchError::from))
    }

    /// Takes memory. Errors: there is none left.
    pub(super) fn take(&self, bytes: u64) -> Result<(), SearchError> {
        self.stop.memory().take(bytes)
    }

    /// Gives memory back.
    pub(super) fn give(&self, bytes: u64) {
        self.stop.memory().give(bytes);
    }
}

/// Documents, by the number of the index and of the segment in it.
#[derive(Clone, Debug, Default)]
pub(super) struct DocSets {
    pub(super) of_index: Vec<Vec<Arc<Vec<DocId>>>>,
}

impl DocSets {
    /// No document, in the shape of others.
    pub(super) fn like(&self) -> Vec<Vec<Vec<DocId>>> {
        self.of_index.iter().map(|segments| vec![Vec::new(); segments.len()]).collect()
    }

    pub(super) fn of_lists(lists: Vec<Vec<Vec<DocId>>>) -> DocSets {
        let arcs = |segments: Vec<Vec<DocId>>| segments.into_iter().map(Arc::new).collect();
        DocSets { of_index: lists.into_iter().map(arcs).collect() }
    }

    pub(super) fn count(&self) -> u64 {
        self.of_index.iter().flatten().map(|docs| docs.len() as u64).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.count() * DOC_BYTES
    }

    /// All documents that queries match, one query for each index. Errors: too many, cancelled. Those that there is time for.
    pub(super) fn matching(
        views: &[&IndexView],
        queries: &[Box<dyn Query>],
        budget: &Budget<'_>,
    ) -> Result<DocSets, SearchError> {
        let mut lists = Vec::new();
        for (view, query) in views.iter().zip(queries) {
            let weight = query.weight(EnableScoring::disabled_from_searcher(&view.searcher))?;
            let mut segments = Vec::new();
            for reader in view.searcher.segment_readers() {
                let mut docs = Vec::new();
                let scorer = if budget.is_over()? { None } else { budget.cut(weight.scorer(reader, 1.0))? };
                let mut scorer = scorer.unwrap_or_else(|| Box::new(EmptyScorer));
                let mut doc = scorer.doc();
                while doc != TERMINATED {
                    if reader.alive_bitset().is_none_or(|alive| alive.is_alive(doc)) {
                        docs.push(doc);
                        if docs.len() % DOCS_PER_CHECK == 0 {
                            budget.take(DOCS_PER_CHECK as u64 * DOC_BYTES)?;
                            if budget.is_over()? {
                                break;
                            }
                        }
                    }
                    doc = scorer.advance();
                }
                budget.take((docs.len() % DOCS_PER_CHECK) as u64 * DOC_BYTES)?;
                segments.push(docs);
            }
            lists.push(segments);
        }
        Ok(DocSets::of_lists(lists))
    }

    /// Those of these documents that queries match, one query for each index. Errors: too many, cancelled. Those that there is time for.
    pub(super) fn filtered(
        &self,
        views: &[&IndexView],
        queries: &[Box<dyn Query>],
        budget: &Budget<'_>,
    ) -> Result<DocSets, SearchError> {
        let mut lists = self.like();
        for (number, (view, query)) in views.iter().zip(queries).enumerate() {
            let weight = query.weight(EnableScoring::disabled_from_searcher(&view.searcher))?;
            for (segment, reader) in view.searcher.segment_readers().iter().enumerate() {
                let docs = &self.of_index[number][segment];
                if docs.is_empty() || budget.is_over()? {
                    continue;
                }
                let Some(mut scorer) = budget.cut(weight.scorer(reader, 1.0))? else { continue };
                let found = &mut lists[number][segment];
                for doc in docs.iter().copied() {
                    let at = if scorer.doc() < doc { scorer.seek(doc) } else { scorer.doc() };
                    if at == doc {
                        found.push(doc);
                    }
                }
                budget.take(found.len() as u64 * DOC_BYTES)?;
            }
        }
        Ok(DocSets::of_lists(lists))
    }

    /// The documents of one index as a query.
    pub(super) fn query(&self, number: usize, view: &IndexView) -> Box<dyn Query> {
        let ids = view.searcher.segment_readers().iter().map(SegmentReader::segment_id);
        Box::new(DocListQuery { lists: Arc::new(ids.zip(self.of_index[number].iter().cloned()).collect()) })
    }
}

/// The documents of lists; all score 1.
#[derive(Clone, Debug)]
struct DocListQuery {
    lists: Arc<Vec<(SegmentId, Arc<Vec<DocId>>)>>,
}

impl Query for DocListQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for DocListQuery {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let id = reader.segment_id();
        match self.lists.iter().find(|(segment, docs)| *segment == id && !docs.is_empty()) {
            Some((_, docs)) => Ok(Box::new(ConstScorer::new(DocListSet { docs: docs.clone(), at: 0 }, boost))),
            None => Ok(Box::new(EmptyScorer)),
        }
    }

    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        let mut scorer = self.scorer(reader, 1.0)?;
        if doc == TERMINATED || scorer.doc() > doc || scorer.seek(doc) != doc {
            return Err(TantivyError::InvalidArgument(format!("Document #({doc}) does not match")));
        }
        Ok(Explanation::new("it is in the list", 1.0))
    }
}

/// A list, as the library walks over it.
struct DocListSet {
    docs: Arc<Vec<DocId>>,
    at: usize,
}

impl DocSet for DocListSet {
    fn advance(&mut self) -> DocId {
        self.at = (self.at + 1).min(self.docs.len());
        self.doc()
    }

    fn doc(&self) -> DocId {
        self.docs.get(self.at).copied().unwrap_or(TERMINATED)
    }

    fn size_hint(&self) -> u32 {
        self.docs.len() as u32
    }
}
