//! Results of queries: the fast and the general path give the same, key ranges, types, messages.

use datafusion::scalar::ScalarValue;

use crate::support::{check, on_a_sessions_stack, run, run_with, session};

#[tokio::test]
async fn a_row_by_its_key_is_the_same_the_short_way_and_the_long_way() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (a int, b text, c numeric(6,2), d varchar(3), PRIMARY KEY (b, a))").await;
    run(&mut s, "INSERT INTO t SELECT i % 5, 'k' || (i / 5), i, NULL FROM generate_series(0, 24) AS g(i)").await;
    let conditions = [
        "a = 3 AND b = 'k2'",
        "'k2' = b AND (3 = a)",
        "a = 3 AND b = 'k9'",
        "a = 3.5 AND b = 'k2'",
        "a = 3 AND b = 'k2' AND c > 100",
        "a = NULL AND b = 'k2'",
        "a = 99999999999 AND b = 'k2'",
        "a = 3 AND a = 4 AND b = 'k2'",
    ];
    for condition in conditions {
        let short = run(&mut s, &format!("SELECT c, b, a FROM t WHERE {condition}")).await;
        let long = run(&mut s, &format!("SELECT c, b, a FROM t WHERE ({condition}) AND c + 1 > 0")).await;
        assert_eq!(short, long, "{condition}");
    }
    let parameters = [ScalarValue::Int64(Some(3)), ScalarValue::Utf8(Some("k2".into()))];
    assert_eq!(run_with(&mut s, "SELECT * FROM t WHERE a = $1 AND b = $2", &parameters).await, "3|k2|13.00|NULL");
    check(
        &mut s,
        &[
            ("UPDATE t SET c = '7.456', d = 'xyz' WHERE a = 3 AND b = 'k2'", "UPDATE 1"),
            ("SELECT c, d FROM t WHERE a = 3 AND b = 'k2'", "7.46|xyz"),
            ("UPDATE t SET d = 'wxyz' WHERE a = 3 AND b = 'k2'", "error 22001"),
            ("UPDATE t SET a = NULL WHERE a = 3 AND b = 'k2'", "error 23502"),
            ("UPDATE t SET a = 4 WHERE a = 3 AND b = 'k2'", "error 23505"),
            ("UPDATE t SET a = 77 WHERE a = 3 AND b = 'k2'", "UPDATE 1"),
            ("SELECT a, c FROM t WHERE b = 'k2' AND a > 3 ORDER BY a", "4|14.00\n77|7.46"),
            ("UPDATE t SET c = 1 WHERE a = 3 AND b = 'k2'", "UPDATE 0"),
            ("BEGIN", "BEGIN"),
            ("DELETE FROM t WHERE a = 77 AND b = 'k2'", "DELETE 1"),
            ("DELETE FROM t WHERE a = 77 AND b = 'k2'", "DELETE 0"),
            ("SELECT a FROM t WHERE a = 77 AND b = 'k2'", ""),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT count(*) FROM t", "25"),
        ],
    )
    .await;
}

