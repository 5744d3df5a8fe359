//! A panic in any thread or task of a whole node: it ends one session, one operation or the node, and is reported.
//!
//! Only in builds with debug assertions: in others nothing can be made to panic (`device::supervise::rehearse`).

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bench::postgres::Client;

use crate::node::{Bed, Node, message, until};

/// A node with every kind of thread and task: MLLP, files in and out, SQL.
fn bed() -> Bed {
    let bed = Bed::new();
    let verifier = sql::wire::Verifier::of("not asked for").expect("there is randomness");
    let text = format!(
        "data = \"data\"\nproduction = \"production\"\n[journal]\nsegment = \"4MiB\"\nlimit = \"16MiB\"\n[pages]\ndevice = \"16MiB\"\n\
         images = \"4MiB\"\n[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n[sql.users]\nann = \"{verifier}\"\n"
    );
    fs::write(bed.path("terrace.toml"), text).expect("a file");
    for (path, text) in [
        ("services/a.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n"),
        ("services/b.toml", "kind = \"file\"\nfolder = \"inbox\"\nevery = \"5ms\"\nsettle = \"0ms\"\n"),
        ("rules/main.rules", "match first\nrule all { send to out }\n"),
        ("operations/out.toml", "kind = \"file\"\nfolder = \"out\"\n"),
    ] {
        let path = bed.path("production").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    fs::write(bed.path("panic"), "").expect("a file");
    bed
}

/// Makes a thread or task panic at its next piece of work; the empty name: none any more.
fn panic_in(bed: &Bed, name: &str) {
    fs::write(bed.path("part"), name).expect("a file");
    fs::rename(bed.path("part"), bed.path("panic")).expect("it moves");
}

/// Work for every thread: more than a journal segment and than what begins a checkpoint. Whether it is accepted is not
/// checked.
fn work(address: SocketAddr) {
    for n in 0..24 {
        let Ok(mut socket) = TcpStream::connect(address) else { return };
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket option");
        let text = format!("{}NTE|1||{}\r", message(&format!("M{n}")), "x".repeat(300_000));
        let _ = socket.write_all(format!("\x0b{text}\x1c\r").as_bytes());
        if !matches!(socket.read(&mut [0]), Ok(1..)) {
            return;
        }
    }
}

/// Whether `terrace status` reports a trouble with this text.
fn status_says(bed: &Bed, text: &str) -> bool {
    let ran = bed.run(&["status", "--data"]);
    ran.code() == Some(1) && ran.printed().contains(text)
}

/// Its connection is closed without an answer.
fn unanswered(address: SocketAddr, text: &str) {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
    socket.write_all(format!("\x0b{text}\x1c\r").as_bytes()).expect("it is sent");
    assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)), "it was answered");
}

fn sql(node: &Node<'_>) -> Client {
    Client::connect(node.sql(), "ann", Duration::from_secs(60)).expect("it is let in")
}

#[test]
fn a_panic_in_a_thread_that_the_node_needs_is_in_the_log_and_the_status_and_the_node_ends_with_an_error() {
    for name in [
        "hand-over",
        "journal-flush",
        "store-apply",
        "batch",
        "store-checkpoint",
        "journal-prepare",
        "housekeeping",
        "files",
        "mllp-listener",
        "sql-convert",
    ] {
        let bed = bed();
        let node = bed.start_rehearsing();
        node.send("first");
        panic_in(&bed, name);
        let text = format!("rehearsed in {name}");
        until(&format!("the status tells of {name}:\n{}", bed.log()), || {
            work(node.mllp());
            status_says(&bed, "failed since")
        });
        panic_in(&bed, "");
        assert!(bed.log().contains(&text), "{name}:\n{}", bed.log());
        assert!(status_says(&bed, "next: "), "{name} is told for as long as the node lives");
        node.terminate();
        assert_eq!(node.ends_within(Duration::from_secs(60)), Some(2), "{name}:\n{}", bed.log());
        let node = bed.start();
        assert!(status_well(&bed), "{name}: a restart mends it");
        node.stop();
        assert_eq!(bed.stored()[0], "first");
    }
}

