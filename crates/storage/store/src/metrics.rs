//! [`Metrics`]: what a store has done and holds, for whoever publishes it.

use crate::Lsn;
use crate::cache::{self, DirtyBytes};
use crate::checkpoint::checkpointer::CheckpointStats;
use crate::space::devices::DataDeviceStats;

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
