//! [`Forest`]: all trees of a store by their ids, over the page cache.
//!
//! ```text
//!   superblock --> roots: a tree of trees, id (big-endian) -> page of the root (little-endian)
//!                    |
//!                    +-- 0: the catalog   +-- 1 ..: the interpreter's   +-- 1001 ..: transactions'
//! ```
//!
//! A tree is made when its first key is put, and a tree that is not there is empty. Roots never move, so what was once looked
//! up stays true until the tree is dropped.
//!
//! Invariant: only the applier changes trees, and the roots with them; a checkpoint begins under the applier's lock.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::RwLock;

use crate::cache::{Cache, Hint, ScanReader};
use crate::catalog::{CATALOG, ROOTS};
use crate::damage::{Quarantined, range_shown, shown};
use crate::page::PageId;
use crate::pages::Pages;
use crate::range::{Direction, Span};
use crate::space::Space;
use crate::space::devices::DataDevices;
use crate::tree::{Broken, Cell, Hole, LeafBlock, NewValue, Stored, Tree, TreeWriter};
use crate::{Lsn, StoreError, TreeId};

/// See the file's essay.
#[derive(Debug)]
pub(crate) struct Forest {
    pub(crate) cache: Arc<Cache>,
    roots: Tree,
    trees: RwLock<HashMap<TreeId, Known, foldhash::fast::FixedState>>,
    data_devices: Arc<DataDevices>,
    /// Trees in which nothing is given up, beside the store's own. Unset: all.
    vital: OnceLock<HashSet<TreeId>>,
}

/// A tree that has pages.
#[derive(Clone, Copy, Debug)]
struct Known {
    tree: Tree,
    /// The record that dropped it: older snapshots still see it.
    dropped: Option<u64>,
}

impl Known {
    fn new(tree: Tree) -> Known {
        Known { tree, dropped: None }
    }
}

impl Forest {
    /// The forest whose roots' root is at that page; a new one for page 0.
    pub(crate) fn open(cache: Arc<Cache>, data_devices: Arc<DataDevices>, roots: PageId) -> Result<Forest, StoreError> {
        let roots = match roots {
            PageId(0) => Tree::create(&*cache, ROOTS, Lsn::ZERO)?,
            root => Tree { root, id: ROOTS },
        };
        let mut trees = HashMap::default();
        let mut left = Some(Span::all());
        while let Some(span) = left {
            let block = roots.leaf_block(&*cache, &span.from, &span.to, Direction::Forward)?;
            for at in 0..block.len() {
                let damaged = || block.corrupt(at, "holds no tree and its root");
                let id = u32::from_be_bytes(block.key(at).try_into().map_err(|_| damaged())?);
                let root = u32::from_le_bytes(block.stored(at).bytes().try_into().map_err(|_| damaged())?);
                trees.insert(TreeId(id), Known::new(Tree { root: PageId(root), id: TreeId(id) }));
            }
            left = span.split(&block.low, &block.high, Direction::Forward).1;
        }
        Ok(Forest { cache, roots, trees: RwLock::new(trees), data_devices, vital: OnceLock::new() })
    }

    /// Says in which trees nothing may be given up, beside the store's own: said once.
    pub(crate) fn set_vital(&self, trees: HashSet<TreeId>) {
        let _ = self.vital.set(trees);
    }

    fn is_vital(&self, tree: TreeId) -> bool {
        tree == ROOTS || tree == CATALOG || self.vital.get().is_none_or(|vital| vital.contains(&tree))
    }

    /// The page of the roots' root, for the superblock.
    pub(crate) fn root(&self) -> PageId {
        self.roots.root
    }

    /// All trees there are, by id.
    pub(crate) fn trees(&self) -> Vec<Tree> {
        let mut trees: Vec<Tree> = self.trees.read().values().map(|known| known.tree).collect();
        trees.sort_unstable_by_key(|tree| tree.id);
        trees
    }

    fn tree(&self, id: TreeId) -> Option<Tree> {
        self.trees.read().get(&id).map(|known| known.tree)
    }

