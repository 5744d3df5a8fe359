//! [`Snapshot`]: reading at one moment.

use std::sync::Arc;

use bytes::Bytes;
use journal::Lsn;

use crate::cache::Hint;
use crate::catalog::{CATALOG, id_of};
use crate::engine::Store;
use crate::tree::Cell;
use crate::versioned::VersionedTrees;
use crate::versions::Held;
use crate::{StoreError, TreeId};

/// A consistent view of one moment. Cheap to clone; old versions are kept while one lives.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) store: Store,
    pub(crate) held: Arc<Held>,
}

impl Snapshot {
    pub(crate) fn new(store: Store) -> Snapshot {
        let held = Arc::new(store.engine.trees.snapshots.begin());
        Snapshot { store, held }
    }

    /// What it reads.
    pub(crate) fn versioned(&self) -> &VersionedTrees {
        &self.store.engine.trees
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The last record it sees.
    pub fn lsn(&self) -> Lsn {
        Lsn(self.held.lsn())
    }

    /// The tree of that name. Errors: as of [`get`](Snapshot::get).
    pub fn tree(&self, name: &str) -> Result<Option<TreeId>, StoreError> {
        Ok(self.get(CATALOG, name.as_bytes())?.and_then(|value| id_of(&value)))
    }

    /// The value of a key. A large value is not copied: it points into the page cache and keeps its place there. A tree that
    /// does not exist is empty.
    ///
    /// Errors: [`StoreError::TooOld`], [`StoreError::Corrupt`], [`StoreError::Device`].
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.get_with(tree, key, Hint::Point)
    }

    /// The same, with what the reader does with it.
    pub fn get_with(&self, tree: TreeId, key: &[u8], hint: Hint) -> Result<Option<Bytes>, StoreError> {
        let VersionedTrees { forest, versions, .. } = self.versioned();
        // A page that is something else by now is no damage where this snapshot is too old.
        let found = forest.get(tree, key, self.held.lsn());
        let (mut cell, lsn) =
            found.or_else(|error| self.check().and_then(|()| Err(self.versioned().met_key(tree, key, error))))?;
        if lsn > self.held.lsn()
            && let Some(old) = versions.get(tree, key, self.held.lsn())
        {
            cell = old;
        }
        let value = cell.map(|cell| self.value(tree, key, &cell, hint)).transpose()?;
        self.check()?;
        Ok(value)
    }

    /// Whether everything it sees is still there. Errors: [`StoreError::TooOld`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.versioned().versions.is_too_old(self.held.lsn()) {
            true => Err(StoreError::TooOld),
            false => Ok(()),
        }
    }

    /// The value of a key's cell that this snapshot sees.
    pub(crate) fn value(&self, tree: TreeId, key: &[u8], cell: &Cell, hint: Hint) -> Result<Bytes, StoreError> {
        let value = self.versioned().forest.value(cell, hint);
        // What a snapshot that is too old points to may be gone: that is no damage.
        self.check()?;
        value.map_err(|error| self.versioned().met_value(tree, key, cell, error))
    }
}
