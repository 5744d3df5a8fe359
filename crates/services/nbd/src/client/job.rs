//! Jobs: requests of callers, copies that are sent again, and flushes of the client's own, with their way over the wire.
//!
//! ```text
//!   New --> [Edges] --> Main --> [Flush] --> finished        a lost connection makes it New again
//!            reads       the parts that the
//!            blocks      server gets, each of at
//!            in part     most one piece
//! ```
//!
//! A range that does not begin and end with blocks of the server is read as whole blocks. Where it is written, the blocks at its edges
//! are read first, changed, and written as a whole; who calls sees to it that nobody else changes them meanwhile.
//!
//! Invariants: a request is returned to its caller exactly once, also if the job is dropped with the loop that had it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use device::{DeviceError, IoKind, IoRequest, IoSink, Operation};
use parking_lot::{Condvar, Mutex};

use super::unflushed::{Content, KeptWrite};
use crate::protocol::status::Descriptor;
use crate::protocol::{command, command_flag, errno};

/// Zeros where a server has no command for them.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Zeros of one request: a server that writes them must be able to answer in time.
const ZEROES_PIECE_BYTES: u64 = 32 << 20;

/// What a job does on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Read,
    Write,
    Zeroes { free: bool },
    Flush,
    Extents,
}

/// Who gets the result.
pub(super) enum Owner {
    /// A caller; `gives_buffer`: it does not look at what it wrote again.
    Caller { request: IoRequest, sink: Arc<dyn IoSink>, gives_buffer: bool },
    /// Who asks for extents.
    Extents(Arc<ExtentsWaiter>),
    /// An acknowledged write that is sent again.
    Copy(Arc<KeptWrite>),
    /// The client's own flush.
    Relief,
}

/// Waits for the extents of one request.
#[derive(Debug, Default)]
pub(super) struct ExtentsWaiter {
    result: Mutex<Option<Result<Vec<Descriptor>, DeviceError>>>,
    done: Condvar,
}

impl ExtentsWaiter {
    pub(super) fn wait(&self) -> Result<Vec<Descriptor>, DeviceError> {
        let mut result = self.result.lock();
        loop {
            match result.take() {
                Some(result) => return result,
                None => self.done.wait(&mut result),
            }
        }
    }

    fn set(&self, result: Result<Vec<Descriptor>, DeviceError>) {
        *self.result.lock() = Some(result);
        self.done.notify_one();
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobStage {
    New,
    Edges,
    Main,
    Flush,
}

/// Where the bytes of a part come from, or go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The caller's bytes.
    Own,
    /// A block at an edge.
    Edge(usize),
}

/// One request on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) command: u16,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) place: Place,
}

/// What parts have to keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// The server's smallest block.
    pub(super) block: u64,
    /// The largest read or write, a multiple of it.
    pub(super) piece: u64,
}

/// A block that a write changes in part.
struct Edge {
    offset: u64,
    bytes: Vec<u8>,
}

/// See the head comment of this module.
pub(super) struct Job {
    pub(super) aim: Aim,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) operation: Operation,
    /// Whether everything before it, and it, has to be persistent when it is finished.
    pub(super) wants_flush: bool,
    owner: Option<Owner>,
    pub(super) stage: JobStage,
    /// Behind the last part of the stage.
    cursor: u64,
    /// Parts on the wire.
    pub(super) outstanding: usize,
    /// The first error of a part; 0: none.
    pub(super) error: u32,
    edges: Vec<Edge>,
    pub(super) fua: bool,
    pub(super) flushes_after: bool,
    /// Zeros are sent as bytes.
    pub(super) as_bytes: bool,
    /// Bytes that its copy will take, reserved.
    pub(super) reserved: u64,
    pub(super) first_lost: Option<Instant>,
    pub(super) descriptors: Vec<Descriptor>,
}

