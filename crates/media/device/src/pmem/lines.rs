//! What persistent memory offers, instruction by instruction; the device above it says in which order they come.
//!
//! ```text
//!   PmemDevice           one algorithm: which stores, which write-backs, which fence
//!       |
//!     Lines              load | store | store past the cache | write back | fence | sync
//!       |
//!   +---+----------------+
//!   mapping              crash simulation
//!   a mapped file        a recording that loses what no fence covers
//! ```
//!
//! The split is what makes crash tests worth something: the simulator runs the same algorithm as the machine, and a test
//! can leave out one write-back or one fence of it.
//!
//! What a machine promises (x86-64, ADR; Intel 64 SDM vol. 3A, "Memory Ordering" and vol. 2, CLWB, CLFLUSHOPT, SFENCE):
//!
//! 1. Ordinary stores to one line reach the medium as a prefix of their program order: a later one never without an earlier
//!    one. Lines are independent, and a line may reach it at any time, asked for or not.
//! 2. Stores past the cache reach it in any order, word by word, until a fence of the same thread.
//! 3. A write-back covers the stores to its line that the same thread had made before; it has happened only once a later
//!    fence of that thread has returned.
//! 4. A fence covers the calling thread's stores past the cache and write-backs, nobody else's.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The unit in which a cache writes back: 64 bytes on every CPU this project builds for.
pub(crate) const LINE_BYTES: usize = 64;

/// The bytes that a read or a store met poison in: the medium's unit of loss, not what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Memory that persists by line, or a mapping that persists by page. Ranges lie inside it; the caller sees to that.
pub(crate) trait Lines: Send + Sync + fmt::Debug {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Copies out.
    fn load(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Lost>;

    /// Ordinary stores, through the cache.
    fn store(&self, offset: u64, data: &[u8]) -> Result<(), Lost>;

    /// Non-temporal stores: `offset` and the length are multiples of [`crate::WORD_BYTES`].
    fn store_past_cache(&self, offset: u64, data: &[u8]) -> Result<(), Lost>;

    /// Asks for every line that the range touches to be written back. A page that the kernel took away since the store is
    /// noticed here: the store was lost with it.
    fn write_back(&self, offset: u64, bytes: u64) -> Result<(), Lost>;

    /// Waits until the calling thread's stores past the cache and its write-backs are in the persistence domain.
    fn fence(&self);

    /// Persists the range by page, through the file system; with line granularity, beyond the persistence domain.
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

/// The lines that a range touches, as offsets of their first byte: the last one too where the range straddles lines.
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
