//! Which copies a volume consists of, as a pure state machine: what is recorded where, before what is acknowledged.
//!
//! ```text
//!                      a copy fails, min_copies are left                 recorded on all of them
//!     Steady  ----------------------------------------->  Changing  ------------------------------>  Steady, epoch + 1
//!       |  ^                                                 |  a record fails: the next attempt, without that copy
//!       |  +-- joined ---------------------------------------+  too few are left: Steady, frozen
//!       |
//!       |      a copy fails, too few are left: nothing is recorded, writes wait; reads go on
//!       |      a copy has a higher epoch
//!       +----------------------------------------------->  Fenced: another owner; nothing is served
//! ```
//!
//! The rules (numbered as in the design of takeovers; a test leaves out each one):
//!
//! 1. A write is acknowledged when it is durable on every copy in sync.
//! 2. A copy is excluded durably, by a new epoch on all remaining copies, before the next write is acknowledged without it. Never
//!    below `min_copies`: the last copies are never recorded as excluded.
//! 3. A new owner raises the epoch, makes the copies equal, and only then serves.
//! 4. A copy that has promised an epoch refuses a lower one.
//! 5. A copy that was out is brought up to date before it joins, by a new epoch.
//!
//! **The highest epoch decides.** An opening first makes copies promise its *term*, a number higher than any that they have seen:
//! `copies - min_copies + 1` of them and a majority at least ([`needed`]). A copy promises a number once and records no set of a lower
//! term any more. So two owners never have the same term; every set that was served has a member among the copies that promised, and
//! nothing is added behind the new owner's back. The epochs of one owner follow each other. Of the sets that the promising copies
//! have recorded, the one with the highest epoch is therefore the last that was served, or a later attempt of the same owner, since
//! which nothing was acknowledged.
//!
//! This is the first phase of Paxos (Lamport, "Paxos Made Simple", 2001) for the set only; the writes themselves need no vote.
//!
//! No I/O, no clock: the shell performs the actions and reports back.

use crate::members::{COPIES_MAX, Epoch, Members, Set};
use crate::superblock::Superblock;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A copy failed, or did not answer in time.
    Failed(u8),
    /// Copies that are up to date are to join.
    Join(Members),
    /// A copy that is out will be another one when it comes back: what the former one contains does not count any more.
    Replaced(u8),
    /// A copy has recorded the set of the current change, durably.
    Recorded(u8),
    /// A copy could not record it.
    RecordFailed(u8),
    /// A copy, or the coordinator, knows a higher epoch.
    Superseded(u64),
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Record the set on these copies, durably, and report each.
    Record(Members, Set),
    /// The set is recorded: writes that are durable on all of it may be acknowledged.
    Serve(Set),
    /// Too few copies work: no write is acknowledged until one joins.
    Freeze,
    /// Another owner has taken over: serve nothing more.
    StepDown(u64),
}

/// Where the machine stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Steady,
    Changing { next: Set, waiting: Members },
    Fenced,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The set that is served.
    set: Set,
    min_copies: u8,
    /// Drawn for this owner.
    owner: u64,
    /// Copies of the set that fail, and are not recorded as excluded.
    failed: Members,
    /// The highest epoch that was tried.
    tried: u64,
    phase: Phase,
}

impl Membership {
    /// Begins with a set that is recorded. `owner` is a number that distinguishes this owner from others.
    pub fn new(set: Set, min_copies: u8, owner: u64) -> Membership {
        let (failed, tried) = (Members::NONE, set.epoch.number);
        Membership { set, min_copies, owner, failed, tried, phase: Phase::Steady }
    }

    /// A new owner begins: the first change is that to the members that could be opened. With `accept_loss` they may be fewer than
    /// `min_copies`.
    pub fn begin(&mut self, promised: Epoch, failed: Members, accept_loss: bool) -> Action {
        self.tried = promised.number;
        self.failed = failed;
        let working = self.working();
        if accept_loss { self.attempt(working) } else { self.change(working) }
    }

    /// The set that is served.
    pub fn set(&self) -> Set {
        self.set
    }

    /// Copies that work and are in sync.
    pub fn working(&self) -> Members {
        self.set.in_sync.minus(self.failed)
    }

    /// Whether writes wait because too few copies work.
    pub fn is_frozen(&self) -> bool {
        self.phase == Phase::Steady && !self.failed.is_empty()
    }

    /// Whether another owner has taken over.
    pub fn is_fenced(&self) -> bool {
        self.phase == Phase::Fenced
    }

    /// Takes an event; returns what to do.
    pub fn apply(&mut self, event: Event) -> Option<Action> {
        if self.phase == Phase::Fenced {
            return None;
        }
        match event {
            Event::Failed(copy) | Event::RecordFailed(copy) => self.fail(copy),
            Event::Join(copies) => self.join(copies),
            Event::Replaced(copy) => self.replaced(copy),
            Event::Recorded(copy) => self.recorded(copy),
            Event::Superseded(epoch) => {
                self.phase = Phase::Fenced;
                Some(Action::StepDown(epoch))
            }
        }
    }

