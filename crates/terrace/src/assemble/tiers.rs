//! The tiers of a node as shelves: the medium, slowed down where a model is set, and measured once.
//!
//! ```text
//!   file    FileShelf                                 one budget of bandwidth for each modelled tier,
//!   pmem    PmemShelf        [ + ModelShelf ]         shared by every structure and every volume on it
//!   memory  MemoryShelf
//!   nbd     DeviceShelf on an export   \  one shelf for each tier, of which each structure
//!   volume  DeviceShelf on a volume    /  has a part under its own name
//! ```
//!
//! Invariant: a modelled tier is measured before anything lies on it, so a host that is too slow for the model is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use catalogue::placement::{Absent, Kind, Structure, Tier, Tiers};
use catalogue::{Budget, CatalogueError, Medium, Model, ModelShelf, Timing};
use device::pmem::{self, PmemOptions, PmemShelf};
use device::{
    AlignedBuffer, Device, DeviceShelf, DeviceTraffic, Durability, FileOptions, FileShelf, MemoryShelf, Shelf, SubShelf,
};
use nbd::{ClientOptions, ClientTls, NbdDevice, NbdUri};
use node::ConnectionRegistry;
use node::{MediumInUse, ModelInUse, NodeError};

use super::own_exports::OwnExports;
use super::pages::in_pages;

/// How much is measured at the start of a node on a modelled tier: enough for a median, in a fraction of a second.
const CALIBRATION: catalogue::calibrate::Options =
    catalogue::calibrate::Options { operations: 200, bytes: 256 << 10, threads: 1, seed: 1 };

/// How often it is measured before the host counts as too slow: another process may have had the core for one of them.
const TRIES: usize = 3;

/// The timing of a modelled tier. One budget for all that lies on it.
#[derive(Debug)]
pub(super) struct Modelled {
    pub(super) medium: Medium,
    pub(super) model: Model,
    pub(super) budget: Arc<Budget>,
}

impl Modelled {
    pub(super) fn of(medium: Medium, modules: u32) -> Result<Modelled, CatalogueError> {
        let model = Model::of(&medium, modules)?;
        let budget = Budget::new(&model);
        Ok(Modelled { medium, model, budget })
    }

    fn slow_down(&self, shelf: Arc<dyn Shelf>) -> ModelShelf {
        ModelShelf::new(shelf, self.model.clone(), Arc::clone(&self.budget), Timing::Timed)
    }

    /// The model of the medium, as text; `below` is the device that does the work.
    pub(super) fn in_words(&self, below: &str) -> String {
        format!("modelled {} x {} on {below}", self.model.modules(), self.model.name())
    }

    pub(super) fn in_use(&self, tier: &str) -> ModelInUse {
        let (medium, modules) = (self.model.name().to_owned(), self.model.modules());
        ModelInUse { tier: tier.to_owned(), medium, modules, budget: Arc::clone(&self.budget) }
    }
}

/// The tiers of a node, their timing models and what was measured of these. Cheap to clone; clones share the budgets.
#[derive(Clone, Debug)]
pub struct TierShelves {
    tiers: Tiers,
    modelled: Arc<BTreeMap<String, Modelled>>,
    measured: Arc<Mutex<BTreeSet<String>>>,
    /// Shelves on one device, by name of the tier.
    shared: Arc<Mutex<SharedShelves>>,
    volumes: Arc<OnceLock<Arc<dyn VolumeSource>>>,
    /// Certificates for exports whose address is `nbds`.
    tls: Arc<OnceLock<ClientTls>>,
    /// The exports of this node: nothing of it lies there.
    own: Arc<OnceLock<OwnExports>>,
    /// Where connections to exports are listed.
    connections: Arc<OnceLock<Arc<ConnectionRegistry>>>,
    /// What was done to the shelf of each structure of the node.
    traffic: Arc<Mutex<TrafficOfStructures>>,
}

