//! [`Cursor`]: keys and values of a range, as a snapshot and the transaction over it see them.
//!
//! ```text
//!   base    leaf block by leaf block: what the tree holds, with old versions in its place where the snapshot is older
//!   own     the transaction's changes: those in memory when the cursor was made, then run by run
//!   merge   the next key of either; own counts
//! ```
//!
//! Both directions are the same walk with the order turned round. A large value is read when the cursor comes to it, not
//! before.
//!
//! Invariants: blocks and versions of one piece of the range are read in that order ([`crate::versions`] says why), and the
//! snapshot's age is asked after both.

mod base;
mod own;

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;

use crate::cache::Hint;
use crate::catalog::{CATALOG, id_of, is_internal};
use crate::range::Direction;
use crate::record::Op;
use crate::snapshot::Snapshot;
use crate::tree::Cell;
use crate::{StoreError, TreeId};

use base::Base;
pub(crate) use own::Own;

/// Walks over keys and values; owns its snapshot, so that it may outlive whoever made it.
#[derive(Debug)]
pub struct Cursor {
    base: Base,
    own: Own,
    direction: Direction,
    ahead_base: Option<base::BaseItem>,
    ahead_own: Option<(Bytes, Op)>,
    started: bool,
}

impl Cursor {
    /// Over a snapshot, with the changes of a transaction.
    pub(crate) fn new(
        snapshot: Snapshot,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        own: Own,
    ) -> Cursor {
        let base = Base::new(snapshot, tree, range, direction);
        Cursor { base, own, direction, ahead_base: None, ahead_own: None, started: false }
    }

    /// The same cursor for whoever reads the range once: what it brings into the cache does not displace what is used often.
    #[must_use]
    pub fn once(mut self) -> Cursor {
        self.base.hint = Hint::Scan;
        self
    }

    /// The next key and value, or `None` at the end of the range. Errors: [`StoreError::TooOld`], [`StoreError::Corrupt`],
    /// [`StoreError::Device`]. After the error of a single value the walk goes on behind it; where a part of the range cannot be
    /// read, it stands before that until [`skip_damage`](Cursor::skip_damage).
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        Ok(match self.advance()? {
            None => None,
            Some((key, Merged::Base(cell))) => {
                let value = self.base.snapshot.value(self.base.tree, &key, &cell, self.base.hint)?;
                Some((key, value))
            }
            Some((key, Merged::Own(value))) => Some((key, value)),
        })
    }

    /// The next key, and how many bytes its value has, which is not read if it lies in pages of its own. Errors: as of
    /// [`next`](Cursor::next).
    pub fn next_key(&mut self) -> Result<Option<(Bytes, usize)>, StoreError> {
        Ok(self.advance()?.map(|(key, found)| match found {
            Merged::Base(cell) => (key, cell.value_bytes()),
            Merged::Own(value) => (key, value.len()),
        }))
    }

    /// The next key with its value, or with what is wrong with that. Errors: as of [`next`](Cursor::next), where a part of the
    /// range cannot be read.
    pub fn next_tried(&mut self) -> Result<Option<Tried>, StoreError> {
        Ok(match self.advance()? {
            None => None,
            Some((key, Merged::Base(cell))) => {
                let value = self.base.snapshot.value(self.base.tree, &key, &cell, self.base.hint);
                Some((key, value))
            }
            Some((key, Merged::Own(value))) => Some((key, Ok(value))),
        })
    }

    /// After [`StoreError::Corrupt`]: goes on behind what cannot be read, or with what a hole knows, and answers what that is;
    /// none where nothing is in the way any more, since the error was that of one value, or passed. Whoever skips sees to it that
    /// something missing is told. Errors: those that are no damage.
    pub fn skip_damage(&mut self) -> Result<Option<Skipped>, StoreError> {
        self.base.skip_damage()
    }

    fn advance(&mut self) -> Result<Option<(Bytes, Merged)>, StoreError> {
        if !self.started {
            if self.ahead_base.is_none() {
                self.ahead_base = self.base.next()?;
            }
            self.ahead_own = self.own.next(&self.base.snapshot)?;
            self.started = true;
        }
        loop {
            let order = match (&self.ahead_base, &self.ahead_own) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((base, _)), Some((own, _))) => in_order(self.direction, base, own),
            };
            let base = if order.is_le() { std::mem::replace(&mut self.ahead_base, self.base.next()?) } else { None };
            if order.is_lt() {
                let (key, cell) = base.expect("it was looked at");
                return Ok(Some((key, Merged::Base(cell))));
            }
            let next = self.own.next(&self.base.snapshot)?;
            if let Some((key, Op::Put(value))) = std::mem::replace(&mut self.ahead_own, next) {
                return Ok(Some((key, Merged::Own(value))));
            }
        }
    }
}

impl Snapshot {
    /// The keys of a range with their values.
    pub fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Cursor {
        Cursor::new(self.clone(), tree, (from, to), direction, Own::none(direction))
    }

    /// All trees by name, in byte order of the names. Errors: as of [`get`](Snapshot::get).
    pub fn trees(&self) -> Result<Vec<(String, TreeId)>, StoreError> {
        let mut cursor = self.scan(CATALOG, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut trees = Vec::new();
        while let Some((name, value)) = cursor.next()? {
            if !is_internal(&name) {
                trees.extend(id_of(&value).map(|id| (String::from_utf8_lossy(&name).into_owned(), id)));
            }
        }
        Ok(trees)
    }
}

/// A key with its value, or with what is wrong with that.
pub type Tried = (Bytes, Result<Bytes, StoreError>);

/// A part of a tree that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its least key.
    pub low: Bytes,
    /// All its keys are less; empty is no bound.
    pub high: Bytes,
    /// It is a hole: some of it may be known.
    pub is_hole: bool,
}

/// What a key has.
enum Merged {
    /// As the snapshot sees it.
    Base(Cell),
    /// As the transaction has changed it.
    Own(Bytes),
}

/// How two keys follow each other.
fn in_order(direction: Direction, left: &[u8], right: &[u8]) -> Ordering {
    match direction {
        Direction::Forward => left.cmp(right),
        Direction::Backward => right.cmp(left),
    }
}
