//! UPDATE and DELETE: a query for the addresses of rows, and for UPDATE their new values. Conditions, subqueries and
//! joins have the meaning that they have in a SELECT.
//!
//! Rows are changed while the query still runs if that makes no difference: the query returns each row once, keys stay,
//! and there is no RETURNING. Then a statement may change more rows than fit in memory. Otherwise the query runs to its
//! end first.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, ObjectName, SelectItem, Statement, TableFactor,
    TableWithJoins, Update, UpdateTableFromKind,
};

use futures::TryStreamExt;
use node::identity::Action;

use super::changed_table;
use super::changed_table::{ChangedRows, column_position, note, placeholder};
use super::check_constraints;
use super::point_query;
use super::read_columns::ReadColumns;
use super::references;
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::folded;
use crate::engine::semantics::assignment_casts::assign;
use crate::engine::{Session, StatementResult};
use crate::table::{ADDRESS, Table};

/// A change of rows, whose names are resolved and whose rights are asked.
struct Planned<'a> {
    table: Arc<Table>,
    alias: String,
    change: Change<'a>,
    /// For UPDATE: for each column whether its new value's type is open.
    open: Vec<bool>,
    /// Whether rows may be changed while others are still to come.
    one_by_one: bool,
    /// Parameters that are assigned to columns directly.
    parameters: Vec<Option<DataType>>,
}

/// What the rows of a change are found by.
enum Change<'a> {
    /// With the new values of all columns; `None` for a column that keeps its own.
    Update(&'a Update, Vec<Option<Expr>>),
    Delete(&'a Delete),
}

impl Planned<'_> {
    /// The columns that an UPDATE assigns.
    fn assigned(&self) -> Option<Vec<usize>> {
        match &self.change {
            Change::Update(_, values) => {
                let columns = values.iter().enumerate();
                Some(columns.filter_map(|(at, value)| value.is_some().then_some(at)).collect())
            }
            Change::Delete(_) => None,
        }
    }

    /// The query for the addresses of the rows, and for an UPDATE their new values. A change by key does without it.
    fn query(&self) -> Result<Statement, SqlError> {
        let (table, alias) = (&self.table, self.alias.as_str());
        let mut items = vec![ast::named(ast::column_of(alias, ADDRESS), ADDRESS)];
        let mut from = vec![ast::addressed(table, alias)?];
        let condition = match &self.change {
            Change::Update(update, values) => {
                items.extend(new_values(table, alias, values.clone()));
                if let Some(UpdateTableFromKind::AfterSet(tables)) = &update.from {
                    from.extend(tables.iter().cloned());
                }
                &update.selection
            }
            Change::Delete(delete) => {
                if delete.returning.is_some() {
                    let old = |(nth, column): (usize, &crate::table::Column)| {
                        ast::named(ast::column_of(alias, &column.name), &format!("${nth}"))
                    };
                    items.extend(table.columns.iter().enumerate().map(old));
                }
                from.extend(delete.using.iter().flatten().cloned());
                &delete.selection
            }
        };
        ast::select(items, from, condition.clone())
    }
}

/// Table name and alias of the only entry, which must be a plain table.
fn plain(from: &TableWithJoins) -> Result<(&ObjectName, Option<String>), SqlError> {
    match &from.relation {
        TableFactor::Table { name, alias, args: None, with_hints, version: None, sample: None, .. }
            if from.joins.is_empty() && with_hints.is_empty() =>
        {
            match alias {
                Some(alias) if !alias.columns.is_empty() => Err(SqlError::unsupported("an alias with columns here")),
                alias => Ok((name, alias.as_ref().map(|alias| folded(&alias.name)))),
            }
        }
        _ => Err(SqlError::unsupported(format!("changing \"{from}\""))
            .with_hint("Name one table; join others with FROM or USING.")),
    }
}

