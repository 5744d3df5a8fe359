//! [`View`]: the view that a statement reads.
//!
//! A statement of a transaction that has changed nothing reads the transaction's snapshot. After a change, reads go
//! through the transaction itself, which the session and the plans of its open queries share; a plan that outlives the
//! transaction gets an error.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use store::cache::Hint;
use store::{Cursor, Direction, Snapshot, Transaction, TreeId};

use crate::SqlError;

/// A consistent source of rows. Cheap to clone.
#[derive(Clone, Debug)]
pub enum View {
    /// The state at one moment.
    Snapshot(Snapshot),
    /// The session's transaction, its own changes included; empty when it has ended.
    Transaction(Arc<Mutex<Option<Transaction>>>),
}

impl View {
    /// The value of a key.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>, SqlError> {
        self.get_with(tree, key, Hint::Point)
    }

    /// The same, with a hint about how the reader uses it.
    pub fn get_with(&self, tree: TreeId, key: &[u8], hint: Hint) -> Result<Option<Bytes>, SqlError> {
        match self {
            View::Snapshot(snapshot) => Ok(snapshot.get_with(tree, key, hint)?),
            View::Transaction(shared) => match shared.lock().as_ref() {
                Some(transaction) => Ok(transaction.get_with(tree, key, hint)?),
                None => Err(ended()),
            },
        }
    }

    /// The tree with this name.
    pub fn tree(&self, name: &str) -> Result<Option<TreeId>, SqlError> {
        match self {
            View::Snapshot(snapshot) => Ok(snapshot.tree(name)?),
            View::Transaction(shared) => match shared.lock().as_ref() {
                Some(transaction) => Ok(transaction.tree(name)?),
                None => Err(ended()),
            },
        }
    }

    /// The keys of a range with their values, as they are now.
    pub fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Cursor, SqlError> {
        match self {
            View::Snapshot(snapshot) => Ok(snapshot.scan(tree, from, to, direction)),
            View::Transaction(shared) => match shared.lock().as_ref() {
                Some(transaction) => Ok(transaction.scan(tree, from, to, direction)),
                None => Err(ended()),
            },
        }
    }

    /// The snapshot without own changes.
    pub fn snapshot(&self) -> Result<Snapshot, SqlError> {
        match self {
            View::Snapshot(snapshot) => Ok(snapshot.clone()),
            View::Transaction(shared) => match shared.lock().as_ref() {
                Some(transaction) => Ok(transaction.snapshot().clone()),
                None => Err(ended()),
            },
        }
    }
}

fn ended() -> SqlError {
    SqlError::transaction("25000", "the transaction of this query has ended")
        .with_hint("Fetch all rows before COMMIT or ROLLBACK.")
}
