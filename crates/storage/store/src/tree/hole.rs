//! Holes: a leaf in the place of a page that cannot be read, so that changes can continue.
//!
//! ```text
//!        A              A            B cannot be read. A's child becomes a new page of B's level with a single path down
//!      / | \          / | \          to an empty leaf. The leaf has B's fences and is marked as a hole. B and the pages
//!     .  B  .        .  B' .         below it stay in use and unreachable, for a later repair
//!        |               |
//!      . . .           hole
//! ```
//!
//! A hole has no record of the lost keys: whether a key exists that is not in it, and with what value, is unknown, and
//! reading such a key returns an error. A key that was put since is in the hole; one that was removed since is in
//! it as known to be absent. A hole splits like other leaves, into holes, and is never unlinked. [`TreeWriter::heal`]
//! makes it a normal leaf again.
//!
//! A damaged page is read several times before it is given up: the cause may be a transfer and not the medium.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::inner::{InnerPage, Toward};
use super::leaf::Leaf;
use super::node::Node;
use super::value::Stored;
use super::write::TreeWriter;
use super::{Direction, Tree, edit};
use crate::page::PageId;
use crate::pages::Pages;
use crate::{Lsn, StoreError};

/// How often a page is read before it is given up.
const READS: u32 = 3;

/// Pause before reading again. A choice: longer than a drive's own retry, short for threads that wait for the applier.
const PAUSE: Duration = Duration::from_millis(20);

/// The page on the path to a key where a tree cannot be read.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The page.
    pub page: PageId,
    /// Its height above the leaves; `None` for a root that cannot be read.
    pub level: Option<u8>,
    /// The smallest key that can be below it.
    pub low: Vec<u8>,
    /// All keys below it are smaller; empty means no bound.
    pub high: Vec<u8>,
    /// The error of reading it.
    pub error: StoreError,
    /// Inner pages above it, with the index of the child on the path.
    path: Vec<(PageId, usize)>,
}

/// A hole that was created.
#[derive(Clone, Debug)]
pub struct Hole {
    /// The page that it replaces.
    pub broken: Broken,
    /// The new root, if the root was lost.
    pub root: Option<PageId>,
}

impl Tree {
    /// Descends towards a key (or to the end of a range) and returns where that is impossible; `None` if it is
    /// possible. Each page is read up to `reads` times before it counts as damaged. Errors: those that are not damage.
    pub fn broken<P: Pages>(
        &self,
        pages: &P,
        (from, to): (&[u8], &[u8]),
        direction: Direction,
        reads: u32,
    ) -> Result<Option<Broken>, StoreError> {
        let toward = match (direction, to) {
            (Direction::Forward, _) => Toward::At(from),
            (Direction::Backward, []) => Toward::Last,
            (Direction::Backward, to) => Toward::Before(to),
        };
        let mut at = Broken {
            page: self.root,
            level: None,
            low: Vec::new(),
            high: Vec::new(),
            error: self.corrupt(self.root, "does not match its parent"),
            path: Vec::new(),
        };
        while at.level != Some(0) {
            let node = match patiently(reads, || self.node(pages, at.page, at.level)) {
                Ok(node) => node,
                Err(error @ StoreError::Corrupt(_)) => return Ok(Some(Broken { error, ..at })),
                Err(error) => return Err(error),
            };
            let (image, node) = node;
            let child = InnerPage::of(&image[..], self.id).and_then(|inner| inner.position(toward));
            let Some(child) = child.filter(|child| *child <= node.count()) else { return Ok(Some(at)) };
            if child > 0 {
                at.low = node.separator(child - 1).to_vec();
            }
            if child < node.count() {
                at.high = node.separator(child).to_vec();
            }
            at.path.push((at.page, child));
            (at.page, at.level) = (node.children[child], Some(node.level - 1));
        }
        match patiently(reads, || self.leaf_between(pages, at.page, &at.low, &at.high)) {
            Ok(()) => Ok(None),
            Err(error @ StoreError::Corrupt(_)) => Ok(Some(Broken { error, ..at })),
            Err(error) => Err(error),
        }
    }

    fn node<P: Pages>(&self, pages: &P, page: PageId, level: Option<u8>) -> Result<(Vec<u8>, Node), StoreError> {
        let image = image_of(pages, page)?;
        let node =
            Node::of(&image, self.id).filter(|node| level.is_none_or(|level| level == node.level) && node.level > 0);
        let node = node.ok_or_else(|| self.corrupt(page, "does not match its parent"))?;
        Ok((image, node))
    }