/// The right sides of SET.
pub(crate) struct Assigned {
    /// For each column its new value; `None` if it keeps the old one.
    pub(crate) values: Vec<Option<Expr>>,
    /// For each column whether the new value's type is open.
    pub(crate) open: Vec<bool>,
    /// Parameters that are assigned to columns directly.
    pub(crate) parameters: Vec<Option<DataType>>,
}

/// Resolves the columns of SET. Errors: 42703, 42601 for a column that is assigned twice.
pub(crate) fn assigned(table: &Table, assignments: &[Assignment]) -> Result<Assigned, SqlError> {
    let mut values: Vec<Option<Expr>> = vec![None; table.columns.len()];
    let mut parameters = Vec::new();
    for assignment in assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else {
            return Err(SqlError::unsupported("assigning to several columns at once"));
        };
        let [part] = name.0.as_slice() else {
            return Err(SqlError::unsupported(format!("assigning to {name}")));
        };
        let name = part.as_ident().map(folded).unwrap_or_default();
        let at = column_position(table, &name)?;
        if values[at].is_some() {
            return Err(SqlError::statement("42601", format!("multiple assignments to same column \"{name}\"")));
        }
        if let Some(name) = placeholder(&assignment.value) {
            note(&mut parameters, name, table.columns[at].kind.arrow())?;
        }
        if table.columns[at].identity.as_ref().is_some_and(|identity| identity.always)
            && !ast::is_default(&assignment.value)
        {
            let message = format!("column \"{name}\" can only be updated to DEFAULT");
            return Err(SqlError::statement("428C9", message).with_detail(always(&name)));
        }
        values[at] = Some(match ast::is_default(&assignment.value) {
            true => ast::default_of(&table.columns[at])?,
            false => assignment.value.clone(),
        });
    }
    let open = values.iter().map(|value| value.as_ref().is_some_and(ast::is_open)).collect();
    Ok(Assigned { values, open, parameters })
}

/// Why values of an identity column are refused.
pub(crate) fn always(column: &str) -> String {
    format!("Column \"{column}\" is an identity column defined as GENERATED ALWAYS.")
}

/// The select items for the new values of all columns, named `$0`, `$1`, ...
pub(crate) fn new_values(table: &Table, alias: &str, values: Vec<Option<Expr>>) -> impl Iterator<Item = SelectItem> {
    table.columns.iter().zip(values).enumerate().map(move |(nth, (column, value))| {
        let value = value.unwrap_or_else(|| ast::column_of(alias, &column.name));
        ast::named(value, &format!("${nth}"))
    })
}

fn plan_update<'a>(session: &Session, update: &'a Update) -> Result<Planned<'a>, SqlError> {
    if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() || update.output.is_some() {
        return Err(SqlError::unsupported("UPDATE with OR, ORDER BY, LIMIT or OUTPUT"));
    }
    let (name, alias) = plain(&update.table)?;
    let table = changed_table::table(session, name, Action::TableUpdate)?;
    let alias = alias.unwrap_or_else(|| table.name.clone());
    let Assigned { values, open, parameters } = assigned(&table, &update.assignments)?;
    let set = values.iter().enumerate().filter_map(|(at, value)| value.is_some().then_some(at));
    changed_table::may_change(session, &table, Action::TableUpdate, set)?;
    let values_read: Vec<&Expr> = update.assignments.iter().map(|assignment| &assignment.value).collect();
    let mut read = ReadColumns::of(&table).add(&update.selection).add(&update.from);
    for value in values_read {
        read = read.add(value);
    }
    changed_table::may_read(session, &table, read.add_items(update.returning.as_ref()))?;
    let unique = table.indexes.iter().filter(|index| index.unique).flat_map(|index| &index.columns);
    let changes_key = table.key.iter().chain(unique).any(|at| values[*at].is_some());
    if let Some(UpdateTableFromKind::BeforeSet(_)) = &update.from {
        return Err(SqlError::unsupported("FROM before SET"));
    }
    let one_by_one = update.from.is_none() && update.returning.is_none() && !changes_key;
    Ok(Planned { table, alias, change: Change::Update(update, values), open, one_by_one, parameters })
}

