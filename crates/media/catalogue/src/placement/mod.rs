//! Which structure lies on which tier: settings in, a checked placement out. Pure: nothing is opened here.
//!
//! ```text
//! mode = "dual"                      [tiers.NAME] kind path node model modules bytes absent
//!      |                                  |
//!      v                                  v
//!   expansion  <-- [placement] cache far journal write_image_journal data files: each names a tier and wins over the mode
//!      |
//!      v
//!   checks: kinds, volatility, near:far ratio, what fits   -->  Placement: a seat for each structure, or a PlacementError
//! ```
//!
//! | mode | cache | far | journal | write image journal | data |
//! |---|---|---|---|---|---|
//! | none | - | - | home | - | - |
//! | `dram` | memory | - | drive | drive | drive |
//! | `memory` | memory | pmem | drive | drive | drive |
//! | `app-direct` | memory | - | pmem | drive | drive |
//! | `dual` | memory | pmem | the same pmem | the same pmem | drive |
//!
//! App Direct with the write image journal on persistent memory as well is `app-direct` with
//! `placement.write_image_journal` set to the pmem tier. "memory", "pmem" and "drive" are what a tier *acts as*: the class of
//! its model where it has one, else its own kind. So a mapping slowed to the figures of an SSD is a drive. Where several
//! tiers could be meant, the mode asks which.
//!
//! Two tiers need no declaration: `home`, the node's data directory, a file tier; and, unless a memory tier is declared,
//! `dram`, the machine's memory, of unknown size.
//!
//! # What this release uses
//!
//! All of it. Far memory has to be memory of a node or a modelled tier: persistent memory as it is cannot be mapped as far
//! memory yet.
//!
//! # Invariants
//!
//! 1. A setting is obeyed or refused; never ignored.
//! 2. A tier is one budget of bandwidth: all that lies on it shares it (Dual: far memory slows the journal, as the maintainers
//!    of ipmctl warn in its issue 216).
//! 3. What has to survive a crash is not placed on memory unless that is asked for by name.
//!
//! It deliberately does not know media (the caller hands in what a model's name stands for), and does not look at the
//! machine.

mod error;
mod expand;
mod fit;
mod size;
#[cfg(test)]
mod tests;
mod tier;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use error::{PlacementError, Tenths};
pub use size::Size;
pub use tier::{Absent, ActsAs, Kind, MediumFacts, Tier, TierModel, TierSettings, Tiers};

/// The near:far limit unless the settings say otherwise: near memory of at least an eighth of far memory. The published
/// deployments state 8:1 as a rule (published experiments on 100-series modules, 2019); the maintainers of ipmctl go from
/// 1:4 to 1:16 (intel/ipmctl issue 132). A policy, not a law.
pub const RATIO_LIMIT: u32 = 8;

/// Largest limit that can be set: beyond it a near memory is a buffer, not a cache.
const RATIO_LIMIT_MAX: u32 = 64;

/// The tier that is the node's data directory.
pub const HOME: &str = "home";

/// A placement of the published experiments, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// No persistent memory.
    Dram,
    /// Memory Mode: persistent memory is far memory, DRAM its cache.
    Memory,
    /// App Direct: the journal on persistent memory.
    AppDirect,
    /// Part of the persistent memory is far memory, part holds the journals.
    Dual,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Dram => "dram",
            Mode::Memory => "memory",
            Mode::AppDirect => "app-direct",
            Mode::Dual => "dual",
        })
    }
}

/// Something of a node that lies somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// The page cache; with far memory behind it, its near memory.
    Cache,
    /// Far memory behind the cache.
    Far,
    /// The journal.
    Journal,
    /// The write image journal of the page store.
    WriteImageJournal,
    /// The pages at rest.
    Data,
    /// Files that services and operations read and write.
    Files,
}

impl Structure {
    /// All, in the order of listings.
    pub const ALL: [Structure; 6] = [
        Structure::Cache,
        Structure::Far,
        Structure::Journal,
        Structure::WriteImageJournal,
        Structure::Data,
        Structure::Files,
    ];

    /// The key below `[placement]`.
    pub fn key(self) -> &'static str {
        match self {
            Structure::Cache => "cache",
            Structure::Far => "far",
            Structure::Journal => "journal",
            Structure::WriteImageJournal => "write_image_journal",
            Structure::Data => "data",
            Structure::Files => "files",
        }
    }

    /// The folder below the tier's.
    fn folder(self) -> Option<&'static str> {
        match self {
            Structure::Cache | Structure::Far => None,
            Structure::Journal => Some("journal"),
            Structure::WriteImageJournal => Some("images"),
            Structure::Data => Some("pages"),
            Structure::Files => Some("files"),
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Structure::Cache => "cache",
            Structure::Far => "far memory",
            Structure::Journal => "journal",
            Structure::WriteImageJournal => "write image journal",
            Structure::Data => "data",
            Structure::Files => "service files",
        })
    }
}

