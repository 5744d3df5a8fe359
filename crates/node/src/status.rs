//! The node's report of its store and its media, and the file by which programs see that the node is ready.
//!
//! A service includes these parts in its own status, and adds its own counts.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::media::{MediumInUse, ModelInUse};
use crate::opening::NodeStore;

/// File in the data directory whose presence means that a node is ready; it then contains the node's status.
const READY: &str = "node.json";

/// The journal, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Name of the tier that it lies on.
    pub tier: String,
    /// The medium and how it is used, in words.
    pub device: String,
    /// The durability of a flush there: `power-fail-safe`, `emulated` or `none`.
    pub durability: String,
    /// False if the medium is a timing model.
    pub real: bool,
    /// Oldest position kept.
    pub first: u64,
    /// End of the persistent part.
    pub durable: u64,
    /// Writes (each followed by a flush) since the start.
    pub writes: u64,
    /// Bytes written since the start, with padding.
    pub bytes: u64,
    /// Microseconds that the writes took with their flushes; writes that overlap count each.
    pub write_us: u64,
    /// Records since the start.
    pub records: u64,
    /// Bytes cut off at the last start since a crash had torn them.
    pub torn_bytes: u64,
}

/// The medium of the pages, of the write image journal, or of far memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlaceStatus {
    /// Name of the tier.
    pub tier: String,
    /// The medium and how it is used, in words.
    pub device: String,
    /// The durability of a flush there: `power-fail-safe`, `emulated` or `none`.
    pub durability: String,
    /// False if the medium is a timing model.
    pub real: bool,
}

/// A page, or a run of pages, that is damaged and set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedStatus {
    /// Number of the first page.
    pub page: u32,
    /// How many.
    pub pages: u32,
    /// The tree it belongs to.
    pub tree: String,
    /// The damage, its place, and the keys that it concerns.
    pub why: String,
}

/// A timing model of a medium, for display and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// Name of the tier.
    pub tier: String,
    /// The medium's name in the catalogue.
    pub medium: String,
    /// How many modules of it share the load.
    pub modules: u32,
    /// Reads and writes since the start.
    pub accesses: u64,
    /// Bytes read since the start.
    pub read_bytes: u64,
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Of the accesses, those that ended later than by the model, since the host itself took longer: there the figures are
    /// those of the host and not of the medium.
    pub late: u64,
    /// Microseconds that those were late, together.
    pub late_us: u64,
}

/// The store, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreStatus {
    /// The memory of the page cache: `dram`; near and far memory as a mode has placed them, `memory-mode` or `dual`;
    /// `two-tier`: near and far memory as a setting has placed them.
    pub cache_mode: String,
    /// The policy that moves pages between near and far memory: `direct-mapped`, as the hardware of Memory Mode does;
    /// `managed`: the cache.
    pub cache_policy: String,
    /// Near memory of the cache, bytes.
    pub near_bytes: u64,
    /// Far memory of the cache, bytes.
    pub far_bytes: u64,
    /// The medium of far memory, if there is any.
    pub far: Option<PlaceStatus>,
    /// Pages and blocks that were found in the cache, since the start.
    pub cache_hits: u64,
    /// The same, that had to be read from a device.
    pub cache_misses: u64,
    /// Of the hits, blocks of external files.
    pub external_hits: u64,
    /// Of the misses, blocks of external files.
    pub external_misses: u64,
    /// Of the hits, those in near memory, inner pages of trees included.
    pub near_hits: u64,
    /// Of the hits, those in far memory.
    pub far_hits: u64,
    /// Reads of the data devices since the start.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes to the data devices since the start.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Checkpoints that are over.
    pub cycles: u64,
    /// Pages that went through the write image journal.
    pub image_pages: u64,
    /// Bytes written to the write image journal.
    pub image_bytes: u64,
    /// Milliseconds that the last checkpoint took, pauses included.
    pub last_cycle_ms: u64,
    /// How often updates waited for a checkpoint.
    pub cycle_waits: u64,
    /// Pages in all data devices.
    pub pages: u64,
    /// Of those, in use.
    pub pages_used: u64,
    /// Pages in quarantine that were found since the start.
    pub pages_quarantined: u64,
    /// Changed and not written to the pages yet, bytes.
    pub dirty_bytes: u64,
    /// Records durable and not visible to readers yet, bytes.
    pub behind_bytes: u64,
    /// Memory of old versions that open snapshots may still see, bytes.
    pub versions_bytes: u64,
    /// Changes of keys since the start.
    pub changes: u64,
    /// Why the store is poisoned, if it is.
    pub frozen: Option<String>,
}

impl JournalStatus {
    /// Of the journal of a store, at present.
    pub fn of(opened: &NodeStore) -> JournalStatus {
        let (journal, medium) = (opened.store().journal(), &opened.media().journal);
        let stats = journal.stats();
        JournalStatus {
            tier: medium.tier.clone(),
            device: medium.device.clone(),
            durability: medium.durability.to_string(),
            real: medium.real,
            first: journal.first().0,
            durable: journal.durable().0,
            writes: stats.batches,
            bytes: stats.written_bytes,
            write_us: stats.write_ns / 1000,
            records: stats.records,
            torn_bytes: opened.torn_bytes(),
        }
    }
}