#[tokio::test]
async fn long_values_over_windows_are_those_of_each_frame() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (i int, p int, a text); INSERT INTO t VALUES (1, 1, 'd'), (2, 2, NULL), (3, 1, 'bb'), (4, 2, 'c'), (5, 1, 'a')")
        .await;
    let windows = [
        ("string_agg(a, ',') OVER (ORDER BY i)", "d,d,d,bb,d,bb,c,d,bb,c,a"),
        ("string_agg(a, ',') FILTER (WHERE i > 2) OVER (ORDER BY i)", "NULL,NULL,bb,bb,c,bb,c,a"),
        ("string_agg(a, ',') FILTER (WHERE i > 2) OVER (PARTITION BY p)", "bb,a,c,bb,a,c,bb,a"),
        ("string_agg(a, ',') FILTER (WHERE i > 9) OVER ()", "NULL,NULL,NULL,NULL,NULL"),
        ("max(a) FILTER (WHERE i <> 1) OVER (ORDER BY i ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)", "NULL,NULL,bb,c,c"),
        ("min(a) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)", "d,bb,bb,a,a"),
        ("max(a) FILTER (WHERE i > NULL) OVER ()", "NULL,NULL,NULL,NULL,NULL"),
        ("array_agg(a) FILTER (WHERE p = 1) OVER (ORDER BY i DESC)", "[a, bb, d],[a, bb],[a, bb],[a],[a]"),
        (
            "array_agg(i) OVER (PARTITION BY p ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
            "[1],[2],[1, 3],[2, 4],[3, 5]",
        ),
        ("first_value(a) OVER (PARTITION BY p ORDER BY i DESC)", "a,c,a,c,a"),
        ("last_value(a) OVER (PARTITION BY p)", "a,c,a,c,a"),
        ("nth_value(a, 2) OVER (ORDER BY i DESC)", "c,c,c,c,NULL"),
        ("lag(a, 2, 'none') OVER (ORDER BY i)", "none,none,d,NULL,bb"),
        ("lead(a) OVER (PARTITION BY p ORDER BY i)", "bb,c,a,NULL,NULL"),
        ("count(DISTINCT a) OVER ()", "4,4,4,4,4"),
    ];
    for (window, expected) in windows {
        // All at once if a frame ends with its partition, and some at a time otherwise.
        for others in
            ["", ", sum(i) OVER (), min(i) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING)"]
        {
            let sql = format!("SELECT w FROM (SELECT i, {window} AS w{others} FROM t) s ORDER BY i");
            assert_eq!(run(&mut s, &sql).await.replace('\n', ","), expected, "{window}{others}");
        }
    }
}

#[tokio::test]
async fn ranges_of_keys_are_those_of_a_table_without_a_key() {
    let seed = 4_u64;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut s = session();
    run(&mut s, "CREATE TABLE k (a int, b text, v int, PRIMARY KEY (a, b)); CREATE TABLE p (a int, b text, v int)")
        .await;
    let rows: Vec<String> = (0..400).map(|i| format!("({}, '{}', {i})", rng.i32(-9..9), "x".repeat(i % 23))).collect();
    run(&mut s, &format!("INSERT INTO k VALUES {} ON CONFLICT DO NOTHING", rows.join(", "))).await;
    run(&mut s, "INSERT INTO p SELECT * FROM k").await;
    for _ in 0..60 {
        let ops = ["=", "<", "<=", ">", ">="];
        let (one, two) = (ops[rng.usize(0..5)], ops[rng.usize(0..5)]);
        let (a, b) = (rng.i32(-10..10), "x".repeat(rng.usize(0..24)));
        let condition = match rng.u8(0..4) {
            0 => format!("a {one} {a}"),
            1 => format!("a {one} {a} AND b {two} '{b}'"),
            2 => format!("a = {a} AND b {two} '{b}'"),
            _ => format!("a {one} {a} AND a {two} {}", rng.i32(-10..10)),
        };
        let keyed = run(&mut s, &format!("SELECT a, b, v FROM k WHERE {condition} ORDER BY v")).await;
        let plain = run(&mut s, &format!("SELECT a, b, v FROM p WHERE {condition} ORDER BY v")).await;
        assert_eq!(keyed, plain, "seed {seed}: {condition}");
    }
}

#[tokio::test]
async fn values_of_each_type_come_back_as_they_went_in() {
    let mut s = session();
    let columns = "b boolean, s smallint, i int, l bigint, r real, d double precision, n numeric(20,3), t text, \
                   v varchar(5), c char(5), y bytea, da date, ti time, ts timestamp, tz timestamptz, j json, iv interval";
    run(&mut s, &format!("CREATE TABLE t (id int PRIMARY KEY, {columns})")).await;
    let row = "true, -3, 70000, -9000000000, 1.5, -2.25, 12345678901234567.891, 't\u{e4}|x', 'abc', 'ab', '\\x00ff', \
               '2026-02-28', '12:34:56.789', '2026-01-02 03:04:05.006', '2026-01-02 03:04:05+02', '{\"a\": 1}', '1 day'";
    assert_eq!(run(&mut s, &format!("INSERT INTO t VALUES (1, {row})")).await, "INSERT 0 1");
    let expected = "true|-3|70000|-9000000000|1.5|-2.25|12345678901234567.891|t\u{e4}|x|abc|ab|00ff|2026-02-28|\
                    12:34:56.789|2026-01-02T03:04:05.006|2026-01-02T01:04:05Z|{\"a\": 1}|1 days";
    let all = "b, s, i, l, r, d, n, t, v, c, y, da, ti, ts, tz, j, iv";
    assert_eq!(run(&mut s, &format!("SELECT {all} FROM t")).await, expected);
    assert_eq!(run(&mut s, "INSERT INTO t (id) VALUES (2)").await, "INSERT 0 1");
    assert_eq!(run(&mut s, &format!("SELECT {all} FROM t WHERE id = 2")).await, ["NULL"; 17].join("|"));
}

