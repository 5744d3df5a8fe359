//! A medium: what was published or measured of one thing that stores bytes, each figure with its source.
//!
//! ```text
//!   media/dcpmm100-256g.toml     figure = [ { key, value, unit, source, confidence, how? } ... ]     single numbers
//!                                curve  = [ { operation, pattern, store, bytes, modules,
//!                                             threads [..], gb_per_s [..], source, confidence } ... ]
//!                                [like]  another medium's curves, scaled                             where none are its own
//!                                [source]  name = "where it can be read"
//! ```
//!
//! Confidence is a letter: **M** measured, or computed from raw files of a measurement that can be fetched; **S** read in the
//! source; **K** from memory, high confidence; **k** from memory, medium confidence, or derived from such. A number that
//! was not read as such says in `how` how it was derived.
//!
//! Invariants, checked when a file is read: every figure and curve names a source that the file lists, every listed source is
//! used, every unit is the one its key has, no key is unknown, a key that feeds the model stands once.
//!
//! Prices are not here but in files of their own ([`crate::price`]). Values are per medium or for the number of modules they name;
//! nothing here scales anything: the model does.

mod builtin;
mod parse;

use std::fmt;
use std::path::Path;

pub use builtin::media;
use serde::Deserialize;

use crate::CatalogueError;

/// What kind of thing a medium is; decides which model it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Volatile, accessed by loads and stores.
    Memory,
    /// Persistent, accessed by loads and stores.
    Pmem,
    /// Persistent, accessed by commands: SSDs.
    Drive,
    /// Persistent, accessed by commands over a network.
    San,
}

impl Kind {
    /// Whether it is accessed by loads and stores.
    pub fn is_addressed(self) -> bool {
        matches!(self, Kind::Memory | Kind::Pmem)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Memory => "memory",
            Kind::Pmem => "pmem",
            Kind::Drive => "drive",
            Kind::San => "san",
        })
    }
}

/// How sure a figure is; the module's essay explains the letters.
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

/// What a figure is of. Each key has one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Addressed media: an idle read that depends on the one before it and does not follow it. Model: shortest read.
    ReadLatencyRandom,
    /// Addressed media: an idle dependent read that follows the one before it. Model: shortest such read.
    ReadLatencySequential,
    /// What writing back a line again, right after it was, costs more than writing back another. Model: added.
    ReflushPenalty,
    /// The bytes in which the medium itself reads and writes. Model: write amplification.
    AccessUnit,
    /// Bytes of open access units that one module gathers small writes in. Model: write amplification.
    WriteBuffer,
    /// Bytes after which addresses go to the next module. Information.
    Interleave,
    /// Commands: time of a 4 KiB read with nothing else to do. Model.
    ReadLatency,
    /// Commands: time of a 4 KiB write with nothing else to do. Model.
    WriteLatency,
    /// Commands: time of a flush. Model.
    FlushLatency,
    /// Commands: most random 4 KiB reads a second. Model.
    ReadIops,
    /// Commands: most random 4 KiB writes a second, sustained. Model.
    WriteIops,
    /// Most bytes read a second. Commands: model. Addressed media: information, their model takes curves.
    ReadBandwidth,
    /// Most bytes written a second. As above.
    WriteBandwidth,
    /// 99th percentile of a 4 KiB read. Information: the model has no spread of its own.
    ReadP99,
    /// 99.9th percentile of a 4 KiB write. Information.
    WriteP999,
    /// A sequential command. Information: the model takes the random one.
    SequentialLatency,
    /// Idle store past the cache and fence. Information: the model takes the time of one operation from the one-thread end of
    /// the measured curve, which holds the whole loop.
    IdleWriteNt,
    /// Idle store, write back and fence. Information, as above.
    IdleWriteClwb,
    /// Vendor's bandwidth of 256 B reads of one module. Information; the scale of a medium without curves.
    VendorReadBandwidth,
    /// Vendor's bandwidth of 256 B writes of one module. Information; the scale of a medium without curves.
    VendorWriteBandwidth,
    /// Bandwidth of the bus it sits on. Information.
    ChannelBandwidth,
    /// Bandwidth of two reads to one write. Information.
    MixedBandwidth,
    /// Times the latency of local memory. Information.
    LatencyOverLocal,
    /// Latency that a pool adds. Information.
    PoolAddedLatency,
    /// Largest capacity sold. Information.
    CapacityLimit,
    /// Full writes of the capacity a day, over the warranty. Information, for the planner.
    Endurance,
}

