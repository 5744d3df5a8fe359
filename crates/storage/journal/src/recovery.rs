//! Determines where the log ends, and whether it may end there.
//!
//! The log is walked batch by batch. The first batch that is not whole is either the torn tail or damage. A crash can
//! cause a torn tail; recovery drops it. No crash can cause damage to acknowledged bytes; recovery refuses it. The
//! decision depends on *proof*: a valid header anywhere after the bad place whose `durable` D is after the bad place,
//! which means that everything before D was persistent when the header was written.
//!
//! ```text
//!                 P                        Q
//!  ... whole |  bad   |  ...  | whole, durable = D |          D > P: what lies at P had been persistent: corrupt
//!                                                             D <= P for every Q: it never was acknowledged: torn
//! ```
//!
//! | found at P | proof behind P | batches of this epoch behind P | verdict |
//! |------------|----------------|--------------------------------|---------|
//! | whole      | any            | any                            | continue |
//! | impossible | any            | any                            | corrupt |
//! | body, header, stale, blank | yes | any                       | corrupt |
//! | body, header | no           | any                            | torn |
//! | stale, blank | no           | yes (the later of two writes in flight arrived, the earlier did not) | torn |
//! | stale, blank | no           | no                             | end |
//!
//! The table is data (`TABLE`). A test checks that exactly one row matches every combination.
//!
//! Limit: recovery cannot detect damage to the last batch, or the last two, of a journal that was not closed, if
//! nothing was written after them. On a single medium such damage cannot be distinguished from a torn tail. Closing
//! writes a batch whose only purpose is to be that proof.

use std::sync::Arc;

use device::DeviceError;

use crate::error::{Corruption, Damage, Proof};
use crate::format::{BatchHeader, batch_frame_bytes};
use crate::lsn::Lsn;
use crate::scan::{Bad, Found, Progress, Unfinished, judge};
use crate::segment::{Chain, Segment};
use crate::window::{WALK_BYTES, Window};

/// The kind of batch that was found, without details: the first column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Whole,
    Body,
    Header,
    Stale,
    Blank,
    Impossible,
}

/// The decision about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The log continues after the batch.
    Continue,
    /// The log ends here; nothing was lost.
    End,
    /// The log ends here; unacknowledged batches are dropped.
    Torn,
    /// Acknowledged bytes are damaged.
    Corrupt,
}

/// One row: the kinds it applies to, the two facts that it requires (`None`: any), and the verdict.
struct Row {
    kinds: &'static [Kind],
    proof: Option<bool>,
    later: Option<bool>,
    verdict: Verdict,
}

const TABLE: &[Row] = &[
    Row { kinds: &[Kind::Whole], proof: None, later: None, verdict: Verdict::Continue },
    Row { kinds: &[Kind::Impossible], proof: None, later: None, verdict: Verdict::Corrupt },
    Row {
        kinds: &[Kind::Body, Kind::Header, Kind::Stale, Kind::Blank],
        proof: Some(true),
        later: None,
        verdict: Verdict::Corrupt,
    },
    Row { kinds: &[Kind::Body, Kind::Header], proof: Some(false), later: None, verdict: Verdict::Torn },
    Row { kinds: &[Kind::Stale, Kind::Blank], proof: Some(false), later: Some(true), verdict: Verdict::Torn },
    Row { kinds: &[Kind::Stale, Kind::Blank], proof: Some(false), later: Some(false), verdict: Verdict::End },
];

fn decide(kind: Kind, proof: bool, later: bool) -> Verdict {
    let fits = |row: &&Row| {
        row.kinds.contains(&kind) && row.proof.is_none_or(|p| p == proof) && row.later.is_none_or(|l| l == later)
    };
    TABLE.iter().find(fits).expect("the table covers every combination, which a test proves").verdict
}

/// The end of a walk over the log.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// The position after the last whole batch.
    pub(crate) progress: Progress,
    /// Why the walk ended there.
    pub(crate) verdict: Verdict,
    /// Bytes dropped: lost batches of which some bytes exist, and an unfinished record.
    pub(crate) torn_bytes: u64,
    /// Set if the verdict is corrupt.
    pub(crate) corruption: Option<Corruption>,
}

/// Receives each whole batch of a walk, with its segment.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&Arc<Segment>, &BatchHeader, &mut Window);

/// Walks from `progress` to the end of the log.
pub(crate) fn walk(chain: &Chain, mut progress: Progress, visit: Visit<'_>) -> Result<Ending, DeviceError> {
    let mut window: Option<Window> = None;
    loop {
        let Some(segment) = chain.find(progress.position) else {
            // The last segment is full to its last block.
            return Ok(ending(progress, Verdict::End, progress.position, None));
        };
        if progress.position == segment.header.base {
            progress.position = segment.start();
        }
        if window.as_ref().is_none_or(|held| !Arc::ptr_eq(held.segment(), segment)) {
            window = Some(Window::new(segment.clone(), WALK_BYTES));
        }
        let window = window.as_mut().expect("set just above");
        let mut found = judge(window, &progress)?;
        if !matches!(found, Found::Whole(..)) {
            let evidence = search(chain, &progress)?;
            if evidence.proof.is_some() {
                // Another process may be writing: a place that is proven durable *now* may not have been durable when
                // it was read. It is read once more; no writer can make this second read fail.
                window.forget();
                found = judge(window, &progress)?;
            }
            if !matches!(found, Found::Whole(..)) {
                return Ok(conclude(segment, progress, found, &evidence));
            }
        }
        if let Found::Whole(header, after) = found {
            visit(segment, &header, window);
            progress = after;
        }
    }
}

