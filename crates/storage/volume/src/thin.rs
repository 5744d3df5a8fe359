//! Thin volumes: a block takes space of a medium when it is first written in place, and gives it back when it is discarded.
//!
//! ```text
//!   data shelf    superblock | data-0 (sparse) | tables-0 | headroom-00 ...   the last ones are reserved, and nothing lies in them
//!
//!   write         has the block space?  yes: as ever     no: only while no copy is short, else VolumeError::NoSpace
//!   checkpoint    discarded blocks give their space back; then all runs take their space, then their bytes are written
//!                 no space for a run?   the headroom is given up, piece by piece; the copy is short from the first one on
//!   look          also while a checkpoint lasts: puts the headroom back where there is enough; a copy without it, or on a medium with little left, is short
//! ```
//!
//! **Why a headroom.** What is acknowledged is in the journals and has no place yet. A count of free bytes would promise nothing: others
//! write to the same medium, also between a crash and the next opening. The headroom is as large as all that the overlay can have, so
//! whatever was admitted while it was there finds its place, however full the medium is by then.
//!
//! Invariants:
//! 1. A block whose sum is known and that is not in the overlay has space on every copy in sync. So has one that is in the overlay with
//!    bytes, or the headroom has it. Nothing else is written while a copy in sync is short.
//! 2. Space is given back only while the discard is in the journal of the same copy, which is emptied after the space is persistently
//!    gone: a crash finds the discard, or the zeros that it left.
//! 3. A copy is looked at before the blocks of a checkpoint leave the overlay: until then no more is admitted than the headroom has.
//!
//! A copy is not excluded because its medium is full: the volume refuses new data, on all copies alike. One whose medium does not answer is,
//! as long as enough others are left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::DeviceError;

use crate::checksum::Sum;
use crate::copy::VolumeCopy;
use crate::core::Core;
use crate::error::VolumeError;
use crate::members::Members;
use crate::options::Threads;
use crate::overlay::Stored;
use crate::space::ThinState;

/// Between two looks at media by the thread for upkeep.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Copies that are short: of those in sync, each one keeps new data out.
pub(crate) fn short(core: &Core) -> Members {
    core.thin.as_ref().map_or(Members::NONE, |thin| thin.short())
}

/// Whether new data finds space.
pub(crate) fn has_room(core: &Core) -> bool {
    short(core).and(core.working()).is_empty()
}

/// Whether a checkpoint would give space back that is needed.
pub(crate) fn is_reclaiming(core: &Core) -> bool {
    core.thin.as_ref().is_some_and(|thin| thin.is_behind()) && !has_room(core)
}

/// Whether blocks may get content. The caller holds their stripes.
///
/// Errors: [`VolumeError::NoSpace`].
pub(crate) fn admit(core: &Core, first: u64, blocks: u64) -> Result<(), VolumeError> {
    let Some(thin) = &core.thin else { return Ok(()) };
    if has_room(core) {
        thin.admitted();
        return Ok(());
    }
    let is_known = |block| !lacks_space(core, block);
    if (first..first + blocks).all(is_known) { Ok(()) } else { Err(VolumeError::NoSpace) }
}

/// Whether a block has no space in place, or perhaps none. The caller holds its stripe.
fn lacks_space(core: &Core, block: u64) -> bool {
    let fresh = if core.overlay.has(block) { core.overlay.get(block) } else { None };
    match fresh {
        Some(Stored::Bytes(..)) => false,
        Some(Stored::Zeroes { .. }) => true,
        None => matches!(core.tables.sum(block), Sum::NONE | Sum::UNKNOWN),
    }
}

/// Waits until the blocks that were discarded have given their space back, or until `deadline`. Returns whether to try again.
pub(crate) fn wait_reclaimed(core: &Core, deadline: Instant) -> bool {
    let Some(thin) = &core.thin else { return false };
    if core.options.threads == Threads::Callers || !thin.is_behind() {
        return false;
    }
    let wanted = thin.discarded();
    let is_waiting = || thin.reclaimed() < wanted && !has_room(core);
    core.progress.tick();
    while is_waiting() {
        let seen = core.progress.ticks();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || core.is_frozen() || core.check().is_err() {
            return false;
        }
        if is_waiting() {
            core.progress.wait(seen, left.min(LOOK));
        }
    }
    true
}

