//! Reading a leaf: finds its cells and the cell of a key.
//!
//! ```text
//!    0 header          the page's own; 12 count u16 | 14 prefix u16 | 24 heap u16 | 28 low u16 | 30 high u16
//!   32 low, high       the fences, with the lengths at 28 and 30; padded to a multiple of 8
//!      slots           count times: len u16 | offset u16 | head u32, in the order of the keys
//!      free
//!      cells           `heap` bytes at the page's end: size u16 | key without the prefix | value
//! ```
//!
//! Every key that can ever be in this leaf is at least `low` and less than `high`; an empty `high` means no bound. All
//! present keys share the first `prefix` bytes of `low`, and cells and slots omit them. That may be more than the
//! fences share, so that the last leaf of ascending keys is as dense as others. A key of this leaf without this prefix
//! is greater than all present keys; inserting it rebuilds the leaf with a shorter prefix. `head` contains the next
//! four bytes of a key as a number (big-endian, padded with zeros), so most comparisons need not read a cell. `size` is
//! the value's length. Its highest bit means that the value is a list of extents; in a hole, an empty list means that
//! the key is known to be absent. Bit 0 of the header's flags means that the leaf is a hole (see `hole`).
//!
//! Invariant: every function here is total. For any bytes it returns some result, or `None` if they are invalid.

use std::cmp::Ordering;

use super::value::{self, Stored};
use crate::TreeId;
use crate::page::{HEADER_BYTES, Kind, PageId, u16_at, u32_at, u64_at};

/// Offset of the flags in the header.
pub(super) const FLAGS: usize = 6;
/// Flag: the leaf is a hole.
pub(super) const HOLE: u16 = 1;
/// Offset of the number of cells.
pub(super) const COUNT: usize = 12;
/// Offset of the length of the prefix.
pub(super) const PREFIX: usize = 14;
/// Offset of the number of bytes of cells at the page's end.
pub(super) const HEAP: usize = 24;
/// Offset of the length of the low fence.
pub(super) const LOW: usize = 28;
/// Offset of the length of the high fence.
pub(super) const HIGH: usize = 30;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 8;
/// Bit of a cell's size: the value is a list of extents.
pub(super) const LARGE: u16 = 1 << 15;

/// The fault of a list of extents that cannot be decoded.
pub(super) const EXTENTS_DAMAGED: &str = "list of extents cannot be decoded";

/// Where the slots begin after fences of these lengths.
pub(super) fn slots_at(low: usize, high: usize) -> usize {
    (HEADER_BYTES + low + high).next_multiple_of(SLOT_BYTES)
}

/// The length of the common prefix of two keys.
pub(super) fn common(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The first four bytes after the prefix, as a number with the same order.
#[inline]
pub(super) fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk() {
        Some(first) => u32::from_be_bytes(*first),
        None => suffix.iter().enumerate().fold(0, |head, (at, byte)| head | u32::from(*byte) << (24 - 8 * at)),
    }
}

/// A decoded slot.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) head: u32,
    pub(super) offset: usize,
    /// Bytes of the key without the prefix.
    pub(super) len: usize,
}

impl Slot {
    #[inline]
    pub(super) fn of(word: u64) -> Slot {
        Slot { head: (word >> 32) as u32, offset: usize::from((word >> 16) as u16), len: usize::from(word as u16) }
    }

    #[inline]
    pub(super) fn word(self) -> u64 {
        u64::from(self.head) << 32 | (self.offset as u64 & 0xffff) << 16 | (self.len as u64 & 0xffff)
    }
}

/// A cell with its whole key, in two parts.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) suffix: &'a [u8],
    pub(super) value: Stored<'a>,
}

impl Item<'_> {
    /// How many first bytes of a low fence the key shares; all keys before it share them too.
    pub(super) fn shares(&self, low: &[u8]) -> usize {
        let first = common(low, self.prefix);
        if first < self.prefix.len() { first } else { first + common(&low[first..], self.suffix) }
    }

    pub(super) fn key_bytes(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// Bytes of slot and cell in a leaf without a prefix.
    pub(super) fn cost(&self) -> usize {
        SLOT_BYTES + 2 + self.key_bytes() + self.value.bytes().len()
    }

    /// The key's bytes from `from` on, in two parts.
    pub(super) fn key_from(&self, from: usize) -> (&[u8], &[u8]) {
        let behind = from.saturating_sub(self.prefix.len()).min(self.suffix.len());
        (self.prefix.get(from..).unwrap_or_default(), &self.suffix[behind..])
    }
}

/// A leaf with a valid header.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'a> {
    page: &'a [u8],
    pub(super) low: &'a [u8],
    pub(super) high: &'a [u8],
    slots: &'a [[u8; SLOT_BYTES]],
    prefix: usize,
    pub(super) lsn: u64,
    /// It replaces a page that was lost: keys that are not in it are unknown.
    pub(super) is_hole: bool,
}

impl<'a> Leaf<'a> {
    /// Checks the header; returns `None` if the page is not a leaf of that tree.
    #[inline]
    pub(super) fn of(page: &'a [u8], tree: TreeId) -> Option<Leaf<'a>> {
        let head: &[u8; HEADER_BYTES] = page.first_chunk()?;
        let number = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        if head[4] != Kind::Leaf as u8 || head[5] != 0 || u32_at(head, 8)? != tree.0 {
            return None;
        }
        let (low, high) = (number(LOW), number(HIGH));
        let slots = page.get(slots_at(low, high)..)?.get(..number(COUNT) * SLOT_BYTES)?;
        let (low, high) = page.get(HEADER_BYTES..HEADER_BYTES + low + high)?.split_at_checked(low)?;
        let prefix = number(PREFIX);
        (prefix <= low.len()).then_some(())?;
        let is_hole = head[FLAGS] & HOLE as u8 != 0;
        Some(Leaf { page, low, high, slots: slots.as_chunks().0, prefix, lsn: u64_at(head, 16)?, is_hole })
    }

    /// Whether a key belongs to this leaf, if it exists.
    #[inline]
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        self.low <= key && (self.high.is_empty() || key < self.high)
    }

