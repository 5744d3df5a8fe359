//! The connections of every port of one real node: each is listed with who it is and how much, each is closed from outside, and no other
//! ends with it; what was acknowledged stays.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, thread};

use bench::postgres::Client;
use nbd::protocol::command;
use node::identity::Action;
use serde_json::{Value, json};

use super::ports::{Control, Http, Nbd, Outcome, sql, sql_login};
use super::rig::{Authority, SETTINGS, Standing, TestRole, make_role, nbd_address, write_objects, write_production};
use super::ways::{CONNECT, Right};
use crate::node::{Bed, message, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of the list, of a kind or all.
fn listed(bed: &Bed, port: Option<&str>) -> Vec<Value> {
    let mut args = vec!["connection", "list", "--json"];
    args.extend(port.into_iter().flat_map(|port| ["--port", port]));
    args.push("--data");
    serde_json::from_str(&bed.run(&args).succeeds("")).expect("JSON")
}

fn ids(bed: &Bed, port: &str) -> Vec<u64> {
    listed(bed, Some(port)).iter().map(|line| line["id"].as_u64().expect("a number")).collect()
}

/// What opens a connection of a kind, and its number.
fn numbered<T>(bed: &Bed, port: &str, open: impl FnOnce() -> T) -> (T, u64) {
    let before = ids(bed, port);
    let opened = open();
    let mut new = None;
    until("the connection is in the list", || {
        new = ids(bed, port).into_iter().find(|id| !before.contains(id));
        new.is_some()
    });
    (opened, new.expect("it was found"))
}

fn line_of(bed: &Bed, id: u64) -> Value {
    listed(bed, None).into_iter().find(|line| line["id"] == id).unwrap_or_else(|| panic!("{id} is not in the list"))
}

fn close(bed: &Bed, id: u64) -> String {
    bed.run(&["connection", "close", &id.to_string(), "--data"]).succeeds(&format!("closed connection {id}"))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends a message; whether it was acknowledged.
fn sends(stream: &mut TcpStream, id: &str) -> bool {
    let frame = format!("\x0b{}\x1c\r", message(id));
    let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
    if stream.write_all(frame.as_bytes()).is_err() {
        return false;
    }
    while !answer.ends_with(b"\x1c\r") {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return false,
            Ok(bytes) => answer.extend_from_slice(&chunk[..bytes]),
        }
    }
    String::from_utf8_lossy(&answer).contains("MSA|AA")
}

/// Sends a request over HTTP; whether it was answered with 200.
fn answers(stream: &mut TcpStream, target: &str, token: &str) -> bool {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    if stream.write_all(request.as_bytes()).is_err() {
        return false;
    }
    let (mut answer, mut chunk) = (Vec::new(), [0; 65_536]);
    loop {
        let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        if let Some((head, body)) = head.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).and_then(|text| text.lines().next()?.parse().ok());
            if length.is_some_and(|length: usize| body.len() >= length) {
                return head.starts_with("http/1.1 200");
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return false,
            Ok(bytes) => answer.extend_from_slice(&chunk[..bytes]),
        }
    }
}

/// Control ids of messages that arrived, in order, and the connection on which each did.
type Arrived = Arc<Mutex<Vec<(String, SocketAddr)>>>;