#[tokio::test]
async fn fields_of_messages_are_columns() {
    let mut s = session();
    run(&mut s, "CREATE TABLE m (id int PRIMARY KEY, body bytea, tbody text)").await;
    let body = "MSH|^~\\&|LAB|NORTH|||20260101||ORU^R01|42|P|2.5.1\rPID|1||123^^^NORTH^MR||DOE^JA\\T\\NE\r";
    let bytes = ScalarValue::Binary(Some(body.as_bytes().to_vec()));
    let text = ScalarValue::Utf8(Some(body.into()));
    assert_eq!(run_with(&mut s, "INSERT INTO m VALUES (1, $1, $2)", &[bytes, text]).await, "INSERT 0 1");
    check(
        &mut s,
        &[
            ("INSERT INTO m VALUES (2, 'no message', NULL)", "INSERT 0 1"),
            ("SELECT hl7(body, 'PID-5.1'), hl7(tbody, 'PID-5.2') FROM m ORDER BY id", "DOE|JA&NE\nNULL|NULL"),
            ("SELECT count(*) FROM m WHERE hl7(body, 'MSH-10') = '42'", "1"),
            ("SELECT hl7(body, 'PID-40') FROM m WHERE id + 0 = 1", "NULL"),
            ("SELECT hl7(body, 'nonsense') FROM m", "error 22023"),
            ("SELECT hl7(id, 'PID-5') FROM m", "error 42883"),
        ],
    )
    .await;
    let latin = "MSH|^~\\&|LAB|NORTH|||20260101||ORU^R01|42|P|2.5.1||||||8859/1\rPID|||||M\u{fc}ller";
    let bytes = latin.chars().map(|c| c as u8).collect();
    let (bytes, text) = (ScalarValue::Binary(Some(bytes)), ScalarValue::Utf8(Some(latin.into())));
    assert_eq!(run_with(&mut s, "INSERT INTO m VALUES (3, $1, $2)", &[bytes, text]).await, "INSERT 0 1");
    let query = "SELECT hl7(body, 'PID-5'), hl7(tbody, 'PID-5') FROM m WHERE id + 0 = 3";
    check(&mut s, &[(query, "M\u{fc}ller|M\u{fc}ller")]).await;
}

#[tokio::test]
async fn columns_that_are_given_one_name_all_come_and_all_under_it() {
    let mut s = session();
    run(&mut s, "CREATE TABLE two (a int, b int)").await;
    let sql = "SELECT a AS x, b AS x, a + b AS X FROM two";
    check(
        &mut s,
        &[
            ("INSERT INTO two VALUES (1, 2)", "INSERT 0 1"),
            (sql, "1|2|3"),
            ("SELECT DISTINCT a AS x, b AS x FROM two", "1|2"),
            // A view's columns have names of their own.
            ("CREATE VIEW v AS SELECT a AS x, b AS x FROM two", "error 42"),
        ],
    )
    .await;
    let prepared = s.prepare(sql, &[]).await.expect("it is planned");
    let names: Vec<_> = prepared[0].schema().expect("rows").fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["x", "x", "x"]);
}

/// The labels of a query's columns, as described and in the result.
async fn labels(session: &mut sql::Session, sql: &str) -> String {
    let prepared = session.prepare(sql, &[]).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
    let names = |schema: &datafusion::arrow::datatypes::SchemaRef| {
        schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>().join("|")
    };
    let described = names(prepared[0].schema().expect("it has rows"));
    let answer = session.execute(&prepared[0], &[]).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
    let sql::StatementResult::Rows { schema, stream, .. } = answer else { panic!("no rows: {sql}") };
    assert_eq!(names(&stream.schema()), names(&schema), "{sql}");
    assert_eq!(names(&schema), described, "{sql}");
    described
}

