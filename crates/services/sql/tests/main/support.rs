//! A session on a store in memory, and results as text.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::scalar::ScalarValue;
use futures::TryStreamExt;
use sql::{Engine, EngineOptions, Session, SqlError, StatementResult};
use store::{Options, Store};

pub(crate) fn engine() -> Arc<Engine> {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    Engine::new(store, EngineOptions { threads: 2, ..EngineOptions::default() }).expect("an engine starts")
}

/// An engine with small row groups, which are made when the test requests it.
pub(crate) fn with_row_groups_of(store: Store, row_group_rows: usize) -> Arc<Engine> {
    let options = EngineOptions { threads: 2, row_group_rows, tuple_mover: None, ..EngineOptions::default() };
    Engine::new(store, options).expect("an engine starts")
}

pub(crate) fn session() -> Session {
    engine().session("tester")
}

/// Runs one text; returns each statement's result as lines `a|b`, or its tag. An error is `error CODE`.
pub(crate) async fn run(session: &mut Session, sql: &str) -> String {
    run_with(session, sql, &[]).await
}

pub(crate) async fn run_with(session: &mut Session, sql: &str, parameters: &[ScalarValue]) -> String {
    match try_run(session, sql, parameters).await {
        Ok(text) => text,
        Err(error) => format!("error {}: {error}", error.code()),
    }
}

pub(crate) async fn try_run(session: &mut Session, sql: &str, parameters: &[ScalarValue]) -> Result<String, SqlError> {
    let mut lines = Vec::new();
    for prepared in session.prepare(sql, &[]).await? {
        match session.execute(&prepared, parameters).await? {
            StatementResult::Done { tag } => lines.push(tag),
            StatementResult::Rows { stream, .. } => {
                let batches: Vec<_> = stream.try_collect().await?;
                let options = FormatOptions::default().with_null("NULL");
                for batch in batches {
                    let columns: Vec<_> = batch
                        .columns()
                        .iter()
                        .map(|c| ArrayFormatter::try_new(c.as_ref(), &options).expect("every type is shown"))
                        .collect();
                    for row in 0..batch.num_rows() {
                        let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
                        lines.push(cells.join("|"));
                    }
                }
            }
            other => lines.push(format!("{other:?}")),
        }
    }
    Ok(lines.join("\n"))
}

/// COPY .. FROM STDIN of those columns.
pub(crate) async fn copy(session: &mut Session, sql: &str, columns: Vec<ArrayRef>) -> Result<u64, SqlError> {
    let prepared = session.prepare(sql, &[]).await?;
    let StatementResult::CopyIn(mut copy) = session.execute(&prepared[0], &[]).await? else { panic!("no COPY") };
    let fields = copy.schema.fields().iter().zip(&columns);
    let fields: Vec<_> =
        fields.map(|(field, array)| Field::new(field.name(), array.data_type().clone(), true)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns fit their schema");
    copy.push(batch).await?;
    copy.finish().await
}

/// Runs each text and compares its result; an expected `error 23505` needs only to be the beginning.
pub(crate) async fn check(session: &mut Session, script: &[(&str, &str)]) {
    for (sql, expected) in script {
        let got = run(session, sql).await;
        if expected.starts_with("error") {
            assert!(got.starts_with(expected), "{sql}\n  gave {got}\n  not  {expected}");
        } else {
            assert_eq!(got, *expected, "{sql}");
        }
    }
}

/// Runs statements on a thread with the stack that sessions have.
pub(crate) fn on_a_sessions_stack(statements: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_stack_size(sql::STACK_BYTES)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async { tokio::spawn(statements).await.expect("nobody panicked") });
}
