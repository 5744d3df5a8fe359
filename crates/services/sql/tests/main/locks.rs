//! What statements and transactions leave behind: locks of rows, and keys that count as changed.

use sql::StatementResult;
use store::{Options, Store};

use crate::support::{check, engine, run, with_row_groups_of};
use crate::waiting::begin_waiting;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_waited_and_finds_nothing_leaves_no_lock() {
    for (sql, answer) in [
        ("UPDATE t SET v = 0 WHERE id = 1", "UPDATE 0"),
        ("UPDATE t SET v = 0 WHERE v = 1", "UPDATE 0"),
        ("DELETE FROM t WHERE id = 1", "DELETE 0"),
        ("SELECT v FROM t WHERE id = 1 FOR UPDATE", ""),
    ] {
        let engine = engine();
        let (mut a, mut b, mut c) = (engine.session("a"), engine.session("b"), engine.session("c"));
        run(&mut a, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)").await;
        check(&mut a, &[("BEGIN", "BEGIN"), ("DELETE FROM t WHERE id = 1", "DELETE 1")]).await;
        check(&mut b, &[("BEGIN", "BEGIN"), ("UPDATE t SET v = 3 WHERE id = 2", "UPDATE 1")]).await;
        let waiting = begin_waiting(&engine, b, sql, 1).await;
        check(&mut a, &[("COMMIT", "COMMIT")]).await;
        let (mut b, got) = waiting.await.expect("no panic");
        assert_eq!(got, answer, "{sql}");
        check(
            &mut c,
            &[
                ("SET lock_timeout = '100ms'", "SET"),
                ("INSERT INTO t VALUES (1, 5)", "INSERT 0 1"),
                // What an earlier statement has locked stays locked.
                ("UPDATE t SET v = 4 WHERE id = 2", "error 55P03"),
            ],
        )
        .await;
        check(&mut b, &[("COMMIT", "COMMIT")]).await;
    }
}

#[tokio::test]
async fn keys_of_row_groups_that_were_undone_conflict_with_nothing() {
    let engine = with_row_groups_of(Store::in_memory(Options::default()).expect("memory is enough"), 10);
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    check(
        &mut a,
        &[
            ("BEGIN", "BEGIN"),
            ("INSERT INTO t VALUES (100, 0)", "INSERT 0 1"),
            ("SAVEPOINT s", "SAVEPOINT"),
            ("INSERT INTO t SELECT i, i FROM generate_series(1, 25) AS g(i)", "INSERT 0 25"),
            ("ROLLBACK TO s", "ROLLBACK"),
        ],
    )
    .await;
    check(&mut b, &[("INSERT INTO t VALUES (5, 5)", "INSERT 0 1")]).await;
    check(
        &mut a,
        &[
            ("SELECT count(*) FROM t", "2"),
            ("INSERT INTO t SELECT i, i FROM generate_series(10, 35) AS g(i)", "INSERT 0 26"),
            ("COMMIT", "COMMIT"),
            ("SELECT count(*) FROM t", "28"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_change_beside_rows_that_are_still_read_fails_at_once_and_not_at_commit() {
    for sql in ["UPDATE t SET v = v + 10 WHERE id = 1", "UPDATE t SET v = v + 10", "INSERT INTO t VALUES (2, 0)"] {
        let engine = engine();
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        run(&mut a, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)").await;
        check(&mut a, &[("BEGIN", "BEGIN"), ("INSERT INTO t VALUES (9, 9)", "INSERT 0 1")]).await;
        let prepared = a.prepare("SELECT * FROM t", &[]).await.expect("it is SQL");
        let Ok(StatementResult::Rows { stream, .. }) = a.execute(&prepared[0], &[]).await else { panic!("a query") };
        check(&mut b, &[("UPDATE t SET v = v + 1 WHERE id = 1; DELETE FROM t WHERE id = 2", "UPDATE 1\nDELETE 1")])
            .await;
        check(&mut a, &[(sql, "error 40001"), ("ROLLBACK", "ROLLBACK")]).await;
        drop(stream);
        check(&mut a, &[("BEGIN", "BEGIN"), ("INSERT INTO t VALUES (9, 9)", "INSERT 0 1"), ("COMMIT", "COMMIT")]).await;
    }
}
