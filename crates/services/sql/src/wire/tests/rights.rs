//! Who logs in, and that every way to a row asks.

use std::sync::Arc;
use std::time::Duration;

use node::identity::{Action, AttributeChange, Attributes, Guard, IdentityChange, ObjectPattern, Privileges, RoleId};

use super::client::{Client, start};
use super::{Server, change, guarded_server, role};

fn privileges(actions: &[Action], object: &str, columns: &[&str]) -> Privileges {
    let object = ObjectPattern::parse(object).expect("it is one");
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    Privileges { actions: actions.to_vec(), object, columns, grantee: "bob".to_owned() }
}

pub(super) fn granted(actions: &[Action], object: &str, columns: &[&str]) -> IdentityChange {
    let privileges = privileges(actions, object, columns);
    IdentityChange::Grant { privileges, grant_option: false }
}

pub(super) fn revoked(actions: &[Action], object: &str, columns: &[&str]) -> IdentityChange {
    let privileges = privileges(actions, object, columns);
    IdentityChange::Revoke { privileges, option_only: false, cascade: false }
}

/// A server with the administrator `ann`, and `bob`, who may log in and use the names of `public`.
pub(super) async fn with_bob() -> (Server, Arc<Guard>, Client, Client) {
    let (server, guard) = guarded_server(|_| {}).await;
    change(
        &guard,
        &[
            role("bob", Attributes::user()),
            granted(&[Action::SqlConnect], "node", &[]),
            granted(&[Action::SchemaUse], "schema public", &[]),
        ],
    );
    let ann = Client::trusted(&server).await;
    let mut bob = Client::connect(&server).await;
    bob.log_in("bob", "").await.expect("he may");
    (server, guard, ann, bob)
}

pub(super) async fn runs(client: &mut Client, statements: &[&str]) {
    for sql in statements {
        let errors = client.query(sql).await.errors();
        assert!(errors.is_empty(), "{sql}: {errors:?}");
    }
}

pub(super) async fn refused(client: &mut Client, statements: &[&str]) {
    for sql in statements {
        assert_eq!(client.query(sql).await.errors(), ["42501"], "{sql}");
    }
}

/// Statements, and what each needs on the table.
const WAYS: [(&str, &[Action]); 22] = [
    ("select * from t where id = 1", &[Action::TableSelect]),
    ("select a + 1 from t", &[Action::TableSelect]),
    ("select count(*) from t", &[Action::TableSelect]),
    ("select 1 where exists (select 1 from t)", &[Action::TableSelect]),
    ("with x as (select * from t) select a from x", &[Action::TableSelect]),
    ("explain select * from t", &[Action::TableSelect]),
    ("copy t to stdout", &[Action::TableSelect]),
    ("copy (select a from t) to stdout", &[Action::TableSelect]),
    ("insert into t values (2, 2, 2)", &[Action::TableInsert]),
    ("insert into t select 3, 3, 3", &[Action::TableInsert]),
    ("insert into t values (1, 1, 1) on conflict do nothing", &[Action::TableInsert]),
    ("insert into t values (4, 4, 4) returning a", &[Action::TableInsert, Action::TableSelect]),
    (
        "insert into t values (1, 1, 1) on conflict (id) do update set a = 5",
        &[Action::TableInsert, Action::TableUpdate, Action::TableSelect],
    ),
    ("update t set a = 1", &[Action::TableUpdate]),
    ("update t set a = 1 where id = 1", &[Action::TableUpdate, Action::TableSelect]),
    ("update t set a = b where b > 1", &[Action::TableUpdate, Action::TableSelect]),
    ("update t set a = 1 returning b", &[Action::TableUpdate, Action::TableSelect]),
    ("delete from t where id = 77", &[Action::TableDelete, Action::TableSelect]),
    ("delete from t where b > 77 returning a", &[Action::TableDelete, Action::TableSelect]),
    ("delete from t", &[Action::TableDelete]),
    ("truncate t", &[Action::TableTruncate]),
    ("select * from v where a in (select a from t)", &[Action::TableSelect]),
];

