//! The statement INSERT.
//!
//! VALUES of literals, parameters and `CURRENT_TIMESTAMP` become columns here, without DataFusion. Every other source is a query that
//! DataFusion runs. If it reads a snapshot, which does not see the new rows, its rows are written while they come. In a
//! transaction that has changed something, the query runs to its end first, so a table can be inserted into itself.

use std::collections::BTreeSet;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    ConflictTarget, DoUpdate, Expr, Insert, OnConflict, OnConflictAction, OnInsert, Query, SelectItem, SetExpr,
    Statement, TableObject,
};
use futures::TryStreamExt;
use node::identity::Action;

use super::bulk_load::BulkLoad;
use super::changed_table;
use super::changed_table::{ChangedRows, InsertTarget, column_position, note, placeholder};
use super::check_constraints;
use super::column_defaults;
use super::literal_values::{cells, fits, is_moment, moment};
use super::read_columns::ReadColumns;
use super::references;
use super::row_changes::{Arbiter, Existing};
use super::update_delete::{always, assigned};
use super::upsert;
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::folded;
use crate::engine::parse::sequence_parser::is_overriding;
use crate::engine::semantics::assignment_casts::assign;
use crate::engine::session::transaction::SessionTransaction;
use crate::engine::{Session, StatementResult};
use crate::table::{Index, Table};

/// The treatment of a row whose primary key, or values in a unique index, exist already.
enum Conflict<'a> {
    Existing(Existing),
    /// The existing row is changed.
    Update(&'a DoUpdate, Arbiter),
}

/// The name of the table that an INSERT changes.
fn name(insert: &Insert) -> Result<&datafusion::sql::sqlparser::ast::ObjectName, SqlError> {
    let odd = insert.overwrite
        || insert.or.is_some()
        || insert.ignore
        || insert.replace_into
        || !insert.assignments.is_empty()
        || insert.partitioned.is_some()
        || insert.output.is_some()
        || (insert.settings.is_some() && !is_overriding(insert));
    match &insert.table {
        TableObject::TableName(name) if !odd => Ok(name),
        _ => Err(SqlError::unsupported(format!("\"{insert}\""))),
    }
}

fn resolve_insert<'a>(session: &Session, insert: &'a Insert) -> Result<InsertTarget<'a>, SqlError> {
    let table = changed_table::table(session, name(insert)?, Action::TableInsert)?;
    let mut columns = Vec::new();
    for name in &insert.columns {
        let name = match name.0.as_slice() {
            [part] => part.as_ident().map(folded).unwrap_or_default(),
            _ => return Err(SqlError::unsupported(format!("the column name {name}"))),
        };
        let at = column_position(&table, &name)?;
        if columns.contains(&at) {
            return Err(SqlError::statement("42701", format!("column \"{name}\" specified more than once")));
        }
        columns.push(at);
    }
    if columns.is_empty() {
        columns = (0..table.columns.len()).collect();
    }
    changed_table::may_change(session, &table, Action::TableInsert, columns.iter().copied())?;
    may_also(session, &table, insert)?;
    let alias = insert.table_alias.as_ref().map_or_else(|| table.name.clone(), |alias| folded(&alias.alias));
    let overriding = is_overriding(insert);
    Ok(InsertTarget { table, alias, columns, overriding, source: insert.source.as_deref() })
}

/// Asks for what an INSERT does besides: reading for RETURNING, reading and changing existing rows for ON CONFLICT.
fn may_also(session: &Session, table: &Table, insert: &Insert) -> Result<(), SqlError> {
    let mut read = ReadColumns::of(table).add_items(insert.returning.as_ref());
    if let Some(OnInsert::OnConflict(OnConflict { conflict_target, action })) = &insert.on {
        if let Some(target) = conflict_target {
            read = read.add_at(arbiter_columns(table, arbiter(table, target)?));
        }
        if let OnConflictAction::DoUpdate(update) = action {
            let values = assigned(table, &update.assignments)?.values;
            let set = values.iter().enumerate().filter_map(|(at, value)| value.is_some().then_some(at));
            changed_table::table(session, name(insert)?, Action::TableUpdate)?;
            changed_table::may_change(session, table, Action::TableUpdate, set)?;
            read = read.add(&update.selection);
            for assignment in &update.assignments {
                read = read.add(&assignment.value);
            }
        }
    }
    changed_table::may_read(session, table, read)
}

