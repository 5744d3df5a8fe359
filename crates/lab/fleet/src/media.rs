//! What is under load: volumes of copies on their media, and bare devices of the same medium beside them.
//!
//! ```text
//!   volume 0 -- copy 0: v0-c0-data  (v0-c0-journal, v0-c0-cache with a cache)     a shelf each, with a model's budget of its own
//!            -- copy 1: v0-c1-data                                               perhaps slowed down
//!            -- copy 2: v0-c2-data
//!   bare 0      v0-bare                              the medium of copy 0's blocks, without anything above it
//!   volume 1 ...
//! ```
//!
//! A copy's journal lies with its blocks, or on the medium of its cache if it has one, as a node does it.
//!
//! Invariants: each copy has a shelf, and where it is modelled modules, of its own, as three servers have; the bare device is as large as
//! the volume and has the same content, all of it written; nothing is opened by two processes at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use catalogue::medium::{Direction, Pattern};
use catalogue::model::Access;
use catalogue::{Budget, Medium, Model, ModelShelf, Timing};
use device::pmem::Absent;
use device::{Device, FileOptions, FileShelf, MemoryShelf, PmemOptions, PmemShelf, Shelf};
use serde::{Deserialize, Serialize};
use volume::write_back::{CacheOptions, CachePolicy, CachedShelf};
use volume::{NewVolume, Options, Place, Volume};

use crate::blocks::BLOCK;
use crate::drive;

/// The bare device's name on its shelf.
const BARE: &str = "bare";

/// Bytes of the device on which a model is compared with the host.
const CALIBRATION: catalogue::calibrate::Options =
    catalogue::calibrate::Options { operations: 200, bytes: 256 << 10, threads: 1, seed: 1 };

/// A disturbed calibration is repeated.
const TRIES: usize = 3;

/// Where bytes lie before any model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// Mapped files as persistent memory; emulated where the file system cannot
    Pmem,
    /// Files with direct I/O
    File,
    /// Memory of the process
    Memory,
}

/// A write-back cache of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheLayout {
    /// Its size, bytes.
    pub bytes: u64,
    /// Size of its pages, bytes.
    pub page_bytes: u32,
    /// Whether reads are cached too.
    pub reads: bool,
}

/// All that is under load, as plain data that is handed to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Where the files are.
    pub folder: PathBuf,
    /// The kind of medium.
    pub base: Base,
    /// Number of volumes.
    pub volumes: usize,
    /// Copies of each.
    pub copies: usize,
    /// Size of each volume, bytes.
    pub bytes: u64,
    /// A cache in front of each copy.
    pub cache: Option<CacheLayout>,
    /// The medium of the catalogue to whose figures blocks are slowed down.
    pub capacity_model: Option<String>,
    /// The same for caches and the journals with them.
    pub cache_model: Option<String>,
    /// The same for everything of all copies but the first.
    pub slow_copies: Option<String>,
    /// The copy that is read; without, the fastest as measured.
    pub prefer: Option<u8>,
}

/// Whether the devices are made, or are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Making {
    /// They are made and filled.
    New,
    /// Another process has made them.
    Existing,
}

/// A volume, opened.
#[derive(Debug)]
pub struct FleetVolume {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The caches of its copies.
    pub caches: Vec<Arc<CachedShelf>>,
}

/// All volumes and bare devices, opened.
#[derive(Debug)]
pub struct Fleet {
    /// The volumes.
    pub volumes: Vec<FleetVolume>,
    /// The bare devices, one for each volume.
    pub bare: Vec<Arc<dyn Device>>,
}

impl Layout {
    /// Whether no model slows anything down.
    pub fn is_real(&self) -> bool {
        self.capacity_model.is_none() && self.cache_model.is_none() && self.slow_copies.is_none()
    }

    /// The same for the bare devices.
    pub fn is_bare_real(&self) -> bool {
        self.capacity_model.is_none()
    }

