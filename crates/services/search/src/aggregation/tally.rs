//! What is kept of values that are read from a column in blocks: [`ValueTally`] for numbers about them, [`CountTally`] for
//! percentiles, [`DistinctTally`] for how many different ones there are, [`DateTally`] for buckets of time.
//!
//! Values come as codes: numbers in the order of what they stand for, as columns keep them. Pure: no index, no I/O.

use std::collections::{BTreeMap, HashSet};

use tantivy::columnar::MonotonicallyMappableToU64;

use crate::mapping::FieldKind;

/// Nanoseconds of a millisecond: the library keeps dates in nanoseconds.
const NANOS: i64 = 1_000_000;

/// What a code stands for, as a number; dates in nanoseconds.
pub(super) fn number_of(code: u64, kind: FieldKind) -> f64 {
    match kind {
        FieldKind::Real(_) => f64::from_u64(code),
        FieldKind::UnsignedLong | FieldKind::Boolean => code as f64,
        _ => i64::from_u64(code) as f64,
    }
}

/// Count, bounds and sum of values. The sum of whole numbers is exact; that of others is compensated (Kahan and Babuska).
pub(super) struct ValueTally {
    kind: FieldKind,
    pub(super) count: u64,
    min: u64,
    max: u64,
    whole: i128,
    real: f64,
    lost: f64,
}

impl ValueTally {
    pub(super) fn new(kind: FieldKind) -> ValueTally {
        ValueTally { kind, count: 0, min: u64::MAX, max: 0, whole: 0, real: 0.0, lost: 0.0 }
    }

    pub(super) fn add(&mut self, codes: &[u64]) {
        self.count += codes.len() as u64;
        for code in codes {
            self.min = self.min.min(*code);
            self.max = self.max.max(*code);
        }
        match self.kind {
            FieldKind::Real(_) => codes.iter().for_each(|code| self.add_real(f64::from_u64(*code))),
            FieldKind::UnsignedLong => self.whole += codes.iter().map(|code| i128::from(*code)).sum::<i128>(),
            _ => self.whole += codes.iter().map(|code| i128::from(i64::from_u64(*code))).sum::<i128>(),
        }
    }

    fn add_real(&mut self, value: f64) {
        let sum = self.real + value;
        self.lost += match self.real.abs() >= value.abs() {
            true => (self.real - sum) + value,
            false => (value - sum) + self.real,
        };
        self.real = sum;
    }

    pub(super) fn sum(&self) -> f64 {
        match self.kind {
            // A sum beyond all numbers has nothing to compensate.
            FieldKind::Real(_) if self.real.is_finite() => self.real + self.lost,
            FieldKind::Real(_) => self.real,
            _ => self.whole as f64,
        }
    }

    fn if_any(&self, value: f64) -> Option<f64> {
        (self.count > 0).then_some(value)
    }

    pub(super) fn min(&self) -> Option<f64> {
        self.if_any(number_of(self.min, self.kind))
    }

    pub(super) fn max(&self) -> Option<f64> {
        self.if_any(number_of(self.max, self.kind))
    }

    pub(super) fn avg(&self) -> Option<f64> {
        self.if_any(self.sum() / self.count as f64)
    }
}

/// Codes from the least value on that are counted one by one: 16 MiB.
const COUNTED_MAX: u64 = 1 << 22;

/// Counts that are added up before a look at each of them.
const COUNTS: usize = 1_024;

/// Most values further away that are kept one by one: 16 MiB.
const FAR_MAX: usize = 1 << 21;

/// How often each whole number is there, for percentiles.
pub(super) struct CountTally {
    kind: FieldKind,
    /// The code of the first count.
    first: u64,
    counts: Vec<u32>,
    /// Codes beyond the last count.
    far: Vec<u64>,
    count: u64,
}

impl CountTally {
    /// For values between two codes, both included.
    pub(super) fn new(kind: FieldKind, min: u64, max: u64) -> CountTally {
        let codes = max.checked_sub(min).map_or(0, |span| span.saturating_add(1).min(COUNTED_MAX));
        CountTally { kind, first: min, counts: vec![0; codes as usize], far: Vec::new(), count: 0 }
    }

    /// Memory for values between two codes, at most.
    pub(super) fn bytes(min: u64, max: u64) -> u64 {
        let span = max.saturating_sub(min);
        let far = if span >= COUNTED_MAX { FAR_MAX * size_of::<u64>() } else { 0 };
        (span.min(COUNTED_MAX) + 1) * size_of::<u32>() as u64 + far as u64
    }

    pub(super) fn add(&mut self, codes: &[u64]) {
        self.count += codes.len() as u64;
        for code in codes {
            match self.counts.get_mut((code - self.first) as usize) {
                // More of them than a count can hold are given up in the end.
                Some(count) => *count = count.wrapping_add(1),
                None if self.far.len() < FAR_MAX => self.far.push(*code),
                None => {}
            }
        }
    }

