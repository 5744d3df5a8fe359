//! Columns as `information_schema.columns` lists them: with PostgreSQL's names of their types, lengths and digits.

use datafusion::arrow::datatypes::{DataType, Field};

use super::listed_rows::{Cell, ListedRow, text, yes_or_no};
use crate::engine::parse::ast::DATABASE;
use crate::table::types::{CHAR, OID_ALIAS};
use crate::table::{Catalog, Column, Entry, SqlType, TYPE_KEY};

/// Most bytes of a text without a length, as PostgreSQL says it.
const TEXT_BYTES: i32 = 1 << 30;

/// Most bytes of a character in UTF-8.
const CHARACTER_BYTES: i32 = 4;

/// Digits behind the second of what is not declared with fewer.
const SECOND_DIGITS: i32 = 6;

/// What a column's type is called: by SQL, and in `pg_type`.
struct TypeNames {
    sql: String,
    catalog: String,
}

/// The row of the column at a position, from 0, behind the cells that name its table.
pub(super) fn row(table: &[(&'static str, Cell)], at: usize, field: &Field) -> ListedRow {
    let position = i32::try_from(at + 1).unwrap_or(i32::MAX);
    let mut row = table.to_vec();
    row.extend([
        ("column_name", text(field.name())),
        ("ordinal_position", Cell::Number(position)),
        ("dtd_identifier", text(position.to_string())),
        ("is_nullable", yes_or_no(field.is_nullable())),
        ("udt_catalog", text(DATABASE)),
        ("udt_schema", text("pg_catalog")),
        ("is_self_referencing", text("NO")),
        ("is_generated", text("NEVER")),
    ]);
    row.extend(type_cells(field));
    row
}

/// What a table's definition adds to the row of one of its columns.
pub(super) fn definition_cells(catalog: &Catalog, column: Option<&Column>) -> ListedRow {
    let identity = column.and_then(|column| column.identity.as_ref());
    let is_table = column.is_some();
    let mut row = vec![("is_identity", yes_or_no(identity.is_some())), ("is_updatable", yes_or_no(is_table))];
    row.extend(column.and_then(|column| column.default.as_ref()).map(|default| ("column_default", text(default))));
    let Some(identity) = identity else {
        row.push(("identity_cycle", text("NO")));
        return row;
    };
    row.push(("identity_generation", text(if identity.always { "ALWAYS" } else { "BY DEFAULT" })));
    if let Some(Entry::Sequence(sequence)) = catalog.get(&identity.schema, &identity.sequence) {
        row.extend([
            ("identity_start", text(sequence.start.to_string())),
            ("identity_increment", text(sequence.increment.to_string())),
            ("identity_maximum", text(sequence.max.to_string())),
            ("identity_minimum", text(sequence.min.to_string())),
            ("identity_cycle", yes_or_no(sequence.cycle)),
        ]);
    }
    row
}

/// The cells of a column's type.
fn type_cells(field: &Field) -> ListedRow {
    if let DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) = field.data_type() {
        return vec![("data_type", text("ARRAY")), ("udt_name", text(format!("_{}", names_of(item).catalog)))];
    }
    let names = names_of(field);
    let mut row = vec![("data_type", text(names.sql)), ("udt_name", text(names.catalog))];
    if field.metadata().contains_key(OID_ALIAS) || field.metadata().contains_key(CHAR) {
        return row;
    }
    let number = |name: &'static str, value: i32| (name, Cell::Number(value));
    let whole = |bits: i32| {
        [number("numeric_precision", bits), number("numeric_precision_radix", 2), number("numeric_scale", 0)]
    };
    let float = |bits: i32| [number("numeric_precision", bits), number("numeric_precision_radix", 2)];
    match SqlType::from_arrow(field) {
        Ok(SqlType::SmallInt) => row.extend(whole(16)),
        Ok(SqlType::Integer) => row.extend(whole(32)),
        Ok(SqlType::BigInt) => row.extend(whole(64)),
        Ok(SqlType::Real) => row.extend(float(24)),
        Ok(SqlType::Double) => row.extend(float(53)),
        Ok(SqlType::Numeric(precision, scale)) => row.extend([
            number("numeric_precision", precision.into()),
            number("numeric_precision_radix", 10),
            number("numeric_scale", scale.into()),
        ]),
        Ok(SqlType::Varchar(length) | SqlType::Char(length)) => {
            let length = i32::try_from(length).unwrap_or(i32::MAX);
            row.extend([
                number("character_maximum_length", length),
                number("character_octet_length", length.saturating_mul(CHARACTER_BYTES)),
            ]);
        }
        Ok(SqlType::Text) | Err(_) => row.push(number("character_octet_length", TEXT_BYTES)),
        Ok(SqlType::Date) => row.push(number("datetime_precision", 0)),
        Ok(SqlType::TimeDigits(digits) | SqlType::TimestampDigits(digits) | SqlType::TimestampTzDigits(digits)) => {
            row.push(number("datetime_precision", digits.into()));
        }
        Ok(SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval) => {
            row.push(number("datetime_precision", SECOND_DIGITS));
        }
        Ok(SqlType::Boolean | SqlType::Json | SqlType::Jsonb | SqlType::Bytea | SqlType::Uuid) => {}
    }
    row
}

/// The names of a type that is no array. What cannot be sent is shown as text, as in `pg_attribute`.
fn names_of(field: &Field) -> TypeNames {
    let named = |sql: &str, catalog: &str| TypeNames { sql: sql.to_owned(), catalog: catalog.to_owned() };
    if let Some(alias) = field.metadata().get(OID_ALIAS) {
        return named(alias, alias);
    }
    if field.metadata().contains_key(CHAR) {
        return named("\"char\"", "char");
    }
    match SqlType::from_arrow(field) {
        Ok(SqlType::Boolean) => named("boolean", "bool"),
        Ok(SqlType::SmallInt) => named("smallint", "int2"),
        Ok(SqlType::Integer) => named("integer", "int4"),
        Ok(SqlType::BigInt) => named("bigint", "int8"),
        Ok(SqlType::Real) => named("real", "float4"),
        Ok(SqlType::Double) => named("double precision", "float8"),
        Ok(SqlType::Numeric(..)) => named("numeric", "numeric"),
        Ok(SqlType::Varchar(_)) => named("character varying", "varchar"),
        Ok(SqlType::Char(_)) => named("character", "bpchar"),
        Ok(SqlType::Json) => named("json", "json"),
        Ok(SqlType::Jsonb) => named("jsonb", "jsonb"),
        Ok(SqlType::Bytea) => named("bytea", "bytea"),
        Ok(SqlType::Date) => named("date", "date"),
        Ok(SqlType::Time | SqlType::TimeDigits(_)) => named("time without time zone", "time"),
        Ok(SqlType::Timestamp | SqlType::TimestampDigits(_)) => named("timestamp without time zone", "timestamp"),
        Ok(SqlType::TimestampTz | SqlType::TimestampTzDigits(_)) => named("timestamp with time zone", "timestamptz"),
        Ok(SqlType::Interval) => named("interval", "interval"),
        Ok(SqlType::Uuid) => named("uuid", "uuid"),
        // A cast to a length that is not said.
        Ok(SqlType::Text) => match field.metadata().get(TYPE_KEY).map(String::as_str) {
            Some("character varying") => named("character varying", "varchar"),
            Some("character") => named("character", "bpchar"),
            _ => named("text", "text"),
        },
        Err(_) => named("text", "text"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn shown(field: &Field, names: &[&str]) -> String {
        let row = row(&[], 0, field);
        let cell = |name: &&str| match row.iter().find(|(known, _)| known == name) {
            Some((_, Cell::Text(text))) => text.clone(),
            Some((_, Cell::Number(number))) => number.to_string(),
            None => "-".to_owned(),
        };
        names.iter().map(cell).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn arrays_and_columns_of_the_catalogs_have_the_names_of_their_types() {
        let item = Arc::new(SqlType::Varchar(5).field("item", true));
        let oid = Field::new("oid", DataType::Int32, false).with_metadata([(OID_ALIAS.into(), "oid".into())].into());
        let char = Field::new("kind", DataType::Utf8, false).with_metadata([(CHAR.into(), "char".into())].into());
        let cells = ["data_type", "udt_name", "is_nullable", "numeric_precision", "character_octet_length"];
        for (field, expected) in [
            (Field::new("many", DataType::List(item), true), "ARRAY|_varchar|YES|-|-"),
            (oid, "oid|oid|NO|-|-"),
            (char, "\"char\"|char|NO|-|-"),
            (Field::new("odd", DataType::Utf8, true), "text|text|YES|-|1073741824"),
        ] {
            assert_eq!(shown(&field, &cells), expected);
        }
    }
}
