//! UNIQUE constraints and indexes: what they refuse, and that they have the rows of both stores whatever happens to these. The results are
//! those of PostgreSQL 15, but where a comment says otherwise.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array};
use sql::engine::read_tables;
use sql::repair::give_up;
use sql::{Engine, EngineOptions};
use store::{Direction, Loss, Options, Part, Store, TreeId};

use crate::rights::{engine_and_guard, session_of};
use crate::support::{check, copy, run, session, try_run, with_row_groups_of};

const ROW_GROUP_ROWS: usize = 16;

pub(crate) fn small() -> Arc<Engine> {
    with_row_groups_of(Store::in_memory(Options::default()).expect("memory is enough"), ROW_GROUP_ROWS)
}

/// Reads all rows, and compares every index with them.
pub(crate) async fn is_sound(store: &Store, when: &str) {
    let options =
        EngineOptions { threads: 1, row_group_rows: ROW_GROUP_ROWS, tuple_mover: None, ..EngineOptions::default() };
    for report in read_tables(store.clone(), options).await.expect("tables are read") {
        assert_eq!(report.problem, None, "{when}");
    }
}

#[tokio::test]
async fn a_value_is_there_once_and_null_as_often_as_wanted() {
    let mut session = session();
    check(
        &mut session,
        &[
            (
                "create table t (id int primary key, a int unique, b text, c int, constraint bc unique (b, c))",
                "CREATE TABLE",
            ),
            (
                "insert into t values (1, 1, 'x', 1), (2, null, 'x', null), (3, null, 'x', null), (4, 4, null, 1)",
                "INSERT 0 4",
            ),
            (
                "insert into t values (5, 1, 'y', 1)",
                "error 23505: duplicate key value violates unique constraint \"t_a_key\"",
            ),
            (
                "insert into t values (5, 5, 'x', 1)",
                "error 23505: duplicate key value violates unique constraint \"bc\"",
            ),
            (
                "insert into t values (1, 1, 'x', 1)",
                "error 23505: duplicate key value violates unique constraint \"t_pkey\"",
            ),
            (
                "insert into t values (5, 5, 'z', 1), (6, 5, 'z', 2)",
                "error 23505: duplicate key value violates unique constraint \"t_a_key\"",
            ),
            ("select count(*) from t", "4"),
            (
                "update t set a = 4 where id = 1",
                "error 23505: duplicate key value violates unique constraint \"t_a_key\"",
            ),
            ("update t set a = 1 where id = 1", "UPDATE 1"),
            ("update t set a = null where id = 1", "UPDATE 1"),
            ("update t set a = 1 where id = 2", "UPDATE 1"),
            ("delete from t where id = 2", "DELETE 1"),
            ("insert into t values (5, 1, 'x', 2)", "INSERT 0 1"),
            ("update t set id = 50 where id = 5", "UPDATE 1"),
            ("insert into t values (6, 1, 'x', 3)", "error 23505"),
            ("update t set a = 7 where id = 50", "UPDATE 1"),
            ("insert into t values (6, 1, 'x', 3)", "INSERT 0 1"),
            // Values are shifted as a whole; PostgreSQL checks each row, and its answer depends on their order.
            ("update t set a = a + 3", "UPDATE 5"),
            ("insert into t values (9, 7, 'w', 1)", "error 23505"),
            ("begin; savepoint s; delete from t where a = 7", "BEGIN\nSAVEPOINT\nDELETE 1"),
            (
                "insert into t values (9, 7, 'w', 1); rollback to s; select id from t where a = 7",
                "INSERT 0 1\nROLLBACK\n4",
            ),
            ("insert into t values (9, 7, 'w', 1)", "error 23505"),
            ("rollback", "ROLLBACK"),
            ("create table u (a text, b bytea, unique (a), unique (b))", "CREATE TABLE"),
            ("insert into u values ('a', '\\x00'), ('', '\\x'), ('A', '\\x0000')", "INSERT 0 3"),
            ("insert into u values ('A', null)", "error 23505"),
            ("insert into u values (null, '\\x')", "error 23505"),
            (
                "insert into u values (repeat('x', 2000), null)",
                "error 54000: index row size 2002 exceeds the maximum 1024 for index \"u_a_key\"",
            ),
            ("create table f (a float unique, n numeric(4,1) unique)", "CREATE TABLE"),
            ("insert into f values ('NaN', 1), (0, 2)", "INSERT 0 2"),
            ("insert into f values ('NaN', 3)", "error 23505"),
            ("insert into f values ('-0', 3)", "error 23505"),
            ("insert into f values (1, 1.04)", "error 23505"),
        ],
    )
    .await;
}

