//! A histogram of distances with buckets of equal relative width.
//!
//! ```text
//!   value    0 .. 127      one bucket for each
//!          128 .. 255      one for each           2^7 buckets between two powers of two: a bucket is at most 0.8 % wide
//!          256 .. 511      one for two values
//!          ...             up to 2^64
//! ```
//!
//! Memory is bounded by [`BUCKETS`]; only buckets that something was added to exist, 10 bytes each. Counts are real numbers, because a
//! sampled access stands for several.

/// Bits of a value behind its highest one that its bucket distinguishes.
const BITS: u32 = 7;
const LINE: u64 = 1 << BITS;

/// The number of buckets that any value falls into.
pub const BUCKETS: usize = (64 - BITS as usize + 1) * LINE as usize;

/// See the head comment of this file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Rising.
    buckets: Vec<u16>,
    counts: Vec<f64>,
}

/// Memory of a bucket that exists.
pub(crate) const BUCKET_BYTES: usize = 10;
const _: () = assert!(BUCKETS <= u16::MAX as usize);

impl Histogram {
    /// Adds `count` values.
    pub fn add(&mut self, value: u64, count: f64) {
        self.add_to(bucket_of(value), count);
    }

    /// Adds to a bucket. Panics if there is no such bucket.
    pub fn add_to(&mut self, bucket: usize, count: f64) {
        assert!(bucket < BUCKETS, "there is no bucket {bucket}");
        match self.buckets.binary_search(&(bucket as u16)) {
            Ok(at) => self.counts[at] += count,
            Err(at) => {
                self.buckets.insert(at, bucket as u16);
                self.counts.insert(at, count);
            }
        }
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in other.buckets() {
            self.add_to(bucket, count);
        }
    }

    /// The buckets that are not empty, by rising values, with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let buckets = self.buckets.iter().map(|bucket| usize::from(*bucket));
        buckets.zip(self.counts.iter().copied()).filter(|(_, count)| *count != 0.0)
    }

    /// The number of buckets up to the largest value.
    pub fn len(&self) -> usize {
        self.buckets.last().map_or(0, |last| usize::from(*last) + 1)
    }

    /// The number of buckets that exist.
    pub(crate) fn made(&self) -> usize {
        self.buckets.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The sum of all counts.
    pub fn sum(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// The count at or below which so large a `part` (0 to 1) of all values lies: the largest value of that bucket; 0 if it is empty.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = self.sum() * part.clamp(0.0, 1.0);
        let mut sum = 0.0;
        for (bucket, count) in self.buckets() {
            sum += count;
            if sum >= wanted {
                return bounds(bucket).1;
            }
        }
        self.len().checked_sub(1).map_or(0, |last| bounds(last).1)
    }
}

/// The bucket of a value.
pub(super) fn bucket_of(value: u64) -> usize {
    if value < LINE {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - BITS;
    (u64::from(shift + 1) * LINE + (value >> shift) - LINE) as usize
}

/// The smallest and the largest value of a bucket.
pub(super) fn bounds(bucket: usize) -> (u64, u64) {
    let (line, at) = (bucket as u64 / LINE, bucket as u64 % LINE);
    if line == 0 {
        return (at, at);
    }
    let shift = line - 1;
    let first = (LINE + at) << shift;
    (first, first + ((1u64 << shift) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap_and_hold_their_values() {
        let mut next = 0u64;
        for bucket in 0..BUCKETS {
            let (first, last) = bounds(bucket);
            assert_eq!(first, next, "bucket {bucket}");
            assert_eq!((bucket_of(first), bucket_of(last)), (bucket, bucket));
            assert!((last - first) as f64 <= first as f64 / 127.0);
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last one ends with the largest number");
    }

    #[test]
    fn merging_adds_and_quantiles_are_the_ends_of_buckets() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        one.add(5, 1.0);
        two.add(100, 2.0);
        two.add(5, 1.0);
        one.merge(&two);
        assert_eq!(one.buckets().collect::<Vec<_>>(), [(5, 2.0), (100, 2.0)]);
        assert_eq!((one.sum(), one.quantile(0.5), one.quantile(0.51), one.quantile(1.0)), (4.0, 5, 100, 100));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
