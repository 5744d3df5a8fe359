//! [`Transaction`]: reading at one moment, and changing with the outcome deferred to commit.
//!
//! *Snapshot isolation*: a transaction reads what was visible when it began, and its own changes; of two that change the same
//! key the first to commit wins, the other gets [`StoreError::Conflict`]. So no update is lost and nothing half done is seen.
//! What it allows is *write skew*: two transactions that each read what the other changes may both commit.

use std::ops::Bound;

use bytes::Bytes;
use journal::Lsn;

use crate::cache::Hint;
use crate::catalog::{CATALOG, FIRST_TREE, id_of, is_internal};
use crate::commit::Committer;
use crate::cursor::{Cursor, Own};
use crate::range::Direction;
use crate::record::Op;
use crate::snapshot::Snapshot;
use crate::write_set::WHOLE;
use crate::writes::WriteBuffer;
use crate::{KEY_BYTES_MAX, StoreError, TreeId};

/// Beside a value, what a record of one change takes at most.
const RECORD_OVERHEAD_BYTES: u64 = 4096;

/// Changes that become visible, and durable, all at once at [`commit`](Transaction::commit), or never. It reads its own
/// changes over the snapshot it began with. Dropping it rolls back.
#[derive(Debug)]
pub struct Transaction {
    snapshot: Snapshot,
    writes: WriteBuffer,
    /// Why it can only be rolled back.
    broken: Option<StoreError>,
}

/// A moment inside a transaction to which it can go back.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint(usize);

impl Transaction {
    pub(crate) fn new(snapshot: Snapshot) -> Transaction {
        Transaction { snapshot, writes: WriteBuffer::default(), broken: None }
    }

    fn committer(&self) -> &Committer {
        &self.snapshot.store.engine.committer
    }

    /// What it reads beneath its own changes.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether nothing was changed so far.
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// The tree of that name, this transaction's own included. Errors: as of [`get`](Transaction::get).
    pub fn tree(&self, name: &str) -> Result<Option<TreeId>, StoreError> {
        Ok(self.get(CATALOG, name.as_bytes())?.and_then(|value| id_of(&value)))
    }

    /// Makes an empty tree. Errors: [`StoreError::Refused`] where the name is taken, empty, or begins with a byte 0.
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

    /// Gives up a tree and all in it; its pages are used again once no snapshot sees it.
    ///
    /// Errors: [`StoreError::Refused`] where there is none of that name, or it belongs to the interpreter.
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

    /// The value of a key as this transaction sees it. Errors: as of [`Snapshot::get`], [`StoreError::Poisoned`].
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.get_with(tree, key, Hint::Point)
    }

    /// The same, with what the reader does with it.
    pub fn get_with(&self, tree: TreeId, key: &[u8], hint: Hint) -> Result<Option<Bytes>, StoreError> {
        match self.writes.get(&self.snapshot.store.engine.journal, tree, key)? {
            Some(Op::Put(value)) => Ok(Some(value)),
            Some(Op::Delete | Op::DropTree) => Ok(None),
            None => self.snapshot.get_with(tree, key, hint),
        }
    }

    /// Sets a key of 1 to [`KEY_BYTES_MAX`] bytes. Errors: [`StoreError::Refused`]: also for a value longer than
    /// [`Store::value_bytes_max`](crate::Store::value_bytes_max) or than a record takes, or a tree that this transaction has dropped. Where changes spill, what the journal refuses.
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

    /// Removes a key; nothing happens where it is absent. Errors: as of [`put`](Transaction::put).
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(());
        }
        self.change(tree, key, Op::Delete)
    }

    /// Counts keys of a tree as changed by this transaction, without changing them: of two transactions that change or count
    /// one key the first to commit wins. For keys that stand for something that is stored elsewhere, such as rows in bulk;
    /// takes 8 bytes of memory a key, and nothing of the journal. A transaction that changes nothing else conflicts with
    /// nobody; going back to a savepoint does not take it back.
    pub fn count_as_changed<'a>(&mut self, tree: TreeId, keys: impl IntoIterator<Item = &'a [u8]>) {
        self.writes.count_as_changed(tree, keys);
    }

    fn change(&mut self, tree: TreeId, key: &[u8], op: Op) -> Result<(), StoreError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.writes.is_dropped(tree) {
            return Err(StoreError::Refused("this transaction has dropped the tree".into()));
        }
        self.writes.set(tree, Bytes::copy_from_slice(key), op);
        let engine = &self.snapshot.store.engine;
        if self.writes.bytes() > engine.options.transaction_bytes {
            engine.committer.spill(&mut self.writes).inspect_err(|error| self.broken = Some(error.clone()))?;
        }
        Ok(())
    }

    /// The keys of a range with their values, as they are now in this transaction; later changes are not seen.
    pub fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Cursor {
        if self.writes.is_dropped(tree) {
            let nothing = (Bound::Excluded(WHOLE), Bound::Excluded(WHOLE));
            return Cursor::new(self.snapshot.clone(), tree, nothing, direction, Own::none(direction));
        }
        let own = Own::of(&self.writes, tree, (from, to), direction);
        Cursor::new(self.snapshot.clone(), tree, (from, to), direction, own)
    }

    /// Remembers this moment.
    pub fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.writes.savepoint())
    }

    /// Undoes everything since; the savepoint itself stays. Later savepoints are gone. Panics if the savepoint is another
    /// transaction's, or gone.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.writes.rollback_to(savepoint.0);
    }

    /// Makes all changes durable and visible at once. Returns the LSN of its record; the snapshot's for one that changed nothing.
    ///
    /// Errors: [`StoreError::Conflict`]: a key was changed by another transaction since this one began, and nothing of
    /// this one happened. [`StoreError::Full`], [`StoreError::Refused`] (also where it writes to a tree that does not exist):
    /// nothing of it happened. [`StoreError::Poisoned`]:
    /// whether it happened is known after reopening.
    pub fn commit(self) -> Result<Lsn, StoreError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        if self.writes.is_empty() {
            return Ok(self.snapshot.lsn());
        }
        let Snapshot { store, held } = self.snapshot;
        store.engine.committer.commit(held, self.writes)
    }

    /// Gives up all changes.
    pub fn rollback(self) {}
}
