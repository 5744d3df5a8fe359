//! Sequences, serial and identity columns. The results are those of PostgreSQL 15.18, but where a comment says otherwise.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array};
use device::CrashShelf;
use sql::Engine;
use store::Direction;

use crate::crash::open;
use crate::rights::{engine_and_guard, session_of};
use crate::support::{check, copy, engine, run, session, try_run};

#[tokio::test]
async fn a_sequence_gives_its_values_one_after_the_other() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create sequence s", "CREATE SEQUENCE"),
            ("select currval('s')", "error 55000: currval of sequence \"s\" is not yet defined in this session"),
            ("select lastval()", "error 55000: lastval is not yet defined in this session"),
            ("select nextval('s')", "1"),
            ("select nextval('s'::regclass)", "2"),
            ("select currval('s'), lastval()", "2|2"),
            ("select setval('s', 10)", "10"),
            ("select setval('s', 20, false)", "20"),
            ("select nextval('public.s')", "20"),
            ("select nextval('\"s\"')", "21"),
            ("select last_value, is_called from s", "21|true"),
            ("select nextval('missing')", "error 42P01: relation \"missing\" does not exist"),
            ("select nextval(null), setval('s', null)", "NULL|NULL"),
            ("select nextval('a b')", "error 42602"),
            ("alter sequence s increment by 5 maxvalue 100 cycle", "ALTER SEQUENCE"),
            ("select nextval('s')", "26"),
            ("select nextval('s')", "31"),
            ("alter sequence s restart", "ALTER SEQUENCE"),
            ("select nextval('s')", "1"),
            (
                "alter sequence s restart with 200",
                "error 22023: RESTART value (200) cannot be greater than MAXVALUE (100)",
            ),
            ("create sequence small as smallint maxvalue 2", "CREATE SEQUENCE"),
            (
                "select nextval('small') from generate_series(1, 3)",
                "error 2200H: nextval: reached maximum value of sequence \"small\" (2)",
            ),
            ("select currval('small')", "2"),
            (
                "select setval('small', 3)",
                "error 22003: setval: value 3 is out of bounds for sequence \"small\" (1..2)",
            ),
            ("create sequence s", "error 42P07: relation \"s\" already exists"),
            ("create sequence if not exists s", "CREATE SEQUENCE"),
            ("drop sequence nope", "error 42P01: sequence \"nope\" does not exist"),
            ("drop sequence if exists nope", "DROP SEQUENCE"),
            ("drop table s", "error 42809"),
            ("insert into s values (1)", "error 42809"),
            ("create table t (a int)", "CREATE TABLE"),
            ("select nextval('t')", "error 42809: \"t\" is not a sequence"),
            ("drop sequence t", "error 42809: \"t\" is not a sequence"),
            ("drop sequence s, small", "DROP SEQUENCE"),
            ("select nextval('s')", "error 42P01"),
            ("select lastval()", "error 55000"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_a_transaction_took_is_not_given_again_and_what_it_altered_is_undone() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create sequence s", "CREATE SEQUENCE"),
            ("begin; select nextval('s'); rollback", "BEGIN\n1\nROLLBACK"),
            ("select nextval('s')", "2"),
            (
                "begin; alter sequence s restart with 50; select nextval('s'); rollback",
                "BEGIN\nALTER SEQUENCE\n50\nROLLBACK",
            ),
            ("select nextval('s')", "3"),
            ("begin; create sequence gone; select nextval('gone'); rollback", "BEGIN\nCREATE SEQUENCE\n1\nROLLBACK"),
            ("select nextval('gone')", "error 42P01"),
            ("begin read only", "BEGIN"),
            ("select nextval('s')", "error 25006: cannot execute nextval() in a read-only transaction"),
            ("rollback", "ROLLBACK"),
            ("begin read only", "BEGIN"),
            ("select currval('s')", "3"),
            ("rollback", "ROLLBACK"),
            ("discard all", "DISCARD ALL"),
            ("select currval('s')", "error 55000"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_serial_column_takes_the_values_of_a_sequence_of_its_own() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create table t (id serial primary key, a int)", "CREATE TABLE"),
            ("insert into t (a) values (1), (2) returning id", "1\n2"),
            ("insert into t values (default, 3), (default, 4) returning *", "3|3\n4|4"),
            ("insert into t (a) select x from generate_series(5, 7) g(x)", "INSERT 0 3"),
            ("select max(id), count(distinct id) from t", "7|7"),
            ("insert into t (id, a) values (1, 0) on conflict (id) do update set a = excluded.a returning *", "1|0"),
            ("update t set id = default where a = 0 returning id", "8"),
            ("drop sequence t_id_seq", "error 2BP01: cannot drop sequence t_id_seq because other objects depend on it"),
            ("create table other (id int default nextval('t_id_seq') + 100)", "CREATE TABLE"),
            ("select nextval('t_id_seq')", "9"),
            ("insert into other values (default) returning id", "110"),
            ("drop table t", "error 2BP01"),
            ("drop table t cascade", "DROP TABLE"),
            ("insert into other values (default) returning id", "NULL"),
            ("select nextval('t_id_seq')", "error 42P01"),
            ("create table t (id bigserial, small smallserial)", "CREATE TABLE"),
            ("alter table t rename column id to number", "ALTER TABLE"),
            ("insert into t (small) values (default) returning *", "1|1"),
            ("alter table t drop column number", "ALTER TABLE"),
            ("select nextval('t_id_seq')", "error 42P01"),
            ("select nextval('t_small_seq')", "2"),
            (
                "create table e (id serial null)",
                "error 42601: conflicting NULL/NOT NULL declarations for column \"id\" of table \"e\"",
            ),
            (
                "create table e (id serial default 5)",
                "error 42601: multiple default values specified for column \"id\" of table \"e\"",
            ),
            // PostgreSQL adds such a column, and gives each row a value.
            ("alter table t add column id serial", "error 0A000"),
        ],
    )
    .await;
    let rows: ArrayRef = Arc::new(Int32Array::from(vec![7, 8]));
    run(&mut session, "create table c (id serial, a int)").await;
    assert_eq!(copy(&mut session, "copy c (a) from stdin", vec![rows]).await.expect("it is taken"), 2);
    check(&mut session, &[("select * from c order by 1", "1|7\n2|8")]).await;
}

