//! [`Retention`]: how much of the journal is kept behind what recovery needs: for going back to a moment, and for backups that run.

use std::collections::BTreeMap;
use std::sync::Arc;

use journal::Lsn;
use parking_lot::Mutex;

/// What keeps the journal from being truncated. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Retention {
    /// Bytes behind the pages' state.
    bytes: u64,
    holds: Arc<Mutex<BTreeMap<Lsn, usize>>>,
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
        Retention { bytes, holds: Arc::default() }
    }

    /// Up to where the journal may be truncated when the pages are at `redo_lsn`.
    pub(crate) fn before(&self, redo_lsn: Lsn) -> Lsn {
        let kept = Lsn(redo_lsn.0.saturating_sub(self.bytes));
        self.holds.lock().keys().next().map_or(kept, |first| kept.min(*first))
    }

    /// Keeps the journal from `from` on. Whoever truncates must not have been told a later position yet: hold what a checkpoint
    /// that is over has left.
    pub(crate) fn hold(&self, from: Lsn) -> Hold {
        *self.holds.lock().entry(from).or_default() += 1;
        Hold { from, holds: self.holds.clone() }
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
}
