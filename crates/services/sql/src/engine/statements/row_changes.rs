//! Writes rows into the transaction: constraints, keys, and the rows of RETURNING.
//!
//! NOT NULL, CHECK, the primary key and unique indexes are checked against the transaction's view. Each row is locked before: where another transaction
//! has it, the statement fails with [`SqlError::Again`], waits for the row and runs again. Rows without a primary key are new, and
//! are not locked when they are added.

use std::collections::HashSet;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use store::KEY_BYTES_MAX;

use super::referenced_keys::OldKeys;
use super::references;
use super::row_entries::{NewEntries, OldEntries, Pending, damaged_address};
use crate::engine::Engine;
use crate::engine::session::transaction::SessionTransaction;
use crate::table::key::{self, KeyColumn};
use crate::table::row_encoding::RowEncoder;
use crate::table::{COLUMN_TAG, ColumnStore, ROW_TAG, Table};
use crate::{ErrorFields, ErrorObject, SqlError};

/// The treatment of a row whose primary key, or values in a unique index, exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// SQLSTATE 23505.
    Refuse,
    /// The row is skipped if this is where they exist.
    Skip(Arbiter),
    /// There is none: the keys were checked.
    NoneIs,
}

/// Where ON CONFLICT looks for existing rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arbiter {
    /// The primary key and all unique indexes.
    Any,
    /// The primary key.
    Key,
    /// The unique index at this position.
    Index(usize),
}

/// Refuses NULL in columns that are NOT NULL.
fn check_nulls(table: &Table, columns: &[ArrayRef]) -> Result<(), SqlError> {
    for (at, (column, array)) in table.columns.iter().zip(columns).enumerate() {
        if array.null_count() > 0 && (column.not_null || table.key.contains(&at)) {
            let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or(0);
            let (name, relation) = (&column.name, &table.name);
            let message =
                format!("null value in column \"{name}\" of relation \"{relation}\" violates not-null constraint");
            let error = SqlError::value("23502", message).about(ErrorObject {
                schema: table.schema_name.clone(),
                table: table.name.clone(),
                column: Some(name.clone()),
                ..ErrorObject::default()
            });
            return Err(failing_row(error, table, columns, row));
        }
    }
    Ok(())
}

/// The error with the row that caused it.
pub(crate) fn failing_row(error: SqlError, table: &Table, columns: &[ArrayRef], row: usize) -> SqlError {
    let cell = |array: &ArrayRef| {
        if array.is_null(row) { "null".into() } else { key::display(std::slice::from_ref(array), row) }
    };
    let cells = table.columns.iter().zip(columns);
    error.telling_row(cells.map(|(column, array)| (column.name.clone(), cell(array))).collect())
}

/// Refuses rows that violate NOT NULL or a CHECK constraint. Errors: 23502, 23514; those of the conditions.
pub(crate) fn check_rows(
    transaction: &SessionTransaction,
    table: &Table,
    columns: &[ArrayRef],
) -> Result<(), SqlError> {
    check_nulls(table, columns)?;
    if table.checks.is_empty() {
        return Ok(());
    }
    match transaction.checks().of(table) {
        Some(checks) => {
            let Some((check, row)) = checks.violated(table, columns)? else { return Ok(()) };
            let (name, relation) = (&check.name, &table.name);
            let message = format!("new row for relation \"{relation}\" violates check constraint \"{name}\"");
            let error = SqlError::value("23514", message).of_constraint(&table.schema_name, relation, name);
            Err(failing_row(error, table, columns, row))
        }
        None => Err(SqlError::Engine(Box::new(ErrorFields::new("XX000", "the constraints were not prepared")))),
    }
}

/// The encoded primary keys of rows.
pub(crate) struct KeyEncoder<'a> {
    columns: Vec<KeyColumn<'a>>,
}

