//! [`Tables`]: the sum of every block and the dirty map of every copy, in memory, and their stored form.
//!
//! ```text
//!   sector   | crc of bytes 4..512: 4 | zeros 4 | number 8 | 496 bytes: 124 sums, or 11 sums with seals, or 3968 bits |
//! ```
//!
//! Blocks of an encrypted volume have a seal beside the sum, 40 bytes, here and in memory. It is not read and stored as one: who holds no
//! stripe may load a mixture of two, which opens nothing, and looks again under the stripe.
//!
//! There is one table of sums for the volume, not one for each copy: copies in sync have the same stored bytes. A copy whose bytes
//! do not match the sum is damaged there.
//!
//! Invariants:
//! 1. A sector is written in place only after its image is durable in the journal of the same copy, and the image stays there until
//!    the place is persistent. So a sector that a crash tore is always restored from its image, and a sector that has no image and
//!    does not match its checksum is damage.
//! 2. A sector contains its number: one that was written to another place is recognised.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use device::{AlignedBuffer, BLOCK_BYTES};

use crate::bits::Bits;
use crate::checksum::{self, Sum};
use crate::geometry::{Content, Geometry, REGION_BLOCKS, SECTOR, SECTOR_HEAD, SECTORS_PER_BLOCK};
use crate::mark::{BlockMark, BlockSeal, entry_bytes};
use crate::members::COPIES_MAX;

/// Words of a seal in memory.
const SEAL_WORDS: usize = size_of::<BlockSeal>() / 8;

/// The tables of a volume.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) geometry: Geometry,
    sums: Vec<AtomicU32>,
    /// [`SEAL_WORDS`] for each block of an encrypted volume, else none.
    seals: Vec<AtomicU64>,
    dirty: [Bits; COPIES_MAX],
    /// Sectors that changed since the last checkpoint.
    changed: Bits,
}

impl Tables {
    /// No block has content, and no region is dirty.
    pub(crate) fn new(geometry: Geometry) -> Tables {
        let sums = (0..geometry.blocks()).map(|_| AtomicU32::new(Sum::NONE.0)).collect();
        let words = if geometry.is_encrypted { geometry.blocks() as usize * SEAL_WORDS } else { 0 };
        let seals = (0..words).map(|_| AtomicU64::new(0)).collect();
        let dirty = [(); COPIES_MAX].map(|()| Bits::new(geometry.regions()));
        let changed = Bits::new(geometry.sectors());
        Tables { geometry, sums, seals, dirty, changed }
    }

    #[inline]
    pub(crate) fn sum(&self, block: u64) -> Sum {
        Sum(self.sums[block as usize].load(Ordering::Acquire))
    }

    /// The sum of a block and its seal. Without the block's stripe the seal may be newer than the sum, or a mixture.
    #[inline]
    pub(crate) fn mark(&self, block: u64) -> BlockMark {
        BlockMark { sum: self.sum(block), seal: self.seal(block) }
    }