fn plan_delete<'a>(session: &Session, delete: &'a Delete) -> Result<Planned<'a>, SqlError> {
    if !delete.tables.is_empty() || !delete.order_by.is_empty() || delete.limit.is_some() || delete.output.is_some() {
        return Err(SqlError::unsupported("DELETE with ORDER BY, LIMIT, OUTPUT or several tables"));
    }
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [from] = from.as_slice() else {
        return Err(SqlError::unsupported("DELETE from several tables"));
    };
    let (name, alias) = plain(from)?;
    let table = changed_table::table(session, name, Action::TableDelete)?;
    let alias = alias.unwrap_or_else(|| table.name.clone());
    let read = ReadColumns::of(&table).add(&delete.selection).add(&delete.using);
    changed_table::may_read(session, &table, read.add_items(delete.returning.as_ref()))?;
    let one_by_one = delete.using.is_none() && delete.returning.is_none();
    let (change, open, parameters) = (Change::Delete(delete), Vec::new(), Vec::new());
    Ok(Planned { table, alias, change, open, one_by_one, parameters })
}

pub(crate) async fn update(
    session: &mut Session,
    update: &Update,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let planned = plan_update(session, update)?;
    let table = planned.table.clone();
    session.changing("UPDATE")?.lock(table.id, false)?;
    references::prepare(session, &table, planned.assigned())?;
    check_constraints::prepare(session, &table).await?;
    point_query::lock(session, &table, &planned.alias, update.selection.as_ref(), parameters)?;
    let answer = update_planned(session, planned, update, parameters).await?;
    Ok(without_needless(session, "UPDATE 0", answer))
}

/// Releases the locks of rows that are not there, or not there any more since the statement has waited for them.
fn without_needless(session: &Session, nothing: &str, answer: StatementResult) -> StatementResult {
    if let (Some(transaction), StatementResult::Done { tag }) = (session.transaction.open(), &answer)
        && tag == nothing
    {
        transaction.row_locks().give_back_statement();
    }
    answer
}

async fn update_planned(
    session: &mut Session,
    planned: Planned<'_>,
    update: &Update,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let table = planned.table.clone();
    if let Some(answer) = point_query::quick_update(session, &table, &planned.alias, update, parameters)? {
        return Ok(answer);
    }
    if planned.one_by_one {
        let mut stream = changed_table::rows_to_change(session, &planned.query()?, parameters).await?;
        let mut count = 0;
        while let Some(batch) = stream.try_next().await? {
            count += update_batch(session, &planned, &batch)?.0.len();
        }
        return Ok(StatementResult::Done { tag: format!("UPDATE {count}") });
    }
    let (schema, batches) = changed_table::collect(session, &planned.query()?, parameters).await?;
    let batch = changed_table::joined(&schema, &batches)?;
    let (rows, values) = update_batch(session, &planned, &batch)?;
    answer(session, "UPDATE", &planned, &rows, &values, update.returning.as_ref(), parameters).await
}

/// Assigns rows their new values. Returns the positions of the changed rows, and the values of all.
fn update_batch(
    session: &mut Session,
    planned: &Planned<'_>,
    batch: &RecordBatch,
) -> Result<(Vec<usize>, Vec<ArrayRef>), SqlError> {
    let values = batch.columns()[1..].iter().zip(&planned.table.columns).zip(&planned.open);
    let values: Vec<ArrayRef> =
        values.map(|((array, column), open)| assign(array, column, *open)).collect::<Result<_, _>>()?;
    let transaction = session.changing("UPDATE")?;
    let engine = transaction.engine().clone();
    let rows = engine.update_rows(transaction, &planned.table, batch.column(0), &values)?;
    Ok((rows, values))
}

pub(crate) async fn delete(
    session: &mut Session,
    delete: &Delete,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let planned = plan_delete(session, delete)?;
    let table = planned.table.clone();
    session.changing("DELETE")?.lock(table.id, false)?;
    references::prepare(session, &table, None)?;
    point_query::lock(session, &table, &planned.alias, delete.selection.as_ref(), parameters)?;
    let answer = delete_planned(session, planned, delete, parameters).await?;
    Ok(without_needless(session, "DELETE 0", answer))
}

