//! Handles a change that does not fit in a leaf's free bytes: rebuilds the leaf, or splits it.
//!
//! ```text
//!   1 the new right leaves are created and filled                  (no reader can reach them)
//!   2 the parent gets their separators; if it is too full, its right parts are new nodes and *its* parent goes first
//!   3 the old leaf is rebuilt with the left part                   (its latch was held all the time)
//! ```
//!
//! A reader that arrives at the old leaf for a key that moved right waits for the latch, detects by the fences that the
//! leaf is wrong, and starts again from the root, where step 2 is already complete.
//!
//! Where to split: in the middle of the bytes, or near it if the separator is shorter there; after a new last key of
//! the whole tree, so that ascending keys leave full leaves; and at the new key if the last insertions directly
//! followed each other, so that ascending runs inside a tree also leave full leaves. Keys and values differ in length,
//! so one split may require another; one cell alone always fits (`inline_bytes_max`).
//!
//! Where only the new key goes to a new leaf, the old one keeps its cells: it is not rebuilt, but gets another fence.

use std::ops::Range;

use super::edit;
use super::hole::image_of;
use super::leaf::{Item, Leaf, common, slots_at};
use super::node::{self, Node, Pair};
use super::write::{KeyChange, TreeWriter};
use crate::StoreError;
use crate::page::PageId;
use crate::pages::Pages;

/// So many consecutive insertions are a run.
const RUN_MIN: u32 = 8;

/// The cells of a leaf with a change applied.
#[derive(Clone, Copy)]
struct Items<'a> {
    leaf: Leaf<'a>,
    change: KeyChange<'a>,
}

impl<'a> Items<'a> {
    fn len(&self) -> usize {
        self.leaf.count() + usize::from(self.change.at.is_err())
    }

    fn get(&self, index: usize) -> Option<Item<'a>> {
        let new = Item { prefix: &[], suffix: self.change.key, value: self.change.value };
        match self.change.at {
            Ok(at) | Err(at) if index == at => Some(new),
            Err(at) if index > at => self.leaf.item(index - 1),
            _ => self.leaf.item(index),
        }
    }

    /// The shortest key that is greater than the item before `at` and not greater than the item at `at`.
    fn separator(&self, at: usize) -> Option<Vec<u8>> {
        let (left, right) = (self.get(at.checked_sub(1)?)?, self.get(at)?);
        let (left, mut right) = (whole(left), whole(right));
        // The two are in order and differ, unless the leaf is damaged.
        right.truncate(common(&left, &right) + 1);
        (left < right).then_some(right)
    }
}

fn whole(item: Item<'_>) -> Vec<u8> {
    [item.prefix, item.suffix].concat()
}

/// Where to split first.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Middle,
    Before(usize),
}

/// Plans the leaves into which items are split.
struct Plan<'a> {
    items: Items<'a>,
    /// For each item, the sum of the costs of all items before it.
    sums: Vec<usize>,
    page_bytes: usize,
    /// The first item of each leaf except the first, with the separator before it.
    cuts: Vec<(usize, Vec<u8>)>,
}

