//! [`Volume`]: what its users call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use device::contract::submit_in_turn;
use device::{BLOCK_BYTES, Device, DeviceError, Durability, Extent, IoKind, IoRequest, IoSink, Operation};
use parking_lot::Mutex;

use crate::checkpoint::{self, Patience};
use crate::checksum::Sum;
use crate::copy;
use crate::core::Core;
use crate::error::VolumeError;
use crate::geometry::{Geometry, PARTS_MAX, REGION_BLOCKS, is_possible};
use crate::members::{Epoch, Members, Set};
use crate::membership;
use crate::metrics::{CopySpace, CopyState, CopyStatus, Status};
use crate::options::{NewVolume, Options, Place, Threads};
use crate::read;
use crate::recovery;
use crate::requests::{Requests, Until};
use crate::resync::{self, Step};
use crate::scrub::{self, Scrubbed};
use crate::superblock::{SUPERBLOCK, Superblock};
use crate::thin;
use crate::upkeep::Upkeep;
use crate::write::{self, Change};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A block volume: one to three copies, one owner.
///
/// As a [`Device`] its blocks are single bytes and its atom is 4096 bytes: an aligned block of 4 KiB is whole after a crash, on every
/// medium. A write is durable when it returns, so a flush has nothing left to do.
///
/// Where it differs from the contract of a device: a failed write does not poison. It is not visible; its outcome is unknown, and it may
/// become visible at a later opening, as long as the block is not written again. A volume that another owner has taken over refuses
/// everything.
///
/// Dropping it closes it.
pub struct Volume {
    shared: Arc<Shared>,
    requests: Option<Requests>,
    upkeep: Upkeep,
}

/// What the threads of a volume share with it.
#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    /// A scrub by hand and another one take turns.
    scrubbing: Mutex<()>,
}

impl Volume {
    /// Makes the copies of a new volume, which has no content. Copy `n` lies at place `n`. It is encrypted if the options have keys.
    ///
    /// Errors: [`VolumeError::Options`], [`VolumeError::Memory`]; [`VolumeError::Format`] if one of the places contains a copy already (nothing was changed);
    /// those of the devices. After these, call it again with the same places once they work: what was left behind is not a volume.
    pub fn create(places: &[Place], new: &NewVolume, options: &Options) -> Result<(), VolumeError> {
        options.check()?;
        let (blocks, copies, min_copies) = new.check(places.len())?;
        options.check_memory(&[blocks], options.keys.is_some(), copies)?;
        for place in places {
            if copy::exists(place)? {
                let why = "there is a copy of a volume already: delete it first";
                return Err(VolumeError::Format { name: "superblock".to_owned(), why });
            }
        }
        let promised = Epoch::of_term(1, membership::mint(options.owner, 1));
        // The first epoch is drawn here, once, and never by a copy.
        let epoch = Epoch { number: promised.number + 1, mint: promised.mint };
        let set = Set { epoch, in_sync: Members::first(copies), left: Default::default() };
        for (number, place) in places.iter().enumerate() {
            let superblock = Superblock {
                sequence: 1,
                volume: new.volume,
                copy: number as u8,
                copies,
                min_copies,
                is_unfenced: place.is_unfenced,
                is_syncing: false,
                is_thin: new.is_thin,
                journal: 0,
                set,
                promised,
                is_encrypted: options.keys.is_some(),
                check: options.keys.as_ref().map_or([0; 16], |keys| keys.check()),
                parts: vec![blocks],
            };
            copy::format(place, superblock, options)?;
        }
        Ok(())
    }

    /// Removes the copies of a volume that is not open.
    ///
    /// Errors: those of the shelves; a copy whose superblock is gone is no copy any more.
    pub fn delete(places: &[Place]) -> Result<(), VolumeError> {
        places.iter().try_for_each(copy::clear)
    }

