//! [`Extent`]: the place of a long value, or of a part of one: a run of whole pages without a header.
//!
//! ```text
//!   in a cell, 12 bytes:   0 first page u32 | 4 bytes u32 | 8 checksum u32
//! ```

use super::{PageId, checksum_of, u32_at};
use crate::StoreError;
use crate::damage::Damage;

/// Longest extent, bytes: the cache keeps an extent in one piece.
pub const EXTENT_BYTES_MAX: usize = 1 << 20;

/// A run of pages that contains bytes of a value and nothing else; the rest of the last page is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The first page of the run.
    pub first: PageId,
    /// Bytes of the value in it: 1 to [`EXTENT_BYTES_MAX`].
    pub bytes: u32,
    /// CRC-32C of those bytes.
    pub checksum: u32,
}

impl Extent {
    /// Size of its encoded form in a cell.
    pub const ENCODED_BYTES: usize = 12;

    /// Describes `bytes` at a place.
    pub fn of(first: PageId, bytes: &[u8]) -> Extent {
        debug_assert!((1..=EXTENT_BYTES_MAX).contains(&bytes.len()));
        Extent { first, bytes: bytes.len() as u32, checksum: checksum_of(bytes) }
    }

    /// The number of its pages.
    pub fn pages(&self, page_bytes: usize) -> u32 {
        self.bytes.div_ceil(page_bytes as u32)
    }

    /// Checks that `bytes`, as read from a device, match the extent. Errors: [`StoreError::Corrupt`].
    pub fn check(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let computed = checksum_of(bytes);
        if bytes.len() == self.bytes as usize && computed == self.checksum {
            return Ok(());
        }
        let (first, found) = (self.first, self.checksum);
        // At least one page: the reader has the number of pages.
        let why = format_args!(
            "extent at page {first}: its cell has the checksum {found:08x}, its bytes give {computed:08x}"
        );
        Err(StoreError::Corrupt(Damage::of(first, 1, why)))
    }

    /// Encodes it for a cell.
    pub fn encode(&self) -> [u8; Extent::ENCODED_BYTES] {
        let mut out = [0; Extent::ENCODED_BYTES];
        out[..4].copy_from_slice(&self.first.0.to_le_bytes());
        out[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        out[8..].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// Decodes its form in a cell; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Extent> {
        let extent = Extent { first: PageId(u32_at(bytes, 0)?), bytes: u32_at(bytes, 4)?, checksum: u32_at(bytes, 8)? };
        let possible = extent.first.0 != 0 && (1..=EXTENT_BYTES_MAX as u32).contains(&extent.bytes);
        possible.then_some(extent)
    }
}
