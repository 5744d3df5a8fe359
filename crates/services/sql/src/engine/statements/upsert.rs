//! INSERT .. ON CONFLICT (key) DO UPDATE: of the primary key, or of a unique index.
//!
//! ```text
//!   proposed row --its key is new----> inserted
//!                --its key exists----> existing row, and EXCLUDED --WHERE--> SET --> updated
//!                                                                      \-----> not changed
//! ```
//!
//! Existing rows are found by their keys. They and the rows proposed for them become two small tables, and SET and
//! WHERE become a query over both, which DataFusion runs. The exception is SET of EXCLUDED columns only, which is the
//! most frequent form: this file does it itself.
//!
//! A statement must not change a row twice (21000, as in PostgreSQL): the result would depend on the order of the
//! proposed rows. Nothing is written before all of them were checked.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{concat, concat_batches, take};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{BinaryOperator, DoUpdate, Expr, SelectItem, Statement};

use super::changed_table;
use super::changed_table::{ChangedRows, InsertTarget};
use super::point_query::{self, FoundRow};
use super::row_changes::{Arbiter, Existing, KeyEncoder, check_rows};
use super::update_delete::{Assigned, assigned, new_values};
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::folded;
use crate::engine::semantics::assignment_casts::assign;
use crate::engine::{Session, StatementResult};
use crate::table::Table;
use crate::table::column_copies::{copied, owned};
use crate::table::index::IndexEncoder;
use crate::table::providers::Reads;
use crate::table::referenced_rows::ReferencedRows;

/// The name of proposed rows in SET and WHERE.
const EXCLUDED: &str = "excluded";
/// The engine's own table of existing rows.
const THERE: &str = "there";
/// The engine's own table of the rows proposed for them.
const PROPOSED: &str = "proposed";
/// The column of both tables whose value joins the rows that belong together.
const PAIR: &str = "$pair";

/// Proposed rows, sorted by what is done with them.
struct Sorted {
    /// Positions of rows whose key is new.
    new: Vec<usize>,
    /// Positions of rows whose key exists.
    known: Vec<usize>,
    /// For each of `known` the address of the existing row.
    addresses: Vec<Vec<u8>>,
    /// For each of `known` the existing row.
    there: RecordBatch,
}

/// New values for some of the existing rows.
struct Updates {
    /// For each of [`Sorted::known`] the index of its new values; `None` if WHERE excluded it.
    of: Vec<Option<usize>>,
    /// All columns.
    values: Vec<ArrayRef>,
}

/// Inserts rows with all of the table's columns, in its types, or changes the existing ones.
pub(crate) async fn upsert(
    session: &mut Session,
    into: &InsertTarget<'_>,
    columns: Vec<ArrayRef>,
    (update, arbiter): (&DoUpdate, Arbiter),
    returning: Option<&Vec<SelectItem>>,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let table = into.table.clone();
    check_rows(session.changing("INSERT")?, &table, &columns)?;
    let sorted = sort(session, &table, &columns, arbiter)?;
    let assigned = assigned(&table, &update.assignments)?;
    let proposed = taken(&columns, &sorted.known)?;
    let updates = match plain(&table, &assigned, update, &proposed, &sorted.there) {
        Some(values) => Updates { of: (0..sorted.known.len()).map(Some).collect(), values },
        None if sorted.known.is_empty() => Updates { of: Vec::new(), values: taken(&columns, &[])? },
        None => {
            let open = assigned.open.clone();
            let values = query(into, assigned, update)?;
            updates(session, &table, (values, open), &proposed, &sorted.there, parameters).await?
        }
    };
    let mut changed = HashSet::new();
    let (mut rows, mut addresses, mut picked) = (Vec::new(), Vec::new(), Vec::new());
    for ((row, address), value) in sorted.known.iter().zip(&sorted.addresses).zip(&updates.of) {
        if changed.contains(address) {
            return Err(twice());
        }
        if let Some(value) = value {
            changed.insert(address);
            rows.push(*row);
            addresses.push(address.as_slice());
            picked.push(*value);
        }
    }
    let (inserted, updated) = (taken(&columns, &sorted.new)?, taken(&updates.values, &picked)?);
    let transaction = session.changing("INSERT")?;
    let engine = transaction.engine().clone();
    engine.insert_rows(transaction, &table, &inserted, Existing::Refuse)?;
    let addresses: ArrayRef = Arc::new(BinaryArray::from_vec(addresses));
    engine.update_rows(transaction, &table, &addresses, &updated)?;
    let rows: Vec<usize> = sorted.new.iter().copied().chain(rows).collect();
    let batch = match returning {
        Some(_) => vec![in_order(&table, &inserted, &updated, &rows)?],
        None => Vec::new(),
    };
    let (table, alias) = (&*table, into.alias.as_str());
    let change = ChangedRows { tag: "INSERT 0", table, alias, count: rows.len(), rows: batch, returning };
    changed_table::changed(session, change, parameters).await
}

