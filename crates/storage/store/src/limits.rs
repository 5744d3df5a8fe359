//! [`SpaceLimits`]: the space that transactions leave to the records of services, so that tables cannot take the space
//! of messages.
//!
//! ```text
//!   pages in use          |########################|.................|      <= pages: transactions that grow beyond are refused
//!   free on their medium  ....................|######################|      >= reserve: the same
//! ```
//!
//! Checked before any part of a transaction is in the journal, and again for each part of one that spills. So it
//! applies to bulk loads, to rows that move to row groups, and to spilled transactions. It does not apply to records of
//! services, to transactions that change only the trees of the interpreter, to those that remove more than they set, or to the few rows of
//! the node itself ([`Transaction::commit_beyond_limits`](crate::Transaction::commit_beyond_limits)).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::StoreError;
use crate::space::Space;

/// A number of bytes, and the name of its setting for the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceLimit {
    /// Bytes.
    pub bytes: u64,
    /// Name of the setting, for users.
    pub setting: &'static str,
}

/// See the head comment of this file. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Bytes of pages in use, of tables and messages together, beyond which transactions that grow are refused.
    pub pages: Option<SpaceLimit>,
    /// Bytes of the medium of the pages that transactions leave free; pages that can be allocated count as free.
    pub reserve: Option<SpaceLimit>,
}

/// The most bytes of a [`FreeAllowance`].
const ALLOWANCE_BYTES: u64 = 1 << 20;

/// An allowance is at most this part of what is free above the reserve.
const ALLOWANCE_PART: u64 = 64;

/// Bytes that transactions may add before the free space is measured again: a measurement is a system call, 3 % of a
/// small transaction on persistent memory (perf, 2026-11-26). Others who fill the medium meanwhile take at most
/// [`ALLOWANCE_BYTES`] of the reserve.
#[derive(Debug, Default)]
pub(crate) struct FreeAllowance(AtomicU64);

impl FreeAllowance {
    /// Whether so many bytes were left; then they are taken.
    fn take(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// After a measurement that found so many bytes above the reserve.
    fn grant(&self, spare: u64) {
        self.0.store((spare / ALLOWANCE_PART).min(ALLOWANCE_BYTES), Ordering::Relaxed);
    }
}

impl SpaceLimits {
    /// Checks that a transaction that adds `grows` bytes of rows fits. `free_bytes` returns the free bytes of the
    /// medium, if they are known; it is called when the allowance is used up.
    ///
    /// Errors: [`StoreError::Full`], which names the setting; those of `free_bytes`.
    pub(crate) fn check(
        &self,
        grows: u64,
        space: &Space,
        allowance: &FreeAllowance,
        free_bytes: impl FnOnce() -> Result<Option<u64>, StoreError>,
    ) -> Result<(), StoreError> {
        let page_bytes = space.page_bytes();
        if let Some(SpaceLimit { bytes, setting }) = self.pages {
            let used = space.usage().used * page_bytes;
            if used.saturating_add(grows) > bytes {
                let text = format!("{setting} lets tables grow up to {bytes} bytes of pages, and {used} are in use");
                return Err(StoreError::Full(text.into()));
            }
        }
        let Some(SpaceLimit { bytes, setting }) = self.reserve else { return Ok(()) };
        if allowance.take(grows) {
            return Ok(());
        }
        let Some(free) = free_bytes()? else { return Ok(()) };
        let free = free.saturating_add(space.available() * page_bytes);
        if free < bytes.saturating_add(grows) {
            let text = format!("{setting} leaves {bytes} bytes of the medium to messages, and {free} are free");
            return Err(StoreError::Full(text.into()));
        }
        allowance.grant(free - bytes - grows);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_by_what_grows_and_is_small_near_the_reserve() {
        let allowance = FreeAllowance::default();
        assert!(!allowance.take(1), "nothing was measured");
        allowance.grant(u64::MAX);
        assert!(allowance.take(ALLOWANCE_BYTES - 1) && !allowance.take(2) && allowance.take(1) && !allowance.take(1));
        allowance.grant(ALLOWANCE_PART * 10);
        assert!(!allowance.take(11) && allowance.take(10), "a part of what is left");
        allowance.grant(ALLOWANCE_PART - 1);
        assert!(!allowance.take(1), "every transaction measures near the reserve");
    }
}
