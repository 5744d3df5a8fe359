//! The layout of a batch of images. [`super`] draws it; `tests/golden/images.txt` is an example byte by byte. A change
//! of either changes the format and needs a new version number.
//!
//! ```text
//!   header, at bytes 0 and 4096 of the first device: two copies, each within one sector
//!   offset  bytes  field
//!        0      8  magic "TERRWIJ" and a zero
//!        8      4  version, 1
//!       12      4  checksum of bytes 0..12 and 16..512
//!       16      8  identity of the store
//!       24      8  checkpoint
//!       32      8  redo LSN: the batch is the state after every record before this LSN
//!       40      4  page_bytes
//!       44      4  device_pages
//!       48      4  how many images
//!       52      4  checksum of the table
//!       56      4  1 committed, 2 invalidated
//!       60    452  zeros
//!
//!   table, from byte 8192 on; each entry
//!        0      4  page
//!        4      4  checksum of its image
//!
//!   images, from the next multiple of 4096 on, in the order of the table
//! ```
//!
//! Checksums are CRC-32C. The header covers the table, and the table covers each image: a batch that verifies is this
//! batch and no earlier one.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use journal::Lsn;

use crate::page::PageId;
use crate::space::geometry::Geometry;
use crate::space::superblock::{u32_at, u64_at};

const MAGIC: &[u8; 8] = b"TERRWIJ\0";
const VERSION: u32 = 1;

/// Used bytes of a header.
pub(crate) const HEADER_BYTES: usize = 512;

/// Where the copies of the header start; each has a block of its own.
pub(crate) const COPIES: [usize; 2] = [0, 4096];

/// Where the table starts.
pub(crate) const TABLE: u64 = 8192;

/// Bytes of an entry of the table.
pub(crate) const ENTRY_BYTES: usize = 8;

/// The state of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The whole batch is persistent: from here on pages on the data devices may be half written.
    Committed,
    /// The whole batch is on the data devices, and persistent there.
    Invalid,
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// The store's identity.
    pub(crate) identity: u64,
    /// Sizes of the store's pages.
    pub(crate) geometry: Geometry,
    /// The number of the checkpoint.
    pub(crate) checkpoint: u64,
    /// The redo LSN of the checkpoint.
    pub(crate) redo_lsn: Lsn,
    /// The number of images.
    pub(crate) count: u32,
    /// Checksum of the table.
    pub(crate) table: u32,
}

impl BatchHeader {
    /// Encodes the two copies, as they are written.
    pub(crate) fn encode(&self, mark: Mark) -> Vec<u8> {
        let mut one = [0; HEADER_BYTES];
        one[..8].copy_from_slice(MAGIC);
        one[8..12].copy_from_slice(&VERSION.to_le_bytes());
        one[16..24].copy_from_slice(&self.identity.to_le_bytes());
        one[24..32].copy_from_slice(&self.checkpoint.to_le_bytes());
        one[32..40].copy_from_slice(&self.redo_lsn.0.to_le_bytes());
        let mark = match mark {
            Mark::Committed => 1_u32,
            Mark::Invalid => 2,
        };
        let fields = [self.geometry.page_bytes, self.geometry.device_pages, self.count, self.table, mark];
        for (place, field) in one[40..].chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let sum = header_sum(&one);
        one[12..16].copy_from_slice(&sum.to_le_bytes());
        let mut copies = vec![0; TABLE as usize];
        COPIES.iter().for_each(|at| copies[*at..*at + HEADER_BYTES].copy_from_slice(&one));
        copies
    }

    fn decode(one: &[u8]) -> Option<(BatchHeader, Mark)> {
        let is_one = one[..8] == *MAGIC && u32_at(one, 8) == VERSION && u32_at(one, 12) == header_sum(one);
        let mark = match u32_at(one, 56) {
            1 => Mark::Committed,
            2 => Mark::Invalid,
            _ => return None,
        };
        let geometry = Geometry { page_bytes: u32_at(one, 40), device_pages: u32_at(one, 44) };
        let header = BatchHeader {
            identity: u64_at(one, 16),
            geometry,
            checkpoint: u64_at(one, 24),
            redo_lsn: Lsn(u64_at(one, 32)),
            count: u32_at(one, 48),
            table: u32_at(one, 52),
        };
        (is_one && geometry.is_sound()).then_some((header, mark))
    }

