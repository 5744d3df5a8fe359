//! [`ThinCopy`]: the space of one copy of a thin volume, with its headroom. [`ThinState`]: what the volume knows of all of them.
//!
//! What they are for is in `thin`. Here are no locks but that of the headroom, and no copies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use device::{BLOCK_BYTES, Device, DeviceError, Shelf};
use parking_lot::Mutex;

use crate::bits::Bits;
use crate::error::VolumeError;
use crate::members::Members;
use crate::options::Options;

/// The device that is the headroom.
pub(crate) const HEADROOM: &str = "headroom";

/// What file systems need for themselves when files get space.
const METADATA_BYTES: u64 = 4 << 20;

/// Free space that is unknown, in an atomic.
const UNKNOWN: u64 = u64::MAX;

/// All that the overlay may have: the window, and by how much threads that pass its bound together may exceed it.
fn headroom_bytes(options: &Options) -> u64 {
    let bytes = options.window_bytes + options.window_bytes / 4 + METADATA_BYTES;
    bytes.next_multiple_of(BLOCK_BYTES as u64)
}

/// Reserves the headroom of a new copy.
pub(crate) fn make_headroom(shelf: &dyn Shelf, options: &Options) -> Result<(), VolumeError> {
    shelf.create_unwritten(HEADROOM, headroom_bytes(options))?;
    Ok(())
}

/// Makes the blocks of a part without space of their own.
pub(crate) fn make_data(shelf: &dyn Shelf, name: &str, bytes: u64) -> Result<(), VolumeError> {
    match shelf.create_sparse(name, bytes) {
        Err(DeviceError::Unsupported { .. }) => Err(VolumeError::Options(
            "a medium of this volume cannot give space back, so the volume cannot be thin: use files on a file system with holes",
        )),
        made => made.map(drop).map_err(VolumeError::from),
    }
}

/// The windows of all thin copies that this process has open, by medium: what others have acknowledged may take space as well.
static WINDOWS: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// The window of one copy among those.
#[derive(Debug)]
struct WindowShare {
    medium: Option<u64>,
    bytes: u64,
}

impl WindowShare {
    fn new(medium: Option<u64>, bytes: u64) -> WindowShare {
        if let Some(medium) = medium {
            *WINDOWS.lock().entry(medium).or_default() += bytes;
        }
        WindowShare { medium, bytes }
    }

    /// The windows of the others on its medium.
    fn others(&self) -> u64 {
        let all = self.medium.and_then(|medium| WINDOWS.lock().get(&medium).copied());
        all.map_or(0, |all| all - self.bytes)
    }
}

impl Drop for WindowShare {
    fn drop(&mut self) {
        let Some(medium) = self.medium else { return };
        let mut windows = WINDOWS.lock();
        let left = windows.get(&medium).map_or(0, |all| all - self.bytes);
        if left == 0 {
            windows.remove(&medium);
        } else {
            windows.insert(medium, left);
        }
    }
}

/// The space of one copy.
#[derive(Debug)]
pub(crate) struct ThinCopy {
    shelf: Arc<dyn Shelf>,
    /// The headroom that it should have.
    wanted: u64,
    /// Free space that is left to others, beside what other thin volumes have acknowledged.
    left_free: u64,
    share: WindowShare,
    /// The headroom that it has; held while that changes.
    headroom: Mutex<u64>,
    /// Blocks that are known to have space.
    has_space: Bits,
    is_short: AtomicBool,
    free: AtomicU64,
    allocated: AtomicU64,
}

