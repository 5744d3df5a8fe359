//! [`Table`], [`Column`] and [`External`]: the definition of a table, as the catalog stores it.
//!
//! Columns are only ever added at the end. So the number of columns that a row was written with determines which ones
//! it has: it is the version of the row's schema. For a column that a row lacks, the value is the default that the
//! column had when it was added, or NULL. Dropping a column moves all rows into another storage, without that column.
//!
//! A row's *address* says where the row is: a tag, then for the delta store the key in the table's tree, for the column
//! store its own position. Changes are made to addresses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use store::TreeId;

use super::types::SqlType;

/// The name of the column of row addresses, Binary, which scans append for the engine's own changes. SQL cannot write
/// this name without quotes.
pub const ADDRESS: &str = "$address";

/// First byte of the address of a row in the delta store; its key follows.
pub const ROW_TAG: u8 = 0;
/// First byte of the address of a row in the column store.
pub const COLUMN_TAG: u8 = 1;

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// The condition, as SQL text of an expression over the table's columns.
    pub condition: String,
}

/// What happens to rows that refer to a key that goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyAction {
    /// The statement is refused at its end.
    #[default]
    NoAction,
    /// The statement is refused, even if it adds the key again.
    Restrict,
    /// They are deleted too.
    Cascade,
    /// Their columns become NULL.
    SetNull,
}

/// A FOREIGN KEY constraint, as the catalog stores it with the table that refers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Its name.
    pub name: String,
    /// Positions of the columns that refer.
    pub columns: Vec<usize>,
    /// The permanent number of the table that it refers to.
    pub parent: u64,
    /// For each column the position of the one that it refers to: together they are a key of that table.
    pub parent_columns: Vec<usize>,
    /// What a DELETE there does.
    pub on_delete: KeyAction,
    /// What an UPDATE there does.
    pub on_update: KeyAction,
}

/// The order of a column of an index, as it was declared. Entries are in ascending order with NULL last, whatever it is: no query
/// relies on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexOrder {
    /// Whether it is DESC.
    pub descending: bool,
    /// Whether it is NULLS FIRST, which is the default of DESC.
    pub nulls_first: bool,
}

/// An index, as the catalog stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its name, unique in the table's schema.
    pub name: String,
    /// The number of its tree; it changes with the table's storage.
    pub number: u64,
    /// The tree of its entries.
    pub tree: u32,
    /// Positions of its columns, in its order.
    pub columns: Vec<usize>,
    /// The orders of its columns; empty if none has another one than ascending with NULL last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<IndexOrder>,
    /// Whether no two rows have the same values.
    pub unique: bool,
    /// Whether it is the index of a UNIQUE constraint of its name.
    pub constraint: bool,
}

impl Index {
    /// The name of the tree with this number.
    pub(crate) fn tree_name(number: u64) -> String {
        format!("sql.index.{number}")
    }

    /// The tree of its entries.
    pub(crate) fn tree(&self) -> TreeId {
        TreeId(self.tree)
    }
}

/// What makes a column an identity column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityColumn {
    /// Whether it is GENERATED ALWAYS, and not BY DEFAULT.
    pub always: bool,
    /// The schema of its sequence.
    pub schema: String,
    /// Its sequence.
    pub sequence: String,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The column's name, folded or as quoted.
    pub name: String,
    /// The column's type.
    pub kind: SqlType,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// Whether rows that were written before NULL was refused may contain it, as deleted rows of a row group do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_null: bool,
    /// The default, as SQL text of an expression without columns.
    pub default: Option<String>,
    /// Whether it is an identity column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityColumn>,
    /// The column's value in rows that were written before it was added: a row in the delta store's encoding with this
    /// column alone. Default: NULL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<u8>>,
}

impl Column {
    /// A column that accepts NULL and has no default.
    pub fn new(name: impl Into<String>, kind: SqlType) -> Column {
        Column {
            name: name.into(),
            kind,
            not_null: false,
            held_null: false,
            default: None,
            identity: None,
            missing: None,
        }
    }
}

