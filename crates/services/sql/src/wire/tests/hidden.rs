//! What a role may not see stays hidden: behind old names and views, while a statement runs, in lists; and what is done is in
//! the audit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use node::audit::{AuditQuery, AuditReader, AuditRows, KIND_AUDIT};
use node::identity::{Action, Attributes, Guard};
use node::{Audit, AuditSettings, Clock, Interpreters};
use store::{Options, Store};

use super::client::Client;
use super::rights::{granted, refused, revoked, runs, with_bob};
use super::{Server, WireOptions, change, guard_with_ann, role};
use crate::{Engine, EngineOptions};

/// How soon a revoked right ends what uses it.
const SOON: Duration = Duration::from_secs(1);

/// The message, or what else the server says of the first error.
async fn error_of(client: &mut Client, sql: &str) -> (String, String) {
    client.send_query(sql).await;
    let mut error = None;
    loop {
        let reply = client.reply().await;
        match reply.kind {
            'Z' => return error.unwrap_or_else(|| panic!("{sql} works")),
            'E' => error = Some(reply.error()),
            _ => {}
        }
    }
}

/// Statements that use the names of objects that are others now.
const OLD_NAMES: [&str; 10] = [
    "select * from secret",
    "select a from secret where id = 1",
    "select count(*) from secret",
    "with x as (select a from secret) select * from x",
    "copy secret to stdout",
    "explain select * from secret",
    "insert into secret select id + 1, a from secret",
    "delete from secret where a > 41",
    "select * from shown",
    "select a from part",
];

/// The objects, which belong to `ann` and say nothing to `bob`.
const MADE: [&str; 7] = [
    "create table secret (id int primary key, a int)",
    "insert into secret values (1, 42)",
    "create view shown as select a from secret",
    "create table part (id int primary key, a int, b int)",
    "insert into part values (1, 42, 43)",
    "create table kept (id int primary key, a int)",
    "insert into kept values (1, 7)",
];

/// Others under the same names.
const MADE_ANEW: [&str; 9] = [
    "drop view shown",
    "drop table secret",
    "create table secret (id int primary key, a int)",
    "create view shown as select 1 as a",
    "alter table part drop column b",
    "alter table part rename column a to b",
    "alter table part add column a int",
    "alter table kept add column b int",
    "insert into kept values (2, 8, 9)",
];

