//! Statements that change rows, and transactions around them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array};

use crate::support::{check, copy, engine, run, session};

#[tokio::test]
async fn rows_go_in_come_out_change_and_go() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL, price numeric(8,2), at date)", "CREATE TABLE"),
            ("INSERT INTO t VALUES (1, 'one', 1.5, '2026-01-01'), (2, 'two', NULL, NULL)", "INSERT 0 2"),
            ("INSERT INTO t (name, id) SELECT 'n' || (id + 10), id + 10 FROM t", "INSERT 0 2"),
            (
                "SELECT * FROM t ORDER BY id",
                "1|one|1.50|2026-01-01\n2|two|NULL|NULL\n11|n11|NULL|NULL\n12|n12|NULL|NULL",
            ),
            ("UPDATE t SET price = id * 2, name = upper(name) WHERE id < 10", "UPDATE 2"),
            ("SELECT id, name, price FROM t WHERE id = 2", "2|TWO|4.00"),
            ("SELECT count(*), max(id) FROM t WHERE id > 2 AND id <= 12", "2|12"),
            ("DELETE FROM t WHERE id = 1", "DELETE 1"),
            ("DELETE FROM t WHERE id = 1", "DELETE 0"),
            ("SELECT id FROM t ORDER BY id DESC LIMIT 2", "12\n11"),
            ("TRUNCATE t", "TRUNCATE TABLE"),
            ("SELECT count(*) FROM t", "0"),
            ("DROP TABLE t", "DROP TABLE"),
            ("SELECT count(*) FROM t", "error 42P01"),
        ],
    )
    .await;
}

#[tokio::test]
async fn conditions_with_subqueries_change_only_the_rows_they_mean() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE other (id int)").await;
    check(
        &mut s,
        &[
            ("INSERT INTO t SELECT i, i AS v FROM generate_series(1, 10) AS g(i)", "INSERT 0 10"),
            ("INSERT INTO other VALUES (2), (4), (NULL)", "INSERT 0 3"),
            ("DELETE FROM t WHERE false", "DELETE 0"),
            ("DELETE FROM t WHERE id IN (SELECT id FROM other)", "DELETE 2"),
            ("SELECT count(*) FROM t", "8"),
            ("UPDATE t SET v = 0 WHERE id IN (SELECT id + 1 FROM other)", "UPDATE 2"),
            ("SELECT id FROM t WHERE v = 0 ORDER BY id", "3\n5"),
            ("DELETE FROM t WHERE EXISTS (SELECT 1 FROM other WHERE other.id + 1 = t.id)", "DELETE 2"),
            ("DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM other WHERE other.id < t.id)", "DELETE 1"),
            ("DELETE FROM t WHERE id NOT IN (SELECT id FROM other)", "DELETE 0"),
            ("UPDATE t SET v = (SELECT max(id) FROM other) WHERE v > (SELECT avg(v) FROM t)", "UPDATE 2"),
            ("SELECT id, v FROM t ORDER BY id", "6|6\n7|7\n8|8\n9|4\n10|4"),
            ("UPDATE t SET v = other.id * 100 FROM other WHERE t.v = other.id", "UPDATE 2"),
            ("DELETE FROM t USING other WHERE t.id = other.id + 4", "DELETE 2"),
            ("SELECT id, v FROM t ORDER BY id", "7|7\n9|400\n10|400"),
            ("UPDATE t SET id = id + 1", "UPDATE 3"),
            ("SELECT id FROM t ORDER BY id", "8\n10\n11"),
            ("DELETE FROM t LIMIT 1", "error"),
            ("MERGE INTO t USING other ON t.id = other.id WHEN MATCHED THEN DELETE", "error 0A000"),
            ("SELECT count(*) FROM t", "3"),
        ],
    )
    .await;
}

