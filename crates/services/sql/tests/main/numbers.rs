//! Numbers that do not fit are refused, whatever their source.

use datafusion::scalar::ScalarValue;

use crate::support::{check, run, run_with, session};

#[tokio::test]
async fn arithmetic_that_runs_over_is_refused() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (s smallint, i int, b bigint, r real, d double precision)").await;
    run(&mut s, "INSERT INTO t VALUES (30000, 2000000000, 9223372036854775807, 3e38, 1e308), (1, 1, 1, 1, 1)").await;
    let min = "-9223372036854775807 - 1";
    check(
        &mut s,
        &[
            ("UPDATE t SET i = i + i, b = b + 1", "error 22003"),
            ("SELECT i + i FROM t", "error 22003: integer out of range"),
            ("SELECT s * s FROM t", "error 22003: smallint out of range"),
            ("SELECT b + 1 FROM t", "error 22003: bigint out of range"),
            ("SELECT -2 - b FROM t", "error 22003"),
            ("SELECT count(*) FROM t WHERE b * 2 > 0", "error 22003"),
            ("SELECT i FROM t WHERE i IN (SELECT i + i FROM t)", "error 22003"),
            ("SELECT 9223372036854775807 + 1", "error 22003"),
            ("SELECT 9223372036854775807 * 9223372036854775807", "error 22003"),
            ("SELECT r * r FROM t", "error 22003"),
            ("SELECT d * 10 FROM t", "error 22003"),
            ("SELECT d / 0 FROM t", "error 22012"),
            ("SELECT i / 0 FROM t", "error 22012"),
            ("SELECT 1.5 / 0", "error 22012"),
            ("SELECT d * 'Infinity'::double precision FROM t", "inf\ninf"),
            ("SELECT i + 1, b - 1, s * 2, -i, d / 2, r - r FROM t WHERE i = 1", "2|0|2|-1|0.5|0.0"),
            ("SELECT i + i AS double, count(*) FROM t WHERE i < 2 GROUP BY i + i HAVING count(*) = 1", "2|1"),
            ("SELECT i + i FROM t WHERE i < 2 ORDER BY i + i", "2"),
            ("SELECT a.i + b.i FROM t a JOIN t b ON a.i + 1 = b.i + 1 WHERE a.i < 2", "2"),
            ("SELECT i, i + 1 FROM t WHERE i + 1 = 2", "1|2"),
            ("SELECT count(*) FROM t WHERE NULL + i > 0", "0"),
            ("CREATE VIEW v AS SELECT i + i AS twice FROM t", "CREATE VIEW"),
            ("SELECT twice FROM v", "error 22003"),
            ("UPDATE t SET i = i + 1 WHERE i = 2147483647", "UPDATE 0"),
            ("UPDATE t SET i = 2147483647 WHERE i > 1", "UPDATE 1"),
            ("UPDATE t SET i = i + 1", "error 22003"),
            ("SELECT s, i FROM t ORDER BY s", "1|1\n30000|2147483647"),
        ],
    )
    .await;
    assert_eq!(&run(&mut s, &format!("SELECT -({min})")).await[..11], "error 22003");
    let most = [ScalarValue::Int64(Some(i64::MAX))];
    assert_eq!(&run_with(&mut s, "SELECT $1 + b FROM t", &most).await[..11], "error 22003");
}

#[tokio::test]
async fn sums_of_integers_do_not_run_over() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (s smallint, i int, b bigint, d double precision, n numeric(5,2))").await;
    run(&mut s, "INSERT INTO t VALUES (30000, 2147483647, 9223372036854775807, 1.5, 1.25)").await;
    run(&mut s, "INSERT INTO t SELECT * FROM t").await;
    check(
        &mut s,
        &[
            ("SELECT sum(s), sum(i), sum(b), sum(d), sum(n) FROM t", "60000|4294967294|18446744073709551614|3.0|2.50"),
            ("SELECT s, sum(b) FROM t GROUP BY s", "30000|18446744073709551614"),
            ("SELECT sum(DISTINCT b), sum(b) FILTER (WHERE i < 0) FROM t", "9223372036854775807|NULL"),
            (
                "SELECT sum(b) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
                "9223372036854775807\n18446744073709551614",
            ),
            ("SELECT count(DISTINCT s), sum(i) FROM t", "1|4294967294"),
            ("SELECT sum(i + 1::bigint), sum(DISTINCT i) FROM t", "4294967296|2147483647"),
            ("SELECT sum(i + 1) FROM t", "error 22003"),
            ("SELECT sum(b) + 1 FROM t", "18446744073709551615"),
            ("SELECT sum(s)::text FROM t WHERE false", "NULL"),
            ("SELECT sum('x') FROM t", "error 42883"),
            ("CREATE TABLE u AS SELECT sum(b) AS b, sum(i) AS i FROM t", "SELECT 1"),
            (
                "SELECT data_type FROM information_schema.columns WHERE table_name = 'u' ORDER BY column_name",
                "numeric\nbigint",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn floats_and_numerics_that_cannot_be_kept_are_refused() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (r real, d double precision, n numeric, m numeric(6,2))").await;
    check(
        &mut s,
        &[
            ("INSERT INTO t (r) VALUES ('1e40')", "error 22003"),
            ("INSERT INTO t (r) VALUES (1e40)", "error 22003"),
            ("INSERT INTO t (r) SELECT 1e38 * 100", "error 22003"),
            ("INSERT INTO t (d) VALUES ('1e400')", "error 22003"),
            ("INSERT INTO t (d) VALUES ('1e-400')", "error 22003"),
            ("INSERT INTO t (r) VALUES ('1e-60')", "error 22003"),
            ("SELECT '1e400'::double precision", "error 22003"),
            ("INSERT INTO t (r, d) VALUES ('Infinity', '-inf'), ('0e-400', 0), (1.5, 1e300)", "INSERT 0 3"),
            ("SELECT r, d FROM t ORDER BY d", "inf|-inf\n0.0|0.0\n1.5|1e300"),
            ("UPDATE t SET r = d WHERE d > 1", "error 22003"),
            ("DELETE FROM t", "DELETE 3"),
            ("INSERT INTO t (n, m) VALUES (1e2, '1E+2'), ('1.5e-2', 12.345)", "INSERT 0 2"),
            ("SELECT n, m FROM t ORDER BY n", "0.0150000000|12.35\n100.0000000000|100.00"),
            ("INSERT INTO t (n) VALUES ('0.12345678901')", "error 22003"),
            ("INSERT INTO t (n) VALUES (0.12345678901)", "error 22003"),
            ("INSERT INTO t (n) VALUES ('0.1234567890000')", "INSERT 0 1"),
            ("INSERT INTO t (m) VALUES (12345.6)", "error 22003"),
        ],
    )
    .await;
    let most = [ScalarValue::Float64(Some(1e300))];
    assert_eq!(&run_with(&mut s, "INSERT INTO t (r) VALUES ($1)", &most).await[..11], "error 22003");
}
