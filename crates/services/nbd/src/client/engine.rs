//! The client without its connection, as a state machine: jobs and received bytes in, bytes to send out.
//!
//! ```text
//!   callers -> ready --admit--> urgent --emit--> wires --receive--> finished
//!                ^                                 |
//!                |   copies of what is unflushed   |  acknowledged, not flushed: a copy is kept
//!                +--- first on a new connection ---+  the connection is lost: back to ready
//! ```
//!
//! Invariants:
//! * A flush succeeds only if the server confirmed it on a connection that held every write acknowledged before it.
//! * On a new connection the copies come first, then what was on the wire, then what is new.
//! * Memory is bounded: copies by `unflushed_bytes`, the wire by `queue_depth` and `in_flight_bytes`.
//! * After the first change that fails no further change succeeds (`poisoned`); without hope of a connection nothing does (`dead`).
//! * Bytes of a server go only to the range that was requested, and a reply that makes no sense ends the connection.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use device::DeviceError;

use super::job::{Aim, Job, JobStage, Part, Shape};
use super::options::ClientOptions;
use super::unflushed::{Unflushed, cost};
use super::wire::{Incoming, Wire};
use crate::protocol::asking::Opened;
use crate::protocol::request::Request;
use crate::protocol::{command, errno, export_flag};

/// Bytes that are made ready to be sent at a time.
const OUT_BYTES: usize = 256 << 10;

/// The largest read or write that is sent: larger ones gain nothing and hold others up.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// How a server makes writes persistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Persistence {
    /// By flushes, and by FUA if it has that.
    Flush { fua: bool },
    /// Only by FUA: every change has it.
    Fua,
    /// Not at all.
    Nothing,
}

impl Persistence {
    pub(super) fn of(opened: &Opened) -> Persistence {
        let fua = opened.facts.has(export_flag::FUA);
        match opened.facts.has(export_flag::FLUSH) {
            true => Persistence::Flush { fua },
            false if fua => Persistence::Fua,
            false => Persistence::Nothing,
        }
    }
}

/// Bounds, from the options.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    queue_depth: usize,
    in_flight_bytes: u64,
    unflushed_bytes: u64,
    request_timeout: Duration,
    reconnect_for: Duration,
}

impl Bounds {
    pub(super) fn of(options: &ClientOptions) -> Bounds {
        Bounds {
            queue_depth: options.queue_depth.max(1),
            in_flight_bytes: options.in_flight_bytes,
            unflushed_bytes: options.unflushed_bytes,
            request_timeout: options.request_timeout,
            reconnect_for: options.reconnect_for,
        }
    }
}

/// What was agreed on for the present connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) shape: Shape,
    pub(super) structured: bool,
    pub(super) allocation: Option<u32>,
    has_zeroes: bool,
}

/// A payload that is partly sent.
#[derive(Debug)]
struct Sending {
    cookie: u64,
    job: u64,
    part: Part,
    at: u64,
    /// The server answered before it had the payload.
    early: Option<u32>,
}

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The server does not answer: cut the connection.
    Cut,
    /// Requests waited too long: the device ends.
    End,
}

/// See the head comment of this module.
pub(super) struct Engine {
    name: String,
    /// The device's own block.
    block: u64,
    bounds: Bounds,
    persistence: Persistence,
    pub(super) terms: Option<Terms>,
    jobs: BTreeMap<u64, Job>,
    next_job: u64,
    ready: VecDeque<u64>,
    urgent: VecDeque<u64>,
    pub(super) wires: BTreeMap<u64, Wire>,
    next_cookie: u64,
    wire_bytes: u64,
    sending: Option<Sending>,
    pub(super) incoming: Option<Incoming>,
    unflushed: Unflushed,
    reserved: u64,
    has_relief: bool,
    /// The next copy to send again; `None` once all are.
    replay: Option<usize>,
    copies: usize,
    waiting_since: Option<Instant>,
    poisoned: Option<String>,
    dead: Option<String>,
    latency: Duration,
    /// Results that callers do not have yet.
    finished: Vec<(Job, Result<(), DeviceError>)>,
}