#[tokio::test]
async fn an_old_snapshot_shows_nothing_by_the_rights_of_a_new_object_of_that_name() {
    for sql in OLD_NAMES {
        let (server, guard, mut ann, mut bob) = with_bob().await;
        let select = |object: &str, columns: &[&str]| granted(&[Action::TableSelect], object, columns);
        runs(&mut ann, &MADE).await;
        change(&guard, &[select("table public.part", &["id", "a"]), select("table public.kept", &[])]);
        runs(
            &mut bob,
            &["begin isolation level repeatable read", "select a from part", "select a from kept where id = 1"],
        )
        .await;
        runs(&mut ann, &MADE_ANEW).await;
        let actions = [Action::TableSelect, Action::TableInsert, Action::TableDelete];
        let secret = granted(&actions, "table public.secret", &[]);
        change(&guard, &[secret, select("table public.shown", &[]), select("table public.part", &["a"])]);
        // What was only added to is still the same, and as it was.
        assert_eq!(bob.query("select count(a) from kept").await.rows(), [[Some("1".to_owned())]]);
        assert_eq!(bob.query(sql).await.errors(), ["40001"], "{sql}");
        // A transaction that is new sees the new objects.
        runs(&mut bob, &["rollback", "begin", sql, "rollback"]).await;
        // What a transaction itself made anew is its own.
        let anew = ["begin", "drop table secret", "create table secret (id int)", "select * from secret", "commit"];
        runs(&mut ann, &anew).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn no_condition_of_a_reader_runs_on_rows_that_a_view_hides() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    let of = "as select v, n from t where who = 'bob'";
    runs(
        &mut ann,
        &[
            "create table t (who text, v text, n int)",
            "insert into t values ('bob', '1', 1), ('ann', 'ann''s secret', 0), ('eve', 'eve''s secret', 0)",
            &format!("create view mine {of}"),
            &format!("create view fenced with (security_barrier = true) {of}"),
            &format!("create view opened with (security_barrier = false) {of}"),
            "create view wide as select v, n::bigint as n from mine union all select 'x', 7000000000",
        ],
    )
    .await;
    for name in ["mine", "fenced", "opened", "wide"] {
        change(&guard, &[granted(&[Action::TableSelect], &format!("table public.{name}"), &[])]);
    }
    let ways = [
        "select * from VIEW where v::int > 0",
        "select * from VIEW where 1 / n > 0",
        "select count(*) from VIEW where v::int > 0 and n = 1",
        "select * from VIEW a join VIEW b on a.v::int = b.v::int",
        "select * from VIEW where v::int in (select n from VIEW)",
        "select v::int from VIEW order by v::int limit 1",
        "select max(v::int) from VIEW group by v::int having max(v::int) > 0",
        "with x as (select v::int as i from VIEW) select * from x where i > 0",
        "select case when v::int > 0 then 1 end from VIEW",
        "select distinct v::int from VIEW",
    ];
    for view in ["mine", "fenced"] {
        for way in ways {
            runs(&mut bob, &[&way.replace("VIEW", view)]).await;
        }
    }
    // It is the barrier that hides them.
    assert_eq!(error_of(&mut bob, "select * from opened where v::int > 0").await.0, "22P02");
    // Also for its owner, where it says so.
    assert_eq!(error_of(&mut ann, "select * from mine where v::int > 0").await.0, "22P02");
    runs(&mut ann, &["select * from fenced where v::int > 0"]).await;
    // A plan says nothing of what is behind it.
    for explain in ["explain", "explain verbose", "explain analyze"] {
        let plan = format!("{:?}", bob.query(&format!("{explain} select v from mine where n = 1")).await.rows());
        assert!(plan.contains("BarrierScan: public.mine"), "{plan}");
        assert!(!plan.contains("who") && !plan.contains("output_rows=3"), "{plan}");
    }
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        bob.query("select v, n from wide order by n").await.rows(),
        [[some("1"), some("1")], [some("x"), some("7000000000")]]
    );
    assert_eq!(bob.query("select count(*) from wide").await.rows(), [[some("2")]]);
    assert_eq!(bob.query("select sum(n) from wide where n > 5").await.rows(), [[some("7000000000")]]);
    runs(&mut ann, &["create view other with (security_barrier = true) as select 1 as a"]).await;
    for (sql, code) in [
        ("create view bad with (security_barrier = maybe) as select 1 as a", "22023"),
        ("create view bad with (security_invoker = true) as select 1 as a", "0A000"),
    ] {
        assert_eq!(ann.query(sql).await.errors(), [code], "{sql}");
    }
    server.stop().await;
}

#[tokio::test]
async fn statements_that_would_become_too_large_are_refused_and_not_planned() {
    let (server, _guard, mut ann, _bob) = with_bob().await;
    let levels = |count: usize| {
        let mut text = "with a0 as (select i from t)".to_owned();
        for level in 1..=count {
            text += &format!(", a{level} as (select x.i from a{0} x cross join a{0} y)", level - 1);
        }
        format!("{text} select count(*) from a{count}")
    };
    let within = (0..45).fold("select 1 as i".to_owned(), |sql, _| format!("with a as ({sql}) select i from a"));
    runs(&mut ann, &["create table t (i int)", "insert into t values (1)", "create view v0 as select i from t"]).await;
    for level in 1..=7 {
        let below = level - 1;
        runs(&mut ann, &[&format!("create view v{level} as select x.i from v{below} x cross join v{below} y")]).await;
    }
    runs(&mut ann, &[&levels(5), "select count(*) from v5"]).await;
    let begun = Instant::now();
    for sql in [
        levels(30),
        format!("explain {}", levels(30)),
        format!("create view w as {}", levels(30)),
        format!("insert into t {}", levels(30)),
        format!("copy ({}) to stdout", levels(30)),
        within,
        "select count(*) from v7 a, v7 b, v7 c, v7 d".to_owned(),
    ] {
        assert_eq!(ann.query(&sql).await.errors(), ["54001"], "{sql}");
    }
    // It takes milliseconds; planning one of them would take hours.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    server.stop().await;
}

