//! The short way for single rows: queries and changes whose condition gives the whole primary key.
//!
//! Planning a query costs about a millisecond, reading a row some microseconds. A statement of this shape
//!
//! ```text
//!   SELECT columns FROM table WHERE key = value [AND key = value ..]
//!   UPDATE table SET column = value, .. WHERE key = value ..
//!   DELETE FROM table WHERE key = value ..
//! ```
//!
//! with literals and parameters for values is done here. Everything that is not exactly that, also a value that would
//! have to be rounded or converted to compare it, goes the long way: both give the same answers.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, BinaryOperator, Expr, ObjectName, Query, SelectItem, SetExpr, Statement, TableFactor,
    TableWithJoins, Update,
};
use futures::stream;

use super::control::folded;
use super::insert::{cells, fits};
use super::target::{self, Literal};
use super::{Answer, Session};
use crate::SqlError;
use crate::table::key::KeyColumn;
use crate::table::row::BatchBuilder;
use crate::table::scan::Reads;
use crate::table::{ColumnForm, ROW_TAG, SqlType, Table, View};

/// A row as it was found: its address and all columns.
pub(super) struct Found {
    pub(super) address: Vec<u8>,
    pub(super) row: RecordBatch,
}

/// A query without anything but SELECT, to compare with.
fn bare() -> Option<&'static Query> {
    static BARE: OnceLock<Option<Query>> = OnceLock::new();
    let make = || match target::parse("SELECT 1") {
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

/// A value to compare a key column with, if it has the column's type or loses nothing on the way there.
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

/// The key that a condition gives, if it gives the whole key and nothing else.
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
        let value = target::literal(value, parameters)?.and_then(|literal| key_value(literal, table.columns[at].kind));
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

impl Session {
    /// The row of a primary key, in either form.
    pub(super) fn find(&self, view: &View, table: &Table, key: &[u8]) -> Result<Option<Found>, SqlError> {
        if let Some(row) = view.get(table.rows, key)? {
            let all: Vec<usize> = (0..table.columns.len()).collect();
            let mut builder = BatchBuilder::new(table, &all, table.schema.clone(), 1);
            builder.push(key, &row)?;
            return Ok(Some(Found { address: [&[ROW_TAG], key].concat(), row: builder.finish()? }));
        }
        Ok(self.engine.columns.find(view, table, key)?.map(|(address, row)| Found { address, row }))
    }

    /// Answers a query for one row; `None` if it is not one.
    pub(crate) fn quick_query(
        &self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<Option<Answer>, SqlError> {
        let (Statement::Query(query), Some(bare)) = (statement, bare()) else { return Ok(None) };
        let (SetExpr::Select(select), SetExpr::Select(nothing)) = (query.body.as_ref(), bare.body.as_ref()) else {
            return Ok(None);
        };
        let ([from], Some(condition)) = (select.from.as_slice(), &select.selection) else { return Ok(None) };
        let Some((name, alias)) = plain(from) else { return Ok(None) };
        let Ok(table) = target::table(&self.shared.catalog(), name) else { return Ok(None) };
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
        let schema = Arc::new(table.schema.project(&columns)?);
        let batches = match self.find(&self.shared.view(), &table, &key)? {
            Some(found) => vec![Ok(found.row.project(&columns)?)],
            None => Vec::new(),
        };
        let stream = Box::pin(RecordBatchStreamAdapter::new(schema.clone(), stream::iter(batches)));
        Ok(Some(Answer::Rows { schema, stream, tag: "SELECT" }))
    }

    /// Deletes the one row that a condition gives; `None` if it is not of that shape.
    pub(crate) fn quick_delete(
        &mut self,
        table: &Table,
        alias: &str,
        condition: Option<&Expr>,
        parameters: &[ScalarValue],
    ) -> Result<Option<Answer>, SqlError> {
        let Some(condition) = condition else { return Ok(None) };
        let Some(key) = key(table, alias, condition, parameters)? else { return Ok(None) };
        let found = self.find(&self.shared.view(), table, &key)?;
        let count = match found {
            Some(found) => {
                let addresses: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&found.address]));
                let block = self.changing("DELETE")?;
                block.engine().clone().delete_rows(block, table, &addresses)?.len()
            }
            None => 0,
        };
        Ok(Some(Answer::Done { tag: format!("DELETE {count}") }))
    }

    /// Changes the one row that a condition gives; `None` if it is not of that shape.
    pub(crate) fn quick_update(
        &mut self,
        table: &Table,
        alias: &str,
        update: &Update,
        parameters: &[ScalarValue],
    ) -> Result<Option<Answer>, SqlError> {
        let (Some(condition), None, None) = (&update.selection, &update.from, &update.returning) else {
            return Ok(None);
        };
        let Some(key) = key(table, alias, condition, parameters)? else { return Ok(None) };
        let mut values = Vec::new();
        for assignment in &update.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else { return Ok(None) };
            let name = name.0.last().and_then(|part| part.as_ident()).map(folded).unwrap_or_default();
            let Some(at) = table.position(&name) else { return Ok(None) };
            match target::literal(&assignment.value, parameters)? {
                Some(literal) if fits(&literal, table.columns[at].kind) => values.push((at, literal)),
                _ => return Ok(None),
            }
        }
        let Some(found) = self.find(&self.shared.view(), table, &key)? else {
            return Ok(Some(Answer::Done { tag: "UPDATE 0".into() }));
        };
        let mut columns = found.row.columns().to_vec();
        for (at, literal) in values {
            columns[at] = cells(&[literal], &table.columns[at])?;
        }
        let addresses: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&found.address]));
        let block = self.changing("UPDATE")?;
        let count = block.engine().clone().update_rows(block, table, &addresses, &columns)?.len();
        Ok(Some(Answer::Done { tag: format!("UPDATE {count}") }))
    }
}