impl<'a> KeyEncoder<'a> {
    pub(crate) fn new(table: &Table, columns: &'a [ArrayRef]) -> KeyEncoder<'a> {
        KeyEncoder { columns: table.key.iter().map(|at| KeyColumn::new(&columns[*at])).collect() }
    }

    /// The key of a row, empty for a table without one. Errors: 54000 if it is too long.
    pub(crate) fn encode(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        out.clear();
        for column in &self.columns {
            column.encode(row, out);
        }
        if out.len() > KEY_BYTES_MAX {
            return Err(key::too_long(out.len()));
        }
        Ok(())
    }
}

/// Goes on after a row that another transaction has locked, so that the statement, which will run again, has its other rows; but
/// not if it locks them in order.
///
/// Errors: those of other kinds; [`SqlError::Again`] if it locks in order.
fn together(
    transaction: &SessionTransaction,
    earlier: Result<(), SqlError>,
    row: Result<(), SqlError>,
) -> Result<Result<(), SqlError>, SqlError> {
    match row {
        Ok(()) => Ok(earlier),
        Err(SqlError::Again(why)) if !transaction.row_locks().is_in_order() => Ok(Err(SqlError::Again(why))),
        Err(error) => Err(error),
    }
}

impl Engine {
    /// Inserts rows that have the table's types. Returns the positions of the inserted rows.
    pub(crate) fn insert_rows(
        &self,
        transaction: &SessionTransaction,
        table: &Table,
        columns: &[ArrayRef],
        existing: Existing,
    ) -> Result<Vec<usize>, SqlError> {
        check_rows(transaction, table, columns)?;
        let rows = columns.first().map_or(0, |column| column.len());
        let (keys, encoder) = (KeyEncoder::new(table, columns), RowEncoder::new(table, columns));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut entries = NewEntries::new(table, columns);
        let mut inserted = Vec::with_capacity(rows);
        let first_id = if table.key.is_empty() { self.row_ids(table, rows as u64)? } else { 0 };
        for row in 0..rows {
            if table.key.is_empty() {
                key.clear();
                key.extend(key::row_id(first_id + row as u64));
            } else {
                keys.encode(row, &mut key)?;
                // Another transaction may be adding the same key: its end decides.
                transaction.lock_row(table.rows, &key)?;
            }
            if existing != Existing::NoneIs
                && let Some(at) = self.conflict(transaction, table, existing, (&key, &mut entries, row))?
            {
                match (existing, at) {
                    (Existing::Skip(Arbiter::Any), _) => continue,
                    (Existing::Skip(arbiter), _) if arbiter == at => continue,
                    (_, Arbiter::Index(at)) => return Err(entries.duplicate(at, row)),
                    _ => return Err(key::duplicate(table, columns, row)),
                }
            }
            value.clear();
            encoder.encode(row, &mut value)?;
            transaction.put(table.rows, &key, &value)?;
            entries.add_to_all(transaction, row, &key)?;
            inserted.push(row);
        }
        transaction.count(table.storage, inserted.len() as i64);
        references::note_written(transaction, table, columns, &inserted)?;
        Ok(inserted)
    }

