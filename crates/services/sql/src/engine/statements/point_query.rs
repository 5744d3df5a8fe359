//! The fast path for single rows: queries and changes whose condition contains the whole primary key.
//!
//! Planning a query takes about a millisecond, reading a row some microseconds. This file runs statements of this form
//!
//! ```text
//!   SELECT columns FROM table WHERE key = value [AND key = value ..]
//!   UPDATE table SET column = value, column = column + value, .. WHERE key = value ..
//!   DELETE FROM table WHERE key = value ..
//! ```
//!
//! with literals and parameters as values. Statements of any other form take the general path, also those whose value
//! would have to be rounded or converted for the comparison. Both paths give the same results.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, Expr, GroupByExpr, ObjectName, Query, Select, SelectFlavor,
    SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, Update,
};
use futures::stream;

use super::changed_table;
use super::changed_table::{note, placeholder};
use super::literal_values::{cells, fits, is_moment, moment};
use super::read_columns::ReadColumns;
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::Literal;
use crate::engine::parse::ast::folded;
use crate::engine::{Session, StatementResult};
use crate::table::key::KeyColumn;
use crate::table::providers::Reads;
use crate::table::row_encoding::BatchBuilder;
use crate::table::uuid;
use crate::table::{ColumnStore, ROW_TAG, SqlType, Table, View};

/// A found row: its address and the columns that were asked for.
pub(crate) struct FoundRow {
    pub(crate) address: Vec<u8>,
    pub(crate) row: RecordBatch,
}