#[tokio::test]
async fn every_way_to_a_row_asks() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    runs(
        &mut ann,
        &[
            "create table t (id int primary key, a int, b int)",
            "insert into t values (1, 2, 3)",
            "create view v as select id, a from t",
            "create schema s",
            "create table s.u (id int primary key)",
        ],
    )
    .await;
    for (sql, needed) in WAYS {
        refused(&mut bob, &[sql]).await;
        let view = granted(&[Action::TableSelect], "table public.v", &[]);
        for (at, _) in needed.iter().enumerate() {
            let others: Vec<Action> =
                needed.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, action)| *action).collect();
            if others.is_empty() {
                continue;
            }
            change(&guard, &[granted(&others, "table public.t", &[])]);
            refused(&mut bob, &[sql]).await;
            change(&guard, &[revoked(&others, "table public.t", &[])]);
        }
        change(&guard, &[granted(needed, "table public.t", &[]), view]);
        runs(&mut bob, &[sql]).await;
        change(
            &guard,
            &[revoked(needed, "table public.t", &[]), revoked(&[Action::TableSelect], "table public.v", &[])],
        );
    }
    refused(
        &mut bob,
        &[
            "copy t from stdin",
            "drop table t",
            "drop view v",
            "drop schema s",
            "alter table t add column c int",
            "alter table t rename to t2",
            "create or replace view v as select 1 as id, 2 as a",
            "create table mine (id int primary key)",
            "create table mine as select 1 as a",
            "create view mine as select 1 as a",
            "create schema mine",
            "select * from s.u",
            "select * from s.nothing",
            "insert into s.u values (1)",
            "create table s.mine (id int primary key)",
        ],
    )
    .await;
    server.stop().await;
}

#[tokio::test]
async fn columns_are_asked_wherever_the_query_uses_them() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    runs(
        &mut ann,
        &[
            "create table t (id int primary key, a int, b int)",
            "insert into t values (1, 2, 3)",
            "create view v as select id, a, b from t",
        ],
    )
    .await;
    for of in ["t", "v"] {
        change(&guard, &[granted(&[Action::TableSelect], &format!("table public.{of}"), &["id", "a"])]);
        let all = |part: &str| format!("select {part}").replace("FROM", &format!("from {of}"));
        for part in ["a FROM", "a FROM where id = 1", "count(*) FROM", "sum(a) FROM where id > 0", "1 FROM"] {
            runs(&mut bob, &[&all(part)]).await;
        }
        for part in [
            "b FROM",
            "* FROM",
            "a FROM where b = 3",
            "a FROM where id = 1 and b = 3",
            "count(b) FROM",
            "a FROM order by b",
        ] {
            refused(&mut bob, &[&all(part)]).await;
        }
    }
    change(&guard, &[granted(&[Action::TableUpdate], "table public.t", &["a"])]);
    runs(&mut bob, &["update t set a = 7 where id = 1", "update t set a = a + 1"]).await;
    refused(&mut bob, &["update t set b = 7", "update t set a = b", "update t set a = 7 where b = 3"]).await;
    server.stop().await;
}

#[tokio::test]
async fn views_are_read_with_the_rights_of_their_owner() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    runs(&mut ann, &["create table t (id int primary key)", "insert into t values (1)"]).await;
    change(&guard, &[granted(&[Action::TableMake], "schema public", &[])]);
    runs(&mut ann, &["create view anns as select id from t"]).await;
    change(&guard, &[granted(&[Action::TableSelect], "table public.anns", &[])]);
    assert_eq!(bob.query("select id from anns").await.rows(), [[Some("1".to_owned())]]);
    refused(&mut bob, &["select id from t"]).await;
    // His own view shows what he may read, while he may: also to an administrator.
    change(&guard, &[granted(&[Action::TableSelect], "table public.t", &[])]);
    runs(&mut bob, &["create view bobs as select id from t"]).await;
    runs(&mut ann, &["select * from bobs"]).await;
    change(&guard, &[revoked(&[Action::TableSelect], "table public.t", &[])]);
    refused(&mut ann, &["select * from bobs"]).await;
    server.stop().await;
}

