//! [`Tree::check`]: walks a whole tree and reports every fault.
//!
//! The walk descends through the inner pages and checks everything: level and tree of each page; order of separators
//! and keys; both against the bounds from the nodes above; heads against cells; that fences join without gaps; that
//! lists of extents can be decoded. Pages below a faulty page are not read; all others are. Levels only decrease, so
//! the walk ends whatever the pages contain.
//!
//! The tree must not be changed meanwhile; readers are allowed.

use super::inner::InnerPage;
use super::leaf::{EXTENTS_DAMAGED, Leaf, head_of};
use super::node::Node;
use super::value::{self, Stored};
use super::{Tree, edit};
use crate::StoreError;
use crate::damage::range_shown;
use crate::page::{Extent, HEADER_BYTES, PageId};
use crate::pages::Pages;

/// The number of faults that are described; further ones are only counted.
const FAULTS_MAX: usize = 100;

/// The parts of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visited {
    /// An inner page.
    Inner(PageId),
    /// A leaf.
    Leaf(PageId),
    /// A long value, or a part of one.
    Extent(Extent),
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Inner pages.
    pub inners: u64,
    /// Leaves.
    pub leaves: u64,
    /// Leaves without a cell.
    pub empty_leaves: u64,
    /// Cells.
    pub cells: u64,
    /// Bytes of whole keys, and of values in leaves.
    pub inline_bytes: u64,
    /// Bytes of leaves that are used by cells, slots and fences.
    pub leaf_bytes_used: u64,
    /// Extents.
    pub extents: u64,
    /// Bytes of values in extents.
    pub extent_bytes: u64,
    /// Nodes on the path from the root to a leaf, including both.
    pub height: u32,
    /// Holes.
    pub holes: u64,
    /// Number of faults; each hole is one.
    pub faults: u64,
    /// Descriptions of the first hundred faults.
    pub messages: Vec<String>,
}

impl Report {
    /// Returns the first fault as an error.
    pub fn into_result(self, tree: Tree) -> Result<(), StoreError> {
        match self.messages.first() {
            None => Ok(()),
            Some(first) => {
                Err(StoreError::Corrupt(format!("tree {}: {first} (faults in all: {})", tree.id.0, self.faults).into()))
            }
        }
    }
}

impl Tree {
    /// Walks the whole tree; `visit` is called with every page and extent once. Damage is part of the report. The tree
    /// must not be written meanwhile. Errors: [`StoreError::Device`] and others that are not damage.
    pub fn check<P: Pages>(&self, pages: &P, visit: impl FnMut(Visited)) -> Result<Report, StoreError> {
        let mut walk = Walk { tree: *self, pages, visit, report: Report::default(), border: Vec::new() };
        walk.inner(self.root, None, &[], &[])?;
        if walk.report.faults == 0 && !walk.border.is_empty() {
            walk.fault(self.root, "the last leaf has a high fence");
        }
        Ok(walk.report)
    }
}

struct Walk<'p, P: Pages, V: FnMut(Visited)> {
    tree: Tree,
    pages: &'p P,
    visit: V,
    report: Report,
    /// The high fence of the previous leaf.
    border: Vec<u8>,
}

