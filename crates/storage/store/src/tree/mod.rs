//! Ordered trees of keys and values in pages: a B+tree with one writer and many readers.
//!
//! ```text
//!                    root (always an inner page, always the same page)
//!                 /            |            \
//!            inner           inner          inner       images of words, read without latches (inner, node)
//!           /  |  \          /  \           /   \
//!        leaf leaf leaf   leaf  leaf     leaf  leaf     slots and cells under latches (leaf, edit)
//!                           |
//!                        extents                        long values, outside the tree (value)
//! ```
//!
//! - `read`: descents, get, blocks of a leaf for cursors.   - `write`: the writer with its finger.
//! - `split`: leaves and inner pages that became too full.  - `shrink`: leaves that became empty, collapse, drop.
//! - `renew`: marks pages as changed that stay as they are, for rewriting.
//! - `hole`: a leaf in the place of a page that cannot be read.
//! - `check`: walks a whole tree and reports every fault.
//!
//! Invariants:
//!
//! 1. A tree is identified by its root page and its id, and neither ever changes. The root is an inner page from the
//!    beginning, even over a single leaf; when it is too full, its halves become new pages below it. So no other part
//!    of the store has to follow a new root.
//! 2. All leaves have level 0; the children of an inner page have one level less than it. The fences of the leaves join
//!    without gaps, from the empty key to no bound.
//! 3. One thread changes a tree at a time. After each single step of a change (an image put in place, a latch
//!    released), a descent from the root finds for every key the right leaf, or a leaf whose latch the writer holds.
//! 4. A leaf that is unlinked is made invalid under its latch before its page is freed. So a leaf that has the tree's
//!    id and covers a key is the leaf of that key.
//!
//! A tree has no transactions and no old versions (the writer's caller receives each old cell before it is replaced),
//! writes no journal, and does not merge leaves that are not empty.

mod check;
mod edit;
mod hole;
mod inner;
mod leaf;
mod node;
mod read;
mod renew;
mod shrink;
mod split;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use crate::range::Direction;
pub use check::{Report, Visited};
pub use hole::{Broken, Hole};
pub use read::LeafBlock;
pub(crate) use read::LeafRun;
pub(crate) use renew::{Way, renew, way_to};
pub(crate) use value::VALUE_EXTENTS_MAX;
pub(crate) use value::lost;
pub use value::{Cell, NewValue, Stored, VALUE_BYTES_MAX, inline_bytes_max, store_value};
pub use write::TreeWriter;

use crate::damage::Damage;
use crate::page::PageId;
use crate::pages::Pages;
use crate::{Lsn, StoreError, TreeId};

/// A tree: the page of its root, and the id that all its pages have. Both stay the same while the tree exists, so this
/// can be copied and kept anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    /// The page of the root.
    pub root: PageId,
    /// The id in the header of every page.
    pub id: TreeId,
}

impl Tree {
    /// Creates an empty tree of two pages. Writer only. Errors: [`StoreError::Full`].
    pub fn create<P: Pages>(pages: &P, id: TreeId, at: Lsn) -> Result<Tree, StoreError> {
        let (leaf, mut page) = pages.create_leaf()?;
        pages.made(leaf, page.len(), id);
        edit::format(&mut page, id, at.0, &[], &[]);
        drop(page);
        let mut image = vec![0; pages.page_bytes()];
        let fits = node::Node::over(1, leaf).write(0..0, &mut image, id, at.0);
        debug_assert!(fits.is_some(), "one child fits in any page");
        let root = pages.create_inner(&image).inspect_err(|_| pages.free(leaf))?;
        Ok(Tree { root, id })
    }

    /// Returns a writer. The caller must ensure that a tree has one writer at a time.
    pub fn writer<P: Pages>(self, pages: &P) -> TreeWriter<'_, P> {
        TreeWriter::new(self, pages)
    }

    /// Calls `each` with the keys and values of a leaf in its stored form; returns its fences. Returns `None` if the
    /// bytes are not a leaf of this tree.
    pub(crate) fn cells_of(&self, bytes: &[u8], mut each: impl FnMut(&[u8], Cell)) -> Option<(Vec<u8>, Vec<u8>)> {
        let leaf = leaf::Leaf::of(bytes, self.id)?;
        for index in 0..leaf.count() {
            let item = leaf.item(index)?;
            if let Some(cell) = item.value.to_cell() {
                each(&[item.prefix, item.suffix].concat(), cell);
            }
        }
        Some((leaf.low.to_vec(), leaf.high.to_vec()))
    }

    /// The error for damage at a page of this tree.
    fn corrupt(&self, page: PageId, what: &str) -> StoreError {
        StoreError::Corrupt(Damage::of(page, 1, format_args!("tree {}, page {page}: {what}", self.id.0)))
    }

    /// The error for damage at a slot of a leaf of this tree.
    fn corrupt_slot(&self, page: PageId, slot: usize, what: &str) -> StoreError {
        StoreError::Corrupt(Damage::of(page, 1, format_args!("tree {}, page {page}, slot {slot}: {what}", self.id.0)))
    }

    /// The error for a damaged leaf with these bytes: names the first slot that cannot be read, if there is one.
    fn corrupt_leaf(&self, page: PageId, bytes: &[u8]) -> StoreError {
        match leaf::Leaf::of(bytes, self.id).and_then(|leaf| leaf.fault()) {
            Some((slot, what)) => self.corrupt_slot(page, slot, what),
            None => self.corrupt(page, "its slots and cells contradict each other"),
        }
    }
}