/// Whether a query is a SELECT that has nothing but columns, FROM and WHERE.
fn is_plain_select(query: &Query, select: &Select) -> bool {
    let Query {
        with,
        body: _,
        order_by,
        limit_clause,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    let has_around = with.is_some() || order_by.is_some() || limit_clause.is_some() || fetch.is_some();
    let has_behind = !locks.is_empty() || for_clause.is_some() || settings.is_some() || format_clause.is_some();
    !has_around && !has_behind && pipe_operators.is_empty() && has_no_clauses(select)
}

/// Whether a SELECT has nothing but columns, FROM and WHERE.
fn has_no_clauses(select: &Select) -> bool {
    let Select {
        select_token: _,
        optimizer_hints,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    let is_grouped = !matches!(group_by, GroupByExpr::Expressions(of, with) if of.is_empty() && with.is_empty());
    let has_front = !optimizer_hints.is_empty() || distinct.is_some() || select_modifiers.is_some() || top.is_some();
    let has_target = exclude.is_some() || into.is_some() || value_table_mode.is_some();
    let has_from = !lateral_views.is_empty() || prewhere.is_some() || !connect_by.is_empty();
    let is_ordered = !cluster_by.is_empty() || !distribute_by.is_empty() || !sort_by.is_empty();
    let has_windows = having.is_some() || !named_window.is_empty() || qualify.is_some();
    let is_odd = has_front || has_target || has_from || is_grouped || is_ordered || has_windows;
    !is_odd && matches!(flavor, SelectFlavor::Standard)
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
    let uuid = |text: &str| Some(ScalarValue::FixedSizeBinary(uuid::BYTES as i32, Some(uuid::parse(text)?.to_vec())));
    let value = match literal {
        Literal::Text(value) if kind == SqlType::Uuid => uuid(&value)?,
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

/// The columns and the values that a condition compares with them by `=`, if it does nothing else.
fn pairs<'a>(table: &Table, alias: &str, condition: &'a Expr) -> Option<Vec<(usize, &'a Expr)>> {
    let (mut pairs, mut open) = (Vec::new(), vec![condition]);
    while let Some(expr) = open.pop() {
        match expr {
            Expr::Nested(inner) => open.push(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([left.as_ref(), right.as_ref()]),
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                pairs.push(match (column(table, alias, left), column(table, alias, right)) {
                    (Some(at), None) => (at, right.as_ref()),
                    (None, Some(at)) => (at, left.as_ref()),
                    _ => return None,
                });
            }
            _ => return None,
        }
    }
    Some(pairs)
}

/// The column that an assignment of an UPDATE sets.
fn assigned_column(table: &Table, assignment: &Assignment) -> Option<usize> {
    let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
    table.position(&folded(name.0.last()?.as_ident()?))
}

/// `column + number` or `column - number` of whole numbers of the type of the column that is set: the column, whether it is minus, and the
/// number.
fn sum_of<'a>(table: &Table, alias: &str, at: usize, value: &'a Expr) -> Option<(usize, bool, &'a Expr)> {
    let (left, is_minus, right) = match value {
        Expr::Nested(inner) => return sum_of(table, alias, at, inner),
        Expr::BinaryOp { left, op: BinaryOperator::Plus, right } => (left, false, right),
        Expr::BinaryOp { left, op: BinaryOperator::Minus, right } => (left, true, right),
        _ => return None,
    };
    let of = column(table, alias, left)?;
    let kind = table.columns[at].kind;
    let is_whole = matches!(kind, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    (is_whole && table.columns[of].kind == kind).then_some((of, is_minus, right.as_ref()))
}

/// The value of such a sum; `None` if it is another one, or does not fit in the column: then the general path has the error.
fn sum(
    table: &Table,
    alias: &str,
    (at, value): (usize, &Expr),
    row: &RecordBatch,
    parameters: &[ScalarValue],
) -> Result<Option<Literal>, SqlError> {
    let Some((of, is_minus, number)) = sum_of(table, alias, at, value) else { return Ok(None) };
    let number: Option<i64> = match ast::literal(number, parameters)? {
        Some(Literal::Number(text)) => text.parse().ok(),
        Some(Literal::Parameter(value)) if value.data_type().is_integer() => {
            value.cast_to(&DataType::Int64)?.to_array()?.as_primitive::<Int64Type>().iter().next().flatten()
        }
        _ => None,
    };
    let Some(number) = number else { return Ok(None) };
    let before = cast(row.column(of), &DataType::Int64)?;
    let Some(before) = before.as_primitive::<Int64Type>().iter().next().flatten() else {
        return Ok(Some(Literal::Null));
    };
    let after = if is_minus { before.checked_sub(number) } else { before.checked_add(number) };
    let fits = |after: &i64| match table.columns[at].kind {
        SqlType::SmallInt => i16::try_from(*after).is_ok(),
        SqlType::Integer => i32::try_from(*after).is_ok(),
        _ => true,
    };
    Ok(after.filter(fits).map(|after| Literal::Number(after.to_string())))
}

/// The key that a condition contains, if it contains the whole key and nothing else.
fn key(table: &Table, alias: &str, condition: &Expr, parameters: &[ScalarValue]) -> Result<Option<Vec<u8>>, SqlError> {
    let Some(pairs) = pairs(table, alias, condition) else { return Ok(None) };
    let mut values: Vec<Option<ArrayRef>> = vec![None; table.key.len()];
    for (at, value) in pairs {
        let place = table.key.iter().position(|key| *key == at);
        let Some(place) = place.filter(|place| values[*place].is_none()) else { return Ok(None) };
        let value = ast::literal(value, parameters)?.and_then(|literal| key_value(literal, table.columns[at].kind));
        let Some(value) = value else { return Ok(None) };
        values[place] = Some(value);
    }
    let mut bytes = Vec::new();
    for value in &values {
        match value {
            Some(value) => KeyColumn::new(value).encode(0, &mut bytes),
            None => return Ok(None),
        }
    }
    Ok((!table.key.is_empty()).then_some(bytes))
}

/// The row with a primary key, in either store, with these columns.
pub(crate) fn find(
    session: &Session,
    view: &View,
    table: &Table,
    key: &[u8],
    columns: &[usize],
) -> Result<Option<FoundRow>, SqlError> {
    if let Some(row) = view.get(table.rows, key)? {
        let mut builder = BatchBuilder::new(table, columns, Arc::new(table.schema.project(columns)?), 1);
        builder.push(key, &row)?;
        return Ok(Some(FoundRow { address: [&[ROW_TAG], key].concat(), row: builder.finish()? }));
    }
    Ok(session.engine.columns.find(view, table, key, columns)?.map(|(address, row)| FoundRow { address, row }))
}

/// All columns of a table, by their positions.
pub(crate) fn all_columns(table: &Table) -> Vec<usize> {
    (0..table.columns.len()).collect()
}

/// A query of the form that is looked for.
struct PointQuery<'a> {
    table: Arc<Table>,
    alias: String,
    condition: &'a Expr,
    /// The columns of the result, by their positions in the table.
    columns: Vec<usize>,
}

/// The parts of a query; `None` if it has another form. Its condition is still to be looked at.
fn form<'a>(session: &Session, statement: &'a Statement) -> Option<PointQuery<'a>> {
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let ([from], Some(condition)) = (select.from.as_slice(), &select.selection) else { return None };
    if !is_plain_select(query, select) {
        return None;
    }
    let (name, alias) = plain(from)?;
    let table = changed_table::find(&session.shared.catalog(), name).ok()?;
    let alias = alias.unwrap_or_else(|| table.name.clone());
    let mut columns = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(options) if select.projection.len() == 1 && options.to_string().is_empty() => {
                columns.extend(0..table.columns.len());
            }
            SelectItem::UnnamedExpr(expr) => match column(&table, &alias, expr) {
                Some(at) if !columns.contains(&at) => columns.push(at),
                _ => return None,
            },
            _ => return None,
        }
    }
    Some(PointQuery { table, alias, condition, columns })
}

impl PointQuery<'_> {
    fn check_rights(&self, session: &Session) -> Result<(), SqlError> {
        let (table, Some(access)) = (&self.table, session.access()) else { return Ok(()) };
        access.schema(&table.schema_name)?;
        let read = ReadColumns::of(table).add_at(&self.columns).add_at(&table.key);
        changed_table::may_read(session, table, read)?;
        session.shared.still(&access, &table.schema_name, &table.name, true)
    }
}

/// The types of the parameters of a query, and its columns.
pub(crate) type PointDescription = (Vec<Option<DataType>>, SchemaRef);

