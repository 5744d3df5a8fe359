//! SELECT .. FOR UPDATE and FOR SHARE: the query is run over the table with its addresses, and each row of the result is locked.
//!
//! A row that was changed since the statement's snapshot is not what the query has found: the statement runs again
//! ([`super::repeats`]), with its locks. With SKIP LOCKED the limit counts the rows that were locked, as in PostgreSQL, so that it is
//! applied here.

use datafusion::arrow::array::{Array, AsArray, BinaryArray, RecordBatch, UInt64Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, LimitClause, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
    TableFactor, Visit, Visitor,
};
use futures::{TryStreamExt, stream};
use node::identity::Action;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use store::TreeId;

use super::changed_table;
use super::point_query;
use super::read_columns::ReadColumns;
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::{Literal, folded};
use crate::engine::parse::row_locking::{Busy, RowLocking};
use crate::engine::plan::{column_labels, prepared};
use crate::engine::session::isolation::Isolation;
use crate::engine::session::row_locks::{LockMode, LockOwner};
use crate::engine::{Session, StatementResult};
use crate::table::providers::Reads;
use crate::table::{ADDRESS, COLUMN_TAG, ColumnStore, ROW_TAG, Table};

/// Rows for which the lock of commits is asked at a time.
const ROWS_AT_A_TIME: usize = 1024;

/// The rows that the query returns, counted while they are locked.
#[derive(Clone, Copy)]
struct Bounds {
    skip: usize,
    most: usize,
}

/// Runs such a query in the open transaction.
///
/// Errors: [`SqlError::Again`] if it has to run again; 55P03 with NOWAIT; 42501, 25006, 0A000.
pub(crate) async fn select(
    session: &mut Session,
    locking: RowLocking,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let words = if locking.is_shared { "SELECT FOR SHARE" } else { "SELECT FOR UPDATE" };
    let (Statement::Query(query), Some(TableFactor::Table { name, alias, .. })) = (statement, relation(statement))
    else {
        return Err(SqlError::unsupported(words));
    };
    // As in PostgreSQL, both rights are needed, the second one on any column.
    changed_table::table(session, name, Action::TableSelect)?;
    let table = changed_table::table(session, name, Action::TableUpdate)?;
    let alias = alias.as_ref().map_or_else(|| table.name.clone(), |alias| folded(&alias.name));
    let Some(select) = select_of(query) else { return Err(SqlError::unsupported(words)) };
    let read = ReadColumns::of(&table).add(query.as_ref()).add_items(Some(&select.projection));
    changed_table::may_read(session, &table, read)?;
    refuse_aggregates(session, query, words)?;
    session.changing(words)?.lock(table.id, false)?;
    if locking.busy == Busy::Wait && !locking.is_shared {
        point_query::lock(session, &table, &alias, select.selection.as_ref(), parameters)?;
    }
    let (addressed, bounds) = addressed(query, &table, &alias, locking.busy, parameters)?;
    let plan = prepared::plan_query(&session.context, &addressed).await?;
    let mut rows = session.run(plan, parameters).await?;
    let width = rows.schema().fields().len() - 1;
    let schema = Arc::new(rows.schema().project(&(0..width).collect::<Vec<_>>())?);
    let mut taker = Taker { locking, table: &table, bounds, locked: 0, waits: false };
    let mut batches = Vec::new();
    while taker.locked < bounds.most.saturating_add(bounds.skip) {
        let Some(batch) = rows.try_next().await? else { break };
        batches.push(Ok(taker.take(session, &batch)?));
    }
    drop(rows);
    if taker.waits {
        return Err(SqlError::Again("another transaction has locked one of the rows".into()));
    }
    if let (0, Some(transaction)) = (taker.locked, session.transaction.open()) {
        transaction.row_locks().give_back_statement();
    }
    let labelled = column_labels::labelled(statement, &schema);
    let rows = Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches)));
    let stream = column_labels::relabel(rows, labelled.clone());
    Ok(StatementResult::Rows { schema: labelled, stream, tag: "SELECT" })
}

/// Locks rows while they come.
struct Taker<'a> {
    locking: RowLocking,
    table: &'a Table,
    bounds: Bounds,
    /// Rows locked so far.
    locked: usize,
    /// Whether another transaction has one of the rows.
    waits: bool,
}

