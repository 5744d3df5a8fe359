//! [`Retention`]: how much of the journal is kept in addition to what recovery needs.
//!
//! ```text
//!   redo LSN of the last checkpoint      recovery needs the journal from here on
//!   - bytes                              a backup can be brought up to any moment from here on
//!   keep_from                            archives and replicas
//!   holds                                backups that run
//!   spills                               chunks of spilled transactions whose commit record is kept, or not written yet
//!   the smallest of them                 the journal is truncated up to here
//! ```
//!
//! If the journal has no room for further records, what can be done again gives way, if segments are kept for its sake only: what keeps
//! the journal from the earliest position on, a transaction that is open, or the backups that run. Nothing more gives way before the
//! journal was truncated after that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use journal::Lsn;
use parking_lot::Mutex;

use crate::spills::{Claim, Spills};

/// Everything that keeps the journal from being truncated.
#[derive(Debug)]
pub(crate) struct Retention {
    /// Bytes to keep before the redo LSN.
    bytes: u64,
    /// What lies before this is not kept for the sake of `bytes`.
    given_up: AtomicU64,
    /// Keeps everything from here on, whatever checkpoints have done.
    keep_from: AtomicU64,
    holds: Arc<Mutex<Holds>>,
    spills: Arc<Spills>,
    /// The redo LSN of the last truncation.
    redo_lsn: AtomicU64,
    /// How often something gave way, and how often that was when the last truncation began.
    gave_way: AtomicU64,
    truncated: AtomicU64,
    /// Something gave way, and the journal is to be truncated.
    is_wanted: AtomicBool,
}

/// What backups keep.
#[derive(Debug, Default)]
struct Holds {
    held: BTreeMap<Lsn, usize>,
    /// How often all of them were given up.
    given_up: u64,
}

/// Keeps the journal from a position on while it lives.
#[derive(Debug)]
pub(crate) struct Hold {
    from: Lsn,
    /// How often holds had been given up before it.
    given_up: u64,
    holds: Arc<Mutex<Holds>>,
}

impl Retention {
    /// Keeps `bytes` before the redo LSN; 0 keeps only what recovery needs.
    pub(crate) fn new(bytes: u64) -> Retention {
        Retention {
            bytes,
            given_up: AtomicU64::new(0),
            keep_from: AtomicU64::new(u64::MAX),
            holds: Arc::default(),
            spills: Arc::default(),
            redo_lsn: AtomicU64::new(0),
            gave_way: AtomicU64::new(0),
            truncated: AtomicU64::new(0),
            is_wanted: AtomicBool::new(false),
        }
    }

    /// Keeps the journal from there on, even the part that is already in the pages.
    pub(crate) fn keep_from(&self, from: Lsn) {
        self.keep_from.store(from.0, Ordering::Release);
    }

    /// From now on the bytes before the redo LSN are counted from there at the earliest: backups cannot be brought up to moments before it
    /// with the journal that is kept.
    pub(crate) fn give_up(&self, before: Lsn) {
        self.given_up.fetch_max(before.0, Ordering::AcqRel);
    }

    /// The position up to which the journal may be truncated for this redo LSN, without regard to the chunks of spilled
    /// transactions.
    pub(crate) fn before(&self, redo_lsn: Lsn) -> Lsn {
        let kept = self.without_holds(redo_lsn);
        self.first_held().map_or(kept, |first| kept.min(first))
    }

    fn without_holds(&self, redo_lsn: Lsn) -> Lsn {
        let given_up = self.given_up.load(Ordering::Acquire).min(redo_lsn.0);
        Lsn(redo_lsn.0.saturating_sub(self.bytes).max(given_up))
    }

    fn first_held(&self) -> Option<Lsn> {
        self.holds.lock().held.keys().next().copied()
    }

    /// The position from which the journal is needed to apply everything from `from` on: a commit record in that part
    /// needs its spill chunks, wherever they are.
    pub(crate) fn needed(&self, from: Lsn) -> Lsn {
        Lsn(self.spills.needed(from.0))
    }

