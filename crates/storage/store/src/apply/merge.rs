//! [`MergedRuns`]: the runs of a spilled transaction as one, in order; of several changes of a key the newest counts.
//!
//! Each step takes as long as the logarithm of the number of runs: a transaction has a run for each of its savepoints.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use journal::Journal;

use crate::StoreError;
use crate::record::{Change, SpilledRun};
use crate::writes::{RunCursor, SortedRun};

/// The next change of a run.
struct Ahead {
    change: Change,
    /// The number of the run: a newer one has a lower number.
    run: usize,
}

impl Ahead {
    fn is_of_same_key(&self, other: &Change) -> bool {
        self.change.tree == other.tree && self.change.key == other.key
    }
}

/// The greatest comes first from the heap: the smallest key, and of that the newest change.
impl Ord for Ahead {
    fn cmp(&self, other: &Ahead) -> Ordering {
        let place = |ahead: &Ahead| (ahead.change.tree, ahead.run);
        let (own, others) = (place(self), place(other));
        others.0.cmp(&own.0).then_with(|| other.change.key.cmp(&self.change.key)).then(others.1.cmp(&own.1))
    }
}

impl PartialOrd for Ahead {
    fn partial_cmp(&self, other: &Ahead) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ahead {
    fn eq(&self, other: &Ahead) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ahead {}

/// See the head comment of this file.
pub(super) struct MergedRuns {
    runs: Vec<RunCursor>,
    ahead: BinaryHeap<Ahead>,
}

impl MergedRuns {
    /// Merges runs, oldest first. Errors: those of reading the journal.
    pub(super) fn of(journal: &Journal, runs: &[SpilledRun]) -> Result<MergedRuns, StoreError> {
        let newest_first = runs.iter().rev();
        let runs: Vec<_> = newest_first.map(|run| RunCursor::all(SortedRun::of_commit_record(run).into())).collect();
        let ahead = BinaryHeap::with_capacity(runs.len());
        let mut merged = MergedRuns { runs, ahead };
        (0..merged.runs.len()).try_for_each(|run| merged.look_ahead(journal, run))?;
        Ok(merged)
    }

    fn look_ahead(&mut self, journal: &Journal, run: usize) -> Result<(), StoreError> {
        let change = self.runs[run].next(journal)?;
        self.ahead.extend(change.map(|change| Ahead { change, run }));
        Ok(())
    }

    fn take(&mut self, journal: &Journal) -> Result<Option<Change>, StoreError> {
        let Some(Ahead { change, run }) = self.ahead.pop() else { return Ok(None) };
        self.look_ahead(journal, run)?;
        Ok(Some(change))
    }

    /// The next key's change. Errors: those of reading the journal.
    pub(super) fn next(&mut self, journal: &Journal) -> Result<Option<Change>, StoreError> {
        let Some(newest) = self.take(journal)? else { return Ok(None) };
        while self.ahead.peek().is_some_and(|older| older.is_of_same_key(&newest)) {
            self.take(journal)?;
        }
        Ok(Some(newest))
    }
}