/// Searches for the keys of proposed rows.
fn sort(session: &Session, table: &Arc<Table>, columns: &[ArrayRef], arbiter: Arbiter) -> Result<Sorted, SqlError> {
    let keys = KeyEncoder::new(table, columns);
    let all = point_query::all_columns(table);
    let index = match arbiter {
        Arbiter::Index(at) => Some(IndexEncoder::new(&table.indexes[at], columns)),
        Arbiter::Any | Arbiter::Key => None,
    };
    let view = session.shared.view();
    // The address is the last column.
    let addressed: Vec<usize> = (0..=all.len()).collect();
    let mut referenced = ReferencedRows::new(table, &view, &*session.engine.columns, &addressed)?;
    let (mut new, mut known, mut addresses, mut there) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut key, mut fresh) = (Vec::new(), HashSet::new());
    for row in 0..columns.first().map_or(0, |column| column.len()) {
        let found = match &index {
            // NULL equals nothing.
            Some(index) if !index.is_unique(row) => {
                new.push(row);
                continue;
            }
            Some(index) => {
                index.encode(row, &[], &mut key)?;
                match view.get(index.index.tree(), &key)? {
                    Some(reference) => Some(without_address(referenced.get(&index.index.name, &reference)?, &all)?),
                    None => None,
                }
            }
            None => {
                keys.encode(row, &mut key)?;
                point_query::find(session, &view, table, &key, &all)?
            }
        };
        match found {
            Some(found) => {
                known.push(row);
                addresses.push(found.address);
                there.push(owned(&found.row, copied)?);
            }
            None if fresh.insert(key.clone()) => new.push(row),
            None => return Err(twice()),
        }
    }
    let there = concat_batches(&table.schema, &there)?;
    Ok(Sorted { new, known, addresses, there })
}

/// A row whose last column is its address; `all` are the positions of the others.
fn without_address(row: RecordBatch, all: &[usize]) -> Result<FoundRow, SqlError> {
    let address = row.column(all.len()).as_binary::<i32>().value(0).to_vec();
    Ok(FoundRow { address, row: row.project(all)? })
}

/// Computes the new values of existing rows with DataFusion: the result of a query, and which values have an open type.
async fn updates(
    session: &Session,
    table: &Table,
    (query, open): (Statement, Vec<bool>),
    proposed: &[ArrayRef],
    there: &RecordBatch,
    parameters: &[ScalarValue],
) -> Result<Updates, SqlError> {
    show_pairs(session, table, proposed, there.columns())?;
    let outcome = changed_table::collect(session, &query, parameters).await;
    hide_pairs(session);
    let (schema, batches) = outcome?;
    let batch = changed_table::joined(&schema, &batches)?;
    let mut of = vec![None; there.num_rows()];
    for (value, pair) in batch.column(0).as_primitive::<Int64Type>().values().iter().enumerate() {
        of[*pair as usize] = Some(value);
    }
    let values = batch.columns()[1..].iter().zip(&table.columns).zip(open);
    let values = values.map(|((array, column), open)| assign(array, column, open)).collect::<Result<_, _>>()?;
    Ok(Updates { of, values })
}

