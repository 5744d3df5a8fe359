//! What a client sends: frames cut out of the bytes of a connection, and messages read from frames.
//!
//! ```text
//!   before login:   | length u32 | code u32 | ...          |      length counts itself
//!   afterwards:     | kind u8 | length u32 | ...           |      length counts itself, not the kind
//! ```
//!
//! Everything here is pure and total: any bytes make a message, a wish for more bytes, or an error; nothing panics and
//! nothing is set aside for a count that the frame does not hold. Text is UTF-8, because that is the only client
//! encoding. The layout is PostgreSQL's protocol 3 (its documentation, "Message Formats").
//!
//! What it deliberately does not do: decide whether a message may come now (`serve`), or read values (`parameter`).

use bytes::{Buf, Bytes, BytesMut};

/// Most a packet before login may have, in bytes; PostgreSQL's limit (`MAX_STARTUP_PACKET_LENGTH`).
const STARTUP_MAX: usize = 10_000;

/// Most a message that carries neither a query nor data may have, in bytes; PostgreSQL's `PQ_SMALL_MESSAGE_LIMIT`.
const SMALL_MAX: usize = 10_000;

/// Asks for TLS: the code that stands where a version would.
const SSL_REQUEST: u32 = 80_877_103;
/// Asks for encryption by GSSAPI.
const GSS_REQUEST: u32 = 80_877_104;
/// Asks to cancel what another connection does.
const CANCEL_REQUEST: u32 = 80_877_102;

/// Bytes that are not the protocol. The text says what was wrong with them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) String);

fn malformed<T>(text: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(text.into()))
}

/// The first packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opening {
    /// TLS is wanted; answered with one byte.
    Tls,
    /// Encryption by GSSAPI is wanted; answered with one byte.
    Gss,
    /// What the connection with this process number and key does shall end.
    Cancel {
        /// Process number as told at its login.
        process: u32,
        /// Its secret key.
        secret: Bytes,
    },
    /// A login: version and parameters.
    Start {
        /// Minor version of protocol 3.
        minor: u16,
        /// Names and values, as sent: `user`, `database`, `application_name`, ...
        parameters: Vec<(String, String)>,
    },
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// As text.
    Text,
    /// In the type's binary layout.
    Binary,
}

/// What `Describe` and `Close` are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

/// A message after login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Statements to run at once.
    Query(String),
    /// A statement to prepare.
    Parse {
        /// Its name; empty for the unnamed one.
        name: String,
        /// Its text.
        sql: String,
        /// Type numbers of parameters; 0 and missing ones are to be inferred.
        types: Vec<u32>,
    },
    /// Values for a prepared statement.
    Bind {
        /// Name of the portal that is made.
        portal: String,
        /// Name of the prepared statement.
        statement: String,
        /// None: all text; one: for all; else one for each.
        formats: Vec<Format>,
        /// The values; none is NULL.
        values: Vec<Option<Bytes>>,
        /// Formats of the result's columns, as for the parameters.
        results: Vec<Format>,
    },
    /// What does this take and give?
    Describe(Subject, String),
    /// Run a portal, or go on with it.
    Execute {
        /// The portal.
        portal: String,
        /// Most rows to send now; 0 is all.
        rows: u32,
    },
    /// Forget a statement or a portal.
    Close(Subject, String),
    /// End of a series of messages: an error skips to here.
    Sync,
    /// Send what is ready.
    Flush,
    /// A piece of what is copied in.
    CopyData(Bytes),
    /// All of it was sent.
    CopyDone,
    /// The client gives up copying, and says why.
    CopyFail(String),
    /// An answer of the login.
    Password(Bytes),
    /// The client goes.
    Terminate,
    /// A call of a function by number, which is not supported.
    Call,
}

/// Cuts the first packet off `bytes`; none: more bytes are needed.
pub(crate) fn opening(bytes: &mut BytesMut) -> Result<Option<Opening>, Malformed> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if !(8..=STARTUP_MAX).contains(&length) {
        return malformed("invalid length of startup packet");
    }
    if bytes.len() < length {
        return Ok(None);
    }
    let mut body = Body(bytes.split_to(length).freeze().slice(4..));
    let code = body.u32()?;
    let opening = match code {
        SSL_REQUEST => Opening::Tls,
        GSS_REQUEST => Opening::Gss,
        CANCEL_REQUEST => Opening::Cancel { process: body.u32()?, secret: body.rest() },
        version if version >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = body.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, body.text()?));
            }
            Opening::Start { minor: (version & 0xffff) as u16, parameters }
        }
        version => {
            return malformed(format!(
                "unsupported frontend protocol {}.{}: server supports 3.0",
                version >> 16,
                version & 0xffff
            ));
        }
    };
    body.end()?;
    Ok(Some(opening))
}

