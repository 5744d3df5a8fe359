//! What a volume is made of and how it works: [`Place`], [`NewVolume`], [`Options`], and the traits through which others take part.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use device::{DeviceError, Shelf};

use crate::encryption::VolumeKeys;
use crate::error::VolumeError;
use crate::geometry::{is_possible, memory_bytes};
use crate::members::{COPIES_MAX, Set};

/// Where a copy lies.
#[derive(Clone, Debug)]
pub struct Place {
    /// The shelf of its journal.
    pub journal: Arc<dyn Shelf>,
    /// The shelf of its blocks, tables and superblock; may be the same one.
    pub data: Arc<dyn Shelf>,
    /// What keeps older owners from writing there, beside the lock of the shelf; `None` if nothing else has to.
    pub fence: Option<Arc<dyn Fence>>,
    /// Nothing keeps an older owner from writing there (a stock NBD server): the copy never opens a volume alone.
    pub is_unfenced: bool,
}

impl Place {
    /// Journal and data on one shelf that only one process at a time can open.
    pub fn on(shelf: Arc<dyn Shelf>) -> Place {
        Place { journal: shelf.clone(), data: shelf, fence: None, is_unfenced: false }
    }
}

/// Keeps older owners of a volume from writing to a copy.
pub trait Fence: Send + Sync + fmt::Debug {
    /// Promises a number to a new owner: when this returns `Ok`, every handle of an owner with a lower number is refused, also after a
    /// crash of the place. An NBD export does so when it is opened under a name that ends with the number. It is [`crate::Epoch::fence`]: the
    /// upper half is the term, the lower half is the owner's own. An owner may raise its number again.
    ///
    /// Errors: a higher number was promised, or the place failed.
    fn raise(&self, term: u64) -> Result<(), DeviceError>;
}

/// An authority outside the copies that agrees to each change of the in-sync set. Without one, the superblocks decide.
pub trait Coordinator: Send + Sync + fmt::Debug {
    /// Changes the set from `from` to `to` in one step, durably, if it is still `from`.
    ///
    /// Errors: [`Disagreement`]; nothing was changed, or that is unknown.
    fn change(&self, from: &Set, to: &Set) -> Result<(), Disagreement>;
}

/// Why a coordinator did not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// Another owner has changed the set: this one must step down.
    #[error("another owner has changed the in-sync set (epoch {0})")]
    Superseded(u64),
    /// The coordinator cannot be reached: nothing may be acknowledged.
    #[error("the coordinator cannot be reached")]
    Unreachable,
}

/// A volume to be created.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Identifies the volume; drawn at random by the caller, once.
    pub volume: [u8; 16],
    /// Its size: a positive multiple of 64 KiB, at most 1 PiB.
    pub bytes: u64,
    /// Copies that must work for a write to be acknowledged, 1 to the number of copies. `None`: 2 of 3, 1 of 2, 1 of 1.
    pub min_copies: Option<u8>,
    /// Blocks take space of the media when they are first written, and give it back when they are discarded. Otherwise all of it is
    /// reserved. The data shelves must have [`Shelf::create_sparse`].
    pub is_thin: bool,
}

impl NewVolume {
    /// Returns the blocks, the number of copies and the minimum. Errors: [`VolumeError::Options`].
    pub(crate) fn check(&self, places: usize) -> Result<(u64, u8, u8), VolumeError> {
        if !(1..=COPIES_MAX).contains(&places) {
            return Err(VolumeError::Options("a volume has one to three copies"));
        }
        let copies = places as u8;
        let min_copies = self.min_copies.unwrap_or(if copies == 3 { 2 } else { 1 });
        if !(1..=copies).contains(&min_copies) {
            return Err(VolumeError::Options("min_copies is from 1 to the number of copies"));
        }
        let blocks = self.bytes / device::BLOCK_BYTES as u64;
        if !self.bytes.is_multiple_of(device::BLOCK_BYTES as u64) || !is_possible(&[blocks]) {
            return Err(VolumeError::Options("the size is a positive multiple of 64 KiB, at most 1 PiB"));
        }
        Ok((blocks, copies, min_copies))
    }
}

