//! [`read_tables`]: checks whether every row of every table can be read, and whether the indexes have them.

use std::sync::Arc;

use futures::TryStreamExt;
use serde::Serialize;
use store::Store;

use super::{Engine, EngineOptions, StatementResult};
use crate::SqlError;
use crate::index_check;
use crate::table::{Table, View};

/// The result for one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableReport {
    /// Its name, with its schema.
    pub name: String,
    /// Rows that were read, in delta store and column store.
    pub rows: u64,
    /// Why not all rows could be read, or which index does not have them.
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
        let problem = match read(&engine, table, &mut rows).await {
            Err(error) => Some(format!("table {name}, behind row {rows}: {error}")),
            Ok(()) => indexes(&engine, table).map(|problem| format!("table {name}: {problem}")),
        };
        found.push(TableReport { name, rows, problem });
    }
    Ok(found)
}

/// What is wrong with the first index that does not have the table's rows.
fn indexes(engine: &Engine, table: &Arc<Table>) -> Option<String> {
    let view = View::Snapshot(engine.store.snapshot());
    let compare = |index| index_check::compare(&engine.columns, &view, table, index);
    table.indexes.iter().find_map(|index| compare(index).unwrap_or_else(|error| Some(error.to_string())))
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
