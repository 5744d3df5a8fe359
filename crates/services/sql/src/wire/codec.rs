//! pgwire's codec behind the guard: messages from bytes, and bytes from replies.
//!
//! ```text
//!   bytes --guard--> one well-formed frame --pgwire--> Message                  Reply --pgwire--> bytes
//!
//!   Opening --Startup--> Login --logged_in--> Serving                          what may come, and how long
//! ```
//!
//! Invariants: pgwire gets one frame at a time and no bytes behind it; a reply is written to the buffer either
//! completely or not at all.

use std::sync::Arc;

use bytes::BytesMut;
use pgwire::error::PgWireError;
use pgwire::messages::{DecodeContext, ProtocolVersion, SslNegotiationMetaMessage};
use tokio_util::codec::{Decoder, Encoder};

use super::connection_error::ConnectionError;
use super::error_response::ErrorResponse;
use super::frame_guard;
use super::frame_guard::Phase;
use super::{Message, Reply};
use crate::engine::limits::memory_budget::Account;

/// Shorter messages are read without requesting memory.
const LONG_BYTES: usize = 1 << 20;

/// The codec of one connection.
#[derive(Debug)]
pub(super) struct Codec {
    phase: Phase,
    /// Most bytes of a message.
    limit: usize,
    context: DecodeContext,
    /// The account from which memory is requested before a long message is read, once the client is known.
    account: Option<Arc<Account>>,
    /// Whether memory was requested for the message that is being read.
    has_room: bool,
}

impl Codec {
    /// A codec of a new connection, whose messages may have at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Codec {
        let context = DecodeContext::new(ProtocolVersion::default());
        Codec { phase: Phase::Opening, limit, context, account: None, has_room: false }
    }

    /// From now on queries and data are accepted, and their memory is charged to this account.
    pub(super) fn logged_in(&mut self, account: Option<Arc<Account>>) {
        (self.phase, self.account) = (Phase::Serving, account);
    }

    /// Requests memory for the message that begins here. The message is read into a buffer that grows by doubling, and
    /// copied once. Errors: 53200 if there is no room.
    fn request_memory(&mut self, bytes: &BytesMut) -> Result<(), ConnectionError> {
        let (Some(account), false) = (&self.account, self.has_room) else { return Ok(()) };
        let Some([_, length @ ..]) = bytes.first_chunk::<5>().copied() else { return Ok(()) };
        let length = u32::from_be_bytes(length) as usize;
        if length > LONG_BYTES {
            let room = account.check_room(3 * length as u128);
            room.map_err(|error| ConnectionError::fatal(ErrorResponse::from(&error)))?;
            self.has_room = true;
        }
        Ok(())
    }

    /// Runs pgwire's decoder on one frame.
    fn read(&mut self, frame: &mut BytesMut) -> Result<Option<Message>, PgWireError> {
        self.context.awaiting_frontend_startup = self.phase == Phase::Opening;
        self.context.awaiting_frontend_ssl = self.phase == Phase::Opening;
        let message = Message::decode(frame, &self.context)?;
        if !matches!(message, Some(Message::SslNegotiation(SslNegotiationMetaMessage::None))) {
            return Ok(message);
        }
        // It is no request for encryption, and nothing was consumed: it is another kind of first message.
        self.context.awaiting_frontend_ssl = false;
        Message::decode(frame, &self.context)
    }
}

impl Decoder for Codec {
    type Item = Message;
    type Error = ConnectionError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Message>, ConnectionError> {
        let Some(length) = frame_guard::frame(bytes, self.phase, self.limit).map_err(ConnectionError::fatal)? else {
            self.request_memory(bytes)?;
            return Ok(None);
        };
        self.has_room = false;
        let mut frame = bytes.split_to(length);
        let message = match self.read(&mut frame) {
            Ok(Some(message)) if frame.is_empty() => message,
            Ok(_) => return Err(ConnectionError::fatal(ErrorResponse::protocol("invalid message format"))),
            Err(error) => return Err(ConnectionError::fatal(ErrorResponse::protocol(error.to_string()))),
        };
        if matches!(message, Message::Startup(_)) {
            self.phase = Phase::Login;
        }
        Ok(Some(message))
    }
}