    /// Whether there are more values than are kept.
    pub(super) fn is_over(&self) -> bool {
        self.far.len() >= FAR_MAX || u32::try_from(self.count).is_err()
    }

    /// The values at these places of all values in order, each `None` if there are no values: what a digest has there that groups
    /// nothing. `None` if there are too many values.
    pub(super) fn percentiles(&mut self, percents: &[f64]) -> Option<Vec<Option<f64>>> {
        if self.is_over() {
            return None;
        }
        let mut found = vec![None; percents.len()];
        let Some(last) = self.count.checked_sub(1) else { return Some(found) };
        let rank = |percent: f64| ((percent / 100.0 * self.count as f64) as u64).min(last);
        let mut ranks: Vec<(u64, usize)> =
            percents.iter().enumerate().map(|(at, percent)| (rank(*percent), at)).collect();
        ranks.sort_unstable();
        let mut ranks = ranks.into_iter().peekable();
        let mut before = 0;
        for (number, counts) in self.counts.chunks(COUNTS).enumerate() {
            let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
            let (mut sum, mut place) = (before, 0);
            while let Some((rank, at)) = ranks.next_if(|(rank, _)| *rank < before + all) {
                while sum + u64::from(counts[place]) <= rank {
                    sum += u64::from(counts[place]);
                    place += 1;
                }
                found[at] = Some(number_of(self.first + (number * COUNTS + place) as u64, self.kind));
            }
            before += all;
        }
        self.far.sort_unstable();
        for (rank, at) in ranks {
            found[at] = self.far.get((rank - before) as usize).map(|code| number_of(*code, self.kind));
        }
        Some(found)
    }
}

/// Codes up to this one are kept as bits: 8 MiB.
const BITS_MAX: u64 = 1 << 26;

/// Most different values that are kept one by one: 16 MiB. The library estimates beyond that.
const DISTINCT_MAX: usize = 1 << 20;

/// The different codes of a segment.
pub(super) enum DistinctTally {
    Bits(Vec<u64>),
    Set(HashSet<u64>),
    /// There are too many.
    TooMany,
}

impl DistinctTally {
    /// For codes up to `max`.
    pub(super) fn new(max: u64) -> DistinctTally {
        match max < BITS_MAX {
            true => DistinctTally::Bits(vec![0; (max / 64 + 1) as usize]),
            false => DistinctTally::Set(HashSet::new()),
        }
    }

    /// Memory for so many codes up to `max`, at most. A set has room for twice as many, and a byte for each place.
    pub(super) fn bytes(max: u64, codes: u64) -> u64 {
        match max < BITS_MAX {
            true => (max / 64 + 1) * size_of::<u64>() as u64,
            false => codes.min(DISTINCT_MAX as u64 + 1) * 2 * (size_of::<u64>() as u64 + 1),
        }
    }

    pub(super) fn add(&mut self, codes: &[u64]) {
        match self {
            DistinctTally::Bits(bits) => {
                for code in codes {
                    bits[(code / 64) as usize] |= 1 << (code % 64);
                }
            }
            DistinctTally::Set(set) => {
                set.extend(codes);
                if set.len() > DISTINCT_MAX {
                    *self = DistinctTally::TooMany;
                }
            }
            DistinctTally::TooMany => {}
        }
    }

    /// How many there are; `None` for too many.
    pub(super) fn count(&self) -> Option<usize> {
        let count = match self {
            DistinctTally::Bits(bits) => bits.iter().map(|word| word.count_ones() as usize).sum(),
            DistinctTally::Set(set) => set.len(),
            DistinctTally::TooMany => return None,
        };
        (count <= DISTINCT_MAX).then_some(count)
    }

    /// All of them, the least first.
    pub(super) fn codes(&self) -> Vec<u64> {
        match self {
            DistinctTally::Bits(bits) => {
                let word = |(at, word): (usize, &u64)| {
                    let word = *word;
                    (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u64 * 64 + bit)
                };
                bits.iter().enumerate().flat_map(word).collect()
            }
            DistinctTally::Set(set) => {
                let mut codes: Vec<u64> = set.iter().copied().collect();
                codes.sort_unstable();
                codes
            }
            DistinctTally::TooMany => Vec::new(),
        }
    }
}

/// Dates by buckets of one length.
pub(super) struct DateTally {
    interval: i64,
    offset: i64,
    pub(super) counts: BTreeMap<i64, u64>,
    /// Most buckets that are kept.
    pub(super) most: usize,
    /// The bucket of the last date, and its count: those of a log come in order.
    last: (i64, u64),
}

impl DateTally {
    pub(super) fn new(interval: i64, offset: i64) -> DateTally {
        DateTally { interval, offset, counts: BTreeMap::new(), most: usize::MAX, last: (0, 0) }
    }

    /// The beginning of the bucket of a code, milliseconds.
    fn bucket(&self, code: u64) -> i64 {
        let millis = i64::from_u64(code).div_euclid(NANOS);
        (millis - self.offset).div_euclid(self.interval) * self.interval + self.offset
    }