    /// Opens a volume from the places that are there, in any order; recovers it, and begins a new epoch. What it returns can be read is
    /// durable on every copy in sync.
    ///
    /// With fewer than `min_copies` copies in sync it is opened for reading: writes wait. If the others were being brought up to date,
    /// attach them again; otherwise copies cannot be attached, it must be opened again when there are more, and reads of blocks that
    /// were written shortly before are refused as well. If a copy is gone for good, accept the loss.
    ///
    /// Errors: [`VolumeError::Quorum`], [`VolumeError::NoneInSync`], [`VolumeError::OnlyUnfenced`], [`VolumeError::Foreign`],
    /// [`VolumeError::Twice`], [`VolumeError::Fenced`] (another owner is opening it), [`VolumeError::Diverged`],
    /// [`VolumeError::KeysMissing`], [`VolumeError::KeysUnwanted`], [`VolumeError::WrongKeys`], [`VolumeError::Memory`], and those of copies that cannot be opened
    /// if no other one can.
    pub fn open(places: Vec<Place>, options: Options) -> Result<Volume, VolumeError> {
        let threads = options.threads;
        let core = Arc::new(recovery::open(places, options)?);
        let shared = Arc::new(Shared { core: core.clone(), scrubbing: Mutex::new(()) });
        let has_threads = threads == Threads::Background;
        let requests = if has_threads { Some(Requests::start(&core, &shared)?) } else { None };
        let upkeep = Upkeep::start(&core)?;
        Ok(Volume { shared, requests, upkeep })
    }

    fn core(&self) -> &Core {
        &self.shared.core
    }

    /// Passes on to whoever watches a request that is inside the volume.
    fn pass_on(&self, is_write: bool, offset: u64, bytes: usize) {
        let Some(watch) = &self.core().options.watch else { return };
        let end = offset.checked_add(bytes as u64);
        if bytes > 0 && end.is_some_and(|end| end <= self.shared.len()) {
            watch.accessed(is_write, offset, bytes as u64);
        }
    }

    /// Makes a volume larger; it is not open meanwhile. All copies must be there and in sync. The new part has no content.
    ///
    /// Errors: [`VolumeError::Options`], [`VolumeError::Memory`]; [`VolumeError::Quorum`] if a copy is missing; those of the copies. After an error the volume
    /// has its old size until this is called again.
    pub fn grow(places: &[Place], bytes: u64, options: &Options) -> Result<(), VolumeError> {
        // Opening makes the copies equal and empties their journals, and finds out whether all are in sync.
        let volume = Volume::open(places.to_vec(), Options { threads: Threads::Callers, ..options.clone() })?;
        let (copies, in_sync) = (volume.core().copies, volume.core().in_sync());
        let is_thin = volume.core().thin.is_some();
        let current: Vec<u64> = volume.core().tables.geometry.parts.iter().map(|part| part.blocks).collect();
        volume.close()?;
        drop(volume);
        if in_sync.count() < copies {
            return Err(VolumeError::Quorum { found: in_sync.count(), needed: copies, copies });
        }
        let (now, blocks) = (current.iter().sum::<u64>(), bytes / BLOCK);
        if !bytes.is_multiple_of(BLOCK) || blocks <= now || current.len() >= PARTS_MAX {
            return Err(VolumeError::Options("a volume grows by a multiple of 64 KiB, at most 63 times"));
        }
        let mut parts = current;
        parts.push(blocks - now);
        if !is_possible(&parts) {
            return Err(VolumeError::Options("a volume grows by a multiple of 64 KiB, to at most 1 PiB"));
        }
        options.check_memory(&parts, options.keys.is_some(), copies)?;
        let geometry = Geometry::new(&parts, options.keys.is_some());
        places.iter().try_for_each(|place| copy::make_part(place, &geometry, parts.len() - 1, is_thin))?;
        places.iter().try_for_each(|place| Superblock::set_parts(&place.data.open(SUPERBLOCK)?, &parts))
    }

    /// Attaches a copy that was away. What it has missed is copied in the background, or by [`resync_step`](Volume::resync_step).
    /// Returns its number.
    ///
    /// Errors: [`VolumeError::TooOld`] ([`replace`](Volume::replace) it), [`VolumeError::Foreign`], [`VolumeError::Attached`],
    /// [`VolumeError::BelowMinimum`] (the volume was opened with too few copies); those of the copy, which is then out as before.
    pub fn attach(&self, place: Place) -> Result<u8, VolumeError> {
        let number = resync::attach(self.core(), None, place)?;
        self.upkeep.wake();
        Ok(number)
    }