impl Encoder<Reply> for Codec {
    type Error = ConnectionError;

    fn encode(&mut self, reply: Reply, bytes: &mut BytesMut) -> Result<(), ConnectionError> {
        let start = bytes.len();
        reply.encode(bytes).map_err(|error| {
            bytes.truncate(start);
            ConnectionError::fatal(ErrorResponse::new("54000", error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use pgwire::messages::copy::CopyData;
    use pgwire::messages::response::CommandComplete;

    use super::*;
    use crate::engine::limits::memory_budget::Budget;

    #[test]
    fn a_message_for_which_there_is_no_room_is_refused_by_its_length() {
        let mut codec = Codec::new(64 << 20);
        codec.logged_in(Some(Budget::new(30 << 20).account()));
        let head = |length: u32| {
            let mut bytes = BytesMut::from(&b"Q"[..]);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes
        };
        assert!(matches!(codec.decode(&mut head(9 << 20)), Ok(None)), "there is room for three times as much");
        codec.has_room = false;
        let refused = codec.decode(&mut head(11 << 20));
        assert!(matches!(refused, Err(ConnectionError::Fatal(error_response)) if error_response.code == "53200"));
    }

    #[test]
    fn a_reply_that_is_too_long_leaves_nothing_behind() {
        let mut codec = Codec::new(100);
        let mut bytes = BytesMut::new();
        codec.encode(Reply::CommandComplete(CommandComplete::new("SELECT 1".into())), &mut bytes).expect("it is short");
        assert_eq!(&bytes[..], b"C\0\0\0\x0dSELECT 1\0");
        // pgwire's bound for this kind is 30,000 bytes; it writes the kind before it checks the length.
        let long = Reply::CommandComplete(CommandComplete::new("x".repeat(40_000)));
        assert!(
            matches!(codec.encode(long, &mut bytes), Err(ConnectionError::Fatal(error_response)) if error_response.code == "54000")
        );
        assert_eq!(bytes.len(), 14);
        let data = Reply::CopyData(CopyData::new(Bytes::from_static(b"row\n")));
        codec.encode(data, &mut bytes).expect("it is short");
        assert_eq!(&bytes[14..], b"d\0\0\0\x08row\n");
    }

    #[test]
    fn each_phase_reads_what_may_come_in_it() {
        let mut codec = Codec::new(100);
        let mut bytes = BytesMut::new();
        bytes.extend_from_slice(b"\0\0\0\x08\x04\xd2\x16\x30\0\0\0\x08\x04\xd2\x16\x2f");
        bytes.extend_from_slice(b"\0\0\0\x10\0\x03\0\0user\0a\0\0p\0\0\0\x05xX\0\0\0\x04");
        let mut next = || codec.decode(&mut bytes).expect("it is sound").expect("it is whole");
        let requested = |message| match message {
            Message::SslNegotiation(SslNegotiationMetaMessage::PostgresGss(_)) => "gss",
            Message::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_)) => "tls",
            Message::Startup(_) => "startup",
            Message::PasswordMessageFamily(_) => "answer",
            Message::Terminate(_) => "end",
            _ => "other",
        };
        let all: Vec<_> = (0..5).map(|_| requested(next())).collect();
        assert_eq!(all, ["gss", "tls", "startup", "answer", "end"]);
        bytes.extend_from_slice(b"Q\0\0\0\x06x\0");
        assert!(codec.decode(&mut bytes).is_err(), "not logged in yet");
        codec.logged_in(None);
        assert!(matches!(codec.decode(&mut bytes), Ok(Some(Message::Query(_)))));
    }
}
