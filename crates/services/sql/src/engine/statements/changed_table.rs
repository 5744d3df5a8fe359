//! The table that a statement changes, and the queries that a change of rows consists of.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Query, SelectItem, Statement, Value};
use futures::{TryStreamExt, stream};
use node::identity::Action;

use super::read_columns::ReadColumns;
use crate::SqlError;
use crate::engine::parse::ast::{self, resolve};
use crate::engine::plan::column_labels;
use crate::engine::plan::prepared;
use crate::engine::semantics::type_inference;
use crate::engine::{Session, StatementResult};
use crate::table::catalog::PUBLIC;
use crate::table::providers::Reads;
use crate::table::{Catalog, Entry, Table, View};

/// The table of that name, to which the statement will do this: its rights are asked. Those of single columns are asked
/// with [`may_change`].
///
/// Errors: 42P01, 42809, 42501.
pub(crate) fn table(session: &Session, name: &ObjectName, action: Action) -> Result<Arc<Table>, SqlError> {
    let access = session.access();
    let (schema, named) = resolve(name)?;
    if let Some(access) = &access {
        access.schema(&schema)?;
    }
    let table = find(&session.shared.catalog(), name)?;
    match &access {
        None => {}
        Some(access) if action == Action::TableOwn => access.own("table", &schema, &named)?,
        Some(access) => access.some(action, "table", &schema, &named)?,
    }
    if let Some(access) = &access {
        session.shared.still(access, &schema, &named, true)?;
    }
    Ok(table)
}

/// Asks for single columns of a changed table. Errors: 42501.
pub(crate) fn may_change(
    session: &Session,
    table: &Table,
    action: Action,
    columns: impl IntoIterator<Item = usize>,
) -> Result<(), SqlError> {
    let names = columns.into_iter().map(|at| table.columns[at].name.clone()).collect();
    require(session, table, action, names)
}

/// Asks for the columns of a changed table that the statement also reads. Errors: 42501.
pub(crate) fn may_read(session: &Session, table: &Table, read: ReadColumns<'_>) -> Result<(), SqlError> {
    match read.names() {
        none if none.is_empty() => Ok(()),
        names => require(session, table, Action::TableSelect, names),
    }
}

fn require(session: &Session, table: &Table, action: Action, names: Vec<String>) -> Result<(), SqlError> {
    match session.access() {
        Some(access) => access.columns(action, "table", (&table.schema_name, &table.name), names),
        None => Ok(()),
    }
}

/// The table of that name; whoever uses it asks for rights. Errors: 42P01, 42809.
pub(crate) fn find(catalog: &Catalog, name: &ObjectName) -> Result<Arc<Table>, SqlError> {
    let (schema, name) = resolve(name)?;
    match catalog.get(&schema, &name) {
        Some(Entry::Table(table)) => Ok(table.clone()),
        Some(Entry::View(_)) => Err(SqlError::statement("42809", format!("\"{name}\" is a view"))
            .with_hint("Change the tables that the view reads.")),
        Some(Entry::Virtual(_)) => Err(SqlError::statement("42809", format!("\"{name}\" is read-only"))),
        Some(Entry::External(_)) => {
            Err(SqlError::statement("42809", format!("\"{name}\" is an external table: its files are read-only"))
                .with_hint("CREATE TABLE .. AS SELECT copies it into a table that can be changed."))
        }
        Some(Entry::Sequence(_)) => Err(SqlError::statement("42809", format!("\"{name}\" is a sequence"))),
        None => {
            let name = if schema == PUBLIC { name } else { format!("{schema}.{name}") };
            Err(SqlError::statement("42P01", format!("relation \"{name}\" does not exist")))
        }
    }
}

/// Refuses to check all rows of a table, which the transaction has locked alone, in a view that does not see them all.
///
/// Errors: [`SqlError::Again`].
pub(crate) fn sees_all(session: &Session, table: &Table) -> Result<(), SqlError> {
    session.transaction.open().map_or(Ok(()), |open| open.sees_all(table.id))
}

/// Runs a query of the engine's own to its end.
pub(crate) async fn collect(
    session: &Session,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<(SchemaRef, Vec<RecordBatch>), SqlError> {
    let plan = prepared::plan_query(&session.context, statement).await?;
    let stream = session.run(plan, parameters).await?;
    let schema = stream.schema();
    Ok((schema, stream.try_collect().await?))
}

/// The values of the arguments of calls, one after the other in one row.
pub(crate) async fn arguments_of(
    session: &Session,
    calls: &[Vec<Expr>],
    parameters: &[ScalarValue],
) -> Result<RecordBatch, SqlError> {
    let all = calls.iter().flatten().enumerate();
    let items: Vec<SelectItem> = all.map(|(at, expr)| ast::named(expr.clone(), &format!("${at}"))).collect();
    let (schema, batches) = collect(session, &ast::select(items, Vec::new(), None)?, parameters).await?;
    joined(&schema, &batches)
}

/// The rows of a query, to be written while they come. If the query reads the transaction, it runs to its end first,
/// because the writes would change what it reads.
pub(crate) async fn rows_to_change(
    session: &Session,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<SendableRecordBatchStream, SqlError> {
    let plan = prepared::plan_query(&session.context, statement).await?;
    let stream = session.run(plan, parameters).await?;
    if !matches!(session.shared.view(), View::Transaction(_)) {
        return Ok(stream);
    }
    let schema = stream.schema();
    let all: Vec<RecordBatch> = stream.try_collect().await?;
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(all.into_iter().map(Ok)))))
}