/// `[placement]`: each of the first six names a tier.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementSettings {
    /// The page cache. Default: memory wherever the system finds it.
    pub cache: Option<String>,
    /// Far memory behind the cache. Default: none, or what the mode says.
    pub far: Option<String>,
    /// The journal. Default: home, or what the mode says.
    pub journal: Option<String>,
    /// The write image journal. Default: in the data directory, or what the mode says.
    pub write_image_journal: Option<String>,
    /// The pages at rest. Default: in the data directory, or what the mode says.
    pub data: Option<String>,
    /// Relative folders of file services and file operations lie in `PATH/files`. Default: in the production folder.
    pub files: Option<String>,
    /// The same for single file services and file operations, by name.
    pub files_of: BTreeMap<String, String>,
    /// Near memory. Default: what its tier has.
    pub cache_bytes: Option<Size>,
    /// Far memory. Default: what its tier has, less what else lies there.
    pub far_bytes: Option<Size>,
    /// Space set aside for the write image journal. Default: none.
    pub write_image_journal_bytes: Option<Size>,
    /// Far memory may be so many times near memory, 1 to 64. Default 8.
    pub ratio_limit: Option<u32>,
    /// Lets what should survive a crash lie on memory, for measurements. Default false.
    pub allow_volatile: bool,
}

impl PlacementSettings {
    fn tier_of(&self, structure: Structure) -> Option<&str> {
        match structure {
            Structure::Cache => &self.cache,
            Structure::Far => &self.far,
            Structure::Journal => &self.journal,
            Structure::WriteImageJournal => &self.write_image_journal,
            Structure::Data => &self.data,
            Structure::Files => &self.files,
        }
        .as_deref()
    }
}

/// The part of `terrace.toml` that says where things lie.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `mode = "..."`. Default: none; only what `[placement]` names is placed, and the journal lies at home.
    pub mode: Option<Mode>,
    /// `[tiers.NAME]`
    pub tiers: BTreeMap<String, TierSettings>,
    /// `[placement]`
    pub placement: PlacementSettings,
}

/// What the placement must know of the node.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The data directory.
    pub home: PathBuf,
    /// Bytes that the journal fills: what may wait to be written to the pages, and the segments it prepares.
    pub journal_bytes: u64,
}

/// Who decided a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The key below `[placement]`.
    Setting,
    /// The mode.
    Mode,
    /// Nobody: the default.
    Default,
}

/// Where one structure lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The structure.
    pub structure: Structure,
    /// The tier's name.
    pub tier: String,
    /// Its folder; none on memory.
    pub folder: Option<PathBuf>,
    /// The space set aside for it, where that is known.
    pub bytes: Option<u64>,
    /// Who decided.
    pub because: Because,
}

/// A checked placement.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The mode that was expanded.
    pub mode: Option<Mode>,
    /// All tiers, the two that need no declaration among them.
    pub tiers: Tiers,
    seats: BTreeMap<Structure, Seat>,
    files_of: BTreeMap<String, PathBuf>,
}

impl Placement {
    /// Expands and checks. `medium` says what a model's name stands for.
    ///
    /// # Errors
    /// Any [`PlacementError`]; the first that is found.
    pub fn of(
        settings: &Settings,
        needs: &Needs,
        medium: &dyn Fn(&str) -> Result<MediumFacts, String>,
    ) -> Result<Placement, PlacementError> {
        let tiers = Tiers::of(&settings.tiers, &needs.home, medium)?;
        let mut seats = expand::seats(settings, &tiers)?;
        fit::check(settings, needs, &tiers, &mut seats)?;
        let mut files_of = BTreeMap::new();
        for (name, tier) in &settings.placement.files_of {
            let tier = tiers.named(&format!("files_of.{name}"), tier)?;
            let folder = tier.folder_of(Structure::Files).ok_or_else(|| PlacementError::WrongKind {
                structure: Structure::Files,
                tier: tier.name.clone(),
                needs: "a folder: a pmem or file tier",
            })?;
            files_of.insert(name.clone(), folder);
        }
        Ok(Placement { mode: settings.mode, tiers, seats, files_of })
    }

    /// Where the journal lies: it always lies somewhere.
    pub fn journal(&self) -> &Seat {
        self.seats.get(&Structure::Journal).expect("expansion always seats the journal")
    }

    /// Where a structure lies; none where nothing placed it.
    pub fn seat(&self, structure: Structure) -> Option<&Seat> {
        self.seats.get(&structure)
    }

    /// Every structure that is placed, in the order of listings.
    pub fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.seats.values()
    }

    /// The structures that share a tier, and with it its budget of bandwidth.
    pub fn on_tier<'a>(&'a self, tier: &'a str) -> impl Iterator<Item = Structure> + 'a {
        self.seats.values().filter(move |seat| seat.tier == tier).map(|seat| seat.structure)
    }

    /// Folders of single file services and file operations, by name.
    pub fn files_of(&self) -> &BTreeMap<String, PathBuf> {
        &self.files_of
    }
}

/// A path as it is compared and kept: absolute, links not followed.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
