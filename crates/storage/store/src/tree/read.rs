//! Reading: descending without latches, looking in one latched leaf, starting again where the writer came in between.
//!
//! The writer may split, move and free nodes while a reader descends, and a page may belong to another tree by the time the
//! reader comes to it. What decides is the leaf: under its latch its tree, kind and fences say whether it is the one. A leaf
//! that was unlinked is no leaf any more before its page is free, so a leaf that fits is always the current one.
//!
//! Between two states of the tree there is none in which a descent from the root cannot succeed. So a reader that fails at
//! the same page again and again has met damage, not the writer.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::inner::{InnerPage, Toward};
use super::leaf::{EXTENTS_DAMAGED, LARGE, Leaf};
use super::value::{Cell, Stored};
use super::{Direction, Tree};
use crate::page::PageId;
use crate::pages::Pages;
use crate::{Lsn, StoreError};

/// So often may the same page disappoint in a row before it counts as damaged.
const SAME_PAGE_MAX: u32 = 24;
/// So often a read starts again at most.
const RESTARTS_MAX: u32 = 1 << 16;

/// Why a descent ended without the leaf.
pub(super) struct Fault {
    pub(super) page: PageId,
    pub(super) error: Option<StoreError>,
}

/// Counts how often a read started again.
pub(super) struct Restarts {
    all: u32,
    same: u32,
    page: Option<PageId>,
}

impl Restarts {
    pub(super) fn new() -> Restarts {
        Restarts { all: 0, same: 0, page: None }
    }

    /// Waits a little before the next try. Errors: what the fault says, where it is no passing one.
    fn again(&mut self, tree: Tree, fault: Fault) -> Result<(), StoreError> {
        if let Some(error) = &fault.error
            && !matches!(error, StoreError::Corrupt(_))
        {
            return Err(error.clone());
        }
        // A drive may try for seconds each time.
        let is_slow = matches!(&fault.error, Some(StoreError::Corrupt(damage)) if damage.is_unreadable());
        let step = if is_slow { SAME_PAGE_MAX / 3 } else { 1 };
        self.all += 1;
        self.same = if self.page == Some(fault.page) { self.same + step } else { 0 };
        self.page = Some(fault.page);
        if self.same >= SAME_PAGE_MAX || self.all >= RESTARTS_MAX {
            return Err(fault.error.unwrap_or_else(|| tree.corrupt(fault.page, "does not fit where it hangs")));
        }
        match self.same {
            0..4 => std::hint::spin_loop(),
            4..12 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(100)),
        }
        Ok(())
    }
}

/// What one leaf has of a range, copied out.
#[derive(Clone, Debug)]
pub struct LeafBlock {
    bytes: Bytes,
    entries: Vec<Entry>,
    /// The slot of each entry where slots are left out, as in holes; else empty, and the first entry's is `begin`.
    slots: Vec<u16>,
    begin: usize,
    tree: Tree,
    /// The leaf's low fence: no key of it is less; empty is no bound.
    pub low: Bytes,
    /// The leaf's high fence: every key of it is less; empty is no bound.
    pub high: Bytes,
    /// Position of the last record that changed the leaf.
    pub lsn: Lsn,
    /// Its page.
    pub page: PageId,
    /// It stands for a page that was lost: between its fences there may be more keys.
    pub is_hole: bool,
}

/// Where an entry is in the block's bytes: key, then value.
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

    /// The same without a copy of its bytes, which keep the whole block in memory.
    pub fn key_bytes(&self, index: usize) -> Bytes {
        self.bytes.slice(self.entries[index].key())
    }

    /// The value of an entry as the cell had it. Panics at [`len`](LeafBlock::len).
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

    /// Damage of an entry: what is wrong with it, and its tree, page and slot.
    pub(crate) fn corrupt(&self, index: usize, what: &str) -> StoreError {
        let slot = self.slots.get(index).map_or(self.begin + index, |slot| usize::from(*slot));
        self.tree.corrupt_slot(self.page, slot, what)
    }

    fn of(tree: Tree, page: PageId, leaf: Leaf<'_>, from: &[u8], to: &[u8]) -> Option<LeafBlock> {
        let begin = leaf.rank(from)?;
        let end = if to.is_empty() { leaf.count() } else { leaf.rank(to)? };
        let count = end.saturating_sub(begin);
        let prefix = leaf.prefix();
        // Counted first: the block is as large as it must be, and the cells' lines are asked for all at once.
        let mut cells = 0;
        for at in begin..end {
            let (suffix, value) = leaf.cell(at)?;
            cells += 2 + suffix.len() + value.bytes().len();
        }
        // Cells of a damaged leaf may overlap; those of a sound one fit in its page together.
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
    /// The value of a key, copied out of its leaf, with the position of the last record that changed that leaf. Any thread.
    /// Errors: [`StoreError::Corrupt`], [`StoreError::Device`].
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

    /// The same without a copy: `look` sees the value where it is, while the leaf is latched, so it must be quick.
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

    /// What one leaf has of the keys from `from` (inclusive) to `to` (exclusive; empty is no bound): the leaf with the least
    /// of them going forward, with the greatest going backward. Any thread.
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

    /// Goes to a leaf and looks at it under its latch.
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

    /// Goes down to a leaf; `note` hears of every inner page and which child was taken.
    #[inline]
    pub(super) fn descend<P: Pages>(
        &self,
        pages: &P,
        toward: Toward<'_>,
        note: impl FnMut(PageId, usize),
    ) -> Result<PageId, Fault> {
        self.descend_from(pages, (self.root, None), toward, note)
    }

    /// The same from an inner page on, whose level may be known.
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