pub(crate) async fn insert(
    session: &mut Session,
    insert: &Insert,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let into = resolve_insert(session, insert)?;
    session.changing("INSERT")?.lock(into.table.id, false)?;
    references::prepare(session, &into.table, None)?;
    check_constraints::prepare(session, &into.table).await?;
    let conflict = conflict(&into.table, insert.on.as_ref())?;
    if let (Conflict::Existing(Existing::Refuse), None, Some(source)) = (&conflict, &insert.returning, into.source)
        && ast::plain_values(source).is_none()
    {
        let rows = insert_query(session, &into, source, parameters).await?;
        return Ok(StatementResult::Done { tag: format!("INSERT 0 {rows}") });
    }
    let columns = source_columns(session, &into, parameters).await?;
    let existing = match conflict {
        Conflict::Existing(existing) => existing,
        Conflict::Update(update, at) => {
            return upsert::upsert(session, &into, columns, (update, at), insert.returning.as_ref(), parameters).await;
        }
    };
    let transaction = open_transaction(session)?;
    let rows = session.engine.insert_rows(transaction, &into.table, &columns, existing)?;
    let batch = match &insert.returning {
        Some(_) => vec![changed_table::picked(&into.table, &columns, &rows)?],
        None => Vec::new(),
    };
    let change = ChangedRows {
        tag: "INSERT 0",
        table: &into.table,
        alias: &into.alias,
        count: rows.len(),
        rows: batch,
        returning: insert.returning.as_ref(),
    };
    changed_table::changed(session, change, parameters).await
}

fn open_transaction(session: &Session) -> Result<&SessionTransaction, SqlError> {
    session.transaction.open().ok_or_else(|| SqlError::transaction("25P01", "there is no transaction in progress"))
}

/// Inserts the rows of a query.
async fn insert_query(
    session: &Session,
    into: &InsertTarget<'_>,
    source: &Query,
    parameters: &[ScalarValue],
) -> Result<u64, SqlError> {
    let query = Statement::Query(Box::new(with_defaults(into, source)?));
    let mut stream = changed_table::rows_to_change(session, &query, parameters).await?;
    let width = stream.schema().fields().len();
    check_width(into, width)?;
    let given = &into.columns[..width];
    let open = open_columns(source, width);
    let defaults = column_defaults::defaults(session, &into.table, given).await?;
    let transaction = open_transaction(session)?;
    let mut bulk = BulkLoad::new(&session.engine, &into.table);
    while let Some(batch) = stream.try_next().await? {
        let values = batch.columns().iter().zip(given).zip(&open);
        let values = values.map(|((array, at), open)| assign(array, &into.table.columns[*at], *open));
        let values: Vec<ArrayRef> = values.collect::<Result<_, _>>()?;
        bulk.push(transaction, defaults.whole(&into.table, given, values, batch.num_rows())?)?;
    }
    bulk.finish(transaction)
}

/// The rows to insert: all columns of the table, in its types.
async fn source_columns(
    session: &Session,
    into: &InsertTarget<'_>,
    parameters: &[ScalarValue],
) -> Result<Vec<ArrayRef>, SqlError> {
    let Some(source) = into.source else {
        return complete(session, &into.table, &[], Vec::new(), 1).await;
    };
    if let Some(rows) = ast::plain_values(source) {
        let rows: Vec<&[Expr]> = rows.iter().map(|row| row.content.as_slice()).collect();
        check_width(into, rows.iter().map(|row| row.len()).max().unwrap_or(0))?;
        if let Some(values) = literals(session, into, &rows, parameters)? {
            return complete(session, &into.table, &into.columns[..values.len()], values, rows.len()).await;
        }
    }
    let query = Statement::Query(Box::new(with_defaults(into, source)?));
    let (schema, batches) = changed_table::collect(session, &query, parameters).await?;
    check_width(into, schema.fields().len())?;
    let batch = changed_table::joined(&schema, &batches)?;
    let open = open_columns(source, schema.fields().len());
    let values = batch.columns().iter().zip(&into.columns).zip(open);
    let values = values.map(|((array, at), open)| assign(array, &into.table.columns[*at], open));
    let values: Vec<ArrayRef> = values.collect::<Result<_, _>>()?;
    complete(session, &into.table, &into.columns[..values.len()], values, batch.num_rows()).await
}

