//! The status of a running production: shown by `terrace status`, and stored in node.json.

use std::path::PathBuf;
use std::process;
use std::sync::atomic::Ordering;

use node::AdmissionStatus;
use node::backups::BackupRecord;
use node::status::{JournalStatus, ModelStatus, PlaceStatus, QuarantinedStatus, StoreStatus, quarantined};
use node::trouble::Trouble;
use serde::{Deserialize, Serialize};

use super::RunningProduction;
use super::waiting::{self, OperationStatus};

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
    /// Why it takes no messages now, in words; empty where it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub closed: String,
    /// What it cannot take now, and why, in words; empty where it takes all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hindered: String,
}

/// Everything about a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The process.
    pub pid: u32,
    /// The production's name.
    pub production: String,
    /// Its generation; 0 where it is none.
    #[serde(default)]
    pub generation: u32,
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
    /// The files of search indices, where they are placed on a tier.
    #[serde(default)]
    pub search: Option<PlaceStatus>,
    /// Their large files, where these are placed on another tier.
    #[serde(default)]
    pub search_capacity: Option<PlaceStatus>,
    /// Damaged pages in quarantine that were found since the start; the first hundred.
    pub quarantined: Vec<QuarantinedStatus>,
    /// The timing models in use; empty if no medium is modelled.
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
    /// The connections of each service, the refused and ended ones, and the reasons.
    pub admission: AdmissionStatus,
    /// Failed logins at all ports that are remembered: they slow down further ones.
    #[serde(default)]
    pub failed_logins: u64,
    /// The last backups by schedule; none where there were to be none.
    #[serde(default)]
    pub backup: Option<BackupRecord>,
    /// Why the node takes and sends nothing any more, if so.
    pub journal_failed: Option<String>,
    /// The troubles of the node, with what to do about them; empty if there are none.
    pub troubles: Vec<Trouble>,
}

/// The record of backups. One that cannot be read is told by the log, and is no reason for a node to have no status.
fn backup(store: &store::Store) -> Option<BackupRecord> {
    BackupRecord::read(store).unwrap_or_else(|error| {
        tracing::error!(%error, "the record of backups cannot be read");
        None
    })
}

/// The present status of the node.
pub(super) fn status(running: &RunningProduction) -> NodeStatus {
    let RunningProduction { engine, store, operations, services, housekeeping, options, .. } = running;
    // Not inside of the value that is made: what is borrowed there is held to its end, and detecting may have to fail the node.
    let troubles = housekeeping.detect_troubles();
    let journal_failed = engine.message_log.failed().borrow().as_deref().map(str::to_owned);
    let connections = *engine.connections.borrow();
    let production = &engine.plan().production;
    let media = store.media();
    let counters = &engine.counters;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    NodeStatus {
        pid: process::id(),
        production: production.name.clone(),
        generation: production.generation(),
        data: options.data.clone(),
        services: services.status(production, engine.clock.now_us()),
        operations: waiting::statuses(running),
        homeless: operations.homeless(),
        journal: JournalStatus::of(store),
        store: StoreStatus::of(store),
        images: PlaceStatus::of(&media.images),
        data_pages: PlaceStatus::of(&media.data),
        search: media.search.as_ref().map(PlaceStatus::of),
        search_capacity: media.search_capacity.as_ref().map(PlaceStatus::of),
        quarantined: quarantined(store.store()),
        models: media.models.iter().map(ModelStatus::of).collect(),
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
        admission: engine.admission.status(),
        failed_logins: running.guard.failures(),
        backup: backup(store.store()),
        journal_failed,
        troubles,
    }
}
