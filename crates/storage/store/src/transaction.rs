//! [`Transaction`]: reads the state of one moment, and makes changes that take effect at commit.
//!
//! *Snapshot isolation*: a transaction reads what was visible when it began, and its own changes. Of two transactions
//! that change the same key the first to commit wins; the other gets [`StoreError::Conflict`]. So no update is lost and
//! no transaction is seen partly. *Write skew* is possible: two transactions that each read what the other changes may
//! both commit. A transaction may [renew](Transaction::renew) its snapshot between two of its changes.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use journal::Lsn;

use crate::cache::Hint;
use crate::catalog::{CATALOG, FIRST_TREE, id_of, is_internal};
use crate::commit::{Committer, given_up};
use crate::cursor::{Cursor, Own};
use crate::range::Direction;
use crate::record::Op;
use crate::snapshot::Snapshot;
use crate::versions::Held;
use crate::write_set::{self, WHOLE};
use crate::writes::WriteBuffer;
use crate::{KEY_BYTES_MAX, StoreError, TreeId};

/// Upper bound of the size of a record with one change, without the value.
const RECORD_OVERHEAD_BYTES: u64 = 4096;

/// Changes that become visible and durable all at once at [`commit`](Transaction::commit), or never. It reads its own
/// changes over its snapshot. Dropping it rolls back.
#[derive(Debug)]
pub struct Transaction {
    snapshot: Snapshot,
    writes: WriteBuffer,
    /// Why it can only be rolled back.
    broken: Option<StoreError>,
}

/// A moment in a transaction to which it can be rolled back.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint(usize);

impl Transaction {
    pub(crate) fn new(snapshot: Snapshot) -> Transaction {
        Transaction { snapshot, writes: WriteBuffer::default(), broken: None }
    }

    fn committer(&self) -> &Committer {
        &self.snapshot.store.engine.committer
    }

    /// The snapshot below its own changes.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether nothing has been changed so far.
    pub fn is_read_only(&self) -> bool {
        self.broken.is_none() && self.writes.is_empty()
    }

