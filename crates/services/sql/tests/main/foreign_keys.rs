//! FOREIGN KEY constraints. The results are those of PostgreSQL 15, but where a comment says otherwise.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, Int32Array};
use device::CrashShelf;
use sql::Engine;
use store::{Options, Store};

use crate::crash::open;
use crate::support::{check, copy, engine, run, session, try_run, with_row_groups_of};
use crate::waiting::begin_waiting;

const P: &str = "create table p (id int primary key, u text unique, v int); insert into p values (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)";

#[tokio::test]
async fn constraints_are_declared_as_postgresql_declares_them() {
    let mut session = session();
    run(&mut session, P).await;
    check(
        &mut session,
        &[
            (
                "create table a (x int references p, y text references p (u), z int constraint n references p (id))",
                "CREATE TABLE",
            ),
            (
                "insert into a values (9, null, null)",
                "error 23503: insert or update on table \"a\" violates foreign key constraint \"a_x_fkey\"",
            ),
            (
                "insert into a values (1, 'x', null)",
                "error 23503: insert or update on table \"a\" violates foreign key constraint \"a_y_fkey\"",
            ),
            (
                "insert into a values (1, 'a', 7)",
                "error 23503: insert or update on table \"a\" violates foreign key constraint \"n\"",
            ),
            ("insert into a values (1, 'a', 3), (null, null, null)", "INSERT 0 2"),
            ("insert into a values (1, repeat('x', 5000), null)", "error 23503"),
            (
                "create table b (x int, foreign key (x) references p on delete set null on update restrict)",
                "CREATE TABLE",
            ),
            ("create table e (x int references nowhere)", "error 42P01"),
            (
                "create table e (x int references p (v))",
                "error 42830: there is no unique constraint matching given keys for referenced table \"p\"",
            ),
            ("create table e (x int references p (w))", "error 42703"),
            (
                "create table e (x text references p)",
                "error 42804: foreign key constraint \"e_x_fkey\" cannot be implemented",
            ),
            ("create table e (x int, foreign key (x) references p (id, u))", "error 42830: number of referencing"),
            ("create table e (x int, foreign key (w) references p)", "error 42703"),
            // PostgreSQL compares them; here both columns have one type.
            ("create table e (x bigint references p)", "error 0A000"),
            // These are not supported here.
            ("create table e (x int references p match full)", "error 0A000"),
            ("create table e (x int references p deferrable)", "error 0A000"),
            ("create table e (x int references p on delete set default)", "error 0A000"),
            ("create table e (x int references p on update cascade)", "error 0A000"),
            ("alter table b add column y int references p", "error 0A000"),
            ("alter table b add constraint b_x_fkey foreign key (x) references p", "error 42710"),
            ("alter table b add foreign key (x) references p", "ALTER TABLE"),
            ("alter table b drop constraint b_x_fkey1, drop constraint b_x_fkey", "ALTER TABLE"),
            ("insert into b values (77)", "INSERT 0 1"),
            (
                "alter table b add foreign key (x) references p",
                "error 23503: insert or update on table \"b\" violates foreign key constraint \"b_x_fkey\"",
            ),
            ("alter table b drop constraint b_x_fkey", "error 42704"),
            ("delete from b; alter table b add foreign key (x) references p", "DELETE 1\nALTER TABLE"),
            ("insert into b values (77)", "error 23503"),
        ],
    )
    .await;
}

/// Engines whose rows stay in the delta store, and one that moves them before each statement.
fn engines() -> [(Arc<Engine>, bool); 2] {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    [(engine(), false), (with_row_groups_of(store, 16), true)]
}

async fn check_in_both_stores(script: &[(&str, &str)]) {
    for (engine, moves) in engines() {
        let mut session = engine.session("tester");
        for (sql, expected) in script {
            if moves {
                engine.move_rows(0).expect("rows are moved");
            }
            check(&mut session, &[(*sql, *expected)]).await;
        }
    }
}