#[tokio::test]
async fn an_identity_column_takes_given_values_only_where_it_may() {
    let mut session = session();
    let always = "error 428C9: cannot insert a non-DEFAULT value into column \"id\"";
    check(
        &mut session,
        &[
            ("create table g (id int generated always as identity, b int)", "CREATE TABLE"),
            ("insert into g (b) values (1), (2) returning id", "1\n2"),
            ("insert into g values (7, 1)", always),
            ("insert into g select 7, 1", always),
            ("insert into g overriding system value values (7, 1) returning id", "7"),
            ("insert into g values (default, 1) returning id", "3"),
            ("update g set id = 3", "error 428C9: column \"id\" can only be updated to DEFAULT"),
            ("update g set id = default where b = 2 returning id", "4"),
            ("insert into g (b) values (1) on conflict do nothing returning id", "5"),
            (
                "create table d (id smallint generated by default as identity (increment by -10 minvalue 50 \
                 maxvalue 100 start with 100 cycle), b int)",
                "CREATE TABLE",
            ),
            ("insert into d (b) select 1 from generate_series(1, 3) returning id", "100\n90\n80"),
            ("insert into d values (1, 1) returning id", "1"),
            ("insert into d (b) values (1) returning id", "70"),
            (
                "alter table d alter column id set default 5",
                "error 42601: column \"id\" of relation \"d\" is an identity column",
            ),
            ("alter table d alter column id drop default", "error 42601"),
            ("alter table d alter column id drop not null", "error 42601"),
            ("insert into d values (null, 1)", "error 23502"),
            (
                "drop sequence d_id_seq cascade",
                "error 2BP01: cannot drop sequence d_id_seq because column id of table d requires it",
            ),
            ("truncate d restart identity", "TRUNCATE TABLE"),
            ("insert into d (b) values (1) returning id", "100"),
            ("alter table g drop column id", "ALTER TABLE"),
            ("select nextval('g_id_seq')", "error 42P01"),
            (
                "create table e (id int default 5 generated always as identity)",
                "error 42601: both default and identity",
            ),
            ("create table e (id text generated always as identity)", "error 22023: identity column type must be"),
            ("select identity_value('public.d_id_seq')", "error 42883"),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_engines_own_function_is_none_of_a_statement_under_any_spelling() {
    let mut session = session();
    run(&mut session, "create table d (id int generated always as identity, b int)").await;
    let call = "\"identity_value\"('public.d_id_seq')";
    for sql in [
        format!("select {call}"),
        format!("select pg_catalog.{call}"),
        format!("select max({call}) from generate_series(1, 9)"),
        format!("create view v as select {call} as v"),
        format!("create table e (v bigint default {call})"),
        format!("alter table d alter column b set default {call}"),
        format!("insert into d (b) values ({call})"),
    ] {
        check(&mut session, &[(&sql, "error 42883")]).await;
    }
    check(&mut session, &[("insert into d (b) values (1) returning id", "1")]).await;
}

#[tokio::test]
async fn a_sequence_serves_who_has_a_right_on_it_and_an_identity_column_who_may_insert() {
    let (engine, guard) = engine_and_guard();
    let mut ann = session_of(&engine, &guard, "ann");
    check(
        &mut ann,
        &[
            ("create user bob password 'a long password'", "CREATE ROLE"),
            ("alter default privileges grant all on tables to bob", "ALTER DEFAULT PRIVILEGES"),
            ("create sequence s", "CREATE SEQUENCE"),
            ("create sequence hidden", "CREATE SEQUENCE"),
            ("create table d (id int generated by default as identity, b int)", "CREATE TABLE"),
            ("create table se (id serial, b int)", "CREATE TABLE"),
            ("create schema secret", "CREATE SCHEMA"),
            ("create sequence secret.x", "CREATE SEQUENCE"),
            ("create table secret.t (a int)", "CREATE TABLE"),
            ("grant usage on sequence secret.x to bob", "GRANT"),
            ("grant usage on schema public to bob", "GRANT"),
            ("grant usage on sequence s to bob", "GRANT"),
            ("grant usage on s to bob", "error 42809"),
            ("grant insert on sequence s to bob", "error 0LP01: invalid privilege type INSERT for sequence"),
            ("grant select on all tables in schema public to bob", "GRANT"),
        ],
    )
    .await;
    let mut bob = session_of(&engine, &guard, "bob");
    check(
        &mut bob,
        &[
            ("select nextval('s'), currval('s')", "1|1"),
            ("select setval('s', 4)", "error 42501: permission denied for sequence s"),
            ("select last_value from s", "error 42501: permission denied for sequence s"),
            ("select nextval('hidden')", "error 42501: permission denied for sequence hidden"),
            // Whose schema is hidden learns of none whether it is there.
            ("select nextval('secret.x')", "error 42501: permission denied for schema secret"),
            ("select currval('secret.nothing')", "error 42501: permission denied for schema secret"),
            ("select setval('secret.t', 1)", "error 42501: permission denied for schema secret"),
            ("alter sequence s restart", "error 42501: must be owner of sequence s"),
            ("drop sequence s", "error 42501: must be owner of sequence s"),
            ("insert into d (b) values (1)", "INSERT 0 1"),
            ("insert into se (b) values (1)", "error 42501: permission denied for sequence se_id_seq"),
        ],
    )
    .await;
    check(
        &mut ann,
        &[
            ("alter sequence se_id_seq owner to bob", "error 0A000: cannot change owner of sequence \"se_id_seq\""),
            ("alter table se owner to bob", "ALTER TABLE"),
            ("revoke usage on sequence s from bob", "REVOKE"),
            ("alter sequence hidden owner to bob", "ALTER SEQUENCE"),
        ],
    )
    .await;
    check(
        &mut bob,
        &[
            ("select nextval('s')", "error 42501"),
            ("select nextval('hidden')", "1"),
            ("insert into se (b) values (1) returning id", "1"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_value_is_given_to_two_sessions() {
    let engine = engine();
    run(&mut engine.session("tester"), "create sequence s").await;
    let take = |engine: Arc<sql::Engine>| async move {
        let mut session = engine.session("tester");
        let mut taken = Vec::new();
        for _ in 0..100 {
            taken.push(run(&mut session, "select nextval('s')").await);
            taken.extend(
                run(&mut session, "select nextval('s') from generate_series(1, 7)").await.lines().map(str::to_owned),
            );
        }
        taken
    };
    let tasks: Vec<_> = (0..4).map(|_| tokio::spawn(take(engine.clone()))).collect();
    let mut all = BTreeSet::new();
    for task in tasks {
        for value in task.await.expect("it ends") {
            let value: i64 = value.parse().expect("a number");
            assert!(all.insert(value), "{value} was given twice");
        }
    }
    assert_eq!((all.first(), all.last(), all.len()), (Some(&1), Some(&3200), 3200));
}

/// The greatest value that was given when the shelf had done so many operations.
type Given = Vec<(usize, i64)>;

async fn lives(shelf: &Arc<CrashShelf>, seed: u64) -> Given {
    let random = &mut fastrand::Rng::with_seed(seed);
    let mut given = Given::new();
    for life in 0..3 {
        let (store, engine) = open(shelf).expect("it opens");
        let mut session = engine.session("writer");
        if life == 0 {
            run(&mut session, "create table t (id serial, a int)").await;
        }
        for _ in 0..15 {
            let rows = random.usize(1..30);
            let sql = match random.u8(..4) {
                0 => {
                    format!("begin; insert into t (a) select 1 from generate_series(1, {rows}) returning id; rollback")
                }
                1 => format!("insert into t (a) select 1 from generate_series(1, {rows}) returning id"),
                2 => format!("select nextval('t_id_seq') from generate_series(1, {rows})"),
                _ => "select nextval('t_id_seq')".to_owned(),
            };
            let found = run(&mut session, &sql).await;
            let last = found.lines().filter_map(|line| line.parse::<i64>().ok()).max().expect("values are given");
            assert!(given.last().is_none_or(|(_, before)| *before < last), "{last} is not new");
            given.push((shelf.operations(), last));
            if random.u8(..5) == 0 {
                store.checkpoint().expect("it writes");
            }
        }
        drop((session, engine));
        if life == 1 {
            store.close().expect("it closes");
        }
    }
    given
}

#[tokio::test]
async fn a_value_that_was_given_is_not_given_again_after_a_power_failure_at_any_point() {
    let seed = std::env::var("SEED").map_or(11, |text| text.parse().expect("SEED is a number"));
    let shelf = Arc::new(CrashShelf::new(seed));
    let given = lives(&shelf, seed).await;
    let mut images = 0;
    for point in shelf.points() {
        let all: Vec<_> = shelf.images(point).collect();
        let Some(image) = all.get(point % all.len().max(1)) else { continue };
        let Some((_, last)) = given.iter().rfind(|(when, _)| *when <= point) else { continue };
        let after = Arc::new(image.shelf());
        let (_, engine) = open(&after).unwrap_or_else(|why| panic!("{image}: {why}"));
        let next = try_run(&mut engine.session("reader"), "select nextval('t_id_seq')", &[]).await;
        let next: i64 = next.unwrap_or_else(|why| panic!("{image}: {why}")).parse().expect("a number");
        assert!(next > *last, "{image}: {next} after {last}; replay with SEED={seed}");
        images += 1;
    }
    assert!(images > 50, "only {images} images: too few to mean anything");
}

#[tokio::test]
async fn the_sequence_of_an_identity_column_gets_the_type_that_the_column_gets() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create table t (id smallint generated always as identity, v int)", "CREATE TABLE"),
            ("insert into t (v) values (1), (2) returning id", "1\n2"),
            ("select setval('t_id_seq', 32767)", "32767"),
            ("insert into t (v) values (3)", "error 2200H"),
            ("begin; alter table t alter id type int; rollback", "BEGIN\nALTER TABLE\nROLLBACK"),
            ("insert into t (v) values (3)", "error 2200H"),
            ("alter table t alter id type int", "ALTER TABLE"),
            ("insert into t (v) values (3) returning id", "32768"),
            (
                "alter table t alter id type smallint",
                "error 22023: RESTART value (32768) cannot be greater than MAXVALUE (32767)",
            ),
            ("alter table t alter id type bigint", "ALTER TABLE"),
            ("select setval('t_id_seq', 3000000000)", "3000000000"),
            ("insert into t (v) values (4) returning id", "3000000001"),
            // A bound that was given stays.
            ("create table u (id int generated by default as identity (maxvalue 10), v int)", "CREATE TABLE"),
            ("alter table u alter id type bigint", "ALTER TABLE"),
            ("select setval('u_id_seq', 11)", "error 22003"),
            // The sequence of a serial column is another object, which keeps its type.
            ("create table s (id smallserial, v int)", "CREATE TABLE"),
            ("alter table s alter id type int", "ALTER TABLE"),
            ("select setval('s_id_seq', 32768)", "error 22003"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_column_with_a_sequence_is_renamed_by_a_statement_of_its_own() {
    let mut session = session();
    check(
        &mut session,
        &[
            ("create table t (a serial, v int)", "CREATE TABLE"),
            ("alter table t rename a to b, rename b to c", "error 42601"),
            ("alter table t rename a to b, rename to u", "error 42601"),
            ("alter table t alter v set not null, rename a to b", "error 42601"),
            ("alter table t rename a to b", "ALTER TABLE"),
            ("alter table t rename b to c", "ALTER TABLE"),
            ("alter table t drop column c", "ALTER TABLE"),
            ("select nextval('t_a_seq')", "error 42P01"),
        ],
    )
    .await;
}

/// How many counters the store contains.
fn counters(engine: &Engine) -> usize {
    let snapshot = engine.store().snapshot();
    let Some(tree) = snapshot.tree("sql.sequences").expect("reads") else { return 0 };
    let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    std::iter::from_fn(|| cursor.next().expect("reads")).count()
}

#[tokio::test]
async fn counters_that_no_snapshot_can_use_do_not_pile_up() {
    for (name, sql) in [
        ("dropped", "create sequence s; select nextval('s'); drop sequence s"),
        ("of a dropped table", "create table t (a serial, v int); insert into t (v) values (1); drop table t"),
        (
            "of a dropped column",
            "alter table kept add column b int; create sequence s owned by kept.b; select nextval('s'); alter table kept drop column b",
        ),
        ("begun anew", "truncate kept restart identity; insert into kept (v) values (1)"),
        ("restarted", "alter sequence kept_a_seq restart; select nextval('kept_a_seq')"),
        ("undone", "begin; create sequence s; select nextval('s'); rollback"),
        (
            "undone to a savepoint",
            "begin; savepoint a; create sequence s; select nextval('s'); rollback to a; create sequence u; drop sequence u; commit",
        ),
    ] {
        let engine = engine();
        let (mut session, mut older) = (engine.session("a"), engine.session("b"));
        run(&mut session, "create table kept (a serial, v int); create sequence old; select nextval('old')").await;
        check(&mut older, &[("begin isolation level repeatable read", "BEGIN"), ("select nextval('old')", "2")]).await;
        check(&mut session, &[("alter sequence old restart; select nextval('old')", "ALTER SEQUENCE\n1")]).await;
        for turn in 0..200 {
            if turn == 100 {
                check(
                    &mut older,
                    &[("select nextval('old')", "3"), ("commit", "COMMIT"), ("select nextval('old')", "2")],
                )
                .await;
            }
            let answer = run(&mut session, sql).await;
            assert!(!answer.contains("error"), "{name}: {answer}");
        }
        assert!(counters(&engine) < 140, "{name}: {} counters", counters(&engine));
    }
}
