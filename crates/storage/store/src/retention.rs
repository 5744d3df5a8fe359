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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    holds: Arc<Mutex<BTreeMap<Lsn, usize>>>,
    spills: Arc<Spills>,
}

/// Keeps the journal from a position on while it lives.
#[derive(Debug)]
pub(crate) struct Hold {
    from: Lsn,
    holds: Arc<Mutex<BTreeMap<Lsn, usize>>>,
}

impl Retention {
    /// Keeps `bytes` before the redo LSN; 0 keeps only what recovery needs.
    pub(crate) fn new(bytes: u64) -> Retention {
        let (given_up, keep_from) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Retention { bytes, given_up, keep_from, holds: Arc::default(), spills: Arc::default() }
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
        let given_up = self.given_up.load(Ordering::Acquire).min(redo_lsn.0);
        let kept = Lsn(redo_lsn.0.saturating_sub(self.bytes).max(given_up));
        self.holds.lock().keys().next().map_or(kept, |first| kept.min(*first))
    }

    /// The position from which the journal is needed to apply everything from `from` on: a commit record in that part
    /// needs its spill chunks, wherever they are.
    pub(crate) fn needed(&self, from: Lsn) -> Lsn {
        Lsn(self.spills.needed(from.0))
    }

    /// The position up to which the journal must now be truncated, for this redo LSN. Earlier positions are not claimed
    /// any more.
    pub(crate) fn truncation(&self, redo_lsn: Lsn) -> Lsn {
        let kept = self.keep_from.load(Ordering::Acquire).min(self.before(redo_lsn).0);
        let needed = self.needed(Lsn(kept));
        self.spills.forget(kept);
        needed
    }

    /// Keeps the journal from `from` on. No later position may have been returned for a truncation yet: use a position
    /// from a completed checkpoint.
    pub(crate) fn hold(&self, from: Lsn) -> Hold {
        *self.holds.lock().entry(from).or_default() += 1;
        Hold { from, holds: self.holds.clone() }
    }

    /// Claims the journal from there on for a transaction that spills.
    pub(crate) fn claim(&self, first: Lsn) -> Claim {
        self.spills.claim(first.0)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holds = self.holds.lock();
        if let Some(count) = holds.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                holds.remove(&self.from);
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
