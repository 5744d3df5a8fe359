//! What a node says of itself: `node.json`, written when it is ready, and the status that its control socket answers.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::{fs, process};

use ::node::AdmissionStatus;
use serde::{Deserialize, Serialize};

use super::{Node, Running, Trouble, lock};
use crate::queue::Queue;

/// File in the data directory that says that, and where, a node is ready.
const READY: &str = "node.json";

/// A service, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// `mllp` or `file`.
    pub kind: String,
    /// Address and port, or folder.
    pub at: String,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// The rules file it uses.
    pub rules: Option<String>,
}

/// An operation, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperationStatus {
    /// Its name.
    pub name: String,
    /// Messages accepted and not done.
    pub waiting: usize,
    /// Bytes of them in memory.
    pub memory_bytes: usize,
    /// Delivered since the start.
    pub delivered: u64,
    /// Given up on since the start.
    pub failed: u64,
    /// Tries followed by another, since the start.
    pub retried: u64,
    /// Stands still until resumed.
    pub suspended: bool,
    /// No longer in the production; not shown when empty.
    pub retired: bool,
}

/// The journal, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Name of the tier that it lies on.
    pub tier: String,
    /// The medium and how it is used, in words.
    pub device: String,
    /// What a flush is worth there: `power-fail-safe`, `emulated` or `none`.
    pub durability: String,
    /// False where a timing model stands in for the medium.
    pub real: bool,
    /// Oldest position kept.
    pub first: u64,
    /// End of what is persistent.
    pub durable: u64,
    /// Writes (each followed by a flush) since the start.
    pub writes: u64,
    /// Bytes written since the start, with padding.
    pub bytes: u64,
    /// Records since the start.
    pub records: u64,
    /// Bytes cut off at the last start since a crash had torn them.
    pub torn_bytes: u64,
}

/// What the pages, the images of pages that are being written, or far memory lie on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlaceStatus {
    /// Name of the tier.
    pub tier: String,
    /// The medium and how it is used, in words.
    pub device: String,
    /// What a flush is worth there: `power-fail-safe`, `emulated` or `none`.
    pub durability: String,
    /// False where a timing model stands in for the medium.
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
    /// What is wrong with it, where it lies, and which keys it concerns.
    pub why: String,
}

/// A timing model that stands in for a medium, for people and programs.
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
    /// Of the accesses, those that ended later than the model says, since the host itself took longer: there the figures are
    /// those of the host and not of the medium.
    pub late: u64,
    /// Microseconds that those were late, together.
    pub late_us: u64,
}

/// The store, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreStatus {
    /// What the page cache is of: `dram`; near and far memory as a mode has placed them, `memory-mode` or `dual`; `two-tier`: near
    /// and far memory as a setting has placed them.
    pub cache_mode: String,
    /// Who moves pages between near and far memory: `direct-mapped`, as the hardware of Memory Mode does; `managed`: the cache.
    pub cache_policy: String,
    /// Near memory of the cache, bytes.
    pub near_bytes: u64,
    /// Far memory of the cache, bytes.
    pub far_bytes: u64,
    /// What far memory lies on, where there is any.
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
    /// Pages that are damaged and set aside, as far as they were met since the start.
    pub pages_quarantined: u64,
    /// Changed and not written to the pages yet, bytes.
    pub dirty_bytes: u64,
    /// Records durable and not visible to readers yet, bytes.
    pub behind_bytes: u64,
    /// Changes of keys since the start.
    pub changes: u64,
    /// Why the store is poisoned, if it is.
    pub frozen: Option<String>,
}

impl StoreStatus {
    fn of(store: &store::Store, options: &store::Options, far: Option<&super::FarInUse>) -> StoreStatus {
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
            changes: metrics.changes_applied,
            frozen: store.poisoned().map(|cause| cause.to_string()),
        }
    }
}

impl PlaceStatus {
    fn of(medium: &super::MediumInUse) -> PlaceStatus {
        let super::MediumInUse { tier, device, durability, real } = medium;
        PlaceStatus { tier: tier.clone(), device: device.clone(), durability: durability.to_string(), real: *real }
    }
}

