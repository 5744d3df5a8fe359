//! Requests without payload that may be gigabytes long: trim, zeros, cache. They are done in pieces, one after the other,
//! so that none of them keeps the device, or the worker's other sessions, for long.
//!
//! ```text
//!   zeros   [ part of a block: read, change, write ][ whole blocks ][ whole blocks ][ part of a block ]
//!   trim                                            [ whole blocks ][ whole blocks ]
//!   cache   [ whole blocks, read and forgotten     ][ ...                                             ]
//! ```

use device::{IoKind, IoRequest};

use super::outbox::Outbox;
use super::work::{CACHE_BYTES, Stage, Work};
use crate::protocol::request::Request;
use crate::protocol::{command, command_flag, errno};

/// Largest piece of a trim or of zeros: a millisecond of a memory's time.
const PIECE_BYTES: u64 = 8 << 20;

impl Work {
    /// Begins a trim, zeros or a cache request.
    pub(super) fn start_pieces(&mut self, request: Request, outbox: &mut Outbox) {
        let below = self.block - 1;
        let (start, end) = (request.offset, request.offset + u64::from(request.length));
        let (down, up) = (|at: u64| at & !below, |at: u64| (at + below) & !below);
        let is_zeros = request.command == command::WRITE_ZEROES;
        if is_zeros && request.has(command_flag::FAST_ZERO) {
            let is_fast = self.export.settings.fast_zero && !request.has(command_flag::NO_HOLE);
            if !is_fast || down(start) != start || up(end) != end {
                return self.refuse_or_confirm(&request, errno::NOT_SUPPORTED, outbox);
            }
        }
        let (at, stop) = match request.command {
            command::TRIM => (up(start), down(end).max(up(start))),
            command::CACHE => (down(start), up(end)),
            _ => (start, end),
        };
        let slot = self.begin(request, Stage::Device);
        (self.slots[slot as usize].at, self.slots[slot as usize].end) = (at, stop);
        let is_whole = down(at) == at && down(stop) == stop;
        if request.command == command::CACHE || self.lock(slot, down(at), up(stop), !is_whole) {
            self.next_piece(slot);
        }
    }

    /// The next piece of a request goes to the device, or its flush, if there is something to do at all.
    pub(super) fn next_piece(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.stage = Stage::Device;
        let (request, at, left) = (entry.request, entry.at, entry.end - entry.at);
        let token = u64::from(slot);
        if left == 0 || entry.error != 0 {
            entry.stage = Stage::Flush;
            let wants_flush = request.has(command_flag::FUA) && request.command != command::CACHE && entry.error == 0;
            // A request of zero pieces is completed as one of zero bytes, in the order of the others.
            let nothing = IoRequest { kind: IoKind::Flush, ..IoRequest::flush(token) };
            if wants_flush {
                self.batch.push(nothing);
            } else {
                self.mailbox.put(super::mailbox::Event::Done(nothing, Ok(())));
            }
            return;
        }
        let below = self.block - 1;
        match request.command {
            command::TRIM => self.batch.push(IoRequest::discard(at, left.min(PIECE_BYTES), token)),
            command::CACHE => {
                let buffer = self.buffer(left.min(CACHE_BYTES));
                self.batch.push(IoRequest::read(at, buffer, token));
            }
            _ if at & below != 0 || left < self.block => {
                self.slots[slot as usize].stage = Stage::Block;
                let buffer = self.buffer(self.block);
                self.batch.push(IoRequest::read(at & !below, buffer, token));
            }
            _ => {
                let kind = IoKind::WriteZeroes { free: !request.has(command_flag::NO_HOLE) };
                let bytes = left.min(PIECE_BYTES) & !below;
                self.batch.push(IoRequest { kind, ..IoRequest::discard(at, bytes, token) });
            }
        }
    }

    /// A piece is done, or a step of one.
    pub(super) fn piece_done(&mut self, slot: u32, mut io: IoRequest, outbox: &mut Outbox) {
        let entry = &mut self.slots[slot as usize];
        if entry.error != 0 {
            if !io.buffer.is_empty() {
                self.give(io.buffer);
            }
            return self.reply(slot, outbox);
        }
        match (entry.stage, io.kind) {
            (Stage::Block, IoKind::Read) => {
                let from = (entry.at - io.offset) as usize;
                let to = (entry.end - io.offset).min(self.block) as usize;
                io.buffer[from..to].fill(0);
                io.kind = IoKind::Write;
                self.batch.push(io);
                return;
            }
            (Stage::Block, _) => entry.at = (io.offset + self.block).min(entry.end),
            _ => entry.at += io.bytes,
        }
        if !io.buffer.is_empty() {
            self.give(io.buffer);
        }
        self.next_piece(slot);
    }
}
