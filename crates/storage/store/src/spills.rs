//! [`Spills`]: the part of the journal that spilled transactions need.
//!
//! A spill chunk is needed while its transaction is open and, once it is committed, until a checkpoint has written
//! everything up to its commit record to the pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

#[derive(Debug)]
struct Spill {
    first: u64,
    committed: Option<u64>,
}

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
}

impl Spills {
    /// Claims the journal from there on.
    pub(crate) fn claim(self: &Arc<Spills>, first: u64) -> Claim {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        state.open.insert(number, Spill { first, committed: None });
        Claim { of: self.clone(), number, committed: false }
    }

    /// The position where the journal must begin so that everything from `from` on can be applied: commit records
    /// there, or still to be written, refer to spill chunks before it.
    pub(crate) fn needed(&self, from: u64) -> u64 {
        let state = self.state.lock();
        let needed = state.open.values().filter(|spill| spill.committed.is_none_or(|lsn| lsn >= from));
        needed.map(|spill| spill.first).chain([from]).min().expect("one at least")
    }

    /// Removes claims whose commit record is before this: the journal no longer contains it.
    pub(crate) fn forget(&self, before: u64) {
        self.state.lock().open.retain(|_, spill| spill.committed.is_none_or(|lsn| lsn >= before));
    }
}

impl Claim {
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
}
