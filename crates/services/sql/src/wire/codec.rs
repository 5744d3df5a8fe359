//! pgwire's codec behind the guard: messages from bytes, and bytes from replies.
//!
//! ```text
//!   bytes --guard--> one frame, known to be sound --pgwire--> Message          Reply --pgwire--> bytes
//!
//!   Opening --Startup--> Login --logged_in--> Serving                          what may come, and how long
//! ```
//!
//! Invariants: pgwire sees one frame at a time and nothing beyond it; what a reply leaves in the buffer is all of it or
//! nothing.

use std::sync::Arc;

use bytes::BytesMut;
use pgwire::error::PgWireError;
use pgwire::messages::{DecodeContext, ProtocolVersion, SslNegotiationMetaMessage};
use tokio_util::codec::{Decoder, Encoder};

use super::connection::Broken;
use super::fault::Fault;
use super::guard::{self, Phase};
use super::{Message, Reply};
use crate::engine::budget::Account;

/// Messages below this are read without asking for room.
const LONG_BYTES: usize = 1 << 20;

/// The codec of one connection.
#[derive(Debug)]
pub(super) struct Codec {
    phase: Phase,
    /// Most bytes of a message.
    limit: usize,
    context: DecodeContext,
    /// Asked before a long message is read, once it is known who sends it.
    account: Option<Arc<Account>>,
    /// What is being read was asked for.
    has_room: bool,
}

impl Codec {
    /// A codec of a new connection, whose messages may have so many bytes.
    pub(super) fn new(limit: usize) -> Codec {
        let context = DecodeContext::new(ProtocolVersion::default());
        Codec { phase: Phase::Opening, limit, context, account: None, has_room: false }
    }

    /// From now on queries and data may come, and take memory of this account.
    pub(super) fn logged_in(&mut self, account: Option<Arc<Account>>) {
        (self.phase, self.account) = (Phase::Serving, account);
    }

    /// Errors: 53200 where there is no room for the message that begins here: it is read into memory that grows by doubling, and copied
    /// once.
    fn ask(&mut self, bytes: &BytesMut) -> Result<(), Broken> {
        let (Some(account), false) = (&self.account, self.has_room) else { return Ok(()) };
        let Some([_, length @ ..]) = bytes.first_chunk::<5>().copied() else { return Ok(()) };
        let length = u32::from_be_bytes(length) as usize;
        if length > LONG_BYTES {
            let room = account.afford(3 * length as u128);
            room.map_err(|error| Broken::fatal(Fault::from(&error)))?;
            self.has_room = true;
        }
        Ok(())
    }

    /// pgwire's decoder, given one frame.
    fn read(&mut self, frame: &mut BytesMut) -> Result<Option<Message>, PgWireError> {
        self.context.awaiting_frontend_startup = self.phase == Phase::Opening;
        self.context.awaiting_frontend_ssl = self.phase == Phase::Opening;
        let message = Message::decode(frame, &self.context)?;
        if !matches!(message, Some(Message::SslNegotiation(SslNegotiationMetaMessage::None))) {
            return Ok(message);
        }
        // Not a wish for encryption, and nothing was taken: it is one of the others that may come first.
        self.context.awaiting_frontend_ssl = false;
        Message::decode(frame, &self.context)
    }
}

impl Decoder for Codec {
    type Item = Message;
    type Error = Broken;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Message>, Broken> {
        let Some(length) = guard::frame(bytes, self.phase, self.limit).map_err(Broken::fatal)? else {
            self.ask(bytes)?;
            return Ok(None);
        };
        self.has_room = false;
        let mut frame = bytes.split_to(length);
        let message = match self.read(&mut frame) {
            Ok(Some(message)) if frame.is_empty() => message,
            Ok(_) => return Err(Broken::fatal(Fault::protocol("invalid message format"))),
            Err(error) => return Err(Broken::fatal(Fault::protocol(error.to_string()))),
        };
        if matches!(message, Message::Startup(_)) {
            self.phase = Phase::Login;
        }
        Ok(Some(message))
    }
}

impl Encoder<Reply> for Codec {
    type Error = Broken;

    fn encode(&mut self, reply: Reply, bytes: &mut BytesMut) -> Result<(), Broken> {
        let start = bytes.len();
        reply.encode(bytes).map_err(|error| {
            bytes.truncate(start);
            Broken::fatal(Fault::new("54000", error.to_string()))
        })
    }
}

/// A text for a reply. A zero byte inside would end it early and shift what follows, so it is left out.
pub(super) fn sent(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use pgwire::messages::copy::CopyData;
    use pgwire::messages::response::CommandComplete;

    use super::*;
    use crate::engine::budget::Budget;

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
        assert!(matches!(refused, Err(Broken::Fatal(fault)) if fault.code == "53200"));
    }

    #[test]
    fn a_reply_that_is_too_long_leaves_nothing_behind() {
        let mut codec = Codec::new(100);
        let mut bytes = BytesMut::new();
        codec.encode(Reply::CommandComplete(CommandComplete::new("SELECT 1".into())), &mut bytes).expect("it is short");
        assert_eq!(&bytes[..], b"C\0\0\0\x0dSELECT 1\0");
        // pgwire's bound for this kind is 30,000 bytes; it writes the kind before it looks.
        let long = Reply::CommandComplete(CommandComplete::new("x".repeat(40_000)));
        assert!(matches!(codec.encode(long, &mut bytes), Err(Broken::Fatal(fault)) if fault.code == "54000"));
        assert_eq!(bytes.len(), 14);
        let data = Reply::CopyData(CopyData::new(Bytes::from_static(b"row\n")));
        codec.encode(data, &mut bytes).expect("it is short");
        assert_eq!(&bytes[14..], b"d\0\0\0\x08row\n");
    }

    #[test]
    fn a_zero_byte_in_a_text_does_not_shift_what_follows() {
        assert_eq!(sent("na\0me\0"), "name");
    }

    #[test]
    fn each_phase_reads_what_may_come_in_it() {
        let mut codec = Codec::new(100);
        let mut bytes = BytesMut::new();
        bytes.extend_from_slice(b"\0\0\0\x08\x04\xd2\x16\x30\0\0\0\x08\x04\xd2\x16\x2f");
        bytes.extend_from_slice(b"\0\0\0\x10\0\x03\0\0user\0a\0\0p\0\0\0\x05xX\0\0\0\x04");
        let mut next = || codec.decode(&mut bytes).expect("it is sound").expect("it is whole");
        let asked = |message| match message {
            Message::SslNegotiation(SslNegotiationMetaMessage::PostgresGss(_)) => "gss",
            Message::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_)) => "tls",
            Message::Startup(_) => "startup",
            Message::PasswordMessageFamily(_) => "answer",
            Message::Terminate(_) => "end",
            _ => "other",
        };
        let all: Vec<_> = (0..5).map(|_| asked(next())).collect();
        assert_eq!(all, ["gss", "tls", "startup", "answer", "end"]);
        bytes.extend_from_slice(b"Q\0\0\0\x06x\0");
        assert!(codec.decode(&mut bytes).is_err(), "not logged in yet");
        codec.logged_in(None);
        assert!(matches!(codec.decode(&mut bytes), Ok(Some(Message::Query(_)))));
    }
}