impl Engine {
    pub(super) fn new(name: &str, block: u64, persistence: Persistence, bounds: Bounds) -> Engine {
        Engine {
            name: name.to_owned(),
            block,
            bounds,
            persistence,
            terms: None,
            jobs: BTreeMap::new(),
            next_job: 0,
            ready: VecDeque::new(),
            urgent: VecDeque::new(),
            wires: BTreeMap::new(),
            next_cookie: 1,
            wire_bytes: 0,
            sending: None,
            incoming: None,
            unflushed: Unflushed::default(),
            reserved: 0,
            has_relief: false,
            replay: None,
            copies: 0,
            waiting_since: None,
            poisoned: None,
            dead: None,
            latency: Duration::ZERO,
            finished: Vec::new(),
        }
    }

    /// A connection was made.
    pub(super) fn connected(&mut self, opened: &Opened) {
        assert!(self.terms.is_none() && self.wires.is_empty(), "one connection at a time");
        let block = u64::from(opened.facts.min_block);
        let piece = u64::from(opened.facts.max_payload).min(PIECE_BYTES_MAX.max(block)) & !(block - 1);
        let shape = Shape { block, piece };
        let has_zeroes = opened.facts.has(export_flag::WRITE_ZEROES);
        self.terms = Some(Terms { shape, structured: opened.structured, allocation: opened.allocation, has_zeroes });
        self.replay = (!self.unflushed.is_empty()).then_some(0);
        self.settle();
    }

    /// A job of a caller.
    pub(super) fn push(&mut self, job: Job, now: Instant) {
        if self.dead.is_some() {
            return self.refuse(job);
        }
        self.ready.push_back(self.next_job);
        self.jobs.insert(self.next_job, job);
        self.next_job += 1;
        if self.terms.is_none() {
            self.waiting_since.get_or_insert(now);
        }
    }

    /// Refuses a job of a device that is poisoned or dead.
    fn refuse(&mut self, job: Job) {
        let why = self.dead.clone().unwrap_or_default();
        let error = match job.is_change() {
            true => DeviceError::Poisoned { name: self.name.clone() },
            false => job.failed(&self.name, io::Error::new(io::ErrorKind::NotConnected, why)),
        };
        self.finished.push((job, Err(error)));
    }

    /// Appends what is to be sent.
    pub(super) fn emit(&mut self, out: &mut Vec<u8>, now: Instant) {
        while out.len() < OUT_BYTES {
            if self.sending.is_some() {
                self.emit_payload(out, now);
                continue;
            }
            let Some(terms) = self.terms else { return };
            if self.wires.len() >= self.bounds.queue_depth {
                return;
            }
            let Some(id) = self.pick(terms) else { return };
            let job = self.jobs.get_mut(&id).expect("an urgent job is there");
            let part = job.next_part(terms.shape).expect("an urgent job has a part to send");
            let cost = u64::from(part.length);
            let takes_bytes = matches!(part.command, command::READ | command::WRITE);
            if takes_bytes && !self.wires.is_empty() && self.wire_bytes + cost > self.bounds.in_flight_bytes {
                return;
            }
            job.sent(&part);
            if job.next_part(terms.shape).is_none() {
                self.urgent.pop_front();
            }
            self.send(id, part, out, now);
        }
    }

    fn send(&mut self, job: u64, part: Part, out: &mut Vec<u8>, now: Instant) {
        let Part { command, flags, offset, length, .. } = part;
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        out.extend_from_slice(&Request { flags, command, cookie, offset, length }.encode());
        if matches!(command, command::READ | command::WRITE) {
            self.wire_bytes += u64::from(length);
        }
        let mark = self.unflushed.next();
        self.wires.insert(cookie, Wire { job, part, sent_at: now, received: 0, chunks: 0, error: 0, mark });
        if command == command::WRITE {
            self.sending = Some(Sending { cookie, job, part, at: offset, early: None });
        }
    }

