//! VACUUM and ANALYZE: what the tuple mover does by itself, now.
//!
//! VACUUM compacts the row groups of a table that have lost many rows. There is nothing else to clean up: old versions of rows end with the
//! snapshots that need them. ANALYZE lets the rows of the delta store be counted again; row groups have their statistics from the
//! beginning. Both are for owners: where PostgreSQL warns and skips a table that is not the caller's, here the statement fails.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use node::identity::Action;

use super::changed_table::{self, column_position};
use crate::SqlError;
use crate::engine::parse::maintenance_parser::Maintenance;
use crate::engine::{Session, StatementResult};
use crate::table::Table;

/// Runs such a statement. Errors: 25001 for VACUUM in a transaction; 42P01, 42703, 42809, 42501.
pub(super) async fn run(session: &mut Session, maintenance: &Maintenance) -> Result<StatementResult, SqlError> {
    let tag = maintenance.words();
    if maintenance.is_vacuum && session.transaction.is_open() {
        return Err(SqlError::transaction("25001", "VACUUM cannot run inside a transaction block"));
    }
    session.refresh()?;
    for table in tables(session, maintenance)? {
        if maintenance.is_vacuum {
            while session.engine.compact_table(table.id).await? > 0 {
                session.canceller.current().check()?;
            }
        }
        if maintenance.analyzes {
            session.engine.counts.forget(table.storage);
        }
    }
    Ok(StatementResult::Done { tag: tag.into() })
}

/// The tables of the statement: those that it names, or all that are the caller's.
fn tables(session: &Session, maintenance: &Maintenance) -> Result<Vec<Arc<Table>>, SqlError> {
    if maintenance.tables.is_empty() {
        let access = session.access();
        let is_own = |table: &Arc<Table>| match &access {
            Some(access) => access.has_owners_rights(&table.schema_name, &table.name),
            None => true,
        };
        return Ok(session.shared.catalog().tables().filter(|table| is_own(table)).cloned().collect());
    }
    let mut tables = Vec::with_capacity(maintenance.tables.len());
    for (name, columns) in &maintenance.tables {
        let name = name.iter().map(|part| Ident::with_quote('"', part)).collect::<Vec<_>>();
        let table = changed_table::table(session, &ObjectName::from(name), Action::TableOwn)?;
        columns.iter().try_for_each(|column| column_position(&table, column).map(drop))?;
        tables.push(table);
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::{Options, Store};

    use super::*;
    use crate::engine::{Engine, EngineOptions};

    async fn run(session: &mut Session, sql: &str) -> Result<(), SqlError> {
        for prepared in session.prepare(sql, &[]).await? {
            session.execute(&prepared, &[]).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_vacuum_that_waits_for_another_ends_with_its_time_and_when_it_is_cancelled() {
        let store = Store::in_memory(Options::default()).unwrap();
        let options = EngineOptions { threads: 1, tuple_mover: None, ..EngineOptions::default() };
        let engine = Engine::new(store, options).unwrap();
        let mut session = engine.session("u");
        run(&mut session, "create table t (a int)").await.unwrap();
        let other = engine.without_vacuum().await;
        run(&mut session, "set statement_timeout = 30").await.unwrap();
        assert!(matches!(run(&mut session, "vacuum t").await, Err(SqlError::TimedOut)));
        run(&mut session, "set statement_timeout = 0").await.unwrap();
        let canceller = session.canceller.clone();
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            canceller.cancel();
        };
        let (ended, ()) = tokio::join!(run(&mut session, "vacuum t"), cancel);
        assert!(matches!(ended, Err(SqlError::Cancelled)));
        drop(other);
        run(&mut session, "vacuum t").await.unwrap();
    }
}
