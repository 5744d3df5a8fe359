//! The engine between services and queues. It ingests a message: it decides, has the message stored, and returns the
//! acknowledgement to send.
//!
//! ```text
//! bytes -> intake::decide (pure) -> record -> message log (durable) -> answer
//!                |                                 \-> queues of the operations
//!                +-- room in the queues is waited for before anything is written: back pressure
//! ```
//!
//! Invariants:
//! 1. `Ingested::Stored` resolves its answer only when the record is persistent.
//! 2. One connection's messages are submitted in the order in which they were received.
//! 3. A message that is long, or takes long to decide on, delays its own connection only: see `deciding`.
//! 4. A message is decided on and routed by one plan (production and queues), that of the service which took it: a reload applies to
//!    the next message, never to half of one.

mod deciding;

pub(crate) use deciding::aside;

pub use crate::plan::{Bodies, Plan, PlannedService};

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use bytes::Bytes;
use hl7::ack;
use node::{Admission, Clock};
use store::Lsn;
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use crate::access::AccessGate;
use crate::duplicates::{Key, Seen, Window};
use crate::intake::{self, Answers, Inbound, Work};
use crate::message_log::{Destination, MessageLog, Refusal};
use crate::production::Service;
use crate::production::settings::Duplicates;
use crate::queue::Entry;
use crate::record::{self, MessageOrigin, Status};
use crate::timestamp::{TimestampCache, hl7_timestamp};

/// Segments of a message at most. Each takes 12 bytes of memory while the message is on its way, and more than once; so what senders may
/// have in memory follows from how many bytes they sent, also where they are two for a segment.
const SEGMENTS_MAX: usize = 1 << 20;

/// Of a message that is not taken for its size, the beginning is read for the answer.
const SEEN_BYTES: usize = 64 << 10;

/// Whether a message may have more segments than one may.
fn has_too_many_segments(raw: &[u8]) -> bool {
    raw.len() > 2 * SEGMENTS_MAX && memchr::memchr2_iter(b'\r', b'\n', raw).count() > SEGMENTS_MAX
}

/// Figures since the start.
#[derive(Debug, Default)]
pub struct EngineCounters {
    /// Messages stored.
    pub stored: AtomicU64,
    /// Outputs made.
    pub outputs: AtomicU64,
    /// Messages refused with AR or AE (stored nevertheless, unless the disk is full).
    pub refused: AtomicU64,
    /// Messages seen before.
    pub duplicates: AtomicU64,
    /// Messages refused since the disk was full, or no file descriptor was free.
    pub full: AtomicU64,
    /// Messages removed beyond the retention.
    pub pruned: AtomicU64,
    /// Delivered messages given up before their retention ended, since the disk was full.
    pub pruned_full: AtomicU64,
    /// Bytes between frames that belonged to none.
    pub junk_bytes: AtomicU64,
    /// Partial frames thrown away.
    pub partial: AtomicU64,
    /// Frames over the size bound.
    pub oversize: AtomicU64,
}

/// The result of ingesting a message.
#[derive(Debug)]
pub enum Ingested {
    /// Answer at once: nothing was stored, since it is stored already or cannot be.
    Now {
        /// MLLP frames to send.
        answer: Vec<u8>,
        /// Whether the message is stored (a duplicate acknowledged again).
        accepted: bool,
        /// Not stored, and another try changes nothing: it is too large, or has too many segments.
        lasts: bool,
    },
    /// Send nothing and close the connection: the node is stopping, so nothing can be promised.
    Closed,
    /// Answer once `durable` resolves. If it never does, the node failed or stopped: see [`Engine::lost`].
    Stored {
        /// Gives the id once the record is persistent.
        durable: oneshot::Receiver<Lsn>,
        /// MLLP frames to send then; empty where none is due.
        answer: Vec<u8>,
        /// The decision.
        status: Status,
        /// The message, for another answer should it come to that.
        raw: Bytes,
    },
}

