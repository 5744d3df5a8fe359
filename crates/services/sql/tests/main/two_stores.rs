//! Rows in delta store and column store: the results and changes of statements must not depend on which of the two
//! contains a row.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, Int32Array};
use sql::{Engine, EngineOptions, Session, TupleMoverOptions};
use store::{Options, Store};

use crate::support::{check, copy, run, with_row_groups_of};

fn store() -> Store {
    Store::in_memory(Options::default()).expect("memory is enough")
}

fn numbers(range: std::ops::Range<i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(range))
}

/// The number of row groups that a scan of the table reads.
async fn row_groups(session: &mut Session, table: &str) -> usize {
    let plan = run(session, &format!("EXPLAIN SELECT * FROM {table}")).await;
    let count = plan.split("row_groups=").nth(1).and_then(|rest| rest.split(',').next());
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// A full row group of rows of 12 KB would take 1.5 GB of memory.
#[tokio::test]
async fn wide_rows_make_row_groups_of_fewer_rows_when_they_are_moved_or_compacted() {
    let options = EngineOptions {
        threads: 2,
        row_group_rows: 2000,
        query_bytes: 16 << 20,
        tuple_mover: None,
        ..EngineOptions::default()
    };
    let engine = Engine::new(store(), options).expect("an engine starts");
    let mut s = engine.session("u");
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, s text)").await;
    // Into the delta store: such an INSERT makes no row groups.
    let wide = "repeat(md5(i::text), 40) FROM generate_series(1, 4000) AS g(i)";
    check(&mut s, &[(&format!("INSERT INTO t SELECT i, {wide} ON CONFLICT DO NOTHING"), "INSERT 0 4000")]).await;
    let moved = engine.move_rows(8).expect("moves");
    // 1,296 bytes a row, 512 KiB a row group: 405 rows.
    assert!((3500..4000).contains(&moved), "{moved}");
    assert_eq!(row_groups(&mut s, "t").await, moved.div_ceil(405));
    check(&mut s, &[("DELETE FROM t WHERE id BETWEEN 900 AND 1100", "DELETE 201")]).await;
    assert_eq!(engine.compact().expect("compacts"), 1, "its neighbours are full, and stay");
    let sums = "SELECT count(*), sum(id), count(DISTINCT left(s, 32)), min(length(s)) FROM t";
    check(&mut s, &[(sums, "3799|7801000|3799|1280"), ("SELECT left(s, 6) FROM t WHERE id = 899", "018825")]).await;
}

