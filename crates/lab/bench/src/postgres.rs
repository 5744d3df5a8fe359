//! A small blocking client of PostgreSQL's protocol, for loads and checks from outside.
//!
//! ```text
//! connect    startup, and a login without a password (trust) or by SCRAM, no TLS: loopback only
//! query      the simple protocol: one text, rows as text, the tag of its last statement
//! copy_in    COPY .. FROM STDIN with all its data
//! canceller  ends what runs on this connection, from another one
//! ```
//!
//! Messages are made and read by crate postgres-protocol, not by the server's own code, so a misreading there shows here.
//!
//! Invariant: after [`Error::Refused`] the connection is in step and can be used again; after [`Error::Broken`] the
//! effect of the statement is unknown, and every further call fails.
//!
//! Not here: prepared statements, binary values, channel binding. Third-party drivers test those
//! (`scripts/test-sql-clients.sh`).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{DataRowBody, ErrorResponseBody, Message};
use postgres_protocol::message::frontend::{self, CopyData};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Bytes of COPY data in one message.
const COPY_PIECE: usize = 64 * 1024;

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// The server refused the statement; the connection goes on.
    Refused {
        /// SQLSTATE.
        code: String,
        /// Its text.
        message: String,
    },
    /// The connection broke, an answer came out of turn, or nothing came within the `patience` of [`Client::connect`].
    Broken(io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Refused { code, message } => write!(f, "{code}: {message}"),
            Error::Broken(error) => write!(f, "the connection broke: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Broken(error)
    }
}

impl Error {
    /// Whether nothing came in time.
    pub fn is_late(&self) -> bool {
        matches!(self, Error::Broken(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }
}

/// The answers to a text of statements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Names of the columns of the last statement that has rows.
    pub columns: Vec<String>,
    /// All rows, as text; a NULL is `None`.
    pub rows: Vec<Vec<Option<String>>>,
    /// The tag of the last statement, as `INSERT 0 1`.
    pub tag: String,
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    socket: TcpStream,
    input: BytesMut,
    output: BytesMut,
    canceller: Canceller,
    in_step: bool,
}

/// Ends what runs on a connection.
#[derive(Clone, Copy, Debug)]
pub struct Canceller {
    address: SocketAddr,
    process: i32,
    secret: i32,
}

impl Canceller {
    /// Requests that the server end the statement that runs now, if there is one.
    pub fn cancel(&self) -> io::Result<()> {
        let mut message = BytesMut::new();
        frontend::cancel_request(self.process, self.secret, &mut message);
        let mut socket = TcpStream::connect_timeout(&self.address, CONNECT)?;
        socket.set_read_timeout(Some(CONNECT))?;
        socket.write_all(&message)?;
        // The server closes the connection when it has seen it.
        _ = socket.read(&mut [0]);
        Ok(())
    }
}

impl Client {
    /// Connects as `user`, which needs no password there. A call that gets no byte for `patience` fails as late.
    pub fn connect(address: SocketAddr, user: &str, patience: Duration) -> Result<Client, Error> {
        Client::connect_with(address, user, None, patience)
    }

    /// The same, with a password where the server asks for one.
    pub fn connect_with(
        address: SocketAddr,
        user: &str,
        password: Option<&str>,
        patience: Duration,
    ) -> Result<Client, Error> {
        Client::over(TcpStream::connect_timeout(&address, CONNECT)?, user, password, patience)
    }

