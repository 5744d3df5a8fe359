//! The best hits of a segment by a key of which the bounds in each zone are known: the best zones first, until no other one can have
//! a better hit.
//!
//! ```text
//!   zones by their best key    z7 z3 z9 z1 | z4 ..            | z2 z8 ..
//!   looked at, by document     z1 z3 z7 z9   the best so far?   none of them can: the end
//! ```
//!
//! A query is read forward, so the zones of a round are read in the order of their documents. The next round has 16 times as many
//! zones, and begins the query anew: a search makes few rounds, whatever the order of the documents.
//!
//! Invariant: the hits are those of a search that looks at all documents.

use std::ops::Range;

use tantivy::query::Weight;
use tantivy::{DocId, SegmentReader, TERMINATED};

use super::best::SegmentBest;
use super::key_reader::SegmentKey;
use crate::error::SearchError;
use crate::stop::SearchStop;
use crate::zones::{ZONE, range_of};

/// Zones of the first round, besides those that hold as many documents as hits are wanted.
const FIRST_ROUND: usize = 4;

/// How much longer each round is than the one before.
const GROWTH: usize = 16;

/// Offers the hits that can be among the best. Errors: the search was cancelled, the index cannot be read.
pub(super) fn segment_hits(
    weight: &dyn Weight,
    reader: &SegmentReader,
    best: &mut SegmentBest<'_>,
    stop: &SearchStop,
) -> Result<(), SearchError> {
    let zones = zones_by_key(reader, best);
    let mut round = FIRST_ROUND + best.most.div_ceil(ZONE as usize);
    let mut at = 0;
    while at < zones.len() && best.can_take(zones[at].0, zones[at].1.start) {
        let end = at.saturating_add(round).min(zones.len());
        let mut docs: Vec<Range<DocId>> = zones[at..end].iter().map(|(_, docs)| docs.clone()).collect();
        docs.sort_by_key(|docs| docs.start);
        if offer(weight, reader, &docs, best, stop)? {
            return Ok(());
        }
        at = end;
        round = round.saturating_mul(GROWTH);
    }
    Ok(())
}

/// The zones that can have hits after the last page, by their best key.
fn zones_by_key(reader: &SegmentReader, best: &SegmentBest<'_>) -> Vec<(SegmentKey, Range<DocId>)> {
    let Some(key) = best.readers.first() else { return Vec::new() };
    let count = reader.max_doc().div_ceil(ZONE);
    let zone = |number: u32| {
        let docs = range_of(number, reader.max_doc());
        let (first, last) = key.zone_keys(number, &docs);
        let is_over = best.after.as_ref().and_then(|after| after.first()).is_some_and(|after| last < *after);
        (!is_over && best.can_take(first, docs.start)).then_some((first, docs))
    };
    let mut zones: Vec<(SegmentKey, Range<DocId>)> = (0..count).filter_map(zone).collect();
    zones.sort_by(|(a, a_docs), (b, b_docs)| a.cmp(b).then(a_docs.start.cmp(&b_docs.start)));
    zones
}

/// Offers the hits among these documents. Returns whether the time is over.
fn offer(
    weight: &dyn Weight,
    reader: &SegmentReader,
    zones: &[Range<DocId>],
    best: &mut SegmentBest<'_>,
    stop: &SearchStop,
) -> Result<bool, SearchError> {
    let alive = reader.alive_bitset();
    let mut scorer = weight.scorer(reader, 1.0)?;
    let mut doc = scorer.doc();
    for docs in zones {
        if stop.is_over()? {
            return Ok(true);
        }
        if doc < docs.start {
            doc = scorer.seek(docs.start);
        }
        while doc < docs.end {
            if alive.is_none_or(|alive| alive.is_alive(doc)) {
                best.offer(doc, 0.0);
            }
            doc = scorer.advance();
        }
        if doc == TERMINATED {
            break;
        }
    }
    Ok(false)
}
