//! Which data keys the files of an index are encrypted with, as the seals in its table say: a key that one of them needs is not retired.
//!
//! Reads the table only, no file.

use std::collections::BTreeSet;
use std::ops::Bound;

use store::{Direction, Store, StoreError, TreeId};

use super::extents::FileExtents;
use super::{FILE, LARGE};

/// The numbers of the data keys that files of the index with this table are encrypted with.
///
/// Errors: those of the store; `Refused`: a file of the table is not sealed, or cannot be read.
pub fn data_keys_in_use(store: &Store, table: TreeId) -> Result<BTreeSet<u32>, StoreError> {
    let mut keys = BTreeSet::new();
    let mut cursor = store.snapshot().scan(table, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((key, value)) = cursor.next()? {
        if matches!(key.first(), Some(&(FILE | LARGE))) {
            let path = String::from_utf8_lossy(&key[1..]);
            let unreadable =
                || StoreError::Refused(format!("the index file {path} is not sealed, or cannot be read").into());
            keys.extend(FileExtents::data_keys(&value).ok_or_else(unreadable)?);
        }
    }
    Ok(keys)
}
