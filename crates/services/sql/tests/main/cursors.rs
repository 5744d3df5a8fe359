//! Cursors: rows of a query, some at a time.

use store::{Options, Store};

use crate::support::{check, engine, run, session, with_row_groups_of};

#[tokio::test]
async fn a_cursor_gives_its_rows_in_parts_and_ends_with_its_transaction() {
    let mut s = session();
    run(
        &mut s,
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i * 2 FROM generate_series(1, 10) AS g(i)",
    )
    .await;
    check(
        &mut s,
        &[
            ("DECLARE c CURSOR FOR SELECT 1", "error 25P01"),
            ("FETCH 1 FROM c", "error 34000"),
            ("BEGIN", "BEGIN"),
            (
                "DECLARE c NO SCROLL CURSOR WITHOUT HOLD FOR SELECT id, v + 1 AS next FROM t ORDER BY id",
                "DECLARE CURSOR",
            ),
            ("FETCH 2 FROM c", "1|3\n2|5"),
            ("FETCH NEXT FROM c", "3|7"),
            ("UPDATE t SET v = 0", "UPDATE 10"),
            ("FETCH FORWARD 2 FROM c", "4|9\n5|11"),
            ("DECLARE d CURSOR FOR SELECT sum(v) FROM t", "DECLARE CURSOR"),
            ("FETCH ALL FROM d", "0"),
            ("FETCH 1 FROM c", "6|13"),
            ("FETCH ALL IN c", "7|15\n8|17\n9|19\n10|21"),
            ("FETCH 5 FROM c", ""),
            ("CLOSE c", "CLOSE CURSOR"),
            ("SAVEPOINT s", "SAVEPOINT"),
            ("DECLARE e CURSOR FOR SELECT 1", "DECLARE CURSOR"),
            ("ROLLBACK TO s", "ROLLBACK"),
            ("FETCH 1 FROM d", ""),
            ("DECLARE d CURSOR FOR SELECT 2", "error 42P03"),
            ("ROLLBACK TO s", "ROLLBACK"),
            ("FETCH 1 FROM e", "error 34000"),
            ("ROLLBACK TO s", "ROLLBACK"),
            ("CLOSE d", "CLOSE CURSOR"),
            ("DECLARE f CURSOR FOR SELECT 1", "DECLARE CURSOR"),
            ("ROLLBACK TO s", "ROLLBACK"),
            ("FETCH 1 FROM f", "error 34000"),
            ("ROLLBACK TO s", "ROLLBACK"),
            ("CLOSE ALL", "CLOSE CURSOR ALL"),
            ("FETCH 1 FROM d", "error 34000"),
            ("COMMIT", "ROLLBACK"),
            ("BEGIN", "BEGIN"),
            ("DECLARE c CURSOR FOR SELECT 1", "DECLARE CURSOR"),
            ("COMMIT", "COMMIT"),
            ("FETCH 1 FROM c", "error 34000"),
        ],
    )
    .await;
    for (sql, code) in [
        ("DECLARE c SCROLL CURSOR FOR SELECT 1", "0A000"),
        ("DECLARE c BINARY CURSOR FOR SELECT 1", "0A000"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "0A000"),
        ("DECLARE c CURSOR FOR SELECT v FROM t FOR UPDATE", "0A000"),
        ("DECLARE c CURSOR FOR SELECT nothing FROM t", "42703"),
        ("DECLARE c CURSOR FOR SELECT 1; FETCH PRIOR FROM c", "0A000"),
        ("DECLARE c CURSOR FOR SELECT 1; FETCH BACKWARD 2 FROM c", "0A000"),
        ("DECLARE c CURSOR FOR SELECT 1; FETCH ABSOLUTE 1 FROM c", "0A000"),
        ("DECLARE c CURSOR FOR SELECT 1; CLOSE d", "34000"),
    ] {
        check(&mut s, &[("BEGIN", "BEGIN")]).await;
        let got = run(&mut s, sql).await;
        assert!(got.starts_with(&format!("error {code}")), "{sql}: {got}");
        check(&mut s, &[("ROLLBACK", "ROLLBACK")]).await;
    }
}