#[tokio::test]
async fn no_row_loses_its_key_in_whichever_store_it_is() {
    for index in ["", "; create index on c (p_id)"] {
        let make = format!("{P}; create table c (id int primary key, p_id int references p){index}");
        let made =
            "CREATE TABLE\nINSERT 0 3\nCREATE TABLE".to_owned() + if index.is_empty() { "" } else { "\nCREATE INDEX" };
        check_in_both_stores(&[
            (make.as_str(), made.as_str()),
            ("insert into c select x, x % 3 + 1 from generate_series(1, 60) g(x)", "INSERT 0 60"),
            ("insert into c values (61, 4)", "error 23503"),
            ("insert into c select 100 + x, x from generate_series(1, 60) g(x)", "error 23503"),
            ("update c set p_id = 5 where id = 1", "error 23503"),
            ("update c set p_id = 2 where id = 1", "UPDATE 1"),
            ("update c set id = id + 1000", "UPDATE 60"),
            ("delete from p where id = 1", "error 23503: update or delete on table \"p\" violates foreign key constraint \"c_p_id_fkey\" on table \"c\""),
            ("delete from p", "error 23503"),
            ("update p set id = 9 where id = 3", "error 23503"),
            ("update p set v = v + 1", "UPDATE 3"),
            ("update p set id = 4 - id", "UPDATE 3"),
            ("delete from c where p_id = 1", "DELETE 20"),
            ("delete from p where id = 1", "DELETE 1"),
            ("select count(*) from p", "2"),
            ("insert into p values (1, 'n', 1) on conflict (id) do update set id = 8", "INSERT 0 1"),
            ("insert into p values (2, 'n', 1) on conflict (id) do update set id = 8", "error 23503"),
            ("insert into c values (2002, 77) on conflict do nothing", "error 23503"),
            ("begin; delete from c; delete from p; insert into c values (1, 2)", "error 23503"),
            ("rollback; begin; insert into p values (50, 'x', 0); insert into c values (1, 50); commit", "ROLLBACK\nBEGIN\nINSERT 0 1\nINSERT 0 1\nCOMMIT"),
            ("begin; insert into p values (51, 'y', 0); savepoint s; rollback to s; insert into c values (2, 51); rollback", "BEGIN\nINSERT 0 1\nSAVEPOINT\nROLLBACK\nINSERT 0 1\nROLLBACK"),
        ])
        .await;
    }
}

#[tokio::test]
async fn rows_go_with_their_key_or_lose_it_where_that_is_declared() {
    check_in_both_stores(&[
        ("create table p (a int, b int, primary key (b, a)); insert into p values (1, 1), (1, 2), (2, 1)", "CREATE TABLE\nINSERT 0 3"),
        ("create table c (id int primary key, x int, y int, foreign key (x, y) references p (a, b) on delete cascade)", "CREATE TABLE"),
        ("create table d (id int references c on delete cascade, n int)", "CREATE TABLE"),
        ("create table e (n int not null, id int references c on delete set null)", "CREATE TABLE"),
        ("insert into c values (1, 1, 2), (2, 1, 2), (3, 2, 1), (4, null, 5), (5, 7, null)", "INSERT 0 5"),
        ("insert into c values (6, 2, 2)", "error 23503"),
        ("insert into d values (1, 1), (1, 2), (3, 3), (null, 4); insert into e values (1, 1), (2, 2), (3, 3)", "INSERT 0 4\nINSERT 0 3"),
        ("delete from p where a = 1", "DELETE 2"),
        ("select id from c order by 1", "3\n4\n5"),
        ("select n from d order by 1", "3\n4"),
        ("select n, id from e order by 1", "1|NULL\n2|NULL\n3|3"),
        ("begin; delete from p; select count(*) from d; rollback", "BEGIN\nDELETE 1\n1\nROLLBACK"),
        ("select count(*) from d", "2"),
        ("alter table e alter column id set not null", "error 23502"),
        ("delete from e where id is null; alter table e alter column id set not null", "DELETE 2\nALTER TABLE"),
        ("delete from c where id = 3", "error 23502"),
        ("delete from p", "error 23502"),
        ("select count(*) from p", "1"),
    ])
    .await;
}

#[tokio::test]
async fn one_row_may_refer_to_a_key_twice_and_lose_it_in_two_ways() {
    check_in_both_stores(&[
        ("create table p (id int primary key); insert into p values (1), (2)", "CREATE TABLE\nINSERT 0 2"),
        (
            "create table c (id int primary key, made int references p on delete set null, changed int references p on delete set null)",
            "CREATE TABLE",
        ),
        (
            "create table d (id int primary key, a int references p on delete set null, b int references p on delete cascade)",
            "CREATE TABLE",
        ),
        ("insert into c values (1, 1, 1), (2, 1, 2); insert into d values (1, 1, 1), (2, 1, 2)", "INSERT 0 2\nINSERT 0 2"),
        ("delete from p where id = 1", "DELETE 1"),
        ("select id, made, changed from c order by id", "1|NULL|NULL\n2|NULL|2"),
        ("select id, a, b from d order by id", "2|NULL|2"),
        ("insert into c values (3, 1, 2)", "error 23503"),
    ])
    .await;
}

