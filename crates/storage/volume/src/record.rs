//! The records of a copy's journal.
//!
//! ```text
//!   write, zeroes   | epoch 8 | sequence 8 | first block 8 | blocks 4 | flags 4 | sums: 4 each | stored bytes: 4096 each |
//!   sealed write    as a write, with sums and seals: 44 each
//!   sectors         | epoch 8 | count 4 | zeros 4 | sectors of tables: 512 each |
//! ```
//!
//! The journal's own checksum covers a record, and it is found whole or not at all: so the bytes and the sum of a block change
//! together. Writes are ordered by epoch and sequence, on all copies alike. An encrypted volume has sealed writes, and no others.

use device::BLOCK_BYTES;

use crate::checksum::Sum;
use crate::geometry::SECTOR;
use crate::mark::{BlockMark, entry_bytes};

/// The kind of a record in the journal.
pub(crate) const WRITE: u8 = 1;
pub(crate) const ZEROES: u8 = 2;
pub(crate) const SECTORS: u8 = 3;
pub(crate) const SEALED_WRITE: u8 = 4;

/// The head of a write.
pub(crate) const HEAD: usize = 32;
/// The head of sectors.
pub(crate) const SECTORS_HEAD: usize = 16;

const FREE: u32 = 1;

/// The order of writes: by epoch, then by sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    /// The epoch of the owner.
    pub epoch: u64,
    /// Counts the writes of an owner.
    pub sequence: u64,
}

/// The head of a record of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its place among all writes.
    pub order: Order,
    /// The first block.
    pub first: u64,
    /// How many blocks.
    pub blocks: u32,
    /// Of zeroes: whether the client has given the space up. Only a thin volume gives it back.
    pub is_free: bool,
}

impl Head {
    pub(crate) fn encode(&self) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        out[..8].copy_from_slice(&self.order.epoch.to_le_bytes());
        out[8..16].copy_from_slice(&self.order.sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.first.to_le_bytes());
        out[24..28].copy_from_slice(&self.blocks.to_le_bytes());
        out[28..].copy_from_slice(&if self.is_free { FREE } else { 0 }.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Head> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let order = Order { epoch: u64_at(0)?, sequence: u64_at(8)? };
        Some(Head { order, first: u64_at(16)?, blocks: u32_at(24)?, is_free: u32_at(28)? & FREE != 0 })
    }
}

/// The kind of a write with content, and what it has of its blocks between head and bytes.
pub(crate) fn encode_marks(marks: &[BlockMark], is_encrypted: bool) -> (u8, Vec<u8>) {
    let mut out = vec![0; marks.len() * entry_bytes(is_encrypted)];
    out.chunks_exact_mut(entry_bytes(is_encrypted)).zip(marks).for_each(|(place, mark)| mark.encode(place));
    (if is_encrypted { SEALED_WRITE } else { WRITE }, out)
}

/// The head of a record of sectors.
pub(crate) fn encode_sectors(epoch: u64, count: u32) -> [u8; SECTORS_HEAD] {
    let mut out = [0; SECTORS_HEAD];
    out[..8].copy_from_slice(&epoch.to_le_bytes());
    out[8..12].copy_from_slice(&count.to_le_bytes());
    out
}

/// A record, as found in a journal.
#[derive(Debug)]
pub enum Found<'r> {
    /// Blocks with content: their sums, with seals if the volume is encrypted, as in a table; and the stored bytes.
    Write(Head, &'r [u8], &'r [u8]),
    /// Blocks without content.
    Zeroes(Head),
    /// Sectors of tables, one after the other.
    Sectors(&'r [u8]),
}

impl<'r> Found<'r> {
    /// Reads a record; `None` if it is none of a volume of `blocks` blocks, encrypted or not. The sum of each block is checked as well;
    /// seals are not.
    pub fn decode(kind: u8, payload: &'r [u8], blocks: u64, is_encrypted: bool) -> Option<Found<'r>> {
        if kind == SECTORS {
            let count = u32::from_le_bytes(payload.get(8..12)?.try_into().ok()?) as usize;
            let sectors = payload.get(SECTORS_HEAD..)?;
            return (sectors.len() == count.checked_mul(SECTOR)?).then_some(Found::Sectors(sectors));
        }
        let head = Head::decode(payload)?;
        let end = head.first.checked_add(head.blocks.into())?;
        if end > blocks || head.blocks == 0 {
            return None;
        }
        let rest = payload.get(HEAD..)?;
        match kind {
            ZEROES => rest.is_empty().then_some(Found::Zeroes(head)),
            WRITE | SEALED_WRITE if (kind == SEALED_WRITE) == is_encrypted => {
                let entry = entry_bytes(is_encrypted);
                let (marks, stored) = rest.split_at_checked(entry * head.blocks as usize)?;
                if stored.len() != BLOCK_BYTES * head.blocks as usize {
                    return None;
                }
                let matches = |(mark, block): (&[u8], &[u8])| BlockMark::decode(mark).sum == Sum::of(block);
                let mut all = marks.chunks(entry).zip(stored.chunks(BLOCK_BYTES));
                all.all(matches).then_some(Found::Write(head, marks, stored))
            }
            _ => None,
        }
    }
}