    #[inline]
    fn seal(&self, block: u64) -> BlockSeal {
        let mut seal = BlockSeal::NONE;
        if let Some(words) = self.seals.get(block as usize * SEAL_WORDS..(block as usize + 1) * SEAL_WORDS) {
            for (bytes, word) in seal.0.chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
            }
        }
        seal
    }

    pub(crate) fn set_mark(&self, block: u64, mark: &BlockMark) {
        self.load_mark(block, mark);
        self.changed.set(self.geometry.sum_sector(block));
    }

    /// As [`set_mark`](Tables::set_mark), for one that is stored on every copy.
    pub(crate) fn load_mark(&self, block: u64, mark: &BlockMark) {
        if let Some(words) = self.seals.get(block as usize * SEAL_WORDS..(block as usize + 1) * SEAL_WORDS) {
            for (bytes, word) in mark.seal.0.as_chunks::<8>().0.iter().zip(words) {
                word.store(u64::from_le_bytes(*bytes), Ordering::Release);
            }
        }
        self.sums[block as usize].store(mark.sum.0, Ordering::Release);
    }

    /// Marks a region that is marked on some copy.
    pub(crate) fn load_dirty(&self, copy: u8, region: u64) {
        self.dirty[copy as usize].set(region);
    }

    /// Marks the region of a block as not copied to a copy.
    pub(crate) fn mark_dirty(&self, copy: u8, block: u64) {
        let region = block / REGION_BLOCKS;
        if self.dirty[copy as usize].set(region) {
            self.changed.set(self.geometry.dirty_sector(copy, region));
        }
    }

    /// Returns whether it was marked.
    pub(crate) fn clear_dirty(&self, copy: u8, region: u64) -> bool {
        let was = self.dirty[copy as usize].clear(region);
        if was {
            self.changed.set(self.geometry.dirty_sector(copy, region));
        }
        was
    }

    /// Marks all regions of a copy, or none.
    pub(crate) fn fill_dirty(&self, copy: u8, set: bool) {
        self.dirty[copy as usize].fill(self.geometry.regions(), set);
        (0..self.geometry.regions()).for_each(|region| _ = self.changed.set(self.geometry.dirty_sector(copy, region)));
    }

    pub(crate) fn next_dirty(&self, copy: u8, from: u64) -> Option<u64> {
        self.dirty[copy as usize].next(from).filter(|region| *region < self.geometry.regions())
    }

    pub(crate) fn dirty_regions(&self, copy: u8) -> u64 {
        self.dirty[copy as usize].count()
    }

    /// Takes the numbers of the sectors that changed since the last call.
    pub(crate) fn take_changed(&self) -> Vec<u64> {
        self.changed.take()
    }

    /// Marks sectors as changed again, after a checkpoint that failed.
    pub(crate) fn restore_changed(&self, sectors: &[u64]) {
        sectors.iter().for_each(|sector| _ = self.changed.set(*sector));
    }

    /// Writes the stored form of a sector over zeros.
    fn encode(&self, sector: u64, out: &mut [u8]) {
        let (head, content) = out.split_at_mut(SECTOR_HEAD);
        head[8..].copy_from_slice(&sector.to_le_bytes());
        match self.geometry.content(sector) {
            Content::Sums { first, count } => {
                let entries = content.chunks_exact_mut(entry_bytes(self.geometry.is_encrypted));
                entries.zip(first..first + count).for_each(|(place, block)| self.mark(block).encode(place));
            }
            Content::Dirty { copy, first, count } => {
                for (index, byte) in content.iter_mut().enumerate() {
                    for bit in (0..8).filter(|bit| index as u64 * 8 + bit < count) {
                        let region = first + index as u64 * 8 + bit;
                        *byte |= u8::from(self.dirty[copy as usize].get(region)) << bit;
                    }
                }
            }
        }
        let crc = checksum::of(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// The stored form of a sector alone.
    #[cfg(test)]
    pub(crate) fn sector(&self, sector: u64) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        self.encode(sector, &mut out);
        out
    }

    /// The stored form of the blocks of tables that contain these sectors, which ascend.
    pub(crate) fn encode_blocks(&self, sectors: impl IntoIterator<Item = u64>) -> TableBlocks {
        // The tables of every part fill whole blocks.
        let mut firsts: Vec<u64> =
            sectors.into_iter().map(|sector| sector / SECTORS_PER_BLOCK * SECTORS_PER_BLOCK).collect();
        firsts.dedup();
        let mut bytes = AlignedBuffer::zeroed(firsts.len() * BLOCK_BYTES);
        for (first, block) in firsts.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            (*first..).zip(block.chunks_exact_mut(SECTOR)).for_each(|(sector, place)| self.encode(sector, place));
        }
        TableBlocks { firsts, bytes }
    }
}

/// Blocks of tables in their stored form. Each is there once, however many of its sectors were asked for.
#[derive(Debug)]
pub(crate) struct TableBlocks {
    /// Their first sectors, ascending.
    firsts: Vec<u64>,
    /// Their bytes, one after the other.
    bytes: AlignedBuffer,
}

