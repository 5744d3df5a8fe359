//! A session after negotiation: one task that receives requests, lets the device do them, and sends replies.
//!
//! ```text
//!        +------------------------------- one turn -------------------------------+
//!        |                                                                        |
//!   socket --recv--> scratch --parse--> Work --submit--> device                   |
//!        |          (many requests)      ^                  | at once, or later   |
//!        |                               +---- mailbox <----+                     |
//!   socket <--writev-- Outbox <--replies-+                                        |
//!        +------------------------------------------------------------------------+
//! ```
//!
//! A device that completes inside `submit` never leaves this thread: what one system call received is answered by one
//! other. The scratch belongs to the worker's thread, so a session that waits has no buffer of its own.
//!
//! Invariants:
//!
//! 1. What a session holds is bounded: requests by [`REQUESTS_MAX`], memory by [`SESSION_BYTES`] (or one request), and
//!    memory beyond a small part also by the server's budget. Beyond it nothing is received: a client that reads no
//!    replies waits for itself.
//!    Memory that waits for the client, while others wait for memory, is freed by the client in time or by the end of its session.
//! 2. A turn is bounded by [`TURN_REQUESTS`] and [`TURN_BYTES`]; then other sessions of the worker have theirs.
//! 3. The task ends only when nothing of it is in the device, whatever the socket does.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use device::IoSink;
use node::OpenConnection;
use tokio::io::ReadBuf;
use tokio::time::Sleep;

use super::export::Session;
use super::limiter::Charged;
use super::mailbox::{Course, Event};
use super::outbox::Outbox;
use super::pool::{BufferPool, Share};
use super::work::Work;
use crate::protocol::negotiation::Contexts;
use crate::protocol::request::{REQUEST_BYTES, Request, RequestFrame};
use crate::protocol::{PAYLOAD_BYTES_MAX, command, command_flag, errno};
use crate::socket::Carrier;

/// Bytes of one receive: 2,300 requests of reads, or 15 writes of 4 KiB.
const SCRATCH_BYTES: usize = 64 << 10;

/// Payloads of which more than this is missing are received where they belong, not into the scratch.
const DIRECT_BYTES: usize = 16 << 10;

/// Requests of one session that have begun or wait to be sent.
const REQUESTS_MAX: usize = 1024;

/// Memory of one session, unless one request needs more.
const SESSION_BYTES: u64 = 16 << 20;

/// Requests of one turn.
const TURN_REQUESTS: u64 = 256;

/// Bytes of one turn.
const TURN_BYTES: u64 = 4 << 20;

/// Requests of one session that wait for the lock of their range. More of them would wait for each other, and make everybody look for a
/// longer time at what is in the way.
const WAITING_MAX: usize = 128;

/// The part of the memory that waits for a client which the client has to move within the server's patience, by taking replies or sending
/// the rest of a write: so it is free again after eight times that at the latest.
const MOVED_PART: u64 = 8;

/// A payload that is skipped, of a write that is refused, up to this; a longer one ends the session.
const SKIP_BYTES_MAX: u32 = 2 * PAYLOAD_BYTES_MAX;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
}

/// What the next bytes belong to.
#[derive(Debug, Clone, Copy)]
enum Next {
    Request,
    /// The payload of the write in a slot, of which so many bytes are there.
    Payload {
        slot: u32,
        at: usize,
    },
    /// So many bytes of a write that was refused.
    Skip {
        left: usize,
    },
}

/// How far the session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Requests are received.
    Open,
    /// No more requests; replies are sent.
    Leaving,
    /// The socket is of no use any more.
    Gone,
}

/// What a turn did, for the counters and the limits.
#[derive(Debug, Default)]
struct Turn {
    requests: u64,
    bytes: u64,
    reads: u64,
    writes: u64,
    flushes: u64,
    read_bytes: u64,
    written_bytes: u64,
    /// Bytes that are read and not sent, or written and not received.
    inner_bytes: u64,
}

/// See the module's text.
pub(super) struct Transmission<S> {
    stream: S,
    session: Session,
    sink: Arc<dyn IoSink>,
    work: Work,
    outbox: Outbox,
    share: Share,
    connection: Arc<OpenConnection>,
    events: Vec<Event>,
    /// Received bytes that could not be used yet.
    rest: Vec<u8>,
    next: Next,
    phase: Phase,
    /// Set while the export's limits let the session wait: the end of that, and for which limits.
    pause: Option<(Pin<Box<Sleep>>, Charged)>,
    /// Set while memory waits for the client: until when it has to have moved some, and how much had been moved before.
    stall: Option<(Pin<Box<Sleep>>, u64)>,
    /// Bytes that the client has sent and taken.
    moved: u64,
    /// Whether TLS may hold records that the socket did not take yet.
    is_unflushed: bool,
}