/// Adds the columns that the statement does not give: defaults, or NULL.
async fn complete(
    session: &Session,
    table: &Table,
    given: &[usize],
    values: Vec<ArrayRef>,
    rows: usize,
) -> Result<Vec<ArrayRef>, SqlError> {
    column_defaults::defaults(session, table, given).await?.whole(table, given, values, rows)
}

/// Types of an INSERT's parameters, and the columns of RETURNING.
pub(crate) async fn describe_insert(
    session: &Session,
    insert: &Insert,
) -> Result<(Vec<Option<DataType>>, Option<SchemaRef>), SqlError> {
    let into = resolve_insert(session, insert)?;
    let mut found = Vec::new();
    if let Some(source) = into.source {
        match ast::plain_values(source) {
            Some(rows) => {
                let mut others = false;
                for row in rows {
                    check_width(&into, row.content.len())?;
                    for (expr, at) in row.content.iter().zip(&into.columns) {
                        match placeholder(expr) {
                            Some(name) => note(&mut found, name, into.table.columns[*at].kind.arrow())?,
                            None => {
                                let is_known = ast::is_default(expr) || is_moment(expr);
                                others |= !is_known && ast::literal(expr, &[])?.is_none();
                            }
                        }
                    }
                }
                if others {
                    changed_table::parameters_of(
                        session,
                        &Statement::Query(Box::new(with_defaults(&into, source)?)),
                        &mut found,
                    )
                    .await?;
                }
            }
            None => {
                let query = Statement::Query(Box::new(with_defaults(&into, source)?));
                changed_table::parameters_of(session, &query, &mut found).await?;
            }
        }
    }
    if let Conflict::Update(update, _) = conflict(&into.table, insert.on.as_ref())? {
        upsert::upsert_parameters(session, &into, update, &mut found).await?;
    }
    let schema =
        changed_table::describe_returning(session, &insert.returning, &into.table, &into.alias, &mut found).await?;
    Ok((found, schema))
}

fn check_width(into: &InsertTarget<'_>, values: usize) -> Result<(), SqlError> {
    if values > into.columns.len() {
        return Err(SqlError::statement("42601", "INSERT has more expressions than target columns"));
    }
    // With a list of columns the numbers must be equal; without one the last columns may be missing.
    if values < into.columns.len() && into.columns.len() != into.table.columns.len() {
        return Err(SqlError::statement("42601", "INSERT has more target columns than expressions"));
    }
    check_identity(into, values)
}

/// Errors: 428C9 for a value of a column that is GENERATED ALWAYS AS IDENTITY, but with OVERRIDING SYSTEM VALUE.
fn check_identity(into: &InsertTarget<'_>, values: usize) -> Result<(), SqlError> {
    let Some(source) = into.source.filter(|_| !into.overriding) else { return Ok(()) };
    for (nth, at) in into.columns.iter().enumerate().take(values) {
        let column = &into.table.columns[*at];
        let is_default = match source.body.as_ref() {
            SetExpr::Values(given) => given.rows.iter().all(|row| row.content.get(nth).is_none_or(ast::is_default)),
            _ => false,
        };
        if column.identity.as_ref().is_some_and(|identity| identity.always) && !is_default {
            let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name);
            let error = SqlError::statement("428C9", message).with_detail(always(&column.name));
            return Err(error.with_hint("Use OVERRIDING SYSTEM VALUE to override."));
        }
    }
    Ok(())
}

/// The action of ON CONFLICT. Errors: 0A000, 42P10, 42601 for DO UPDATE without a target.
fn conflict<'a>(table: &Table, on: Option<&'a OnInsert>) -> Result<Conflict<'a>, SqlError> {
    let (target, action) = match on {
        None => return Ok(Conflict::Existing(Existing::Refuse)),
        Some(OnInsert::OnConflict(OnConflict { conflict_target, action })) => (conflict_target, action),
        Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE")),
    };
    match (action, target) {
        (OnConflictAction::DoNothing, None) => Ok(Conflict::Existing(Existing::Skip(Arbiter::Any))),
        (OnConflictAction::DoNothing, Some(target)) => Ok(Conflict::Existing(Existing::Skip(arbiter(table, target)?))),
        (OnConflictAction::DoUpdate(_), None) => {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            Err(SqlError::statement("42601", message).with_hint("For example, ON CONFLICT (column_name)."))
        }
        (OnConflictAction::DoUpdate(update), Some(target)) => Ok(Conflict::Update(update, arbiter(table, target)?)),
    }
}

