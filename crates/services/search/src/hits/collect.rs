//! The best hits of an index by the keys of a sort, and how many there are.
//!
//! Four ways. One score for all hits: the first ones are the best. By score alone: the library passes over documents that cannot be
//! among the best. By a key whose column has zones: the best zones first ([`super::zoned`]). In these, hits are counted no
//! further than the request needs. By other keys, or where each hit has to be looked at: once each.
//!
//! Invariants: memory is for the best hits only; hits that are equal in all keys come in the order of their places; the work stops
//! within a few thousand documents after the search was cancelled or its time is over.

use std::collections::BinaryHeap;

use tantivy::query::{AllQuery, Bm25StatisticsProvider, EnableScoring, Query, TermQuery, Weight};
use tantivy::schema::Field;
use tantivy::{DocId, SegmentReader, TERMINATED, Term};

use super::best::{FoundHit, SegmentBest, Wanted};
use super::key_reader::{KeyReader, SegmentKey};
use super::sort::SortKey;
use super::sort_value::SortValue;
use super::zoned;
use crate::error::SearchError;
use crate::query::{fixed_score, unscored};
use crate::stop::SearchStop;
use crate::view::IndexView;

/// Documents between two looks at the clock.
const CHECK: u32 = 2_048;

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
    let mut found = match (by_score && ordered && wanted.after.is_none(), fixed_score(query)) {
        (true, Some(score)) => first_hits(view, query, score, wanted, stop)?,
        (true, None) => best_by_score(view, query, wanted, stop)?,
        (false, _) => best_by_keys(view, query, wanted, stop)?,
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

/// How scores are made: from how often terms are in all documents, or, for who may see only some of them, from the hit alone.
fn scoring<'v>(view: &'v IndexView, scores: bool, wanted: &Wanted<'_>) -> EnableScoring<'v> {
    match (scores, wanted.is_partial) {
        (true, false) => EnableScoring::enabled_from_searcher(&view.searcher),
        (true, true) => EnableScoring::enabled_from_statistics_provider(&SameStatistics, &view.searcher),
        (false, _) => EnableScoring::disabled_from_searcher(&view.searcher),
    }
}

/// Statistics that are the same for each term and each index: every term is as rare as every other.
struct SameStatistics;

/// Documents of an index.
const SAME_DOCUMENTS: u64 = 1_000;

/// Terms of a document: about what a message has.
const SAME_TERMS: u64 = 100;

impl Bm25StatisticsProvider for SameStatistics {
    fn total_num_tokens(&self, _: Field) -> tantivy::Result<u64> {
        Ok(SAME_DOCUMENTS * SAME_TERMS)
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        Ok(SAME_DOCUMENTS)
    }

    fn doc_freq(&self, _: &Term) -> tantivy::Result<u64> {
        Ok(1)
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

/// The first hits and how many there are, where all have the same score: no hit is looked at beyond those that are needed.
fn first_hits(
    view: &IndexView,
    query: &dyn Query,
    score: f32,
    wanted: &Wanted<'_>,
    stop: &SearchStop,
) -> Result<Found, SearchError> {
    let weight = query.weight(scoring(view, false, wanted))?;
    let mut found = Found::default();
    let keys = || wanted.keys.iter().map(|_| SortValue::Real(f64::from(score))).collect();
    let is_done = |found: &Found| found.hits.len() >= wanted.most && (wanted.count == 0 || found.total > wanted.count);
    for (segment, reader) in view.searcher.segment_readers().iter().enumerate() {
        if is_done(&found) || stop.is_over()? {
            break;
        }
        let known = counted_at_once(query, &*weight, reader)?;
        let before = found.total;
        let mut scorer = match known {
            Some(count) if found.hits.len() >= wanted.most => {
                found.total += count;
                continue;
            }
            _ => weight.scorer(reader, 1.0)?,
        };
        let alive = reader.alive_bitset();
        let mut buffer = [0; tantivy::COLLECT_BLOCK_BUFFER_LEN];
        for block in 1_u32.. {
            let filled = scorer.fill_buffer(&mut buffer);
            for doc in buffer[..filled].iter().filter(|doc| alive.is_none_or(|alive| alive.is_alive(**doc))) {
                found.total += 1;
                if found.hits.len() < wanted.most {
                    found.hits.push(FoundHit { values: keys(), score, segment: segment as u32, doc: *doc });
                }
            }
            let is_known = known.is_some() && found.hits.len() >= wanted.most;
            if filled < buffer.len() || is_known || is_done(&found) {
                break;
            }
            if block.is_multiple_of(CHECK / buffer.len() as u32) && stop.is_over()? {
                break;
            }
        }
        if let Some(count) = known {
            found.total = before + count;
        }
    }
    found.max_score = (!found.hits.is_empty()).then_some(score);
    Ok(found)
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
    let weight = query.weight(scoring(view, true, wanted))?;
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
    let weight = query.weight(scoring(view, false, wanted))?;
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
    let query = unscored(query).unwrap_or(query);
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
    let weight = query.weight(scoring(view, scores, wanted))?;
    let mut found = Found::default();
    let may_skip = !scores && wanted.min_score.is_none() && wanted.terminate_after == 0;
    let zoned = may_skip && keys.first().is_some_and(|key| key.has_zones(view));
    if zoned && wanted.count > 0 {
        count_hits(view, query, wanted, stop, &mut found)?;
    }
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
        let bound = if zoned { bound_of(&mut found, wanted, keys, &readers)? } else { None };
        let mut best = SegmentBest::new(readers, after, bound, wanted);
        match zoned {
            true => zoned::segment_hits(&*weight, reader, &mut best, stop)?,
            false => segment_hits(&*weight, reader, scores, &mut best, &mut found, stop)?,
        }
        found.hits.extend(best.finish(segment as u32)?);
    }
    if scores && found.max_score.is_none() {
        found.max_score = found.hits.iter().map(|hit| hit.score).max_by(f32::total_cmp);
    }
    Ok(found)
}

/// What the first key of a hit must not be beyond, if earlier segments have as many hits as are wanted.
fn bound_of(
    found: &mut Found,
    wanted: &Wanted<'_>,
    keys: &[SortKey],
    readers: &[KeyReader],
) -> Result<Option<SegmentKey>, SearchError> {
    if found.hits.len() < wanted.most {
        return Ok(None);
    }
    sort_hits(&mut found.hits, keys);
    found.hits.truncate(wanted.most);
    let worst = found.hits.last().and_then(|hit| hit.values.first()).zip(readers.first());
    worst.map(|(value, reader)| reader.key_of(value)).transpose()
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