    /// The tree as a snapshot at `at` sees it.
    fn seen(&self, id: TreeId, at: u64) -> Option<Tree> {
        self.trees.read().get(&id).filter(|known| known.dropped.is_none_or(|lsn| at < lsn)).map(|known| known.tree)
    }

    /// Snapshots from `lsn` on do not see the tree any more. The applier only.
    pub(crate) fn hide(&self, id: TreeId, lsn: u64) {
        if let Some(known) = self.trees.write().get_mut(&id) {
            known.dropped = Some(lsn);
        }
    }

    /// What a key holds, and the last change of its leaf, for a snapshot at `at`. A tree that is not there was never changed, or is
    /// dropped.
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], at: u64) -> Result<(Option<Cell>, u64), StoreError> {
        match self.seen(tree, at) {
            Some(tree) => tree.get(&*self.cache, key).map(|(cell, lsn)| (cell, lsn.0)),
            None => Ok((None, u64::MAX)),
        }
    }

    /// What one leaf has of a range; none for a tree that is not there.
    pub(crate) fn block(
        &self,
        tree: TreeId,
        span: &Span,
        direction: Direction,
        at: u64,
        hint: Hint,
    ) -> Result<Option<LeafBlock>, StoreError> {
        let Some(tree) = self.seen(tree, at) else { return Ok(None) };
        let block = match hint {
            Hint::Point => tree.leaf_block(&*self.cache, &span.from, &span.to, direction),
            Hint::Scan => tree.leaf_block(&ScanReader(&self.cache), &span.from, &span.to, direction),
        };
        block.map(Some)
    }

    /// Where a tree cannot be read, on the way to a range; none where it can. Errors: those that are no damage.
    pub(crate) fn broken(&self, tree: TreeId, span: &Span, direction: Direction) -> Result<Option<Broken>, StoreError> {
        match self.tree(tree) {
            // Whoever asks was told already; and readers must not wait for one another.
            Some(tree) => tree.broken(&*self.cache, (&span.from, &span.to), direction, 1),
            None => Ok(None),
        }
    }

    /// The value of a cell.
    pub(crate) fn value(&self, cell: &Cell, hint: Hint) -> Result<Bytes, StoreError> {
        match hint {
            Hint::Point => cell.read(&*self.cache),
            Hint::Scan => cell.read(&ScanReader(&self.cache)),
        }
    }

    /// Nobody reads it any more.
    pub(crate) fn free(&self, cell: &Cell) {
        cell.free(&*self.cache);
    }

    /// The state no longer has it, though somebody may read it yet. The applier only.
    pub(crate) fn mark_pending_free(&self, cell: &Cell, space: &Space) {
        if let Cell::Large(extents) = cell {
            let page_bytes = self.cache.page_bytes();
            extents.iter().for_each(|extent| space.mark_pending_free(extent.first, extent.pages(page_bytes)));
        }
    }

    /// Begins to change a tree. The applier only.
    pub(crate) fn change(&self, id: TreeId, lsn: u64) -> Result<ForestWriter<'_>, StoreError> {
        let tree = match self.tree(id) {
            Some(tree) => tree,
            None => {
                let tree = Tree::create(&*self.cache, id, Lsn(lsn))?;
                self.roots.writer(&*self.cache).put(&id.0.to_be_bytes(), &tree.root.0.to_le_bytes(), Lsn(lsn))?;
                self.trees.write().insert(id, Known::new(tree));
                tree
            }
        };
        Ok(ForestWriter { forest: self, writer: tree.writer(&*self.cache), lsn: Lsn(lsn) })
    }

    /// Notes what a hole stands for, and where the tree begins now if that is what was lost.
    fn take_hole(&self, tree: Tree, hole: &Hole, lsn: Lsn) -> Result<Tree, StoreError> {
        let Hole { broken, root } = hole;
        let keys = range_shown(&broken.low, &broken.high);
        let why = format!("{}: {keys}; what changes there goes to a new page", broken.error);
        let entry = Quarantined { page: broken.page, pages: 1, tree: tree.id.0.to_string(), why };
        self.data_devices.quarantine().note(entry);
        let Some(root) = *root else { return Ok(tree) };
        let moved = Tree { root, id: tree.id };
        self.roots.writer(&*self.cache).put(&tree.id.0.to_be_bytes(), &root.0.to_le_bytes(), lsn)?;
        if let Some(known) = self.trees.write().get_mut(&tree.id) {
            known.tree = moved;
        }
        Ok(moved)
    }

    /// Gives a tree's pages up. What cannot be read of it is lost space until the allocation map is made anew: the tree is gone
    /// all the same, and must not keep the store from opening. The applier only.
    pub(crate) fn drop_tree(&self, id: TreeId, lsn: u64) -> Result<(), StoreError> {
        let Some(Known { tree, .. }) = self.trees.write().remove(&id) else { return Ok(()) };
        let removed = self.roots.writer(&*self.cache).delete(&id.0.to_be_bytes(), Lsn(lsn));
        let dropped = match removed {
            // The next opening finds it, and that no name leads to it.
            Err(error @ StoreError::Full(_)) => Err(error),
            removed => removed.map(|_| tree.drop_all(&*self.cache))?,
        };
        match dropped {
            Err(error @ (StoreError::Corrupt(_) | StoreError::Device(_) | StoreError::Full(_))) => {
                tracing::warn!(tree = id.0, %error, "pages of a dropped tree are not used again");
                Ok(())
            }
            done => done,
        }
    }
}

