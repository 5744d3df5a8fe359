//! Checks FOREIGN KEY constraints: when rows are written, and at the end of each statement.
//!
//! ```text
//!   a row refers to a key   --the key is shared--> looked for among what is committed now --there----> done
//!                                                                                         --not yet--> again at the end: 23503
//!   a key is removed        --at the end the key is taken alone--> rows that refer to it, as committed now:
//!                             none, 23503, deleted too, or their columns are NULL
//! ```
//!
//! Why no row is ever without its key: say one transaction refers to a key and another one removes it. Each has its lock of the key
//! (`session::key_locks`) before it looks, and until it has ended, so one of the two looks after the other one has ended. It does not look in
//! its snapshot, which may be older: who refers to a key looks for it in a snapshot that is taken when it has the lock
//! ([`KeyFinder::is_there`]); who removes one looks for rows in a snapshot that is renewed then, or, in REPEATABLE READ, fails if
//! others have written rows of that table since its own (40001). So it sees what the other one has done, and refuses. Both also keep
//! the definition of the other table, so that no constraint comes, changes or goes meanwhile: what makes one has both tables alone.
//!
//! What a transaction has itself added or removed counts as it is in its own view: nobody else can change that key meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, SelectItem, Statement, Value};
use store::KEY_BYTES_MAX;

use super::{changed_table, check_constraints};
use crate::engine::parse::ast;
use crate::engine::session::pending_keys::{KeyValues, Removal, RemovedKeys};
use crate::engine::session::row_locks::{LockOwner, Wanted};
use crate::engine::session::transaction::SessionTransaction;
use crate::engine::{Engine, Session};
use crate::table::found_key::{FoundKey, key_of};
use crate::table::index::VALUE;
use crate::table::key::{self, KeyColumn};
use crate::table::{ADDRESS, ColumnStore, ForeignKey, KeyAction, Table, View};
use crate::{ErrorObject, SqlError};

/// Keys for which rows are looked for at a time: fewer than the ranges of one index in a query.
const KEYS_AT_A_TIME: usize = 64;

/// Looks for keys of a table.
struct KeyFinder<'a> {
    table: &'a Table,
    found: FoundKey<'a>,
    columns: Vec<KeyColumn<'a>>,
}

impl<'a> KeyFinder<'a> {
    /// For keys with these values, an array for each of the columns. Errors: XX000.
    fn new(table: &'a Table, columns: &[usize], values: &[&'a ArrayRef]) -> Result<KeyFinder<'a>, SqlError> {
        let missing = || SqlError::Engine(Box::new(crate::ErrorFields::new("XX000", "a foreign key refers to no key")));
        let found = key_of(table, columns).ok_or_else(missing)?;
        let order = match found {
            FoundKey::Primary => &table.key,
            FoundKey::Unique(index) => &index.columns,
        };
        let place = |at: &usize| columns.iter().position(|column| column == at).ok_or_else(missing);
        let columns =
            order.iter().map(|at| Ok(KeyColumn::new(values[place(at)?]))).collect::<Result<Vec<_>, SqlError>>()?;
        Ok(KeyFinder { table, found, columns })
    }

    /// The bytes of a key, which has no NULL.
    fn encode(&self, row: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for column in &self.columns {
            if matches!(self.found, FoundKey::Unique(_)) {
                bytes.push(VALUE);
            }
            column.encode(row, &mut bytes);
        }
        bytes
    }

    /// The name of a key among the locks of its table's keys.
    fn lock_name(&self, key: &[u8]) -> Vec<u8> {
        let number = match self.found {
            FoundKey::Primary => 0,
            FoundKey::Unique(index) => index.number,
        };
        [number.to_be_bytes().as_slice(), key].concat()
    }

    fn is_in(&self, engine: &Engine, view: &View, key: &[u8]) -> Result<bool, SqlError> {
        if key.len() > KEY_BYTES_MAX {
            return Ok(false);
        }
        match self.found {
            FoundKey::Unique(index) => Ok(view.get(index.tree(), key)?.is_some()),
            FoundKey::Primary if view.get(self.table.rows, key)?.is_some() => Ok(true),
            FoundKey::Primary => Ok(engine.columns.find(view, self.table, key, &[])?.is_some()),
        }
    }

    /// Whether a key, whose lock the transaction has, is there: as it has itself made it, or else as it is committed now.
    fn is_there(&self, transaction: &SessionTransaction, key: &[u8]) -> Result<bool, SqlError> {
        let engine = transaction.engine();
        let newest = View::Snapshot(engine.store.snapshot());
        // What it has not written it sees as its snapshot says: only what is committed now counts.
        if !transaction.has_written(self.table.id) {
            return self.is_in(engine, &newest, key);
        }
        let own = transaction.own_view();
        let is_own = self.is_in(engine, &own, key)?;
        let was = self.is_in(engine, &View::Snapshot(own.snapshot()?), key)?;
        if is_own == was { self.is_in(engine, &newest, key) } else { Ok(is_own) }
    }
}

