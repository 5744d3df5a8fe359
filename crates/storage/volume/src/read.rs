//! Reading: from the overlay, or from one copy, verified; damage is repaired from another copy and never returned.
//!
//! ```text
//!   bit of the overlay set?  ->  its bytes, opened if they are encrypted
//!   no sum                   ->  zeros
//!   bytes of one copy match the sum, or open with the seal  ->  these          no lock is held
//!   they do not: again under the stripe, where no write can interfere
//!       another copy's bytes match   ->  these; the first copy is written anew
//!       none does                    ->  VolumeError::Damaged
//! ```
//!
//! A read without a lock may meet a write: it then sees bytes that do not match the sum that it has loaded before, and decides under the
//! stripe. Bytes that match are those of the moment at which the sum was loaded. A sum is set only when its write is durable on every
//! copy in sync, and there is one table of sums for all copies: so no reader sees an older state after another has seen a newer one,
//! whichever copies they read.
//!
//! Where blocks are encrypted the seal takes the place of the sum in the first look, as it says more. Under the stripe both count: bytes
//! that match the sum and not the seal were changed by somebody, which is reported as such.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use device::BLOCK_BYTES;

use crate::checksum::Sum;
use crate::copy::VolumeCopy;
use crate::core::Core;
use crate::error::VolumeError;
use crate::mark::{BlockMark, BlockSeal};
use crate::overlay::Stored;

/// One read of this many goes to another copy than the fastest, so that its time is known: fewer than one in a hundred.
const PROBE: u64 = 256;

/// The largest number of blocks that are read from a copy at once.
pub(crate) const RUN_BLOCKS: u64 = 256;

/// Fills `buffer` from `offset`; any bytes of the volume.
pub(crate) fn read(core: &Core, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
    core.check()?;
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let mut offset = offset;
    let mut rest = buffer;
    let mut whole = [0; BLOCK_BYTES];
    while !rest.is_empty() {
        let block = offset / BLOCK;
        let within = (offset % BLOCK) as usize;
        let (bytes, blocks) = if within > 0 || rest.len() < BLOCK_BYTES {
            ((BLOCK_BYTES - within).min(rest.len()), 0)
        } else {
            let blocks = (rest.len() as u64 / BLOCK).min(RUN_BLOCKS);
            ((blocks * BLOCK) as usize, blocks)
        };
        let (now, later) = rest.split_at_mut(bytes);
        if blocks == 0 {
            read_blocks(core, block, &mut whole)?;
            now.copy_from_slice(&whole[within..within + bytes]);
        } else {
            read_blocks(core, block, now)?;
        }
        rest = later;
        offset += bytes as u64;
    }
    Ok(())
}

/// Reads whole blocks.
fn read_blocks(core: &Core, first: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
    let blocks = (buffer.len() / BLOCK_BYTES) as u64;
    let mut at = 0;
    while at < blocks {
        let block = first + at;
        let here = &mut buffer[at as usize * BLOCK_BYTES..];
        if core.overlay.has(block) {
            readable(core)?;
            match core.overlay.get(block) {
                Some(Stored::Bytes(bytes, seal)) => open_fresh(core, block, (&bytes, &seal), &mut here[..BLOCK_BYTES])?,
                Some(Stored::Zeroes { .. }) => here[..BLOCK_BYTES].fill(0),
                // Its checkpoint has just ended: look again.
                None => continue,
            }
            at += 1;
            continue;
        }
        let mark = core.tables.mark(block);
        if mark.sum == Sum::NONE {
            here[..BLOCK_BYTES].fill(0);
            at += 1;
            continue;
        }
        let end = run_end(core, block, first + blocks);
        let run = (end - block) as usize * BLOCK_BYTES;
        read_run(core, block, mark, &mut here[..run])?;
        at = end - first;
    }
    Ok(())
}

/// Errors: [`VolumeError::BelowMinimum`]: a block that only the journals have, of a volume that was opened with too few copies, may have
/// been written by nobody: the copies that are missing decide. Who read it could see it vanish.
fn readable(core: &Core) -> Result<(), VolumeError> {
    if core.is_unequal() { Err(core.below_minimum()) } else { Ok(()) }
}

/// The end of the blocks from `block` on that lie in place, in one part.
pub(crate) fn run_end(core: &Core, block: u64, limit: u64) -> u64 {
    let part = &core.tables.geometry.parts[core.tables.geometry.part_of(block)];
    let limit = limit.min(part.first_block + part.blocks);
    let in_place = |block: &u64| !core.overlay.has(*block) && core.tables.sum(*block) != Sum::NONE;
    (block + 1..limit).take_while(in_place).count() as u64 + block + 1
}

/// Takes a block out of the overlay. Errors: [`VolumeError::Damaged`]: the journals have it so.
fn open_fresh(core: &Core, block: u64, (bytes, seal): (&[u8], &BlockSeal), into: &mut [u8]) -> Result<(), VolumeError> {
    into.copy_from_slice(bytes);
    if core.opens(block, into, seal) {
        return Ok(());
    }
    tracing::error!(volume = %core.name(), block, "a block in the journals was changed, or belongs elsewhere: its seal does not match");
    Err(lost(core, block))
}

fn lost(core: &Core, block: u64) -> VolumeError {
    core.metrics.damaged.fetch_add(1, Ordering::Relaxed);
    VolumeError::Damaged { offset: block * BLOCK_BYTES as u64, bytes: BLOCK_BYTES as u64 }
}

