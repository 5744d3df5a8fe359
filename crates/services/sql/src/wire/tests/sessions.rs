//! What clients do with a session beside statements: prepared statements under shared names, notifications, settings, a look at locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use node::identity::{Action, Attributes};

use super::client::{Client, Outcome, Reply};
use super::rights::{granted, revoked};
use super::{change, guarded_server, role, server};
use crate::engine::{MessageSource, NewMessage};

/// The bound that detects a hang.
const HANG: Duration = Duration::from_secs(120);

fn texts(outcome: &Outcome) -> Vec<String> {
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "null".to_owned());
    outcome.rows().iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}

async fn done(client: &mut Client, sql: &str) -> Outcome {
    let outcome = client.query(sql).await;
    assert!(outcome.errors().is_empty(), "{sql}: {:?}", outcome.errors());
    outcome
}

/// Process, channel and payload of a NotificationResponse.
fn notification(reply: &Reply) -> String {
    assert_eq!(reply.kind, 'A', "{reply:?}");
    let process = u32::from_be_bytes(reply.body[..4].try_into().expect("it has a number"));
    // Both end with a zero, also a payload that is empty.
    let texts = String::from_utf8_lossy(&reply.body[4..]).into_owned();
    let texts = texts.strip_suffix('\0').expect("it ends with a zero").replace('\0', "=");
    format!("{process} {texts}")
}

/// The next notification while the client only waits.
async fn notified(client: &mut Client) -> String {
    let reply = tokio::time::timeout(HANG, client.reply()).await.expect("it comes");
    notification(&reply)
}

#[tokio::test]
async fn statements_of_the_protocol_and_of_prepare_share_their_names() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    client.parse("one", "select $1::int + 1", &[]).await;
    client.parse("bare", "", &[]).await;
    client.message(b'S', b"").await;
    assert_eq!(client.kinds(3).await, ['1', '1', 'Z']);
    assert_eq!(texts(&done(&mut client, "execute one(4)").await), ["5"]);
    assert_eq!(client.query("prepare one as select 1").await.errors(), ["42P05"]);
    done(&mut client, "prepare two (numeric, text) as select $1 * 2, $2").await;
    client.parse("two", "select 1", &[]).await;
    client.message(b'S', b"").await;
    assert_eq!(client.reply().await.error().0, "42P05");
    assert_eq!(client.kinds(1).await, ['Z']);
    // One parameter of each, as text.
    client.message(b'D', b"Stwo\0").await;
    client.message(b'B', b"\0two\0\0\0\0\x02\0\0\0\x031.5\0\0\0\x01x\0\0").await;
    client.message(b'E', b"\0\0\0\0\0").await;
    client.message(b'S', b"").await;
    let described = client.reply().await;
    assert_eq!((described.kind, &described.body[..]), ('t', &b"\0\x02\0\0\x06\xa4\0\0\0\x19"[..]));
    assert_eq!(client.kinds(2).await, ['T', '2']);
    let row = client.reply().await;
    assert_eq!((row.kind, &row.body[..]), ('D', &b"\0\x02\0\0\0\x033.0\0\0\0\x01x"[..]));
    assert_eq!(client.kinds(2).await, ['C', 'Z']);
    let all = "select name, statement, parameter_types, from_sql from pg_prepared_statements order by name";
    assert_eq!(
        texts(&done(&mut client, all).await),
        [
            "bare||{}|f",
            "one|select $1::int + 1|{integer}|f",
            "two|prepare two (numeric, text) as select $1 * 2, $2|{numeric,text}|t"
        ]
    );
    done(&mut client, "deallocate one").await;
    done(&mut client, "prepare one as select count(*) from pg_type where typname = $1").await;
    assert_eq!(texts(&done(&mut client, "execute one('int4')").await), ["1"]);
    client.message(b'C', b"Sone\0").await;
    client.message(b'S', b"").await;
    assert_eq!(client.kinds(2).await, ['3', 'Z']);
    assert_eq!(client.query("execute one('x')").await.errors(), ["26000"]);
    server.stop().await;
}

#[tokio::test]
async fn execute_is_described_as_the_statement_that_it_runs() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    done(&mut client, "prepare one (int) as select $1 as number, 'x' as word").await;
    client.parse("", "execute one(7)", &[]).await;
    client.message(b'D', b"S\0").await;
    client.message(b'B', b"\0\0\0\0\0\0\0\0").await;
    client.message(b'E', b"\0\0\0\0\0").await;
    client.message(b'S', b"").await;
    assert_eq!(client.kinds(5).await, ['1', 't', 'T', '2', 'D']);
    assert_eq!(client.kinds(2).await, ['C', 'Z']);
    assert_eq!(done(&mut client, "execute one(7)").await.labels(), ["number", "word"]);
    server.stop().await;
}

