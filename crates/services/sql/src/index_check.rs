//! Indexes beside the rows of their tables: [`compare`] for checks, and [`make_again`] for repairs.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BinaryArray};
use store::{Direction, Store};

use crate::SqlError;
use crate::column::{RowGroupStore, all_rows, index_entries};
use crate::table::catalog::{CATALOG_TREE, put_table};
use crate::table::index::{IndexEncoder, reference_of_row};
use crate::table::key::KeyColumn;
use crate::table::{Index, Table, View};

/// Calls `each` with an encoder of the entries of an index for a table's rows, some at a time, their number, a function for their
/// references, and the index's columns.
pub(crate) fn each_entry(
    columns: &RowGroupStore,
    view: &View,
    table: &Arc<Table>,
    index: &Index,
    mut each: impl FnMut(&IndexEncoder<'_>, usize, &dyn Fn(usize, &mut Vec<u8>), &[ArrayRef]) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let read: Vec<usize> = index.columns.iter().chain(&table.key).copied().collect();
    all_rows(&columns.shared(table.storage), view, table, &read, |values, addresses: &BinaryArray| {
        let (indexed, keys) = values.split_at(index.columns.len());
        let keys: Vec<KeyColumn<'_>> = keys.iter().map(KeyColumn::new).collect();
        let reference = |row: usize, out: &mut Vec<u8>| reference_of_row(&keys, (addresses.value(row), row), out);
        each(&IndexEncoder::of(index, indexed.iter()), addresses.len(), &reference, indexed)
    })
}

/// Compares an index with the rows of its table. Returns what is wrong, without values.
///
/// Errors: those of reading either.
pub(crate) fn compare(
    columns: &RowGroupStore,
    view: &View,
    table: &Arc<Table>,
    index: &Index,
) -> Result<Option<String>, SqlError> {
    let (mut rows, mut wrong) = (0u64, 0u64);
    each_entry(columns, view, table, index, |encoder, count, reference, _| {
        rows += count as u64;
        let (mut key, mut leads_to) = (Vec::new(), Vec::new());
        for row in 0..count {
            leads_to.clear();
            reference(row, &mut leads_to);
            encoder.encode(row, &leads_to, &mut key)?;
            let there = view.get(index.tree(), &key)?;
            wrong += u64::from(there.is_none_or(|there| there.as_ref() != leads_to.as_slice()));
        }
        Ok(())
    })?;
    let mut entries = 0u64;
    let mut cursor = view.scan(index.tree(), Bound::Unbounded, Bound::Unbounded, Direction::Forward)?.once();
    while cursor.next()?.is_some() {
        entries += 1;
    }
    let name = &index.name;
    Ok(match (wrong, entries == rows) {
        (0, true) => None,
        (0, false) => Some(format!("index {name} has {entries} entries for {rows} rows")),
        (wrong, _) => Some(format!("index {name} has no right entry for {wrong} of {rows} rows")),
    })
}

/// Makes the entries of a table's indexes again from its rows, in one transaction.
///
/// Errors: those of the store, also if rows cannot be read; 23505 if rows have the same values in a unique index.
pub(crate) fn make_again(store: &Store, table: &Arc<Table>) -> Result<(), SqlError> {
    let columns = RowGroupStore::new();
    let view = View::Snapshot(store.snapshot());
    let mut transaction = store.begin();
    let mut changed = (**table).clone();
    for index in &mut changed.indexes {
        let name = Index::tree_name(index.number);
        if transaction.tree(&name)?.is_some() {
            transaction.drop_tree(&name)?;
        }
        index.tree = transaction.create_tree(&name)?.0;
        let index = &*index;
        each_entry(&columns, &view, table, index, |encoder, count, reference, indexed| {
            index_entries::make(&mut transaction, table, encoder, count, reference, indexed)
        })?;
    }
    if let Some(catalog) = transaction.tree(CATALOG_TREE)? {
        put_table(&mut transaction, catalog, &changed)?;
    }
    transaction.commit()?;
    Ok(())
}
