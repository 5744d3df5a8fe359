//! The server over real sockets: logins, both protocols, malformed messages, cancels, many connections.
//!
//! The client belongs to these tests. It is made of the protocol's messages, so it can also send what no driver would.

mod addresses;
mod catalogs;
mod client;
mod crowd;
mod describing;
mod directory;
mod ending;
mod hidden;
mod kept;
mod pgwire;
mod postgres;
mod rights;
mod sessions;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Reply, start};
use device::MemoryShelf;
use node::Clock;
use node::identity::{Attributes, Caller, Credentials, Guard, IdentityChange, Role};
use store::{Places, Store};

use super::scram::{Mock, Verifier};
use super::{Server, WireOptions};
use crate::{Engine, EngineOptions};

/// A server with user `ann`, password `secret`; with `trust` no password is requested on this machine.
async fn server(change: impl FnOnce(&mut WireOptions)) -> Server {
    server_and_store(change).await.0
}

/// The same, and its store.
async fn server_and_store(change: impl FnOnce(&mut WireOptions)) -> (Server, Store) {
    let (server, store, _) = server_with_all(change).await;
    (server, store)
}

/// The same, and its guard.
async fn guarded_server(change: impl FnOnce(&mut WireOptions)) -> (Server, Arc<Guard>) {
    let (server, _, guard) = server_with_all(change).await;
    (server, guard)
}

async fn server_with_all(change: impl FnOnce(&mut WireOptions)) -> (Server, Store, Arc<Guard>) {
    let shelf = Arc::new(MemoryShelf::new());
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let (store, _) = Store::open(places, store::Options::default()).expect("memory is there");
    let engine =
        Engine::new(store.clone(), EngineOptions { threads: 1, ..EngineOptions::default() }).expect("it starts");
    let mut options = WireOptions { listen: ([127, 0, 0, 1], 0).into(), trust: true, ..WireOptions::default() };
    change(&mut options);
    let guard = guard_with_ann(&store);
    (Server::start(engine, Arc::clone(&guard), options).await.expect("it listens"), store, guard)
}

/// A guard with the administrator `ann`, whose password is `secret`.
fn guard_with_ann(store: &Store) -> Arc<Guard> {
    let guard = Guard::open(store.clone(), Clock::system(), Mock::of([7; 32])).expect("it opens");
    let attributes = Attributes { administrator: true, ..Attributes::user() };
    change(&guard, &[role("ann", attributes)]);
    guard
}

/// A role with the password `secret`.
fn role(name: &str, attributes: Attributes) -> IdentityChange {
    let verifier = Verifier::of("secret").expect("it is allowed");
    let credentials = Credentials { scram: Some(verifier), ..Credentials::default() };
    IdentityChange::Create(Role { name: name.into(), attributes, credentials })
}

fn change(guard: &Guard, changes: &[IdentityChange]) {
    guard.change(&Caller::node(), changes).expect("the node may");
}

#[tokio::test]
async fn the_right_password_logs_in_and_all_else_fails_alike() {
    let server = server(|options| options.trust = false).await;
    let mut client = Client::connect(&server).await;
    client.log_in("ann", "secret").await.expect("it is right");
    assert_eq!(client.query("select 1 as x").await.rows(), [[Some("1".to_owned())]]);
    for (user, password) in [("ann", "Secret"), ("ann", ""), ("bob", "secret")] {
        let mut failed = Client::connect(&server).await.log_in(user, password).await.expect_err("it is wrong");
        while failed.1.starts_with("too many failed logins") {
            tokio::time::sleep(Duration::from_millis(100)).await;
            failed = Client::connect(&server).await.log_in(user, password).await.expect_err("it is wrong");
        }
        assert_eq!(failed, ("28P01".to_owned(), format!("password authentication failed for user \"{user}\"")));
    }
    // A message behind a wrong password is not run, and not even read.
    let mut client = Client::connect(&server).await;
    client.send(&start(3 << 16, &[("user", "ann")])).await;
    assert_eq!(client.reply().await.kind, 'R');
    client.message(b'Q', b"create table t (id int primary key)\0").await;
    assert_eq!(client.reply().await.error().0, "08P01");
    assert!(client.is_closed().await);
    let mut client = Client::connect(&server).await;
    client.log_in("ann", "secret").await.expect("it is right");
    assert_eq!(client.query("select * from t").await.errors(), ["42P01"]);
    server.stop().await;
}