/// Looks at the media of all copies. The caller holds the checkpoint's lock.
pub(crate) fn look(core: &Core) {
    let Some(thin) = &core.thin else { return };
    thin.looks();
    let before = thin.short();
    for number in core.attached().iter() {
        let Some(copy) = core.copy(number) else { continue };
        let target = copy.clone();
        if let Err(error) = core.in_time(number, core.options.copy_timeout, move || Ok(target.look()?)) {
            lost_sight(core, thin, &copy, &error);
        }
    }
    thin.keep_short(core.attached());
    let found = thin.short();
    for number in found.minus(before).iter() {
        tracing::warn!(
            copy = number,
            "no space is left for new data on the medium of a copy: reads, discards and changes of data go on"
        );
    }
    for number in before.minus(found).iter() {
        tracing::info!(copy = number, "there is space for new data on the medium of a copy again");
    }
}

/// It is not known how much space the medium of a copy has. The copy is excluded as one that fails, and the others take new data; without
/// it there would be too few, so it is short.
fn lost_sight(core: &Core, thin: &ThinState, copy: &Arc<VolumeCopy>, error: &VolumeError) {
    let number = copy.number;
    tracing::warn!(copy = number, %error, "it is unknown how much space the medium of a copy has");
    // A lack of this process, not of the medium.
    if matches!(error, VolumeError::Thread(_) | VolumeError::Device(DeviceError::NoDescriptors { .. })) {
        return thin.is_short(number, true);
    }
    let others = core.working().minus(Members::only(number)).count();
    if core.syncing().has(number) || others >= core.min_copies {
        // Who writes next meets the outcome.
        let _ = core.fail(copy, error);
    } else {
        thin.is_short(number, true);
    }
}

/// As [`look`], where a copy was short: before a write of a caller without threads.
pub(crate) fn look_if_short(core: &Core) {
    if !short(core).is_empty() {
        let _one = core.checkpointing.lock();
        look(core);
    }
}

/// As [`look`], if there is a reason and the last one was some time ago.
pub(crate) fn look_in_turn(core: &Core, looked: &mut Instant) {
    let Some(thin) = &core.thin else { return };
    let is_wanted = thin.has_admitted() || !short(core).is_empty();
    if !is_wanted || looked.elapsed() < LOOK {
        return;
    }
    if let Some(_one) = core.checkpointing.try_lock() {
        look(core);
        *looked = Instant::now();
    }
}

/// Takes the space of blocks that a resync copies; their medium keeps its headroom, and what is left to others.
///
/// Errors: [`VolumeError::NoSpace`]: the copy waits; [`VolumeError::Stalled`] and those of the device.
pub(crate) fn reserve(core: &Core, copy: &Arc<VolumeCopy>, first: u64, blocks: u64) -> Result<(), VolumeError> {
    let Some(state) = core.thin.as_ref().filter(|_| copy.is_thin()) else { return Ok(()) };
    let target = copy.clone();
    let reserved = core.in_time(copy.number, core.options.copy_timeout, move || Ok(target.reserve(first, blocks)?));
    match reserved {
        Ok(true) => Ok(()),
        Ok(false) | Err(VolumeError::Device(DeviceError::Full { .. })) => {
            state.admitted();
            Err(VolumeError::NoSpace)
        }
        Err(error) => Err(error),
    }
}

/// Gives the space of blocks back that a copy which is brought up to date may have and that have no content. The caller holds their
/// stripes.
pub(crate) fn discard(core: &Core, copy: &Arc<VolumeCopy>, first: u64, blocks: u64) -> Result<(), VolumeError> {
    if !copy.is_thin() {
        return Ok(());
    }
    let target = copy.clone();
    core.in_time(copy.number, core.options.copy_timeout, move || Ok(target.discard(first, blocks)?))
}
