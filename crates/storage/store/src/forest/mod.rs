//! [`Forest`]: all trees of a store by their ids, over the page cache.
//!
//! ```text
//!   superblock --> roots: a tree of trees, id (big-endian) -> page of the root (little-endian)
//!                    |
//!                    +-- 0: the catalog   +-- 1 ..: the interpreter's   +-- 1001 ..: transactions'
//! ```
//!
//! A tree is created when its first key is put, and a tree that does not exist is empty. Roots never move, so the
//! result of a lookup stays valid until the tree is dropped.
//!
//! Invariant: only the applier changes trees, and the roots with them; a checkpoint begins under the applier's lock.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::RwLock;

use crate::cache::{Cache, Hint, ReadAhead, ScanReader, ahead_bytes_max};
use crate::catalog::{CATALOG, ROOTS};
use crate::damage::{Quarantined, range_shown, shown};
use crate::page::PageId;
use crate::pages::Pages;
use crate::range::{Direction, Span};
use crate::space::Space;
use crate::space::devices::DataDevices;
use crate::tree::{Broken, Cell, Hole, LeafBlock, LeafRun, NewValue, Stored, Tree, TreeWriter};
use crate::{Lsn, StoreError, TreeId};

/// See the head comment of this file.
#[derive(Debug)]
pub(crate) struct Forest {
    pub(crate) cache: Arc<Cache>,
    roots: Tree,
    trees: RwLock<HashMap<TreeId, Known, foldhash::fast::FixedState>>,
    data_devices: Arc<DataDevices>,
    /// Trees in which no hole may be made, in addition to the store's own. Unset: all.
    vital: OnceLock<HashSet<TreeId>>,
}

/// The largest number of leaves that are loaded of one range.
const RANGE_LEAVES: usize = 8;

/// How often the leaves of a part are looked up if the tree changes meanwhile.
const PART_TRIES: usize = 24;

/// A tree that has pages.
#[derive(Clone, Copy, Debug)]
struct Known {
    tree: Tree,
    /// The record that dropped it: older snapshots can still read it.
    dropped: Option<u64>,
}

impl Known {
    fn new(tree: Tree) -> Known {
        Known { tree, dropped: None }
    }
}