#[tokio::test]
async fn a_start_that_asks_for_what_there_is_not_is_refused_by_name() {
    let server = server(|_| {}).await;
    let starts: [(&[(&str, &str)], &str); 6] = [
        (&[], "28000"),
        (&[("user", "ann"), ("TimeZone", "Europe/Berlin")], "0A000"),
        (&[("user", "ann"), ("database", "other")], "3D000"),
        (&[("user", "ann"), ("client_encoding", "LATIN1")], "22023"),
        (&[("user", "ann"), ("replication", "database")], "0A000"),
        (&[("user", "ann"), ("DateStyle", "German")], "22023"),
    ];
    for (parameters, code) in starts {
        let mut client = Client::connect(&server).await;
        client.send(&start(3 << 16, parameters)).await;
        // A client that may not log in learns nothing about databases: its request is examined after the login.
        let mut reply = client.reply().await;
        while reply.kind == 'R' {
            reply = client.reply().await;
        }
        assert_eq!(reply.error().0, code, "{parameters:?}");
        assert!(client.is_closed().await);
    }
    server.stop().await;
}

#[tokio::test]
async fn bytes_that_are_no_protocol_end_their_connection_and_no_other() {
    let server = server(|_| {}).await;
    let mut other = Client::trusted(&server).await;
    let firsts: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x04",
        b"\0\0\0\x08\0\x02\0\0",
        b"\0\0\0\x0c\0\x03\0\0user",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\x0a\0\x03\0\0\xff\0",
    ];
    for first in firsts {
        let mut client = Client::connect(&server).await;
        client.send(first).await;
        assert_eq!(client.reply().await.error().0, "08P01", "{first:?}");
        assert!(client.is_closed().await);
    }
    for message in [&b"Q\0\0\0\x06xy"[..], b"B\0\0\0\x05\0", b"~\0\0\0\x04", b"Q\x7f\xff\xff\xff", b"P\0\0\0\x06\0\0"] {
        let mut client = Client::trusted(&server).await;
        client.send(message).await;
        assert_eq!(client.reply().await.error().0, "08P01", "{message:?}");
        assert!(client.is_closed().await);
    }
    let mut hung_up = Client::trusted(&server).await;
    hung_up.send(b"Q\0\0\0\xffselect").await;
    drop(hung_up);
    assert_eq!(other.query("select 2").await.rows(), [[Some("2".to_owned())]]);
    server.stop().await;
}

#[tokio::test]
async fn an_error_skips_to_sync_and_each_sync_is_answered_once() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    client.parse("", "select frm", &[]).await;
    client.parse("s", "select 1", &[]).await;
    client.message(b'S', b"").await;
    client.message(b'S', b"").await;
    assert_eq!(client.kinds(3).await, ['E', 'Z', 'Z']);
    client.message(b'B', b"p\0s\0\0\0\0\0\0\0").await;
    client.message(b'S', b"").await;
    assert_eq!(client.reply().await.error().0, "26000", "it was never prepared");
    assert_eq!(client.kinds(1).await, ['Z']);
    server.stop().await;
}

#[tokio::test]
async fn an_error_is_told_before_the_sync_comes() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    client.parse("s", "select frm", &[]).await;
    // The client sends nothing more: asyncpg waits here.
    assert_eq!(client.reply().await.error().0, "42703");
    client.message(b'H', b"").await;
    client.message(b'S', b"").await;
    assert_eq!(client.kinds(1).await, ['Z']);
    server.stop().await;
}

#[tokio::test]
async fn prepared_statements_take_values_and_pause_after_the_rows_that_are_wanted() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    client.parse("s", "select $1 as a from (values (1), (2), (3)) as v(x)", &[23]).await;
    client.message(b'D', b"Ss\0").await;
    // One parameter, binary: 7; one result format, binary.
    client.message(b'B', b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01").await;
    for _ in 0..2 {
        client.message(b'E', b"p\0\0\0\0\x02").await;
    }
    client.message(b'S', b"").await;
    assert_eq!(client.kinds(4).await, ['1', 't', 'T', '2']);
    let row = client.reply().await;
    assert_eq!((row.kind, &row.body[..]), ('D', &b"\0\x01\0\0\0\x04\0\0\0\x07"[..]));
    assert_eq!(client.kinds(5).await, ['D', 's', 'D', 'C', 'Z']);
    client.message(b'E', b"p\0\0\0\0\0").await;
    client.message(b'S', b"").await;
    assert_eq!(client.reply().await.error().0, "34000", "portals end with their transaction");
    assert_eq!(client.kinds(1).await, ['Z']);
    server.stop().await;
}