    /// Its media in words.
    pub fn in_words(&self) -> String {
        let base = match self.base {
            Base::Pmem => "mapped files as persistent memory",
            Base::File => "files with direct I/O",
            Base::Memory => "memory of the process",
        };
        let modelled = |what: &str, name: &Option<String>| {
            name.as_ref().map_or_else(String::new, |name| format!("; {what} slowed to the figures of {name}"))
        };
        let cache = self.cache.map_or_else(String::new, |cache| {
            let policy = if cache.reads { "writes and reads" } else { "writes only" };
            format!(
                "; a cache of {} MiB for each copy, pages of {} KiB, {policy}",
                cache.bytes >> 20,
                cache.page_bytes >> 10
            )
        });
        format!(
            "{base}{}{cache}{}{}",
            modelled("blocks", &self.capacity_model),
            modelled("caches and journals", &self.cache_model),
            modelled("all copies but the first", &self.slow_copies)
        )
    }

    /// The least time of a durable 4 KiB write on the slowed copies, nanoseconds: no write of the volume may be acknowledged earlier.
    ///
    /// # Errors
    /// The medium is unknown, or lacks figures.
    pub fn slowest_write_ns(&self) -> anyhow::Result<Option<f64>> {
        let Some(name) = &self.slow_copies else { return Ok(None) };
        let model = model_of(name)?.1;
        let least = [Pattern::Sequential, Pattern::Random].map(|pattern| {
            let (bytes, store) = (BLOCK as u64, model.store(BLOCK as u64));
            model.alone(&Access { direction: Direction::Write, pattern, store, bytes, overlapped: false })
        });
        Ok(Some(least[0].min(least[1])))
    }

    /// Refuses models that are unknown, or faster than this host.
    ///
    /// # Errors
    /// What is refused, with the reason.
    pub fn calibrate(&self) -> anyhow::Result<()> {
        let mut names: Vec<&String> =
            [&self.capacity_model, &self.cache_model, &self.slow_copies].into_iter().flatten().collect();
        names.sort();
        names.dedup();
        for name in names {
            let (medium, model) = model_of(name)?;
            let folder = self.folder.join("calibration");
            let shelf: Arc<dyn Shelf> = match self.base {
                // Memory takes as long as a mapping, and has whole blocks.
                Base::Pmem | Base::Memory => Arc::new(MemoryShelf::new()),
                Base::File => Arc::new(FileShelf::open(&folder, FileOptions::default())?),
            };
            let once = || catalogue::calibrate(&shelf, &medium, &model, &Timing::Timed, CALIBRATION);
            let mut measured = once();
            for _ in 1..TRIES {
                if measured.is_err() {
                    measured = once();
                }
            }
            measured.with_context(|| format!("this machine cannot stand in for {name}"))?;
        }
        Ok(())
    }

    /// A shelf, without or with a model.
    fn shelf(&self, name: &str, model: Option<&String>) -> anyhow::Result<Arc<dyn Shelf>> {
        let folder = self.folder.join(name);
        let base: Arc<dyn Shelf> = match self.base {
            Base::Memory => Arc::new(MemoryShelf::new()),
            Base::Pmem => Arc::new(PmemShelf::open(&folder, PmemOptions { absent: Absent::Emulate })?),
            Base::File => Arc::new(FileShelf::open(&folder, FileOptions::default())?),
        };
        let Some(model) = model else { return Ok(base) };
        let model = model_of(model)?.1;
        let budget = Budget::new(&model);
        Ok(Arc::new(ModelShelf::new(base, model, budget, Timing::Timed)))
    }