impl Key {
    /// The unit of its values, as files write it.
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

    /// Whether the timing model reads it; then it stands at most once in a file.
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

/// One number with where it comes from.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is of.
    pub key: Key,
    /// The number, in the key's unit.
    pub value: f64,
    /// The range that the source gives around it, if it gives one.
    pub range: Option<(f64, f64)>,
    /// For how many modules it holds; none: it does not depend on them.
    pub modules: Option<u32>,
    /// Where it can be read.
    pub source: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// How it was derived, if it was not read as such.
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

/// Whether an access follows the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Each thread goes forward through memory.
    Sequential,
    /// Anywhere.
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
    /// Through the cache and left there: lines leave when the cache likes, in an order of its own.
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
    /// How it was stored; none for reads.
    pub store: Option<Store>,
    /// Bytes of one access.
    pub bytes: u32,
    /// On how many modules it was measured.
    pub modules: u32,
    /// Number of threads and GB/s (1e9 bytes a second) of all of them together; by rising threads.
    pub points: Vec<(f64, f64)>,
    /// Where it can be read.
    pub source: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// How it was derived, if it was not measured as such.
    pub how: Option<String>,
}

/// Whose curves a medium takes that has none: those of another, as if it had `read` and `write` times as many modules.
#[derive(Clone, Debug)]
pub struct Like {
    /// The other medium.
    pub medium: String,
    /// How many modules of the other one of this is worth to reads.
    pub read: f64,
    /// How many modules of the other one of this is worth to writes.
    pub write: f64,
    /// How the two were derived.
    pub how: String,
    /// Where that can be read.
    pub source: String,
    /// How sure it is.
    pub confidence: Confidence,
}

/// A medium, as its file says it.
#[derive(Clone, Debug)]
pub struct Medium {
    /// Short name, also the file's: `dcpmm100-256g`.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// What kind of thing it is.
    pub kind: Kind,
    /// Capacity of one module or drive, in GB of its label.
    pub capacity_gb: f64,
    /// How many modules a socket usually has, and the default of a model.
    pub modules: u32,
    /// All single numbers.
    pub figures: Vec<Figure>,
    /// All curves of its own.
    pub curves: Vec<Curve>,
    /// Whose curves it takes otherwise.
    pub like: Option<Like>,
}

impl Medium {
    /// Reads the text of a medium's file; `file` names it in errors.
    ///
    /// Errors: [`CatalogueError::Invalid`] with the key.
    pub fn parse(file: &str, text: &str) -> Result<Medium, CatalogueError> {
        parse::parse(file, text)
    }

    /// A built-in medium by name.
    ///
    /// Errors: [`CatalogueError::UnknownMedium`] lists the names there are.
    pub fn find(name: &str) -> Result<Medium, CatalogueError> {
        Medium::find_in(media(), name)
    }

    /// A medium by name among `media`.
    ///
    /// Errors: [`CatalogueError::UnknownMedium`] lists the names there are.
    pub fn find_in(media: &[Medium], name: &str) -> Result<Medium, CatalogueError> {
        media.iter().find(|medium| medium.name == name).cloned().ok_or_else(|| CatalogueError::UnknownMedium {
            name: name.into(),
            known: media.iter().map(|medium| medium.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// All `*.toml` of a folder of the user's own, in the order of their names.
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
        // By name, not by path: a point sorts behind a hyphen.
        paths.sort_by(|a, b| a.file_stem().cmp(&b.file_stem()));
        let read = |path: &std::path::PathBuf| {
            let text = std::fs::read_to_string(path).map_err(unreadable(path))?;
            Medium::parse(&path.display().to_string(), &text)
        };
        paths.iter().map(read).collect()
    }

    /// The figure of a key, if the file has it; the first where there are several.
    pub fn figure(&self, key: Key) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.key == key)
    }
}