#[tokio::test]
async fn values_that_are_equal_are_one_value_of_a_unique_index_however_they_are_written() {
    let columns = "c char(3) unique, z timestamptz unique, r real unique, d numeric(6,2) unique, u uuid unique";
    let first = "(1, 'ab', '2024-01-01 12:00:00+00', 'NaN', 1.0, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11')";
    for rows in [0, ROW_GROUP_ROWS - 1] {
        let engine = small();
        let mut session = engine.session("tester");
        run(&mut session, &format!("create table k (id int primary key, {columns})")).await;
        assert_eq!(run(&mut session, &format!("insert into k values {first}")).await, "INSERT 0 1");
        run(&mut session, &format!("insert into k (id) select 100 + g from generate_series(1, {rows}) as x(g)")).await;
        assert_eq!(engine.move_rows(0).expect("rows are moved") > 0, rows > 0);
        let count = rows + 2;
        check(
            &mut session,
            &[
                ("insert into k (id, c) values (2, 'ab ')", "error 23505"),
                ("insert into k (id, z) values (2, '2024-01-01 14:00:00+02')", "error 23505"),
                ("insert into k (id, r) values (2, 'NaN')", "error 23505"),
                ("insert into k (id, d) values (2, 1.00), (3, 1)", "error 23505"),
                ("insert into k (id, u) values (2, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')", "error 23505"),
                ("insert into k (id, r) values (2, 0), (3, '-0')", "error 23505"),
                ("insert into k (id, c) select g, 'x' from generate_series(2, 40) as x(g)", "error 23505"),
                // Texts are compared by their bytes.
                ("insert into k (id, c, r) values (2, 'AB', 0)", "INSERT 0 1"),
                ("update k set id = id, c = c, z = z, r = r, d = d, u = u", &format!("UPDATE {count}")),
                ("update k set r = '-0' where id = 2", "UPDATE 1"),
                ("update k set c = 'ab' where id = 2", "error 23505"),
                // Two values change places as a whole; PostgreSQL refuses it.
                ("update k set c = case id when 1 then 'AB' else 'ab' end where id < 3", "UPDATE 2"),
                ("insert into k (id, c) values (3, 'AB')", "error 23505"),
                (
                    "insert into k (id, c) values (1, 'AB'), (2, 'AB') on conflict (c) do update set d = excluded.id",
                    "error 21000",
                ),
                ("select id, c from k where c is not null order by id", "1|AB\n2|ab"),
            ],
        )
        .await;
        is_sound(engine.store(), &format!("{rows} rows in a row group")).await;
    }
}

