//! The bandwidth of one set of modules or drives, shared by everything that is placed on it.
//!
//! ```text
//!   access of queue q at time t
//!     pattern      does it follow a recent access, or fall in an open unit?             recent.rs
//!     n            queues with an access in progress at t, including this one
//!     gate         one access after the other, each for the least time that it uses of the medium
//!     deadline     the later of   t + time among n   and   moment it passed the gate + time alone
//! ```
//!
//! The first term is processor sharing: the throughput of n threads together, as measured. The second keeps the sum below
//! the best measured throughput, whatever the pauses of the threads. Reads and writes pass the same gate and count each
//! other in n, so each pays for what the other uses. Shelves that share modules (Dual mode: a part as memory, a part as
//! App Direct) share the budget.
//!
//! Invariants: deadlines depend only on the order of the calls and their times; a deadline is never before `t + alone`;
//! the gate never moves back.
//!
//! A queue counts as in progress until slightly after its deadline (a quarter of its access), so that a busy thread
//! does not appear idle between two accesses.

mod recent;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use recent::{OpenUnits, Recent};

use crate::medium::{Direction, Pattern, Store};
use crate::model::{Access, LINE_BYTES, Model};

/// One access to a place on the medium.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The device; offsets of different places are unrelated.
    pub place: u64,
    /// Read or write.
    pub direction: Direction,
    /// Where it starts.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
    /// Whether the thread has other such accesses in progress.
    pub overlapped: bool,
    /// How a write is stored; `None`: in the way of the model's kind of device.
    pub store: Option<Store>,
    /// Its pattern, if the caller gives one; `None`: determined from recent accesses.
    pub pattern: Option<Pattern>,
}

impl Request {
    /// A request as a device makes it: it waits for the result, stores in the way of the medium's kind of device, and
    /// its pattern is unknown.
    pub fn new(place: u64, direction: Direction, offset: u64, bytes: u64) -> Request {
        Request { place, direction, offset, bytes, overlapped: false, store: None, pattern: None }
    }
}

/// Counters of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Reads and writes.
    pub accesses: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes that the medium itself wrote, in whole access units.
    pub medium_written: u64,
    /// Operations whose native time was longer than the model's; none if a calibration passed.
    pub late: u64,
    /// The sum of their lateness, nanoseconds.
    pub late_ns: f64,
}

impl Traffic {
    /// Bytes that the medium wrote for each byte written; 1 if nothing was written.
    pub fn amplification(&self) -> f64 {
        if self.written == 0 { 1.0 } else { self.medium_written as f64 / self.written as f64 }
    }
}

/// The shared bandwidth.
#[derive(Debug)]
pub struct Budget {
    /// The origin of timed nanoseconds.
    origin: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queues: Vec<Queue>,
    gate: f64,
    recent: Recent,
    units: Option<OpenUnits>,
    traffic: Traffic,
    /// Place and number of the last line that was written back.
    last_line: Option<(u64, u64)>,
}

/// An access in progress.
#[derive(Debug)]
struct Queue {
    number: u64,
    /// The end of its progress.
    until: f64,
}

impl Budget {
    /// The bandwidth of the modules of `model`, completely unused.
    pub fn new(model: &Model) -> Arc<Budget> {
        let units = model.unit().map(OpenUnits::new);
        let state = State {
            queues: Vec::new(),
            gate: 0.0,
            recent: Recent::default(),
            units,
            traffic: Traffic::default(),
            last_line: None,
        };
        Arc::new(Budget { origin: Instant::now(), state: Mutex::new(state) })
    }

    /// Charges an access of queue `queue` at time `now`, in nanoseconds; returns when it is complete.
    pub fn take(&self, model: &Model, queue: u64, now: f64, request: &Request) -> f64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let access = Access {
            direction: request.direction,
            pattern: state.pattern(request),
            store: request.store.unwrap_or_else(|| model.store(request.bytes)),
            bytes: request.bytes,
            overlapped: request.overlapped,
        };
        let penalty = if state.count(request, access.store) { model.reflush() } else { 0.0 };
        let threads = state.under_way(queue, now);
        let passed = state.gate.max(now);
        state.gate = passed + model.at_least(&access);
        let deadline = (now + model.among(&access, threads)).max(passed + model.alone(&access)) + penalty;
        state.enter(queue, now, deadline);
        deadline
    }

    /// Counters so far.
    pub fn traffic(&self) -> Traffic {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).traffic
    }

    /// Records an operation that ended after its deadline.
    pub(crate) fn note_late(&self, by_ns: f64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.traffic.late += 1;
        state.traffic.late_ns += by_ns;
    }

    /// Nanoseconds of real time since the budget was created.
    pub fn now(&self) -> f64 {
        self.origin.elapsed().as_nanos() as f64
    }

    /// The real moment of a deadline.
    pub fn moment(&self, nanoseconds: f64) -> Instant {
        self.origin + Duration::from_nanos(nanoseconds as u64)
    }
}

impl State {
    /// An access that follows a recent one, or joins an open unit, is sequential.
    fn pattern(&mut self, request: &Request) -> Pattern {
        let follows = self.recent.follows(request.place, request.offset, request.bytes);
        request.pattern.unwrap_or(if follows { Pattern::Sequential } else { Pattern::Random })
    }

    /// Counts the traffic; returns whether this writes back the same line as the last write-back.
    fn count(&mut self, request: &Request, store: Store) -> bool {
        self.traffic.accesses += 1;
        if request.direction == Direction::Read {
            self.traffic.read += request.bytes;
            return false;
        }
        self.traffic.written += request.bytes;
        self.traffic.medium_written += match &mut self.units {
            Some(units) => units.write(request.place, request.offset, request.bytes),
            None => request.bytes,
        };
        let first = request.offset / LINE_BYTES;
        let last = (request.offset + request.bytes.max(1) - 1) / LINE_BYTES;
        let again = store == Store::Clwb && self.last_line == Some((request.place, first));
        self.last_line = (store == Store::Clwb).then_some((request.place, last));
        again
    }

    /// Number of queues with an access in progress at `now`, including `queue`.
    fn under_way(&self, queue: u64, now: f64) -> u32 {
        let others = self.queues.iter().filter(|other| other.number != queue && other.until >= now);
        1 + others.count() as u32
    }

    fn enter(&mut self, queue: u64, now: f64, deadline: f64) {
        let until = deadline + (deadline - now) / 4.0;
        match self.queues.iter_mut().find(|known| known.number == queue) {
            Some(known) => known.until = until,
            None => {
                // Threads come and go: those that are long complete are removed. An access in progress is never
                // removed.
                self.queues.retain(|known| known.until >= now);
                self.queues.push(Queue { number: queue, until });
            }
        }
    }
}

#[cfg(test)]
mod tests;
