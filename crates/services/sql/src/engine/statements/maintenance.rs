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
pub(super) fn run(session: &mut Session, maintenance: &Maintenance) -> Result<StatementResult, SqlError> {
    let tag = maintenance.words();
    if maintenance.is_vacuum && session.transaction.is_open() {
        return Err(SqlError::transaction("25001", "VACUUM cannot run inside a transaction block"));
    }
    session.refresh()?;
    for table in tables(session, maintenance)? {
        if maintenance.is_vacuum {
            while session.engine.compact_table(table.id)? > 0 {
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
