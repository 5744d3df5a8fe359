//! The requests of one session inside the device: each in a slot, from its first byte to its reply. No sockets.
//!
//! ```text
//!   read      [device reads] ---------------------------------------------------------------> reply with the buffer
//!   write     [payload arrives] -> [lock] -> [edges are read] -> [device writes] ------------> reply
//!   trim, zeroes, cache                     [lock] -> piece, piece, ... -> [flush if FUA] ---> reply     pieces.rs
//!   flush                                                          [device flushes] ---------> reply
//!   status    [extents are looked up] -------------------------------------------------------> reply
//! ```
//!
//! Edges: a device has blocks, a client may write single bytes. A write is received into a buffer of whole blocks, at its
//! place in the first one; what the client did not send of the first and the last block is read before (read-modify-write),
//! under a lock of the blocks.
//!
//! Invariants: a request has one reply; a lock is taken only once the payload is complete, so that a client that sends
//! slowly holds none; a token is the slot, and above it which part of the request.

use std::sync::Arc;

use device::{AlignedBuffer, DeviceError, Extent, IoKind, IoRequest, IoSink};

use super::export::{Served, Session};
use super::mailbox::{Event, Mailbox};
use super::outbox::Outbox;
use super::pool::{BufferPool, memory_of};
use super::range_locks::Ticket;
use crate::protocol::negotiation::Contexts;
use crate::protocol::reply::Head;
use crate::protocol::request::{Agreed, Request};
use crate::protocol::{ALLOCATION_ID, EPOCH_ID, command, command_flag, errno, status};

/// Parts of a request in the device, in the upper half of its token.
const PART_SHIFT: u32 = 32;
/// The first block of a write.
const FIRST_EDGE: u64 = 1;
/// The last block of a write.
const LAST_EDGE: u64 = 2;

/// Reads at least this long look for holes.
const SPARSE_READ_BYTES: u32 = status::HOLE_BYTES_MIN as u32;

/// The largest range whose extents are looked up for one reply: bounds the memory of the list, and the time on this thread.
const STATUS_RANGE_BYTES: u64 = 128 << 20;

/// Largest piece of a cache request.
pub(super) const CACHE_BYTES: u64 = 1 << 20;

/// Where a request is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Free,
    /// Its payload is being received.
    Payload,
    /// It waits for the lock of its range.
    Lock,
    /// In the device: its read, write or flush, or a piece of it.
    Device,
    /// In the device: a block that a piece changes a part of.
    Block,
    /// In the device: edges of a write.
    Edges,
    /// In the device: the flush behind it.
    Flush,
    /// Its extents are looked up.
    Extents,
}

/// A request that has begun.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) request: Request,
    pub(super) stage: Stage,
    /// The first error, or 0.
    pub(super) error: u32,
    lock: Option<Ticket>,
    /// The blocks of a write.
    buffer: AlignedBuffer,
    /// Parts that are in the device.
    pending: u8,
    /// What is left of a request in pieces.
    pub(super) at: u64,
    pub(super) end: u64,
    /// The extents of a read that has holes.
    pieces: Vec<Extent>,
}

/// The bytes whose extents are looked up for a request.
fn looked_up_bytes(request: &Request) -> u64 {
    u64::from(request.length).min(STATUS_RANGE_BYTES)
}

/// Memory of the extents of a request at most: one for each block of 4 KiB, in a list that has grown by doubling.
fn extents_memory(request: &Request) -> u64 {
    (looked_up_bytes(request) / 4096 + 2) * 2 * size_of::<Extent>() as u64
}

/// The requests of one session.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) export: Arc<Served>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) pool: Arc<BufferPool>,
    structured: bool,
    contexts: Contexts,
    epoch: u64,
    pub(super) block: u64,
    pub(super) slots: Vec<Slot>,
    free: Vec<u32>,
    active: usize,
    /// Requests that wait for the lock of their range.
    waiting: usize,
    /// Memory of buffers that are not on their way out.
    held: u64,
    /// What goes to the device next.
    pub(super) batch: Vec<IoRequest>,
}

