//! The ground gives way under a node: a device that fails, descriptors that run out. The limits of the running process are changed
//! with prlimit(1) of util-linux.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::node::{Bed, message, until};

/// Changes a limit of a process that runs.
fn limit(pid: u32, what: &str) {
    let status = Command::new("prlimit").args(["--pid", &pid.to_string(), what]).status();
    assert!(status.expect("util-linux has prlimit").success(), "{what}");
}

/// A sender that keeps its connection.
struct Line(TcpStream);

impl Line {
    fn to(address: SocketAddr) -> Line {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        Line(stream)
    }

    /// Sends a message with so many bytes of notes; the answer.
    fn exchange(&mut self, id: &str, notes: usize) -> String {
        let text = format!("\x0b{}NTE|1||{}\r\x1c\r", message(id), "x".repeat(notes));
        self.0.write_all(text.as_bytes()).expect("the node takes bytes");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\x1c\r") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("the node answers");
            answer.push(byte[0]);
        }
        String::from_utf8(answer).expect("a text")
    }
}

#[test]
fn a_node_that_fails_stays_up_says_so_and_ends_when_it_is_told_to() {
    let bed = Bed::new();
    // A file that grows beyond its limit is an error of the write, and not the end of the process.
    let node = bed.start_after("trap '' XFSZ");
    let mut line = Line::to(node.mllp());
    assert!(line.exchange("before", 10).contains("MSA|AA|before"));
    // A record that is durable but not yet applied when the store is poisoned can be read only after a restart.
    until("it can be read", || bed.stored().contains(&"before".to_owned()));
    limit(node.pid(), "--fsize=65536");
    let mut refused = 0;
    for n in 0..60 {
        let answer = line.exchange(&format!("n{n}"), 5_000);
        refused +=
            usize::from(answer.contains(&format!("MSA|AR|n{n}")) && answer.contains("nothing is stored any more"));
    }
    assert!(refused > 0, "every write beyond 64 KiB fails:\n{}", bed.log());
    let told = bed.run(&["status", "--data"]).finds("failed since");
    assert!(told.contains("next: check the medium"), "{told}");
    let ids = bed.stored();
    assert_eq!(ids.first().map(String::as_str), Some("before"), "what is stored can be read: {ids:?}");
    assert!(bed.log().contains("trouble begins"), "{}", bed.log());
    bed.run(&["stop", "--data"]).succeeds("");
    assert_eq!(node.ended(), Some(2), "whoever watches the process is told as well");
    let node = bed.start();
    bed.run(&["status", "--data"]).succeeds("");
    node.send("after");
    node.stop();
    assert!(bed.stored().contains(&"after".to_owned()));
}

#[test]
fn a_node_without_file_descriptors_waits_for_one_and_goes_on() {
    let bed = Bed::new();
    let node = bed.start();
    let mut line = Line::to(node.mllp());
    assert!(line.exchange("first", 10).contains("MSA|AA|first"));
    // As many as it has, and none more: the lowest number that is free is beyond the limit.
    let is_open = |number: &u32| std::fs::symlink_metadata(format!("/proc/{}/fd/{number}", node.pid())).is_ok();
    let free = (0..4096).find(|number| !is_open(number)).expect("it has not all of them");
    limit(node.pid(), &format!("--nofile={free}:4096"));
    let mut taken = 0;
    let refused = loop {
        let answer = line.exchange(&format!("n{taken}"), 200_000);
        if !answer.contains("MSA|AA") {
            break answer;
        }
        taken += 1;
        assert!(taken < 500, "the journal always finds a descriptor");
    };
    assert!(refused.contains("MSA|AR"), "{refused}");
    until("the log says what it waits for", || bed.log().contains("for a file descriptor"));
    limit(node.pid(), "--nofile=4096:4096");
    let mut tries = 0;
    until("it takes messages again", || {
        tries += 1;
        line.exchange(&format!("again{tries}"), 10).contains("MSA|AA")
    });
    until("the log says that it is over", || bed.log().contains("no longer waits for a file descriptor"));
    bed.run(&["status", "--data"]).succeeds("");
    node.stop();
    let stored = bed.stored();
    assert_eq!(stored.len(), taken + 2, "nothing acknowledged is lost, and nothing was given up for it");
}
