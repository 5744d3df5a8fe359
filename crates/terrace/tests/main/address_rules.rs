//! `[[access]]` in a real node: rules are in force from the start, a reload reads them again, and one whose file is gone or wrong
//! leaves them as they are.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::node::Bed;

const RULES: &str = "[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n[search]\nlisten = \"127.0.0.1:0\"\ntrust = true\n";

fn rule(port: &str, method: &str) -> String {
    format!("[[access]]\nport = \"{port}\"\naddress = \"local\"\nmethod = \"{method}\"\n")
}

/// The first byte that SQL answers to a startup: `R` where a login goes on, `E` for an error.
fn sql(address: SocketAddr) -> u8 {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let startup = [&196_608u32.to_be_bytes()[..], b"user\0ann\0database\0terrace\0\0"].concat();
    let length = u32::try_from(startup.len() + 4).expect("short").to_be_bytes();
    stream.write_all(&[&length[..], &startup].concat()).expect("it is taken");
    let mut first = [0];
    stream.read_exact(&mut first).expect("an answer");
    first[0]
}

/// The status of search's answer to `GET /`.
fn search(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).expect("a status").to_owned()
}

/// Whether a sender over MLLP is let in: who is not finds the connection closed.
fn mllp(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let sent = stream.write_all(b"\x0bMSH|^~\\&|A|B|C|D|20260101||ADT^A01|R1|P|2.5\rPID|1||7\r\x1c\r");
    sent.is_ok() && matches!(stream.read(&mut [0; 64]), Ok(bytes) if bytes > 0)
}

#[test]
fn rules_by_address_hold_from_the_start_and_are_read_again_by_a_reload_that_can_read_them() {
    let bed = Bed::new();
    let configure = |rules: &[(&str, &str)]| {
        let rules: String = rules.iter().map(|(port, method)| rule(port, method)).collect();
        bed.configure(&format!("{RULES}{rules}"));
    };
    configure(&[("sql", "allow"), ("mllp", "allow")]);
    let node = bed.start();
    bed.run(&["user", "add", "ann", "--no-password", "--data"]).succeeds("ann");
    let answers = || (sql(node.sql()), search(node.search()), mllp(node.mllp()));
    let (before, after) = ((b'R', "403".to_owned(), true), (b'E', "200".to_owned(), false));
    assert_eq!(answers(), before, "no rule is for search");
    configure(&[("sql", "reject"), ("search", "allow"), ("mllp", "reject")]);
    assert_eq!(answers(), before, "nothing changes before a reload");
    bed.run(&["reload", "--data"]).succeeds("access: 3 rules are in force");
    assert_eq!(answers(), after);
    // Neither a wrong file nor none opens the node.
    configure(&[("sql", "allow"), ("mllp", "trust")]);
    bed.run(&["reload", "--data"]).fails("port `mllp` has no method `trust`");
    fs::remove_file(bed.path("terrace.toml")).expect("it is there");
    bed.run(&["reload", "--data"]).fails("terrace.toml");
    assert_eq!(answers(), after);
    let log = bed.log();
    assert!(log.contains("the access rules refused a connection"), "{log}");
    node.stop();
}