    /// The position up to which the journal must now be truncated, for this redo LSN. Earlier positions are not claimed
    /// any more.
    pub(crate) fn truncation(&self, redo_lsn: Lsn) -> Lsn {
        self.redo_lsn.fetch_max(redo_lsn.0, Ordering::AcqRel);
        let kept = self.keep_from.load(Ordering::Acquire).min(self.before(redo_lsn).0);
        let needed = self.needed(Lsn(kept));
        self.spills.forget(kept);
        needed
    }

    /// Keeps the journal from `from` on. No later position may have been returned for a truncation yet: use a position
    /// from a completed checkpoint.
    pub(crate) fn hold(&self, from: Lsn) -> Hold {
        let mut holds = self.holds.lock();
        *holds.held.entry(from).or_default() += 1;
        Hold { from, given_up: holds.given_up, holds: self.holds.clone() }
    }

    /// Called when the journal has no room, by one thread at a time: gives up what keeps it from the earliest position on and can be
    /// done again, and the journal is to be truncated then. Nothing is given up before the journal was truncated after the last
    /// time, nor if that is enough without it, nor if it could free nothing: `frees` tells whether a truncation up to a position
    /// would.
    pub(crate) fn give_way(&self, frees: impl Fn(Lsn) -> bool) {
        if self.gave_way() != self.truncated.load(Ordering::Acquire) {
            self.want_truncation();
            return;
        }
        let redo_lsn = Lsn(self.redo_lsn.load(Ordering::Acquire));
        let keep_from = self.keep_from.load(Ordering::Acquire);
        if frees(self.needed(Lsn(self.before(redo_lsn).0.min(keep_from)))) {
            self.want_truncation();
            return;
        }
        // Without everything that can give way.
        let least = self.spills.needed_by_committed(self.without_holds(redo_lsn).0.min(keep_from));
        if !frees(Lsn(least)) {
            return;
        }
        // What is held may need chunks from before it.
        let held = self.first_held().map_or(u64::MAX, |first| self.spills.needed_by_committed(first.0));
        if self.spills.break_oldest(least.min(held.saturating_add(1))) {
            tracing::warn!("the journal has no room: the oldest transaction that has spilled and is open was given up");
        } else if held < least && self.give_up_holds() {
            tracing::warn!("the journal has no room: the backup that runs was given up");
        } else {
            return;
        }
        self.gave_way.fetch_add(1, Ordering::AcqRel);
        self.want_truncation();
    }

    /// How often something gave way: what a truncation that begins now takes into account.
    pub(crate) fn gave_way(&self) -> u64 {
        self.gave_way.load(Ordering::Acquire)
    }

    /// The journal was truncated, for what gave way so often when that began.
    pub(crate) fn truncated(&self, gave_way: u64) {
        self.truncated.fetch_max(gave_way, Ordering::AcqRel);
    }

    /// Asks for the journal to be truncated: something that kept it is no more.
    pub(crate) fn want_truncation(&self) {
        self.is_wanted.store(true, Ordering::Release);
    }

    fn give_up_holds(&self) -> bool {
        let mut holds = self.holds.lock();
        let is_some = !holds.held.is_empty();
        if is_some {
            holds.held.clear();
            holds.given_up += 1;
        }
        is_some
    }

    /// Whether something gave way since the last call.
    pub(crate) fn take_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed) && self.is_wanted.swap(false, Ordering::AcqRel)
    }

    /// Claims the journal from there on for a transaction that spills.
    pub(crate) fn claim(&self, first: Lsn) -> Claim {
        self.spills.claim(first.0)
    }
}