    /// Whether the greatest key less than `key` belongs here, or the key range just before it; empty means no bound.
    pub(super) fn covers_before(&self, key: &[u8]) -> bool {
        match key {
            [] => self.high.is_empty(),
            _ => self.low < key && (self.high.is_empty() || key <= self.high),
        }
    }

    /// Number of cells.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The bytes that cells omit from their keys.
    #[inline]
    pub(super) fn prefix(&self) -> &'a [u8] {
        &self.low[..self.prefix]
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<Slot> {
        self.slots.get(index).map(|slot| Slot::of(u64::from_le_bytes(*slot)))
    }

    /// The key of a slot without the prefix.
    #[inline]
    fn suffix(&self, slot: Slot) -> Option<&'a [u8]> {
        self.page.get(slot.offset + 2..slot.offset + 2 + slot.len)
    }

    /// A cell: key without the prefix, and value.
    #[inline]
    pub(super) fn cell(&self, index: usize) -> Option<(&'a [u8], Stored<'a>)> {
        let slot = self.slot(index)?;
        let size = u16_at(self.page, slot.offset)?;
        let (suffix, rest) = self.page.get(slot.offset + 2..)?.split_at_checked(slot.len)?;
        let value = rest.get(..usize::from(size & !LARGE))?;
        let value = match size & LARGE {
            0 => Stored::Inline(value),
            _ if value.is_empty() && self.is_hole => Stored::Absent,
            _ => Stored::Large(value),
        };
        Some((suffix, value))
    }

    /// The first slot whose cell cannot be read, and its fault: for the error, once something could not be read. `None`
    /// if all can be read.
    pub(super) fn fault(&self) -> Option<(usize, &'static str)> {
        let fault = |index: usize| match self.cell(index) {
            None => Some((index, "cell exceeds page")),
            Some((_, Stored::Large(list))) if value::decode(list).is_none() => Some((index, EXTENTS_DAMAGED)),
            Some(_) => None,
        };
        (0..self.count()).find_map(fault)
    }

    /// Returns what this leaf has for a key at a slot, or for one that would be inserted there; `None` if a cell is
    /// invalid. `page` is the leaf's number.
    #[inline]
    pub(super) fn held(&self, at: Result<usize, usize>, page: PageId) -> Option<Option<Stored<'a>>> {
        match at {
            Ok(index) => self.cell(index).map(|(_, value)| Some(value).filter(|value| *value != Stored::Absent)),
            Err(_) => Some(self.is_hole.then_some(Stored::Lost(page))),
        }
    }

    /// A cell with its whole key.
    pub(super) fn item(&self, index: usize) -> Option<Item<'a>> {
        let (suffix, value) = self.cell(index)?;
        Some(Item { prefix: self.prefix(), suffix, value })
    }

    /// The slot of a key that the fences cover, or the slot where it would be inserted.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<Result<usize, usize>> {
        let Some(suffix) = key.strip_prefix(self.prefix()) else {
            // The key is not less than the low fence, which begins with the prefix.
            return Some(Err(self.count()));
        };
        let head = head_of(suffix);
        let first = self.first_head(head);
        let Some(slot) = self.slot(first).filter(|slot| slot.head == head) else { return Some(Err(first)) };
        match self.compare(slot, suffix)? {
            Ordering::Equal => return Some(Ok(first)),
            Ordering::Greater => return Some(Err(first)),
            Ordering::Less => {}
        }
        let (mut from, mut to) = (first + 1, self.count());
        while from < to {
            let middle = from.midpoint(to);
            let slot = self.slot(middle)?;
            match slot.head.cmp(&head).then_with(|| self.compare(slot, suffix).unwrap_or(Ordering::Equal)) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Some(Ok(middle)),
            }
        }
        Some(Err(from))
    }

    /// How many cells have a key less than `key`, which the fences need not cover.
    pub(super) fn rank(&self, key: &[u8]) -> Option<usize> {
        if key <= self.low {
            return Some(0);
        }
        if !self.covers(key) {
            return Some(self.count());
        }
        self.find(key).map(|found| match found {
            Ok(at) | Err(at) => at,
        })
    }

    /// The first slot whose head is not smaller.
    #[inline]
    fn first_head(&self, head: u32) -> usize {
        self.slots.partition_point(|slot| ((u64::from_le_bytes(*slot) >> 32) as u32) < head)
    }

    /// Compares a slot's key with another that has the same head.
    #[inline]
    fn compare(&self, slot: Slot, suffix: &[u8]) -> Option<Ordering> {
        // If the heads are equal, the shorter key is a prefix of the longer, unless both extend beyond the head.
        if slot.len <= 4 || suffix.len() <= 4 {
            return Some(slot.len.cmp(&suffix.len()));
        }
        Some(self.suffix(slot)?.get(4..)?.cmp(&suffix[4..]))
    }

    /// The head of a cell.
    pub(super) fn head(&self, index: usize) -> Option<u32> {
        self.slot(index).map(|slot| slot.head)
    }

    /// The whole page.
    pub(super) fn page(&self) -> &'a [u8] {
        self.page
    }
}