/// Damaged pages that one change may meet: the way down, and the leaf.
const HOLES_A_CHANGE: usize = 16;

/// Changes one tree.
pub(crate) struct ForestWriter<'a> {
    forest: &'a Forest,
    writer: TreeWriter<'a, Cache>,
    lsn: Lsn,
}

impl ForestWriter<'_> {
    /// Sets or removes a key; `old` is told what it held, before anybody can see the change. Where the way there is damaged, a
    /// hole takes the place of what is; not in a vital tree.
    pub(crate) fn set(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        old: impl FnOnce(Option<Cell>),
    ) -> Result<(), StoreError> {
        let (mut old, mut damaged) = (Some(old), false);
        for _ in 0..HOLES_A_CHANGE {
            let keep = |stored: Option<Stored<'_>>| match stored.map(Stored::to_cell) {
                Some(None) => damaged = true,
                // Once: a change that is tried again finds the same.
                cell => {
                    if let Some(old) = old.take() {
                        old(cell.flatten());
                    }
                }
            };
            match self.writer.change(key, value.map(NewValue::Bytes), self.lsn, keep) {
                Err(StoreError::Corrupt(why)) if !self.writer.has_begun() => {
                    self.go_round(key, StoreError::Corrupt(why))?
                }
                done => {
                    done?;
                    return if damaged { Err(self.writer.corrupt_old()) } else { Ok(()) };
                }
            }
        }
        let id = self.writer.tree().id.0;
        let why = format!("tree {id}: the way to key {} is damaged anew at each try", shown(key));
        Err(StoreError::Corrupt(why.into()))
    }

    /// Sees to it that a key can be changed though the way to it is damaged. Errors: what is wrong, where that is not to be.
    fn go_round(&mut self, key: &[u8], error: StoreError) -> Result<(), StoreError> {
        let tree = self.writer.tree();
        if self.forest.is_vital(tree.id) {
            let StoreError::Corrupt(why) = &error else { return Err(error) };
            let text =
                format!("{why}; this is a part that is not to be gone round: stop the node, and see `terrace repair`");
            return Err(StoreError::Corrupt(why.said(text)));
        }
        // None: it can be read after all, and the change is tried again.
        if let Some(hole) = self.writer.make_hole(key, self.lsn)? {
            let tree = self.forest.take_hole(tree, &hole, self.lsn)?;
            self.writer = tree.writer(&*self.forest.cache);
        }
        Ok(())
    }

    /// Puts a hole in the place of what cannot be read on the way to a key; nothing where all of it can be.
    pub(crate) fn open_hole(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let tree = self.writer.tree();
        match self.writer.make_hole(key, self.lsn)? {
            Some(hole) => self.forest.take_hole(tree, &hole, self.lsn).map(drop),
            None => Ok(()),
        }
    }

    /// Makes the leaf that covers a key no hole any more, if it is one; answers where it ends.
    pub(crate) fn heal(&mut self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.writer.heal(key, self.lsn)
    }
}