#[tokio::test]
async fn statements_mean_the_same_for_rows_in_either_form() {
    let engine = with_row_groups_of(store(), 100);
    let mut s = engine.session("u");
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, v int, s text)").await;
    check(&mut s, &[("INSERT INTO t SELECT i, i % 10, 'r' || i FROM generate_series(1, 350) AS g(i)", "INSERT 0 350")])
        .await;
    assert_eq!(row_groups(&mut s, "t").await, 3, "whole row groups go straight there, the rest to the delta store");
    check(
        &mut s,
        &[
            ("SELECT count(*), min(id), max(id), sum(v) FROM t", "350|1|350|1575"),
            ("SELECT s FROM t WHERE id = 7", "r7"),
            ("SELECT s FROM t WHERE id = 307", "r307"),
            ("SELECT id FROM t WHERE v = 3 AND id > 290 ORDER BY id", "293\n303\n313\n323\n333\n343"),
            ("SELECT id FROM t ORDER BY id DESC LIMIT 2", "350\n349"),
            ("INSERT INTO t VALUES (7, 0, '')", "error 23505"),
            ("INSERT INTO t VALUES (7, 0, ''), (307, 0, ''), (351, 0, 'new') ON CONFLICT DO NOTHING", "INSERT 0 1"),
            ("UPDATE t SET v = 100 WHERE id = 8", "UPDATE 1"),
            ("UPDATE t SET v = 100 WHERE id + 0 IN (9, 309)", "UPDATE 2"),
            ("UPDATE t SET v = 100 WHERE id + 0 = 9 RETURNING id, s", "9|r9"),
            ("UPDATE t SET v = 100 WHERE id + 0 = 309 RETURNING id, s", "309|r309"),
            ("UPDATE t SET id = 1000 WHERE id = 10", "UPDATE 1"),
            ("UPDATE t SET id = 1 WHERE id = 1000", "error 23505"),
            ("DELETE FROM t WHERE id = 11", "DELETE 1"),
            ("DELETE FROM t WHERE v = 2 AND id < 30 RETURNING s", "r2\nr12\nr22"),
            ("INSERT INTO t VALUES (11, 11, 'again') RETURNING id", "11"),
            ("SELECT id, v, s FROM t WHERE id BETWEEN 8 AND 12 ORDER BY id", "8|100|r8\n9|100|r9\n11|11|again"),
            ("SELECT count(*), sum(v) FROM t", "348|1853"),
            ("UPDATE t SET id = id + 1", "UPDATE 348"),
            ("SELECT count(*), min(id), max(id) FROM t", "348|2|1001"),
            ("SELECT count(*) FROM t AS a JOIN t AS b ON a.id = b.id + 1", "342"),
        ],
    )
    .await;
    assert_eq!(engine.move_rows(8).expect("moves"), 300);
    assert_eq!(row_groups(&mut s, "t").await, 6);
    check(
        &mut s,
        &[
            ("SELECT count(*), min(id), max(id), sum(v) FROM t", "348|2|1001|1853"),
            ("SELECT v, s FROM t WHERE id = 12", "11|again"),
            ("DELETE FROM t", "DELETE 348"),
            ("SELECT count(*), max(id) FROM t", "0|NULL"),
        ],
    )
    .await;
}

#[tokio::test]
async fn savepoints_and_rollback_take_row_groups_back() {
    let engine = with_row_groups_of(store(), 100);
    let (mut s, mut other) = (engine.session("u"), engine.session("v"));
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 5); CREATE TABLE plain (id int)").await;
    check(&mut s, &[("BEGIN", "BEGIN"), ("INSERT INTO t VALUES (1)", "INSERT 0 1"), ("SAVEPOINT a", "SAVEPOINT")])
        .await;
    assert_eq!(copy(&mut s, "COPY t (id) FROM STDIN", vec![numbers(10..240)]).await.expect("fits"), 230);
    assert_eq!(copy(&mut s, "COPY plain FROM STDIN", vec![numbers(0..100)]).await.expect("fits"), 100);
    check(&mut s, &[("SELECT count(*), sum(v) FROM t", "231|1155"), ("SELECT v FROM t WHERE id = 50", "5")]).await;
    check(&mut other, &[("SELECT count(*) FROM t", "0")]).await;
    check(
        &mut s,
        &[
            ("INSERT INTO t SELECT id + 1000, v FROM t", "INSERT 0 231"),
            ("SELECT count(*) FROM t", "462"),
            ("UPDATE t SET v = 6 WHERE id = 60", "UPDATE 1"),
            ("SELECT sum(v) FROM t", "2311"),
            ("ROLLBACK TO a", "ROLLBACK"),
            ("SELECT count(*) FROM t", "1"),
            ("SELECT count(*) FROM plain", "0"),
        ],
    )
    .await;
    assert_eq!(copy(&mut s, "COPY t (id) FROM STDIN", vec![numbers(100..200)]).await.expect("fits"), 100);
    check(&mut s, &[("COMMIT", "COMMIT"), ("SELECT count(*), min(id), max(id) FROM t", "101|1|199")]).await;
    let failed = copy(&mut s, "COPY t (id) FROM STDIN", vec![numbers(150..350)]).await;
    assert_eq!(failed.expect_err("a key is there").code(), "23505");
    let failed = copy(&mut s, "COPY t (id) FROM STDIN", vec![numbers(-199..2)]).await;
    assert_eq!(failed.expect_err("a key is there, in the delta store").code(), "23505");
    check(&mut s, &[("BEGIN", "BEGIN")]).await;
    assert_eq!(copy(&mut s, "COPY t (id) FROM STDIN", vec![numbers(1000..1300)]).await.expect("fits"), 300);
    check(&mut s, &[("ROLLBACK", "ROLLBACK"), ("SELECT count(*) FROM t", "101")]).await;
}

