//! Concurrent sessions, COPY, virtual tables, cancelling.

use std::ops::Bound;
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::scalar::ScalarValue;
use futures::TryStreamExt;
use sql::{
    Engine, EngineOptions, ScanRequest, Session, SessionState, SqlError, StatementResult, VirtualRows, VirtualScan,
    VirtualTable,
};
use store::{Options, Snapshot, Store};

use crate::support::{check, copy, engine, run, session};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_of_a_statement_on_its_own_is_lost() {
    let engine = engine();
    run(&mut engine.session("a"), "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)").await;
    let adder = |mut session: Session| async move {
        for _ in 0..20 {
            assert_eq!(run(&mut session, "UPDATE t SET v = v + 1").await, "UPDATE 1");
        }
    };
    let tasks: Vec<_> = ["a", "b", "c"].map(|user| tokio::spawn(adder(engine.session(user)))).into();
    for task in tasks {
        task.await.unwrap();
    }
    check(&mut engine.session("d"), &[("SELECT v FROM t", "60")]).await;
}

#[tokio::test]
async fn copied_rows_belong_to_the_transaction_and_a_failed_copy_fails_it() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, v text DEFAULT 'd')").await;
    let ids = |ids: Vec<&str>| Arc::new(StringArray::from(ids)) as ArrayRef;
    assert_eq!(copy(&mut s, "COPY t (id) FROM STDIN", vec![ids(vec!["1", "2"])]).await.unwrap(), 2);
    check(&mut s, &[("SELECT * FROM t ORDER BY id", "1|d\n2|d"), ("BEGIN", "BEGIN")]).await;
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![3]));
    assert_eq!(copy(&mut s, "COPY t (v, id) FROM STDIN", vec![ids(vec!["x"]), numbers]).await.unwrap(), 1);
    assert_eq!(s.state(), SessionState::InTransaction);
    check(&mut s, &[("SELECT v FROM t WHERE id = 3", "x")]).await;
    let failed = copy(&mut s, "COPY t (id) FROM STDIN WITH (FORMAT csv)", vec![ids(vec!["4", "1"])]).await;
    assert_eq!(failed.unwrap_err().code(), "23505");
    assert_eq!(s.state(), SessionState::Failed);
    check(&mut s, &[("COMMIT", "ROLLBACK"), ("SELECT count(*) FROM t", "2")]).await;
    assert_eq!(run(&mut s, "COPY t FROM '/etc/passwd'").await[..11], *"error 0A000");
}

#[tokio::test]
async fn what_follows_a_copy_is_planned_in_its_transaction() {
    let mut s = session();
    check(&mut s, &[("BEGIN", "BEGIN"), ("CREATE TABLE t (id int)", "CREATE TABLE")]).await;
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![3]));
    assert_eq!(copy(&mut s, "COPY t FROM STDIN", vec![numbers]).await.unwrap(), 1);
    check(&mut s, &[("SELECT count(*) FROM t", "1"), ("COMMIT", "COMMIT")]).await;
}

#[tokio::test]
async fn rows_are_copied_into_the_table_that_was_looked_up() {
    let engine = engine();
    let mut s = engine.session("a");
    run(&mut s, "CREATE TABLE t (id int)").await;
    let prepared = s.prepare("COPY t FROM STDIN", &[]).await.unwrap();
    let StatementResult::CopyIn(mut open) = s.execute(&prepared[0], &[]).await.unwrap() else { panic!("no COPY") };
    check(&mut engine.session("b"), &[("TRUNCATE t", "error 40001"), ("DROP TABLE t", "error 40001")]).await;
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, true)]));
    open.push(RecordBatch::try_new(schema, vec![Arc::new(Int32Array::from(vec![3]))]).unwrap()).await.unwrap();
    assert_eq!(open.finish().await.unwrap(), 1);
    check(&mut s, &[("SELECT id FROM t", "3")]).await;
    let failed = copy(&mut s, "COPY nosuch FROM STDIN", Vec::new()).await;
    assert_eq!((failed.unwrap_err().code(), s.state()), ("42P01", SessionState::Idle));
}

#[tokio::test]
async fn a_session_that_is_to_read_only_changes_nothing() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (id int)", "CREATE TABLE"),
            ("BEGIN READ ONLY", "BEGIN"),
            ("BEGIN", "BEGIN"),
            ("SHOW transaction_read_only", "on"),
            ("DELETE FROM t", "error 25006"),
            ("ROLLBACK", "ROLLBACK"),
            ("SET default_transaction_read_only = yes", "SET"),
            ("SET default_transaction_read_only = perhaps", "error 22023"),
            ("SHOW default_transaction_read_only", "on"),
            ("INSERT INTO t VALUES (1)", "error 25006"),
            ("UPDATE t SET id = 2", "error 25006"),
            ("TRUNCATE t", "error 25006"),
            ("CREATE TABLE u (id int)", "error 25006"),
            ("CREATE VIEW u AS SELECT 1 AS a", "error 25006"),
            ("DROP TABLE t", "error 25006"),
            ("COPY t FROM STDIN", "error 25006"),
            ("SELECT count(*) FROM t", "0"),
            ("BEGIN", "BEGIN"),
            ("DELETE FROM t", "error 25006"),
            ("ROLLBACK", "ROLLBACK"),
            ("BEGIN READ WRITE", "BEGIN"),
            ("INSERT INTO t VALUES (1)", "INSERT 0 1"),
            ("COMMIT", "COMMIT"),
            ("SET default_transaction_read_only = off", "SET"),
            ("INSERT INTO t VALUES (1)", "INSERT 0 1"),
        ],
    )
    .await;
}

