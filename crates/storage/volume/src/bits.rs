//! [`Bits`]: a fixed number of bits that threads set and clear without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bits; all clear at first.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Vec<AtomicU64>,
}

impl Bits {
    pub(crate) fn new(bits: u64) -> Bits {
        Bits { words: (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    pub(crate) fn get(&self, bit: u64) -> bool {
        // Acquire: who sees the bit also sees what its setter did before.
        self.words[(bit / 64) as usize].load(Ordering::Acquire) >> (bit % 64) & 1 == 1
    }

    /// Returns whether it was clear.
    pub(crate) fn set(&self, bit: u64) -> bool {
        let mask = 1 << (bit % 64);
        self.words[(bit / 64) as usize].fetch_or(mask, Ordering::AcqRel) & mask == 0
    }

    /// Returns whether it was set.
    pub(crate) fn clear(&self, bit: u64) -> bool {
        let mask = 1_u64 << (bit % 64);
        self.words[(bit / 64) as usize].fetch_and(!mask, Ordering::AcqRel) & mask != 0
    }

    pub(crate) fn word(&self, index: u64) -> u64 {
        self.words.get(index as usize).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Takes all set bits, ascending.
    pub(crate) fn take(&self) -> Vec<u64> {
        let mut out = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            let mut left = if word.load(Ordering::Acquire) == 0 { 0 } else { word.swap(0, Ordering::AcqRel) };
            while left != 0 {
                out.push(index as u64 * 64 + u64::from(left.trailing_zeros()));
                left &= left - 1;
            }
        }
        out
    }

    /// The first set bit at or after `from`.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let mut index = from / 64;
        let mut mask = u64::MAX << (from % 64);
        while index < self.words.len() as u64 {
            let found = self.word(index) & mask;
            if found != 0 {
                return Some(index * 64 + u64::from(found.trailing_zeros()));
            }
            index += 1;
            mask = u64::MAX;
        }
        None
    }

    pub(crate) fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Ordering::Acquire).count_ones())).sum()
    }

    /// Sets the first `bits` bits, or clears all.
    pub(crate) fn fill(&self, bits: u64, set: bool) {
        for (index, word) in self.words.iter().enumerate() {
            let left = bits.saturating_sub(index as u64 * 64).min(64);
            let ones = if left == 64 { u64::MAX } else { (1 << left) - 1 };
            word.store(if set { ones } else { 0 }, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn set_bits_are_found_counted_and_taken() {
        let bits = Bits::new(200);
        for bit in [0, 63, 64, 130, 199] {
            assert!(bits.set(bit) && !bits.set(bit));
        }
        assert_eq!((bits.count(), bits.next(65), bits.next(131)), (5, Some(130), Some(199)));
        assert!(bits.clear(130) && !bits.clear(130));
        assert_eq!(bits.take(), [0, 63, 64, 199]);
        bits.fill(70, true);
        assert_eq!((bits.count(), bits.get(69), bits.get(70)), (70, true, false));
    }
}