#[tokio::test]
async fn a_revoked_right_ends_what_runs_within_a_second() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    runs(
        &mut ann,
        &[
            "create table t (a int)",
            "insert into t values (1)",
            "create table into_it (a int)",
            "create view v as select a from t",
        ],
    )
    .await;
    let endless = "generate_series(1, 1000000000000) y(j)";
    let select = |object: &str| (Action::TableSelect, object.to_owned());
    let insert = || (Action::TableInsert, "table public.into_it".to_owned());
    let cases = [
        (format!("select count(*) from t cross join {endless}"), select("table public.t")),
        (format!("select count(*) from v cross join {endless}"), select("table public.v")),
        (format!("insert into into_it select a from t cross join {endless}"), select("table public.t")),
        (format!("insert into into_it select a from t cross join {endless}"), insert()),
        (format!("copy (select count(*) from t cross join {endless}) to stdout"), select("table public.t")),
        ("copy into_it from stdin".to_owned(), insert()),
    ];
    for (sql, (action, object)) in cases {
        let all = [select("table public.t"), select("table public.v"), insert()];
        let grants: Vec<_> = all.iter().map(|(action, object)| granted(&[*action], object, &[])).collect();
        change(&guard, &grants);
        bob.send_query(&sql).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        change(&guard, &[revoked(&[action], &object, &[])]);
        let ended = async {
            let mut reply = bob.reply().await;
            while matches!(reply.kind, 'T' | 'H' | 'G' | 'd') {
                reply = bob.reply().await;
            }
            assert_eq!(reply.error().0, "42501", "{sql}");
        };
        tokio::time::timeout(SOON, ended).await.unwrap_or_else(|_| panic!("{sql}: it goes on"));
        assert_eq!(bob.kinds(1).await, ['Z']);
    }
    let nothing = [[Some("0".to_owned())]];
    assert_eq!(ann.query("select count(*) from into_it").await.rows(), nothing);
    server.stop().await;
}

#[tokio::test]
async fn lists_say_what_a_role_may_see_and_go_on_where_a_view_is_broken() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    change(&guard, &[granted(&[Action::TableMake], "schema public", &[])]);
    runs(&mut ann, &["create table t (a int)", "create view anns as select a from t"]).await;
    let rights = [
        granted(&[Action::TableSelect], "table public.t", &[]),
        granted(&[Action::TableSelect], "table public.anns", &[]),
    ];
    change(&guard, &rights);
    runs(&mut bob, &["create view bobs as select a as gone from t"]).await;
    let views = "select table_name from information_schema.views where table_schema = 'public' and view_definition is not null order by 1";
    let some = |text: &str| vec![Some(text.to_owned())];
    assert_eq!(bob.query(views).await.rows(), [some("bobs")], "of another owner's view the query is hidden");
    change(&guard, &[revoked(&[Action::TableSelect], "table public.t", &[])]);
    refused(&mut ann, &["select * from bobs"]).await;
    let columns = "select column_name from information_schema.columns where table_schema = 'public' order by 1";
    assert_eq!(ann.query(columns).await.rows(), [some("a"), some("a")]);
    assert_eq!(
        ann.query(views).await.rows(),
        [some("anns"), some("bobs")],
        "an administrator reads the queries of all"
    );
    runs(&mut ann, &["select count(*) from information_schema.tables"]).await;
    // Who runs something, and nothing of what and from where.
    let seen = "select usename, client_addr, client_port, state, query_start, query from pg_stat_activity where usename = 'ann'";
    let hidden =
        [[Some("ann"), None, None, None, None, Some("<insufficient privilege>")].map(|text| text.map(str::to_owned))];
    assert_eq!(bob.query(seen).await.rows(), hidden);
    change(&guard, &[granted(&[Action::SqlActivity], "node", &[])]);
    assert_eq!(bob.query(seen).await.rows()[0][1], Some("127.0.0.1".to_owned()));
    // Whose rights count shows in the setting.
    for (sql, is) in
        [("set role bob", "off"), ("reset role", "on"), ("begin; set local role bob", "off"), ("rollback", "on")]
    {
        runs(&mut ann, &[sql]).await;
        assert_eq!(ann.query("show is_superuser").await.rows(), [some(is)], "{sql}");
    }
    server.stop().await;
}

/// A server with an audit of so many bytes, and `ann`.
async fn audited(max_bytes: u64) -> (Server, Arc<Audit>, Arc<Guard>) {
    let interpreter = Interpreters::of(vec![(&[KIND_AUDIT], Arc::new(AuditRows))]);
    let options = Options { interpreter: Some(Arc::new(interpreter)), ..Options::default() };
    let store = Store::in_memory(options).expect("memory is there");
    let audit = Audit::open(&store, AuditSettings { max_bytes, ..AuditSettings::default() }, Clock::system());
    let options = EngineOptions { threads: 1, audit: Some(Arc::clone(&audit)), ..EngineOptions::default() };
    let engine = Engine::new(store.clone(), options).expect("it starts");
    let guard = guard_with_ann(&store);
    let options = WireOptions { listen: ([127, 0, 0, 1], 0).into(), trust: true, ..WireOptions::default() };
    (Server::start(engine, Arc::clone(&guard), options).await.expect("it listens"), audit, guard)
}