    /// The same over a connection that is there.
    pub fn over(socket: TcpStream, user: &str, password: Option<&str>, patience: Duration) -> Result<Client, Error> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        let canceller = Canceller { address: socket.peer_addr()?, process: 0, secret: 0 };
        let (input, output) = (BytesMut::new(), BytesMut::new());
        let mut client = Client { socket, input, output, canceller, in_step: true };
        frontend::startup_message([("user", user), ("client_encoding", "UTF8")], &mut client.output)?;
        client.send()?;
        let mut scram = None;
        loop {
            match client.receive()? {
                Message::AuthenticationOk | Message::ParameterStatus(_) | Message::NoticeResponse(_) => {}
                Message::AuthenticationSasl(_) => scram = Some(client.begin_scram(password)?),
                Message::AuthenticationSaslContinue(body) => client.answer_scram(scram.as_mut(), body.data())?,
                Message::AuthenticationSaslFinal(body) => {
                    scram.as_mut().map_or(Ok(()), |scram: &mut ScramSha256| scram.finish(body.data()))?;
                }
                Message::BackendKeyData(key) => {
                    client.canceller.process = key.process_id();
                    client.canceller.secret = key.secret_key();
                }
                Message::ReadyForQuery(_) => return Ok(client),
                Message::ErrorResponse(body) => return Err(refused(&body)?),
                _ => {
                    return Err(Error::Broken(io::Error::other(
                        "the server asks for something that is not known here",
                    )));
                }
            }
        }
    }

