//! CRC-32C (Castagnoli; RFC 3720, appendix B.4), and [`Sum`]: what the table of sums says about one block.
//!
//! ```text
//!   0             no content: the block was never written, or was given back; it reads as zeros
//!   0xffff_ffff   unknown: the part of the table that held the sum is damaged
//!   other         the checksum of the stored 4096 bytes
//! ```
//!
//! A checksum that happens to be one of the two special values is stored as its neighbour: two of 2^32 values share a place with
//! another one, which does not weaken the detection of damage noticeably.

use crc_fast::crc32_iscsi;

/// The checksum of bytes.
pub(crate) fn of(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// The entry of one block in the table of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sum(pub(crate) u32);

impl Sum {
    /// The block has no content.
    pub(crate) const NONE: Sum = Sum(0);
    /// The sum is lost.
    pub(crate) const UNKNOWN: Sum = Sum(u32::MAX);

    /// The sum of a stored block.
    pub(crate) fn of(block: &[u8]) -> Sum {
        Sum(of(block).clamp(1, u32::MAX - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_castagnoli_checksum() {
        assert_eq!(of(b"123456789"), 0xe306_9283, "the check value of the polynomial");
        assert_ne!(Sum::of(&[0; 4096]), Sum::NONE);
        assert_ne!(Sum::of(&[0xff; 4096]), Sum::UNKNOWN);
    }
}
