//! Recovery: opening applies the journal from the redo LSN to its end, batch by batch.
//!
//! The part of the journal that spilled transactions need stays claimed until their commit records are found.
//! Checkpoints may run meanwhile, on this thread; the journal is not truncated before all of it is applied.

use std::collections::HashSet;

use parking_lot::MutexGuard;

use super::{Applier, ApplyGuard};
use crate::queue::{QueuedRecord, RecordBody};
use crate::{StoreError, TreeId};

/// Records applied in one step while opening: at most so many.
const REDO_RECORDS: usize = 1024;
/// Bytes of the records applied in one step: at most about so many.
const REDO_BYTES: usize = 4 << 20;

/// The result of recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Records applied.
    pub(crate) records: u64,
    /// The id of the next tree.
    pub(crate) next_tree: u32,
    /// The trees of the catalog.
    pub(crate) trees: HashSet<TreeId>,
}

impl Applier {
    /// Brings the trees up to the end of the journal. `catalog_error` converts the error of an unreadable catalog.
    ///
    /// Errors: those of reading the journal, of applying and of checkpoints.
    pub(crate) fn recover(&self, catalog_error: fn(StoreError) -> StoreError) -> Result<Recovery, StoreError> {
        let from = self.redo.redo_lsn();
        let mut state = self.lock();
        state.next_tree = self.trees.stored_next_tree().map_err(catalog_error)?;
        self.trees.snapshots.publish(from.0);
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, from);
        for record in self.journal.read(from) {
            let record = record?;
            last = record.lsn;
            bytes += record.payload.len();
            let Some(entry) = QueuedRecord::of(record)? else { continue };
            let mut is_spilled = false;
            if let RecordBody::Spilled(runs) = &entry.what {
                is_spilled = true;
                if let Some(first) = runs.iter().flatten().min() {
                    self.retention.claim(*first).committed(entry.lsn);
                }
                self.redo_batch(&mut state, &mut entries)?;
            }
            entries.push(entry);
            if is_spilled || entries.len() >= REDO_RECORDS || bytes >= REDO_BYTES {
                self.redo_batch(&mut state, &mut entries)?;
                bytes = 0;
            }
        }
        self.redo_batch(&mut state, &mut entries)?;
        let trees: HashSet<TreeId> = self.trees.catalog().map_err(catalog_error)?.into_values().collect();
        self.trees.drop_orphans(&trees)?;
        self.trees.snapshots.publish(last.0);
        self.redo.end_recovery(last);
        Ok(Recovery { records: state.records, next_tree: state.next_tree, trees })
    }

    fn redo_batch(&self, state: &mut ApplyGuard<'_>, entries: &mut Vec<QueuedRecord>) -> Result<(), StoreError> {
        self.apply_entries(state, std::mem::take(entries))?;
        MutexGuard::unlocked(state, || self.admit())
    }
}
