//! [`Base`]: the keys of a tree's range that a snapshot sees, one leaf at a time.

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;

use super::{Skipped, in_order};
use crate::cache::{Hint, ReadAhead};
use crate::page::PageId;
use crate::range::{Direction, Span};
use crate::snapshot::Snapshot;
use crate::tree::{Cell, LeafBlock};
use crate::{StoreError, TreeId};

pub(super) type BaseItem = (Bytes, Cell);

/// The rest of the piece that was read last.
#[derive(Debug)]
enum Piece {
    /// A leaf that is no newer than the snapshot, unchanged; entries from .. to.
    Leaf(LeafBlock, usize, usize),
    /// A leaf merged with old versions, in the order of the walk.
    Merged(VecDeque<BaseItem>),
}

#[derive(Debug)]
pub(super) struct Base {
    pub(super) snapshot: Snapshot,
    pub(super) tree: TreeId,
    direction: Direction,
    pub(super) hint: Hint,
    /// The rest of the range after the piece; `None` at its end.
    left: Option<Span>,
    piece: Piece,
    /// The hole whose known keys may be returned.
    accepted: Option<PageId>,
    ahead: Ahead,
}

/// The state of a scan's read-ahead.
#[derive(Debug, Default)]
struct Ahead {
    /// Leaves that were loaded but not reached yet.
    left: usize,
    /// How many were loaded last. The next time twice as many are loaded, so that a short range loads few unnecessary
    /// leaves.
    last: usize,
    reader: ReadAhead,
}

impl Base {
    pub(super) fn new(
        snapshot: Snapshot,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Base {
        let left = Span::of(range.0, range.1);
        let piece = Piece::Merged(VecDeque::new());
        Base { snapshot, tree, direction, hint: Hint::Point, left, piece, accepted: None, ahead: Ahead::default() }
    }

    pub(super) fn next(&mut self) -> Result<Option<BaseItem>, StoreError> {
        loop {
            match &mut self.piece {
                Piece::Leaf(block, from, to) if *from < *to => {
                    let at = match self.direction {
                        Direction::Forward => std::mem::replace(from, *from + 1),
                        Direction::Backward => {
                            *to -= 1;
                            *to
                        }
                    };
                    return Ok(Some((block.key_bytes(at), block.cell(at)?)));
                }
                Piece::Leaf(..) => {}
                Piece::Merged(items) => {
                    if let Some(item) = items.pop_front() {
                        return Ok(Some(item));
                    }
                }
            }
            let Some(span) = self.left.take() else { return Ok(None) };
            // If it cannot be read the walk stays before it: the next call returns the error again.
            self.fill(span.clone()).inspect_err(|_| self.left = Some(span))?;
        }
    }

    /// If the walk stands before a part that cannot be read, skips it, or enters a hole, and returns what it is.
    /// Errors: those that are not damage.
    pub(super) fn skip_damage(&mut self) -> Result<Option<Skipped>, StoreError> {
        let Some(span) = self.left.clone() else { return Ok(None) };
        let forest = &self.snapshot.versioned().forest;
        match forest.block(self.tree, &span, self.direction, self.snapshot.lsn().0, self.hint) {
            Ok(Some(block)) if block.is_hole && self.accepted != Some(block.page) => {
                self.accepted = Some(block.page);
                Ok(Some(Skipped { low: block.low, high: block.high, is_hole: true }))
            }
            Ok(_) => Ok(None),
            Err(error @ StoreError::Corrupt(_)) => {
                // Damage without a place cannot be skipped: the caller must not loop for ever.
                let broken = forest.broken(self.tree, &span, self.direction)?.ok_or(error)?;
                let (low, high) = (Bytes::from(broken.low), Bytes::from(broken.high));
                self.left = span.split(&low, &high, self.direction).1;
                Ok(Some(Skipped { low, high, is_hole: false }))
            }
            Err(error) => Err(error),
        }
    }

    /// Loads the leaves that a scan will reach next. Forward only: scans rarely go backward.
    fn read_ahead(&mut self, span: &Span) {
        if self.hint != Hint::Scan || self.direction != Direction::Forward {
            return;
        }
        if self.ahead.left == 0 {
            self.ahead.last = (2 * self.ahead.last).max(1);
            if self.ahead.last > 1 {
                let forest = &self.snapshot.versioned().forest;
                let (most, at) = (self.ahead.last, self.snapshot.lsn().0);
                self.ahead.left = forest.read_ahead(self.tree, span, most, at, &mut self.ahead.reader);
                // Not more than could be loaded, or than there were below one inner page.
                self.ahead.last = self.ahead.last.min(self.ahead.left.max(8));
            }
        }
        self.ahead.left = self.ahead.left.saturating_sub(1);
    }

    /// Reads the next piece of the range.
    fn fill(&mut self, span: Span) -> Result<(), StoreError> {
        self.read_ahead(&span);
        let trees = self.snapshot.versioned();
        let at = self.snapshot.lsn();
        let block = trees.forest.block(self.tree, &span, self.direction, at.0, self.hint);
        let block = match block {
            Ok(block) => block,
            Err(error) => {
                self.snapshot.check()?;
                return Err(trees.met(self.tree, &span, self.direction, error));
            }
        };
        if let Some(hole) = block.as_ref().filter(|block| block.is_hole && self.accepted != Some(block.page)) {
            return Err(trees.met_hole(self.tree, hole.page, &hole.low, &hole.high));
        }
        let piece = match &block {
            Some(block) => {
                let (piece, left) = span.split(&block.low, &block.high, self.direction);
                self.left = left;
                piece
            }
            None => span,
        };
        let newer = block.as_ref().is_none_or(|block| block.lsn > at);
        let versions = if newer { trees.versions.range(self.tree, piece.bounds(), at.0) } else { Vec::new() };
        self.snapshot.check()?;
        self.piece = match block {
            Some(block) if versions.is_empty() => {
                let end = block.len();
                Piece::Leaf(block, 0, end)
            }
            block => Piece::Merged(self.merge(block, versions)?),
        };
        Ok(())
    }

    /// Replaces cells of the tree by old versions.
    fn merge(
        &self,
        block: Option<LeafBlock>,
        mut versions: Vec<(Bytes, Option<Cell>)>,
    ) -> Result<VecDeque<BaseItem>, StoreError> {
        let mut items = VecDeque::new();
        let backward = self.direction == Direction::Backward;
        if backward {
            versions.reverse();
        }
        let mut versions = versions.into_iter().peekable();
        let entries = block.as_ref().map_or(0, LeafBlock::len);
        for (block, at) in block.iter().flat_map(|block| (0..entries).map(move |at| (block, at))) {
            let at = if backward { entries - 1 - at } else { at };
            let key = block.key_bytes(at);
            while let Some((old, value)) = versions.next_if(|(old, _)| in_order(self.direction, old, &key).is_lt()) {
                items.extend(value.map(|value| (old, value)));
            }
            match versions.next_if(|(old, _)| *old == key) {
                Some((_, value)) => items.extend(value.map(|value| (key, value))),
                None => items.push_back((key, block.cell(at)?)),
            }
        }
        items.extend(versions.filter_map(|(old, value)| Some((old, value?))));
        Ok(items)
    }
}
