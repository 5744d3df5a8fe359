//! A seeded simulation of volumes whose copies and owners fail in every way that they promise to survive.
//!
//! ```text
//!   seed --> World --> owners (each a Volume without threads) --> links --> servers, one for each copy
//!              |                                               up or down,   power failures, bit rot,
//!              |                                               fenced        lost and misdirected writes
//!              +---> History: the values that each block may have, checked at every read and acknowledgement
//!
//!   in the middle of any operation of an owner: it is killed, power fails, a link breaks, or another owner opens the volume and
//!   goes on for some steps while this one is paused
//! ```
//!
//! In the end everything works again: an owner opens the volume, brings all copies up to date, and they must be equal block by block.
//! Every second volume is encrypted: then no device of a server may have content in clear, and no two seals one stamp.
//!
//! One thread; the same seed always gives the same run. A rule of [`crate::membership`] can be left out, to show that the simulation
//! needs it.
//!
//! What it does not do: no threads (see the tests with real threads), no copies that hang, no unfenced copies beside a second owner,
//! no `accept_loss`. At most one copy has damaged blocks.

mod finish;
mod history;
mod server;
#[cfg(test)]
mod tests;
mod world;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::encryption::SealWitness;
pub use crate::rules::{Rule, leave_out};

/// Sees the stamps of all seals of a run, whoever gave them: what a nonce and its key come from.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    stamps: Mutex<HashSet<Box<[u8]>>>,
    has_repeated: AtomicBool,
    /// By terms the random bits of the opening that has sealed in it.
    terms: Mutex<BTreeMap<u32, u64>>,
    has_shared_term: AtomicBool,
}

impl SealWitness for Witness {
    fn saw(&self, stamp: &[u8]) {
        if !self.stamps.lock().insert(stamp.into()) {
            self.has_repeated.store(true, Ordering::SeqCst);
        }
        // Data key, term, random bits, counter.
        let (term, random) = (u32::from_le_bytes(stamp_part(stamp, 4)), u64::from_le_bytes(stamp_part(stamp, 8)));
        if *self.terms.lock().entry(term).or_insert(random) != random {
            self.has_shared_term.store(true, Ordering::SeqCst);
        }
    }
}

impl Witness {
    /// How many there were. Errors: one was there twice; or two openings have sealed in one term, unless that may be.
    fn check(&self, may_share_terms: bool) -> Result<usize, String> {
        if self.has_repeated.load(Ordering::SeqCst) {
            return Err("a stamp was given twice".to_owned());
        }
        if self.has_shared_term.load(Ordering::SeqCst) && !may_share_terms {
            return Err("two openings have sealed blocks in one term".to_owned());
        }
        Ok(self.stamps.lock().len())
    }
}

fn stamp_part<const N: usize>(stamp: &[u8], at: usize) -> [u8; N] {
    stamp[at..at + N].try_into().expect("a stamp has 24 bytes")
}

/// How often what happened in a run, or in several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    counts: BTreeMap<&'static str, u64>,
}

impl Report {
    fn count(&mut self, what: &'static str) {
        self.count_all(what, 1);
    }

    fn count_all(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// How often something happened; 0 if never.
    pub fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Report) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().try_for_each(|(what, count)| writeln!(f, "{count:>12}  {what}"))
    }
}

/// Runs one seed.
///
/// Errors: what was violated, after the last events of the run.
pub fn run(seed: u64) -> Result<Report, String> {
    let world = world::World::new(seed);
    let ended = world.run();
    let report = world.end();
    ended.map(|()| report).map_err(|why| format!("seed {seed}: {why}\n{}", world.events()))
}
