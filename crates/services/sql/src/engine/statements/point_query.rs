//! The fast path for single rows: queries and changes whose condition contains the whole primary key.
//!
//! Planning a query takes about a millisecond, reading a row some microseconds. This file runs statements of this form
//!
//! ```text
//!   SELECT columns FROM table WHERE key = value [AND key = value ..]
//!   UPDATE table SET column = value, .. WHERE key = value ..
//!   DELETE FROM table WHERE key = value ..
//! ```
//!
//! with literals and parameters as values. Statements of any other form take the general path, also those whose value
//! would have to be rounded or converted for the comparison. Both paths give the same results.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, BinaryOperator, Expr, ObjectName, Query, SelectItem, SetExpr, Statement, TableFactor,
    TableWithJoins, Update,
};
use futures::stream;

use super::changed_table;
use super::literal_values::{cells, fits};
use super::read_columns::ReadColumns;
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::Literal;
use crate::engine::parse::ast::folded;
use crate::engine::{Session, StatementResult};
use crate::table::key::KeyColumn;
use crate::table::providers::Reads;
use crate::table::row_encoding::BatchBuilder;
use crate::table::{ColumnStore, ROW_TAG, SqlType, Table, View};

/// A found row: its address and all columns.
pub(crate) struct FoundRow {
    pub(crate) address: Vec<u8>,
    pub(crate) row: RecordBatch,
}

/// A query with nothing but SELECT, for comparison.
fn bare() -> Option<&'static Query> {
    static BARE: OnceLock<Option<Query>> = OnceLock::new();
    let make = || match ast::parse("SELECT 1") {
        Ok(Statement::Query(query)) => Some(*query),
        _ => None,
    };
    BARE.get_or_init(make).as_ref()
}

/// Name and alias of a FROM that is one plain table.
fn plain(from: &TableWithJoins) -> Option<(&ObjectName, Option<String>)> {
    match &from.relation {
        TableFactor::Table { name, alias, args: None, with_hints, version: None, sample: None, .. }
            if from.joins.is_empty() && with_hints.is_empty() =>
        {
            match alias {
                Some(alias) if !alias.columns.is_empty() => None,
                alias => Some((name, alias.as_ref().map(|alias| folded(&alias.name)))),
            }
        }
        _ => None,
    }
}

fn column(table: &Table, alias: &str, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Identifier(ident) => table.position(&folded(ident)),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [of, name] if folded(of) == alias => table.position(&folded(name)),
            _ => None,
        },
        Expr::Nested(inner) => column(table, alias, inner),
        _ => None,
    }
}

