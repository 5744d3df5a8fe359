//! Table locks: a transaction that changes rows shares the lock of a table, one that changes the definition has it
//! alone.
//!
//! Locks are in memory and are never waited for: a transaction that cannot get one gets an error and has to run again;
//! the engine repeats a statement that is its own transaction. The store's snapshots alone would allow rows to be
//! written into a table that is being dropped, because neither transaction changes a key of the other.
//!
//! LOCK TABLE, which is waited for, is a lock among those of rows, under [`table_key`]; who changes rows shares it.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use store::TreeId;

use crate::SqlError;

/// The tree of the locks of tables among those of rows: the store has none of this number.
pub(crate) const TABLES: TreeId = TreeId(u32::MAX);
/// That of the locks of tables whose keys others refer to.
pub(crate) const REFERRING: TreeId = TreeId(u32::MAX - 2);
/// That of the locks of tables whose keys are removed.
pub(crate) const REMOVING: TreeId = TreeId(u32::MAX - 3);

/// The key of a table's lock.
pub(crate) fn table_key(table: u64) -> [u8; 8] {
    table.to_be_bytes()
}

/// The table of such a key.
pub(crate) fn table_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

#[derive(Debug, Default)]
struct Held {
    shared: HashSet<u64>,
    alone: Option<u64>,
    /// LSN of the last change of the table's definition.
    changed: u64,
    /// LSN of the last commit of one that changed the table.
    written: u64,
}

/// The locks of all tables, by table id. Owners are numbers of sessions.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    tables: Mutex<HashMap<u64, Held>>,
}

impl Locks {
    /// Takes a table's lock for a transaction whose snapshot is at LSN `seen`. Errors: [`SqlError::Again`].
    pub(crate) fn take(&self, table: u64, owner: u64, alone: bool, seen: u64) -> Result<(), SqlError> {
        let mut tables = self.tables.lock();
        let held = tables.entry(table).or_default();
        if held.changed > seen {
            return Err(SqlError::Again("the table was changed or dropped after this transaction began".into()));
        }
        let by_other = held.alone.is_some_and(|other| other != owner);
        if by_other || (alone && held.shared.iter().any(|other| *other != owner)) {
            return Err(SqlError::Again("another transaction uses the table".into()));
        }
        match alone {
            true => held.alone = Some(owner),
            false => _ = held.shared.insert(owner),
        }
        Ok(())
    }

    /// Whether a transaction has a table's lock alone.
    pub(crate) fn is_alone(&self, table: u64) -> bool {
        self.tables.lock().get(&table).is_some_and(|held| held.alone.is_some())
    }

    /// Refuses a look at all rows of a table in a snapshot at LSN `seen` if rows were changed since. The caller has the lock alone,
    /// so that none will be. Errors: [`SqlError::Again`].
    pub(crate) fn check_newest(&self, table: u64, seen: u64) -> Result<(), SqlError> {
        match self.tables.lock().get(&table).is_some_and(|held| held.written > seen) {
            true => Err(SqlError::Again("rows of the table were changed after this transaction began".into())),
            false => Ok(()),
        }
    }

    /// Who has the lock of which table, and whether alone.
    pub(crate) fn shown(&self) -> Vec<(u64, u64, bool)> {
        let tables = self.tables.lock();
        let shared = tables.iter().flat_map(|(table, held)| held.shared.iter().map(|owner| (*table, *owner, false)));
        let alone = tables.iter().filter_map(|(table, held)| Some((*table, held.alone?, true)));
        shared.chain(alone).collect()
    }

    /// Releases an owner's lock, which it had alone or shared. `committed` is the LSN of its commit, if it has changed something.
    pub(crate) fn give_back(&self, table: u64, owner: u64, alone: bool, committed: Option<u64>) {
        let mut tables = self.tables.lock();
        if let Some(held) = tables.get_mut(&table) {
            let committed = committed.unwrap_or(0);
            held.shared.remove(&owner);
            held.written = held.written.max(committed);
            if alone && held.alone == Some(owner) {
                held.alone = None;
                held.changed = held.changed.max(committed);
            }
            if held.shared.is_empty() && held.alone.is_none() && held.changed == 0 && held.written == 0 {
                tables.remove(&table);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_excludes_others_and_a_change_sends_older_transactions_back() {
        let locks = Locks::default();
        locks.take(1, 10, false, 5).unwrap();
        locks.take(1, 11, false, 5).unwrap();
        assert!(locks.take(1, 10, true, 5).is_err());
        locks.give_back(1, 11, false, Some(6));
        locks.take(1, 10, true, 5).unwrap();
        assert!(locks.is_alone(1) && !locks.is_alone(2));
        assert!(locks.check_newest(1, 5).is_err());
        locks.check_newest(1, 6).unwrap();
        assert!(locks.take(1, 11, false, 5).is_err());
        locks.give_back(1, 10, true, Some(9));
        assert!(locks.take(1, 11, false, 5).is_err());
        locks.take(1, 11, false, 9).unwrap();
    }
}
