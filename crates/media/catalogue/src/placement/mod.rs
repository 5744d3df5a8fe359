//! Determines which structure lies on which tier: from settings to a checked placement. Pure: nothing is opened here.
//!
//! ```text
//! mode = "dual"                      [tiers.NAME] kind path node uri volume model modules bytes absent
//!      |                                  |
//!      v                                  v
//!   expansion  <-- [placement] cache far journal write_image_journal data files search: each names a tier, overrides the mode
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
//! App Direct with the write image journal also on persistent memory is `app-direct` with
//! `placement.write_image_journal` set to the pmem tier. "memory", "pmem" and "drive" are what a tier *acts as*: the
//! class of its model if it has one, else its own kind. So a mapping slowed to the figures of an SSD is a drive. If
//! several tiers are possible, the mode is refused and a key must select one.
//!
//! Two tiers need no declaration: `home`, the node's data directory, a file tier; and, unless a memory tier is declared,
//! `dram`, the machine's memory, of unknown size.
//!
//! # Support in this release
//!
//! All of it. Far memory must be memory of a node or a modelled tier: unmodelled persistent memory cannot be mapped as
//! far memory yet.
//!
//! # Invariants
//!
//! 1. A setting is obeyed or refused; never ignored.
//! 2. A tier is one budget of bandwidth: all structures on it share it (Dual: far memory slows the journal, as the
//!    maintainers of ipmctl warn in its issue 216).
//! 3. A structure that must survive a crash is placed on memory only if a setting requests that by name.
//!
//! Placement does not read media files (the caller passes in the facts about a model's name), and does not inspect the
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

/// The default near:far limit: near memory of at least an eighth of far memory. The published deployments state 8:1 as
/// a rule (published experiments on 100-series modules, 2019); the maintainers of ipmctl name 1:4 to 1:16 (intel/ipmctl
/// issue 132). A policy, not a law.
pub const RATIO_LIMIT: u32 = 8;

/// Largest limit that can be set: beyond it near memory is a buffer, not a cache.
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
    /// Part of the persistent memory is far memory, part contains the journals.
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

/// A part of a node that is stored somewhere.
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
    /// The stored pages.
    Data,
    /// Files that services and operations read and write.
    Files,
    /// The files of the indices of search. They are made of the documents, and made again where they are lost.
    Search,
    /// Those of them that only large merges make.
    SearchCapacity,
}

impl Structure {
    /// All, in the order of listings.
    pub const ALL: [Structure; 8] = [
        Structure::Cache,
        Structure::Far,
        Structure::Journal,
        Structure::WriteImageJournal,
        Structure::Data,
        Structure::Files,
        Structure::Search,
        Structure::SearchCapacity,
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
            Structure::Search => "search",
            Structure::SearchCapacity => "search_capacity",
        }
    }

    /// The subfolder of the tier's folder; on an export or a volume the name of its part.
    pub fn folder(self) -> Option<&'static str> {
        match self {
            Structure::Cache | Structure::Far => None,
            Structure::Journal => Some("journal"),
            Structure::WriteImageJournal => Some("images"),
            Structure::Data => Some("pages"),
            Structure::Files => Some("files"),
            Structure::Search => Some("search"),
            Structure::SearchCapacity => Some("search-capacity"),
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
            Structure::Search => "index files",
            Structure::SearchCapacity => "large index files",
        })
    }
}

/// `[placement]`: each of the first eight keys names a tier.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementSettings {
    /// The page cache. Default: memory of any node.
    pub cache: Option<String>,
    /// Far memory behind the cache. Default: none, or as determined by the mode.
    pub far: Option<String>,
    /// The journal. Default: home, or as determined by the mode.
    pub journal: Option<String>,
    /// The write image journal. Default: the data directory, or as determined by the mode.
    pub write_image_journal: Option<String>,
    /// The stored pages. Default: the data directory, or as determined by the mode.
    pub data: Option<String>,
    /// Relative folders of file services and file operations are in `PATH/files`. Default: the production folder.
    pub files: Option<String>,
    /// The files of the indices of search. Default: the folder of `[search]`.
    pub search: Option<String>,
    /// Their large files. Default: where the others are.
    pub search_capacity: Option<String>,
    /// As `files`, for single file services and file operations, by name.
    pub files_of: BTreeMap<String, String>,
    /// Size of near memory. Default: that of its tier.
    pub cache_bytes: Option<Size>,
    /// Size of far memory. Default: that of its tier, less the other structures on it.
    pub far_bytes: Option<Size>,
    /// Space reserved for the write image journal. Default: none.
    pub write_image_journal_bytes: Option<Size>,
    /// Largest ratio of far memory to near memory, 1 to 64. Default 8.
    pub ratio_limit: Option<u32>,
    /// Allows structures that must survive a crash on memory, for measurements. Default false.
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
            Structure::Search => &self.search,
            Structure::SearchCapacity => &self.search_capacity,
        }
        .as_deref()
    }
}

/// The part of `terrace.toml` that determines the placement.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `mode = "..."`. Default: none; only the structures in `[placement]` are placed, and the journal is at home.
    pub mode: Option<Mode>,
    /// `[tiers.NAME]`
    pub tiers: BTreeMap<String, TierSettings>,
    /// `[placement]`
    pub placement: PlacementSettings,
}

/// The facts about the node that placement needs.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The data directory.
    pub home: PathBuf,
    /// Size of the journal in bytes: the records that may wait to be written to the pages, and the prepared segments.
    pub journal_bytes: u64,
}

/// What determined a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The key below `[placement]`.
    Setting,
    /// The mode.
    Mode,
    /// The default.
    Default,
}

/// The place of one structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The structure.
    pub structure: Structure,
    /// The tier's name.
    pub tier: String,
    /// Its folder; `None` on memory.
    pub folder: Option<PathBuf>,
    /// The space reserved for it, if known.
    pub bytes: Option<u64>,
    /// What determined it.
    pub because: Because,
}

/// A checked placement.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The mode that was expanded.
    pub mode: Option<Mode>,
    /// All tiers, including the two that need no declaration.
    pub tiers: Tiers,
    seats: BTreeMap<Structure, Seat>,
    files_of: BTreeMap<String, PathBuf>,
}

impl Placement {
    /// Expands and checks. `medium` returns the facts about a model's name.
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

    /// The seat of the journal, which always has one.
    pub fn journal(&self) -> &Seat {
        self.seats.get(&Structure::Journal).expect("expansion always seats the journal")
    }

    /// The seat of a structure; `None` if it is not placed.
    pub fn seat(&self, structure: Structure) -> Option<&Seat> {
        self.seats.get(&structure)
    }

    /// Every placed structure, in the order of listings.
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

/// A path in the form in which it is compared and stored: absolute, links not followed.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
