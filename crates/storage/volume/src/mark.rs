//! [`BlockMark`]: what tables and records say of the stored bytes of a block.
//!
//! ```text
//!   in clear     | sum 4 |
//!   encrypted    | sum 4 | tag 16 | stamp 24 |
//!                        `------ seal -------'
//! ```

use std::fmt;

use encryption::{SEAL_BYTES, TAG_BYTES};

use crate::checksum::Sum;

/// Bytes of a block's entry in the tables and records of an encrypted volume: sum and seal.
pub(crate) const MARKED_BYTES: usize = 4 + SEAL_BYTES;

/// What lies beside the sum of a block: tag and stamp. Zeros where the block has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockSeal(pub(crate) [u8; SEAL_BYTES]);

impl BlockSeal {
    pub(crate) const NONE: BlockSeal = BlockSeal([0; SEAL_BYTES]);

    /// What its nonce and its key come from.
    pub(crate) fn stamp(&self) -> &[u8] {
        &self.0[TAG_BYTES..]
    }

    /// Which of two seals of one block is newer, by the order in which an owner gives them: term, then counter.
    pub(crate) fn version(&self) -> (u32, u64) {
        let bytes = self.stamp();
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        // The layout of a stamp is in the crate `encryption`: data key, epoch, random bits, counter.
        (word(4), u64::from(word(16)) | u64::from(word(20)) << 32)
    }
}

impl fmt::Debug for BlockSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockSeal{:?}", self.version())
    }
}

/// What is known of the stored bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockMark {
    pub(crate) sum: Sum,
    pub(crate) seal: BlockSeal,
}

impl BlockMark {
    /// That of a block without content.
    pub(crate) const NONE: BlockMark = BlockMark { sum: Sum::NONE, seal: BlockSeal::NONE };
    /// That of a block of which nothing is known.
    pub(crate) const UNKNOWN: BlockMark = BlockMark { sum: Sum::UNKNOWN, seal: BlockSeal::NONE };

    /// The stored form, of [`entry_bytes`] bytes.
    pub(crate) fn encode(&self, into: &mut [u8]) {
        into[..4].copy_from_slice(&self.sum.0.to_le_bytes());
        if let Some(seal) = into.get_mut(4..MARKED_BYTES) {
            seal.copy_from_slice(&self.seal.0);
        }
    }

    /// From the stored form.
    pub(crate) fn decode(bytes: &[u8]) -> BlockMark {
        let sum = Sum(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let seal = bytes.get(4..MARKED_BYTES).and_then(|seal| seal.try_into().ok());
        BlockMark { sum, seal: seal.map_or(BlockSeal::NONE, BlockSeal) }
    }
}

/// Bytes of the entry of a block in tables and records.
pub(crate) const fn entry_bytes(is_encrypted: bool) -> usize {
    if is_encrypted { MARKED_BYTES } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_as_it_was_stored() {
        let mark = BlockMark { sum: Sum(77), seal: BlockSeal(std::array::from_fn(|at| at as u8)) };
        for is_encrypted in [false, true] {
            let mut bytes = vec![0; entry_bytes(is_encrypted)];
            mark.encode(&mut bytes);
            let seal = if is_encrypted { mark.seal } else { BlockSeal::NONE };
            assert_eq!(BlockMark::decode(&bytes), BlockMark { seal, ..mark });
        }
    }
}
