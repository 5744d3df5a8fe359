//! Checks each frame of a client before pgwire's decoders read it: whether it may come now, how long it may be, and
//! whether it contains what its counts and lengths claim.
//!
//! ```text
//!   before login:   | length u32 | code u32 | ...          |      length counts itself
//!   afterwards:     | kind u8 | length u32 | ...           |      length counts itself, not the kind
//! ```
//!
//! pgwire 0.41 decodes a message from the whole buffer and trusts its counts and lengths. It panics if the buffer ends
//! first, and otherwise reads into the next message. It treats text without an end as empty, and changes text that is
//! not UTF-8. Any client that can connect, logged in or not, controls the content of a message. So this file walks each
//! frame first, and pgwire gets that frame alone. An accepted frame is decoded without a panic and to its last byte.
//! The tests list the messages for which pgwire alone would fail, so this file can be removed when pgwire checks them
//! itself.
//!
//! All functions here are pure and total, and allocate nothing. The layout is PostgreSQL's protocol 3 (its
//! documentation, "Message Formats").

use super::error_response::ErrorResponse;

/// Largest packet before the login, in bytes; PostgreSQL's limit (`MAX_STARTUP_PACKET_LENGTH`).
const OPENING_MAX: usize = 10_000;

/// Largest message that contains neither a query nor data, in bytes; PostgreSQL's `PQ_SMALL_MESSAGE_LIMIT`.
const SMALL_MAX: usize = 10_000;

/// Codes in the place of a version: requests for TLS, for encryption by GSSAPI, and for a cancel.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// Length of the key in a cancel request, in bytes: protocol 3.2's bounds.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 4..=256;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The client opens the connection: packets without a kind.
    Opening,
    /// The client logs in: only answers of the login are accepted.
    Login,
    /// The client is logged in.
    Serving,
}

/// The length of the first frame, if it is complete and well-formed; `None` if more bytes are needed. `limit` is the
/// largest size in bytes of a message with a query or data.
pub(super) fn frame(bytes: &[u8], phase: Phase, limit: usize) -> Result<Option<usize>, ErrorResponse> {
    if phase == Phase::Opening {
        return opening(bytes);
    }
    let Some(head) = bytes.first_chunk::<5>() else { return Ok(None) };
    let [kind, length @ ..] = *head;
    let length = u32::from_be_bytes(length) as usize;
    let most = most(kind, phase, limit)?;
    if length < 4 || length > most {
        return malformed(format!("invalid message length {length} (the limit is {most} bytes)"));
    }
    let Some(body) = bytes.get(5..length + 1) else { return Ok(None) };
    message(kind, Body(body))?;
    Ok(Some(length + 1))
}

fn opening(bytes: &[u8]) -> Result<Option<usize>, ErrorResponse> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if !(8..=OPENING_MAX).contains(&length) {
        return malformed("invalid length of startup packet");
    }
    let Some(body) = bytes.get(4..length) else { return Ok(None) };
    let mut body = Body(body);
    match body.u32()? {
        SSL_REQUEST | GSS_REQUEST => {}
        CANCEL_REQUEST => {
            body.u32()?;
            if !KEY_BYTES.contains(&body.rest().len()) {
                return malformed("invalid length of cancel request");
            }
        }
        version if version >> 16 == 3 => {
            while !body.text()?.is_empty() {
                body.text()?;
            }
        }
        version => {
            let (major, minor) = (version >> 16, version & 0xffff);
            return malformed(format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2"));
        }
    }
    body.end()?;
    Ok(Some(length))
}

/// The largest size in bytes that a message of this kind may have now.
fn most(kind: u8, phase: Phase, limit: usize) -> Result<usize, ErrorResponse> {
    match (phase, kind) {
        (_, b'X') => Ok(SMALL_MAX),
        (Phase::Login, b'p') => Ok(SMALL_MAX),
        (Phase::Login, _) => malformed("expected a SASL response"),
        (_, b'Q' | b'P' | b'B' | b'd') => Ok(limit.max(4)),
        (_, b'D' | b'E' | b'C' | b'S' | b'H' | b'c' | b'f') => Ok(SMALL_MAX),
        (_, b'F') => {
            let error_response = ErrorResponse::new("0A000", "function calls by OID are not supported");
            Err(error_response.with_hint("Use SELECT."))
        }
        (_, other) => malformed(format!("invalid frontend message type {other}")),
    }
}

fn message(kind: u8, mut body: Body<'_>) -> Result<(), ErrorResponse> {
    match kind {
        b'Q' | b'f' => drop(body.text()?),
        b'P' => {
            body.text()?;
            body.text()?;
            let count = body.u16()?;
            body.take(usize::from(count) * 4)?;
        }
        b'B' => {
            body.text()?;
            body.text()?;
            body.formats()?;
            for _ in 0..body.u16()? {
                body.value()?;
            }
            body.formats()?;
        }
        b'D' | b'C' => {
            body.subject()?;
            body.text()?;
        }
        b'E' => {
            body.text()?;
            body.u32()?;
        }
        b'd' | b'p' => drop(body.rest()),
        _ => {}
    }
    body.end()
}

