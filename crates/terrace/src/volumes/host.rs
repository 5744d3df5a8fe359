//! The volumes of a data directory: opened at the start of a node, kept open, exported.
//!
//! ```text
//!   DATA/volumes/*.json --> HostedVolume, one each --open--> Volume | place --export--> NbdServer
//!                               ^
//!   keeper: every second, opens what failed to open, attaches copies that were away, closes places whose medium has failed
//!   requests: create, replace, grow, export, delete ... one at a time for each volume
//! ```
//!
//! Invariants: the caller holds the lock of the data directory, so one process at a time serves its volumes. A volume that cannot be
//! opened stops no other one. What a request answered `Ok` to is durable, also across a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use device::Device;
use nbd::server::Limits;
use nbd::{Export, NbdServer};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::description::{Description, Descriptions, ExportDescription, MadeState, VolumeKind};
use super::hosted::{HostedVolume, OpenDevice};
use super::requests::{ExportReport, ScrubReport, VolumeReport, VolumeRequest};
use super::watching::ProfileTap;
use crate::assemble::TierShelves;

/// How long sessions of an export that ends may take for what they have begun.
const DRAIN: Duration = Duration::from_secs(10);

/// Between two looks of the keeper.
const LOOK: Duration = Duration::from_secs(1);

/// The server of the exports, and its addresses.
#[derive(Debug)]
pub struct Exports {
    /// The server.
    pub server: NbdServer,
    /// The runtime on which an export ends.
    pub runtime: tokio::runtime::Handle,
    /// The start of each export's URI, and what follows its name.
    pub addresses: Mutex<Vec<(String, String)>>,
}

