//! The records of a message in the journal: one record for the message with its routing and all its outputs, and later
//! short records with the outcomes of the outputs.
//!
//! One record for each message makes the five objects of a 1-to-4 route atomic: after a crash the message is present
//! with all its outputs, or not at all. The record's LSN is the message's id.
//!
//! ```text
//! MESSAGE (kind 1)                                   DELIVERIES (kind 2)
//!   u8  version = 1                                    u16 count, then for each
//!   u8  status      (Status)                             u64 message id (LSN)
//!   u8  flags       (bit 0 duplicate, see `origin`)      u16 output index
//!   u8  charset     (of the service, below)              u8  outcome (DeliveryOutcome)
//!   u64 received, microseconds since 1970                u64 time, microseconds since 1970
//!   u64 id of the message it is made from, else 0        u16 length + reply code or reason
//!   u32 generation of the production, 0: not known       if set aside: u16 length + who did it
//!   u8  length + idempotency key, if it is made so
//!   u16 length + service name                        OPERATION (kind 3)
//!   u16 length + reason (which rule, or why not)       u8  0 running, 1 suspended, 2 started for a time
//!   search keys     (see `search`)                     u64 time
//!   u32 length + the message as received               u16 length + operation name
//!   u16 outputs, then for each                         u16 length + reason
//!     u16 length + operation, u16 length + transform     if started: u64 until
//!     u32 length of the output
//!     u16 pieces, then for each
//!       u8 0, u32 offset, u32 length   a run of the message as received
//!       u8 1, u32 length + bytes       new bytes
//! ```
//! All integers little endian. The charset is the service's setting for messages that declare none: a place in the list
//! of them, from 1; 0 is none. An output is stored as pieces so that only changed segments are stored again; with
//! `bodies = "full"` it is one piece of new bytes.
//!
//! Invariants: decoding never panics on any bytes (fuzzed); pieces that point outside the message, overlap or go back are
//! refused, so that an output is never longer than its record.
//! The journal's checksum has been verified before decoding, so a decode error means a record of another version.

mod buffer;
mod charsets;
mod deliveries;
mod origin;
pub mod search;
mod sections;

use std::ops::Range;

use bytes::Bytes;
use hl7::Piece;
use hl7::charset::Charset;
use node::audit::{KIND_AUDIT, record as audit_record};

use self::search::SearchKeys;
use crate::error::InteropError;
use buffer::RecordBuffer;
pub(crate) use charsets::{CHARSETS, known_charset};
use charsets::{code, of_code};
pub use deliveries::{Delivery, DeliveryOutcome, OutputState, decode_deliveries, encode_deliveries};
pub(crate) use deliveries::{decode_outcome, each_delivery, outcome_of};
pub use origin::{Derivation, KEY_TEXT_MAX, MessageOrigin, shown_source};
pub(crate) use origin::{derivation_code, derivation_of};
use sections::{Cut, Part, pieces};
pub(crate) use sections::{Sections, sections};

/// Journal record kind of a message.
pub const KIND_MESSAGE: u8 = 1;
/// Journal record kind of a group of deliveries.
pub const KIND_DELIVERIES: u8 = 2;
/// Journal record kind of an operation suspended or resumed.
pub const KIND_OPERATION: u8 = 3;

const VERSION: u8 = 1;
const FLAG_DUPLICATE: u8 = 1;
/// State of an operation that was started outside its schedule: a time follows.
const SWITCH_STARTED: u8 = 2;
const PIECE_ORIGINAL: u8 = 0;
const PIECE_NEW: u8 = 1;

/// Most bytes that are reserved for outputs before they are made: transforms may skip them, and rules can name many.
const RESERVED_BYTES: usize = 1 << 20;

/// Bytes of a record beside its bodies, and of an output beside its body: an estimate, for the size of the buffer.
const HEAD_BYTES: usize = 192;

