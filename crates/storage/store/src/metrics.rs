//! [`Metrics`]: what a store has done and holds, for whoever publishes it.

use crate::Lsn;
use crate::cache::{self, DirtyBytes};
use crate::checkpoint::checkpointer::CheckpointStats;
use crate::space::devices::DataDeviceStats;
use crate::store::Inner;

/// Figures of a store, since it was opened or as they are now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metrics {
    /// What the journal did.
    pub journal: journal::Stats,
    /// What passed through the page cache: hits by tier, readings of devices, early write-backs.
    pub cache: cache::CacheMetrics,
    /// What checkpoints did.
    pub checkpoints: CheckpointStats,
    /// Physical reads and writes of the data devices.
    pub data_devices: DataDeviceStats,
    /// Changes in the cache that are not written back.
    pub dirty: DirtyBytes,
    /// Pages in all data devices.
    pub pages: u64,
    /// Of those, in use.
    pub pages_used: u64,
    /// Of those, freed and waiting for a checkpoint or for snapshots.
    pub pages_waiting: u64,
    /// Pages known to be damaged since the store was opened.
    pub pages_quarantined: u64,
    /// Memory of old versions, bytes.
    pub versions_bytes: u64,
    /// Old versions.
    pub versions: u64,
    /// Open snapshots, those of transactions and cursors included.
    pub snapshots: u64,
    /// What the oldest of them sees; none while there is none.
    pub oldest_snapshot: Option<Lsn>,
    /// The last record that new snapshots see.
    pub visible: Lsn,
    /// Bytes of records that wait to be applied.
    pub queue_bytes: u64,
    /// Records applied.
    pub records_applied: u64,
    /// Changes of keys applied.
    pub changes_applied: u64,
    /// Keys known as written lately, for conflicts.
    pub recent_keys: u64,
    /// Whether the store is poisoned.
    pub is_poisoned: bool,
}

impl Inner {
    pub(crate) fn metrics(&self) -> Metrics {
        let usage = self.space.usage();
        let (versions_bytes, versions) = self.versions.size();
        let (snapshots, oldest) = self.snapshots.count();
        let (records_applied, changes_applied) = {
            let applier = self.applier.lock();
            (applier.records, applier.changes)
        };
        Metrics {
            journal: self.journal.stats(),
            cache: self.forest.cache.metrics(),
            checkpoints: self.checkpoint_stats(),
            data_devices: self.maintenance.data_devices.stats(),
            dirty: self.forest.cache.dirty_bytes(),
            pages: usage.pages,
            pages_used: usage.used,
            pages_waiting: usage.waiting,
            pages_quarantined: self.maintenance.data_devices.quarantine().pages(),
            versions_bytes,
            versions,
            snapshots,
            oldest_snapshot: oldest.map(Lsn),
            visible: Lsn(self.snapshots.visible()),
            queue_bytes: self.queue.bytes() as u64,
            records_applied,
            changes_applied,
            recent_keys: self.order.lock().recent_keys() as u64,
            is_poisoned: self.is_poisoned(),
        }
    }
}
