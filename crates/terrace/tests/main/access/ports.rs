//! Clients of the four ports, as small as can be, so that nothing of the node's own clients stands between a request and
//! its answer: the control socket, SQL, HTTP, and NBD over TLS.
//!
//! An [`Outcome`] is read from the protocol's own refusal: a text that begins with `permission denied`, SQLSTATE 42501 and
//! those of failed logins, 401 and 403, `NBD_REP_ERR_POLICY` and `NBD_EPERM`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bench::postgres::{Client, Error};
use nbd::protocol::{self, answer, command, option};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Longer than any request takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was answered, with this.
    Answered(String),
    /// It was refused for want of a right, with this.
    Refused(String),
    /// It failed for another reason.
    Failed(String),
}

impl Outcome {
    /// Its text.
    pub(crate) fn text(&self) -> &str {
        match self {
            Outcome::Answered(text) | Outcome::Refused(text) | Outcome::Failed(text) => text,
        }
    }
}

/// The control socket: one connection for all, each request with the token of who sends it.
pub(crate) struct Control {
    stream: BufReader<UnixStream>,
}

impl Control {
    pub(crate) fn open(data: &Path) -> Control {
        let stream = UnixStream::connect(data.join("control.sock")).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Control { stream: BufReader::new(stream) }
    }

    /// A request by who has the token; without one, by who runs the node.
    pub(crate) fn send(&mut self, token: Option<&str>, request: &str) -> Outcome {
        let prefix = token.map(|token| format!("as {token} ")).unwrap_or_default();
        self.stream.get_mut().write_all(format!("{prefix}{request}\n").as_bytes()).expect("it is taken");
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("an answer");
            let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{request}: {line:?}"));
            if answer.get("progress").is_some() {
                continue;
            }
            return match answer["error"].as_str() {
                None => Outcome::Answered(answer["ok"].to_string()),
                Some(error) if error.starts_with("permission denied") => Outcome::Refused(error.to_owned()),
                Some(error) => Outcome::Failed(error.to_owned()),
            };
        }
    }

    /// A request by who runs the node, which must succeed.
    pub(crate) fn must(&mut self, request: &str) -> Value {
        match self.send(None, request) {
            Outcome::Answered(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{request}: {other:?}"),
        }
    }

    /// Changes of roles and rights, which must succeed.
    pub(crate) fn change(&mut self, changes: &[Value]) {
        self.must(&format!("identity {}", json!({ "verb": "change", "changes": changes })));
    }
}

/// The codes of PostgreSQL that say that something is not allowed, or that a login failed.
const SQL_REFUSALS: [&str; 3] = ["42501", "28P01", "28000"];

fn sql_outcome(error: &Error) -> Outcome {
    match error {
        Error::Refused { code, message } if SQL_REFUSALS.contains(&code.as_str()) => {
            Outcome::Refused(format!("{code}: {message}"))
        }
        other => Outcome::Failed(other.to_string()),
    }
}

/// A login over SQL, with a password if the node asks for one.
pub(crate) fn sql_login(address: SocketAddr, user: &str, password: Option<&str>) -> Result<Client, Outcome> {
    Client::connect_with(address, user, password, PATIENCE).map_err(|error| sql_outcome(&error))
}

/// A statement, and its columns, rows and tag.
pub(crate) fn sql(client: &mut Client, statement: &str) -> Outcome {
    match client.query(statement) {
        Ok(answer) => Outcome::Answered(format!("{:?} {:?} {}", answer.columns, answer.rows, answer.tag)),
        Err(error) => sql_outcome(&error),
    }
}

/// HTTP: one connection for all, each request with the token of who sends it.
pub(crate) struct Http {
    address: SocketAddr,
    /// Headers besides the usual ones.
    more: &'static str,
    stream: BufReader<TcpStream>,
}

/// An answer over HTTP.
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Http {
    pub(crate) fn open(address: SocketAddr) -> Http {
        Http { address, more: "", stream: Http::connect(address) }
    }

    /// The same for the console, whose changes need a key.
    pub(crate) fn open_console(address: SocketAddr) -> Http {
        Http { more: "Idempotency-Key: the-key-of-a-test\r\n", ..Http::open(address) }
    }

    fn connect(address: SocketAddr) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        BufReader::new(stream)
    }

    /// A request with the value of `Authorization`, if any, and its answer as it is.
    pub(crate) fn exchange(&mut self, authorization: Option<&str>, request: (&str, &str, &str)) -> HttpAnswer {
        let (method, target, body) = request;
        let who = authorization.map(|value| format!("Authorization: {value}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{who}{}Content-Type: application/x-ndjson\r\n\
             Content-Length: {}\r\n\r\n",
            self.more,
            body.len()
        );
        self.stream.get_mut().write_all((head + body).as_bytes()).expect("it is taken");
        let (mut status, mut length, mut closes, mut is_chunked) = (0, 0, false, false);
        for number in 0.. {
            let mut line = String::new();
            assert!(self.stream.read_line(&mut line).expect("an answer") > 0, "{method} {target}: no answer");
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(':') {
                _ if line.is_empty() => break,
                _ if number == 0 => status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0),
                Some(("content-length", value)) => length = value.trim().parse().expect("a length"),
                Some(("connection", value)) => closes = value.trim() == "close",
                Some(("transfer-encoding", value)) => is_chunked = value.trim() == "chunked",
                _ => {}
            }
        }
        let mut body = vec![0; if method == "HEAD" { 0 } else { length }];
        self.stream.read_exact(&mut body).expect("the whole body");
        while is_chunked {
            let mut line = String::new();
            assert!(self.stream.read_line(&mut line).expect("a chunk") > 0, "{method} {target}: it was cut");
            let length = usize::from_str_radix(line.trim_end(), 16).expect("a length");
            let mut chunk = vec![0; length + 2];
            self.stream.read_exact(&mut chunk).expect("the whole chunk");
            body.extend_from_slice(&chunk[..length]);
            is_chunked = length > 0;
        }
        if closes {
            self.stream = Http::connect(self.address);
        }
        HttpAnswer { status, body: String::from_utf8_lossy(&body).into_owned() }
    }

    /// A request by who has the token.
    pub(crate) fn send(&mut self, token: &str, request: (&str, &str, &str)) -> Outcome {
        let answer = self.exchange(Some(&format!("Bearer {token}")), request);
        let text = format!("{} {}", answer.status, answer.body);
        // Requests about several documents have an answer for each.
        match answer.status {
            // 429: a login that failed often.
            401 | 403 | 429 => Outcome::Refused(text),
            200..=299 if answer.body.contains("security_exception") => Outcome::Refused(text),
            200..=299 => Outcome::Answered(text),
            _ => Outcome::Failed(text),
        }
    }
}