/// The password of an answer to a request for it: a text that ends with a zero, and nothing behind it.
pub(super) fn clear_password(body: &[u8]) -> Result<&str, ErrorResponse> {
    let text = body.strip_suffix(&[0]).filter(|text| !text.contains(&0));
    match text.and_then(|text| std::str::from_utf8(text).ok()) {
        Some(text) => Ok(text),
        None => Err(ErrorResponse::protocol("the password is no text that ends with a zero")),
    }
}

/// Checks the first answer of a login by SASL. It is decoded only after its kind is known.
pub(super) fn sasl_first(answer: &[u8]) -> Result<(), ErrorResponse> {
    let mut body = Body(answer);
    body.text()?;
    body.value()?;
    body.end()
}

fn malformed<T>(text: impl Into<String>) -> Result<T, ErrorResponse> {
    Err(ErrorResponse::protocol(text))
}

/// The rest of one frame. Reading never goes beyond it.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ErrorResponse> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return malformed("insufficient data left in message");
        };
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, ErrorResponse> {
        Ok(self.take(2)?.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
    }

    fn u32(&mut self) -> Result<u32, ErrorResponse> {
        Ok(self.take(4)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// Reads text up to a zero byte.
    fn text(&mut self) -> Result<&'a str, ErrorResponse> {
        let Some(at) = self.0.iter().position(|byte| *byte == 0) else {
            return malformed("invalid string in message");
        };
        let text = self.take(at + 1)?;
        std::str::from_utf8(&text[..at]).or_else(|_| malformed("invalid byte sequence for encoding \"UTF8\""))
    }

    fn subject(&mut self) -> Result<(), ErrorResponse> {
        match self.take(1)? {
            b"S" | b"P" => Ok(()),
            other => malformed(format!("invalid message subtype {}", other[0])),
        }
    }

    fn formats(&mut self) -> Result<(), ErrorResponse> {
        for _ in 0..self.u16()? {
            let format = self.u16()?;
            if format > 1 {
                return malformed(format!("unsupported format code: {format}"));
            }
        }
        Ok(())
    }

    /// Reads a length, and a value of that length; length -1 is NULL.
    fn value(&mut self) -> Result<(), ErrorResponse> {
        match self.u32()? {
            u32::MAX => Ok(()),
            length => self.take(length as usize).map(drop),
        }
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn end(&self) -> Result<(), ErrorResponse> {
        if self.0.is_empty() { Ok(()) } else { malformed("invalid message format: bytes are left over") }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use bytes::BytesMut;
    use pgwire::messages::{DecodeContext, PgWireFrontendMessage as Message, ProtocolVersion};

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
        [&(rest.len() as u32 + 8).to_be_bytes()[..], &code.to_be_bytes(), rest].concat()
    }

    fn serving(bytes: &[u8]) -> Result<Option<usize>, ErrorResponse> {
        frame(bytes, Phase::Serving, 1000)
    }

    #[test]
    fn frames_are_whole_or_waited_for() {
        let bind = message(b'B', b"portal\0stmt\0\0\x01\0\x01\0\x02\0\0\0\x02hi\xff\xff\xff\xff\0\x01\0\x01");
        let parse = message(b'P', b"\0select 1\0\0\x01\0\0\0\x17");
        for whole in [bind, parse, message(b'S', b""), message(b'd', b""), message(b'E', b"\0\xff\xff\xff\xff")] {
            for cut in 0..whole.len() {
                assert_eq!(serving(&whole[..cut]), Ok(None), "{cut} bytes of {whole:?}");
            }
            let more = [&whole[..], b"S\0\0"].concat();
            assert_eq!(serving(&more), Ok(Some(whole.len())));
        }
    }

    #[test]
    fn what_a_frame_does_not_hold_is_an_error_and_never_taken_from_the_next() {
        let broken: [(u8, &[u8]); 11] = [
            (b'Q', b"select 1"),
            (b'Q', b"\xff\0"),
            (b'Q', b"a\0b\0"),
            (b'P', b"\0select 1\0\0\x02\0\0\0\x17"),
            (b'B', b"\0\0\0\0\0\x01\0\0\0\x09ab"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'B', b"\0\0\0\x01\0\x07"),
            (b'D', b"Xname\0"),
            (b'E', b"\0\0\0"),
            (b'S', b"surplus"),
            (b'f', b"why"),
        ];
        for (kind, body) in broken {
            let bytes = [message(kind, body), message(b'Q', b"select 2\0")].concat();
            let error_response = serving(&bytes).expect_err("it is broken");
            assert_eq!(error_response.code, "08P01", "{} {body:?}", kind as char);
        }
        let heads: [(&[u8], Phase, &str); 8] = [
            (b"Q\0\0\0\x03", Phase::Serving, "08P01"),
            (b"Q\x7f\0\0\0", Phase::Serving, "08P01"),
            (b"d\xff\xff\xff\xff", Phase::Serving, "08P01"),
            (b"~\0\0\0\x04", Phase::Serving, "08P01"),
            (b"p\0\0\0\x04", Phase::Serving, "08P01"),
            (b"F\0\0\0\x04", Phase::Serving, "0A000"),
            (b"Q\0\0\0\x06", Phase::Login, "08P01"),
            (b"p\0\0\xff\xff", Phase::Login, "08P01"),
        ];
        for (head, phase, code) in heads {
            assert_eq!(frame(head, phase, 1000).expect_err("refused before the rest comes").code, code, "{head:?}");
        }
    }

    #[test]
    fn first_packets_are_bounded_and_whole() {
        let opening = |bytes: &[u8]| frame(bytes, Phase::Opening, 1000);
        let good = [
            packet(SSL_REQUEST, b""),
            packet(GSS_REQUEST, b""),
            packet(CANCEL_REQUEST, b"\0\0\0\x071234"),
            packet(3 << 16 | 2, b"user\0a\0options\0\0\0"),
        ];
        for whole in good {
            for cut in 0..whole.len() {
                assert_eq!(opening(&whole[..cut]), Ok(None), "{cut} bytes");
            }
            assert_eq!(opening(&[&whole[..], b"more"].concat()), Ok(Some(whole.len())));
        }
        let bad = [
            packet(SSL_REQUEST, b"x"),
            packet(CANCEL_REQUEST, b"\0\0\0\x07123"),
            packet(CANCEL_REQUEST, &[7; 300]),
            packet(3 << 16, b"user\0a\0"),
            packet(3 << 16, b"user\0\xff\0\0"),
            packet(3 << 16, b"\0x"),
            packet(2 << 16, b""),
            b"\0\0\0\x07".to_vec(),
            b"GET /".to_vec(),
        ];
        for bytes in bad {
            assert!(opening(&bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn answers_of_a_login_hold_the_length_they_claim() {
        assert_eq!(sasl_first(b"SCRAM-SHA-256\0\0\0\0\x01x"), Ok(()));
        assert_eq!(sasl_first(b"SCRAM-SHA-256\0\xff\xff\xff\xff"), Ok(()));
        for broken in [&b""[..], b"SCRAM", b"S\0\0\0\0\x02x", b"S\0\xff\xff\xff\xfe", b"S\0\0\0\0\x01xy"] {
            assert!(sasl_first(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn a_password_is_a_text_with_one_zero_at_its_end() {
        assert_eq!(clear_password(b"a b\0"), Ok("a b"));
        assert_eq!(clear_password(b"\0"), Ok(""));
        for broken in [&b""[..], b"ab", b"a\0b\0", b"a\0\0", b"\xff\0"] {
            assert!(clear_password(broken).is_err(), "{broken:?}");
        }
    }

    /// Shows why the guard is needed. If one of these no longer fails, pgwire checks it itself now.
    #[test]
    fn pgwires_decoders_alone_panic_or_read_on_where_a_message_ends() {
        let decode = |bytes: &[u8]| {
            let mut context = DecodeContext::new(ProtocolVersion::default());
            (context.awaiting_frontend_ssl, context.awaiting_frontend_startup) = (false, false);
            let mut bytes = BytesMut::from(bytes);
            Message::decode(&mut bytes, &context).map(|message| (message, bytes.len()))
        };
        let panicking: [&[u8]; 7] = [
            b"P\0\0\0\x06\0\0",                           // no count of types
            b"P\0\0\0\x08\0\0\xff\xff",                   // 65,535 types, none there
            b"B\0\0\0\x04",                               // nothing at all
            b"B\0\0\0\x0e\0\0\0\0\0\x01\x7f\xff\xff\xff", // a value of 2 GiB
            b"E\0\0\0\x05\0",                             // no number of rows
            b"D\0\0\0\x04",                               // no subject
            b"d\0\0\0\x00",                               // a length below its own size
        ];
        for bytes in panicking {
            assert!(serving(bytes).is_err(), "{bytes:?}");
            assert!(catch_unwind(|| decode(bytes).map(drop)).is_err(), "pgwire decodes {bytes:?} without a panic now");
        }
        // Ten bytes of the next message become this one's.
        let stolen = [message(b'E', b"\0"), message(b'Q', b"x\0")].concat();
        let (_, left) = decode(&stolen).expect("it is taken for whole");
        assert_eq!((serving(&stolen).is_err(), left), (true, 3));
        let (changed, _) = decode(&message(b'Q', b"\xff\0")).expect("it is taken for text");
        assert!(matches!(changed, Some(Message::Query(query)) if query.query == "\u{fffd}"));
    }
}