impl<S: Carrier> Transmission<S> {
    /// `rest`: what was received behind the negotiation.
    pub(super) fn new(
        stream: S,
        session: Session,
        agreed: (bool, Contexts, u64),
        (pool, share, connection): (Arc<BufferPool>, Share, Arc<OpenConnection>),
        rest: Vec<u8>,
    ) -> Transmission<S> {
        let (structured, contexts, epoch) = agreed;
        let sink: Arc<dyn IoSink> = Arc::clone(&session.mailbox) as Arc<dyn IoSink>;
        let work = Work::new(&session, Arc::clone(&pool), structured, contexts, epoch);
        Transmission {
            stream,
            session,
            sink,
            work,
            outbox: Outbox::new(pool),
            share,
            connection,
            events: Vec::new(),
            rest,
            next: Next::Request,
            phase: Phase::Open,
            pause: None,
            stall: None,
            moved: 0,
            is_unflushed: false,
        }
    }

    /// Runs the session to its end; returns the stream, if it is still of use.
    pub(super) async fn run(mut self) -> Option<S> {
        std::future::poll_fn(|context| self.poll(context)).await;
        self.share.forget(&self.session.mailbox);
        (self.phase != Phase::Gone).then_some(self.stream)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut turn = Turn::default();
        let done = SCRATCH.with_borrow_mut(|scratch| self.turn(&mut turn, scratch, context));
        self.account(&turn, context);
        let held = self.work.held() + self.outbox.held();
        // What it had at most is not given back for each reply, unless somebody waits for it.
        if held == 0 || self.share.is_wanted() {
            self.share.shrink(held);
        }
        done
    }

    fn turn(&mut self, turn: &mut Turn, scratch: &mut [u8], context: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut moved = self.take_events();
            if self.session.mailbox.course() == Course::Cut {
                self.phase = Phase::Gone;
            }
            moved |= self.use_rest(turn);
            if !self.work.batch.is_empty() {
                turn.bytes += self.work.batch.iter().map(|request| request.bytes).sum::<u64>();
                self.work.submit(&self.sink);
                // Much of it may be complete already: its replies go out together.
                continue;
            }
            moved |= self.send(context);
            if self.phase == Phase::Open {
                moved |= self.receive(turn, scratch, context);
            }
            if self.phase != Phase::Open {
                self.stop_receiving();
                let is_sent = (self.outbox.is_empty() && !self.is_unflushed) || self.phase == Phase::Gone;
                if self.work.active() == 0 && is_sent {
                    return Poll::Ready(());
                }
            }
            if turn.requests >= TURN_REQUESTS || turn.bytes >= TURN_BYTES {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if moved || !self.work.batch.is_empty() {
                continue;
            }
            if self.is_drained() {
                self.phase = Phase::Leaving;
            } else if self.stalls(context) {
                tracing::warn!(
                    export = self.work.export.facts.name,
                    "a client takes no replies, or does not end a write, while others wait for the memory: ended"
                );
                self.phase = Phase::Gone;
            } else if self.session.mailbox.park(context.waker()) {
                return Poll::Pending;
            }
        }
    }

