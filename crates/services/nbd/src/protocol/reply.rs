//! Replies: heads that the server writes, and the same as a client reads them.
//!
//! ```text
//!   simple   magic (4)   error (4)   cookie (8)                                      bytes of a read
//!   chunk    magic (4)   flags (2)   kind (2)   cookie (8)   length (4)              payload (length)
//!              data           offset (8)   bytes
//!              hole           offset (8)   length (4)
//!              error          error (4)    text length (2)   text   [offset (8)]
//!              block status   see status.rs
//! ```
//!
//! The bytes of a read are no part of a head: they are sent from, and received into, the buffer of the device.

use super::{CHUNK_MAGIC, Front, SIMPLE_REPLY_MAGIC, chunk};

/// Bytes of a simple reply.
pub const SIMPLE_BYTES: usize = 16;

/// Bytes of the head of a chunk.
pub const CHUNK_BYTES: usize = 20;

/// Bytes of the offset in front of the bytes of a data chunk.
pub const OFFSET_BYTES: usize = 8;

/// The longest payload of a chunk without bytes of a read: an error, or extents. A longer one is not accepted.
pub const SMALL_PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// What precedes the bytes of a reply, or is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; 32],
    length: u8,
}

impl Head {
    fn of(parts: &[&[u8]]) -> Head {
        let mut head = Head { bytes: [0; 32], length: 0 };
        for part in parts {
            let at = usize::from(head.length);
            head.bytes[at..at + part.len()].copy_from_slice(part);
            head.length += part.len() as u8;
        }
        head
    }

    /// The bytes to send.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// A simple reply; for a read that succeeded, its bytes follow.
    #[inline]
    pub fn simple(cookie: u64, error: u32) -> Head {
        let mut head = Head { bytes: [0; 32], length: SIMPLE_BYTES as u8 };
        head.bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        head.bytes[4..8].copy_from_slice(&error.to_be_bytes());
        head.bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
        head
    }

    #[inline]
    fn chunk(cookie: u64, kind: u16, is_last: bool, length: u32) -> Head {
        let mut head = Head { bytes: [0; 32], length: CHUNK_BYTES as u8 };
        head.bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        head.bytes[4..6].copy_from_slice(&(if is_last { chunk::DONE } else { 0 }).to_be_bytes());
        head.bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        head.bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
        head.bytes[16..20].copy_from_slice(&length.to_be_bytes());
        head
    }

    /// A data chunk; `length` bytes follow.
    #[inline]
    pub fn data(cookie: u64, offset: u64, length: u32, is_last: bool) -> Head {
        let mut head = Head::chunk(cookie, chunk::DATA, is_last, length + OFFSET_BYTES as u32);
        head.bytes[CHUNK_BYTES..CHUNK_BYTES + OFFSET_BYTES].copy_from_slice(&offset.to_be_bytes());
        head.length += OFFSET_BYTES as u8;
        head
    }

    /// A chunk for zeros.
    pub fn hole(cookie: u64, offset: u64, length: u32, is_last: bool) -> Head {
        let head = Head::chunk(cookie, chunk::HOLE, is_last, 12);
        Head::of(&[head.as_slice(), &offset.to_be_bytes(), &length.to_be_bytes()])
    }

    /// An error of a read or of a block status, as a chunk without text.
    pub fn error(cookie: u64, error: u32) -> Head {
        let head = Head::chunk(cookie, chunk::ERROR, true, 6);
        Head::of(&[head.as_slice(), &error.to_be_bytes(), &[0; 2]])
    }

    /// A block status chunk; `length` bytes of [`super::status::encode`] follow.
    pub fn status(cookie: u64, length: u32, is_last: bool) -> Head {
        Head::chunk(cookie, chunk::BLOCK_STATUS, is_last, length)
    }
}

/// What lies at the front of the bytes received from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyFrame {
    /// Not a whole head yet.
    Incomplete,
    /// A simple reply.
    Simple {
        /// Of which request.
        cookie: u64,
        /// 0 for success.
        error: u32,
    },
    /// The head of a chunk.
    Chunk(ChunkHead),
    /// No reply: the session cannot be understood any more.
    Broken,
}

/// The head of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHead {
    /// Whether it is the last one of its request.
    pub is_last: bool,
    /// [`chunk`].
    pub kind: u16,
    /// Of which request.
    pub cookie: u64,
    /// Bytes behind it.
    pub length: u32,
}

