//! Bringing a copy up to date: what it has missed, or all of it.
//!
//! ```text
//!   attach    it left at a known epoch?   its dirty map, and the blocks of its own journal (they may never have been acknowledged)
//!             replaced                    all regions are dirty
//!             a checkpoint makes that persistent; its journal begins anew; it is marked as syncing
//!   from now on every write goes to it as well
//!   step      up to four dirty regions side by side: under their stripes, each block verified, written, flushed, read back; then clean
//!   finish    a checkpoint, with all of its tables; then, with the gate closed, a new epoch with the copy
//! ```
//!
//! A block is copied under its stripe: a write of the same block comes before, and is copied, or after, and goes to both. If the copy
//! fails, at any moment, it is out as before: what it received meanwhile and is not in place there is marked dirty. If the owner
//! crashes, the dirty map of the last checkpoint counts, all blocks of the journals since, and those of the copy's own journal. If it crashes while the copy joins, the
//! copy may not know the set that the others name as its last one: it is refused, and all of it must be copied.
//!
//! Invariant: a copy marked as syncing never counts as a member, whatever set its superblock names.

use std::sync::Arc;

use device::{AlignedBuffer, BLOCK_BYTES, DeviceError, Operation};
use journal::JournalError;

use crate::checkpoint;
use crate::checksum::Sum;
use crate::copy::{self, VolumeCopy};
use crate::core::Core;
use crate::encryption::VolumeKeys;
use crate::error::VolumeError;
use crate::geometry::REGION_BLOCKS;
use crate::members::{Epoch, Members};
use crate::options::Place;
use crate::overlay::Stored;
use crate::read::{choose, mend, repair, run_end};
use crate::recovery::{blocks_in_journal, foreign};
use crate::rules::{Rule, obeys};
use crate::stripes::PIECE_BLOCKS;
use crate::superblock::{SUPERBLOCK, Superblock};
use crate::thin;

/// Steps, a second apart, in which a source must fail to read a block, and can read others, before it counts as damaged there.
const UNREADABLE_STEPS: u32 = 60;

/// What a step of a resync has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Regions were copied; `left` bytes are left at most.
    Copied {
        /// Bytes of this step.
        bytes: u64,
        /// Bytes left, at most.
        left: u64,
    },
    /// The copy is up to date and has joined.
    Joined,
}

/// Attaches a copy that was out. Returns its number.
pub(crate) fn attach(core: &Core, expected: Option<u8>, place: Place) -> Result<u8, VolumeError> {
    let _one = core.attaching.lock();
    ready(core)?;
    let found = match expected {
        Some(number) if number >= core.copies || core.copy(number).is_some() => {
            return Err(VolumeError::Attached(number));
        }
        Some(number) => {
            core.wait_left(number)?;
            let looked = place.clone();
            on_place(core, number, move || copy::peek(&looked))?
        }
        None => look(core, &place)?,
    };
    if found.volume != core.volume {
        return Err(foreign(&found.volume, &core.volume));
    }
    VolumeKeys::check_all(core.options.keys.as_deref(), found.encryption())?;
    let number = found.copy;
    if expected.is_some_and(|expected| expected != number) {
        return Err(VolumeError::Twice(number));
    }
    if core.copy(number).is_some() || number >= core.copies {
        return Err(VolumeError::Attached(number));
    }
    core.wait_left(number)?;
    core.check_taken(&found)?;
    let (asked, promised) = (place.clone(), core.promised);
    let found = on_place(core, number, move || copy::promise(&asked, promised))?;
    let set = core.set();
    let last = if set.in_sync.has(number) { set.epoch } else { set.left[number as usize] };
    let is_known = last != Epoch::default() && found.set.epoch == last && found.parts == parts(core);
    if !is_known {
        return Err(VolumeError::TooOld(number));
    }
    // Also of one that was being brought up to date: blocks that only its journal has are in the dirty map of the owner that saw it
    // fail, and that one may have crashed since.
    let missed = if found.journal == 0 { Vec::new() } else { own_blocks(core, &place, &found)? };
    missed.iter().for_each(|block| core.tables.mark_dirty(number, *block));
    begin(core, place, &found)?;
    Ok(number)
}

