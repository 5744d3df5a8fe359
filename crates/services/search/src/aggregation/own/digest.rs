//! [`Digest`]: quantiles of many numbers in bounded memory, by the merging t-digest of T. Dunning ("Computing extremely accurate
//! quantiles using t-digests", 2019): exact while there are few numbers, finest at both ends of the order.

/// Values that wait for the next merge, for each unit of compression.
const WAITING: usize = 10;

/// A group of numbers near each other.
#[derive(Clone, Copy, Debug)]
struct Centroid {
    mean: f64,
    weight: f64,
}

/// Numbers, in order, in groups.
pub(super) struct Digest {
    compression: f64,
    merged: Vec<Centroid>,
    waiting: Vec<Centroid>,
    total: f64,
    min: f64,
    max: f64,
}

impl Digest {
    /// `compression` is about the number of groups.
    pub(super) fn new(compression: f64) -> Digest {
        let compression = compression.clamp(10.0, 10_000.0);
        Digest {
            compression,
            merged: Vec::new(),
            waiting: Vec::new(),
            total: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }

    pub(super) fn add(&mut self, value: f64) {
        self.add_group(value, 1.0);
    }

    /// Adds so many equal numbers.
    pub(super) fn add_group(&mut self, value: f64, weight: f64) {
        self.waiting.push(Centroid { mean: value, weight });
        self.total += weight;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        if self.waiting.len() >= self.compression as usize * WAITING {
            self.merge();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.total == 0.0
    }

    /// Groups with their weights, in order.
    pub(super) fn groups(&mut self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.merge();
        self.merged.iter().map(|centroid| (centroid.mean, centroid.weight))
    }

    /// Joins neighbours whose weight stays below the bound at their place, `4 n q (1 - q) / compression`.
    fn merge(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.append(&mut self.merged);
        self.waiting.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let mut before = 0.0;
        for next in self.waiting.drain(..) {
            let Some(last) = self.merged.last_mut() else {
                self.merged.push(next);
                continue;
            };
            let weight = last.weight + next.weight;
            let middle = (before + weight / 2.0) / self.total;
            if weight <= 4.0 * self.total * middle * (1.0 - middle) / self.compression {
                last.mean += (next.mean - last.mean) * next.weight / weight;
                last.weight = weight;
            } else {
                before += last.weight;
                self.merged.push(next);
            }
        }
    }

    /// The value at a quantile from 0 to 1. A group of one number is that number; between two larger groups the value lies where
    /// the quantile lies between their middles.
    pub(super) fn quantile(&mut self, quantile: f64) -> Option<f64> {
        self.merge();
        let (first, last) = (*self.merged.first()?, *self.merged.last()?);
        let place = quantile * self.total;
        if place < 1.0 {
            return Some(self.min);
        }
        if place > self.total - 1.0 {
            return Some(self.max);
        }
        if first.weight > 1.0 && place < first.weight / 2.0 {
            return Some(self.min + (place - 1.0) / (first.weight / 2.0 - 1.0) * (first.mean - self.min));
        }
        if last.weight > 1.0 && self.total - place <= last.weight / 2.0 {
            let part = (self.total - place - 1.0) / (last.weight / 2.0 - 1.0);
            return Some(self.max - part * (self.max - last.mean));
        }
        let mut before = first.weight / 2.0;
        for two in self.merged.windows(2) {
            let (left, right) = (two[0], two[1]);
            let step = f64::midpoint(left.weight, right.weight);
            if before + step > place {
                let (to_left, to_right) = (place - before, before + step - place);
                if left.weight == 1.0 && to_left < 0.5 {
                    return Some(left.mean);
                }
                if right.weight == 1.0 && to_right <= 0.5 {
                    return Some(right.mean);
                }
                let to_left = to_left - if left.weight == 1.0 { 0.5 } else { 0.0 };
                let to_right = to_right - if right.weight == 1.0 { 0.5 } else { 0.0 };
                let whole = to_left + to_right;
                let value = if whole > 0.0 { (left.mean * to_right + right.mean * to_left) / whole } else { left.mean };
                return Some(value.clamp(left.mean, right.mean));
            }
            before += step;
        }
        Some(self.max)
    }

    /// The share of the numbers that are at most `value`, from 0 to 1.
    pub(super) fn share(&mut self, value: f64) -> Option<f64> {
        self.merge();
        if self.is_empty() {
            return None;
        }
        if value < self.min {
            return Some(0.0);
        }
        if value >= self.max {
            return Some(1.0);
        }
        let mut before = 0.0;
        let mut last = (0.0, self.min);
        for Centroid { mean, weight } in &self.merged {
            let middle = before + weight / 2.0;
            if value < *mean {
                let span = mean - last.1;
                let part = if span > 0.0 { (value - last.1) / span } else { 0.0 };
                return Some((last.0 + part * (middle - last.0)) / self.total);
            }
            last = (middle, *mean);
            before += weight;
        }
        let span = self.max - last.1;
        let part = if span > 0.0 { (value - last.1) / span } else { 1.0 };
        Some((last.0 + part * (self.total - last.0)) / self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_exact_and_many_are_near() {
        let mut few = Digest::new(100.0);
        [1.0, 51.0, 101.0, 151.0].into_iter().for_each(|value| few.add(value));
        for (quantile, value) in [(0.01, 1.0), (0.05, 1.0), (0.25, 51.0), (0.5, 101.0), (0.75, 151.0), (0.99, 151.0)] {
            assert_eq!(few.quantile(quantile), Some(value), "{quantile}");
        }
        let mut many = Digest::new(100.0);
        (0..100_000).for_each(|number| many.add(f64::from((number * 7919) % 100_000)));
        for quantile in [0.001, 0.01, 0.5, 0.9, 0.999] {
            let found = many.quantile(quantile).expect("values");
            assert!((found / 100_000.0 - quantile).abs() < 0.005, "{quantile}: {found}");
            let share = many.share(found).expect("values");
            assert!((share - quantile).abs() < 0.005, "{quantile}: {share}");
        }
        assert!(many.groups().count() < 1_000);
        assert_eq!(Digest::new(100.0).quantile(0.5), None);
    }
}
