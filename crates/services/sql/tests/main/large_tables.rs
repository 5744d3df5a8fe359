//! Statements over tables that are larger than the memory that a statement may take: they finish by spilling, whatever
//! row groups their rows are in.

use std::sync::Arc;

use device::{FileOptions, FileShelf, Shelf};
use sql::engine::SpillOptions;
use sql::{Engine, EngineOptions, Session};
use store::{Options, Places, Store};

use crate::support::{check, run};

#[tokio::test]
async fn sorts_joins_and_groups_of_a_stored_table_finish_in_little_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let spill = Some(SpillOptions { folder: folder.path().join("spill"), bytes: 1 << 30 });
    // A quarter of it is for operators: less than the table's size.
    let options = EngineOptions { threads: 2, query_bytes: 256 << 20, spill, ..EngineOptions::default() };
    let engine = Engine::new(store, options).expect("it starts");
    let mut session = engine.session("a");
    let rows = 1_000_000;
    run(&mut session, "create table w (id bigint primary key, t text)").await;
    let text = "md5(g::text) || md5((g * 7)::text) || 'abcde'";
    let made = format!("insert into w select g, {text} from generate_series(1, {rows}) s(g)");
    assert_eq!(run(&mut session, &made).await, format!("INSERT 0 {rows}"));
    let all = format!("{rows}");
    let mut failed = Vec::new();
    let half = "(select * from w where id <= 500000)";
    let joined = [
        format!("select count(*) from {half} a join {half} b on a.t = b.t"),
        format!("select count(*) from {half} a join {half} b on a.id = b.id where a.t = b.t"),
    ];
    for (sql, wanted) in [
        ("select count(*) from (select t, row_number() over (order by t) n from w) q where n > 0", &*all),
        ("select count(*) from (select t, lag(t) over (order by t, id) before from w) q where before > t", "0"),
        ("select count(*) from (select t, id from w order by t limit 999999) q", "999999"),
        ("select count(*) from (select distinct t from w) q", &all),
        ("select count(*) from (select t, sum(id) from w group by t) q", &all),
        ("select count(*) from (select t from w union select t from w) q", &all),
        (&joined[0], "500000"),
        (&joined[1], "500000"),
    ] {
        let got = run(&mut session, sql).await;
        if got != wanted {
            failed.push(format!("{got}: {sql}"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    // The order of all rows.
    let sorted = run(&mut session, "select t from w order by t").await;
    assert_eq!(sorted.lines().count(), rows);
    assert!(sorted.lines().is_sorted());
}

/// If there is no room for the left side of such a join, DataFusion 55.2 reads it a second time: some plans then panic,
/// and partitions of the right side return unmatched rows twice, because each treats its own as those of all.
#[tokio::test]
async fn a_join_of_inequalities_without_room_gives_the_right_rows_or_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let spill = Some(SpillOptions { folder: folder.path().join("spill"), bytes: 1 << 30 });
    let options = EngineOptions { threads: 2, query_bytes: 512 << 20, spill, ..EngineOptions::default() };
    let little = EngineOptions { query_bytes: 48 << 20, ..options.clone() };
    let mut roomy = Engine::new(store.clone(), options).expect("it starts").session("a");
    let mut narrow = Engine::new(store, little).expect("it starts").session("a");
    run(&mut narrow, "create table wide (id int primary key, t text)").await;
    // In parts, so that row groups are small.
    for part in 0..15 {
        let series = format!("generate_series({}, {}) s(g)", part * 10_000 + 1, (part + 1) * 10_000);
        let done = run(&mut narrow, &format!("insert into wide select g, repeat(md5(g::text), 8) from {series}")).await;
        assert_eq!(done, "INSERT 0 10000");
    }
    // The number of rows of a series is not known before: the sides of the join stay as written.
    let series = "(select g as id, repeat(md5(g::text), 8) as t from generate_series(1, 150000) s(g))";
    let few = "generate_series(1, 20) b(id)";
    let on = "a.id + b.id = 25 or a.id < b.id - 10 and a.t <> b.id::text";
    for left in ["wide", series] {
        for join in ["join", "left join", "right join", "full join"] {
            let counts = "select count(a.id), count(b.id), count(*), max(a.t), sum(a.id)";
            let sql = format!("{counts} from {left} a {join} {few} on {on}");
            same_or_no_room(&mut roomy, &mut narrow, &sql).await;
        }
        for is in ["", "not"] {
            let sql =
                format!("select count(*), max(t) from {left} a where {is} exists (select 1 from {few} where {on})");
            same_or_no_room(&mut roomy, &mut narrow, &sql).await;
        }
    }
}

/// With little memory a query returns the same rows as with much memory, or ends with an error for lack of room.
async fn same_or_no_room(roomy: &mut Session, narrow: &mut Session, query: &str) {
    let (wanted, got) = (run(roomy, query).await, run(narrow, query).await);
    assert!(got == wanted || got.starts_with("error 53200"), "{got}, not {wanted}: {query}");
}

#[tokio::test]
async fn changes_of_more_rows_than_there_is_memory_for_are_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let shelf: Arc<dyn Shelf> =
        Arc::new(FileShelf::open(folder.path(), FileOptions::default()).expect("a folder to write"));
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let (store, _) =
        Store::open(places, Options { cache_bytes: 64 << 20, transaction_bytes: 8 << 20, ..Options::default() })
            .expect("it opens");
    let options = EngineOptions { threads: 2, query_bytes: 64 << 20, ..EngineOptions::default() };
    let mut session = Engine::new(store, options).expect("it starts").session("a");
    session.count_here();
    check(
        &mut session,
        &[
            ("create table m (n int primary key, f float8, t text)", "CREATE TABLE"),
            ("create table copy (n int primary key, f float8, t text)", "CREATE TABLE"),
            (
                "insert into m select g, g, repeat(md5(g::text), 8) from generate_series(1, 150000) s(g)",
                "INSERT 0 150000",
            ),
            ("insert into copy select n, -f, t from m", "INSERT 0 150000"),
            ("update m set f = f + 1", "UPDATE 150000"),
            ("update m set f = f + 1", "UPDATE 150000"),
            ("delete from copy", "DELETE 150000"),
            ("insert into copy select n, f, t from m", "INSERT 0 150000"),
            // The last key exists.
            ("insert into copy select 300000 - n, f, t from m", "error 23505"),
            ("select count(*), sum(f) from copy", "150000|11250375000.0"),
        ],
    )
    .await;
}

/// Row groups that were written with much memory are larger than all that a scan may keep after the setting was lowered.
#[tokio::test]
async fn a_scan_keeps_no_more_of_a_row_group_than_it_is_reading() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let options = EngineOptions { threads: 2, query_bytes: 2 << 30, ..EngineOptions::default() };
    let spill = Some(SpillOptions { folder: folder.path().join("spill"), bytes: 1 << 30 });
    let little = EngineOptions { query_bytes: 32 << 20, spill, ..options.clone() };
    let mut roomy = Engine::new(store.clone(), options).expect("it starts").session("a");
    run(&mut roomy, "create table w (id bigint primary key, t text)").await;
    let rows = 122_880;
    let made = format!("insert into w select g, repeat(md5(g::text), 8) from generate_series(1, {rows}) s(g)");
    assert_eq!(run(&mut roomy, &made).await, format!("INSERT 0 {rows}"));
    let mut narrow = Engine::new(store, little).expect("it starts").session("a");
    narrow.count_here();
    for sql in [
        "select count(*), sum(length(t)), max(t) from w",
        "select count(*), min(t) from w where t > '8' and id % 3 = 0",
        "select id from w order by t limit 3",
    ] {
        assert_eq!(run(&mut narrow, sql).await, run(&mut roomy, sql).await, "{sql}");
    }
}

#[tokio::test]
async fn savepoints_that_are_released_do_not_divide_what_a_large_transaction_spills() {
    let store =
        Store::in_memory(Options { transaction_bytes: 16 << 10, ..Options::default() }).expect("memory is enough");
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    let mut session = Engine::new(store.clone(), options).expect("it starts").session("a");
    run(&mut session, "create table t (id int primary key, v text)").await;
    run(&mut session, "begin").await;
    let before = store.metrics().journal.records;
    for id in 0..300 {
        let insert = format!("savepoint s; insert into t values ({id}, repeat('v', 50)); release s");
        assert_eq!(run(&mut session, &insert).await, "SAVEPOINT\nINSERT 0 1\nRELEASE");
    }
    run(&mut session, "savepoint s; insert into t values (300, 'undone'); rollback to s; release s; commit").await;
    assert_eq!(run(&mut session, "select count(*), max(id) from t").await, "300|299");
    let records = store.metrics().journal.records - before;
    assert!((5..60).contains(&records), "{records} records: it spilled, and not once for each savepoint");
}