impl Work {
    pub(super) fn new(
        session: &Session,
        pool: Arc<BufferPool>,
        structured: bool,
        contexts: Contexts,
        epoch: u64,
    ) -> Work {
        let export = Arc::clone(&session.export);
        let block = u64::from(export.settings.device.block_bytes());
        let (mailbox, batch) = (Arc::clone(&session.mailbox), Vec::new());
        let (slots, free) = (Vec::new(), Vec::new());
        Work {
            export,
            mailbox,
            pool,
            structured,
            contexts,
            epoch,
            block,
            slots,
            free,
            active: 0,
            waiting: 0,
            held: 0,
            batch,
        }
    }

    /// Requests that have begun and not ended.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Those of them that wait for the lock of their range.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Memory of their buffers.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn agreed(&self) -> Agreed {
        Agreed { structured: self.structured, contexts: self.contexts.any() }
    }

    /// Memory that a request takes at most. Its range was not checked yet.
    pub(super) fn memory(&self, request: &Request) -> u64 {
        let extents = if self.looks_up(request) { extents_memory(request) } else { 0 };
        let within = request.offset & (self.block - 1);
        let blocks = (within + u64::from(request.length)).next_multiple_of(self.block);
        let edges = if within == 0 && blocks == u64::from(request.length) { 0 } else { 2 * memory_of(self.block) };
        match request.command {
            command::READ => memory_of(blocks) + extents,
            command::WRITE => memory_of(blocks) + edges,
            command::CACHE => memory_of(blocks.min(CACHE_BYTES)),
            command::WRITE_ZEROES if self.block > 1 => memory_of(self.block),
            _ => extents,
        }
    }

    /// Whether a request begins with a look at the extents of its range.
    #[inline]
    fn looks_up(&self, request: &Request) -> bool {
        match request.command {
            command::READ => {
                let is_sparse = self.structured && self.export.settings.sparse;
                is_sparse && request.length >= SPARSE_READ_BYTES && !request.has(command_flag::DONT_FRAGMENT)
            }
            command::BLOCK_STATUS => self.contexts.allocation,
            _ => false,
        }
    }

    /// Hands what is to be done to the device.
    pub(super) fn submit(&mut self, sink: &Arc<dyn IoSink>) {
        self.export.settings.device.submit(&mut self.batch, sink);
    }

    pub(super) fn begin(&mut self, request: Request, stage: Stage) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.active += 1;
        let entry = &mut self.slots[slot as usize];
        (entry.request, entry.stage, entry.error, entry.pending) = (request, stage, 0, 0);
        slot
    }

    /// Ends a request: its slot and its lock are free again.
    fn end(&mut self, slot: u32) -> Request {
        let entry = &mut self.slots[slot as usize];
        entry.stage = Stage::Free;
        let (request, lock) = (entry.request, entry.lock.take());
        if let Some(ticket) = lock {
            self.export.locks.unlock(ticket);
        }
        self.free.push(slot);
        self.active -= 1;
        request
    }

    /// A buffer of this session's.
    #[inline]
    pub(super) fn buffer(&mut self, bytes: u64) -> AlignedBuffer {
        let buffer = self.pool.take(bytes as usize);
        self.held += buffer.capacity() as u64;
        buffer
    }

    #[inline]
    pub(super) fn give(&mut self, buffer: AlignedBuffer) {
        self.held -= buffer.capacity() as u64;
        self.pool.give(buffer);
    }

    /// The blocks that a range touches.
    #[inline]
    fn blocks(&self, request: &Request) -> (u64, u64) {
        let (below, end) = (self.block - 1, request.offset + u64::from(request.length));
        (request.offset & !below, (end + below) & !below)
    }

    /// A request without payload begins, which was checked.
    #[inline]
    pub(super) fn start(&mut self, request: Request, outbox: &mut Outbox) {
        if self.looks_up(&request) {
            return self.look_up(request, outbox);
        }
        match request.command {
            command::READ => {
                let slot = self.begin(request, Stage::Device);
                self.read(slot);
            }
            command::FLUSH => {
                let slot = self.begin(request, Stage::Device);
                self.batch.push(IoRequest::flush(u64::from(slot)));
            }
            command::BLOCK_STATUS => self.report_status(&request, &[], outbox),
            _ => self.start_pieces(request, outbox),
        }
    }

    #[inline]
    fn read(&mut self, slot: u32) {
        let request = self.slots[slot as usize].request;
        let (start, end) = self.blocks(&request);
        let buffer = self.buffer(end - start);
        self.batch.push(IoRequest::read(start, buffer, u64::from(slot)));
    }

    /// A write begins, which was checked: its payload is to be received into [`Work::payload`].
    #[inline]
    pub(super) fn start_write(&mut self, request: Request) -> u32 {
        let slot = self.begin(request, Stage::Payload);
        let (start, end) = self.blocks(&request);
        self.slots[slot as usize].buffer = self.buffer(end - start);
        slot
    }

    /// The place of the payload of a write.
    #[inline]
    pub(super) fn payload(&mut self, slot: u32) -> &mut [u8] {
        let entry = &mut self.slots[slot as usize];
        let skip = (entry.request.offset & (self.block - 1)) as usize;
        &mut entry.buffer[skip..skip + entry.request.length as usize]
    }

    /// The payload of a write is complete.
    #[inline]
    pub(super) fn write(&mut self, slot: u32) {
        let request = self.slots[slot as usize].request;
        let (start, end) = self.blocks(&request);
        let is_whole = start == request.offset && end == request.offset + u64::from(request.length);
        if self.lock(slot, start, end, !is_whole) {
            self.locked(slot);
        }
    }

    /// The client is gone before the payload of a write was complete.
    pub(super) fn give_up(&mut self, slot: u32) {
        let buffer = std::mem::take(&mut self.slots[slot as usize].buffer);
        self.give(buffer);
        self.end(slot);
    }

    /// A write whose payload is complete is refused after all: it may no longer be done.
    pub(super) fn refuse_write(&mut self, slot: u32, error: u32, outbox: &mut Outbox) {
        let entry = &mut self.slots[slot as usize];
        entry.error = error;
        let buffer = std::mem::take(&mut entry.buffer);
        self.give(buffer);
        self.reply(slot, outbox);
    }

    /// Locks the blocks of a request, if blocks are larger than bytes. Whether it may go on at once.
    pub(super) fn lock(&mut self, slot: u32, start: u64, end: u64, is_exclusive: bool) -> bool {
        if self.block == 1 {
            return true;
        }
        let (ticket, is_held) = self.export.locks.lock(start..end, is_exclusive, &self.mailbox, slot);
        let entry = &mut self.slots[slot as usize];
        entry.lock = Some(ticket);
        if !is_held {
            entry.stage = Stage::Lock;
            self.waiting += 1;
        }
        is_held
    }

    /// A request has its lock.
    fn locked(&mut self, slot: u32) {
        let request = self.slots[slot as usize].request;
        if request.command != command::WRITE {
            return self.next_piece(slot);
        }
        let (start, end) = self.blocks(&request);
        let last = request.offset + u64::from(request.length);
        let is_first_cut = start != request.offset;
        // In one block the first edge is the last as well.
        let is_last_cut = end != last && (end - start > self.block || !is_first_cut);
        if !is_first_cut && !is_last_cut {
            return self.device_write(slot);
        }
        for (is_cut, at, part) in [(is_first_cut, start, FIRST_EDGE), (is_last_cut, end - self.block, LAST_EDGE)] {
            if is_cut {
                let buffer = self.buffer(self.block);
                self.batch.push(IoRequest::read(at, buffer, u64::from(slot) | part << PART_SHIFT));
                self.slots[slot as usize].pending += 1;
            }
        }
        self.slots[slot as usize].stage = Stage::Edges;
    }

    #[inline]
    fn device_write(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.stage = Stage::Device;
        let (buffer, request) = (std::mem::take(&mut entry.buffer), entry.request);
        let (start, _) = self.blocks(&request);
        let token = u64::from(slot);
        self.batch.push(match request.has(command_flag::FUA) {
            true => IoRequest::write_flush(start, buffer, token),
            false => IoRequest::write(start, buffer, token),
        });
    }

    /// An edge of a write was read: what the client did not send is copied from it.
    fn edge(&mut self, slot: u32, part: u64, edge: AlignedBuffer) {
        let block = self.block as usize;
        let entry = &mut self.slots[slot as usize];
        entry.pending -= 1;
        let is_complete = entry.pending == 0;
        if entry.error == 0 {
            let skip = (entry.request.offset & (self.block - 1)) as usize;
            let stop = skip + entry.request.length as usize;
            let place = &mut entry.buffer;
            if part == FIRST_EDGE {
                place[..skip].copy_from_slice(&edge[..skip]);
            }
            if part == LAST_EDGE || stop < block {
                let rest = place.len() - stop;
                place[stop..].copy_from_slice(&edge[block - rest..]);
            }
        }
        self.give(edge);
        if is_complete && self.slots[slot as usize].error == 0 {
            self.device_write(slot);
        }
    }

    /// Something happened to a request.
    #[inline]
    pub(super) fn apply(&mut self, event: Event, outbox: &mut Outbox) {
        match event {
            Event::Done(request, result) => self.done(request, result, outbox),
            Event::Locked(slot) => {
                self.waiting -= 1;
                self.locked(slot);
            }
            Event::Extents(slot, result) => self.looked_up(slot, result, outbox),
        }
    }

    #[inline]
    fn done(&mut self, io: IoRequest, result: Result<(), DeviceError>, outbox: &mut Outbox) {
        let slot = io.token as u32;
        let stage = self.slots[slot as usize].stage;
        if let Err(error) = result {
            self.note_error(slot, io.kind, &error);
        }
        let request = &self.slots[slot as usize].request;
        match (stage, request.command) {
            (Stage::Device, command::READ) => self.reply_read(slot, io.buffer, outbox),
            (Stage::Device, command::WRITE) => {
                self.give(io.buffer);
                self.reply(slot, outbox);
            }
            (Stage::Device, command::FLUSH) | (Stage::Flush, _) => self.reply(slot, outbox),
            (Stage::Edges, _) => {
                self.edge(slot, io.token >> PART_SHIFT, io.buffer);
                let entry = &mut self.slots[slot as usize];
                if entry.error != 0 && entry.pending == 0 {
                    let buffer = std::mem::take(&mut entry.buffer);
                    self.give(buffer);
                    self.reply(slot, outbox);
                }
            }
            (Stage::Device | Stage::Block, _) => self.piece_done(slot, io, outbox),
            (stage, _) => unreachable!("the device completed a request at stage {stage:?}"),
        }
    }

    /// Keeps the first error of a request, as the client gets it.
    #[cold]
    fn note_error(&mut self, slot: u32, kind: IoKind, error: &DeviceError) {
        let entry = &mut self.slots[slot as usize];
        if entry.error == 0 {
            entry.error = match error {
                // Trimming is a hint: a medium that cannot is no reason to fail.
                DeviceError::Unsupported { .. } if kind == IoKind::Discard => 0,
                DeviceError::Full { .. } => errno::NO_SPACE,
                DeviceError::ReadOnly { .. } => errno::PERM,
                DeviceError::Unsupported { .. } => errno::NOT_SUPPORTED,
                DeviceError::NoMemory { .. } => errno::NO_MEMORY,
                _ => errno::IO,
            };
            let name = &self.export.facts.name;
            tracing::debug!(export = name, %error, "a request failed in the device");
        }
    }

    /// Ends a request without bytes.
    pub(super) fn reply(&mut self, slot: u32, outbox: &mut Outbox) {
        let error = self.slots[slot as usize].error;
        let request = self.end(slot);
        self.refuse_or_confirm(&request, error, outbox);
    }

    /// The reply to a request without bytes; also to one that never began.
    pub(super) fn refuse_or_confirm(&self, request: &Request, error: u32, outbox: &mut Outbox) {
        let needs_chunk = self.structured && matches!(request.command, command::READ | command::BLOCK_STATUS);
        if error != 0 {
            self.export.counters.errors.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        outbox.head(match needs_chunk {
            true => Head::error(request.cookie, error),
            false => Head::simple(request.cookie, error),
        });
    }

    #[inline]
    fn reply_read(&mut self, slot: u32, buffer: AlignedBuffer, outbox: &mut Outbox) {
        let entry = &mut self.slots[slot as usize];
        if entry.error != 0 {
            self.give(buffer);
            return self.reply(slot, outbox);
        }
        let pieces = std::mem::take(&mut entry.pieces);
        let request = self.end(slot);
        let Request { cookie, offset, length, .. } = request;
        self.held -= buffer.capacity() as u64;
        let skip = (offset & (self.block - 1)) as usize;
        if pieces.is_empty() {
            let head = match self.structured {
                true => Head::data(cookie, offset, length, true),
                false => Head::simple(cookie, 0),
            };
            return outbox.buffer(head, buffer, skip..skip + length as usize);
        }
        let (buffer, count) = (Arc::new(buffer), pieces.len());
        let last_bytes = pieces.iter().rposition(|piece| piece.has_space);
        let mut at = 0;
        for (number, piece) in pieces.iter().enumerate() {
            let (is_last, place) = (number + 1 == count, offset + at as u64);
            let bytes = piece.bytes as usize;
            if piece.has_space {
                let head = Head::data(cookie, place, bytes as u32, is_last);
                outbox.part(head, &buffer, skip + at..skip + at + bytes, last_bytes == Some(number));
            } else {
                outbox.head(Head::hole(cookie, place, bytes as u32, is_last));
            }
            at += bytes;
        }
    }

    /// Looks the extents of a request up, here if the device knows them at once.
    fn look_up(&mut self, request: Request, outbox: &mut Outbox) {
        let slot = self.begin(request, Stage::Extents);
        // With the buffer that a read takes afterwards: many at once would all have it.
        self.held += self.memory(&request);
        let length = looked_up_bytes(&request);
        let below = self.block - 1;
        let (start, end) = (request.offset & !below, (request.offset + length + below) & !below);
        let device = Arc::clone(&self.export.settings.device);
        if device.is_inline() {
            let result = device.extents(start, end - start);
            return self.looked_up(slot, result, outbox);
        }
        let (mailbox, name) = (Arc::clone(&self.mailbox), self.export.facts.name.clone());
        node::task::session("nbd-extents", async move {
            let looked_up = tokio::task::spawn_blocking(move || device.extents(start, end - start)).await;
            let panicked = |_| {
                let source = std::io::Error::other("looking extents up panicked");
                Err(DeviceError::Io { operation: device::Operation::Read, name, offset: start, source })
            };
            mailbox.put(Event::Extents(slot, looked_up.unwrap_or_else(panicked)));
        });
    }

    fn looked_up(&mut self, slot: u32, result: Result<Vec<Extent>, DeviceError>, outbox: &mut Outbox) {
        self.held -= self.memory(&self.slots[slot as usize].request);
        let extents = match result {
            Ok(extents) => extents,
            Err(error) => {
                self.note_error(slot, IoKind::Read, &error);
                return self.reply(slot, outbox);
            }
        };
        let request = self.slots[slot as usize].request;
        let skip = request.offset & (self.block - 1);
        let extents = status::clipped(&extents, skip, u64::from(request.length));
        if request.command == command::BLOCK_STATUS {
            self.end(slot);
            return self.report_status(&request, &extents, outbox);
        }
        let pieces = status::pieces(&extents);
        match pieces.as_slice() {
            [hole] if !hole.has_space => {
                self.end(slot);
                outbox.head(Head::hole(request.cookie, request.offset, request.length, true));
            }
            _ => {
                let entry = &mut self.slots[slot as usize];
                entry.stage = Stage::Device;
                entry.pieces = if pieces.len() > 1 { pieces } else { Vec::new() };
                self.read(slot);
            }
        }
    }

    fn report_status(&mut self, request: &Request, extents: &[Extent], outbox: &mut Outbox) {
        let Contexts { allocation, epoch, .. } = self.contexts;
        if allocation {
            let list = status::descriptors(extents, request.has(command_flag::ONE_EXTENT));
            let payload = status::encode(ALLOCATION_ID, &list);
            outbox.bytes(Head::status(request.cookie, payload.len() as u32, !epoch), payload);
        }
        if epoch {
            let list = [status::Descriptor { bytes: request.length, status: self.epoch as u32 }];
            let payload = status::encode(EPOCH_ID, &list);
            outbox.bytes(Head::status(request.cookie, payload.len() as u32, true), payload);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Only a panic ends a session with requests: others that wait for its locks must go on.
        for slot in &mut self.slots {
            if let Some(ticket) = slot.lock.take() {
                self.export.locks.unlock(ticket);
            }
        }
    }
}
