//! Entries of an [`Index`] as bytes that sort in the order of the values.
//!
//! ```text
//!   key     for each column 01 and its value as in a primary key, or 02 for NULL
//!           and the reference to the row, unless the index is unique and no column is NULL
//!   value   the reference to the row
//! ```
//!
//! The reference is the row's primary key, which stays when the row moves to a row group. For tables without a primary key it is
//! the row's address: what moves rows writes their entries anew.
//!
//! Invariant: in each view of the store an index has exactly one entry for each row of its table. Entries are changed in the
//! transaction that changes the rows.

use datafusion::arrow::array::{Array, ArrayRef};
use store::KEY_BYTES_MAX;

use super::definition::{Index, ROW_TAG, Table};
use super::key::{self, KeyColumn};
use crate::{ErrorObject, SqlError};

/// In front of a value.
pub(crate) const VALUE: u8 = 1;
/// A column that is NULL: behind all values, as PostgreSQL sorts it.
const NULL: u8 = 2;

/// Appends the reference to a row in an index, by the key of the row in the delta store.
pub(crate) fn reference_of_key(table: &Table, key: &[u8], out: &mut Vec<u8>) {
    if table.key.is_empty() {
        out.push(ROW_TAG);
    }
    out.extend_from_slice(key);
}

/// Appends the reference to the row at an address and a position in the columns of the primary key, which are none in a table without one.
pub(crate) fn reference_of_row(keys: &[KeyColumn<'_>], (address, row): (&[u8], usize), out: &mut Vec<u8>) {
    match keys.is_empty() {
        true => out.extend_from_slice(address),
        false => keys.iter().for_each(|key| key.encode(row, out)),
    }
}

/// The entries of an index for rows with these columns.
pub(crate) struct IndexEncoder<'a> {
    pub(crate) index: &'a Index,
    columns: Vec<(KeyColumn<'a>, &'a ArrayRef)>,
}

impl<'a> IndexEncoder<'a> {
    /// An encoder for rows with all of the table's columns.
    pub(crate) fn new(index: &'a Index, columns: &'a [ArrayRef]) -> IndexEncoder<'a> {
        IndexEncoder::of(index, index.columns.iter().map(|at| &columns[*at]))
    }

    /// An encoder for rows with the index's columns, in its order.
    pub(crate) fn of(index: &'a Index, columns: impl Iterator<Item = &'a ArrayRef>) -> IndexEncoder<'a> {
        IndexEncoder { index, columns: columns.map(|array| (KeyColumn::new(array), array)).collect() }
    }

    /// Whether no other row may have the values of this one.
    pub(crate) fn is_unique(&self, row: usize) -> bool {
        self.index.unique && self.columns.iter().all(|(_, array)| array.is_valid(row))
    }

    /// The key of a row's entry. Errors: 54000.
    pub(crate) fn encode(&self, row: usize, reference: &[u8], out: &mut Vec<u8>) -> Result<(), SqlError> {
        out.clear();
        for (column, array) in &self.columns {
            match array.is_null(row) {
                true => out.push(NULL),
                false => {
                    out.push(VALUE);
                    column.encode(row, out);
                }
            }
        }
        if !self.is_unique(row) {
            out.extend_from_slice(reference);
        }
        match out.len() > KEY_BYTES_MAX {
            true => Err(too_long(self.index, out.len())),
            false => Ok(()),
        }
    }
}

fn too_long(index: &Index, bytes: usize) -> SqlError {
    let name = &index.name;
    let message = format!("index row size {bytes} exceeds the maximum {KEY_BYTES_MAX} for index \"{name}\"");
    SqlError::value("54000", message).with_hint("An entry has the values of the columns, and the row's primary key.")
}

/// The error for values that a row has already; `columns` are those of the index.
pub(crate) fn duplicate(table: &Table, index: &Index, columns: &[ArrayRef], row: usize) -> SqlError {
    let (names, detail) = names_and_detail(table, index, columns, row);
    let message = format!("duplicate key value violates unique constraint \"{}\"", index.name);
    let error = SqlError::value("23505", message).with_detail(format!("{detail} already exists."));
    error.about(object(table, index, names))
}

/// The error for an index that cannot be made; `columns` are those of the index.
pub(crate) fn cannot_be_made(table: &Table, index: &Index, columns: &[ArrayRef], row: usize) -> SqlError {
    let (names, detail) = names_and_detail(table, index, columns, row);
    let error = SqlError::value("23505", format!("could not create unique index \"{}\"", index.name));
    error.with_detail(format!("{detail} is duplicated.")).about(object(table, index, names))
}

fn names_and_detail<'a>(table: &'a Table, index: &Index, columns: &[ArrayRef], row: usize) -> (Vec<&'a str>, String) {
    let names: Vec<&str> = index.columns.iter().map(|at| table.columns[*at].name.as_str()).collect();
    let detail = format!("Key ({})=({})", names.join(", "), key::display(columns, row));
    (names, detail)
}

fn object(table: &Table, index: &Index, names: Vec<&str>) -> ErrorObject {
    ErrorObject {
        schema: table.schema_name.clone(),
        table: table.name.clone(),
        constraint: Some(index.name.clone()),
        told: names.into_iter().map(|name| (name.to_owned(), String::new())).collect(),
        ..ErrorObject::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int32Array, StringViewArray};

    use super::*;

    #[test]
    fn entries_sort_as_their_values_and_tell_rows_apart_where_values_do_not() {
        let a: ArrayRef = Arc::new(Int32Array::from(vec![Some(-1), Some(1), Some(1), Some(1), None, None]));
        let b: ArrayRef = Arc::new(StringViewArray::from(vec![Some("z"), Some(""), Some("a"), None, Some("a"), None]));
        let columns = [a, b];
        for unique in [true, false] {
            let index = Index {
                name: "i".into(),
                number: 1,
                tree: 2,
                columns: vec![0, 1],
                orders: Vec::new(),
                unique,
                constraint: false,
            };
            let encoder = IndexEncoder::new(&index, &columns);
            let entry = |row: usize, reference: &[u8]| {
                let mut out = Vec::new();
                encoder.encode(row, reference, &mut out).expect("it is short");
                out
            };
            let sorted: Vec<Vec<u8>> = (0..6).map(|row| entry(row, b"r")).collect();
            assert!(sorted.windows(2).all(|two| two[0] < two[1]), "unique {unique}: {sorted:?}");
            for row in 0..6 {
                let is_same = entry(row, b"1") == entry(row, b"2");
                assert_eq!(is_same, unique && row < 3, "unique {unique}, row {row}");
                assert_eq!(encoder.is_unique(row), is_same);
            }
        }
    }
}