#[tokio::test]
async fn of_two_that_add_one_key_in_different_forms_the_second_to_commit_is_told_to_run_again() {
    let engine = with_row_groups_of(store(), 100);
    let (mut bulk, mut single) = (engine.session("u"), engine.session("v"));
    run(&mut bulk, "CREATE TABLE t (id int PRIMARY KEY)").await;
    for (from, bulk_first) in [(0, true), (1000, false)] {
        check(&mut bulk, &[("BEGIN", "BEGIN")]).await;
        check(&mut single, &[("BEGIN", "BEGIN")]).await;
        let sql = format!("INSERT INTO t VALUES ({})", from + 42);
        check(&mut single, &[(&sql, "INSERT 0 1")]).await;
        assert_eq!(copy(&mut bulk, "COPY t FROM STDIN", vec![numbers(from..from + 100)]).await.expect("fits"), 100);
        let (first, second) = if bulk_first { (&mut bulk, &mut single) } else { (&mut single, &mut bulk) };
        check(first, &[("COMMIT", "COMMIT")]).await;
        check(second, &[("COMMIT", "error 40001")]).await;
        check(&mut single, &[(&format!("SELECT count(*) FROM t WHERE id = {}", from + 42), "1")]).await;
    }
    check(&mut bulk, &[("SELECT count(*) FROM t", "101")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_add_the_same_keys_in_both_forms_never_make_two_rows_of_one() {
    let engine = with_row_groups_of(store(), 50);
    run(&mut engine.session("u"), "CREATE TABLE t (id int PRIMARY KEY)").await;
    let adder = |mut session: Session, bulk: bool| async move {
        let mut added = 0;
        for round in 0..40 {
            added += match bulk {
                true => copy(&mut session, "COPY t FROM STDIN", vec![numbers(round * 50..round * 50 + 50)])
                    .await
                    .unwrap_or(0),
                false => {
                    let sql = format!("INSERT INTO t VALUES ({}), ({})", round * 50 + 7, round * 50 + 49);
                    if run(&mut session, &sql).await == "INSERT 0 2" { 2 } else { 0 }
                }
            };
        }
        added
    };
    let tasks = [true, false].map(|bulk| tokio::spawn(adder(engine.session("u"), bulk)));
    let mut added = 0;
    for task in tasks {
        added += task.await.expect("no panic");
    }
    let mut s = engine.session("u");
    check(&mut s, &[("SELECT count(*), count(DISTINCT id) FROM t", &format!("{added}|{added}"))]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_and_no_row_is_seen_twice_beside_the_tuple_mover() {
    let tuple_mover = TupleMoverOptions { every: Duration::from_millis(1), share: 1.0, keep: 0 };
    let options =
        EngineOptions { threads: 2, row_group_rows: 40, tuple_mover: Some(tuple_mover), ..EngineOptions::default() };
    let engine = Engine::new(store(), options).expect("an engine starts");
    let sql =
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 400) AS g(i)";
    run(&mut engine.session("u"), sql).await;
    let changer = |mut session: Session, seed: u64| async move {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..120 {
            let id = random.u32(1..=400);
            let sql = match random.bool() {
                true => format!("UPDATE t SET v = v + 1 WHERE id = {id}"),
                false => format!("UPDATE t SET v = v + 1 WHERE id + 0 = {id}"),
            };
            assert_eq!(run(&mut session, &sql).await, "UPDATE 1", "seed {seed}");
        }
    };
    let tasks = [1, 2].map(|seed| tokio::spawn(changer(engine.session("u"), seed)));
    let mut reader = engine.session("r");
    while !tasks.iter().all(|task| task.is_finished()) {
        check(&mut reader, &[("SELECT count(*), count(DISTINCT id) FROM t", "400|400")]).await;
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    check(&mut reader, &[("SELECT count(*), sum(v) FROM t", "400|240")]).await;
    engine.close();
    let moved = engine.tuple_mover_stats();
    assert!(moved.row_groups > 0 && moved.compacted > 0, "{moved:?}");
}

#[tokio::test]
async fn compaction_takes_away_what_was_deleted_and_statements_see_no_difference() {
    let engine = with_row_groups_of(store(), 100);
    let (mut s, mut earlier) = (engine.session("u"), engine.session("v"));
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE plain (id int)").await;
    check(
        &mut s,
        &[
            ("INSERT INTO t SELECT i, 'r' || i FROM generate_series(1, 600) AS g(i)", "INSERT 0 600"),
            ("INSERT INTO plain SELECT i FROM generate_series(1, 300) AS g(i)", "INSERT 0 300"),
            ("ALTER TABLE t ADD COLUMN w int DEFAULT 7", "ALTER TABLE"),
            ("DELETE FROM t WHERE id <= 126 OR id BETWEEN 201 AND 226 OR id BETWEEN 301 AND 375", "DELETE 227"),
            ("DELETE FROM plain WHERE id % 2 = 0", "DELETE 150"),
        ],
    )
    .await;
    let begin = ("BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN");
    check(&mut earlier, &[begin, ("SELECT count(*), sum(id) FROM t", "373|141398")]).await;
    assert_eq!(engine.tuple_mover_stats().compacted, 0);
    // In t the first lost all rows, the second and the third 26 rows, the fourth 75; plain lost half of each.
    assert_eq!(row_groups(&mut s, "t").await, 6);
    assert_eq!(engine.compact().expect("row groups are compacted"), 4 + 3);
    assert_eq!(engine.compact().expect("nothing is due"), 0);
    assert_eq!(engine.tuple_mover_stats().compacted, 7);
    assert_eq!(row_groups(&mut s, "t").await, 4);
    assert_eq!(row_groups(&mut s, "plain").await, 2);
    let statements = [
        ("SELECT count(*), sum(id), min(w) FROM t", "373|141398|7"),
        ("SELECT count(*), sum(id) FROM plain", "150|22500"),
        ("SELECT v, w FROM t WHERE id = 127", "r127|7"),
        ("SELECT count(*) FROM t WHERE id = 126", "0"),
        ("INSERT INTO t VALUES (127)", "error 23505"),
        ("UPDATE t SET v = 'new' WHERE id = 128", "UPDATE 1"),
        ("INSERT INTO t VALUES (126, 'again') RETURNING w", "7"),
        ("SELECT id, v FROM t WHERE id < 130 ORDER BY id", "126|again\n127|r127\n128|new\n129|r129"),
        ("DELETE FROM t WHERE id IN (126, 128)", "DELETE 2"),
        ("SELECT count(*), sum(id) FROM t", "372|141270"),
    ];
    check(&mut s, &statements).await;
    check(
        &mut earlier,
        &[
            ("SELECT count(*), sum(id) FROM t", "373|141398"),
            ("SELECT v FROM t WHERE id = 128", "r128"),
            ("DELETE FROM t WHERE id = 129", "DELETE 1"),
            ("COMMIT", "error 40001"),
        ],
    )
    .await;
    check(&mut s, &[("SELECT count(*), sum(id) FROM t", "372|141270"), ("DELETE FROM t", "DELETE 372")]).await;
    assert_eq!(engine.compact().expect("nothing is left"), 4);
    assert_eq!(row_groups(&mut s, "t").await, 0);
    check(&mut s, &[("INSERT INTO t SELECT i, '' FROM generate_series(1, 250) AS g(i)", "INSERT 0 250")]).await;
    check(&mut s, &[("SELECT count(*), sum(id), min(v) FROM t", "250|31375|")]).await;
}

#[tokio::test]
async fn columns_come_and_go_for_rows_in_either_form() {
    let engine = with_row_groups_of(store(), 100);
    let mut s = engine.session("u");
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, a text)").await;
    check(
        &mut s,
        &[
            ("INSERT INTO t SELECT i, 'a' || i FROM generate_series(1, 150) AS g(i)", "INSERT 0 150"),
            ("ALTER TABLE t ADD COLUMN b int NOT NULL DEFAULT 7", "ALTER TABLE"),
            ("ALTER TABLE t ADD COLUMN c text DEFAULT 'x' || 'y', ADD COLUMN d numeric(6,2)", "ALTER TABLE"),
            ("ALTER TABLE t ALTER COLUMN b SET DEFAULT 8", "ALTER TABLE"),
            ("INSERT INTO t (id) VALUES (151)", "INSERT 0 1"),
            ("SELECT b, c, d, count(*) FROM t GROUP BY b, c, d ORDER BY b", "7|xy|NULL|150\n8|xy|NULL|1"),
            ("SELECT * FROM t WHERE id = 3", "3|a3|7|xy|NULL"),
            ("SELECT * FROM t WHERE id = 103", "103|a103|7|xy|NULL"),
            ("SELECT count(*) FROM t WHERE b = 7 AND c LIKE 'x%'", "150"),
            ("UPDATE t SET d = b WHERE id IN (4, 104)", "UPDATE 2"),
            ("SELECT id, d FROM t WHERE d IS NOT NULL ORDER BY id", "4|7.00\n104|7.00"),
            ("ALTER TABLE t ADD COLUMN e double precision DEFAULT random()", "error 0A000"),
            ("ALTER TABLE t ADD COLUMN e int NOT NULL", "error 0A000"),
            ("ALTER TABLE t DROP COLUMN id", "error 0A000"),
            ("ALTER TABLE t DROP COLUMN nosuch", "error 42703"),
            ("ALTER TABLE t DROP COLUMN IF EXISTS nosuch", "ALTER TABLE"),
            ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE"),
            ("SELECT * FROM t WHERE id IN (3, 104, 151) ORDER BY id", "3|7|xy|NULL\n104|7|xy|7.00\n151|8|xy|NULL"),
            ("SELECT a FROM t", "error 42703"),
            ("INSERT INTO t VALUES (3)", "error 23505"),
            ("SELECT count(*) FROM t", "151"),
            ("BEGIN", "BEGIN"),
            ("ALTER TABLE t DROP COLUMN b, DROP COLUMN c", "ALTER TABLE"),
            ("SELECT * FROM t WHERE id = 104", "104|7.00"),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT * FROM t WHERE id = 104", "104|7|xy|7.00"),
        ],
    )
    .await;
    assert_eq!(row_groups(&mut s, "t").await, 1, "the rows that were moved to another storage fill a row group again");
}

#[tokio::test]
async fn what_a_column_was_added_with_comes_back_for_each_type() {
    let store = store();
    let engine = with_row_groups_of(store.clone(), 10);
    let mut s = engine.session("u");
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT i FROM generate_series(1, 15) AS g(i)")
        .await;
    let columns = [
        ("boolean", "true", "true"),
        ("bigint", "-9000000000", "-9000000000"),
        ("real", "1.5", "1.5"),
        ("numeric(30,3)", "12345678901234567.891", "12345678901234567.891"),
        ("varchar(9)", "'t\u{e4}|x'", "t\u{e4}|x"),
        ("bytea", "'\\x00ff'", "00ff"),
        ("date", "'2026-02-28'", "2026-02-28"),
        ("timestamptz", "'2026-01-02 03:04:05+02'", "2026-01-02T01:04:05Z"),
        ("interval", "'1 day'", "1 days"),
        ("text", "''", ""),
    ];
    for (at, (kind, value, _)) in columns.iter().enumerate() {
        let sql = format!("ALTER TABLE t ADD COLUMN c{at} {kind} DEFAULT {value}");
        check(&mut s, &[(&sql, "ALTER TABLE")]).await;
    }
    drop(s);
    drop(engine);
    let mut s = with_row_groups_of(store, 10).session("u");
    let shown: Vec<&str> = columns.iter().map(|(_, _, shown)| *shown).collect();
    for id in [1, 15] {
        check(&mut s, &[(&format!("SELECT * FROM t WHERE id + 0 = {id}"), &format!("{id}|{}", shown.join("|")))]).await;
        check(&mut s, &[(&format!("SELECT * FROM t WHERE id = {id}"), &format!("{id}|{}", shown.join("|")))]).await;
    }
}

#[tokio::test]
async fn row_groups_that_are_dropped_or_truncated_give_their_space_back() {
    let store = store();
    let engine = with_row_groups_of(store.clone(), 1000);
    let mut s = engine.session("u");
    let fill = "INSERT INTO t SELECT i, repeat('x', 50) || i FROM generate_series(1, 20000) AS g(i)";
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, s text)").await;
    store.checkpoint().expect("writes home");
    let before = store.metrics().pages_used;
    for sql in ["TRUNCATE t", "ALTER TABLE t DROP COLUMN s", "DROP TABLE t"] {
        if !sql.starts_with("DROP") {
            assert_eq!(run(&mut s, fill).await, "INSERT 0 20000");
        }
        if sql.starts_with("ALTER") {
            assert_eq!(run(&mut s, "DELETE FROM t WHERE id > 10").await, "DELETE 19990");
        }
        assert!(store.metrics().pages_used > before + 20, "{sql}: {before} pages before");
        assert!(!run(&mut s, sql).await.starts_with("error"));
        // The session's last snapshot saw the rows; the store checks from time to time which row groups no snapshot
        // sees any more.
        run(&mut s, "SELECT 1").await;
        let mut tries = 0;
        while store.metrics().pages_used > before + 12 {
            assert!(tries < 200, "{sql}: {before} pages before, {} behind it", store.metrics().pages_used);
            tries += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
            store.checkpoint().expect("writes home");
        }
        if sql.starts_with("ALTER") {
            assert_eq!(run(&mut s, "ALTER TABLE t ADD COLUMN s text").await, "ALTER TABLE");
            assert_eq!(
                run(
                    &mut s,
                    "DELETE FROM t; INSERT INTO t SELECT i, repeat('x', 50) || i FROM generate_series(1, 20000) AS g(i)"
                )
                .await,
                "DELETE 10\nINSERT 0 20000"
            );
        }
    }
}

#[tokio::test]
async fn an_insert_beside_a_thousand_row_groups_costs_what_it_costs_beside_ten() {
    let mut costs = Vec::new();
    for row_groups in [10, 1000] {
        let store = store();
        let engine = with_row_groups_of(store.clone(), 5);
        let mut s = engine.session("u");
        let fill = format!("INSERT INTO t SELECT 3 * i FROM generate_series(1, {}) AS g(i)", row_groups * 5);
        run(&mut s, "CREATE TABLE t (id int PRIMARY KEY)").await;
        assert_eq!(run(&mut s, &fill).await, format!("INSERT 0 {}", row_groups * 5));
        // Between the keys of a row group, and behind all keys.
        assert_eq!(run(&mut s, "INSERT INTO t VALUES (10), (99999)").await, "INSERT 0 2");
        let before = store.metrics().cache;
        assert_eq!(run(&mut s, "INSERT INTO t VALUES (13), (99998)").await, "INSERT 0 2");
        let after = store.metrics().cache;
        costs.push(after.near_hits + after.inner_hits - before.near_hits - before.inner_hits);
    }
    assert!(costs[1] <= costs[0] + 20, "pages looked at: {costs:?}");
}
