//! [`Retention`]: how much of the journal is kept behind what recovery needs.
//!
//! ```text
//!   redo LSN of the last checkpoint      what recovery needs
//!   - bytes                              so far back a backup can be brought up to any moment
//!   keep_from                            archives and replicas
//!   holds                                backups that run
//!   spills                               chunks of spilled transactions whose commit record is kept, or not written yet
//!   the least of them                    up to where the journal is truncated
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use journal::Lsn;
use parking_lot::Mutex;

use crate::spills::{Claim, Spills};

/// What keeps the journal from being truncated.
#[derive(Debug)]
pub(crate) struct Retention {
    /// Bytes behind the pages' state.
    bytes: u64,
    /// From here on, whatever checkpoints have done.
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
    /// Keeps `bytes` behind the pages' state; 0 keeps what recovery needs.
    pub(crate) fn new(bytes: u64) -> Retention {
        Retention { bytes, keep_from: AtomicU64::new(u64::MAX), holds: Arc::default(), spills: Arc::default() }
    }

    /// Keeps the journal from there on, also what is in the pages already.
    pub(crate) fn keep_from(&self, from: Lsn) {
        self.keep_from.store(from.0, Ordering::Release);
    }

    /// Up to where the journal may be truncated when the redo LSN is that one, but for the chunks of spilled transactions.
    pub(crate) fn before(&self, redo_lsn: Lsn) -> Lsn {
        let kept = Lsn(redo_lsn.0.saturating_sub(self.bytes));
        self.holds.lock().keys().next().map_or(kept, |first| kept.min(*first))
    }

    /// From where on the journal is needed to apply everything from a position on: for a commit record that is kept its spill
    /// chunks are, wherever they lie.
    pub(crate) fn needed(&self, from: Lsn) -> Lsn {
        Lsn(self.spills.needed(from.0))
    }

    /// Up to where the journal is to be truncated, now that the redo LSN is that one. What lies before is not claimed any more.
    pub(crate) fn truncation(&self, redo_lsn: Lsn) -> Lsn {
        let kept = self.keep_from.load(Ordering::Acquire).min(self.before(redo_lsn).0);
        let needed = self.needed(Lsn(kept));
        self.spills.forget(kept);
        needed
    }

    /// Keeps the journal from `from` on. Whoever truncates must not have been told a later position yet: hold what a
    /// checkpoint that is over has left.
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
