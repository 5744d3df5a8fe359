//! `pg_prepared_statements`: the session's own prepared statements, those of the protocol and those of PREPARE.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::scalar::ScalarValue;

use super::catalog_row::{Row, text};
use super::session_objects::SessionFacts;
use crate::engine::NUMERIC;
use crate::engine::session::named_statements::NamedStatement;
use crate::table::SqlType;

/// The rows. How often plans were used is not counted.
pub(super) fn rows(about: &SessionFacts) -> Vec<Row> {
    about.named.named().iter().map(|(name, statement)| row(name, statement)).collect()
}

fn row(name: &str, statement: &NamedStatement) -> Row {
    let kinds = statement.prepared.as_ref().map_or(&[][..], |prepared| prepared.parameter_types());
    let kinds: Vec<ScalarValue> = kinds.iter().map(|kind| ScalarValue::from(shown(kind.as_ref()))).collect();
    let made = statement.made.timestamp_micros();
    vec![
        ("name", text(name)),
        ("statement", text(&statement.sql)),
        ("prepare_time", ScalarValue::TimestampMicrosecond(Some(made), Some("+00:00".into()))),
        ("parameter_types", ScalarValue::List(ScalarValue::new_list_nullable(&kinds, &DataType::Utf8))),
        ("from_sql", ScalarValue::from(statement.from_sql)),
    ]
}

/// The type of a parameter, as `regtype` shows it.
fn shown(kind: Option<&DataType>) -> String {
    match kind {
        None => "text".to_owned(),
        Some(kind) if *kind == NUMERIC || matches!(kind, DataType::Decimal128(..)) => "numeric".to_owned(),
        Some(DataType::List(item)) => format!("{}[]", shown(Some(item.data_type()))),
        Some(kind) => {
            let known = SqlType::from_arrow(&Field::new("", kind.clone(), true));
            known.map_or_else(|_| "unknown".to_owned(), |kind| kind.name())
        }
    }
}
