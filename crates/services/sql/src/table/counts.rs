//! [`RowCounts`]: about how many rows tables have in row form, for plans and for the move to column form.
//!
//! A table is counted when it is first asked for, by going through its keys, up to a limit; from then on what is committed is
//! added. Counts may be off by what is committed while they are made; nothing but speed depends on them.

use std::collections::HashMap;
use std::ops::Bound;

use parking_lot::Mutex;
use store::Direction;

use super::{Table, View};
use crate::SqlError;

/// Beyond so many, a table is not counted: there is enough to move, and joins have the better order already.
const COUNTED_MOST: usize = 500_000;

/// See the file's essay. Tables are known by their storage.
#[derive(Debug, Default)]
pub(crate) struct RowCounts {
    tables: Mutex<HashMap<u64, i64>>,
}

impl RowCounts {
    /// About how many rows a table has in row form.
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

    /// A committed transaction has added so many rows, or taken them away.
    pub(crate) fn add(&self, storage: u64, rows: i64) {
        if let Some(known) = self.tables.lock().get_mut(&storage) {
            *known += rows;
        }
    }

    /// A table is to be counted again.
    pub(crate) fn forget(&self, storage: u64) {
        self.tables.lock().remove(&storage);
    }
}
