//! INSERT .. ON CONFLICT DO UPDATE.

use datafusion::arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;

use crate::support::{check, run, run_with, session};

#[tokio::test]
async fn rows_that_are_there_are_changed_and_others_inserted() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (k int PRIMARY KEY, v int, n text DEFAULT 'd')", "CREATE TABLE"),
            ("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')", "INSERT 0 3"),
            ("INSERT INTO t (k, v) VALUES (2, 200), (4, 400) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v", "INSERT 0 2"),
            ("SELECT * FROM t ORDER BY k", "1|10|a\n2|200|b\n3|30|c\n4|400|d"),
            ("INSERT INTO t (k, v) VALUES (4, 1), (1, 5) ON CONFLICT (k) DO UPDATE SET v = t.v + excluded.v, n = DEFAULT RETURNING k, v, n", "4|401|d\n1|15|d"),
            ("INSERT INTO t AS o VALUES (1, 7), (2, 7), (9, 7) ON CONFLICT ON CONSTRAINT t_pkey DO UPDATE SET v = 7 WHERE o.v < 100 RETURNING *", "1|7|d\n9|7|d"),
            ("INSERT INTO t SELECT k, k * 1000 FROM t ON CONFLICT (k) DO UPDATE SET v = (SELECT max(x.v) FROM t AS x) + excluded.k WHERE t.k = 3", "INSERT 0 1"),
            ("SELECT v FROM t WHERE k = 3", "404"),
            ("INSERT INTO t VALUES (3, 1) ON CONFLICT (k) DO UPDATE SET v = 2.6, n = k", "error 42702"),
            ("INSERT INTO t VALUES (3, 1) ON CONFLICT (k) DO UPDATE SET v = 2.6, n = t.k", "INSERT 0 1"),
            ("SELECT v, n FROM t WHERE k = 3", "3|3"),
            ("INSERT INTO t VALUES (3, 1) ON CONFLICT (k) DO UPDATE SET k = 30", "INSERT 0 1"),
            ("INSERT INTO t VALUES (30, 1) ON CONFLICT (k) DO UPDATE SET k = 4", "error 23505"),
            ("INSERT INTO t VALUES (30, 1) ON CONFLICT (k) DO UPDATE SET k = NULL", "error 23502"),
            ("SELECT k FROM t ORDER BY k", "1\n2\n4\n9\n30"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_statement_may_not_touch_a_row_twice_and_then_touches_none() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE TABLE"),
            ("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT 0 2"),
            ("INSERT INTO t VALUES (3, 1), (1, 5), (1, 6) ON CONFLICT (k) DO UPDATE SET v = excluded.v", "error 21000"),
            ("INSERT INTO t VALUES (3, 1), (3, 2) ON CONFLICT (k) DO UPDATE SET v = excluded.v", "error 21000"),
            ("INSERT INTO t VALUES (1, 5), (1, 6) ON CONFLICT (k) DO UPDATE SET v = excluded.v + 0", "error 21000"),
            (
                "INSERT INTO t VALUES (1, 9), (1, 0) ON CONFLICT (k) DO UPDATE SET v = 4 WHERE excluded.v = 9",
                "error 21000",
            ),
            ("SELECT * FROM t ORDER BY k", "1|1\n2|2"),
            (
                "INSERT INTO t VALUES (1, 0), (1, 9) ON CONFLICT (k) DO UPDATE SET v = 4 WHERE excluded.v = 9",
                "INSERT 0 1",
            ),
            (
                "INSERT INTO t VALUES (2, 0), (2, 0) ON CONFLICT (k) DO UPDATE SET v = 4 WHERE excluded.v = 9",
                "INSERT 0 0",
            ),
            ("SELECT * FROM t ORDER BY k", "1|4\n2|2"),
            ("INSERT INTO t VALUES (1, 5) ON CONFLICT DO UPDATE SET v = 1", "error 42601"),
            ("INSERT INTO t VALUES (1, 5) ON CONFLICT (v) DO UPDATE SET v = 1", "error 42P10"),
            ("INSERT INTO t VALUES (1, 5) ON CONFLICT (x) DO UPDATE SET v = 1", "error 42703"),
            ("INSERT INTO t VALUES (1, 5) ON CONFLICT (k) DO UPDATE SET x = 1", "error 42703"),
            ("INSERT INTO t VALUES (1, 5) ON CONFLICT (k) DO UPDATE SET v = excluded.x", "error 42703"),
            ("INSERT INTO t VALUES (NULL, 5) ON CONFLICT (k) DO UPDATE SET v = 1", "error 23502"),
            ("BEGIN READ ONLY", "BEGIN"),
            ("INSERT INTO t VALUES (1, 5) ON CONFLICT (k) DO UPDATE SET v = 1", "error 25006"),
            ("ROLLBACK", "ROLLBACK"),
        ],
    )
    .await;
}

#[tokio::test]
async fn parameters_have_the_types_of_their_columns_and_changes_belong_to_the_transaction() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (a int, b text, v bigint, PRIMARY KEY (b, a)); INSERT INTO t VALUES (1, 'x', 1)").await;
    let sql = "INSERT INTO t VALUES ($1, $2, $3) ON CONFLICT (a, b) DO UPDATE SET v = $4 WHERE t.v < $5 RETURNING v";
    let prepared = s.prepare(sql, &[]).await.unwrap();
    let types: Vec<_> = prepared[0].parameter_types().iter().map(|kind| kind.clone().unwrap()).collect();
    assert_eq!(types[..4], [DataType::Int32, DataType::Utf8View, DataType::Int64, DataType::Int64]);
    assert_eq!(types[4], DataType::Int64);
    assert_eq!(prepared[0].schema().unwrap().field(0).name(), "v");
    check(&mut s, &[("BEGIN", "BEGIN"), ("INSERT INTO t VALUES (2, 'x', 2)", "INSERT 0 1")]).await;
    let values = |a: i32, v: i64| {
        let number = |n| ScalarValue::Int64(Some(n));
        [ScalarValue::Int32(Some(a)), ScalarValue::Utf8(Some("x".into())), number(v), number(v * 10), number(100)]
    };
    assert_eq!(run_with(&mut s, sql, &values(2, 7)).await, "70", "a row of the transaction's own");
    assert_eq!(run_with(&mut s, sql, &values(1, 8)).await, "80");
    assert_eq!(run_with(&mut s, sql, &values(3, 9)).await, "9");
    check(&mut s, &[("ROLLBACK", "ROLLBACK"), ("SELECT * FROM t", "1|x|1")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_beside_each_other_loses_nothing() {
    let engine = crate::support::engine();
    run(&mut engine.session("a"), "CREATE TABLE t (k int PRIMARY KEY, n int)").await;
    let adder = |mut session: sql::Session| async move {
        for _ in 0..15 {
            let sql = "INSERT INTO t VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET n = t.n + excluded.n";
            assert_eq!(run(&mut session, sql).await, "INSERT 0 1");
        }
    };
    let tasks: Vec<_> = ["a", "b", "c"].map(|user| tokio::spawn(adder(engine.session(user)))).into();
    for task in tasks {
        task.await.unwrap();
    }
    check(&mut engine.session("d"), &[("SELECT n FROM t", "45")]).await;
}