#[tokio::test]
async fn who_creates_an_object_owns_it_at_once_and_until_it_is_dropped() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    change(&guard, &[granted(&[Action::TableMake], "schema public", &[]), granted(&[Action::SchemaMake], "node", &[])]);
    runs(&mut bob, &["begin", "create table mine (id int primary key, a int)", "insert into mine values (1, 2)"]).await;
    runs(&mut bob, &["select a from mine", "alter table mine rename to own", "select * from own", "commit"]).await;
    runs(&mut bob, &["create table other as select 1 as a", "drop table other", "create schema his"]).await;
    runs(&mut bob, &["create table his.t (id int primary key)", "drop table his.t", "drop schema his"]).await;
    let owned = |name: &str| {
        let view = guard.view();
        let owner = view.directory().owners().get(&ObjectPattern::parse(name).expect("it is one")).copied();
        owner.and_then(|owner: RoleId| view.name(owner).map(str::to_owned))
    };
    assert_eq!(owned("table public.own"), Some("bob".to_owned()));
    for gone in ["table public.mine", "table public.other", "schema his", "table his.t"] {
        assert_eq!(owned(gone), None, "{gone}");
    }
    runs(&mut bob, &["begin", "create table never (id int primary key)", "rollback"]).await;
    assert_eq!(owned("table public.never"), None);
    // A right does not pass to the next table of the name.
    change(&guard, &[granted(&[Action::TableSelect], "table public.own", &[])]);
    runs(&mut ann, &["drop table own", "create table own (id int primary key)"]).await;
    refused(&mut bob, &["select * from own"]).await;
    server.stop().await;
}

