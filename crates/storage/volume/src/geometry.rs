//! [`Geometry`]: the blocks of a volume, the parts that they lie in, and the sectors of the tables that describe them.
//!
//! ```text
//!   volume    | block 0 ................ | block n ............ |         a part more for each time it was grown
//!   shelf       data-0                     data-1                         the blocks
//!               tables-0                   tables-1                       sums and dirty maps, in sectors of 512 bytes
//!
//!   tables-k  | sums of the part | dirty map of copy 0 | of copy 1 | of copy 2 |      each padded to a whole block
//! ```
//!
//! A *sector* of a table has a head of 16 bytes and 496 bytes of content: 124 sums, or 11 sums with seals where blocks are encrypted, or
//! the bits of 3968 regions. A *region* is
//! [`REGION_BLOCKS`] blocks: the unit of dirty maps, and of the size of a part.

use device::BLOCK_BYTES;

use crate::mark::entry_bytes;
use crate::members::COPIES_MAX;

/// The largest number of parts: growth adds one.
pub(crate) const PARTS_MAX: usize = 64;

/// Blocks of one bit of a dirty map: 64 KiB.
pub const REGION_BLOCKS: u64 = 16;

/// Bytes of a sector of a table: small, because the journal contains the image of each that a checkpoint changes.
pub const SECTOR: usize = device::SECTOR_BYTES;

/// Bytes before the content of a sector.
pub(crate) const SECTOR_HEAD: usize = 16;

/// Blocks that a sector of sums describes.
const fn blocks_per_sector(is_encrypted: bool) -> u64 {
    ((SECTOR - SECTOR_HEAD) / entry_bytes(is_encrypted)) as u64
}

/// Regions in a sector of a dirty map: 62 words of 64 bits.
pub(crate) const REGIONS_PER_SECTOR: u64 = ((SECTOR - SECTOR_HEAD) * 8) as u64;

/// Sectors in a block of a table.
pub(crate) const SECTORS_PER_BLOCK: u64 = (BLOCK_BYTES / SECTOR) as u64;

/// The largest size of a volume: 1 PiB. The sums of one of that size take 1 TiB of memory.
const BLOCKS_MAX: u64 = 1 << 38;

/// Whether a volume may have such parts, given in blocks.
pub(crate) fn is_possible(parts: &[u64]) -> bool {
    let total = parts.iter().try_fold(0_u64, |total, blocks| total.checked_add(*blocks));
    (1..=PARTS_MAX).contains(&parts.len())
        && parts.iter().all(|blocks| *blocks > 0 && blocks.is_multiple_of(REGION_BLOCKS))
        && total.is_some_and(|total| total <= BLOCKS_MAX)
}

/// Memory of the tables of a volume while it is opened, when those of each copy are there beside its own.
pub(crate) fn memory_bytes(blocks: u64, is_encrypted: bool, copies: u8) -> u64 {
    blocks.saturating_mul(entry_bytes(is_encrypted) as u64).saturating_mul(u64::from(copies) + 1)
}

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first_block: u64,
    pub(crate) blocks: u64,
    /// Sectors of sums, and of each dirty map; padded to whole blocks.
    pub(crate) sum_sectors: u64,
    pub(crate) dirty_sectors: u64,
    /// The number of its first sector among the sectors of all parts.
    pub(crate) first_sector: u64,
}

impl Part {
    /// Sectors of all its tables.
    pub(crate) fn sectors(&self) -> u64 {
        self.sum_sectors + COPIES_MAX as u64 * self.dirty_sectors
    }

    pub(crate) fn tables_bytes(&self) -> u64 {
        self.sectors() * SECTOR as u64
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }
}

/// What a sector of a table describes: numbers of blocks, or of regions, of the whole volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Sums of blocks `first .. first + count`.
    Sums { first: u64, count: u64 },
    /// Bits of regions `first .. first + count` in the dirty map of a copy.
    Dirty { copy: u8, first: u64, count: u64 },
}

/// The parts of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) parts: Vec<Part>,
    /// The sums have seals beside them.
    pub(crate) is_encrypted: bool,
    blocks_per_sector: u64,
}