impl<P: Pages, V: FnMut(Visited)> Walk<'_, P, V> {
    fn fault(&mut self, page: PageId, what: impl std::fmt::Display) {
        self.report.faults += 1;
        if self.report.messages.len() < FAULTS_MAX {
            self.report.messages.push(format!("page {page}: {what}"));
        }
    }

    /// Counts a damaged page as a fault; any other error ends the walk.
    fn damage<T>(&mut self, page: PageId, result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(StoreError::Corrupt(what)) => {
                self.fault(page, what);
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    fn inner(&mut self, page: PageId, level: Option<u8>, low: &[u8], high: &[u8]) -> Result<(), StoreError> {
        let mut image = vec![0; self.pages.page_bytes()];
        let read = self.pages.inner(page, |words| {
            for (bytes, word) in image.as_chunks_mut().0.iter_mut().zip(words) {
                *bytes = word.load(std::sync::atomic::Ordering::Relaxed).to_le_bytes();
            }
        });
        let Some(()) = self.damage(page, read)? else { return Ok(()) };
        let Some(node) = Node::of(&image, self.tree.id) else {
            self.fault(page, "is not an inner page of this tree");
            return Ok(());
        };
        if level.is_some_and(|level| level != node.level) {
            self.fault(page, format_args!("has level {} where {level:?} is expected", node.level));
            return Ok(());
        }
        if let Some(what) = disorder(&node, &image, self.tree, low, high) {
            self.fault(page, what);
            return Ok(());
        }
        (self.visit)(Visited::Inner(page));
        self.report.inners += 1;
        self.report.height = self.report.height.max(u32::from(node.level) + 1);
        for (index, child) in node.children.iter().enumerate() {
            let low = if index == 0 { low } else { node.separator(index - 1) };
            let high = if index == node.count() { high } else { node.separator(index) };
            match node.level {
                1 => self.leaf(*child, low, high)?,
                level => self.inner(*child, Some(level - 1), low, high)?,
            }
        }
        Ok(())
    }

    fn leaf(&mut self, page: PageId, low: &[u8], high: &[u8]) -> Result<(), StoreError> {
        let read = self.pages.read(page);
        let Some(bytes) = self.damage(page, read)? else { return Ok(()) };
        let Some(leaf) = Leaf::of(&bytes, self.tree.id) else {
            self.fault(page, "is not a leaf of this tree");
            return Ok(());
        };
        if leaf.low != low || leaf.high != high {
            self.fault(page, "its fences differ from the separators of its parent");
        }
        if leaf.low != self.border {
            self.fault(page, "its low fence differs from the high fence of the previous leaf");
        }
        self.border = leaf.high.to_vec();
        (self.visit)(Visited::Leaf(page));
        self.report.leaves += 1;
        self.report.empty_leaves += u64::from(leaf.count() == 0);
        if leaf.is_hole {
            self.report.holes += 1;
            let range = range_shown(leaf.low, leaf.high);
            self.fault(page, format_args!("is a hole: keys of {range} that are not in it were lost to damage"));
        }
        match edit::bytes_used(leaf) {
            Some(bytes) => self.report.leaf_bytes_used += bytes as u64,
            None if leaf.fault().is_none() => self.fault(page, "its slots and cells contradict each other"),
            // The faulty cell is reported below.
            None => {}
        }
        let mut before: Option<Vec<u8>> = None;
        for index in 0..leaf.count() {
            let Some(item) = leaf.item(index) else {
                self.fault(page, format_args!("slot {index}: cell exceeds page"));
                continue;
            };
            let key = [item.prefix, item.suffix].concat();
            if !leaf.covers(&key) || before.as_ref().is_some_and(|before| *before >= key) {
                self.fault(page, format_args!("slot {index}: key is out of order"));
            }
            if leaf.find(&key) != Some(Ok(index)) || leaf.head(index) != Some(head_of(item.suffix)) {
                self.fault(page, format_args!("slot {index}: head does not match the key"));
            }
            self.report.cells += 1;
            self.report.inline_bytes += key.len() as u64;
            match item.value {
                Stored::Inline(bytes) => self.report.inline_bytes += bytes.len() as u64,
                Stored::Large(list) => self.extents(page, index, list),
                Stored::Absent | Stored::Lost(_) => {}
            }
            before = Some(key);
        }
        Ok(())
    }

    fn extents(&mut self, page: PageId, index: usize, list: &[u8]) {
        let Some(extents) = value::decode(list) else {
            self.fault(page, format_args!("slot {index}: {EXTENTS_DAMAGED}"));
            return;
        };
        for extent in extents {
            self.report.extents += 1;
            self.report.extent_bytes += u64::from(extent.bytes);
            (self.visit)(Visited::Extent(extent));
        }
    }
}

/// Returns what is wrong with the order of an inner page, if anything is.
fn disorder(node: &Node, image: &[u8], tree: Tree, low: &[u8], high: &[u8]) -> Option<String> {
    let mut before = low;
    for index in 0..node.count() {
        let separator = node.separator(index);
        if separator <= before || (!high.is_empty() && separator >= high) {
            return Some(format!("separator {index} is out of order"));
        }
        before = separator;
        let inner = InnerPage::of(image, tree.id)?;
        let found = inner.position(super::inner::Toward::At(separator));
        if found != Some(index + 1) {
            return Some(format!("separator {index} is not found"));
        }
    }
    let slots = HEADER_BYTES + node.count() * 12 + 4;
    (slots > image.len()).then(|| "its slots exceed the page".to_owned())
}
