//! Bytes of a server: replies to requests on the wire, and the bytes of reads, which go to their places as they come.
//!
//! Invariants: nothing is taken that was not requested; a read takes as many bytes as it requested, never more, and no request takes
//! chunks without end; only a payload without bytes of a read waits until it is whole.

use std::time::Instant;

use super::engine::Engine;
use super::wire::Incoming;
use crate::protocol::reply::{self, CHUNK_BYTES, ChunkHead, OFFSET_BYTES, ReplyFrame, SIMPLE_BYTES, SmallPayload};
use crate::protocol::{chunk, command, errno, status};

/// Chunks of one request beside one for each sector of it.
const CHUNKS_MAX: u64 = 64;

impl Engine {
    /// The server sent `bytes`; returns how many of them were used. The rest has to be presented again with more behind it.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn receive(&mut self, bytes: &[u8], now: Instant) -> Result<usize, &'static str> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let count = match self.incoming {
                Some(incoming) if rest.is_empty() => {
                    debug_assert!(incoming.left > 0);
                    return Ok(used);
                }
                Some(incoming) => self.receive_data(incoming, rest, now)?,
                None => match reply::frame(rest) {
                    ReplyFrame::Incomplete => return Ok(used),
                    ReplyFrame::Broken => return Err("bytes that are no reply"),
                    ReplyFrame::Simple { cookie, error } => {
                        self.receive_simple(cookie, error, now)?;
                        SIMPLE_BYTES
                    }
                    ReplyFrame::Chunk(head) => match self.receive_chunk(head, &rest[CHUNK_BYTES..], now)? {
                        Some(count) => CHUNK_BYTES + count,
                        None => return Ok(used),
                    },
                },
            };
            used += count;
        }
    }

    fn receive_data(&mut self, mut incoming: Incoming, bytes: &[u8], now: Instant) -> Result<usize, &'static str> {
        let count = incoming.left.min(bytes.len() as u64);
        let job = self.job(incoming.job);
        job.place(incoming.place, incoming.at, count, Some(&bytes[..count as usize]));
        incoming.at += count;
        incoming.left -= count;
        self.incoming = (incoming.left > 0).then_some(incoming);
        if incoming.left == 0 && incoming.is_last {
            let error = self.wires.get(&incoming.cookie).map_or(0, |wire| wire.error);
            self.answered(incoming.cookie, error, now)?;
        }
        Ok(count as usize)
    }

    fn receive_simple(&mut self, cookie: u64, error: u32, now: Instant) -> Result<(), &'static str> {
        let Some(wire) = self.wires.get_mut(&cookie) else { return Err("a reply to no request") };
        if wire.chunks > 0 {
            return Err("a simple reply behind chunks");
        }
        match wire.part.command {
            command::READ if error == 0 => {
                let left = u64::from(wire.part.length);
                wire.received = left;
                let (job, place, at) = (wire.job, wire.part.place, wire.part.offset);
                self.incoming = Some(Incoming { cookie, job, place, at, left, is_last: true });
                Ok(())
            }
            command::BLOCK_STATUS if error == 0 => Err("a simple reply to a request for extents"),
            _ => self.answered(cookie, error, now),
        }
    }

    /// A chunk. Returns the bytes that were used behind its head, once there are enough.
    fn receive_chunk(&mut self, head: ChunkHead, rest: &[u8], now: Instant) -> Result<Option<usize>, &'static str> {
        let terms = self.terms.ok_or("no connection")?;
        if !terms.structured {
            return Err("a chunk, which was not agreed on");
        }
        let wire = self.wires.get_mut(&head.cookie).ok_or("a chunk of no request")?;
        if wire.chunks > CHUNKS_MAX + u64::from(wire.part.length) / 512 {
            return Err("chunks without end");
        }
        if head.kind == chunk::DATA {
            let Some(offset) = rest.first_chunk::<OFFSET_BYTES>() else { return Ok(None) };
            let length = u64::from(head.length).saturating_sub(OFFSET_BYTES as u64);
            let at = u64::from_be_bytes(*offset);
            wire.take(at, length)?;
            let (job, place) = (wire.job, wire.part.place);
            let (cookie, is_last) = (head.cookie, head.is_last);
            self.incoming = Some(Incoming { cookie, job, place, at, left: length, is_last });
            return Ok(Some(OFFSET_BYTES));
        }
        if head.length as usize > reply::SMALL_PAYLOAD_BYTES_MAX {
            return Err("a chunk that is too long");
        }
        let Some(payload) = rest.get(..head.length as usize) else { return Ok(None) };
        wire.chunks += 1;
        let command = wire.part.command;
        match reply::small_payload(head.kind, payload).ok_or("a chunk that makes no sense")? {
            SmallPayload::Nothing if head.is_last => {}
            SmallPayload::Nothing => return Err("a chunk of nothing that is not the last"),
            SmallPayload::Hole { offset, length } => {
                wire.take(offset, length.into())?;
                let (job, place) = (wire.job, wire.part.place);
                self.job(job).place(place, offset, length.into(), None);
            }
            SmallPayload::Error(error) => wire.error = if error == 0 { errno::IO } else { error },
            SmallPayload::Status(payload) if command == command::BLOCK_STATUS => {
                let (context, list) = status::decode(payload).ok_or("extents that make no sense")?;
                let id = wire.job;
                if Some(context) == terms.allocation {
                    self.job(id).descriptors = list;
                }
            }
            SmallPayload::Status(_) => return Err("extents that nobody requested"),
        }
        if head.is_last {
            let error = self.wires.get(&head.cookie).map_or(0, |wire| wire.error);
            self.answered(head.cookie, error, now)?;
        }
        Ok(Some(payload.len()))
    }
}
