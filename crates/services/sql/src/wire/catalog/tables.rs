//! The catalogs made from the session's tables: pg_class, pg_attribute, pg_attrdef, pg_index, pg_constraint,
//! pg_namespace, and the views of them. This file also decides which catalog has which rows; catalogs that are not
//! mentioned here are empty.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::TableType;
use datafusion::scalar::ScalarValue;
use node::identity::Object;

use super::acl::{Acls, acl_or_null};
use super::arrow_schema::{names, shape};
use super::backends::{ACTIVITY, Backends, GSSAPI};
use super::catalog_row::{Row, int, text};
use super::columns::VIEWS;
use super::locks::{LOCKS, LocksTable};
use super::session_objects::{
    Facts, Moment, Namespace, Relation, SessionFacts, ShownCheck, ShownForeignKey, ShownIndex,
};
use super::types::CatalogType;
use super::{acl, descriptions, functions, prepared_statements, roles, sequences, static_catalogs, types};
use crate::table::KeyAction;
use crate::wire::oid::{Described, Kind, Scalar};

/// PostgreSQL's OID of the access method of tables.
const HEAP: i32 = 2;
/// PostgreSQL's OID of the access method of trees.
const BTREE: i32 = 403;
/// Columns have PostgreSQL's default statistics target.
const STATISTICS: i32 = -1;

/// The schema pg_catalog.
#[derive(Debug)]
pub(super) struct PgCatalog {
    facts: Facts,
    backends: Backends,
    /// Functions that can be called.
    functions: Vec<roles::Callable>,
}

impl PgCatalog {
    /// The schema for a session's tables and functions, and for the server's connections.
    pub(super) fn new(facts: Facts, backends: Backends, functions: Vec<roles::Callable>) -> PgCatalog {
        PgCatalog { facts, backends, functions }
    }
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        names().chain([ACTIVITY, LOCKS]).map(str::to_owned).collect()
    }

    fn table_exist(&self, name: &str) -> bool {
        name == ACTIVITY || name == LOCKS || names().any(|catalog| catalog == name)
    }

    /// Determines the type without rows.
    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        let is_view = name == ACTIVITY || name == LOCKS || VIEWS.iter().any(|(view, _)| *view == name);
        Ok(self.table_exist(name).then_some(if is_view { TableType::View } else { TableType::Base }))
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if name == ACTIVITY {
            return Ok(Some(Arc::new(self.backends.activity()?)));
        }
        if name == LOCKS {
            return Ok(Some(Arc::new(LocksTable(self.backends.clone()))));
        }
        let Some(shape) = shape(name) else { return Ok(None) };
        let rows = match name {
            "pg_proc" => roles::procedures(&self.functions),
            GSSAPI => self.backends.without_gssapi(),
            _ => match (lasting(name), passing(name)) {
                (Some(rows), _) => rows(&self.facts.about),
                (_, Some(rows)) => rows(&self.facts.gather().await?),
                _ => Vec::new(),
            },
        };
        Ok(Some(Arc::new(table(&shape, &rows)?)))
    }
}

/// The function for the rows of a catalog that does not change while a session lasts.
fn lasting(name: &str) -> Option<fn(&SessionFacts) -> Vec<Row>> {
    Some(match name {
        "pg_am" => static_catalogs::methods,
        "pg_auth_members" => acl::memberships,
        "pg_authid" => roles::authorities,
        "pg_collation" => static_catalogs::collations,
        "pg_database" => roles::databases,
        "pg_language" => static_catalogs::languages,
        "pg_prepared_statements" => prepared_statements::rows,
        "pg_range" => types::ranges,
        "pg_roles" => roles::roles,
        "pg_settings" => functions::settings,
        "pg_shadow" => roles::shadows,
        "pg_user" => roles::users,
        "pg_tablespace" => static_catalogs::tablespaces,
        "pg_type" => types::types,
        _ => return None,
    })
}