/// The node's decision about a message when it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// At least one output was made.
    Routed,
    /// A rule dropped it.
    Dropped,
    /// No rule matched, or the service has none.
    Unmatched,
    /// Refused: not a message the service takes, or a rule rejected it. Acknowledged with AR or AE.
    Rejected,
    /// A rule or transform failed on it. Acknowledged with AE; nothing was sent anywhere.
    Errored,
}

/// One output of a message, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Name of the operation.
    pub operation: String,
    /// Name of the transform; empty = none.
    pub transform: String,
    /// The message to send.
    pub body: Bytes,
    /// Bytes of it that are stored again, not taken from the message as received.
    pub new_bytes: usize,
}

/// A message as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The decision.
    pub status: Status,
    /// Same MSH-3, MSH-4, MSH-10 seen before.
    pub duplicate: bool,
    /// The message that this one was made from; `None` for one received.
    pub origin: Option<MessageOrigin>,
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// The generation of the production that decided; 0 where it is not known. Of a message resent, that of its origin.
    pub generation: u32,
    /// The service that took it.
    pub service: String,
    /// The charset of the message where it declares none, by the settings of the service then.
    pub charset: Option<Charset>,
    /// Why it went where it went.
    pub reason: String,
    /// What it is found by.
    pub keys: SearchKeys,
    /// The message as received.
    pub raw: Bytes,
    /// Its outputs, in the order of the rules.
    pub outputs: Vec<Output>,
}

/// An operation suspended or resumed, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Name of the operation.
    pub operation: String,
    /// Suspended (true) or resumed.
    pub suspended: bool,
    /// Resumed, and started outside its schedule up to this time, microseconds since 1970.
    pub until_us: Option<i64>,
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// Why.
    pub reason: String,
}

/// The head of a message record, for the writer.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The decision.
    pub status: Status,
    /// Same MSH-3, MSH-4, MSH-10 seen before.
    pub duplicate: bool,
    /// The message that this one is made from.
    pub origin: Option<&'a MessageOrigin>,
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// The generation of the production that decided; 0: not known.
    pub generation: u32,
    /// The service that took it.
    pub service: &'a str,
    /// The charset of the message where it declares none, by the settings of the service then.
    pub charset: Option<Charset>,
    /// Why it went where it went.
    pub reason: &'a str,
}

/// Writes message records; the caller adds outputs one by one and takes the payload.
///
/// The payload is the one copy of a message on its way: the journal copies it to where it is written from, the rows are
/// slices of it, and so are the bodies that are sent.
#[derive(Debug)]
pub struct Writer {
    buffer: RecordBuffer,
    raw: Range<usize>,
    outputs: u16,
    outputs_at: usize,
}

impl Writer {
    /// Starts the record of `raw`, which is parsed for its search keys.
    pub fn new(head: &Head<'_>, raw: &[u8]) -> Self {
        Writer::with_keys(head, raw, &SearchKeys::read(head.service, raw, head.charset))
    }

    /// Starts the record of `raw`, whose search keys are known.
    pub fn with_keys(head: &Head<'_>, raw: &[u8], keys: &SearchKeys) -> Self {
        Writer::with_room(head, raw, keys, 0)
    }

    /// The same with memory for so many whole outputs of about the message's length, as far as that is not much, so that they are
    /// written without being moved.
    pub fn with_room(head: &Head<'_>, raw: &[u8], keys: &SearchKeys, outputs: usize) -> Self {
        let section = HEAD_BYTES + raw.len();
        let mut buffer = RecordBuffer::with_room(section + outputs.saturating_mul(section).min(RESERVED_BYTES));
        let payload = &mut buffer.0;
        let derived = head.origin.map_or(0, |origin| derivation_code(origin.derivation));
        let flags = u8::from(head.duplicate) * FLAG_DUPLICATE + derived;
        payload.extend_from_slice(&[VERSION, status_code(head.status), flags, code(head.charset)]);
        payload.extend_from_slice(&head.received_us.to_le_bytes());
        payload.extend_from_slice(&head.origin.map_or(0, |origin| origin.id).to_le_bytes());
        payload.extend_from_slice(&head.generation.to_le_bytes());
        head.origin.iter().for_each(|origin| origin.write_key(payload));
        put_short(payload, head.service);
        put_short(payload, head.reason);
        keys.write(payload);
        payload.extend_from_slice(&len32(raw).to_le_bytes());
        payload.extend_from_slice(raw);
        let outputs_at = payload.len();
        payload.extend_from_slice(&0u16.to_le_bytes());
        Self { buffer, raw: outputs_at - raw.len()..outputs_at, outputs: 0, outputs_at }
    }

