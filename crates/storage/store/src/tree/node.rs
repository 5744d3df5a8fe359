//! Changing inner pages: images are edited or built, and then put in place as a whole.
//!
//! The common change, one more separator that shares the node's prefix, edits a copy of the image. Every other change
//! decodes the node ([`Node`]) and builds one or more images from it. A node that is too full is split in the middle of
//! its bytes; or before its last separator if that is the new one, so that ascending keys leave full nodes.
//!
//! Invariant: total, like the reading of inner pages; returns `None` if the old image is invalid.

use std::ops::Range;

use super::inner::InnerPage;
use super::leaf::{Slot, common, head_of};
use crate::TreeId;
use crate::page::{HEADER_BYTES, Kind, PageHeader, PageId, u16_at};

const COUNT: usize = 12;
const PREFIX: usize = 14;
const HEAP: usize = 24;

/// A separator and the child to its right.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) separator: Vec<u8>,
    pub(super) child: PageId,
}

/// A decoded inner page.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) level: u8,
    /// One more than there are separators.
    pub(super) children: Vec<PageId>,
    /// The separators' whole bytes, concatenated.
    bytes: Vec<u8>,
    /// Where each separator ends.
    ends: Vec<usize>,
}

impl Node {
    /// A node with one child and no separator.
    pub(super) fn over(level: u8, child: PageId) -> Node {
        Node { level, children: vec![child], ..Node::default() }
    }

    /// Decodes an image; returns `None` if it is invalid.
    pub(super) fn of(image: &[u8], tree: TreeId) -> Option<Node> {
        let inner = InnerPage::of(image, tree)?;
        let mut node = Node { level: inner.level, ..Node::default() };
        node.children = (0..=inner.count).map(|at| inner.child(at)).collect::<Option<_>>()?;
        for index in 0..inner.count {
            inner.prefix_into(&mut node.bytes)?;
            inner.suffix_into(index, &mut node.bytes)?;
            node.ends.push(node.bytes.len());
        }
        Some(node)
    }

    /// Number of separators.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns a separator.
    pub(super) fn separator(&self, index: usize) -> &[u8] {
        let from = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[from..self.ends[index]]
    }

    /// Inserts pairs to the right of a child.
    pub(super) fn insert(&mut self, child: usize, pairs: &[Pair]) {
        let at = if child == 0 { 0 } else { self.ends[child - 1] };
        let bytes: Vec<u8> = pairs.iter().flat_map(|pair| pair.separator.iter().copied()).collect();
        self.ends[child..].iter_mut().for_each(|end| *end += bytes.len());
        let ends = pairs.iter().scan(at, |end, pair| {
            *end += pair.separator.len();
            Some(*end)
        });
        self.ends.splice(child..child, ends.collect::<Vec<_>>());
        self.bytes.splice(at..at, bytes);
        self.children.splice(child + 1..child + 1, pairs.iter().map(|pair| pair.child));
    }

    /// Removes a child, and one of the separators beside it.
    pub(super) fn remove(&mut self, child: usize, separator: usize) {
        self.children.remove(child);
        let from = if separator == 0 { 0 } else { self.ends[separator - 1] };
        let bytes = self.ends.remove(separator) - from;
        self.bytes.drain(from..from + bytes);
        self.ends[separator..].iter_mut().for_each(|end| *end -= bytes);
    }

    /// The length of the common prefix of the separators in a range.
    fn prefix(&self, range: &Range<usize>) -> usize {
        if range.is_empty() { 0 } else { common(self.separator(range.start), self.separator(range.end - 1)) }
    }

    /// Bytes of a node with the separators in a range.
    fn image_bytes(&self, range: &Range<usize>) -> usize {
        let prefix = self.prefix(range);
        let tails = range.clone().map(|at| self.separator(at).len().saturating_sub(prefix + 4)).sum::<usize>();
        HEADER_BYTES + range.len() * 12 + 4 + prefix + tails
    }