impl Ingested {
    /// The answer to send on the connection once the message is durable, and whether the message is accepted.
    ///
    /// # Errors
    /// The node is stopping, and the message is not acknowledged.
    pub(crate) async fn answer(self, engine: &Engine, service: &Service) -> io::Result<(Vec<u8>, bool)> {
        let known = match self {
            Ingested::Stored { durable, answer, status, raw } => match durable.await {
                Ok(_) => return Ok((answer, !matches!(status, Status::Rejected | Status::Errored))),
                Err(_) => engine.lost(service, &raw),
            },
            known => known,
        };
        match known {
            Ingested::Now { answer, accepted, .. } => Ok((answer, accepted)),
            Ingested::Closed | Ingested::Stored { .. } => {
                Err(io::Error::other("the node is stopping; the message is not acknowledged"))
            }
        }
    }
}

/// How a message came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival<'a> {
    /// When, microseconds since 1970: it is decided on and stored with this time.
    pub(crate) at_us: i64,
    /// Where from, of one that is imported.
    pub(crate) origin: Option<&'a MessageOrigin>,
}

/// The reason why the ingest of a message waits; its connection is served meanwhile.
#[derive(Debug, Default)]
pub struct Waits {
    for_room: AtomicBool,
    began: Notify,
    /// A part of what came together with the message was taken, so that it is taken too.
    in_part: AtomicBool,
}

impl Waits {
    /// Resolves while the message waits for room in a queue, itself or with the one that it repeats, which may be for long; not while it
    /// is decided on or stored.
    pub async fn for_room(&self) {
        loop {
            let began = self.began.notified();
            if self.for_room.load(Ordering::Relaxed) {
                return;
            }
            began.await;
        }
    }

    /// Whether it waits for room just now.
    pub fn are_for_room(&self) -> bool {
        self.for_room.load(Ordering::Relaxed)
    }

    /// From now on the messages are the rest of a frame of which one was taken; or, with `false`, no more. A rest does not wait for room:
    /// its sender would give up and send the whole frame again, and each time the first messages would be delivered anew.
    pub(crate) fn rest_of_frame(&self, is_rest: bool) {
        self.in_part.store(is_rest, Ordering::Relaxed);
    }

