//! [`WriteSet`]: the writes of a transaction, for conflict detection: hashes of its keys, and its trees.
//!
//! Keys are represented by a hash of 64 bits. Two keys with the same hash cause a false conflict: the second
//! transaction runs again, and nothing wrong is stored.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::TreeId;

/// The key that represents a tree's existence: dropping the tree conflicts with every write to it.
pub(crate) const WHOLE: &[u8] = b"";

/// The hash of a key of a tree.
pub(crate) fn hash(tree: TreeId, key: &[u8]) -> u64 {
    FixedState::with_seed(0x0074_6572_7261_6365).hash_one((tree.0, key))
}

/// The writes of one transaction, for conflict detection.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteSet {
    /// One hash for each key in memory.
    pub(crate) keys: Vec<u64>,
    /// Sorted hashes, one list for each run of a spilled transaction.
    pub(crate) runs: Vec<Arc<Vec<u64>>>,
    /// The trees written to, each once.
    pub(crate) trees: Vec<TreeId>,
    /// The trees dropped.
    pub(crate) dropped: Vec<TreeId>,
}