    /// As [`attach`](Volume::attach), of a copy whose number is known: as long as a look at its place hangs, there is no other one.
    ///
    /// Errors: as [`attach`](Volume::attach); [`VolumeError::Twice`] where another copy lies there.
    pub fn attach_copy(&self, number: u8, place: Place) -> Result<(), VolumeError> {
        resync::attach(self.core(), Some(number), place)?;
        self.upkeep.wake();
        Ok(())
    }

    /// Makes a new copy at `place`, in the stead of copy `number`, which is out or missing. All content is copied.
    ///
    /// Errors: [`VolumeError::Attached`], [`VolumeError::Foreign`], [`VolumeError::Twice`] (the place contains another copy of this
    /// volume), [`VolumeError::BelowMinimum`]; those of the place.
    pub fn replace(&self, number: u8, place: Place) -> Result<(), VolumeError> {
        resync::replace(self.core(), number, place)?;
        self.upkeep.wake();
        Ok(())
    }

    /// Excludes a copy, as if it had failed: to take it away.
    ///
    /// Errors: [`VolumeError::BelowMinimum`]: too few would be left; it does not take part any more, and writes wait.
    pub fn exclude(&self, number: u8) -> Result<(), VolumeError> {
        self.core().exclude(number, None, None)
    }

    /// Copies up to four regions side by side to a copy that is being brought up to date, or lets it join. The thread of the volume calls
    /// this; a caller does with [`Threads::Callers`].
    ///
    /// Errors: the copy has failed; [`VolumeError::Damaged`]: the copies in sync cannot be read just now. A block that is damaged on all of them
    /// is left out, and stays damaged.
    pub fn resync_step(&self, number: u8) -> Result<Step, VolumeError> {
        resync::step(self.core(), number)
    }

    /// Reads all blocks of all working copies and repairs what is damaged.
    ///
    /// Errors: the volume serves no longer.
    pub fn scrub(&self) -> Result<Scrubbed, VolumeError> {
        let _one = self.shared.scrubbing.lock();
        let mut found = Scrubbed::default();
        for region in 0..self.core().tables.geometry.regions() {
            found.add(scrub::region(self.core(), region)?);
        }
        self.core().metrics.scrubs.fetch_add(1, Ordering::Relaxed);
        Ok(found)
    }

    /// Writes everything in place and empties the journals. Not needed for durability.
    ///
    /// Errors: [`VolumeError::BelowMinimum`], [`VolumeError::Fenced`].
    pub fn checkpoint(&self) -> Result<(), VolumeError> {
        checkpoint::checkpoint(self.core())
    }

    /// The state of the volume and of its copies.
    pub fn status(&self) -> Status {
        let core = self.core();
        let set = core.set();
        let (reads, writes) = core.metrics.latencies();
        let get = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        Status {
            volume: core.volume,
            bytes: core.tables.geometry.bytes(),
            epoch: set.epoch,
            in_sync: set.in_sync,
            min_copies: core.min_copies,
            is_frozen: core.is_frozen(),
            is_thin: core.thin.is_some(),
            is_encrypted: core.is_encrypted(),
            has_room: thin::has_room(core),
            superseded: core.superseded(),
            copies: (0..core.copies).map(|number| copy_status(core, set.in_sync, number)).collect(),
            reads,
            writes,
            read_bytes: get(&core.metrics.read_bytes),
            written_bytes: get(&core.metrics.written_bytes),
            journaled_bytes: get(&core.journaled),
            checkpoints: get(&core.metrics.checkpoints),
            damaged: get(&core.metrics.damaged),
            forged: get(&core.metrics.forged),
            disputed: get(&core.metrics.disputed),
            scrubbed: get(&core.metrics.scrubbed),
            scrubs: get(&core.metrics.scrubs),
        }
    }

