//! A node that many connect to and that may have few descriptors or little memory: messages and storage go on.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::node::{Bed, Node, message, until};

/// Descriptors that the node may have: fewer than its services at their bounds would take.
const DESCRIPTORS: u32 = 256;

/// Sends a message over a connection of its own; the answer, if one comes.
fn exchange(address: SocketAddr, text: &str) -> Option<String> {
    let mut socket = TcpStream::connect(address).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
    socket.write_all(format!("\x0b{text}\x1c\r").as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    while !answer.ends_with(b"\x1c\r") {
        match socket.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(bytes) => answer.extend_from_slice(&chunk[..bytes]),
        }
    }
    Some(String::from_utf8_lossy(&answer).into_owned())
}

/// Sends until it is let in; the message must be accepted then.
fn insists(address: SocketAddr, text: &str) {
    let mut answer = None;
    until("a sender gets in", || {
        answer = exchange(address, text);
        answer.is_some()
    });
    assert!(answer.as_ref().is_some_and(|answer| answer.contains("MSA|AA")), "{answer:?}");
}

fn crowd(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).expect("it listens")).collect()
}

fn padded(id: &str, bytes: usize) -> String {
    format!("{}NTE|1||{}\r", message(id), "x".repeat(bytes))
}

/// The most memory that a process has had so far, in bytes.
fn peak(node: &Node<'_>) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn silent_connections_beyond_the_limit_of_descriptors_leave_messages_and_storage_working() {
    let bed = Bed::new();
    let verifier = sql::wire::Verifier::of("not asked for").expect("there is randomness");
    let bounds = "connections = 400\nconnections_per_address = 400\n";
    bed.configure(&format!(
        "[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n{bounds}[sql.users]\nann = \"{verifier}\"\n"
    ));
    let node = bed.start_with(DESCRIPTORS);
    until("it is said", || bed.log().contains("fewer descriptors than all services at their bounds need"));
    let silent = crowd(node.sql(), 400);
    until("the descriptors to spare are taken", || {
        node.status()["admission"]["doors"].to_string().contains("\"descriptors\":")
    });
    // Three journal segments of 4 MiB.
    let sent: Vec<String> = (0..40).map(|n| format!("M{n}")).collect();
    for id in &sent {
        insists(node.mllp(), &padded(id, 300_000));
    }
    let status = node.status();
    assert_eq!(status["store"]["frozen"], serde_json::Value::Null);
    assert_eq!(status["journal_failed"], serde_json::Value::Null);
    assert_eq!(status["admission"]["descriptors_limit"], DESCRIPTORS);
    assert_eq!(status["admission"]["descriptors_reserved"], DESCRIPTORS / 4);
    let told = bed.run(&["status", "--data"]).succeeds("kept for storage");
    assert!(told.contains("descriptors: ") && told.contains("newcomer: "), "{told}");
    assert!(bed.log().matches("connection refused").count() < 20, "a few lines tell of all:\n{}", bed.log());
    node.kill();
    drop(silent);
    let node = bed.start_with(DESCRIPTORS);
    node.send("last");
    node.stop();
    let stored = bed.stored();
    assert_eq!(stored.len(), sent.len() + 1);
    assert!(sent.iter().zip(&stored).all(|(sent, stored)| sent == stored));
}

#[test]
fn a_node_with_too_few_descriptors_says_so_and_raises_a_soft_limit_itself() {
    let bed = Bed::new();
    bed.refuses_with(100, "a node needs 128 at least: raise the limit");
    let node = bed.start_softly(100);
    let limit = node.status()["admission"]["descriptors_limit"].as_u64().expect("a number");
    assert!(limit > 100, "the hard limit is what counts: {limit}");
    node.stop();
}

#[test]
fn unfinished_long_frames_take_bounded_memory_and_short_messages_come_in_beside_them() {
    let bed = Bed::new();
    bed.configure("frame_memory = \"16MiB\"\nproduction = \"production\"\n");
    fs::create_dir_all(bed.path("production/services")).expect("a folder");
    let service = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nframe_memory = \"8MiB\"\nframe_timeout = \"10s\"\n";
    fs::write(bed.path("production/services/in.toml"), service).expect("a file");
    let node = bed.start();
    let address = node.mllp();
    insists(address, &padded("first", 3_000_000));
    let before = peak(&node);
    // 100 times 15 MiB: 1.5 GB, if all of it were taken in.
    let frame: &'static [u8] = format!("\x0b{}", padded("never", 15 << 20)).leak().as_bytes();
    let senders: Vec<_> = (0..100)
        .map(|_| {
            thread::spawn(move || {
                let mut socket = TcpStream::connect(address).expect("it listens");
                // It waits when the node stops reading, until the node ends the connection; then it stays unchanged.
                let written = socket.write_all(frame);
                let ended = socket.read(&mut [0; 1]);
                (written.is_err(), matches!(ended, Ok(0) | Err(_)))
            })
        })
        .collect();
    until("the memory is taken", || {
        node.status()["admission"]["frame_bytes"].as_u64().is_some_and(|bytes| bytes >= 8 << 20)
    });
    for n in 0..20 {
        insists(address, &padded(&format!("M{n}"), 10_000));
    }
    for sender in senders {
        let (_, ended) = sender.join().expect("it does not panic");
        assert!(ended, "the node ends what does not become whole");
    }
    let grown = peak(&node).saturating_sub(before);
    // The service's bound, one frame beyond it, and as much again for buffers that grow by being copied; the rest is the
    // threads' and the journal's.
    assert!(grown < 128 << 20, "{grown} bytes for 1.5 GB that was sent");
    until("the memory is given back", || node.status()["admission"]["frame_bytes"] == 0);
    insists(address, &padded("last", 3_000_000));
    let ended = node.status()["admission"]["doors"].to_string();
    assert!(ended.contains("frame_timeout") || ended.contains("memory"), "{ended}");
    assert_eq!(node.status()["stored"], 22);
    node.stop();
}
