//! A client of the protocol for tests: it sends messages, or any bytes, and splits the replies.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Buf, Bytes};
use pgwire::api::auth::sasl::scram::gen_salted_password;
use ring::{digest, hmac};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::Server;

/// A message of the server.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) kind: char,
    pub(super) body: Bytes,
}

/// Everything up to ReadyForQuery.
#[derive(Debug)]
pub(super) struct Outcome(Vec<Reply>);

impl Outcome {
    /// The rows as text; there must be no error.
    pub(super) fn rows(&self) -> Vec<Vec<Option<String>>> {
        assert!(self.errors().is_empty(), "{self:?}");
        self.0.iter().filter(|reply| reply.kind == 'D').map(|reply| row(reply.body.clone())).collect()
    }

    /// The column labels of the result.
    pub(super) fn labels(&self) -> Vec<String> {
        let described = self.0.iter().find(|reply| reply.kind == 'T').expect("rows are answered");
        let mut body = described.body.clone();
        let count = body.get_u16();
        let label = |_| {
            let end = body.iter().position(|byte| *byte == 0).expect("it ends");
            let label = String::from_utf8(body.split_to(end).to_vec()).expect("it is text");
            // The zero, and the description of the column: its table, its type and its format.
            body.advance(1 + 18);
            label
        };
        (0..count).map(label).collect()
    }

    /// Whether there is a reply of this kind.
    pub(super) fn has(&self, kind: char) -> bool {
        self.0.iter().any(|reply| reply.kind == kind)
    }

    /// Bytes of the body of the first reply of this kind.
    pub(super) fn length(&self, kind: char) -> usize {
        self.0.iter().find(|reply| reply.kind == kind).expect("it is there").body.len()
    }

    /// SQLSTATEs.
    pub(super) fn errors(&self) -> Vec<String> {
        self.0.iter().filter(|reply| reply.kind == 'E').map(|reply| reply.error().0).collect()
    }
}

fn row(mut body: Bytes) -> Vec<Option<String>> {
    let count = body.get_u16();
    let value = |_| {
        let length = usize::try_from(body.get_i32()).ok()?;
        Some(String::from_utf8(body.split_to(length).to_vec()).expect("it is text"))
    };
    (0..count).map(value).collect()
}

/// A startup packet.
pub(super) fn start(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
}

pub(super) struct Client {
    socket: TcpStream,
    /// Process number and secret, once logged in.
    pub(super) key: (u32, Vec<u8>),
}

impl Client {
    pub(super) async fn connect(server: &Server) -> Client {
        Client::to(server.address()).await
    }

