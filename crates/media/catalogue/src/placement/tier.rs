//! Tiers: their declarations, and the checked tiers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{HOME, PlacementError, Size, Structure, absolute};

/// The kinds that can be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindName {
    /// DRAM, or another NUMA node's memory.
    Memory,
    /// A folder on a file system over persistent memory.
    Pmem,
    /// A folder on any other file system.
    File,
    /// An export of an NBD server.
    Nbd,
    /// A volume of this node.
    Volume,
}

/// What a pmem tier does if its file system cannot map synchronously.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Absent {
    /// The node does not start, because the requested memory is missing.
    #[default]
    Refuse,
    /// Pages and msync: as persistent as the drive, and slower.
    Pages,
    /// Lines on an ordinary mapping: the instructions of persistent memory without its guarantee. Reported as emulated.
    Emulate,
}

/// `[tiers.NAME]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierSettings {
    /// `memory`, `pmem`, `file`, `nbd` or `volume`.
    pub kind: KindName,
    /// pmem, file: the folder of its files; created if it is missing.
    pub path: Option<PathBuf>,
    /// memory: the NUMA node. Default: the system's choice.
    pub node: Option<u32>,
    /// nbd: the address of the export.
    pub uri: Option<String>,
    /// volume: its name.
    pub volume: Option<String>,
    /// The medium whose figures slow this tier down; reports then contain "modelled". Default: none, the tier is not
    /// slowed.
    pub model: Option<String>,
    /// How many modules of the model share the load. Default: the usual number of its medium on a socket.
    pub modules: Option<u32>,
    /// How much of it the node may use. Default: no limit, and no check.
    pub bytes: Option<Size>,
    /// pmem: what to do if the file system cannot map synchronously. Default `refuse`.
    pub absent: Option<Absent>,
}

/// A tier's kind with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory, of a NUMA node if one is given.
    Memory {
        /// The node.
        node: Option<u32>,
    },
    /// Persistent memory.
    Pmem {
        /// The folder.
        folder: PathBuf,
        /// What to do without the hardware.
        absent: Absent,
    },
    /// Files.
    File {
        /// The folder.
        folder: PathBuf,
    },
    /// An export of an NBD server. Nothing keeps another node from using it too.
    Nbd {
        /// Its address.
        uri: String,
    },
    /// A volume of this node.
    Volume {
        /// Its name.
        volume: String,
    },
}

impl Kind {
    /// The kind as it is written in settings.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Memory { .. } => "memory",
            Kind::Pmem { .. } => "pmem",
            Kind::File { .. } => "file",
            Kind::Nbd { .. } => "nbd",
            Kind::Volume { .. } => "volume",
        }
    }
}

/// The behaviour of a tier, by which modes select it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActsAs {
    /// Byte-addressable and volatile.
    Memory,
    /// Byte-addressable and persistent.
    Pmem,
    /// Blocks: SSD, disk, SAN.
    Drive,
}

impl fmt::Display for ActsAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

impl ActsAs {
    pub(super) fn describe(self) -> &'static str {
        match self {
            ActsAs::Memory => "memory",
            ActsAs::Pmem => "persistent memory",
            ActsAs::Drive => "a drive",
        }
    }
}

/// The facts about a model's name that placement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumFacts {
    /// Its class.
    pub acts_as: ActsAs,
    /// Bytes of one module or drive; `None` if the medium has no size of its own.
    pub capacity: Option<u64>,
    /// The usual number of modules.
    pub modules: u32,
}

/// The medium that a tier is slowed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierModel {
    /// Its name in the catalogue.
    pub medium: String,
    /// How many share the load.
    pub modules: u32,
}

/// A tier, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its model, if it has one.
    pub model: Option<TierModel>,
    /// Its behaviour.
    pub acts_as: ActsAs,
    /// How much of it may be used.
    pub bytes: Option<u64>,
}

impl Tier {
    /// Whether its content is lost with the process.
    pub fn is_volatile(&self) -> bool {
        matches!(self.kind, Kind::Memory { .. })
    }

    /// The folder of a structure on it; `None` on media without folders, or for a structure without files.
    pub fn folder_of(&self, structure: Structure) -> Option<PathBuf> {
        let folder = match &self.kind {
            Kind::Memory { .. } | Kind::Nbd { .. } | Kind::Volume { .. } => return None,
            Kind::Pmem { folder, .. } | Kind::File { folder } => folder,
        };
        structure.folder().map(|name| folder.join(name))
    }
}

/// The tiers of a node, by name.
#[derive(Clone, Debug)]
pub struct Tiers {
    tiers: BTreeMap<String, Tier>,
}

impl Tiers {
    pub(super) fn of(
        declared: &BTreeMap<String, TierSettings>,
        home: &Path,
        medium: &dyn Fn(&str) -> Result<MediumFacts, String>,
    ) -> Result<Tiers, PlacementError> {
        let mut tiers = BTreeMap::new();
        for (name, settings) in declared {
            if name == HOME {
                return Err(PlacementError::HomeDeclared);
            }
            tiers.insert(name.clone(), tier(name, settings, medium)?);
        }
        let built_in = |name: &str, kind, acts_as| Tier { name: name.into(), kind, model: None, acts_as, bytes: None };
        if !tiers.contains_key("dram") && !tiers.values().any(|tier| tier.acts_as == ActsAs::Memory) {
            tiers.insert("dram".into(), built_in("dram", Kind::Memory { node: None }, ActsAs::Memory));
        }
        tiers.insert(HOME.into(), built_in(HOME, Kind::File { folder: home.to_owned() }, ActsAs::Drive));
        let tiers = Tiers { tiers };
        tiers.check_paths()?;
        Ok(tiers)
    }

