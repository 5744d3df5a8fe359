//! What rights cost, and what they give away: times of refusals, the rate with rights and without, reads in the audit.
//!
//! ```text
//!   timing   pairs of requests that must not be told apart, one after the other in random order, over each port
//!   cost     T4 and queries in turns: roles, rights and the mask on, and the same by who has all rights without a mask
//!   reads    bodies read by several users beside T4; then the audit is walked: each read is there once, before its answer
//! ```
//!
//! The slowing-down of failed logins is not switched off: on this machine it counts failures by user and address together, so
//! each sample of a login comes from an address of its own, of the 16 million in 127.0.0.0/8. The audit has entries of 20
//! failures in 10 seconds at most; which of two logins of a pair gets one is as random as their order.
//!
//! Invariants: the node is the real program over real sockets; everything random comes from the printed seed; no sample is left
//! out but those of the warm-up.
//!
//! Not here: whether a right is asked for at all (system tests of `terrace`, `access`).

mod cost;
pub(crate) mod place;
mod reads;
mod report;
mod timing;

use std::path::PathBuf;
use std::time::Duration;

pub use reads::ReadsRun;
pub use report::{AccessConfig, AccessReport};
pub use timing::TimingRun;

pub use crate::statistics::Interval;
pub use crate::turns::CostRun;

use workload::interrupt;

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPart {
    /// Times of refusals.
    Timing,
    /// The rate with rights and without.
    Cost,
    /// Reads in the audit.
    Reads,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct AccessOptions {
    /// Only this part. Default: all.
    pub only: Option<AccessPart>,
    /// Samples of each request of a pair.
    pub samples: usize,
    /// Turns of each side.
    pub pairs: usize,
    /// Length of a turn of queries.
    pub turn: Duration,
    /// Inbound services of T4, and messages to each.
    pub t4: (usize, usize),
    /// Users that read bodies.
    pub users: usize,
    /// Bodies that they read together.
    pub reads: usize,
    /// Messages a second beside the reads.
    pub messages_per_s: f64,
    /// The seed.
    pub seed: u64,
    /// The program of the side without rights, as one of a release before them. Default: the program under test.
    pub against: Option<PathBuf>,
}

impl AccessOptions {
    /// The run for results.
    pub fn full() -> AccessOptions {
        AccessOptions {
            only: None,
            samples: 10_000,
            pairs: 20,
            turn: Duration::from_secs(2),
            t4: (128, 400),
            users: 10,
            reads: 100_000,
            messages_per_s: 500.0,
            seed: 1,
            against: None,
        }
    }

    /// A run of about a minute, whose figures say nothing.
    pub fn quick() -> AccessOptions {
        AccessOptions {
            samples: 40,
            pairs: 2,
            turn: Duration::from_millis(300),
            t4: (4, 25),
            reads: 200,
            messages_per_s: 50.0,
            ..AccessOptions::full()
        }
    }

    fn has(&self, part: AccessPart) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

/// Runs it.
///
/// # Errors
/// If a node cannot be started or ends. What is missed is in the report.
pub fn run(options: &AccessOptions) -> anyhow::Result<AccessReport> {
    let timing = if options.has(AccessPart::Timing) { timing::run(options)? } else { Vec::new() };
    interrupt::check()?;
    let cost = if options.has(AccessPart::Cost) { cost::run(options)? } else { Vec::new() };
    interrupt::check()?;
    let reads = if options.has(AccessPart::Reads) { Some(reads::run(options)?) } else { None };
    Ok(AccessReport::new(options, timing, cost, reads))
}
