//! Scrub: reads every block of every copy that works, in the background, and writes damaged ones anew.
//!
//! A scrub finds damage while another copy still has the bytes; that of sums, and of seals where blocks are encrypted. It reads in place under the stripes of some blocks at a time; blocks
//! of the overlay are left out, since the next checkpoint writes them anyway.
//!
//! The sums themselves are looked at too. While a volume is open they are in memory, and nothing reads them before the next opening: there
//! a damaged sector needs that of another copy, which may be damaged by then. So what is damaged is written anew by a checkpoint.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{AlignedBuffer, BLOCK_BYTES};

use crate::checkpoint;
use crate::checksum::Sum;
use crate::copy::VolumeCopy;
use crate::core::Core;
use crate::error::VolumeError;
use crate::geometry::{Content, Geometry, REGION_BLOCKS, SECTOR, SECTORS_PER_BLOCK};
use crate::members::Members;
use crate::read::repair;
use crate::tables::number_of;

/// What a part of a scrub has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes read, on all copies together.
    pub bytes: u64,
    /// Blocks of a copy that were written anew, sectors of its tables, and slots of its superblock.
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
    let superblocks = if region == 0 { superblocks(core) } else { 0 };
    let mut found = Scrubbed { repaired: superblocks + tables(core, region), ..Scrubbed::default() };
    let first = region * REGION_BLOCKS;
    let _held = core.stripes.lock(first, REGION_BLOCKS);
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

/// Looks at the superblocks, which are written rarely and read at an opening only; returns how many damaged slots were written anew.
fn superblocks(core: &Core) -> u64 {
    let mut repaired = 0;
    for number in core.working().iter() {
        let Some(copy) = core.copy(number) else { continue };
        let source = copy.clone();
        match core.in_time(number, core.options.copy_timeout, move || source.mend_superblock()) {
            Ok(damaged) => {
                (0..damaged).for_each(|_| core.metrics.copy(number).repaired());
                repaired += damaged;
            }
            Err(why @ VolumeError::Stalled(_)) => {
                if let Err(error) = core.fail(&copy, &why) {
                    tracing::error!(%error, "after a copy did not answer");
                }
            }
            // What it stores is good as long as no set has to be recorded.
            Err(why) => tracing::error!(copy = number, %why, "the superblock of a copy cannot be written anew"),
        }
    }
    repaired
}

/// Looks at the blocks of tables that a scrub comes to with a region; returns how many damaged sectors were written anew.
fn tables(core: &Core, region: u64) -> u64 {
    let blocks = table_blocks(&core.tables.geometry, region);
    if blocks.is_empty() || core.is_frozen() || core.is_unequal() {
        return 0;
    }
    // No checkpoint writes them meanwhile.
    let _one = core.checkpointing.lock();
    let mut damaged = Vec::new();
    for first in blocks.map(|block| block * SECTORS_PER_BLOCK) {
        for number in core.working().iter() {
            let Some(copy) = core.copy(number) else { continue };
            let mut sectors = damaged_sectors(core, &copy, first);
            // What memory does not have cannot be written anew; perhaps the sector can be read one day.
            sectors.retain(|sector| is_known(core, *sector));
            if !sectors.is_empty() {
                tracing::warn!(copy = number, ?sectors, "damaged sectors of tables are written anew");
            }
            sectors.iter().for_each(|_| core.metrics.copy(number).repaired());
            damaged.append(&mut sectors);
        }
    }
    if damaged.is_empty() {
        return 0;
    }
    core.tables.restore_changed(&damaged);
    if let Err(error) = checkpoint::run(core, Members::NONE) {
        // They are written by the next one.
        tracing::warn!(%error, "a checkpoint of the volume has failed");
    }
    damaged.len() as u64
}

/// The blocks of tables, by number, that have sums of a region and none of the region before it.
fn table_blocks(geometry: &Geometry, region: u64) -> Range<u64> {
    let first = region * REGION_BLOCKS;
    let of = |block: u64| geometry.sum_sector(block) / SECTORS_PER_BLOCK;
    let begin = if first == 0 { 0 } else { of(first - 1) + 1 };
    begin..of(first + REGION_BLOCKS - 1) + 1
}

/// The sectors of a block of tables that are not on a copy as they were written.
fn damaged_sectors(core: &Core, copy: &Arc<VolumeCopy>, first: u64) -> Vec<u64> {
    let source = copy.clone();
    let work = move || {
        let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
        source.read_table_block(first, &mut bytes)?;
        Ok(bytes)
    };
    let sectors = first..first + SECTORS_PER_BLOCK;
    match core.in_time(copy.number, core.options.copy_timeout, work) {
        Ok(bytes) => {
            let each = sectors.zip(bytes.chunks_exact(SECTOR));
            each.filter(|(sector, bytes)| number_of(bytes) != Some(*sector)).map(|(sector, _)| sector).collect()
        }
        Err(VolumeError::Device(_)) => sectors.collect(),
        Err(why @ VolumeError::Stalled(_)) => {
            if let Err(error) = core.fail(copy, &why) {
                tracing::error!(%error, "after a copy did not answer");
            }
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

/// Whether all that a sector says is in memory.
fn is_known(core: &Core, sector: u64) -> bool {
    match core.tables.geometry.content(sector) {
        Content::Sums { first, count } => (first..first + count).all(|block| core.tables.sum(block) != Sum::UNKNOWN),
        Content::Dirty { .. } => true,
    }
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
