//! `pg_locks`: the locks of tables, advisory locks, and the transactions for whose rows others wait.
//!
//! | locktype | what | mode |
//! |---|---|---|
//! | `relation` | a table whose rows a transaction changes or locks; LOCK TABLE; a definition | `RowExclusiveLock`; `ExclusiveLock`; `AccessExclusiveLock`, or `AccessShareLock` if it is only kept |
//! | `transactionid` | as in PostgreSQL, a transaction, for the rows that it has: itself, and who waits | `ExclusiveLock`, `ShareLock` |
//! | `advisory` | a number, or two | `ShareLock`, `ExclusiveLock` |
//!
//! Rows for which nobody waits are not listed, nor are readers, who lock nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, BooleanArray, Int16Array, Int32Array, StringArray, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::backends::{Backends, DATABASE};
use super::session_objects::number;
use crate::engine::session::row_locks::shown::ShownLock;
use crate::engine::session::row_locks::{LockKey, LockMode};
use crate::wire::oid::OID_ALIAS;

/// The catalog of locks.
pub(super) const LOCKS: &str = "pg_locks";

/// `pg_locks`: the locks when it is read, not when it is planned.
#[derive(Debug)]
pub(super) struct LocksTable(pub(super) Backends);

#[async_trait]
impl TableProvider for LocksTable {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = batch(&lines(&self.0)?)?;
        MemTable::try_new(schema(), vec![vec![batch]])?.scan(state, projection, filters, limit).await
    }
}

/// A row.
#[derive(Debug, Default)]
struct Line {
    kind: &'static str,
    relation: Option<u32>,
    transaction: Option<u64>,
    /// classid, objid and objsubid of an advisory lock.
    advisory: Option<(i32, i32, i16)>,
    owner: Option<u64>,
    process: i32,
    mode: &'static str,
    is_granted: bool,
}

fn lines(backends: &Backends) -> Result<Vec<Line>> {
    let engine = backends.engine();
    let processes: HashMap<u64, i32> = backends.processes().into_iter().collect();
    let catalog = engine.tables()?;
    let oids: HashMap<u64, u32> =
        catalog.tables().map(|table| (table.id, number(&[&table.schema_name, &table.name]))).collect();
    let mut lines = Vec::new();
    let shown = engine.row_locks.shown();
    let mut waited: HashMap<LockKey, u64> = HashMap::new();
    for lock in shown.iter().filter(|lock| lock.is_granted) {
        waited.entry(lock.key).or_insert(lock.owner);
    }
    let (mut transactions, mut with_rows) = (HashSet::new(), HashSet::new());
    for lock in &shown {
        // The engine's own thread is no connection; nor is a session of the node itself.
        let Some(process) = processes.get(&lock.session) else { continue };
        if let LockKey::Table(table) = lock.key {
            with_rows.insert((table, lock.session));
        }
        let of_row = matches!(lock.key, LockKey::Row(_) | LockKey::Keys(..));
        if !(of_row && lock.is_granted && !transactions.insert(lock.owner)) {
            lines.push(line(lock, *process, &oids, waited.get(&lock.key).copied()));
        }
    }
    for (table, session, is_alone) in engine.locks.shown() {
        let Some(process) = processes.get(&session) else { continue };
        if is_alone || !with_rows.contains(&(table, session)) {
            let mode = if is_alone { "AccessExclusiveLock" } else { "AccessShareLock" };
            let relation = oids.get(&table).copied();
            lines.push(Line {
                kind: "relation",
                relation,
                process: *process,
                mode,
                is_granted: true,
                ..Line::default()
            });
        }
    }
    lines.sort_by_key(|line| (line.process, line.kind, line.relation, line.advisory));
    Ok(lines)
}

/// `holder`: the transaction that has the row.
fn line(lock: &ShownLock, process: i32, oids: &HashMap<u64, u32>, holder: Option<u64>) -> Line {
    let alone = if lock.mode == LockMode::Alone { "ExclusiveLock" } else { "ShareLock" };
    let line = Line { owner: Some(lock.owner), process, mode: alone, is_granted: lock.is_granted, ..Line::default() };
    match lock.key {
        LockKey::Table(table) => {
            let mode = if lock.mode == LockMode::Alone { "ExclusiveLock" } else { "RowExclusiveLock" };
            Line { kind: "relation", relation: oids.get(&table).copied(), mode, ..line }
        }
        LockKey::Number(number) => {
            let (high, low) = ((number >> 32) as i32, number as i32);
            Line { kind: "advisory", advisory: Some((high, low, 1)), ..line }
        }
        LockKey::Pair(first, second) => Line { kind: "advisory", advisory: Some((first, second, 2)), ..line },
        LockKey::Row(_) | LockKey::Keys(..) => {
            let mode = if lock.is_granted { "ExclusiveLock" } else { "ShareLock" };
            let transaction = if lock.is_granted { Some(lock.owner) } else { holder };
            Line { kind: "transactionid", transaction, mode, ..line }
        }
    }
}

/// The columns that are always NULL, or are a number without a sign in PostgreSQL, are those of PostgreSQL all the same.
fn schema() -> SchemaRef {
    let plain = |name: &str, kind: DataType| Field::new(name, kind, true);
    let oid = |name: &str| {
        Field::new(name, DataType::Int32, true).with_metadata(HashMap::from([(OID_ALIAS.to_owned(), "oid".to_owned())]))
    };
    Arc::new(Schema::new(vec![
        plain("locktype", DataType::Utf8),
        oid("database"),
        oid("relation"),
        plain("page", DataType::Int32),
        plain("tuple", DataType::Int16),
        plain("virtualxid", DataType::Utf8),
        plain("transactionid", DataType::Int32),
        oid("classid"),
        oid("objid"),
        plain("objsubid", DataType::Int16),
        plain("virtualtransaction", DataType::Utf8),
        plain("pid", DataType::Int32),
        plain("mode", DataType::Utf8),
        plain("granted", DataType::Boolean),
        plain("fastpath", DataType::Boolean),
        plain("waitstart", DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()))),
    ]))
}

fn batch(lines: &[Line]) -> Result<RecordBatch> {
    let schema = schema();
    let none = |at: usize| new_null_array(schema.field(at).data_type(), lines.len());
    let texts = |text: &dyn Fn(&Line) -> String| -> ArrayRef {
        Arc::new(lines.iter().map(|line| Some(text(line))).collect::<StringArray>())
    };
    let numbers = |number: &dyn Fn(&Line) -> Option<i32>| -> ArrayRef {
        Arc::new(lines.iter().map(number).collect::<Int32Array>())
    };
    let database = |line: &Line| (line.kind != "transactionid").then_some(DATABASE);
    let columns: Vec<ArrayRef> = vec![
        texts(&|line| line.kind.to_owned()),
        numbers(&database),
        numbers(&|line| line.relation.map(|oid| oid as i32)),
        none(3),
        none(4),
        none(5),
        numbers(&|line| line.transaction.map(|owner| owner as i32)),
        numbers(&|line| line.advisory.map(|(class, ..)| class)),
        numbers(&|line| line.advisory.map(|(_, object, _)| object)),
        Arc::new(lines.iter().map(|line| line.advisory.map(|(.., sub)| sub)).collect::<Int16Array>()),
        texts(&|line| format!("{}/{}", line.process, line.owner.unwrap_or_default())),
        numbers(&|line| Some(line.process)),
        texts(&|line| line.mode.to_owned()),
        Arc::new(lines.iter().map(|line| Some(line.is_granted)).collect::<BooleanArray>()),
        Arc::new(BooleanArray::from(vec![false; lines.len()])),
        none(15),
    ];
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}
