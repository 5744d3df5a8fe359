//! [`Bits`]: a set of small numbers.

/// A set of numbers below a bound, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits(Box<[u64]>);

impl Bits {
    /// The set of these numbers, each below `bound`.
    pub(super) fn of(bound: usize, numbers: impl Iterator<Item = u32>) -> Bits {
        let mut words = vec![0; bound.div_ceil(64)];
        for number in numbers {
            if let Some(word) = words.get_mut(number as usize / 64) {
                *word |= 1u64 << (number % 64);
            }
        }
        Bits(words.into())
    }

    /// Whether it contains the number.
    pub(super) fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word & (1u64 << (number % 64)) != 0)
    }
}
