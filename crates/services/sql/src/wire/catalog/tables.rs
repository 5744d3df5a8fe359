//! The catalogs that are made from the session's tables: pg_class, pg_attribute, pg_index, pg_constraint, pg_namespace,
//! pg_attrdef, pg_settings. All others are datafusion-pg-catalog's, and so are the columns of these.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use super::backends::Backends;
use super::facts::{Facts, Moment, Relation};
use crate::wire::login::SERVER_VERSION;
use crate::wire::oid::{Described, Kind, Scalar};

/// PostgreSQL's number of the access method of tables.
const HEAP: i32 = 2;
/// PostgreSQL's number of the access method of trees.
const BTREE: i32 = 403;
/// PostgreSQL's number of the first role.
const OWNER: i32 = 10;

/// The connections; datafusion-pg-catalog has no such table.
pub(super) const ACTIVITY: &str = "pg_stat_activity";

/// The schema pg_catalog.
#[derive(Debug)]
pub(super) struct PgCatalog {
    others: Arc<dyn SchemaProvider>,
    facts: Facts,
    backends: Backends,
}

/// A row: values of the columns that are not empty.
type Row = Vec<(&'static str, ScalarValue)>;

impl PgCatalog {
    /// Over what gives the others.
    pub(super) fn new(others: Arc<dyn SchemaProvider>, facts: Facts, backends: Backends) -> PgCatalog {
        PgCatalog { others, facts, backends }
    }
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.others.table_names();
        names.push(ACTIVITY.to_owned());
        names
    }

    fn table_exist(&self, name: &str) -> bool {
        name == ACTIVITY || self.others.table_exist(name)
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if name == ACTIVITY {
            return Ok(Some(Arc::new(self.backends.activity()?)));
        }
        let Some(other) = self.others.table(name).await? else { return Ok(None) };
        let made: fn(&Moment) -> Vec<Row> = match name {
            "pg_class" => classes,
            "pg_attribute" => attributes,
            "pg_index" => indexes,
            "pg_constraint" => constraints,
            "pg_namespace" => namespaces,
            "pg_attrdef" => defaults,
            "pg_settings" => settings,
            _ => return Ok(Some(other)),
        };
        let moment = self.facts.gather().await?;
        Ok(Some(Arc::new(table(&completed(name, &other.schema()), &made(&moment))?)))
    }
}

fn classes(moment: &Moment) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &moment.relations {
        let keyed = !relation.key.is_empty();
        rows.push(class(
            relation,
            relation.oid,
            &relation.name,
            if relation.query.is_some() { "v" } else { "r" },
            keyed,
        ));
        if keyed {
            rows.push(class(relation, relation.index_oid(), &relation.key_name, "i", false));
        }
    }
    rows
}

fn class(relation: &Relation, oid: u32, name: &str, kind: &str, keyed: bool) -> Row {
    let columns = if kind == "i" { relation.key.len() } else { relation.columns.fields().len() };
    let method = match kind {
        "i" => BTREE,
        "r" => HEAP,
        _ => 0,
    };
    vec![
        ("oid", int(oid)),
        ("relname", text(name)),
        ("relnamespace", int(relation.namespace.oid)),
        ("relowner", ScalarValue::from(OWNER)),
        ("relam", ScalarValue::from(method)),
        ("relhasindex", ScalarValue::from(keyed)),
        ("relpersistence", text("p")),
        ("relkind", text(kind)),
        ("relnatts", ScalarValue::from(columns as i16)),
        ("relispopulated", ScalarValue::from(true)),
        ("relreplident", text("d")),
    ]
}

