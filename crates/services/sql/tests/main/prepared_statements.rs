//! PREPARE, EXECUTE and DEALLOCATE. Answers are those of PostgreSQL 15 for the same statements.

use crate::rights::{engine_and_guard, session_of};
use crate::support::{check, engine, run, session};

#[tokio::test]
async fn prepared_statements_run_with_their_values_and_are_of_the_session() {
    let engine = engine();
    let mut s = engine.session("a");
    check(
        &mut s,
        &[
            ("CREATE TABLE t (id int PRIMARY KEY, v numeric(6,2), name text)", "CREATE TABLE"),
            ("PREPARE add (int, numeric, text) AS INSERT INTO t VALUES ($1, $2, $3) RETURNING id", "PREPARE"),
            ("EXECUTE add (1, 1.5, 'one')", "1"),
            ("EXECUTE add (1 + 1, '2.25', upper('two'))", "2"),
            ("EXECUTE add(3, NULL, 4)", "3"),
            ("PREPARE find AS SELECT name, v + $2 AS more FROM t WHERE id = $1", "PREPARE"),
            ("EXECUTE find(2, 1)", "TWO|3.25"),
            ("EXECUTE find(3, 1)", "4|NULL"),
            ("PREPARE change (int) AS UPDATE t SET name = name || '!' WHERE id < $1", "PREPARE"),
            ("EXECUTE change(3)", "UPDATE 2"),
            ("EXECUTE change('2')", "UPDATE 1"),
            ("PREPARE forget AS DELETE FROM t WHERE id = $1", "PREPARE"),
            ("EXECUTE forget(1)", "DELETE 1"),
            ("PREPARE all_rows AS SELECT id FROM t ORDER BY id", "PREPARE"),
            ("EXECUTE all_rows", "2\n3"),
            ("PREPARE words AS VALUES ($1 || 'x')", "PREPARE"),
            ("EXECUTE words('a')", "ax"),
            ("PREPARE locks AS SELECT id FROM t WHERE id = $1 FOR UPDATE", "PREPARE"),
            ("EXECUTE locks(2)", "2"),
            ("PREPARE again AS SELECT 1; EXECUTE again; DEALLOCATE again", "PREPARE\n1\nDEALLOCATE"),
        ],
    )
    .await;
    check(
        &mut engine.session("b"),
        &[("EXECUTE all_rows", "error 26000: prepared statement \"all_rows\" does not exist")],
    )
    .await;
    check(
        &mut s,
        &[
            ("DEALLOCATE PREPARE find", "DEALLOCATE"),
            ("EXECUTE find(2, 1)", "error 26000"),
            ("DEALLOCATE ALL", "DEALLOCATE ALL"),
            ("EXECUTE all_rows", "error 26000"),
            ("PREPARE \"All\" AS SELECT 1", "PREPARE"),
            ("DEALLOCATE \"All\"", "DEALLOCATE"),
            ("PREPARE p AS SELECT 1", "PREPARE"),
            ("DISCARD ALL", "DISCARD ALL"),
            ("EXECUTE p", "error 26000"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_prepare_and_execute_do_not_take_is_refused_as_in_postgresql() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("PREPARE p AS SELECT $1::int + 1 AS a", "PREPARE"),
            ("PREPARE p AS SELECT 1", "error 42P05: prepared statement \"p\" already exists"),
            ("EXECUTE p", "error 42601: wrong number of parameters for prepared statement \"p\""),
            ("EXECUTE p(1, 2)", "error 42601"),
            ("EXECUTE p('x')", "error 22P02"),
            (
                "EXECUTE p(true)",
                "error 42804: parameter $1 of type boolean cannot be coerced to the expected type integer",
            ),
            ("EXECUTE p((SELECT 1))", "error 0A000"),
            ("EXECUTE p(3000000000)", "error 22003"),
            ("EXECUTE p(x)", "error 42703"),
            ("EXECUTE p 1", "error 42601"),
            ("EXECUTE q", "error 26000"),
            ("DEALLOCATE q", "error 26000"),
            ("PREPARE q AS CREATE TABLE u (a int)", "error 42601"),
            ("PREPARE q AS LISTEN c", "error 42601"),
            ("PREPARE q AS EXECUTE p(1)", "error 42601"),
            ("PREPARE q AS SELECT * FROM nowhere", "error 42P01"),
            ("PREPARE q (nothing) AS SELECT $1", "error"),
            ("EXPLAIN EXECUTE p(1)", "error 0A000"),
            ("EXECUTE p(41)", "42"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_prepared_statement_outlives_a_rollback_and_what_it_reads_may_be_made_anew() {
    let mut s = session();
    check(
        &mut s,
        &[
            ("CREATE TABLE t (a int); INSERT INTO t VALUES (1)", "CREATE TABLE\nINSERT 0 1"),
            ("BEGIN", "BEGIN"),
            ("PREPARE p AS SELECT a FROM t", "PREPARE"),
            ("EXECUTE nothing", "error 26000"),
            ("EXECUTE p", "error 25P02"),
            ("DEALLOCATE ALL", "error 25P02"),
            ("ROLLBACK", "ROLLBACK"),
            ("EXECUTE p", "1"),
            ("DROP TABLE t", "DROP TABLE"),
            ("EXECUTE p", "error 42P01"),
            ("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (2, 3)", "CREATE TABLE\nINSERT 0 1"),
            ("EXECUTE p", "2"),
            ("BEGIN READ ONLY", "BEGIN"),
            ("PREPARE i AS INSERT INTO t VALUES (1, 1)", "PREPARE"),
            ("EXECUTE p", "2"),
            ("EXECUTE i", "error 25006"),
            ("ROLLBACK", "ROLLBACK"),
        ],
    )
    .await;
}

#[tokio::test]
async fn rights_are_asked_at_each_execute() {
    let (engine, guard) = engine_and_guard();
    let mut ann = session_of(&engine, &guard, "ann");
    let setup = "CREATE TABLE t (a int); CREATE USER bob; GRANT CONNECT ON DATABASE terrace TO bob; \
                 GRANT USAGE ON SCHEMA public TO bob; GRANT SELECT ON t TO bob";
    assert!(!run(&mut ann, setup).await.contains("error"));
    let mut bob = session_of(&engine, &guard, "bob");
    check(&mut bob, &[("PREPARE p AS SELECT count(*) FROM t", "PREPARE"), ("EXECUTE p", "0")]).await;
    run(&mut ann, "REVOKE SELECT ON t FROM bob").await;
    check(&mut bob, &[("EXECUTE p", "error 42501")]).await;
    run(&mut ann, "GRANT SELECT ON t TO bob").await;
    check(&mut bob, &[("EXECUTE p", "0")]).await;
}
