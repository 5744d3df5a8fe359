//! [`SegmentBest`]: the best hits of a segment by the keys of a sort, and what a search of one index is asked for and finds.
//!
//! Invariants: memory is for the best hits only; hits that are equal in all keys come in the order of their places.

use std::collections::BinaryHeap;

use tantivy::DocId;

use super::key_reader::{KeyReader, SegmentKey};
use super::sort::SortKey;
use super::sort_value::SortValue;
use crate::error::SearchError;

/// What is wanted of one index.
pub(super) struct Wanted<'a> {
    pub(super) keys: &'a [SortKey],
    /// How many of the best.
    pub(super) most: usize,
    /// Only hits after these values.
    pub(super) after: Option<Vec<SortValue>>,
    /// Hits to count.
    pub(super) count: u64,
    pub(super) min_score: Option<f32>,
    /// Whether hits need their scores though they are not ordered by them.
    pub(super) scores: bool,
    /// Stop after so many hits; 0 for never.
    pub(super) terminate_after: u64,
    /// Added to places, so that those of several indices differ.
    pub(super) base: i64,
    /// Whether scores must not depend on documents that the caller may not see.
    pub(super) is_partial: bool,
}

/// A hit, before its document is read.
#[derive(Clone, Debug)]
pub(super) struct FoundHit {
    pub(super) values: Vec<SortValue>,
    pub(super) score: f32,
    pub(super) segment: u32,
    pub(super) doc: DocId,
}

/// A hit among the best of a segment: the worst is the greatest.
#[derive(PartialEq)]
struct Keyed {
    keys: Vec<SegmentKey>,
    doc: DocId,
    score: f32,
}

impl Eq for Keyed {}

impl PartialOrd for Keyed {
    fn partial_cmp(&self, other: &Keyed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Keyed {
    fn cmp(&self, other: &Keyed) -> std::cmp::Ordering {
        self.keys.cmp(&other.keys).then(self.doc.cmp(&other.doc))
    }
}

/// The best hits of a segment.
pub(super) struct SegmentBest<'a> {
    pub(super) readers: Vec<KeyReader>,
    pub(super) after: Option<Vec<SegmentKey>>,
    bound: Option<SegmentKey>,
    heap: BinaryHeap<Keyed>,
    pub(super) most: usize,
    pub(super) wanted: &'a Wanted<'a>,
    keys: Vec<SegmentKey>,
}

impl<'a> SegmentBest<'a> {
    /// Nothing yet. `bound` is the first key of the worst of the best of earlier segments.
    pub(super) fn new(
        readers: Vec<KeyReader>,
        after: Option<Vec<SegmentKey>>,
        bound: Option<SegmentKey>,
        wanted: &'a Wanted<'a>,
    ) -> SegmentBest<'a> {
        let (heap, most) = (BinaryHeap::new(), wanted.most);
        SegmentBest { readers, after, bound, heap, most, wanted, keys: Vec::new() }
    }

    /// Whether a hit can be among the best whose first key is `first` at best and that has at least the number `doc`.
    pub(super) fn can_take(&self, first: SegmentKey, doc: DocId) -> bool {
        if self.most == 0 || self.bound.is_some_and(|bound| first > bound) {
            return false;
        }
        match self.heap.peek().filter(|_| self.heap.len() == self.most) {
            None => true,
            Some(worst) => {
                first < worst.keys[0] || (first == worst.keys[0] && (self.readers.len() > 1 || doc < worst.doc))
            }
        }
    }

    /// Takes a hit if it is among the best.
    pub(super) fn offer(&mut self, doc: DocId, score: f32) {
        if self.most == 0 {
            return;
        }
        let first = self.readers.first().map(|reader| reader.key(doc, score));
        // Most hits are worse than the worst of the best by their first key.
        if let (Some(worst), Some(first), true) = (self.heap.peek(), first, self.heap.len() == self.most)
            && first > worst.keys[0]
        {
            return;
        }
        self.keys.clear();
        self.keys.extend(first);
        self.keys.extend(self.readers.iter().skip(1).map(|reader| reader.key(doc, score)));
        if self.after.as_ref().is_some_and(|after| self.keys <= *after) {
            return;
        }
        let full = self.heap.len() == self.most;
        if full && self.heap.peek().is_some_and(|worst| (&self.keys, doc) >= (&worst.keys, worst.doc)) {
            return;
        }
        self.heap.push(Keyed { keys: self.keys.clone(), doc, score });
        if full {
            self.heap.pop();
        }
    }

    /// The best hits, in no order. Errors: the terms of a column cannot be read.
    pub(super) fn finish(self, segment: u32) -> Result<Vec<FoundHit>, SearchError> {
        let mut hits = Vec::with_capacity(self.heap.len());
        for keyed in self.heap {
            let values = self.readers.iter().zip(&keyed.keys).map(|(reader, key)| reader.value_of(*key));
            hits.push(FoundHit {
                values: values.collect::<Result<_, _>>()?,
                score: keyed.score,
                segment,
                doc: keyed.doc,
            });
        }
        Ok(hits)
    }
}