impl Forest {
    /// Opens the forest whose tree of roots has its root at that page; creates a new one for page 0.
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
                let damaged = || block.corrupt(at, "is not a tree and its root");
                let id = u32::from_be_bytes(block.key(at).try_into().map_err(|_| damaged())?);
                let root = u32::from_le_bytes(block.stored(at).bytes().try_into().map_err(|_| damaged())?);
                trees.insert(TreeId(id), Known::new(Tree { root: PageId(root), id: TreeId(id) }));
            }
            left = span.split(&block.low, &block.high, Direction::Forward).1;
        }
        Ok(Forest { cache, roots, trees: RwLock::new(trees), data_devices, vital: OnceLock::new() })
    }

    /// Sets the trees in which no hole may be made, in addition to the store's own. Called once.
    pub(crate) fn set_vital(&self, trees: HashSet<TreeId>) {
        let _ = self.vital.set(trees);
    }

    fn is_vital(&self, tree: TreeId) -> bool {
        tree == ROOTS || tree == CATALOG || self.vital.get().is_none_or(|vital| vital.contains(&tree))
    }

    /// The root page of the tree of roots, for the superblock.
    pub(crate) fn root(&self) -> PageId {
        self.roots.root
    }

    /// All existing trees, by id.
    pub(crate) fn trees(&self) -> Vec<Tree> {
        let mut trees: Vec<Tree> = self.trees.read().values().map(|known| known.tree).collect();
        trees.sort_unstable_by_key(|tree| tree.id);
        trees
    }

    /// The tree of trees.
    pub(crate) fn roots(&self) -> Tree {
        self.roots
    }

    /// Whether the tree is the one of that id, and was not dropped.
    pub(crate) fn is_live(&self, tree: Tree) -> bool {
        let is_it = |known: &Known| known.tree == tree && known.dropped.is_none();
        tree == self.roots || self.trees.read().get(&tree.id).is_some_and(is_it)
    }

    fn tree(&self, id: TreeId) -> Option<Tree> {
        self.trees.read().get(&id).map(|known| known.tree)
    }

    /// The tree as a snapshot at `at` sees it.
    fn seen(&self, id: TreeId, at: u64) -> Option<Tree> {
        self.trees.read().get(&id).filter(|known| known.dropped.is_none_or(|lsn| at < lsn)).map(|known| known.tree)
    }

    /// Hides the tree from snapshots from `lsn` on. Applier only.
    pub(crate) fn hide(&self, id: TreeId, lsn: u64) {
        if let Some(known) = self.trees.write().get_mut(&id) {
            known.dropped = Some(lsn);
        }
    }

    /// Returns the value of a key, and the last change of its leaf, for a snapshot at `at`. A tree that does not exist
    /// was never changed, or was dropped.
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], at: u64) -> Result<(Option<Cell>, u64), StoreError> {
        match self.seen(tree, at) {
            Some(tree) => tree.get(&*self.cache, key).map(|(cell, lsn)| (cell, lsn.0)),
            None => Ok((None, u64::MAX)),
        }
    }

    /// The cells of one leaf in a range; `None` for a tree that does not exist.
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

    /// Loads the leaf with the smallest key of a span and the leaves after it, `most` at most; returns how many they are, 0
    /// if that is unknown. For a scan, which reads them next.
    pub(crate) fn read_ahead(&self, tree: TreeId, span: &Span, most: usize, at: u64, ahead: &mut ReadAhead) -> usize {
        let most = most.min(ahead_bytes_max(&self.cache) / self.cache.page_bytes());
        let leaves = self.seen(tree, at).and_then(|tree| tree.leaves_from(&*self.cache, &span.from, &span.to, most));
        let leaves = leaves.map_or_else(Vec::new, |run| run.leaves);
        ahead.leaves(&self.cache, &leaves);
        leaves.len()
    }

    /// Loads the leaves with the keys from `from` on, and the values of wanted keys that lie in extents, as much as may be
    /// read ahead. Returns the key where that ends, empty for the end of the tree; none if the tree cannot be read, or
    /// changes too fast.
    pub(crate) fn load_part(
        &self,
        tree: TreeId,
        from: &[u8],
        at: u64,
        ahead: &mut ReadAhead,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<Bytes> {
        let tree = self.seen(tree, at)?;
        let most = ahead_bytes_max(&self.cache);
        let leaves = (most / self.cache.page_bytes()).max(1);
        let LeafRun { mut leaves, behind, mut end } =
            (0..PART_TRIES).find_map(|_| tree.leaves_from(&*self.cache, from, &[], leaves))?;
        // What belongs to the last key of the part may be in the next leaf.
        leaves.extend(behind);
        ahead.leaves(&self.cache, &leaves);
        let (mut extents, mut bytes) = (Vec::new(), 0);
        for page in &leaves[..leaves.len() - usize::from(behind.is_some())] {
            // The cursor that reads it reports the damage.
            let Ok(leaf) = self.cache.read_with(*page, Hint::Scan) else { continue };
            let is_whole = tree.each_long(&leaf, from, |key, list| {
                let size: usize = list.iter().map(|extent| extent.bytes as usize).sum();
                // A longer value needs a large read anyway: that is left to the cursor.
                if !is_wanted(key) || size > most {
                    return true;
                }
                if bytes + size > most && key > from {
                    end = Bytes::copy_from_slice(key);
                    return false;
                }
                bytes += size;
                extents.extend_from_slice(list);
                true
            });
            if !is_whole {
                break;
            }
        }
        ahead.extents(&self.cache, &extents);
        Some(end)
    }

    /// Loads the leaves of ranges of keys (each from the first inclusive to the second exclusive, in order), and the values
    /// in them that lie in extents: of the first ranges, as many as may be read ahead, at least one. Returns how many.
    pub(crate) fn load_ranges(&self, tree: TreeId, ranges: &[(&[u8], &[u8])], at: u64, ahead: &mut ReadAhead) -> usize {
        let Some(tree) = self.seen(tree, at) else { return ranges.len() };
        let most = ahead_bytes_max(&self.cache);
        let (mut leaves, mut loaded, mut end) = (Vec::new(), 0, Bytes::new());
        for (from, to) in ranges {
            if loaded > 0 && leaves.len() * self.cache.page_bytes() >= most {
                break;
            }
            loaded += 1;
            // It is nearly always in the leaf of the previous one.
            if leaves.is_empty() || !end.is_empty() && *end < **to {
                let from = if leaves.is_empty() { from } else { (*from).max(&end) };
                let Some(run) = tree.leaves_from(&*self.cache, from, to, RANGE_LEAVES) else { continue };
                leaves.extend_from_slice(&run.leaves);
                end = run.end;
            }
        }
        ahead.leaves(&self.cache, &leaves);
        let (mut extents, mut bytes) = (Vec::new(), 0);
        let mut left = &ranges[..loaded];
        for page in leaves {
            let Ok(leaf) = self.cache.read_with(page, Hint::Scan) else { continue };
            tree.each_long(&leaf, left.first().map_or(&[], |range| range.0), |key, list| {
                while left.first().is_some_and(|range| range.1 <= key) {
                    left = &left[1..];
                }
                let size: usize = list.iter().map(|extent| extent.bytes as usize).sum();
                if left.first().is_some_and(|range| range.0 <= key) && bytes + size <= most {
                    bytes += size;
                    extents.extend_from_slice(list);
                }
                !left.is_empty()
            });
        }
        ahead.extents(&self.cache, &extents);
        loaded
    }

    /// Where a tree cannot be read, on the path to a range; `None` if it can. Errors: those that are not damage.
    pub(crate) fn broken(&self, tree: TreeId, span: &Span, direction: Direction) -> Result<Option<Broken>, StoreError> {
        match self.tree(tree) {
            // One attempt only: the caller has already had the error, and readers must not wait for each other.
            Some(tree) => tree.broken(&*self.cache, (&span.from, &span.to), direction, 1),
            None => Ok(None),
        }
    }

    /// Reads the value of a cell of a tree.
    pub(crate) fn value(&self, tree: TreeId, cell: &Cell, hint: Hint) -> Result<Bytes, StoreError> {
        if let Cell::Large(extents) = cell {
            self.cache.note_value(tree.0, extents);
        }
        match hint {
            Hint::Point => cell.read(&*self.cache),
            Hint::Scan => cell.read(&ScanReader(&self.cache)),
        }
    }

    /// Frees a value that no thread reads any more.
    pub(crate) fn free(&self, cell: &Cell) {
        cell.free(&*self.cache);
    }

    /// Marks a value that no longer belongs to the state, although snapshots may still read it. Applier only.
    pub(crate) fn mark_pending_free(&self, cell: &Cell, space: &Space) {
        if let Cell::Large(extents) = cell {
            let page_bytes = self.cache.whole_page_bytes();
            extents.iter().for_each(|extent| space.mark_pending_free(extent.first, extent.pages(page_bytes)));
        }
    }

    /// Returns a writer for a tree. Applier only.
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

    /// Records the page that a hole replaces, and the new root if the root was lost.
    fn take_hole(&self, tree: Tree, hole: &Hole, lsn: Lsn) -> Result<Tree, StoreError> {
        let Hole { broken, root } = hole;
        let keys = range_shown(&broken.low, &broken.high);
        let why = format!("{}: {keys}; changes to these keys go to a new page", broken.error);
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

    /// Frees a tree's pages. Pages that cannot be read are lost space until the allocation map is rebuilt; the tree is
    /// dropped in any case, because it must not prevent the store from opening. Applier only.
    pub(crate) fn drop_tree(&self, id: TreeId, lsn: u64) -> Result<(), StoreError> {
        let Some(Known { tree, .. }) = self.trees.write().remove(&id) else { return Ok(()) };
        let removed = self.roots.writer(&*self.cache).delete(&id.0.to_be_bytes(), Lsn(lsn));
        let dropped = match removed {
            // The next opening finds it, and finds that no name refers to it.
            Err(error @ StoreError::Full(_)) => Err(error),
            removed => removed.map(|_| tree.drop_all(&*self.cache))?,
        };
        match dropped {
            Err(error @ (StoreError::Corrupt(_) | StoreError::Device(_) | StoreError::Full(_))) => {
                tracing::warn!(tree = id.0, %error, "pages of a dropped tree are not reused");
                Ok(())
            }
            done => done,
        }
    }
}

/// Largest number of damaged pages that one change may find: those on the path, and the leaf.
const HOLES_A_CHANGE: usize = 16;

/// Changes one tree.
pub(crate) struct ForestWriter<'a> {
    forest: &'a Forest,
    writer: TreeWriter<'a, Cache>,
    lsn: Lsn,
}