#[tokio::test]
async fn constraints_are_enforced_and_what_cannot_be_is_refused() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (a int, b text, c int DEFAULT 7, PRIMARY KEY (b, a))", "CREATE TABLE"),
            ("INSERT INTO t VALUES (1, 'x')", "INSERT 0 1"),
            ("INSERT INTO t VALUES (1, 'x')", "error 23505: duplicate key value violates unique constraint \"t_pkey\""),
            ("INSERT INTO t VALUES (2, 'x'), (3, 'y'), (2, 'x')", "error 23505"),
            ("SELECT count(*) FROM t", "1"),
            (
                "INSERT INTO t VALUES (NULL, 'z')",
                "error 23502: null value in column \"a\" of relation \"t\" violates not-null constraint",
            ),
            ("INSERT INTO t VALUES (2, 'x', DEFAULT) RETURNING c, a + 1", "7|3"),
            ("UPDATE t SET a = 1 WHERE a = 2", "error 23505"),
            ("UPDATE t SET b = NULL", "error 23502"),
            ("INSERT INTO t VALUES (1, 'x') ON CONFLICT DO NOTHING", "INSERT 0 0"),
            ("INSERT INTO t VALUES (9, 'x', 1), (1, 'x', 1) ON CONFLICT (a, b) DO NOTHING", "INSERT 0 1"),
            ("INSERT INTO t VALUES (9, 'x') ON CONFLICT (a) DO NOTHING", "error 42P10"),
            ("INSERT INTO t VALUES ('a', 'x')", "error 22P02"),
            ("INSERT INTO t (a, b) SELECT 'a', 'x'", "error 22P02"),
            ("INSERT INTO t (a, b) SELECT b, b FROM t", "error 42804"),
            ("INSERT INTO t (a, nosuch) VALUES (1, 2)", "error 42703"),
            ("CREATE TABLE u (a int REFERENCES t (a))", "error 42830"),
            ("CREATE TABLE u (a timetz)", "error 0A000"),
            ("CREATE TABLE t (a int)", "error 42P07"),
            ("CREATE TABLE IF NOT EXISTS t (a int)", "CREATE TABLE"),
            ("DELETE FROM t WHERE b = 'x' RETURNING a", "1\n2\n9"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_transaction_sees_its_own_changes_and_others_see_them_after_commit() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)").await;
    check(
        &mut a,
        &[
            ("BEGIN", "BEGIN"),
            ("UPDATE t SET v = 10 WHERE id = 1", "UPDATE 1"),
            ("INSERT INTO t VALUES (3, 3)", "INSERT 0 1"),
            ("DELETE FROM t WHERE id = 2", "DELETE 1"),
            ("SELECT id, v FROM t ORDER BY id", "1|10\n3|3"),
        ],
    )
    .await;
    check(
        &mut b,
        &[
            ("SELECT id, v FROM t ORDER BY id", "1|1\n2|2"),
            ("BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN"),
            ("SELECT count(*) FROM t", "2"),
        ],
    )
    .await;
    check(&mut a, &[("COMMIT", "COMMIT")]).await;
    check(
        &mut b,
        &[
            ("SELECT id, v FROM t ORDER BY id", "1|1\n2|2"),
            ("UPDATE t SET v = v + 1 WHERE id = 1", "UPDATE 1"),
            ("COMMIT", "error 40001"),
            ("SELECT id, v FROM t ORDER BY id", "1|10\n3|3"),
            ("UPDATE t SET v = v + 1 WHERE id = 1", "UPDATE 1"),
        ],
    )
    .await;
}

#[tokio::test]
async fn savepoints_go_back_and_a_failed_transaction_hears_only_its_end() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE"),
            ("BEGIN", "BEGIN"),
            ("INSERT INTO t VALUES (1)", "INSERT 0 1"),
            ("SAVEPOINT a", "SAVEPOINT"),
            ("INSERT INTO t VALUES (2)", "INSERT 0 1"),
            ("SAVEPOINT b", "SAVEPOINT"),
            ("INSERT INTO t VALUES (1)", "error 23505"),
            ("SELECT 1", "error 25P02"),
            ("ROLLBACK TO b", "ROLLBACK"),
            ("SELECT count(*) FROM t", "2"),
            ("ROLLBACK TO a", "ROLLBACK"),
            ("SELECT count(*) FROM t", "1"),
            ("ROLLBACK TO b", "error 3B001"),
            ("SELECT 1", "error 25P02"),
            ("ROLLBACK TO a", "ROLLBACK"),
            ("RELEASE a", "RELEASE"),
            ("COMMIT", "COMMIT"),
            ("SELECT id FROM t", "1"),
            ("BEGIN", "BEGIN"),
            ("INSERT INTO t VALUES (5)", "INSERT 0 1"),
            ("SELECT nosuch FROM t", "error 42703"),
            ("COMMIT", "ROLLBACK"),
            ("SELECT id FROM t", "1"),
            ("BEGIN READ ONLY", "BEGIN"),
            ("INSERT INTO t VALUES (5)", "error 25006"),
            ("ROLLBACK", "ROLLBACK"),
            ("BEGIN ISOLATION LEVEL SERIALIZABLE", "error 0A000"),
            ("BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN"),
            ("ROLLBACK", "ROLLBACK"),
            ("SAVEPOINT x", "error 25P01"),
        ],
    )
    .await;
}

