//! Statements over tables that are larger than what a statement may take: they finish, by spilling, whatever the segments that
//! their rows lie in.

use sql::engine::SpillOptions;
use sql::{Engine, EngineOptions};
use store::{Options, Store};

use crate::support::run;

#[tokio::test]
async fn sorts_joins_and_groups_of_a_stored_table_finish_in_little_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let spill = Some(SpillOptions { folder: folder.path().join("spill"), bytes: 1 << 30 });
    // A quarter of it is for operators: less than the table has.
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
    // The order itself, of all rows.
    let sorted = run(&mut session, "select t from w order by t").await;
    assert_eq!(sorted.lines().count(), rows);
    assert!(sorted.lines().is_sorted());
}