#[tokio::test]
async fn values_beyond_the_largest_entry_are_refused_wherever_they_come_from() {
    let engine = small();
    let mut session = engine.session("tester");
    check(
        &mut session,
        &[
            ("create table w (id int, t text)", "CREATE TABLE"),
            ("insert into w select g, repeat('x', 1100) from generate_series(1, 40) as x(g)", "INSERT 0 40"),
            (
                "create index on w (t)",
                "error 54000: index row size 1111 exceeds the maximum 1024 for index \"w_t_idx\"",
            ),
            ("alter table w add primary key (id, t)", "error 54000"),
            ("update w set t = repeat('x', 990 + id)", "UPDATE 40"),
            ("create index on w (t)", "error 54000"),
            ("update w set t = repeat('x', 900 + id)", "UPDATE 40"),
            ("create unique index wt on w (t); create index on w (t)", "CREATE INDEX\nCREATE INDEX"),
            ("update w set t = repeat('x', 1100) where id = 7", "error 54000"),
            ("insert into w select g, repeat('y', 1000 + g) from generate_series(1, 40) as x(g)", "error 54000"),
            ("insert into w values (1, repeat('x', 5000)) on conflict (t) do nothing", "error 54000"),
            ("insert into w values (1, repeat('x', 5000)) on conflict (t) do update set id = 0", "error 54000"),
            ("select count(*) from w where t = repeat('x', 5000)", "0"),
            ("select count(*) from w where t > repeat('x', 5000) or t in (repeat('x', 907), repeat('x', 2000))", "1"),
        ],
    )
    .await;
    is_sound(engine.store(), "long values").await;
}

#[tokio::test]
async fn a_cursor_goes_on_where_its_index_and_its_table_are_dropped() {
    let engine = small();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, "create table t (id int primary key, u int); create index i on t (u)").await;
    run(&mut a, "insert into t select g, g % 100 from generate_series(1, 1000) as x(g)").await;
    let declared = "begin; declare c cursor for select id from t where u = 7 and id < 400 order by id";
    assert!(run(&mut a, "explain select id from t where u = 7 and id < 400").await.contains("IndexScan"));
    check(&mut a, &[(declared, "BEGIN\nDECLARE CURSOR"), ("fetch 1 from c", "7")]).await;
    check(&mut b, &[("drop index i", "DROP INDEX"), ("delete from t where id = 107", "DELETE 1")]).await;
    check(&mut b, &[("drop table t", "DROP TABLE")]).await;
    check(&mut a, &[("fetch 2 from c", "107\n207"), ("fetch all from c", "307"), ("commit", "COMMIT")]).await;
    check(&mut a, &[("select count(*) from t", "error 42P01")]).await;
    is_sound(engine.store(), "afterwards").await;
}

#[tokio::test]
async fn on_conflict_finds_rows_by_the_columns_of_a_unique_index() {
    for key in [" primary key", ""] {
        let engine = small();
        let mut session = engine.session("tester");
        run(&mut session, &format!("create table t (id int{key}, a int, b int, constraint ab unique (a, b))")).await;
        run(&mut session, "create unique index bi on t (b)").await;
        run(&mut session, "insert into t select g, g, g * 10 from generate_series(1, 40) as x(g)").await;
        check(
            &mut session,
            &[
                ("insert into t values (100, 1, 10) on conflict do nothing", "INSERT 0 0"),
                ("insert into t values (100, 1, 10) on conflict (b) do nothing", "INSERT 0 0"),
                ("insert into t values (100, 1, 10), (101, 1, null), (102, 1, null) on conflict (b, a) do nothing", "INSERT 0 2"),
                ("insert into t values (103, 7, 10) on conflict (a, b) do nothing", "error 23505: duplicate key value violates unique constraint \"bi\""),
                ("insert into t values (103, 7, 10) on conflict on constraint ab do nothing", "error 23505"),
                ("insert into t values (103, 7, 10) on conflict on constraint bi do nothing", "error 42704"),
                ("insert into t values (103, 7, 10) on conflict (a) do nothing", "error 42P10"),
                ("insert into t values (200, 1, 10), (301, 2, 21) on conflict (a, b) do update set id = excluded.id + t.id, b = 5 returning *", "201|1|5\n301|2|21"),
                ("insert into t values (202, 9, 390), (203, 9, 400) on conflict (b) do update set a = excluded.a", "INSERT 0 2"),
                ("select id, a from t where b in (390, 400) order by 1", "39|9\n40|9"),
                ("insert into t values (500, 1, 1), (501, 2, 1) on conflict (b) do update set a = 7", "error 21000"),
                ("insert into t values (301, 1, 30) on conflict (b) do update set b = 40", "error 23505"),
                ("insert into t values (302, 3, 30) on conflict (b) do update set b = 41 where t.a = 4", "INSERT 0 0"),
                ("insert into t values (303, 3, null) on conflict (b) do update set b = 41", "INSERT 0 1"),
                ("select count(*), count(distinct b) from t", "44|41"),
            ],
        )
        .await;
        is_sound(engine.store(), key).await;
    }
}