    fn emit_payload(&mut self, out: &mut Vec<u8>, now: Instant) {
        let Some(sending) = &mut self.sending else { return };
        let end = sending.part.offset + u64::from(sending.part.length);
        let upto = end.min(sending.at + OUT_BYTES as u64);
        let bytes = self.jobs[&sending.job].payload(sending.part.place, sending.at, upto);
        out.extend_from_slice(bytes);
        sending.at += bytes.len() as u64;
        if sending.at == end {
            let (cookie, early) = (sending.cookie, sending.early);
            self.sending = None;
            if let Some(error) = early {
                // It cannot be a fault of the connection: those were reported when the reply came.
                let _ = self.answered(cookie, error, now);
            }
        }
    }

    /// The job of which the next part is sent.
    fn pick(&mut self, terms: Terms) -> Option<u64> {
        loop {
            if let Some(id) = self.urgent.front() {
                return Some(*id);
            }
            match self.replay {
                Some(at) => self.pick_copy(at, terms)?,
                None => self.admit(terms)?,
            }
        }
    }

    /// Begins to send the next copy again, unless it overlaps one on the wire.
    fn pick_copy(&mut self, at: usize, terms: Terms) -> Option<()> {
        let mut job = Job::copy(self.unflushed.get(at)?.clone());
        if self.jobs.values().any(|other| other.is_copy() && other.meets(&job, terms.shape.block)) {
            return None;
        }
        self.replay = Some(at + 1);
        self.copies += 1;
        job.as_bytes = !terms.has_zeroes;
        job.start(terms.shape);
        self.urgent.push_back(self.next_job);
        self.jobs.insert(self.next_job, job);
        self.next_job += 1;
        Some(())
    }

    /// Begins the first job that is ready; `None`: there is none, or it has to wait.
    fn admit(&mut self, terms: Terms) -> Option<()> {
        let id = *self.ready.front()?;
        let job = &self.jobs[&id];
        if job.is_change() && self.poisoned.is_some() {
            let job = self.jobs.remove(&id).expect("it is there");
            self.ready.pop_front();
            self.refuse(job);
            return Some(());
        }
        if job.aim == Aim::Flush {
            if !matches!(self.persistence, Persistence::Flush { .. }) {
                // What FUA made persistent needs none; and a server without both cannot do more.
                self.ready.pop_front();
                let job = self.jobs.remove(&id).expect("it is there");
                self.finished.push((job, Ok(())));
                return Some(());
            }
        } else if job.is_change() && !self.admit_change(id, terms)? {
            return Some(());
        }
        self.ready.pop_front();
        let job = self.jobs.get_mut(&id).expect("it is there");
        job.as_bytes = !terms.has_zeroes;
        job.start(terms.shape);
        self.urgent.push_back(id);
        Some(())
    }

    /// Decides how a write becomes persistent. `None`: it has to wait; `false`: something else comes first.
    fn admit_change(&mut self, id: u64, terms: Terms) -> Option<bool> {
        let job = &self.jobs[&id];
        let block = terms.shape.block;
        if block > self.block {
            let is_aligned = job.is_aligned(block);
            let in_the_way = |other: &&Job| {
                other.stage != JobStage::New
                    && matches!(other.aim, Aim::Write | Aim::Zeroes { .. })
                    && !(is_aligned && other.is_aligned(block))
                    && other.meets(job, block)
            };
            if self.jobs.values().any(|other| in_the_way(&other)) {
                return None;
            }
        }
        let Persistence::Flush { fua } = self.persistence else {
            self.jobs.get_mut(&id).expect("it is there").fua = self.persistence == Persistence::Fua;
            return Some(true);
        };
        let cost = cost(job.bytes, job.aim == Aim::Write);
        if job.wants_flush || cost > self.bounds.unflushed_bytes {
            // FUA covers only the write itself: it is enough where nothing else is unflushed.
            let alone = fua && self.unflushed.is_empty();
            let job = self.jobs.get_mut(&id).expect("it is there");
            (job.fua, job.flushes_after) = (alone, !alone);
            return Some(true);
        }
        if self.unflushed.bytes() + self.reserved + cost > self.bounds.unflushed_bytes {
            if self.has_relief || self.unflushed.is_empty() {
                return None;
            }
            let mut relief = Job::relief();
            relief.start(terms.shape);
            self.has_relief = true;
            self.urgent.push_back(self.next_job);
            self.jobs.insert(self.next_job, relief);
            self.next_job += 1;
            return Some(false);
        }
        self.reserved += cost;
        self.jobs.get_mut(&id).expect("it is there").reserved = cost;
        Some(true)
    }