/// A table, as it is stored and as plans see it. A value never changes: another definition is another value.
#[derive(Clone, Debug)]
pub struct Table {
    /// The table's schema (namespace).
    pub schema_name: String,
    /// The table's name.
    pub name: String,
    /// The permanent number of the table; it survives renaming.
    pub id: u64,
    /// The number of the storage of its rows; TRUNCATE changes it.
    pub storage: u64,
    /// The table's columns.
    pub columns: Vec<Column>,
    /// Positions of the columns of the primary key, in its order; empty if there is none.
    pub key: Vec<usize>,
    /// Name of the primary key constraint.
    pub key_name: String,
    /// The CHECK constraints, by their names.
    pub checks: Vec<Check>,
    /// The indexes beside that of the primary key, in the order in which they were made.
    pub indexes: Vec<Index>,
    /// The FOREIGN KEY constraints, in the order in which they were made.
    pub foreign_keys: Vec<ForeignKey>,
    /// The columns that foreign keys refer to, of this table and of others, each once: the catalog finds them when it is loaded.
    pub referenced: Vec<Vec<usize>>,
    /// The tree of rows in the delta store: key to row. The key is the primary key, or 8 bytes of row id, big-endian.
    pub rows: TreeId,
    /// The columns in Arrow.
    pub schema: SchemaRef,
    /// The same, with the address column at the end.
    pub addressed: SchemaRef,
}

impl Table {
    /// The Arrow schemas of the columns, without and with addresses.
    pub(crate) fn schemas(columns: &[Column], key: &[usize]) -> (SchemaRef, SchemaRef) {
        let field = |(at, column): (usize, &Column)| {
            let may_be_null = (!column.not_null || column.held_null) && !key.contains(&at);
            Arc::new(column.kind.field(&column.name, may_be_null))
        };
        let mut fields: Vec<Arc<Field>> = columns.iter().enumerate().map(field).collect();
        let schema = Arc::new(Schema::new(fields.clone()));
        fields.push(Arc::new(Field::new(ADDRESS, DataType::Binary, false)));
        (schema, Arc::new(Schema::new(fields)))
    }

    /// The columns in Arrow, where a column that refuses NULL has none, whatever old rows contain.
    pub fn declared(&self) -> SchemaRef {
        if self.columns.iter().all(|column| !column.held_null) {
            return self.schema.clone();
        }
        let columns = self.columns.iter().zip(self.schema.fields());
        let field = |(column, field): (&Column, &Arc<Field>)| {
            Arc::new(field.as_ref().clone().with_nullable(field.is_nullable() && !column.not_null))
        };
        Arc::new(Schema::new(columns.map(field).collect::<Vec<_>>()))
    }

    /// Whether it has a foreign key to the table of this number.
    pub(crate) fn refers_to(&self, table: u64) -> bool {
        self.foreign_keys.iter().any(|key| key.parent == table)
    }

    /// The names of its constraints that have one.
    pub(crate) fn constraint_names(&self) -> impl Iterator<Item = &String> {
        let unique = self.indexes.iter().filter(|index| index.constraint).map(|index| &index.name);
        let foreign = self.foreign_keys.iter().map(|key| &key.name);
        self.checks.iter().map(|check| &check.name).chain([&self.key_name]).chain(unique).chain(foreign)
    }

    /// Whether one of its indexes has that name, also that of its primary key.
    pub(crate) fn has_index(&self, name: &str) -> bool {
        let is_key = !self.key.is_empty() && self.key_name == name;
        is_key || self.indexes.iter().any(|index| index.name == name)
    }

    /// The position of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The table's name in messages.
    pub fn display(&self) -> String {
        if self.schema_name == "public" { self.name.clone() } else { format!("{}.{}", self.schema_name, self.name) }
    }
}

/// An external table, as the catalog stores it. A value never changes.
#[derive(Clone, Debug)]
pub struct External {
    /// The file, or the folder whose `.parquet` files contain its rows; without symbolic links.
    pub location: PathBuf,
    /// The columns. None has a default, and all accept NULL.
    pub columns: Vec<Column>,
    /// The columns in Arrow.
    pub schema: SchemaRef,
}

impl External {
    /// A table with these columns. See `external::columns`.
    pub(crate) fn new(location: &Path, columns: Vec<Column>) -> External {
        let (schema, _) = Table::schemas(&columns, &[]);
        External { location: location.into(), columns, schema }
    }
}