#[tokio::test]
async fn rows_in_row_groups_and_rows_on_their_way_there_have_their_entries() {
    for key in [" primary key", ""] {
        let engine = small();
        let mut session = engine.session("tester");
        run(&mut session, &format!("create table t (id int{key}, a int unique, b text)")).await;
        run(&mut session, "create index b on t (b)").await;
        for (sql, expected) in [
            ("insert into t select g, -g, 'x' from generate_series(1, 40) as x(g)", "INSERT 0 40"),
            ("insert into t values (41, -1, '')", "error 23505"),
            ("insert into t values (41, -40, '')", "error 23505"),
            ("insert into t select g, 40 - g, 'y' from generate_series(41, 90) as x(g)", "error 23505"),
            (
                "insert into t select g, case when g = 70 then 41 else g end, 'y' from generate_series(41, 90) as x(g)",
                "error 23505",
            ),
            ("insert into t values (41, -41, ''), (42, null, null), (43, null, null), (44, -44, 'y')", "INSERT 0 4"),
            ("move", ""),
            ("insert into t values (45, -44, '')", "error 23505"),
            ("update t set a = -2 where id = 1", "error 23505"),
            ("update t set a = 0 where id = 1", "UPDATE 1"),
            ("insert into t values (45, -1, 'new')", "INSERT 0 1"),
            ("update t set b = 'z' where id between 2 and 30", "UPDATE 29"),
            ("delete from t where id < 20", "DELETE 19"),
            ("insert into t select g, -g, null from generate_series(2, 19) as x(g)", "INSERT 0 18"),
            ("move", ""),
            ("compact", ""),
            ("insert into t values (46, -30, '')", "error 23505"),
            ("delete from t where id % 3 = 0", "DELETE 15"),
            ("compact", ""),
            ("insert into t select g, -g, null from generate_series(3, 39, 3) as x(g)", "INSERT 0 13"),
            ("update t set a = a - 1 where a < 0", "UPDATE 41"),
            ("alter table t alter column a type bigint", "ALTER TABLE"),
            ("insert into t values (47, -3, '')", "error 23505"),
            ("alter table t add column c int default 5", "ALTER TABLE"),
            ("create index c on t (c, a)", "CREATE INDEX"),
            ("alter table t drop column b", "ALTER TABLE"),
            ("insert into t values (47, -3, 1)", "error 23505"),
            ("drop index b", "error 42704"),
            ("alter table t rename to r", "ALTER TABLE"),
            ("alter table r rename column a to aa", "ALTER TABLE"),
            ("insert into r values (47, -3, 1)", "error 23505"),
            ("truncate r", "TRUNCATE TABLE"),
            ("insert into r values (47, -3, 1)", "INSERT 0 1"),
            ("insert into r values (48, -3, 1)", "error 23505"),
            ("drop table r", "DROP TABLE"),
        ] {
            match sql {
                "move" => _ = engine.move_rows(0).expect("rows are moved"),
                "compact" => _ = engine.compact().expect("row groups are compacted"),
                sql => check(&mut session, &[(sql, expected)]).await,
            }
            is_sound(engine.store(), &format!("{key}: {sql}")).await;
        }
        let stats = engine.tuple_mover_stats();
        assert!(stats.row_groups > 0 && stats.compacted > 0, "{stats:?}");
    }
}