/// By tier and structure.
type TrafficOfStructures = BTreeMap<(String, Structure), Arc<DeviceTraffic>>;

type SharedShelves = BTreeMap<String, (Arc<dyn Shelf>, Durability)>;

/// Where the volumes of tiers of kind volume come from.
pub trait VolumeSource: Send + Sync + fmt::Debug {
    /// Opens a volume for the node itself: nobody else may use it from now on. Called with the lock of the data directory.
    ///
    /// # Errors
    /// There is none of this name, it cannot be opened, or clients use it.
    fn take(&self, name: &str) -> anyhow::Result<Arc<dyn Device>>;
}

impl TierShelves {
    pub(super) fn new(tiers: Tiers, modelled: BTreeMap<String, Modelled>) -> TierShelves {
        let (modelled, measured, shared) = (Arc::new(modelled), Arc::default(), Arc::default());
        let (volumes, tls, own, traffic, connections) = Default::default();
        TierShelves { tiers, modelled, measured, shared, volumes, tls, own, traffic, connections }
    }

    /// Volumes of tiers come from there. Called once, before anything is opened.
    pub fn take_volumes_from(&self, source: Arc<dyn VolumeSource>) {
        assert!(self.volumes.set(source).is_ok(), "volumes come from one place");
    }

    /// Exports whose address is `nbds` are reached with these certificates; without any, not at all. Called once, before anything is opened.
    pub fn reach_with(&self, tls: Option<ClientTls>) {
        let Some(tls) = tls else { return };
        assert!(self.tls.set(tls).is_ok(), "there is one set of certificates");
    }

    /// The exports of this node are served there. Called once, before anything is opened.
    pub fn exports_are(&self, own: OwnExports) {
        assert!(self.own.set(own).is_ok(), "a node serves its exports at one place");
    }

    /// Connections to exports are in this list. The first one counts.
    pub fn list_in(&self, connections: &Arc<ConnectionRegistry>) {
        // It has been said already.
        let _ = self.connections.set(Arc::clone(connections));
    }

    /// How to reach the export at an address.
    ///
    /// # Errors
    /// It is none, is one of this node itself, or needs certificates that are not set.
    pub fn client_of(&self, uri: &str) -> anyhow::Result<ClientOptions> {
        let address: NbdUri = uri.parse()?;
        anyhow::ensure!(
            self.own.get().is_none_or(|own| !own.has(&address)),
            "{uri} is an export of this node itself, which would wait for itself: name a tier, or an export of another node"
        );
        let tls = match (address.tls, self.tls.get()) {
            (false, _) => None,
            (true, Some(tls)) => Some(tls.clone()),
            (true, None) => anyhow::bail!(
                "{uri} needs certificates: set `authority` under [volumes] in terrace.toml, and `certificate` and `key` if its server asks \
                 for one"
            ),
        };
        let connections = self.connections.get().cloned();
        Ok(ClientOptions { tls, connections, ..ClientOptions::new(address) })
    }

    /// A structure's shelf whose operations are counted and timed, for the metrics of the node.
    pub(super) fn measured(&self, tier: &str, structure: Structure, shelf: Arc<dyn Shelf>) -> Arc<dyn Shelf> {
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        traffic.entry((tier.to_owned(), structure)).or_default().measure(shelf)
    }

    /// What was done to the structures of the node by now: by tier and structure.
    pub fn traffic(&self) -> Vec<(String, Structure, Arc<DeviceTraffic>)> {
        let traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        traffic.iter().map(|((tier, structure), one)| (tier.clone(), *structure, Arc::clone(one))).collect()
    }

    /// The timing models, by name of the tier.
    pub(super) fn modelled(&self) -> &BTreeMap<String, Modelled> {
        &self.modelled
    }