    fn set(&self, for_room: bool) {
        self.for_room.store(for_room, Ordering::Relaxed);
        if for_room {
            self.began.notify_one();
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Engine {
    /// Where records go.
    pub message_log: Arc<MessageLog>,
    /// The time of day.
    pub clock: Clock,
    /// Figures.
    pub counters: EngineCounters,
    /// Connections open.
    pub connections: watch::Sender<u64>,
    /// Which peers may connect, and how much memory unfinished frames take.
    pub admission: Arc<Admission>,
    /// From where senders may connect; not set: from everywhere that their service allows.
    pub access: OnceLock<AccessGate>,
    bodies: Bodies,
    plan: RwLock<Arc<Plan>>,
    window: Mutex<Window>,
    stamp: Mutex<TimestampCache>,
    /// Rung when the medium was found full: messages that are done may be given up.
    pub pressed: Notify,
    /// Bytes of the longest record that was refused for it since room was made last.
    pub wanted: AtomicU64,
    /// A message was refused for a full medium, and no room was found since.
    pub is_full: AtomicBool,
    /// Rung when the outcome of a message in the window is known.
    settled: Notify,
    /// Turns on the threads that decide on long messages.
    deciders: Arc<Semaphore>,
    /// Makes the control ids of our own acknowledgements unique across starts: microseconds at the start, counted up.
    next_control_id: AtomicU64,
}

impl Engine {
    /// An engine that stores through `message_log`.
    pub fn new(
        message_log: Arc<MessageLog>,
        clock: Clock,
        plan: Plan,
        bodies: Bodies,
        window: Window,
        admission: Arc<Admission>,
    ) -> Arc<Self> {
        let first = u64::try_from(clock.now_us()).unwrap_or(0);
        Arc::new(Self {
            message_log,
            clock,
            counters: EngineCounters::default(),
            connections: watch::Sender::new(0),
            admission,
            access: OnceLock::new(),
            bodies,
            plan: RwLock::new(Arc::new(plan)),
            window: Mutex::new(window),
            stamp: Mutex::default(),
            settled: Notify::new(),
            pressed: Notify::new(),
            wanted: AtomicU64::new(0),
            deciders: Arc::new(Semaphore::new(deciding::THREADS)),
            is_full: AtomicBool::new(false),
            next_control_id: AtomicU64::new(first),
        })
    }

    /// The plan in force.
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another plan in force for the messages to come.
    pub fn replace_plan(&self, plan: Plan) {
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(plan);
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A control id that no other acknowledgement of this node has.
    pub fn control_id(&self) -> String {
        format!("T{:X}", self.next_control_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Ingests a message. Waits for room in its queues and, if the decision takes long, for the decision; `waits`
    /// reports for which.
    pub async fn ingest(&self, service: &Arc<PlannedService>, raw: Bytes, waits: &Waits) -> Ingested {
        self.ingest_as(service, raw, waits, Arrival { at_us: self.clock.now_us(), origin: None }).await
    }

    /// The same for a message that comes from elsewhere than a sender.
    pub(crate) async fn ingest_as(
        &self,
        service: &Arc<PlannedService>,
        raw: Bytes,
        waits: &Waits,
        arrival: Arrival<'_>,
    ) -> Ingested {
        if aside(raw.len(), || has_too_many_segments(&raw)) {
            count(&service.figures.oversize);
            count(&self.counters.oversize);
            let text = format!("the message has more than {SEGMENTS_MAX} segments");
            let seen = raw.slice(..raw.len().min(SEEN_BYTES));
            return Ingested::Now { answer: self.refuse_seen(service, &seen, text), accepted: false, lasts: true };
        }
        let now_us = arrival.at_us;
        let control_id = self.control_id();
        let (reading, unreadable) = aside(raw.len(), || intake::read(service, &raw));
        let inbound = aside(raw.len(), || Inbound::new(service, &raw, (&reading, unreadable), now_us, &control_id));
        let inbound = inbound.derived(arrival.origin);
        let timestamp = self.stamp.lock().unwrap_or_else(PoisonError::into_inner).at(&self.clock, now_us).to_owned();
        let answers = Answers::new(&inbound, timestamp, format!("{control_id}A"));
        let (claim, flagged) = match self.duplicate(&inbound, waits).await {
            Known::Again { durable: false } => return self.lost(service, &raw),
            Known::Again { durable: true } => {
                count(&self.counters.duplicates);
                count(&service.figures.duplicates);
                let answer = answers.frames(ack::Code::AA, None);
                return Ingested::Now { answer, accepted: true, lasts: false };
            }
            Known::Claimed { claim, flagged } => (claim, flagged),
        };
        if flagged {
            count(&self.counters.duplicates);
            count(&service.figures.duplicates);
        }
        let began = Instant::now();
        let Some(work) = self.decide(&inbound, service, flagged).await else { return Ingested::Closed };
        service.figures.decided(began.elapsed());
        let wait_for = if waits.in_part.load(Ordering::Relaxed) { &[] } else { &work.outputs[..] };
        for output in wait_for {
            let queue = &service.plan().queues[output.operation];
            // The moment that a receiver is given that is behind is short: a sender that has closed its side gets its answer behind it.
            waits.set(queue.is_full());
            tokio::select! {
                biased;
                () = queue.room() => {}
                // No receiver makes room any more: the refusal must not wait for it.
                () = self.message_log.until_failed() => break,
            }
        }
        waits.set(false);
        aside(raw.len(), || self.store(service, work, &answers, Some(claim)))
    }

    /// Takes bytes in that are no one message: they are stored, and refused for this problem.
    pub fn ingest_refused(&self, service: &PlannedService, raw: Bytes, problem: intake::MessageProblem) -> Ingested {
        aside(raw.len(), || self.ingest_refused_here(service, &raw, problem))
    }

    fn ingest_refused_here(&self, service: &PlannedService, raw: &Bytes, problem: intake::MessageProblem) -> Ingested {
        let now_us = self.clock.now_us();
        let control_id = self.control_id();
        let (reading, unreadable) = intake::read(service, raw);
        let inbound = Inbound::new(service, raw, (&reading, unreadable), now_us, &control_id);
        let answers = Answers::new(&inbound, hl7_timestamp(&self.clock, now_us), format!("{control_id}A"));
        let work = intake::refused(&inbound, Status::Rejected, problem, false);
        self.store(service, work, &answers, None)
    }

    fn store(&self, service: &PlannedService, work: Work, answers: &Answers<'_>, claim: Option<Claim<'_>>) -> Ingested {
        let answer = answers.frames(work.code, work.problem.as_ref());
        let (status, now_us, bytes) = (work.status, self.clock.now_us(), work.record.len() as u64);
        match self.submit(service.plan(), work) {
            Ok(durable) => {
                service.figures.took(status, answers.raw().len(), now_us);
                // A resend of a refused message is a new try, not a duplicate: its entry in the window is removed.
                if let (Some(claim), false) = (claim, matches!(status, Status::Rejected | Status::Errored)) {
                    claim.submitted();
                }
                Ingested::Stored { durable, answer, status, raw: answers.raw().clone() }
            }
            Err(Refusal::Closed) => Ingested::Closed,
            Err(refusal) => {
                let lasts = refusal == Refusal::TooLarge;
                if refusal == Refusal::Full {
                    self.wanted.fetch_max(bytes, Ordering::Relaxed);
                }
                Ingested::Now { answer: self.refuse(service, answers, &refusal), accepted: false, lasts }
            }
        }
    }

    /// The answer for a message that did not become durable: refused where the node has failed, with the reason; the sender keeps
    /// it. Nothing where the node is stopping.
    pub fn lost(&self, service: &Service, raw: &Bytes) -> Ingested {
        let Some(cause) = self.message_log.failed().borrow().clone() else { return Ingested::Closed };
        aside(raw.len(), || self.lost_here(service, raw, cause))
    }

    fn lost_here(&self, service: &Service, raw: &Bytes, cause: Arc<str>) -> Ingested {
        let control_id = self.control_id();
        let now_us = self.clock.now_us();
        let (reading, unreadable) = intake::read(service, raw);
        let inbound = Inbound::new(service, raw, (&reading, unreadable), now_us, &control_id);
        let answers = Answers::new(&inbound, hl7_timestamp(&self.clock, now_us), format!("{control_id}A"));
        let answer = self.refuse(service, &answers, &Refusal::Failed(cause));
        Ingested::Now { answer, accepted: false, lasts: false }
    }

    /// The answer to a message over the size bound, of which only the first bytes were `seen`.
    pub fn refuse_oversize(&self, service: &Service, seen: &Bytes) -> Vec<u8> {
        let bound = service.settings.intake().message_bytes;
        self.refuse_seen(service, seen, format!("the message is larger than {bound}"))
    }

    /// The answer to a message that is not stored for its size, of which the first bytes were `seen`.
    fn refuse_seen(&self, service: &Service, seen: &Bytes, text: String) -> Vec<u8> {
        let now_us = self.clock.now_us();
        let control_id = self.control_id();
        let (reading, unreadable) = intake::read(service, seen);
        let inbound = Inbound::new(service, seen, (&reading, unreadable), now_us, &control_id);
        let problem = intake::MessageProblem { code: 207, location: None, text };
        count(&self.counters.refused);
        service.figures.refused();
        Answers::new(&inbound, hl7_timestamp(&self.clock, now_us), format!("{control_id}A"))
            .frames(ack::Code::AR, Some(&problem))
    }

    /// Has the record of a decision stored, and its outputs queued once that is durable.
    ///
    /// # Errors
    /// As [`MessageLog::submit`].
    pub(crate) fn submit(&self, plan: &Plan, work: Work) -> Result<oneshot::Receiver<Lsn>, Refusal> {
        let outputs = work.outputs.len() as u64;
        let received_us = record::time_us(record::KIND_MESSAGE, &work.record).and_then(|at| i64::try_from(at).ok());
        let received_us = received_us.unwrap_or_default();
        let destinations = work
            .outputs
            .into_iter()
            .enumerate()
            .map(|(n, output)| {
                let queue = Arc::clone(&plan.queues[output.operation]);
                queue.reserve();
                let lane = queue.lane_of(output.key_hash);
                let index = u16::try_from(n).expect("intake makes fewer outputs than 65536");
                Destination {
                    queue,
                    lane,
                    entry: Entry {
                        id: 0,
                        output: index,
                        received_us,
                        charset: output.charset,
                        body: Some(output.body),
                    },
                }
            })
            .collect();
        let durable = self.message_log.submit(work.record, destinations)?;
        count(&self.counters.stored);
        self.counters.outputs.fetch_add(outputs, Ordering::Relaxed);
        if matches!(work.status, Status::Rejected | Status::Errored) {
            count(&self.counters.refused);
        }
        Ok(durable)
    }

    /// The answer for a message that was not stored: AR, since it is not the message's fault and may be sent again later.
    fn refuse(&self, service: &Service, answers: &Answers<'_>, refusal: &Refusal) -> Vec<u8> {
        service.figures.refused();
        // Logged for each message only if it is the message's own fault: a lasting trouble is logged when it begins and
        // ends.
        match refusal {
            Refusal::Full => {
                count(&self.counters.full);
                self.is_full.store(true, Ordering::Release);
                self.pressed.notify_one();
            }
            Refusal::Unavailable => count(&self.counters.full),
            Refusal::TooLarge | Refusal::Closed => {
                count(&self.counters.refused);
                tracing::error!(service = service.name, %refusal, "a message was not stored, and was refused to its sender");
            }
            Refusal::Failed(_) => count(&self.counters.refused),
        }
        let text = refusal.to_string();
        answers.frames(ack::Code::AR, Some(&intake::MessageProblem { code: 207, location: None, text }))
    }

    /// Looks the message up in the window, where its service has that set.
    async fn duplicate(&self, inbound: &Inbound<'_>, waits: &Waits) -> Known<'_> {
        let policy = inbound.service.settings.intake().duplicates;
        if inbound.message.is_err() || policy == Duplicates::Allow {
            return Known::Claimed { claim: Claim { engine: self, key: None }, flagged: false };
        }
        let key = Key::of(&inbound.keys);
        loop {
            let settled = self.settled.notified();
            let seen = self.window().see(key);
            match (policy, seen) {
                // The first one is acknowledged again only when it is on the medium, and it may yet be refused.
                (Duplicates::Drop, Seen::Pending) => {
                    // The first one may wait for room, for as long as its sender stays: so does this one.
                    waits.set(true);
                    settled.await;
                    waits.set(false);
                }
                (Duplicates::Drop, Seen::Same) => {
                    let durable = match self.message_log.barrier() {
                        Ok(Some(barrier)) => barrier.await.is_ok(),
                        Ok(None) => true,
                        Err(_) => false,
                    };
                    return Known::Again { durable };
                }
                // A copy of one that is still on its way in: its own outcome is not the other's.
                (_, Seen::Pending) => {
                    return Known::Claimed { claim: Claim { engine: self, key: None }, flagged: true };
                }
                (_, seen) => {
                    let claim = Claim { engine: self, key: Some(key) };
                    return Known::Claimed { claim, flagged: seen != Seen::New };
                }
            }
        }
    }
}

/// A message's place in the window while it is on its way in. Let go in any way but `submitted` (refused, its sender
/// gone, a panic), the message is forgotten, so that a resend is not taken for a duplicate and does not wait for it.
struct Claim<'e> {
    engine: &'e Engine,
    key: Option<Key>,
}

impl Claim<'_> {
    fn submitted(mut self) {
        if let Some(key) = self.key.take() {
            self.engine.window().submitted(key);
            self.engine.settled.notify_waiters();
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.engine.window().forget(key);
            self.engine.settled.notify_waiters();
        }
    }
}

/// The window's answer.
enum Known<'e> {
    /// Seen before and dropped: acknowledge again, if the first is durable.
    Again { durable: bool },
    /// To be stored.
    Claimed { claim: Claim<'e>, flagged: bool },
}

/// Counts one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