    fn take_events(&mut self) -> bool {
        self.session.mailbox.take(&mut self.events);
        if self.events.is_empty() {
            return false;
        }
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.work.apply(event, &mut self.outbox);
        }
        self.events = events;
        true
    }

    /// Whether the export ends, and everything that was received was answered.
    fn is_drained(&self) -> bool {
        let is_idle = self.phase == Phase::Open && self.work.active() == 0 && self.outbox.is_empty();
        is_idle && self.session.mailbox.course() == Course::Drain
    }

    fn stop_receiving(&mut self) {
        if let Next::Payload { slot, .. } = self.next {
            self.work.give_up(slot);
        }
        self.next = Next::Request;
        self.rest = Vec::new();
        self.share.forget(&self.session.mailbox);
        if self.phase == Phase::Gone {
            self.outbox.clear();
        }
    }

    /// Uses bytes that were received earlier, as far as bounds allow now.
    fn use_rest(&mut self, turn: &mut Turn) -> bool {
        if self.rest.is_empty() || self.phase != Phase::Open || self.pause.is_some() {
            return false;
        }
        let rest = std::mem::take(&mut self.rest);
        let used = self.use_bytes(&rest, turn);
        if used < rest.len() {
            self.rest = rest;
            self.rest.drain(..used);
        }
        used > 0
    }

    /// Uses received bytes; returns how many.
    fn use_bytes(&mut self, bytes: &[u8], turn: &mut Turn) -> usize {
        let mut used = 0;
        while used < bytes.len() && self.phase == Phase::Open {
            let rest = &bytes[used..];
            match self.next {
                Next::Payload { slot, at } => {
                    let place = &mut self.work.payload(slot)[at..];
                    let count = place.len().min(rest.len());
                    place[..count].copy_from_slice(&rest[..count]);
                    used += count;
                    self.received(slot, at + count);
                }
                Next::Skip { left } => {
                    let count = left.min(rest.len());
                    used += count;
                    self.next = if count == left { Next::Request } else { Next::Skip { left: left - count } };
                }
                Next::Request => match Request::frame(rest) {
                    RequestFrame::Whole(request) => {
                        if !self.has_room(&request, turn) {
                            break;
                        }
                        used += REQUEST_BYTES;
                        self.begin(request, turn);
                    }
                    RequestFrame::Incomplete => break,
                    RequestFrame::Broken => {
                        tracing::info!(export = self.work.export.facts.name, "a client sent no request: ended");
                        self.phase = Phase::Gone;
                    }
                },
            }
        }
        used
    }

    /// So many bytes of a payload are there.
    #[inline]
    fn received(&mut self, slot: u32, at: usize) {
        if at == self.work.payload(slot).len() {
            self.next = Next::Request;
            // The right to write may have been lost while the payload came, however long that took.
            match self.session.mailbox.is_read_only() {
                false => self.work.write(slot),
                true => self.work.refuse_write(slot, errno::PERM, &mut self.outbox),
            }
        } else {
            self.next = Next::Payload { slot, at };
        }
    }

    /// Whether a request may begin within the bounds.
    #[inline]
    fn has_room(&mut self, request: &Request, turn: &Turn) -> bool {
        let held = self.work.held() + self.outbox.held();
        let need = self.work.memory(request).min(2 * u64::from(PAYLOAD_BYTES_MAX));
        let begun = self.work.active() + self.outbox.len();
        if begun >= REQUESTS_MAX || self.work.waiting() >= WAITING_MAX || turn.requests >= TURN_REQUESTS {
            return false;
        }
        if held > 0 && held + need > SESSION_BYTES {
            return false;
        }
        self.share.covers(held + need, &self.session.mailbox)
    }

    #[inline]
    fn begin(&mut self, request: Request, turn: &mut Turn) {
        turn.requests += 1;
        if request.command == command::DISCONNECT {
            self.phase = Phase::Leaving;
            return;
        }
        let checked = match self.session.mailbox.course() {
            Course::On => request.check(self.session.facts(), self.work.agreed()),
            _ => Err(errno::SHUTDOWN),
        };
        let payload = request.payload();
        if let Err(error) = checked {
            if payload > SKIP_BYTES_MAX {
                tracing::info!(export = self.work.export.facts.name, payload, "a write is too long: ended");
                self.phase = Phase::Gone;
                return;
            }
            self.work.refuse_or_confirm(&request, error, &mut self.outbox);
            if payload > 0 {
                self.next = Next::Skip { left: payload as usize };
            }
            return;
        }
        turn.flushes += u64::from(request.command == command::FLUSH || request.has(command_flag::FUA));
        match request.command {
            command::READ => {
                turn.reads += 1;
                turn.read_bytes += u64::from(request.length);
            }
            command::WRITE | command::TRIM | command::WRITE_ZEROES => {
                turn.writes += 1;
                turn.written_bytes += u64::from(payload);
                // Zeros that are to have space cost the medium as much as other bytes.
                if request.command == command::WRITE_ZEROES && request.has(command_flag::NO_HOLE) {
                    turn.inner_bytes += u64::from(request.length);
                }
            }
            command::CACHE => turn.inner_bytes += u64::from(request.length),
            _ => {}
        }
        if request.command == command::WRITE {
            let slot = self.work.start_write(request);
            self.next = Next::Payload { slot, at: 0 };
        } else {
            self.work.start(request, &mut self.outbox);
        }
    }

    /// Sends what waits; whether something was sent.
    fn send(&mut self, context: &mut Context<'_>) -> bool {
        if self.phase == Phase::Gone || (self.outbox.is_empty() && !self.is_unflushed) {
            return false;
        }
        // TLS keeps records until it is told to send them, and has to be told again where the socket took only some; a socket does
        // nothing here.
        let sent = match self.outbox.is_empty() {
            true => Pin::new(&mut self.stream).poll_flush(context).map_ok(|()| 0),
            false => self.outbox.poll_send(&mut self.stream, context),
        };
        match sent {
            Poll::Ready(Ok(count)) => {
                self.moved += count as u64;
                if self.outbox.is_empty() {
                    self.is_unflushed = Pin::new(&mut self.stream).poll_flush(context).is_pending();
                }
                true
            }
            Poll::Ready(Err(_)) => {
                self.phase = Phase::Gone;
                true
            }
            Poll::Pending => false,
        }
    }

    /// Memory that only the client can free: by taking replies, or by sending the rest of a write.
    fn awaited(&mut self) -> u64 {
        let payload = match self.next {
            Next::Payload { slot, .. } => self.work.payload(slot).len() as u64,
            _ => 0,
        };
        self.outbox.held() + payload
    }

    /// Whether the client has held memory for long that others wait for, and moved too little of it. Otherwise the session is woken in time
    /// to look again.
    fn stalls(&mut self, context: &mut Context<'_>) -> bool {
        let awaited = self.awaited();
        if awaited == 0 || self.phase == Phase::Gone || !self.share.has_some() {
            self.stall = None;
            return false;
        }
        let (moved, patience) = (self.moved, self.share.patience());
        loop {
            let (end, before) = self.stall.get_or_insert_with(|| (Box::pin(tokio::time::sleep(patience)), moved));
            if end.as_mut().poll(context).is_pending() {
                return false;
            }
            if moved - *before < awaited / MOVED_PART && self.share.is_wanted() {
                return true;
            }
            self.stall = None;
        }
    }

    /// Receives once, and uses what came; whether something came.
    fn receive(&mut self, turn: &mut Turn, scratch: &mut [u8], context: &mut Context<'_>) -> bool {
        if let Some((pause, charged)) = &mut self.pause {
            let is_over = pause.as_mut().poll(context).is_ready() || !self.work.export.limits.is_in_force(*charged);
            if is_over {
                self.pause = None;
                return true;
            }
        }
        let is_paused = self.pause.is_some();
        // The payload of a write that has begun, and is charged already, is received in a pause too: else a write that is
        // larger than a second's worth would wait for itself.
        if let Next::Payload { slot, at } = self.next
            && self.rest.is_empty()
            && (is_paused || self.work.payload(slot).len() - at >= DIRECT_BYTES)
        {
            let mut into = ReadBuf::new(&mut self.work.payload(slot)[at..]);
            let result = Pin::new(&mut self.stream).poll_read(context, &mut into);
            let count = into.filled().len();
            return match self.is_open(result, count) {
                true => {
                    self.received(slot, at + count);
                    true
                }
                false => self.phase != Phase::Open,
            };
        }
        if is_paused {
            return false;
        }
        // Bytes that are more than a part of a request wait for room: nothing is received until there is some.
        let kept = self.rest.len();
        if kept >= REQUEST_BYTES || turn.requests >= TURN_REQUESTS {
            return false;
        }
        scratch[..kept].copy_from_slice(&self.rest);
        let mut into = ReadBuf::new(&mut scratch[kept..]);
        let result = Pin::new(&mut self.stream).poll_read(context, &mut into);
        let count = into.filled().len();
        if !self.is_open(result, count) {
            return self.phase != Phase::Open;
        }
        self.rest.clear();
        let used = self.use_bytes(&scratch[..kept + count], turn);
        if self.phase == Phase::Open {
            self.rest.extend_from_slice(&scratch[used..kept + count]);
        }
        true
    }

    /// Whether bytes were received; at the end of the stream, or at an error, the session leaves.
    fn is_open(&mut self, result: Poll<std::io::Result<()>>, count: usize) -> bool {
        match result {
            Poll::Ready(Ok(())) if count > 0 => {
                self.moved += count as u64;
                return true;
            }
            Poll::Ready(Ok(())) => self.phase = Phase::Leaving,
            Poll::Ready(Err(_)) => self.phase = Phase::Gone,
            Poll::Pending => {}
        }
        false
    }

    /// Adds a turn to the counters, and to the limits of the export.
    fn account(&mut self, turn: &Turn, context: &mut Context<'_>) {
        if turn.requests == 0 {
            return;
        }
        self.connection.began(turn.requests);
        self.connection.received(turn.written_bytes);
        self.connection.sent(turn.read_bytes);
        // Charged before it is counted: who sees a request in the counters knows that the limits have it.
        let bytes = turn.read_bytes + turn.written_bytes + turn.inner_bytes;
        let charged = self.work.export.limits.charge(turn.requests, bytes);
        let counters = &self.work.export.counters;
        for (counter, more) in [
            (&counters.reads, turn.reads),
            (&counters.writes, turn.writes),
            (&counters.flushes, turn.flushes),
            (&counters.read_bytes, turn.read_bytes),
            (&counters.written_bytes, turn.written_bytes),
        ] {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
        if let Some(charged) = charged {
            // It takes no memory before that is over: others do not wait behind it.
            self.share.forget(&self.session.mailbox);
            let mut pause = Box::pin(tokio::time::sleep(charged.wait));
            // Polled once, so that its end wakes the session. Limits that were changed in between have woken it already.
            if pause.as_mut().poll(context).is_pending() {
                self.pause = Some((pause, charged));
            } else {
                context.waker().wake_by_ref();
            }
        }
    }
}