/// A connection over NBD, with the certificate that TLS showed.
pub(crate) struct Nbd {
    stream: StreamOwned<ClientConnection, TcpStream>,
    cookie: u64,
}

impl Nbd {
    /// Connects, and asks for TLS.
    pub(crate) fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<Nbd> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting)?;
        // Fixed newstyle, and no zeros behind an export's facts.
        socket.write_all(&3u32.to_be_bytes())?;
        socket.write_all(&head_of(option::STARTTLS, 0))?;
        let (kind, _) = reply(&mut socket)?;
        assert_eq!(kind, answer::ACK, "TLS is on");
        let name = "localhost".try_into().expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
        Ok(Nbd { stream: StreamOwned::new(connection, socket), cookie: 0 })
    }

    /// Sends an option and reads its replies to the last one.
    pub(crate) fn option(&mut self, number: u32, data: &[u8]) -> std::io::Result<Vec<(u32, Vec<u8>)>> {
        self.stream.write_all(&[&head_of(number, data.len())[..], data].concat())?;
        let mut replies = Vec::new();
        loop {
            let (kind, data) = reply(&mut self.stream)?;
            let is_last = kind == answer::ACK || kind & answer::ERROR != 0;
            replies.push((kind, data));
            if is_last {
                return Ok(replies);
            }
        }
    }

    /// Opens an export for reads and writes.
    pub(crate) fn go(&mut self, name: &str) -> Outcome {
        match self.option(option::GO, &named(name)) {
            Ok(replies) => outcome_of(&replies),
            Err(error) => Outcome::Refused(error.to_string()),
        }
    }

    /// Opens an export as old clients do, whose refusal is the end of the connection, and sends a command.
    pub(crate) fn by_export_name(&mut self, name: &str, kind: u16, data: &[u8]) -> Outcome {
        let request = [&head_of(option::EXPORT_NAME, name.len())[..], name.as_bytes()].concat();
        // Size and flags, without the zeros behind them.
        let mut facts = [0; 10];
        match self.stream.write_all(&request).and_then(|()| self.stream.read_exact(&mut facts)) {
            Ok(()) => self.command(kind, 4096, data),
            Err(error) => Outcome::Refused(error.to_string()),
        }
    }

    /// A command of the transmission, with its data; the data of its reply if it reads.
    pub(crate) fn command(&mut self, kind: u16, length: u32, data: &[u8]) -> Outcome {
        self.cookie += 1;
        let mut request = Vec::new();
        request.extend(protocol::REQUEST_MAGIC.to_be_bytes());
        request.extend([0, 0]);
        request.extend(kind.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(0u64.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        let mut head = [0; 16];
        if let Err(error) = self.stream.write_all(&request).and_then(|()| self.stream.read_exact(&mut head)) {
            return Outcome::Refused(error.to_string());
        }
        let error = u32::from_be_bytes(head[4..8].try_into().expect("4 bytes"));
        let mut read = vec![0; if error == 0 && kind == command::READ { length as usize } else { 0 }];
        self.stream.read_exact(&mut read).expect("the data");
        match error {
            0 => Outcome::Answered(format!("{} bytes", read.len())),
            protocol::errno::PERM => Outcome::Refused("EPERM".to_owned()),
            other => Outcome::Failed(format!("error {other}")),
        }
    }
}

/// The data of options that name an export and want no further information.
pub(crate) fn named(name: &str) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat()
}

/// The data of options about contexts.
pub(crate) fn contexts(name: &str, query: &str) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    [text(name), 1u32.to_be_bytes().to_vec(), text(query)].concat()
}

/// What replies to an option mean. What a client may not know is unknown to it.
pub(crate) fn outcome_of(replies: &[(u32, Vec<u8>)]) -> Outcome {
    let shown: Vec<String> =
        replies.iter().map(|(kind, data)| format!("{kind:#x} {}", String::from_utf8_lossy(data))).collect();
    let text = shown.join(", ");
    match replies.last().map(|(kind, _)| *kind) {
        Some(answer::ACK) => Outcome::Answered(text),
        Some(answer::POLICY | answer::UNKNOWN) => Outcome::Refused(text),
        _ => Outcome::Failed(text),
    }
}

fn head_of(number: u32, length: usize) -> [u8; 16] {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&protocol::OPTION_MAGIC.to_be_bytes());
    head[8..12].copy_from_slice(&number.to_be_bytes());
    head[12..].copy_from_slice(&(length as u32).to_be_bytes());
    head
}

fn reply(stream: &mut impl Read) -> std::io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let mut data = vec![0; number(16) as usize];
    stream.read_exact(&mut data)?;
    Ok((number(12), data))
}
