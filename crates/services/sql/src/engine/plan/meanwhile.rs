//! [`Meanwhile`]: what happened to names since the snapshot of a statement, whose rights are those of now.
//!
//! Rights belong to names. A table that a transaction sees under a name may have been dropped meanwhile, and another one made
//! with that name, by another owner and with other rights: they say nothing about the old table. So a name is only used where
//! it stands for the same object in the snapshot and now; otherwise the transaction has to run again (40001).
//!
//! It deliberately says nothing about names that the transaction itself created: their owner is known there.

use std::sync::Arc;

use crate::SqlError;
use crate::table::{Catalog, Entry, Table};

/// The names of a statement's snapshot, and those of now.
#[derive(Clone, Debug)]
pub(crate) struct Meanwhile {
    /// Without the transaction's own changes.
    pub(crate) before: Arc<Catalog>,
    pub(crate) now: Arc<Catalog>,
}

impl Meanwhile {
    /// Whether a name stands for the same object; `by_columns`: and whether the names of its columns do.
    ///
    /// Errors: 40001.
    pub(crate) fn still(&self, schema: &str, name: &str, by_columns: bool) -> Result<(), SqlError> {
        let Some(before) = self.before.get(schema, name) else { return Ok(()) };
        let is_same = match (before, self.now.get(schema, name)) {
            (Entry::Table(before), Some(Entry::Table(now))) => {
                before.id == now.id && (!by_columns || has_same_columns(before, now))
            }
            (Entry::View(before), Some(Entry::View(now))) => before == now,
            (Entry::Virtual(_), Some(Entry::Virtual(_))) => true,
            (Entry::Sequence(before), Some(Entry::Sequence(now))) => before.id == now.id,
            (Entry::External(before), Some(Entry::External(now))) => {
                before.location == now.location && before.schema == now.schema
            }
            _ => false,
        };
        match is_same {
            true => Ok(()),
            false => Err(SqlError::Again(format!("\"{name}\" was changed or dropped by another transaction").into())),
        }
    }
}

/// Whether columns stand for the same values: new ones come last, and dropping one moves the rows to another storage.
fn has_same_columns(before: &Table, now: &Table) -> bool {
    let names = |table: &Table, count: usize| -> Vec<String> {
        table.columns.iter().take(count).map(|column| column.name.clone()).collect()
    };
    let count = before.columns.len();
    before.storage == now.storage && names(before, count) == names(now, count)
}
