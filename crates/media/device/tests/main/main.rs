//! The promises of the contract, kept by every kind of device; and the proof that the simulators would notice if not.
//!
//! Randomised tests run over a few fixed seeds and name the one that failed; `SEED=n cargo test -p device` runs only it.

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
