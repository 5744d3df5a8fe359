//! Latencies with two significant digits, whatever their size: a quantile is at most 1 % off. The buckets are hdrhistogram's.
//!
//! Not for concurrent use: each thread has its own, and adds it to another's at the end.

use hdrhistogram::Histogram as Buckets;

/// Significant decimal digits that are kept.
const DIGITS: u8 = 2;

/// Counts of values (of one unit, chosen by the caller).
#[derive(Clone, Debug)]
pub struct Histogram(Buckets<u64>);

impl Default for Histogram {
    fn default() -> Self {
        // Room for all values from the start: recording does not allocate.
        Histogram(Buckets::new_with_bounds(1, u64::MAX / 2, DIGITS).expect("bounds and digits are in range"))
    }
}

impl Histogram {
    /// Counts one value; one of 2^63 - 1 or more counts as that.
    pub fn record(&mut self, value: u64) {
        self.0.saturating_record(value);
    }

    /// Counts all values of another one, too.
    pub fn add(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value that the share `quantile` (0 to 1) of all values does not exceed; 0 if nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile.clamp(0.0, 1.0)).min(self.0.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_sorting() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut histogram = Histogram::default();
        let mut values: Vec<u64> = (0..10_001).map(|_| rng.u64(0..5_000_000)).collect();
        values.iter().for_each(|value| histogram.record(*value));
        values.sort_unstable();
        for (quantile, exact) in [(0.5, values[5_000]), (0.99, values[9_900]), (0.999, values[9_990])] {
            let found = histogram.quantile(quantile);
            assert!(found.abs_diff(exact) <= exact / 100 + 1, "{quantile}: {found} against {exact}");
        }
        assert!(histogram.quantile(1.0).abs_diff(values[10_000]) <= values[10_000] / 100 + 1);
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
    fn no_value_is_too_large_or_too_small() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0, "an empty one");
        [0, 1, u64::MAX].into_iter().for_each(|value| histogram.record(value));
        assert_eq!(histogram.count(), 3);
        assert!(histogram.quantile(0.0) <= 1 && histogram.quantile(1.0) > u64::MAX / 3);
    }
}