/// The entries since, as `who action object statement outcome`, and how many there are.
fn entries(audit: &Audit, since: &mut usize) -> Vec<String> {
    audit.wait_visible().expect("it works");
    let reader = AuditReader::at(audit.store().snapshot()).expect("it is there");
    let all = reader.page(&AuditQuery::default()).expect("it is whole").entries;
    let shown = all.iter().skip(*since).map(|shown| {
        let entry = &shown.chained.entry;
        let statement = entry.details.get("statement").map(|text| format!(" ({text})")).unwrap_or_default();
        let object = format!("{} {}", entry.action, entry.object);
        format!("{} {}{statement} {}", entry.actor.name, object.trim_end(), entry.outcome.name())
    });
    let found = shown.collect();
    *since = all.len();
    found
}

#[tokio::test]
async fn what_must_be_recorded_is_in_the_audit_once_before_it_is_done() {
    let (server, audit, guard) = audited(1 << 20).await;
    let mut ann = Client::trusted(&server).await;
    change(
        &guard,
        &[
            role("bob", Attributes::user()),
            granted(&[Action::SqlConnect], "node", &[]),
            granted(&[Action::SchemaUse], "schema public", &[]),
        ],
    );
    let mut bob = Client::connect(&server).await;
    bob.log_in("bob", "").await.expect("he may");
    let mut since = 0;
    assert_eq!(entries(&audit, &mut since), ["ann login granted", "bob login granted"]);
    let bobs = bob.key.0;
    let cancel = format!("select pg_cancel_backend({bobs})");
    let signal = format!("ann sql.signal role bob, process {bobs} granted");
    for (sql, expected) in [
        ("create table t (a int)", "ann table.make schema public (CREATE TABLE) granted"),
        ("create view v as select a from t", "ann table.make schema public (CREATE VIEW) granted"),
        ("create or replace view v as select a from t", "ann table.make schema public (CREATE VIEW) granted"),
        ("create schema s", "ann schema.make node (CREATE SCHEMA) granted"),
        ("alter table t add column b int", "ann table.own table public.t (ALTER TABLE) granted"),
        ("truncate t", "ann table.truncate table public.t (TRUNCATE TABLE) granted"),
        ("drop view v", "ann table.own table public.v (DROP VIEW) granted"),
        ("drop schema s", "ann schema.own schema s (DROP SCHEMA) granted"),
        ("copy t to stdout", "ann sql.export table public.t granted"),
        ("copy (select a from t) to stdout", "ann sql.export query granted"),
        (&cancel, &signal),
        ("select query from pg_stat_activity", "ann sql.activity role bob granted"),
        ("drop table t", "ann table.own table public.t (DROP TABLE) granted"),
    ] {
        runs(&mut ann, &[sql]).await;
        let found = entries(&audit, &mut since);
        assert_eq!(found.iter().filter(|entry| *entry == expected).count(), 1, "{sql}: {found:?}");
    }
    runs(&mut ann, &["create table t (a int)", "select a from t", "insert into t values (1)"]).await;
    assert_eq!(entries(&audit, &mut since).len(), 1, "reads and changes of rows have none");
    let anns = ann.key.0;
    let cancel = format!("select pg_cancel_backend({anns})");
    for (sql, expected) in [
        ("drop table t", "bob table.own table public.t (DROP TABLE) refused".to_owned()),
        ("truncate t", "bob table.truncate table public.t (TRUNCATE TABLE) refused".to_owned()),
        ("create table mine (a int)", "bob table.make schema public (CREATE TABLE) refused".to_owned()),
        (&cancel, format!("bob sql.signal role ann, process {anns} refused")),
    ] {
        refused(&mut bob, &[sql]).await;
        assert_eq!(entries(&audit, &mut since), [expected], "{sql}");
    }
    server.stop().await;
    // A full audit stops what must be recorded, and nothing else.
    let (server, _audit, guard) = audited(0).await;
    let mut ann = Client::trusted(&server).await;
    for sql in ["create table t (a int)", "create schema s", "copy (select 1) to stdout"] {
        assert_eq!(ann.query(sql).await.errors(), ["58030"], "{sql}");
    }
    change(&guard, &[role("bob", Attributes::user())]);
    runs(&mut ann, &["select 1", "select count(*) from pg_class"]).await;
    assert_eq!(ann.query("select * from t").await.errors(), ["42P01"]);
    server.stop().await;
}