#[tokio::test]
async fn many_rows_that_refer_to_their_own_table_come_at_once() {
    let mut session = session();
    run(&mut session, "create table t (id int primary key, up int references t)").await;
    check(
        &mut session,
        &[
            ("insert into t select g, nullif(g - 1, 0) from generate_series(1, 70000) x(g)", "INSERT 0 70000"),
            ("insert into t values (100001, 100000)", "error 23503"),
            // What the statement has added itself counts.
            ("create table s (id int primary key, up int)", "CREATE TABLE"),
            ("alter table s add foreign key (up) references s (id), alter column id type bigint", "error 0A000"),
            // Not every NaN has the same bits, and a json has no order.
            ("create table k (f float8 primary key, t text unique)", "CREATE TABLE"),
            ("create table l (f float8 references k)", "error 0A000"),
            ("create table l (t json references k (t))", "error 42804"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_table_refers_to_itself() {
    check_in_both_stores(&[
        ("create table t (id int primary key, up int references t on delete cascade)", "CREATE TABLE"),
        ("insert into t values (2, 1), (1, null), (3, 3), (4, 2)", "INSERT 0 4"),
        ("insert into t values (5, 6)", "error 23503"),
        ("update t set id = 7 where id = 1", "error 23503"),
        ("delete from t where id = 3", "DELETE 1"),
        ("delete from t where id = 1", "DELETE 1"),
        ("select count(*) from t", "0"),
        ("create table s (id int primary key, up int references s)", "CREATE TABLE"),
        ("insert into s values (1, null), (2, 1)", "INSERT 0 2"),
        ("delete from s where id = 1", "error 23503"),
        ("truncate s; insert into s values (1, 1)", "TRUNCATE TABLE\nINSERT 0 1"),
        ("drop table s", "DROP TABLE"),
    ])
    .await;
}

#[tokio::test]
async fn what_a_constraint_depends_on_stays_and_may_be_renamed() {
    let mut session = session();
    run(&mut session, P).await;
    check(
        &mut session,
        &[
            ("create table c (a int, p_id int references p, q text references p (u))", "CREATE TABLE"),
            ("drop table p", "error 2BP01: cannot drop table p because other objects depend on it"),
            ("truncate p", "error 0A000: cannot truncate a table referenced in a foreign key constraint"),
            ("alter table p drop constraint p_u_key", "error 2BP01"),
            ("alter table p drop column u", "error 2BP01"),
            // The positions of columns are stored.
            ("alter table p drop column v", "error 0A000"),
            ("alter table p alter column id type bigint", "error 0A000"),
            ("alter table p rename to parent; alter table parent rename column id to k", "ALTER TABLE\nALTER TABLE"),
            ("alter table c rename to child; alter table child rename column p_id to r", "ALTER TABLE\nALTER TABLE"),
            (
                "insert into child values (1, 9, null)",
                "error 23503: insert or update on table \"child\" violates foreign key constraint \"c_p_id_fkey\"",
            ),
            ("insert into child values (1, 1, 'a')", "INSERT 0 1"),
            ("delete from parent where k = 1", "error 23503"),
            ("alter table child drop column a", "ALTER TABLE"),
            ("delete from parent where k = 1", "error 23503"),
            ("truncate child, parent", "TRUNCATE TABLE"),
            ("insert into child values (1, 'a')", "error 23503"),
            ("drop table parent cascade; insert into child values (1, 'a')", "DROP TABLE\nINSERT 0 1"),
            (
                "create table x (id int primary key); create table y (id int references x); drop table x, y",
                "CREATE TABLE\nCREATE TABLE\nDROP TABLE",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn copy_looks_for_keys_and_details_tell_them() {
    let mut session = session();
    run(&mut session, P).await;
    run(&mut session, "create table c (p_id int references p)").await;
    let rows = |values: Vec<i32>| -> Vec<ArrayRef> { vec![Arc::new(Int32Array::from(values))] };
    assert_eq!(copy(&mut session, "copy c from stdin", rows(vec![1, 2, 1])).await.expect("they are there"), 3);
    let error = copy(&mut session, "copy c from stdin", rows(vec![3, 5])).await.expect_err("one is not there");
    let fields = error.report();
    assert_eq!(
        (fields.code, fields.detail.as_deref()),
        ("23503", Some("Key (p_id)=(5) is not present in table \"p\"."))
    );
    let error = try_run(&mut session, "delete from p where id = 1", &[]).await.expect_err("rows refer to it");
    assert_eq!(error.report().detail.as_deref(), Some("Key (id)=(1) is still referenced from table \"c\"."));
    check(&mut session, &[("select count(*) from c", "3")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_transactions_never_leave_a_row_without_its_key() {
    const INSERTS: &str = "insert into c values (1)";
    const DELETES: &str = "delete from p where id = 1";
    for (first, second, end, answer) in [
        (DELETES, INSERTS, "commit", "error 23503"),
        (DELETES, INSERTS, "rollback", "INSERT 0 1"),
        (INSERTS, DELETES, "commit", "error 23503"),
        (INSERTS, DELETES, "rollback", "DELETE 1"),
        (INSERTS, "update p set id = 9 where id = 1", "commit", "error 23503"),
    ] {
        for before in ["", "begin; select 1"] {
            let engine = engine();
            let (mut a, mut b) = (engine.session("a"), engine.session("b"));
            run(&mut a, P).await;
            run(&mut a, "create table c (p_id int references p)").await;
            run(&mut b, before).await;
            run(&mut a, &format!("begin; {first}")).await;
            let waiting = begin_waiting(&engine, b, second, 1).await;
            assert_eq!(run(&mut a, end).await, end.to_uppercase());
            let (mut b, got) = waiting.await.expect("no panic");
            assert!(got.starts_with(answer), "{first}, {second}, {end}: {got}");
            run(&mut b, "commit").await;
            let lost = "select count(*) from c where not exists (select 1 from p where p.id = c.p_id)";
            assert_eq!(run(&mut b, lost).await, "0");
        }
    }
}

#[tokio::test]
async fn an_older_snapshot_does_not_find_a_key_that_is_gone_nor_miss_a_row_that_came() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, P).await;
    run(&mut a, "create table c (p_id int references p)").await;
    run(&mut b, "begin isolation level repeatable read; select count(*) from p").await;
    check(&mut a, &[("delete from p where id = 1", "DELETE 1"), ("insert into p values (4, 'd', 4)", "INSERT 0 1")])
        .await;
    check(&mut b, &[("insert into c values (4)", "INSERT 0 1"), ("insert into c values (1)", "error 23503")]).await;
    run(&mut b, "rollback; begin isolation level repeatable read; select count(*) from p").await;
    check(&mut a, &[("insert into c values (2)", "INSERT 0 1")]).await;
    check(&mut b, &[("delete from p where id = 2", "error 40001")]).await;
}

#[tokio::test]
async fn other_columns_of_a_key_change_while_rows_refer_to_it() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, P).await;
    run(&mut a, "create table c (p_id int references p)").await;
    check(&mut a, &[("begin; insert into c values (1)", "BEGIN\nINSERT 0 1")]).await;
    check(&mut b, &[("insert into c values (1)", "INSERT 0 1"), ("update p set v = 7 where id = 1", "UPDATE 1")]).await;
    check(&mut a, &[("commit", "COMMIT")]).await;
}

#[tokio::test]
async fn a_constraint_holds_after_a_crash() {
    let shelf = Arc::new(CrashShelf::new(7));
    {
        let (_store, engine) = open(&shelf).expect("it opens");
        let mut session = engine.session("tester");
        run(&mut session, P).await;
        check(
            &mut session,
            &[
                ("create table c (p_id int references p on delete cascade)", "CREATE TABLE"),
                ("insert into c values (1), (2)", "INSERT 0 2"),
            ],
        )
        .await;
    }
    let last = shelf.points().last().expect("there are operations");
    let mut images = 0;
    for image in shelf.images(last) {
        let after = Arc::new(image.shelf());
        let (_store, engine) = open(&after).expect("it opens again");
        let mut session = engine.session("tester");
        check(
            &mut session,
            &[
                ("insert into c values (9)", "error 23503"),
                ("delete from p where id = 1", "DELETE 1"),
                ("select p_id from c", "2"),
            ],
        )
        .await;
        images += 1;
    }
    assert!(images > 0);
}

#[tokio::test]
async fn who_only_kept_the_definition_of_a_table_has_not_written_its_rows() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, P).await;
    run(&mut a, "create table c (p_id int references p on delete cascade)").await;
    run(&mut b, "begin isolation level repeatable read; select count(*) from p").await;
    check(&mut a, &[("update p set id = 30 where id = 3", "UPDATE 1")]).await;
    check(&mut b, &[("delete from p where id = 2", "DELETE 1"), ("commit", "COMMIT")]).await;
    // Rows that go with their key are written.
    run(&mut a, "insert into c values (1)").await;
    run(&mut b, "begin isolation level repeatable read; select count(*) from p").await;
    check(&mut a, &[("delete from p where id = 1", "DELETE 1")]).await;
    check(&mut b, &[("delete from p where id = 30", "error 40001")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_waits_at_its_end_for_a_key_that_may_go_and_can_be_cancelled() {
    for (end, expected) in [("commit", Err("23503")), ("rollback", Ok(1)), ("", Err("57014"))] {
        let engine = engine();
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        run(&mut a, P).await;
        run(&mut a, "create table c (p_id int references p)").await;
        run(&mut a, "begin; delete from p where id = 1").await;
        let canceller = b.canceller();
        let copying = tokio::spawn(async move {
            let rows: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1]))];
            copy(&mut b, "copy c from stdin", rows).await.map_err(|error| error.code())
        });
        while engine.row_waits().is_empty() {
            assert!(!copying.is_finished(), "it does not wait");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        match end {
            "" => canceller.cancel(),
            end => _ = run(&mut a, end).await,
        }
        assert_eq!(copying.await.expect("no panic"), expected, "{end}");
    }
}
