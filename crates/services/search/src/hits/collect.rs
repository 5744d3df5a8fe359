//! The best hits of an index by the keys of a sort, and how many there are.
//!
//! Two ways. By score alone: the library passes over documents that cannot be among the best, and hits are counted by themselves,
//! without scores, no further than the request needs. By other keys: each hit is looked at once.
//!
//! Invariants: memory is for the best hits only; hits that are equal in all keys come in the order of their places; the work stops
//! within a few thousand documents after the search was cancelled or its time is over.

use std::collections::BinaryHeap;

use tantivy::query::{AllQuery, EnableScoring, Query, TermQuery, Weight};
use tantivy::{DocId, SegmentReader, TERMINATED};

use super::key_reader::{KeyReader, SegmentKey};
use super::sort::SortKey;
use super::sort_value::SortValue;
use crate::error::SearchError;
use crate::stop::SearchStop;
use crate::view::IndexView;

/// Documents between two looks at the clock.
const CHECK: u32 = 2_048;

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
}

/// A hit, before its document is read.
#[derive(Clone, Debug)]
pub(super) struct FoundHit {
    pub(super) values: Vec<SortValue>,
    pub(super) score: f32,
    pub(super) segment: u32,
    pub(super) doc: DocId,
}

/// What was found in an index.
#[derive(Default)]
pub(super) struct Found {
    pub(super) hits: Vec<FoundHit>,
    pub(super) total: u64,
    pub(super) max_score: Option<f32>,
    pub(super) terminated: bool,
}

/// A place of a document: no two of a snapshot have the same.
pub(super) fn place_base(target: usize, segment: usize) -> i64 {
    ((target as i64) << 48) | ((segment as i64) << 32)
}

/// Finds the best hits of an index, best first. Errors: the search was cancelled, the index cannot be read.
pub(super) fn collect(
    view: &IndexView,
    query: &dyn Query,
    wanted: &Wanted<'_>,
    stop: &SearchStop,
) -> Result<Found, SearchError> {
    let by_score =
        wanted.keys.iter().all(SortKey::is_score) && wanted.min_score.is_none() && wanted.terminate_after == 0;
    let ordered = wanted.keys.first().is_none_or(SortKey::is_descending);
    let mut found = match by_score && ordered && wanted.after.is_none() {
        true => best_by_score(view, query, wanted, stop)?,
        false => best_by_keys(view, query, wanted, stop)?,
    };
    sort_hits(&mut found.hits, wanted.keys);
    found.hits.truncate(wanted.most);
    Ok(found)
}

fn sort_hits(hits: &mut [FoundHit], keys: &[SortKey]) {
    hits.sort_by(|a, b| compare(a, b, keys).then_with(|| (a.segment, a.doc).cmp(&(b.segment, b.doc))));
}

/// Compares two hits by the keys; by score, best first, if there are none.
pub(super) fn compare(a: &FoundHit, b: &FoundHit, keys: &[SortKey]) -> std::cmp::Ordering {
    if keys.is_empty() {
        return b.score.total_cmp(&a.score);
    }
    let values = a.values.iter().zip(&b.values).zip(keys);
    values.fold(std::cmp::Ordering::Equal, |order, ((a, b), key)| order.then_with(|| a.compare(b, key.is_descending())))
}

fn scoring(view: &IndexView, scores: bool) -> EnableScoring<'_> {
    match scores {
        true => EnableScoring::enabled_from_searcher(&view.searcher),
        false => EnableScoring::disabled_from_searcher(&view.searcher),
    }
}

/// A hit among the best by score: the worst is the greatest, so that a heap gives it first.
#[derive(PartialEq)]
struct Scored {
    score: f32,
    doc: DocId,
}

impl Eq for Scored {}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Scored) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scored {
    fn cmp(&self, other: &Scored) -> std::cmp::Ordering {
        other.score.total_cmp(&self.score).then(self.doc.cmp(&other.doc))
    }
}

