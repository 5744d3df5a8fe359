//! [`Base`]: what a snapshot sees of a tree's range, one leaf at a time.

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;

use super::{Skipped, in_order};
use crate::cache::Hint;
use crate::page::PageId;
use crate::range::{Direction, Span};
use crate::snapshot::Snapshot;
use crate::tree::{Cell, LeafBlock};
use crate::{StoreError, TreeId};

pub(super) type BaseItem = (Bytes, Cell);

/// What is left of the piece that was read last.
#[derive(Debug)]
enum Piece {
    /// A leaf that is no newer than the snapshot, as it is; entries from .. to.
    Leaf(LeafBlock, usize, usize),
    /// A leaf with old versions in it, in the order of the walk.
    Merged(VecDeque<BaseItem>),
}

#[derive(Debug)]
pub(super) struct Base {
    pub(super) snapshot: Snapshot,
    pub(super) tree: TreeId,
    direction: Direction,
    pub(super) hint: Hint,
    /// What is left of the range behind the piece; none at its end.
    left: Option<Span>,
    piece: Piece,
    /// The hole whose known keys may be shown.
    accepted: Option<PageId>,
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
        Base { snapshot, tree, direction, hint: Hint::Point, left, piece, accepted: None }
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
            // Where it cannot be read the walk stays before it: whoever asks again is told again.
            self.fill(span.clone()).inspect_err(|_| self.left = Some(span))?;
        }
    }

    /// Goes behind what cannot be read, or into a hole, where the walk stands before such, and says what it is. Errors: those
    /// that are no damage.
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
                // What has no place cannot be skipped: whoever walks must not be told so for ever.
                let broken = forest.broken(self.tree, &span, self.direction)?.ok_or(error)?;
                let (low, high) = (Bytes::from(broken.low), Bytes::from(broken.high));
                self.left = span.split(&low, &high, self.direction).1;
                Ok(Some(Skipped { low, high, is_hole: false }))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the next piece of the range.
    fn fill(&mut self, span: Span) -> Result<(), StoreError> {
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

    /// Old versions take the place of what the tree holds.
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