impl Taker<'_> {
    /// The rows of a batch that were locked, without their addresses.
    fn take(&mut self, session: &Session, batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
        let width = batch.num_columns() - 1;
        let addresses = batch.column(width).as_binary::<i32>();
        let (mut kept, mut next): (Vec<u64>, usize) = (Vec::with_capacity(batch.num_rows()), 0);
        while next < addresses.len() {
            // No more than the statement still needs: rows beyond its limit are not locked.
            let needed = self.bounds.most.saturating_add(self.bounds.skip) - self.locked;
            let end = addresses.len().min(next.saturating_add(needed.min(ROWS_AT_A_TIME)));
            if end == next {
                break;
            }
            for row in self.lock(session, addresses, next..end)? {
                self.locked += 1;
                if self.locked > self.bounds.skip {
                    kept.push(row as u64);
                }
            }
            next = end;
        }
        let columns = batch.project(&(0..width).collect::<Vec<_>>())?;
        Ok(take_record_batch(&columns, &UInt64Array::from(kept))?)
    }

    /// Locks rows. Returns those that were, as the query has found them.
    fn lock(&mut self, session: &Session, addresses: &BinaryArray, rows: Range<usize>) -> Result<Vec<usize>, SqlError> {
        let Some(transaction) = session.transaction.open() else { return Ok(rows.collect()) };
        let (locks, before) = (transaction.row_locks(), transaction.row_locks().count());
        let (mut locked, mut places) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for row in rows {
            let (tree, key) = place(session, self.table, addresses.value(row))?;
            let mode = if self.locking.is_shared { LockMode::Shared } else { LockMode::Alone };
            if locks.try_take(tree, &key, mode) {
                locked.push(row);
                places.push((tree, key));
            } else {
                self.busy(locks)?;
            }
        }
        let current = transaction.are_current(&places)?;
        if current.iter().all(|is_current| *is_current) {
            return Ok(locked);
        }
        if self.locking.busy != Busy::Skip || transaction.isolation != Isolation::ReadCommitted {
            return Err(SqlError::Again("another transaction has changed one of the rows".into()));
        }
        // They were locked a moment ago, by whom has changed them.
        let gone = places.iter().zip(&current).filter(|(_, is_current)| !**is_current);
        locks.give_back_some(before, gone.map(|((tree, key), _)| (*tree, key.as_slice())));
        Ok(locked.into_iter().zip(current).filter(|(_, is_current)| *is_current).map(|(row, _)| row).collect())
    }

    /// Another transaction has a row. Errors: [`SqlError::Again`], 55P03.
    fn busy(&mut self, locks: &LockOwner) -> Result<(), SqlError> {
        match self.locking.busy {
            Busy::Wait if locks.is_in_order() => {
                return Err(SqlError::Again("another transaction has locked one of the rows".into()));
            }
            Busy::Wait => self.waits = true,
            Busy::Skip => drop(locks.take_wanted()),
            Busy::Refuse => {
                locks.take_wanted();
                let message = format!("could not obtain lock on row in relation \"{}\"", self.table.name);
                return Err(SqlError::transaction("55P03", message));
            }
        }
        Ok(())
    }
}

/// Where a row is stored: what changes it changes this key.
fn place(session: &Session, table: &Table, address: &[u8]) -> Result<(TreeId, Vec<u8>), SqlError> {
    match address.split_first() {
        Some((&ROW_TAG, key)) => Ok((table.rows, key.to_vec())),
        Some((&COLUMN_TAG, _)) => session.engine.columns.place(&session.shared.view(), table, address),
        _ => Err(store::StoreError::Corrupt("the address of a row cannot be read".into()).into()),
    }
}

fn select_of(query: &Query) -> Option<&Select> {
    match query.body.as_ref() {
        SetExpr::Select(select) => Some(select),
        _ => None,
    }
}

fn relation(statement: &Statement) -> Option<&TableFactor> {
    let Statement::Query(query) = statement else { return None };
    Some(&select_of(query)?.from.first()?.relation)
}

/// The query over the table with its addresses, which are its last column; and how many of its rows are returned.
fn addressed(
    query: &Query,
    table: &Table,
    alias: &str,
    busy: Busy,
    parameters: &[ScalarValue],
) -> Result<(Statement, Bounds), SqlError> {
    let mut query = query.clone();
    let mut bounds = Bounds { skip: 0, most: usize::MAX };
    if busy == Busy::Skip {
        bounds = limits(&query, parameters)?;
        (query.limit_clause, query.fetch) = (None, None);
    }
    if let SetExpr::Select(select) = query.body.as_mut() {
        let mut items = Vec::new();
        for item in std::mem::take(&mut select.projection) {
            match &item {
                SelectItem::Wildcard(_)
                | SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(_), _) => {
                    let column = |name: &str| SelectItem::UnnamedExpr(ast::column_of(alias, name));
                    items.extend(table.columns.iter().map(|one| column(&one.name)));
                }
                _ => items.push(item),
            }
        }
        items.push(ast::named(ast::column_of(alias, ADDRESS), ADDRESS));
        select.projection = items;
        select.from = vec![ast::addressed(table, alias)?];
    }
    Ok((Statement::Query(Box::new(query)), bounds))
}

/// LIMIT and OFFSET. Errors: 0A000 for others than numbers and parameters.
fn limits(query: &Query, parameters: &[ScalarValue]) -> Result<Bounds, SqlError> {
    let refused = || SqlError::unsupported("SKIP LOCKED with another LIMIT or OFFSET than a number");
    let number = |expr: &Expr| -> Result<usize, SqlError> {
        match ast::literal(expr, parameters)? {
            Some(Literal::Number(text)) => text.parse().map_err(|_| refused()),
            Some(Literal::Parameter(value)) => value.to_string().parse().map_err(|_| refused()),
            _ => Err(refused()),
        }
    };
    if query.fetch.is_some() {
        return Err(SqlError::unsupported("SKIP LOCKED with FETCH").with_hint("Use LIMIT."));
    }
    match &query.limit_clause {
        None => Ok(Bounds { skip: 0, most: usize::MAX }),
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => Ok(Bounds {
            most: limit.as_ref().map_or(Ok(usize::MAX), number)?,
            skip: offset.as_ref().map_or(Ok(0), |offset| number(&offset.value))?,
        }),
        Some(_) => Err(refused()),
    }
}

/// Refuses functions whose result is not one of a row. Errors: 0A000.
fn refuse_aggregates(session: &Session, query: &Query, words: &str) -> Result<(), SqlError> {
    struct Aggregates<'a>(&'a dyn Fn(&Function) -> bool, usize);
    impl Visitor for Aggregates<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.1 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.1 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) if self.1 == 1 && (self.0)(function) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let state = session.context.state();
    let is_one = |function: &Function| {
        function.over.is_some() || state.aggregate_functions().contains_key(&function.name.to_string().to_lowercase())
    };
    match query.visit(&mut Aggregates(&is_one, 0)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(SqlError::unsupported(format!("{words} with aggregate and window functions"))),
    }
}