fn status_well(bed: &Bed) -> bool {
    bed.run(&["status", "--data"]).code() == Some(0)
}

#[test]
fn a_panic_in_the_control_sockets_listener_fails_the_node_and_its_end_is_an_error() {
    let bed = bed();
    let node = bed.start_rehearsing();
    panic_in(&bed, "control-listener");
    until("nobody is answered any more", || bed.run(&["status", "--data"]).code() == Some(2));
    until("it is told", || bed.log().contains("rehearsed in control-listener"));
    until("senders are refused", || {
        let mut socket = TcpStream::connect(node.mllp()).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
        socket.write_all(format!("\x0b{}\x1c\r", message("M")).as_bytes()).expect("it is sent");
        let mut answer = [0; 512];
        let read = socket.read(&mut answer).unwrap_or(0);
        String::from_utf8_lossy(&answer[..read]).contains("MSA|AR")
    });
    node.terminate();
    assert_eq!(node.ends_within(Duration::from_secs(60)), Some(2), "{}", bed.log());
}

#[test]
fn a_panic_in_a_session_ends_that_session_with_a_line_of_the_log_and_no_other() {
    let bed = bed();
    let node = bed.start_rehearsing();
    let mut other = sql(&node);
    other.query("create table t (id int primary key)").expect("it is made");
    panic_in(&bed, "mllp");
    unanswered(node.mllp(), &message("never"));
    panic_in(&bed, "sql-session");
    sql(&node).query("select 1").expect_err("its session ended");
    panic_in(&bed, "control");
    bed.run(&["status", "--data"]).fails("");
    panic_in(&bed, "");
    for name in ["mllp", "sql-session", "control"] {
        until(&format!("the log tells of {name}"), || bed.log().contains(&format!("rehearsed in {name}")));
    }
    other.query("insert into t values (1)").expect("other sessions go on");
    node.send("next");
    assert!(status_well(&bed));
    node.stop();
    assert_eq!(bed.stored(), ["next"]);
}

#[test]
fn a_panic_on_a_file_puts_that_file_aside_and_the_next_one_is_taken() {
    let bed = bed();
    let node = bed.start_rehearsing();
    let inbox = bed.path("production/inbox");
    let put = |name: &str| {
        fs::write(inbox.join("part"), message(name)).expect("a file");
        fs::rename(inbox.join("part"), inbox.join(name)).expect("it moves");
    };
    panic_in(&bed, "file");
    put("1.hl7");
    until("it is put aside", || inbox.join("error/1.hl7").exists());
    panic_in(&bed, "");
    assert!(bed.log().contains("a programming error stopped the taking of a file"), "{}", bed.log());
    put("2.hl7");
    until("the next one is taken", || inbox.join("done/2.hl7").exists());
    assert!(status_well(&bed));
    node.stop();
    assert_eq!(bed.stored(), ["2.hl7"]);
}

#[test]
fn a_panic_in_an_operation_stops_that_operation_and_the_status_says_so_until_the_next_start() {
    let bed = bed();
    let node = bed.start_rehearsing();
    panic_in(&bed, "lane");
    node.send("waits");
    until("the status tells of it", || status_says(&bed, "a programming error stopped operation out"));
    panic_in(&bed, "");
    assert!(bed.log().contains("rehearsed in lane"), "{}", bed.log());
    bed.run(&["operation", "resume", "out", "--data"]).fails("has stopped because of a programming error");
    node.send("also waits");
    node.stop();
    let node = bed.start();
    let out = || fs::read_dir(bed.path("production/out")).map_or(0, Iterator::count);
    until("what waited is delivered", || out() == 2);
    assert!(status_well(&bed));
    node.stop();
}
