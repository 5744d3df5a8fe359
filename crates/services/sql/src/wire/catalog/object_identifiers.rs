//! Names and the OIDs of the named objects: `to_regclass` and similar functions, and the functions that replace casts
//! between names and OIDs.
//!
//! | type | the name denotes | error if there is none |
//! |---|---|---|
//! | regclass | a table, view or index: `t`, `s.t`, `"T"` | 42P01 |
//! | regtype | a type: `int4`, `integer`, `int4[]`, `character varying` | 42704 |
//! | regnamespace | a schema | 3F000 |
//! | regrole | a user | 42704 |
//!
//! `to_..` returns NULL where the cast fails. Digits are the OID itself. Columns of type regproc contain names here,
//! and a cast to regproc gives a name, so there is no `to_regproc`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;

use super::columns::TABLES;
use super::session_objects::{Facts, Moment};
use crate::SqlError;
use crate::text::identifiers::{parts, quoted};
use crate::wire::oid::{Kind, Scalar};

/// SQL names of types besides those that [`Scalar::name`] returns: PostgreSQL's own names in its catalogs.
const INTERNAL: [(&str, Scalar); 15] = [
    ("bool", Scalar::Bool),
    ("int2", Scalar::Int2),
    ("int4", Scalar::Int4),
    ("int", Scalar::Int4),
    ("int8", Scalar::Int8),
    ("float4", Scalar::Float4),
    ("float8", Scalar::Float8),
    ("varchar", Scalar::Varchar),
    ("bpchar", Scalar::Bpchar),
    ("char", Scalar::Bpchar),
    ("decimal", Scalar::Numeric),
    ("timestamp without time zone", Scalar::Timestamp),
    ("timestamptz", Scalar::Timestamptz),
    ("time without time zone", Scalar::Time),
    ("\"char\"", Scalar::Char),
];

/// The kind of the named object.
#[derive(Clone, Copy)]
enum Named {
    Class,
    Type,
    Namespace,
    Role,
}

/// Registers the functions.
pub(super) fn register(context: &SessionContext, facts: &Facts) {
    for name in ["regproc_of", "regproc_name"] {
        let function =
            create_udf(name, vec![DataType::Utf8], DataType::Utf8, Volatility::Immutable, Arc::new(procedure));
        context.register_udf(function);
    }
    use Named::{Class, Namespace, Role, Type};
    let all = [(Class, "class"), (Type, "type"), (Namespace, "namespace"), (Role, "role")];
    for (kind, word) in all {
        for (name, strict) in [(format!("to_reg{word}"), false), (format!("reg{word}_of"), true)] {
            let facts = facts.clone();
            let find = move |arguments: &[ColumnarValue]| {
                let moment = facts.now();
                numbers(arguments, |name| match number(&moment, kind, name) {
                    None if strict => Err(missing(kind, name)),
                    found => Ok(found),
                })
            };
            context.register_udf(create_udf(
                &name,
                vec![DataType::Utf8],
                DataType::Int32,
                Volatility::Stable,
                Arc::new(find),
            ));
        }
        let facts = facts.clone();
        let tell = move |arguments: &[ColumnarValue]| {
            let moment = facts.now();
            // An OID without an object is shown as it is.
            names(arguments, |oid| name(&moment, kind, oid).unwrap_or_else(|| oid.to_string()))
        };
        let name = format!("reg{word}_name");
        let tell = Arc::new(tell);
        context.register_udf(create_udf(&name, vec![DataType::Int64], DataType::Utf8, Volatility::Stable, tell));
    }
}

/// The name of a function without its schema.
fn procedure(arguments: &[ColumnarValue]) -> Result<ColumnarValue> {
    let texts = cast(&arguments[0].to_array(rows_of(arguments))?, &DataType::Utf8)?;
    let name = |text: &str| parts(text).and_then(|mut parts| parts.pop()).unwrap_or_else(|| text.to_owned());
    let names: StringArray = texts.as_string::<i32>().iter().map(|text| text.map(name)).collect();
    answer(&arguments[0], Arc::new(names))
}

fn numbers(arguments: &[ColumnarValue], find: impl Fn(&str) -> Result<Option<u32>, SqlError>) -> Result<ColumnarValue> {
    let rows = rows_of(arguments);
    let texts = cast(&arguments[0].to_array(rows)?, &DataType::Utf8)?;
    let found = texts.as_string::<i32>().iter().map(|name| match name {
        Some(name) => find(name).map(|oid| oid.map(|oid| oid as i32)),
        None => Ok(None),
    });
    answer(&arguments[0], Arc::new(found.collect::<Result<Int32Array, SqlError>>()?))
}

fn names(arguments: &[ColumnarValue], tell: impl Fn(u32) -> String) -> Result<ColumnarValue> {
    let rows = rows_of(arguments);
    let numbers = cast(&arguments[0].to_array(rows)?, &DataType::Int64)?;
    let found =
        numbers.as_primitive::<Int64Type>().iter().map(|oid| oid.and_then(|oid| u32::try_from(oid).ok()).map(&tell));
    answer(&arguments[0], Arc::new(found.collect::<StringArray>()))
}

