//! [`Snapshot`], [`Transaction`] and [`Cursor`]: reading at one moment, and changing with the outcome deferred to commit.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use journal::Lsn;

use crate::interpreter::Changes;
use crate::store::CATALOG;
use crate::{KEY_BYTES_MAX, Store, StoreError, TreeId};

/// A consistent view of one moment. Cheap to clone; old versions are kept while one lives.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) store: Store,
    pub(crate) lsn: u64,
}

/// Which way a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest key first.
    Forward,
    /// Largest key first.
    Backward,
}

impl Snapshot {
    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The last record it sees.
    pub fn lsn(&self) -> Lsn {
        Lsn(self.lsn)
    }

    /// The tree of that name.
    pub fn tree(&self, name: &str) -> Result<Option<TreeId>, StoreError> {
        Ok(self
            .get(CATALOG, name.as_bytes())?
            .and_then(|v| v.as_ref().try_into().ok())
            .map(|v| TreeId(u32::from_le_bytes(v))))
    }

    /// All trees by name, in byte order of the names.
    pub fn trees(&self) -> Result<Vec<(String, TreeId)>, StoreError> {
        let all = self.store.inner.range(CATALOG, Bound::Unbounded, Bound::Unbounded, self.lsn);
        let id = |v: Bytes| TreeId(u32::from_le_bytes(v.as_ref().try_into().unwrap_or_default()));
        Ok(all.into_iter().map(|(name, v)| (String::from_utf8_lossy(&name).into_owned(), id(v))).collect())
    }

    /// The value of a key. A large value is not copied: it points into the page cache and keeps its place there.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.store.inner.get(tree, key, self.lsn))
    }

    /// The keys of a range with their values.
    pub fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Cursor {
        Cursor::new(self.store.inner.range(tree, from, to, self.lsn), direction)
    }
}

/// Changes that become visible, and durable, all at once at [`commit`](Transaction::commit), or never. It reads its own
/// changes over the snapshot it began with. Dropping it rolls back.
#[derive(Debug)]
pub struct Transaction {
    snapshot: Snapshot,
    changes: BTreeMap<(TreeId, Bytes), Option<Bytes>>,
    savepoints: Vec<BTreeMap<(TreeId, Bytes), Option<Bytes>>>,
}

/// A moment inside a transaction to which it can go back.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint(usize);

impl Transaction {
    pub(crate) fn new(snapshot: Snapshot) -> Transaction {
        Transaction { snapshot, changes: BTreeMap::new(), savepoints: Vec::new() }
    }

    /// What it reads beneath its own changes.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether nothing was changed so far.
    pub fn is_read_only(&self) -> bool {
        self.changes.is_empty()
    }

    /// The tree of that name, this transaction's own included.
    pub fn tree(&self, name: &str) -> Result<Option<TreeId>, StoreError> {
        Ok(self
            .get(CATALOG, name.as_bytes())?
            .and_then(|v| v.as_ref().try_into().ok())
            .map(|v| TreeId(u32::from_le_bytes(v))))
    }

    /// Makes an empty tree. Errors: [`StoreError::Refused`] where the name is taken.
    pub fn create_tree(&mut self, name: &str) -> Result<TreeId, StoreError> {
        if self.tree(name)?.is_some() {
            return Err(StoreError::Refused(format!("tree {name} exists").into()));
        }
        let id = self.snapshot.store.inner.new_tree();
        self.put(CATALOG, name.as_bytes(), &id.0.to_le_bytes())?;
        Ok(id)
    }

    /// Gives up a tree and all in it. Errors: [`StoreError::Refused`] where there is none of that name.
    pub fn drop_tree(&mut self, name: &str) -> Result<(), StoreError> {
        let Some(tree) = self.tree(name)? else {
            return Err(StoreError::Refused(format!("there is no tree {name}").into()));
        };
        let keys: Vec<Bytes> = {
            let mut cursor = self.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            let mut keys = Vec::new();
            while let Some((key, _)) = cursor.next()? {
                keys.push(key);
            }
            keys
        };
        for key in keys {
            self.delete(tree, &key)?;
        }
        self.delete(CATALOG, name.as_bytes())
    }

    /// The value of a key as this transaction sees it.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match self.changes.get(&(tree, Bytes::copy_from_slice(key))) {
            Some(own) => Ok(own.clone()),
            None => self.snapshot.get(tree, key),
        }
    }

    /// Sets a key of 1 to [`KEY_BYTES_MAX`] bytes. Errors: [`StoreError::Refused`].
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(StoreError::Refused(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len()).into()));
        }
        self.changes.insert((tree, Bytes::copy_from_slice(key)), Some(Bytes::copy_from_slice(value)));
        Ok(())
    }

    /// Removes a key; nothing happens where it is absent.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), StoreError> {
        self.changes.insert((tree, Bytes::copy_from_slice(key)), None);
        Ok(())
    }

    /// The keys of a range with their values, as they are now in this transaction; later changes are not seen.
    pub fn scan(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Cursor {
        let base = self.snapshot.store.inner.range(tree, from, to, self.snapshot.lsn);
        let mut all: BTreeMap<Bytes, Bytes> = base.into_iter().collect();
        let inside = |key: &Bytes| std::ops::RangeBounds::<[u8]>::contains(&(from, to), key.as_ref());
        for ((_, key), value) in self.changes.iter().filter(|((t, key), _)| *t == tree && inside(key)) {
            match value {
                Some(value) => all.insert(key.clone(), value.clone()),
                None => all.remove(key),
            };
        }
        Cursor::new(all.into_iter().collect(), direction)
    }

    /// Remembers this moment.
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints.push(self.changes.clone());
        Savepoint(self.savepoints.len() - 1)
    }

    /// Undoes everything since; the savepoint itself stays. Later savepoints are gone.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.savepoints.truncate(savepoint.0 + 1);
        self.changes = self.savepoints[savepoint.0].clone();
    }

    /// Makes all changes durable and visible at once. Returns the LSN of its record; the snapshot's for one that changed nothing.
    ///
    /// Errors: [`StoreError::Conflict`]: a key was changed by another transaction since this one began, and nothing of
    /// this one happened. [`StoreError::Frozen`]: whether it happened is known after reopening.
    pub fn commit(self) -> Result<Lsn, StoreError> {
        if self.changes.is_empty() {
            return Ok(Lsn(self.snapshot.lsn));
        }
        let list = self.changes.into_iter().map(|((tree, key), value)| (tree, key, value)).collect();
        self.snapshot.store.inner.commit(self.snapshot.lsn, Changes { list })
    }

    /// Gives up all changes.
    pub fn rollback(self) {}
}

/// Walks over keys and values; owns its snapshot, so that it may outlive whoever made it.
#[derive(Debug)]
pub struct Cursor {
    entries: std::vec::IntoIter<(Bytes, Bytes)>,
    direction: Direction,
}

impl Cursor {
    fn new(entries: Vec<(Bytes, Bytes)>, direction: Direction) -> Cursor {
        Cursor { entries: entries.into_iter(), direction }
    }

    /// The next key and value, or `None` at the end of the range.
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        Ok(match self.direction {
            Direction::Forward => self.entries.next(),
            Direction::Backward => self.entries.next_back(),
        })
    }
}
