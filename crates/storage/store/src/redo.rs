//! [`RedoPosition`]: the position from which the journal would be applied after a crash.
//!
//! ```text
//!   journal   ....|applied....|applying batch..|queue.............|appending|
//!                 ^ redo LSN  ^ applied
//! ```
//!
//! *Applied* is the smallest of: the durable LSN; the record that is between the journal and the queue; the oldest
//! record in the queue; the first record of the batch that is being applied. A checkpoint that begins makes it the
//! *redo LSN*. Applying from an earlier record than necessary does no harm, because puts and deletions are idempotent.
//! So a checkpoint may even begin in the middle of a spilled transaction.
//!
//! A backup of such a state can be restored only to moments after the end of the batch: the *consistent LSN*.
//!
//! Invariants:
//! 1. The redo LSN never decreases.
//! 2. No record that is appended but not applied lies before it. Each of the three hand-overs (journal to queue, queue
//!    to batch, batch to trees) publishes the new place of the record before it clears the old one;
//!    [`applied`](RedoPosition::applied) reads these places in that order.
//!
//! It uses neither journal nor queue: their positions are passed in.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use journal::Lsn;

/// There is no record.
const NONE: u64 = u64::MAX;

/// See the head comment of this file.
#[derive(Debug)]
pub(crate) struct RedoPosition {
    /// The record that is between the journal and the queue lies after this.
    appending: AtomicU64,
    /// The first record of the batch that is being applied.
    applying: AtomicU64,
    /// The redo LSN of the last checkpoint that began.
    redo_lsn: AtomicU64,
    /// The data devices contain no changes of records from here on.
    consistent_lsn: AtomicU64,
    /// The last record that was queued.
    last: AtomicU64,
    /// The journal is being applied at opening.
    recovering: AtomicBool,
}

impl RedoPosition {
    /// The state at opening: the pages are the state at `redo_lsn`, and nothing of the journal is applied yet. It is
    /// unknown how far the batch had been applied when the last checkpoint began: at most to the journal's end.
    pub(crate) fn opened(redo_lsn: Lsn, journal_end: Lsn) -> RedoPosition {
        RedoPosition {
            appending: AtomicU64::new(NONE),
            applying: AtomicU64::new(redo_lsn.0),
            redo_lsn: AtomicU64::new(redo_lsn.0),
            consistent_lsn: AtomicU64::new(journal_end.0),
            last: AtomicU64::new(0),
            recovering: AtomicBool::new(true),
        }
    }

    /// The position from which a crash would apply the journal.
    pub(crate) fn redo_lsn(&self) -> Lsn {
        Lsn(self.redo_lsn.load(Ordering::SeqCst))
    }

    /// The data devices contain no changes of records from here on.
    pub(crate) fn consistent_lsn(&self) -> Lsn {
        Lsn(self.consistent_lsn.load(Ordering::SeqCst))
    }

    /// The last record that was queued.
    pub(crate) fn last(&self) -> Lsn {
        Lsn(self.last.load(Ordering::Acquire))
    }

    /// Whether opening is applying the journal: it is not truncated meanwhile.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// Called before a record is appended, with what is durable then. One at a time.
    pub(crate) fn begin_append(&self, durable: Lsn) {
        self.appending.store(durable.0, Ordering::SeqCst);
    }

    /// Called when the record is in the queue, with its LSN; or with `None` if it was not appended.
    pub(crate) fn end_append(&self, queued: Option<Lsn>) {
        if let Some(lsn) = queued {
            self.last.store(lsn.0, Ordering::Release);
        }
        self.appending.store(NONE, Ordering::SeqCst);
    }

    /// Called before a batch that begins with that record is applied.
    pub(crate) fn begin_batch(&self, first: Lsn) {
        self.applying.store(first.0, Ordering::SeqCst);
    }

    /// Called when the whole batch is in the trees. During recovery the next records are not in the queue, so the
    /// batch's `last` record takes their place.
    pub(crate) fn end_batch(&self, last: Lsn) {
        let next = if self.is_recovering() { last.0 } else { NONE };
        self.applying.store(next, Ordering::SeqCst);
    }