/// The evidence found after a bad place.
#[derive(Debug, Default)]
struct Evidence {
    proof: Option<Proof>,
    /// Where the furthest batch of the log's epoch ends.
    later: Option<Lsn>,
}

/// Examines every unit after the position, to the end of the chain. That is at most the rest of a segment and the
/// segments prepared after it. A shorter search would be sufficient for the effects of a crash, but not for those of a
/// misdirected write of many blocks.
fn search(chain: &Chain, progress: &Progress) -> Result<Evidence, DeviceError> {
    let mut evidence = Evidence::default();
    let bad_at = progress.position;
    let mut note = |at: Lsn, durable: Lsn| {
        if durable > bad_at && evidence.proof.is_none_or(|known| known.durable < durable) {
            evidence.proof = Some(Proof { at, durable });
        }
    };
    let mut later = None;
    for segment in chain.iter().filter(|segment| segment.end() > bad_at) {
        note(segment.header.base, segment.header.durable);
        let mut window = Window::new(segment.clone(), WALK_BYTES);
        let unit = segment.header.unit;
        let mut at = segment.start().max(bad_at.plus(unit.into()));
        while at < segment.end() {
            let bytes = window.bytes(at, batch_frame_bytes(segment.header.encrypted.is_some()), segment.end())?;
            if let Ok(Some(header)) = BatchHeader::decode(bytes, at, progress.nonce.identity) {
                note(at, header.durable);
                if header.nonce.epoch >= progress.nonce.epoch {
                    later = Some(header.next(unit));
                }
            }
            at = at.plus(unit.into());
        }
    }
    evidence.later = later;
    Ok(evidence)
}

fn conclude(segment: &Segment, progress: Progress, found: Found, evidence: &Evidence) -> Ending {
    let at = progress.position;
    let order = |nonce| Bad { at, damage: Damage::Stale { expected: progress.nonce.epoch, found: nonce } };
    let (kind, bad, own_end) = match found {
        Found::Whole(..) => unreachable!("the walk goes on behind a whole batch"),
        Found::Body(header, bad) => (Kind::Body, bad, header.next(segment.header.unit)),
        Found::Header(bad) => (Kind::Header, bad, at.plus(segment.header.unit.into())),
        Found::Stale(nonce) => (Kind::Stale, order(nonce), at),
        Found::Blank(bad) => (Kind::Blank, bad, at),
        Found::Impossible(bad) => (Kind::Impossible, bad, at),
    };
    let verdict = decide(kind, evidence.proof.is_some(), evidence.later.is_some());
    let corruption = (verdict == Verdict::Corrupt)
        .then(|| Corruption { proof: evidence.proof, ..segment.corruption(bad.at, bad.damage) });
    ending(progress, verdict, own_end.max(evidence.later.unwrap_or(at)), corruption)
}

fn ending(progress: Progress, verdict: Verdict, lost_end: Lsn, corruption: Option<Corruption>) -> Ending {
    let kept_end = match progress.unfinished {
        Unfinished::Record(start) => start,
        Unfinished::Unknown | Unfinished::No => progress.position,
    };
    Ending { progress, verdict, torn_bytes: lost_end.since(kept_end), corruption }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_facts_has_exactly_one_row() {
        let kinds = [Kind::Whole, Kind::Body, Kind::Header, Kind::Stale, Kind::Blank, Kind::Impossible];
        for kind in kinds {
            for (proof, later) in [(false, false), (false, true), (true, false), (true, true)] {
                let rows = TABLE.iter().filter(|row| {
                    row.kinds.contains(&kind)
                        && row.proof.is_none_or(|p| p == proof)
                        && row.later.is_none_or(|l| l == later)
                });
                assert_eq!(rows.count(), 1, "{kind:?} proof={proof} later={later}");
                let verdict = decide(kind, proof, later);
                // Formulated a second time, in the other direction, so that a mistake in the table is found.
                let expected = match (kind, proof, later) {
                    (Kind::Whole, ..) => Verdict::Continue,
                    (Kind::Impossible, ..) | (_, true, _) => Verdict::Corrupt,
                    (Kind::Stale | Kind::Blank, false, false) => Verdict::End,
                    (_, false, _) => Verdict::Torn,
                };
                assert_eq!(verdict, expected, "{kind:?} proof={proof} later={later}");
            }
        }
    }
}
