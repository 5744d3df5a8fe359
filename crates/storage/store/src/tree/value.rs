//! Values: in a leaf, or in extents outside it.
//!
//! A value of half a page or more is stored in extents of at most 1 MiB each, or of half a data device if that is less;
//! its cell lists them. Extents are whole pages, so a lower threshold costs memory and written bytes: with a quarter of
//! a page, HL7 messages of 2 to 4 KB took a page of 8 KiB each.
//!
//! Replacing or deleting such a value does not free its extents: older snapshots may still read them. The caller that
//! changes a tree receives the old cell, keeps it as an old version, and frees the extents when no snapshot needs them.

use bytes::{Bytes, BytesMut};

use crate::damage::Damage;
use crate::page::{EXTENT_BYTES_MAX, Extent, PageId};
use crate::pages::Pages;
use crate::{KEY_BYTES_MAX, StoreError};

/// Largest number of extents of a value: their list must fit beside the longest key in the smallest page.
pub(crate) const VALUE_EXTENTS_MAX: usize = 64;

/// Longest value, bytes. It is less if data devices are smaller than 2 MiB ([`crate::Store::value_bytes_max`]).
pub const VALUE_BYTES_MAX: usize = VALUE_EXTENTS_MAX * EXTENT_BYTES_MAX;

/// A value in a cell, while the leaf is latched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// Its encoded extents, concatenated ([`Extent::encode`]).
    Large(&'a [u8]),
    /// Known to be absent; in a hole.
    Absent,
    /// Lost to damage: it is unknown whether there is one. The page is the hole's.
    Lost(PageId),
}

impl<'a> Stored<'a> {
    /// Its bytes in the cell.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Stored::Inline(bytes) | Stored::Large(bytes) => bytes,
            Stored::Absent | Stored::Lost(_) => &[],
        }
    }

    /// A copy; `None` if a list of extents cannot be decoded, or if there is no value.
    #[inline]
    pub fn to_cell(self) -> Option<Cell> {
        match self {
            Stored::Inline(bytes) => Some(Cell::Inline(Bytes::copy_from_slice(bytes))),
            Stored::Large(list) => Some(Cell::Large(decode(list)?)),
            Stored::Lost(page) => Some(Cell::Lost(page)),
            Stored::Absent => None,
        }
    }
}

/// A copy of a value in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The value itself.
    Inline(Bytes),
    /// Its extents, in order.
    Large(Box<[Extent]>),
    /// Lost to damage, if there was one; the page is the hole's.
    Lost(PageId),
}

impl Cell {
    /// Length of the value, bytes, if each extent has so many more for its seal.
    pub fn value_bytes(&self, seal_bytes: usize) -> usize {
        match self {
            Cell::Inline(bytes) => bytes.len(),
            Cell::Large(extents) => {
                extents.iter().map(|extent| (extent.bytes as usize).saturating_sub(seal_bytes)).sum()
            }
            Cell::Lost(_) => 0,
        }
    }

    /// Whether the value has pages of its own.
    pub(crate) fn has_pages(&self) -> bool {
        matches!(self, Cell::Large(_))
    }

    /// Memory that the value takes besides the cell.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Cell::Inline(bytes) => bytes.len() as u64,
            Cell::Large(extents) => std::mem::size_of_val(&**extents) as u64,
            Cell::Lost(_) => 0,
        }
    }

    /// Reads the value. A value in a single extent is not copied: the result points into the cache. Errors: as
    /// [`Pages::read_extent`].
    pub fn read<P: Pages>(&self, pages: &P) -> Result<Bytes, StoreError> {
        match self {
            Cell::Inline(bytes) => Ok(bytes.clone()),
            Cell::Lost(page) => Err(lost(*page)),
            Cell::Large(extents) => match extents.as_ref() {
                [one] => pages.read_extent(*one),
                many => {
                    let mut whole = BytesMut::with_capacity(self.value_bytes(0));
                    for extent in many {
                        whole.extend_from_slice(&pages.read_extent(*extent)?);
                    }
                    Ok(whole.freeze())
                }
            },
        }
    }

    /// Frees its extents: no thread may read the value any more.
    pub fn free<P: Pages>(&self, pages: &P) {
        if let Cell::Large(extents) = self {
            extents.iter().for_each(|extent| pages.free_extent(*extent));
        }
    }
}

/// The error for a key in a hole.
pub(crate) fn lost(page: PageId) -> StoreError {
    StoreError::Corrupt(Damage::of(
        page,
        1,
        format_args!("page {page} is a hole: the page that it replaces was lost to damage"),
    ))
}

/// A value to be put.
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'a> {
    /// A value; a long one is stored in extents made for it.
    Bytes(&'a [u8]),
    /// A value that is already stored in these extents, which belong to the tree from now on ([`store_value`]).
    Extents(&'a [Extent]),
}

/// The longest value that is kept in the leaf beside a key of that length, bytes.
pub fn inline_bytes_max(page_bytes: usize, key_bytes: usize) -> usize {
    // A leaf with the longest fences has space for at least one cell: header and padding 40, slot 8, size 2. Since the
    // value is less than half of the largest page, the highest bit of a cell's size is free.
    (page_bytes / 2 - 1).min(page_bytes - 50 - 2 * KEY_BYTES_MAX - key_bytes)
}

/// Stores a value in extents, for [`NewValue::Extents`]. Any thread. Errors: [`StoreError::Refused`] for an empty value
/// or one longer than 64 extents of these pages, [`StoreError::Full`]; after an error nothing is stored.
pub fn store_value<P: Pages>(pages: &P, value: &[u8]) -> Result<Vec<Extent>, StoreError> {
    let extent_bytes = pages.extent_bytes_max();
    let most = VALUE_EXTENTS_MAX * extent_bytes;
    if value.is_empty() || value.len() > most {
        let bytes = value.len();
        return Err(StoreError::Refused(format!("a value in extents has 1 to {most} bytes, not {bytes}").into()));
    }
    let mut extents = Vec::with_capacity(value.len().div_ceil(extent_bytes));
    for part in value.chunks(extent_bytes) {
        match pages.create_extent(part) {
            Ok(extent) => extents.push(extent),
            Err(error) => {
                extents.into_iter().for_each(|extent| pages.free_extent(extent));
                return Err(error);
            }
        }
    }
    Ok(extents)
}

/// Encodes a list of extents for a cell.
pub(super) fn encode(extents: &[Extent]) -> Vec<u8> {
    extents.iter().flat_map(Extent::encode).collect()
}

/// Decodes a cell's list; `None` if that is impossible.
pub(super) fn decode(list: &[u8]) -> Option<Box<[Extent]>> {
    let (extents, rest) = list.as_chunks::<{ Extent::ENCODED_BYTES }>();
    (rest.is_empty() && !extents.is_empty()).then_some(())?;
    extents.iter().map(|extent| Extent::decode(extent)).collect()
}