    /// Whether it can go on. Errors: that of a change which could not be spilled; [`StoreError::Full`] if the journal had no room
    /// and gave up what was spilled. It can then only be dropped, or in the latter case rolled back to before it spilled.
    pub fn check(&self) -> Result<(), StoreError> {
        match (&self.broken, &self.writes.claim) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(claim)) if claim.is_broken() => Err(given_up()),
            _ => Ok(()),
        }
    }

    /// Returns the tree with that name, including trees that this transaction has created. Errors: those of
    /// [`get`](Transaction::get).
    pub fn tree(&self, name: &str) -> Result<Option<TreeId>, StoreError> {
        Ok(self.get(CATALOG, name.as_bytes())?.and_then(|value| id_of(&value)))
    }

    /// Creates an empty tree. Errors: [`StoreError::Refused`] if the name is in use, empty, or begins with a byte 0.
    pub fn create_tree(&mut self, name: &str) -> Result<TreeId, StoreError> {
        if is_internal(name.as_bytes()) {
            return Err(StoreError::Refused("a tree's name does not begin with a byte 0".into()));
        }
        if self.tree(name)?.is_some() {
            return Err(StoreError::Refused(format!("tree {name} exists").into()));
        }
        let id = self.committer().new_tree();
        self.writes.created.push(id);
        self.put(CATALOG, name.as_bytes(), &id.0.to_le_bytes())?;
        Ok(id)
    }

    /// Drops a tree with all its keys; its pages are reused once no snapshot sees it.
    ///
    /// Errors: [`StoreError::Refused`] if there is no tree with that name, or it belongs to the interpreter.
    pub fn drop_tree(&mut self, name: &str) -> Result<(), StoreError> {
        let Some(tree) = self.tree(name)? else {
            return Err(StoreError::Refused(format!("there is no tree {name}").into()));
        };
        if tree.0 < FIRST_TREE {
            return Err(StoreError::Refused(format!("tree {name} belongs to the store's services").into()));
        }
        self.change(CATALOG, name.as_bytes(), Op::Delete)?;
        self.change(tree, WHOLE, Op::DropTree)
    }

    /// Returns the value of a key as this transaction sees it. Errors: those of [`Snapshot::get`], of
    /// [`check`](Transaction::check), [`StoreError::Poisoned`].
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.get_with(tree, key, Hint::Point)
    }

    /// As [`get`](Transaction::get), with a hint about the reader's use.
    pub fn get_with(&self, tree: TreeId, key: &[u8], hint: Hint) -> Result<Option<Bytes>, StoreError> {
        self.check()?;
        let own = self.writes.get(&self.snapshot.store.engine.journal, tree, key);
        // What is given up meanwhile cannot be read.
        let own = own.map_err(|error| self.check().err().unwrap_or(error))?;
        match own {
            Some(Op::Put(value)) => Ok(Some(value)),
            Some(Op::Delete | Op::DropTree) => Ok(None),
            None => self.snapshot.get_with(tree, key, hint),
        }
    }

    /// Sets a key of 1 to [`KEY_BYTES_MAX`] bytes. Errors: [`StoreError::Refused`], also for a value longer than
    /// [`Store::value_bytes_max`](crate::Store::value_bytes_max) or too long for a record, or for a tree that this
    /// transaction has dropped. If changes spill, also errors of the journal.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(StoreError::Refused(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len()).into()));
        }
        let of_record = self.committer().record_bytes_max().saturating_sub(RECORD_OVERHEAD_BYTES);
        let max = of_record.min(self.committer().value_bytes_max() as u64);
        if value.len() as u64 > max {
            return Err(StoreError::Refused(format!("a value has at most {max} bytes, not {}", value.len()).into()));
        }
        self.change(tree, key, Op::Put(Bytes::copy_from_slice(value)))
    }

    /// Removes a key; does nothing if it is absent. Errors: those of [`put`](Transaction::put).
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(());
        }
        self.change(tree, key, Op::Delete)
    }

    /// Counts keys of a tree as changed by this transaction, without changing them: of two transactions that change or
    /// count the same key the first to commit wins. Use it for keys that represent something stored elsewhere, such as
    /// rows in bulk. It takes 8 bytes of memory per key, and nothing of the journal. A transaction that changes nothing
    /// else never conflicts. Rolling back to a savepoint undoes it.
    pub fn count_as_changed<'a>(&mut self, tree: TreeId, keys: impl IntoIterator<Item = &'a [u8]>) {
        self.writes.count_as_changed(tree, keys);
    }

    fn change(&mut self, tree: TreeId, key: &[u8], op: Op) -> Result<(), StoreError> {
        self.check()?;
        if self.writes.is_dropped(tree) {
            return Err(StoreError::Refused("this transaction has dropped the tree".into()));
        }
        self.writes.set(tree, Bytes::copy_from_slice(key), op);
        let engine = &self.snapshot.store.engine;
        if self.writes.bytes() > engine.options.transaction_bytes
            && let Err(error) = engine.committer.spill(&mut self.writes)
        {
            // Neither can be read any more, and the part of the journal that it needed is given up.
            (self.broken, self.writes) = (Some(error.clone()), WriteBuffer::default());
            return Err(error);
        }
        Ok(())
    }

    /// Returns the keys of a range with their current values in this transaction; later changes are not seen.
    pub fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Cursor {
        if let Err(error) = self.check() {
            return Cursor::failed(self.snapshot.clone(), tree, direction, error);
        }
        if self.writes.is_dropped(tree) {
            let nothing = (Bound::Excluded(WHOLE), Bound::Excluded(WHOLE));
            return Cursor::new(self.snapshot.clone(), tree, nothing, direction, Own::none(direction));
        }
        let own = Own::of(&self.writes, tree, (from, to), direction);
        Cursor::new(self.snapshot.clone(), tree, (from, to), direction, own)
    }

    /// Sets a savepoint.
    pub fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.writes.savepoint())
    }

    /// Undoes everything since the savepoint, which stays. Later savepoints are removed. Does nothing if a change could not be
    /// spilled ([`check`](Transaction::check)). Panics if the savepoint belongs to another transaction, or was removed.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        if self.broken.is_none() {
            self.writes.rollback_to(savepoint.0);
        }
    }

    /// Removes a savepoint, and later ones; the changes since stay. Panics as [`rollback_to`](Transaction::rollback_to).
    pub fn release(&mut self, savepoint: Savepoint) {
        if self.broken.is_none() {
            self.writes.release(savepoint.0);
        }
    }

    /// Reads the present state from now on, and its own changes over it: for transactions each statement of which sees what others
    /// have committed. Afterwards only changes that others commit from now on conflict with its own.
    ///
    /// Errors: [`StoreError::Conflict`]: another transaction has changed a key since the snapshot, and this one has; the snapshot is
    /// the old one then. Whoever keeps others from the keys that it changes will not get it.
    pub fn renew(&mut self) -> Result<(), StoreError> {
        self.check()?;
        let newer = Snapshot::new(self.snapshot.store.clone());
        if !self.writes.is_free() {
            let engine = &self.snapshot.store.engine;
            engine.committer.check_renewal(self.snapshot.lsn().0, &mut self.writes)?;
        }
        self.snapshot = newer;
        Ok(())
    }

    /// Whether it could be [renewed](Transaction::renew), and therefore committed now.
    ///
    /// Errors: [`StoreError::Conflict`].
    pub fn check_renewal(&mut self) -> Result<(), StoreError> {
        match self.writes.is_free() {
            true => Ok(()),
            false => {
                let committer = &self.snapshot.store.engine.committer;
                committer.check_renewal(self.snapshot.lsn().0, &mut self.writes)
            }
        }
    }

    /// Whether no other transaction has changed a key since the snapshot. False now and then for a key that is current: keys are
    /// compared by hashes.
    pub fn is_current(&self, tree: TreeId, key: &[u8]) -> bool {
        self.committer().is_current(self.snapshot.lsn().0, tree, key)
    }

    /// The same for many keys, for which commits are held up once: whether each is current.
    pub fn are_current<'a>(&self, keys: impl IntoIterator<Item = (TreeId, &'a [u8])>) -> Vec<bool> {
        let hashes = keys.into_iter().map(|(tree, key)| write_set::hash(tree, key)).collect::<Vec<_>>();
        self.committer().are_current(self.snapshot.lsn().0, &hashes)
    }

    /// Makes all changes durable and visible at once. Returns the LSN of its record; the snapshot's LSN if it changed
    /// nothing.
    ///
    /// Errors: [`StoreError::Conflict`]: another transaction has changed a key since this one began, and this one has
    /// no effect. [`StoreError::Full`], [`StoreError::Refused`] (also if it writes to a tree that does not exist): it
    /// has no effect. [`StoreError::Poisoned`]: the next opening determines whether it took effect.
    pub fn commit(self) -> Result<Lsn, StoreError> {
        self.commit_by(Committer::commit)
    }

    /// As [`commit`](Transaction::commit), in the space that [`SpaceLimits`](crate::SpaceLimits) keep for the records of services too: for
    /// a few small rows of the node itself, which tell of its work when tables have taken all of theirs.
    ///
    /// Errors: those of [`commit`](Transaction::commit); [`StoreError::Full`] only if the medium itself has no space.
    pub fn commit_beyond_limits(self) -> Result<Lsn, StoreError> {
        self.commit_by(Committer::commit_beyond_limits)
    }

    fn commit_by(
        self,
        commit: impl FnOnce(&Committer, Arc<Held>, WriteBuffer) -> Result<Lsn, StoreError>,
    ) -> Result<Lsn, StoreError> {
        self.check()?;
        if self.writes.is_empty() {
            return Ok(self.snapshot.lsn());
        }
        let Snapshot { store, held } = self.snapshot;
        commit(&store.engine.committer, held, self.writes)
    }

    /// Discards all changes.
    pub fn rollback(self) {}
}
