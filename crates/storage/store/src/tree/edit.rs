//! Changes a leaf in place: format, insert, overwrite, remove, build from items.
//!
//! A change that does not fit in the free bytes between slots and cells returns `false` and changes nothing; the caller
//! then rebuilds the leaf, or splits it (see `split`). Only rebuilding reclaims the bytes of removed cells. A leaf does
//! not count them, because rebuilding is rare and counts them anyway.
//!
//! Invariant: total, like the reading of leaves. An invalid leaf gives `None` before anything is changed.

use super::leaf::{COUNT, FLAGS, HEAP, HIGH, HOLE, Item, LARGE, LOW, Leaf, PREFIX, SLOT_BYTES, Slot, slots_at};
use super::value::Stored;
use crate::TreeId;
use crate::page::{HEADER_BYTES, Kind, PageHeader, u16_at};

/// Writes an empty leaf to a page of zeros. The first key determines how much of the low fence is shared.
pub(super) fn format(page: &mut [u8], tree: TreeId, lsn: u64, low: &[u8], high: &[u8]) {
    PageHeader { kind: Kind::Leaf, level: 0, flags: 0, tree: tree.0, lsn }.put(page);
    put_u16(page, PREFIX, low.len());
    put_u16(page, LOW, low.len());
    put_u16(page, HIGH, high.len());
    page[HEADER_BYTES..HEADER_BYTES + low.len()].copy_from_slice(low);
    page[HEADER_BYTES + low.len()..HEADER_BYTES + low.len() + high.len()].copy_from_slice(high);
}

/// Sets the LSN of the record that changed the leaf.
pub(super) fn set_lsn(page: &mut [u8], lsn: u64) {
    page[16..24].copy_from_slice(&lsn.to_le_bytes());
}

/// Marks a leaf as a hole, or removes the mark.
pub(super) fn mark_hole(page: &mut [u8], is_hole: bool) {
    let flags = if is_hole { HOLE } else { 0 };
    page[FLAGS..FLAGS + 2].copy_from_slice(&flags.to_le_bytes());
}

/// Makes the page invalid as a leaf, so that a late reader starts again.
pub(super) fn invalidate(page: &mut [u8]) {
    page[4] = 0;
}

/// Inserts a cell at a slot; returns `false` if the free bytes are insufficient. The key is in two parts, without the
/// leaf's prefix.
pub(super) fn insert(page: &mut [u8], index: usize, key: (&[u8], &[u8]), value: Stored<'_>) -> Option<bool> {
    let space = Space::of(page)?;
    let len = key.0.len() + key.1.len();
    let cell = 2 + len + value.bytes().len();
    if index > space.count || space.free()? < cell + SLOT_BYTES {
        return Some(false);
    }
    let offset = space.cells - cell;
    write_cell(page.get_mut(offset..space.cells)?, key, value);
    let mut head = [0; 4];
    key.0.iter().chain(key.1).take(4).zip(&mut head).for_each(|(byte, out)| *out = *byte);
    let at = space.slots + index * SLOT_BYTES;
    page.copy_within(at..space.slots + space.count * SLOT_BYTES, at + SLOT_BYTES);
    let slot = Slot { head: u32::from_be_bytes(head), offset, len };
    page[at..at + SLOT_BYTES].copy_from_slice(&slot.word().to_le_bytes());
    put_u16(page, COUNT, space.count + 1);
    put_u16(page, HEAP, page.len() - offset);
    Some(true)
}

/// Replaces the value of a cell; returns `false` if the free bytes are insufficient.
pub(super) fn overwrite(page: &mut [u8], index: usize, value: Stored<'_>) -> Option<bool> {
    let space = Space::of(page)?;
    let at = space.slot(index)?;
    let slot = Slot::of(crate::page::u64_at(page, at)?);
    let old = usize::from(u16_at(page, slot.offset)? & !LARGE);
    let new = value.bytes().len();
    if new <= old {
        let cell = page.get_mut(slot.offset..slot.offset + 2 + slot.len + old)?;
        cell[..2].copy_from_slice(&size_of(value).to_le_bytes());
        cell[2 + slot.len..2 + slot.len + new].copy_from_slice(value.bytes());
        return Some(true);
    }
    let cell = 2 + slot.len + new;
    if space.free()? < cell {
        return Some(false);
    }
    let offset = space.cells - cell;
    page.get(slot.offset..slot.offset + 2 + slot.len)?;
    page.copy_within(slot.offset + 2..slot.offset + 2 + slot.len, offset + 2);
    page[offset..offset + 2].copy_from_slice(&size_of(value).to_le_bytes());
    page[offset + 2 + slot.len..space.cells].copy_from_slice(value.bytes());
    page[at..at + SLOT_BYTES].copy_from_slice(&Slot { offset, ..slot }.word().to_le_bytes());
    put_u16(page, HEAP, page.len() - offset);
    Some(true)
}

/// Removes a cell; returns how many are left.
pub(super) fn remove(page: &mut [u8], index: usize) -> Option<usize> {
    let space = Space::of(page)?;
    let at = space.slot(index)?;
    page.copy_within(at + SLOT_BYTES..space.slots + space.count * SLOT_BYTES, at);
    put_u16(page, COUNT, space.count - 1);
    if space.count == 1 {
        put_u16(page, HEAP, 0);
    }
    Some(space.count - 1)
}