impl Job {
    fn new(aim: Aim, offset: u64, bytes: u64, operation: Operation, owner: Owner) -> Job {
        Job {
            aim,
            offset,
            bytes,
            operation,
            wants_flush: false,
            owner: Some(owner),
            stage: JobStage::New,
            cursor: 0,
            outstanding: 0,
            error: 0,
            edges: Vec::new(),
            fua: false,
            flushes_after: false,
            as_bytes: false,
            reserved: 0,
            first_lost: None,
            descriptors: Vec::new(),
        }
    }

    /// A request of a caller.
    pub(super) fn of_request(request: IoRequest, sink: Arc<dyn IoSink>, gives_buffer: bool) -> Job {
        let (aim, operation) = match request.kind {
            IoKind::Read => (Aim::Read, Operation::Read),
            IoKind::Write | IoKind::WriteFlush => (Aim::Write, Operation::Write),
            IoKind::Flush => (Aim::Flush, Operation::Flush),
            IoKind::Discard => (Aim::Zeroes { free: true }, Operation::Discard),
            IoKind::WriteZeroes { free } => (Aim::Zeroes { free }, Operation::Write),
        };
        let wants_flush = request.kind == IoKind::WriteFlush;
        let (offset, bytes) = (request.offset, request.bytes);
        let mut job = Job::new(aim, offset, bytes, operation, Owner::Caller { request, sink, gives_buffer });
        job.wants_flush = wants_flush;
        job
    }

    pub(super) fn extents(offset: u64, bytes: u64, waiter: Arc<ExtentsWaiter>) -> Job {
        Job::new(Aim::Extents, offset, bytes, Operation::Read, Owner::Extents(waiter))
    }

    pub(super) fn copy(kept: Arc<KeptWrite>) -> Job {
        let aim = match kept.content {
            Content::Bytes(_) => Aim::Write,
            Content::Zeroes { free } => Aim::Zeroes { free },
        };
        Job::new(aim, kept.offset, kept.bytes, Operation::Write, Owner::Copy(kept))
    }

    pub(super) fn relief() -> Job {
        Job::new(Aim::Flush, 0, 0, Operation::Flush, Owner::Relief)
    }

    pub(super) fn is_change(&self) -> bool {
        matches!(self.aim, Aim::Write | Aim::Zeroes { .. } | Aim::Flush)
    }

    pub(super) fn is_copy(&self) -> bool {
        matches!(self.owner, Some(Owner::Copy(_)))
    }