/// The function for the rows of a catalog that changes with the session's tables.
fn passing(name: &str) -> Option<fn(&Moment) -> Vec<Row>> {
    Some(match name {
        "pg_attrdef" => defaults,
        "pg_attribute" => attributes,
        "pg_class" => classes,
        "pg_constraint" => constraints,
        "pg_default_acl" => acl::default_acls,
        "pg_description" => descriptions::descriptions,
        "pg_index" => indexes,
        "pg_indexes" => roles::indexes,
        "pg_namespace" => namespaces,
        "pg_sequence" => sequences::definitions,
        "pg_sequences" => sequences::sequences,
        "pg_shdescription" => descriptions::shared,
        "pg_tables" => roles::tables,
        "pg_views" => roles::views,
        _ => return None,
    })
}

/// Whether a catalog never has rows here.
pub(super) fn is_empty(name: &str) -> bool {
    let has_rows = matches!(name, "pg_proc" | GSSAPI) || lasting(name).is_some() || passing(name).is_some();
    !has_rows && names().any(|catalog| catalog == name)
}

fn classes(moment: &Moment) -> Vec<Row> {
    let mut rows = Vec::new();
    let acls = Acls::of(&moment.about);
    let index = acls.index();
    for relation in &moment.relations {
        let kind = match (&relation.query, &relation.sequence) {
            (Some(_), _) => "v",
            (None, Some(_)) => "S",
            _ => "r",
        };
        let columns = relation.columns.fields().len();
        rows.push(class(relation, relation.oid, &relation.name, (kind, columns)));
        let object = Object::Table { schema: &relation.namespace.name, name: &relation.name, columns: &[] };
        let acl = match &relation.sequence {
            Some(_) => acl::sequence_acl_or_null(index.as_ref(), &object),
            None => acl_or_null(index.as_ref(), &object, None),
        };
        rows.last_mut().into_iter().for_each(|row| {
            row.push(("relacl", acl.clone()));
            // As in PostgreSQL, where triggers check foreign keys: psql asks for these only then.
            row.push(("relhastriggers", ScalarValue::from(relation.is_connected)));
        });
        for index in &relation.indexes {
            rows.push(class(relation, relation.index_oid(index), &index.name, ("i", index.columns.len())));
        }
    }
    rows
}

fn class(relation: &Relation, oid: u32, name: &str, (kind, columns): (&str, usize)) -> Row {
    let method = match kind {
        "i" => BTREE,
        "r" => HEAP,
        _ => 0,
    };
    vec![
        ("oid", int(oid)),
        ("relname", text(name)),
        ("relnamespace", int(relation.namespace.oid)),
        ("relowner", int(relation.owner)),
        ("relam", ScalarValue::from(method)),
        ("relhasindex", ScalarValue::from(kind == "r" && !relation.indexes.is_empty())),
        ("relpersistence", text("p")),
        ("relkind", text(kind)),
        ("relnatts", ScalarValue::from(columns as i16)),
        ("relchecks", ScalarValue::from(if kind == "r" { relation.checks.len() as i16 } else { 0 })),
        ("relispopulated", ScalarValue::from(true)),
        ("relreplident", text(if kind == "r" { "d" } else { "n" })),
    ]
}

fn attributes(moment: &Moment) -> Vec<Row> {
    let mut rows = Vec::new();
    let acls = Acls::of(&moment.about);
    let index = acls.index();
    for relation in &moment.relations {
        let object = Object::Table { schema: &relation.namespace.name, name: &relation.name, columns: &[] };
        for (at, field) in relation.columns.fields().iter().enumerate() {
            let mut row = attribute(relation.oid, at + 1, field);
            // A column of a view may be NULL, as in PostgreSQL.
            row.push(("attnotnull", ScalarValue::from(!field.is_nullable() && relation.query.is_none())));
            row.push(("attacl", acl_or_null(index.as_ref(), &object, Some(field.name()))));
            row.push(("atthasdef", ScalarValue::from(relation.defaults.iter().any(|(column, _)| *column == at))));
            let identity = relation.identities.iter().find(|(column, _)| *column == at);
            row.push(("attidentity", text(identity.map_or("", |(_, always)| if *always { "a" } else { "d" }))));
            rows.push(row);
        }
        for index in &relation.indexes {
            let columns = index.columns.iter().enumerate();
            let row = |(at, column): (usize, &usize)| {
                attribute(relation.index_oid(index), at + 1, relation.columns.field(*column))
            };
            rows.extend(columns.map(row));
        }
    }
    rows
}