/// Looks for a reply at the front of `bytes`.
#[inline]
pub fn frame(bytes: &[u8]) -> ReplyFrame {
    let mut front = Front(bytes);
    let head = match front.u32() {
        None => return ReplyFrame::Incomplete,
        Some(SIMPLE_REPLY_MAGIC) => {
            let (Some(error), Some(cookie)) = (front.u32(), front.u64()) else { return ReplyFrame::Incomplete };
            return ReplyFrame::Simple { cookie, error };
        }
        Some(CHUNK_MAGIC) => (front.u16(), front.u16(), front.u64(), front.u32()),
        Some(_) => return ReplyFrame::Broken,
    };
    let (Some(flags), Some(kind), Some(cookie), Some(length)) = head else { return ReplyFrame::Incomplete };
    ReplyFrame::Chunk(ChunkHead { is_last: flags & chunk::DONE != 0, kind, cookie, length })
}

/// The payload of a chunk without bytes of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallPayload<'b> {
    /// Success.
    Nothing,
    /// Zeros.
    Hole {
        /// Where.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// The request failed.
    Error(u32),
    /// Extents: [`super::status::decode`].
    Status(&'b [u8]),
}

/// Reads the payload of a chunk that is no data chunk. `None`: it cannot be understood.
pub fn small_payload(kind: u16, payload: &[u8]) -> Option<SmallPayload<'_>> {
    let mut front = Front(payload);
    match kind {
        chunk::NONE => payload.is_empty().then_some(SmallPayload::Nothing),
        chunk::HOLE => {
            let (offset, length) = (front.u64()?, front.u32()?);
            (front.0.is_empty() && length > 0).then_some(SmallPayload::Hole { offset, length })
        }
        chunk::BLOCK_STATUS => Some(SmallPayload::Status(payload)),
        // Every kind with this bit is an error, also those that are not known yet.
        _ if kind & chunk::ERROR_BIT != 0 => {
            let error = front.u32()?;
            let text = usize::from(front.u16()?);
            (front.0.len() >= text).then_some(SmallPayload::Error(error))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::errno;

    #[test]
    fn every_head_reads_back_and_no_part_of_it_counts_as_one() {
        let chunk = |is_last, kind, length| ReplyFrame::Chunk(ChunkHead { is_last, kind, cookie: 77, length });
        let cases = [
            (
                Head::simple(77, errno::NO_SPACE),
                ReplyFrame::Simple { cookie: 77, error: errno::NO_SPACE },
                SIMPLE_BYTES,
            ),
            (Head::data(77, 1 << 40, 4096, true), chunk(true, chunk::DATA, 4104), CHUNK_BYTES),
            (Head::hole(77, 3, 65536, false), chunk(false, chunk::HOLE, 12), CHUNK_BYTES),
            (Head::error(77, errno::IO), chunk(true, chunk::ERROR, 6), CHUNK_BYTES),
            (Head::status(77, 12, true), chunk(true, chunk::BLOCK_STATUS, 12), CHUNK_BYTES),
        ];
        for (head, expected, bytes) in cases {
            assert_eq!(frame(head.as_slice()), expected);
            for cut in 0..bytes {
                assert_eq!(frame(&head.as_slice()[..cut]), ReplyFrame::Incomplete);
            }
        }
        let payload = |head: &'static [u8], kind| small_payload(kind, head);
        let hole: &'static [u8] = Box::leak(Box::new(Head::hole(1, 3, 65536, false))).as_slice();
        assert_eq!(payload(&hole[CHUNK_BYTES..], chunk::HOLE), Some(SmallPayload::Hole { offset: 3, length: 65536 }));
        let error: &'static [u8] = Box::leak(Box::new(Head::error(1, 5))).as_slice();
        assert_eq!(payload(&error[CHUNK_BYTES..], chunk::ERROR), Some(SmallPayload::Error(5)));
    }

    #[test]
    fn payloads_that_make_no_sense_are_refused() {
        for (kind, payload) in [
            (chunk::NONE, &b"x"[..]),
            (chunk::HOLE, &[0; 12]),
            (chunk::HOLE, &[1; 11]),
            (chunk::ERROR, &[0, 0, 0, 5, 0, 9]),
            (chunk::DATA, &[0; 8]),
            (9, &[]),
        ] {
            assert_eq!(small_payload(kind, payload), None, "{kind} {payload:?}");
        }
        let unknown_error = chunk::ERROR_BIT | 77;
        assert_eq!(small_payload(unknown_error, &[0, 0, 0, 5, 0, 0]), Some(SmallPayload::Error(5)));
    }
}
