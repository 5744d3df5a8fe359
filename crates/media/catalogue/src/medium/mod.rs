//! A medium: published or measured figures of something that stores bytes, each with its source.
//!
//! ```text
//!   media/dcpmm100-256g.toml     figure = [ { key, value, unit, source, confidence, how? } ... ]     single numbers
//!                                curve  = [ { operation, pattern, store, bytes, modules,
//!                                             threads [..], gb_per_s [..], source, confidence } ... ]
//!                                [like]  another medium's curves, scaled                             where none are its own
//!                                [source]  name = "where it can be read"
//! ```
//!
//! Confidence is a letter: **M** measured, or computed from raw files of a measurement that can be downloaded; **S**
//! read in the source; **K** from memory, high confidence; **k** from memory, medium confidence, or derived from such.
//! A number that was not read directly has its derivation in `how`.
//!
//! Invariants, checked when a file is read: every figure and curve names a source that the file lists, every listed
//! source is used, every unit is that of its key, no key is unknown, and a key that the model uses appears once.
//!
//! Prices are in separate files ([`crate::price`]). Values are per medium or for the given number of modules; nothing
//! here scales them: the model does.

mod builtin;
mod parse;

use std::fmt;
use std::path::Path;

pub use builtin::media;
use serde::Deserialize;

use crate::CatalogueError;

/// The kind of a medium; determines its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediumKind {
    /// Volatile, accessed by loads and stores.
    Memory,
    /// Persistent, accessed by loads and stores.
    Pmem,
    /// Persistent, accessed by commands: SSDs.
    Drive,
    /// Persistent, accessed by commands over a network.
    San,
}

impl MediumKind {
    /// Whether it is accessed by loads and stores.
    pub fn is_addressed(self) -> bool {
        matches!(self, MediumKind::Memory | MediumKind::Pmem)
    }
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MediumKind::Memory => "memory",
            MediumKind::Pmem => "pmem",
            MediumKind::Drive => "drive",
            MediumKind::San => "san",
        })
    }
}

/// The reliability of a figure; the head comment of this module explains the letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Confidence {
    /// Measured, or computed from raw files of a measurement.
    M,
    /// Read in the source.
    S,
    /// From memory, high confidence.
    K,
    /// From memory, medium confidence, or derived from such.
    #[serde(rename = "k")]
    Medium,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Confidence::M => "M",
            Confidence::S => "S",
            Confidence::K => "K",
            Confidence::Medium => "k",
        })
    }
}

/// The quantity of a figure. Each key has one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Addressed media: an idle read that depends on the previous one and does not follow it in memory. Model: shortest
    /// read.
    ReadLatencyRandom,
    /// Addressed media: an idle dependent read that follows the previous one in memory. Model: shortest such read.
    ReadLatencySequential,
    /// Additional time of writing back the same line again at once, compared with another line. Model: added.
    ReflushPenalty,
    /// The unit in which the medium itself reads and writes, bytes. Model: write amplification.
    AccessUnit,
    /// Bytes of open access units in which one module merges small writes. Model: write amplification.
    WriteBuffer,
    /// Bytes after which addresses continue on the next module. Information.
    Interleave,
    /// Commands: time of a 4 KiB read without other load. Model.
    ReadLatency,
    /// Commands: time of a 4 KiB write without other load. Model.
    WriteLatency,
    /// Commands: time of a flush. Model.
    FlushLatency,
    /// Commands: maximum of random 4 KiB reads per second. Model.
    ReadIops,
    /// Commands: maximum of random 4 KiB writes per second, sustained. Model.
    WriteIops,
    /// Maximum of bytes read per second. Commands: model. Addressed media: information, because their model uses
    /// curves.
    ReadBandwidth,
    /// Maximum of bytes written per second. As above.
    WriteBandwidth,
    /// 99th percentile of a 4 KiB read. Information: the model has no variation.
    ReadP99,
    /// 99.9th percentile of a 4 KiB write. Information.
    WriteP999,
    /// A sequential command. Information: the model uses the random one.
    SequentialLatency,
    /// Idle store past the cache and fence. Information: the model uses the time of one operation at the one-thread end
    /// of the measured curve, which includes the whole loop.
    IdleWriteNt,
    /// Idle store, write back and fence. Information, as above.
    IdleWriteClwb,
    /// Vendor's bandwidth of 256 B reads of one module. Information; used to scale a medium without curves.
    VendorReadBandwidth,
    /// Vendor's bandwidth of 256 B writes of one module. Information; used to scale a medium without curves.
    VendorWriteBandwidth,
    /// Bandwidth of its bus. Information.
    ChannelBandwidth,
    /// Bandwidth with two reads per write. Information.
    MixedBandwidth,
    /// Latency as a multiple of that of local memory. Information.
    LatencyOverLocal,
    /// Latency that a pool adds. Information.
    PoolAddedLatency,
    /// Largest capacity sold. Information.
    CapacityLimit,
    /// Full writes of the capacity a day, over the warranty. Information, for the planner.
    Endurance,
}

