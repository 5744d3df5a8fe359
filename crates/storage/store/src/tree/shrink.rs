//! Taking an empty leaf out, collapsing the root, dropping a whole tree.
//!
//! ```text
//!        A            A            the deepest node with another child
//!      / | \         / \
//!     N  C  .       N'  .          the chain C .. L goes; the neighbour N takes over L's range of keys
//!        |
//!        L (empty)
//! ```
//!
//! The neighbour gets a fence of the leaf: where that is the low one, its prefix may become shorter and its cells longer: where they do not fit any
//! more, the other side is tried; where neither takes it, the leaf stays, empty, and takes over a neighbour's range when that
//! becomes empty. So a queue whose front is deleted keeps one empty leaf, and merging never has to cut anything.
//!
//! Order: N' is built under its latch, A is put in place, L is made no leaf, both latches are given back, pages are freed.

use super::edit;
use super::inner::{Inner, Toward};
use super::leaf::Leaf;
use super::node::Node;
use super::write::Writer;
use super::{Tree, Visited};
use crate::StoreError;
use crate::page::PageId;
use crate::pages::Pages;

impl<P: Pages> Writer<'_, P> {
    /// Takes out a leaf that became empty, if a neighbour can take over its range of keys.
    pub(super) fn unlink(
        &mut self,
        page: PageId,
        mut bytes: P::Write<'_>,
        path: &[(PageId, usize)],
        lsn: u64,
    ) -> Result<(), StoreError> {
        let Some((depth, mut node)) = self.branching(path)? else { return Ok(()) };
        let (above, child) = path[depth];
        let (low, high) = {
            let leaf = Leaf::of(&bytes, self.tree.id).ok_or_else(|| self.tree.corrupt(page, "is no leaf of it"))?;
            (leaf.low.to_vec(), leaf.high.to_vec())
        };
        let left = child > 0 && self.widen(node.children[child - 1], node.level, Side::Left { high: &high }, lsn)?;
        let right = !left
            && child + 1 < node.children.len()
            && self.widen(node.children[child + 1], node.level, Side::Right { low: &low }, lsn)?;
        if !left && !right {
            return Ok(());
        }
        // The border to whom took over is no more.
        node.remove(child, if left { child - 1 } else { child });
        let mut image = vec![0; self.pages.page_bytes()];
        let written = node.write(0..node.count(), &mut image, self.tree.id, lsn);
        written.ok_or_else(|| self.tree.corrupt(above, "has separators in no order"))?;
        self.replace(above, &image)?;
        edit::invalidate(&mut bytes);
        drop(bytes);
        self.pages.free(page);
        path[depth + 1..].iter().for_each(|(chain, _)| self.pages.free(*chain));
        self.collapse(lsn)
    }

    /// The deepest node of a path that has more than one child.
    fn branching(&self, path: &[(PageId, usize)]) -> Result<Option<(usize, Node)>, StoreError> {
        for (depth, (page, child)) in path.iter().enumerate().rev() {
            let node = Node::of(&self.image(*page)?, self.tree.id).filter(|node| *child <= node.count());
            let node = node.ok_or_else(|| self.tree.corrupt(*page, "does not fit where it hangs"))?;
            if node.count() > 0 {
                return Ok(Some((depth, node)));
            }
        }
        Ok(None)
    }

    /// Gives the nearest leaf below a neighbouring child the range of the empty leaf; false where its cells would not fit.
    fn widen(&self, child: PageId, level: u8, side: Side<'_>, lsn: u64) -> Result<bool, StoreError> {
        let toward = match side {
            Side::Left { .. } => Toward::Last,
            Side::Right { .. } => Toward::At(&[]),
        };
        let page = match level {
            1 => child,
            _ => self.tree.descend_from(self.pages, (child, Some(level - 1)), toward, |_, _| ()).map_err(|fault| {
                fault.error.unwrap_or_else(|| self.tree.corrupt(fault.page, "does not fit where it hangs"))
            })?,
        };
        let mut bytes = self.pages.write(page)?;
        let damaged = || self.tree.corrupt(page, "its cells make no sense");
        let copy = bytes.to_vec();
        let leaf = Leaf::of(&copy, self.tree.id).ok_or_else(damaged)?;
        let (low, high) = match side {
            Side::Left { high } => (leaf.low, high),
            Side::Right { low } => (low, leaf.high),
        };
        if !edit::fits_between(leaf, low, high).ok_or_else(damaged)? {
            return Ok(false);
        }
        let items = (0..leaf.count()).map(|index| leaf.item(index));
        edit::build(&mut bytes, self.tree.id, lsn, (low, high), items).ok_or_else(damaged)?;
        Ok(true)
    }

    /// While the root has one child and that is an inner node, the root takes its place.
    fn collapse(&mut self, lsn: u64) -> Result<(), StoreError> {
        let root = self.tree.root;
        loop {
            let single = self.pages.inner(root, |words| {
                let inner = Inner::of(words, self.tree.id)?;
                if inner.count == 0 && inner.level > 1 { inner.child(0) } else { None }
            })?;
            let Some(child) = single else { return Ok(()) };
            let mut image = self.image(child)?;
            image[16..24].copy_from_slice(&lsn.to_le_bytes());
            self.replace(root, &image)?;
            self.pages.free(child);
        }
    }
}

/// On which side of the empty leaf the neighbour stands, and which fence it gets.
#[derive(Clone, Copy)]
enum Side<'a> {
    Left { high: &'a [u8] },
    Right { low: &'a [u8] },
}

impl Tree {
    /// Frees all pages and extents of the tree, which nobody may read any more. The writer only. Errors:
    /// [`StoreError::Corrupt`] where the tree is damaged: then only what was found before is freed, and the rest is lost
    /// until the allocation map is made anew. [`StoreError::Device`].
    pub fn drop_all<P: Pages>(self, pages: &P) -> Result<(), StoreError> {
        let mut found = Vec::new();
        let report = self.check(pages, |visited| found.push(visited))?;
        for visited in found {
            match visited {
                Visited::Inner(page) | Visited::Leaf(page) => pages.free(page),
                Visited::Extent(extent) => pages.free_extent(extent),
            }
        }
        report.into_result(self)
    }
}
