//! CHECK constraints, and what errors of constraints tell. The results are those of PostgreSQL 15.18, but where a comment says
//! otherwise.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array};
use store::{Options, Store};

use crate::rights::{engine_and_guard, session_of};
use crate::support::{check, copy, engine, run, session, try_run, with_row_groups_of};

#[tokio::test]
async fn a_row_that_violates_a_check_is_refused_and_one_that_is_unknown_is_not() {
    let mut session = session();
    check(
        &mut session,
        &[
            (
                "create table t (a int check (a > 0), b int constraint positive check (b > 0), c text, check (a < b), \
                 constraint z check (c <> ''), check (length(lower(c)) < 5))",
                "CREATE TABLE",
            ),
            ("insert into t values (1, 2, 'x')", "INSERT 0 1"),
            (
                "insert into t values (0, 2, 'x')",
                "error 23514: new row for relation \"t\" violates check constraint \"t_a_check\"",
            ),
            (
                "insert into t values (1, 0, 'x')",
                "error 23514: new row for relation \"t\" violates check constraint \"positive\"",
            ),
            (
                "insert into t values (3, 2, 'x')",
                "error 23514: new row for relation \"t\" violates check constraint \"t_check\"",
            ),
            ("insert into t values (null, null, null)", "INSERT 0 1"),
            (
                "insert into t values (5, 9, 'y'), (1, 5, 'xxxxxxx')",
                "error 23514: new row for relation \"t\" violates check constraint \"t_c_check\"",
            ),
            ("select count(*) from t", "2"),
            ("update t set a = -1", "error 23514"),
            ("insert into t select 1, x, 'x' from generate_series(2, -1, -1) g(x)", "error 23514"),
            ("select count(*) from t", "2"),
            ("create table u (id int primary key, v int check (u.v < 10))", "CREATE TABLE"),
            ("insert into u values (1, 1)", "INSERT 0 1"),
            ("insert into u values (1, 100) on conflict (id) do update set v = 5", "error 23514"),
            ("insert into u values (1, 1) on conflict (id) do update set v = 50", "error 23514"),
            ("insert into u values (1, 100) on conflict do nothing", "error 23514"),
            ("begin; insert into u values (2, 2); savepoint s", "BEGIN\nINSERT 0 1\nSAVEPOINT"),
            ("insert into u values (3, 30)", "error 23514"),
            ("rollback to s; insert into u values (3, 3); commit", "ROLLBACK\nINSERT 0 1\nCOMMIT"),
            ("select * from u order by 1", "1|1\n2|2\n3|3"),
            ("alter table u rename to renamed", "ALTER TABLE"),
            ("update renamed set v = 77 where id = 1", "error 23514"),
            (
                "create table v (a numeric(5,2) check (a between 1 and 10), d date check (d > '2020-01-01'), \
                 s varchar(5) check (s in ('a', 'b')), f float check (f > 0.5 or f is null))",
                "CREATE TABLE",
            ),
            ("insert into v values (5, '2021-01-01', 'a', 1)", "INSERT 0 1"),
            (
                "insert into v values (5, '2019-01-01', 'a', 1)",
                "error 23514: new row for relation \"v\" violates check constraint \"v_d_check\"",
            ),
            ("insert into v values (50, null, 'a', 1)", "error 23514"),
            ("insert into v values (5, null, 'a', 0.1)", "error 23514"),
            ("create table w (a int check (10 / a > 1))", "CREATE TABLE"),
            ("insert into w values (0)", "error 22012"),
        ],
    )
    .await;
    let rows = |values: Vec<i32>| -> Vec<ArrayRef> { vec![Arc::new(Int32Array::from(values))] };
    run(&mut session, "create table c (a int check (a > 0))").await;
    assert_eq!(copy(&mut session, "copy c from stdin", rows(vec![1, 2])).await.expect("they fit"), 2);
    assert_eq!(
        copy(&mut session, "copy c from stdin", rows(vec![3, 0])).await.expect_err("one does not").code(),
        "23514"
    );
    check(&mut session, &[("select * from c order by 1", "1\n2")]).await;
}

#[tokio::test]
async fn checks_hold_for_rows_that_go_to_row_groups_at_once() {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let engine = with_row_groups_of(store, 16);
    let mut session = engine.session("tester");
    check(
        &mut session,
        &[
            ("create table t (a int check (a <> 33))", "CREATE TABLE"),
            ("insert into t select * from generate_series(1, 32)", "INSERT 0 32"),
            ("insert into t select * from generate_series(1, 64)", "error 23514"),
            ("select count(*) from t", "32"),
            ("update t set a = a + 1", "error 23514"),
            ("update t set a = a + 100", "UPDATE 32"),
        ],
    )
    .await;
}