    /// Writes everything in place and ends the use of the places. A second call does nothing.
    ///
    /// Errors: a copy could not be written: nothing acknowledged is lost, the journals have it.
    pub fn close(&self) -> Result<(), VolumeError> {
        if let Some(requests) = &self.requests {
            requests.close();
        }
        self.upkeep.stop();
        let saved = checkpoint::checkpoint(self.core());
        if !self.core().close() {
            return Ok(());
        }
        // A copy that does not answer keeps nobody waiting for longer than a checkpoint does.
        let closing = self.core().take_copies().into_iter().map(|copy| {
            let number = copy.number;
            self.core().in_time(number, self.core().options.checkpoint_timeout, move || Ok(copy.close()?))
        });
        closing.fold(saved, Result::and)
    }
}

fn copy_status(core: &Core, in_sync: Members, number: u8) -> CopyStatus {
    let dirty = core.tables.dirty_regions(number) * REGION_BLOCKS * BLOCK;
    let state = match () {
        () if core.working().has(number) => CopyState::InSync,
        () if core.syncing().has(number) => CopyState::Syncing { left: dirty },
        () if in_sync.has(number) => CopyState::Missing,
        () => CopyState::Out { behind: dirty },
    };
    let (reads, repaired, failures) = core.metrics.counts(number);
    let (read_times, write_times) = core.metrics.copy(number).times();
    let copy = core.copy(number);
    CopyStatus {
        number,
        state,
        is_unfenced: copy.as_ref().is_some_and(|copy| copy.is_unfenced()),
        durability: copy.as_ref().map(|copy| copy.durability()),
        space: copy.and_then(|copy| copy.space()).map(|(allocated, free)| CopySpace {
            allocated,
            free,
            is_short: thin::short(core).has(number),
        }),
        reads,
        repaired,
        failures,
        read_ns: core.metrics.copy(number).read_ns(),
        read_times,
        write_times,
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Drop cannot report an error. Nothing acknowledged depends on closing.
        let _ = self.close();
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Short: tables and overlay have an entry for each block.
        f.debug_struct("Volume").field("volume", &u128::from_be_bytes(self.core().volume)).finish_non_exhaustive()
    }
}

/// The error of a device for one of the volume.
fn device_error(error: VolumeError, operation: Operation, offset: u64) -> DeviceError {
    let name = "volume".to_owned();
    match error {
        VolumeError::Damaged { offset, bytes } => DeviceError::Lost { name, offset, bytes },
        VolumeError::Closed | VolumeError::Fenced { .. } => DeviceError::Poisoned { name },
        VolumeError::Device(error) => error,
        VolumeError::BelowMinimum { .. } => {
            let source = std::io::Error::new(std::io::ErrorKind::TimedOut, error);
            DeviceError::Io { operation, name, offset, source }
        }
        VolumeError::NoSpace => DeviceError::Full { name, bytes: 0 },
        error => DeviceError::Io { operation, name, offset, source: std::io::Error::other(error) },
    }
}

impl Shared {
    fn assert_range(&self, offset: u64, bytes: u64) {
        let len = self.core.tables.geometry.bytes();
        assert!(
            offset <= len && bytes <= len - offset,
            "range {offset}+{bytes} does not lie inside the volume of {len} bytes"
        );
    }

    fn change(&self, offset: u64, change: Change<'_>, bytes: u64, operation: Operation) -> Result<(), DeviceError> {
        let patience = Patience { until: Instant::now() + self.core.options.write_timeout, is_for_room: true };
        self.change_until(offset, change, bytes, (operation, patience))
    }

    fn change_until(
        &self,
        offset: u64,
        change: Change<'_>,
        bytes: u64,
        (operation, patience): (Operation, Patience),
    ) -> Result<(), DeviceError> {
        self.assert_range(offset, bytes);
        let began = Instant::now();
        write::write(&self.core, offset, change, patience).map_err(|error| device_error(error, operation, offset))?;
        self.core.metrics.written(bytes, began.elapsed());
        Ok(())
    }
}

impl Shared {
    /// Does a request that has not to wait for a copy or for room; `None` where it has to.
    fn perform_at_once(&self, request: &mut IoRequest) -> Option<Result<(), DeviceError>> {
        if request.kind == IoKind::Read {
            return Some(request.perform(self));
        }
        if self.core.is_frozen() {
            return None;
        }
        match self.perform_until(request, Patience { until: Instant::now(), is_for_room: false }) {
            Err(DeviceError::Io { source, .. }) if source.kind() == std::io::ErrorKind::TimedOut => None,
            Err(DeviceError::Full { .. }) if thin::is_reclaiming(&self.core) => None,
            result => Some(result),
        }
    }
}