    /// Whether a tier is to be measured now: once, by the first that uses it.
    pub(super) fn is_first(&self, tier: &str) -> bool {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner).insert(tier.to_owned())
    }

    /// The models that are in use.
    pub(super) fn models_in_use(&self) -> Vec<ModelInUse> {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        self.modelled
            .iter()
            .filter(|(tier, _)| measured.contains(*tier))
            .map(|(tier, model)| model.in_use(tier))
            .collect()
    }

    /// The tier with this name.
    pub fn get(&self, tier: &str) -> Option<&Tier> {
        self.tiers.get(tier)
    }

    /// The names of all tiers.
    pub fn names(&self) -> String {
        self.tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Opens a structure's shelf on a tier; `folder` is its folder there, `part` its name on a tier without folders.
    pub fn open(
        &self,
        tier: &Tier,
        folder: Option<&Path>,
        part: &str,
    ) -> Result<(Arc<dyn Shelf>, MediumInUse), NodeError> {
        let (shelf, device, durability) = self.open_real(tier, folder, part)?;
        let name = tier.name.clone();
        let Some(modelled) = self.modelled.get(&tier.name) else {
            return Ok((shelf, MediumInUse { tier: name, device, durability, real: true }));
        };
        if self.is_first(&tier.name) {
            self.measure_tier(tier, modelled)?;
        }
        let device = modelled.in_words(&device);
        // A volatile medium stays volatile; a modelled one never promises more than "emulated". The modelled medium would
        // keep its content; memory would not, however slow.
        let durability = if matches!(tier.kind, Kind::Memory { .. }) { durability } else { Durability::Emulated };
        Ok((Arc::new(modelled.slow_down(shelf)), MediumInUse { tier: name, device, durability, real: false }))
    }

    /// Measures a tier beside what lies on it: in a folder or a part of its own, which is removed again.
    fn measure_tier(&self, tier: &Tier, modelled: &Modelled) -> Result<(), NodeError> {
        let folder = match &tier.kind {
            Kind::Memory { .. } | Kind::Nbd { .. } | Kind::Volume { .. } => None,
            Kind::Pmem { folder, .. } | Kind::File { folder } => {
                Some(folder.join(format!("calibration-{}", std::process::id())))
            }
        };
        let (shelf, ..) = self.open_real(tier, folder.as_deref(), "calibration")?;
        let measured = measure(&tier.name, modelled, in_pages(shelf));
        if let Some(folder) = folder {
            std::fs::remove_dir_all(&folder).map_err(NodeError::file("remove", &folder))?;
        }
        measured
    }

    /// A shelf on the medium itself, how it is used, and what a flush is worth there.
    fn open_real(&self, tier: &Tier, folder: Option<&Path>, part: &str) -> Result<Real, NodeError> {
        let folder = || folder.expect("what lies on a file or pmem tier has a folder");
        Ok(match &tier.kind {
            Kind::File { .. } => open_file(folder())?,
            Kind::Pmem { absent, .. } => {
                let absent = match absent {
                    Absent::Refuse => pmem::Absent::Refuse,
                    Absent::Pages => pmem::Absent::Pages,
                    Absent::Emulate => pmem::Absent::Emulate,
                };
                let shelf = PmemShelf::open(folder(), PmemOptions { absent })?;
                let (device, durability) = (shelf.mapping().to_string(), shelf.mapping().durability);
                (Arc::new(shelf), device, durability)
            }
            Kind::Memory { node: None } => (Arc::new(MemoryShelf::new()), "memory, none".to_owned(), Durability::None),
            Kind::Memory { node: Some(node) } => {
                let shelf = MemoryShelf::on_node(*node)?;
                (Arc::new(shelf), format!("memory of NUMA node {node}, none"), Durability::None)
            }
            Kind::Nbd { uri } => {
                let connect = || -> anyhow::Result<Arc<dyn Device>> { Ok(NbdDevice::connect(self.client_of(uri)?)?) };
                self.part_of(tier, part, format!("export {uri}"), || {
                    connect().map_err(|error| NodeError::Medium(format!("tier {}: {error:#}", tier.name)))
                })?
            }
            Kind::Volume { volume } => self.part_of(tier, part, format!("volume {volume}"), || {
                let failed = |why: String| NodeError::Medium(format!("tier {}: {why}", tier.name));
                let source = self.volumes.get().ok_or_else(|| failed("only a node opens its volumes".to_owned()))?;
                source.take(volume).map_err(|error| failed(format!("{error:#}")))
            })?,
        })
    }

    /// The part of a structure on the one device of a tier, which `open` opens for the first of them.
    fn part_of(
        &self,
        tier: &Tier,
        part: &str,
        what: String,
        open: impl FnOnce() -> Result<Arc<dyn Device>, NodeError>,
    ) -> Result<Real, NodeError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let (shelf, durability) = match shared.get(&tier.name) {
            Some((shelf, durability)) => (Arc::clone(shelf), *durability),
            None => {
                let device = open()?;
                let durability = device.durability();
                let shelf: Arc<dyn Shelf> = Arc::new(shelf_on(&what, device)?);
                shared.insert(tier.name.clone(), (Arc::clone(&shelf), durability));
                (shelf, durability)
            }
        };
        Ok((Arc::new(SubShelf::new(shelf, part)), format!("{what}, {durability}"), durability))
    }
}

