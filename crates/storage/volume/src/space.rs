//! [`ThinCopy`]: the space of one copy of a thin volume, with its headroom. [`ThinState`]: what the volume knows of all of them.
//!
//! What they are for is in `thin`. Here are no copies, and no locks but two: that of the headroom, and one that keeps the discard of a range
//! from coming between the reservation of a block and its write.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use device::{BLOCK_BYTES, Device, DeviceError, Shelf};
use parking_lot::{Mutex, RwLock};

use crate::bits::Bits;
use crate::error::VolumeError;
use crate::members::Members;
use crate::options::Options;

/// How the devices of the headroom begin.
const HEADROOM: &str = "headroom-";

/// Its pieces: a checkpoint that needs a little gives up a little, and nobody can take all of it at once.
const PIECES: u64 = 16;

/// What file systems need for themselves when files get space.
const METADATA_BYTES: u64 = 4 << 20;

/// How long a look makes pieces; the next one goes on. A piece is some commits of the file system, and a look that takes as long as a copy
/// may be silent would exclude it.
const FILL_TIME: Duration = Duration::from_secs(1);

/// Free space that is unknown, in an atomic.
const UNKNOWN: u64 = u64::MAX;

/// All that the overlay may have: the window, and by how much threads that pass its bound together may exceed it; and a piece that a
/// discard may use up.
fn headroom_bytes(options: &Options) -> u64 {
    let acknowledged = options.window_bytes + options.window_bytes / 4;
    let bytes = acknowledged + acknowledged / (PIECES - 1) + METADATA_BYTES;
    bytes.next_multiple_of(BLOCK_BYTES as u64)
}

/// Whether a device is a piece of a headroom.
pub(crate) fn is_headroom(name: &str) -> bool {
    name.starts_with(HEADROOM)
}

/// The pieces of a headroom, by name, and their bytes.
#[derive(Debug, Default)]
struct Pieces(BTreeMap<String, u64>);

impl Pieces {
    fn find(shelf: &dyn Shelf) -> Result<Pieces, DeviceError> {
        let names = shelf.list()?.into_iter().filter(|name| is_headroom(name));
        names
            .map(|name| shelf.open_read_only(&name).map(|device| (name, device.len())))
            .collect::<Result<_, _>>()
            .map(Pieces)
    }

    fn bytes(&self) -> u64 {
        self.0.values().sum()
    }

    /// Makes pieces until there are `wanted` bytes, or the time is up; none is removed, so that what there is stays.
    fn fill(&mut self, shelf: &dyn Shelf, wanted: u64, time: Duration) -> Result<(), DeviceError> {
        let (piece, begun) = ((wanted / PIECES).next_multiple_of(BLOCK_BYTES as u64), Instant::now());
        let mut number = 0;
        while self.bytes() < wanted && begun.elapsed() < time {
            let name = format!("{HEADROOM}{number:02}");
            number += 1;
            if !self.0.contains_key(&name) {
                let device = shelf.create_unwritten(&name, piece.min(wanted - self.bytes()))?;
                self.0.insert(name, device.len());
            }
        }
        Ok(())
    }
}

/// Reserves the headroom of a new copy.
pub(crate) fn make_headroom(shelf: &dyn Shelf, options: &Options) -> Result<(), VolumeError> {
    Ok(Pieces::default().fill(shelf, headroom_bytes(options), Duration::MAX)?)
}