impl Until for Shared {
    fn perform_until(&self, request: &IoRequest, patience: Patience) -> Result<(), DeviceError> {
        let (change, operation) = match request.kind {
            IoKind::Write | IoKind::WriteFlush => (Change::Bytes(&request.buffer), Operation::Write),
            IoKind::Discard => (Change::Zeroes { bytes: request.bytes, free: true }, Operation::Discard),
            IoKind::WriteZeroes { free } => (Change::Zeroes { bytes: request.bytes, free }, Operation::Write),
            IoKind::Read | IoKind::Flush => return self.flush(),
        };
        self.change_until(request.offset, change, request.bytes, (operation, patience))
    }
}

impl Device for Shared {
    fn len(&self) -> u64 {
        self.core.tables.geometry.bytes()
    }

    fn block_bytes(&self) -> u32 {
        1
    }

    fn atom_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.assert_range(offset, buffer.len() as u64);
        let began = Instant::now();
        read::read(&self.core, offset, buffer).map_err(|error| device_error(error, Operation::Read, offset))?;
        self.core.metrics.read(buffer.len() as u64, began.elapsed());
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.change(offset, Change::Bytes(data), data.len() as u64, Operation::Write)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.core.check().map_err(|error| device_error(error, Operation::Flush, 0))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.change(offset, Change::Zeroes { bytes, free: true }, bytes, Operation::Discard)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.change(offset, Change::Zeroes { bytes, free }, bytes, Operation::Write)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.assert_range(offset, bytes);
        let mut all: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let block = at / BLOCK;
            let bytes = ((block + 1) * BLOCK).min(end) - at;
            let is_unknown = self.core.is_unequal() && self.core.overlay.has(block);
            let has_space = is_unknown || self.core.tables.sum(block) != Sum::NONE;
            match all.last_mut().filter(|last| last.has_space == has_space) {
                Some(last) => last.bytes += bytes,
                None => all.push(Extent { bytes, has_space }),
            }
            at += bytes;
        }
        Ok(all)
    }

    fn durability(&self) -> Durability {
        // That of the weakest copy in sync.
        let copies = self.core.working().iter().filter_map(|number| self.core.copy(number));
        let weakest = copies.map(|copy| copy.durability()).max_by_key(|durability| match durability {
            Durability::PowerFailSafe => 0,
            Durability::Emulated => 1,
            Durability::None => 2,
        });
        weakest.unwrap_or(Durability::None)
    }
}

impl Device for Volume {
    fn len(&self) -> u64 {
        self.shared.len()
    }

    fn block_bytes(&self) -> u32 {
        self.shared.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.shared.atom_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.pass_on(false, offset, buffer.len());
        self.shared.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.pass_on(true, offset, data.len());
        self.shared.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.shared.flush()
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.pass_on(true, offset, data.len());
        self.shared.write(offset, data)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.shared.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.shared.write_zeroes(offset, bytes, free)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.shared.extents(offset, bytes)
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        for request in batch.iter() {
            match request.kind {
                IoKind::Read => self.pass_on(false, request.offset, request.buffer.len()),
                IoKind::Write | IoKind::WriteFlush => self.pass_on(true, request.offset, request.buffer.len()),
                IoKind::Flush | IoKind::Discard | IoKind::WriteZeroes { .. } => {}
            }
        }
        let Some(requests) = &self.requests else { return submit_in_turn(&*self.shared, batch, sink) };
        if !self.core().is_inline() {
            return requests.submit(batch, sink);
        }
        for mut request in batch.drain(..) {
            match self.shared.perform_at_once(&mut request) {
                Some(result) => sink.complete(request, result),
                None => requests.submit_one(request, sink),
            }
        }
    }

    fn waits_by_itself(&self) -> bool {
        self.requests.is_some()
    }

    fn durability(&self) -> Durability {
        self.shared.durability()
    }
}
