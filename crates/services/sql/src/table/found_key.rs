//! Which key of a table has some columns: what a foreign key refers to.

use super::definition::{Index, Table};

/// The key of a table that has these columns, in any order: its primary key, or else a unique index.
pub(crate) fn key_of<'a>(table: &'a Table, columns: &[usize]) -> Option<FoundKey<'a>> {
    let are_those = |of: &[usize]| of.len() == columns.len() && of.iter().all(|at| columns.contains(at));
    match !table.key.is_empty() && are_those(&table.key) {
        true => Some(FoundKey::Primary),
        false => {
            let mut indexes = table.indexes.iter();
            indexes.find(|index| index.unique && are_those(&index.columns)).map(FoundKey::Unique)
        }
    }
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FoundKey<'a> {
    /// The primary key.
    Primary,
    /// A unique index.
    Unique(&'a Index),
}