    fn check_paths(&self) -> Result<(), PlacementError> {
        let mut seen: BTreeMap<PathBuf, &str> = BTreeMap::new();
        for tier in self.tiers.values() {
            let place = match &tier.kind {
                Kind::Memory { .. } => continue,
                Kind::Pmem { folder, .. } | Kind::File { folder } => absolute(folder),
                // What tells them apart from folders, which are absolute.
                Kind::Nbd { uri } => PathBuf::from(uri),
                Kind::Volume { volume } => PathBuf::from(volume),
            };
            if let Some(first) = seen.insert(place, &tier.name) {
                return Err(PlacementError::SamePath { first: first.to_owned(), second: tier.name.clone() });
            }
        }
        Ok(())
    }

    /// The tier that `placement.KEY` names.
    pub(super) fn named(&self, key: &str, tier: &str) -> Result<&Tier, PlacementError> {
        self.tiers.get(tier).ok_or_else(|| PlacementError::UnknownTier {
            key: key.to_owned(),
            tier: tier.to_owned(),
            known: self.tiers.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }

    /// The tier with this name.
    pub fn get(&self, name: &str) -> Option<&Tier> {
        self.tiers.get(name)
    }

    /// All, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = &Tier> {
        self.tiers.values()
    }
}

fn tier(
    name: &str,
    settings: &TierSettings,
    medium: &dyn Fn(&str) -> Result<MediumFacts, String>,
) -> Result<Tier, PlacementError> {
    let tier = || name.to_owned();
    let two = |kind, key, of| PlacementError::TwoKinds { tier: tier(), kind, key, of };
    let (kind, own) = match settings.kind {
        KindName::Nbd => (Kind::Nbd { uri: needed(name, "nbd", "uri", settings.uri.as_ref())? }, ActsAs::Drive),
        KindName::Volume => {
            (Kind::Volume { volume: needed(name, "volume", "volume", settings.volume.as_ref())? }, ActsAs::Drive)
        }
        KindName::Memory => (Kind::Memory { node: settings.node }, ActsAs::Memory),
        KindName::Pmem => (
            Kind::Pmem { folder: folder(name, "pmem", settings)?, absent: settings.absent.unwrap_or_default() },
            ActsAs::Pmem,
        ),
        KindName::File => (Kind::File { folder: folder(name, "file", settings)? }, ActsAs::Drive),
    };
    let foreign = [
        (settings.path.is_some() && !matches!(kind, Kind::Pmem { .. } | Kind::File { .. }), "path", "pmem or file"),
        (settings.node.is_some() && !matches!(kind, Kind::Memory { .. }), "node", "memory"),
        (settings.absent.is_some() && !matches!(kind, Kind::Pmem { .. }), "absent", "pmem"),
        (settings.uri.is_some() && !matches!(kind, Kind::Nbd { .. }), "uri", "nbd"),
        (settings.volume.is_some() && !matches!(kind, Kind::Volume { .. }), "volume", "volume"),
    ];
    if let Some((_, key, of)) = foreign.into_iter().find(|(is_foreign, ..)| *is_foreign) {
        return Err(two(kind.name(), key, of));
    }
    if settings.bytes == Some(Size(0)) {
        return Err(PlacementError::Empty { key: format!("tiers.{name}.bytes") });
    }
    let (model, acts_as) = match &settings.model {
        None if settings.modules.is_some() => return Err(PlacementError::Modules { tier: tier() }),
        None => (None, own),
        Some(named) => {
            let facts = medium(named).map_err(|problem| PlacementError::Medium { tier: tier(), problem })?;
            let modules = settings.modules.unwrap_or(facts.modules);
            check_model(name, settings, named, modules, facts)?;
            (Some(TierModel { medium: named.clone(), modules }), facts.acts_as)
        }
    };
    Ok(Tier { name: tier(), kind, model, acts_as, bytes: settings.bytes.map(|size| size.0) })
}

fn needed(name: &str, kind: &'static str, key: &'static str, value: Option<&String>) -> Result<String, PlacementError> {
    value.cloned().ok_or_else(|| PlacementError::MissingKey { tier: name.to_owned(), kind, key })
}

fn folder(name: &str, kind: &'static str, settings: &TierSettings) -> Result<PathBuf, PlacementError> {
    settings.path.clone().ok_or_else(|| PlacementError::MissingPath { tier: name.to_owned(), kind })
}

fn check_model(
    name: &str,
    settings: &TierSettings,
    medium: &str,
    modules: u32,
    facts: MediumFacts,
) -> Result<(), PlacementError> {
    if modules == 0 {
        return Err(PlacementError::Modules { tier: name.to_owned() });
    }
    let capacity = facts.capacity.map(|one| one.saturating_mul(u64::from(modules)));
    match (settings.bytes, capacity) {
        (Some(bytes), Some(capacity)) if bytes.0 > capacity => Err(PlacementError::LargerThanModel {
            tier: name.to_owned(),
            bytes,
            medium: medium.to_owned(),
            modules,
            capacity: Size(capacity),
        }),
        _ => Ok(()),
    }
}
