//! A node with the least of every size that it may be given: messages of any length are taken or refused, and it goes on.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::node::{Bed, Node, message};

/// Sends a message of about so many bytes; its answer.
fn exchange(node: &Node<'_>, id: &str, bytes: usize) -> String {
    let mut socket = TcpStream::connect(node.mllp()).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket option");
    let text = format!("{}NTE|1||{}\r", message(id), "x".repeat(bytes));
    socket.write_all(format!("\x0b{text}\x1c\r").as_bytes()).expect("it is read");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\x1c\r") {
        let mut chunk = [0; 4096];
        let read = socket.read(&mut chunk).expect("an answer comes");
        assert!(read > 0, "{id}: the connection ended without an answer");
        answer.extend_from_slice(&chunk[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn with_the_least_of_every_size_a_node_takes_messages_of_any_length_and_refuses_only_longer_ones() {
    let bed = Bed::new();
    let least = "data = \"data\"\nproduction = \"production\"\ncache = \"4MiB\"\nframe_memory = \"1MiB\"\n\
                 [journal]\nsegment = \"16KiB\"\nlimit = \"16MiB\"\n[pages]\nsize = \"4KiB\"\ndevice = \"2MiB\"\nimages = \"64KiB\"\n";
    fs::write(bed.path("terrace.toml"), least).expect("a file");
    fs::create_dir_all(bed.path("production/services")).expect("a folder");
    let service =
        "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nframe_memory = \"64KiB\"\n[intake]\nmessage_bytes = \"63MiB\"\n";
    fs::write(bed.path("production/services/in.toml"), service).expect("a file");
    let node = bed.start();
    let lengths = [1 << 10, 1 << 20, 3 << 20, 17 << 20, 62 << 20, 100];
    for (n, bytes) in lengths.into_iter().enumerate() {
        let answer = exchange(&node, &format!("M{n}"), bytes);
        assert!(answer.contains("MSA|AA"), "{bytes}: {answer}\n{}", bed.log());
    }
    let answer = exchange(&node, "long", 64 << 20);
    assert!(answer.contains("MSA|AR") && answer.contains("63MiB"), "{answer}");
    bed.run(&["status", "--data"]).succeeds("");
    node.kill();
    let node = bed.start();
    node.stop();
    let ids: Vec<String> = (0..lengths.len()).map(|n| format!("M{n}")).collect();
    assert_eq!(bed.stored(), ids);
}

#[test]
fn a_size_that_cannot_work_ends_the_start_before_anything_is_made() {
    let bed = Bed::new();
    fs::write(bed.path("terrace.toml"), "data = \"data\"\n[pages]\ndevice = \"512KiB\"\n").expect("a file");
    bed.refuses("pages.device = \"512KiB\" cannot work: it is at least 2MiB");
    assert!(!bed.data().exists());
}