impl TableBlocks {
    /// A sector of one of them.
    pub(crate) fn sector(&self, sector: u64) -> &[u8] {
        let within = (sector % SECTORS_PER_BLOCK) as usize;
        let block = self.firsts.binary_search(&(sector - within as u64)).expect("its block was encoded");
        &self.bytes[block * BLOCK_BYTES + within * SECTOR..][..SECTOR]
    }

    /// The blocks, neighbours together up to `most`: the first sector, and the bytes, which are aligned.
    pub(crate) fn runs(&self, most: usize) -> impl Iterator<Item = (u64, &[u8])> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (begin, first) = (at, *self.firsts.get(at)?);
            let next = |at: usize| first + (at - begin) as u64 * SECTORS_PER_BLOCK;
            while at - begin < most && self.firsts.get(at) == Some(&next(at)) {
                at += 1;
            }
            Some((first, &self.bytes[begin * BLOCK_BYTES..at * BLOCK_BYTES]))
        })
    }
}

/// The number of a stored sector, if its checksum matches.
pub fn number_of(sector: &[u8]) -> Option<u64> {
    let crc = u32::from_le_bytes(sector.get(..4)?.try_into().ok()?);
    let number = u64::from_le_bytes(sector.get(8..16)?.try_into().ok()?);
    (sector.len() == SECTOR && checksum::of(&sector[4..]) == crc).then_some(number)
}

/// The tables of one copy as stored, while a volume is being opened.
#[derive(Debug)]
pub(crate) struct StoredTables {
    geometry: Geometry,
    sums: Vec<Sum>,
    /// Of an encrypted volume, else none.
    seals: Vec<BlockSeal>,
    pub(crate) dirty: [Bits; COPIES_MAX],
    /// Sectors whose content is known.
    known: Bits,
    /// Sectors of which the journal has an image.
    pub(crate) imaged: Vec<u64>,
}

impl StoredTables {
    /// Nothing is known yet.
    pub(crate) fn new(geometry: &Geometry) -> StoredTables {
        StoredTables {
            geometry: geometry.clone(),
            sums: vec![Sum::UNKNOWN; geometry.blocks() as usize],
            seals: vec![BlockSeal::NONE; if geometry.is_encrypted { geometry.blocks() as usize } else { 0 }],
            dirty: [(); COPIES_MAX].map(|()| Bits::new(geometry.regions())),
            known: Bits::new(geometry.sectors()),
            imaged: Vec::new(),
        }
    }

    /// What is known of a block.
    pub(crate) fn mark(&self, block: u64) -> BlockMark {
        let seal = self.seals.get(block as usize).copied().unwrap_or(BlockSeal::NONE);
        BlockMark { sum: self.sums[block as usize], seal }
    }

    /// Takes over a stored sector that was found at the place of sector `number`. One that is damaged, or another one, stays unknown.
    pub(crate) fn load(&mut self, number: u64, sector: &[u8]) {
        if number >= self.geometry.sectors() || number_of(sector) != Some(number) {
            return;
        }
        self.known.set(number);
        let content = &sector[SECTOR_HEAD..];
        match self.geometry.content(number) {
            Content::Sums { first, count } => {
                let entries = content.chunks_exact(entry_bytes(self.geometry.is_encrypted));
                for (bytes, block) in entries.zip(first..first + count) {
                    let mark = BlockMark::decode(bytes);
                    self.sums[block as usize] = mark.sum;
                    if let Some(seal) = self.seals.get_mut(block as usize) {
                        *seal = mark.seal;
                    }
                }
            }
            Content::Dirty { copy, first, count } => {
                let bits = &self.dirty[copy as usize];
                for region in first..first + count {
                    let at = region - first;
                    if content[(at / 8) as usize] >> (at % 8) & 1 == 1 {
                        bits.set(region);
                    } else {
                        bits.clear(region);
                    }
                }
            }
        }
    }