    pub(super) async fn to(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).await.expect("it listens");
        Client { socket, key: (0, Vec::new()) }
    }

    /// A client that is logged in without a password.
    pub(super) async fn trusted(server: &Server) -> Client {
        let mut client = Client::connect(server).await;
        client.log_in("ann", "").await.expect("no password is asked for");
        client
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        // If the server has disconnected already, the next read shows it.
        let _ = self.socket.write_all(bytes).await;
    }

    /// Sends nothing more, which the server reads.
    pub(super) async fn end_side(&mut self) {
        self.socket.shutdown().await.expect("it is open");
    }

    pub(super) async fn message(&mut self, kind: u8, body: &[u8]) {
        let head = [&[kind][..], &(body.len() as u32 + 4).to_be_bytes()].concat();
        self.send(&[&head, body].concat()).await;
    }

    pub(super) async fn parse(&mut self, name: &str, sql: &str, types: &[u32]) {
        let mut body = format!("{name}\0{sql}\0").into_bytes();
        body.extend_from_slice(&(types.len() as u16).to_be_bytes());
        types.iter().for_each(|oid| body.extend_from_slice(&oid.to_be_bytes()));
        self.message(b'P', &body).await;
    }

    pub(super) async fn reply(&mut self) -> Reply {
        let kind = self.socket.read_u8().await.expect("a reply comes");
        let length = self.socket.read_u32().await.expect("it is whole") as usize;
        let mut body = vec![0; length - 4];
        self.socket.read_exact(&mut body).await.expect("it is whole");
        Reply { kind: kind as char, body: body.into() }
    }

    /// The kinds of the next replies.
    pub(super) async fn kinds(&mut self, count: usize) -> Vec<char> {
        let mut kinds = Vec::new();
        for _ in 0..count {
            kinds.push(self.reply().await.kind);
        }
        kinds
    }

    /// Whether there are bytes to read.
    pub(super) async fn has_reply(&self) -> bool {
        tokio::time::timeout(Duration::from_millis(1), self.socket.peek(&mut [0])).await.is_ok()
    }

    pub(super) async fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 1]).await, Ok(0) | Err(_))
    }

    /// Whether the connection ends in time, whatever is received before.
    pub(super) async fn ends(&mut self) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(60), self.socket.read_to_end(&mut rest)).await.is_ok()
    }

    /// What there is to read now, until the end or until nothing comes for a moment.
    pub(super) async fn unread(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        let reading = self.socket.read_to_end(&mut said);
        let _ = tokio::time::timeout(Duration::from_millis(50), reading).await;
        said
    }

    /// Whether a login without a password is accepted; the server may disconnect at any time.
    pub(super) async fn tries(&mut self, user: &str) -> bool {
        self.send(&start(3 << 16, &[("user", user)])).await;
        loop {
            let Ok(kind) = self.socket.read_u8().await else { return false };
            let Ok(length) = self.socket.read_u32().await else { return false };
            if self.socket.read_exact(&mut vec![0; length as usize - 4]).await.is_err() {
                return false;
            }
            match kind {
                b'Z' => return true,
                b'E' => return false,
                _ => {}
            }
        }
    }

    pub(super) async fn cancel(&mut self, process: u32, secret: &[u8]) {
        let head = [8 + 4 + secret.len() as u32, 80_877_102, process].map(u32::to_be_bytes).concat();
        self.send(&[&head, secret].concat()).await;
    }

    pub(super) async fn send_query(&mut self, sql: &str) {
        self.message(b'Q', format!("{sql}\0").as_bytes()).await;
    }

    pub(super) async fn query(&mut self, sql: &str) -> Outcome {
        self.send_query(sql).await;
        self.outcome().await
    }

    pub(super) async fn outcome(&mut self) -> Outcome {
        let mut replies = Vec::new();
        loop {
            let reply = self.reply().await;
            if reply.kind == 'Z' {
                return Outcome(replies);
            }
            replies.push(reply);
        }
    }

    /// Logs in, with the password if the server requests it; otherwise returns code and message of the error.
    pub(super) async fn log_in(&mut self, user: &str, password: &str) -> Result<(), (String, String)> {
        self.send(&start(3 << 16, &[("user", user), ("database", "terrace")])).await;
        let first = "n,,n=,r=clientnonce";
        loop {
            let mut reply = self.reply().await;
            match reply.kind {
                'E' => return Err(reply.error()),
                'Z' => return Ok(()),
                'K' => self.key = (reply.body.get_u32(), reply.body.to_vec()),
                'R' => match reply.body.get_u32() {
                    10 => {
                        let mut body = b"SCRAM-SHA-256\0".to_vec();
                        body.extend_from_slice(&(first.len() as u32).to_be_bytes());
                        body.extend_from_slice(first.as_bytes());
                        self.message(b'p', &body).await;
                    }
                    11 => {
                        let server = std::str::from_utf8(&reply.body).expect("it is text");
                        let last = client_final(password, &first[3..], server);
                        self.message(b'p', last.as_bytes()).await;
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// The client's last message of SCRAM: `first` is its first message without the header, `server` the server's answer.
pub(super) fn client_final(password: &str, first: &str, server: &str) -> String {
    bound_final(password, b"n,,", first, server)
}

/// The same with another header, which has the certificate's hash behind it where the login is bound.
pub(super) fn bound_final(password: &str, header: &[u8], first: &str, server: &str) -> String {
    let field = |tag: &str| server.split(',').find_map(|field| field.strip_prefix(tag)).expect("it is there");
    let mac = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let salt = BASE64.decode(field("s=")).expect("it is Base64");
    let salted = gen_salted_password(password, &salt, field("i=").parse().expect("it is a number"));
    let key = mac(&salted, b"Client Key");
    let without_proof = format!("c={},r={}", BASE64.encode(header), field("r="));
    let stored = digest::digest(&digest::SHA256, key.as_ref());
    let signature = mac(stored.as_ref(), format!("{first},{server},{without_proof}").as_bytes());
    let proof: Vec<u8> = key.as_ref().iter().zip(signature.as_ref()).map(|(key, mask)| key ^ mask).collect();
    format!("{without_proof},p={}", BASE64.encode(&proof))
}