    /// The place of a copy, and its cache.
    fn place(&self, volume: usize, copy: usize, making: Making) -> anyhow::Result<(Place, Option<Arc<CachedShelf>>)> {
        let name = |part: &str| format!("v{volume}-c{copy}-{part}");
        let slowed = self.slow_copies.as_ref().filter(|_| copy > 0);
        let data = self.shelf(&name("data"), slowed.or(self.capacity_model.as_ref()))?;
        let Some(cache) = self.cache else { return Ok((Place::on(data), None)) };
        let model = slowed.or(self.cache_model.as_ref());
        let (journal, below) = (self.shelf(&name("journal"), model)?, self.shelf(&name("cache"), model)?);
        let policy = if cache.reads { CachePolicy::ReadWrite } else { CachePolicy::WriteOnly };
        let identity = drawn().to_le_bytes();
        let options = CacheOptions { page_bytes: cache.page_bytes, policy, ..CacheOptions::new(identity, cache.bytes) };
        let cached = Arc::new(match making {
            Making::New => CachedShelf::create(data, below, &options)?,
            Making::Existing => CachedShelf::open(data, below, &options)?,
        });
        Ok((Place { journal, ..Place::on(cached.clone()) }, Some(cached)))
    }

    fn volume(&self, number: usize, making: Making) -> anyhow::Result<FleetVolume> {
        let copies = (0..self.copies).map(|copy| self.place(number, copy, making));
        let (places, caches): (Vec<_>, Vec<_>) = copies.collect::<anyhow::Result<Vec<_>>>()?.into_iter().unzip();
        let options = Options { prefer: self.prefer, scrub_interval: None, ..Options::new(drawn() as u64) };
        if making == Making::New {
            let new = NewVolume { volume: drawn().to_le_bytes(), bytes: self.bytes, min_copies: None, is_thin: false };
            Volume::create(&places, &new, &options)?;
        }
        let volume = Arc::new(Volume::open(places, options)?);
        Ok(FleetVolume { volume, caches: caches.into_iter().flatten().collect() })
    }

    fn bare(&self, number: usize, making: Making) -> anyhow::Result<Arc<dyn Device>> {
        let shelf = self.shelf(&format!("v{number}-bare"), self.capacity_model.as_ref())?;
        Ok(match making {
            Making::New => shelf.create(BARE, self.bytes)?,
            Making::Existing => shelf.open(BARE)?,
        })
    }

    /// Opens everything; made anew, every block is written first, and lies in place when this returns.
    ///
    /// # Errors
    /// Those of the media and of the volumes, and the user's request to end.
    pub fn open(&self, making: Making) -> anyhow::Result<Fleet> {
        let mut fleet = Fleet { volumes: Vec::new(), bare: Vec::new() };
        for number in 0..self.volumes {
            let volume = self.volume(number, making).with_context(|| format!("volume {number}"))?;
            let bare = self.bare(number, making).with_context(|| format!("the bare device beside volume {number}"))?;
            if making == Making::New {
                let place = number as u32;
                drive::fill(&*bare, place)?;
                drive::fill(&*volume.volume, place)?;
                volume.volume.checkpoint()?;
                volume.caches.iter().try_for_each(|cache| cache.destage_all())?;
            }
            fleet.volumes.push(volume);
            fleet.bare.push(bare);
        }
        Ok(fleet)
    }
}

impl Fleet {
    /// Ends the use of the volumes, and then of their caches.
    ///
    /// # Errors
    /// Those of the media.
    pub fn close(self) -> anyhow::Result<()> {
        for volume in self.volumes {
            volume.volume.close()?;
            volume.caches.iter().try_for_each(|cache| cache.close())?;
        }
        Ok(())
    }

    /// What the volumes have counted so far.
    pub fn counts(&self) -> Vec<VolumeCounts> {
        let count = |volume: &FleetVolume| {
            let caches = volume.caches.iter().map(|cache| cache.status());
            let (hits, misses) = caches.fold((0, 0), |sum, of| (sum.0 + of.read_hits, sum.1 + of.read_misses));
            let copies = volume.volume.status().copies;
            VolumeCounts {
                reads: copies.iter().map(|copy| copy.reads).collect(),
                in_sync: copies.iter().filter(|copy| copy.state == volume::CopyState::InSync).count(),
                cache_hits: hits,
                cache_misses: misses,
            }
        };
        self.volumes.iter().map(count).collect()
    }
}