fn best_by_score(
    view: &IndexView,
    query: &dyn Query,
    wanted: &Wanted<'_>,
    stop: &SearchStop,
) -> Result<Found, SearchError> {
    let mut found = Found::default();
    if wanted.count > 0 {
        count_hits(view, query, wanted, stop, &mut found)?;
    }
    if wanted.most == 0 {
        return Ok(found);
    }
    let weight = query.weight(scoring(view, true))?;
    let mut threshold = f32::MIN;
    for (segment, reader) in view.searcher.segment_readers().iter().enumerate() {
        if stop.is_over()? {
            break;
        }
        let mut heap: BinaryHeap<Scored> = BinaryHeap::with_capacity(wanted.most.min(1_024) + 1);
        let alive = reader.alive_bitset();
        let (mut seen, mut failed) = (0_u32, None);
        // A segment's worst of the best bounds the next ones too.
        let mut least = threshold;
        weight.for_each_pruning(least, reader, &mut |doc, score| {
            seen += 1;
            if seen.is_multiple_of(CHECK) {
                match stop.is_over() {
                    Ok(false) => {}
                    Ok(true) => return f32::MAX,
                    Err(error) => {
                        failed = Some(error);
                        return f32::MAX;
                    }
                }
            }
            if alive.is_none_or(|alive| alive.is_alive(doc)) {
                heap.push(Scored { score, doc });
                if heap.len() > wanted.most {
                    heap.pop();
                }
                if heap.len() == wanted.most {
                    least = heap.peek().map_or(least, |worst| least.max(worst.score));
                }
            }
            least
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        threshold = least;
        let hit = |hit: Scored| {
            let values = wanted.keys.iter().map(|_| SortValue::Real(f64::from(hit.score))).collect();
            FoundHit { values, score: hit.score, segment: segment as u32, doc: hit.doc }
        };
        found.hits.extend(heap.into_iter().map(hit));
    }
    found.max_score = found.hits.iter().map(|hit| hit.score).max_by(f32::total_cmp);
    Ok(found)
}

/// Counts hits without scores, as far as the request needs.
fn count_hits(
    view: &IndexView,
    query: &dyn Query,
    wanted: &Wanted<'_>,
    stop: &SearchStop,
    found: &mut Found,
) -> Result<(), SearchError> {
    let weight = query.weight(scoring(view, false))?;
    for reader in view.searcher.segment_readers() {
        if found.total > wanted.count || stop.is_over()? {
            break;
        }
        found.total += match counted_at_once(query, &*weight, reader)? {
            Some(count) => count,
            None => count_segment(&*weight, reader, wanted.count.saturating_sub(found.total), stop)?,
        };
    }
    Ok(())
}

/// The number of hits where the library knows it without looking at each one.
fn counted_at_once(query: &dyn Query, weight: &dyn Weight, reader: &SegmentReader) -> Result<Option<u64>, SearchError> {
    if reader.has_deletes() {
        return Ok(None);
    }
    let is_cheap = query.is::<TermQuery>() || query.is::<AllQuery>();
    Ok(if is_cheap { Some(u64::from(weight.count(reader)?)) } else { None })
}

fn count_segment(
    weight: &dyn Weight,
    reader: &SegmentReader,
    most: u64,
    stop: &SearchStop,
) -> Result<u64, SearchError> {
    let mut scorer = weight.scorer(reader, 1.0)?;
    let alive = reader.alive_bitset();
    let mut buffer = [0; tantivy::COLLECT_BLOCK_BUFFER_LEN];
    let (mut count, mut seen) = (0_u64, 0_u32);
    loop {
        let filled = scorer.fill_buffer(&mut buffer);
        count += match alive {
            Some(alive) => buffer[..filled].iter().filter(|doc| alive.is_alive(**doc)).count() as u64,
            None => filled as u64,
        };
        seen += filled as u32;
        if filled < buffer.len() || count > most {
            return Ok(count);
        }
        if seen >= CHECK {
            seen = 0;
            if stop.is_over()? {
                return Ok(count);
            }
        }
    }
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
struct SegmentBest<'a> {
    readers: Vec<KeyReader>,
    after: Option<Vec<SegmentKey>>,
    heap: BinaryHeap<Keyed>,
    most: usize,
    wanted: &'a Wanted<'a>,
    keys: Vec<SegmentKey>,
}

impl SegmentBest<'_> {
    fn offer(&mut self, doc: DocId, score: f32) {
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

    fn finish(self, segment: u32) -> Result<Vec<FoundHit>, SearchError> {
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

fn best_by_keys(
    view: &IndexView,
    query: &dyn Query,
    wanted: &Wanted<'_>,
    stop: &SearchStop,
) -> Result<Found, SearchError> {
    // Without keys, by score: a search with a lowest score.
    let score_key = [SortKey::score()];
    let keys = if wanted.keys.is_empty() { &score_key[..] } else { wanted.keys };
    let scores = wanted.scores || wanted.min_score.is_some() || keys.iter().any(SortKey::is_score);
    let weight = query.weight(scoring(view, scores))?;
    let mut found = Found::default();
    for (segment, reader) in view.searcher.segment_readers().iter().enumerate() {
        if found.terminated || stop.is_over()? {
            break;
        }
        let base = wanted.base + place_base(0, segment);
        let readers: Vec<KeyReader> =
            keys.iter().map(|key| key.reader(view, reader, base)).collect::<Result<_, _>>()?;
        let after = match &wanted.after {
            Some(values) => Some(
                readers
                    .iter()
                    .zip(values)
                    .map(|(reader, value)| reader.key_of(value))
                    .collect::<Result<Vec<_>, _>>()?,
            ),
            None => None,
        };
        let mut best =
            SegmentBest { readers, after, heap: BinaryHeap::new(), most: wanted.most, wanted, keys: Vec::new() };
        segment_hits(&*weight, reader, scores, &mut best, &mut found, stop)?;
        found.hits.extend(best.finish(segment as u32)?);
    }
    if scores && found.max_score.is_none() {
        found.max_score = found.hits.iter().map(|hit| hit.score).max_by(f32::total_cmp);
    }
    Ok(found)
}

fn segment_hits(
    weight: &dyn Weight,
    reader: &SegmentReader,
    scores: bool,
    best: &mut SegmentBest<'_>,
    found: &mut Found,
    stop: &SearchStop,
) -> Result<(), SearchError> {
    let alive = reader.alive_bitset();
    let mut scorer = weight.scorer(reader, 1.0)?;
    let mut seen = 0_u32;
    let mut doc = scorer.doc();
    while doc != TERMINATED {
        seen += 1;
        if seen.is_multiple_of(CHECK) && stop.is_over()? {
            return Ok(());
        }
        if alive.is_none_or(|alive| alive.is_alive(doc)) {
            let score = if scores { scorer.score() } else { 0.0 };
            if best.wanted.min_score.is_none_or(|least| score >= least) {
                let most = best.wanted.terminate_after;
                if most > 0 && found.total >= most {
                    found.terminated = true;
                    return Ok(());
                }
                found.total += 1;
                if scores {
                    found.max_score = Some(found.max_score.map_or(score, |max| max.max(score)));
                }
                best.offer(doc, score);
            }
        }
        doc = scorer.advance();
    }
    Ok(())
}
