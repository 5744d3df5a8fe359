//! Latencies in buckets that widen with the value: 64 to every power of two.
//!
//! ```text
//! value   0..63   64..127   128..255   256..511 ...
//! bucket  1 wide  1 wide    2 wide     4 wide   ...      so a quantile is at most 1/64 = 1.6 % too high
//! ```
//!
//! Recording is a shift and an increment, no allocation. Not for concurrent use.

const BITS: u32 = 6;
const SUB: u64 = 1 << BITS;

/// Counts of values (of one unit, chosen by the caller).
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    largest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let groups = u64::from(u64::BITS - BITS) + 1;
        Histogram { buckets: vec![0; usize::try_from(groups * SUB).expect("3,776 fits")], count: 0, largest: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.largest = self.largest.max(value);
    }

    /// Counts all values of another one, too.
    pub fn add(&mut self, other: &Histogram) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.largest = self.largest.max(other.largest);
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The value that the share `quantile` (0 to 1) of all values does not exceed; 0 if nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((quantile.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return highest(index).min(self.largest);
            }
        }
        self.largest
    }
}

fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    usize::try_from(u64::from(shift) * SUB + (value >> shift)).expect("below 3,776")
}

/// The largest value that falls into a bucket.
fn highest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / SUB).saturating_sub(1);
    let base = bucket - shift * SUB;
    ((base << shift) | ((1 << shift) - 1)).max(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_its_bucket_and_a_sixtyfourth_of_its_top() {
        let mut rng = fastrand::Rng::with_seed(7);
        let edges = [0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 1 << 40, u64::MAX];
        for value in edges.into_iter().chain((0..10_000).map(|_| rng.u64(..) >> rng.u32(0..64))) {
            let top = highest(bucket(value));
            assert!(top >= value, "{value} is above its bucket's top {top}");
            assert!(top - value <= value / SUB, "{value} is far below its bucket's top {top}");
        }
    }

    #[test]
    fn quantiles_agree_with_sorting() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut histogram = Histogram::default();
        let mut values: Vec<u64> = (0..10_001).map(|_| rng.u64(0..5_000_000)).collect();
        values.iter().for_each(|value| histogram.record(*value));
        values.sort_unstable();
        for (quantile, exact) in [(0.5, values[5_000]), (0.99, values[9_900]), (0.999, values[9_990])] {
            let found = histogram.quantile(quantile);
            assert!(found >= exact && found - exact <= exact / SUB + 1, "{quantile}: {found} against {exact}");
        }
        assert_eq!(histogram.quantile(1.0), values[10_000]);
    }

    #[test]
    fn two_histograms_together_are_one_of_all_values() {
        let mut rng = fastrand::Rng::with_seed(13);
        let (mut first, mut second, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
        for _ in 0..1_000 {
            let value = rng.u64(0..1 << 30);
            if rng.bool() {
                first.record(value)
            } else {
                second.record(value)
            }
            all.record(value);
        }
        first.add(&second);
        for quantile in [0.0, 0.1, 0.5, 0.99, 1.0] {
            assert_eq!(first.quantile(quantile), all.quantile(quantile));
        }
        assert_eq!(first.count(), 1_000);
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
