//! [`VersionedTrees`]: the trees that snapshots read: the current trees, with the old versions that some snapshots
//! still see.
//!
//! ```text
//!   snapshot at L   reads the tree first, then the old versions: values replaced after L override
//!   applier         saves the old version first, then changes the tree, then publishes L'
//! ```
//!
//! It also keeps the names of all trees, and adds them to reports of damage ([`damaged`]).
//!
//! Invariants: those of [`crate::versions`]. Only the applier changes trees, and old versions with them; any thread
//! reads.

mod damaged;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use journal::Lsn;

use crate::cache::Hint;
use crate::catalog::{CATALOG, FIRST_TREE, NEXT_TREE, id_of};
use crate::forest::Forest;
use crate::interpreter::Interpreter;
use crate::range::{Direction, Span};
use crate::space::devices::DataDevices;
use crate::versions::{Snapshots, Versions};
use crate::{StoreError, TreeId};

/// See the head comment of this file.
pub(crate) struct VersionedTrees {
    pub(crate) forest: Forest,
    pub(crate) versions: Versions,
    pub(crate) snapshots: Arc<Snapshots>,
    interpreter: Option<Arc<dyn Interpreter>>,
    /// The interpreter's trees, in its order; set once while opening.
    interpreted: OnceLock<Vec<TreeId>>,
    data_devices: Arc<DataDevices>,
}

impl VersionedTrees {
    /// Over a forest without old versions, and an interpreter whose trees may not exist yet: call
    /// [`make_interpreted`](VersionedTrees::make_interpreted) first.
    pub(crate) fn new(
        forest: Forest,
        interpreter: Option<Arc<dyn Interpreter>>,
        data_devices: Arc<DataDevices>,
    ) -> VersionedTrees {
        VersionedTrees {
            forest,
            versions: Versions::default(),
            snapshots: Arc::default(),
            interpreter,
            interpreted: OnceLock::new(),
            data_devices,
        }
    }

    /// The interpreter's trees, in its order.
    pub(crate) fn interpreted(&self) -> &[TreeId] {
        self.interpreted.get().map_or(&[], Vec::as_slice)
    }

    /// Finds the interpreter's trees by name, and creates missing ones, with ids below those of transactions. No hole
    /// is made in the vital ones, unless the store is opened for repair.
    ///
    /// Errors: those of reading and changing the catalog.
    pub(crate) fn make_interpreted(&self, repair: bool) -> Result<(), StoreError> {
        let mut trees = Vec::new();
        let mut vital = HashSet::new();
        if let Some(interpreter) = &self.interpreter {
            let known = self.catalog()?;
            let names = interpreter.vital();
            let mut next = known.values().map(|id| id.0).filter(|id| *id < FIRST_TREE).max().unwrap_or(0);
            for name in interpreter.trees() {
                let id = match known.get(name.as_bytes()) {
                    Some(id) => *id,
                    None => {
                        next += 1;
                        self.forest.change(CATALOG, 0)?.set(name.as_bytes(), Some(&next.to_le_bytes()), |_| ())?;
                        TreeId(next)
                    }
                };
                trees.push(id);
                vital.extend((!repair && names.contains(&name)).then_some(id));
            }
            assert!(next < FIRST_TREE, "an interpreter has at most {} trees", FIRST_TREE - 1);
        }
        self.forest.set_vital(vital);
        assert!(self.interpreted.set(trees).is_ok(), "they are made once");
        Ok(())
    }

    /// Reads the catalog from the pages.
    pub(crate) fn catalog(&self) -> Result<HashMap<Bytes, TreeId>, StoreError> {
        let mut known = HashMap::new();
        let mut left = Some(Span::all());
        while let Some(span) = left {
            let Some(block) = self.forest.block(CATALOG, &span, Direction::Forward, u64::MAX, Hint::Point)? else {
                break;
            };
            for at in (0..block.len()).filter(|at| block.key(*at) != NEXT_TREE) {
                let id = id_of(&self.forest.value(CATALOG, &block.cell(at)?, Hint::Point)?);
                known.extend(id.map(|id| (block.key_bytes(at), id)));
            }
            left = span.split(&block.low, &block.high, Direction::Forward).1;
        }
        Ok(known)
    }

    /// The next tree id that is stored in the catalog.
    pub(crate) fn stored_next_tree(&self) -> Result<u32, StoreError> {
        let stored = self
            .forest
            .get(CATALOG, NEXT_TREE, u64::MAX)?
            .0
            .map(|cell| self.forest.value(CATALOG, &cell, Hint::Point))
            .transpose()?;
        Ok(stored.and_then(|value| id_of(&value)).map_or(FIRST_TREE, |id| id.0.max(FIRST_TREE)))
    }

    /// Drops the old versions that no snapshot sees, and those beyond `limit` bytes of memory; returns what the oldest
    /// snapshot sees. Applier only.
    pub(crate) fn collect(&self, limit: u64) -> Result<Lsn, StoreError> {
        let (oldest, visible) = (self.snapshots.oldest(), self.snapshots.visible());
        let garbage = self.versions.collect(oldest, visible, limit);
        garbage.values.iter().for_each(|cell| self.forest.free(cell));
        garbage.trees.iter().try_for_each(|tree| self.forest.drop_tree(*tree, visible))?;
        Ok(Lsn(oldest))
    }

    /// Drops trees that were dropped while a snapshot saw them, and whose pages a crash left; `known` are those of the
    /// catalog. Called while opening.
    pub(crate) fn drop_orphans(&self, known: &HashSet<TreeId>) -> Result<(), StoreError> {
        for tree in self.forest.trees() {
            if tree.id != CATALOG && !known.contains(&tree.id) {
                self.versions.forget_tree(tree.id);
                self.forest.drop_tree(tree.id, self.snapshots.visible())?;
            }
        }
        Ok(())
    }
}
