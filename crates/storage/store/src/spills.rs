//! [`Spills`]: the part of the journal that spilled transactions need.
//!
//! A spill chunk is needed while its transaction is open and, once it is committed, until a checkpoint has written
//! everything up to its commit record to the pages.
//!
//! A transaction that is open for long, or that is large, keeps the journal for as long. If the journal has no room for further
//! records, the oldest claim of an open transaction is *broken*: what it has spilled is given up, and it can only be rolled back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

#[derive(Debug)]
struct Spill {
    first: u64,
    /// The LSN of the commit record; [`COMMITTING`] while that is being written.
    committed: Option<u64>,
    broken: Arc<AtomicBool>,
}

/// After every commit record.
const COMMITTING: u64 = u64::MAX;

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, Spill>,
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(crate) struct Spills {
    state: Mutex<State>,
}

/// One transaction's claim; released when dropped, unless it was committed.
#[derive(Debug)]
pub(crate) struct Claim {
    of: Arc<Spills>,
    number: u64,
    committed: bool,
    broken: Arc<AtomicBool>,
}

impl Spills {
    /// Claims the journal from there on.
    pub(crate) fn claim(self: &Arc<Spills>, first: u64) -> Claim {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        let broken = Arc::new(AtomicBool::new(false));
        state.open.insert(number, Spill { first, committed: None, broken: broken.clone() });
        Claim { of: self.clone(), number, committed: false, broken }
    }

    /// Breaks the oldest claim of a transaction that is open; returns `false` if there is none from before that position.
    pub(crate) fn break_oldest(&self, before: u64) -> bool {
        let mut state = self.state.lock();
        let open = state.open.iter().filter(|(_, spill)| spill.committed.is_none() && spill.first < before);
        let Some(number) = open.min_by_key(|(_, spill)| spill.first).map(|(number, _)| *number) else { return false };
        if let Some(spill) = state.open.remove(&number) {
            spill.broken.store(true, Ordering::Release);
        }
        true
    }

    /// The position where the journal must begin so that everything from `from` on can be applied: commit records
    /// there, or still to be written, refer to spill chunks before it.
    pub(crate) fn needed(&self, from: u64) -> u64 {
        let state = self.state.lock();
        let needed = state.open.values().filter(|spill| spill.committed.is_none_or(|lsn| lsn >= from));
        needed.map(|spill| spill.first).chain([from]).min().expect("one at least")
    }

    /// The same without the transactions that are open, whose claims can be broken.
    pub(crate) fn needed_by_committed(&self, from: u64) -> u64 {
        let state = self.state.lock();
        let needed = state.open.values().filter(|spill| spill.committed.is_some_and(|lsn| lsn >= from));
        needed.map(|spill| spill.first).chain([from]).min().expect("one at least")
    }

    /// Removes claims whose commit record is before this: the journal no longer contains it.
    pub(crate) fn forget(&self, before: u64) {
        self.state.lock().open.retain(|_, spill| spill.committed.is_none_or(|lsn| lsn >= before));
    }
}

impl Claim {
    /// Whether what it claimed was given up.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Called before the commit record is written: from now on it is not broken. Returns `false` if it is.
    #[must_use]
    pub(crate) fn keep(&self) -> bool {
        match self.of.state.lock().open.get_mut(&self.number) {
            Some(spill) => {
                spill.committed = Some(COMMITTING);
                true
            }
            None => false,
        }
    }

    /// Records the LSN of its commit record.
    pub(crate) fn committed(mut self, lsn: u64) {
        self.committed = true;
        if let Some(spill) = self.of.state.lock().open.get_mut(&self.number) {
            spill.committed = Some(lsn);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.committed {
            self.of.state.lock().open.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_kept_while_a_spill_chunk_may_be_needed() {
        let spills = Arc::new(Spills::default());
        let (open, committed) = (spills.claim(100), spills.claim(50));
        assert_eq!(spills.needed(500), 50);
        committed.committed(400);
        assert_eq!(spills.needed(400), 50, "the commit record is not in the pages yet");
        assert_eq!(spills.needed(401), 100);
        assert_eq!(spills.needed(400), 50, "asking forgets nothing");
        spills.forget(401);
        assert_eq!(spills.needed(0), 0);
        assert_eq!(spills.needed(400), 100);
        drop(open);
        assert_eq!(spills.needed(401), 401);
    }

    #[test]
    fn the_oldest_claim_of_an_open_transaction_gives_way_and_none_of_one_that_commits() {
        let spills = Arc::new(Spills::default());
        let [late, old, committing, committed] = [300, 200, 100, 50].map(|first| spills.claim(first));
        committed.committed(400);
        assert!(committing.keep());
        assert_eq!((spills.needed_by_committed(400), spills.needed_by_committed(401)), (50, 100));
        assert!(!spills.break_oldest(200), "it would free nothing");
        assert!(spills.break_oldest(500) && old.is_broken() && !late.is_broken() && !committing.is_broken());
        assert!(!old.keep(), "it cannot be committed any more");
        assert_eq!((spills.needed(400), spills.needed(500)), (50, 100));
        assert!(spills.break_oldest(500) && late.is_broken() && !spills.break_oldest(500));
        drop((late, old));
        committing.committed(450);
        assert_eq!((spills.needed(420), spills.needed(500)), (100, 500));
    }
}