/// Which threads a volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Its own, few: for requests, for checkpoints and upkeep, and two for each journal.
    Background,
    /// None: callers do everything, so every run with one caller is the same; a copy that does not answer stops its caller. For
    /// simulations and tools.
    Callers,
}

/// How an opened volume works.
#[derive(Clone, Debug)]
pub struct Options {
    /// A number that distinguishes this owner from every other; drawn at random by the caller for each opening.
    pub owner: u64,
    /// Opens with fewer superblocks than needed, or with unfenced copies only: writes that only the missing copies contain are lost.
    /// Default false.
    pub accept_loss: bool,
    /// The copy that is read, as long as it works. `None`, the default: the fastest, as measured.
    pub prefer: Option<u8>,
    /// Bytes that the journals may contain before a checkpoint empties them; also the bound of the blocks kept in memory. Default
    /// 64 MiB; at least 1 MiB.
    pub window_bytes: u64,
    /// Size of a segment of the journals. Default 16 MiB. See [`journal::Options::segment_bytes`].
    pub segment_bytes: u64,
    /// How long a copy may take to make a write durable before it counts as failed. Default 5 s.
    pub copy_timeout: Duration,
    /// How long a copy may take for a checkpoint. Default 60 s.
    pub checkpoint_timeout: Duration,
    /// How long a write waits while fewer than `min_copies` copies work. Default 30 s.
    pub write_timeout: Duration,
    /// Bytes per second that bringing a copy up to date may copy, and that a scrub may read. Default 200 MB/s.
    pub upkeep_bytes_per_second: u64,
    /// Time between the ends of two scrubs; `None` for none. Default 7 days.
    pub scrub_interval: Option<Duration>,
    /// Free space that a thin volume leaves to others on each medium: with less it takes no new data. Default 128 MiB.
    pub thin_free_bytes: u64,
    /// Memory that the tables of the volume may take; one that needs more is not made, grown or opened. Default: as much as it needs.
    pub memory_bytes: u64,
    /// Which threads there are. Default [`Threads::Background`].
    pub threads: Threads,
    /// The keys of an encrypted volume, by which a new one is encrypted. Default none: it is in clear.
    pub keys: Option<Arc<VolumeKeys>>,
    /// Agrees to changes of the in-sync set. Default none.
    pub coordinator: Option<Arc<dyn Coordinator>>,
}

impl Options {
    /// The defaults, for an owner.
    pub fn new(owner: u64) -> Options {
        Options {
            owner,
            accept_loss: false,
            prefer: None,
            window_bytes: 64 << 20,
            segment_bytes: 16 << 20,
            copy_timeout: Duration::from_secs(5),
            checkpoint_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            upkeep_bytes_per_second: 200_000_000,
            scrub_interval: Some(Duration::from_secs(7 * 24 * 3600)),
            thin_free_bytes: 128 << 20,
            memory_bytes: u64::MAX,
            threads: Threads::Background,
            keys: None,
            coordinator: None,
        }
    }

    /// Whether the tables of a volume of `parts` fit the memory. Errors: [`VolumeError::Memory`].
    pub(crate) fn check_memory(&self, parts: &[u64], is_encrypted: bool, copies: u8) -> Result<(), VolumeError> {
        let needed = memory_bytes(parts.iter().sum(), is_encrypted, copies);
        let most = self.memory_bytes;
        if needed > most { Err(VolumeError::Memory { needed, most }) } else { Ok(()) }
    }

    pub(crate) fn check(&self) -> Result<(), VolumeError> {
        if self.window_bytes < 1 << 20 {
            return Err(VolumeError::Options("window_bytes is at least 1 MiB"));
        }
        if self.prefer.is_some_and(|copy| copy as usize >= COPIES_MAX) {
            return Err(VolumeError::Options("prefer is the number of a copy"));
        }
        Ok(())
    }
}