/// Keeps the tables that foreign keys connect with this one, into which the statement writes; `assigned`: only these columns change.
///
/// Errors: [`SqlError::Again`] if another transaction changes one of them.
pub(crate) fn prepare(session: &mut Session, table: &Arc<Table>, assigned: Option<Vec<usize>>) -> Result<(), SqlError> {
    if table.foreign_keys.is_empty() && table.referenced.is_empty() {
        return Ok(());
    }
    let catalog = session.shared.catalog();
    let Some(open) = session.transaction.open_mut() else { return Ok(()) };
    if let Some(columns) = assigned {
        let own = table.foreign_keys.iter().map(|key| &key.columns).chain(&table.referenced);
        let is_one = own.flatten().any(|at| columns.contains(at));
        open.pending_keys().set_assigned(table.id, columns);
        if !is_one {
            return Ok(());
        }
    }
    for other in catalog.tables().filter(|other| table.refers_to(other.id) || other.refers_to(table.id)) {
        open.keep_definition(other.id)?;
        open.pending_keys().keep(other);
    }
    open.pending_keys().keep(table);
    Ok(())
}

/// Rows of a table are written: looks for the keys to which they refer. Those that are not there are looked for again at the end.
///
/// Errors: [`SqlError::Again`] if another transaction removes one.
pub(crate) fn note_written(
    transaction: &SessionTransaction,
    table: &Table,
    columns: &[ArrayRef],
    rows: &[usize],
) -> Result<(), SqlError> {
    for (at, foreign) in table.foreign_keys.iter().enumerate() {
        if !transaction.pending_keys().may_change(table.id, &foreign.columns) {
            continue;
        }
        let parent = transaction.pending_keys().table(foreign.parent)?;
        let arrays: Vec<&ArrayRef> = foreign.columns.iter().map(|at| &columns[*at]).collect();
        let finder = KeyFinder::new(&parent, &foreign.parent_columns, &arrays)?;
        let mut seen = HashSet::new();
        for row in rows {
            if arrays.iter().any(|array| array.is_null(*row)) {
                continue;
            }
            let key = finder.encode(*row);
            if key.len() > KEY_BYTES_MAX {
                // No key is so long: it is not kept until the end.
                let values: Vec<ArrayRef> = arrays.iter().map(|array| array.slice(*row, 1)).collect();
                return Err(not_there(table, foreign, &parent, &values));
            }
            if seen.contains(&key) {
                continue;
            }
            if !(share(transaction, &finder, &key)? && finder.is_there(transaction, &key)?) {
                let values = arrays.iter().map(|array| ScalarValue::try_from_array(array, *row));
                let values = values.collect::<Result<Vec<_>, _>>()?;
                transaction.pending_keys().miss((table.id, at), key.clone(), values)?;
            }
            seen.insert(key);
        }
    }
    Ok(())
}

