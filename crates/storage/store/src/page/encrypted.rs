//! Encrypting pages and extents before they are written, and decrypting them when they were read.
//!
//! ```text
//!   page      | header 32, checksum over all that is stored | ciphertext of the body | seal 40 |
//!   extent    | ciphertext of the value and of zeros up to the end of the last page | seal 40 |
//!             `--- checksummed: as many bytes as value and seal have ---'          its cell has this length and this checksum
//! ```
//!
//! The header of a page stays readable, so that pages can be scrubbed, counted and told apart without a key; it has lengths and counts,
//! and nothing of keys or values. It is authenticated, with the page's number: a page that was moved, or whose kind, tree or LSN was
//! changed, does not verify. In memory a node of a tree is shorter by the seal, and the end of its frame means nothing.
//!
//! An extent never changes, and its cell has the checksum of its ciphertext. In memory it is in clear, with its seal behind it; what is
//! written is made of that again with the same nonce, and so is the same ciphertext. That this is so is proven by the tag each time.
//!
//! Superblock and allocation map are not encrypted: they have places and LSNs only. They have no seal either: who can write the medium can
//! make them lie about which pages are used. Neither can it be noticed that a page was replaced by an older state of itself, unless
//! something that refers to it contradicts that.

use encryption::{SEAL_BYTES, SealFault, Sealer};

use super::{HEADER_BYTES, PageId, check, seal};
use crate::StoreError;
use crate::damage::Damage;

/// Names the structure in the seal of a page.
const PAGE: &[u8; 4] = b"page";
/// Names the structure in the seal of an extent.
const EXTENT: &[u8; 8] = b"extent\0\0";

/// Bytes at the end of a page, or of an extent, that are the seal's.
pub(crate) fn seal_bytes(sealer: Option<&Sealer>) -> usize {
    if sealer.is_some() { SEAL_BYTES } else { 0 }
}

/// Encrypts a page of a tree, if the store is encrypted, and sets its checksum: it can be written as page `id`.
pub(crate) fn seal_with(sealer: Option<&Sealer>, id: PageId, bytes: &mut [u8]) {
    if let Some(sealer) = sealer {
        let place = place_of(id, bytes);
        sealer.seal(&place, &mut bytes[HEADER_BYTES..]);
    }
    seal(id, bytes);
}

/// Checks a page of a tree as it was read, and decrypts it. Errors: [`StoreError::Corrupt`], for a seal as for a checksum.
pub(crate) fn open_with(sealer: Option<&Sealer>, id: PageId, bytes: &mut [u8]) -> Result<(), StoreError> {
    check(id, bytes)?;
    decrypt(sealer, id, bytes)
}

/// Decrypts a page whose checksum was checked.
pub(crate) fn decrypt(sealer: Option<&Sealer>, id: PageId, bytes: &mut [u8]) -> Result<(), StoreError> {
    let Some(sealer) = sealer else { return Ok(()) };
    let place = place_of(id, bytes);
    match sealer.open(&place, &mut bytes[HEADER_BYTES..]) {
        Ok(_) => Ok(()),
        Err(fault) => Err(StoreError::Corrupt(Damage::of(id, 1, format_args!("page {id}: {fault}")))),
    }
}

fn place_of(id: PageId, bytes: &[u8]) -> [u8; HEADER_BYTES + 4] {
    let mut place = [0; HEADER_BYTES + 4];
    place[..4].copy_from_slice(PAGE);
    place[4..8].copy_from_slice(&id.0.to_le_bytes());
    place[8..].copy_from_slice(&bytes[4..HEADER_BYTES]);
    place
}

fn place_of_extent(first: PageId) -> [u8; 12] {
    let mut place = [0; 12];
    place[..8].copy_from_slice(EXTENT);
    place[8..].copy_from_slice(&first.0.to_le_bytes());
    place
}

/// Encrypts the pages of an extent at their place; the last [`SEAL_BYTES`] of the last page become the seal. The rest behind the value is
/// zeros.
pub(crate) fn seal_extent(sealer: &Sealer, first: PageId, pages: &mut [u8]) {
    sealer.seal(&place_of_extent(first), pages);
}

/// Encrypts the pages of an extent that [`open_extent`] decrypted: they are as they were. Errors: [`StoreError::Corrupt`]: they were changed
/// in memory, and must not be written.
pub(crate) fn seal_extent_again(sealer: Option<&Sealer>, first: PageId, pages: &mut [u8]) -> Result<(), StoreError> {
    let Some(sealer) = sealer else { return Ok(()) };
    let (body, seal) = pages.split_last_chunk_mut().expect("a page has room for a seal");
    sealer.seal_again(&place_of_extent(first), body, seal).map_err(|fault| damaged(first, fault))
}

/// Decrypts the pages of an extent, whose checksum was checked; the seal stays at their end. Errors: [`StoreError::Corrupt`].
pub(crate) fn open_extent(sealer: Option<&Sealer>, first: PageId, pages: &mut [u8]) -> Result<(), StoreError> {
    let Some(sealer) = sealer else { return Ok(()) };
    let (body, seal) = pages.split_last_chunk_mut().expect("a page has room for a seal");
    sealer.open_apart(&place_of_extent(first), body, seal).map_err(|fault| damaged(first, fault))
}

fn damaged(first: PageId, fault: SealFault) -> StoreError {
    StoreError::Corrupt(Damage::of(first, 1, format_args!("extent at page {first}: {fault}")))
}