    /// Bytes from the start of the first device to the end of the last image.
    pub(crate) fn bytes(&self) -> u64 {
        batch_bytes(self.geometry.page_bytes, self.count)
    }

    /// Where the images start.
    pub(crate) fn images(&self) -> u64 {
        images_at(self.count)
    }
}

/// What the two copies of the header contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// Nothing was ever written.
    Zeros,
    /// Neither verifies: a crash tore the second one, or the first batch.
    Torn,
    /// Neither verifies, on a device on which no crash tears a header.
    Damaged,
    /// At least one verifies.
    Batch(BatchHeader, Mark),
}

impl Headers {
    /// If the two copies differ, a crash occurred between them, and the later one counts. Invalidated is later than
    /// committed.
    pub(crate) fn decode(copies: &[u8]) -> Headers {
        let found = COPIES.iter().filter_map(|at| BatchHeader::decode(&copies[*at..*at + HEADER_BYTES]));
        let latest = found.max_by_key(|(header, mark)| (header.checkpoint, *mark == Mark::Invalid));
        match latest {
            Some((header, mark)) => Headers::Batch(header, mark),
            None if copies.iter().all(|byte| *byte == 0) => Headers::Zeros,
            None => Headers::Torn,
        }
    }
}

fn header_sum(one: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&one[..12]);
    digest.update(&one[16..HEADER_BYTES]);
    // The digest returns the 32 bits as a u64.
    digest.finalize() as u32
}

/// The checksum of a table, and of an image.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// Where the images of a batch of `count` images start.
pub(crate) fn images_at(count: u32) -> u64 {
    TABLE + (u64::from(count) * ENTRY_BYTES as u64).next_multiple_of(4096)
}

/// The size of a batch, headers included.
pub(crate) fn batch_bytes(page_bytes: u32, count: u32) -> u64 {
    images_at(count) + u64::from(count) * u64::from(page_bytes)
}

/// One entry of the table.
pub(crate) fn entry(page: PageId, sum: u32) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..4].copy_from_slice(&page.0.to_le_bytes());
    bytes[4..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The entries of a table.
pub(crate) fn entries(table: &[u8]) -> impl Iterator<Item = (PageId, u32)> {
    table.as_chunks::<ENTRY_BYTES>().0.iter().map(|entry| (PageId(u32_at(entry, 0)), u32_at(entry, 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(checkpoint: u64) -> BatchHeader {
        let geometry = Geometry { page_bytes: 4096, device_pages: 64 };
        BatchHeader { identity: 7, geometry, checkpoint, redo_lsn: Lsn(99), count: 3, table: 5 }
    }

    #[test]
    fn one_whole_copy_is_enough_and_the_later_of_two_counts() {
        let (old, new) = (example(4).encode(Mark::Invalid), example(5).encode(Mark::Committed));
        let both = |first: &[u8], second: &[u8]| Headers::decode(&[&first[..4096], &second[4096..]].concat());
        assert_eq!(both(&new, &new), Headers::Batch(example(5), Mark::Committed));
        assert_eq!(both(&new, &old), Headers::Batch(example(5), Mark::Committed));
        assert_eq!(both(&old, &new), Headers::Batch(example(5), Mark::Committed));
        let invalid = example(5).encode(Mark::Invalid);
        assert_eq!(both(&new, &invalid), Headers::Batch(example(5), Mark::Invalid));
        let mut torn = new.clone();
        torn[8] ^= 1;
        assert_eq!(both(&torn, &old), Headers::Batch(example(4), Mark::Invalid));
        torn[4096 + 20] ^= 1;
        assert_eq!(both(&torn, &torn), Headers::Torn);
        assert_eq!(Headers::decode(&[0; 8192]), Headers::Zeros);
    }

    #[test]
    fn no_changed_byte_of_a_header_goes_unnoticed() {
        let whole = example(5).encode(Mark::Committed);
        for byte in 0..HEADER_BYTES {
            let mut changed = whole.clone();
            changed[byte] ^= 1;
            changed[4096 + byte] ^= 1;
            assert_eq!(Headers::decode(&changed), Headers::Torn, "byte {byte}");
        }
    }
}