#[tokio::test]
async fn definitions_are_part_of_the_transaction() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    check(
        &mut a,
        &[
            ("BEGIN", "BEGIN"),
            ("CREATE TABLE t (id int, v text)", "CREATE TABLE"),
            ("INSERT INTO t VALUES (1, 'a'), (1, 'a')", "INSERT 0 2"),
            ("SELECT count(*) FROM t", "2"),
        ],
    )
    .await;
    check(&mut b, &[("SELECT * FROM t", "error 42P01")]).await;
    check(&mut a, &[("COMMIT", "COMMIT")]).await;
    check(
        &mut b,
        &[("SELECT count(*) FROM t", "2"), ("BEGIN", "BEGIN"), ("INSERT INTO t VALUES (2, 'b')", "INSERT 0 1")],
    )
    .await;
    check(
        &mut a,
        &[
            ("BEGIN", "BEGIN"),
            ("DROP TABLE t", "error 40001"),
            ("ROLLBACK", "ROLLBACK"),
            ("BEGIN", "BEGIN"),
            ("ALTER TABLE t ADD COLUMN w int", "error 40001"),
            ("ROLLBACK", "ROLLBACK"),
        ],
    )
    .await;
    check(&mut b, &[("COMMIT", "COMMIT")]).await;
    check(
        &mut a,
        &[
            ("ALTER TABLE t ADD COLUMN w int", "ALTER TABLE"),
            ("UPDATE t SET w = 5 WHERE id = 2", "UPDATE 1"),
            ("SELECT * FROM t ORDER BY id", "1|a|NULL\n1|a|NULL\n2|b|5"),
            ("ALTER TABLE t RENAME COLUMN v TO x", "ALTER TABLE"),
            ("ALTER TABLE t RENAME TO u", "ALTER TABLE"),
            ("CREATE VIEW big AS SELECT x, count(*) AS n FROM u GROUP BY x", "CREATE VIEW"),
            ("SELECT * FROM big ORDER BY x", "a|2\nb|1"),
            ("CREATE TABLE copy AS SELECT x, w FROM u", "SELECT 3"),
            ("SELECT sum(w) FROM copy", "5"),
            ("CREATE SCHEMA lab", "CREATE SCHEMA"),
            ("CREATE TABLE lab.t (a int)", "CREATE TABLE"),
            ("INSERT INTO lab.t VALUES (1)", "INSERT 0 1"),
            ("SELECT t.a FROM lab.t", "1"),
            ("DROP SCHEMA lab", "error 2BP01"),
            ("BEGIN", "BEGIN"),
            ("DROP TABLE u CASCADE", "DROP TABLE"),
            ("SELECT * FROM u", "error 42P01"),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT count(*) FROM u", "3"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_default_that_varies_is_evaluated_for_each_row_and_others_once() {
    let mut s = session();
    let table = "CREATE TABLE t (id int, x double precision DEFAULT random(), at timestamptz DEFAULT now(), \
                 y text DEFAULT 'y' || random()::text, z double precision DEFAULT extract(year FROM now()) + random())";
    let distinct = "SELECT count(DISTINCT x), count(DISTINCT at), min(x) >= 0, min(z) > 2000 FROM t";
    check(
        &mut s,
        &[
            (table, "CREATE TABLE"),
            ("INSERT INTO t (id) SELECT i FROM generate_series(1, 50) AS g(i)", "INSERT 0 50"),
            (distinct, "50|1|true|true"),
            ("DELETE FROM t", "DELETE 50"),
            ("INSERT INTO t (id) VALUES (1), (2), (3)", "INSERT 0 3"),
            ("INSERT INTO t (id, x) VALUES (4, DEFAULT), (5, DEFAULT)", "INSERT 0 2"),
            ("SELECT count(DISTINCT x) FROM t", "5"),
            ("DELETE FROM t", "DELETE 5"),
        ],
    )
    .await;
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..40));
    assert_eq!(copy(&mut s, "COPY t (id) FROM STDIN", vec![ids]).await.expect("takes them"), 40);
    check(&mut s, &[(distinct, "40|1|true|true")]).await;
}

