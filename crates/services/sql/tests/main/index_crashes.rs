//! Every moment at which the power may fail while indexes, primary and foreign keys are made for rows that are there, in both stores, and while
//! rows with entries change: what is left is the last answered state or the next one, and all indexes have its rows.

use std::sync::Arc;

use device::CrashShelf;

use crate::crash::{History, open_with, recover};
use crate::support::run;

const ROW_GROUP_ROWS: usize = 16;

/// Runs steps, one transaction each: SQL, which begins with `refused ` where it must fail, or `move`, `compact` and `checkpoint`.
async fn live(shelf: &Arc<CrashShelf>, steps: &[&str]) -> History {
    let (store, engine) = open_with(shelf, ROW_GROUP_ROWS).expect("it opens");
    let mut history = History::new();
    let mut session = engine.session("writer");
    for step in steps {
        match *step {
            "checkpoint" => _ = store.checkpoint().expect("it writes"),
            "move" => assert!(engine.move_rows(0).expect("rows are moved") > 0),
            "compact" => assert!(engine.compact().expect("row groups are compacted") > 0),
            sql => {
                let (sql, is_refused) = sql.strip_prefix("refused ").map_or((sql, false), |sql| (sql, true));
                let got = run(&mut session, sql).await;
                assert_eq!(got.starts_with("error 23505"), is_refused, "{sql}: {got}");
                assert!(is_refused || !got.contains("error"), "{sql}: {got}");
            }
        }
        history.note(&engine, shelf).await;
    }
    let stats = engine.tuple_mover_stats();
    println!("{} operations, {} states, {stats:?}", shelf.operations(), history.states.len());
    history
}

/// Lets the power fail at each operation of the steps.
async fn fails_anywhere(seed: u64, steps: &[&str], states: usize) {
    let shelf = Arc::new(CrashShelf::new(seed));
    let history = live(&shelf, steps).await;
    assert_eq!(history.states.len(), states, "each step that changes something has its own state");
    let mut images = 0;
    // One of the images of each point, another one each time.
    for point in shelf.points() {
        let all: Vec<_> = shelf.images(point).collect();
        let Some(image) = all.get(point % all.len().max(1)) else { continue };
        let after = Arc::new(image.shelf());
        recover(&history, point, &after).await.unwrap_or_else(|why| panic!("{image}: {why}"));
        images += 1;
    }
    assert!(images > 40, "only {images} images: too few to mean anything");
}

#[tokio::test]
async fn a_power_failure_leaves_indexes_with_the_rows_that_are_there() {
    let steps = [
        "create table t (id int primary key, u int unique, v text)",
        "create table p (u int unique, v int)",
        "insert into t select g, -g, repeat('x', 200) from generate_series(1, 50) as x(g)",
        "insert into p select g, g % 3 from generate_series(1, 50) as x(g)",
        "checkpoint",
        "create index on t (v, u)",
        "create index on p (v)",
        "insert into t select g, -g, '' from generate_series(51, 60) as x(g)",
        "insert into p select g, 9 from generate_series(77, 88) as x(g)",
        "update t set u = u - 100 where id % 2 = 0",
        "move",
        "checkpoint",
        "update p set u = u + 1000 where u > 30",
        "delete from p where u < 20",
        "compact",
        "alter table t alter column u type bigint",
        "checkpoint",
        "drop index t_v_u_idx",
        "truncate p",
    ];
    // The first state has no tables.
    fails_anywhere(5, &steps, 1 + 14).await;
}

/// Rows in row groups and in the delta store, some changed and deleted in each, with two indexes.
const ROWS: [&str; 8] = [
    "create table t (a int, u int unique, v text)",
    "create index on t (v, u)",
    "insert into t select g, -g, repeat('x', 100) from generate_series(1, 40) as x(g)",
    "insert into t values (41, null, 'd'), (42, null, 'd'), (43, -43, null)",
    "delete from t where a in (3, 20, 42)",
    "update t set u = u - 1000 where a between 5 and 12 or a = 43",
    "move",
    "insert into t values (50, -50, 'd'), (51, null, 'd')",
];

#[tokio::test]
async fn a_power_failure_leaves_a_table_as_it_was_or_with_its_new_primary_key() {
    let steps = [
        &ROWS[..],
        &[
            "checkpoint",
            "refused begin; insert into t values (1, 999, 'twice'); alter table t add primary key (a)",
            "rollback",
            "alter table t add primary key (a)",
            "insert into t values (60, -60, 'behind')",
            "checkpoint",
            "update t set a = a + 100 where a < 10",
            "begin; create table o as select a, u from t; savepoint s; alter table o add primary key (a); rollback to s; \
             create unique index on o (u, a); alter table o add primary key (a); commit",
            "checkpoint",
        ],
    ]
    .concat();
    fails_anywhere(6, &steps, 1 + 7 + 4).await;
}

#[tokio::test]
async fn a_power_failure_leaves_a_table_as_it_was_or_with_its_new_index() {
    let steps = [
        &ROWS[..],
        &[
            "checkpoint",
            "refused create unique index on t (v)",
            "create unique index on t (v, a)",
            "create index on t (v)",
            "alter table t add constraint au unique (a, u), add unique (a)",
            "insert into t values (60, -60, 'behind')",
            "checkpoint",
            "update t set v = v || a",
            "move",
            "begin; savepoint s; create unique index made on t (v); rollback to s; create unique index made on t (v); commit",
            "alter table t drop constraint au",
            "drop index t_v_u_idx",
            "checkpoint",
        ],
    ]
    .concat();
    fails_anywhere(7, &steps, 1 + 7 + 8).await;
}

#[tokio::test]
async fn a_power_failure_leaves_constraints_as_answered_and_rows_with_their_keys() {
    let steps = [
        "create table p (id int primary key, v text)",
        "create table c (id int primary key, p_id int references p on delete cascade)",
        "create table n (id int primary key, c_id int)",
        "insert into p select g, repeat('x', 200) from generate_series(1, 40) as x(g)",
        "insert into c select g, g % 40 + 1 from generate_series(1, 80) as x(g)",
        "insert into n select g, g from generate_series(1, 40) as x(g)",
        "checkpoint",
        "alter table n add foreign key (c_id) references c on delete set null",
        "checkpoint",
        "delete from p where id <= 5",
        "begin; insert into p values (50, 'y'); insert into c values (100, 50); commit",
        "alter table n drop constraint n_c_id_fkey",
        "drop table p cascade",
        "checkpoint",
    ];
    fails_anywhere(8, &steps, 1 + 11).await;
}
