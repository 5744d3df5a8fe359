//! Text and other types: writing, reading, casts and comparisons in PostgreSQL's notation.

use datafusion::scalar::ScalarValue;

use crate::support::{check, run, run_with, session};

#[tokio::test]
async fn a_zone_is_left_out_where_a_time_has_none_and_digits_are_rounded() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, a timestamp, b timestamptz)").await;
    let text = "2026-01-01 10:00:00.1234567+02";
    run(&mut s, &format!("INSERT INTO t VALUES (1, '{text}', '{text}')")).await;
    let texts = [ScalarValue::Utf8(Some(text.into())), ScalarValue::Utf8(Some(text.into()))];
    assert_eq!(run_with(&mut s, "INSERT INTO t VALUES (2, $1, $2)", &texts).await, "INSERT 0 1");
    run(&mut s, &format!("INSERT INTO t SELECT 3, '{text}'::timestamp, '{text}'::timestamptz")).await;
    run(&mut s, &format!("INSERT INTO t SELECT 4, timestamp '{text}', CAST('{text}' AS timestamptz)")).await;
    let row = "2026-01-01 10:00:00.123457|2026-01-01 08:00:00.123457+00";
    check(
        &mut s,
        &[
            ("SELECT a::text, b::text FROM t ORDER BY id", &[row; 4].join("\n")),
            (&format!("SELECT count(*) FROM t WHERE a = '{text}' AND b = '{text}'"), "4"),
            ("SELECT id FROM t WHERE a > '2026-01-01 09:59:59' AND id < 2", "1"),
            ("SELECT 'nonsense'::timestamp", "error 22007"),
            ("SELECT id FROM t WHERE a = 'nonsense'", "error 22007"),
            ("SELECT 'x'::int", "error 22P02"),
            ("SELECT '3000000000'::int", "error 22003"),
            ("SELECT ' 42 '::int, 'off'::boolean, '\\x61'::bytea", "42|false|61"),
        ],
    )
    .await;
}

#[tokio::test]
async fn values_become_text_as_postgresql_writes_them() {
    let mut s = session();
    let columns = "ts timestamp, tz timestamptz, d date, ti time, f double precision, r real, iv interval, y bytea, \
                   n numeric(6,2), b boolean, i int";
    run(&mut s, &format!("CREATE TABLE v ({columns})")).await;
    let row = "'2026-01-02 03:04:05', '2026-01-02 03:04:05.5+00', '2026-01-02', '03:04:05', 1.0, 1e20, '1 month 2 days 3 hours', \
               '\\x00ff', 1.5, true, 7";
    assert_eq!(run(&mut s, &format!("INSERT INTO v VALUES ({row})")).await, "INSERT 0 1");
    let texts = "2026-01-02 03:04:05|2026-01-02 03:04:05.5+00|2026-01-02|03:04:05|1|1e+20|1 mon 2 days 03:00:00|\
                 \\x00ff|1.50|true|7";
    run(&mut s, "CREATE TABLE t (ts text, tz text, d text, ti text, f text, r varchar(9), iv text, y text, n text, b text, i text)").await;
    check(
        &mut s,
        &[
            ("SELECT ts::text, tz::text, d::text, ti::text, f::text, r::varchar, iv::text, y::text, n::text, b::text, i::text FROM v", texts),
            ("INSERT INTO t (ts, tz, d, ti, f, r, iv, n, b, i) SELECT ts, tz, d, ti, f, r, iv, n, b, i FROM v", "INSERT 0 1"),
            ("UPDATE t SET y = v.y::text FROM v", "UPDATE 1"),
            ("SELECT * FROM t", texts),
            ("SELECT f || '/' || i FROM v", "1/7"),
            ("SELECT ts FROM v WHERE ts::text = '2026-01-02 03:04:05'", "2026-01-02T03:04:05"),
        ],
    )
    .await;
    let time = [ScalarValue::TimestampMicrosecond(Some(1_000_000), None)];
    check(&mut s, &[("DELETE FROM t", "DELETE 1")]).await;
    assert_eq!(run_with(&mut s, "INSERT INTO t (ts) VALUES ($1) RETURNING ts", &time).await, "1970-01-01 00:00:01");
}

#[tokio::test]
async fn blanks_at_the_end_of_a_char_do_not_count() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (c char(5), v varchar(5)); INSERT INTO t VALUES ('ab', 'ab'), ('cd  ', 'cd  ')").await;
    check(
        &mut s,
        &[
            ("SELECT c FROM t WHERE c = 'ab '", "ab"),
            ("SELECT c FROM t WHERE 'cd   ' = c", "cd"),
            ("SELECT c FROM t WHERE c IN ('ab  ', 'x')", "ab"),
            ("SELECT c FROM t WHERE c <> 'ab  '", "cd"),
            ("SELECT v FROM t WHERE v = 'ab '", ""),
            ("SELECT v FROM t WHERE v = 'cd  '", "cd  "),
        ],
    )
    .await;
    let text = [ScalarValue::Utf8(Some("ab  ".into()))];
    assert_eq!(run_with(&mut s, "SELECT c FROM t WHERE c = $1", &text).await, "ab");
}
