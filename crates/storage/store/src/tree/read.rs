//! Reading: descends without latches, reads one latched leaf, and starts again if the writer interfered.
//!
//! The writer may split, move and free nodes while a reader descends, and a page may belong to another tree by the time
//! the reader arrives there. The leaf decides: under its latch, its tree, kind and fences show whether it is the right
//! one. An unlinked leaf is made invalid before its page is free, so a leaf that matches is always the current one.
//!
//! A descent from the root succeeds in every state of the tree. So a reader that fails repeatedly at the same page has
//! found damage, not the writer.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::inner::{InnerPage, Toward};
use super::leaf::{EXTENTS_DAMAGED, LARGE, Leaf};
use super::value::{self, Cell, Stored};
use super::{Direction, Tree};
use crate::page::{Extent, PageId};
use crate::pages::Pages;
use crate::{Lsn, StoreError};

/// How often in a row the same page may fail before it counts as damaged.
const SAME_PAGE_MAX: u32 = 24;
/// How often a read starts again at most.
const RESTARTS_MAX: u32 = 1 << 16;

/// Why a descent did not reach the leaf.
pub(super) struct Fault {
    pub(super) page: PageId,
    pub(super) error: Option<StoreError>,
}

/// Counts how often a read has started again.
pub(super) struct Restarts {
    all: u32,
    same: u32,
    page: Option<PageId>,
}

impl Restarts {
    pub(super) fn new() -> Restarts {
        Restarts { all: 0, same: 0, page: None }
    }

    /// Waits a little before the next attempt. Errors: the fault's, if it is permanent.
    pub(super) fn again(&mut self, tree: Tree, fault: Fault) -> Result<(), StoreError> {
        if let Some(error) = &fault.error
            && !matches!(error, StoreError::Corrupt(_))
        {
            return Err(error.clone());
        }
        // A drive may retry for seconds each time.
        let is_slow = matches!(&fault.error, Some(StoreError::Corrupt(damage)) if damage.is_unreadable());
        let step = if is_slow { SAME_PAGE_MAX / 3 } else { 1 };
        self.all += 1;
        self.same = if self.page == Some(fault.page) { self.same + step } else { 0 };
        self.page = Some(fault.page);
        if self.same >= SAME_PAGE_MAX || self.all >= RESTARTS_MAX {
            return Err(fault.error.unwrap_or_else(|| tree.corrupt(fault.page, "does not match its parent")));
        }
        match self.same {
            0..4 => std::hint::spin_loop(),
            4..12 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(100)),
        }
        Ok(())
    }
}

/// A copy of the cells of one leaf in a range.
#[derive(Clone, Debug)]
pub struct LeafBlock {
    bytes: Bytes,
    entries: Vec<Entry>,
    /// The slot of each entry if some slots are omitted, as in holes; else empty, and the first entry's slot is
    /// `begin`.
    slots: Vec<u16>,
    begin: usize,
    tree: Tree,
    /// The leaf's low fence: no key in it is less; empty means no bound.
    pub low: Bytes,
    /// The leaf's high fence: every key in it is less; empty means no bound.
    pub high: Bytes,
    /// LSN of the last record that changed the leaf.
    pub lsn: Lsn,
    /// Its page.
    pub page: PageId,
    /// It replaces a page that was lost: more keys may exist between its fences.
    pub is_hole: bool,
}

/// The place of an entry in the block's bytes: key, then value.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    key: u16,
    /// Length of the value, and whether it is a list of extents.
    value: u16,
}

impl Entry {
    fn key(self) -> Range<usize> {
        self.at as usize..self.at as usize + usize::from(self.key)
    }

    fn value(self) -> Range<usize> {
        let from = self.key().end;
        from..from + usize::from(self.value & !LARGE)
    }
}

/// Consecutive leaves, as the inner pages above list them.
pub(crate) struct LeafRun {
    pub(crate) leaves: Vec<PageId>,
    /// The next leaf, if it is below the same inner page.
    pub(crate) behind: Option<PageId>,
    /// All their keys are less; empty means no bound. If the tree changes meanwhile, this may be another key, but it is
    /// always greater than the key that the leaves were requested from.
    pub(crate) end: Bytes,
}

impl LeafBlock {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key of an entry. Panics at [`len`](LeafBlock::len).
    pub fn key(&self, index: usize) -> &[u8] {
        &self.bytes[self.entries[index].key()]
    }

    /// As [`key`](LeafBlock::key), without copying; the result keeps the whole block in memory.
    pub fn key_bytes(&self, index: usize) -> Bytes {
        self.bytes.slice(self.entries[index].key())
    }

