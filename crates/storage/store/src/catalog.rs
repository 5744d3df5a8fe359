//! The catalog of trees: the fixed ids, and the content of its rows. Pure.
//!
//! ```text
//!   ROOTS       tree of trees: id (big-endian) -> page of the root (little-endian); in no other tree
//!   CATALOG     tree 0: name -> id (little-endian); under a byte 0 and a name, the next tree id
//!   1 ..        the interpreter's
//!   FIRST_TREE  transactions', from here on
//! ```

use crate::TreeId;

/// Name to id of every tree.
pub(crate) const CATALOG: TreeId = TreeId(0);
/// Trees of transactions have ids from here on; the interpreter's are below.
pub(crate) const FIRST_TREE: u32 = 1001;
/// The tree of trees, which is in no other tree.
pub(crate) const ROOTS: TreeId = TreeId(u32::MAX);

/// Key in the catalog, with a first byte that no name has: the next tree id, so that none is used twice.
pub(crate) const NEXT_TREE: &[u8] = b"\0next";

/// The tree in a row of the catalog.
pub(crate) fn id_of(value: &[u8]) -> Option<TreeId> {
    Some(TreeId(u32::from_le_bytes(value.try_into().ok()?)))
}

/// Whether a row of the catalog is not a tree.
pub(crate) fn is_internal(name: &[u8]) -> bool {
    name.first() == Some(&0)
}