    /// As [`load`](StoredTables::load), of an image: its place may have something older, or be torn.
    pub(crate) fn load_image(&mut self, number: u64, sector: &[u8]) {
        self.load(number, sector);
        if number < self.geometry.sectors() {
            self.imaged.push(number);
        }
    }

    /// Ends loading: what is unknown in a dirty map counts as dirty. Returns how many sectors are unknown.
    pub(crate) fn finish(&mut self) -> u64 {
        let mut unknown = 0;
        for sector in (0..self.geometry.sectors()).filter(|sector| !self.known.get(*sector)) {
            unknown += 1;
            if let Content::Dirty { copy, first, count } = self.geometry.content(sector) {
                (first..first + count).for_each(|region| _ = self.dirty[copy as usize].set(region));
            }
        }
        unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_tables_are_found_again_and_a_damaged_or_misplaced_sector_is_unknown() {
        check(&Geometry::new(&[16 * 64, 16 * 5000], false), 124);
        check(&Geometry::new(&[16 * 64, 16 * 5000], true), 11);
    }

    fn check(geometry: &Geometry, per_sector: u64) {
        let tables = Tables::new(geometry.clone());
        for block in (0..geometry.blocks()).step_by(7) {
            let seal = if geometry.is_encrypted { BlockSeal([block as u8; 40]) } else { BlockSeal::NONE };
            tables.set_mark(block, &BlockMark { sum: Sum(block as u32 + 1), seal });
            tables.mark_dirty((block % 3) as u8, block);
        }
        let mut stored = StoredTables::new(geometry);
        (0..geometry.sectors()).for_each(|sector| stored.load(sector, &tables.sector(sector)));
        assert_eq!(stored.finish(), 0);
        for block in 0..geometry.blocks() {
            assert_eq!(stored.mark(block), tables.mark(block));
        }
        for region in 0..geometry.regions() {
            for copy in 0..3 {
                assert_eq!(stored.dirty[copy].get(region), tables.dirty[copy].get(region));
            }
        }
        let mut damaged = StoredTables::new(geometry);
        for sector in 0..geometry.sectors() {
            let mut bytes = tables.sector(if sector == 2 { 3 } else { sector });
            bytes[100] ^= u8::from(sector == 0);
            damaged.load(sector, &bytes);
        }
        assert_eq!(damaged.finish(), 2);
        assert_eq!((damaged.mark(0), damaged.mark(per_sector)), (BlockMark::UNKNOWN, tables.mark(per_sector)));
        assert_eq!(damaged.mark(2 * per_sector), BlockMark::UNKNOWN);
    }

    #[test]
    fn a_block_of_tables_is_encoded_once_and_neighbours_are_written_together() {
        for is_encrypted in [false, true] {
            let tables = Tables::new(Geometry::new(&[16 * 64, 16 * 5000], is_encrypted));
            for block in (0..tables.geometry.blocks()).step_by(3) {
                tables.set_mark(block, &BlockMark { sum: Sum(block as u32 + 1), seal: BlockSeal([block as u8; 40]) });
            }
            let sectors = [0, 1, 7, 8, 15, 40, 43, 64, 72];
            let blocks = tables.encode_blocks(sectors);
            assert_eq!(blocks.firsts, [0, 8, 40, 64, 72]);
            sectors.iter().for_each(|sector| assert_eq!(blocks.sector(*sector), tables.sector(*sector)));
            let together: &[(u64, usize)] = &[(0, 2), (40, 1), (64, 2)];
            let alone: &[(u64, usize)] = &[(0, 1), (8, 1), (40, 1), (64, 1), (72, 1)];
            for (most, expected) in [(64, together), (1, alone)] {
                let runs: Vec<_> = blocks.runs(most).map(|(first, bytes)| (first, bytes.len() / BLOCK_BYTES)).collect();
                assert_eq!(runs, expected, "{most} at most");
            }
            for (first, bytes) in blocks.runs(64) {
                let numbers: Vec<_> = bytes.chunks(SECTOR).map(number_of).collect();
                assert_eq!(numbers, (first..first + numbers.len() as u64).map(Some).collect::<Vec<_>>());
            }
        }
    }
}