/// Cuts the first message off `bytes`; none: more bytes are needed. `limit` is the most bytes a message may have.
pub(crate) fn message(bytes: &mut BytesMut, limit: usize) -> Result<Option<Message>, Malformed> {
    let Some(head) = bytes.first_chunk::<5>() else { return Ok(None) };
    let kind = head[0];
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let most = match kind {
        b'Q' | b'P' | b'B' | b'd' | b'F' => limit,
        b'p' => SMALL_MAX.max(65_536),
        b'D' | b'E' | b'C' | b'S' | b'H' | b'c' | b'f' | b'X' => SMALL_MAX,
        other => return malformed(format!("invalid frontend message type {other}")),
    };
    if length < 4 || length > most.max(4) {
        return malformed(format!("invalid message length {length} (the limit is {most} bytes)"));
    }
    if bytes.len() < length + 1 {
        return Ok(None);
    }
    let mut body = Body(bytes.split_to(length + 1).freeze().slice(5..));
    let message = read(kind, &mut body)?;
    body.end()?;
    Ok(Some(message))
}

fn read(kind: u8, body: &mut Body) -> Result<Message, Malformed> {
    Ok(match kind {
        b'Q' => Message::Query(body.text()?),
        b'P' => {
            let (name, sql) = (body.text()?, body.text()?);
            let count = body.u16()?;
            Message::Parse { name, sql, types: (0..count).map(|_| body.u32()).collect::<Result<_, _>>()? }
        }
        b'B' => {
            let (portal, statement) = (body.text()?, body.text()?);
            let formats = body.formats()?;
            let count = body.u16()?;
            let values = (0..count).map(|_| body.value()).collect::<Result<_, _>>()?;
            Message::Bind { portal, statement, formats, values, results: body.formats()? }
        }
        b'D' => Message::Describe(body.subject()?, body.text()?),
        b'E' => {
            let portal = body.text()?;
            // PostgreSQL takes a negative count for "all".
            Message::Execute { portal, rows: u32::try_from(body.u32()? as i32).unwrap_or(0) }
        }
        b'C' => Message::Close(body.subject()?, body.text()?),
        b'S' => Message::Sync,
        b'H' => Message::Flush,
        b'd' => Message::CopyData(body.rest()),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(body.text()?),
        b'p' => Message::Password(body.rest()),
        b'X' => {
            body.rest();
            Message::Terminate
        }
        _ => {
            body.rest();
            Message::Call
        }
    })
}

/// The rest of one frame. Reading never goes beyond it.
struct Body(Bytes);

impl Body {
    fn u16(&mut self) -> Result<u16, Malformed> {
        self.0.try_get_u16().or_else(|_| malformed("insufficient data left in message"))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.try_get_u32().or_else(|_| malformed("insufficient data left in message"))
    }