impl StoreStatus {
    /// Of a store, at present.
    pub fn of(opened: &NodeStore) -> StoreStatus {
        let (store, options, far) = (opened.store(), opened.options(), opened.media().far.as_ref());
        let metrics = store.metrics();
        let cache_policy = match options.cache.policy {
            store::cache::Policy::DirectMapped => "direct-mapped",
            store::cache::Policy::Managed { .. } => "managed",
        };
        StoreStatus {
            cache_mode: far
                .map_or(if options.cache.far_bytes == 0 { "dram" } else { "two-tier" }, |far| far.cache_mode)
                .to_owned(),
            cache_policy: cache_policy.to_owned(),
            far: far.map(|far| PlaceStatus::of(&far.medium)),
            near_bytes: options.cache_bytes,
            far_bytes: options.cache.far_bytes,
            cache_hits: metrics.cache.near_hits + metrics.cache.far_hits + metrics.cache.inner_hits,
            cache_misses: metrics.cache.misses,
            external_hits: metrics.cache.external_hits,
            external_misses: metrics.cache.external_misses,
            near_hits: metrics.cache.near_hits + metrics.cache.inner_hits,
            far_hits: metrics.cache.far_hits,
            reads: metrics.data_devices.reads,
            read_bytes: metrics.data_devices.read_bytes,
            writes: metrics.data_devices.writes,
            written_bytes: metrics.data_devices.written_bytes,
            cycles: metrics.checkpoints.checkpoints,
            image_pages: metrics.checkpoints.changed_pages,
            image_bytes: metrics.checkpoints.image_bytes,
            last_cycle_ms: metrics.checkpoints.last_duration.as_millis() as u64,
            cycle_waits: metrics.checkpoints.waits,
            pages: metrics.pages,
            pages_used: metrics.pages_used,
            pages_quarantined: metrics.pages_quarantined,
            dirty_bytes: metrics.dirty.fresh + metrics.dirty.changed + metrics.dirty.checkpoint,
            behind_bytes: metrics.queue_bytes,
            versions_bytes: metrics.versions_bytes,
            changes: metrics.changes_applied,
            frozen: store.poisoned().map(|cause| cause.to_string()),
        }
    }
}

impl PlaceStatus {
    /// Of what a structure lies on.
    pub fn of(medium: &MediumInUse) -> PlaceStatus {
        let MediumInUse { tier, device, durability, real } = medium;
        PlaceStatus { tier: tier.clone(), device: device.clone(), durability: durability.to_string(), real: *real }
    }
}

impl ModelStatus {
    /// Of a model, with what passed through it by now.
    pub fn of(model: &ModelInUse) -> ModelStatus {
        let traffic = model.budget.traffic();
        ModelStatus {
            tier: model.tier.clone(),
            medium: model.medium.clone(),
            modules: model.modules,
            accesses: traffic.accesses,
            read_bytes: traffic.read,
            written_bytes: traffic.written,
            late: traffic.late,
            late_us: traffic.late_ns as u64 / 1000,
        }
    }
}

/// So many damaged places are listed in a status.
const QUARANTINED_LISTED: usize = 100;

/// Pages in quarantine that were found since the start; the first hundred.
pub fn quarantined(store: &store::Store) -> Vec<QuarantinedStatus> {
    let of = |store::Quarantined { page, pages, tree, why }| QuarantinedStatus { page: page.0, pages, tree, why };
    store.quarantined().into_iter().take(QUARANTINED_LISTED).map(of).collect()
}

/// Writes the status of a node that is ready to its data directory. The file is whole or not there: programs wait for
/// it. Where it cannot be written (a full disk) the node runs nevertheless, and logs it: queued messages must be sent.
pub fn write_ready(data: &Path, status: &impl Serialize) {
    let path = data.join(READY);
    let part = data.join(".node.json.part");
    let text = serde_json::to_string_pretty(status).expect("plain data becomes JSON");
    if let Err(error) = fs::write(&part, text).and_then(|()| fs::rename(&part, &path)) {
        tracing::warn!(%error, path = %path.display(), "the file that shows that the node is ready cannot be written");
    }
}

/// Removes the file: the node is gone.
pub fn remove_ready(data: &Path) {
    // It may never have been written; a file that stays behind names a process that is gone.
    let _ = fs::remove_file(data.join(READY));
}

/// The status that the node on `data` wrote when it became ready; `None` while it has not.
pub fn read_ready<T: DeserializeOwned>(data: &Path) -> Option<T> {
    serde_json::from_str(&fs::read_to_string(data.join(READY)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use catalogue::medium::Direction;
    use catalogue::{Budget, Medium, Model, ModelMemory, Timing};

    use super::*;

    #[test]
    fn an_access_that_took_the_host_longer_than_its_model_is_in_the_status_at_once() {
        let model = Model::of(&Medium::find("ddr4-2666").expect("built in"), 6).expect("complete");
        let budget = Budget::new(&model);
        let in_use = ModelInUse { tier: "pm".into(), medium: "ddr4-2666".into(), modules: 6, budget: budget.clone() };
        let memory = ModelMemory::new(model, budget, Timing::Timed);
        assert_eq!((ModelStatus::of(&in_use).accesses, ModelStatus::of(&in_use).late), (0, 0));
        memory.access(Direction::Read, 0, 64, || std::thread::sleep(Duration::from_millis(2)));
        let status = ModelStatus::of(&in_use);
        assert_eq!((status.accesses, status.late, status.read_bytes), (1, 1, 64));
        assert!(status.late_us >= 1_500, "{status:?}");
    }
}