/// Numbers 0 to 99 with their squares; it records its requests.
#[derive(Debug)]
struct Squares {
    asked: Mutex<Vec<ScanRequest>>,
}

impl VirtualTable for Squares {
    fn schema(&self) -> SchemaRef {
        let field = |name: &str| Field::new(name, DataType::Int32, false);
        Arc::new(Schema::new(vec![field("n"), field("square")]))
    }

    fn scan(&self, _snapshot: &Snapshot, request: &ScanRequest) -> Result<Arc<dyn VirtualScan>, SqlError> {
        self.asked.lock().expect("nobody panicked").push(request.clone());
        let column = |power: u32| Arc::new((0..100).map(|n: i32| n.pow(power)).collect::<Int32Array>()) as ArrayRef;
        let whole = RecordBatch::try_new(self.schema(), vec![column(1), column(2)])?;
        Ok(Arc::new(SquaresScan(whole.project(&request.projection)?)))
    }
}

struct SquaresScan(RecordBatch);

impl VirtualScan for SquaresScan {
    fn rows(&self, partition: usize) -> VirtualRows {
        assert_eq!(partition, 0, "it has one");
        Box::new(std::iter::once(Ok(self.0.clone())))
    }
}

#[tokio::test]
async fn a_relation_is_asked_for_what_the_query_needs_and_checked_again() {
    let squares = Arc::new(Squares { asked: Mutex::default() });
    let virtual_tables: Vec<(String, Arc<dyn VirtualTable>)> = vec![("lab.squares".into(), squares.clone())];
    let options = EngineOptions { virtual_tables, ..EngineOptions::default() };
    let engine = Engine::new(Store::in_memory(Options::default()).unwrap(), options).unwrap();
    let mut s = engine.session("u");
    check(&mut s, &[("SELECT square FROM lab.squares WHERE n = 7", "49")]).await;
    let asked = squares.asked.lock().unwrap().pop().unwrap();
    let seven = Bound::Included(ScalarValue::Int32(Some(7)));
    assert_eq!((asked.bounds.len(), asked.bounds[0].column), (1, 0));
    assert_eq!((&asked.bounds[0].from, &asked.bounds[0].to), (&seven, &seven));
    check(
        &mut s,
        &[
            ("SELECT count(*), sum(n) FROM lab.squares WHERE square >= 100 AND n < 20", "10|145"),
            ("DELETE FROM lab.squares", "error 42809"),
            ("CREATE TABLE lab.squares (a int)", "error 42P07"),
            ("DROP TABLE lab.squares", "error 42809"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_query_ends_and_fails_its_transaction() {
    let mut s = session();
    check(&mut s, &[("BEGIN", "BEGIN")]).await;
    let sql = "SELECT a.i FROM generate_series(1, 1000000000) AS a(i) WHERE a.i % 7 = 8";
    let prepared = s.prepare(sql, &[]).await.unwrap();
    let StatementResult::Rows { stream, .. } = s.execute(&prepared[0], &[]).await.unwrap() else { panic!("no rows") };
    let canceller = s.canceller();
    let reading = tokio::spawn(async move { stream.try_collect::<Vec<_>>().await });
    tokio::task::spawn_blocking(move || canceller.cancel()).await.unwrap();
    let error = SqlError::from(reading.await.unwrap().unwrap_err());
    assert_eq!(error.code(), "57014");
    assert_eq!(s.state(), SessionState::Failed);
}

#[tokio::test]
async fn settings_follow_the_transaction_that_set_them() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("SET application_name = 'one'", "SET"),
            ("BEGIN", "BEGIN"),
            ("SET application_name = 'two'", "SET"),
            ("SHOW application_name", "two"),
            ("ROLLBACK", "ROLLBACK"),
            ("SHOW application_name", "one"),
            ("BEGIN", "BEGIN"),
            ("SET LOCAL application_name = 'three'", "SET"),
            ("SHOW application_name", "three"),
            ("COMMIT", "COMMIT"),
            ("SHOW application_name", "one"),
            ("SET LOCAL application_name = 'four'", "SET"),
            ("SHOW application_name", "one"),
            ("BEGIN", "BEGIN"),
            ("SET application_name = 'five'", "SET"),
            ("SET LOCAL application_name = 'six'", "SET"),
            ("COMMIT", "COMMIT"),
            ("SHOW application_name", "five"),
            (
                "BEGIN; SET application_name = 'seven'; SAVEPOINT s; SET application_name = 'eight'",
                "BEGIN\nSET\nSAVEPOINT\nSET",
            ),
            ("ROLLBACK TO s", "ROLLBACK"),
            ("SHOW application_name", "seven"),
            ("SET application_name = 'nine'; RELEASE s; COMMIT", "SET\nRELEASE\nCOMMIT"),
            ("SHOW application_name", "nine"),
        ],
    )
    .await;
    // Statements that came as one text.
    s.begin_implicit();
    check(&mut s, &[("SET application_name = 'ten'", "SET"), ("SELECT 1 / 0", "error 22012")]).await;
    s.end_implicit().await.expect("it is rolled back");
    check(&mut s, &[("SHOW application_name", "nine")]).await;
    s.begin_implicit();
    check(&mut s, &[("SET application_name = 'ten'", "SET"), ("SET LOCAL application_name = 'eleven'", "SET")]).await;
    check(&mut s, &[("SHOW application_name", "eleven")]).await;
    s.end_implicit().await.expect("it commits");
    check(&mut s, &[("SHOW application_name", "ten")]).await;
}