impl Key {
    /// The unit of its values, as in files.
    pub fn unit(self) -> &'static str {
        match self {
            Key::ReadLatencyRandom | Key::ReadLatencySequential | Key::ReflushPenalty => "ns",
            Key::ReadLatency | Key::WriteLatency | Key::FlushLatency => "ns",
            Key::ReadP99 | Key::WriteP999 | Key::SequentialLatency => "ns",
            Key::IdleWriteNt | Key::IdleWriteClwb | Key::PoolAddedLatency => "ns",
            Key::AccessUnit | Key::WriteBuffer | Key::Interleave => "B",
            Key::ReadIops | Key::WriteIops => "IOPS",
            Key::ReadBandwidth | Key::WriteBandwidth | Key::VendorReadBandwidth => "GB/s",
            Key::VendorWriteBandwidth | Key::ChannelBandwidth | Key::MixedBandwidth => "GB/s",
            Key::LatencyOverLocal => "x",
            Key::CapacityLimit => "GB",
            Key::Endurance => "DWPD",
        }
    }

    /// Whether the timing model uses it; then it appears at most once in a file.
    pub fn is_modelled(self) -> bool {
        match self {
            Key::ReadLatencyRandom | Key::ReadLatencySequential | Key::ReflushPenalty => true,
            Key::AccessUnit | Key::WriteBuffer => true,
            Key::ReadLatency | Key::WriteLatency | Key::FlushLatency => true,
            Key::ReadIops | Key::WriteIops | Key::ReadBandwidth | Key::WriteBandwidth => true,
            Key::Interleave | Key::ReadP99 | Key::WriteP999 | Key::SequentialLatency => false,
            Key::IdleWriteNt | Key::IdleWriteClwb => false,
            Key::VendorReadBandwidth | Key::VendorWriteBandwidth | Key::ChannelBandwidth => false,
            Key::MixedBandwidth | Key::LatencyOverLocal | Key::PoolAddedLatency => false,
            Key::CapacityLimit | Key::Endurance => false,
        }
    }
}

impl fmt::Display for Key {
    /// As files write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        for (index, letter) in name.char_indices() {
            let hump = letter.is_ascii_uppercase() && index > 0;
            write!(f, "{}{}", if hump { "_" } else { "" }, letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// One number and its source.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its quantity.
    pub key: Key,
    /// The number, in the key's unit.
    pub value: f64,
    /// The range in the source, if there is one.
    pub range: Option<(f64, f64)>,
    /// The number of modules for which it applies; `None`: it does not depend on them.
    pub modules: Option<u32>,
    /// Its source.
    pub source: String,
    /// Its reliability.
    pub confidence: Confidence,
    /// How it was derived, if it was not read directly.
    pub how: Option<String>,
}

/// Read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Loads.
    Read,
    /// Stores.
    Write,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Read => "read",
            Direction::Write => "write",
        })
    }
}

/// Whether an access follows the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Each thread moves forward through memory.
    Sequential,
    /// At any position.
    Random,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        })
    }
}

/// How bytes are stored in addressed media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Store {
    /// Past the cache (non-temporal), then a fence.
    #[serde(rename = "nt")]
    Nt,
    /// Through the cache, each line written back at once (`clwb`), then a fence.
    #[serde(rename = "clwb")]
    Clwb,
    /// Through the cache and left there: the cache evicts lines at any time, in its own order.
    #[serde(rename = "none")]
    Cached,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Store::Nt => "nt",
            Store::Clwb => "clwb",
            Store::Cached => "none",
        })
    }
}