/// Whether it shares the lock of a key now; the rows of a COPY cannot come again, so it waits at its end.
fn share(transaction: &SessionTransaction, finder: &KeyFinder<'_>, key: &[u8]) -> Result<bool, SqlError> {
    let locks = transaction.row_locks();
    match locks.share_key(finder.table.id, &finder.lock_name(key)) {
        true => Ok(true),
        false if transaction.locks_rows => Err(removed_now()),
        false => {
            locks.take_wanted();
            Ok(false)
        }
    }
}

fn removed_now() -> SqlError {
    SqlError::Again("another transaction removes a key that a foreign key needs, or refers to it".into())
}

/// Looks again for the keys that were not there. Errors: 23503; [`SqlError::Again`] with what it has to wait for.
fn look_again(transaction: &SessionTransaction) -> Result<(), SqlError> {
    let missing = transaction.pending_keys().take_missing();
    for ((table, at), keys) in &missing {
        let (table, parent) = {
            let pending = transaction.pending_keys();
            let table = pending.table(*table)?;
            let parent = pending.table(table.foreign_keys[*at].parent)?;
            (table, parent)
        };
        let foreign = &table.foreign_keys[*at];
        for values in keys.values() {
            let arrays = values.iter().map(|value| value.to_array()).collect::<Result<Vec<ArrayRef>, _>>()?;
            let finder = KeyFinder::new(&parent, &foreign.parent_columns, &arrays.iter().collect::<Vec<_>>())?;
            let key = finder.encode(0);
            if !transaction.row_locks().share_key(parent.id, &finder.lock_name(&key)) {
                transaction.pending_keys().put_back(missing);
                return Err(removed_now());
            }
            if !finder.is_there(transaction, &key)? {
                return Err(not_there(&table, foreign, &parent, &arrays));
            }
        }
    }
    Ok(())
}

/// The end of a COPY: what it has to wait for before this is called again, if anything. Errors: 23503.
pub(crate) fn end_of_copy(transaction: &SessionTransaction) -> Result<Option<(Arc<LockOwner>, Wanted)>, SqlError> {
    match (look_again(transaction), transaction.row_locks().take_wanted()) {
        (Err(SqlError::Again(_)), Some(wanted)) => Ok(Some((transaction.row_locks().clone(), wanted))),
        (looked, _) => looked.map(|()| None),
    }
}

/// Waits for that. Errors: 40P01, 55P03.
pub(crate) async fn wait((locks, wanted): (Arc<LockOwner>, Wanted), most: Duration) -> Result<(), SqlError> {
    locks.wait(&wanted, most).await
}

fn names(table: &Table, columns: &[usize]) -> Vec<String> {
    columns.iter().map(|at| table.columns[*at].name.clone()).collect()
}

pub(crate) fn not_there(table: &Table, foreign: &ForeignKey, parent: &Table, values: &[ArrayRef]) -> SqlError {
    let (name, columns) = (&foreign.name, names(table, &foreign.columns));
    let message = format!("insert or update on table \"{}\" violates foreign key constraint \"{name}\"", table.name);
    let key = format!("Key ({})=({})", columns.join(", "), key::display(values, 0));
    let error = SqlError::value("23503", message);
    error.with_detail(format!("{key} is not present in table \"{}\".", parent.name)).about(ErrorObject {
        schema: table.schema_name.clone(),
        table: table.name.clone(),
        constraint: Some(name.clone()),
        told: columns.into_iter().map(|column| (column, String::new())).collect(),
        ..ErrorObject::default()
    })
}

