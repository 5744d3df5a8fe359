//! [`Catalog`]: all schemas, tables and views at one moment.
//!
//! They are rows of the tree `sql.catalog`, in JSON, so changes of them are transactional like all others:
//!
//! ```text
//!   s / schema                 {}
//!   t / schema / 00 / name     a table, a view, an external table, or a sequence
//!   c / schema / 00 / name     what COMMENT ON says about it: see [`comments`]
//! ```
//!
//! The schema `public` always exists and has no row.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{Direction, Transaction, TreeId};

use super::comments::{self, AllComments, damaged};
use super::definition::{Check, Column, External, ForeignKey, Index, KeyAction, Table};
use super::sequence::Sequence;
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
    Table(StoredTable),
    /// A table with indexes: a version that does not know them must not change its rows.
    Indexed(StoredTable),
    /// A table with foreign keys: a version that does not know them must change neither its rows nor those that it refers to.
    Referring(StoredTable),
    View {
        sql: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        barrier: Option<bool>,
    },
    External {
        location: PathBuf,
        columns: Vec<Column>,
    },
    Sequence {
        definition: Sequence,
    },
}

#[derive(Serialize, Deserialize)]
struct StoredTable {
    id: u64,
    storage: u64,
    rows: u32,
    columns: Vec<Column>,
    key: Vec<usize>,
    key_name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    checks: Vec<Check>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<Index>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    foreign_keys: Vec<ForeignKey>,
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
    /// A sequence.
    Sequence(Arc<Sequence>),
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
    /// What COMMENT ON says about them.
    pub comments: AllComments,
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
        let mut comments = AllComments::new();
        while let Some((key, value)) = cursor.next()? {
            if let Some((object, said)) = comments::read(&key, &value)? {
                comments.insert(object, said);
                continue;
            }
            match read(&key, &value)? {
                (schema, None) => _ = schemas.entry(schema).or_default(),
                (schema, Some((name, entry))) => _ = schemas.entry(schema).or_default().insert(name, entry),
            }
        }
        for (name, table) in virtual_tables {
            let (schema, name) = name.split_once('.').unwrap_or((PUBLIC, name));
            schemas.entry(schema.into()).or_default().insert(name.into(), Entry::Virtual(table.clone()));
        }
        note_referenced(&mut schemas)?;
        Ok(Catalog { schemas, comments })
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

    /// The table with an index of this name beside that of its primary key, and the position of the index.
    pub fn index(&self, schema: &str, name: &str) -> Option<(&Arc<Table>, usize)> {
        self.schemas.get(schema)?.values().find_map(|entry| match entry {
            Entry::Table(table) => Some((table, table.indexes.iter().position(|index| index.name == name)?)),
            _ => None,
        })
    }

    /// Whether a name of a schema is taken: by an object or by an index, also that of a primary key.
    pub(crate) fn is_taken(&self, schema: &str, name: &str) -> bool {
        self.is_taken_beside(schema, name, None)
    }

    /// The same without the indexes of one table, whose definition is being changed.
    pub(crate) fn is_taken_beside(&self, schema: &str, name: &str, table: Option<u64>) -> bool {
        let Some(entries) = self.schemas.get(schema) else { return false };
        let has_index = |entry: &Entry| match entry {
            Entry::Table(other) => Some(other.id) != table && other.has_index(name),
            _ => false,
        };
        entries.contains_key(name) || entries.values().any(has_index)
    }

    /// All sequences.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.schemas.values().flat_map(BTreeMap::values).filter_map(|entry| match entry {
            Entry::Sequence(sequence) => Some(sequence),
            _ => None,
        })
    }

    /// The sequences that belong to columns of a table.
    pub fn sequences_of(&self, table: u64) -> impl Iterator<Item = &Arc<Sequence>> {
        self.sequences().filter(move |sequence| sequence.owner.as_ref().is_some_and(|owner| owner.table == table))
    }
}

