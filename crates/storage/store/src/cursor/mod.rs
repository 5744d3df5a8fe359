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
use crate::record::Op;
use crate::transaction::{Direction, Snapshot};
use crate::{StoreError, TreeId};

use base::Base;
pub(crate) use own::Own;

/// Walks over keys and values; owns its snapshot, so that it may outlive whoever made it.
#[derive(Debug)]
pub struct Cursor {
    base: Base,
    own: Own,
    direction: Direction,
    ahead_base: Option<base::Item>,
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
    /// [`StoreError::Device`].
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        if !self.started {
            self.started = true;
            self.ahead_base = self.base.next()?;
            self.ahead_own = self.own.next(&self.base.snapshot)?;
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
                return Ok(Some((key, self.base.snapshot.value(&cell, self.base.hint)?)));
            }
            let next = self.own.next(&self.base.snapshot)?;
            if let Some((key, Op::Put(value))) = std::mem::replace(&mut self.ahead_own, next) {
                return Ok(Some((key, value)));
            }
        }
    }
}

/// How two keys follow each other.
fn in_order(direction: Direction, left: &[u8], right: &[u8]) -> Ordering {
    match direction {
        Direction::Forward => left.cmp(right),
        Direction::Backward => right.cmp(left),
    }
}

/// Whether a range holds no key: `BTreeMap::range` panics for some of these.
pub(crate) fn is_empty(range: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match range {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}