/// Counters of a volume at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCounts {
    /// Reads that went to each copy's blocks.
    pub reads: Vec<u64>,
    /// Copies in sync.
    pub in_sync: usize,
    /// Blocks that reads found in caches, all copies together.
    pub cache_hits: u64,
    /// Blocks that they did not.
    pub cache_misses: u64,
}

impl VolumeCounts {
    /// The counts since `earlier`.
    pub fn since(&self, earlier: &VolumeCounts) -> VolumeCounts {
        let reads = self.reads.iter().zip(&earlier.reads).map(|(now, then)| now.saturating_sub(*then)).collect();
        VolumeCounts {
            reads,
            in_sync: self.in_sync,
            cache_hits: self.cache_hits.saturating_sub(earlier.cache_hits),
            cache_misses: self.cache_misses.saturating_sub(earlier.cache_misses),
        }
    }
}

/// A number that no other process draws: identities and owners. Nothing that is measured depends on it.
fn drawn() -> u128 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Keys of hash maps are seeded by the system for each process, and differ from one to the next.
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half() | 1
}

fn model_of(name: &str) -> anyhow::Result<(Medium, Model)> {
    let medium = Medium::find(name)?;
    let model = Model::of(&medium, 1)?;
    Ok((medium, model))
}

/// The folder for everything, when none is named: memory that survives the process where there is some, as a node without persistent
/// memory emulates it, or this directory for files.
pub fn usual_parent(base: Base) -> PathBuf {
    let memory = Path::new("/dev/shm");
    if base == Base::Pmem && memory.is_dir() { memory.to_owned() } else { PathBuf::from(".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(folder: &Path) -> Layout {
        Layout {
            folder: folder.to_owned(),
            base: Base::Pmem,
            volumes: 2,
            copies: 3,
            bytes: 1 << 20,
            cache: None,
            capacity_model: None,
            cache_model: None,
            slow_copies: None,
            prefer: None,
        }
    }

    #[test]
    fn a_fleet_is_filled_and_is_there_again_for_another_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Some(CacheLayout { bytes: 2 << 20, page_bytes: 16 << 10, reads: true });
        for (name, layout) in [("plain", layout(folder.path())), ("cached", Layout { cache, ..layout(folder.path()) })]
        {
            let layout = Layout { folder: folder.path().join(name), ..layout };
            layout.open(Making::New).expect("made").close().expect("closed");
            let text = serde_json::to_string(&layout).expect("plain data");
            let again: Layout = serde_json::from_str(&text).expect("the same");
            let fleet = again.open(Making::Existing).expect("opened");
            let mut bytes = vec![0; BLOCK];
            for (number, (volume, bare)) in fleet.volumes.iter().zip(&fleet.bare).enumerate() {
                let volume: &dyn Device = &*volume.volume;
                for device in [volume, &**bare] {
                    assert_eq!(device.len(), 1 << 20);
                    for block in [0, 17, 255] {
                        device.read(block * BLOCK as u64, &mut bytes).expect("read");
                        assert!(crate::blocks::is_whole(number as u32, block, 1, &bytes), "{name} {block}");
                    }
                }
            }
            let counts = fleet.counts();
            assert_eq!((counts.len(), counts[0].reads.len(), counts[0].in_sync), (2, 3, 3));
            assert_eq!(counts[0].reads.iter().sum::<u64>(), 3);
            fleet.close().expect("closed");
        }
    }

    #[test]
    fn a_model_is_stated_and_an_unknown_one_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let slow = Layout { slow_copies: Some("sata-s4500".to_owned()), ..layout(folder.path()) };
        assert!(!slow.is_real() && slow.is_bare_real() && slow.in_words().contains("sata-s4500"));
        assert!(slow.slowest_write_ns().expect("known").expect("slowed") > 1_000.0);
        slow.calibrate().expect("memory is faster than SATA");
        let unknown = Layout { capacity_model: Some("no-such".to_owned()), ..layout(folder.path()) };
        assert!(unknown.calibrate().is_err());
    }
}