    fn leaf_between<P: Pages>(&self, pages: &P, page: PageId, low: &[u8], high: &[u8]) -> Result<(), StoreError> {
        let bytes = pages.read(page)?;
        let leaf = Leaf::of(&bytes, self.id).filter(|leaf| leaf.low == low && leaf.high == high);
        leaf.map(drop).ok_or_else(|| self.corrupt(page, "its fences do not match its parent"))
    }
}

/// A copy of an inner page's image.
pub(super) fn image_of<P: Pages>(pages: &P, page: PageId) -> Result<Vec<u8>, StoreError> {
    let copy = |words: &[AtomicU64]| words.iter().map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let image: Vec<[u8; 8]> = pages.inner(page, copy)?;
    Ok(image.into_flattened())
}

/// Retries a read of a damaged page a few times.
fn patiently<T>(reads: u32, read: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 1..reads {
        match read() {
            Err(StoreError::Corrupt(_)) => thread::sleep(PAUSE),
            done => return done,
        }
    }
    read()
}

impl<P: Pages> TreeWriter<'_, P> {
    /// Whether the last failed change may be partly in the tree.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Puts a hole in the place of the page on the path to a key that cannot be read; returns `None` if all can be
    /// read. If the root was lost, the tree has a new root. Errors: [`StoreError::Full`]: nothing was changed.
    pub fn make_hole(&mut self, key: &[u8], at: Lsn) -> Result<Option<Hole>, StoreError> {
        self.forget();
        let tree = self.tree;
        let Some(broken) = tree.broken(self.pages, (key, &[]), Direction::Forward, READS)? else { return Ok(None) };
        let (mut child, mut bytes) = self.pages.create_leaf()?;
        self.pages.made(child, bytes.len(), tree.id);
        edit::format(&mut bytes, tree.id, at.0, &broken.low, &broken.high);
        edit::mark_hole(&mut bytes, true);
        drop(bytes);
        let mut made = vec![child];
        // A root has at least one level; the pages that were below it can be found again whatever its height was.
        let levels = broken.level.unwrap_or(1);
        let mut image = vec![0; self.pages.page_bytes()];
        for level in 1..=levels {
            let written = Node::over(level, child).write(0..0, &mut image, tree.id, at.0);
            debug_assert!(written.is_some(), "one child fits in any page");
            child = match self.pages.create_inner(&image) {
                Ok(inner) => inner,
                Err(error) => {
                    made.iter().for_each(|page| self.pages.free(*page));
                    return Err(error);
                }
            };
            made.push(child);
        }
        let Some((above, index)) = broken.path.last().copied() else {
            return Ok(Some(Hole { broken, root: Some(child) }));
        };
        let (_, mut node) = tree.node(self.pages, above, None)?;
        node.children[index] = child;
        let written = node.write(0..node.count(), &mut image, tree.id, at.0);
        written.ok_or_else(|| tree.corrupt(above, "has separators that are out of order"))?;
        if let Err(error) = self.replace(above, &image) {
            made.iter().for_each(|page| self.pages.free(*page));
            return Err(error);
        }
        self.begun = false;
        Ok(Some(Hole { broken, root: None }))
    }

    /// Makes the hole that covers a key a normal leaf: keys that are not in it are absent from now on. Does nothing if
    /// it is not a hole. Returns the leaf's high fence; `None` means no bound. Errors: as for a change.
    pub fn heal(&mut self, key: &[u8], at: Lsn) -> Result<Option<Bytes>, StoreError> {
        self.forget();
        let (page, mut bytes) = self.seek(key)?;
        let tree = self.tree;
        let copy = bytes.to_vec();
        let damaged = || tree.corrupt_leaf(page, &copy);
        let leaf = Leaf::of(&copy, tree.id).ok_or_else(damaged)?;
        let end = (!leaf.high.is_empty()).then(|| Bytes::copy_from_slice(leaf.high));
        if !leaf.is_hole {
            return Ok(end);
        }
        let is_known = |index: &usize| leaf.cell(*index).is_none_or(|(_, value)| value != Stored::Absent);
        let known: Vec<usize> = (0..leaf.count()).filter(is_known).collect();
        let items = known.iter().map(|index| leaf.item(*index));
        bytes.fill(0);
        edit::build(&mut bytes, tree.id, at.0, (leaf.low, leaf.high), items).ok_or_else(damaged)?;
        drop(bytes);
        self.forget();
        Ok(end)
    }
}
