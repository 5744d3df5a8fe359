//! Changes of a table that write all of its rows anew, into another storage: another type of a column, fewer columns.
//!
//! The rows are read by a query over the table as it was, and checked like rows that are inserted. All of it is in the
//! transaction of the statement: until the commit, others read the old storage.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{DataType, Expr, Statement};
use futures::TryStreamExt;

use super::bulk_load::BulkLoad;
use super::{changed_table, check_constraints, column_definitions, create_drop, indexes, sequences};
use crate::SqlError;
use crate::engine::Session;
use crate::engine::parse::ast;
use crate::engine::plan::prepared;
use crate::engine::semantics::assignment_casts::assign;
use crate::table::key::is_key_type;
use crate::table::{Column, SqlType, Table, catalog};

/// Runs the query that reads the old rows of a table, which the transaction has locked alone: all that others have committed, or none, since
/// the old storage is discarded.
///
/// Errors: [`SqlError::Again`].
pub(crate) async fn old_rows(
    session: &Session,
    old: &Table,
    query: &Statement,
) -> Result<SendableRecordBatchStream, SqlError> {
    changed_table::sees_all(session, old)?;
    session.run(prepared::plan_query(&session.context, query).await?, &[]).await
}

/// Gives a table another storage, with these rows; `open` says for each column whether its values take any type. The old
/// rows are discarded.
pub(crate) async fn write_rows(
    session: &mut Session,
    table: &mut Table,
    old: &Table,
    mut rows: SendableRecordBatchStream,
    open: &[bool],
) -> Result<(), SqlError> {
    (table.schema, table.addressed) = Table::schemas(&table.columns, &table.key);
    (table.storage, table.rows) = create_drop::make_storage(session, "ALTER TABLE")?;
    indexes::make_trees(session, "ALTER TABLE", table)?;
    check_constraints::prepare(session, table).await?;
    let engine = session.engine.clone();
    let transaction = session.changing("ALTER TABLE")?;
    // The rows have their keys: none is searched.
    let mut bulk = BulkLoad::new(&engine, &Arc::new(Table { foreign_keys: Vec::new(), ..table.clone() }));
    while let Some(batch) = rows.try_next().await? {
        let values = batch.columns().iter().zip(&table.columns).zip(open);
        let values = values.map(|((array, column), open)| assign(array, column, *open));
        bulk.push(transaction, values.collect::<Result<Vec<ArrayRef>, _>>()?)?;
    }
    bulk.finish(transaction)?;
    drop(rows);
    create_drop::discard_rows(session, old)
}

/// ALTER COLUMN .. TYPE. Errors: 42804 without a cast, 22023 for an identity column, 0A000; those of values.
pub(crate) async fn set_type(
    session: &mut Session,
    table: &mut Table,
    at: usize,
    (data_type, using): (&DataType, Option<&Expr>),
) -> Result<(), SqlError> {
    let kind = SqlType::from_ast(data_type)?;
    let old = table.clone();
    let column = Column { kind, ..table.columns[at].clone() };
    if column.identity.is_some() && !matches!(kind, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) {
        return Err(SqlError::statement("22023", "identity column type must be smallint, integer, or bigint"));
    }
    if table.key.contains(&at) && !is_key_type(kind) {
        return Err(SqlError::unsupported(format!("a primary key of type {}", kind.name())));
    }
    if let Some(using) = using {
        let refused = |_| SqlError::statement("0A000", "cannot use subquery in transform expression");
        ast::no_subquery(using).map_err(refused)?;
    } else {
        may_become(&old.columns[at], &column)?;
    }
    if column.default.is_some() {
        let default = ast::default_of(&column)?;
        let checked = column_definitions::check_default(session, &column, &default).await;
        checked.map_err(|_| {
            let (name, kind) = (&column.name, kind.name());
            let message = format!("default for column \"{name}\" cannot be cast automatically to type {kind}");
            SqlError::statement("42804", message)
        })?;
    }
    sequences::set_type(session, &column)?;
    table.columns[at] = column;
    indexes::check_types(table)?;
    // What was changed before in the same statement is not in the catalog yet.
    (table.schema, table.addressed) = Table::schemas(&table.columns, &table.key);
    check_constraints::compile_all(session, table).await?;
    store(session, &old)?;
    let value = |(nth, column): (usize, &Column)| match using.filter(|_| nth == at) {
        Some(using) => using.clone(),
        None => ast::column_of(&old.name, &column.name),
    };
    let items =
        old.columns.iter().enumerate().map(|(nth, column)| ast::named(value((nth, column)), &format!("${nth}")));
    let query = ast::select(items.collect(), vec![ast::addressed(&old, &old.name)?], None)?;
    let rows = old_rows(session, &old, &query).await?;
    table.columns.iter_mut().for_each(|column| column.missing = None);
    let open: Vec<bool> = (0..table.columns.len()).map(|nth| nth == at && using.is_some_and(ast::is_open)).collect();
    write_rows(session, table, &old, rows, &open).await?;
    store(session, table)
}

/// Lets the rest of the statement see a definition.
pub(crate) fn store(session: &mut Session, table: &Table) -> Result<(), SqlError> {
    let (tree, transaction) = (session.engine.catalog, session.changing("ALTER TABLE")?);
    transaction.defines = true;
    transaction.with(|transaction| catalog::put_table(transaction, tree, table))?;
    session.refresh()
}

/// Whether values of a column can be assigned to one of another type. Errors: 42804.
fn may_become(old: &Column, new: &Column) -> Result<(), SqlError> {
    let example = ScalarValue::new_default(&old.kind.arrow())?.to_array()?;
    match assign(&example, new, false) {
        Err(error) if error.code() == "42804" => {
            let (name, kind) = (&new.name, new.kind.name());
            let message = format!("column \"{name}\" cannot be cast automatically to type {kind}");
            let hint = format!("You might need to specify \"USING {name}::{kind}\".");
            Err(SqlError::statement("42804", message).with_hint(hint))
        }
        // The example need not be a value of the new type.
        _ => Ok(()),
    }
}
