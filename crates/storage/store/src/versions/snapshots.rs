//! [`Snapshots`]: the moments that are still being read, and the newest that can be.
//!
//! Invariant: a snapshot is registered at the LSN that is visible at that time, under one lock. So nothing is dropped
//! between reading the visible LSN and registering.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The open snapshots of a store.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    visible: AtomicU64,
    open: Mutex<BTreeMap<u64, u64>>,
}

/// One open snapshot; closed when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    lsn: u64,
    of: Arc<Snapshots>,
}

impl Held {
    /// The last record it sees.
    pub(crate) fn lsn(&self) -> u64 {
        self.lsn
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        let count = open.get_mut(&self.lsn).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            open.remove(&self.lsn);
        }
    }
}

impl Snapshots {
    /// The last record that new snapshots see.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes everything up to `lsn` visible to new snapshots.
    pub(crate) fn publish(&self, lsn: u64) {
        let _open = self.open.lock();
        self.visible.store(lsn, Ordering::Release);
    }

    /// Opens a snapshot of the visible state.
    pub(crate) fn begin(self: &Arc<Snapshots>) -> Held {
        let mut open = self.open.lock();
        let lsn = self.visible.load(Ordering::Acquire);
        *open.entry(lsn).or_default() += 1;
        Held { lsn, of: self.clone() }
    }

    /// The oldest moment that is or can be read.
    pub(crate) fn oldest(&self) -> u64 {
        let open = self.open.lock();
        let visible = self.visible.load(Ordering::Acquire);
        open.first_key_value().map_or(visible, |(lsn, _)| *lsn.min(&visible))
    }

    /// The number of open snapshots, and the oldest.
    pub(crate) fn count(&self) -> (u64, Option<u64>) {
        let open = self.open.lock();
        (open.values().sum(), open.first_key_value().map(|(lsn, _)| *lsn))
    }
}