#[tokio::test]
async fn copy_refuses_values_that_are_there_in_either_store_and_in_its_own_rows() {
    let engine = small();
    let mut session = engine.session("tester");
    check(
        &mut session,
        &[("create table t (a int unique)", "CREATE TABLE"), ("insert into t values (5)", "INSERT 0 1")],
    )
    .await;
    let rows = |values: Vec<i32>| -> Vec<ArrayRef> { vec![Arc::new(Int32Array::from(values))] };
    for (values, is_taken) in [
        ((10..100).collect(), false),
        (vec![99], true),
        (vec![12], true),
        (vec![5], true),
        (vec![200, 200], true),
        ((190..300).chain([250]).collect(), true),
        ((2000..2040).chain([5]).collect(), true),
        ((1000..3000).collect(), false),
    ] {
        let done = copy(&mut session, "copy t from stdin", rows(values)).await;
        assert_eq!(done.err().map(|error| error.code()), is_taken.then_some("23505"));
        is_sound(engine.store(), "copied").await;
    }
}

#[tokio::test]
async fn indexes_are_made_for_rows_that_are_there_and_dropped_by_name() {
    let engine = small();
    let mut session = engine.session("tester");
    let two = "create table other (a int); create schema s; create table s.t (a int)";
    check(
        &mut session,
        &[
            ("create table t (a int, b int, d date, i interval, j json)", "CREATE TABLE"),
            (two, "CREATE TABLE\nCREATE SCHEMA\nCREATE TABLE"),
            ("insert into t select g, g % 7 from generate_series(1, 40) as x(g)", "INSERT 0 40"),
            ("create unique index on t (b)", "error 23505: could not create unique index \"t_b_idx\""),
            ("alter table t add unique (b)", "error 23505: could not create unique index \"t_b_key\""),
            ("create unique index on t (a, b)", "CREATE INDEX"),
            ("create index on t (a, b)", "CREATE INDEX"),
            ("create index if not exists t_a_b_idx on t (d)", "CREATE INDEX"),
            ("create index t_a_b_idx on t (d)", "error 42P07: relation \"t_a_b_idx\" already exists"),
            ("create index t_a_b_idx on s.t (a)", "CREATE INDEX"),
            ("create index other on t (a)", "error 42P07"),
            ("create table t_a_b_idx1 (a int)", "error 42P07"),
            ("alter table other rename to t_a_b_idx1", "error 42P07"),
            ("alter table t add constraint one unique (a), add unique (a)", "ALTER TABLE"),
            ("alter table t add constraint one unique (b)", "error 42P07"),
            ("alter table t add constraint chk check (a > 0)", "ALTER TABLE"),
            ("alter table t add constraint chk unique (a)", "error 42710"),
            ("alter table t add constraint one check (a > 0)", "error 42710"),
            ("alter table t add unique (nosuch)", "error 42703: column \"nosuch\" named in key does not exist"),
            ("alter table t add unique (a, a)", "error 42701: column \"a\" appears twice in unique constraint"),
            ("create index on t (nosuch)", "error 42703: column \"nosuch\" does not exist"),
            ("create index on nosuch (a)", "error 42P01"),
            ("create index if not exists on t (a)", "error 42601"),
            ("drop index one", "error 2BP01: cannot drop index one because constraint one on table t requires it"),
            ("drop index nosuch", "error 42704: index \"nosuch\" does not exist"),
            ("drop index if exists nosuch, t_a_b_idx1", "DROP INDEX"),
            ("drop index t", "error 42809: \"t\" is not an index"),
            ("alter table t drop constraint t_a_b_idx", "error 42704"),
            ("alter index t_a_b_idx rename to renamed", "ALTER INDEX"),
            ("alter index one rename to renamed", "error 42P07"),
            ("alter index one rename to two", "ALTER INDEX"),
            ("insert into t values (40, 9)", "error 23505: duplicate key value violates unique constraint \"two\""),
            ("alter table t drop constraint two, drop constraint t_a_key", "ALTER TABLE"),
            ("insert into t values (40, 9)", "INSERT 0 1"),
            ("insert into t values (40, 9)", "error 23505: duplicate key value violates unique constraint \"renamed\""),
            ("alter table t drop column b", "ALTER TABLE"),
            ("insert into t values (40)", "INSERT 0 1"),
            (
                "begin; create unique index dd on t (d); insert into t values (1, '2020-01-01')",
                "BEGIN\nCREATE INDEX\nINSERT 0 1",
            ),
            ("insert into t values (1, '2020-01-01')", "error 23505"),
            ("rollback; insert into t values (1, '2020-01-01'), (1, '2020-01-01')", "ROLLBACK\nINSERT 0 2"),
            ("drop index dd", "error 42704"),
            (
                "create table m (a int primary key unique, b int unique unique, unique (b), constraint mb unique (b))",
                "CREATE TABLE",
            ),
            (
                "insert into m values (1, 1); insert into m values (2, 1)",
                "error 23505: duplicate key value violates unique constraint \"mb\"",
            ),
            ("drop schema s", "error 2BP01"),
        ],
    )
    .await;
    is_sound(engine.store(), "at the end").await;
}