/// The end of a statement: removed keys are followed to the rows that refer to them, and what was not there is looked for again.
///
/// Errors: 23503; [`SqlError::Again`]; those of rows that change with a key.
pub(crate) async fn check(session: &mut Session) -> Result<(), SqlError> {
    loop {
        let Some(open) = session.transaction.open() else { return Ok(()) };
        if !open.pending_keys().has_some() {
            return Ok(());
        }
        let removed = open.pending_keys().take_removed();
        match removed {
            // Few statements come here: the others' futures stay small.
            Some(removed) => Box::pin(follow(session, &removed)).await?,
            None => look_again(open)?,
        }
    }
}

/// Follows removed keys of a table.
async fn follow(session: &mut Session, removed: &RemovedKeys) -> Result<(), SqlError> {
    let Some(open) = session.transaction.open() else { return Ok(()) };
    let table = open.pending_keys().table(removed.table)?;
    let mut gone = KeyValues::new();
    for (bytes, values) in &removed.keys {
        let arrays = values.iter().map(|value| value.to_array()).collect::<Result<Vec<ArrayRef>, _>>()?;
        let finder = KeyFinder::new(&table, &removed.columns, &arrays.iter().collect::<Vec<_>>())?;
        let key = finder.encode(0);
        if !open.row_locks().take_key_alone(table.id, &finder.lock_name(&key)) {
            return Err(removed_now());
        }
        // A key that the same statement has added again is not gone.
        if !finder.is_in(open.engine(), &open.own_view(), &key)? {
            gone.insert(bytes.clone(), values.clone());
        }
    }
    // From here on the view has what is committed now.
    session.refresh()?;
    let catalog = session.shared.catalog();
    let children: Vec<Arc<Table>> = catalog.tables().filter(|one| one.refers_to(table.id)).cloned().collect();
    for child in &children {
        let own = child.foreign_keys.iter();
        for foreign in own.filter(|key| key.parent == table.id && key.parent_columns == removed.columns) {
            let action = match removed.removal {
                Removal::Deleted => foreign.on_delete,
                Removal::Updated => foreign.on_update,
            };
            match action {
                KeyAction::NoAction => refuse(session, &table, (child, foreign), &gone).await?,
                KeyAction::Restrict => refuse(session, &table, (child, foreign), &removed.keys).await?,
                KeyAction::Cascade | KeyAction::SetNull => act(session, (child, foreign), &removed.keys).await?,
            }
            sees_all(session, child)?;
        }
    }
    Ok(())
}

/// Refuses to rely on what was found in a table in a view that could not be renewed, if others have written there since.
///
/// Errors: [`SqlError::Again`].
fn sees_all(session: &Session, table: &Table) -> Result<(), SqlError> {
    match session.transaction.open() {
        Some(open) if !open.moves(session.is_read()) => open.sees_all(table.id),
        _ => Ok(()),
    }
}

/// The query for the rows that refer to keys; `items` are its columns.
fn rows_of(
    (child, foreign): (&Table, &ForeignKey),
    keys: &[&Vec<ScalarValue>],
    items: Vec<SelectItem>,
) -> Result<(Statement, Vec<ScalarValue>), SqlError> {
    let mut parameters = Vec::new();
    let mut condition: Option<Expr> = None;
    for values in keys {
        let mut one: Option<Expr> = None;
        for (at, value) in foreign.columns.iter().zip(values.iter()) {
            parameters.push(value.clone());
            let placeholder = Value::Placeholder(format!("${}", parameters.len()));
            let column = ast::column_of(&child.name, &child.columns[*at].name);
            one = joined(one, BinaryOperator::And, binary(column, BinaryOperator::Eq, Expr::Value(placeholder.into())));
        }
        if let Some(one) = one {
            condition = joined(condition, BinaryOperator::Or, Expr::Nested(Box::new(one)));
        }
    }
    Ok((ast::select(items, vec![ast::addressed(child, &child.name)?], condition)?, parameters))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn joined(before: Option<Expr>, op: BinaryOperator, next: Expr) -> Option<Expr> {
    Some(match before {
        Some(before) => binary(before, op, next),
        None => next,
    })
}

fn parts(keys: &KeyValues) -> Vec<Vec<&Vec<ScalarValue>>> {
    let all: Vec<&Vec<ScalarValue>> = keys.values().collect();
    all.chunks(KEYS_AT_A_TIME).map(<[_]>::to_vec).collect()
}

/// Refuses the statement if a row refers to one of the keys. Errors: 23503.
async fn refuse(
    session: &Session,
    table: &Table,
    (child, foreign): (&Table, &ForeignKey),
    keys: &KeyValues,
) -> Result<(), SqlError> {
    for keys in parts(keys) {
        let columns = names(child, &foreign.columns);
        let named = columns.iter().enumerate();
        let items = named.map(|(nth, column)| ast::named(ast::column_of(&child.name, column), &format!("${nth}")));
        let (mut query, parameters) = rows_of((child, foreign), &keys, items.collect())?;
        ast::limit_to_one(&mut query);
        let (_, batches) = changed_table::collect(session, &query, &parameters).await?;
        if let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) {
            return Err(still_referenced(session, table, (child, foreign), batch));
        }
    }
    Ok(())
}

