//! Work that must end does end: queries without an end, disconnected clients, waiting transactions, the server itself.
//!
//! None of these tests measures time: each waits for a state, with a bound that only a hang reaches.

use std::time::Duration;

use super::client::{Client, start};
use super::{server, server_and_store};

/// Compares 9e10 pairs without a match: no row is produced, and DataFusion never waits.
const ENDLESS: &str =
    "select count(*) from generate_series(1, 300000) a(x), generate_series(1, 300000) b(y) where a.x * b.y < 0";

/// The bound that detects a hang: far longer than any step takes on a machine that builds at the same time.
const HANG: Duration = Duration::from_secs(120);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

/// Waits until at least `count` connections run a statement that contains this text.
async fn until_active(client: &mut Client, text: &str, count: usize) {
    let sql = format!(
        "select pid from pg_stat_activity where state = 'active' and query like '%{text}%' and pid <> pg_backend_pid()"
    );
    loop {
        if client.query(&sql).await.rows().len() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn endless_queries_keep_nobody_from_logging_in_and_are_cancelled_by_their_number() {
    let server = server(|_| {}).await;
    let mut endless = Vec::new();
    for _ in 0..3 {
        let mut client = Client::trusted(&server).await;
        client.send_query(ENDLESS).await;
        endless.push(client);
    }
    let mut other = in_time("a login", Client::trusted(&server)).await;
    in_time("the look", until_active(&mut other, "a.x * b.y", 3)).await;
    for client in &mut endless {
        let sql = format!("select pg_cancel_backend({})", client.key.0);
        assert_eq!(in_time("the cancel", other.query(&sql)).await.rows(), [[Some("t".to_owned())]]);
        assert_eq!(in_time("what is cancelled", client.outcome()).await.errors(), ["57014"]);
        assert_eq!(client.query("select 1").await.rows(), [[Some("1".to_owned())]]);
    }
    assert_eq!(other.query("select pg_cancel_backend(0)").await.rows(), [[Some("f".to_owned())]]);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_what_it_ran() {
    let server = server(|_| {}).await;
    let mut gone = Client::trusted(&server).await;
    gone.send_query(ENDLESS).await;
    let mut other = Client::trusted(&server).await;
    in_time("the look", until_active(&mut other, "a.x * b.y", 1)).await;
    drop(gone);
    in_time("what it ran", until_active(&mut other, "a.x * b.y", 0)).await;
    assert_eq!(other.query("select pid from pg_stat_activity").await.rows().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_ends_its_side_and_reads_no_more_ends_its_session() {
    let server = server(|_| {}).await;
    let mut left = Client::trusted(&server).await;
    left.send_query("select repeat('x', 1000) from generate_series(1, 100000000) a(x)").await;
    let mut other = Client::trusted(&server).await;
    in_time("the look", until_active(&mut other, "repeat", 1)).await;
    left.end_side().await;
    in_time("what nobody reads", until_active(&mut other, "repeat", 0)).await;
    assert_eq!(other.query("select pid from pg_stat_activity").await.rows().len(), 1);
    drop(left);
    server.stop().await;
}

#[tokio::test]
async fn a_statement_ends_when_its_time_is_over_also_while_it_is_planned() {
    let server = server(|_| {}).await;
    let subqueries: Vec<String> =
        (0..95).map(|n| format!("(select max(y) from generate_series(1, 9) b(y) where y = a.x + {n})")).collect();
    let planned = format!("select {} from generate_series(1, 9) a(x)", subqueries.join(", "));
    for (name, value) in [("options", "-c statement_timeout=200ms"), ("statement_timeout", "200")] {
        let mut client = Client::connect(&server).await;
        client.send(&start(3 << 16, &[("user", "ann"), (name, value)])).await;
        assert!(client.outcome().await.errors().is_empty());
        assert_eq!(client.query("show statement_timeout").await.rows(), [[Some("200ms".to_owned())]]);
        for sql in [ENDLESS, &planned] {
            assert_eq!(in_time("a statement", client.query(sql)).await.errors(), ["57014"]);
        }
        client.query("set statement_timeout = 0").await;
        assert_eq!(client.query("select 1").await.rows(), [[Some("1".to_owned())]]);
    }
    server.stop().await;
}

/// Begins a COPY into `t` and sends a row.
async fn begin_copy(client: &mut Client) {
    client.send_query("copy t from stdin").await;
    assert_eq!(client.kinds(1).await, ['G']);
    client.message(b'd', b"1\n").await;
}

/// Checks that the rest of the client's data is ignored, no rows were stored, and the session continues.
async fn copy_is_gone(client: &mut Client) {
    client.message(b'd', b"2\n").await;
    client.message(b'c', b"").await;
    client.query("set statement_timeout = 0").await;
    assert_eq!(client.query("select count(*) from t").await.rows(), [[Some("0".to_owned())]]);
}

#[tokio::test]
async fn a_copy_whose_client_is_silent_ends_by_its_time_or_a_cancel_and_the_session_goes_on() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    client.query("create table t (id int primary key)").await;
    client.query("set statement_timeout = '100ms'").await;
    begin_copy(&mut client).await;
    assert_eq!(in_time("a silent COPY", client.outcome()).await.errors(), ["57014"]);
    copy_is_gone(&mut client).await;
    begin_copy(&mut client).await;
    let (process, secret) = client.key.clone();
    Client::connect(&server).await.cancel(process, &secret).await;
    assert_eq!(in_time("a cancelled COPY", client.outcome()).await.errors(), ["57014"]);
    copy_is_gone(&mut client).await;
    // Inside a transaction, the transaction fails.
    client.query("begin").await;
    begin_copy(&mut client).await;
    let sql = format!("select pg_cancel_backend({process})");
    assert!(Client::trusted(&server).await.query(&sql).await.errors().is_empty());
    assert_eq!(in_time("a cancelled COPY", client.outcome()).await.errors(), ["57014"]);
    assert_eq!(client.query("select 1").await.errors(), ["25P02"]);
    client.query("rollback").await;
    copy_is_gone(&mut client).await;
    server.stop().await;
}

#[tokio::test]
async fn a_copy_whose_client_sends_without_end_ends_by_its_time_and_by_a_cancel() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    let mut other = Client::trusted(&server).await;
    client.query("create table t (id int)").await;
    let rows = "1\n".repeat(5000);
    for timeout in ["300ms", "0"] {
        client.query(&format!("set statement_timeout = '{timeout}'")).await;
        begin_copy(&mut client).await;
        in_time("a COPY without end", async {
            while !client.has_reply().await {
                client.message(b'd', rows.as_bytes()).await;
                if timeout == "0" {
                    other.query(&format!("select pg_cancel_backend({})", client.key.0)).await;
                }
            }
        })
        .await;
        assert_eq!(in_time("what is ended", client.outcome()).await.errors(), ["57014"]);
        copy_is_gone(&mut client).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_transaction_that_waits_too_long_for_its_client_ends() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    client.query("create table t (id int primary key)").await;
    client.query("set idle_in_transaction_session_timeout = '10ms'").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(client.query("select 1").await.errors().is_empty(), "outside of a transaction a client may wait");
    client.query("set idle_in_transaction_session_timeout = 0").await;
    client.query("begin").await;
    client.query("insert into t values (1)").await;
    client.send_query("set idle_in_transaction_session_timeout = '10ms'").await;
    assert_eq!(client.kinds(2).await, ['C', 'Z']);
    assert_eq!(in_time("the transaction", client.reply()).await.error().0, "25P03");
    assert!(client.is_closed().await);
    let mut other = Client::trusted(&server).await;
    assert!(other.query("select * from t").await.rows().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_connection_that_is_terminated_is_told_and_ends() {
    let server = server(|_| {}).await;
    let mut other = Client::trusted(&server).await;
    for sql in [None, Some(ENDLESS)] {
        let mut client = Client::trusted(&server).await;
        if let Some(sql) = sql {
            client.send_query(sql).await;
            in_time("the look", until_active(&mut other, "a.x * b.y", 1)).await;
        }
        let terminate = format!("select pg_terminate_backend({})", client.key.0);
        assert_eq!(other.query(&terminate).await.rows(), [[Some("t".to_owned())]]);
        let mut reply = in_time("the end", client.reply()).await;
        while reply.kind != 'E' {
            reply = in_time("the end", client.reply()).await;
        }
        assert_eq!(reply.error().0, "57P01");
        in_time("the end", async { while !client.is_closed().await {} }).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_stop_ends_whatever_runs_and_whoever_does_not_read() {
    let server = server(|_| {}).await;
    let mut clients = Vec::new();
    for sql in [ENDLESS, "select x, repeat('x', 1000) from generate_series(1, 1000000000) a(x)"] {
        let mut client = Client::trusted(&server).await;
        client.send_query(sql).await;
        clients.push(client);
    }
    let mut other = Client::trusted(&server).await;
    in_time("the look", until_active(&mut other, "generate_series", 2)).await;
    in_time("the stop", server.stop()).await;
}

#[tokio::test]
async fn what_a_session_keeps_for_its_client_is_bounded() {
    let server = server(|options| options.message_bytes_max = 20_000).await;
    let mut client = Client::trusted(&server).await;
    let long = format!("select '{}'", "x".repeat(9000));
    for (name, kind) in [("a", '1'), ("b", '1'), ("c", 'E')] {
        client.parse(name, &long, &[]).await;
        client.message(b'S', b"").await;
        assert_eq!(client.kinds(2).await, [kind, 'Z'], "{name}");
    }
    client.message(b'C', b"Sa\0").await;
    client.parse("c", &long, &[]).await;
    client.message(b'S', b"").await;
    assert_eq!(client.kinds(3).await, ['3', '1', 'Z']);
    for number in 0..65 {
        client.message(b'B', format!("p{number}\0b\0\0\0\0\0\0\0").as_bytes()).await;
    }
    client.message(b'S', b"").await;
    let mut kinds = client.kinds(66).await;
    assert_eq!(kinds.split_off(64), ['E', 'Z']);
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_waits_outside_a_transaction_keeps_no_snapshot_open() {
    let (server, store) = server_and_store(|_| {}).await;
    let snapshots = || store.metrics().snapshots;
    let mut client = Client::trusted(&server).await;
    assert_eq!(snapshots(), 0, "after the login");
    for sql in [
        "create table t (id int primary key, x text)",
        "insert into t select g, 'x' from generate_series(1, 100) as s(g)",
        "select count(*) from t",
        "select x from t where id = 7",
        "select oid from pg_class",
        "begin; select count(*) from t; commit",
        "begin isolation level repeatable read; update t set x = 'y'; rollback",
        "select 1 / 0",
        "select nothing",
    ] {
        client.query(sql).await;
        assert_eq!(snapshots(), 0, "{sql}");
    }
    for (statement, open) in
        [("begin", true), ("select count(*) from t", true), ("select nothing", true), ("rollback", false)]
    {
        client.query(statement).await;
        assert_eq!(snapshots() > 0, open, "{statement}");
    }
    // A portal that is read in part, and then left.
    client.parse("", "select x from t", &[]).await;
    client.message(b'B', b"\0\0\0\0\0\0\0\0").await;
    client.message(b'E', b"\0\0\0\0\x05").await;
    client.message(b'H', b"").await;
    assert_eq!(client.kinds(7).await, ['1', '2', 'D', 'D', 'D', 'D', 'D']);
    assert_eq!(client.kinds(1).await, ['s']);
    assert!(snapshots() > 0, "there is more to read");
    client.message(b'S', b"").await;
    assert_eq!(client.kinds(1).await, ['Z']);
    in_time("what the portal read", async {
        while snapshots() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    server.stop().await;
}