    /// The value of an entry in its stored form. Panics at [`len`](LeafBlock::len).
    pub fn stored(&self, index: usize) -> Stored<'_> {
        let entry = self.entries[index];
        let bytes = &self.bytes[entry.value()];
        if entry.value & LARGE == 0 { Stored::Inline(bytes) } else { Stored::Large(bytes) }
    }

    /// The value of an entry; an inline one shares the block's bytes. Errors: [`StoreError::Corrupt`] for a list of extents
    /// that cannot be decoded.
    pub fn cell(&self, index: usize) -> Result<Cell, StoreError> {
        match self.stored(index) {
            Stored::Inline(_) => Ok(Cell::Inline(self.bytes.slice(self.entries[index].value()))),
            large => large.to_cell().ok_or_else(|| self.corrupt(index, EXTENTS_DAMAGED)),
        }
    }

    /// The error for a damaged entry: its tree, page and slot, and what is wrong.
    pub(crate) fn corrupt(&self, index: usize, what: &str) -> StoreError {
        let slot = self.slots.get(index).map_or(self.begin + index, |slot| usize::from(*slot));
        self.tree.corrupt_slot(self.page, slot, what)
    }

    fn of(tree: Tree, page: PageId, leaf: Leaf<'_>, from: &[u8], to: &[u8]) -> Option<LeafBlock> {
        let begin = leaf.rank(from)?;
        let end = if to.is_empty() { leaf.count() } else { leaf.rank(to)? };
        let count = end.saturating_sub(begin);
        let prefix = leaf.prefix();
        // Counted first, so that the block is allocated once, and the cells' cache lines are requested all at once.
        let mut cells = 0;
        for at in begin..end {
            let (suffix, value) = leaf.cell(at)?;
            cells += 2 + suffix.len() + value.bytes().len();
        }
        // Cells of a damaged leaf may overlap; those of a valid one fit in its page together.
        (cells <= leaf.page().len()).then_some(())?;
        let mut bytes = Vec::with_capacity(cells + count * prefix.len() + leaf.low.len() + leaf.high.len());
        let (mut entries, mut slots) = (Vec::with_capacity(count), Vec::new());
        for at in begin..end {
            let (suffix, value) = leaf.cell(at)?;
            if value == Stored::Absent {
                continue;
            }
            if leaf.is_hole {
                slots.push(at as u16);
            }
            let large = if matches!(value, Stored::Large(_)) { LARGE } else { 0 };
            entries.push(Entry {
                at: bytes.len() as u32,
                key: (prefix.len() + suffix.len()) as u16,
                value: value.bytes().len() as u16 | large,
            });
            bytes.extend_from_slice(prefix);
            bytes.extend_from_slice(suffix);
            bytes.extend_from_slice(value.bytes());
        }
        let at = bytes.len();
        bytes.extend_from_slice(leaf.low);
        bytes.extend_from_slice(leaf.high);
        let bytes = Bytes::from(bytes);
        let (low, high) = (bytes.slice(at..at + leaf.low.len()), bytes.slice(at + leaf.low.len()..));
        let (lsn, is_hole) = (Lsn(leaf.lsn), leaf.is_hole);
        Some(LeafBlock { bytes, entries, slots, begin, tree, low, high, lsn, page, is_hole })
    }
}

impl Tree {
    /// Returns the value of a key, copied from its leaf, with the LSN of the last record that changed that leaf. Any
    /// thread. Errors: [`StoreError::Corrupt`], [`StoreError::Device`].
    pub fn get<P: Pages>(&self, pages: &P, key: &[u8]) -> Result<(Option<Cell>, Lsn), StoreError> {
        self.visit(
            pages,
            Toward::At(key),
            |leaf| leaf.covers(key),
            |page, leaf| {
                let cell = match leaf.held(leaf.find(key)?, page)? {
                    Some(stored) => Some(stored.to_cell()?),
                    None => None,
                };
                Some((cell, Lsn(leaf.lsn)))
            },
        )
    }

