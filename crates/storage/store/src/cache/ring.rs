//! The ring of scans: frames that are reused for pages that are read once.
//!
//! ```text
//!   a scan's page:  free frame? -> use it
//!                   ring full?  -> evicts the oldest page of the ring, if no other reader has used it
//!                   else        -> evicts like any reader; the page becomes the newest of the ring
//! ```
//!
//! So a scan fills free frames, and displaces at most the ring's share of the pages that others use. A page of the ring
//! that another reader uses leaves the ring.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::page::PageId;

/// Pages that scans read, oldest first.
pub(super) struct Ring {
    bytes: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: VecDeque<ScannedPage>,
    bytes: u64,
}

/// A page and its frame at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScannedPage {
    pub(super) page: PageId,
    pub(super) frame: u32,
    pub(super) bytes: u64,
}

impl Ring {
    pub(super) fn new(bytes: u64) -> Ring {
        Ring { bytes, inner: Mutex::default() }
    }

    /// The ring's share of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&self, entry: ScannedPage) {
        let mut inner = self.inner.lock();
        inner.bytes += entry.bytes;
        inner.entries.push_back(entry);
    }

    /// The oldest entry, if the ring is full.
    pub(super) fn pop(&self) -> Option<ScannedPage> {
        let mut inner = self.inner.lock();
        if inner.bytes < self.bytes {
            return None;
        }
        let entry = inner.entries.pop_front()?;
        inner.bytes -= entry.bytes;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_ring_gives_up_its_oldest() {
        let ring = Ring::new(100);
        let entry = |page, bytes| ScannedPage { page: PageId(page), frame: page, bytes };
        ring.push(entry(1, 60));
        assert_eq!(ring.pop(), None);
        ring.push(entry(2, 60));
        assert_eq!(ring.pop(), Some(entry(1, 60)));
        assert_eq!(ring.pop(), None);
        ring.push(entry(3, 40));
        assert_eq!(ring.pop(), Some(entry(2, 60)));
    }
}