    fn begin_scram(&mut self, password: Option<&str>) -> Result<ScramSha256, Error> {
        let none = || Error::Broken(io::Error::other("the server asks for a password: set sql.trust"));
        let scram = ScramSha256::new(password.ok_or_else(none)?.as_bytes(), ChannelBinding::unsupported());
        self.output.clear();
        frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut self.output)?;
        self.send()?;
        Ok(scram)
    }

    fn answer_scram(&mut self, scram: Option<&mut ScramSha256>, challenge: &[u8]) -> Result<(), Error> {
        let scram = scram.ok_or_else(|| Error::Broken(io::Error::other("SCRAM goes on that has not begun")))?;
        scram.update(challenge)?;
        self.output.clear();
        frontend::sasl_response(scram.message(), &mut self.output)?;
        self.send()
    }

    /// A handle that ends a statement of this connection.
    pub fn canceller(&self) -> Canceller {
        self.canceller
    }

    /// Runs a text of statements.
    pub fn query(&mut self, sql: &str) -> Result<Answer, Error> {
        self.begin()?;
        frontend::query(sql, &mut self.output)?;
        self.send()?;
        self.finish(None)
    }

    /// Sends a text of statements and does not wait for its answer, which `drain` drops.
    pub fn begin_query(&mut self, sql: &str) -> Result<(), Error> {
        self.begin()?;
        frontend::query(sql, &mut self.output)?;
        self.send()
    }

    /// Runs `COPY .. FROM STDIN` with this data, in the format that the statement names; returns its tag.
    pub fn copy_in(&mut self, sql: &str, data: &[u8]) -> Result<String, Error> {
        self.begin()?;
        frontend::query(sql, &mut self.output)?;
        self.send()?;
        Ok(self.finish(Some(data))?.tag)
    }

    /// Waits for the end of a statement that was late, and drops its answer.
    pub fn drain(&mut self) -> Result<(), Error> {
        match self.finish(None) {
            Ok(_) | Err(Error::Refused { .. }) => Ok(()),
            Err(broken) => Err(broken),
        }
    }

    fn begin(&mut self) -> Result<(), Error> {
        if !self.in_step {
            return Err(Error::Broken(io::Error::other("an earlier call broke this connection")));
        }
        self.in_step = false;
        self.output.clear();
        Ok(())
    }

    /// Reads up to ReadyForQuery; sends `data` when the server requests it.
    fn finish(&mut self, mut data: Option<&[u8]>) -> Result<Answer, Error> {
        let mut answer = Answer::default();
        let mut error = None;
        loop {
            match self.receive()? {
                Message::RowDescription(body) => {
                    answer.columns = body.fields().map(|field| Ok(field.name().to_owned())).collect()?;
                }
                Message::DataRow(body) => answer.rows.push(row(&body)?),
                Message::CommandComplete(body) => answer.tag = body.tag()?.to_owned(),
                Message::CopyInResponse(_) => self.hand_in(data.take())?,
                Message::ErrorResponse(body) => error = Some(refused(&body)?),
                Message::ReadyForQuery(_) => {
                    self.in_step = true;
                    return error.map_or(Ok(answer), Err);
                }
                // Notices, and what COPY .. TO STDOUT sends.
                _ => {}
            }
        }
    }

    fn hand_in(&mut self, data: Option<&[u8]>) -> Result<(), Error> {
        self.output.clear();
        match data {
            Some(data) => {
                for piece in data.chunks(COPY_PIECE) {
                    CopyData::new(piece)?.write(&mut self.output);
                }
                frontend::copy_done(&mut self.output);
            }
            None => frontend::copy_fail("this call has no data to copy", &mut self.output)?,
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), Error> {
        Ok(self.socket.write_all(&self.output)?)
    }

    fn receive(&mut self) -> Result<Message, Error> {
        let mut piece = [0; 16 * 1024];
        loop {
            if let Some(message) = Message::parse(&mut self.input)? {
                return Ok(message);
            }
            match self.socket.read(&mut piece)? {
                0 => return Err(Error::Broken(io::ErrorKind::UnexpectedEof.into())),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }
}

fn row(body: &DataRowBody) -> Result<Vec<Option<String>>, Error> {
    let text = |range: Option<std::ops::Range<usize>>| match range {
        None => Ok(None),
        Some(range) => match std::str::from_utf8(&body.buffer()[range]) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        },
    };
    Ok(body.ranges().map(text).collect()?)
}

fn refused(body: &ErrorResponseBody) -> Result<Error, Error> {
    let (mut code, mut message) = (String::new(), String::new());
    let mut fields = body.fields();
    while let Some(field) = fields.next()? {
        let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = text,
            b'M' => message = text,
            _ => {}
        }
    }
    Ok(Error::Refused { code, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// A server that waits for a message before each of these texts.
    fn scripted(replies: Vec<Vec<u8>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("is bound");
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("accepts");
            for reply in replies {
                let mut buffer = [0; 4096];
                assert!(socket.read(&mut buffer).expect("reads") > 0);
                socket.write_all(&reply).expect("writes");
            }
        });
        address
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    fn greeting() -> Vec<u8> {
        [message(b'R', &[0; 4]), message(b'K', &[0, 0, 0, 7, 0, 0, 0, 9]), message(b'Z', b"I")].concat()
    }

    #[test]
    fn rows_nulls_tags_and_refusals_arrive_and_a_refusal_leaves_the_connection_usable() {
        let row = message(b'D', &[0, 2, 0, 0, 0, 1, b'a', 255, 255, 255, 255]);
        let rows = [row, message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat();
        let refusal = [message(b'E', b"SERROR\0C42P01\0Mno such table\0\0"), message(b'Z', b"I")].concat();
        let address = scripted(vec![greeting(), refusal, rows]);
        let mut client = Client::connect(address, "u", Duration::from_secs(5)).expect("connects");
        match client.query("select") {
            Err(Error::Refused { code, message }) => {
                assert_eq!((code.as_str(), message.as_str()), ("42P01", "no such table"))
            }
            other => panic!("{other:?}"),
        }
        let answer = client.query("select").expect("answers");
        assert_eq!((answer.rows, answer.tag.as_str()), (vec![vec![Some("a".into()), None]], "SELECT 1"));
    }

    #[test]
    fn a_connection_that_broke_says_so_and_is_not_used_again() {
        let mut client = Client::connect(scripted(vec![greeting()]), "u", Duration::from_secs(5)).expect("connects");
        for _ in 0..2 {
            assert!(matches!(client.query("select"), Err(Error::Broken(_))));
        }
    }

    #[test]
    fn an_answer_that_does_not_come_is_late() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("is bound");
        let error = Client::connect(address, "u", Duration::from_millis(20)).expect_err("nobody answers");
        assert!(error.is_late(), "{error}");
    }
}
