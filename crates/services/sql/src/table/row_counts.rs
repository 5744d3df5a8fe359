//! [`RowCounts`]: the approximate number of rows of tables in the delta store, for plans and for the move to the column
//! store.
//!
//! A table is counted when its number is first needed, by reading its keys, up to a limit; from then on committed
//! changes are added. A count may miss rows that are committed while it is made; only speed depends on it.

use std::collections::HashMap;
use std::ops::Bound;

use parking_lot::Mutex;
use store::Direction;

use super::{Table, View};
use crate::SqlError;

/// A table is not counted beyond this: there are enough rows to move, and the order of joins does not change any more.
const COUNTED_MOST: usize = 500_000;

/// The counts by storage of the table; see the head of this file.
#[derive(Debug, Default)]
pub(crate) struct RowCounts {
    tables: Mutex<HashMap<u64, i64>>,
}

impl RowCounts {
    /// The approximate number of rows of a table in the delta store.
    pub(crate) fn get(&self, view: &View, table: &Table) -> Result<usize, SqlError> {
        if let Some(known) = self.tables.lock().get(&table.storage) {
            return Ok((*known).max(0) as usize);
        }
        let mut rows = 0;
        let mut cursor = view.scan(table.rows, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
        while rows < COUNTED_MOST && cursor.next()?.is_some() {
            rows += 1;
        }
        self.tables.lock().insert(table.storage, rows as i64);
        Ok(rows)
    }

    /// Adds the rows that a committed transaction has added, or subtracts those it has removed.
    pub(crate) fn add(&self, storage: u64, rows: i64) {
        if let Some(known) = self.tables.lock().get_mut(&storage) {
            *known += rows;
        }
    }

    /// Lets a table be counted again.
    pub(crate) fn forget(&self, storage: u64) {
        self.tables.lock().remove(&storage);
    }
}