/// See the module's text.
#[derive(Debug)]
pub struct VolumeHost {
    pub(super) descriptions: Descriptions,
    pub(super) tiers: TierShelves,
    pub(super) scrub: Option<Duration>,
    /// Whoever records a profile of the node.
    pub(super) profile: ProfileTap,
    pub(super) volumes: Mutex<BTreeMap<String, Arc<HostedVolume>>>,
    /// Descriptions that cannot be read, with the reason.
    unreadable: Mutex<BTreeMap<String, String>>,
    exports: OnceLock<Exports>,
    /// Volumes that the node itself uses: closed after its store, and nobody else's.
    taken: Mutex<BTreeSet<String>>,
    is_stopping: AtomicBool,
    keeper: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl VolumeHost {
    /// The volumes of a data directory whose lock the caller has. Nothing is opened.
    ///
    /// # Errors
    /// The folder of descriptions cannot be read.
    pub fn new(data: &Path, tiers: &TierShelves, scrub: Option<Duration>) -> anyhow::Result<Arc<VolumeHost>> {
        let descriptions = Descriptions::of(data);
        let profile = ProfileTap::default();
        let (mut volumes, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        for (name, read) in descriptions.read_all()? {
            match read {
                Ok(description) => {
                    volumes.insert(name, Arc::new(HostedVolume::new(description, scrub, &profile)));
                }
                Err(error) => {
                    tracing::error!(volume = name, why = format!("{error:#}"), "a volume cannot be used");
                    unreadable.insert(name, format!("{error:#}"));
                }
            }
        }
        Ok(Arc::new(VolumeHost {
            descriptions,
            tiers: tiers.clone(),
            scrub,
            profile,
            volumes: Mutex::new(volumes),
            unreadable: Mutex::new(unreadable),
            exports: OnceLock::new(),
            taken: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            keeper: Mutex::default(),
        }))
    }

    /// Opens all volumes, each on a thread of its own, exports them, and keeps them open from now on.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self: &Arc<VolumeHost>, exports: Exports) -> anyhow::Result<()> {
        assert!(self.exports.set(exports).is_ok(), "a host is started once");
        let host = Arc::clone(self);
        let keep = move || {
            while !host.is_stopping.load(Ordering::Acquire) {
                device::supervise::rehearse("volume-keeper");
                host.look();
                std::thread::park_timeout(LOOK);
            }
        };
        let failed = |why: &str| tracing::error!(why, "volumes that fail are not opened again until the next start");
        let thread =
            device::supervise::thread("volume-keeper", keep, failed).context("the keeper of volumes cannot start")?;
        *self.keeper.lock() = Some(thread);
        Ok(())
    }

    /// Waits until every volume is open or has failed to, at most so long: clients that connect find their exports then.
    pub fn wait_tried(&self, patience: Duration) {
        let deadline = std::time::Instant::now() + patience;
        while std::time::Instant::now() < deadline && self.all().iter().any(|volume| volume.is_untried()) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The server, once it is started.
    pub fn exports(&self) -> Option<&Exports> {
        self.exports.get()
    }

    /// Errors of the requests to each export since it began.
    fn errors_of_exports(&self) -> BTreeMap<String, u64> {
        let exported = self.exports.get().map(|exports| exports.server.status()).unwrap_or_default();
        exported.into_iter().map(|served| (served.name, served.errors)).collect()
    }

    /// Opens what can be opened, attaches what is away.
    fn look(self: &Arc<VolumeHost>) {
        let exported = self.errors_of_exports();
        // What is not exported has had no errors.
        let errors_of = |volume: &HostedVolume| exported.get(&volume.description().name).copied().unwrap_or(0);
        for volume in self.all() {
            if volume.description().state != MadeState::Ready {
                continue;
            }
            if volume.is_due() {
                // On a thread of its own: a medium that hangs stops no other volume.
                let host = Arc::clone(self);
                let opened = device::supervise::thread(
                    "volume-open",
                    move || host.open_and_export(&volume),
                    |why| {
                        tracing::error!(why, "a volume was not opened");
                    },
                );
                if let Err(error) = opened {
                    tracing::warn!(%error, "a volume cannot be opened now");
                }
            } else if volume.needs_care(errors_of(&volume)) && volume.begin_care() {
                // The same.
                let (host, kept) = (Arc::clone(self), Arc::clone(&volume));
                let cared = device::supervise::thread(
                    "volume-care",
                    move || {
                        host.care(&kept);
                        kept.end_care();
                    },
                    |why| tracing::error!(why, "copies of a volume are not attached again until the next start"),
                );
                if let Err(error) = cared {
                    volume.end_care();
                    tracing::warn!(%error, "copies of a volume cannot be attached now");
                }
            }
        }
    }

    /// Attaches copies of a volume that are away, and clears places that it has left; closes a place whose medium has failed.
    fn care(&self, volume: &HostedVolume) {
        let Some(_one) = volume.try_operation() else { return };
        if self.is_stopping.load(Ordering::Acquire) {
            return;
        }
        let name = volume.description().name;
        if let Some(why) = volume.failed_medium(self.errors_of_exports().get(&name).copied().unwrap_or(0)) {
            tracing::error!(
                volume = name,
                why,
                "the medium of a place has failed: its sessions end, and it is opened again from the medium"
            );
            match self.unexport(&name) {
                Ok(()) => volume.give_up_medium(&why),
                // Nothing is opened beside requests that are still in the device.
                Err(error) => tracing::warn!(volume = name, why = format!("{error:#}"), "it is not opened again yet"),
            }
            return;
        }
        if volume.attach_copies(&self.tiers)
            && let Err(error) = self.open_anew(volume, false)
        {
            tracing::warn!(volume = name, why = format!("{error:#}"), "it cannot be opened anew");
        }
        if let Err(error) = self.clear_retired(volume) {
            tracing::warn!(volume = name, why = format!("{error:#}"), "a former place is not cleared");
        }
    }

    /// Opens a volume now, for a caller that waits for it.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_now(&self, name: &str) -> anyhow::Result<()> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        let open = volume.open(&self.tiers, false)?;
        match self.export(&volume.description(), &open) {
            Err(error) if !is_exported_already(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Closes a volume and opens it with the copies that are there now. Its sessions end; clients connect again. The caller holds the
    /// volume's operation.
    pub(super) fn open_anew(&self, volume: &HostedVolume, accept_loss: bool) -> anyhow::Result<()> {
        let description = volume.description();
        self.check_free(&description.name)?;
        tracing::info!(volume = description.name, "opened anew, with the copies that are there now");
        self.unexport(&description.name)?;
        // It was open for reading only: nothing has to be written in place.
        let _ = volume.close();
        let open = volume.open(&self.tiers, accept_loss)?;
        self.export(&description, &open)
    }

    fn open_and_export(&self, volume: &HostedVolume) {
        let Some(_one) = volume.try_operation() else { return };
        if !volume.is_due() || self.is_stopping.load(Ordering::Acquire) {
            return;
        }
        let name = volume.description().name;
        match volume.open(&self.tiers, false).and_then(|open| self.export(&volume.description(), &open)) {
            Ok(()) => tracing::info!(volume = name, "open"),
            Err(error) => tracing::error!(
                volume = name,
                why = format!("{error:#}"),
                "a volume cannot be opened; it is tried again"
            ),
        }
    }

    fn all(&self) -> Vec<Arc<HostedVolume>> {
        self.volumes.lock().values().cloned().collect()
    }

    pub(super) fn find(&self, name: &str) -> anyhow::Result<Arc<HostedVolume>> {
        if let Some(why) = self.unreadable.lock().get(name) {
            bail!("{why}");
        }
        let volumes = self.volumes.lock();
        // Which others there are may not be for who asks.
        volumes.get(name).cloned().with_context(|| format!("there is no volume {name}: see `terrace volume list`"))
    }

    /// Whether volumes stay open between requests.
    pub(super) fn is_serving(&self) -> bool {
        self.keeper.lock().is_some()
    }

    /// What prevents volumes from working, in one line each.
    pub fn troubles(&self) -> Vec<String> {
        let unreadable = self.unreadable.lock().values().cloned().collect::<Vec<_>>();
        unreadable.into_iter().chain(self.all().iter().filter_map(|volume| volume.trouble())).collect()
    }

    /// Reports of all volumes, but for their exports.
    pub fn reports(&self) -> Vec<VolumeReport> {
        self.all().iter().map(|volume| volume.report()).collect()
    }

    /// Opens a volume for the node itself.
    ///
    /// # Errors
    /// There is none of this name, it is exported or a place, or cannot be opened.
    pub fn take(&self, name: &str) -> anyhow::Result<Arc<dyn Device>> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        let description = volume.description();
        ensure!(
            description.exported.is_none(),
            "volume {name} is exported, and what clients write would destroy what the node stores: `terrace volume export {name} --stop`"
        );
        ensure!(description.kind == VolumeKind::Mirror, "{name} is a place for a copy of another node's volume");
        volume.is_for_node();
        let opened = volume.open(&self.tiers, false)?;
        self.taken.lock().insert(name.to_owned());
        Ok(opened.device())
    }

    /// Refuses what would end a volume under the node's own data.
    pub(super) fn check_free(&self, name: &str) -> anyhow::Result<()> {
        ensure!(
            !self.taken.lock().contains(name),
            "the node keeps its own data on volume {name}; `terrace stop` and `terrace serve` open it with the copies that are there then"
        );
        Ok(())
    }

    /// Exports an open volume, if it is to be exported.
    pub(super) fn export(&self, description: &Description, open: &OpenDevice) -> anyhow::Result<()> {
        let (Some(exports), Some(exported)) = (self.exports.get(), description.exported) else { return Ok(()) };
        let what = match description.kind {
            VolumeKind::Mirror => "volume of",
            VolumeKind::Place => "place for a copy of",
        };
        exports.server.add(Export {
            read_only: exported.read_only,
            description: format!("{what} {} bytes", description.bytes),
            limits: limits_of(description),
            epochs: open.epochs(),
            ..Export::new(&description.name, open.device())
        })?;
        Ok(())
    }

    pub(super) fn unexport(&self, name: &str) -> anyhow::Result<()> {
        let Some(exports) = self.exports.get() else { return Ok(()) };
        match exports.runtime.block_on(exports.server.remove(name, DRAIN)) {
            Ok(()) | Err(nbd::NbdError::NoExport { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Does what is requested. It may take as long as reading all of a volume.
    ///
    /// # Errors
    /// What was requested cannot be done; the text says what to do.
    pub fn handle(&self, request: VolumeRequest) -> anyhow::Result<Value> {
        ensure!(!self.is_stopping.load(Ordering::Acquire), "the node is stopping");
        match request {
            VolumeRequest::Create(new) => self.create(&new),
            VolumeRequest::Status { names } => Ok(serde_json::to_value(self.status(&names)?)?),
            VolumeRequest::Replace { name, copy, wanted } => self.replace(&name, copy, wanted),
            VolumeRequest::Scrub { name } => self.opened(&name, |volume| {
                let found = volume.mirror()?.scrub()?;
                Ok(json!(ScrubReport { bytes: found.bytes, repaired: found.repaired, damaged: found.damaged }))
            }),
            VolumeRequest::Grow { name, bytes } => self.grow(&name, bytes),
            VolumeRequest::Limit { name, iops, bytes_per_second } => self.limit(&name, iops, bytes_per_second),
            VolumeRequest::Rekey { name, key_file, new_data_key } => self.rekey(&name, &key_file, new_data_key),
            VolumeRequest::Export { name, read_only } => self.set_export(&name, Some(ExportDescription { read_only })),
            VolumeRequest::Unexport { name } => self.set_export(&name, None),
            VolumeRequest::AcceptLoss { name } => self.accept_loss(&name),
            VolumeRequest::Delete { name } => self.delete(&name),
        }
    }

    /// Does something with an open volume; opens it for that where nothing keeps it open.
    fn opened(&self, name: &str, work: impl FnOnce(&HostedVolume) -> anyhow::Result<Value>) -> anyhow::Result<Value> {
        let volume = self.find(name)?;
        if self.is_serving() {
            return work(&volume);
        }
        let _one = volume.operation()?;
        volume.open(&self.tiers, false)?;
        let done = work(&volume);
        let closed = volume.close();
        done.and_then(|done| closed.map(|()| done))
    }

    pub(super) fn status(&self, names: &[String]) -> anyhow::Result<Vec<VolumeReport>> {
        let volumes = match names {
            [] => self.all(),
            names => names.iter().map(|name| self.find(name)).collect::<anyhow::Result<_>>()?,
        };
        let exported = self.exports.get().map(|exports| exports.server.status()).unwrap_or_default();
        let report = |volume: Arc<HostedVolume>| {
            if !self.is_serving() {
                volume.note_disks();
            }
            let mut report = volume.report();
            let description = volume.description();
            report.export = description.exported.map(|export| {
                let served = exported.iter().find(|served| served.name == report.name);
                let addresses = self.exports.get().into_iter().flat_map(|exports| exports.addresses.lock().clone());
                let uris = addresses.map(|(before, after)| format!("{before}{}{after}", report.name));
                ExportReport {
                    read_only: export.read_only,
                    uris: if served.is_some() { uris.collect() } else { Vec::new() },
                    sessions: served.map_or(0, |served| served.sessions),
                    errors: served.map_or(0, |served| served.errors),
                }
            });
            report
        };
        let mut reports: Vec<VolumeReport> = volumes.into_iter().map(report).collect();
        if names.is_empty() {
            let unreadable = self.unreadable.lock();
            reports.extend(unreadable.iter().map(|(name, why)| VolumeReport::unreadable(name, why)));
        }
        Ok(reports)
    }

    /// Ends the exports: no client uses a volume any more.
    pub async fn end_exports(&self) {
        if let Some(exports) = self.exports.get() {
            for served in exports.server.status() {
                if let Err(error) = exports.server.remove(&served.name, DRAIN).await {
                    tracing::warn!(volume = served.name, %error, "an export has not ended");
                }
            }
        }
    }

    /// Closes all volumes. The node has closed what it keeps on them.
    pub async fn stop(self: Arc<VolumeHost>) {
        self.is_stopping.store(true, Ordering::Release);
        self.end_exports().await;
        let host = self;
        let closed = tokio::task::spawn_blocking(move || {
            if let Some(keeper) = host.keeper.lock().take() {
                keeper.thread().unpark();
                // A panic has been reported by then.
                let _ = keeper.join();
            }
            for volume in host.all() {
                let closed = volume.operation().and_then(|_one| volume.close());
                if let Err(error) = closed {
                    tracing::warn!(volume = volume.description().name, why = format!("{error:#}"), "closing");
                }
            }
        });
        let _ = closed.await;
    }
}

/// What its clients get.
pub(super) fn limits_of(description: &Description) -> Limits {
    Limits { requests: description.iops, bytes: description.bytes_per_second }
}

pub(super) fn is_exported_already(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(nbd::NbdError::AlreadyExported { .. }))
}