/// Tells tables which of their columns foreign keys refer to. Errors: there are no such columns.
fn note_referenced(schemas: &mut Schemas) -> Result<(), SqlError> {
    let mut referenced: BTreeMap<u64, Vec<Vec<usize>>> = BTreeMap::new();
    for entry in schemas.values().flat_map(BTreeMap::values) {
        let Entry::Table(table) = entry else { continue };
        for key in &table.foreign_keys {
            let sets = referenced.entry(key.parent).or_default();
            if !sets.contains(&key.parent_columns) {
                sets.push(key.parent_columns.clone());
            }
        }
    }
    if referenced.is_empty() {
        return Ok(());
    }
    for entry in schemas.values_mut().flat_map(BTreeMap::values_mut) {
        if let Entry::Table(table) = entry
            && let Some(sets) = referenced.remove(&table.id)
        {
            if sets.iter().flatten().any(|at| *at >= table.columns.len()) {
                return Err(damaged("a foreign key to columns that are not there"));
            }
            Arc::make_mut(table).referenced = sets;
        }
    }
    Ok(())
}

/// The tables whose definition can be read.
pub(crate) fn readable_tables(snapshot: &store::Snapshot) -> Vec<Arc<Table>> {
    let mut tables = Vec::new();
    let Ok(Some(tree)) = snapshot.tree(CATALOG_TREE) else { return tables };
    let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Ok(Some((key, value))) = cursor.next() {
        if let Ok((_, Some((_, Entry::Table(table))))) = read(&key, &value) {
            tables.push(table);
        }
    }
    tables
}

fn read(key: &[u8], value: &[u8]) -> Result<(String, Option<(String, Entry)>), SqlError> {
    let text = std::str::from_utf8(key).map_err(damaged)?;
    if let Some(schema) = text.strip_prefix('s') {
        return Ok((schema.into(), None));
    }
    let rest = text.strip_prefix('t').ok_or_else(|| damaged("a row of an unknown kind"))?;
    let (schema, name) = rest.split_once('\0').ok_or_else(|| damaged("a key without a name"))?;
    let entry = match serde_json::from_slice(value).map_err(damaged)? {
        Stored::View { sql, barrier } => Entry::View(ViewDefinition { sql: sql.into(), barrier }),
        Stored::Sequence { definition } => {
            Entry::Sequence(Arc::new(Sequence { schema_name: schema.into(), name: name.into(), ..definition }))
        }
        Stored::External { location, columns } => Entry::External(Arc::new(External::new(&location, columns))),
        Stored::Table(stored) | Stored::Indexed(stored) | Stored::Referring(stored) => {
            Entry::Table(Arc::new(table(schema, name, stored)?))
        }
    };
    Ok((schema.into(), Some((name.into(), entry))))
}

fn table(schema: &str, name: &str, stored: StoredTable) -> Result<Table, SqlError> {
    let StoredTable { id, storage, rows, columns, key, key_name, checks, indexes, foreign_keys } = stored;
    let referring = foreign_keys.iter().flat_map(|key| &key.columns);
    let named = key.iter().chain(indexes.iter().flat_map(|index| &index.columns)).chain(referring);
    if named.into_iter().any(|at| *at >= columns.len()) {
        return Err(damaged("a key of columns that are not there"));
    }
    if foreign_keys.iter().any(|key| key.columns.is_empty() || key.columns.len() != key.parent_columns.len()) {
        return Err(damaged("a foreign key without a column for each that it refers to"));
    }
    // What only a later version does must not become a deletion here.
    if foreign_keys.iter().any(|key| !matches!(key.on_update, KeyAction::NoAction | KeyAction::Restrict)) {
        return Err(damaged("a foreign key with an action that is not known"));
    }
    let (arrow, addressed) = Table::schemas(&columns, &key);
    Ok(Table {
        schema_name: schema.into(),
        name: name.into(),
        id,
        storage,
        columns,
        key,
        key_name,
        checks,
        indexes,
        foreign_keys,
        referenced: Vec::new(),
        rows: TreeId(rows),
        schema: arrow,
        addressed,
    })
}

fn key(schema: &str, name: &str) -> Vec<u8> {
    format!("t{schema}\0{name}").into_bytes()
}

fn write(transaction: &mut Transaction, tree: TreeId, key: &[u8], stored: &Stored) -> Result<(), SqlError> {
    let value = serde_json::to_vec(stored).map_err(damaged)?;
    Ok(transaction.put(tree, key, &value)?)
}