/// Fills a page of zeros with a leaf of these items, which are in order and between the fences; returns `None` if they do
/// not fit.
pub(super) fn build<'i>(
    page: &mut [u8],
    tree: TreeId,
    lsn: u64,
    (low, high): (&[u8], &[u8]),
    items: impl DoubleEndedIterator<Item = Option<Item<'i>>> + Clone,
) -> Option<()> {
    format(page, tree, lsn, low, high);
    let prefix = match items.clone().next_back() {
        Some(last) => last?.shares(low),
        None => low.len(),
    };
    put_u16(page, PREFIX, prefix);
    for (index, item) in items.enumerate() {
        let item = item?;
        insert(page, index, item.key_from(prefix), item.value)?.then_some(())?;
    }
    Some(())
}

/// Fills a page of zeros with a leaf of one item, whose key begins with the low fence. The keys to come are expected to
/// share `prefix` bytes of it: the first that shares fewer rebuilds the leaf.
pub(super) fn begin(
    page: &mut [u8],
    tree: TreeId,
    lsn: u64,
    (low, high): (&[u8], &[u8]),
    (item, prefix): (Item<'_>, usize),
) -> Option<()> {
    format(page, tree, lsn, low, high);
    let prefix = prefix.min(low.len());
    put_u16(page, PREFIX, prefix);
    insert(page, 0, item.key_from(prefix), item.value)?.then_some(())
}

/// Whether [`set_high`] can be used: a high fence of that length fits before the cells as they are.
pub(super) fn fits_high(page: &[u8], high: usize) -> Option<bool> {
    let space = Space::of(page)?;
    let slots = slots_at(usize::from(u16_at(page, LOW)?), high);
    Some(slots + space.count * SLOT_BYTES <= space.cells)
}

/// Replaces the high fence, for which [there is room](fits_high), by one that all keys are less than.
pub(super) fn set_high(page: &mut [u8], high: &[u8]) -> Option<()> {
    let space = Space::of(page)?;
    let low = usize::from(u16_at(page, LOW)?);
    let slots = slots_at(low, high.len());
    page.copy_within(space.slots..space.slots + space.count * SLOT_BYTES, slots);
    page[HEADER_BYTES + low..slots].fill(0);
    page[HEADER_BYTES + low..][..high.len()].copy_from_slice(high);
    put_u16(page, HIGH, high.len());
    Some(())
}

/// Whether a leaf's cells fit between other fences.
pub(super) fn fits_between(leaf: Leaf<'_>, low: &[u8], high: &[u8]) -> Option<bool> {
    Some(bytes_between(leaf, low, high)? <= leaf.page().len())
}

/// Bytes that a leaf needs.
pub(super) fn bytes_used(leaf: Leaf<'_>) -> Option<usize> {
    bytes_between(leaf, leaf.low, leaf.high)
}

fn bytes_between(leaf: Leaf<'_>, low: &[u8], high: &[u8]) -> Option<usize> {
    let prefix = match leaf.count().checked_sub(1) {
        Some(last) => leaf.item(last)?.shares(low),
        None => low.len(),
    };
    (0..leaf.count()).try_fold(slots_at(low.len(), high.len()), |bytes, index| {
        Some(bytes + leaf.item(index)?.cost().checked_sub(prefix)?)
    })
}

/// The areas of a leaf, checked against its size.
struct Space {
    count: usize,
    slots: usize,
    /// Where the cells begin.
    cells: usize,
}

impl Space {
    #[inline]
    fn of(page: &[u8]) -> Option<Space> {
        let number = |at: usize| u16_at(page, at).map(usize::from);
        let (count, slots) = (number(COUNT)?, slots_at(number(LOW)?, number(HIGH)?));
        let space = Space { count, slots, cells: page.len().checked_sub(number(HEAP)?)? };
        space.free().map(|_| space)
    }

    /// Bytes between slots and cells.
    #[inline]
    fn free(&self) -> Option<usize> {
        self.cells.checked_sub(self.slots + self.count * SLOT_BYTES)
    }

    fn slot(&self, index: usize) -> Option<usize> {
        (index < self.count).then_some(self.slots + index * SLOT_BYTES)
    }
}

fn size_of(value: Stored<'_>) -> u16 {
    let bytes = value.bytes().len() as u16;
    if matches!(value, Stored::Large(_) | Stored::Absent) { bytes | LARGE } else { bytes }
}

#[inline]
fn write_cell(cell: &mut [u8], key: (&[u8], &[u8]), value: Stored<'_>) {
    let (size, rest) = cell.split_at_mut(2);
    size.copy_from_slice(&size_of(value).to_le_bytes());
    let (first, rest) = rest.split_at_mut(key.0.len());
    first.copy_from_slice(key.0);
    let (second, rest) = rest.split_at_mut(key.1.len());
    second.copy_from_slice(key.1);
    rest.copy_from_slice(value.bytes());
}

#[inline]
fn put_u16(page: &mut [u8], at: usize, number: usize) {
    page[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
}
