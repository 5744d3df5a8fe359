//! The catalog of trees: the ids that are fixed, and what its rows hold. Pure.
//!
//! ```text
//!   ROOTS       tree of trees: id (big-endian) -> page of the root (little-endian); in no other tree
//!   CATALOG     tree 0: name -> id (little-endian); behind a byte 0 the id that the next tree gets
//!   1 ..        the interpreter's
//!   FIRST_TREE  transactions', from here on
//! ```

use crate::TreeId;

/// Name to id of every tree.
pub(crate) const CATALOG: TreeId = TreeId(0);
/// Trees of transactions have ids from here on; those of the interpreter lie below.
pub(crate) const FIRST_TREE: u32 = 1001;
/// The tree of trees, which is in no other tree.
pub(crate) const ROOTS: TreeId = TreeId(u32::MAX);

/// In the catalog, behind a byte that no name has: the id that the next tree gets, so that none is used twice.
pub(crate) const NEXT_TREE: &[u8] = b"\0next";

/// The tree that a row of the catalog names.
pub(crate) fn id_of(value: &[u8]) -> Option<TreeId> {
    Some(TreeId(u32::from_le_bytes(value.try_into().ok()?)))
}

/// Whether a row of the catalog is no tree.
pub(crate) fn is_internal(name: &[u8]) -> bool {
    name.first() == Some(&0)
}
