//! Medians with 95 % intervals: by order statistics for few ratios, by the bootstrap for the difference of many samples.

use serde::Serialize;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 1_000;

/// A median and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How sure the interval is, in percent: 95 or more, less where there are too few values.
    pub percent: f64,
}

/// The median, the upper one of an even number; 0 of nothing.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

/// The median of a few values, between the two of them that hold it with 95 % (each value lies below it with one chance in two).
pub(crate) fn by_order(values: &[f64]) -> Interval {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len();
    if count == 0 {
        return Interval { median: 0.0, low: 0.0, high: 0.0, percent: 0.0 };
    }
    // The chance that at most `cut` of the values are below it, for ever larger cuts.
    let mut chance = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut below, mut cut, mut outside) = (chance, 0, 2.0 * chance);
    for next in 1..count / 2 {
        chance *= (count - next + 1) as f64 / next as f64;
        below += chance;
        if 2.0 * below > 0.05 {
            break;
        }
        (cut, outside) = (next, 2.0 * below);
    }
    let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
    let percent = (1.0 - outside).max(0.0) * 100.0;
    Interval { median, low: sorted[cut], high: sorted[count - 1 - cut], percent }
}

/// How far the median of the second is above that of the first, in percent of the first; the interval is between the quantiles of
/// bootstrap resamples.
pub(crate) fn difference(first: &[f64], second: &[f64], random: &mut fastrand::Rng) -> Interval {
    let percent = |first: &mut [f64], second: &mut [f64]| {
        let base = median(first);
        if base > 0.0 { (median(second) - base) / base * 100.0 } else { 0.0 }
    };
    let found = percent(&mut first.to_vec(), &mut second.to_vec());
    let mut draw =
        |values: &[f64]| -> Vec<f64> { values.iter().map(|_| values[random.usize(..values.len())]).collect() };
    let mut drawn: Vec<f64> = (0..RESAMPLES).map(|_| percent(&mut draw(first), &mut draw(second))).collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| drawn[((RESAMPLES - 1) as f64 * part).round() as usize];
    Interval { median: found, low: at(0.025), high: at(0.975), percent: 95.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_few_values_is_that_of_the_sign_test() {
        // Of 20 values the 6th to the 15th hold the median with 95.86 %.
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let found = by_order(&values);
        assert_eq!((found.median, found.low, found.high), (10.5, 6.0, 15.0));
        assert!((found.percent - 95.86).abs() < 0.01, "{found:?}");
        // Five values cannot hold it with 95 %.
        let found = by_order(&values[..5]);
        assert_eq!((found.low, found.high), (1.0, 5.0));
        assert!((found.percent - 93.75).abs() < 0.01, "{found:?}");
        assert_eq!(by_order(&[]).percent, 0.0);
    }

    #[test]
    fn samples_of_one_distribution_do_not_differ_and_those_that_are_shifted_do() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut draw = |shift: f64| (0..4_000).map(|_| 100.0 + shift + random.f64() * 10.0).collect::<Vec<f64>>();
        let (first, same, later) = (draw(0.0), draw(0.0), draw(5.0));
        let mut random = fastrand::Rng::with_seed(4);
        let found = difference(&first, &same, &mut random);
        assert!(found.median.abs() < 1.0 && found.low < found.high, "{found:?}");
        let found = difference(&first, &later, &mut random);
        assert!((found.median - 4.8).abs() < 1.0 && found.low > 2.0, "{found:?}");
    }
}