/// A shelf, how its medium is used, and what a flush is worth there.
type Real = (Arc<dyn Shelf>, String, Durability);

/// How much of a device is looked at before a shelf is made of it: partition tables and file systems begin there.
const LOOKED_AT: u64 = 1 << 20;

/// Opens the shelf on a device. An empty device becomes an empty shelf; one with something else on it is refused.
fn shelf_on(what: &str, device: Arc<dyn Device>) -> Result<DeviceShelf, NodeError> {
    if !DeviceShelf::is_on(&device)? {
        let mut first = AlignedBuffer::zeroed(device.len().min(LOOKED_AT) as usize);
        device.read(0, &mut first)?;
        if first.iter().any(|byte| *byte != 0) {
            return Err(NodeError::Medium(format!(
                "{what} contains something, and it is nothing of a node: name an empty one, so that nothing is overwritten"
            )));
        }
        DeviceShelf::format(what, &device)?;
    }
    Ok(DeviceShelf::open(what, device)?)
}

/// Measures the times of the model's operations on `shelf`, from the size of a page on, and logs them; refuses a model
/// that the host is too slow for. Smaller accesses that end late are counted and shown in the status.
pub(super) fn measure(tier: &str, modelled: &Modelled, shelf: Arc<dyn Shelf>) -> Result<(), NodeError> {
    let Modelled { medium, model, .. } = modelled;
    let once = || catalogue::calibrate(&shelf, medium, model, &Timing::Timed, CALIBRATION);
    let mut measured = once();
    for _ in 1..TRIES {
        if matches!(measured, Err(CatalogueError::HostTooSlow { .. })) {
            measured = once();
        }
    }
    let calibration = measured.map_err(|error| NodeError::Medium(format!("tier {tier}: {error}")))?;
    let (good, rows) = (calibration.good(), calibration.rows.len());
    let timed = calibration.rows.iter().filter(|row| row.timed);
    let (operation, off) = timed
        .map(|row| (format!("{} {} B", row.operation, row.bytes), row.deviation()))
        .fold((String::new(), 0.0f64), |worst, row| if row.1.abs() > worst.1.abs() { row } else { worst });
    let worst = format!("{operation} {off:+.1} %");
    tracing::info!(tier, medium = medium.name, modules = model.modules(), good, rows, worst, "calibrated");
    for line in calibration.to_string().lines() {
        tracing::debug!("{line}");
    }
    Ok(())
}

pub(super) fn open_file(folder: &Path) -> Result<(Arc<dyn Shelf>, String, Durability), NodeError> {
    let shelf = FileShelf::open(folder, FileOptions::default())?;
    let (device, durability) = (shelf.kind().to_string(), shelf.kind().durability);
    Ok((Arc::new(shelf), device, durability))
}
