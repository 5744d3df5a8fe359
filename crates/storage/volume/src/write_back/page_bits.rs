//! [`PageBits`]: one bit for each block of a page, at most 256.
//!
//! A plain value that is copied, compared and stored in an entry; it knows nothing of the meaning of its bits.

use std::ops::Range;

/// Words of a set: 256 blocks, a page of 1 MiB.
const WORDS: usize = 4;

/// Bytes of a set in an entry.
pub(super) const BITS_BYTES: usize = 8 * WORDS;

/// A set of blocks of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageBits([u64; WORDS]);

impl PageBits {
    /// No block.
    pub(super) const NONE: PageBits = PageBits([0; WORDS]);

    /// The blocks of a range.
    #[inline]
    pub(super) fn of(range: &Range<u32>) -> PageBits {
        let mut bits = PageBits::NONE;
        for (index, word) in bits.0.iter_mut().enumerate() {
            let first = index as u32 * 64;
            let (from, to) = (range.start.clamp(first, first + 64) - first, range.end.clamp(first, first + 64) - first);
            if from < to {
                *word = (u64::MAX >> (64 - (to - from))) << from;
            }
        }
        bits
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == [0; WORDS]
    }

    #[inline]
    pub(super) fn contains(self, block: u32) -> bool {
        self.0[block as usize / 64] >> (block % 64) & 1 == 1
    }

    #[inline]
    fn zip(self, other: PageBits, with: impl Fn(u64, u64) -> u64) -> PageBits {
        PageBits(std::array::from_fn(|word| with(self.0[word], other.0[word])))
    }

    #[inline]
    pub(super) fn and(self, other: PageBits) -> PageBits {
        self.zip(other, |a, b| a & b)
    }

    #[inline]
    pub(super) fn or(self, other: PageBits) -> PageBits {
        self.zip(other, |a, b| a | b)
    }

    /// Those that are not in `other`.
    #[inline]
    pub(super) fn minus(self, other: PageBits) -> PageBits {
        self.zip(other, |a, b| a & !b)
    }

    pub(super) fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The end of the run of blocks that are alike, in the set or not, from `from` up to `end`.
    #[inline]
    pub(super) fn run_end(self, from: u32, end: u32) -> u32 {
        let kind = self.contains(from);
        (from + 1..end).find(|block| self.contains(*block) != kind).unwrap_or(end)
    }

    /// Runs of blocks in the set, ascending.
    pub(super) fn runs(self, blocks: u32) -> impl Iterator<Item = Range<u32>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < blocks {
                let (start, is_in) = (at, self.contains(at));
                at = self.run_end(at, blocks);
                if is_in {
                    return Some(start..at);
                }
            }
            None
        })
    }

    pub(super) fn to_bytes(self) -> [u8; BITS_BYTES] {
        let mut out = [0; BITS_BYTES];
        out.chunks_exact_mut(8).zip(self.0).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
        out
    }

    pub(super) fn from_bytes(bytes: &[u8; BITS_BYTES]) -> PageBits {
        let word = |index: usize| u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"));
        PageBits(std::array::from_fn(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_blocks_agree_with_a_list_of_blocks() {
        for (start, end) in [(0, 0), (0, 1), (3, 64), (63, 65), (64, 128), (10, 200), (255, 256), (0, 256)] {
            let bits = PageBits::of(&(start..end));
            let listed: Vec<u32> = (0..256).filter(|block| bits.contains(*block)).collect();
            assert_eq!(listed, (start..end).collect::<Vec<_>>());
            assert_eq!((bits.count(), bits.is_empty()), (end - start, start == end));
            assert!(bits.runs(256).eq((start < end).then_some(start..end)));
            assert_eq!(PageBits::from_bytes(&bits.to_bytes()), bits);
            assert_eq!(PageBits::of(&(0..256)).minus(bits).count() + bits.count(), 256);
        }
        let two = PageBits::of(&(1..3)).or(PageBits::of(&(70..72)));
        assert_eq!(two.runs(128).collect::<Vec<_>>(), [1..3, 70..72]);
        assert_eq!(two.and(PageBits::of(&(2..71))).runs(128).collect::<Vec<_>>(), [2..3, 70..71]);
    }
}