#[tokio::test]
async fn cursors_are_bounded_and_keep_what_they_have_seen_beside_changes() {
    let engine = engine();
    let (mut s, mut other) = (engine.session("u"), engine.session("v"));
    run(
        &mut s,
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) AS g(i)",
    )
    .await;
    check(&mut s, &[("BEGIN", "BEGIN"), ("DECLARE c CURSOR FOR SELECT count(*), sum(v) FROM t", "DECLARE CURSOR")])
        .await;
    check(&mut other, &[("UPDATE t SET v = 1 WHERE id <= 100", "UPDATE 100")]).await;
    check(
        &mut s,
        &[
            ("SELECT sum(v) FROM t", "100"),
            ("UPDATE t SET v = 2 WHERE id = 200", "UPDATE 1"),
            ("FETCH 1 FROM c", "20000|0"),
        ],
    )
    .await;
    for number in 1..64 {
        check(&mut s, &[(&format!("DECLARE c{number} CURSOR FOR SELECT v FROM t"), "DECLARE CURSOR")]).await;
    }
    check(&mut s, &[("DECLARE d CURSOR FOR SELECT 1", "error 54000"), ("ROLLBACK", "ROLLBACK")]).await;
}

#[tokio::test]
async fn a_cursor_returns_the_state_of_declare_also_of_what_its_transaction_has_changed() {
    let engine = with_row_groups_of(Store::in_memory(Options::default()).expect("memory is enough"), 10);
    let (mut s, mut other) = (engine.session("u"), engine.session("v"));
    run(
        &mut s,
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 25) AS g(i)",
    )
    .await;
    engine.move_rows(0).expect("moves");
    check(
        &mut s,
        &[
            ("BEGIN; INSERT INTO t VALUES (30, 0)", "BEGIN\nINSERT 0 1"),
            ("DECLARE c CURSOR FOR SELECT count(*), sum(v), sum(id) FROM t", "DECLARE CURSOR"),
            ("DECLARE d CURSOR FOR SELECT id FROM t WHERE id < 3 OR v > 0", "DECLARE CURSOR"),
            ("UPDATE t SET v = 1 WHERE id = 5", "UPDATE 1"),
            ("FETCH ALL FROM c", "26|0|355"),
        ],
    )
    .await;
    check(&mut other, &[("UPDATE t SET v = 7 WHERE id = 6", "UPDATE 1")]).await;
    check(
        &mut s,
        &[
            ("SELECT v FROM t WHERE id = 6", "7"),
            ("TRUNCATE t", "TRUNCATE TABLE"),
            ("FETCH ALL FROM d", "1\n2"),
            ("ROLLBACK", "ROLLBACK"),
        ],
    )
    .await;
}

#[tokio::test]
async fn while_a_large_cursor_reads_the_changes_of_its_transaction_nothing_is_changed() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE other (v int)").await;
    let declare = "DECLARE c CURSOR FOR SELECT i, repeat('x', 1000) FROM generate_series(1, 40000) AS g(i)";
    check(
        &mut s,
        &[
            ("BEGIN; INSERT INTO t VALUES (1, 0)", "BEGIN\nINSERT 0 1"),
            (declare, "DECLARE CURSOR"),
            ("SAVEPOINT s", "SAVEPOINT"),
        ],
    )
    .await;
    for sql in ["UPDATE t SET v = 1", "INSERT INTO t VALUES (2, 0)", "DELETE FROM t", "TRUNCATE other", "DROP TABLE t"]
    {
        check(&mut s, &[(sql, "error 55006"), ("ROLLBACK TO s", "ROLLBACK")]).await;
    }
    assert_eq!(run(&mut s, "FETCH ALL FROM c").await.lines().count(), 40_000);
    check(
        &mut s,
        &[
            ("UPDATE t SET v = 1", "UPDATE 1"),
            ("CLOSE c", "CLOSE CURSOR"),
            (declare, "DECLARE CURSOR"),
            ("CLOSE c", "CLOSE CURSOR"),
            ("TRUNCATE t; COMMIT", "TRUNCATE TABLE\nCOMMIT"),
        ],
    )
    .await;
}

#[tokio::test]
async fn move_leaves_rows_out_and_counts_them() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("MOVE 1 FROM c", "error 34000"),
            (
                "BEGIN; DECLARE c CURSOR FOR SELECT i FROM generate_series(1, 10) AS g(i) ORDER BY i",
                "BEGIN\nDECLARE CURSOR",
            ),
            ("move next in c", "MOVE 1"),
            ("FETCH 1 FROM c", "2"),
            ("MOVE FORWARD 3 FROM c; FETCH NEXT FROM c", "MOVE 3\n6"),
            ("MOVE ALL IN c", "MOVE 4"),
            ("MOVE 5 FROM c", "MOVE 0"),
            ("MOVE PRIOR FROM c", "error 0A000"),
            ("ROLLBACK", "ROLLBACK"),
        ],
    )
    .await;
}