impl ThinCopy {
    /// That of a copy which is opened.
    pub(crate) fn open(shelf: &Arc<dyn Shelf>, blocks: u64, options: &Options) -> Result<ThinCopy, VolumeError> {
        let headroom = match shelf.open_read_only(HEADROOM) {
            Ok(device) => device.len(),
            // A checkpoint needed it.
            Err(DeviceError::NotFound { .. }) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(ThinCopy {
            shelf: shelf.clone(),
            wanted: headroom_bytes(options),
            left_free: options.thin_free_bytes,
            share: WindowShare::new(shelf.medium(), options.window_bytes),
            headroom: Mutex::new(headroom),
            has_space: Bits::new(blocks),
            is_short: AtomicBool::new(false),
            free: AtomicU64::new(UNKNOWN),
            allocated: AtomicU64::new(0),
        })
    }

    /// Makes sure that a range of the data of a part has space; `first` is its first block. With `may_spend`, the headroom is given up
    /// for it.
    ///
    /// Errors: [`DeviceError::Full`].
    pub(crate) fn reserve(
        &self,
        data: &dyn Device,
        (first, at, bytes): (u64, u64, u64),
        may_spend: bool,
    ) -> Result<(), DeviceError> {
        let blocks = first..first + bytes / BLOCK_BYTES as u64;
        if blocks.clone().all(|block| self.has_space.get(block)) {
            return Ok(());
        }
        match data.reserve(at, bytes) {
            Err(DeviceError::Full { .. }) if may_spend && self.spend()? => data.reserve(at, bytes)?,
            reserved => reserved?,
        }
        blocks.for_each(|block| _ = self.has_space.set(block));
        Ok(())
    }

    /// Gives the headroom up; returns whether there was one.
    fn spend(&self) -> Result<bool, DeviceError> {
        let mut headroom = self.headroom.lock();
        if *headroom == 0 {
            return Ok(false);
        }
        self.shelf.remove(HEADROOM)?;
        *headroom = 0;
        Ok(true)
    }

    /// Gives the space of a range of the data of a part back.
    pub(crate) fn discard(&self, data: &dyn Device, (first, at, blocks): (u64, u64, u64)) -> Result<(), DeviceError> {
        (first..first + blocks).for_each(|block| _ = self.has_space.clear(block));
        data.discard(at, blocks * BLOCK_BYTES as u64)
    }

    fn left_free(&self) -> u64 {
        self.left_free + self.share.others()
    }

    /// Whether the medium has so many bytes and what is left to others; also if that is unknown.
    pub(crate) fn has_free(&self, bytes: u64) -> Result<bool, DeviceError> {
        Ok(self.shelf.free_bytes()?.is_none_or(|free| free >= bytes.saturating_add(self.left_free())))
    }

    /// Whether all of the headroom is there; no while it changes.
    pub(crate) fn has_headroom(&self) -> bool {
        self.headroom.try_lock().is_some_and(|headroom| *headroom >= self.wanted)
    }

    /// Looks how much space there is, and puts the headroom back if there is enough. Returns whether new data finds space.
    pub(crate) fn look(&self, data: &[Arc<dyn Device>]) -> Result<bool, DeviceError> {
        let mut headroom = self.headroom.lock();
        // More than its size, so that the space that another thin volume has just given up for its own blocks is left alone.
        if *headroom < self.wanted && self.has_free(self.wanted - *headroom)? {
            self.restore(&mut headroom)?;
        }
        let has_headroom = *headroom >= self.wanted;
        drop(headroom);
        let free = self.shelf.free_bytes()?;
        let allocated = data.iter().map(|device| device.allocated_bytes()).sum::<Result<u64, _>>()?;
        self.free.store(free.unwrap_or(UNKNOWN), Ordering::Relaxed);
        self.allocated.store(allocated, Ordering::Relaxed);
        // A little more to begin again than to end, so that the answer does not change with every block.
        let was_short = self.is_short.load(Ordering::Relaxed);
        let left_free = self.left_free();
        let needed = if was_short { left_free + left_free / 8 } else { left_free };
        let has_room = has_headroom && free.is_none_or(|free| free >= needed);
        self.is_short.store(!has_room, Ordering::Relaxed);
        Ok(has_room)
    }

    fn restore(&self, headroom: &mut u64) -> Result<(), DeviceError> {
        if *headroom > 0 {
            // It is smaller than wanted: the volume has grown.
            self.shelf.remove(HEADROOM)?;
            *headroom = 0;
        }
        match self.shelf.create_unwritten(HEADROOM, self.wanted) {
            Ok(device) => *headroom = device.len(),
            // Somebody else has taken the space meanwhile.
            Err(DeviceError::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// What the last look has found: bytes that the blocks take, and free bytes of the medium.
    pub(crate) fn found(&self) -> (u64, Option<u64>) {
        let free = self.free.load(Ordering::Relaxed);
        (self.allocated.load(Ordering::Relaxed), (free != UNKNOWN).then_some(free))
    }
}

/// The space of a thin volume.
#[derive(Debug, Default)]
pub(crate) struct ThinState {
    /// Copies that are attached and short.
    short: AtomicU8,
    /// New data was admitted since the last look.
    has_admitted: AtomicBool,
    /// Records of blocks without content, and how many of them have given their space back.
    discarded: AtomicU64,
    reclaimed: AtomicU64,
}

impl ThinState {
    /// Copies that are short.
    pub(crate) fn short(&self) -> Members {
        Members(self.short.load(Ordering::Acquire))
    }

    /// These are short now; returns which were.
    pub(crate) fn found_short(&self, copies: Members) -> Members {
        Members(self.short.swap(copies.0, Ordering::AcqRel))
    }

    /// Data without a place was admitted, or found none.
    pub(crate) fn admitted(&self) {
        if !self.has_admitted() {
            self.has_admitted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was, since the last look.
    pub(crate) fn has_admitted(&self) -> bool {
        self.has_admitted.load(Ordering::Relaxed)
    }

    /// The media are looked at.
    pub(crate) fn looks(&self) {
        self.has_admitted.store(false, Ordering::Relaxed);
    }

    /// A record of blocks without content is visible.
    pub(crate) fn discard(&self) {
        self.discarded.fetch_add(1, Ordering::AcqRel);
    }

    /// How many there were; who holds the gate exclusively sees the blocks of all of them.
    pub(crate) fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Acquire)
    }

    /// How many of them have given their space back.
    pub(crate) fn reclaimed(&self) -> u64 {
        self.reclaimed.load(Ordering::Acquire)
    }

    /// So many of them have given their space back.
    pub(crate) fn reclaim(&self, discarded: u64) {
        self.reclaimed.fetch_max(discarded, Ordering::AcqRel);
    }

    /// Whether discards have not given their space back.
    pub(crate) fn is_behind(&self) -> bool {
        self.reclaimed() < self.discarded()
    }
}