/// Reads the superblock of a place. One that hangs keeps no other copy from being attached.
fn look(core: &Core, place: &Place) -> Result<Superblock, VolumeError> {
    let looked = place.clone();
    let found = core.in_time(core.copies, core.options.checkpoint_timeout, move || copy::peek(&looked));
    found.map_err(|error| match error {
        // Which copy it is nobody knows.
        VolumeError::Stalled(_) => VolumeError::Device(DeviceError::Io {
            operation: Operation::Read,
            name: SUPERBLOCK.to_owned(),
            offset: 0,
            source: std::io::ErrorKind::TimedOut.into(),
        }),
        error => error,
    })
}

/// Works on the place of a copy that is out, and waits no longer than a checkpoint may take; as long as it lasts the copy is not attached
/// again.
fn on_place<T: Send + 'static>(
    core: &Core,
    number: u8,
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    let under_way = Arc::new(());
    core.is_leaving(number, Arc::downgrade(&under_way));
    core.in_time(number, core.options.checkpoint_timeout, move || {
        let _until_it_ends = under_way;
        work()
    })
}

/// Attaches a new copy in the place of one that is out, or missing: all of it will be copied.
pub(crate) fn replace(core: &Core, number: u8, place: Place) -> Result<(), VolumeError> {
    let _one = core.attaching.lock();
    ready(core)?;
    if number >= core.copies || core.copy(number).is_some() {
        return Err(VolumeError::Attached(number));
    }
    if copy::exists(&place)? {
        let found = copy::peek(&place)?;
        if found.volume != core.volume {
            return Err(foreign(&found.volume, &core.volume));
        }
        VolumeKeys::check_all(core.options.keys.as_deref(), found.encryption())?;
        if found.copy != number {
            return Err(VolumeError::Twice(found.copy));
        }
        core.wait_left(number)?;
        core.check_taken(&found)?;
        copy::promise(&place, core.promised)?;
    } else if obeys(Rule::Fencing)
        && let Some(fence) = &place.fence
    {
        fence.raise(core.promised.fence())?;
    }
    // A dirty map belongs to one copy: the one that was there before is not recognised any more.
    core.expect(number)?;
    core.tables.fill_dirty(number, true);
    checkpoint::checkpoint(core)?;
    let set = core.set();
    let mut recorded = set;
    // It knows the set that is in force, as every copy that an opening counts must. And it is recognised by the epoch in which the
    // replacement was recorded, so that an interrupted resync continues; if nothing could be recorded, by none.
    recorded.epoch = if set.in_sync.has(number) { set.epoch.unrecognised() } else { set.left[number as usize] };
    let superblock = Superblock {
        sequence: 1,
        volume: core.volume,
        copy: number,
        copies: core.copies,
        min_copies: core.min_copies,
        is_unfenced: place.is_unfenced,
        is_syncing: true,
        is_thin: core.thin.is_some(),
        journal: 0,
        set: recorded,
        promised: core.promised,
        is_encrypted: core.is_encrypted(),
        check: core.options.keys.as_ref().map_or([0; 16], |keys| keys.check()),
        parts: parts(core),
    };
    copy::format_again(&place, superblock, &core.options)?;
    let found = copy::peek(&place)?;
    begin(core, place, &found)
}

/// Errors: the volume is closed, fenced, or was opened with too few copies.
fn ready(core: &Core) -> Result<(), VolumeError> {
    core.check()?;
    if core.is_unequal() { Err(core.below_minimum()) } else { Ok(()) }
}

fn parts(core: &Core) -> Vec<u64> {
    core.tables.geometry.parts.iter().map(|part| part.blocks).collect()
}

