//! [`Table`] and [`Column`]: what a table is, as the catalog keeps it.
//!
//! Columns are only ever added at the end, so that the number of columns a row was written with says which ones it
//! has: the version of its schema. A column that a row does not have is what it was added with: the value that its default
//! had then, or NULL. A column that is dropped takes all rows into another storage, without it.
//!
//! A row's *address* is where it lies: a tag, then for the row form the key in the table's tree, for the column form
//! whatever that uses to find it. Changes are made to addresses.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::scalar::ScalarValue;
use serde::{Deserialize, Serialize};
use store::TreeId;

use super::row;
use super::types::SqlType;
use crate::SqlError;

/// The name of the column of row addresses, Binary, that scans append for the engine's own changes. Not a name that SQL
/// can say without quotes.
pub const ADDRESS: &str = "$address";

/// First byte of the address of a row in row form; its key follows.
pub const ROW_TAG: u8 = 0;
/// First byte of the address of a row in column form.
pub const COLUMN_TAG: u8 = 1;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, as it was folded or quoted.
    pub name: String,
    /// Its type.
    pub kind: SqlType,
    /// NULL is refused.
    pub not_null: bool,
    /// The default, as SQL text of an expression without columns.
    pub default: Option<String>,
    /// What rows have that were written before the column was added: a row in row form of this column alone. Default: NULL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<u8>>,
}

impl Column {
    /// A column that may be NULL, without a default.
    pub fn new(name: impl Into<String>, kind: SqlType) -> Column {
        Column { name: name.into(), kind, not_null: false, default: None, missing: None }
    }

    /// So many values of rows that were written before the column was added. Errors: damaged.
    pub(crate) fn absent(&self, rows: usize) -> Result<ArrayRef, SqlError> {
        match &self.missing {
            None => Ok(new_null_array(&self.kind.arrow(), rows)),
            Some(row) => {
                Ok(ScalarValue::try_from_array(&row::decode_value(self.kind, row)?, 0)?.to_array_of_size(rows)?)
            }
        }
    }
}

/// A table, as it is stored and as plans see it. Never changes: another definition is another value.
#[derive(Clone, Debug)]
pub struct Table {
    /// The schema (namespace) it is in.
    pub schema_name: String,
    /// Its name.
    pub name: String,
    /// Names the table for good, whatever it is renamed to.
    pub id: u64,
    /// Names what holds its rows; another one after TRUNCATE.
    pub storage: u64,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Positions of the columns of the primary key, in its order; empty if there is none.
    pub key: Vec<usize>,
    /// Name of the primary key constraint.
    pub key_name: String,
    /// The tree of rows in row form: key to row. The key is the primary key, or 8 bytes of row id, big-endian.
    pub rows: TreeId,
    /// Its columns in Arrow.
    pub schema: SchemaRef,
    /// The same and the address column at the end.
    pub addressed: SchemaRef,
}

impl Table {
    /// Arrow's view of the columns, without and with addresses.
    pub(crate) fn schemas(columns: &[Column], key: &[usize]) -> (SchemaRef, SchemaRef) {
        let field = |(at, column): (usize, &Column)| {
            Arc::new(column.kind.field(&column.name, !column.not_null && !key.contains(&at)))
        };
        let mut fields: Vec<Arc<Field>> = columns.iter().enumerate().map(field).collect();
        let schema = Arc::new(Schema::new(fields.clone()));
        fields.push(Arc::new(Field::new(ADDRESS, DataType::Binary, false)));
        (schema, Arc::new(Schema::new(fields)))
    }

    /// Position of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Name as it stands in messages.
    pub fn display(&self) -> String {
        if self.schema_name == "public" { self.name.clone() } else { format!("{}.{}", self.schema_name, self.name) }
    }
}
