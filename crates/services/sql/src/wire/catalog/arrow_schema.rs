//! [`shape`]: a catalog's columns in Arrow, made from the table in [`columns`](super::columns).
//!
//! | word | column |
//! |---|---|
//! | `oid` | a number described as an `oid` |
//! | `name`, `text` | a text |
//! | `char` | a text described as a `"char"` |
//! | `regproc` | the name of a function, described as a `regproc` |
//! | `bool`, `int2`, `int4`, `int8`, `float4`, `bytea`, `interval`, `timestamptz` | the same |
//! | any of them and `[]` | a list |
//!
//! A column that is not nullable is 0, false or an empty text if a row does not contain it: as in PostgreSQL, whose
//! columns of a fixed size are never NULL.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit};

use super::columns::{TABLES, VIEWS};
use crate::wire::oid::{CHAR, OID_ALIAS};

/// The names of all catalogs.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, ..)| *name).chain(VIEWS.iter().map(|(name, _)| *name))
}

/// The columns of a catalog; `None` if there is none with this name.
pub(super) fn shape(catalog: &str) -> Option<SchemaRef> {
    let table = TABLES.iter().find(|(name, ..)| *name == catalog).map(|(_, _, columns)| *columns);
    let columns = table.or_else(|| VIEWS.iter().find(|(name, _)| *name == catalog).map(|(_, columns)| *columns))?;
    let fields = columns.split(", ").filter_map(|column| column.split_once(' ')).map(|(name, word)| field(name, word));
    Some(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

fn field(name: &str, word: &str) -> Field {
    if let Some(item) = word.strip_suffix("[]") {
        return Field::new(name, DataType::List(Arc::new(Field::new_list_field(kind(item), true))), true);
    }
    let is_fixed = !matches!(word, "text" | "bytea" | "timestamptz" | "interval");
    let said = match word {
        "oid" | "regproc" => Some((OID_ALIAS, word)),
        "char" => Some((CHAR, word)),
        _ => None,
    };
    let metadata: HashMap<String, String> =
        said.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
    Field::new(name, kind(word), !is_fixed).with_metadata(metadata)
}

fn kind(word: &str) -> DataType {
    match word {
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" | "oid" => DataType::Int32,
        "int8" => DataType::Int64,
        "float4" => DataType::Float32,
        "bytea" => DataType::Binary,
        "interval" => DataType::Interval(IntervalUnit::MonthDayNano),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        _ => DataType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_catalogs_columns_is_one_that_is_read() {
        let words = [
            "oid",
            "name",
            "text",
            "char",
            "regproc",
            "bool",
            "int2",
            "int4",
            "int8",
            "float4",
            "bytea",
            "interval",
            "timestamptz",
        ];
        let all = TABLES.iter().map(|(name, _, columns)| (*name, *columns)).chain(VIEWS.iter().copied());
        for (name, columns) in all {
            let schema = shape(name).expect("it is there");
            assert_eq!(schema.fields().len(), columns.split(", ").count(), "{name}");
            for column in columns.split(", ") {
                let word = column.split_once(' ').expect("a name and a type").1;
                assert!(words.contains(&word.trim_end_matches("[]")), "{name}: {column}");
            }
        }
        assert!(shape("pg_nowhere").is_none());
    }
}
