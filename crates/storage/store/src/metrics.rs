//! [`Metrics`]: what a store has done and contains, for monitoring.

use crate::Lsn;
use crate::cache::{self, DirtyBytes};
use crate::checkpoint::checkpointer::CheckpointStats;
use crate::space::devices::DataDeviceStats;

/// Metrics of a store, since it was opened or at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metrics {
    /// Counters of the journal.
    pub journal: journal::Stats,
    /// Counters of the page cache: hits by tier, reads from devices, early write-backs.
    pub cache: cache::CacheMetrics,
    /// Counters of the checkpoints.
    pub checkpoints: CheckpointStats,
    /// Physical reads and writes of the data devices.
    pub data_devices: DataDeviceStats,
    /// Changes in the cache that are not written back.
    pub dirty: DirtyBytes,
    /// Pages in all data devices.
    pub pages: u64,
    /// Pages in use.
    pub pages_used: u64,
    /// Pages that were freed and wait for a checkpoint or for snapshots.
    pub pages_waiting: u64,
    /// Pages known to be damaged since the store was opened.
    pub pages_quarantined: u64,
    /// Memory of old versions, bytes.
    pub versions_bytes: u64,
    /// Old versions.
    pub versions: u64,
    /// Open snapshots, including those of transactions and cursors.
    pub snapshots: u64,
    /// The LSN that the oldest of them sees; `None` if there is none.
    pub oldest_snapshot: Option<Lsn>,
    /// The last record that new snapshots see.
    pub visible: Lsn,
    /// Bytes of records that wait to be applied.
    pub queue_bytes: u64,
    /// Records applied.
    pub records_applied: u64,
    /// Changes of keys applied.
    pub changes_applied: u64,
    /// Recently written keys that are remembered for conflicts.
    pub recent_keys: u64,
    /// Whether the store is poisoned.
    pub is_poisoned: bool,
}
