//! [`is_continued_by`], [`ends_within`]: whether one log goes on where a copy of it ends, or is another one that only began as it did.
//!
//! ```text
//!   log        | a | b | c | d | e |                copied up to c, opened, and gone on with:
//!   the copy   | a | b | c | x | y | z |            same identity, same positions, another log behind c
//!
//!   is a backup | b | c |     continued by the copy?  yes          | c | d |  no: at the place of d the copy has x
//! ```
//!
//! Identities do not tell it, since a copy keeps that of its source, nor do positions: batches are padded, so they end at the same places.
//! What tells it are the bytes: a batch is written once and never again, and whoever opens a log begins an epoch of its own.

use std::sync::Arc;

use crate::error::JournalError;
use crate::lsn::Lsn;
use crate::segment::Segment;
use crate::view::View;
use crate::window::{WALK_BYTES, Window};

/// What two logs have in common.
struct Comparison {
    /// Batches that lie in the places of both.
    batches: u64,
    /// Records that end in these.
    records: u64,
    /// Whether all of them are the same.
    is_same: bool,
}

/// Whether every batch of `before`, a copy of a part of a log, lies in `after` too, byte for byte at its place; but for those that `after`
/// does not keep any more. A copy without such a batch is compared by the header of its last segment.
///
/// # Errors
/// [`JournalError::Corrupt`] where `before` is damaged and all ahead of that is the same, [`JournalError::Device`].
pub fn is_continued_by(before: &View, after: &View) -> Result<bool, JournalError> {
    let found = compare(before, after, Lsn::ZERO)?;
    if found.batches > 0 || !found.is_same {
        return Ok(found.is_same);
    }
    let Some(last) = before.segments().pop() else { return Ok(true) };
    Ok(after
        .segments()
        .iter()
        .find(|segment| segment.header.base == last.header.base)
        .is_none_or(|own| own.header == last.header))
}

/// Whether what the last segment of `before` holds lies in `after` too, and has a record: for a copy that is damaged ahead of it. Where the
/// logs had parted before, these batches were written twice, and differently.
///
/// # Errors
/// [`JournalError::Corrupt`] where that segment is damaged, [`JournalError::Device`].
pub fn ends_within(before: &View, after: &View) -> Result<bool, JournalError> {
    let found = compare(before, after, before.tail().plus(1))?;
    Ok(found.is_same && found.records > 0)
}

/// Compares from the segment on that contains what is before a place.
fn compare(before: &View, after: &View, from: Lsn) -> Result<Comparison, JournalError> {
    let (segments, first) = (after.segments(), after.first());
    let (mut found, mut failed) = (Comparison { batches: 0, records: 0, is_same: true }, None);
    let mut window: Option<Window> = None;
    let ending = before.walk_from(from, &mut |_, header, held| {
        if header.lsn < first || !found.is_same || failed.is_some() {
            return;
        }
        found.batches += 1;
        found.records += u64::from(header.records);
        let bytes = header.bytes as usize;
        let fits = |segment: &&Arc<Segment>| {
            segment.holds(header.lsn) && segment.offset(header.lsn) + bytes as u64 <= segment.header.bytes
        };
        if window.as_ref().is_none_or(|own| !fits(&own.segment())) {
            window = segments.iter().find(fits).map(|segment| Window::new(Arc::clone(segment), WALK_BYTES));
        }
        let Some(own) = window.as_mut() else {
            found.is_same = false;
            return;
        };
        let end = header.lsn.plus(bytes as u64);
        match (held.bytes(header.lsn, bytes, end), own.bytes(header.lsn, bytes, end)) {
            (Ok(one), Ok(other)) => found.is_same = one == other,
            (Err(error), _) | (_, Err(error)) => failed = Some(error),
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    match ending.corruption {
        Some(corruption) if found.is_same => Err(corruption.into()),
        _ => Ok(found),
    }
}
