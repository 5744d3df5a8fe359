//! [`read_tables`]: checks whether every row of every table can be read.

use std::sync::Arc;

use futures::TryStreamExt;
use serde::Serialize;
use store::Store;

use super::{Engine, EngineOptions, StatementResult};
use crate::SqlError;
use crate::table::Table;

/// The result for one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableReport {
    /// Its name, with its schema.
    pub name: String,
    /// Rows that were read, in delta store and column store.
    pub rows: u64,
    /// Why not all rows could be read.
    pub problem: Option<String>,
}

/// Reads every column of every row of all tables. Unreadable rows are reported as a finding.
///
/// Errors: those of the store, and of the catalog if the list of tables cannot be read.
pub async fn read_tables(store: Store, options: EngineOptions) -> Result<Vec<TableReport>, SqlError> {
    let engine = Engine::new(store, options)?;
    let tables = engine.tables()?;
    let mut found = Vec::new();
    for table in tables.tables() {
        let name = format!("{}.{}", table.schema_name, table.name);
        let mut rows = 0;
        let problem = read(&engine, table, &mut rows).await.err();
        let problem = problem.map(|error| format!("table {name}, behind row {rows}: {error}"));
        found.push(TableReport { name, rows, problem });
    }
    Ok(found)
}

async fn read(engine: &Arc<Engine>, table: &Table, rows: &mut u64) -> Result<(), SqlError> {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let sql = format!("SELECT * FROM {}.{}", quoted(&table.schema_name), quoted(&table.name));
    let mut session = engine.session("verify");
    for prepared in session.prepare(&sql, &[]).await? {
        if let StatementResult::Rows { mut stream, .. } = session.execute(&prepared, &[]).await? {
            while let Some(batch) = stream.try_next().await? {
                *rows += batch.num_rows() as u64;
            }
        }
    }
    Ok(())
}
