//! The state of every page: a dense table, allocated in pieces as pages are first used.
//!
//! ```text
//!   page  = 10 bits | 9 bits | 13 bits
//!   roots[1024] -> pieces[512] -> words[8192], 64 KiB for each 64 MiB of pages of 8 KiB
//! ```
//!
//! It takes a thousandth of the memory that it describes. Words are never removed. The table does not interpret the
//! bits.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use crate::page::PageId;

const WORD_BITS: u32 = 13;
const PIECE_BITS: u32 = 9;
const ROOT_BITS: u32 = 32 - WORD_BITS - PIECE_BITS;

type Words = Box<[AtomicU64]>;
type Pieces = Box<[OnceLock<Words>]>;

/// See the head comment of this file.
pub(super) struct Table {
    roots: Box<[OnceLock<Pieces>]>,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { roots: empty(ROOT_BITS) }
    }

    /// The word of a page; initially 0.
    pub(super) fn word(&self, page: PageId) -> &AtomicU64 {
        let page = page.0 as usize;
        let pieces = self.roots[page >> (WORD_BITS + PIECE_BITS)].get_or_init(|| empty(PIECE_BITS));
        let piece = &pieces[page >> WORD_BITS & ((1 << PIECE_BITS) - 1)];
        let words = piece.get_or_init(|| (0..1 << WORD_BITS).map(|_| AtomicU64::new(0)).collect());
        &words[page & ((1 << WORD_BITS) - 1)]
    }

    /// The word of a page if its piece was allocated; `None` for a page that was never used.
    pub(super) fn made(&self, page: PageId) -> Option<&AtomicU64> {
        let page = page.0 as usize;
        let pieces = self.roots[page >> (WORD_BITS + PIECE_BITS)].get()?;
        let words = pieces[page >> WORD_BITS & ((1 << PIECE_BITS) - 1)].get()?;
        Some(&words[page & ((1 << WORD_BITS) - 1)])
    }
}

fn empty<T>(bits: u32) -> Box<[OnceLock<T>]> {
    (0..1 << bits).map(|_| OnceLock::new()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn every_page_has_its_own_word() {
        let table = Table::new();
        assert!(table.made(PageId(8191)).is_none());
        let pages = [0, 1, 8191, 8192, (1 << 22) - 1, 1 << 22, u32::MAX - 1, u32::MAX];
        for (value, page) in pages.iter().enumerate() {
            table.word(PageId(*page)).store(value as u64 + 1, Ordering::Relaxed);
        }
        for (value, page) in pages.iter().enumerate() {
            assert_eq!(table.word(PageId(*page)).load(Ordering::Relaxed), value as u64 + 1);
        }
        assert!(table.made(PageId(8191)).is_some() && table.made(PageId(3 << 22)).is_none());
        assert_eq!(table.word(PageId(77)).load(Ordering::Relaxed), 0);
    }
}