/// The blocks in the journal of a copy that returns.
fn own_blocks(core: &Core, place: &Place, found: &Superblock) -> Result<Vec<u64>, VolumeError> {
    let (place, superblock) = (place.clone(), found.clone());
    let (options, geometry) = (core.options.clone(), core.tables.geometry.clone());
    let read = move || -> Result<Vec<u64>, VolumeError> {
        let copy = VolumeCopy::open(place, &superblock, &options)?;
        let blocks = blocks_in_journal(&copy, &geometry)?;
        copy.close()?;
        Ok(blocks)
    };
    on_place(core, found.copy, read).map_err(|error| {
        if !is_damage(&error) {
            // It may work the next time: no reason to copy all of it.
            return error;
        }
        tracing::warn!(copy = found.copy, %error, "the journal of a copy that returns is damaged");
        VolumeError::TooOld(found.copy)
    })
}

/// Whether what a copy has stored cannot be understood, in contrast to a place that does not work just now.
fn is_damage(error: &VolumeError) -> bool {
    use JournalError::{Closed, Full, NoDescriptors, Poisoned, Thread};
    let is_damaged = |error: &DeviceError| {
        matches!(
            error,
            DeviceError::NotFound { .. }
                | DeviceError::NotADevice { .. }
                | DeviceError::Damaged { .. }
                | DeviceError::Lost { .. }
        )
    };
    match error {
        VolumeError::Device(error) | VolumeError::Journal(JournalError::Device(error)) => is_damaged(error),
        VolumeError::Journal(Poisoned { .. } | Closed | Full { .. } | NoDescriptors | Thread(_)) => false,
        VolumeError::Journal(_) | VolumeError::Format { .. } => true,
        _ => false,
    }
}

/// Makes the dirty map persistent, then lets the copy take part in writes.
fn begin(core: &Core, place: Place, found: &Superblock) -> Result<(), VolumeError> {
    checkpoint::checkpoint(core)?;
    let (number, found, options) = (found.copy, found.clone(), core.options.clone());
    let copy = Arc::new(on_place(core, number, move || VolumeCopy::open_syncing(place, &found, &options))?);
    core.observe(&copy)?;
    let _gate = core.gate.write();
    core.attach(copy, true);
    Ok(())
}

/// Copies the next dirty regions, or ends the resync.
///
/// Errors: the copy has failed, and is out as before; or the volume serves no longer; or [`VolumeError::Damaged`]: a source cannot be read
/// just now.
pub(crate) fn step(core: &Core, number: u8) -> Result<Step, VolumeError> {
    core.check()?;
    let copy = core.copy(number).filter(|_| core.syncing().has(number)).ok_or(VolumeError::Stalled(number))?;
    if !obeys(Rule::Rejoin) {
        return finish(core, &copy);
    }
    let Some(region) = core.tables.next_dirty(number, 0) else { return finish(core, &copy) };
    let (first, regions) = (region * REGION_BLOCKS, dirty_run(core, number, region));
    let blocks = regions * REGION_BLOCKS;
    let _held = core.stripes.lock(first, blocks);
    // Clean at last: a write that the copy does not get waits for the stripes, and marks its region again.
    let sources = copy_blocks(core, &copy, first, blocks)?;
    let copied = sources.iter().filter(|source| **source != Source::Nothing).count() as u64;
    if copied > 0
        && let Err(error) = verify(core, &copy, first, &sources)
    {
        core.fail(&copy, &error)?;
        return Err(error);
    }
    if !(region..region + regions).all(|region| core.copied(&copy, region)) {
        return Err(VolumeError::Stalled(number));
    }
    let left = core.tables.dirty_regions(number) * REGION_BLOCKS * BLOCK_BYTES as u64;
    Ok(Step::Copied { bytes: copied * BLOCK_BYTES as u64, left })
}

/// How many dirty regions from `region` on, itself included, are copied as one: side by side in one part, and as much as one write.
fn dirty_run(core: &Core, number: u8, region: u64) -> u64 {
    let part = &core.tables.geometry.parts[core.tables.geometry.part_of(region * REGION_BLOCKS)];
    let limit = ((part.first_block + part.blocks) / REGION_BLOCKS).min(region + PIECE_BLOCKS / REGION_BLOCKS);
    (region..limit).take_while(|region| core.tables.next_dirty(number, *region) == Some(*region)).count() as u64
}