impl<'a> Plan<'a> {
    /// Returns `None` if the old leaf is invalid.
    fn of(items: Items<'a>, page_bytes: usize, place: Place) -> Option<Plan<'a>> {
        let mut sums = Vec::with_capacity(items.len() + 1);
        sums.push(0);
        for index in 0..items.len() {
            sums.push(sums[index] + items.get(index)?.cost());
        }
        let mut plan = Plan { items, sums, page_bytes, cuts: Vec::new() };
        plan.divide(0..items.len(), items.leaf.low, items.leaf.high, place)?;
        Some(plan)
    }

    fn divide(&mut self, range: Range<usize>, low: &[u8], high: &[u8], place: Place) -> Option<()> {
        if self.fits(&range, low, high)? {
            return Some(());
        }
        // An item that does not fit in a leaf of its own is never stored in a leaf.
        (range.len() > 1).then_some(())?;
        let (cut, separator) = match place {
            Place::Before(at) => self.cut_near(&range, low, at)?,
            Place::Middle => {
                let cut = self.middle(&range)?;
                (cut, self.items.separator(cut)?)
            }
        };
        self.divide(range.start..cut, low, &separator, Place::Middle)?;
        let at = self.cuts.len();
        self.divide(cut..range.end, &separator, high, Place::Middle)?;
        self.cuts.insert(at, (cut, separator));
        Some(())
    }

    fn fits(&self, range: &Range<usize>, low: &[u8], high: &[u8]) -> Option<bool> {
        let prefix = if range.is_empty() { 0 } else { self.items.get(range.end - 1)?.shares(low) };
        let cells = (self.sums[range.end] - self.sums[range.start]).checked_sub(prefix * range.len())?;
        Some(slots_at(low.len(), high.len()) + cells <= self.page_bytes)
    }

    /// The split at an item, or slightly before it: the left part must fit together with its new high fence.
    fn cut_near(&self, range: &Range<usize>, low: &[u8], at: usize) -> Option<(usize, Vec<u8>)> {
        let at = at.clamp(range.start + 1, range.end - 1);
        for cut in (range.start + 1..=at).rev() {
            let separator = self.items.separator(cut)?;
            if self.fits(&(range.start..cut), low, &separator)? {
                return Some((cut, separator));
            }
        }
        Some((at, self.items.separator(at)?))
    }

    /// The split near the middle of the bytes with the shortest separator.
    fn middle(&self, range: &Range<usize>) -> Option<usize> {
        let (first, last) = (self.sums[range.start], self.sums[range.end]);
        let at = |part: usize| {
            let bytes = first + (last - first) * part / 16;
            self.sums.partition_point(|sum| *sum < bytes).clamp(range.start + 1, range.end - 1)
        };
        let (from, middle, to) = (at(7), at(8), at(9));
        let mut best = (self.shared(middle)?, middle);
        for cut in from..=to {
            let shared = self.shared(cut)?;
            if shared < best.0 {
                best = (shared, cut);
            }
        }
        Some(best.1)
    }

    /// How many first bytes, without the leaf's prefix, the items on both sides of a split share, or slightly less.
    fn shared(&self, cut: usize) -> Option<usize> {
        let prefix = self.items.leaf.prefix().len();
        let (left, right) = (self.items.get(cut - 1)?, self.items.get(cut)?);
        let (left, right) = (left.key_from(prefix), right.key_from(prefix));
        Some(if left.0.len() == right.0.len() { common(left.1, right.1) } else { 0 })
    }
}

impl<P: Pages> TreeWriter<'_, P> {
    /// Applies a change that did not fit in the free bytes of a latched leaf.
    pub(super) fn rebuild(
        &mut self,
        page: PageId,
        mut bytes: P::Write<'_>,
        path: &[(PageId, usize)],
        change: KeyChange<'_>,
    ) -> Result<(), StoreError> {
        if let Some(separator) = self.appended(&bytes, change) {
            return self.append(page, bytes, path, (change, separator));
        }
        let tree = self.tree;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(&bytes);
        let damaged = || tree.corrupt_leaf(page, &scratch);
        let items = Items { leaf: Leaf::of(&scratch, tree.id).ok_or_else(damaged)?, change };
        let plan = Plan::of(items, scratch.len(), self.place(items)).ok_or_else(damaged)?;
        let fences = |part: usize| {
            let low = if part == 0 { items.leaf.low } else { &plan.cuts[part - 1].1 };
            (low, plan.cuts.get(part).map_or(items.leaf.high, |cut| &cut.1))
        };
        let part = |part: usize| {
            let from = if part == 0 { 0 } else { plan.cuts[part - 1].0 };
            (from..plan.cuts.get(part).map_or(items.len(), |cut| cut.0)).map(|at| items.get(at))
        };
        let mut pairs = Vec::with_capacity(plan.cuts.len());
        let done = (1..=plan.cuts.len()).try_for_each(|right| {
            let (child, mut bytes) = self.pages.create_leaf()?;
            self.pages.made(child, bytes.len(), tree.id);
            pairs.push(Pair { separator: fences(right).0.to_vec(), child });
            edit::build(&mut bytes, tree.id, change.lsn, fences(right), part(right)).ok_or_else(damaged)?;
            edit::mark_hole(&mut bytes, items.leaf.is_hole);
            Ok(())
        });
        let last = items.leaf.high.is_empty();
        let done = match done {
            Ok(()) if !pairs.is_empty() => self.hang(path, &pairs, last, change.lsn),
            done => done,
        };
        if let Err(error) = done {
            self.give_back(&pairs);
            return Err(error);
        }
        bytes.fill(0);
        edit::build(&mut bytes, tree.id, change.lsn, fences(0), part(0)).ok_or_else(damaged)?;
        edit::mark_hole(&mut bytes, items.leaf.is_hole);
        self.follow_run(page, &plan, &pairs);
        self.scratch = scratch;
        Ok(())
    }