#[tokio::test]
async fn notifications_come_at_the_commit_to_those_who_listen_also_while_they_wait() {
    let server = server(|_| {}).await;
    let mut sender = Client::trusted(&server).await;
    let mut listener = Client::trusted(&server).await;
    let me = sender.key.0;
    done(&mut listener, "listen orders; listen \"Other\"").await;
    done(&mut sender, "notify orders, 'now'").await;
    assert_eq!(notified(&mut listener).await, format!("{me} orders=now"));
    done(&mut sender, "begin; notify orders, '1'; notify orders, '2'; savepoint s; notify orders, 'undone'").await;
    done(&mut sender, "rollback to s; notify \"Other\"; notify other; notify orders, '1'; commit").await;
    assert_eq!(notified(&mut listener).await, format!("{me} orders=1"));
    assert_eq!(notified(&mut listener).await, format!("{me} orders=2"));
    assert_eq!(notified(&mut listener).await, format!("{me} Other="));
    // What is rolled back or fails sends nothing.
    done(&mut sender, "begin; notify orders, 'rolled back'; rollback").await;
    assert_eq!(sender.query("notify orders, 'failed'; select 1 / 0").await.errors(), ["22012"]);
    done(&mut sender, "select pg_notify('orders', 'last'), pg_notify('orders', 'one')").await;
    assert_eq!(notified(&mut listener).await, format!("{me} orders=last"));
    assert_eq!(notified(&mut listener).await, format!("{me} orders=one"));
    let channels = "select * from pg_listening_channels()";
    assert_eq!(texts(&done(&mut listener, channels).await), ["Other", "orders"]);
    // In a transaction they wait for its end, and come before the next ReadyForQuery.
    done(&mut listener, "begin").await;
    done(&mut sender, "notify orders, 'later'").await;
    assert!(!done(&mut listener, "select 1").await.has('A'));
    assert!(done(&mut listener, "commit").await.has('A'));
    done(&mut listener, "begin; unlisten *; rollback; unlisten orders").await;
    assert_eq!(texts(&done(&mut listener, channels).await), ["Other"]);
    done(&mut sender, "notify orders; notify \"Other\", 'only'").await;
    assert_eq!(notified(&mut listener).await, format!("{me} Other=only"));
    assert!(done(&mut listener, "listen own; notify own").await.has('A'));
    done(&mut listener, "discard all").await;
    assert_eq!(texts(&done(&mut listener, channels).await), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_listener_that_takes_nothing_loses_its_session_and_nobody_else_does() {
    let server = server(|_| {}).await;
    let mut sender = Client::trusted(&server).await;
    let mut listener = Client::trusted(&server).await;
    let mut other = Client::trusted(&server).await;
    done(&mut other, "listen c").await;
    // In one query LISTEN would be a part of the transaction that BEGIN makes of it.
    done(&mut listener, "listen c").await;
    done(&mut listener, "begin").await;
    let payload = "x".repeat(7000);
    for round in 0..200 {
        done(&mut sender, &format!("select pg_notify('c', '{round}{payload}')")).await;
        assert!(notified(&mut other).await.contains("c="));
    }
    let last = tokio::time::timeout(HANG, listener.reply()).await.expect("it is told");
    assert_eq!(last.error().0, "54000");
    assert!(listener.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_channel_or_too_long_is_refused() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    for (sql, code) in [
        ("select pg_notify('', 'x')", "22023"),
        ("select pg_notify(null, 'x')", "22023"),
        ("select pg_notify(repeat('x', 64), 'x')", "22023"),
        ("select pg_notify('x', repeat('x', 8000))", "22023"),
        ("select pg_notify('x', 'y') from generate_series(1, 2)", "0A000"),
        ("notify \"hl7:ADT^A01\", '1'", "42501"),
        ("select pg_notify('hl7:ADT^A01', '1')", "42501"),
    ] {
        assert_eq!(client.query(sql).await.errors(), [code], "{sql}");
    }
    done(&mut client, "select pg_notify('x', repeat('x', 7999)), pg_notify('x', null)").await;
    server.stop().await;
}

#[tokio::test]
async fn settings_are_shown_and_set_by_functions_too() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    for (sql, expected) in [
        ("show work_mem", "4MB"),
        ("select set_config('work_mem', '64MB', false)", "64MB"),
        ("select current_setting('work_mem')", "64MB"),
        ("begin; select set_config('jit', 'no', true)", "off"),
        ("select current_setting('JIT')", "off"),
        ("commit; show jit", "on"),
        ("set random_page_cost = 1.1; select current_setting('random_page_cost')", "1.1"),
        ("reset all; show work_mem", "4MB"),
        ("select current_setting('no.such', true)", "null"),
        ("set app.tenant = 'x'; select current_setting('app.tenant')", "x"),
        ("select current_setting('search_path')", "public"),
        ("set synchronous_commit = off; show synchronous_commit", "off"),
    ] {
        assert_eq!(texts(&done(&mut client, sql).await), [expected], "{sql}");
    }
    for (sql, code) in [
        ("select current_setting('no.such')", "42704"),
        ("select set_config('no_such', '1', false)", "42704"),
        ("set work_mem = '1 byte'", "22023"),
        ("set default_tablespace = 'fast'", "0A000"),
        ("select set_config('jit', 'on', false) from generate_series(1, 2)", "0A000"),
        ("reset no_such", "42704"),
    ] {
        assert_eq!(client.query(sql).await.errors(), [code], "{sql}");
    }
    let all = done(&mut client, "show all").await;
    assert_eq!(all.labels(), ["name", "setting", "description"]);
    let all = texts(&all);
    for expected in ["enable_seqscan|on|", "lock_timeout|0|", "timezone|UTC|"] {
        assert!(all.iter().any(|line| line == expected), "{all:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_idle_session_ends_after_the_time_that_it_set() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    done(&mut client, "set idle_session_timeout = '50ms'").await;
    let last = tokio::time::timeout(HANG, client.reply()).await.expect("it is told");
    assert_eq!(last.error().0, "57P05");
    assert!(client.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn locks_are_shown_with_who_has_them_and_who_waits() {
    let server = server(|_| {}).await;
    let mut holder = Client::trusted(&server).await;
    let mut waiter = Client::trusted(&server).await;
    let mut look = Client::trusted(&server).await;
    done(&mut holder, "create table t (id int primary key, v int); insert into t values (1, 1)").await;
    done(&mut holder, "begin; update t set v = 2; select pg_advisory_lock(1, 2)").await;
    let (has, waits) = (holder.key.0, waiter.key.0);
    let all = "select locktype, relation::regclass::text, classid, objid, objsubid, pid, mode, granted, \
               transactionid is not null from pg_locks order by pid, locktype, mode";
    let table = format!("relation|t|null|null|null|{has}|RowExclusiveLock|t|f");
    let advisory = format!("advisory|null|1|2|2|{has}|ExclusiveLock|t|f");
    assert_eq!(texts(&done(&mut look, all).await), [advisory.clone(), table.clone()]);
    for (sql, expected) in [
        (
            "begin; lock t in exclusive mode",
            vec![advisory.clone(), table.clone(), format!("relation|t|null|null|null|{waits}|ExclusiveLock|f|f")],
        ),
        (
            "update t set v = 3",
            vec![
                advisory,
                table,
                format!("transactionid|null|null|null|null|{has}|ExclusiveLock|t|t"),
                format!("relation|t|null|null|null|{waits}|RowExclusiveLock|t|f"),
                format!("transactionid|null|null|null|null|{waits}|ShareLock|f|t"),
            ],
        ),
    ] {
        waiter.send_query(sql).await;
        let shown = async {
            loop {
                let shown = texts(&done(&mut look, all).await);
                if shown == expected {
                    return;
                }
                assert!(shown.len() <= expected.len(), "{sql}: {shown:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(HANG, shown).await.unwrap_or_else(|_| panic!("{sql} is not shown"));
        done(&mut look, &format!("select pg_cancel_backend({waits})")).await;
        assert_eq!(waiter.outcome().await.errors(), ["57014"], "{sql}");
        waiter.query("rollback").await;
    }
    server.stop().await;
}

/// Counts how often it was opened.
#[derive(Debug, Default)]
struct Source {
    opened: AtomicUsize,
}

impl MessageSource for Source {
    fn open(&self) {
        self.opened.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn new_messages_are_told_by_type_to_those_who_may_see_their_rows() {
    let (server, guard) = guarded_server(|_| {}).await;
    change(&guard, &[role("bob", Attributes::user())]);
    let mut bob = Client::connect(&server).await;
    bob.log_in("bob", "").await.expect("no password is asked for");
    let listen = "listen \"hl7:ADT^A01\"";
    let (select, metadata) = ([Action::TableSelect], [Action::MessageMetadata]);
    assert_eq!(bob.query(listen).await.errors(), ["0A000"]);
    let source = Arc::new(Source::default());
    server.engine().set_message_source(source.clone());
    assert_eq!(bob.query(listen).await.errors(), ["42501"]);
    change(&guard, &[granted(&metadata, "service ward", &[])]);
    assert_eq!(bob.query(listen).await.errors(), ["42501"]);
    change(&guard, &[granted(&select, "table hl7.messages", &[])]);
    assert_eq!(source.opened.load(Ordering::SeqCst), 0);
    done(&mut bob, &format!("begin; {listen}; rollback; {listen}")).await;
    assert_eq!(source.opened.load(Ordering::SeqCst), 1, "at the commit, and before it is answered");
    let engine = server.engine();
    let message = |id, service: &str, kind: &str| NewMessage { id, service: service.into(), kind: kind.into() };
    let tell = || {
        let all = [message(1, "lab", "ADT^A01"), message(2, "ward", "ORU^R01"), message(3, "ward", "ADT^A01")];
        engine.send_messages(&all, false);
    };
    tell();
    assert_eq!(notified(&mut bob).await, "0 hl7:ADT^A01=3");
    engine.send_messages(&[message(4, "ward", "ADT^A01")], true);
    change(&guard, &[granted(&[Action::Unmasked], "service ward", &[])]);
    engine.send_messages(&[message(5, "ward", "ADT^A01")], true);
    assert_eq!(notified(&mut bob).await, "0 hl7:ADT^A01=5");
    change(&guard, &[revoked(&metadata, "service ward", &[])]);
    tell();
    engine.send_gap();
    assert_eq!(notified(&mut bob).await, "0 hl7:ADT^A01=", "nothing else came before");
    server.stop().await;
}
