//! Connections that occupy a place without use: silent ones, half a frame, frames without an end.
//!
//! The attacker connects from 127.0.0.66, the other client from 127.0.0.1: a bound by address must separate them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use socket2::{Domain, Socket, Type};

use super::{Broken, PATIENCE, Target, USER};
use crate::postgres::Client;

/// Where attackers come from.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// How long the silent ones stay.
const STAY: Duration = Duration::from_secs(4);

/// A connection from the attacker's address.
pub(super) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((ATTACKER, 0)).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

/// As many connections as are let in, up to `most`; refused ones are what the node is for.
fn open(to: SocketAddr, most: usize) -> Vec<TcpStream> {
    (0..most).filter_map(|_| connect(to).ok()).collect()
}

/// 1,100 silent connections to the SQL port: another client logs in, and the node has descriptors for storage.
pub(super) fn silent_sql(target: &Target) -> anyhow::Result<Broken> {
    let held = open(target.sql, 1_100);
    let mut broken = Broken::new();
    if let Err(error) = Client::connect(target.sql, USER, PATIENCE).and_then(|mut client| client.query("SELECT 1")) {
        broken.push(format!("no other client could log in: {error}"));
    }
    std::thread::sleep(STAY);
    drop(held);
    Ok(broken)
}

/// 600 silent connections to an MLLP port: a message of another client is accepted.
pub(super) fn silent_mllp(target: &Target) -> anyhow::Result<Broken> {
    let held = open(target.attacked, 600);
    let mut broken = friend(target, "SILENT");
    std::thread::sleep(STAY);
    broken.append(&mut friend(target, "SILENT2"));
    drop(held);
    Ok(broken)
}

/// 600 connections to a port with TLS that never begin a handshake: each is closed, sooner or later.
pub(super) fn silent_tls(target: &Target) -> anyhow::Result<Broken> {
    let held = open(target.secured, 600);
    // The handshake's time-out is 10 s; a loaded machine gets some times that.
    let broken = all_closed(held, Duration::from_secs(60), "a connection without a handshake");
    Ok(broken)
}

/// Half of a frame on each of 600 connections: they are closed by the frame's time-out, and a message of another client
/// is accepted.
pub(super) fn half_frames(target: &Target) -> anyhow::Result<Broken> {
    let mut held = open(target.attacked, 600);
    for stream in &mut held {
        // A connection that was not let in refuses.
        _ = stream.write_all(b"\x0bMSH|^~\\&|HIS|NORTH");
    }
    let mut broken = friend(target, "HALF");
    broken.append(&mut all_closed(held, Duration::from_secs(60), "a connection with half a frame"));
    Ok(broken)
}

/// Frames that grow and do not end, more than there is memory for.
pub(super) fn large_frames(target: &Target) -> anyhow::Result<Broken> {
    let (connections, bytes) = if target.quick { (40, 8 << 20) } else { (250, 15 << 20) };
    let mut held = open(target.attacked, connections);
    let piece = vec![b'A'; 256 << 10];
    for stream in &mut held {
        _ = stream.set_nonblocking(true);
        _ = stream.write(b"\x0bMSH|^~\\&|");
    }
    let mut left: Vec<usize> = vec![bytes; held.len()];
    // For twice the frame's time-out: bytes that are not read cannot be sent.
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until && left.iter().any(|left| *left > 0) {
        let mut sent = 0;
        for (stream, left) in held.iter_mut().zip(&mut left).filter(|(_, left)| **left > 0) {
            match stream.write(&piece) {
                Ok(count) => {
                    *left = left.saturating_sub(count);
                    sent += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => *left = 0,
            }
        }
        if sent == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let mut broken = friend(target, "LARGE");
    drop(held);
    let given_back = |bytes: u64| bytes <= (target.rest_bytes + super::CACHE_BYTES + (48 << 20)) / 10 * 11;
    let begun = Instant::now();
    loop {
        let holds = workload::process::ProcessSize::of(target.pid).context("the node has ended")?.resident_bytes;
        if given_back(holds) {
            return Ok(broken);
        }
        if begun.elapsed() > PATIENCE {
            let rest = target.rest_bytes >> 20;
            broken.push(format!("{} MiB are not given back; at rest it held {rest}", holds >> 20));
            return Ok(broken);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until the node has closed all of them.
fn all_closed(held: Vec<TcpStream>, patience: Duration, what: &str) -> Broken {
    let until = Instant::now() + patience;
    for mut stream in held {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        _ = stream.set_read_timeout(Some(left));
        match stream.read(&mut [0; 512]) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return vec![format!("{what} is still open after {} s", patience.as_secs())];
            }
            Err(_) => {}
        }
    }
    Broken::new()
}

/// A message of another client to the attacked port, from another address: it is accepted and acknowledged.
fn friend(target: &Target, id: &str) -> Broken {
    let message = format!("MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01|{id}|P|2.5\rPID|1||1||SAMPLE^ANN\r");
    let begun = Instant::now();
    // A sender tries again when it is refused, as long as it has patience.
    loop {
        match exchange(target.attacked, message.as_bytes(), PATIENCE) {
            Ok(answer) if contains(&answer, b"MSA|AA|") => return Broken::new(),
            Ok(answer) => return vec![format!("a message was answered {}", String::from_utf8_lossy(&answer))],
            Err(error) if begun.elapsed() > PATIENCE => {
                return vec![format!("no message of another client is accepted: {error}")];
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Sends a frame and reads its answer.
pub(super) fn exchange(to: SocketAddr, message: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&to, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&[b"\x0b", message, b"\x1c\r"].concat())?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.ends_with(b"\x1c\r") {
        match stream.read(&mut piece)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&piece[..count]),
        }
    }
    Ok(answer)
}

pub(super) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(bytes, part).is_some()
}

/// A certificate for the service behind TLS, and its key, PEM.
pub(super) fn certificate() -> anyhow::Result<(String, String)> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