/// Bandwidth against the number of threads, of one kind of access.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Read or write.
    pub direction: Direction,
    /// The order of the accesses.
    pub pattern: Pattern,
    /// How it was stored; `None` for reads.
    pub store: Option<Store>,
    /// Bytes of one access.
    pub bytes: u32,
    /// The number of modules on which it was measured.
    pub modules: u32,
    /// Number of threads and their total GB/s (1e9 bytes a second); by increasing threads.
    pub points: Vec<(f64, f64)>,
    /// Its source.
    pub source: String,
    /// Its reliability.
    pub confidence: Confidence,
    /// How it was derived, if it was not measured directly.
    pub how: Option<String>,
}

/// The medium whose curves are used by a medium without curves: as if this one had `read` and `write` times as many
/// modules.
#[derive(Clone, Debug)]
pub struct Like {
    /// The other medium.
    pub medium: String,
    /// How many modules of the other medium correspond to one of this for reads.
    pub read: f64,
    /// How many modules of the other medium correspond to one of this for writes.
    pub write: f64,
    /// How both were derived.
    pub how: String,
    /// The source of that.
    pub source: String,
    /// Its reliability.
    pub confidence: Confidence,
}

/// A medium, as described by its file.
#[derive(Clone, Debug)]
pub struct Medium {
    /// Short name, also the file's: `dcpmm100-256g`.
    pub name: String,
    /// Its common name.
    pub title: String,
    /// Its kind.
    pub kind: MediumKind,
    /// Capacity of one module or drive, in GB of its label.
    pub capacity_gb: f64,
    /// The usual number of modules of a socket, and the default of a model.
    pub modules: u32,
    /// All single numbers.
    pub figures: Vec<Figure>,
    /// Its own curves.
    pub curves: Vec<Curve>,
    /// The medium whose curves it uses otherwise.
    pub like: Option<Like>,
}

impl Medium {
    /// Parses the text of a medium's file; `file` is its name in errors.
    ///
    /// Errors: [`CatalogueError::Invalid`] with the key.
    pub fn parse(file: &str, text: &str) -> Result<Medium, CatalogueError> {
        parse::parse(file, text)
    }

    /// A built-in medium by name.
    ///
    /// Errors: [`CatalogueError::UnknownMedium`] with the existing names.
    pub fn find(name: &str) -> Result<Medium, CatalogueError> {
        Medium::find_in(media(), name)
    }

    /// A medium by name among `media`.
    ///
    /// Errors: [`CatalogueError::UnknownMedium`] with the existing names.
    pub fn find_in(media: &[Medium], name: &str) -> Result<Medium, CatalogueError> {
        media.iter().find(|medium| medium.name == name).cloned().ok_or_else(|| CatalogueError::UnknownMedium {
            name: name.into(),
            known: media.iter().map(|medium| medium.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// All of the catalogue; with a user's folder, its media too, which replace those of the same name.
    ///
    /// Errors: those of [`Medium::read_folder`].
    pub fn all(folder: Option<&Path>) -> Result<Vec<Medium>, CatalogueError> {
        let own = folder.map_or(Ok(Vec::new()), Medium::read_folder)?;
        let built_in = crate::media().iter().filter(|medium| own.iter().all(|own| own.name != medium.name));
        Ok(built_in.chain(&own).cloned().collect())
    }

    /// Reads all `*.toml` of a user's folder, in the order of their names.
    ///
    /// Errors: [`CatalogueError::Unreadable`], [`CatalogueError::Invalid`].
    pub fn read_folder(folder: &Path) -> Result<Vec<Medium>, CatalogueError> {
        let unreadable = |path: &Path| {
            let file = path.display().to_string();
            move |source| CatalogueError::Unreadable { file, source }
        };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
            let path = entry.map_err(unreadable(folder))?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                paths.push(path);
            }
        }
        // By name, not by path: a dot sorts after a hyphen.
        paths.sort_by(|a, b| a.file_stem().cmp(&b.file_stem()));
        let read = |path: &std::path::PathBuf| {
            let text = std::fs::read_to_string(path).map_err(unreadable(path))?;
            Medium::parse(&path.display().to_string(), &text)
        };
        paths.iter().map(read).collect()
    }

    /// The figure of a key, if the file has it; the first if there are several.
    pub fn figure(&self, key: Key) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.key == key)
    }
}
