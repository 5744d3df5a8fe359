//! [`Cursor`]: the keys and values of a range, as a snapshot and the transaction over it see them.
//!
//! ```text
//!   base    leaf by leaf: the cells of the tree, replaced by old versions if the snapshot is older
//!   own     the transaction's changes: those in memory when the cursor was created, then run by run
//!   merge   the next key of either; own changes override
//! ```
//!
//! Both directions are the same walk in opposite order. A large value is read when the cursor reaches it, not before.
//!
//! Invariants: blocks and versions of a piece of the range are read in that order (see [`crate::versions`]), and the
//! snapshot's age is checked after both.

mod base;
mod own;
mod parts;

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
pub use parts::ScanParts;

/// Walks over keys and values; owns its snapshot, so it may outlive its creator.
#[derive(Debug)]
pub struct Cursor {
    base: Base,
    own: Own,
    direction: Direction,
    ahead_base: Option<base::BaseItem>,
    ahead_own: Option<(Bytes, Op)>,
    started: bool,
    /// Why nothing can be read.
    failed: Option<StoreError>,
}

impl Cursor {
    /// A cursor over a snapshot and the changes of a transaction.
    pub(crate) fn new(
        snapshot: Snapshot,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        own: Own,
    ) -> Cursor {
        let base = Base::new(snapshot, tree, range, direction);
        Cursor { base, own, direction, ahead_base: None, ahead_own: None, started: false, failed: None }
    }

    /// A cursor that only returns an error.
    pub(crate) fn failed(snapshot: Snapshot, tree: TreeId, direction: Direction, error: StoreError) -> Cursor {
        let range = (Bound::Unbounded, Bound::Unbounded);
        Cursor { failed: Some(error), ..Cursor::new(snapshot, tree, range, direction, Own::none(direction)) }
    }

    /// The same cursor for a scan: pages that it loads into the cache do not displace pages that are used often.
    #[must_use]
    pub fn once(mut self) -> Cursor {
        self.base.hint = Hint::Scan;
        self
    }

    /// Returns the next key and value, or `None` at the end of the range. Errors: [`StoreError::TooOld`],
    /// [`StoreError::Corrupt`], [`StoreError::Device`]. After an error of a single value the walk continues with the
    /// next key. If a part of the range cannot be read, the walk stays before it until
    /// [`skip_damage`](Cursor::skip_damage).
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        self.next_of(|_| true)
    }

    /// Returns the next wanted key, and its value; other values are not read. Errors: those of [`next`](Cursor::next).
    pub fn next_of(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        while let Some((key, found)) = self.advance()? {
            if !is_wanted(&key) {
                continue;
            }
            let value = match found {
                Merged::Base(cell) => self.base.snapshot.value(self.base.tree, &key, &cell, self.base.hint)?,
                Merged::Own(value) => value,
            };
            return Ok(Some((key, value)));
        }
        Ok(None)
    }

    /// Returns the next key, and the length of its value in bytes; the value is not read if it has pages of its own.
    /// Errors: those of [`next`](Cursor::next).
    pub fn next_key(&mut self) -> Result<Option<(Bytes, usize)>, StoreError> {
        Ok(self.advance()?.map(|(key, found)| match found {
            Merged::Base(cell) => (key, cell.value_bytes(self.base.snapshot.seal_bytes())),
            Merged::Own(value) => (key, value.len()),
        }))
    }

    /// Returns the next key with its value, or with the error of reading the value. Errors: those of
    /// [`next`](Cursor::next), if a part of the range cannot be read.
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

    /// After [`StoreError::Corrupt`]: continues after the part that cannot be read, or with the known keys of a hole,
    /// and returns that part. Returns `None` if nothing blocks the walk any more, because the error concerned a single
    /// value, or was temporary. A caller that skips must report that something is missing. Errors: those that are not
    /// damage.
    pub fn skip_damage(&mut self) -> Result<Option<Skipped>, StoreError> {
        self.base.skip_damage()
    }

    fn advance(&mut self) -> Result<Option<(Bytes, Merged)>, StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
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
    /// Returns the keys of a range with their values.
    pub fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Cursor {
        Cursor::new(self.clone(), tree, (from, to), direction, Own::none(direction))
    }

    /// Returns all trees by name, in byte order of the names. Errors: those of [`get`](Snapshot::get).
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

/// A key with its value, or with the error of reading the value.
pub type Tried = (Bytes, Result<Bytes, StoreError>);

/// A part of a tree that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its smallest key.
    pub low: Bytes,
    /// All its keys are smaller; empty means no bound.
    pub high: Bytes,
    /// It is a hole: some of its keys may be known.
    pub is_hole: bool,
}

/// The value of a key.
enum Merged {
    /// The value that the snapshot sees.
    Base(Cell),
    /// The value that the transaction has set.
    Own(Bytes),
}

/// Compares two keys in a direction.
fn in_order(direction: Direction, left: &[u8], right: &[u8]) -> Ordering {
    match direction {
        Direction::Forward => left.cmp(right),
        Direction::Backward => right.cmp(left),
    }
}