/// Makes the blocks of a part without space of their own.
pub(crate) fn make_data(shelf: &dyn Shelf, name: &str, bytes: u64) -> Result<(), VolumeError> {
    match shelf.create_sparse(name, bytes) {
        Err(DeviceError::Unsupported { .. }) => Err(VolumeError::Options(
            "a medium of this volume cannot give space back, or needs more for every change (btrfs, zfs), so the volume cannot be thin: use \
             files on ext4, xfs or another file system with holes",
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

/// Blocks of the data of one part: the first one, its place there, and their bytes.
pub(crate) type SpaceRange = (u64, u64, u64);

/// The space of one copy.
#[derive(Debug)]
pub(crate) struct ThinCopy {
    shelf: Arc<dyn Shelf>,
    /// The headroom that it should have.
    wanted: u64,
    /// Free space that is left to others, beside what other thin volumes have acknowledged.
    left_free: u64,
    share: WindowShare,
    /// The headroom that it has; held while that changes, and while it is decided whether the copy is short.
    headroom: Mutex<Pieces>,
    /// Blocks that are known to have space.
    has_space: Bits,
    /// Held exclusively while blocks lose their space; shared from where a block is known to have some until it is written.
    punching: RwLock<()>,
    /// What the volume knows, and the number of the copy; set when it is attached.
    volume: OnceLock<(Arc<ThinState>, u8)>,
    is_short: AtomicBool,
    free: AtomicU64,
    allocated: AtomicU64,
}

impl ThinCopy {
    /// That of a copy which is opened.
    pub(crate) fn open(shelf: &Arc<dyn Shelf>, blocks: u64, options: &Options) -> Result<ThinCopy, VolumeError> {
        Ok(ThinCopy {
            shelf: shelf.clone(),
            wanted: headroom_bytes(options),
            left_free: options.thin_free_bytes,
            share: WindowShare::new(shelf.medium(), options.window_bytes),
            // What is missing a checkpoint has needed.
            headroom: Mutex::new(Pieces::find(&**shelf)?),
            has_space: Bits::new(blocks),
            punching: RwLock::new(()),
            volume: OnceLock::new(),
            is_short: AtomicBool::new(false),
            free: AtomicU64::new(UNKNOWN),
            allocated: AtomicU64::new(0),
        })
    }

    /// It is attached to a volume.
    pub(crate) fn attached(&self, state: &Arc<ThinState>, number: u8) {
        self.volume.get_or_init(|| (state.clone(), number));
    }

    fn note_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
        if let Some((state, number)) = self.volume.get() {
            state.is_short(*number, is_short);
        }
    }

    /// Makes sure that a range of the data of a part has space; `range` is its first block, its place and its bytes. With `may_spend`, the
    /// headroom is given up for it, as much as is needed.
    ///
    /// Errors: [`DeviceError::Full`].
    pub(crate) fn reserve(&self, data: &dyn Device, range: SpaceRange, may_spend: bool) -> Result<(), DeviceError> {
        let _punching = self.punching.read();
        self.reserve_held(data, range, may_spend)
    }

    /// Writes blocks of the data of a part; the headroom is given up for them, as much as is needed.
    pub(crate) fn write(&self, data: &dyn Device, (first, at): (u64, u64), bytes: &[u8]) -> Result<(), DeviceError> {
        let _punching = self.punching.read();
        self.reserve_held(data, (first, at, bytes.len() as u64), true)?;
        data.write(at, bytes)
    }

    fn reserve_held(
        &self,
        data: &dyn Device,
        (first, at, bytes): SpaceRange,
        may_spend: bool,
    ) -> Result<(), DeviceError> {
        let blocks = first..first + bytes / BLOCK_BYTES as u64;
        if blocks.clone().all(|block| self.has_space.get(block)) {
            return Ok(());
        }
        loop {
            match data.reserve(at, bytes) {
                Err(DeviceError::Full { .. }) if may_spend && self.spend()? => {}
                reserved => break reserved?,
            }
        }
        blocks.for_each(|block| _ = self.has_space.set(block));
        Ok(())
    }

    /// Gives a piece of the headroom up; returns whether there was one. No new data is admitted from the first one on.
    fn spend(&self) -> Result<bool, DeviceError> {
        let mut headroom = self.headroom.lock();
        self.note_short(true);
        let Some((name, _)) = headroom.0.last_key_value() else { return Ok(false) };
        match self.shelf.remove(name) {
            // An earlier attempt returned an error but had taken effect.
            Ok(()) | Err(DeviceError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        headroom.0.pop_last();
        Ok(true)
    }

    /// Gives the space of a range of the data of a part back. Where that needs space itself (a file whose extents are split) and there is
    /// none, the first piece of the headroom is given up for it, and no other: they are promised to what was acknowledged. If that is not
    /// enough the range keeps its space, and no error is returned.
    pub(crate) fn discard(&self, data: &dyn Device, (first, at, bytes): SpaceRange) -> Result<(), DeviceError> {
        let _punching = self.punching.write();
        let blocks = first..first + bytes / BLOCK_BYTES as u64;
        // Also where there is a hole by what the file system tells: it calls so what was reserved and never written.
        blocks.for_each(|block| _ = self.has_space.clear(block));
        let discarded = match data.discard(at, bytes) {
            Err(DeviceError::Full { .. }) if self.has_headroom() && self.spend()? => data.discard(at, bytes),
            discarded => discarded,
        };
        match discarded {
            Err(DeviceError::Full { .. }) => Ok(()),
            other => other,
        }
    }

    /// Whether all of a range has space already, as far as that is known.
    pub(crate) fn has_space(&self, data: &dyn Device, (first, at, bytes): SpaceRange) -> Result<bool, DeviceError> {
        let mut blocks = first..first + bytes / BLOCK_BYTES as u64;
        Ok(blocks.all(|block| self.has_space.get(block))
            || data.extents(at, bytes)?.iter().all(|extent| extent.has_space))
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
        self.headroom.try_lock().is_some_and(|headroom| headroom.bytes() >= self.wanted)
    }

    /// Looks how much space there is, and puts the headroom back if there is enough. Whether new data finds space is noted in the state of
    /// the volume.
    pub(crate) fn look(&self, data: &[Arc<dyn Device>]) -> Result<(), DeviceError> {
        // Being given up just now: it is known that there is no space.
        let Some(mut headroom) = self.headroom.try_lock() else { return Ok(()) };
        let missing = self.wanted.saturating_sub(headroom.bytes());
        // More than its size, so that the space that another thin volume has just given up for its own blocks is left alone.
        if missing > 0 && self.has_free(missing)? {
            match headroom.fill(&*self.shelf, self.wanted, FILL_TIME) {
                // Somebody else has taken the space meanwhile.
                Ok(()) | Err(DeviceError::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let free = self.shelf.free_bytes()?;
        let allocated = data.iter().map(|device| device.allocated_bytes()).sum::<Result<u64, _>>()?;
        self.free.store(free.unwrap_or(UNKNOWN), Ordering::Relaxed);
        self.allocated.store(allocated, Ordering::Relaxed);
        // A little more to begin again than to end, so that the answer does not change with every block.
        let left_free = self.left_free();
        let needed = if self.is_short.load(Ordering::Relaxed) { left_free + left_free / 8 } else { left_free };
        let has_room = headroom.bytes() >= self.wanted && free.is_none_or(|free| free >= needed);
        // While the headroom is held, so that who gives it up comes before or after.
        self.note_short(!has_room);
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

    /// A copy is short, or is not.
    pub(crate) fn is_short(&self, number: u8, is_short: bool) {
        match is_short {
            true => self.short.fetch_or(1 << number, Ordering::AcqRel),
            false => self.short.fetch_and(!(1 << number), Ordering::AcqRel),
        };
    }

    /// Others than these are not there.
    pub(crate) fn keep_short(&self, attached: Members) {
        self.short.fetch_and(attached.0, Ordering::AcqRel);
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