    /// Where a row exists already that is to be inserted: as in PostgreSQL it is looked for first where ON CONFLICT looks for it.
    fn conflict(
        &self,
        transaction: &SessionTransaction,
        table: &Table,
        existing: Existing,
        (key, entries, row): (&[u8], &mut NewEntries<'_>, usize),
    ) -> Result<Option<Arbiter>, SqlError> {
        let first = match existing {
            Existing::Skip(Arbiter::Index(at)) => Some(Arbiter::Index(at)),
            _ => None,
        };
        let others = std::iter::once(Arbiter::Key).chain((0..entries.count()).map(Arbiter::Index));
        for at in first.into_iter().chain(others.filter(|at| first != Some(*at))) {
            let is_taken = match at {
                Arbiter::Index(index) => entries.is_taken(transaction, index, row)?,
                _ => !table.key.is_empty() && self.exists(transaction, table, key)?,
            };
            if is_taken {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether a primary key, which is locked, exists in either store.
    ///
    /// Errors: [`SqlError::Again`] if another transaction is deleting its row, or has done so since the snapshot: its end decides.
    fn exists(&self, transaction: &SessionTransaction, table: &Table, key: &[u8]) -> Result<bool, SqlError> {
        if transaction.get(table.rows, key)?.is_none() {
            let view = transaction.own_view();
            let Some((address, _)) = self.columns.find(&view, table, key, &[])? else { return Ok(false) };
            // What deletes it without a look at its key locks its place only.
            let (tree, place) = self.columns.place(&view, table, &address)?;
            transaction.lock_row(tree, &place)?;
            if !transaction.is_current(tree, &place)? {
                return Err(SqlError::Again("another transaction has changed the row".into()));
            }
        }
        transaction.check_newest(table.rows, key)?;
        Ok(true)
    }

    /// Deletes the rows at addresses, each once. Returns the positions of the deleted rows.
    pub(crate) fn delete_rows(
        &self,
        transaction: &SessionTransaction,
        table: &Table,
        addresses: &ArrayRef,
    ) -> Result<Vec<usize>, SqlError> {
        let (mut seen, mut locked) = (HashSet::new(), Ok(()));
        let mut entries = OldEntries::new(self, transaction, table)?;
        let mut keys = OldKeys::new(self, transaction, table)?;
        let mut deleted = Vec::new();
        for (row, address) in addresses.as_binary::<i32>().iter().enumerate() {
            let address = address.unwrap_or_default();
            if seen.insert(address) {
                keys.as_mut().map_or(Ok(()), |keys| keys.note(address, None))?;
                locked = together(transaction, locked, self.delete_row(transaction, table, address, &mut entries))?;
                deleted.push(row);
            }
        }
        locked.map(|()| deleted)
    }

    fn delete_row(
        &self,
        transaction: &SessionTransaction,
        table: &Table,
        address: &[u8],
        entries: &mut Option<OldEntries<'_>>,
    ) -> Result<(), SqlError> {
        match address.split_first() {
            Some((&ROW_TAG, key)) => {
                transaction.lock_row(table.rows, key)?;
                entries.as_mut().map_or(Ok(()), |entries| entries.remove(address))?;
                transaction.count(table.storage, -1);
                transaction.with(|transaction| Ok(transaction.delete(table.rows, key)?))
            }
            Some((&COLUMN_TAG, _)) => {
                let delete = |transaction: &mut _| self.columns.delete(transaction, table, address);
                let (tree, key) = transaction.with(delete)?;
                transaction.lock_row(tree, &key)?;
                entries.as_mut().map_or(Ok(()), |entries| entries.remove(address))
            }
            _ => Err(damaged_address()),
        }
    }

    /// Assigns rows new values; each address counts once. A row keeps its place unless its primary key changes or it is
    /// in the column store. All old keys are removed before new ones are checked, so keys may be shifted. Returns the
    /// positions of the changed rows.
    pub(crate) fn update_rows(
        &self,
        transaction: &SessionTransaction,
        table: &Table,
        addresses: &ArrayRef,
        columns: &[ArrayRef],
    ) -> Result<Vec<usize>, SqlError> {
        check_rows(transaction, table, columns)?;
        let (keys, encoder) = (KeyEncoder::new(table, columns), RowEncoder::new(table, columns));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let (mut old, mut new) = (OldEntries::new(self, transaction, table)?, NewEntries::new(table, columns));
        let (mut seen, mut changed, mut moved, mut pending) = (HashSet::new(), Vec::new(), Vec::new(), Vec::new());
        let mut old_keys = OldKeys::new(self, transaction, table)?;
        let mut locked = Ok(());
        for (row, address) in addresses.as_binary::<i32>().iter().enumerate() {
            let address = address.unwrap_or_default();
            if !seen.insert(address) {
                continue;
            }
            changed.push(row);
            old_keys.as_mut().map_or(Ok(()), |old| old.note(address, Some((columns, row))))?;
            keys.encode(row, &mut key)?;
            let stays = match address.split_first() {
                Some((&ROW_TAG, old)) if table.key.is_empty() || old == key => Some(old),
                _ => None,
            };
            match stays {
                Some(here) => {
                    locked = together(transaction, locked, transaction.lock_row(table.rows, here))?;
                    if let Some(old) = &mut old {
                        locked = together(transaction, locked, old.replace(address, &new, row, &mut pending))?;
                    }
                    value.clear();
                    encoder.encode(row, &mut value)?;
                    transaction.put(table.rows, here, &value)?;
                }
                None => {
                    locked = together(transaction, locked, self.delete_row(transaction, table, address, &mut old))?;
                    moved.push(row);
                }
            }
        }
        locked?;
        for Pending { row, at, reference } in pending {
            if new.is_taken(transaction, at, row)? {
                return Err(new.duplicate(at, row));
            }
            new.add(transaction, at, row, &reference)?;
        }
        self.insert_moved(transaction, table, columns, (&mut new, moved))?;
        references::note_written(transaction, table, columns, &changed)?;
        Ok(changed)
    }

    /// Inserts rows with their new values that were deleted where they were.
    fn insert_moved(
        &self,
        transaction: &SessionTransaction,
        table: &Table,
        columns: &[ArrayRef],
        (entries, moved): (&mut NewEntries<'_>, Vec<usize>),
    ) -> Result<(), SqlError> {
        if moved.is_empty() {
            return Ok(());
        }
        let (keys, encoder) = (KeyEncoder::new(table, columns), RowEncoder::new(table, columns));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        transaction.count(table.storage, moved.len() as i64);
        let first_id = if table.key.is_empty() { self.row_ids(table, moved.len() as u64)? } else { 0 };
        for (nth, row) in moved.into_iter().enumerate() {
            if table.key.is_empty() {
                key.clear();
                key.extend(key::row_id(first_id + nth as u64));
            } else {
                keys.encode(row, &mut key)?;
                transaction.lock_row(table.rows, &key)?;
            }
            match self.conflict(transaction, table, Existing::Refuse, (&key, &mut *entries, row))? {
                Some(Arbiter::Index(at)) => return Err(entries.duplicate(at, row)),
                Some(_) => return Err(key::duplicate(table, columns, row)),
                None => {}
            }
            value.clear();
            encoder.encode(row, &mut value)?;
            transaction.put(table.rows, &key, &value)?;
            entries.add_to_all(transaction, row, &key)?;
        }
        Ok(())
    }
}