    fn fail(&mut self, copy: u8) -> Option<Action> {
        match self.phase {
            Phase::Steady if self.working().has(copy) => {
                self.failed = self.failed.with(copy);
                Some(self.change(self.working()))
            }
            Phase::Changing { next, .. } if next.in_sync.has(copy) => {
                if self.set.in_sync.has(copy) {
                    self.failed = self.failed.with(copy);
                }
                // Without the copy, and without one that was about to join: its record may be there already, so a further epoch
                // must say that it did not.
                Some(self.change(self.working()))
            }
            _ => None,
        }
    }

    fn join(&mut self, copies: Members) -> Option<Action> {
        assert!(self.phase == Phase::Steady, "one change at a time");
        Some(self.change(Members(self.working().0 | copies.0)))
    }

    fn replaced(&mut self, copy: u8) -> Option<Action> {
        assert!(self.phase == Phase::Steady, "one change at a time");
        // A missing member is no case for this: nothing was acknowledged without it.
        if self.set.in_sync.has(copy) || self.is_frozen() {
            return None;
        }
        let Action::Record(members, mut next) = self.change(self.working()) else { return None };
        next.left[copy as usize] = next.epoch;
        self.phase = Phase::Changing { next, waiting: members };
        Some(Action::Record(members, next))
    }

    /// Begins the change to a set, or freezes.
    fn change(&mut self, in_sync: Members) -> Action {
        if in_sync.count() < self.min_copies {
            self.phase = Phase::Steady;
            return Action::Freeze;
        }
        self.attempt(in_sync)
    }

    fn attempt(&mut self, in_sync: Members) -> Action {
        self.tried += 1;
        let epoch = Epoch { number: self.tried, mint: mint(self.owner, self.tried) };
        let next = following(&self.set, epoch, in_sync);
        self.phase = Phase::Changing { next, waiting: in_sync };
        Action::Record(in_sync, next)
    }

    fn recorded(&mut self, copy: u8) -> Option<Action> {
        let Phase::Changing { next, waiting } = self.phase else { return None };
        let waiting = waiting.without(copy);
        if !waiting.is_empty() {
            self.phase = Phase::Changing { next, waiting };
            return None;
        }
        self.set = next;
        self.failed = Members::NONE;
        self.phase = Phase::Steady;
        Some(Action::Serve(next))
    }
}

/// The set after `set`: of copies that it loses it says when they were in sync for the last time, of those that join since when they
/// are.
pub(crate) fn following(set: &Set, epoch: Epoch, in_sync: Members) -> Set {
    let mut next = Set { epoch, in_sync, left: set.left };
    for copy in 0..COPIES_MAX as u8 {
        match (set.in_sync.has(copy), in_sync.has(copy)) {
            (false, true) => next.left[copy as usize] = epoch,
            (true, false) => next.left[copy as usize] = set.epoch,
            _ => {}
        }
    }
    next
}

/// The mint of an epoch that an owner begins (SplitMix64's finaliser, Steele et al., OOPSLA 2014).
pub(crate) fn mint(owner: u64, epoch: u64) -> u64 {
    let mut z = owner ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}

/// Why a volume is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too few superblocks can be read.
    Quorum {
        /// Found.
        found: u8,
        /// Needed.
        needed: u8,
    },
    /// Only unfenced copies are in sync.
    OnlyUnfenced,
    /// No copy of the in-sync set can be read.
    NoneInSync(Set),
    /// Two owners have begun the same epoch.
    Diverged,
}

/// The superblocks that an opening needs: it must see a member of every set that was served, and no two openings may succeed side by
/// side.
pub fn needed(copies: u8, min_copies: u8) -> u8 {
    (copies - min_copies + 1).max(copies / 2 + 1)
}

/// The last set, from the superblocks that can be read, and those of its members that can be used. The others must be brought up to
/// date, whatever they contain.
///
/// `accept_loss` opens with fewer superblocks than needed: what only the missing copies contain is then lost.
///
/// Errors: see [`Refusal`]. Panics if there is no superblock at all.
pub fn decide(found: &[Superblock], accept_loss: bool) -> Result<(Set, Members), Refusal> {
    let first = found.first().expect("the caller has found one at least");
    let (count, needed) = (found.len() as u8, needed(first.copies, first.min_copies));
    if count < needed && !accept_loss {
        return Err(Refusal::Quorum { found: count, needed });
    }
    let highest = found.iter().map(|found| found.set.epoch).max().expect("there is one");
    let set = found.iter().map(|found| found.set).find(|set| set.epoch == highest).expect("there is one");
    // Two owners with one term: only after an opening that accepted a loss.
    let differs = |other: &Superblock| other.set.epoch.number == highest.number && other.set.epoch != highest;
    if found.iter().any(|other| !other.is_syncing && differs(other)) && !accept_loss {
        return Err(Refusal::Diverged);
    }
    // A medium that was replaced, and is found again in the place of the one that joined, knows no set since then.
    let is_former = |found: &Superblock| found.set.epoch.number < set.left[found.copy as usize].number;
    let is_usable = |found: &&Superblock| set.in_sync.has(found.copy) && !found.is_syncing && !is_former(found);
    let usable = found.iter().filter(is_usable);
    let members = usable.clone().fold(Members::NONE, |members, found| members.with(found.copy));
    if members.is_empty() {
        return Err(Refusal::NoneInSync(set));
    }
    if usable.clone().all(|found| found.is_unfenced) && !accept_loss {
        return Err(Refusal::OnlyUnfenced);
    }
    Ok((set, members))
}
