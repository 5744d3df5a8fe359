//! Distances against their definition, and estimates against exact ones.

use super::*;
use crate::generate::{Shape, generate};
use crate::hash::Salt;

/// The distance by definition: the bytes of the keys in front of it in a list of all, most recently used first.
#[derive(Default)]
struct Stack(Vec<(u64, u64)>);

impl Stack {
    fn access(&mut self, key: u64, bytes: u64) -> Option<u64> {
        let at = self.0.iter().position(|entry| entry.0 == key);
        let before = at.map(|at| self.0[..at].iter().map(|entry| entry.1).sum::<u64>() + bytes);
        if let Some(at) = at {
            self.0.remove(at);
        }
        self.0.insert(0, (key, bytes));
        before
    }
}

#[test]
fn distances_are_those_of_a_list_of_all_keys_also_when_sizes_change_and_keys_go() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut stack, mut distances) = (Stack::default(), StackDistances::default());
        for step in 0..6000 {
            let key = random.u64(..random.clone().u64(1..400));
            if random.u8(..) < 4 {
                stack.0.retain(|entry| entry.0 != key);
                distances.remove(key);
                continue;
            }
            let bytes = random.u64(1..5000);
            let wanted = stack.access(key, bytes);
            assert_eq!(distances.access(key, bytes), wanted, "seed {seed}, step {step}");
        }
        assert_eq!(distances.keys(), stack.0.len(), "seed {seed}");
        assert_eq!(distances.bytes(), stack.0.iter().map(|entry| entry.1).sum::<u64>());
    }
}

/// The exact counts and those of a sample, and the bytes of all keys.
fn both(keys: impl Iterator<Item = u64>, bytes: impl Fn(u64) -> u64, sample: usize) -> (ReuseCounts, ReuseCounts, u64) {
    let salt = Salt::of_seed(7);
    let (mut distances, mut shards) = (StackDistances::default(), Shards::new(sample));
    let (mut exact, mut sampled) = (ReuseCounts::default(), ReuseCounts::default());
    for key in keys {
        exact.count_exact(distances.access(key, bytes(key)));
        sampled.count(shards.access(salt.hash(key), bytes(key)));
    }
    let in_sample = shards.touched().0 * shards.rate();
    assert!(in_sample < sample as f64 + 0.5, "{in_sample} keys in a sample of {sample}");
    (exact, sampled, distances.bytes())
}

#[test]
fn a_sample_of_the_usual_size_is_within_a_hundredth_of_the_exact_curve() {
    let shapes = [
        Shape::Zipf { skew: 0.6 },
        Shape::Zipf { skew: 0.9 },
        Shape::Zipf { skew: 1.2 },
        Shape::Loop,
        Shape::Scans,
        Shape::PhaseShift,
    ];
    for shape in shapes {
        for (sizes, name) in [(0, "pages"), (1, "objects of many sizes")] {
            let size = |key: u64| if sizes == 0 { 8192 } else { 100 + key.wrapping_mul(0x9E37_79B9) % 8000 };
            let (exact, sampled, bytes) = both(generate(shape, 100_000, 400_000, 3), size, KEYS_DEFAULT);
            let error = mean_absolute_error(&exact.curve(), &sampled.curve(), bytes, 100);
            assert!(error < 0.01, "{shape:?}, {name}: {error}");
        }
    }
}

#[test]
fn a_sample_that_holds_every_key_is_exact() {
    let (exact, sampled, _) = both(generate(Shape::Zipf { skew: 0.8 }, 5000, 50_000, 9), |_| 4096, 5000);
    assert_eq!(exact, sampled);
    assert!(sampled.adjustment().abs() < 1e-6);
}

#[test]
fn a_loop_has_all_hits_or_none() {
    let (exact, _, bytes) = both(generate(Shape::Loop, 1000, 10_000, 1), |_| 10, 2000);
    let curve = exact.curve();
    assert_eq!(bytes, 10_000);
    assert!((curve.miss_ratio(9_000) - 1.0).abs() < 1e-9);
    assert!((curve.miss_ratio(10_100) - 0.1).abs() < 1e-9, "the first round misses");
    assert_eq!(curve.miss_ratio(u64::MAX), curve.miss_ratio(curve.largest()));
    assert!((9_900..10_200).contains(&curve.bytes_for(0.5).expect("a cache has it")));
    assert_eq!((curve.bytes_for(0.05), curve.miss_ratio(0)), (None, 1.0));
    assert_eq!(ReuseCounts::default().curve().miss_ratio(5), 0.0, "nothing was used, nothing is missed");
}

#[test]
fn counts_of_two_halves_are_those_of_the_whole() {
    let (mut distances, mut halves) = (StackDistances::default(), [ReuseCounts::default(), ReuseCounts::default()]);
    for (number, key) in generate(Shape::Scans, 1000, 10_000, 4).enumerate() {
        halves[number / 5000].count_exact(distances.access(key, 1));
    }
    let (whole, _, _) = both(generate(Shape::Scans, 1000, 10_000, 4), |_| 1, 1000);
    let [mut sum, second] = halves;
    sum.merge(&second);
    assert_eq!(sum, whole);
}
