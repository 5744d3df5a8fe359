//! Scrub: reads every block of every copy that works, in the background, and writes damaged ones anew.
//!
//! A scrub finds damage while another copy still has the bytes; that of sums, and of seals where blocks are encrypted. It reads in place under the stripes of some blocks at a time; blocks
//! of the overlay are left out, since the next checkpoint writes them anyway.

use std::sync::atomic::Ordering;

use device::{AlignedBuffer, BLOCK_BYTES};

use crate::checksum::Sum;
use crate::core::Core;
use crate::error::VolumeError;
use crate::geometry::REGION_BLOCKS;
use crate::read::repair;

/// What a part of a scrub has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes read, on all copies together.
    pub bytes: u64,
    /// Blocks of a copy that were written anew.
    pub repaired: u64,
    /// Blocks that are damaged on every copy.
    pub damaged: u64,
}

impl Scrubbed {
    /// Both together.
    pub(crate) fn add(&mut self, other: Scrubbed) {
        self.bytes += other.bytes;
        self.repaired += other.repaired;
        self.damaged += other.damaged;
    }
}

/// Scrubs a region.
pub(crate) fn region(core: &Core, region: u64) -> Result<Scrubbed, VolumeError> {
    core.check()?;
    let first = region * REGION_BLOCKS;
    let _held = core.stripes.lock(first, REGION_BLOCKS);
    let mut found = Scrubbed::default();
    let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
    for block in first..first + REGION_BLOCKS {
        let mark = core.tables.mark(block);
        if core.overlay.has(block) || mark.sum == Sum::NONE {
            continue;
        }
        let mut is_damaged = false;
        for number in core.working().iter() {
            let Some(copy) = core.copy(number) else { continue };
            found.bytes += BLOCK_BYTES as u64;
            is_damaged |=
                core.read_copy(&copy, block, &mut bytes).is_err() || !core.is_as_stored(&copy, block, &bytes, &mark);
        }
        if !is_damaged {
            continue;
        }
        match repair_all(core, block, &mut bytes) {
            Ok(repaired) => found.repaired += repaired,
            Err(VolumeError::Damaged { .. }) => found.damaged += 1,
            Err(error) => return Err(error),
        }
    }
    core.metrics.scrubbed.fetch_add(REGION_BLOCKS, Ordering::Relaxed);
    Ok(found)
}

/// Repairs the copies of a block one after the other, whichever is read first.
fn repair_all(core: &Core, block: u64, bytes: &mut [u8]) -> Result<u64, VolumeError> {
    let mark = core.tables.mark(block);
    let mut repaired = repair(core, block, bytes)?;
    let good = bytes.to_vec();
    for number in core.working().iter() {
        let Some(copy) = core.copy(number) else { continue };
        if core.read_copy(&copy, block, bytes).is_ok() && core.is_as_stored(&copy, block, bytes, &mark) {
            continue;
        }
        match core.write_copy(&copy, block, &good, true) {
            Ok(()) => {
                core.metrics.copy(number).repaired();
                repaired += 1;
            }
            Err(error) => core.fail(&copy, &error)?,
        }
    }
    Ok(repaired)
}