/// The types of a query's parameters and its columns, without a plan; `None` if it has another form.
pub(crate) fn describe_query(session: &Session, statement: &Statement) -> Result<Option<PointDescription>, SqlError> {
    let Some(query) = form(session, statement) else { return Ok(None) };
    let mut types = Vec::new();
    if !describe_key(&query.table, &query.alias, query.condition, &mut types)? {
        return Ok(None);
    }
    query.check_rights(session)?;
    Ok(Some((types, Arc::new(query.table.schema.project(&query.columns)?))))
}

/// Adds the types of the parameters of a condition that contains the whole key and nothing else. Returns whether it does.
pub(crate) fn describe_key(
    table: &Table,
    alias: &str,
    condition: &Expr,
    types: &mut Vec<Option<DataType>>,
) -> Result<bool, SqlError> {
    let Some(pairs) = pairs(table, alias, condition) else { return Ok(false) };
    let mut found = Vec::new();
    for (at, value) in pairs {
        let kind = table.columns[at].kind;
        match placeholder(value) {
            Some(name) => note(types, name, kind.arrow())?,
            None => {
                let literal = ast::literal(value, &[]).ok().flatten();
                if literal.and_then(|literal| key_value(literal, kind)).is_none() {
                    return Ok(false);
                }
            }
        }
        found.push(at);
    }
    found.sort_unstable();
    let mut key = table.key.clone();
    key.sort_unstable();
    Ok(found == key && !key.is_empty())
}

/// Adds the types of the parameters of new values, if all are computed here. Returns whether they are.
pub(crate) fn describe_values(
    table: &Table,
    alias: &str,
    update: &Update,
    types: &mut Vec<Option<DataType>>,
) -> Result<bool, SqlError> {
    for assignment in &update.assignments {
        let Some(at) = assigned_column(table, assignment) else { return Ok(false) };
        let kind = table.columns[at].kind;
        let value = match sum_of(table, alias, at, &assignment.value) {
            Some((_, _, number)) => number,
            None => &assignment.value,
        };
        match placeholder(value) {
            Some(name) => note(types, name, kind.arrow())?,
            None if is_moment(value) => {}
            None => match ast::literal(value, &[]) {
                Ok(Some(literal)) if fits(&literal, kind) => {}
                _ => return Ok(false),
            },
        }
    }
    Ok(true)
}

/// Runs a query for one row; `None` if it has another form.
pub(crate) fn quick_query(
    session: &Session,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<Option<StatementResult>, SqlError> {
    let Some(query) = form(session, statement) else { return Ok(None) };
    let PointQuery { table, alias, condition, columns } = &query;
    let Some(key) = key(table, alias, condition, parameters)? else { return Ok(None) };
    query.check_rights(session)?;
    let (schema, batches) = match find(session, &session.shared.view(), table, &key, columns)? {
        Some(found) => (found.row.schema(), vec![Ok(found.row)]),
        None => (Arc::new(table.schema.project(columns)?), Vec::new()),
    };
    let stream = Box::pin(RecordBatchStreamAdapter::new(schema.clone(), stream::iter(batches)));
    Ok(Some(StatementResult::Rows { schema, stream, tag: "SELECT" }))
}

/// Locks the row of a condition that contains its key before the statement reads anything, so that it is read once.
///
/// Errors: [`SqlError::Again`] if another transaction has the row.
pub(crate) fn lock(
    session: &Session,
    table: &Table,
    alias: &str,
    condition: Option<&Expr>,
    parameters: &[ScalarValue],
) -> Result<(), SqlError> {
    let (Some(condition), Some(transaction)) = (condition, session.transaction.open()) else { return Ok(()) };
    match key(table, alias, condition, parameters)? {
        Some(key) => transaction.lock_row(table.rows, &key),
        None => Ok(()),
    }
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
    let found = find(session, &session.shared.view(), table, &key, &[])?;
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
        let Some(at) = assigned_column(table, assignment) else { return Ok(None) };
        match ast::literal(&assignment.value, parameters)?.or_else(|| moment(session, &assignment.value)) {
            Some(literal) if fits(&literal, table.columns[at].kind) => values.push((at, Some(literal))),
            None if sum_of(table, alias, at, &assignment.value).is_some() => values.push((at, None)),
            _ => return Ok(None),
        }
    }
    let Some(found) = find(session, &session.shared.view(), table, &key, &all_columns(table))? else {
        return Ok(Some(StatementResult::Done { tag: "UPDATE 0".into() }));
    };
    let mut columns = found.row.columns().to_vec();
    for ((at, literal), assignment) in values.into_iter().zip(&update.assignments) {
        let literal = match literal {
            Some(literal) => Some(literal),
            None => sum(table, alias, (at, &assignment.value), &found.row, parameters)?,
        };
        let Some(literal) = literal else { return Ok(None) };
        columns[at] = cells(&[literal], &table.columns[at])?;
    }
    let addresses: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&found.address]));
    let transaction = session.changing("UPDATE")?;
    let count = transaction.engine().clone().update_rows(transaction, table, &addresses, &columns)?.len();
    Ok(Some(StatementResult::Done { tag: format!("UPDATE {count}") }))
}
