//! The locks of keys that foreign keys refer to: who refers to a key shares it, who removes it has it alone, to the transaction's end.
//!
//! ```text
//!                       REFERRING of the table   the key   REMOVING of the table
//!   refers to a key     shared                   shared
//!   beyond the bounds   shared                             alone
//!   removes a key                                alone     shared
//!   beyond the bounds   alone                              shared
//! ```
//!
//! In each pair of a line that refers and one that removes there is a lock that one of them has alone and the other one shares. So no two
//! transactions refer to a key and remove it at the same time. Locks of rows are bounded, and these lock without bounds: where there is no
//! room for a key any more, its table's other lock is taken alone.
//!
//! They are locks beside those of rows, so that who changes other columns of a row disturbs nobody who refers to it.

use store::TreeId;

use super::row_locks::{LockMode, LockOwner};
use super::table_locks::{REFERRING, REMOVING, table_key};

/// The tree of the locks of keys among those of rows: the store has none of this number.
const KEYS: TreeId = TreeId(u32::MAX - 1);

impl LockOwner {
    /// Whether it shares a key of a table now; if not, it is noted for what it has to wait.
    pub(crate) fn share_key(&self, table: u64, key: &[u8]) -> bool {
        self.take_key(table, key, LockMode::Shared, (REFERRING, REMOVING))
    }

    /// Whether it has a key of a table alone now; if not, it is noted for what it has to wait.
    pub(crate) fn take_key_alone(&self, table: u64, key: &[u8]) -> bool {
        self.take_key(table, key, LockMode::Alone, (REMOVING, REFERRING))
    }

    fn take_key(&self, table: u64, key: &[u8], mode: LockMode, (own, other): (TreeId, TreeId)) -> bool {
        let (name, whole) = ([table_key(table).as_slice(), key].concat(), table_key(table));
        if !self.try_take(own, &whole, LockMode::Shared) || !self.try_take(KEYS, &name, mode) {
            return false;
        }
        self.has(KEYS, &name) || self.try_take(other, &whole, LockMode::Alone)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::engine::session::row_locks::RowLocks;

    /// More keys than one transaction locks.
    const MANY: u32 = 70_000;

    #[test]
    fn who_has_no_room_for_a_key_keeps_the_others_from_all_keys_of_its_table() {
        let locks = Arc::new(RowLocks::default());
        let (one, other) = (locks.owner(1), locks.owner(2));
        let last = (MANY - 1).to_be_bytes();
        assert!((0..MANY).all(|key| one.share_key(7, &key.to_be_bytes())));
        assert!(!other.take_key_alone(7, &last));
        assert!(other.take_key_alone(8, &last));
        assert!(other.share_key(7, &last));
        drop(one);
        assert!(other.take_key_alone(7, &last));
        drop(other);
        let (one, other) = (locks.owner(1), locks.owner(2));
        assert!((0..MANY).all(|key| one.take_key_alone(7, &key.to_be_bytes())));
        assert!(!other.share_key(7, &last));
        assert!(other.share_key(8, &last));
    }

    #[test]
    fn one_key_is_shared_by_many_or_removed_by_one() {
        let locks = Arc::new(RowLocks::default());
        let [one, two, three] = [1, 2, 3].map(|session| locks.owner(session));
        assert!(one.share_key(7, b"a") && two.share_key(7, b"a"));
        assert!(!three.take_key_alone(7, b"a"));
        assert!(three.take_key_alone(7, b"b"));
        assert!(!one.share_key(7, b"b"));
        drop(two);
        assert!(one.take_key_alone(7, b"a"), "it was the only one");
    }
}