/// Reads blocks in place from one copy. `mark` is that of the first, loaded before.
fn read_run(core: &Core, first: u64, mark: BlockMark, buffer: &mut [u8]) -> Result<(), VolumeError> {
    let blocks = (buffer.len() / BLOCK_BYTES) as u64;
    // Loaded before the bytes are read.
    let rest: Vec<BlockMark> = (first + 1..first + blocks).map(|block| core.tables.mark(block)).collect();
    let began = Instant::now();
    let source = choose(core);
    let is_read = source.is_some_and(|number| match core.copy(number) {
        Some(copy) => core.read_copy(&copy, first, buffer).is_ok(),
        None => false,
    });
    if let Some(number) = source {
        core.metrics.copy(number).read(buffer.len() as u64, began.elapsed());
    }
    for (index, here) in buffer.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let expected = if index == 0 { &mark } else { &rest[index - 1] };
        let block = first + index as u64;
        if !is_read || !core.opens_as(block, here, expected) {
            read_carefully(core, block, here)?;
        }
    }
    Ok(())
}

/// The copy to read: the preferred one, or the fastest, with what was handed to it already.
pub(crate) fn choose(core: &Core) -> Option<u8> {
    let working = core.working();
    if let Some(preferred) = core.options.prefer.filter(|preferred| working.has(*preferred)) {
        return Some(preferred);
    }
    let turn = core.metrics.turn.fetch_add(1, Ordering::Relaxed);
    if turn.is_multiple_of(PROBE) {
        return working.iter().nth((turn / PROBE) as usize % working.count().max(1) as usize);
    }
    working.iter().min_by_key(|number| core.metrics.copy(*number).expected())
}

/// Reads one block under its stripe.
fn read_carefully(core: &Core, block: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
    let _held = core.stripes.lock(block, 1);
    read_held(core, block, buffer)
}

/// Reads one block; the caller holds its stripe. A copy whose bytes are damaged is written anew.
pub(crate) fn read_held(core: &Core, block: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
    loop {
        if core.overlay.has(block) {
            readable(core)?;
        }
        match core.overlay.has(block).then(|| core.overlay.get(block)) {
            Some(Some(Stored::Bytes(bytes, seal))) => return open_fresh(core, block, (&bytes, &seal), buffer),
            Some(Some(Stored::Zeroes { .. })) => {
                buffer.fill(0);
                return Ok(());
            }
            Some(None) => {}
            None => break,
        }
    }
    let mark = core.tables.mark(block);
    if mark.sum == Sum::NONE {
        buffer.fill(0);
        return Ok(());
    }
    // Mostly the first copy is good; what follows verifies the seal beside the sum.
    let first = || choose(core).and_then(|number| core.copy(number));
    if core.is_encrypted()
        && first().is_some_and(|copy| core.read_copy(&copy, block, buffer).is_ok())
        && core.opens(block, buffer, &mark.seal)
    {
        return Ok(());
    }
    repair(core, block, buffer)?;
    if core.opens(block, buffer, &mark.seal) { Ok(()) } else { Err(lost(core, block)) }
}

/// Reads the stored bytes of a block in place from every working copy until they are those that were written, and writes the damaged ones
/// before it anew. Returns how many were. The caller holds the stripe, and the block is not in the overlay.
pub(crate) fn repair(core: &Core, block: u64, buffer: &mut [u8]) -> Result<u64, VolumeError> {
    let mark = core.tables.mark(block);
    let mut damaged: Vec<Arc<VolumeCopy>> = Vec::new();
    let mut failure = None;
    let order = choose(core).into_iter().chain(core.working().iter());
    for number in order {
        let Some(copy) = core.copy(number) else { continue };
        if damaged.iter().any(|other| other.number == number) {
            continue;
        }
        match core.read_copy(&copy, block, buffer) {
            Ok(()) if core.is_as_stored(&copy, block, buffer, &mark) => {
                let count = damaged.len() as u64;
                for copy in damaged {
                    mend(core, &copy, block, buffer);
                }
                return Ok(count);
            }
            // A sum that is lost: what the copies agree on cannot be verified, and is not guessed.
            Ok(()) => damaged.push(copy),
            // It takes part no longer.
            Err(VolumeError::Stalled(_)) => {}
            Err(error) => {
                failure = Some(error);
                damaged.push(copy);
            }
        }
    }
    if core.working().is_empty() {
        return Err(core.below_minimum());
    }
    tracing::error!(volume = %core.name(), block, failure = ?failure, "a block of the volume is damaged on every copy");
    Err(lost(core, block))
}

/// Writes good bytes over damaged ones. A crash that tears this write leaves a block that is damaged still.
pub(crate) fn mend(core: &Core, copy: &Arc<VolumeCopy>, block: u64, good: &[u8]) {
    let number = copy.number;
    tracing::warn!(copy = number, block, "a damaged block is written anew from another copy");
    match core.write_copy(copy, block, good, true) {
        Ok(()) => core.metrics.copy(number).repaired(),
        Err(error) => {
            // The read goes on from the good copy; the copy that cannot be written is excluded.
            if let Err(why) = core.fail(copy, &error) {
                tracing::error!(%why, "after a failed repair");
            }
        }
    }
}
