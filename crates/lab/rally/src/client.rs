//! A small HTTP client for one connection that stays open: it costs the machine little beside the node that it measures.
//!
//! It reads responses with a `Content-Length`, which all of the node's have, and gives up on any other. Not for use beyond this
//! machine: no TLS, no redirects, no password.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// How long one response may take: a force-merge of a large index is the longest.
const PATIENCE: Duration = Duration::from_secs(600);
/// Most bytes of the head of a response.
const HEAD_MAX: usize = 64 << 10;
/// Most bytes of the body of a response: the node's own bound is 128 MiB.
const BODY_MAX: usize = 256 << 20;

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    received: Vec<u8>,
}

/// What the node responds.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'c> {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: &'c [u8],
}

impl Reply<'_> {
    /// The body as JSON.
    ///
    /// # Errors
    /// If it is none, or the status is no success.
    pub fn json(&self) -> anyhow::Result<Value> {
        ensure!((200..300).contains(&self.status), "status {}: {}", self.status, self.text());
        serde_json::from_slice(self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The first part of the body, for a message.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(400)]).into_owned()
    }
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(address: SocketAddr) -> anyhow::Result<Client> {
        let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, request: Vec::new(), received: Vec::new() })
    }

    /// Sends a request and waits for its response. A body is sent as `application/json`, or as NDJSON where it ends with a new line.
    ///
    /// # Errors
    /// The system's; a response that is no HTTP/1.1 with a length. The connection is then not to be used again.
    pub fn send(&mut self, method: &str, target: &str, body: &[u8]) -> anyhow::Result<Reply<'_>> {
        let kind = if body.ends_with(b"\n") { "application/x-ndjson" } else { "application/json" };
        self.request.clear();
        let kind = if body.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
        let length = body.len();
        write!(
            self.request,
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {length}\r\n\r\n"
        )?;
        self.request.extend_from_slice(body);
        self.stream.write_all(&self.request).context("sending a request")?;
        self.receive().with_context(|| format!("the response to {method} {target}"))
    }

    fn receive(&mut self) -> anyhow::Result<Reply<'_>> {
        self.received.clear();
        let head = loop {
            if let Some(at) = find(&self.received, b"\r\n\r\n") {
                break at + 4;
            }
            ensure!(self.received.len() <= HEAD_MAX, "a head beyond {HEAD_MAX} bytes");
            self.more()?;
        };
        let text = std::str::from_utf8(&self.received[..head]).context("a head that is no text")?;
        let (status, length) = of_head(text)?;
        ensure!(length <= BODY_MAX, "a body beyond {BODY_MAX} bytes");
        while self.received.len() < head + length {
            self.more()?;
        }
        ensure!(self.received.len() == head + length, "more than one response");
        Ok(Reply { status, body: &self.received[head..] })
    }

    fn more(&mut self) -> anyhow::Result<()> {
        let mut part = [0; 32 << 10];
        let read = self.stream.read(&mut part)?;
        if read == 0 {
            bail!("the connection was closed");
        }
        self.received.extend_from_slice(&part[..read]);
        Ok(())
    }
}

/// Status and length of a head.
fn of_head(head: &str) -> anyhow::Result<(u16, usize)> {
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find_map(|(name, value)| name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?);
    status.zip(length).with_context(|| format!("no HTTP/1.1 with a length: {first}"))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Serves these responses, each after a request, in parts of two bytes.
    fn serving(responses: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for response in responses {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                for part in response.as_bytes().chunks(2) {
                    let _ = stream.write_all(part);
                }
            }
        });
        address
    }

    #[test]
    fn responses_in_parts_are_read_whole_one_after_the_other() {
        let address = serving(&[
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}",
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        ]);
        let mut client = Client::connect(address).expect("it listens");
        let reply = client.send("GET", "/", b"").expect("a response");
        assert_eq!((reply.status, &reply.json().expect("JSON")["a"]), (200, &Value::from(1)));
        let reply = client.send("PUT", "/x", b"{}\n").expect("a response");
        assert_eq!(reply.status, 404);
        assert!(reply.json().is_err());
        assert!(client.send("GET", "/", b"").is_err(), "the connection is closed");
    }

    #[test]
    fn what_is_no_response_with_a_length_is_an_error() {
        for response in [
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
        ] {
            let address = serving(Vec::leak(vec![response]));
            let mut client = Client::connect(address).expect("it listens");
            assert!(client.send("GET", "/", b"").is_err(), "{response}");
        }
    }
}