    /// Called when the journal is applied up to its last record.
    pub(crate) fn end_recovery(&self, last: Lsn) {
        self.last.store(last.0, Ordering::Release);
        self.applying.store(NONE, Ordering::SeqCst);
        self.recovering.store(false, Ordering::Release);
    }

    /// Everything before this is applied, and remains so. `durable` is the journal's durable LSN from before the call;
    /// `waiting` returns the oldest record in the queue.
    pub(crate) fn applied(&self, durable: Lsn, waiting: impl FnOnce() -> Option<u64>) -> Lsn {
        // The order is essential: a record moves from the first of these places to the last.
        let appending = self.appending.load(Ordering::SeqCst);
        let waiting = waiting().unwrap_or(NONE);
        let applying = self.applying.load(Ordering::SeqCst);
        let found = durable.0.min(appending).min(waiting).min(applying);
        Lsn(found.max(self.redo_lsn().0))
    }

    /// Called when a checkpoint begins with everything before `applied`. `batch_end` is the last record of the batch
    /// that began last, a part of which may be in the pages. Called under the applier's lock.
    pub(crate) fn begin_checkpoint(&self, applied: Lsn, batch_end: Lsn) {
        self.consistent_lsn.fetch_max(applied.0.max(batch_end.0 + 1), Ordering::SeqCst);
        self.redo_lsn.store(applied.0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> RedoPosition {
        let redo = RedoPosition::opened(Lsn(100), Lsn(500));
        redo.end_recovery(Lsn(400));
        redo
    }

    #[test]
    fn no_record_between_append_and_tree_is_taken_for_applied() {
        let redo = running();
        assert_eq!(redo.applied(Lsn(500), || None), Lsn(500), "nothing waits");
        redo.begin_append(Lsn(500));
        assert_eq!(redo.applied(Lsn(700), || None), Lsn(500), "on its way to the queue");
        redo.end_append(Some(Lsn(600)));
        assert_eq!((redo.applied(Lsn(700), || Some(600)), redo.last()), (Lsn(600), Lsn(600)), "in the queue");
        redo.begin_batch(Lsn(600));
        assert_eq!(redo.applied(Lsn(700), || None), Lsn(600), "being applied");
        redo.end_batch(Lsn(600));
        assert_eq!(redo.applied(Lsn(700), || None), Lsn(700), "applied");
        redo.begin_append(Lsn(700));
        redo.end_append(None);
        assert_eq!((redo.applied(Lsn(900), || None), redo.last()), (Lsn(900), Lsn(600)), "refused");
    }

    #[test]
    fn the_redo_lsn_never_goes_back_and_a_batch_begun_moves_the_consistent_lsn_behind_its_end() {
        let redo = running();
        assert_eq!(redo.consistent_lsn(), Lsn(500), "what an earlier process began is not known");
        redo.begin_checkpoint(redo.applied(Lsn(600), || None), Lsn(400));
        assert_eq!((redo.redo_lsn(), redo.consistent_lsn()), (Lsn(600), Lsn(600)));
        redo.begin_batch(Lsn(550));
        redo.begin_checkpoint(redo.applied(Lsn(900), || None), Lsn(800));
        assert_eq!((redo.redo_lsn(), redo.consistent_lsn()), (Lsn(600), Lsn(801)));
    }

    #[test]
    fn while_recovering_the_last_record_applied_bounds_the_position() {
        let redo = RedoPosition::opened(Lsn(100), Lsn(500));
        assert_eq!(redo.applied(Lsn(500), || None), Lsn(100));
        redo.begin_batch(Lsn(100));
        redo.end_batch(Lsn(200));
        assert_eq!(redo.applied(Lsn(500), || None), Lsn(200), "what comes next is not in the queue");
        assert!(redo.is_recovering());
        redo.end_recovery(Lsn(400));
        assert_eq!((redo.applied(Lsn(500), || None), redo.last()), (Lsn(500), Lsn(400)));
    }
}