/// Copies blocks whose stripes are held, neighbours by one write; returns where each of them was.
fn copy_blocks(core: &Core, copy: &Arc<VolumeCopy>, first: u64, blocks: u64) -> Result<Vec<Source>, VolumeError> {
    let mut bytes = AlignedBuffer::zeroed(blocks as usize * BLOCK_BYTES);
    let sources = fetch_all(core, copy, first, &mut bytes)?;
    let mut at = 0;
    for run in sources.chunk_by(|one, next| one == next) {
        let (from, to) = (at * BLOCK_BYTES, (at + run.len()) * BLOCK_BYTES);
        let (block, blocks) = (first + at as u64, run.len() as u64);
        let copied = match run[0] {
            Source::Others => match thin::reserve(core, copy, block, blocks) {
                // It waits for space; it has not failed.
                Err(VolumeError::NoSpace) => return Err(VolumeError::NoSpace),
                reserved => reserved.and_then(|()| core.write_copy(copy, block, &bytes[from..to], false)),
            },
            Source::Nothing => thin::discard(core, copy, block, blocks),
            Source::Itself | Source::Lost => Ok(()),
        };
        if let Err(error) = copied {
            core.fail(copy, &error)?;
            return Err(error);
        }
        at += run.len();
    }
    Ok(sources)
}

/// Where the content of a block is that a copy should have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// It has none.
    Nothing,
    /// On the copies in sync, or in memory.
    Others,
    /// On the copy itself, which has given it back to the others.
    Itself,
    /// Nowhere: it is damaged on every copy. The copy keeps what it has there, which does not match the sum either: a read reports the
    /// damage as before. One damaged block must not keep the copy from having all the others.
    Lost,
}

/// Reads blocks whose stripes are held: neighbours in place by one read of one copy, and one by one what does not match its sum then.
fn fetch_all(core: &Core, copy: &Arc<VolumeCopy>, first: u64, bytes: &mut [u8]) -> Result<Vec<Source>, VolumeError> {
    let mut sources = Vec::with_capacity(bytes.len() / BLOCK_BYTES);
    let limit = first + (bytes.len() / BLOCK_BYTES) as u64;
    let mut block = first;
    while block < limit {
        let is_in_place = !core.overlay.has(block) && core.tables.sum(block) != Sum::NONE;
        let end = if is_in_place { run_end(core, block, limit) } else { block + 1 };
        let run = &mut bytes[(block - first) as usize * BLOCK_BYTES..(end - first) as usize * BLOCK_BYTES];
        let is_read = is_in_place
            && choose(core)
                .and_then(|source| core.copy(source))
                .is_some_and(|source| core.read_copy(&source, block, run).is_ok());
        for (bytes, block) in run.chunks_exact_mut(BLOCK_BYTES).zip(block..) {
            let is_good = is_read && core.matches(block, bytes, &core.tables.mark(block));
            sources.push(if is_good { Source::Others } else { fetch(core, copy, block, bytes)? });
        }
        block = end;
    }
    Ok(sources)
}

/// Reads a block whose stripe is held.
fn fetch(core: &Core, copy: &Arc<VolumeCopy>, block: u64, bytes: &mut [u8]) -> Result<Source, VolumeError> {
    match stored(core, block, bytes) {
        Ok(true) => Ok(Source::Others),
        Ok(false) => Ok(Source::Nothing),
        Err(error @ VolumeError::Damaged { .. }) => {
            // The copy may have been in sync until a moment ago: if its own block is the right one, the others get it back.
            let mark = core.tables.mark(block);
            if core.read_copy(copy, block, bytes).is_err() || !core.is_as_stored(copy, block, bytes, &mark) {
                if !is_lost(core, copy, block, bytes) {
                    return Err(error);
                }
                tracing::error!(block, copy = copy.number, %error, "not copied, as no copy has it undamaged");
                return Ok(Source::Lost);
            }
            let sources = core.working().iter().filter_map(|number| core.copy(number));
            sources.for_each(|source| mend(core, &source, block, bytes));
            Ok(Source::Itself)
        }
        Err(error) => Err(error),
    }
}