/// Stores a table, replacing any with its name. Comments about columns and indexes that it does not have are removed.
pub(crate) fn put_table(transaction: &mut Transaction, tree: TreeId, table: &Table) -> Result<(), SqlError> {
    let stored = StoredTable {
        id: table.id,
        storage: table.storage,
        rows: table.rows.0,
        columns: table.columns.clone(),
        key: table.key.clone(),
        key_name: table.key_name.clone(),
        checks: table.checks.clone(),
        indexes: table.indexes.clone(),
        foreign_keys: table.foreign_keys.clone(),
    };
    let stored = match (table.foreign_keys.is_empty(), table.indexes.is_empty()) {
        (false, _) => Stored::Referring(stored),
        (true, false) => Stored::Indexed(stored),
        (true, true) => Stored::Table(stored),
    };
    write(transaction, tree, &key(&table.schema_name, &table.name), &stored)?;
    comments::change(transaction, tree, (&table.schema_name, &table.name), |comments| {
        comments.keep_those_of(table);
        Ok(())
    })
}

/// Lets another transaction that makes an object of this name at the same time conflict with this one, which makes an index.
pub(crate) fn take_name(transaction: &mut Transaction, tree: TreeId, schema: &str, name: &str) {
    transaction.count_as_changed(tree, [key(schema, name).as_slice()]);
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

/// Stores a sequence, replacing any with its name.
pub(crate) fn put_sequence(transaction: &mut Transaction, tree: TreeId, sequence: &Sequence) -> Result<(), SqlError> {
    let stored = Stored::Sequence { definition: sequence.clone() };
    write(transaction, tree, &key(&sequence.schema_name, &sequence.name), &stored)
}

/// Removes a table, view or sequence, and the comments about it.
pub(crate) fn remove(transaction: &mut Transaction, tree: TreeId, schema: &str, name: &str) -> Result<(), SqlError> {
    comments::remove(transaction, tree, schema, name)?;
    Ok(transaction.delete(tree, &key(schema, name))?)
}

/// Stores a schema.
pub(crate) fn put_schema(transaction: &mut Transaction, tree: TreeId, schema: &str) -> Result<(), SqlError> {
    Ok(transaction.put(tree, format!("s{schema}").as_bytes(), b"{}")?)
}

/// Removes a schema, and the comment about it.
pub(crate) fn remove_schema(transaction: &mut Transaction, tree: TreeId, schema: &str) -> Result<(), SqlError> {
    comments::remove(transaction, tree, schema, "")?;
    Ok(transaction.delete(tree, format!("s{schema}").as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::sequence::{SequenceOptions, SequenceOwner};
    use crate::table::{IdentityColumn, IndexOrder, SqlType};

    #[test]
    fn definitions_are_stored_as_in_the_golden_texts() {
        let sequence = SequenceOptions::default().applied(None).expect("it can be made");
        let owner = Some(SequenceOwner { table: 3, column: "a".into(), identity: true });
        let sequence = Stored::Sequence { definition: Sequence { id: 5, counter: 6, owner, ..sequence } };
        let identity = IdentityColumn { always: true, schema: "public".into(), sequence: "t_a_seq".into() };
        let columns = vec![
            Column { not_null: true, identity: Some(identity), ..Column::new("a", SqlType::Integer) },
            Column { default: Some("now()".into()), ..Column::new("b", SqlType::TimestampTz) },
        ];
        let checks = vec![Check { name: "t_a_check".into(), condition: "a > 0".into() }];
        let key_name = String::from("t_pkey");
        let index = Index {
            name: "t_b_key".into(),
            number: 7,
            tree: 8,
            columns: vec![1],
            orders: vec![IndexOrder { descending: true, nulls_first: true }],
            unique: true,
            constraint: true,
        };
        let foreign_key = ForeignKey {
            name: "t_b_fkey".into(),
            columns: vec![1],
            parent: 11,
            parent_columns: vec![0],
            on_delete: KeyAction::SetNull,
            on_update: KeyAction::NoAction,
        };
        let table = |indexes, foreign_keys| StoredTable {
            id: 3,
            storage: 4,
            rows: 9,
            columns: columns.clone(),
            key: vec![0],
            key_name: key_name.clone(),
            checks: checks.clone(),
            indexes,
            foreign_keys,
        };
        for (stored, golden) in [
            (
                sequence,
                r#"{"kind":"sequence","definition":{"id":5,"counter":6,"kind":"BigInt","start":1,"increment":1,"min":1,"max":9223372036854775807,"cache":1,"cycle":false,"first":1,"owner":{"table":3,"column":"a","identity":true}}}"#,
            ),
            (
                Stored::Table(table(Vec::new(), Vec::new())),
                r#"{"kind":"table","id":3,"storage":4,"rows":9,"columns":[{"name":"a","kind":"Integer","not_null":true,"default":null,"identity":{"always":true,"schema":"public","sequence":"t_a_seq"}},{"name":"b","kind":"TimestampTz","not_null":false,"default":"now()"}],"key":[0],"key_name":"t_pkey","checks":[{"name":"t_a_check","condition":"a > 0"}]}"#,
            ),
            (
                Stored::Indexed(table(vec![index], Vec::new())),
                r#"{"kind":"indexed","id":3,"storage":4,"rows":9,"columns":[{"name":"a","kind":"Integer","not_null":true,"default":null,"identity":{"always":true,"schema":"public","sequence":"t_a_seq"}},{"name":"b","kind":"TimestampTz","not_null":false,"default":"now()"}],"key":[0],"key_name":"t_pkey","checks":[{"name":"t_a_check","condition":"a > 0"}],"indexes":[{"name":"t_b_key","number":7,"tree":8,"columns":[1],"orders":[{"descending":true,"nulls_first":true}],"unique":true,"constraint":true}]}"#,
            ),
            (
                Stored::Referring(table(Vec::new(), vec![foreign_key])),
                r#"{"kind":"referring","id":3,"storage":4,"rows":9,"columns":[{"name":"a","kind":"Integer","not_null":true,"default":null,"identity":{"always":true,"schema":"public","sequence":"t_a_seq"}},{"name":"b","kind":"TimestampTz","not_null":false,"default":"now()"}],"key":[0],"key_name":"t_pkey","checks":[{"name":"t_a_check","condition":"a > 0"}],"foreign_keys":[{"name":"t_b_fkey","columns":[1],"parent":11,"parent_columns":[0],"on_delete":"SetNull","on_update":"NoAction"}]}"#,
            ),
        ] {
            let text = serde_json::to_string(&stored).expect("it is JSON");
            assert_eq!(text, golden);
            let again: Stored = serde_json::from_str(golden).expect("it is read");
            assert_eq!(serde_json::to_string(&again).expect("it is JSON"), golden);
        }
    }

    #[test]
    fn a_table_of_an_earlier_version_is_read() {
        let stored = r#"{"kind":"table","id":3,"storage":4,"rows":9,"columns":[{"name":"a","kind":"Integer","not_null":true,"default":null}],"key":[0],"key_name":"t_pkey"}"#;
        let (schema, entry) = read(b"tpublic\0t", stored.as_bytes()).expect("it is read");
        let Some((name, Entry::Table(table))) = entry else { panic!("a table") };
        assert_eq!((schema.as_str(), name.as_str(), &table.columns[0].identity), ("public", "t", &None));
    }

    #[test]
    fn a_foreign_key_that_cannot_be_is_damage() {
        let read_one = |columns: &str, parents: &str, update: &str| -> Result<(), SqlError> {
            let text = format!(
                r#"{{"kind":"referring","id":3,"storage":4,"rows":9,"columns":[{{"name":"a","kind":"Integer","not_null":true,"default":null}}],"key":[0],"key_name":"t_pkey","foreign_keys":[{{"name":"f","columns":{columns},"parent":3,"parent_columns":{parents},"on_delete":"NoAction","on_update":"{update}"}}]}}"#
            );
            let (schema, named) = read(&key("public", "t"), text.as_bytes())?;
            let mut schemas = Schemas::new();
            schemas.entry(schema).or_default().extend(named);
            note_referenced(&mut schemas)
        };
        read_one("[0]", "[0]", "Restrict").expect("it can be");
        for (columns, parents, update) in [
            ("[0]", "[1]", "NoAction"),
            ("[1]", "[0]", "NoAction"),
            ("[0]", "[0,0]", "NoAction"),
            ("[]", "[]", "NoAction"),
            ("[0]", "[0]", "Cascade"),
        ] {
            assert!(read_one(columns, parents, update).is_err(), "{columns} {parents} {update}");
        }
    }
}