/// Types of the parameters of DO UPDATE.
pub(crate) async fn upsert_parameters(
    session: &Session,
    into: &InsertTarget<'_>,
    update: &DoUpdate,
    found: &mut Vec<Option<DataType>>,
) -> Result<(), SqlError> {
    let assigned = assigned(&into.table, &update.assignments)?;
    found.resize(found.len().max(assigned.parameters.len()), None);
    for (known, kind) in found.iter_mut().zip(&assigned.parameters) {
        *known = known.take().or_else(|| kind.clone());
    }
    let query = query(into, assigned, update)?;
    let none = RecordBatch::new_empty(into.table.schema.clone());
    show_pairs(session, &into.table, none.columns(), none.columns())?;
    let outcome = changed_table::parameters_of(session, &query, found).await;
    hide_pairs(session);
    outcome
}

fn show_pairs(session: &Session, table: &Table, proposed: &[ArrayRef], there: &[ArrayRef]) -> Result<(), SqlError> {
    let schema = paired(table);
    for (name, columns) in [(PROPOSED, proposed), (THERE, there)] {
        let rows = columns.first().map_or(0, |column| column.len()) as i64;
        let pairs: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let columns = columns.iter().cloned().chain([pairs]).collect();
        let batch = RecordBatch::try_new(schema.clone(), columns)?;
        session.shared.make(name, Some(MemTable::try_new(schema.clone(), vec![vec![batch]])?));
    }
    Ok(())
}

fn hide_pairs(session: &Session) {
    session.shared.make(PROPOSED, None);
    session.shared.make(THERE, None);
}

/// The table's columns, and the pair column.
fn paired(table: &Table) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = table.schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(PAIR, DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

/// The query for the pairs that fulfil WHERE, with the values of SET.
fn query(into: &InsertTarget<'_>, assigned: Assigned, update: &DoUpdate) -> Result<Statement, SqlError> {
    let pair = |alias: &str| ast::column_of(alias, PAIR);
    let mut items = vec![ast::named(pair(EXCLUDED), PAIR)];
    items.extend(new_values(&into.table, &into.alias, assigned.values));
    let is = |left: Expr, op, right: Expr| Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) };
    let mut condition = is(pair(&into.alias), BinaryOperator::Eq, pair(EXCLUDED));
    if let Some(selection) = &update.selection {
        condition = is(condition, BinaryOperator::And, Expr::Nested(Box::new(selection.clone())));
    }
    let from = vec![ast::made(THERE, &into.alias)?, ast::made(PROPOSED, EXCLUDED)?];
    ast::select(items, from, Some(condition))
}

/// The new values if SET uses only columns of EXCLUDED and there is no WHERE.
fn plain(
    table: &Table,
    assigned: &Assigned,
    update: &DoUpdate,
    proposed: &[ArrayRef],
    there: &RecordBatch,
) -> Option<Vec<ArrayRef>> {
    if update.selection.is_some() {
        return None;
    }
    let excluded = |expr: &Expr| match expr {
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [of, name] if folded(of) == EXCLUDED => table.position(&folded(name)),
            _ => None,
        },
        _ => None,
    };
    let columns = assigned.values.iter().enumerate().map(|(at, value)| match value {
        None => Some(there.column(at).clone()),
        // Columns of the same type only: other columns are converted, or refused, in the general path.
        Some(value) => excluded(value)
            .filter(|from| table.columns[*from].kind == table.columns[at].kind)
            .map(|from| proposed[from].clone()),
    });
    columns.collect()
}

fn twice() -> SqlError {
    SqlError::value("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time").with_hint(
        "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
    )
}

fn taken(columns: &[ArrayRef], rows: &[usize]) -> Result<Vec<ArrayRef>, SqlError> {
    let rows = UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64));
    Ok(columns.iter().map(|column| take(column, &rows, None)).collect::<Result<_, _>>()?)
}

/// Inserted and updated rows as one batch, in the order in which they were proposed: `rows` contains the position of
/// each.
fn in_order(
    table: &Table,
    inserted: &[ArrayRef],
    updated: &[ArrayRef],
    rows: &[usize],
) -> Result<RecordBatch, SqlError> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| rows[*at]);
    let both = inserted.iter().zip(updated).map(|(new, changed)| concat(&[new.as_ref(), changed.as_ref()]));
    let both: Vec<ArrayRef> = both.collect::<Result<_, _>>()?;
    changed_table::picked(table, &taken(&both, &order)?, &(0..rows.len()).collect::<Vec<_>>())
}
