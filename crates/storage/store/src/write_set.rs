//! [`WriteSet`]: what a transaction writes, as far as conflicts go: hashes of its keys, and its trees.
//!
//! Keys are known by a hash of 64 bits. Two keys of one hash make a conflict that is none; the loser runs again, and nothing
//! wrong is stored.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::TreeId;

/// The key of a tree's own existence: dropping it conflicts with every write to it.
pub(crate) const WHOLE: &[u8] = b"";

/// A key of a tree, for conflicts.
pub(crate) fn hash(tree: TreeId, key: &[u8]) -> u64 {
    FixedState::with_seed(0x0074_6572_7261_6365).hash_one((tree.0, key))
}

/// What one transaction writes, as far as conflicts go.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteSet {
    /// One for each key in memory.
    pub(crate) keys: Vec<u64>,
    /// Sorted, one list for each run of a spilled transaction.
    pub(crate) runs: Vec<Arc<Vec<u64>>>,
    /// The trees written to, each once.
    pub(crate) trees: Vec<TreeId>,
    /// The trees dropped.
    pub(crate) dropped: Vec<TreeId>,
}
