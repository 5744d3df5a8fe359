//! [`TreeWriter`]: puts and deletes, with a finger on the last leaf.
//!
//! The finger is the leaf of the last change, with its fences and the path to it. A key between the fences goes to that
//! leaf without a descent, so sorted changes cost little more than their bytes. No latch is held between changes, so
//! readers can proceed. The finger remains valid because only this writer changes the tree.
//!
//! Each change passes the old cell to `keep` under the leaf's latch before anything is replaced: so an old version is
//! in place before a reader can see the new value.
//!
//! Errors `Refused` and `Full` leave the tree unchanged. After any other error the change may be partly in the tree:
//! the tree must not be changed any more until it is reopened, and the caller must poison the store.

use super::inner::Toward;
use super::leaf::{EXTENTS_DAMAGED, Leaf};
use super::value::{self, Cell, NewValue, Stored};
use super::{Tree, edit};
use crate::page::{Extent, PageId};
use crate::pages::Pages;
use crate::{KEY_BYTES_MAX, Lsn, StoreError};

/// Changes one tree. Dropping it discards only the finger.
pub struct TreeWriter<'p, P: Pages> {
    pub(super) pages: &'p P,
    pub(super) tree: Tree,
    finger: Finger,
    pub(super) run: InsertRun,
    /// A copy of the leaf that is being split.
    pub(super) scratch: Vec<u8>,
    /// The current change has modified an inner page.
    pub(super) begun: bool,
    /// The page and slot where the last change found its key.
    found: (PageId, usize),
}

/// The leaf of the last change.
#[derive(Default)]
struct Finger {
    /// `None` if the next change has to descend.
    leaf: Option<PageId>,
    low: Vec<u8>,
    high: Vec<u8>,
    /// Inner pages from the root down, with the index of the child on the path.
    path: Vec<(PageId, usize)>,
}

/// Consecutive insertions.
#[derive(Clone, Copy, Default)]
pub(super) struct InsertRun {
    pub(super) leaf: PageId,
    /// Slot of the last one.
    pub(super) index: usize,
    /// Their number.
    pub(super) length: u32,
}

impl InsertRun {
    fn insert(&mut self, leaf: PageId, index: usize) {
        let follows = self.leaf == leaf && index == self.index + 1;
        *self = InsertRun { leaf, index, length: if follows { self.length + 1 } else { 0 } };
    }
}

/// A change of one key in a leaf.
#[derive(Clone, Copy)]
pub(super) struct KeyChange<'a> {
    /// The slot to replace, or the one to insert at.
    pub(super) at: Result<usize, usize>,
    pub(super) key: &'a [u8],
    pub(super) value: Stored<'a>,
    pub(super) lsn: u64,
}

