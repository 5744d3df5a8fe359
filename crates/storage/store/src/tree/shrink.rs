//! Unlinking an empty leaf, collapsing the root, dropping a whole tree.
//!
//! ```text
//!        A            A            the deepest node with another child
//!      / | \         / \
//!     N  C  .       N'  .          the chain C .. L is removed; the neighbour N takes over L's range of keys
//!        |
//!        L (empty)
//! ```
//!
//! The neighbour gets a fence of the leaf. If that is the low one, its prefix may become shorter and its cells longer;
//! if they no longer fit, the other neighbour is tried. If neither can take the range, the leaf stays, empty, and takes
//! over a neighbour's range when that becomes empty. So a queue whose front is deleted keeps one empty leaf, and a
//! merge never has to split.
//!
//! Order: N is latched, N' is built in a buffer, A is put in place, N' replaces N, L is made invalid, both latches are
//! released, pages are freed. A reader that arrives at N or L meanwhile waits for the latch.

use super::edit;
use super::inner::{InnerPage, Toward};
use super::leaf::Leaf;
use super::node::Node;
use super::write::TreeWriter;
use super::{Tree, Visited};
use crate::StoreError;
use crate::page::PageId;
use crate::pages::Pages;

impl<'p, P: Pages> TreeWriter<'p, P> {
    /// Unlinks a leaf that became empty, if a neighbour can take over its range of keys. A lack of space, or damage
    /// beside it, is not an error: the leaf stays, empty, and the tree is valid.
    pub(super) fn unlink(
        &mut self,
        page: PageId,
        bytes: P::Write<'p>,
        path: &[(PageId, usize)],
        lsn: u64,
    ) -> Result<(), StoreError> {
        match self.try_unlink(page, bytes, path, lsn) {
            Err(StoreError::Full(_)) => Ok(()),
            Err(error @ StoreError::Corrupt(_)) if !self.begun => {
                // A reader of the damaged page gets the error; nothing has to be read here.
                tracing::warn!(%error, "an empty leaf stays, because a page beside it is damaged");
                Ok(())
            }
            done => done,
        }
    }

    fn try_unlink(
        &mut self,
        page: PageId,
        mut bytes: P::Write<'p>,
        path: &[(PageId, usize)],
        lsn: u64,
    ) -> Result<(), StoreError> {
        let Some((depth, mut node)) = self.branching(path)? else { return Ok(()) };
        let (above, child) = path[depth];
        let leaf =
            Leaf::of(&bytes, self.tree.id).ok_or_else(|| self.tree.corrupt(page, "is not a leaf of this tree"))?;
        let left = match child.checked_sub(1) {
            Some(left) => self.neighbour((page, leaf), node.children[left], node.level, Side::Left)?,
            None => None,
        };
        // The border to the neighbour that takes over is removed.
        let (mut neighbour, border) = match (left, node.children.get(child + 1)) {
            (Some(left), _) => (left, child - 1),
            (None, None) => return Ok(()),
            (None, Some(right)) => match self.neighbour((page, leaf), *right, node.level, Side::Right)? {
                Some(right) => (right, child),
                None => return Ok(()),
            },
        };
        node.remove(child, border);
        let mut image = vec![0; self.pages.page_bytes()];
        let written = node.write(0..node.count(), &mut image, self.tree.id, lsn);
        written.ok_or_else(|| self.tree.corrupt(above, "has separators that are out of order"))?;
        self.replace(above, &image)?;
        // Nothing can fail from here on: it was checked that the cells fit.
        neighbour.bytes.copy_from_slice(&neighbour.built);
        edit::set_lsn(&mut neighbour.bytes, lsn);
        drop(neighbour);
        edit::invalidate(&mut bytes);
        drop(bytes);
        self.pages.free(page);
        path[depth + 1..].iter().for_each(|(chain, _)| self.pages.free(*chain));
        match self.collapse(lsn) {
            // The root keeps its single child, and the tree is valid.
            Err(StoreError::Corrupt(_)) => Ok(()),
            done => done,
        }
    }

    /// The deepest node of a path that has more than one child.
    fn branching(&self, path: &[(PageId, usize)]) -> Result<Option<(usize, Node)>, StoreError> {
        for (depth, (page, child)) in path.iter().enumerate().rev() {
            let node = Node::of(&self.image(*page)?, self.tree.id).filter(|node| *child <= node.count());
            let node = node.ok_or_else(|| self.tree.corrupt(*page, "does not match its parent"))?;
            if node.count() > 0 {
                return Ok(Some((depth, node)));
            }
        }
        Ok(None)
    }

    /// Latches the nearest leaf below a neighbouring child, and builds it in a buffer with the range of the empty leaf;
    /// returns `None` if its cells would not fit.
    fn neighbour(
        &self,
        (empty, leaf): (PageId, Leaf<'_>),
        child: PageId,
        level: u8,
        side: Side,
    ) -> Result<Option<Neighbour<P::Write<'p>>>, StoreError> {
        let toward = match side {
            Side::Left => Toward::Last,
            Side::Right => Toward::At(&[]),
        };
        let page = match level {
            1 => child,
            _ => self.tree.descend_from(self.pages, (child, Some(level - 1)), toward, |_, _| ()).map_err(|fault| {
                fault.error.unwrap_or_else(|| self.tree.corrupt(fault.page, "does not match its parent"))
            })?,
        };
        // In a damaged tree it may be the leaf that is already latched.
        if page == empty {
            return Err(self.tree.corrupt(page, "has two parents"));
        }
        let bytes = self.pages.write(page)?;
        let damaged = || self.tree.corrupt(page, "its fences do not join those of its neighbour");
        let old = Leaf::of(&bytes, self.tree.id).ok_or_else(damaged)?;
        let (low, high, joins) = match side {
            Side::Left => (old.low, leaf.high, old.high == leaf.low),
            Side::Right => (leaf.low, old.high, old.low == leaf.high),
        };
        joins.then_some(()).ok_or_else(damaged)?;
        // The range of a hole must not grow.
        if old.is_hole {
            return Ok(None);
        }
        if !edit::fits_between(old, low, high).ok_or_else(damaged)? {
            return Ok(None);
        }
        let mut built = vec![0; bytes.len()];
        let items = (0..old.count()).map(|index| old.item(index));
        edit::build(&mut built, self.tree.id, old.lsn, (low, high), items).ok_or_else(damaged)?;
        Ok(Some(Neighbour { bytes, built }))
    }

    /// While the root has a single child that is an inner page, the root takes that page's place.
    fn collapse(&mut self, lsn: u64) -> Result<(), StoreError> {
        let root = self.tree.root;
        loop {
            let single = self.pages.inner(root, |words| {
                let inner = InnerPage::of(words, self.tree.id)?;
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

/// The side of the empty leaf on which the neighbour is.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// A latched leaf and its new content.
struct Neighbour<W> {
    bytes: W,
    built: Vec<u8>,
}

impl Tree {
    /// Frees all pages and extents of the tree, which no thread may read any more. Writer only. Errors:
    /// [`StoreError::Corrupt`] if the tree is damaged: then only the pages found before are freed, and the rest is lost
    /// until the allocation map is rebuilt. [`StoreError::Device`].
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
