//! [`Snapshot`]: reads the state of one moment.

use std::sync::Arc;

use bytes::Bytes;
use journal::Lsn;

use crate::cache::Hint;
use crate::catalog::{CATALOG, id_of};
use crate::engine::Store;
use crate::page::encrypted::seal_bytes;
use crate::tree::Cell;
use crate::versioned::VersionedTrees;
use crate::versions::Held;
use crate::{StoreError, TreeId};

/// A consistent view of one moment. Cheap to clone; old versions are kept while a clone exists.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) store: Store,
    pub(crate) held: Arc<Held>,
}

impl Snapshot {
    /// Opens a snapshot of the visible state. While a batch is applied whose old versions are not kept, every snapshot
    /// before it is too old: then this waits until the batch is visible.
    pub(crate) fn new(store: Store) -> Snapshot {
        let VersionedTrees { snapshots, versions, .. } = &*store.engine.trees;
        loop {
            let held = snapshots.begin();
            // If nothing is applied any more, the first read reports the cause.
            if !versions.is_too_old(held.lsn()) || store.engine.wait_visible(Lsn(versions.floor())).is_err() {
                return Snapshot { held: Arc::new(held), store };
            }
        }
    }

    /// The trees that it reads.
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

    /// Returns the tree with that name. Errors: those of [`get`](Snapshot::get).
    pub fn tree(&self, name: &str) -> Result<Option<TreeId>, StoreError> {
        Ok(self.get(CATALOG, name.as_bytes())?.and_then(|value| id_of(&value)))
    }

    /// Returns the value of a key. A large value is not copied: the result points into the page cache and pins its
    /// frame. A tree that does not exist is empty.
    ///
    /// Errors: [`StoreError::TooOld`], [`StoreError::Corrupt`], [`StoreError::Device`].
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.get_with(tree, key, Hint::Point)
    }

    /// As [`get`](Snapshot::get), with a hint about the reader's use.
    pub fn get_with(&self, tree: TreeId, key: &[u8], hint: Hint) -> Result<Option<Bytes>, StoreError> {
        let VersionedTrees { forest, versions, .. } = self.versioned();
        // If this snapshot is too old, a page with other content is not damage.
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

    /// Bytes by which a stored extent is longer than its part of the value.
    pub(crate) fn seal_bytes(&self) -> usize {
        seal_bytes(self.store.engine.data_devices.sealer())
    }

    /// Checks that all the old versions it needs still exist. Errors: [`StoreError::TooOld`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.versioned().versions.is_too_old(self.held.lsn()) {
            true => Err(StoreError::TooOld),
            false => Ok(()),
        }
    }

    /// Reads the value of a key's cell that this snapshot sees.
    pub(crate) fn value(&self, tree: TreeId, key: &[u8], cell: &Cell, hint: Hint) -> Result<Bytes, StoreError> {
        let value = self.versioned().forest.value(tree, cell, hint);
        // The pages of a snapshot that is too old may have been reused: that is not damage.
        self.check()?;
        value.map_err(|error| self.versioned().met_value(tree, key, cell, error))
    }
}