/// The rows of RETURNING, made from whole rows of a table.
pub(crate) async fn returning(
    session: &Session,
    items: &[SelectItem],
    table: &Table,
    alias: &str,
    rows: Vec<RecordBatch>,
    parameters: &[ScalarValue],
) -> Result<(SchemaRef, SendableRecordBatchStream), SqlError> {
    session.shared.make("returning", Some(MemTable::try_new(table.schema.clone(), vec![rows])?));
    let query = ast::select(items.to_vec(), vec![ast::made("returning", alias)?], None);
    let outcome = match &query {
        Ok(query) => collect(session, query, parameters).await,
        Err(error) => Err(error.clone()),
    };
    session.shared.make("returning", None);
    let (schema, batches) = outcome?;
    let labelled = column_labels::labelled_items(items, &schema);
    let stream = stream::iter(batches.into_iter().map(Ok));
    let stream = Box::pin(RecordBatchStreamAdapter::new(schema, stream));
    Ok((labelled.clone(), column_labels::relabel(stream, labelled)))
}

/// The columns of RETURNING; adds the types of parameters in it that are not known yet.
pub(crate) async fn describe_returning(
    session: &Session,
    items: &Option<Vec<SelectItem>>,
    table: &Table,
    alias: &str,
    found: &mut Vec<Option<DataType>>,
) -> Result<Option<SchemaRef>, SqlError> {
    let Some(items) = items else { return Ok(None) };
    let query = ast::select(items.clone(), vec![ast::made("returning", alias)?], None)?;
    session.shared.make("returning", Some(MemTable::try_new(table.schema.clone(), vec![Vec::new()])?));
    let planned = prepared::plan_with(&session.context, &query, found).await;
    session.shared.make("returning", None);
    let (plan, parameters) = planned?;
    type_inference::add_types(found, parameters);
    Ok(Some(column_labels::labelled_items(items, &prepared::columns(&session.context, &plan))))
}

/// The result of a change of rows: their number, or the rows of RETURNING.
pub(crate) async fn changed(
    session: &Session,
    change: ChangedRows<'_>,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let Some(items) = change.returning else {
        return Ok(StatementResult::Done { tag: format!("{} {}", change.tag, change.count) });
    };
    let (schema, stream) = returning(session, items, change.table, change.alias, change.rows, parameters).await?;
    Ok(StatementResult::Rows { schema, stream, tag: change.tag })
}

/// The rows that a statement changed.
pub(crate) struct ChangedRows<'a> {
    pub(crate) tag: &'static str,
    pub(crate) table: &'a Table,
    pub(crate) alias: &'a str,
    pub(crate) count: usize,
    pub(crate) rows: Vec<RecordBatch>,
    pub(crate) returning: Option<&'a Vec<SelectItem>>,
}

/// The rows at the given positions as one batch, with all columns.
pub(crate) fn picked(table: &Table, columns: &[ArrayRef], rows: &[usize]) -> Result<RecordBatch, SqlError> {
    let batch = RecordBatch::try_new(table.schema.clone(), columns.to_vec())?;
    if rows.len() == batch.num_rows() {
        return Ok(batch);
    }
    let rows = datafusion::arrow::array::UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64));
    Ok(take_record_batch(&batch, &rows)?)
}

/// All batches as one.
pub(crate) fn joined(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch, SqlError> {
    Ok(concat_batches(schema, batches)?)
}

/// An INSERT whose names are resolved.
pub(crate) struct InsertTarget<'a> {
    pub(crate) table: Arc<Table>,
    pub(crate) alias: String,
    /// For each value of a row, its column.
    pub(crate) columns: Vec<usize>,
    /// Whether values of identity columns are taken: OVERRIDING SYSTEM VALUE.
    pub(crate) overriding: bool,
    /// The source of the rows; `None` for DEFAULT VALUES.
    pub(crate) source: Option<&'a Query>,
}

/// Position of a column. Errors: 42703.
pub(crate) fn column_position(table: &Table, name: &str) -> Result<usize, SqlError> {
    table.position(name).ok_or_else(|| {
        SqlError::statement("42703", format!("column \"{name}\" of relation \"{}\" does not exist", table.name))
    })
}

/// The name of the parameter, if the expression is one.
pub(crate) fn placeholder(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name),
            _ => None,
        },
        Expr::Nested(inner) => placeholder(inner),
        _ => None,
    }
}

/// Records the type of a parameter.
pub(crate) fn note(found: &mut Vec<Option<DataType>>, name: &str, kind: DataType) -> Result<(), SqlError> {
    let at = ast::parameter_number(name)?;
    found.resize(found.len().max(at + 1), None);
    found[at].get_or_insert(kind);
    Ok(())
}

/// Adds the types of parameters from a plan, where they are not known yet.
pub(crate) async fn parameters_of(
    session: &Session,
    statement: &Statement,
    found: &mut Vec<Option<DataType>>,
) -> Result<(), SqlError> {
    let (_, kinds) = prepared::plan_with(&session.context, statement, found).await?;
    type_inference::add_types(found, kinds);
    Ok(())
}
