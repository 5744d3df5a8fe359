//! ALTER TABLE .. ADD PRIMARY KEY: rows are stored by their keys, so all of them are written anew, into another storage, as for another type
//! of a column.

use datafusion::sql::sqlparser::ast::{Expr, Ident, PrimaryKeyConstraint, SelectItem};

use super::changed_table::column_position;
use super::{new_object, table_rewrite};
use crate::SqlError;
use crate::engine::Session;
use crate::engine::parse::ast::{self, folded};
use crate::table::key::is_key_type;
use crate::table::{Column, Table, catalog};

/// Gives a table a primary key of these columns, which have no NULL.
///
/// Errors: 42710, 42P07; 23505 for the rows that there are.
pub(crate) async fn add(
    session: &mut Session,
    table: &mut Table,
    constraint: &PrimaryKeyConstraint,
    key: Vec<usize>,
) -> Result<(), SqlError> {
    let (given, plain) = (constraint.name.as_ref().map(folded), format!("{}_pkey", table.name));
    let name = new_object::index_name(session, table, true, (given.as_deref(), &plain))?;
    let old = table.clone();
    // What was changed before in the same statement is not in the catalog yet.
    table_rewrite::store(session, &old)?;
    let items = old.columns.iter().map(|column| Ident::with_quote('"', column.name.as_str()));
    let items = items.map(|name| SelectItem::UnnamedExpr(Expr::Identifier(name)));
    let query = ast::select(items.collect(), vec![ast::addressed(&old, &old.name)?], None)?;
    let rows = table_rewrite::old_rows(session, &old, &query).await?;
    // What is written now has no NULL where it is refused.
    let column = |column: &Column| Column { missing: None, held_null: false, ..column.clone() };
    table.columns = old.columns.iter().map(column).collect();
    (table.key, table.key_name) = (key, name);
    // Nobody else has these rows: they need no locks.
    session.changing("ALTER TABLE")?.locks_rows = false;
    let written = table_rewrite::write_rows(session, table, &old, rows, &vec![false; old.columns.len()]).await;
    if let Some(transaction) = session.transaction.open_mut() {
        transaction.locks_rows = true;
    }
    written.map_err(|error| of_old_rows(error, table))?;
    let tree = session.engine.catalog;
    session.changing("ALTER TABLE")?.with(|transaction| {
        catalog::take_name(transaction, tree, &table.schema_name, &table.key_name);
        Ok(())
    })?;
    table_rewrite::store(session, table)
}

/// The columns of the key. Errors: 42P16, 42703, 42701, 0A000.
pub(crate) fn positions(table: &Table, constraint: &PrimaryKeyConstraint) -> Result<Vec<usize>, SqlError> {
    if !table.key.is_empty() {
        let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
        return Err(SqlError::statement("42P16", message));
    }
    if constraint.characteristics.is_some() || !constraint.index_options.is_empty() {
        return Err(SqlError::unsupported("a primary key with options"));
    }
    let mut positions = Vec::new();
    for column in &constraint.columns {
        let Expr::Identifier(name) = &column.column.expr else {
            return Err(SqlError::unsupported(format!("a primary key of {}", column.column.expr)));
        };
        let at = column_position(table, &folded(name))?;
        let Column { name, kind, .. } = &table.columns[at];
        if positions.contains(&at) {
            let message = format!("column \"{name}\" appears twice in primary key constraint");
            return Err(SqlError::statement("42701", message));
        }
        if !is_key_type(*kind) {
            return Err(SqlError::unsupported(format!("a primary key of type {}", kind.name())));
        }
        positions.push(at);
    }
    Ok(positions)
}

/// An error of a row, as PostgreSQL says it of rows that were there before the constraint.
fn of_old_rows(error: SqlError, table: &Table) -> SqlError {
    match error {
        SqlError::Value(mut fields) if fields.code == "23505" => {
            fields.message = format!("could not create unique index \"{}\"", table.key_name);
            fields.detail = fields.detail.map(|detail| detail.replace("already exists", "is duplicated"));
            SqlError::Value(fields)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Duration;

    use store::{Options, Store};

    use super::*;
    use crate::engine::{Engine, EngineOptions};

    async fn run(session: &mut Session, sql: &str) {
        for prepared in session.prepare(sql, &[]).await.unwrap() {
            session.execute(&prepared, &[]).await.unwrap();
        }
    }

    /// Begins a statement, and drops it where it waits for the nth time. Returns whether it came to its end.
    async fn begin(session: &mut Session, sql: &str, waits: usize) -> bool {
        let prepared = session.prepare(sql, &[]).await.unwrap().remove(0);
        let mut statement = pin!(session.execute(&prepared, &[]));
        for _ in 0..waits {
            match poll_fn(|context| Poll::Ready(statement.as_mut().poll(context))).await {
                Poll::Ready(done) => return done.is_ok(),
                Poll::Pending => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        false
    }

    #[tokio::test]
    async fn rows_are_locked_again_behind_a_savepoint_wherever_the_statement_was_ended() {
        let store = Store::in_memory(Options::default()).unwrap();
        let options = EngineOptions { threads: 1, tuple_mover: None, ..EngineOptions::default() };
        let engine = Engine::new(store, options).unwrap();
        let mut session = engine.session("u");
        run(&mut session, "create table t (a int, b text)").await;
        run(&mut session, "insert into t select g, 'x' || g from generate_series(1, 20000) as x(g)").await;
        let locks = |session: &Session| session.transaction.open().map(|open| open.locks_rows);
        let mut ended_without = 0;
        for waits in 1..500 {
            run(&mut session, "begin; savepoint s").await;
            let is_done = begin(&mut session, "alter table t add primary key (a)", waits).await;
            ended_without += usize::from(locks(&session) == Some(false));
            run(&mut session, "rollback to s").await;
            assert_eq!(locks(&session), Some(true), "ended after {waits} waits");
            run(&mut session, "rollback").await;
            if is_done {
                break;
            }
        }
        assert!(ended_without > 0, "it was never ended while it wrote");
    }
}