/// The value to compare with a key column, if it has the column's type or can be converted without loss.
fn key_value(literal: Literal, kind: SqlType) -> Option<ArrayRef> {
    let integer = matches!(kind, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    let text = matches!(kind, SqlType::Text | SqlType::Varchar(_));
    let value = match literal {
        Literal::Number(number) if integer => ScalarValue::Int64(Some(number.parse().ok()?)),
        Literal::Text(value) if text => ScalarValue::Utf8View(Some(value)),
        Literal::Parameter(value) if value.data_type() == kind.arrow() => value,
        Literal::Parameter(value) if integer && value.data_type().is_integer() => value,
        Literal::Parameter(value) if text && value.data_type().is_string() => value,
        _ => return None,
    };
    let value = if value.data_type() == kind.arrow() { value } else { value.cast_to(&kind.arrow()).ok()? };
    if value.is_null() { None } else { value.to_array().ok() }
}

/// The key that a condition contains, if it contains the whole key and nothing else.
fn key(table: &Table, alias: &str, condition: &Expr, parameters: &[ScalarValue]) -> Result<Option<Vec<u8>>, SqlError> {
    let mut values: Vec<Option<ArrayRef>> = vec![None; table.columns.len()];
    let mut open = vec![condition];
    while let Some(expr) = open.pop() {
        let (left, right) = match expr {
            Expr::Nested(inner) => {
                open.push(inner);
                continue;
            }
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                open.extend([left.as_ref(), right.as_ref()]);
                continue;
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => (left, right),
            _ => return Ok(None),
        };
        let (at, value) = match (column(table, alias, left), column(table, alias, right)) {
            (Some(at), None) => (at, right),
            (None, Some(at)) => (at, left),
            _ => return Ok(None),
        };
        let value = ast::literal(value, parameters)?.and_then(|literal| key_value(literal, table.columns[at].kind));
        match value {
            Some(value) if table.key.contains(&at) && values[at].is_none() => values[at] = Some(value),
            _ => return Ok(None),
        }
    }
    let mut bytes = Vec::new();
    for at in &table.key {
        match &values[*at] {
            Some(value) => KeyColumn::new(value).encode(0, &mut bytes),
            None => return Ok(None),
        }
    }
    Ok((!table.key.is_empty()).then_some(bytes))
}

/// The row with a primary key, in either store.
pub(crate) fn find(session: &Session, view: &View, table: &Table, key: &[u8]) -> Result<Option<FoundRow>, SqlError> {
    if let Some(row) = view.get(table.rows, key)? {
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let mut builder = BatchBuilder::new(table, &all, table.schema.clone(), 1);
        builder.push(key, &row)?;
        return Ok(Some(FoundRow { address: [&[ROW_TAG], key].concat(), row: builder.finish()? }));
    }
    Ok(session.engine.columns.find(view, table, key)?.map(|(address, row)| FoundRow { address, row }))
}

/// Runs a query for one row; `None` if it has another form.
pub(crate) fn quick_query(
    session: &Session,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<Option<StatementResult>, SqlError> {
    let (Statement::Query(query), Some(bare)) = (statement, bare()) else { return Ok(None) };
    let (SetExpr::Select(select), SetExpr::Select(nothing)) = (query.body.as_ref(), bare.body.as_ref()) else {
        return Ok(None);
    };
    let ([from], Some(condition)) = (select.from.as_slice(), &select.selection) else { return Ok(None) };
    let Some((name, alias)) = plain(from) else { return Ok(None) };
    let Ok(table) = changed_table::find(&session.shared.catalog(), name) else { return Ok(None) };
    let alias = alias.unwrap_or_else(|| table.name.clone());
    let Some(key) = key(&table, &alias, condition, parameters)? else { return Ok(None) };
    let mut rest = query.as_ref().clone();
    let mut only = select.as_ref().clone();
    (only.projection, only.from, only.selection) = (nothing.projection.clone(), Vec::new(), None);
    *rest.body = SetExpr::Select(Box::new(only));
    if rest != *bare {
        return Ok(None);
    }
    let mut columns = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(options) if select.projection.len() == 1 && options.to_string().is_empty() => {
                columns.extend(0..table.columns.len());
            }
            SelectItem::UnnamedExpr(expr) => match column(&table, &alias, expr) {
                Some(at) if !columns.contains(&at) => columns.push(at),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        }
    }
    if let Some(access) = session.access() {
        access.schema(&table.schema_name)?;
        let read = ReadColumns::of(&table).add_at(&columns).add_at(&table.key);
        changed_table::may_read(session, &table, read)?;
        session.shared.still(&access, &table.schema_name, &table.name, true)?;
    }
    let schema = Arc::new(table.schema.project(&columns)?);
    let batches = match find(session, &session.shared.view(), &table, &key)? {
        Some(found) => vec![Ok(found.row.project(&columns)?)],
        None => Vec::new(),
    };
    let stream = Box::pin(RecordBatchStreamAdapter::new(schema.clone(), stream::iter(batches)));
    Ok(Some(StatementResult::Rows { schema, stream, tag: "SELECT" }))
}

/// Deletes the one row of a condition; `None` if the statement has another form.
pub(crate) fn quick_delete(
    session: &mut Session,
    table: &Table,
    alias: &str,
    condition: Option<&Expr>,
    parameters: &[ScalarValue],
) -> Result<Option<StatementResult>, SqlError> {
    let Some(condition) = condition else { return Ok(None) };
    let Some(key) = key(table, alias, condition, parameters)? else { return Ok(None) };
    let found = find(session, &session.shared.view(), table, &key)?;
    let count = match found {
        Some(found) => {
            let addresses: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&found.address]));
            let transaction = session.changing("DELETE")?;
            transaction.engine().clone().delete_rows(transaction, table, &addresses)?.len()
        }
        None => 0,
    };
    Ok(Some(StatementResult::Done { tag: format!("DELETE {count}") }))
}

/// Changes the one row of a condition; `None` if the statement has another form.
pub(crate) fn quick_update(
    session: &mut Session,
    table: &Table,
    alias: &str,
    update: &Update,
    parameters: &[ScalarValue],
) -> Result<Option<StatementResult>, SqlError> {
    let (Some(condition), None, None) = (&update.selection, &update.from, &update.returning) else {
        return Ok(None);
    };
    let Some(key) = key(table, alias, condition, parameters)? else { return Ok(None) };
    let mut values = Vec::new();
    for assignment in &update.assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { return Ok(None) };
        let name = name.0.last().and_then(|part| part.as_ident()).map(folded).unwrap_or_default();
        let Some(at) = table.position(&name) else { return Ok(None) };
        match ast::literal(&assignment.value, parameters)? {
            Some(literal) if fits(&literal, table.columns[at].kind) => values.push((at, literal)),
            _ => return Ok(None),
        }
    }
    let Some(found) = find(session, &session.shared.view(), table, &key)? else {
        return Ok(Some(StatementResult::Done { tag: "UPDATE 0".into() }));
    };
    let mut columns = found.row.columns().to_vec();
    for (at, literal) in values {
        columns[at] = cells(&[literal], &table.columns[at])?;
    }
    let addresses: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&found.address]));
    let transaction = session.changing("UPDATE")?;
    let count = transaction.engine().clone().update_rows(transaction, table, &addresses, &columns)?.len();
    Ok(Some(StatementResult::Done { tag: format!("UPDATE {count}") }))
}