    /// Text up to a zero byte.
    fn text(&mut self) -> Result<String, Malformed> {
        let Some(at) = self.0.iter().position(|byte| *byte == 0) else {
            return malformed("invalid string in message");
        };
        let text = self.0.split_to(at);
        self.0.advance(1);
        match std::str::from_utf8(&text) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => malformed("invalid byte sequence for encoding \"UTF8\""),
        }
    }

    fn subject(&mut self) -> Result<Subject, Malformed> {
        match self.0.try_get_u8() {
            Ok(b'S') => Ok(Subject::Statement),
            Ok(b'P') => Ok(Subject::Portal),
            Ok(other) => malformed(format!("invalid message subtype {other}")),
            Err(_) => malformed("insufficient data left in message"),
        }
    }

    fn formats(&mut self) -> Result<Vec<Format>, Malformed> {
        let count = self.u16()?;
        (0..count)
            .map(|_| match self.u16()? {
                0 => Ok(Format::Text),
                1 => Ok(Format::Binary),
                other => malformed(format!("unsupported format code: {other}")),
            })
            .collect()
    }

    /// A length and so many bytes; length -1 is NULL.
    fn value(&mut self) -> Result<Option<Bytes>, Malformed> {
        let length = self.u32()? as i32;
        match usize::try_from(length) {
            Err(_) if length == -1 => Ok(None),
            Ok(length) if length <= self.0.len() => Ok(Some(self.0.split_to(length))),
            _ => malformed("insufficient data left in message"),
        }
    }

    fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { malformed("invalid message format: bytes are left over") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::from(&[kind][..]);
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn messages_are_read_whole_or_wait_for_more() {
        let bind = b"portal\0stmt\0\0\x01\0\x01\0\x02\0\0\0\x02hi\xff\xff\xff\xff\0\x01\0\x01";
        let whole = frame(b'B', bind);
        for cut in 0..whole.len() {
            assert_eq!(message(&mut BytesMut::from(&whole[..cut]), 1000), Ok(None), "{cut} bytes");
        }
        let mut bytes = whole.clone();
        bytes.extend_from_slice(b"S\0\0\0\x04");
        let expected = Message::Bind {
            portal: "portal".into(),
            statement: "stmt".into(),
            formats: vec![Format::Binary],
            values: vec![Some(Bytes::from_static(b"hi")), None],
            results: vec![Format::Binary],
        };
        assert_eq!(message(&mut bytes, 1000), Ok(Some(expected)));
        assert_eq!(message(&mut bytes, 1000), Ok(Some(Message::Sync)));
        assert_eq!(message(&mut bytes, 1000), Ok(None));
    }

    #[test]
    fn what_a_frame_does_not_hold_is_an_error_and_never_taken_from_the_next() {
        let broken: [(u8, &[u8]); 8] = [
            (b'Q', b"select 1"),
            (b'Q', b"\xff\0"),
            (b'P', b"\0select 1\0\0\x02\0\0\0\x17"),
            (b'B', b"\0\0\0\0\0\x01\0\0\0\x09ab"),
            (b'B', b"\0\0\0\x01\0\x07"),
            (b'D', b"Xname\0"),
            (b'E', b"\0\0\0"),
            (b'S', b"surplus"),
        ];
        for (kind, body) in broken {
            let mut bytes = frame(kind, body);
            bytes.extend_from_slice(&frame(b'Q', b"select 2\0"));
            assert!(message(&mut bytes, 1000).is_err(), "{} {body:?}", kind as char);
        }
        assert!(message(&mut BytesMut::from(&b"Q\0\0\0\x03"[..]), 1000).is_err(), "a length below its own size");
        assert!(message(&mut BytesMut::from(&b"Q\x7f\0\0\0"[..]), 1000).is_err(), "beyond the limit");
        assert!(message(&mut BytesMut::from(&b"~\0\0\0\x04"[..]), 1000).is_err(), "no such kind");
    }

    #[test]
    fn first_packets_are_told_apart() {
        let packet = |code: u32, rest: &[u8]| {
            let mut bytes = BytesMut::new();
            bytes.extend_from_slice(&(rest.len() as u32 + 8).to_be_bytes());
            bytes.extend_from_slice(&code.to_be_bytes());
            bytes.extend_from_slice(rest);
            bytes
        };
        assert_eq!(opening(&mut packet(SSL_REQUEST, b"")), Ok(Some(Opening::Tls)));
        assert_eq!(opening(&mut packet(GSS_REQUEST, b"")), Ok(Some(Opening::Gss)));
        let cancel = Opening::Cancel { process: 7, secret: Bytes::from_static(b"1234") };
        assert_eq!(opening(&mut packet(CANCEL_REQUEST, b"\0\0\0\x071234")), Ok(Some(cancel)));
        let start = Opening::Start { minor: 2, parameters: vec![("user".into(), "a".into())] };
        assert_eq!(opening(&mut packet(3 << 16 | 2, b"user\0a\0\0")), Ok(Some(start)));
        assert!(opening(&mut packet(3 << 16, b"user\0a\0")).is_err(), "no end of the list");
        assert!(opening(&mut packet(2 << 16, b"")).is_err(), "version 2");
        assert!(opening(&mut BytesMut::from(&b"GET / HTTP"[..])).is_err(), "a packet of 1.2 GB");
        assert_eq!(opening(&mut BytesMut::from(&b"\0\0\0"[..])), Ok(None));
    }
}