fn rows_of(arguments: &[ColumnarValue]) -> usize {
    match &arguments[0] {
        ColumnarValue::Array(array) => array.len(),
        ColumnarValue::Scalar(_) => 1,
    }
}

/// One value if one was given.
fn answer(given: &ColumnarValue, array: ArrayRef) -> Result<ColumnarValue> {
    match given {
        ColumnarValue::Array(_) => Ok(ColumnarValue::Array(array)),
        ColumnarValue::Scalar(_) => {
            Ok(ColumnarValue::Scalar(datafusion::scalar::ScalarValue::try_from_array(&array, 0)?))
        }
    }
}

fn missing(kind: Named, name: &str) -> SqlError {
    match kind {
        Named::Class => SqlError::statement("42P01", format!("relation \"{name}\" does not exist")),
        Named::Type => SqlError::statement("42704", format!("type \"{name}\" does not exist")),
        Named::Namespace => SqlError::statement("3F000", format!("schema \"{name}\" does not exist")),
        Named::Role => SqlError::statement("42704", format!("role \"{name}\" does not exist")),
    }
}

fn number(moment: &Moment, kind: Named, name: &str) -> Option<u32> {
    if let Ok(oid) = name.parse::<u32>() {
        return Some(oid);
    }
    match kind {
        Named::Type => type_number(name),
        Named::Class => {
            let parts = parts(name)?;
            let (schema, table) = match parts.as_slice() {
                [table] => (None, table),
                [schema, table] => (Some(schema), table),
                _ => return None,
            };
            if schema.is_none_or(|schema| schema == super::SCHEMA)
                && let Some((_, oid, _)) = TABLES.iter().find(|(catalog, ..)| catalog == table)
            {
                return Some(*oid);
            }
            let schema = schema.map_or("public", String::as_str);
            let inside = moment.relations.iter().filter(|relation| relation.namespace.name == schema);
            let mut numbers = inside.filter_map(|relation| {
                let index = || relation.indexes.iter().find(|index| index.name == *table);
                let number = (relation.name == *table).then_some(relation.oid);
                number.or_else(|| index().map(|index| relation.index_oid(index)))
            });
            numbers.next()
        }
        Named::Namespace => {
            let [schema] = parts(name)?.try_into().ok()?;
            moment.namespaces.iter().find(|namespace| namespace.name == schema).map(|namespace| namespace.oid)
        }
        Named::Role => {
            let [role] = parts(name)?.try_into().ok()?;
            moment.about.role_number(&role)
        }
    }
}

fn type_number(name: &str) -> Option<u32> {
    let lower = name.trim().to_ascii_lowercase();
    let lower = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    let (item, is_array) = match lower.strip_suffix("[]") {
        Some(item) => (item.trim_end(), true),
        None => (lower.strip_prefix('_').unwrap_or(lower), lower.starts_with('_')),
    };
    // The name without its size: varchar(20), timestamp(6) with time zone.
    let item = match (item.find('('), item.find(')')) {
        (Some(open), Some(close)) if open < close => format!("{}{}", item[..open].trim_end(), &item[close + 1..]),
        _ => item.to_owned(),
    };
    let scalar = scalar_of(&item)?;
    Some(if is_array { Kind::Array(scalar) } else { Kind::One(scalar) }.oid())
}

/// The type with this name, which has no schema and is in lower case.
pub(super) fn scalar_of(name: &str) -> Option<Scalar> {
    let own = Scalar::ALL.iter().copied().find(|scalar| scalar.name() == name && *scalar != Scalar::Unknown);
    own.or_else(|| INTERNAL.iter().find(|(internal, _)| *internal == name).map(|(_, scalar)| *scalar))
}

fn name(moment: &Moment, kind: Named, oid: u32) -> Option<String> {
    match kind {
        Named::Type => super::types::of(oid).map(|_| super::types::formatted(oid, None)),
        Named::Class => {
            let inside = |schema: &str, name: &str| {
                if schema == "public" { quoted(name) } else { format!("{}.{}", quoted(schema), quoted(name)) }
            };
            let mut found = moment.relations.iter().filter_map(|relation| {
                let schema = &relation.namespace.name;
                let index = || relation.indexes.iter().find(|index| relation.index_oid(index) == oid);
                let table = (relation.oid == oid).then(|| inside(schema, &relation.name));
                table.or_else(|| index().map(|index| inside(schema, &index.name)))
            });
            let catalog = || TABLES.iter().find(|(_, number, _)| *number == oid).map(|(name, ..)| (*name).to_owned());
            found.next().or_else(catalog)
        }
        Named::Namespace => {
            moment.namespaces.iter().find(|namespace| namespace.oid == oid).map(|namespace| quoted(&namespace.name))
        }
        Named::Role => moment.about.role(oid).map(|role| quoted(&role)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_lead_to_their_numbers() {
        for (name, oid) in [
            ("int4", Some(23)),
            ("integer", Some(23)),
            ("pg_catalog.int4", Some(23)),
            ("int4[]", Some(1007)),
            ("_int4", Some(1007)),
            ("character varying(20)", Some(1043)),
            ("timestamp(6) with time zone", Some(1184)),
            ("TEXT", Some(25)),
            ("hstore", None),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(type_number(name), oid, "{name}");
        }
    }
}