impl ModelStatus {
    fn of(model: &super::ModelInUse) -> ModelStatus {
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

/// Everything about a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The process.
    pub pid: u32,
    /// The production's name.
    pub production: String,
    /// The data directory.
    pub data: PathBuf,
    /// Services.
    pub services: Vec<ServiceStatus>,
    /// Operations.
    pub operations: Vec<OperationStatus>,
    /// Waiting messages by operation that the production does not have.
    pub homeless: std::collections::BTreeMap<String, u64>,
    /// The journal.
    pub journal: JournalStatus,
    /// The store.
    pub store: StoreStatus,
    /// The write image journal.
    pub images: PlaceStatus,
    /// The pages.
    pub data_pages: PlaceStatus,
    /// What is damaged and set aside, as far as it was met since the start; the first hundred.
    pub quarantined: Vec<QuarantinedStatus>,
    /// The timing models that stand in for media; empty where everything is what it is.
    pub models: Vec<ModelStatus>,
    /// Messages stored since the start.
    pub stored: u64,
    /// Outputs made since the start.
    pub outputs: u64,
    /// Messages refused since the start.
    pub refused: u64,
    /// Messages seen before, since the start.
    pub duplicates: u64,
    /// Messages refused for a full disk, since the start.
    pub full: u64,
    /// Messages removed beyond the retention, since the start.
    pub pruned: u64,
    /// Delivered messages given up before their retention ended, for a full disk, since the start.
    pub pruned_full: u64,
    /// Bytes outside frames, since the start.
    pub junk_bytes: u64,
    /// Partial frames thrown away, since the start.
    pub partial: u64,
    /// Messages over the size bound, since the start.
    pub oversize: u64,
    /// Connections open.
    pub connections: u64,
    /// Who is connected to each service, what was refused and ended, and why.
    pub admission: AdmissionStatus,
    /// Why the node takes and sends nothing any more, if so.
    pub journal_failed: Option<String>,
    /// What keeps the node from doing all of its work, and what to do about it; empty where nothing does.
    pub troubles: Vec<Trouble>,
}

impl Node {
    /// The node as it stands.
    pub fn status(&self) -> Status {
        // Not inside of the value that is made: what is borrowed there is held to its end, and looking may have to say that the node
        // has failed.
        let troubles = self.look();
        let journal_failed = self.engine.ledger.failed().borrow().as_deref().map(str::to_owned);
        let connections = *self.engine.connections.borrow();
        let plan = self.engine.plan();
        let store = self.engine.ledger.store();
        let journal = store.journal();
        let stats = journal.stats();
        let counters = &self.engine.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Status {
            pid: process::id(),
            production: plan.production.name.clone(),
            data: self.options.data.clone(),
            services: self.service_status(),
            operations: self.queues().iter().map(|queue| operation_status(queue)).filter(is_shown).collect(),
            homeless: lock(&self.homeless).homeless.clone(),
            journal: JournalStatus {
                tier: self.media.journal.tier.clone(),
                device: self.media.journal.device.clone(),
                durability: self.media.journal.durability.to_string(),
                real: self.media.journal.real,
                first: journal.first().0,
                durable: journal.durable().0,
                writes: stats.batches,
                bytes: stats.written_bytes,
                records: stats.records,
                torn_bytes: self.opened.journal.torn_bytes,
            },
            store: StoreStatus::of(store, &self.options.store, self.media.far.as_ref()),
            images: PlaceStatus::of(&self.media.images),
            data_pages: PlaceStatus::of(&self.media.data),
            quarantined: quarantined(store),
            models: self.media.models.iter().map(ModelStatus::of).collect(),
            stored: read(&counters.stored),
            outputs: read(&counters.outputs),
            refused: read(&counters.refused),
            duplicates: read(&counters.duplicates),
            full: read(&counters.full),
            pruned: read(&counters.pruned),
            pruned_full: read(&counters.pruned_full),
            junk_bytes: read(&counters.junk_bytes),
            partial: read(&counters.partial),
            oversize: read(&counters.oversize),
            connections,
            admission: self.engine.admission.status(),
            journal_failed,
            troubles,
        }
    }

    fn service_status(&self) -> Vec<ServiceStatus> {
        let plan = self.engine.plan();
        let services = lock(&self.services);
        let status = |(name, running): (&String, &Running)| {
            let service = plan.production.services.get(name)?;
            let (kind, at) = match (running, &service.settings) {
                (Running::Mllp(listening), _) => ("mllp", listening.address.to_string()),
                (Running::File(_), crate::production::settings::Service::File(file)) => {
                    ("file", file.folder.display().to_string())
                }
                (Running::File(_), _) => return None,
            };
            Some(ServiceStatus {
                name: name.clone(),
                kind: kind.to_owned(),
                at,
                tls: service.tls.is_some(),
                rules: service.settings.rules().map(str::to_owned),
            })
        };
        services.iter().filter_map(status).collect()
    }
}

/// So many damaged places are told in a status.
const QUARANTINED_TOLD: usize = 100;

fn quarantined(store: &store::Store) -> Vec<QuarantinedStatus> {
    let of = |store::Quarantined { page, pages, tree, why }| QuarantinedStatus { page: page.0, pages, tree, why };
    store.quarantined().into_iter().take(QUARANTINED_TOLD).map(of).collect()
}

fn is_shown(operation: &OperationStatus) -> bool {
    !operation.retired || operation.waiting > 0
}

fn operation_status(queue: &Queue) -> OperationStatus {
    let orders = queue.orders();
    let orders = orders.borrow();
    OperationStatus {
        name: queue.name.clone(),
        waiting: queue.depth(),
        memory_bytes: queue.memory(),
        delivered: queue.counters.delivered.load(Ordering::Relaxed),
        failed: queue.counters.failed.load(Ordering::Relaxed),
        retried: queue.counters.retried.load(Ordering::Relaxed),
        suspended: orders.suspended,
        retired: orders.retired,
    }
}

/// Says that the node is ready. Whole or not there: programs wait for this file. Where it cannot be written (a full
/// disk) the node runs all the same, and the log says so: what is queued must go out.
pub(super) fn write_ready(node: &Node) {
    let path = node.options.data.join(READY);
    let part = node.options.data.join(".node.json.part");
    let text = serde_json::to_string_pretty(&node.status()).expect("plain data becomes JSON");
    if let Err(error) = fs::write(&part, text).and_then(|()| fs::rename(&part, &path)) {
        tracing::warn!(%error, path = %path.display(), "the file that says the node is ready cannot be written");
    }
}

/// The node is gone.
pub(super) fn remove_ready(data: &Path) {
    // It may never have been written; a file that stays behind names a process that is gone.
    let _ = fs::remove_file(data.join(READY));
}

/// What the node on `data` said when it became ready; `None` while it has not.
pub fn read_ready(data: &Path) -> Option<Status> {
    serde_json::from_str(&fs::read_to_string(data.join(READY)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use catalogue::medium::Direction;
    use catalogue::{Budget, Medium, Model, ModelMemory, Timing};

    use super::super::ModelInUse;
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