#[tokio::test]
async fn columns_have_the_titles_that_postgresql_gives_them_and_may_share_them() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'), (2, 'y')").await;
    for (sql, expected, rows) in [
        ("SELECT 1, 1", "?column?|?column?", "1|1"),
        ("SELECT a, a FROM t ORDER BY a DESC", "a|a", "2|2\n1|1"),
        ("SELECT a, t.a, b FROM t WHERE a = 1", "a|a|b", "1|1|x"),
        ("SELECT *, a FROM t WHERE a + 0 = 1", "a|b|a", "1|x|1"),
        ("SELECT a AS n, b AS n FROM t WHERE a = 2", "n|n", "2|y"),
        (
            "SELECT count(*), count(*), sum(a), -a FROM t GROUP BY a, b HAVING a = 1",
            "count|count|sum|?column?",
            "1|1|1|-1",
        ),
        (
            "SELECT a + 1, b || 'z', a::text, '5'::int, CASE WHEN a = 1 THEN 2 END, b AS \"B\" FROM t WHERE a = 1",
            "?column?|?column?|a|int4|case|B",
            "2|xz|1|5|2|x",
        ),
        ("SELECT 1 UNION ALL SELECT 2 ORDER BY 1", "?column?", "1\n2"),
        ("SELECT (SELECT max(a) FROM t), coalesce(NULL, 3)", "max|coalesce", "2|3"),
        ("SELECT a, upper(b) FROM t WHERE a = 1", "a|upper", "1|X"),
        ("INSERT INTO t VALUES (3, 'w') RETURNING a, a, a + 1", "a|a|?column?", "3|3|4"),
    ] {
        assert_eq!(run(&mut s, sql).await, rows, "{sql}");
        run(&mut s, "DELETE FROM t WHERE a = 3").await;
        assert_eq!(labels(&mut s, sql).await, expected, "{sql}");
        run(&mut s, "DELETE FROM t WHERE a = 3").await;
    }
    check(
        &mut s,
        &[
            ("CREATE TABLE u AS SELECT count(*), max(a) FROM t", "SELECT 1"),
            ("SELECT count, max FROM u", "2|2"),
            ("CREATE TABLE w AS SELECT a, a FROM t", "error 42701"),
            ("CREATE VIEW w AS SELECT a, a FROM t", "error 42701"),
            ("SELECT nosuch, nosuch FROM t", "error 42703"),
        ],
    )
    .await;
}