    /// The ranges of separators of the nodes into which this one must be split; the separators between them move up.
    pub(super) fn parts(&self, page_bytes: usize, appended: bool) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        self.divide(0..self.count(), page_bytes, appended, &mut parts);
        parts
    }

    fn divide(&self, range: Range<usize>, page_bytes: usize, appended: bool, parts: &mut Vec<Range<usize>>) {
        // Three separators fit in any page, however long; see PAGE_BYTES_MIN.
        if range.len() <= 3 || self.image_bytes(&range) <= page_bytes {
            parts.push(range);
            return;
        }
        let cost = |at: usize| 12 + self.separator(at).len();
        let half = range.clone().map(cost).sum::<usize>() / 2;
        let mut sum = 0;
        let middle = range.clone().find(|at| {
            sum += cost(*at);
            sum >= half
        });
        let up = if appended { range.end - 2 } else { middle.unwrap_or(range.start) };
        let up = up.clamp(range.start + 1, range.end - 2);
        self.divide(range.start..up, page_bytes, appended, parts);
        self.divide(up + 1..range.end, page_bytes, appended, parts);
    }

    /// Writes the image of a node with the separators in a range and the children beside them; returns `None` if they
    /// are out of order and do not fit.
    pub(super) fn write(&self, range: Range<usize>, image: &mut [u8], tree: TreeId, lsn: u64) -> Option<()> {
        image.fill(0);
        PageHeader { kind: Kind::Inner, level: self.level, flags: 0, tree: tree.0, lsn }.put(image);
        let prefix = self.prefix(&range);
        let children = HEADER_BYTES + range.len() * 8;
        let end = children + (range.len() + 1) * 4;
        let mut heap = image.len().checked_sub(prefix)?;
        if let Some(first) = range.clone().next() {
            image[heap..].copy_from_slice(self.separator(first).get(..prefix)?);
        }
        for (index, at) in range.clone().enumerate() {
            let suffix = self.separator(at).get(prefix..)?;
            let tail = suffix.get(4..).unwrap_or_default();
            heap = heap.checked_sub(tail.len()).filter(|heap| *heap >= end)?;
            image[heap..heap + tail.len()].copy_from_slice(tail);
            put_slot(image, index, suffix, heap);
        }
        for (index, child) in self.children.get(range.start..=range.end)?.iter().enumerate() {
            image.get_mut(children + index * 4..)?.get_mut(..4)?.copy_from_slice(&child.0.to_le_bytes());
        }
        put_u16(image, COUNT, range.len());
        put_u16(image, PREFIX, prefix);
        put_u16(image, HEAP, image.len() - heap);
        Some(())
    }
}

/// Inserts a pair to the right of a child into an image in place; returns `false` if the node must be decoded for that.
pub(super) fn insert(image: &mut [u8], tree: TreeId, lsn: u64, child: usize, pair: &Pair) -> Option<bool> {
    let inner = InnerPage::of(&*image, tree)?;
    let (count, heap) = (inner.count, image.len().checked_sub(usize::from(u16_at(image, HEAP)?))?);
    let prefix = usize::from(u16_at(image, PREFIX)?);
    (child <= count).then_some(())?;
    // With one separator the prefix is the whole separator, so inserting the second one decodes the node.
    if count == 0 || !pair.separator.starts_with(&image[image.len() - prefix..]) {
        return Some(false);
    }
    let suffix = &pair.separator[prefix..];
    let tail = suffix.get(4..).unwrap_or_default();
    let children = HEADER_BYTES + count * 8;
    if children + 8 + (count + 2) * 4 + tail.len() > heap {
        return Some(false);
    }
    let heap = heap - tail.len();
    image[heap..heap + tail.len()].copy_from_slice(tail);
    let (next, end) = (children + (child + 1) * 4, children + (count + 1) * 4);
    image.copy_within(next..end, next + 12);
    image.copy_within(children..next, children + 8);
    image[next + 8..next + 12].copy_from_slice(&pair.child.0.to_le_bytes());
    image.copy_within(HEADER_BYTES + child * 8..children, HEADER_BYTES + (child + 1) * 8);
    put_slot(image, child, suffix, heap);
    put_u16(image, COUNT, count + 1);
    put_u16(image, HEAP, image.len() - heap);
    image[16..24].copy_from_slice(&lsn.to_le_bytes());
    Some(true)
}

fn put_slot(image: &mut [u8], index: usize, suffix: &[u8], tail_at: usize) {
    let offset = if suffix.len() > 4 { tail_at } else { 0 };
    let slot = Slot { head: head_of(suffix), offset, len: suffix.len() };
    image[HEADER_BYTES + index * 8..][..8].copy_from_slice(&slot.word().to_le_bytes());
}

fn put_u16(image: &mut [u8], at: usize, number: usize) {
    image[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
}
