//! [`Catalog`]: all schemas, tables and views at one moment.
//!
//! They are rows of the tree `sql.catalog`, in JSON, so changes of them are transactional like all others:
//!
//! ```text
//!   s / schema                 {}
//!   t / schema / 00 / name     a table, a view, or an external table
//! ```
//!
//! The schema `public` always exists and has no row.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{Direction, StoreError, Transaction, TreeId};

use super::definition::{Column, External, Table};
use super::view::View;
use super::virtual_table::VirtualTable;
use crate::SqlError;

/// Name of the tree.
pub(crate) const CATALOG_TREE: &str = "sql.catalog";

/// The schema of names without one.
pub(crate) const PUBLIC: &str = "public";

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Stored {
    Table {
        id: u64,
        storage: u64,
        rows: u32,
        columns: Vec<Column>,
        key: Vec<usize>,
        key_name: String,
    },
    View {
        sql: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        barrier: Option<bool>,
    },
    External {
        location: PathBuf,
        columns: Vec<Column>,
    },
}

/// The object that a name denotes.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A table.
    Table(Arc<Table>),
    /// A view.
    View(ViewDefinition),
    /// A read-only table of another service.
    Virtual(Arc<dyn VirtualTable>),
    /// Files that other programs write.
    External(Arc<External>),
}

/// A view, as the catalog stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDefinition {
    /// The SQL text of its query.
    pub sql: Arc<str>,
    /// Its option `security_barrier`; `None`: it is a barrier for everybody but its owner.
    pub barrier: Option<bool>,
}

/// Schema, then name within it, then the object.
pub type Schemas = BTreeMap<String, BTreeMap<String, Entry>>;

/// All names at one moment.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// All schemas with their objects.
    pub schemas: Schemas,
}

impl Catalog {
    /// Reads the catalog through a view, and adds the virtual tables.
    pub(crate) fn load(
        view: &View,
        tree: TreeId,
        virtual_tables: &[(String, Arc<dyn VirtualTable>)],
    ) -> Result<Catalog, SqlError> {
        let mut schemas = Schemas::from([(PUBLIC.to_string(), BTreeMap::new())]);
        let mut cursor = view.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
        while let Some((key, value)) = cursor.next()? {
            match read(&key, &value)? {
                (schema, None) => _ = schemas.entry(schema).or_default(),
                (schema, Some((name, entry))) => _ = schemas.entry(schema).or_default().insert(name, entry),
            }
        }
        for (name, table) in virtual_tables {
            let (schema, name) = name.split_once('.').unwrap_or((PUBLIC, name));
            schemas.entry(schema.into()).or_default().insert(name.into(), Entry::Virtual(table.clone()));
        }
        Ok(Catalog { schemas })
    }

    /// The object that a name denotes.
    pub fn get(&self, schema: &str, name: &str) -> Option<&Entry> {
        self.schemas.get(schema)?.get(name)
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.schemas.values().flat_map(BTreeMap::values).filter_map(|entry| match entry {
            Entry::Table(table) => Some(table),
            _ => None,
        })
    }
}

/// The names of tables by their storage; only tables whose definition can be read.
pub(crate) fn names_by_storage(snapshot: &store::Snapshot) -> std::collections::HashMap<u64, String> {
    let mut names = std::collections::HashMap::new();
    let Ok(Some(tree)) = snapshot.tree(CATALOG_TREE) else { return names };
    let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Ok(Some((key, value))) = cursor.next() {
        if let Ok((schema, Some((name, Entry::Table(table))))) = read(&key, &value) {
            names.insert(table.storage, format!("{schema}.{name}"));
        }
    }
    names
}

fn damaged(why: impl std::fmt::Display) -> SqlError {
    StoreError::Corrupt(format!("the catalog of tables cannot be read: {why}").into()).into()
}

fn read(key: &[u8], value: &[u8]) -> Result<(String, Option<(String, Entry)>), SqlError> {
    let text = std::str::from_utf8(key).map_err(damaged)?;
    let Some(rest) = text.strip_prefix('t') else {
        return Ok((text.get(1..).unwrap_or_default().into(), None));
    };
    let (schema, name) = rest.split_once('\0').ok_or_else(|| damaged("a key without a name"))?;
    let entry = match serde_json::from_slice(value).map_err(damaged)? {
        Stored::View { sql, barrier } => Entry::View(ViewDefinition { sql: sql.into(), barrier }),
        Stored::External { location, columns } => Entry::External(Arc::new(External::new(&location, columns))),
        Stored::Table { id, storage, rows, columns, key, key_name } => {
            if key.iter().any(|at| *at >= columns.len()) {
                return Err(damaged("a primary key of columns that are not there"));
            }
            let (arrow, addressed) = Table::schemas(&columns, &key);
            Entry::Table(Arc::new(Table {
                schema_name: schema.into(),
                name: name.into(),
                id,
                storage,
                columns,
                key,
                key_name,
                rows: TreeId(rows),
                schema: arrow,
                addressed,
            }))
        }
    };
    Ok((schema.into(), Some((name.into(), entry))))
}

fn key(schema: &str, name: &str) -> Vec<u8> {
    format!("t{schema}\0{name}").into_bytes()
}

fn write(transaction: &mut Transaction, tree: TreeId, key: &[u8], stored: &Stored) -> Result<(), SqlError> {
    let value = serde_json::to_vec(stored).map_err(damaged)?;
    Ok(transaction.put(tree, key, &value)?)
}

/// Stores a table, replacing any with its name.
pub(crate) fn put_table(transaction: &mut Transaction, tree: TreeId, table: &Table) -> Result<(), SqlError> {
    let stored = Stored::Table {
        id: table.id,
        storage: table.storage,
        rows: table.rows.0,
        columns: table.columns.clone(),
        key: table.key.clone(),
        key_name: table.key_name.clone(),
    };
    write(transaction, tree, &key(&table.schema_name, &table.name), &stored)
}

/// Stores a view, replacing any with its name.
pub(crate) fn put_view(
    transaction: &mut Transaction,
    tree: TreeId,
    schema: &str,
    name: &str,
    view: &ViewDefinition,
) -> Result<(), SqlError> {
    let stored = Stored::View { sql: view.sql.to_string(), barrier: view.barrier };
    write(transaction, tree, &key(schema, name), &stored)
}

/// Stores an external table.
pub(crate) fn put_external(
    transaction: &mut Transaction,
    tree: TreeId,
    schema: &str,
    name: &str,
    table: &External,
) -> Result<(), SqlError> {
    let stored = Stored::External { location: table.location.clone(), columns: table.columns.clone() };
    write(transaction, tree, &key(schema, name), &stored)
}

/// Removes a table or view.
pub(crate) fn remove(transaction: &mut Transaction, tree: TreeId, schema: &str, name: &str) -> Result<(), SqlError> {
    Ok(transaction.delete(tree, &key(schema, name))?)
}

/// Stores a schema.
pub(crate) fn put_schema(transaction: &mut Transaction, tree: TreeId, schema: &str) -> Result<(), SqlError> {
    Ok(transaction.put(tree, format!("s{schema}").as_bytes(), b"{}")?)
}

/// Removes a schema.
pub(crate) fn remove_schema(transaction: &mut Transaction, tree: TreeId, schema: &str) -> Result<(), SqlError> {
    Ok(transaction.delete(tree, format!("s{schema}").as_bytes())?)
}