fn attribute(relation: u32, number: usize, field: &Field) -> Row {
    // A column that cannot be sent is shown as text.
    let described = Described::of(field).unwrap_or(Described {
        name: field.name().clone(),
        kind: Kind::One(Scalar::Text),
        modifier: -1,
    });
    let kind = types::of(described.kind.oid());
    vec![
        ("attrelid", int(relation)),
        ("attname", text(field.name())),
        ("atttypid", int(described.kind.oid())),
        ("attstattarget", ScalarValue::from(STATISTICS)),
        ("attlen", ScalarValue::from(described.kind.length())),
        ("attnum", ScalarValue::from(number as i16)),
        ("attndims", ScalarValue::from(i32::from(matches!(described.kind, Kind::Array(_))))),
        ("attcacheoff", ScalarValue::from(-1i32)),
        ("atttypmod", ScalarValue::from(described.modifier)),
        ("attbyval", ScalarValue::from(kind.is_some_and(CatalogType::by_value))),
        ("attalign", text(kind.map_or("i", |kind| kind.align))),
        ("attstorage", text(kind.map_or("p", |kind| kind.storage))),
        ("attcollation", int(kind.map_or(0, |kind| kind.collation))),
        ("attislocal", ScalarValue::from(true)),
    ]
}

fn defaults(moment: &Moment) -> Vec<Row> {
    let row = |relation: &Relation, at: usize, default: &str| {
        vec![
            ("oid", int(relation.default_oid(at))),
            ("adrelid", int(relation.oid)),
            ("adnum", ScalarValue::from(at as i16 + 1)),
            ("adbin", text(default)),
        ]
    };
    let all = moment.relations.iter();
    all.flat_map(|relation| relation.defaults.iter().map(move |(at, default)| row(relation, *at, default))).collect()
}

/// Positions of columns, from 1.
fn numbers_of(columns: &[usize]) -> ScalarValue {
    let numbers: Vec<ScalarValue> = columns.iter().map(|at| ScalarValue::from(*at as i16 + 1)).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&numbers, &DataType::Int16))
}

/// A zero for each column of a key: ascending order with NULL last, and no collation and no operators of its own.
fn zeros(count: usize, zero: ScalarValue) -> ScalarValue {
    let kind = zero.data_type();
    ScalarValue::List(ScalarValue::new_list_nullable(&vec![zero; count], &kind))
}

/// The orders of an index's columns: 1 for DESC, 2 for NULLS FIRST.
fn orders_of(index: &ShownIndex) -> ScalarValue {
    let order = |at: usize| {
        let order = index.orders.get(at).copied().unwrap_or_default();
        ScalarValue::from(i16::from(order.descending) + 2 * i16::from(order.nulls_first))
    };
    let orders: Vec<ScalarValue> = (0..index.columns.len()).map(order).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&orders, &DataType::Int16))
}

fn indexes(moment: &Moment) -> Vec<Row> {
    let row = |(relation, index): (&Relation, &ShownIndex)| {
        let columns = index.columns.len();
        vec![
            ("indexrelid", int(relation.index_oid(index))),
            ("indrelid", int(relation.oid)),
            ("indnatts", ScalarValue::from(columns as i16)),
            ("indnkeyatts", ScalarValue::from(columns as i16)),
            ("indisunique", ScalarValue::from(index.unique)),
            ("indisprimary", ScalarValue::from(index.primary)),
            ("indimmediate", ScalarValue::from(true)),
            ("indisvalid", ScalarValue::from(true)),
            ("indisready", ScalarValue::from(true)),
            ("indislive", ScalarValue::from(true)),
            ("indkey", numbers_of(&index.columns)),
            ("indcollation", zeros(columns, ScalarValue::from(0i32))),
            ("indclass", zeros(columns, ScalarValue::from(0i32))),
            ("indoption", orders_of(index)),
        ]
    };
    moment.indexes().map(row).collect()
}