#[tokio::test]
async fn newer_protocols_are_negotiated_and_have_longer_keys() {
    let server = server(|_| {}).await;
    // Minor version, unknown options of the protocol, whether the client is notified, bytes of the key.
    let starts: [(u32, bool, bool, usize); 4] =
        [(0, false, false, 4), (2, false, false, 32), (2, true, true, 32), (9999, false, true, 32)];
    for (minor, option, told, key) in starts {
        let mut client = Client::connect(&server).await;
        let parameters: &[(&str, &str)] = if option { &[("user", "ann"), ("_pq_.x", "1")] } else { &[("user", "ann")] };
        client.send(&start(3 << 16 | minor, parameters)).await;
        let outcome = client.outcome().await;
        assert_eq!((outcome.has('v'), outcome.length('K')), (told, 4 + key), "3.{minor}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_ends_a_statement_if_its_key_is_right() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    let (process, secret) = client.key.clone();
    let endless =
        "select count(*) from generate_series(1, 100000000) a(x) cross join generate_series(1, 100000000) b(y)";
    client.send_query(endless).await;
    let mut wrong = secret.clone();
    wrong[0] ^= 1;
    for key in [wrong, secret] {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut canceller = Client::connect(&server).await;
        canceller.cancel(process, &key).await;
        assert!(canceller.is_closed().await, "a request is never answered");
    }
    let outcome = tokio::time::timeout(Duration::from_secs(60), client.outcome()).await.expect("it ends");
    assert_eq!(outcome.errors(), ["57014"]);
    assert_eq!(client.query("select 3").await.rows(), [[Some("3".to_owned())]]);
    server.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_and_places_come_back() {
    let change =
        |options: &mut WireOptions| (options.connections_max, options.connections_per_address) = (20, Some(20));
    let server = server(change).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(Client::trusted(&server).await);
    }
    let mut late = Client::connect(&server).await;
    late.send(&start(3 << 16, &[("user", "ann")])).await;
    assert_eq!(late.reply().await.kind, 'R', "who it is comes first");
    assert_eq!(late.reply().await.error().0, "53300");
    for (number, client) in clients.iter_mut().enumerate() {
        let rows = client.query(&format!("select {number}")).await.rows();
        assert_eq!(rows, [[Some(number.to_string())]]);
    }
    clients.clear();
    for attempt in 0.. {
        let mut client = Client::connect(&server).await;
        if client.log_in("ann", "").await.is_ok() {
            break;
        }
        assert!(attempt < 1000, "places come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_stop_tells_those_who_are_connected() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    server.stop().await;
    assert_eq!(client.reply().await.error().0, "57P01");
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn options_that_would_send_passwords_in_clear_are_refused() {
    let shelf = Arc::new(MemoryShelf::new());
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let (store, _) = Store::open(places, store::Options::default()).expect("memory is there");
    let engine = Engine::new(store, EngineOptions::default()).expect("it starts");
    let open = WireOptions { listen: ([0, 0, 0, 0], 0).into(), ..WireOptions::default() };
    let guard = guard_with_ann(engine.store());
    assert!(Server::start(engine, guard, open).await.is_err(), "without TLS");
}

impl Server {
    /// The engine.
    fn engine(&self) -> Arc<Engine> {
        self.reader().engine()
    }

    /// The status of this service in the node's admission.
    fn door(&self) -> node::DoorStatus {
        self.admission().status().doors.remove(0)
    }
}

impl Reply {
    /// Code and message of an error.
    fn error(&self) -> (String, String) {
        assert_eq!(self.kind, 'E', "{:?}", self.body);
        let mut fields = self.body.split(|byte| *byte == 0).filter(|field| !field.is_empty());
        let mut field = |tag: u8| {
            let found = fields.find(|field| field[0] == tag).expect("it is there");
            String::from_utf8(found[1..].to_vec()).expect("it is text")
        };
        (field(b'C'), field(b'M'))
    }
}
