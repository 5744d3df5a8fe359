//! The header of every page of the store, and how pages are numbered and sealed.
//!
//! ```text
//!    0 checksum u32   CRC-32C of the page's id (u32) and of all bytes from 4 on
//!    4 kind     u8    see Kind; a page of zeros has none
//!    5 level    u8    height above the leaves: a leaf has 0
//!    6 flags    u16   of the kind's own use; 0 so far
//!    8 tree     u32   the tree it belongs to; 0 for pages of no tree
//!   12          u32   of the kind's own use
//!   16 lsn      u64   position of the last record that changed it
//!   24          u64   of the kind's own use
//!   32                the kind's body
//! ```
//!
//! All numbers are little-endian. The id is part of the checksum, so a page that is written to the wrong place, or read
//! from it, does not verify. [`seal`] sets the checksum when a page is written to a device, and [`check`] verifies it
//! when the page was read from one; in memory it has no meaning.
//!
//! In an encrypted store the bodies of pages of trees are ciphertext ([`encrypted`]); the checksum is over what is stored.
//!
//! Extents are runs of whole pages without a header: their checksum is in the cell that refers to them ([`Extent`]).
//!
//! This module does not interpret the content of bodies.

pub(crate) mod encrypted;
mod extent;
#[cfg(test)]
mod tests;

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

use crate::StoreError;
use crate::damage::Damage;
pub use crate::page_id::PageId;
pub use extent::{EXTENT_BYTES_MAX, Extent};

/// Smallest page of a store, bytes: two cells with the longest key and a quarter page of value must fit.
pub const PAGE_BYTES_MIN: usize = 4 << 10;
/// Largest page of a store, bytes: offsets inside a page are 16 bits.
pub const PAGE_BYTES_MAX: usize = 64 << 10;
/// Default page size, bytes.
pub const PAGE_BYTES_DEFAULT: usize = 8 << 10;
/// Bytes of the header that all kinds share.
pub const HEADER_BYTES: usize = 32;
/// Where in the header the tree is.
pub(crate) const TREE_AT: usize = 8;

/// Page numbers from here on belong to external files: those that are not the store's, in the page cache. The numbers
/// below are enough for 24 TiB of pages of 8 KiB.
pub(crate) const FIRST_EXTERNAL: u32 = 3 << 30;

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Page 0: geometry and the roots.
    Super = 1,
    /// A part of the allocation map.
    Map = 2,
    /// A node of a tree above others.
    Inner = 3,
    /// A node of a tree with keys and values.
    Leaf = 4,
}

impl Kind {
    /// Converts the stored byte; `None` if there is no such kind.
    pub fn of(byte: u8) -> Option<Kind> {
        match byte {
            1 => Some(Kind::Super),
            2 => Some(Kind::Map),
            3 => Some(Kind::Inner),
            4 => Some(Kind::Leaf),
            _ => None,
        }
    }
}

/// Whether a store can have pages of that size: a power of two from [`PAGE_BYTES_MIN`] to [`PAGE_BYTES_MAX`].
pub fn is_page_bytes(bytes: usize) -> bool {
    bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&bytes)
}

/// The header's fields that all kinds share, except the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The kind of the page.
    pub kind: Kind,
    /// Height above the leaves.
    pub level: u8,
    /// Of the kind's own use.
    pub flags: u16,
    /// The tree, 0 for none.
    pub tree: u32,
    /// LSN of the last record that changed the page.
    pub lsn: u64,
}

impl PageHeader {
    /// Decodes it; `None` if there are too few bytes or the kind is unknown (a page of zeros).
    pub fn of(page: &[u8]) -> Option<PageHeader> {
        let head = page.get(..HEADER_BYTES)?;
        Some(PageHeader {
            kind: Kind::of(head[4])?,
            level: head[5],
            flags: u16_at(head, 6)?,
            tree: u32_at(head, 8)?,
            lsn: u64_at(head, 16)?,
        })
    }

    /// Encodes it; the checksum and the kind's own fields stay. Panics if the page is shorter than a header.
    pub fn put(&self, page: &mut [u8]) {
        page[4] = self.kind as u8;
        page[5] = self.level;
        page[6..8].copy_from_slice(&self.flags.to_le_bytes());
        page[8..12].copy_from_slice(&self.tree.to_le_bytes());
        page[16..24].copy_from_slice(&self.lsn.to_le_bytes());
    }
}

/// The kind of a page; `None` for zeros and for too few bytes.
pub fn kind(page: &[u8]) -> Option<Kind> {
    Kind::of(*page.get(4)?)
}

/// Sets the checksum, so that `bytes` can be written as page `id`. Panics if they are shorter than a header.
pub fn seal(id: PageId, bytes: &mut [u8]) {
    let checksum = checksum(id, bytes);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks that `bytes`, as read from a device, are page `id` as it was sealed. Errors: [`StoreError::Corrupt`], with
/// the page and both checksums.
pub fn check(id: PageId, bytes: &[u8]) -> Result<(), StoreError> {
    if bytes.len() < HEADER_BYTES {
        return Err(StoreError::Corrupt(Damage::of(
            id,
            1,
            format_args!("page {id}: {} bytes are not a page", bytes.len()),
        )));
    }
    let (computed, found) = (checksum(id, bytes), u32_at(bytes, 0).unwrap_or_default());
    if computed == found {
        return Ok(());
    }
    let why = format_args!("page {id}: its checksum is {found:08x}, its bytes give {computed:08x}");
    Err(StoreError::Corrupt(Damage::of(id, 1, why)))
}

/// CRC-32C of the id and of all bytes after the checksum.
fn checksum(id: PageId, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&id.0.to_le_bytes());
    digest.update(&bytes[4..]);
    // The digest returns the 32 bits as a u64.
    digest.finalize() as u32
}

/// CRC-32C of bytes without a header, as used for extents.
pub(crate) fn checksum_of(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// The 16-bit number at a byte offset; `None` after the end.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 32-bit number at a byte offset; `None` after the end.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 64-bit number at a byte offset; `None` after the end.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
