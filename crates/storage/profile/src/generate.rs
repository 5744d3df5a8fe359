//! Streams of accesses with a known shape, from a seed: what estimates and simulations are tested with.
//!
//! Keys are numbers from 0; the caller hashes them. Pure.

/// The shape of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Independent draws by Zipf's law: the key of rank r has the weight r^-skew.
    Zipf {
        /// The exponent; 0: all keys are equally likely.
        skew: f64,
    },
    /// All keys in turn, again and again: an LRU cache has either every hit or none.
    Loop,
    /// Zipf's law with skew 0.9; now and then a scan over a sixteenth of all keys, in order.
    Scans,
    /// Zipf's law with skew 1 over one half of the keys, then over the other one.
    PhaseShift,
}

/// The keys of a stream.
#[derive(Debug)]
pub struct Generated {
    shape: Shape,
    keys: u64,
    accesses: u64,
    done: u64,
    /// The sums of the weights of ranks.
    sums: Vec<f64>,
    /// What is left of a scan: the next key, and how many.
    scan: (u64, u64),
    random: fastrand::Rng,
}

/// A stream of so many accesses to so many keys. Panics without keys.
pub fn generate(shape: Shape, keys: u32, accesses: u64, seed: u64) -> Generated {
    assert!(keys > 1, "a stream has two keys");
    let (ranks, skew) = match shape {
        Shape::Zipf { skew } => (keys, skew),
        Shape::Loop => (0, 0.0),
        Shape::Scans => (keys, 0.9),
        Shape::PhaseShift => (keys / 2, 1.0),
    };
    let mut sum = 0.0;
    let weight = |rank: u32| {
        sum += f64::from(rank).powf(-skew);
        sum
    };
    Generated {
        shape,
        keys: keys.into(),
        accesses,
        done: 0,
        sums: (1..=ranks).map(weight).collect(),
        scan: (0, 0),
        random: fastrand::Rng::with_seed(seed),
    }
}

impl Generated {
    fn rank(&mut self) -> u64 {
        let wanted = self.random.f64() * self.sums.last().copied().unwrap_or(0.0);
        self.sums.partition_point(|sum| *sum < wanted) as u64
    }
}

impl Iterator for Generated {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.done == self.accesses {
            return None;
        }
        self.done += 1;
        Some(match self.shape {
            Shape::Zipf { .. } => self.rank(),
            Shape::Loop => (self.done - 1) % self.keys,
            Shape::Scans => {
                let length = self.keys / 16;
                if self.scan.1 == 0 && self.random.u64(..4 * length.max(1)) == 0 {
                    self.scan = (self.random.u64(..self.keys - length), length);
                }
                let (next, left) = self.scan;
                if left > 0 {
                    self.scan = (next + 1, left - 1);
                    next
                } else {
                    self.rank()
                }
            }
            Shape::PhaseShift => {
                let second = if self.done > self.accesses / 2 { self.keys / 2 } else { 0 };
                self.rank() + second
            }
        })
    }
}