    /// Adds `count` documents whose dates lie between two codes. Returns `false` if they do not lie in one bucket.
    pub(super) fn add_zone(&mut self, min: u64, max: u64, count: u64) -> bool {
        let bucket = self.bucket(min);
        let is_one = bucket == self.bucket(max);
        if is_one {
            self.count(bucket, count);
        }
        is_one
    }

    pub(super) fn add(&mut self, codes: &[u64]) {
        for code in codes {
            self.count(self.bucket(*code), 1);
        }
    }

    fn count(&mut self, bucket: i64, count: u64) {
        if self.last.0 != bucket {
            self.flush();
            self.last.0 = bucket;
        }
        self.last.1 += count;
    }

    /// Puts the last count with the others.
    pub(super) fn flush(&mut self) {
        // One more than may be, so that it shows that there are too many.
        if self.last.1 > 0 && self.counts.len() <= self.most {
            *self.counts.entry(self.last.0).or_default() += self.last.1;
        }
        self.last.1 = 0;
    }

    /// Whether there are more buckets than are kept.
    pub(super) fn is_over(&self) -> bool {
        self.counts.len() > self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_whole_numbers_are_those_of_all_values_in_order() {
        let mut random = fastrand::Rng::with_seed(3);
        for (count, most) in [(1, 500), (2, 500), (7, 500), (100, 20), (2_000, 500), (2_000, 100_000), (2_000, 1 << 40)]
        {
            let mut values: Vec<i64> = (0..count).map(|_| random.i64(-most..most)).collect();
            let codes: Vec<u64> = values.iter().map(|value| value.to_u64()).collect();
            values.sort_unstable();
            let (min, max) = (values[0].to_u64(), values[count - 1].to_u64());
            let mut tally = CountTally::new(FieldKind::Integer(64), min, max);
            codes.chunks(64).for_each(|codes| tally.add(codes));
            let percents = [50.0, 0.0, 1.0, 25.0, 99.0, 100.0, 50.0];
            let found = tally.percentiles(&percents).expect("few values");
            for (percent, found) in percents.into_iter().zip(found) {
                let at = ((percent / 100.0 * count as f64) as usize).min(count - 1);
                assert_eq!(found, Some(values[at] as f64), "{percent} of {count}");
            }
        }
        let mut none = CountTally::new(FieldKind::Integer(64), u64::MAX, 0);
        assert_eq!(none.percentiles(&[50.0]), Some(vec![None]));
        let mut many = CountTally::new(FieldKind::UnsignedLong, 0, u64::MAX);
        many.add(&vec![u64::MAX; FAR_MAX - 1]);
        assert_eq!(many.percentiles(&[100.0]), Some(vec![Some(u64::MAX as f64)]));
        many.add(&[u64::MAX]);
        assert!(many.is_over() && many.percentiles(&[50.0]).is_none());
    }

    #[test]
    fn dates_before_1970_lie_in_the_buckets_that_begin_before_them() {
        let mut tally = DateTally::new(1_000, 0);
        let code = |millis: i64| (millis * NANOS).to_u64();
        tally.add(&[-1, -1_000, 0, 999, 1_000, -1].map(code));
        assert!(tally.add_zone(code(1_000), code(1_999), 5) && !tally.add_zone(code(999), code(1_000), 5));
        tally.flush();
        assert_eq!(tally.counts, BTreeMap::from([(-1_000, 3), (0, 2), (1_000, 6)]));
        assert!(!tally.is_over());
        tally.most = 4;
        tally.add(&(0..1_000).map(|at| code(at * 1_000)).collect::<Vec<_>>());
        tally.flush();
        assert!(tally.is_over() && tally.counts.len() == 5, "it keeps no more than it may, and says so");
    }

    #[test]
    fn tallies_say_how_much_memory_they_take_at_most() {
        for (min, max, bytes) in [(5, 5, 4), (0, 999, 4_000), (0, u64::MAX, 33_554_436), (u64::MAX, 0, 4)] {
            assert_eq!(CountTally::bytes(min, max), bytes, "{min} to {max}");
        }
        for (max, codes, bytes) in
            [(63, 1 << 30, 8), (BITS_MAX - 1, 1, 8 << 20), (BITS_MAX, 10, 180), (u64::MAX, 1 << 40, 18_874_386)]
        {
            assert_eq!(DistinctTally::bytes(max, codes), bytes, "{codes} up to {max}");
        }
    }

    #[test]
    fn different_values_are_counted_as_bits_and_one_by_one() {
        for max in [1_000, u64::MAX] {
            let mut tally = DistinctTally::new(max);
            tally.add(&[5, 1_000, 64, 5, 63]);
            assert_eq!((tally.count(), tally.codes()), (Some(4), vec![5, 63, 64, 1_000]));
        }
        let mut tally = DistinctTally::new(u64::MAX);
        tally.add(&(0..=DISTINCT_MAX as u64).collect::<Vec<_>>());
        assert_eq!(tally.count(), None);
    }
}