impl Geometry {
    pub(crate) fn new(parts: &[u64], is_encrypted: bool) -> Geometry {
        assert!(is_possible(parts), "the caller has checked the sizes");
        let (mut all, blocks_per_sector): (Vec<Part>, _) = (Vec::new(), blocks_per_sector(is_encrypted));
        for blocks in parts {
            let (first_block, first_sector) =
                all.last().map_or((0, 0), |last| (last.first_block + last.blocks, last.first_sector + last.sectors()));
            let padded = |sectors: u64| sectors.next_multiple_of(SECTORS_PER_BLOCK);
            let sum_sectors = padded(blocks.div_ceil(blocks_per_sector));
            let dirty_sectors = padded((blocks / REGION_BLOCKS).div_ceil(REGIONS_PER_SECTOR));
            all.push(Part { first_block, blocks: *blocks, sum_sectors, dirty_sectors, first_sector });
        }
        Geometry { parts: all, is_encrypted, blocks_per_sector }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.first_block + last.blocks)
    }

    pub(crate) fn regions(&self) -> u64 {
        self.blocks() / REGION_BLOCKS
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.first_sector + last.sectors())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks() * BLOCK_BYTES as u64
    }

    /// The part of a block.
    #[inline]
    pub(crate) fn part_of(&self, block: u64) -> usize {
        if self.parts.len() == 1 { 0 } else { self.parts.partition_point(|part| part.first_block <= block) - 1 }
    }

    /// The part of a sector of a table.
    pub(crate) fn part_of_sector(&self, sector: u64) -> usize {
        self.parts.partition_point(|part| part.first_sector <= sector) - 1
    }

    /// The sector with the sum of a block.
    pub(crate) fn sum_sector(&self, block: u64) -> u64 {
        let part = &self.parts[self.part_of(block)];
        part.first_sector + (block - part.first_block) / self.blocks_per_sector
    }

    /// The sector with the bit of a region in the dirty map of a copy.
    pub(crate) fn dirty_sector(&self, copy: u8, region: u64) -> u64 {
        let part = &self.parts[self.part_of(region * REGION_BLOCKS)];
        let local = region - part.first_block / REGION_BLOCKS;
        part.first_sector + part.sum_sectors + u64::from(copy) * part.dirty_sectors + local / REGIONS_PER_SECTOR
    }

    /// What a sector describes.
    pub(crate) fn content(&self, sector: u64) -> Content {
        let part = &self.parts[self.part_of_sector(sector)];
        let local = sector - part.first_sector;
        if local < part.sum_sectors {
            let first = (local * self.blocks_per_sector).min(part.blocks);
            let count = (part.blocks - first).min(self.blocks_per_sector);
            return Content::Sums { first: part.first_block + first, count };
        }
        let local = local - part.sum_sectors;
        let regions = part.blocks / REGION_BLOCKS;
        let first = (local % part.dirty_sectors * REGIONS_PER_SECTOR).min(regions);
        let count = (regions - first).min(REGIONS_PER_SECTOR);
        let copy = (local / part.dirty_sectors) as u8;
        Content::Dirty { copy, first: part.first_block / REGION_BLOCKS + first, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_and_region_is_described_by_exactly_the_sector_that_is_found_for_it() {
        for is_encrypted in [false, true] {
            check(&Geometry::new(&[16, 4096, 48, 16 * 9000], is_encrypted));
        }
    }

    fn check(geometry: &Geometry) {
        let mut sums = vec![0; geometry.blocks() as usize];
        let mut bits = vec![[0; COPIES_MAX]; geometry.regions() as usize];
        for sector in 0..geometry.sectors() {
            match geometry.content(sector) {
                Content::Sums { first, count } => {
                    for block in first..first + count {
                        sums[block as usize] += 1;
                        assert_eq!(geometry.sum_sector(block), sector);
                    }
                }
                Content::Dirty { copy, first, count } => {
                    for region in first..first + count {
                        bits[region as usize][copy as usize] += 1;
                        assert_eq!(geometry.dirty_sector(copy, region), sector);
                    }
                }
            }
        }
        assert!(sums.iter().all(|times| *times == 1));
        assert!(bits.iter().flatten().all(|times| *times == 1));
    }
}