#[tokio::test]
async fn the_name_of_a_primary_key_is_taken_for_whatever_is_made_or_renamed() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create table a (x int constraint k primary key); create table c (x int)", "CREATE TABLE\nCREATE TABLE"),
            ("create table k (x int)", "error 42P07: relation \"k\" already exists"),
            ("create table if not exists k (x int)", "CREATE TABLE"),
            ("create view k as select 1", "error 42P07"),
            ("create or replace view k as select 1", "error 42809"),
            ("create sequence k", "error 42P07"),
            ("create index k on c (x)", "error 42P07"),
            ("create index if not exists k on c (x)", "CREATE INDEX"),
            ("alter table c rename to k", "error 42P07"),
            ("create table e (x int constraint k primary key)", "error 42P07"),
            ("create table e (x int constraint e primary key)", "error 42P07"),
            ("alter table c add constraint k primary key (x)", "error 42P07"),
            ("create index b_pkey on c (x); create index c_pkey on c (x)", "CREATE INDEX\nCREATE INDEX"),
            ("create table b (x int primary key); insert into b values (1)", "CREATE TABLE\nINSERT 0 1"),
            ("insert into b values (1)", "error 23505: duplicate key value violates unique constraint \"b_pkey1\""),
            ("alter table c add primary key (x)", "ALTER TABLE"),
            ("insert into c values (1)", "INSERT 0 1"),
            ("insert into c values (1)", "error 23505: duplicate key value violates unique constraint \"c_pkey1\""),
            ("alter index b_pkey1 rename to k", "error 42P07"),
            ("alter index k rename to old_k; create table k (x int)", "ALTER INDEX\nCREATE TABLE"),
        ],
    )
    .await;
}