#[tokio::test]
async fn now_is_when_the_transaction_began() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (id int, at timestamptz DEFAULT now())").await;
    for (begin, commit, distinct) in [("BEGIN", "COMMIT", "1|true"), ("SELECT 1", "SELECT 1", "3|false")] {
        run(&mut s, begin).await;
        for change in [
            "INSERT INTO t (id) VALUES (1)",
            "INSERT INTO t SELECT 2",
            "INSERT INTO t VALUES (3, current_timestamp)",
            "UPDATE t SET at = now() WHERE id = 1",
        ] {
            std::thread::sleep(std::time::Duration::from_millis(2));
            run(&mut s, change).await;
        }
        check(&mut s, &[("SELECT count(DISTINCT at), max(at) = now() FROM t", distinct)]).await;
        run(&mut s, commit).await;
        check(&mut s, &[("SELECT max(at) < now() FROM t", "true"), ("DELETE FROM t", "DELETE 3")]).await;
    }
}

#[tokio::test]
async fn keys_of_many_rows_that_a_query_brings_are_each_checked() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (a int PRIMARY KEY, b text)", "CREATE TABLE"),
            ("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 2000) s(g)", "INSERT 0 2000"),
            ("INSERT INTO t SELECT g % 1500 + 10000, 'x' FROM generate_series(1, 2000) s(g)", "error 23505"),
            ("INSERT INTO t SELECT g, 'x' FROM generate_series(2000, 3500) s(g)", "error 23505"),
            ("INSERT INTO t SELECT 9000 - g, 'x' FROM generate_series(1, 2000) s(g)", "INSERT 0 2000"),
            ("INSERT INTO t SELECT a + 20000, b FROM t", "INSERT 0 4000"),
            ("BEGIN; INSERT INTO t VALUES (31000, 'x')", "BEGIN\nINSERT 0 1"),
            ("INSERT INTO t SELECT g, 'x' FROM generate_series(30000, 32000) s(g)", "error 23505"),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT count(*), count(distinct a) FROM t", "8000|8000"),
        ],
    )
    .await;
}

#[tokio::test]
async fn rows_that_change_as_they_come_change_once_and_all_of_them() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (a int PRIMARY KEY, b text, c int)", "CREATE TABLE"),
            ("INSERT INTO t SELECT g, repeat('x', 1000), 1 FROM generate_series(1, 5000) s(g)", "INSERT 0 5000"),
            ("UPDATE t SET c = c + (SELECT sum(c) FROM t)", "UPDATE 5000"),
            ("SELECT min(c), max(c), sum(length(b)) FROM t", "5001|5001|5000000"),
            ("UPDATE t SET a = a + 1", "UPDATE 5000"),
            ("SELECT min(a), max(a), count(*) FROM t", "2|5001|5000"),
            ("BEGIN; UPDATE t SET b = b || 'y', c = 0", "BEGIN\nUPDATE 5000"),
            ("UPDATE t SET b = b || 'z' WHERE c = (SELECT max(c) FROM t)", "UPDATE 5000"),
            ("DELETE FROM t WHERE a % 2 = 0", "DELETE 2500"),
            ("UPDATE t SET c = 1 / (a - 5001)", "error 22012"),
            ("ROLLBACK", "ROLLBACK"),
            ("UPDATE t SET c = 1 / (a - 5001)", "error 22012"),
            ("SELECT min(c), max(c), count(*), max(length(b)) FROM t", "5001|5001|5000|1000"),
            ("DELETE FROM t WHERE a % 5 > 0", "DELETE 4000"),
            ("SELECT count(*) FROM t", "1000"),
        ],
    )
    .await;
}