async fn delete_planned(
    session: &mut Session,
    planned: Planned<'_>,
    delete: &Delete,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let table = planned.table.clone();
    if delete.using.is_none() && delete.returning.is_none() {
        let condition = delete.selection.as_ref();
        if let Some(answer) = point_query::quick_delete(session, &table, &planned.alias, condition, parameters)? {
            return Ok(answer);
        }
    }
    if planned.one_by_one {
        let mut stream = changed_table::rows_to_change(session, &planned.query()?, parameters).await?;
        let mut count = 0;
        while let Some(batch) = stream.try_next().await? {
            let transaction = session.changing("DELETE")?;
            let engine = transaction.engine().clone();
            count += engine.delete_rows(transaction, &table, batch.column(0))?.len();
        }
        return Ok(StatementResult::Done { tag: format!("DELETE {count}") });
    }
    let (schema, batches) = changed_table::collect(session, &planned.query()?, parameters).await?;
    let batch = changed_table::joined(&schema, &batches)?;
    let transaction = session.changing("DELETE")?;
    let engine = transaction.engine().clone();
    let rows = engine.delete_rows(transaction, &table, batch.column(0))?;
    answer(session, "DELETE", &planned, &rows, &batch.columns()[1..], delete.returning.as_ref(), parameters).await
}

#[expect(clippy::too_many_arguments, reason = "what two statements have in common, and no more")]
async fn answer(
    session: &Session,
    tag: &'static str,
    planned: &Planned<'_>,
    rows: &[usize],
    values: &[ArrayRef],
    returning: Option<&Vec<SelectItem>>,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let batch = match returning {
        Some(_) => vec![changed_table::picked(&planned.table, values, rows)?],
        None => Vec::new(),
    };
    let (table, alias) = (&*planned.table, planned.alias.as_str());
    let change = ChangedRows { tag, table, alias, count: rows.len(), rows: batch, returning };
    changed_table::changed(session, change, parameters).await
}

/// Types of an UPDATE's parameters, and the columns of RETURNING.
pub(crate) async fn describe_update(
    session: &Session,
    update: &Update,
) -> Result<(Vec<Option<DataType>>, Option<SchemaRef>), SqlError> {
    let planned = plan_update(session, update)?;
    if let (Some(condition), None, None) = (&update.selection, &update.from, &update.returning) {
        let (table, alias, mut types) = (&planned.table, &planned.alias, planned.parameters.clone());
        if point_query::describe_key(table, alias, condition, &mut types)?
            && point_query::describe_values(table, alias, update, &mut types)?
        {
            return Ok((types, None));
        }
    }
    describe(session, planned, &update.returning).await
}

/// Types of a DELETE's parameters, and the columns of RETURNING.
pub(crate) async fn describe_delete(
    session: &Session,
    delete: &Delete,
) -> Result<(Vec<Option<DataType>>, Option<SchemaRef>), SqlError> {
    let planned = plan_delete(session, delete)?;
    if let (Some(condition), None, None) = (&delete.selection, &delete.using, &delete.returning) {
        let mut types = Vec::new();
        if point_query::describe_key(&planned.table, &planned.alias, condition, &mut types)? {
            return Ok((types, None));
        }
    }
    describe(session, planned, &delete.returning).await
}

async fn describe(
    session: &Session,
    planned: Planned<'_>,
    returning: &Option<Vec<SelectItem>>,
) -> Result<(Vec<Option<DataType>>, Option<SchemaRef>), SqlError> {
    let mut found = planned.parameters.clone();
    changed_table::parameters_of(session, &planned.query()?, &mut found).await?;
    let schema =
        changed_table::describe_returning(session, returning, &planned.table, &planned.alias, &mut found).await?;
    Ok((found, schema))
}