    pub(super) fn job(&mut self, id: u64) -> &mut Job {
        self.jobs.get_mut(&id).expect("a request on the wire has its job")
    }

    /// A request was answered.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn answered(&mut self, cookie: u64, error: u32, now: Instant) -> Result<(), &'static str> {
        if error == errno::SHUTDOWN {
            return Err("the server ends");
        }
        if let Some(sending) = self.sending.as_mut().filter(|sending| sending.cookie == cookie) {
            sending.early = Some(error);
            return Ok(());
        }
        let Some(wire) = self.wires.remove(&cookie) else { return Err("a reply to no request") };
        if matches!(wire.part.command, command::READ | command::WRITE) {
            self.wire_bytes -= u64::from(wire.part.length);
        }
        let took = now.saturating_duration_since(wire.sent_at);
        self.latency = if self.latency.is_zero() { took } else { (self.latency * 15 + took) / 16 };
        if wire.part.command == command::READ && error == 0 && wire.received != u64::from(wire.part.length) {
            return Err("a read without all of its bytes");
        }
        if wire.part.command == command::FLUSH && error == 0 {
            self.unflushed.flushed(wire.mark);
        }
        let terms = self.terms.ok_or("no connection")?;
        let job = self.job(wire.job);
        job.outstanding -= 1;
        if error != 0 {
            job.error = if job.error == 0 { error } else { job.error };
            job.cut_short();
            self.urgent.retain(|id| *id != wire.job);
        }
        let job = &self.jobs[&wire.job];
        if !job.is_copy() {
            self.waiting_since = None;
        }
        if job.outstanding == 0 && (job.error != 0 || job.next_part(terms.shape).is_none()) {
            self.step(wire.job, terms);
        }
        Ok(())
    }

    /// All parts of a stage are answered.
    fn step(&mut self, id: u64, terms: Terms) {
        let job = self.jobs.get_mut(&id).expect("it is there");
        if job.error == errno::NOT_SUPPORTED && matches!(job.aim, Aim::Zeroes { .. }) && !job.as_bytes {
            // It has the command and cannot do it here: bytes always work.
            self.terms = Some(Terms { has_zeroes: false, ..terms });
            self.reserved -= job.reserved;
            job.reset();
            if job.is_copy() {
                job.as_bytes = true;
                job.start(terms.shape);
                self.urgent.push_back(id);
            } else {
                self.ready.push_front(id);
            }
            return;
        }
        if job.error == 0 && job.advance(terms.shape) {
            return self.urgent.push_back(id);
        }
        let job = self.jobs.remove(&id).expect("it is there");
        match job.error {
            0 => self.succeeded(job),
            number => self.failed(job, number),
        }
    }

    fn succeeded(&mut self, mut job: Job) {
        if job.is_copy() {
            self.copies -= 1;
            return self.settle();
        }
        self.has_relief &= !job.is_relief();
        self.reserved -= job.reserved;
        if job.is_change() && self.poisoned.is_some() {
            // Another change failed meanwhile: what is persistent is unknown, whatever the server answered to this one.
            return self.refuse(job);
        }
        if job.reserved > 0 {
            let kept = job.kept();
            self.unflushed.push(kept);
        }
        self.finished.push((job, Ok(())));
    }

    fn failed(&mut self, job: Job, number: u32) {
        let error = job.refused(&self.name, number);
        self.reserved -= job.reserved;
        if job.is_copy() {
            return self.end(&format!("an acknowledged write could not be sent again: {error}"));
        }
        if job.is_change() {
            self.poisoned.get_or_insert_with(|| error.to_string());
        }
        self.has_relief &= !job.is_relief();
        self.finished.push((job, Err(error)));
    }

    /// Whether the copies are all on the connection.
    fn settle(&mut self) {
        if self.copies == 0 && self.replay.is_none_or(|at| self.unflushed.get(at).is_none()) {
            self.replay = None;
            if self.jobs.is_empty() {
                self.waiting_since = None;
            }
        }
    }

    /// The connection is lost. What was on it is sent again on the next one, except by a device that is poisoned.
    pub(super) fn lost(&mut self, why: &str, now: Instant) {
        self.terms = None;
        self.wires.clear();
        (self.wire_bytes, self.reserved, self.copies, self.has_relief) = (0, 0, 0, false);
        (self.sending, self.incoming, self.replay) = (None, None, None);
        self.urgent.clear();
        self.jobs.retain(|_, job| !job.is_copy() && !job.is_relief());
        self.ready = self.jobs.keys().copied().collect();
        let mut is_stuck = false;
        for job in self.jobs.values_mut().filter(|job| job.stage != JobStage::New) {
            is_stuck |= now.saturating_duration_since(*job.first_lost.get_or_insert(now)) > self.bounds.reconnect_for;
            job.reset();
        }
        if !self.jobs.is_empty() {
            self.waiting_since.get_or_insert(now);
        }
        if self.poisoned.is_some() || is_stuck {
            self.end(why);
        }
    }

    /// Nothing succeeds any more.
    pub(super) fn end(&mut self, why: &str) {
        self.dead.get_or_insert_with(|| why.to_owned());
        self.poisoned.get_or_insert_with(|| why.to_owned());
        self.terms = None;
        self.wires.clear();
        (self.wire_bytes, self.reserved, self.copies, self.has_relief) = (0, 0, 0, false);
        (self.sending, self.incoming, self.replay, self.waiting_since) = (None, None, None, None);
        self.urgent.clear();
        self.ready.clear();
        self.unflushed.clear();
        for (_, job) in std::mem::take(&mut self.jobs) {
            let error = job.failed(&self.name, io::Error::new(io::ErrorKind::NotConnected, why.to_owned()));
            self.finished.push((job, Err(error)));
        }
    }

    /// When [`Engine::due`] has something to say.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let reply = self.wires.first_key_value().map(|(_, wire)| wire.sent_at + self.bounds.request_timeout);
        let connection =
            self.waiting_since.filter(|_| !self.is_settled()).map(|since| since + self.bounds.reconnect_for);
        [reply, connection].into_iter().flatten().min()
    }

    /// What is due.
    pub(super) fn due(&self, now: Instant) -> Option<Due> {
        let is_over = self.waiting_since.is_some_and(|since| since + self.bounds.reconnect_for <= now);
        if is_over && !self.is_settled() {
            return Some(Due::End);
        }
        let oldest = self.wires.first_key_value().map(|(_, wire)| wire.sent_at);
        oldest.filter(|oldest| *oldest + self.bounds.request_timeout <= now).map(|_| Due::Cut)
    }

    /// Whether the copies are on the connection, so that requests are answered.
    pub(super) fn is_settled(&self) -> bool {
        self.terms.is_some() && self.replay.is_none()
    }

    pub(super) fn poisoned(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.is_some()
    }

    /// Whether there are results for [`Engine::deliver`].
    pub(super) fn has_results(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Gives callers their results; sinks of theirs run inside.
    pub(super) fn deliver(&mut self) {
        self.finished.drain(..).for_each(|(job, result)| job.finish(result));
    }

    /// Jobs that are not finished.
    pub(super) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.unflushed.bytes()
    }

    pub(super) fn latency(&self) -> Duration {
        self.latency
    }
}