fn constraints(moment: &Moment) -> Vec<Row> {
    let row = |(relation, index): (&Relation, &ShownIndex)| {
        vec![
            ("oid", int(relation.constraint_oid(index))),
            ("conname", text(&index.name)),
            ("connamespace", int(relation.namespace.oid)),
            ("contype", text(if index.primary { "p" } else { "u" })),
            ("convalidated", ScalarValue::from(true)),
            ("conrelid", int(relation.oid)),
            ("conindid", int(relation.index_oid(index))),
            ("conislocal", ScalarValue::from(true)),
            ("conkey", numbers_of(&index.columns)),
        ]
    };
    let check = |relation: &Relation, check: &ShownCheck| {
        let mut row = vec![
            ("oid", int(relation.check_oid(check))),
            ("conname", text(&check.name)),
            ("connamespace", int(relation.namespace.oid)),
            ("contype", text("c")),
            ("convalidated", ScalarValue::from(true)),
            ("conrelid", int(relation.oid)),
            ("conislocal", ScalarValue::from(true)),
            ("conbin", text(&check.condition)),
        ];
        // As in PostgreSQL NULL for a condition without columns.
        if !check.columns.is_empty() {
            row.push(("conkey", numbers_of(&check.columns)));
        }
        row
    };
    let action = |action: KeyAction| {
        text(match action {
            KeyAction::NoAction => "a",
            KeyAction::Restrict => "r",
            KeyAction::Cascade => "c",
            KeyAction::SetNull => "n",
        })
    };
    let foreign = |relation: &Relation, key: &ShownForeignKey| {
        vec![
            ("oid", int(relation.foreign_oid(key))),
            ("conname", text(&key.name)),
            ("connamespace", int(relation.namespace.oid)),
            ("contype", text("f")),
            ("convalidated", ScalarValue::from(true)),
            ("conrelid", int(relation.oid)),
            ("conindid", int(key.index)),
            ("confrelid", int(key.parent)),
            ("confupdtype", action(key.on_update)),
            ("confdeltype", action(key.on_delete)),
            ("confmatchtype", text("s")),
            ("conislocal", ScalarValue::from(true)),
            ("connoinherit", ScalarValue::from(true)),
            ("conkey", numbers_of(&key.columns)),
            ("confkey", numbers_of(&key.parent_columns)),
        ]
    };
    let foreigns = moment
        .relations
        .iter()
        .flat_map(|relation| relation.foreign_keys.iter().map(move |key| foreign(relation, key)));
    let all = moment.relations.iter();
    let checks = all.flat_map(|relation| relation.checks.iter().map(move |one| check(relation, one)));
    let keys = moment.indexes().filter(|(_, index)| index.constraint);
    keys.map(row).chain(checks).chain(foreigns).collect()
}

fn namespaces(moment: &Moment) -> Vec<Row> {
    let acls = Acls::of(&moment.about);
    let index = acls.index();
    let row = |namespace: &Namespace| {
        let acl = acl_or_null(index.as_ref(), &Object::Schema(&namespace.name), None);
        vec![
            ("nspacl", acl),
            ("oid", int(namespace.oid)),
            ("nspname", text(&namespace.name)),
            ("nspowner", int(namespace.owner)),
        ]
    };
    moment.namespaces.iter().map(row).collect()
}

/// A table with these columns and rows. A value that a row does not contain is NULL if the column allows it, otherwise
/// 0, false or an empty text.
fn table(schema: &SchemaRef, rows: &[Row]) -> Result<MemTable> {
    let rows: Vec<HashMap<&str, &ScalarValue>> =
        rows.iter().map(|row| row.iter().map(|(name, value)| (*name, value)).collect()).collect();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for field in schema.fields() {
        let nothing = if field.is_nullable() || field.data_type().is_nested() {
            ScalarValue::try_from(field.data_type())?
        } else {
            ScalarValue::new_default(field.data_type())?
        };
        let mut values = Vec::with_capacity(rows.len());
        for row in &rows {
            let value = row.get(field.name().as_str()).copied().unwrap_or(&nothing);
            values.push(value.cast_to(field.data_type())?);
        }
        let column =
            if values.is_empty() { new_null_array(field.data_type(), 0) } else { ScalarValue::iter_to_array(values)? };
        columns.push(cast(&column, field.data_type())?);
    }
    let fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    MemTable::try_new(Arc::clone(&schema), vec![vec![RecordBatch::try_new(schema, columns)?]])
}
