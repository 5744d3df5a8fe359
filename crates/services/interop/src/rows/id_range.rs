//! [`IdRange`]: the ids that a walk over an index goes through.

use std::ops::Bound;

/// Some ids, from the first one up to one that does not belong to them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdRange {
    pub(crate) first: u64,
    pub(crate) below: Option<u64>,
}

impl IdRange {
    /// The first one; a walk begins not behind its end.
    pub(super) fn first(self) -> u64 {
        self.below.map_or(self.first, |below| self.first.min(below))
    }
}

/// The end of a walk: with all keys, or below one of them.
pub(super) fn upper(key: &[u8], below: Option<u64>) -> Bound<&[u8]> {
    if below.is_some() { Bound::Excluded(key) } else { Bound::Included(key) }
}