    /// As [`get`](Tree::get), without copying: `look` is called with the value in place while the leaf is latched, so
    /// it must be fast.
    pub fn get_with<P: Pages, R>(
        &self,
        pages: &P,
        key: &[u8],
        look: impl FnOnce(Option<Stored<'_>>, Lsn) -> R,
    ) -> Result<R, StoreError> {
        let mut look = Some(look);
        self.visit(
            pages,
            Toward::At(key),
            |leaf| leaf.covers(key),
            |page, leaf| {
                let found = leaf.held(leaf.find(key)?, page)?;
                Some(look.take()?(found, Lsn(leaf.lsn)))
            },
        )
    }

    /// Returns the cells of one leaf with keys from `from` (inclusive) to `to` (exclusive; empty means no bound): the
    /// leaf with the smallest of them forward, with the greatest backward. Any thread.
    ///
    /// The next block forward begins at `high` unless that is empty or not less than `to`; the next one backward ends at
    /// `low` unless that is empty or not greater than `from`. Errors: [`StoreError::Corrupt`], [`StoreError::Device`].
    pub fn leaf_block<P: Pages>(
        &self,
        pages: &P,
        from: &[u8],
        to: &[u8],
        direction: Direction,
    ) -> Result<LeafBlock, StoreError> {
        let copy = |page, leaf: Leaf<'_>| LeafBlock::of(*self, page, leaf, from, to);
        match direction {
            Direction::Forward => self.visit(pages, Toward::At(from), |leaf| leaf.covers(from), copy),
            Direction::Backward => {
                let toward = if to.is_empty() { Toward::Last } else { Toward::Before(to) };
                self.visit(pages, toward, |leaf| leaf.covers_before(to), copy)
            }
        }
    }

    /// Returns the leaf with the smallest key from `from` on, and the leaves after it below the same inner page with keys
    /// less than `to` (empty means no bound), `most` in all; none if the tree cannot be read, or changes. Any thread.
    pub(crate) fn leaves_from<P: Pages>(&self, pages: &P, from: &[u8], to: &[u8], most: usize) -> Option<LeafRun> {
        let mut way = Vec::new();
        self.descend(pages, Toward::At(from), |page, index| way.push((page, index))).ok()?;
        let (page, first) = way.pop()?;
        let toward = if to.is_empty() { Toward::Last } else { Toward::Before(to) };
        let (leaves, behind, end) = pages
            .inner(page, |words| {
                let inner = InnerPage::of(words, self.id).filter(|inner| inner.level == 1)?;
                let last = inner.position(toward)?.min(first.saturating_add(most).checked_sub(1)?);
                let leaves: Vec<PageId> = (first..=last).map_while(|at| inner.child(at)).collect();
                (!leaves.is_empty()).then(|| (leaves, inner.child(last + 1), inner.separator(last)))
            })
            .ok()??;
        let above = || way.iter().rev().find_map(|(page, index)| self.separator(pages, *page, *index));
        let end = end.or_else(above).unwrap_or_default();
        // The inner pages may be of different states of the tree.
        (end.is_empty() || *end > *from).then(|| LeafRun { leaves, behind, end: end.into() })
    }

    /// The separator after a child of an inner page; none after the last child, and if the page cannot be read.
    fn separator<P: Pages>(&self, pages: &P, page: PageId, index: usize) -> Option<Vec<u8>> {
        pages.inner(page, |words| InnerPage::of(words, self.id)?.separator(index)).ok()?
    }

    /// Calls `each` with the keys and extents of a leaf's long values from key `from` on, until it returns false; returns
    /// whether it never did. Does not call it if the bytes are no leaf of this tree.
    pub(crate) fn each_long(&self, leaf: &[u8], from: &[u8], mut each: impl FnMut(&[u8], &[Extent]) -> bool) -> bool {
        let Some(leaf) = Leaf::of(leaf, self.id) else { return true };
        let mut cells = (0..leaf.count()).filter_map(|index| leaf.cell(index));
        cells.all(|(suffix, value)| {
            let Stored::Large(list) = value else { return true };
            let key = [leaf.prefix(), suffix].concat();
            key.as_slice() < from || value::decode(list).is_none_or(|extents| each(&key, &extents))
        })
    }

    /// Descends to a leaf and reads it under its latch.
    fn visit<P: Pages, R>(
        &self,
        pages: &P,
        toward: Toward<'_>,
        fits: impl Fn(Leaf<'_>) -> bool,
        mut look: impl FnMut(PageId, Leaf<'_>) -> Option<R>,
    ) -> Result<R, StoreError> {
        let mut restarts = Restarts::new();
        loop {
            let fault = match self.descend(pages, toward, |_, _| ()) {
                Err(fault) => fault,
                Ok(page) => match pages.read(page) {
                    Err(error) => Fault { page, error: Some(error) },
                    Ok(bytes) => match Leaf::of(&bytes, self.id) {
                        Some(leaf) if fits(leaf) => {
                            return look(page, leaf).ok_or_else(|| self.corrupt_leaf(page, &bytes));
                        }
                        _ => Fault { page, error: None },
                    },
                },
            };
            restarts.again(*self, fault)?;
        }
    }

    /// Descends to a leaf; `note` is called with every inner page and the index of its child on the path.
    #[inline]
    pub(super) fn descend<P: Pages>(
        &self,
        pages: &P,
        toward: Toward<'_>,
        note: impl FnMut(PageId, usize),
    ) -> Result<PageId, Fault> {
        self.descend_from(pages, (self.root, None), toward, note)
    }

    /// As [`descend`](Tree::descend), from an inner page on, whose level may be known.
    #[inline]
    pub(super) fn descend_from<P: Pages>(
        &self,
        pages: &P,
        (mut page, mut expected): (PageId, Option<u8>),
        toward: Toward<'_>,
        mut note: impl FnMut(PageId, usize),
    ) -> Result<PageId, Fault> {
        loop {
            let step = pages.inner(page, |words| {
                let inner = InnerPage::of(words, self.id)?;
                if expected.is_some_and(|level| level != inner.level) {
                    return None;
                }
                let index = inner.position(toward)?;
                Some((inner.child(index)?, index, inner.level))
            });
            let (child, index, level) = match step {
                Ok(Some(step)) => step,
                Ok(None) => return Err(Fault { page, error: None }),
                Err(error) => return Err(Fault { page, error: Some(error) }),
            };
            note(page, index);
            if level == 1 {
                return Ok(child);
            }
            (page, expected) = (child, Some(level - 1));
        }
    }
}