fn still_referenced(
    session: &Session,
    table: &Table,
    (child, foreign): (&Table, &ForeignKey),
    batch: &RecordBatch,
) -> SqlError {
    let (name, columns) = (&foreign.name, names(table, &foreign.parent_columns));
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{name}\" on table \"{}\"",
        table.name, child.name
    );
    // As in PostgreSQL the key is told to who may read it.
    let may_read =
        |column: &String| session.access().is_none_or(|access| access.reads(&table.schema_name, &table.name, column));
    let key = match columns.iter().all(may_read) {
        true => format!("Key ({})=({})", columns.join(", "), key::display(batch.columns(), 0)),
        false => "Key".to_owned(),
    };
    let error = SqlError::value("23503", message);
    let error = error.with_detail(format!("{key} is still referenced from table \"{}\".", child.name));
    error.of_constraint(&child.schema_name, &child.name, name)
}

/// Deletes the rows that refer to keys, or makes their columns NULL.
async fn act(
    session: &mut Session,
    (child, foreign): (&Arc<Table>, &ForeignKey),
    keys: &KeyValues,
) -> Result<(), SqlError> {
    let deletes = match foreign.on_delete {
        KeyAction::SetNull => false,
        KeyAction::Cascade | KeyAction::NoAction | KeyAction::Restrict => true,
    };
    let what = if deletes { "DELETE" } else { "UPDATE" };
    session.changing(what)?.lock(child.id, false)?;
    prepare(session, child, None)?;
    check_constraints::prepare(session, child).await?;
    for keys in parts(keys) {
        let mut items = vec![ast::named(ast::column_of(&child.name, ADDRESS), ADDRESS)];
        if !deletes {
            let all = child.columns.iter().enumerate();
            items.extend(
                all.map(|(nth, column)| ast::named(ast::column_of(&child.name, &column.name), &format!("${nth}"))),
            );
        }
        let (query, parameters) = rows_of((child, foreign), &keys, items)?;
        let (_, batches) = changed_table::collect(session, &query, &parameters).await?;
        // One after the other: joined they would be there twice.
        for batch in batches.into_iter().filter(|batch| batch.num_rows() > 0) {
            let transaction = session.changing(what)?;
            let engine = transaction.engine().clone();
            if deletes {
                engine.delete_rows(transaction, child, batch.column(0))?;
                continue;
            }
            let mut values = batch.columns()[1..].to_vec();
            for at in &foreign.columns {
                values[*at] = new_null_array(values[*at].data_type(), batch.num_rows());
            }
            // Nothing else of the rows changes: their other keys are there, or are followed themselves.
            transaction.pending_keys().set_assigned(child.id, foreign.columns.clone());
            let updated = engine.update_rows(transaction, child, batch.column(0), &values);
            transaction.pending_keys().clear_assigned();
            updated?;
        }
    }
    Ok(())
}