#[tokio::test]
async fn names_of_the_engine_are_no_names_of_users() {
    let (server, _guard, mut ann, mut bob) = with_bob().await;
    runs(&mut ann, &["create table t (id int primary key, a int)", "insert into t values (1, 2)"]).await;
    for sql in [
        "select * from \"$target/public\".t",
        "select * from terrace.\"$target/public\".t",
        "copy \"$target/public\".t to stdout",
        "insert into t values (1, 1) on conflict (id) do update set a = (select max(a) from \"$made\".there)",
    ] {
        assert_eq!(bob.query(sql).await.errors(), ["42P01"], "{sql}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_prepared_statement_and_a_paused_portal_lose_what_is_revoked() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    runs(&mut ann, &["create table t (a int)", "insert into t values (1), (2), (3)"]).await;
    change(&guard, &[granted(&[Action::TableSelect], "table public.t", &[])]);
    bob.parse("s", "select a + 1 from t", &[]).await;
    bob.message(b'B', b"p\0s\0\0\0\0\0\0\0").await;
    bob.message(b'E', b"p\0\0\0\0\x01").await;
    bob.message(b'H', b"").await;
    assert_eq!(bob.kinds(4).await, ['1', '2', 'D', 's']);
    change(&guard, &[revoked(&[Action::TableSelect], "table public.t", &[])]);
    bob.message(b'E', b"p\0\0\0\0\x01").await;
    bob.message(b'S', b"").await;
    assert_eq!(bob.reply().await.error().0, "42501");
    assert_eq!(bob.kinds(1).await, ['Z']);
    bob.message(b'B', b"p\0s\0\0\0\0\0\0\0").await;
    bob.message(b'E', b"p\0\0\0\0\0").await;
    bob.message(b'S', b"").await;
    assert_eq!(bob.kinds(1).await, ['2']);
    assert_eq!(bob.reply().await.error().0, "42501");
    server.stop().await;
}

#[tokio::test]
async fn a_locked_role_loses_its_sessions_idle_or_not_within_a_second() {
    let (server, guard, _ann, mut bob) = with_bob().await;
    let mut busy = Client::connect(&server).await;
    busy.log_in("bob", "").await.expect("he may");
    let endless =
        "select count(*) from generate_series(1, 100000000) a(x) cross join generate_series(1, 100000000) b(y)";
    busy.send_query(endless).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lock = vec![AttributeChange::Locked(Some("left".to_owned()))];
    change(&guard, &[IdentityChange::Set { role: "bob".to_owned(), changes: lock }]);
    let ended = async {
        assert_eq!(bob.reply().await.error().0, "57P01");
        // The description of its rows may have gone out before.
        let mut reply = busy.reply().await;
        while reply.kind == 'T' {
            reply = busy.reply().await;
        }
        assert_eq!(reply.error().0, "57P01");
    };
    tokio::time::timeout(Duration::from_secs(1), ended).await.expect("within a second");
    let failed = Client::connect(&server).await.log_in("bob", "secret").await.expect_err("he is locked");
    assert_eq!(failed.0, "28P01");
    server.stop().await;
}

#[tokio::test]
async fn a_login_needs_connect_and_a_place_of_its_role_and_waits_after_failures() {
    let (server, guard) = guarded_server(|_| {}).await;
    let limited = Attributes { connection_limit: Some(1), ..Attributes::user() };
    let everybody = Privileges {
        actions: vec![Action::SqlConnect],
        object: ObjectPattern::node(),
        columns: Vec::new(),
        grantee: "public".to_owned(),
    };
    let revoke = IdentityChange::Revoke { privileges: everybody, option_only: false, cascade: false };
    change(&guard, &[role("bob", limited), revoke]);
    let code = |failed: Result<(), (String, String)>| failed.map_err(|(code, _)| code);
    let mut bob = Client::connect(&server).await;
    assert_eq!(code(bob.log_in("bob", "").await), Err("42501".to_owned()));
    change(&guard, &[granted(&[Action::SqlConnect], "node", &[])]);
    let mut first = Client::connect(&server).await;
    // The place of the refused one comes back when its connection has ended.
    first.log_in("bob", "").await.expect("there is a place");
    assert_eq!(first.query("show is_superuser").await.rows(), [[Some("off".to_owned())]]);
    assert_eq!(code(Client::connect(&server).await.log_in("bob", "").await), Err("53300".to_owned()));
    server.stop().await;
    let (server, _guard) = guarded_server(|options| options.trust = false).await;
    let mut texts = Vec::new();
    // The first failures from this machine are free.
    for _ in 0..8 {
        texts.push(Client::connect(&server).await.log_in("ann", "wrong").await.expect_err("it is wrong"));
    }
    assert!(texts.iter().all(|(code, _)| code == "28P01"), "{texts:?}");
    assert!(texts.iter().any(|(_, text)| text.starts_with("too many failed logins")), "{texts:?}");
    server.stop().await;
}

#[tokio::test]
async fn other_users_statements_are_neither_seen_nor_ended_without_the_right() {
    let (server, guard, mut ann, mut bob) = with_bob().await;
    let mut also = Client::connect(&server).await;
    also.send(&start(3 << 16, &[("user", "bob")])).await;
    also.outcome().await;
    runs(&mut ann, &["select 'ann knows'"]).await;
    let seen = "select query from pg_stat_activity where usename = 'ann'";
    assert_eq!(bob.query(seen).await.rows(), [[Some("<insufficient privilege>".to_owned())]]);
    let anns = ann.key.0;
    refused(&mut bob, &[&format!("select pg_cancel_backend({anns})"), &format!("select pg_terminate_backend({anns})")])
        .await;
    change(&guard, &[granted(&[Action::SqlActivity], "node", &[])]);
    assert_eq!(bob.query(seen).await.rows(), [[Some("select 'ann knows'".to_owned())]]);
    server.stop().await;
}
