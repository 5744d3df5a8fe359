//! Primary keys that tables get later, VACUUM and ANALYZE, and what else programs that fill tables send. Results are PostgreSQL 15's, but
//! where a comment says otherwise.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array};
use datafusion::scalar::ScalarValue;
use sql::TupleMoverStats;
use store::{Options, Store};

use crate::rights::{engine_and_guard, session_of};
use crate::support::{check, copy, engine, run, run_with, session, with_row_groups_of};

#[tokio::test]
async fn a_table_gets_its_primary_key_later_with_all_of_its_rows() {
    for row_groups in [10, 100_000] {
        let store = Store::in_memory(Options::default()).expect("memory is enough");
        let engine = with_row_groups_of(store, row_groups);
        let mut session = engine.session("u");
        let columns = "create table t (a int, b text, c int default 7 check (c > 0))";
        check(
            &mut session,
            &[
                (columns, "CREATE TABLE"),
                ("insert into t select x, 'n' || x, x from generate_series(1, 25) s(x)", "INSERT 0 25"),
                ("alter table t add column d int default 4", "ALTER TABLE"),
                ("insert into t values (null, 'z', 1), (3, 'again', 1)", "INSERT 0 2"),
                (
                    "alter table t add primary key (nope)",
                    "error 42703: column \"nope\" of relation \"t\" does not exist",
                ),
                ("alter table t add primary key (b, b)", "error 42701"),
                ("alter table t add constraint t_c_check primary key (b)", "error 42710"),
                (
                    "alter table t add primary key (a)",
                    "error 23502: column \"a\" of relation \"t\" contains null values",
                ),
                ("delete from t where a is null", "DELETE 1"),
                ("alter table t add primary key (a)", "error 23505: could not create unique index \"t_pkey\""),
                ("delete from t where b = 'again'", "DELETE 1"),
                ("begin; alter table t add primary key (a); rollback", "BEGIN\nALTER TABLE\nROLLBACK"),
                ("insert into t values (1, 'twice', 1)", "INSERT 0 1"),
                ("delete from t where b = 'twice'", "DELETE 1"),
                ("alter table t add constraint k primary key (a, b)", "ALTER TABLE"),
                (
                    "alter table t add primary key (c)",
                    "error 42P16: multiple primary keys for table \"t\" are not allowed",
                ),
                ("select count(*), sum(a), sum(c), sum(d) from t", "25|325|325|100"),
                (
                    "insert into t values (5, 'n5', 1)",
                    "error 23505: duplicate key value violates unique constraint \"k\"",
                ),
                ("insert into t values (5, null, 1)", "error 23502"),
                ("insert into t values (5, 'n6', 0)", "error 23514"),
                ("update t set c = 100 where a = 5 and b = 'n5'", "UPDATE 1"),
                ("select * from t where b = 'n5' and a = 5", "5|n5|100|4"),
                ("delete from t where a = 7 and b = 'n7'", "DELETE 1"),
                ("insert into t values (7, 'n7', 1) on conflict (a, b) do nothing", "INSERT 0 1"),
                ("alter table t add column e int, add constraint p check (a > 0)", "ALTER TABLE"),
                ("create table u (a int, b int)", "CREATE TABLE"),
                ("insert into u values (1, 1)", "INSERT 0 1"),
                ("alter table u alter b set default 3, add primary key (a), alter b set not null", "ALTER TABLE"),
                ("insert into u (a) values (2) returning b", "3"),
                ("insert into u values (2, 2)", "error 23505"),
                ("insert into u values (4, null)", "error 23502"),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn a_row_that_is_added_beside_a_new_primary_key_makes_it_fail_or_has_it() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, "create table t (a int); insert into t values (1)").await;
    check(&mut a, &[("begin isolation level repeatable read", "BEGIN"), ("select * from t", "1")]).await;
    check(&mut b, &[("insert into t values (1)", "INSERT 0 1")]).await;
    check(&mut a, &[("alter table t add primary key (a)", "error 40001"), ("rollback", "ROLLBACK")]).await;
    check(&mut b, &[("delete from t", "DELETE 2"), ("begin; insert into t values (2)", "BEGIN\nINSERT 0 1")]).await;
    check(
        &mut a,
        &[("begin", "BEGIN"), ("alter table t add primary key (a)", "error 40001"), ("rollback", "ROLLBACK")],
    )
    .await;
    check(&mut b, &[("commit", "COMMIT")]).await;
    check(&mut a, &[("alter table t add primary key (a)", "ALTER TABLE")]).await;
    check(&mut b, &[("insert into t values (2)", "error 23505")]).await;
}

#[tokio::test]
async fn vacuum_leaves_a_table_alone_whose_definition_a_transaction_changes() {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let engine = with_row_groups_of(store, 10);
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    let script = [
        ("create table t (a int primary key)", "CREATE TABLE"),
        ("insert into t select x from generate_series(1, 40) s(x)", "INSERT 0 40"),
        ("delete from t where a % 2 = 0", "DELETE 20"),
        ("begin; alter table t add column b int default 7", "BEGIN\nALTER TABLE"),
    ];
    check(&mut a, &script).await;
    check(&mut b, &[("vacuum t", "VACUUM")]).await;
    assert_eq!(engine.tuple_mover_stats().compacted, 0);
    check(&mut a, &[("commit", "COMMIT")]).await;
    check(&mut b, &[("vacuum t", "VACUUM"), ("select count(*), sum(a), min(b) from t", "20|400|7")]).await;
    assert!(engine.tuple_mover_stats().compacted > 0);
}

#[tokio::test]
async fn vacuum_compacts_row_groups_and_analyze_looks_at_tables_of_the_caller_alone() {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let engine = with_row_groups_of(store, 10);
    let mut session = engine.session("u");
    check(
        &mut session,
        &[
            ("create table t (a int primary key); create table other (a int)", "CREATE TABLE\nCREATE TABLE"),
            ("insert into t select x from generate_series(1, 40) s(x)", "INSERT 0 40"),
            ("delete from t where a % 2 = 0", "DELETE 20"),
            ("vacuum other", "VACUUM"),
        ],
    )
    .await;
    let compacted = |stats: TupleMoverStats| stats.compacted;
    assert_eq!(compacted(engine.tuple_mover_stats()), 0);
    check(
        &mut session,
        &[
            ("vacuum analyze other, t", "VACUUM"),
            ("select count(*), sum(a) from t", "20|400"),
            ("vacuum", "VACUUM"),
            ("analyze", "ANALYZE"),
            ("analyze t (a), other", "ANALYZE"),
            ("vacuum nope", "error 42P01: relation \"nope\" does not exist"),
            ("analyze t (nope)", "error 42703: column \"nope\" of relation \"t\" does not exist"),
            ("begin; vacuum t", "error 25001: VACUUM cannot run inside a transaction block"),
            ("rollback", "ROLLBACK"),
            ("begin; analyze t; commit", "BEGIN\nANALYZE\nCOMMIT"),
            ("create view v as select 1 as a", "CREATE VIEW"),
            // PostgreSQL warns.
            ("vacuum v", "error 42809"),
        ],
    )
    .await;
    assert!(compacted(engine.tuple_mover_stats()) > 0);
    let (engine, guard) = engine_and_guard();
    let mut ann = session_of(&engine, &guard, "ann");
    run(&mut ann, "create role bob login; grant connect on database terrace to bob; create table t (a int)").await;
    run(&mut ann, "grant usage on schema public to bob; grant all on t to bob").await;
    let mut bob = session_of(&engine, &guard, "bob");
    check(
        &mut bob,
        &[
            // PostgreSQL warns.
            ("vacuum t", "error 42501: must be owner of table t"),
            ("analyze t", "error 42501: must be owner of table t"),
            ("vacuum analyze", "VACUUM"),
            ("alter table t add primary key (a)", "error 42501"),
        ],
    )
    .await;
}

#[tokio::test]
async fn copy_freezes_only_what_its_transaction_has_made_or_emptied() {
    let mut session = session();
    let rows = || vec![Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef];
    run(&mut session, "create table t (a int)").await;
    for sql in ["copy t from stdin with (freeze on)", "copy t from stdin (freeze)"] {
        let prepared = session.prepare(sql, &[]).await.expect("it is SQL");
        let refused = session.execute(&prepared[0], &[]).await.expect_err("it has not emptied it");
        assert_eq!(refused.code(), "55000");
        check(&mut session, &[("begin; truncate t", "BEGIN\nTRUNCATE TABLE")]).await;
        assert_eq!(copy(&mut session, sql, rows()).await.expect("it has emptied it"), 2);
        check(&mut session, &[("commit", "COMMIT"), ("select count(*) from t", "2")]).await;
    }
    assert_eq!(copy(&mut session, "copy t from stdin with (freeze off)", rows()).await.expect("it may"), 2);
}

#[tokio::test]
async fn fillfactor_is_taken_where_postgresql_takes_it() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create table a (x int) with (fillfactor = 10)", "CREATE TABLE"),
            ("create table b (x int) with (FillFactor='100')", "CREATE TABLE"),
            (
                "create table c (x int) with (fillfactor = 5)",
                "error 22023: value 5 out of bounds for option \"fillfactor\"",
            ),
            (
                "create table c (x int) with (fillfactor = 'x')",
                "error 22023: invalid value for integer option \"fillfactor\": x",
            ),
            ("create table c (x int) with (autovacuum_enabled = false)", "error 0A000"),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_time_of_the_transaction_among_values_is_what_a_query_returns() {
    let mut session = session();
    let table = "create table t (id int primary key, at timestamp, zoned timestamptz, day date, said text)";
    check(&mut session, &[(table, "CREATE TABLE"), ("begin", "BEGIN")]).await;
    for (id, moment) in ["CURRENT_TIMESTAMP", "now()", "transaction_timestamp()", "Now()"].iter().enumerate() {
        let values = format!("insert into t values ({id}, {moment}, {moment}, {moment}, {moment})");
        check(&mut session, &[(&values, "INSERT 0 1")]).await;
    }
    let query = "insert into t select 9, now(), now(), now(), now()";
    check(&mut session, &[(query, "INSERT 0 1"), ("insert into t (id) values (10)", "INSERT 0 1")]).await;
    check(
        &mut session,
        &[
            ("update t set at = now(), zoned = current_timestamp, day = now(), said = 'x' where id = 10", "UPDATE 1"),
            ("update t set said = 'x'", "UPDATE 6"),
            ("select count(distinct at), count(distinct zoned), count(distinct day), count(said) from t", "1|1|1|6"),
            ("select bool_and(zoned = now() and at = now()::timestamp and day = now()::date) from t", "true"),
            ("commit", "COMMIT"),
            ("insert into t (id, day) values (now(), null)", "error 42804"),
            ("insert into t (id, zoned) values (11, now()), (12, '2020-01-01 00:00:00+00')", "INSERT 0 2"),
        ],
    )
    .await;
    let prepared = session.prepare("insert into t (id, at) values ($1, current_timestamp)", &[]).await.expect("SQL");
    assert_eq!(prepared[0].parameter_types().len(), 1);
    let given = [ScalarValue::Int32(Some(20))];
    assert_eq!(
        run_with(&mut session, "insert into t (id, at) values ($1, current_timestamp)", &given).await,
        "INSERT 0 1"
    );
}
