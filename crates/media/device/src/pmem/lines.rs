//! The operations of persistent memory, instruction by instruction; the device above determines their order.
//!
//! ```text
//!   PmemDevice           one algorithm: its stores, write-backs and fences
//!       |
//!     Lines              load | store | store past the cache | write back | fence | sync
//!       |
//!   +---+----------------+
//!   mapping              crash simulation
//!   a mapped file        a recording that loses everything that no fence covers
//! ```
//!
//! This separation makes crash tests meaningful: the simulator runs the same algorithm as the machine, and a test can
//! leave out one write-back or one fence of it.
//!
//! Guarantees of a machine (x86-64, ADR; Intel 64 SDM vol. 3A, "Memory Ordering" and vol. 2, CLWB, CLFLUSHOPT, SFENCE):
//!
//! 1. Ordinary stores to one line reach the medium as a prefix of their program order: a later one never without an
//!    earlier one. Lines are independent, and a line may reach it at any time, even without a write-back.
//! 2. Stores past the cache reach it in any order, word by word, until a fence of the same thread.
//! 3. A write-back covers the earlier stores of the same thread to its line; it is complete only once a later fence of
//!    that thread has returned.
//! 4. A fence covers only the calling thread's stores past the cache and write-backs.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The unit in which a cache writes back: 64 bytes on every CPU this project builds for.
pub(crate) const LINE_BYTES: usize = 64;

/// The bytes in which a read or a store found poison: the medium's unit of loss, not the requested range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Memory that persists by line, or a mapping that persists by page. The caller ensures that ranges lie inside it.
pub(crate) trait Lines: Send + Sync + fmt::Debug {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Copies bytes out.
    fn load(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Lost>;

    /// Ordinary stores, through the cache.
    fn store(&self, offset: u64, data: &[u8]) -> Result<(), Lost>;

    /// Non-temporal stores: `offset` and the length are multiples of [`crate::WORD_BYTES`].
    fn store_past_cache(&self, offset: u64, data: &[u8]) -> Result<(), Lost>;

    /// Requests a write-back of every line that the range touches. It detects a page that the kernel removed after the
    /// store: the store was lost with it.
    fn write_back(&self, offset: u64, bytes: u64) -> Result<(), Lost>;

    /// Waits until the calling thread's stores past the cache and its write-backs are in the persistence domain.
    fn fence(&self);

    /// Persists the range by page, through the file system; with line granularity it goes beyond the persistence
    /// domain.
    fn sync(&self, offset: u64, bytes: u64) -> io::Result<()>;
}

impl<L: Lines> Lines for Arc<L> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    #[inline]
    fn load(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Lost> {
        (**self).load(offset, buffer)
    }

    #[inline]
    fn store(&self, offset: u64, data: &[u8]) -> Result<(), Lost> {
        (**self).store(offset, data)
    }

    #[inline]
    fn store_past_cache(&self, offset: u64, data: &[u8]) -> Result<(), Lost> {
        (**self).store_past_cache(offset, data)
    }

    #[inline]
    fn write_back(&self, offset: u64, bytes: u64) -> Result<(), Lost> {
        (**self).write_back(offset, bytes)
    }

    #[inline]
    fn fence(&self) {
        (**self).fence();
    }

    fn sync(&self, offset: u64, bytes: u64) -> io::Result<()> {
        (**self).sync(offset, bytes)
    }
}

/// The lines that a range touches, as offsets of their first byte; includes the last one if the range straddles lines.
pub(crate) fn lines_of(offset: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let first = offset & !(LINE_BYTES as u64 - 1);
    let end = if bytes == 0 { first } else { offset + bytes };
    (first..end).step_by(LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_that_holds_a_byte_of_the_range_is_listed_once() {
        for offset in 0..200 {
            for bytes in 0..200 {
                let mut expected: Vec<u64> = (offset..offset + bytes).map(|at| at / 64 * 64).collect();
                expected.dedup();
                assert_eq!(lines_of(offset, bytes).collect::<Vec<_>>(), expected, "{offset}+{bytes}");
            }
        }
    }
}