fn attributes(moment: &Moment) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &moment.relations {
        for (at, field) in relation.columns.fields().iter().enumerate() {
            let mut row = attribute(relation.oid, at + 1, field);
            row.push(("atthasdef", ScalarValue::from(relation.defaults.iter().any(|(column, _)| *column == at))));
            rows.push(row);
        }
        for (at, column) in relation.key.iter().enumerate() {
            rows.push(attribute(relation.index_oid(), at + 1, relation.columns.field(*column)));
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
    vec![
        ("attrelid", int(relation)),
        ("attname", text(field.name())),
        ("atttypid", int(described.kind.oid())),
        ("attlen", ScalarValue::from(described.kind.length())),
        ("attnum", ScalarValue::from(number as i16)),
        ("attcacheoff", ScalarValue::from(-1i32)),
        ("atttypmod", ScalarValue::from(described.modifier)),
        ("attalign", text("i")),
        ("attstorage", text("p")),
        ("attnotnull", ScalarValue::from(!field.is_nullable())),
        ("attislocal", ScalarValue::from(true)),
    ]
}

fn keyed(moment: &Moment) -> impl Iterator<Item = &Relation> {
    moment.relations.iter().filter(|relation| !relation.key.is_empty())
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

/// What clients look for there: JDBC asks for the first when it is asked for foreign keys.
fn settings(_: &Moment) -> Vec<Row> {
    let all = [("max_index_keys", "32"), ("standard_conforming_strings", "on"), ("server_version", SERVER_VERSION)];
    all.iter().map(|(name, setting)| vec![("name", text(name)), ("setting", text(setting))]).collect()
}

/// A catalog's columns with lists as lists, which the exports have as text, and with those that they lack.
fn completed(name: &str, schema: &SchemaRef) -> SchemaRef {
    let list = |item: DataType| DataType::List(Arc::new(Field::new_list_field(item, true)));
    let completed = |field: &Arc<Field>| {
        let kind = match field.name().as_str() {
            "indkey" | "indoption" | "conkey" | "confkey" => list(DataType::Int16),
            "indclass" | "indcollation" => list(DataType::Int32),
            _ => return field.as_ref().clone(),
        };
        Field::new(field.name(), kind, true)
    };
    let mut fields: Vec<Field> = schema.fields().iter().map(completed).collect();
    if name == "pg_class" {
        fields.extend(["relacl", "reloptions"].map(|name| Field::new(name, list(DataType::Utf8), true)));
    }
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The numbers of the primary key's columns, from 1.
fn key_numbers(relation: &Relation) -> ScalarValue {
    let numbers: Vec<ScalarValue> = relation.key.iter().map(|at| ScalarValue::from(*at as i16 + 1)).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&numbers, &DataType::Int16))
}

/// For each column of a key that it goes up, with NULL at its end.
fn zeros(count: usize) -> ScalarValue {
    ScalarValue::List(ScalarValue::new_list_nullable(&vec![ScalarValue::from(0i16); count], &DataType::Int16))
}

fn indexes(moment: &Moment) -> Vec<Row> {
    let row = |relation: &Relation| {
        vec![
            ("indexrelid", int(relation.index_oid())),
            ("indrelid", int(relation.oid)),
            ("indnatts", ScalarValue::from(relation.key.len() as i16)),
            ("indnkeyatts", ScalarValue::from(relation.key.len() as i16)),
            ("indisunique", ScalarValue::from(true)),
            ("indisprimary", ScalarValue::from(true)),
            ("indimmediate", ScalarValue::from(true)),
            ("indisvalid", ScalarValue::from(true)),
            ("indisready", ScalarValue::from(true)),
            ("indislive", ScalarValue::from(true)),
            ("indkey", key_numbers(relation)),
            ("indoption", zeros(relation.key.len())),
        ]
    };
    keyed(moment).map(row).collect()
}

fn constraints(moment: &Moment) -> Vec<Row> {
    let row = |relation: &Relation| {
        vec![
            ("oid", int(relation.constraint_oid())),
            ("conname", text(&relation.key_name)),
            ("connamespace", int(relation.namespace.oid)),
            ("contype", text("p")),
            ("convalidated", ScalarValue::from(true)),
            ("conrelid", int(relation.oid)),
            ("conindid", int(relation.index_oid())),
            ("conislocal", ScalarValue::from(true)),
            ("conkey", key_numbers(relation)),
        ]
    };
    keyed(moment).map(row).collect()
}

fn namespaces(moment: &Moment) -> Vec<Row> {
    let row = |namespace: &super::facts::Namespace| {
        vec![("oid", int(namespace.oid)), ("nspname", text(&namespace.name)), ("nspowner", ScalarValue::from(OWNER))]
    };
    moment.namespaces.iter().map(row).collect()
}

fn int(oid: u32) -> ScalarValue {
    ScalarValue::from(oid as i32)
}

fn text(text: &str) -> ScalarValue {
    ScalarValue::from(text)
}

/// A table with these columns and rows. What a row does not tell is NULL if it may be, else nothing: 0, false, no text.
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
            // Exports differ in how they hold a number or a list; the value goes where it fits.
            values.push(cast_or(value, field.data_type(), &nothing));
        }
        let column =
            if values.is_empty() { new_null_array(field.data_type(), 0) } else { ScalarValue::iter_to_array(values)? };
        columns.push(cast(&column, field.data_type())?);
    }
    let fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    MemTable::try_new(Arc::clone(&schema), vec![vec![RecordBatch::try_new(schema, columns)?]])
}

fn cast_or(value: &ScalarValue, wanted: &DataType, nothing: &ScalarValue) -> ScalarValue {
    value.cast_to(wanted).unwrap_or_else(|_| nothing.clone())
}
