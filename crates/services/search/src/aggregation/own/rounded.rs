//! [`RoundedCounts`]: quantiles of positive numbers from counts in buckets whose width is a share of the value, as HdrHistogram
//! keeps them: each value is known to so many decimal digits, and a quantile is the greatest value of its bucket.

use std::collections::BTreeMap;

use crate::error::SearchError;

/// The most buckets: 64 bytes each.
const BUCKETS_MAX: usize = 1 << 20;

/// Counts of numbers.
pub(super) struct RoundedCounts {
    /// Bits of a value that are kept after the first.
    bits: i32,
    /// By the exponent of two, and the kept bits.
    counts: BTreeMap<(i32, u64), u64>,
    zeros: u64,
    total: u64,
}

impl RoundedCounts {
    /// Values keep so many decimal digits.
    pub(super) fn new(digits: u32) -> RoundedCounts {
        // As many buckets for a power of two as twice the power of ten has, in whole bits.
        let bits = (2 * 10_u64.pow(digits)).next_power_of_two().trailing_zeros() as i32 - 1;
        RoundedCounts { bits, counts: BTreeMap::new(), zeros: 0, total: 0 }
    }

    /// Errors: the number is negative, too many different ones.
    pub(super) fn add(&mut self, value: f64) -> Result<(), SearchError> {
        if value < 0.0 || !value.is_finite() {
            return Err(SearchError::argument(format!("[hdr] takes numbers from 0 on, and a document has [{value}]")));
        }
        self.total += 1;
        if value == 0.0 {
            self.zeros += 1;
            return Ok(());
        }
        let exponent = exponent(value);
        let kept = (value / 2_f64.powi(exponent - self.bits)).floor() as u64;
        *self.counts.entry((exponent, kept)).or_insert(0) += 1;
        match self.counts.len() > BUCKETS_MAX {
            true => Err(SearchError::new(429, "circuit_breaking_exception", "[hdr] has too many different values")),
            false => Ok(()),
        }
    }

    /// The greatest value of a bucket, in the steps of the finest one.
    fn end(&self, (exponent, kept): (i32, u64)) -> f64 {
        let finest = self.counts.keys().next().map_or(0, |(exponent, _)| *exponent);
        let step = 2_f64.powi(exponent - self.bits);
        (kept as f64 + 1.0) * step - 2_f64.powi(finest - self.bits)
    }

    /// The value at a quantile from 0 to 1.
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        let wanted = ((quantile * self.total as f64 + 0.5) as u64).max(1);
        let mut seen = self.zeros;
        if seen >= wanted {
            return Some(0.0);
        }
        let mut last = None;
        for (bucket, count) in &self.counts {
            seen += count;
            last = Some(self.end(*bucket));
            if seen >= wanted {
                break;
            }
        }
        last
    }

    /// The share of the numbers that are at most `value`, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        if value < 0.0 {
            return Some(0.0);
        }
        let up_to: u64 = match value == 0.0 {
            true => 0,
            false => {
                let exponent = exponent(value);
                let kept = (value / 2_f64.powi(exponent - self.bits)).floor() as u64;
                self.counts.range(..=(exponent, kept)).map(|(_, count)| count).sum()
            }
        };
        Some((self.zeros + up_to) as f64 / self.total as f64)
    }
}

/// The exponent of two of a positive number.
fn exponent(value: f64) -> i32 {
    let exponent = value.log2().floor() as i32;
    // The logarithm rounds near a power of two.
    match value < 2_f64.powi(exponent) {
        true => exponent - 1,
        false if value >= 2_f64.powi(exponent + 1) => exponent + 1,
        false => exponent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_greatest_values_of_their_buckets() {
        let mut counts = RoundedCounts::new(3);
        [1.0, 51.0, 101.0, 151.0].into_iter().for_each(|value| counts.add(value).expect("positive"));
        for (quantile, value) in
            [(0.01, 1.0), (0.25, 1.0), (0.5, 51.030_273_437_5), (0.75, 101.061_523_437_5), (0.99, 151.124_023_437_5)]
        {
            assert_eq!(counts.quantile(quantile), Some(value), "{quantile}");
        }
        assert_eq!(counts.share(101.0), Some(0.75));
        assert!(counts.add(-1.0).is_err());
        assert_eq!(RoundedCounts::new(0).quantile(0.5), None);
    }
}