/// A receiver that accepts every message, and what arrived there.
fn receiver() -> (SocketAddr, Arrived) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let arrived = Arrived::default();
    let all = Arc::clone(&arrived);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let all = Arc::clone(&all);
            thread::spawn(move || {
                let peer = stream.peer_addr().expect("it is connected");
                let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
                while let Ok(read @ 1..) = stream.read(&mut chunk) {
                    bytes.extend_from_slice(&chunk[..read]);
                    let Some(end) = bytes.windows(2).position(|end| end == [0x1c, 0x0d]) else { continue };
                    let id = String::from_utf8_lossy(&bytes[..end]).split('|').nth(9).expect("a header").to_owned();
                    bytes.drain(..end + 2);
                    all.lock().expect("nobody panics").push((id.clone(), peer));
                    let answer = format!("\u{b}MSH|^~\\&|R||||1||ACK|r|P|2.5\rMSA|AA|{id}\r\u{1c}\r");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, arrived)
}

/// A node with everything on, which also sends to a receiver.
fn write_node(bed: &Bed, lab: SocketAddr) {
    write_production(bed);
    let put = |path: &str, text: &str| fs::write(bed.path("production").join(path), text).expect("written");
    put("operations/lab.toml", &format!("kind = \"mllp\"\naddress = \"{lab}\"\n"));
    let rules = "match all\nrule admissions when MSH-9.1 = \"ADT\" {\n  send to out\n  send to lab\n}\n";
    put("rules/main.rules", rules);
    bed.configure(SETTINGS);
}

/// A connection of each kind, twice: the first one is closed, the second one goes on.
fn closes_one<T>(
    bed: &Bed,
    port: &str,
    open: impl Fn() -> T,
    works: impl Fn(&mut T) -> bool,
    expected: impl Fn(&Value) -> bool,
) {
    let (mut first, id) = numbered(bed, port, &open);
    let (mut second, other) = numbered(bed, port, &open);
    assert!(works(&mut first) && works(&mut second), "{port}: both work");
    let line = line_of(bed, id);
    let is_counted = line["received_bytes"] != 0 || port == "nbd";
    assert!(is_counted && line["requests"] != 0 && line["port"] == port && expected(&line), "{port}: {line}");
    close(bed, id);
    assert!(!works(&mut first), "{port}: it has ended");
    assert!(works(&mut second), "{port}: the other one goes on");
    let left = ids(bed, port);
    assert!(!left.contains(&id) && left.contains(&other), "{port}: {left:?}");
}

#[test]
fn the_connections_of_every_port_are_listed_and_each_is_closed_and_no_other() {
    let (bed, (lab, arrived)) = (Bed::new(), receiver());
    let authority = Authority::new(&bed);
    write_node(&bed, lab);
    let node = bed.start();
    let mut control = Control::open(&bed.data());
    write_objects(&bed, &node, &mut control);
    let role = make_role(&mut control, &authority, ("maker", Standing::Administrator), &[]);
    let mllp = |stream: &mut TcpStream| sends(stream, "A1");
    closes_one(
        &bed,
        "mllp",
        || connect(node.mllp()),
        mllp,
        |line| line["service"] == "adt" && line["remote"].to_string().contains("127.0.0.1:") && line["tls"] == false,
    );
    let login = || sql_login(node.sql(), "maker", None).expect("it may log in");
    let selects = |client: &mut Client| matches!(sql(client, "SELECT 1"), Outcome::Answered(_));
    closes_one(&bed, "sql", login, selects, |line| line["role"] == "maker" && line["statement"].is_null());
    let search = |stream: &mut TcpStream| answers(stream, "/_cat/indices", &role.token);
    closes_one(&bed, "search", || connect(node.search()), search, |line| line["role"] == "maker");
    let status = |stream: &mut TcpStream| answers(stream, "/api/v1/status", &role.token);
    closes_one(&bed, "console", || connect(node.console()), status, |line| line["role"] == "maker");
    let metrics = |stream: &mut TcpStream| answers(stream, "/metrics", &role.token);
    closes_one(&bed, "metrics", || connect(node.metrics()), metrics, |line| line["user"].is_null());
    let nbd = nbd_address(&mut control);
    let open = || {
        let mut client = Nbd::open(nbd, &role.tls).expect("its certificate is of the authority");
        assert!(matches!(client.go("v"), Outcome::Answered(_)));
        client
    };
    let reads = |client: &mut Nbd| matches!(client.command(command::READ, 4096, &[]), Outcome::Answered(_));
    closes_one(&bed, "nbd", open, reads, |line| line["role"] == "maker" && line["about"] == "v" && line["tls"] == true);
    let local = || {
        let stream = UnixStream::connect(bed.data().join("control.sock")).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    };
    let counts = |stream: &mut UnixStream| {
        let mut some = [0; 4096];
        stream.write_all(b"count\n").is_ok() && matches!(stream.read(&mut some), Ok(1..))
    };
    closes_one(&bed, "control", local, counts, |line| line["user"].to_string().contains("process"));
    closes_operation(&bed, &node, &arrived);
    let audit = bed.run(&["audit", "list", "--action", "connection.close", "--json", "--last", "0", "--data"]);
    let audit = audit.succeeds("\"address\":\"127.0.0.1:");
    assert_eq!(audit.lines().count(), 8, "{audit}");
    assert!(audit.contains("\"role\":\"maker\"") && audit.contains("\"port\":\"nbd nbd\""), "{audit}");
    bed.run(&["connection", "close", "999999", "--data"]).fails("no connection 999999 is open");
    bed.run(&["connection", "list", "--port", "smtp", "--data"]).fails("invalid value");
    node.stop();
}

/// The connection of an operation: it is made again for the next message, and nothing is lost.
fn closes_operation(bed: &Bed, node: &crate::node::Node<'_>, arrived: &Mutex<Vec<(String, SocketAddr)>>) {
    let last = || arrived.lock().expect("nobody panics").last().cloned();
    node.send("O1");
    until("it arrives", || last().is_some_and(|(id, _)| id == "O1"));
    let lines = listed(bed, Some("operation"));
    let [line] = &lines[..] else { panic!("one lane: {lines:?}") };
    assert!(line["outgoing"] == true && line["service"] == "lab" && line["sent_bytes"] != 0, "{line}");
    let before = last().expect("it arrived").1;
    assert!(close(bed, line["id"].as_u64().expect("a number")).contains("connects anew"));
    assert!(listed(bed, Some("operation")).is_empty());
    node.send("O2");
    until("the next one arrives", || last().is_some_and(|(id, _)| id == "O2"));
    let ids: Vec<String> = arrived.lock().expect("nobody panics").iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(ids.iter().filter(|id| *id == "O2").count(), 1, "{ids:?}");
    assert_ne!(last().expect("it arrived").1, before, "over a connection of its own");
}

#[test]
fn what_was_acknowledged_stays_when_its_connection_is_closed_and_what_was_not_is_not_there() {
    let (bed, (lab, _)) = (Bed::new(), receiver());
    let authority = Authority::new(&bed);
    write_node(&bed, lab);
    let service = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\nconnections = 1\n";
    fs::write(bed.path("production/services/adt.toml"), service).expect("written");
    let node = bed.start();
    // A client that has sent a message, half of another one, and holds the last place.
    let (mut stuck, id) = numbered(&bed, "mllp", || connect(node.mllp()));
    assert!(sends(&mut stuck, "S1"));
    let half = message("S2");
    stuck.write_all(format!("\x0b{}", &half[..half.len() / 2]).as_bytes()).expect("it is taken");
    assert!(!sends(&mut connect(node.mllp()), "S3"), "there is no place");
    close(&bed, id);
    assert!(matches!(stuck.read(&mut [0; 16]), Ok(0) | Err(_)));
    assert!(sends(&mut connect(node.mllp()), "S4"), "the place is free");
    assert_eq!(bed.stored(), ["S1", "S4"]);
    // A transaction that is not committed.
    make_role(&mut Control::open(&bed.data()), &authority, ("maker", Standing::Administrator), &[]);
    let (mut client, id) = numbered(&bed, "sql", || sql_login(node.sql(), "maker", None).expect("it may log in"));
    for statement in
        ["CREATE TABLE kept (a int PRIMARY KEY)", "INSERT INTO kept VALUES (1)", "BEGIN", "INSERT INTO kept VALUES (2)"]
    {
        assert!(matches!(sql(&mut client, statement), Outcome::Answered(_)), "{statement}");
    }
    close(&bed, id);
    assert!(!matches!(sql(&mut client, "COMMIT"), Outcome::Answered(_)));
    let mut other = sql_login(node.sql(), "maker", None).expect("it may log in");
    let rows = sql(&mut other, "SELECT a FROM kept");
    assert!(rows.text().contains("\"1\"") && !rows.text().contains("\"2\""), "{rows:?}");
    node.stop();
}

#[test]
fn a_client_of_http_that_reads_nothing_is_closed_and_its_place_is_free() {
    let bed = Bed::new();
    let authority = Authority::new(&bed);
    bed.configure("[console]\nlisten = \"127.0.0.1:0\"\nconnections = 1\n");
    let node = bed.start();
    let mut control = Control::open(&bed.data());
    let token = make_role(&mut control, &authority, ("maker", Standing::Administrator), &[]).token;
    // Requests one after the other, of whose answers none is read: at some time the node cannot write.
    let (mut stuck, id) = numbered(&bed, "console", || connect(node.console()));
    // From then on it keeps its place.
    assert!(answers(&mut stuck, "/api/v1/status", &token));
    stuck.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let request =
        format!("GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    while stuck.write_all(request.as_bytes()).is_ok() {}
    close(&bed, id);
    let mut next = connect(node.console());
    assert!(answers(&mut next, "/api/v1/openapi.json", &token), "the place is free");
    let _ = stuck.shutdown(Shutdown::Both);
    node.stop();
}

fn rights(control: &mut Control, authority: &Authority, name: &str, of: &[Right]) -> TestRole {
    make_role(control, authority, (name, Standing::Plain), of)
}

#[test]
fn statements_are_shown_as_pg_stat_activity_shows_them_and_a_closed_right_closes_nothing() {
    let (bed, (lab, _)) = (Bed::new(), receiver());
    let authority = Authority::new(&bed);
    write_node(&bed, lab);
    let node = bed.start();
    let mut control = Control::open(&bed.data());
    let status: Right = (Action::NodeStatus, "node");
    let watcher = rights(&mut control, &authority, "watcher", &[status, CONNECT]);
    let seer = rights(&mut control, &authority, "seer", &[status, (Action::SqlActivity, "node")]);
    let closer = rights(&mut control, &authority, "closer", &[(Action::ConnectionClose, "node")]);
    rights(&mut control, &authority, "worker", &[CONNECT]);
    let mut client = sql_login(node.sql(), "worker", Some(super::rig::PASSWORD)).expect("it may log in");
    assert!(matches!(sql(&mut client, "SELECT 'a secret of the worker'"), Outcome::Answered(_)));
    let mut list = |role: &TestRole, statements: bool| {
        let request = json!({ "verb": "list", "port": "sql", "statements": statements });
        control.send(Some(&role.token), &format!("connection {request}"))
    };
    for (role, statements, shown) in
        [(&watcher, false, false), (&watcher, true, false), (&seer, false, false), (&seer, true, true)]
    {
        let told = list(role, statements);
        assert!(matches!(&told, Outcome::Answered(text) if text.contains("\"worker\"")), "{}: {told:?}", role.name);
        assert_eq!(told.text().contains("a secret"), shown, "{} {statements}: {told:?}", role.name);
    }
    assert!(matches!(list(&closer, false), Outcome::Refused(_)));
    let mut own = sql_login(node.sql(), "watcher", Some(super::rig::PASSWORD)).expect("it may log in");
    assert!(matches!(sql(&mut own, "SELECT 'one of my own'"), Outcome::Answered(_)));
    assert!(list(&watcher, true).text().contains("one of my own"));
    let id = ids(&bed, "sql")[0];
    let request = format!("connection {}", json!({ "verb": "close", "id": id }));
    assert!(matches!(control.send(Some(&watcher.token), &request), Outcome::Refused(_)));
    assert!(matches!(sql(&mut client, "SELECT 1"), Outcome::Answered(_)));
    let mut console = Http::open_console(node.console());
    let target = format!("/api/v1/connections/{id}/close");
    assert!(matches!(console.send(&watcher.token, ("POST", &target, "")), Outcome::Refused(_)));
    let closed = console.send(&closer.token, ("POST", &target, ""));
    assert!(matches!(&closed, Outcome::Answered(text) if text.contains("\"ended\":true")), "{closed:?}");
    assert!(!matches!(sql(&mut client, "SELECT 1"), Outcome::Answered(_)));
    let audit = bed.run(&["audit", "list", "--json", "--last", "0", "--data"]).succeeds("connection.statements");
    assert!(audit.contains("connection.close") && !audit.contains("a secret"), "{audit}");
    node.stop();
}
