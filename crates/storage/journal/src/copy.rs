//! [`copy`]: copies part of a log, byte for byte, to another shelf: for backups, and for going back to a moment.
//!
//! ```text
//!   from              until
//!    |                 |
//!   [ segment ][ segment ][ segment ]      |batch|batch|batch ...
//!   [ segment ][ ======| 0 ]                           ^ the copy ends with the last batch that ends at or before `until`
//! ```
//!
//! Positions do not change. A batch is copied whole or not at all, because only whole batches verify: going back to a
//! moment is as exact as group commits are. The bytes are verified before they are copied; the copy opens like any
//! journal. It has the identity of its source, but the two logs differ after `end`: never put segments of both on one
//! shelf. [`crate::is_continued_by`] tells them apart.
//!
//! A segment gets its name once its bytes are persistent. A copy that was interrupted is incomplete and must be
//! deleted.

use std::sync::Arc;

use device::{AlignedBuffer, DeviceError, Shelf};

use crate::error::JournalError;
use crate::lsn::Lsn;
use crate::segment::Segment;
use crate::view::View;

/// Name of a segment while it is being copied.
const UNFINISHED: &str = "copying-segment";

/// Bytes copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// The result of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The oldest position of the copy, at or before `from`.
    pub first: Lsn,
    /// The end of the copy, at or before `until`.
    pub end: Lsn,
    /// Segments.
    pub segments: usize,
}

/// Copies the segments that contain the log from `from` on, up to the last batch that ends at or before `until`, to a
/// shelf without segments. The log may be written meanwhile; `until` must then be durable.
///
/// Errors: [`JournalError::Truncated`] if `from` is older than the log, [`JournalError::BeyondEnd`] if the log ends
/// before `from`, [`JournalError::Corrupt`], [`JournalError::Full`] on the other shelf, [`JournalError::Device`].
pub fn copy(view: &View, to: &dyn Shelf, from: Lsn, until: Lsn) -> Result<Copied, JournalError> {
    if from < view.first() {
        return Err(JournalError::Truncated { lsn: from, first: view.first() });
    }
    let mut end = view.first();
    let ending = view.walk_from(from, &mut |segment, header, _| {
        let next = header.next(segment.header.unit);
        if next <= until {
            end = end.max(next);
        }
    })?;
    if let Some(corruption) = ending.corruption.filter(|corruption| corruption.lsn < until) {
        return Err(corruption.into());
    }
    if end < from {
        return Err(JournalError::BeyondEnd { lsn: from, durable: end });
    }
    let mut copied = Copied { first: from, end, segments: 0 };
    let segments = view.segments();
    for (number, segment) in segments.iter().enumerate() {
        // The last segment is copied even if it ends at `from`: a log without segments would start again at LSN 0.
        let is_older = segment.end() <= from && number + 1 < segments.len();
        let is_newer = segment.header.base >= end && copied.segments > 0;
        if is_older || is_newer {
            continue;
        }
        copy_segment(segment, to, end)?;
        copied.first = copied.first.min(segment.header.base);
        copied.segments += 1;
    }
    Ok(copied)
}

/// Copies the part of a segment before `end`, followed by zeros.
fn copy_segment(segment: &Arc<Segment>, to: &dyn Shelf, end: Lsn) -> Result<(), JournalError> {
    let source = segment.device()?;
    match to.remove(UNFINISHED) {
        Ok(()) | Err(DeviceError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let target = to.create(UNFINISHED, source.len())?;
    let bytes = end.min(segment.end()).0.max(segment.start().0) - segment.header.base.0;
    let mut at = 0;
    while at < bytes {
        let wanted = (bytes - at).min(CHUNK_BYTES);
        let mut chunk = AlignedBuffer::zeroed(wanted.next_multiple_of(4096) as usize);
        source.read(at, &mut chunk)?;
        chunk[wanted as usize..].fill(0);
        target.write(at, &chunk)?;
        at += wanted;
    }
    target.flush()?;
    Ok(to.rename(UNFINISHED, &segment.name())?)
}