/// Where ON CONFLICT looks for existing rows. Errors: 42P10, 42703, 42704.
fn arbiter(table: &Table, target: &ConflictTarget) -> Result<Arbiter, SqlError> {
    let found = match target {
        ConflictTarget::Columns(names) => {
            let names: Vec<String> = names.iter().map(folded).collect();
            let columns = names.iter().map(|name| column_position(table, name)).collect::<Result<BTreeSet<_>, _>>()?;
            let are_those = |of: &[usize]| !of.is_empty() && of.iter().copied().collect::<BTreeSet<_>>() == columns;
            let index = || table.indexes.iter().position(|index| index.unique && are_those(&index.columns));
            if are_those(&table.key) { Some(Arbiter::Key) } else { index().map(Arbiter::Index) }
        }
        ConflictTarget::OnConstraint(name) => {
            let name = ast::resolve(name)?.1;
            let is_it = |index: &Index| index.constraint && index.name == name;
            let at = match !table.key.is_empty() && name == table.key_name {
                true => Some(Arbiter::Key),
                false => table.indexes.iter().position(is_it).map(Arbiter::Index),
            };
            let missing = || format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
            return at.ok_or_else(|| SqlError::statement("42704", missing()));
        }
    };
    found.ok_or_else(|| {
        let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
        SqlError::statement("42P10", message)
    })
}

/// The columns by which existing rows are found.
fn arbiter_columns(table: &Table, arbiter: Arbiter) -> &[usize] {
    match arbiter {
        Arbiter::Index(at) => &table.indexes[at].columns,
        Arbiter::Any | Arbiter::Key => &table.key,
    }
}

/// Which columns of a query are literals and parameters, whose type is open.
fn open_columns(source: &Query, columns: usize) -> Vec<bool> {
    match source.body.as_ref() {
        SetExpr::Values(_) => vec![true; columns],
        SetExpr::Select(select) => {
            let open = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => ast::is_open(expr),
                _ => false,
            };
            // A star represents several columns: then the positions of columns are not known.
            match select.projection.len() == columns {
                true => select.projection.iter().map(open).collect(),
                false => vec![false; columns],
            }
        }
        _ => vec![false; columns],
    }
}

/// The query with DEFAULT in VALUES replaced.
fn with_defaults(into: &InsertTarget<'_>, source: &Query) -> Result<Query, SqlError> {
    let mut query = source.clone();
    if let SetExpr::Values(values) = query.body.as_mut() {
        for row in &mut values.rows {
            for (expr, at) in row.content.iter_mut().zip(&into.columns) {
                if ast::is_default(expr) {
                    *expr = ast::default_of(&into.table.columns[*at])?;
                }
            }
        }
    }
    // Only the order of the source's columns counts, but DataFusion requires different names.
    if query.order_by.is_none()
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        for (nth, item) in select.projection.iter_mut().enumerate() {
            if let SelectItem::UnnamedExpr(expr) = item {
                *item = ast::named(expr.clone(), &format!("${nth}"));
            }
        }
    }
    Ok(query)
}

/// The columns of VALUES, if all are literals, parameters and literal defaults.
fn literals(
    session: &Session,
    into: &InsertTarget<'_>,
    rows: &[&[Expr]],
    parameters: &[ScalarValue],
) -> Result<Option<Vec<ArrayRef>>, SqlError> {
    let width = rows.first().map_or(0, |row| row.len());
    if rows.iter().any(|row| row.len() != width) {
        return Err(SqlError::statement("42601", "VALUES lists must all be the same length"));
    }
    let mut columns = Vec::with_capacity(width);
    for (nth, at) in into.columns.iter().enumerate().take(width) {
        let column = &into.table.columns[*at];
        let mut values = Vec::with_capacity(rows.len());
        for row in rows {
            let default = if ast::is_default(&row[nth]) { Some(ast::default_of(column)?) } else { None };
            let value = default.as_ref().unwrap_or(&row[nth]);
            match ast::literal(value, parameters)?.or_else(|| moment(session, value)) {
                Some(literal) if fits(&literal, column.kind) => values.push(literal),
                _ => return Ok(None),
            }
        }
        columns.push(cells(&values, column)?);
    }
    Ok(Some(columns))
}