impl Hold {
    /// Whether the journal is not kept any more, because it had no room.
    pub(crate) fn is_given_up(&self) -> bool {
        self.holds.lock().given_up != self.given_up
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holds = self.holds.lock();
        if holds.given_up != self.given_up {
            return;
        }
        if let Some(count) = holds.held.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                holds.held.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_kept_for_the_oldest_of_retention_and_holds() {
        let retention = Retention::new(100);
        assert_eq!(retention.before(Lsn(50)), Lsn(0));
        assert_eq!(retention.before(Lsn(500)), Lsn(400));
        let (old, twice, late) = (retention.hold(Lsn(300)), retention.hold(Lsn(300)), retention.hold(Lsn(450)));
        assert_eq!(retention.before(Lsn(500)), Lsn(300));
        drop(old);
        assert_eq!(retention.before(Lsn(500)), Lsn(300));
        drop(twice);
        assert_eq!(retention.before(Lsn(500)), Lsn(400));
        assert_eq!(retention.before(Lsn(900)), Lsn(450));
        drop(late);
        assert_eq!(retention.before(Lsn(900)), Lsn(800));
        retention.give_up(Lsn(860));
        assert_eq!(retention.before(Lsn(850)), Lsn(850), "recovery needs more");
        assert_eq!((retention.before(Lsn(900)), retention.before(Lsn(990))), (Lsn(860), Lsn(890)));
        let _held = retention.hold(Lsn(400));
        assert_eq!(retention.before(Lsn(990)), Lsn(400), "a backup has what it holds");
    }

    #[test]
    fn a_journal_without_room_keeps_nothing_for_open_transactions_and_then_nothing_for_backups() {
        let retention = Retention::new(0);
        let truncate = || {
            let gave_way = retention.gave_way();
            let before = retention.truncation(Lsn(500));
            retention.truncated(gave_way);
            before
        };
        assert_eq!(truncate(), Lsn(500));
        retention.give_way(|_| false);
        assert!(!retention.take_wanted(), "recovery needs all of it");
        let (open, hold) = (retention.claim(Lsn(200)), retention.hold(Lsn(300)));
        let begun = retention.gave_way();
        retention.give_way(|before| before >= Lsn(250));
        assert!(open.is_broken() && !hold.is_given_up() && retention.take_wanted() && !retention.take_wanted());
        retention.truncated(begun);
        retention.give_way(|before| before >= Lsn(350));
        assert!(
            !hold.is_given_up() && retention.take_wanted(),
            "the last truncation began before the claim was broken"
        );
        assert_eq!(truncate(), Lsn(300));
        retention.give_way(|before| before >= Lsn(350));
        assert!(hold.is_given_up() && retention.take_wanted());
        assert_eq!(truncate(), Lsn(500));
        let later = retention.hold(Lsn(200));
        drop(hold);
        assert!(!later.is_given_up());
        assert_eq!(retention.truncation(Lsn(500)), Lsn(200), "another one has what it holds");
    }

    #[test]
    fn only_what_begins_first_gives_way_and_only_if_that_frees_something() {
        // What a transaction that is open claims, what a backup holds, what one that is committed needs, the end of the first segment;
        // what gives way, and whether the journal is to be truncated.
        let cases = [
            (200, 300, 400, 250, (true, false, true)),
            (200, 200, 400, 250, (true, false, true)),
            (300, 200, 400, 250, (false, true, true)),
            (300, 400, 200, 250, (false, false, false)),
            (400, 200, 200, 250, (false, false, false)),
            (200, 300, 400, 600, (false, false, false)),
            (300, 350, 400, 250, (false, false, true)),
        ];
        for (first, held, committed, end, expected) in cases {
            let retention = Retention::new(0);
            retention.truncation(Lsn(500));
            let (open, hold) = (retention.claim(Lsn(first)), retention.hold(Lsn(held)));
            retention.claim(Lsn(committed)).committed(600);
            retention.give_way(|before| before >= Lsn(end));
            let found = (open.is_broken(), hold.is_given_up(), retention.take_wanted());
            assert_eq!(found, expected, "{first} {held} {committed} {end}");
        }
    }

    #[test]
    fn the_journal_is_kept_for_archives_and_for_chunks_of_what_is_committed_or_open() {
        let retention = Retention::new(0);
        retention.keep_from(Lsn(700));
        assert_eq!(retention.truncation(Lsn(500)), Lsn(500), "recovery needs more");
        assert_eq!(retention.truncation(Lsn(900)), Lsn(700));
        retention.keep_from(Lsn(u64::MAX));
        let (open, committed) = (retention.claim(Lsn(300)), retention.claim(Lsn(200)));
        committed.committed(950);
        assert_eq!(retention.truncation(Lsn(900)), Lsn(200), "its commit record is not in the pages yet");
        assert_eq!(retention.truncation(Lsn(960)), Lsn(300), "it is, and another is open");
        drop(open);
        assert_eq!(retention.truncation(Lsn(960)), Lsn(960));
    }
}
