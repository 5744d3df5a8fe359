//! The bodies of the fuzz targets: what must be true for any bytes of a superblock, a record or a sector.

use device::BLOCK_BYTES;

use crate::checksum::{self, Sum};
use crate::geometry::{Geometry, SECTOR};
use crate::mark::entry_bytes;
use crate::record::Found;
use crate::superblock::Superblock;
use crate::tables::{StoredTables, number_of};

/// Reads the bytes as a slot of a superblock, also with a checksum that matches: what can be read is written again as it was.
pub fn superblock(input: &[u8]) {
    let mut slot = input.to_vec();
    slot.resize(BLOCK_BYTES, 0);
    for is_mended in [false, true] {
        if is_mended {
            slot[..8].copy_from_slice(b"TERRVOL\0");
            slot[12..16].fill(0);
            let crc = checksum::of(&slot);
            slot[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        let Ok(Some(found)) = Superblock::decode(&slot) else { continue };
        assert!(found.copy < found.copies && found.min_copies <= found.copies, "impossible copies: {found:?}");
        let again = Superblock::decode(&found.encode()).expect("it was possible").expect("it is one");
        assert_eq!(again, found, "written and read again");
    }
}

/// Blocks of the volume whose records are read.
const BLOCKS: u64 = 4096;

/// Reads the bytes as a record of a journal, the first byte as its kind: no block outside the volume, and no more bytes than there are.
pub fn record(input: &[u8]) {
    let Some((kind, payload)) = input.split_first() else { return };
    for is_encrypted in [false, true] {
        record_of(Found::decode(*kind % 6, payload, BLOCKS, is_encrypted), is_encrypted);
    }
}

fn record_of(found: Option<Found<'_>>, is_encrypted: bool) {
    match found {
        Some(Found::Write(head, marks, bytes)) => {
            assert!(head.first + u64::from(head.blocks) <= BLOCKS, "outside the volume");
            let entry = entry_bytes(is_encrypted);
            assert_eq!((marks.len() / entry, bytes.len() / BLOCK_BYTES), (head.blocks as usize, head.blocks as usize));
            let matches = |(mark, block): (&[u8], &[u8])| mark[..4] == Sum::of(block).0.to_le_bytes();
            assert!(marks.chunks(entry).zip(bytes.chunks(BLOCK_BYTES)).all(matches), "a sum of other bytes");
        }
        Some(Found::Zeroes(head)) => assert!(head.first + u64::from(head.blocks) <= BLOCKS, "outside the volume"),
        Some(Found::Sectors(sectors)) => assert!(sectors.len().is_multiple_of(SECTOR), "half a sector"),
        None => {}
    }
}

/// Loads the bytes as sectors of tables, also with checksums that match, each at the place that it names: nothing outside the tables
/// changes, and what is not known stays unknown.
pub fn sectors(input: &[u8]) {
    [false, true].into_iter().for_each(|is_encrypted| sectors_of(input, &Geometry::new(&[256, 16], is_encrypted)));
}

fn sectors_of(input: &[u8], geometry: &Geometry) {
    let mut tables = StoredTables::new(geometry);
    for sector in input.chunks(SECTOR) {
        let mut sector = sector.to_vec();
        sector.resize(SECTOR, 0);
        if let Some(number) = number_of(&sector) {
            tables.load(number, &sector);
        }
        // A number that may be one of this volume.
        sector[9..16].fill(0);
        let crc = checksum::of(&sector[4..]);
        sector[..4].copy_from_slice(&crc.to_le_bytes());
        let number = number_of(&sector).expect("its checksum was made to match");
        tables.load(number, &sector);
        tables.load(number + 1, &sector);
    }
    assert!(tables.finish() <= geometry.sectors());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::BlockMark;
    use crate::record::{Head, Order, SEALED_WRITE, WRITE, encode_sectors};
    use crate::tables::Tables;

    type Target = fn(&[u8]);

    /// Inputs that are valid, before anything is changed in them.
    fn valid() -> [(Vec<u8>, Target); 5] {
        let block = [7; BLOCK_BYTES];
        let head = Head { order: Order { epoch: 1, sequence: 2 }, first: 3, blocks: 1, is_free: false };
        let write = [&[WRITE][..], &head.encode(), &Sum::of(&block).0.to_le_bytes(), &block].concat();
        let sealed = [&[SEALED_WRITE][..], &head.encode(), &Sum::of(&block).0.to_le_bytes(), &[5; 40], &block].concat();
        let tables = Tables::new(Geometry::new(&[256, 16], false));
        tables.set_mark(9, &BlockMark { sum: Sum(5), ..BlockMark::NONE });
        let sector = tables.sector(0).to_vec();
        let sectors = [&[3][..], &encode_sectors(1, 1), &sector].concat();
        let mut slot = vec![0; BLOCK_BYTES];
        slot[8] = 1;
        (slot[41], slot[42], slot[152], slot[160]) = (3, 2, 1, 16);
        [(slot, superblock), (write, record), (sealed, record), (sectors, record), (sector, super::sectors)]
    }

    #[test]
    fn changed_superblocks_records_and_sectors_are_read_or_refused() {
        let mut random = fastrand::Rng::with_seed(11);
        for (input, target) in valid() {
            target(&input);
            for _ in 0..2000 {
                let mut changed = input.clone();
                for _ in 0..random.usize(1..6) {
                    let at = random.usize(..changed.len().min(200));
                    changed[at] = random.u8(..);
                }
                changed.truncate(if random.u8(..4) == 0 { random.usize(..=changed.len()) } else { changed.len() });
                target(&changed);
            }
        }
    }
}