    /// The separator before a new last key that goes to a leaf of its own, while the leaf before it keeps its cells where
    /// they are; `None` if the leaf must be rebuilt.
    fn appended(&self, bytes: &[u8], change: KeyChange<'_>) -> Option<Vec<u8>> {
        let leaf = Leaf::of(bytes, self.tree.id).filter(|leaf| !leaf.is_hole)?;
        let (items, last) = (Items { leaf, change }, leaf.count());
        if last == 0 || change.at != Err(last) || self.place(items) != Place::Before(last) {
            return None;
        }
        let mut plan = Plan::of(items, bytes.len(), Place::Before(last))?;
        let (cut, separator) = plan.cuts.pop()?;
        let stays = cut == last && plan.cuts.is_empty() && edit::fits_high(bytes, separator.len())?;
        stays.then_some(separator)
    }

    /// Puts a new last key into a new leaf, with the separator before it.
    fn append(
        &mut self,
        page: PageId,
        mut bytes: P::Write<'_>,
        path: &[(PageId, usize)],
        (change, separator): (KeyChange<'_>, Vec<u8>),
    ) -> Result<(), StoreError> {
        let tree = self.tree;
        let damaged = |bytes: &[u8]| tree.corrupt_leaf(page, bytes);
        let (child, mut right) = self.pages.create_leaf()?;
        self.pages.made(child, right.len(), tree.id);
        let pairs = [Pair { separator, child }];
        let leaf = Leaf::of(&bytes, tree.id).ok_or_else(|| damaged(&bytes))?;
        let fences = (&*pairs[0].separator, leaf.high);
        // The next keys differ from it as the keys before it differ from each other.
        let item = (Item { prefix: &[], suffix: change.key, value: change.value }, leaf.prefix().len());
        let begun = edit::begin(&mut right, tree.id, change.lsn, fences, item);
        drop(right);
        let hung = match begun {
            Some(()) => self.hang(path, &pairs, leaf.high.is_empty(), change.lsn),
            None => Err(damaged(&bytes)),
        };
        if let Err(error) = hung {
            self.give_back(&pairs);
            return Err(error);
        }
        edit::set_high(&mut bytes, &pairs[0].separator).ok_or_else(|| damaged(&bytes))?;
        edit::set_lsn(&mut bytes, change.lsn);
        (self.run.leaf, self.run.index) = (child, 0);
        Ok(())
    }

    /// The best place to split a leaf that is too full.
    fn place(&self, items: Items<'_>) -> Place {
        let Err(at) = items.change.at else { return Place::Middle };
        let last = at + 1 == items.len();
        match last {
            true if items.leaf.high.is_empty() || self.run.length >= RUN_MIN => Place::Before(at),
            // The new key stays in the left leaf, where the next one of the run will go.
            false if self.run.length >= RUN_MIN => Place::Before(at + 1),
            _ => Place::Middle,
        }
    }

    /// Updates the position of the last insertion after a split, so that a run continues.
    fn follow_run(&mut self, page: PageId, plan: &Plan<'_>, pairs: &[Pair]) {
        let Err(at) = plan.items.change.at else { return };
        let right = plan.cuts.partition_point(|cut| cut.0 <= at);
        let (leaf, from) = if right == 0 { (page, 0) } else { (pairs[right - 1].child, plan.cuts[right - 1].0) };
        (self.run.leaf, self.run.index) = (leaf, at - from);
    }

    /// Inserts pairs to the right of the child at the end of a path, in the parent, and further up as far as nodes are
    /// too full. `last`: the path leads to the tree's last leaf.
    fn hang(&mut self, path: &[(PageId, usize)], pairs: &[Pair], last: bool, lsn: u64) -> Result<(), StoreError> {
        let tree = self.tree;
        let Some((&(page, child), above)) = path.split_last() else {
            return Err(tree.corrupt(tree.root, "has no child"));
        };
        let damaged = || tree.corrupt(page, "does not match its parent");
        let mut image = self.image(page)?;
        if let [pair] = pairs
            && node::insert(&mut image, tree.id, lsn, child, pair).ok_or_else(damaged)?
        {
            return self.replace(page, &image);
        }
        let mut node = Node::of(&image, tree.id).ok_or_else(damaged)?;
        (child <= node.count()).then_some(()).ok_or_else(damaged)?;
        let appended = last && child == node.count();
        node.insert(child, pairs);
        let parts = node.parts(image.len(), appended);
        let mut made: Vec<Pair> = Vec::new();
        let done = self.make_nodes(&node, &parts, above.is_empty(), lsn, &mut made).and_then(|()| {
            let first = parts.first().cloned().unwrap_or_default();
            if made.is_empty() {
                node.write(first, &mut image, tree.id, lsn).ok_or_else(damaged)?;
                return self.replace(page, &image);
            }
            if above.is_empty() {
                // The root stays in its page: its parts are all new nodes below it.
                let mut root = Node::over(node.level + 1, made[0].child);
                root.insert(0, &made[1..]);
                root.write(0..root.count(), &mut image, tree.id, lsn).ok_or_else(damaged)?;
                return self.replace(page, &image);
            }
            self.hang(above, &made, last, lsn)?;
            node.write(first, &mut image, tree.id, lsn).ok_or_else(damaged)?;
            self.replace(page, &image)
        });
        if done.is_err() {
            self.give_back(&made);
        }
        done
    }

    /// Frees the pages that a failed change has created, unless some of them may already be in the tree.
    fn give_back(&self, made: &[Pair]) {
        if !self.begun {
            made.iter().for_each(|pair| self.pages.free(pair.child));
        }
    }

    pub(super) fn replace(&mut self, page: PageId, image: &[u8]) -> Result<(), StoreError> {
        self.pages.replace_inner(page, image)?;
        self.begun = true;
        Ok(())
    }

    /// Creates new nodes from the parts of one that is too full: from all parts if it is the root, else from all except
    /// the first.
    fn make_nodes(
        &self,
        node: &Node,
        parts: &[Range<usize>],
        root: bool,
        lsn: u64,
        made: &mut Vec<Pair>,
    ) -> Result<(), StoreError> {
        if parts.len() < 2 {
            return Ok(());
        }
        let mut image = vec![0; self.pages.page_bytes()];
        for part in &parts[usize::from(!root)..] {
            let written = node.write(part.clone(), &mut image, self.tree.id, lsn);
            written
                .ok_or_else(|| self.tree.corrupt(self.tree.root, "has separators below it that are out of order"))?;
            let child = self.pages.create_inner(&image)?;
            let separator = if part.start == 0 { Vec::new() } else { node.separator(part.start - 1).to_vec() };
            made.push(Pair { separator, child });
        }
        Ok(())
    }

    /// A copy of an inner page's image.
    pub(super) fn image(&self, page: PageId) -> Result<Vec<u8>, StoreError> {
        image_of(self.pages, page)
    }
}
