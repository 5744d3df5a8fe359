//! [`TreeWriter`]: puts and deletes, with a finger on the last leaf.
//!
//! The finger is the leaf of the last change with its fences and the path to it. A key between the fences goes to that leaf
//! without a descent, so sorted changes cost little more than their bytes. No latch is held between changes, so readers get
//! in; what the finger says stays true because only this writer changes the tree.
//!
//! Each change hands the old cell to `keep` under the leaf's latch before anything is replaced: whoever keeps old versions
//! has them in place before a reader can see the new one.
//!
//! Errors of `Refused` and `Full` leave the tree as it was. After another error the change may be there in part: the tree
//! must not be changed any more before it was reopened, and the store has to be poisoned.

use super::inner::Toward;
use super::leaf::{EXTENTS_DAMAGED, Leaf};
use super::value::{self, Cell, NewValue, Stored};
use super::{Tree, edit};
use crate::page::PageId;
use crate::pages::Pages;
use crate::{KEY_BYTES_MAX, Lsn, StoreError};

/// Changes one tree. Dropping it forgets only the finger.
pub struct TreeWriter<'p, P: Pages> {
    pub(super) pages: &'p P,
    pub(super) tree: Tree,
    finger: Finger,
    pub(super) run: InsertRun,
    /// A copy of the leaf that is being cut.
    pub(super) scratch: Vec<u8>,
    /// An inner page was changed by the change that is under way.
    pub(super) begun: bool,
    /// Where the last change found its key.
    found: (PageId, usize),
}

/// The leaf of the last change.
#[derive(Default)]
struct Finger {
    /// None where the next change has to descend.
    leaf: Option<PageId>,
    low: Vec<u8>,
    high: Vec<u8>,
    /// Inner pages from the root down, with the child taken.
    path: Vec<(PageId, usize)>,
}

/// Insertions right behind one another.
#[derive(Clone, Copy, Default)]
pub(super) struct InsertRun {
    pub(super) leaf: PageId,
    /// Slot of the last one.
    pub(super) index: usize,
    /// How many.
    pub(super) length: u32,
}

impl InsertRun {
    fn insert(&mut self, leaf: PageId, index: usize) {
        let follows = self.leaf == leaf && index == self.index + 1;
        *self = InsertRun { leaf, index, length: if follows { self.length + 1 } else { 0 } };
    }
}

/// What a change wants to put into a leaf.
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

    /// The tree it changes.
    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// Sets a key; answers the cell it had. Its extents belong to the caller then. Errors: see
    /// [`change`](TreeWriter::change).
    pub fn put(&mut self, key: &[u8], value: &[u8], at: Lsn) -> Result<Option<Cell>, StoreError> {
        self.change_for_old(key, Some(NewValue::Bytes(value)), at)
    }

    /// Removes a key; answers the cell it had. Its extents belong to the caller then. Errors: see
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

    /// Damage of the cell that the last change replaced: its list of extents cannot be decoded.
    pub(crate) fn corrupt_old(&self) -> StoreError {
        self.tree.corrupt_slot(self.found.0, self.found.1, EXTENTS_DAMAGED)
    }

    /// Sets or removes a key of 1 to [`KEY_BYTES_MAX`] bytes. `keep` is called once with the old cell, or none, under the
    /// leaf's latch, before anybody can see the change; it must be quick. It may be called although the change then fails.
    /// Extents of the old cell are not freed: that is up to whoever kept it.
    ///
    /// Errors: [`StoreError::Refused`] for a key or value too long, [`StoreError::Full`]: nothing was changed.
    /// All others: the tree must not be changed any more.
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
            // No room when a part of the change was already in place.
            Err(StoreError::Full(cause)) if self.begun => Err(StoreError::Poisoned { cause }),
            done => done,
        };
        self.finger.path = path;
        // Whatever happened, the fences may be others now.
        self.finger.leaf = None;
        done
    }

    fn remove(&mut self, key: &[u8], lsn: u64, keep: impl FnOnce(Option<Stored<'_>>)) -> Result<(), StoreError> {
        let (page, mut bytes) = self.seek(key)?;
        let leaf = self.leaf(page, &bytes)?;
        if leaf.is_hole {
            // It stays there as known to be absent.
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

    /// Takes the finger off: the way down may be another.
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
            fault.error.unwrap_or_else(|| self.tree.corrupt(fault.page, "does not fit where it hangs"))
        })?;
        let bytes = self.pages.write(page)?;
        let leaf = Leaf::of(&bytes, self.tree.id).filter(|leaf| leaf.covers(key));
        let leaf = leaf.ok_or_else(|| self.tree.corrupt(page, "its fences do not fit where it hangs"))?;
        finger.low.clear();
        finger.low.extend_from_slice(leaf.low);
        finger.high.clear();
        finger.high.extend_from_slice(leaf.high);
        finger.leaf = Some(page);
        Ok((page, bytes))
    }

    fn leaf<'b>(&self, page: PageId, bytes: &'b [u8]) -> Result<Leaf<'b>, StoreError> {
        Leaf::of(bytes, self.tree.id).ok_or_else(|| self.tree.corrupt(page, "is no leaf of it"))
    }
}
