//! The catalogs of sequences: pg_sequence and pg_sequences, and `pg_get_serial_sequence`.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::ColumnarValue;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use super::catalog_row::{Row, int, text};
use super::constant_functions::add;
use super::session_objects::{Facts, Moment, Relation};
use crate::SqlError;
use crate::table::{Sequence, SqlType};
use crate::text::identifiers::parts;
use crate::wire::oid::Scalar;

/// The sequences, each with its relation.
fn all(moment: &Moment) -> impl Iterator<Item = (&Relation, &Sequence)> {
    moment.relations.iter().filter_map(|relation| Some((relation, relation.sequence.as_deref()?)))
}

fn kind(sequence: &Sequence) -> u32 {
    match sequence.kind {
        SqlType::SmallInt => Scalar::Int2,
        SqlType::Integer => Scalar::Int4,
        _ => Scalar::Int8,
    }
    .oid()
}

/// Rows of `pg_sequence`.
pub(super) fn definitions(moment: &Moment) -> Vec<Row> {
    let row = |(relation, sequence): (&Relation, &Sequence)| {
        vec![
            ("seqrelid", int(relation.oid)),
            ("seqtypid", int(kind(sequence))),
            ("seqstart", ScalarValue::from(sequence.start)),
            ("seqincrement", ScalarValue::from(sequence.increment)),
            ("seqmax", ScalarValue::from(sequence.max)),
            ("seqmin", ScalarValue::from(sequence.min)),
            ("seqcache", ScalarValue::from(sequence.cache)),
            ("seqcycle", ScalarValue::from(sequence.cycle)),
        ]
    };
    all(moment).map(row).collect()
}

/// Rows of `pg_sequences`.
pub(super) fn sequences(moment: &Moment) -> Vec<Row> {
    let row = |(relation, sequence): (&Relation, &Sequence)| {
        vec![
            ("schemaname", text(&relation.namespace.name)),
            ("sequencename", text(&relation.name)),
            ("sequenceowner", moment.about.role(relation.owner).map_or(ScalarValue::Utf8(None), ScalarValue::from)),
            ("data_type", int(kind(sequence))),
            ("start_value", ScalarValue::from(sequence.start)),
            ("min_value", ScalarValue::from(sequence.min)),
            ("max_value", ScalarValue::from(sequence.max)),
            ("increment_by", ScalarValue::from(sequence.increment)),
            ("cycle", ScalarValue::from(sequence.cycle)),
            ("cache_size", ScalarValue::from(sequence.cache)),
            ("last_value", ScalarValue::Int64(moment.about.last_value(sequence))),
        ]
    };
    all(moment).map(row).collect()
}

/// Registers `pg_get_serial_sequence`.
pub(super) fn register(context: &SessionContext, facts: &Facts) {
    let facts = facts.clone();
    add(context, "pg_get_serial_sequence", DataType::Utf8, move |args| {
        let [tables, columns] = args.args.as_slice() else {
            return Err(SqlError::statement("42883", "pg_get_serial_sequence takes a table and a column").into());
        };
        let tables = cast(&tables.to_array(args.number_rows)?, &DataType::Utf8)?;
        let columns = cast(&columns.to_array(args.number_rows)?, &DataType::Utf8)?;
        let moment = facts.now();
        let pairs = tables.as_string::<i32>().iter().zip(columns.as_string::<i32>());
        let found = pairs.map(|(table, column)| match table.zip(column) {
            Some((table, column)) => owned(&moment, table, column),
            None => Ok(None),
        });
        Ok(ColumnarValue::Array(Arc::new(found.collect::<Result<StringArray, SqlError>>()?)))
    });
}

/// The sequence of a column. Errors: 42P01, 42703.
fn owned(moment: &Moment, table: &str, column: &str) -> Result<Option<String>, SqlError> {
    let missing = || SqlError::statement("42P01", format!("relation \"{table}\" does not exist"));
    let split = parts(table).ok_or_else(missing)?;
    let (schema, name) = match split.as_slice() {
        [name] => ("public", name),
        [schema, name] => (schema.as_str(), name),
        _ => return Err(missing()),
    };
    let found = moment.relations.iter().find(|one| one.namespace.name == schema && one.name == *name);
    let relation = found.ok_or_else(missing)?;
    if relation.columns.field_with_name(column).is_err() {
        let message = format!("column \"{column}\" of relation \"{name}\" does not exist");
        return Err(SqlError::statement("42703", message));
    }
    Ok(relation.sequences.iter().find(|(owner, _)| owner == column).map(|(_, sequence)| sequence.clone()))
}
