//! A client that sends what it is told, byte for byte, and reads responses by their length.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status and type of the error.
    pub(super) fn error(&self) -> (u16, String) {
        (self.status, self.json()["error"]["type"].as_str().unwrap_or_default().to_owned())
    }
}

/// A connection.
pub(super) struct RawClient(BufReader<TcpStream>);

impl RawClient {
    pub(super) fn connect(address: SocketAddr) -> RawClient {
        let socket = TcpStream::connect(address).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        RawClient(BufReader::new(socket))
    }

    /// Sends bytes as they are. The server may have closed the connection.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.get_mut().write_all(bytes.as_ref());
    }

    /// Reads a response; none if the connection was closed.
    pub(super) fn read(&mut self, is_head: bool) -> Option<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length: usize = headers.get("content-length").map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; if is_head { 0 } else { length }];
        self.0.read_exact(&mut body).expect("the body");
        Some(Reply { status, headers, body })
    }

    /// A request with some header lines and a body.
    pub(super) fn request(&mut self, line: &str, headers: &str, body: &[u8]) -> Reply {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.send(format!("{line} HTTP/1.1\r\nHost: localhost\r\n{length}{headers}\r\n"));
        self.send(body);
        self.read(line.starts_with("HEAD")).expect("a response")
    }

    /// Whether the server closes the connection without another byte.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