impl ForestWriter<'_> {
    /// Sets or removes a key; `old` is called with the old value before a reader can see the change. If the path to the
    /// key is damaged, a hole replaces the damaged page, except in a vital tree.
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
                // Called once: a change that is retried finds the same value.
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
        let why = format!("tree {id}: the path to key {} is damaged again at each attempt", shown(key));
        Err(StoreError::Corrupt(why.into()))
    }

    /// Makes a key changeable although the path to it is damaged. Errors: the damage, if a hole is not allowed.
    fn go_round(&mut self, key: &[u8], error: StoreError) -> Result<(), StoreError> {
        let tree = self.writer.tree();
        if self.forest.is_vital(tree.id) {
            let StoreError::Corrupt(why) = &error else { return Err(error) };
            let text = format!(
                "{why}; this tree is vital and cannot be changed without that page: stop the node, and see `terrace repair`"
            );
            return Err(StoreError::Corrupt(why.said(text)));
        }
        // `None`: it could be read after all, and the change is retried.
        if let Some(hole) = self.writer.make_hole(key, self.lsn)? {
            let tree = self.forest.take_hole(tree, &hole, self.lsn)?;
            self.writer = tree.writer(&*self.forest.cache);
        }
        Ok(())
    }

    /// Puts a hole in the place of a page on the path to a key that cannot be read; does nothing if all can be read.
    pub(crate) fn open_hole(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let tree = self.writer.tree();
        match self.writer.make_hole(key, self.lsn)? {
            Some(hole) => self.forest.take_hole(tree, &hole, self.lsn).map(drop),
            None => Ok(()),
        }
    }

    /// Makes the leaf that covers a key a normal leaf, if it is a hole; returns its high fence.
    pub(crate) fn heal(&mut self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.writer.heal(key, self.lsn)
    }
}