    pub(super) fn is_relief(&self) -> bool {
        matches!(self.owner, Some(Owner::Relief))
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// The blocks of the server that it touches.
    fn rounded(&self, block: u64) -> (u64, u64) {
        (self.offset & !(block - 1), self.end().next_multiple_of(block))
    }

    pub(super) fn is_aligned(&self, block: u64) -> bool {
        (self.offset | self.bytes) & (block - 1) == 0
    }

    /// Whether the two touch a block of the server together.
    pub(super) fn meets(&self, other: &Job, block: u64) -> bool {
        let ((from, to), (other_from, other_to)) = (self.rounded(block), other.rounded(block));
        from < other_to && other_from < to
    }

    /// Begins the first stage.
    pub(super) fn start(&mut self, shape: Shape) {
        let (from, to) = self.rounded(shape.block);
        self.edges.clear();
        if self.is_change() && self.aim != Aim::Flush {
            let has_tail = self.end() != to && (to - shape.block != from || self.offset == from);
            let each = [(self.offset != from, from), (has_tail, to - shape.block)];
            for (_, offset) in each.iter().filter(|(is_cut, _)| *is_cut) {
                self.edges.push(Edge { offset: *offset, bytes: vec![0; shape.block as usize] });
            }
        }
        match self.aim {
            Aim::Flush => self.enter(JobStage::Flush, shape),
            _ if self.edges.is_empty() => self.enter(JobStage::Main, shape),
            _ => self.enter(JobStage::Edges, shape),
        }
    }

    fn enter(&mut self, stage: JobStage, shape: Shape) {
        self.stage = stage;
        self.cursor = if stage == JobStage::Main { self.rounded(shape.block).0 } else { 0 };
    }

    /// Goes on after a stage of which all parts are answered; `false`: it was the last one.
    pub(super) fn advance(&mut self, shape: Shape) -> bool {
        match self.stage {
            JobStage::Edges => {
                for at in 0..self.edges.len() {
                    let from = self.edges[at].offset.max(self.offset);
                    let to = (self.edges[at].offset + shape.block).min(self.end());
                    let mut edge = std::mem::take(&mut self.edges[at].bytes);
                    let within = (from - self.edges[at].offset) as usize..(to - self.edges[at].offset) as usize;
                    match self.own_bytes() {
                        Some(own) => edge[within]
                            .copy_from_slice(&own[(from - self.offset) as usize..(to - self.offset) as usize]),
                        None => edge[within].fill(0),
                    }
                    self.edges[at].bytes = edge;
                }
                self.enter(JobStage::Main, shape);
                true
            }
            JobStage::Main if self.flushes_after => {
                self.enter(JobStage::Flush, shape);
                true
            }
            _ => false,
        }
    }

    /// The next part of its stage.
    pub(super) fn next_part(&self, shape: Shape) -> Option<Part> {
        let part = |command, flags, offset, length: u64, place| {
            Some(Part { command, flags, offset, length: length as u32, place })
        };
        match self.stage {
            JobStage::New => None,
            JobStage::Edges => {
                let at = self.cursor as usize;
                let edge = self.edges.get(at)?;
                part(command::READ, 0, edge.offset, shape.block, Place::Edge(at))
            }
            JobStage::Flush => {
                (self.cursor == 0).then_some(()).and_then(|()| part(command::FLUSH, 0, 0, 0, Place::Own))
            }
            JobStage::Main => {
                let to = self.rounded(shape.block).1;
                if self.cursor >= to {
                    return None;
                }
                let fua = if self.fua { command_flag::FUA } else { 0 };
                if let Some(at) = self.edges.iter().position(|edge| edge.offset == self.cursor) {
                    return part(command::WRITE, fua, self.cursor, shape.block, Place::Edge(at));
                }
                let next_edge = self.edges.iter().map(|edge| edge.offset).find(|offset| *offset > self.cursor);
                let left = next_edge.unwrap_or(to) - self.cursor;
                let most_zeroes = ZEROES_PIECE_BYTES.max(shape.block);
                match self.aim {
                    Aim::Read => part(command::READ, 0, self.cursor, left.min(shape.piece), Place::Own),
                    Aim::Extents => part(command::BLOCK_STATUS, 0, self.cursor, left, Place::Own),
                    Aim::Zeroes { free } if !self.as_bytes => {
                        let flags = fua | if free { 0 } else { command_flag::NO_HOLE };
                        part(command::WRITE_ZEROES, flags, self.cursor, left.min(most_zeroes), Place::Own)
                    }
                    _ => part(command::WRITE, fua, self.cursor, left.min(shape.piece), Place::Own),
                }
            }
        }
    }

    /// The part that [`Job::next_part`] returned is sent.
    pub(super) fn sent(&mut self, part: &Part) {
        self.cursor += if self.stage == JobStage::Main { u64::from(part.length) } else { 1 };
        self.outstanding += 1;
    }

    /// No further part of it is sent.
    pub(super) fn cut_short(&mut self) {
        self.cursor = u64::MAX / 2;
    }

    /// Back to before its first part.
    pub(super) fn reset(&mut self) {
        (self.stage, self.outstanding, self.error, self.reserved) = (JobStage::New, 0, 0, 0);
        (self.fua, self.flushes_after) = (false, false);
        self.edges.clear();
        self.descriptors.clear();
    }

    /// The bytes that it writes; none for zeros.
    fn own_bytes(&self) -> Option<&[u8]> {
        match &self.owner {
            Some(Owner::Caller { request, .. }) if self.aim == Aim::Write => Some(&request.buffer),
            Some(Owner::Copy(kept)) => match &kept.content {
                Content::Bytes(bytes) => Some(bytes),
                Content::Zeroes { .. } => None,
            },
            _ => None,
        }
    }

    /// Some bytes to send, from `offset` on and at most up to `end`.
    pub(super) fn payload(&self, place: Place, offset: u64, end: u64) -> &[u8] {
        let count = (end - offset) as usize;
        match place {
            Place::Edge(at) => {
                let edge = &self.edges[at];
                let from = (offset - edge.offset) as usize;
                &edge.bytes[from..from + count]
            }
            Place::Own => match self.own_bytes() {
                Some(own) => {
                    let from = (offset - self.offset) as usize;
                    &own[from..from + count]
                }
                None => &ZEROS[..count.min(ZEROS.len())],
            },
        }
    }

    /// Takes bytes of a read, or zeros where there are none, as far as they are of its range.
    pub(super) fn place(&mut self, place: Place, offset: u64, length: u64, bytes: Option<&[u8]>) {
        let (start, buffer): (u64, &mut [u8]) = match (place, &mut self.owner) {
            (Place::Edge(at), _) => (self.edges[at].offset, &mut self.edges[at].bytes),
            (Place::Own, Some(Owner::Caller { request, .. })) => (self.offset, &mut request.buffer),
            _ => return,
        };
        let (from, to) = (offset.max(start), (offset + length).min(start + buffer.len() as u64));
        if from >= to {
            return;
        }
        let target = &mut buffer[(from - start) as usize..(to - start) as usize];
        match bytes {
            Some(bytes) => target.copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]),
            None => target.fill(0),
        }
    }

    /// A copy of what it wrote; its own bytes, where the caller gives them away.
    pub(super) fn kept(&mut self) -> KeptWrite {
        let content = match (self.aim, &mut self.owner) {
            (Aim::Zeroes { free }, _) => Content::Zeroes { free },
            (_, Some(Owner::Caller { request, gives_buffer: true, .. })) => {
                Content::Bytes(std::mem::take(&mut request.buffer))
            }
            (_, Some(Owner::Caller { request, .. })) => Content::Bytes((&request.buffer[..]).into()),
            _ => unreachable!("only requests of callers are kept"),
        };
        KeptWrite { offset: self.offset, bytes: self.bytes, content }
    }

    /// Ends it.
    pub(super) fn finish(mut self, result: Result<(), DeviceError>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<(), DeviceError>) {
        match self.owner.take() {
            Some(Owner::Caller { request, sink, .. }) => sink.complete(request, result),
            Some(Owner::Extents(waiter)) => waiter.set(result.map(|()| std::mem::take(&mut self.descriptors))),
            Some(Owner::Copy(_) | Owner::Relief) | None => {}
        }
    }

    /// The error of a device for an error of a server, or for a fault of the connection.
    pub(super) fn failed(&self, name: &str, source: io::Error) -> DeviceError {
        let operation = if self.stage == JobStage::Flush { Operation::Flush } else { self.operation };
        DeviceError::Io { operation, name: name.to_owned(), offset: self.offset, source }
    }

    /// The error of a device for the number that the server answered.
    pub(super) fn refused(&self, name: &str, number: u32) -> DeviceError {
        let name_of = || name.to_owned();
        match number {
            errno::NO_SPACE if self.is_change() => DeviceError::Full { name: name_of(), bytes: self.bytes },
            errno::PERM if self.is_change() => DeviceError::ReadOnly { operation: self.operation, name: name_of() },
            // A number that is not one of the protocol's means nothing on this machine.
            errno::PERM
            | errno::IO
            | errno::NO_MEMORY
            | errno::INVALID
            | errno::NO_SPACE
            | errno::OVERFLOW
            | errno::NOT_SUPPORTED
            | errno::SHUTDOWN => self.failed(name, io::Error::from_raw_os_error(number as i32)),
            other => self.failed(name, io::Error::other(format!("the server answered error {other}"))),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.owner.is_some() {
            let gone = io::Error::new(io::ErrorKind::NotConnected, "the client has ended");
            let error = self.failed("NBD", gone);
            self.answer(Err(error));
        }
    }
}
