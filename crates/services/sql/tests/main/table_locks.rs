//! LOCK TABLE: who waits for whom. Where nothing else is said, PostgreSQL 15 does the same.

use crate::rights::{engine_and_guard, session_of};
use crate::support::{check, engine, run};
use crate::waiting::begin_waiting;

/// The modes, by what they keep out here.
const SHARED: [&str; 2] = ["ROW SHARE", "ROW EXCLUSIVE"];
const ALONE: [&str; 5] = ["SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"];

const SETUP: &str = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_changes_or_locks_rows_waits_for_the_lock_of_the_table_and_readers_do_not() {
    for (second, answer) in [
        ("UPDATE t SET v = v + 10 WHERE id = 1", "UPDATE 1"),
        ("INSERT INTO t VALUES (3, 3)", "INSERT 0 1"),
        ("DELETE FROM t WHERE id = 1", "DELETE 1"),
        ("SELECT v FROM t WHERE id = 1 FOR UPDATE", "5"),
        ("BEGIN; LOCK t IN SHARE MODE", "BEGIN\nLOCK TABLE"),
        ("BEGIN; LOCK t IN ROW EXCLUSIVE MODE; SELECT v FROM t WHERE id = 1", "BEGIN\nLOCK TABLE\n5"),
    ] {
        let engine = engine();
        let mut first = engine.session("first");
        run(&mut first, SETUP).await;
        check(&mut first, &[("BEGIN; LOCK TABLE t IN EXCLUSIVE MODE", "BEGIN\nLOCK TABLE")]).await;
        run(&mut first, "UPDATE t SET v = 5 WHERE id = 1").await;
        let waiting = begin_waiting(&engine, engine.session("second"), second, 1).await;
        check(&mut engine.session("reader"), &[("SELECT sum(v) FROM t", "3")]).await;
        check(&mut first, &[("COMMIT", "COMMIT")]).await;
        assert_eq!(waiting.await.expect("no panic").1, answer, "{second}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_table_waits_for_those_that_have_changed_its_rows() {
    let engine = engine();
    let mut writer = engine.session("writer");
    run(&mut writer, SETUP).await;
    run(&mut writer, "BEGIN; UPDATE t SET v = 9 WHERE id = 1").await;
    let mut other = engine.session("other");
    for mode in ALONE {
        let nowait = format!("BEGIN; LOCK t IN {mode} MODE NOWAIT");
        let refused = "error 55P03: could not obtain lock on relation \"t\"";
        check(&mut other, &[(&nowait, refused), ("ROLLBACK", "ROLLBACK")]).await;
    }
    for mode in SHARED.iter().chain(&["ACCESS SHARE"]) {
        let shared = format!("BEGIN; LOCK t IN {mode} MODE NOWAIT");
        check(&mut other, &[(&shared, "BEGIN\nLOCK TABLE"), ("ROLLBACK", "ROLLBACK")]).await;
    }
    let late = "SET lock_timeout = '20ms'; BEGIN; LOCK t";
    check(&mut other, &[(late, "error 55P03: canceling statement due to lock timeout"), ("ROLLBACK", "ROLLBACK")])
        .await;
    run(&mut other, "SET lock_timeout = 0").await;
    let waiting = begin_waiting(&engine, other, "BEGIN; LOCK t; SELECT v FROM t WHERE id = 1", 1).await;
    check(&mut writer, &[("UPDATE t SET v = v + 1 WHERE id = 1", "UPDATE 1"), ("COMMIT", "COMMIT")]).await;
    assert_eq!(waiting.await.expect("no panic").1, "BEGIN\nLOCK TABLE\n10");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatable_read_sees_what_was_committed_when_it_got_the_lock() {
    let engine = engine();
    let mut writer = engine.session("writer");
    run(&mut writer, SETUP).await;
    run(&mut writer, "BEGIN; UPDATE t SET v = 9 WHERE id = 1").await;
    let locks = "BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK t; UPDATE t SET v = v + 1 WHERE id = 1; COMMIT";
    let waiting = begin_waiting(&engine, engine.session("other"), locks, 1).await;
    run(&mut writer, "COMMIT").await;
    let (mut other, answer) = waiting.await.expect("no panic");
    assert_eq!(answer, "BEGIN\nLOCK TABLE\nUPDATE 1\nCOMMIT");
    check(&mut other, &[("SELECT v FROM t WHERE id = 1", "10")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_waits_through_tables_and_rows_is_found() {
    let engine = engine();
    let mut first = engine.session("first");
    run(&mut first, SETUP).await;
    run(&mut first, "CREATE TABLE u (id int PRIMARY KEY); BEGIN; UPDATE t SET v = 3 WHERE id = 1").await;
    let mut second = engine.session("second");
    check(&mut second, &[("BEGIN; LOCK u IN EXCLUSIVE MODE", "BEGIN\nLOCK TABLE")]).await;
    let waiting = begin_waiting(&engine, first, "INSERT INTO u VALUES (1)", 1).await;
    check(&mut second, &[("UPDATE t SET v = 4 WHERE id = 1", "error 40P01"), ("ROLLBACK", "ROLLBACK")]).await;
    let (mut first, answer) = waiting.await.expect("no panic");
    assert_eq!(answer, "INSERT 0 1");
    check(&mut first, &[("COMMIT", "COMMIT"), ("SELECT v FROM t WHERE id = 1", "3")]).await;
}

#[tokio::test]
async fn a_lock_ends_with_its_transaction_or_its_savepoint_and_keeps_the_definition() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, SETUP).await;
    check(
        &mut a,
        &[
            ("LOCK TABLE t", "error 25P01: LOCK TABLE can only be used in transaction blocks"),
            ("CREATE VIEW w AS SELECT 1 AS a", "CREATE VIEW"),
            ("BEGIN; LOCK w", "error 42809"),
            ("ROLLBACK; BEGIN; LOCK nowhere", "error 42P01"),
            (
                "ROLLBACK; BEGIN; SAVEPOINT s; LOCK t IN SHARE MODE; ROLLBACK TO s",
                "ROLLBACK\nBEGIN\nSAVEPOINT\nLOCK TABLE\nROLLBACK",
            ),
        ],
    )
    .await;
    check(&mut b, &[("UPDATE t SET v = 7 WHERE id = 1", "UPDATE 1")]).await;
    check(&mut a, &[("COMMIT; BEGIN READ ONLY; LOCK t IN ACCESS SHARE MODE", "COMMIT\nBEGIN\nLOCK TABLE")]).await;
    check(&mut b, &[("UPDATE t SET v = 8 WHERE id = 1", "UPDATE 1"), ("DROP TABLE t", "error 40001")]).await;
    check(&mut a, &[("COMMIT", "COMMIT")]).await;
    check(&mut b, &[("DROP TABLE t", "DROP TABLE")]).await;
}

#[tokio::test]
async fn the_lock_of_a_table_needs_the_right_to_change_it() {
    let (engine, guard) = engine_and_guard();
    let mut ann = session_of(&engine, &guard, "ann");
    let setup = "CREATE TABLE t (a int); CREATE USER bob; GRANT CONNECT ON DATABASE terrace TO bob; \
                 GRANT USAGE ON SCHEMA public TO bob";
    assert!(!run(&mut ann, setup).await.contains("error"));
    let mut bob = session_of(&engine, &guard, "bob");
    for (right, taken) in [
        ("SELECT", &["ACCESS SHARE"][..]),
        ("INSERT", &["ROW EXCLUSIVE"]),
        ("UPDATE", &["ROW SHARE", "ROW EXCLUSIVE", "SHARE", "ACCESS EXCLUSIVE"]),
        ("TRUNCATE", &["ROW SHARE", "ROW EXCLUSIVE", "SHARE", "ACCESS EXCLUSIVE"]),
    ] {
        run(&mut ann, &format!("GRANT {right} ON t TO bob")).await;
        for mode in ["ACCESS SHARE"].iter().chain(&SHARED).chain(&["SHARE", "ACCESS EXCLUSIVE"]) {
            let sql = format!("BEGIN; LOCK t IN {mode} MODE");
            let expected = if taken.contains(mode) { "BEGIN\nLOCK TABLE" } else { "error 42501: permission denied" };
            check(&mut bob, &[(&sql, expected), ("ROLLBACK", "ROLLBACK")]).await;
        }
        run(&mut ann, &format!("REVOKE {right} ON t FROM bob")).await;
    }
}
