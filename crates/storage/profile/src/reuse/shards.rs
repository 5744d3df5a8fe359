//! SHARDS: reuse distances of a sample of the keys (Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015), with a fixed
//! number of keys.
//!
//! ```text
//!   hash of the key < threshold ?   no: not sampled                              rate = threshold / 2^64
//!                                   yes: distance among the sampled keys / rate   it stands for 1 / rate accesses
//!   more than `keys_max` keys   ->  the key with the largest hash goes; its hash is the threshold from then on
//! ```
//!
//! A key is sampled always or never, so distances in the sample are those of the whole, scaled. The paper scales earlier counts down when
//! the threshold falls; here each access is counted with the rate of its time, which is the same up to one factor. The number of accesses
//! is known exactly: the difference to the sum of the sample is added at distance 0 ([`ReuseCounts`](crate::reuse::ReuseCounts)), as the paper's
//! SHARDS_adj does.
//!
//! Memory: about 50 bytes for each key of the sample.

use std::collections::BinaryHeap;

use super::StackDistances;

/// Keys of a sample, if nothing else is said: the paper's error is then a few thousandths.
pub const KEYS_DEFAULT: usize = 16 * 1024;

/// Two to the power of 64.
const HASHES: f64 = 18_446_744_073_709_551_616.0;

/// An access in the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Its distance in bytes, as in the whole; `None`: the key was not used before.
    pub distance: Option<u64>,
    /// How many accesses it stands for.
    pub stands_for: f64,
}

/// See the head comment of this file.
#[derive(Debug)]
pub struct Shards {
    distances: StackDistances,
    /// The sampled hashes, largest first.
    hashes: BinaryHeap<u64>,
    /// Hashes below are sampled; `None`: all are.
    threshold: Option<u64>,
    keys_max: usize,
}

impl Shards {
    /// A sample of at most so many keys. Panics for 0.
    pub fn new(keys_max: usize) -> Shards {
        assert!(keys_max > 0, "a sample has a key");
        Shards { distances: StackDistances::default(), hashes: BinaryHeap::new(), threshold: None, keys_max }
    }

    /// Records an access; `None` if it is not in the sample.
    ///
    /// `hash` is a well-mixed hash of the key and stands for it; `bytes` is its size.
    pub fn access(&mut self, hash: u64, bytes: u64) -> Option<Sampled> {
        if self.threshold.is_some_and(|threshold| hash >= threshold) {
            return None;
        }
        let rate = self.rate();
        let distance = self.distances.access(hash, bytes);
        if distance.is_none() {
            self.hashes.push(hash);
            if self.hashes.len() > self.keys_max
                && let Some(largest) = self.hashes.pop()
            {
                self.distances.remove(largest);
                self.threshold = Some(largest);
            }
        }
        // A key's own bytes are not a sample of anything.
        let scaled = |distance: u64| bytes.saturating_add(((distance - bytes) as f64 / rate) as u64);
        Some(Sampled { distance: distance.map(scaled), stands_for: 1.0 / rate })
    }

    /// Hashes at or above are not sampled; `None`: all are.
    pub(crate) fn threshold(&self) -> Option<u64> {
        self.threshold
    }

    /// From now on hashes at or above are not sampled, and forgotten.
    pub(crate) fn lower(&mut self, threshold: u64) {
        while self.hashes.peek().is_some_and(|hash| *hash >= threshold) {
            if let Some(hash) = self.hashes.pop() {
                self.distances.remove(hash);
            }
        }
        self.threshold = Some(self.threshold.map_or(threshold, |before| before.min(threshold)));
    }

    /// Memory that it takes, bytes: about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.distances.memory_bytes() + self.hashes.capacity() * 8
    }

    /// The part of all keys that is sampled now, above 0 to 1.
    pub fn rate(&self) -> f64 {
        self.threshold.map_or(1.0, |threshold| threshold.max(1) as f64 / HASHES)
    }

    /// The number of keys that were used so far, and their bytes now: estimates.
    pub fn touched(&self) -> (f64, f64) {
        (self.distances.keys() as f64 / self.rate(), self.distances.bytes() as f64 / self.rate())
    }
}
