//! Values: in a leaf, or in extents beside it.
//!
//! A value of half a page or more lies in extents of at most 1 MiB each, or of half a data device where that is less; its cell lists them. Extents are whole pages, so a lower
//! limit costs memory and bytes written: with a quarter of a page, HL7 messages of 2 to 4 KB took a page of 8 KiB each.
//!
//! Replacing or deleting such a value does not free its extents: older snapshots may still read them. Whoever changes a tree
//! gets the old cell, keeps it as an old version, and frees the extents when no snapshot needs them.

use bytes::{Bytes, BytesMut};

use crate::damage::Damage;
use crate::page::{EXTENT_BYTES_MAX, Extent, PageId};
use crate::pages::Pages;
use crate::{KEY_BYTES_MAX, StoreError};

/// Extents of a value, at most: their list must find room beside the longest key in the smallest page.
pub(crate) const VALUE_EXTENTS_MAX: usize = 64;

/// Longest value, bytes. Where data devices are smaller than 2 MiB it is less ([`crate::Store::value_bytes_max`]).
pub const VALUE_BYTES_MAX: usize = VALUE_EXTENTS_MAX * EXTENT_BYTES_MAX;

/// A value as a cell has it, while the leaf is latched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// Its extents, encoded one after the other ([`Extent::encode`]).
    Large(&'a [u8]),
    /// Known to be absent, in a hole.
    Absent,
    /// Lost to damage: whether there is one is not known. The page is the hole's.
    Lost(PageId),
}

impl<'a> Stored<'a> {
    /// The cell's bytes of it.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Stored::Inline(bytes) | Stored::Large(bytes) => bytes,
            Stored::Absent | Stored::Lost(_) => &[],
        }
    }

    /// Copied out of the leaf; none where a list of extents cannot be decoded, or it is no value.
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

/// A value as a cell has it, copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The value itself.
    Inline(Bytes),
    /// Where it lies, in order.
    Large(Box<[Extent]>),
    /// It was lost to damage, if there was one; the hole that stands for it.
    Lost(PageId),
}

impl Cell {
    /// Length of the value, bytes.
    pub fn value_bytes(&self) -> usize {
        match self {
            Cell::Inline(bytes) => bytes.len(),
            Cell::Large(extents) => extents.iter().map(|extent| extent.bytes as usize).sum(),
            Cell::Lost(_) => 0,
        }
    }

    /// Whether something of the value lies in pages of its own.
    pub(crate) fn has_pages(&self) -> bool {
        matches!(self, Cell::Large(_))
    }

    /// Memory that the value takes beside the cell.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Cell::Inline(bytes) => bytes.len() as u64,
            Cell::Large(extents) => std::mem::size_of_val(&**extents) as u64,
            Cell::Lost(_) => 0,
        }
    }

    /// The value. One in a single extent is not copied: it points into the cache. Errors as [`Pages::read_extent`].
    pub fn read<P: Pages>(&self, pages: &P) -> Result<Bytes, StoreError> {
        match self {
            Cell::Inline(bytes) => Ok(bytes.clone()),
            Cell::Lost(page) => Err(lost(*page)),
            Cell::Large(extents) => match extents.as_ref() {
                [one] => pages.read_extent(*one),
                many => {
                    let mut whole = BytesMut::with_capacity(self.value_bytes());
                    for extent in many {
                        whole.extend_from_slice(&pages.read_extent(*extent)?);
                    }
                    Ok(whole.freeze())
                }
            },
        }
    }

    /// Gives its extents up: nobody may read the value any more.
    pub fn free<P: Pages>(&self, pages: &P) {
        if let Cell::Large(extents) = self {
            extents.iter().for_each(|extent| pages.free_extent(*extent));
        }
    }
}

/// What is said of what a hole stands for.
pub(crate) fn lost(page: PageId) -> StoreError {
    StoreError::Corrupt(Damage::of(
        page,
        1,
        format_args!("page {page} is a hole: what it stands for was lost to damage"),
    ))
}

/// What is to be put.
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'a> {
    /// A value; a long one is stored in extents made for it.
    Bytes(&'a [u8]),
    /// A value already stored in these extents, which belong to the tree from now on ([`store_value`]).
    Extents(&'a [Extent]),
}

/// Longest value that is kept in the leaf beside a key of that length, bytes.
pub fn inline_bytes_max(page_bytes: usize, key_bytes: usize) -> usize {
    // A leaf with the longest fences takes at least one cell: header and filling 40, slot 8, size 2. Less than half of the
    // largest page leaves the highest bit of a cell's size free.
    (page_bytes / 2 - 1).min(page_bytes - 50 - 2 * KEY_BYTES_MAX - key_bytes)
}

/// Stores a value in extents, for [`NewValue::Extents`]. Any thread. Errors: [`StoreError::Refused`] for an empty value or
/// one longer than 64 extents of these pages, [`StoreError::Full`]; then nothing stays stored.
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

/// A list of extents as a cell has it.
pub(super) fn encode(extents: &[Extent]) -> Vec<u8> {
    extents.iter().flat_map(Extent::encode).collect()
}

/// Of a cell's list; none where it cannot be decoded.
pub(super) fn decode(list: &[u8]) -> Option<Box<[Extent]>> {
    let (extents, rest) = list.as_chunks::<{ Extent::ENCODED_BYTES }>();
    (rest.is_empty() && !extents.is_empty()).then_some(())?;
    extents.iter().map(|extent| Extent::decode(extent)).collect()
}