/// Whether nobody has a block: every copy in sync is there, and each has given bytes that do not match the sum. A source that cannot read
/// just this block is asked again in so many steps before that counts as damage too; one that cannot read anything never does. So a copy
/// does not join without what a source has.
fn is_lost(core: &Core, copy: &VolumeCopy, block: u64, bytes: &mut [u8]) -> bool {
    let mark = core.tables.mark(block);
    let mut is_unreadable = false;
    for number in core.working().iter() {
        let Some(source) = core.copy(number) else { return false };
        match core.read_copy(&source, block, bytes) {
            Ok(()) if core.matches(block, bytes, &mark) => return false,
            Ok(()) => {}
            Err(_) => {
                is_unreadable = true;
                let others = [0, core.tables.geometry.blocks() - 1];
                let mut reads = |other: u64| other != block && core.read_copy(&source, other, bytes).is_ok();
                if !others.into_iter().any(&mut reads) {
                    return false;
                }
            }
        }
    }
    let are_all_there = core.set().in_sync == core.working();
    are_all_there && (!is_unreadable || copy.unreadable_again(block) >= UNREADABLE_STEPS)
}

/// Reads the stored form of a block whose stripe is held; returns whether it has content.
fn stored(core: &Core, block: u64, bytes: &mut [u8]) -> Result<bool, VolumeError> {
    while core.overlay.has(block) {
        match core.overlay.get(block) {
            Some(Stored::Bytes(fresh, _)) => {
                bytes.copy_from_slice(&fresh);
                return Ok(true);
            }
            Some(Stored::Zeroes { .. }) => return Ok(false),
            None => {}
        }
    }
    if core.tables.sum(block) == Sum::NONE {
        return Ok(false);
    }
    repair(core, block, bytes)?;
    Ok(true)
}

/// Makes blocks persistent on the copy and reads them back.
fn verify(core: &Core, copy: &Arc<VolumeCopy>, first: u64, sources: &[Source]) -> Result<(), VolumeError> {
    core.write_copy(copy, first, &[], true)?;
    let mut read = AlignedBuffer::zeroed(sources.len() * BLOCK_BYTES);
    // Together; one by one where a block without content cannot be read.
    let is_whole = core.read_copy(copy, first, &mut read).is_ok();
    for ((bytes, block), source) in read.chunks_exact_mut(BLOCK_BYTES).zip(first..).zip(sources) {
        let sum = core.tables.sum(block);
        // A block of the overlay may be written in place by a checkpoint just now, which a later one repeats.
        if sum == Sum::NONE || *source == Source::Lost || core.overlay.has(block) {
            continue;
        }
        if !is_whole {
            core.read_copy(copy, block, bytes)?;
        }
        if Sum::of(bytes) != sum {
            return Err(VolumeError::Damaged { offset: block * BLOCK_BYTES as u64, bytes: BLOCK_BYTES as u64 });
        }
    }
    Ok(())
}

/// The copy has everything: it joins.
fn finish(core: &Core, copy: &Arc<VolumeCopy>) -> Result<Step, VolumeError> {
    let (number, _one) = (copy.number, core.checkpointing.lock());
    if copy.lacks_headroom() {
        thin::look(core);
    }
    if copy.lacks_headroom() {
        return Err(VolumeError::NoSpace);
    }
    checkpoint::run(core, Members::only(number))?;
    let _gate = core.gate.write();
    if !core.is_syncing(copy) {
        return Err(VolumeError::Stalled(number));
    }
    if obeys(Rule::Rejoin) && core.tables.next_dirty(number, 0).is_some() {
        let left = core.tables.dirty_regions(number) * REGION_BLOCKS * BLOCK_BYTES as u64;
        return Ok(Step::Copied { bytes: 0, left });
    }
    core.tables.fill_dirty(number, false);
    core.join(copy)?;
    Ok(Step::Joined)
}