    /// Where the message as received is in the payload.
    pub fn raw(&self) -> Range<usize> {
        self.raw.clone()
    }

    /// Adds an output whose `body` is stored whole; `write` appends it. Returns where in the payload it is.
    pub fn whole(&mut self, operation: &str, transform: &str, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let body_at = self.begin_output(operation, transform, 0);
        let payload = &mut self.buffer.0;
        payload.extend_from_slice(&1u16.to_le_bytes());
        payload.push(PIECE_NEW);
        let piece_at = payload.len();
        payload.extend_from_slice(&[0; 4]);
        let start = payload.len();
        write(payload);
        let bytes = len32(&payload[start..]).to_le_bytes();
        for at in [body_at, piece_at] {
            payload[at..at + 4].copy_from_slice(&bytes);
        }
        start..payload.len()
    }

    /// Adds an output of so many bytes as `pieces` of the message and of new bytes: only the new ones are stored.
    pub fn pieces<'p>(
        &mut self,
        operation: &str,
        transform: &str,
        bytes: usize,
        pieces: impl Iterator<Item = Piece<'p>>,
    ) {
        self.begin_output(operation, transform, offset32(bytes));
        let payload = &mut self.buffer.0;
        let count_at = payload.len();
        payload.extend_from_slice(&0u16.to_le_bytes());
        let mut count = 0u16;
        for piece in pieces {
            count = count.checked_add(1).expect("a draft has fewer pieces than 65536: the caller checks");
            match piece {
                Piece::Original(range) => {
                    payload.push(PIECE_ORIGINAL);
                    payload.extend_from_slice(&offset32(range.start).to_le_bytes());
                    payload.extend_from_slice(&offset32(range.len()).to_le_bytes());
                }
                Piece::New(bytes) => {
                    payload.push(PIECE_NEW);
                    payload.extend_from_slice(&len32(bytes).to_le_bytes());
                    payload.extend_from_slice(bytes);
                }
            }
        }
        payload[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
    }

    /// Counts an output and writes its names and its length; returns the position of the length.
    fn begin_output(&mut self, operation: &str, transform: &str, bytes: u32) -> usize {
        self.outputs += 1;
        let payload = &mut self.buffer.0;
        put_short(payload, operation);
        put_short(payload, transform);
        let at = payload.len();
        payload.extend_from_slice(&bytes.to_le_bytes());
        at
    }

    /// The record's payload.
    pub fn finish(mut self) -> Bytes {
        let payload = &mut self.buffer.0;
        payload[self.outputs_at..self.outputs_at + 2].copy_from_slice(&self.outputs.to_le_bytes());
        // Whoever keeps the record counts its length.
        if payload.capacity() > 2 * payload.len() {
            payload.shrink_to_fit();
        }
        self.buffer.share()
    }
}

/// The payload of an operation's change.
pub fn encode_switch(switch: &Switch) -> Vec<u8> {
    let code = match (switch.suspended, switch.until_us) {
        (false, Some(_)) => SWITCH_STARTED,
        (suspended, _) => u8::from(suspended),
    };
    let mut out = vec![code];
    out.extend_from_slice(&switch.at_us.to_le_bytes());
    put_short(&mut out, &switch.operation);
    put_short(&mut out, &switch.reason);
    if code == SWITCH_STARTED {
        out.extend_from_slice(&switch.until_us.unwrap_or_default().to_le_bytes());
    }
    out
}