#[tokio::test]
async fn constraints_are_added_and_dropped_with_the_table_or_its_columns() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create table t (a int, b int, check (a > 1), check (a > 2), check (b > a), check (a < b), check (true))", "CREATE TABLE"),
            ("alter table t drop constraint t_check2", "ALTER TABLE"),
            ("alter table t drop constraint t_check2", "error 42704: constraint \"t_check2\" of relation \"t\" does not exist"),
            ("alter table t drop constraint if exists t_check2", "ALTER TABLE"),
            ("alter table t drop constraint t_a_check1", "ALTER TABLE"),
            ("insert into t values (2, 3)", "INSERT 0 1"),
            ("alter table t add constraint big check (a > 100)", "error 23514: check constraint \"big\" of relation \"t\" is violated by some row"),
            ("alter table t add constraint big check (a < 100)", "ALTER TABLE"),
            ("alter table t add constraint big check (a < 10)", "error 42710: constraint \"big\" for relation \"t\" already exists"),
            ("insert into t values (100, 200)", "error 23514: new row for relation \"t\" violates check constraint \"big\""),
            ("alter table t rename column a to aa", "ALTER TABLE"),
            ("insert into t values (100, 200)", "error 23514: new row for relation \"t\" violates check constraint \"big\""),
            ("alter table t drop column b", "ALTER TABLE"),
            ("insert into t values (100)", "error 23514: new row for relation \"t\" violates check constraint \"big\""),
            ("alter table t drop constraint t_check", "error 42704"),
            ("begin; alter table t drop constraint big; insert into t values (100); rollback", "BEGIN\nALTER TABLE\nINSERT 0 1\nROLLBACK"),
            ("insert into t values (100)", "error 23514"),
            ("begin; alter table t add constraint more check (aa < 50)", "BEGIN\nALTER TABLE"),
            ("insert into t values (60)", "error 23514: new row for relation \"t\" violates check constraint \"more\""),
            ("rollback", "ROLLBACK"),
            ("insert into t values (60)", "INSERT 0 1"),
            ("create table k (a int primary key, check (a > 0))", "CREATE TABLE"),
            ("alter table k drop constraint k_pkey", "error 0A000"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_condition_that_is_none_is_refused_when_it_is_declared() {
    let mut session = session();
    check(
        &mut session,
        &[
            (
                "create table bad (a int check (a))",
                "error 42804: argument of CHECK must be type boolean, not type integer",
            ),
            ("create table bad (a int check (x > 1))", "error 42703"),
            ("create table bad (a int check (a > (select 1)))", "error 0A000: cannot use subquery in check constraint"),
            (
                "create table bad (a int check (sum(a) > 1))",
                "error 42803: aggregate functions are not allowed in check constraints",
            ),
            (
                "create table bad (a int check (row_number() over () > 1))",
                "error 42P20: window functions are not allowed",
            ),
            ("create table bad (a int constraint q check (a > 1), constraint q check (a > 2))", "error 42710"),
            // PostgreSQL accepts these, and does not know when rows that are there violate them.
            ("create table bad (a int check (a > random()))", "error 0A000"),
            ("create table bad (a timestamptz check (a > now()))", "error 0A000"),
            ("create table bad (a date check (a > current_date))", "error 0A000"),
            ("create table w (a int)", "CREATE TABLE"),
            ("alter table w add check (a > 5) not valid", "error 0A000"),
            ("alter table w add column b int check (b > 5)", "error 0A000"),
            ("select * from bad", "error 42P01"),
        ],
    )
    .await;
}

#[tokio::test]
async fn an_error_names_its_constraint_and_tells_no_value_that_may_not_be_read() {
    let (engine, guard) = engine_and_guard();
    let mut ann = session_of(&engine, &guard, "ann");
    check(
        &mut ann,
        &[
            ("create user bob password 'a long password'", "CREATE ROLE"),
            ("create table u (id int primary key, v int check (v < 10), w int)", "CREATE TABLE"),
            ("insert into u values (1, 1, 42)", "INSERT 0 1"),
            ("grant usage on schema public to bob", "GRANT"),
            ("grant insert, update on u to bob", "GRANT"),
            ("grant select (id) on u to bob", "GRANT"),
            ("create table secret (id int primary key)", "CREATE TABLE"),
            ("insert into secret values (7)", "INSERT 0 1"),
            ("grant insert on secret to bob", "GRANT"),
        ],
    )
    .await;
    let mut bob = session_of(&engine, &guard, "bob");
    let row = |text: &str| Some(format!("Failing row contains {text}."));
    let key = |text: &str| Some(format!("Key {text} already exists."));
    for (sql, of_ann, of_bob, constraint) in [
        // PostgreSQL tells bob the values that he gave, too: `(id, v) = (5, 99)`.
        ("insert into u values (5, 99, 1)", row("(5, 99, 1)"), row("(id) = (5)"), Some("u_v_check")),
        ("update u set v = 77 where id = 1", row("(1, 77, 42)"), row("(id) = (1)"), Some("u_v_check")),
        ("insert into u (v) values (1)", row("(null, 1, null)"), row("(id) = (null)"), None),
        ("insert into u values (1, 1)", key("(id)=(1)"), key("(id)=(1)"), Some("u_pkey")),
        ("insert into secret values (7)", key("(id)=(7)"), None, Some("secret_pkey")),
        ("insert into secret values (null)", row("(null)"), None, None),
    ] {
        for (session, detail) in [(&mut ann, of_ann), (&mut bob, of_bob)] {
            let fields = try_run(session, sql, &[]).await.expect_err(sql).report();
            let object = fields.object.expect("it is about a constraint");
            let table = if sql.contains("secret") { "secret" } else { "u" };
            assert_eq!(
                (fields.detail, object.schema.as_str(), object.table.as_str()),
                (detail, "public", table),
                "{sql}"
            );
            assert_eq!(object.constraint.as_deref(), constraint, "{sql}");
            assert_eq!(object.column.as_deref(), (fields.code == "23502").then_some("id"), "{sql}");
        }
    }
}

#[tokio::test]
async fn null_is_refused_from_then_on_where_no_row_has_it() {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let engine = with_row_groups_of(store, 16);
    let mut session = engine.session("tester");
    check(
        &mut session,
        &[
            ("create table t (a int, b int)", "CREATE TABLE"),
            ("insert into t select x, case when x < 40 then x end from generate_series(1, 40) g(x)", "INSERT 0 40"),
            (
                "alter table t alter column b set not null",
                "error 23502: column \"b\" of relation \"t\" contains null values",
            ),
            ("delete from t where b is null or b = 1", "DELETE 2"),
            ("alter table t alter column b set not null", "ALTER TABLE"),
            ("alter table t alter column b set not null", "ALTER TABLE"),
            ("insert into t values (1, null)", "error 23502"),
            ("update t set b = null where a = 2", "error 23502"),
            ("select count(*), count(b), sum(b) from t", "38|38|779"),
            ("select max(a) from t where b is not null", "39"),
            ("insert into t values (41, 41)", "INSERT 0 1"),
        ],
    )
    .await;
    engine.move_rows(0).expect("rows are moved");
    engine.compact().expect("row groups are compacted");
    check(
        &mut session,
        &[
            ("select count(*), count(b), sum(b) from t", "39|39|820"),
            ("alter table t alter column b drop not null", "ALTER TABLE"),
            ("insert into t values (1, null)", "INSERT 0 1"),
            ("select count(*), count(b) from t", "40|39"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_column_gets_another_type_if_its_values_fit() {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let engine = with_row_groups_of(store, 16);
    let mut session = engine.session("tester");
    check(
        &mut session,
        &[
            (
                "create table t (id int primary key, a int default 5 check (a < 100), b text, c varchar(5) not null, d numeric(6,2))",
                "CREATE TABLE",
            ),
            ("insert into t values (1, 10, '7', 'abc', 1.26), (2, null, '8', 'abcde', null)", "INSERT 0 2"),
            ("alter table t alter column a type bigint", "ALTER TABLE"),
            ("alter table t alter a type int using a + 1, alter column d set data type int", "ALTER TABLE"),
            ("select * from t order by 1", "1|11|7|abc|1\n2|NULL|8|abcde|NULL"),
            ("alter table t alter column b type int", "error 42804: column \"b\" cannot be cast automatically to type integer"),
            ("alter table t alter column b type int using b::int", "ALTER TABLE"),
            ("alter table t alter column c type varchar(3)", "error 22001: value too long for type character varying(3)"),
            ("alter table t alter column c type text", "ALTER TABLE"),
            ("alter table t alter column id type bigint", "ALTER TABLE"),
            ("alter table t alter column id type int using 1", "error 23505"),
            ("alter table t alter column a type int using (select 1)", "error 0A000: cannot use subquery in transform expression"),
            ("alter table t alter column a type smallint using 1000000", "error 22003"),
            ("alter table t alter column a type date using date '2020-01-01'", "error 42804: default for column \"a\" cannot be cast"),
            ("insert into t (id, c) values (3, 'x')", "INSERT 0 1"),
            ("insert into t values (4, 200, 1, 'x', 1)", "error 23514"),
            ("insert into t values (1, 2, 1, 'x', 1)", "error 23505"),
            ("select * from t order by 1", "1|11|7|abc|1\n2|NULL|8|abcde|NULL\n3|5|NULL|x|NULL"),
            ("select b + 1 from t where id = 1", "8"),
            ("create view v as select b from t", "CREATE VIEW"),
            // PostgreSQL's code is 0A000.
            ("alter table t alter column b type bigint", "error 2BP01"),
            ("create table e (a text default 'x', s serial, i int generated always as identity)", "CREATE TABLE"),
            ("alter table e alter column a type int", "error 42804"),
            ("alter table e alter column s type bigint", "ALTER TABLE"),
            ("alter table e alter column i type text", "error 22023: identity column type must be"),
            ("insert into e (a) values ('q') returning s, i", "1|1"),
            ("alter table e alter column nope type int", "error 42703"),
            ("create table large (a int)", "CREATE TABLE"),
            ("insert into large select * from generate_series(1, 40)", "INSERT 0 40"),
            ("begin; alter table large alter column a type text; rollback", "BEGIN\nALTER TABLE\nROLLBACK"),
            ("select sum(a) from large", "820"),
            ("alter table large alter column a type text using a::text || '!'", "ALTER TABLE"),
            ("select count(*), max(length(a)) from large", "40|3"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_constraint_is_added_by_a_look_at_all_rows_and_known_to_older_transactions() {
    for (change, code) in [("alter column a set not null", "23502"), ("add check (a is not null)", "23514")] {
        let engine = engine();
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        let change = format!("alter table t {change}");
        let change = change.as_str();
        let begin = ("begin isolation level repeatable read; select 1", "BEGIN\n1");
        check(&mut a, &[("create table t (a int); insert into t values (1)", "CREATE TABLE\nINSERT 0 1"), begin]).await;
        check(&mut b, &[("insert into t values (null)", "INSERT 0 1")]).await;
        check(&mut a, &[(change, "error 40001"), ("rollback", "ROLLBACK"), (change, &format!("error {code}"))]).await;
        check(&mut b, &[("delete from t where a is null", "DELETE 1"), begin]).await;
        let writes = ("begin; insert into t values (2)", "BEGIN\nINSERT 0 1");
        check(&mut a, &[writes, (change, "ALTER TABLE"), ("commit", "COMMIT")]).await;
        check(&mut b, &[("insert into t values (null)", "error 40001")]).await;
    }
}

#[tokio::test]
async fn a_table_is_written_anew_only_with_all_rows_that_others_have_loaded_into_row_groups() {
    for change in ["add primary key (a)", "drop column b", "alter column b type bigint"] {
        let store = Store::in_memory(Options::default()).expect("memory is enough");
        let engine = with_row_groups_of(store, 16);
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        let change = format!("alter table t {change}");
        let change = change.as_str();
        let begin = ("begin isolation level repeatable read; select 1", "BEGIN\n1");
        check(&mut a, &[("create table t (a int not null, b int)", "CREATE TABLE"), begin]).await;
        let column = || -> ArrayRef { Arc::new(Int32Array::from_iter_values(1..=16)) };
        // They are one row group: none of them is in the delta store.
        assert_eq!(copy(&mut b, "copy t from stdin", vec![column(), column()]).await.expect("they fit"), 16);
        check(
            &mut a,
            &[
                (change, "error 40001"),
                ("rollback", "ROLLBACK"),
                (change, "ALTER TABLE"),
                ("select count(*), sum(a) from t", "16|136"),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn what_a_session_has_compiled_is_that_of_the_table_as_it_is_now_and_bounded() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    let checks: String = (0..200).map(|n| format!(", check (a <> {n})")).collect();
    run(&mut b, &format!("create table one (a int{checks}); create table two (a int{checks})")).await;
    // Together they are more than a session keeps.
    for _ in 0..2 {
        run(&mut a, "begin").await;
        for table in ["one", "two", "one"] {
            check(&mut a, &[(&format!("insert into {table} values (500)"), "INSERT 0 1")]).await;
        }
        check(&mut a, &[("insert into two values (199)", "error 23514"), ("rollback", "ROLLBACK")]).await;
    }
    run(&mut b, "create table t (a int constraint c check (a > 0))").await;
    check(&mut a, &[("insert into t values (1)", "INSERT 0 1"), ("insert into t values (0)", "error 23514")]).await;
    run(&mut b, "alter table t drop constraint c").await;
    check(&mut a, &[("insert into t values (0)", "INSERT 0 1"), ("delete from t", "DELETE 2")]).await;
    run(&mut b, "alter table t add constraint c check (a < 0)").await;
    check(&mut a, &[("insert into t values (1)", "error 23514"), ("insert into t values (-1)", "INSERT 0 1")]).await;
    run(&mut b, "drop table t; create table t (b text, a int constraint c check (a < 0))").await;
    check(
        &mut a,
        &[("insert into t values ('x', 1)", "error 23514"), ("insert into t values ('x', -1)", "INSERT 0 1")],
    )
    .await;
}
