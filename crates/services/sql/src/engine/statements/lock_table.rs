//! LOCK TABLE: a transaction keeps others from changing rows of a table, or its definition, until it ends.
//!
//! | mode | waits for, and keeps out |
//! |---|---|
//! | ACCESS SHARE | changes of the definition, which fail |
//! | ROW SHARE, ROW EXCLUSIVE | the modes below; every statement that changes or locks rows has this lock |
//! | SHARE UPDATE EXCLUSIVE, SHARE, SHARE ROW EXCLUSIVE, EXCLUSIVE, ACCESS EXCLUSIVE | those that change or lock rows, and one another |
//!
//! No mode keeps readers out: they read a snapshot. The lock is one of the table of [`RowLocks`](crate::engine::session::row_locks), under a key
//! that no row has, so that a circle of waits through rows and tables is found. A statement that has to wait is run again, as one that
//! meets a row of another transaction.

use datafusion::sql::sqlparser::ast::{Lock, LockTableMode, LockTableTarget};
use node::identity::Action;

use super::changed_table;
use crate::SqlError;
use crate::engine::parse::ast::resolve;
use crate::engine::session::row_locks::LockMode;
use crate::engine::session::table_locks::{TABLES, table_key};
use crate::engine::{Session, StatementResult};
use crate::table::Entry;

/// Runs LOCK TABLE: its tables one after the other, in the order in which they are written.
///
/// Errors: 25P01, 42P01, 42809, 42501; 55P03 with NOWAIT; [`SqlError::Again`] where it has to wait.
pub(super) fn lock(session: &mut Session, lock: &Lock) -> Result<StatementResult, SqlError> {
    session.transaction.in_block("LOCK TABLE")?;
    let mode = lock.lock_mode.clone().unwrap_or(LockTableMode::AccessExclusive);
    for target in &lock.tables {
        lock_one(session, target, &mode, lock.nowait)?;
    }
    Ok(StatementResult::Done { tag: "LOCK TABLE".into() })
}

fn lock_one(
    session: &mut Session,
    target: &LockTableTarget,
    mode: &LockTableMode,
    nowait: bool,
) -> Result<(), SqlError> {
    use LockTableMode as M;
    let (schema, name) = resolve(&target.name)?;
    let access = session.access();
    if let Some(access) = &access {
        access.schema(&schema)?;
    }
    let catalog = session.shared.catalog();
    let table = match catalog.get(&schema, &name) {
        Some(Entry::Table(table)) => table.clone(),
        Some(_) => {
            let error = SqlError::statement("42809", format!("cannot lock relation \"{name}\""));
            return Err(error.with_detail("This operation is supported for tables whose rows can be changed."));
        }
        None => return changed_table::find(&catalog, &target.name).map(drop),
    };
    if let Some(access) = &access {
        let actions: &[Action] = match mode {
            M::AccessShare => &[Action::TableSelect],
            M::RowExclusive => &[Action::TableInsert, Action::TableUpdate, Action::TableDelete, Action::TableTruncate],
            _ => &[Action::TableUpdate, Action::TableDelete, Action::TableTruncate],
        };
        access.one_of(actions, "table", &schema, &name)?;
        session.shared.still(access, &schema, &name, true)?;
    }
    let open = session.transaction.in_block("LOCK TABLE")?;
    let locks = open.row_locks().clone();
    let wanted = match mode {
        M::AccessShare => None,
        M::RowShare | M::RowExclusive => Some(LockMode::Shared),
        _ => Some(LockMode::Alone),
    };
    let Some(wanted) = wanted else { return open.keep_definition(table.id) };
    if !locks.try_take(TABLES, &table_key(table.id), wanted) {
        if !nowait {
            return Err(SqlError::Again("another transaction has locked the table".into()));
        }
        locks.take_wanted();
        let message = format!("could not obtain lock on relation \"{name}\"");
        return Err(SqlError::transaction("55P03", message));
    }
    open.keep_definition(table.id)
}