impl<'p, P: Pages> TreeWriter<'p, P> {
    pub(super) fn new(tree: Tree, pages: &'p P) -> TreeWriter<'p, P> {
        TreeWriter {
            pages,
            tree,
            finger: Finger::default(),
            run: InsertRun::default(),
            scratch: Vec::new(),
            begun: false,
            found: (PageId(0), 0),
        }
    }

    /// The tree that it changes.
    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// Sets a key; returns the old cell, whose extents then belong to the caller. Errors: see
    /// [`change`](TreeWriter::change).
    pub fn put(&mut self, key: &[u8], value: &[u8], at: Lsn) -> Result<Option<Cell>, StoreError> {
        self.change_for_old(key, Some(NewValue::Bytes(value)), at)
    }

    /// Removes a key; returns the old cell, whose extents then belong to the caller. Errors: see
    /// [`change`](TreeWriter::change).
    pub fn delete(&mut self, key: &[u8], at: Lsn) -> Result<Option<Cell>, StoreError> {
        self.change_for_old(key, None, at)
    }

    fn change_for_old(&mut self, key: &[u8], value: Option<NewValue<'_>>, at: Lsn) -> Result<Option<Cell>, StoreError> {
        let mut old = None;
        self.change(key, value, at, |stored| old = stored.map(Stored::to_cell))?;
        match old {
            Some(None) => Err(self.corrupt_old()),
            old => Ok(old.flatten()),
        }
    }

    /// The error for the cell that the last change replaced: its list of extents cannot be decoded.
    pub(crate) fn corrupt_old(&self) -> StoreError {
        self.tree.corrupt_slot(self.found.0, self.found.1, EXTENTS_DAMAGED)
    }

    /// Sets or removes a key of 1 to [`KEY_BYTES_MAX`] bytes. `keep` is called once with the old cell, or `None`, under
    /// the leaf's latch, before a reader can see the change; it must be fast. It may be called although the change then
    /// fails. The extents of the old cell are not freed: `keep` is responsible for them.
    ///
    /// Errors: [`StoreError::Refused`] for a key or value that is too long, [`StoreError::Full`]: nothing was changed.
    /// After any other error the tree must not be changed any more.
    pub fn change(
        &mut self,
        key: &[u8],
        value: Option<NewValue<'_>>,
        at: Lsn,
        keep: impl FnOnce(Option<Stored<'_>>),
    ) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(StoreError::Refused(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len()).into()));
        }
        self.begun = false;
        match value {
            None => self.remove(key, at.0, keep),
            Some(NewValue::Extents(extents)) => {
                let list = value::encode(extents);
                if extents.is_empty() || extents.len() > value::VALUE_EXTENTS_MAX {
                    return Err(StoreError::Refused(format!("a value cannot have {} extents", extents.len()).into()));
                }
                self.set(key, Stored::Large(&list), at.0, keep)
            }
            Some(NewValue::Bytes(bytes))
                if bytes.len() <= value::inline_bytes_max(self.pages.page_bytes(), key.len()) =>
            {
                self.set(key, Stored::Inline(bytes), at.0, keep)
            }
            Some(NewValue::Bytes(bytes)) => {
                let extents = value::store_value(self.pages, bytes)?;
                let made = |extent: &Extent| self.pages.made(extent.first, extent.bytes as usize, self.tree.id);
                extents.iter().for_each(made);
                let set = self.set(key, Stored::Large(&value::encode(&extents)), at.0, keep);
                if set.is_err() && !self.begun {
                    extents.into_iter().for_each(|extent| self.pages.free_extent(extent));
                }
                set
            }
        }
    }

    fn set(
        &mut self,
        key: &[u8],
        value: Stored<'_>,
        lsn: u64,
        keep: impl FnOnce(Option<Stored<'_>>),
    ) -> Result<(), StoreError> {
        let (page, mut bytes) = self.seek(key)?;
        let leaf = self.leaf(page, &bytes)?;
        let tree = self.tree;
        let damaged = || tree.corrupt_leaf(page, &bytes);
        let suffix = key.strip_prefix(leaf.prefix());
        let at = leaf.find(key).ok_or_else(damaged)?;
        let held = leaf.held(at, page).ok_or_else(damaged)?;
        let fits = match at {
            Ok(index) => {
                self.found = (page, index);
                keep(held);
                edit::overwrite(&mut bytes, index, value)
            }
            Err(index) => {
                keep(held);
                self.run.insert(page, index);
                suffix.map_or(Some(false), |suffix| edit::insert(&mut bytes, index, (&[], suffix), value))
            }
        };
        if fits.ok_or_else(|| tree.corrupt_leaf(page, &bytes))? {
            edit::set_lsn(&mut bytes, lsn);
            return Ok(());
        }
        let path = std::mem::take(&mut self.finger.path);
        let done = match self.rebuild(page, bytes, &path, KeyChange { at, key, value, lsn }) {
            // The space ran out when a part of the change was already in place.
            Err(StoreError::Full(cause)) if self.begun => Err(StoreError::Poisoned { cause }),
            done => done,
        };
        self.finger.path = path;
        // Whatever the result, the fences may have changed.
        self.finger.leaf = None;
        done
    }

    fn remove(&mut self, key: &[u8], lsn: u64, keep: impl FnOnce(Option<Stored<'_>>)) -> Result<(), StoreError> {
        let (page, mut bytes) = self.seek(key)?;
        let leaf = self.leaf(page, &bytes)?;
        if leaf.is_hole {
            // The key stays in the hole as known to be absent.
            drop(bytes);
            return self.set(key, Stored::Absent, lsn, keep);
        }
        let tree = self.tree;
        let damaged = || tree.corrupt_leaf(page, &bytes);
        let Ok(index) = leaf.find(key).ok_or_else(damaged)? else {
            keep(None);
            return Ok(());
        };
        self.found = (page, index);
        keep(Some(leaf.cell(index).ok_or_else(damaged)?.1));
        let left = edit::remove(&mut bytes, index);
        let left = left.ok_or_else(|| tree.corrupt_leaf(page, &bytes))?;
        edit::set_lsn(&mut bytes, lsn);
        self.run = InsertRun::default();
        if left > 0 {
            return Ok(());
        }
        let path = std::mem::take(&mut self.finger.path);
        self.finger.leaf = None;
        let done = self.unlink(page, bytes, &path, lsn);
        self.finger.path = path;
        done
    }

    /// Discards the finger: the path may have changed.
    pub(super) fn forget(&mut self) {
        self.finger = Finger::default();
    }

    /// Latches the leaf of a key and puts the finger on it.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<(PageId, P::Write<'p>), StoreError> {
        let finger = &mut self.finger;
        if let Some(page) = finger.leaf
            && *finger.low <= *key
            && (finger.high.is_empty() || *key < *finger.high)
        {
            return Ok((page, self.pages.write(page)?));
        }
        finger.leaf = None;
        finger.path.clear();
        let path = &mut finger.path;
        let found = self.tree.descend(self.pages, Toward::At(key), |page, child| path.push((page, child)));
        let page = found.map_err(|fault| {
            fault.error.unwrap_or_else(|| self.tree.corrupt(fault.page, "does not match its parent"))
        })?;
        let bytes = self.pages.write(page)?;
        let leaf = Leaf::of(&bytes, self.tree.id).filter(|leaf| leaf.covers(key));
        let leaf = leaf.ok_or_else(|| self.tree.corrupt(page, "its fences do not match its parent"))?;
        finger.low.clear();
        finger.low.extend_from_slice(leaf.low);
        finger.high.clear();
        finger.high.extend_from_slice(leaf.high);
        finger.leaf = Some(page);
        Ok((page, bytes))
    }

    fn leaf<'b>(&self, page: PageId, bytes: &'b [u8]) -> Result<Leaf<'b>, StoreError> {
        Leaf::of(bytes, self.tree.id).ok_or_else(|| self.tree.corrupt(page, "is not a leaf of this tree"))
    }
}