#[tokio::test]
async fn explain_shows_the_plan_line_by_line_and_analyze_what_it_took() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)").await;
    for (sql, parts) in [
        ("EXPLAIN SELECT a FROM t WHERE a > 1", vec!["RowScan"]),
        ("EXPLAIN (VERBOSE, COSTS off) SELECT a FROM t", vec!["initial_physical_plan", "RowScan"]),
        ("EXPLAIN ANALYZE SELECT count(*) FROM t", vec!["AggregateExec", "output_rows=1"]),
        ("EXPLAIN (ANALYZE true, FORMAT text) SELECT count(*) FROM t", vec!["output_rows=1"]),
    ] {
        let lines = run(&mut s, sql).await;
        for part in parts {
            assert!(lines.contains(part), "{sql} has no {part}:\n{lines}");
        }
        assert!(!lines.contains("EmptyExec"), "{lines}");
        assert_eq!(labels(&mut s, sql).await, "QUERY PLAN");
    }
    check(
        &mut s,
        &[
            ("EXPLAIN (FORMAT json) SELECT 1", "error 0A000"),
            ("EXPLAIN (BUFFERS) SELECT 1", "error 0A000"),
            ("EXPLAIN ANALYZE DELETE FROM t", "error 0A000"),
            ("EXPLAIN INSERT INTO t VALUES (9)", "error 0A000"),
            ("EXPLAIN SELECT nosuch FROM t", "error 42703"),
            ("SELECT count(*) FROM t", "3"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_would_be_ignored_is_refused_by_name() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (a int PRIMARY KEY, b text)").await;
    check(
        &mut s,
        &[
            ("SELECT a FROM t WHERE a IN (SELECT a FROM t FOR UPDATE SKIP LOCKED)", "error 0A000"),
            ("WITH c AS (SELECT a FROM t FOR SHARE NOWAIT) SELECT * FROM c", "error 0A000"),
            ("DELETE FROM t WHERE a IN (SELECT a FROM t FOR UPDATE)", "error 0A000"),
            ("INSERT INTO t SELECT * FROM t FOR UPDATE", "error 0A000"),
            ("CREATE VIEW v AS SELECT a FROM t FOR UPDATE", "error 0A000"),
            ("SELECT a FROM t TABLESAMPLE SYSTEM (10)", "error 0A000"),
            ("SELECT * FROM generate_series(1, 2) WITH ORDINALITY", "error 0A000"),
            ("SELECT a INTO u FROM t", "error 0A000"),
            ("SELECT 'abcdef'::varchar(3)", "abc"),
            ("SELECT CAST('abcdef' AS char(3))", "abc"),
            ("SELECT '1 day'::interval(3)", "error 0A000"),
            ("CREATE TABLE u (a interval(0))", "error 0A000"),
            ("CREATE TABLE u (a timetz(3))", "error 0A000"),
            ("CREATE TABLE u (a timestamp(6), b varchar(3), c time(6))", "CREATE TABLE"),
            ("SELECT a FROM t", ""),
        ],
    )
    .await;
}

/// Statements that a client may write, on threads with a server's stack.
async fn deep_statements() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (a int); INSERT INTO t VALUES (7)").await;
    let sum = |terms: usize| format!("SELECT {}", vec!["1"; terms].join(" + "));
    let either = |terms: usize| {
        let terms: Vec<String> = (0..terms).map(|n| format!("a = {n}")).collect();
        format!("SELECT count(*) FROM t WHERE {}", terms.join(" OR "))
    };
    let all = |terms: usize| {
        let terms: Vec<String> = (0..terms).map(|n| format!("a <> {}", n + 8)).collect();
        format!("SELECT count(*) FROM t WHERE {}", terms.join(" AND "))
    };
    let unions = |terms: usize| vec!["SELECT 1"; terms].join(" UNION ");
    let windows = |many: usize| {
        let sums: Vec<String> = (0..many).map(|n| format!("sum(a) OVER (ORDER BY a + {n})")).collect();
        format!("SELECT greatest({}) FROM t", sums.join(", "))
    };
    let tables = |many: usize| {
        let tables: Vec<String> = (0..many).map(|n| format!("t AS t{n}")).collect();
        format!("SELECT t0.a FROM {}", tables.join(", "))
    };
    let subqueries = |many: usize| {
        let each: Vec<String> =
            (0..many).map(|n| format!("(SELECT max(u.a) FROM t AS u WHERE u.a = t.a + {n})")).collect();
        format!("SELECT coalesce({}) FROM t", each.join(", "))
    };
    let brackets = |deep: usize| format!("SELECT {}1{}", "(".repeat(deep), ")".repeat(deep));
    let rows: Vec<String> = (0..2_000).map(|n| format!("({n} + 1)")).collect();
    let cases: Vec<String> = (0..2_000).map(|n| format!("WHEN {n} THEN {n} + 1")).collect();
    check(
        &mut s,
        &[
            (&sum(200), "200"),
            (&either(490), "1"),
            (&all(490), "1"),
            (&unions(390), "1"),
            (&windows(390), "7"),
            (&tables(390), "7"),
            (&subqueries(40), "7"),
            (&subqueries(400), "error 54001"),
            (&windows(2_000), "error 54001"),
            (&tables(2_000), "error 54001"),
            (&sum(600), "error 54001"),
            (&sum(100_000), "error 54001"),
            (&either(5_000), "error 54001"),
            (&all(5_000), "error 54001"),
            (&unions(5_000), "error 54001"),
            (&brackets(40), "1"),
            (&brackets(5_000), "error 54001"),
            (&format!("CREATE VIEW v AS {}", sum(5_000)), "error 54001"),
            (&format!("SELECT CASE a {} END FROM t", cases.join(" ")), "8"),
            (&format!("INSERT INTO t VALUES {}", rows.join(", ")), "INSERT 0 2000"),
        ],
    )
    .await;
}

#[test]
fn a_statement_too_deep_for_the_stack_is_refused() {
    on_a_sessions_stack(deep_statements());
}