/// Reads a message record.
///
/// # Errors
/// `UnknownRecord` where the payload is not one of this version.
pub fn decode_message(payload: &Bytes) -> Result<Stored, InteropError> {
    message(&mut Reader { payload, at: 0 }).ok_or(InteropError::UnknownRecord { kind: KIND_MESSAGE })
}

/// The inbound part of a message record, as its row holds it, and how many outputs follow.
pub(crate) fn decode_inbound(row: &Bytes) -> Option<(Stored, u16)> {
    let mut r = Reader { payload: row, at: 0 };
    let found = inbound(&mut r)?;
    r.end()?;
    Some(found)
}

/// The service of a message, by the head of its row: what is behind it is not looked at.
pub(crate) fn decode_service(row: &Bytes) -> Option<String> {
    let mut r = Reader { payload: row, at: 0 };
    let [version, status, flags, _] = r.array()?;
    if version != VERSION {
        return None;
    }
    let (_, _, derivation) = decode_flags(status, flags)?;
    // When it came in, its origin, its generation.
    r.take(8 + 8 + 4)?;
    if derivation.is_some() {
        r.key()?;
    }
    r.text()
}

/// One output of a message record, as its row holds it behind the version; `raw` is the message as received.
pub(crate) fn decode_output(section: &Bytes, raw: &Bytes) -> Option<Output> {
    let mut r = Reader { payload: section, at: 0 };
    let made = output(&mut r, raw)?;
    r.end()?;
    Some(made)
}

/// The status and the flags of a stored message: duplicate, how it was made from another.
pub(crate) fn decode_flags(status: u8, flags: u8) -> Option<(Status, bool, Option<Derivation>)> {
    let status = status_of(status)?;
    let derivation = derivation_of(flags & !FLAG_DUPLICATE)?;
    Some((status, flags & FLAG_DUPLICATE != 0, derivation))
}

/// Reads an operation's change.
///
/// # Errors
/// `UnknownRecord` where the payload is not one of this version.
pub fn decode_switch(payload: &Bytes) -> Result<Switch, InteropError> {
    switch(&mut Reader { payload, at: 0 }).ok_or(InteropError::UnknownRecord { kind: KIND_OPERATION })
}

/// When a record of this kind was made, microseconds since 1970: a message when it came in, a group of deliveries when the last
/// of them ended, an entry of the audit when it was written. None where the payload is not of this version.
pub fn time_us(kind: u8, payload: &[u8]) -> Option<u64> {
    let micros = match kind {
        KIND_MESSAGE => i64::from_le_bytes(*payload.get(4..)?.first_chunk()?),
        KIND_DELIVERIES => {
            let mut last = None;
            each_delivery(payload, |_, _, row| {
                let at = row.get(1..).and_then(|rest| rest.first_chunk()).map(|at| i64::from_le_bytes(*at));
                last = last.max(at);
            })?;
            last?
        }
        KIND_OPERATION => i64::from_le_bytes(*payload.get(1..)?.first_chunk()?),
        KIND_AUDIT => return audit_record::time_us(payload),
        _ => return None,
    };
    u64::try_from(micros).ok()
}

struct Reader<'a> {
    payload: &'a Bytes,
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Option<Bytes> {
        let end = self.at.checked_add(len)?;
        if end > self.payload.len() {
            return None;
        }
        let bytes = self.payload.slice(self.at..end);
        self.at = end;
        Some(bytes)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let end = self.at.checked_add(N)?;
        let bytes = self.payload.get(self.at..end)?.try_into().ok()?;
        self.at = end;
        Some(bytes)
    }
    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn len(&mut self) -> Option<usize> {
        self.array().map(u32::from_le_bytes).and_then(|len| usize::try_from(len).ok())
    }
    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.u16()?);
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }
    /// An idempotency key.
    fn key(&mut self) -> Option<String> {
        let len = usize::from(self.u8()?);
        origin::key_text(&self.take(len)?).map(str::to_owned)
    }
    fn end(&self) -> Option<()> {
        (self.at == self.payload.len()).then_some(())
    }
}

