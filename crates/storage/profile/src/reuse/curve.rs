//! Miss-ratio curves: what part of all accesses an LRU cache of some size misses.

use super::Histogram;
use super::histogram::bounds;
use super::histogram::bucket_of;
use super::shards::Sampled;

/// Accesses by their distances; sums, so that those of several hours or structures can be added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReuseCounts {
    /// All accesses: exact.
    pub accesses: u64,
    /// First accesses to a key: an estimate if keys were sampled.
    pub first: f64,
    /// Accesses to keys that were used before, by distance in bytes: an estimate too.
    pub distances: Histogram,
}

impl ReuseCounts {
    /// Counts an access; `None`: it is not in the sample.
    pub fn count(&mut self, sampled: Option<Sampled>) {
        self.accesses += 1;
        self.add_sampled(sampled);
    }

    /// Adds what the sample says about an access that is counted elsewhere.
    pub(crate) fn add_sampled(&mut self, sampled: Option<Sampled>) {
        match sampled {
            None => {}
            Some(Sampled { distance: None, stands_for }) => self.first += stands_for,
            Some(Sampled { distance: Some(distance), stands_for }) => self.distances.add(distance, stands_for),
        }
    }

    /// Counts an access whose distance is exact.
    pub fn count_exact(&mut self, distance: Option<u64>) {
        self.count(Some(Sampled { distance, stands_for: 1.0 }));
    }

    /// Adds others.
    pub fn merge(&mut self, other: &ReuseCounts) {
        self.accesses = self.accesses.saturating_add(other.accesses);
        self.first += other.first;
        self.distances.merge(&other.distances);
    }

    /// How many accesses the sample has too few (above 0) or too many: they are taken to be hits in any cache, because the few keys
    /// that are used most make the difference.
    pub fn adjustment(&self) -> f64 {
        self.accesses as f64 - self.first - self.distances.sum()
    }

    /// The curve.
    pub fn curve(&self) -> MissRatioCurve {
        MissRatioCurve::of(self)
    }
}

/// The part of all accesses that an LRU cache misses, by its size. It never rises.
#[derive(Clone, Debug, PartialEq)]
pub struct MissRatioCurve {
    /// Hits of a cache as large as the largest value of a bucket, as parts of all accesses; bucket after bucket.
    hits: Vec<f64>,
}

impl MissRatioCurve {
    /// The curve of these accesses. Without any, nothing is missed.
    pub fn of(counts: &ReuseCounts) -> MissRatioCurve {
        if counts.accesses == 0 {
            return MissRatioCurve { hits: vec![1.0] };
        }
        let all = counts.accesses as f64;
        let mut hits = vec![0.0; counts.distances.len().max(1)];
        for (bucket, count) in counts.distances.buckets() {
            hits[bucket] = count;
        }
        let mut sum = counts.adjustment();
        let mut highest = 0.0f64;
        for hit in &mut hits {
            sum += *hit;
            highest = highest.max((sum / all).clamp(0.0, 1.0));
            *hit = highest;
        }
        MissRatioCurve { hits }
    }

    /// The miss ratio, 0 to 1, of a cache of so many bytes.
    pub fn miss_ratio(&self, bytes: u64) -> f64 {
        if bytes == 0 {
            return 1.0;
        }
        let bucket = bucket_of(bytes);
        let Some(upto) = self.hits.get(bucket) else { return 1.0 - self.hits.last().copied().unwrap_or(0.0) };
        let before = if bucket == 0 { 0.0 } else { self.hits[bucket - 1] };
        let (first, last) = bounds(bucket);
        let part = (bytes - first + 1) as f64 / (last - first + 1) as f64;
        1.0 - (before + (upto - before) * part)
    }

    /// The smallest cache with at most this miss ratio, bytes; `None` if no cache has it.
    pub fn bytes_for(&self, miss_ratio: f64) -> Option<u64> {
        let bucket = self.hits.iter().position(|hits| 1.0 - hits <= miss_ratio + 1e-12)?;
        Some(bounds(bucket).1)
    }

    /// Beyond this size a cache has no more hits, bytes.
    pub fn largest(&self) -> u64 {
        self.hits.len().checked_sub(1).map_or(0, |last| bounds(last).1)
    }
}

/// The mean absolute difference of two curves at so many sizes, in equal steps up to `bytes`.
pub fn mean_absolute_error(one: &MissRatioCurve, two: &MissRatioCurve, bytes: u64, sizes: u32) -> f64 {
    let step = bytes as f64 / f64::from(sizes.max(1));
    let at = |number: u32| (f64::from(number) * step).round() as u64;
    let sum: f64 = (1..=sizes).map(|number| (one.miss_ratio(at(number)) - two.miss_ratio(at(number))).abs()).sum();
    sum / f64::from(sizes.max(1))
}
