//! `SELECT set_config(name, value, is_local)`: SET as a function, and SHOW of all settings.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr, Statement};

use super::changed_table;
use crate::SqlError;
use crate::engine::parse::bare_calls::calls_of;
use crate::engine::plan::column_labels;
use crate::engine::semantics::set_config_function::SET_CONFIG;
use crate::engine::{Session, StatementResult};

/// The calls of `set_config` that a statement consists of; `None` if it is another statement.
pub(super) fn calls(statement: &Statement) -> Option<Vec<Vec<Expr>>> {
    calls_of(statement, SET_CONFIG, 3)
}

/// Runs the calls.
///
/// Errors: 22004 for a NULL as the name; those of SET.
pub(super) async fn run(
    session: &mut Session,
    calls: Vec<Vec<Expr>>,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let row = changed_table::arguments_of(session, &calls, parameters).await?;
    let text = |at: usize| -> Result<Option<String>, SqlError> {
        let column = cast(row.column(at), &DataType::Utf8)?;
        Ok(column.as_string::<i32>().iter().next().flatten().map(str::to_owned))
    };
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for at in (0..row.num_columns()).step_by(3) {
        let name = text(at)?.ok_or_else(|| SqlError::value("22004", "SET requires parameter name"))?;
        let is_local = cast(row.column(at + 2), &DataType::Boolean)?;
        let is_local = is_local.is_valid(0) && is_local.as_boolean().value(0);
        let value = text(at + 1)?;
        session.settings.change(is_local, |settings| match &value {
            Some(value) => settings.set(&name, value),
            None => settings.reset(&format!("RESET {name}")),
        })?;
        let column: ArrayRef = Arc::new(StringArray::from(vec![session.settings.now().get(&name)?]));
        fields.push(Field::new("", DataType::Utf8, true));
        columns.push(column);
    }
    let schema = column_labels::labelled(statement, &Arc::new(Schema::new(fields)));
    rows(schema, columns, "SELECT")
}

/// The columns of SHOW ALL.
pub(super) fn all_schema() -> SchemaRef {
    let field = |name: &str| Field::new(name, DataType::Utf8, true);
    Arc::new(Schema::new(vec![field("name"), field("setting"), field("description")]))
}

/// SHOW ALL. There are no descriptions: they are in docs/sql.md.
pub(super) fn show_all(session: &Session) -> Result<StatementResult, SqlError> {
    let all = session.settings.now().all();
    let (names, values): (Vec<String>, Vec<String>) = all.into_iter().unzip();
    let none = StringArray::from(vec![""; names.len()]);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from(names)), Arc::new(StringArray::from(values)), Arc::new(none)];
    rows(all_schema(), columns, "SHOW")
}

fn rows(schema: SchemaRef, columns: Vec<ArrayRef>, tag: &'static str) -> Result<StatementResult, SqlError> {
    Ok(StatementResult::of_batch(RecordBatch::try_new(schema, columns)?, tag))
}