fn message(r: &mut Reader<'_>) -> Option<Stored> {
    let (mut stored, count) = inbound(r)?;
    for _ in 0..count {
        stored.outputs.push(output(r, &stored.raw)?);
    }
    r.end()?;
    Some(stored)
}

/// The record up to its outputs, and their count.
fn inbound(r: &mut Reader<'_>) -> Option<(Stored, u16)> {
    let [version, status, flags, charset] = r.array()?;
    if version != VERSION {
        return None;
    }
    let charset = of_code(charset)?;
    let (status, duplicate, derivation) = decode_flags(status, flags)?;
    let received_us = r.array().map(i64::from_le_bytes)?;
    let id = r.array().map(u64::from_le_bytes)?;
    let generation = r.array().map(u32::from_le_bytes)?;
    let origin = match derivation {
        None => None,
        Some(derivation) => Some(MessageOrigin { id, derivation, key: r.key()? }),
    };
    let service = r.text()?;
    let reason = r.text()?;
    let (identity, content) = (r.array().map(u64::from_le_bytes)?, r.array().map(u64::from_le_bytes)?);
    let texts = usize::from(r.u16()?);
    let keys = SearchKeys::stored(identity, content, r.take(texts)?)?;
    let len = r.len()?;
    let raw = r.take(len)?;
    let count = r.u16()?;
    let outputs = Vec::new();
    let stored =
        Stored { status, duplicate, origin, received_us, generation, service, charset, reason, keys, raw, outputs };
    Some((stored, count))
}

fn output(r: &mut Reader<'_>, raw: &Bytes) -> Option<Output> {
    let operation = r.text()?;
    let transform = r.text()?;
    let mut cut = Cut { payload: r.payload, at: r.at };
    let mut parts: Vec<&[u8]> = Vec::new();
    let (mut new_bytes, mut only) = (0, None);
    pieces(&mut cut, raw.len(), |part| match part {
        Part::Original(range) => {
            only = Some(raw);
            parts.push(&raw[range]);
        }
        Part::New(bytes) => {
            new_bytes += bytes.len();
            only = Some(r.payload);
            parts.push(bytes);
        }
    })?;
    r.at = cut.at;
    // One in a single piece is not copied.
    let body = match (parts.as_slice(), only) {
        ([part], Some(whole)) => whole.slice_ref(part),
        (parts, _) => parts.concat().into(),
    };
    Some(Output { operation, transform, body, new_bytes })
}

fn switch(r: &mut Reader<'_>) -> Option<Switch> {
    let (suspended, is_started) = match r.u8()? {
        0 => (false, false),
        1 => (true, false),
        SWITCH_STARTED => (false, true),
        _ => return None,
    };
    let at_us = r.array().map(i64::from_le_bytes)?;
    let (operation, reason) = (r.text()?, r.text()?);
    let until_us = if is_started { Some(r.array().map(i64::from_le_bytes)?) } else { None };
    let switch = Switch { operation, suspended, until_us, at_us, reason };
    r.end()?;
    Some(switch)
}

/// The status byte of a record.
pub(crate) fn status_code(status: Status) -> u8 {
    match status {
        Status::Routed => 0,
        Status::Dropped => 1,
        Status::Unmatched => 2,
        Status::Rejected => 3,
        Status::Errored => 4,
    }
}

fn status_of(code: u8) -> Option<Status> {
    [Status::Routed, Status::Dropped, Status::Unmatched, Status::Rejected, Status::Errored]
        .into_iter()
        .find(|status| status_code(*status) == code)
}

fn len32(bytes: &[u8]) -> u32 {
    offset32(bytes.len())
}

fn offset32(n: usize) -> u32 {
    u32::try_from(n).expect("messages are bounded far below 4 GiB (settings::MESSAGE_BYTES_MAX)")
}

/// Names and reasons are cut at 1,000 bytes on a character boundary: they are for readers.
fn put_short(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(1_000)];
    let len = u16::try_from(text.len()).expect("cut at 1,000");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}