#[tokio::test]
async fn names_that_one_statement_gives_are_apart_and_one_that_it_drops_is_free() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create table n (a int, b int)", "CREATE TABLE"),
            (
                "alter table n add constraint x unique (a), add constraint x unique (b)",
                "error 42P07: relation \"x\" already exists",
            ),
            (
                "alter table n add constraint x unique (a), add constraint x primary key (b)",
                "error 42P07: relation \"x\" already exists",
            ),
            ("alter table n add constraint x primary key (b), add constraint x unique (a)", "error 42P07"),
            ("alter table n add constraint x check (a > 0), add constraint x primary key (b)", "error 42710"),
            ("alter table n add constraint n_pkey unique (a), add primary key (b)", "ALTER TABLE"),
            ("insert into n values (1, 1)", "INSERT 0 1"),
            ("insert into n values (2, 1)", "error 23505: duplicate key value violates unique constraint \"n_pkey1\""),
            ("alter table n drop constraint n_pkey, add constraint n_pkey unique (a, b)", "ALTER TABLE"),
            ("insert into n values (1, 2)", "INSERT 0 1"),
            ("alter table n add unique (b, a), add unique (b, a)", "ALTER TABLE"),
            ("alter table n drop constraint n_b_a_key, drop constraint n_b_a_key1", "ALTER TABLE"),
            (
                "create table s (a serial, b int, constraint s_a_seq primary key (b))",
                "error 42P07: relation \"s_a_seq\" already exists",
            ),
            ("create table s (a serial, b int, constraint s_a_seq unique (b))", "error 42P07"),
            ("create table s (a int generated always as identity constraint s_a_seq unique)", "error 42P07"),
            ("create table s (a serial primary key)", "CREATE TABLE"),
            ("create index s_a_seq on s (a)", "error 42P07"),
            ("alter table n add constraint s_a_seq unique (a)", "error 42P07"),
            ("create index o_a_seq on n (a)", "CREATE INDEX"),
            ("create table o (a serial primary key)", "CREATE TABLE"),
            ("insert into o default values; select nextval('o_a_seq1')", "INSERT 0 1\n2"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_became_free_after_the_snapshot_is_no_duplicate_in_repeatable_read() {
    let begin = ("begin isolation level repeatable read; select 1", "BEGIN\n1");
    // In the delta store, and in a row group.
    for rows in [4, ROW_GROUP_ROWS] {
        let engine = small();
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        run(&mut b, "create table t (id int primary key, u int unique)").await;
        run(&mut b, &format!("insert into t select g, g * 10 from generate_series(1, {rows}) as x(g)")).await;
        for insert in [
            "insert into t values (1, 999)",
            "insert into t values (999, 10)",
            "insert into t values (999, 10) on conflict do nothing",
        ] {
            check(&mut a, &[begin]).await;
            check(&mut b, &[("delete from t where id = 1", "DELETE 1")]).await;
            check(&mut a, &[(insert, "error 40001"), ("rollback", "ROLLBACK")]).await;
            check(&mut b, &[("insert into t values (1, 10)", "INSERT 0 1")]).await;
        }
        check(&mut a, &[begin]).await;
        check(&mut b, &[("update t set u = 11 where id = 1", "UPDATE 1")]).await;
        check(&mut a, &[("insert into t values (1, 999)", "error 23505"), ("rollback", "ROLLBACK")]).await;
    }
}

#[tokio::test]
async fn what_indexes_cannot_do_is_refused_by_name() {
    let mut session = session();
    run(&mut session, "create table t (a int, d date, i interval, j json)").await;
    for (sql, what) in [
        ("create index on t (lower(a::text))", "an index on an expression"),
        ("create index on t ((a + 1))", "an index on an expression"),
        ("create index on t (a int4_ops)", "an index with the operator class int4_ops"),
        ("create index on t (a) where a > 1", "CREATE INDEX with WHERE"),
        ("create index on t (a) include (d)", "CREATE INDEX with INCLUDE"),
        ("create unique index on t (a) nulls not distinct", "CREATE INDEX with NULLS NOT DISTINCT"),
        ("create index on t using hash (a)", "CREATE INDEX with another method than btree"),
        ("create index concurrently x on t (a)", "CREATE INDEX with CONCURRENTLY"),
        ("create index on t (i)", "an index on type interval"),
        ("create index on t (j)", "an index on type json"),
        ("create table n (a int unique nulls not distinct)", ""),
        ("create table n (a int, unique nulls not distinct (a))", "UNIQUE with NULLS NOT DISTINCT"),
        ("create table n (a int unique deferrable)", "UNIQUE with DEFERRABLE"),
        ("create table n (a int, unique (a) deferrable initially deferred)", "UNIQUE with DEFERRABLE"),
        ("alter table t add column n int unique", "ADD COLUMN with UNIQUE"),
    ] {
        let error = try_run(&mut session, sql, &[]).await.expect_err(sql);
        let is_refused = matches!(error.code(), "0A000") && error.to_string().contains(what);
        assert!(is_refused || (what.is_empty() && error.code() == "42601"), "{sql}: {} {error}", error.code());
    }
}

#[tokio::test]
async fn errors_tell_values_of_an_index_to_who_may_read_all_of_its_columns() {
    let (engine, guard) = engine_and_guard();
    let mut ann = session_of(&engine, &guard, "ann");
    let made = "create role bob login password 'a long password'; create table t (a int, b int, c int unique, constraint ab unique (a, b)); \
                insert into t values (1, 2, 3); grant insert, select (a, c), update (a, b) on t to bob";
    try_run(&mut ann, made, &[]).await.expect("it is made");
    let mut bob = session_of(&engine, &guard, "bob");
    for (sql, of_ann, of_bob, constraint) in [
        ("insert into t values (1, 2, 0)", Some("Key (a, b)=(1, 2) already exists."), None, "ab"),
        (
            "insert into t values (0, 0, 3)",
            Some("Key (c)=(3) already exists."),
            Some("Key (c)=(3) already exists."),
            "t_c_key",
        ),
    ] {
        for (session, detail) in [(&mut ann, of_ann), (&mut bob, of_bob)] {
            let fields = try_run(session, sql, &[]).await.expect_err(sql).report();
            let object = fields.object.expect("it is about a constraint");
            assert_eq!((fields.code, fields.detail.as_deref()), ("23505", detail), "{sql}");
            assert_eq!((object.schema.as_str(), object.table.as_str()), ("public", "t"));
            assert_eq!(object.constraint.as_deref(), Some(constraint));
        }
    }
    for sql in [
        "create index on t (a)",
        "drop index ab",
        "alter index ab rename to x",
        "alter table t drop constraint ab",
        "insert into t values (1, 2, 0) on conflict (a, b) do nothing",
        "insert into t values (1, 2, 0) on conflict on constraint ab do update set b = 1",
    ] {
        assert_eq!(try_run(&mut bob, sql, &[]).await.expect_err(sql).code(), "42501", "{sql}");
    }
}

#[tokio::test]
async fn an_index_that_lacks_rows_is_found_and_made_again_by_a_repair() {
    for key in [" primary key", ""] {
        let engine = small();
        let store = engine.store().clone();
        let mut session = engine.session("tester");
        run(&mut session, &format!("create table t (id int{key}, a int unique, b int)")).await;
        run(&mut session, "create index on t (b)").await;
        run(&mut session, "insert into t select g, g, g % 5 from generate_series(1, 40) as x(g)").await;
        let tables = engine.tables().expect("names");
        let table = tables.tables().next().expect("one").clone();
        let index = &table.indexes[1];
        let options = || EngineOptions { threads: 1, tuple_mover: None, ..EngineOptions::default() };
        let lost = |tree: TreeId, name: String| {
            let part = Part::Keys(Default::default(), Default::default());
            [Loss { tree, name, part, why: "damaged".into() }]
        };
        for (tree, name, told) in [
            (TreeId(index.tree), format!("sql.index.{}", index.number), 0),
            (table.rows, format!("sql.rows.{}", table.storage), 1),
        ] {
            let snapshot = store.snapshot();
            let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
            let (last, _) = cursor.next().expect("it reads").expect("there is one");
            drop(cursor);
            store.transact(|transaction| transaction.delete(tree, &last)).expect("it is removed");
            let found = read_tables(store.clone(), options()).await.expect("tables are read");
            let problem = found[0].problem.clone().expect("it is found");
            assert!(problem.starts_with("table public.t: index "), "{problem}");
            assert_eq!(give_up(&store, &lost(tree, name)).expect("it is repaired").len(), told);
            is_sound(&store, "repaired").await;
        }
        // A node is not running while it is repaired.
        let mut again = with_row_groups_of(store.clone(), ROW_GROUP_ROWS).session("tester");
        check(&mut again, &[("select count(*) from t", "39"), ("insert into t values (41, 1, 1)", "error 23505")])
            .await;
        check(&mut again, &[("insert into t values (40, 40, 1)", "INSERT 0 1")]).await;
    }
}
