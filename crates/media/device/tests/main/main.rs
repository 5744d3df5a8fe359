//! Tests of the guarantees of the contract for every kind of device, and tests that the simulators detect a violation.
//!
//! Randomised tests run with a few fixed seeds and print the seed of a failure; `SEED=n cargo test -p device` runs only
//! this seed.

mod batch;
mod canary;
mod conformance;
mod crash;
mod crash_pmem;
mod faulty;
mod file;
mod pmem;
mod power;

/// The seeds of a randomised test: the one in the environment, or the first `count`.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}
