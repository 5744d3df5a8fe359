//! The keys that others refer to, of rows that a statement deletes or changes: they are noted before the rows are gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::scalar::ScalarValue;

use super::row_entries::damaged_address;
use crate::SqlError;
use crate::column::AddressedRows;
use crate::engine::Engine;
use crate::engine::session::pending_keys::Removal;
use crate::engine::session::transaction::SessionTransaction;
use crate::table::key::KeyColumn;
use crate::table::row_encoding::BatchBuilder;
use crate::table::{COLUMN_TAG, ROW_TAG, Table};

/// Reads the keys of rows that are there.
pub(crate) struct OldKeys<'a> {
    transaction: &'a SessionTransaction,
    table: &'a Table,
    /// The columns of all keys, by their positions.
    columns: Vec<usize>,
    builder: BatchBuilder,
    rows: AddressedRows,
}

impl<'a> OldKeys<'a> {
    /// The keys of a table's rows; `None` if nothing refers to one that the statement may change.
    pub(crate) fn new(
        engine: &'a Engine,
        transaction: &'a SessionTransaction,
        table: &'a Table,
    ) -> Result<Option<OldKeys<'a>>, SqlError> {
        let pending = || transaction.pending_keys();
        if !table.referenced.iter().any(|columns| pending().may_change(table.id, columns)) {
            return Ok(None);
        }
        let all: BTreeSet<usize> = table.referenced.iter().flatten().copied().collect();
        let columns: Vec<usize> = all.into_iter().collect();
        let schema = Arc::new(table.schema.project(&columns)?);
        let builder = BatchBuilder::new(table, &columns, schema, 1);
        let shared = engine.columns.shared(table.storage);
        let rows = AddressedRows::new(shared, transaction.own_view(), columns.clone());
        Ok(Some(OldKeys { transaction, table, columns, builder, rows }))
    }

    /// Notes the keys of the row at an address, which is deleted, or gets the values of a row of `new`.
    pub(crate) fn note(&mut self, address: &[u8], new: Option<(&[ArrayRef], usize)>) -> Result<(), SqlError> {
        match address.split_first() {
            Some((&ROW_TAG, key)) => {
                let Some(row) = self.transaction.get(self.table.rows, key)? else { return Ok(()) };
                self.builder.push(key, &row)?;
                let batch = self.builder.finish()?;
                note(self.transaction, self.table, &self.columns, (batch.columns(), 0), new)
            }
            Some((&COLUMN_TAG, _)) => {
                let (values, at) = self.rows.get(self.table, address)?;
                note(self.transaction, self.table, &self.columns, (values, at), new)
            }
            _ => Err(damaged_address()),
        }
    }
}

fn note(
    transaction: &SessionTransaction,
    table: &Table,
    columns: &[usize],
    (old, at): (&[ArrayRef], usize),
    new: Option<(&[ArrayRef], usize)>,
) -> Result<(), SqlError> {
    let encoded = |array: &ArrayRef, row: usize| {
        let mut bytes = Vec::new();
        KeyColumn::new(array).encode(row, &mut bytes);
        bytes
    };
    for key in &table.referenced {
        let places = key.iter().map(|column| columns.binary_search(column).unwrap_or_default());
        let values: Vec<&ArrayRef> = places.map(|place| &old[place]).collect();
        if values.iter().any(|array| array.is_null(at)) {
            continue;
        }
        let bytes: Vec<Vec<u8>> = values.iter().map(|array| encoded(array, at)).collect();
        let removal = match new {
            None => Removal::Deleted,
            Some((new, row)) => {
                let stays = |(column, bytes): (&usize, &Vec<u8>)| {
                    new[*column].is_valid(row) && encoded(&new[*column], row) == *bytes
                };
                if key.iter().zip(&bytes).all(stays) {
                    continue;
                }
                Removal::Updated
            }
        };
        let shown = values.iter().map(|array| ScalarValue::try_from_array(array, at));
        let shown = shown.collect::<Result<Vec<_>, _>>()?;
        transaction.pending_keys().remove((table.id, key, removal), bytes.concat(), shown)?;
    }
    Ok(())
}
