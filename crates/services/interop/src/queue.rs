//! The queue in front of an operation: bounded, in lanes, each lane strictly in order.
//!
//! ```text
//!             key of the message -> lane           one connection a lane,
//! message log ---> lane 0: [ 7 ][ 9 ][12 ] ----------->  one message outstanding
//!       \---> lane 1: [ 8 ][10 ][11 ] ----------->
//! ```
//!
//! Invariants:
//! 1. Entries enter in the order of their journal records (the message log pushes in LSN order), and leave a lane from
//!    the head only, after their outcome is known, or from where they are once they are set aside. So order by key holds through any
//!    failure.
//! 2. An entry is durable before it enters: only persistent outputs are sent.
//! 3. Memory is bounded: beyond `memory` bytes the body is left in the store and read again when its turn comes. Bodies
//!    that share a record keep the whole of it, so that the bound can be exceeded by 7/8.
//! 4. While a receiver nearly keeps up, services go at its pace: where the bodies in memory are more than a small part of
//!    their bound they wait, `PACE` at most for each message. So what is received is sent a moment later, and from memory.
//!    A wait that was of no use is not repeated for `FUTILE`: a slow receiver does not stop the others.
//! 5. `depth` counts entries accepted and not yet done; services stop reading while it is at the bound. Connections that
//!    were past the check may overshoot by one message each; nothing is dropped for the bound's sake.

mod connecting;
pub mod hindrance;
mod lane;
pub mod progress;

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hl7::{Message, Path};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::figures::OperationFigures;
use crate::production;

use connecting::ConnectTries;
use hindrance::{Reached, RequiredOperation};
pub use lane::{Entry, Lane, SetAsideDone, SetAsideOrder, SetAsideRefusal};

/// How long a message may wait at a service for a receiver that is behind. 50 ms: above the 23.7 ms a message that the
/// published workload leaves each of its 128 senders at 5,399 a second, far below any sender's patience.
const PACE: Duration = Duration::from_millis(50);

/// A receiver is behind if more than this part of the memory for bodies is in use: 1/16, by default 4 MiB. That is about a
/// quarter of a second of the published workload (messages of 2.5 KB, 8,000 a second for each receiver).
const BEHIND_PART: usize = 16;

/// How long no message waits for a receiver that did not make room within `PACE`: such waits then cost a connection a
/// twentieth of its time at most.
const FUTILE: Duration = Duration::from_secs(1);

/// Bodies share the memory of their records until this part of a queue's memory is in use: 1/8. Those that come later are
/// copied, since they may wait for long, and a record is up to eight times as large as a body of it that shares it.
const SHARED_PART: usize = 8;

/// Bodies read from the store at a time, when their turn comes: bytes, and entries.
const REFILL_BYTES: usize = 4 << 20;
const REFILL_ENTRIES: usize = 256;

/// The state that an operation's lanes share: its settings, and whether it is suspended.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Settings, with the values prepared from them.
    pub operation: Arc<production::Operation>,
    /// Suspended: the head stays where it is.
    pub suspended: Option<Suspension>,
    /// Somebody has started it outside its schedule, up to this time, microseconds since 1970.
    pub started_until_us: Option<i64>,
    /// No longer in the production: gives its connections back when its lines are empty.
    pub retired: bool,
}

/// Why an operation is suspended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// Since when, microseconds since 1970.
    pub since_us: i64,
    /// By whom, or the answer that caused it.
    pub reason: Arc<str>,
}

/// Figures of one operation since the node started.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Outputs delivered.
    pub delivered: AtomicU64,
    /// Outputs given up on.
    pub failed: AtomicU64,
    /// Tries that were followed by another.
    pub retried: AtomicU64,
    /// Outputs set aside.
    pub set_aside: AtomicU64,
}

/// The queue of one operation.
#[derive(Debug)]
pub struct Queue {
    /// The operation's name.
    pub name: String,
    /// The path whose value keeps order; fixed with the lanes, since it assigned the waiting messages to their lanes.
    key: Option<Path>,
    lanes: Vec<Arc<Lane>>,
    depth: AtomicUsize,
    memory: AtomicUsize,
    /// The last attempt succeeded: the receiver takes messages.
    flowing: AtomicBool,
    /// No message waits for the receiver before this, milliseconds since `began`.
    paced_from_ms: AtomicU64,
    began: Instant,
    messages_max: AtomicUsize,
    memory_max: AtomicUsize,
    room: Notify,
    orders: watch::Sender<Orders>,
    /// What its last try to connect came to.
    reached: Mutex<Reached>,
    /// Somebody waits for its connection: a lane with nothing to send connects.
    wanted: Notify,
    /// When one may.
    tries: Mutex<ConnectTries>,
    /// A lane's task ended by a panic: the messages in the lane are not delivered before the next start.
    broken: AtomicBool,
    /// Figures since the start.
    pub counters: QueueCounters,
    /// More of them, for metrics.
    pub figures: OperationFigures,
}

/// See [`Queue::key_hash`].
pub(crate) fn key_hash(key: Option<&Path>, message: &Message<'_>) -> u64 {
    key.map_or(0, |path| FixedState::default().hash_one(message.get(path).bytes()))
}

impl Queue {
    /// An empty queue with as many lanes as in the settings.
    pub fn new(operation: Arc<production::Operation>, suspended: Option<Suspension>) -> Self {
        let lanes = operation.settings.order().lanes.max(1);
        let bounds = operation.settings.queue();
        Self {
            name: operation.name.clone(),
            key: operation.key.clone(),
            lanes: (0..lanes).map(|_| Arc::default()).collect(),
            depth: AtomicUsize::new(0),
            memory: AtomicUsize::new(0),
            flowing: AtomicBool::new(false),
            paced_from_ms: AtomicU64::new(0),
            began: Instant::now(),
            messages_max: AtomicUsize::new(bounds.messages),
            memory_max: AtomicUsize::new(bounds.memory.as_usize()),
            room: Notify::new(),
            orders: watch::Sender::new(Orders { operation, suspended, started_until_us: None, retired: false }),
            reached: Mutex::default(),
            wanted: Notify::new(),
            tries: Mutex::default(),
            broken: AtomicBool::new(false),
            counters: QueueCounters::default(),
            figures: OperationFigures::default(),
        }
    }

    fn messages_max(&self) -> usize {
        self.messages_max.load(Ordering::Relaxed)
    }

    fn memory_max(&self) -> usize {
        self.memory_max.load(Ordering::Relaxed)
    }

    /// The lanes, for the tasks that serve them.
    pub fn lanes(&self) -> &[Arc<Lane>] {
        &self.lanes
    }

    /// Hash of the value that keeps order; 0 where the order is one strict line. The same at each start, so that
    /// recovery gives messages the same lanes.
    pub fn key_hash(&self, message: &Message<'_>) -> u64 {
        key_hash(self.key.as_ref(), message)
    }

    /// The lane for messages whose key hashes to `hash`.
    pub fn lane_of(&self, hash: u64) -> usize {
        usize::try_from(hash % self.lanes.len() as u64).expect("smaller than the number of lanes")
    }

    /// A lane's task has ended by a panic: the operation is stopped until the next start.
    pub fn break_down(&self, now_us: i64) {
        self.broken.store(true, Ordering::Release);
        let reason = "a programming error stopped it until the next start".into();
        self.order(|orders| orders.suspended = Some(Suspension { since_us: now_us, reason }));
    }

    /// Whether it is stopped because of a panic.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// A receiver of orders.
    pub fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    /// Changes the orders, waking every lane.
    pub fn order(&self, change: impl FnOnce(&mut Orders)) {
        self.orders.send_modify(change);
        self.tries().start_over();
        let bounds = self.orders.borrow().operation.settings.queue();
        self.messages_max.store(bounds.messages, Ordering::Relaxed);
        self.memory_max.store(bounds.memory.as_usize(), Ordering::Relaxed);
        self.room.notify_waiters();
    }

    fn tries(&self) -> MutexGuard<'_, ConnectTries> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a try to connect came to, by a message.
    pub fn note_reached(&self, reached: Reached) {
        if reached == Reached::Connected {
            self.tries().succeeded();
        }
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = reached;
    }

    /// Whether a lane that has nothing to send is to connect now, for others; then it says by [`tried_to_connect`](Queue::tried_to_connect)
    /// what that came to. One at a time does, and none in the pause after a try that failed.
    pub fn begins_to_connect(&self) -> bool {
        self.tries().begin(Instant::now())
    }

    /// Notes what a try to connect for others came to.
    pub fn tried_to_connect(&self, reached: Reached) {
        if reached != Reached::Connected {
            let retry = self.orders.borrow().operation.settings.retry();
            self.tries().failed(Instant::now(), |failures| retry.pause_after(failures));
        }
        self.note_reached(reached);
    }

    /// What is the matter with its connection, for an operation that requires it. Where it has none, a lane that has nothing to send tries.
    pub fn required(&self, now_us: i64) -> RequiredOperation {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.orders.borrow().required(now_us, reached)
    }

    /// Has a lane that has nothing to send connect, where one may now.
    pub fn want_connection(&self) {
        if self.tries().may_begin(Instant::now()) {
            self.wanted.notify_one();
        }
    }

    /// Resolves once somebody waits for its connection.
    pub async fn connection_wanted(&self) {
        self.wanted.notified().await;
    }

    /// Entries accepted and not done.
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Bytes of bodies held in memory.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// The oldest message that still waits here.
    pub fn oldest(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.oldest()).min()
    }

    /// When the message that has waited longest here was received, microseconds since 1970; none where nothing waits. Takes no lock.
    pub fn oldest_us(&self) -> Option<i64> {
        self.lanes.iter().filter_map(|lane| lane.head_us()).min()
    }

    /// Waits until the queue is below its bound, and a moment for a receiver that is behind.
    pub async fn room(&self) {
        let mut patience = None;
        loop {
            let notified = self.room.notified();
            if self.is_full() {
                notified.await;
            } else if self.is_behind() && self.is_paced() {
                let until = *patience.get_or_insert_with(|| Instant::now() + PACE);
                if timeout_at(until, notified).await.is_err() {
                    self.pace_later();
                    return;
                }
            } else {
                return;
            }
        }
    }

    /// Whether the queue is at its bound: messages wait until the receiver has taken some, possibly for long.
    pub fn is_full(&self) -> bool {
        self.depth() >= self.messages_max()
    }

    /// Whether the receiver takes messages and has not kept up.
    fn is_behind(&self) -> bool {
        self.flowing.load(Ordering::Relaxed) && self.memory() > self.memory_max() / BEHIND_PART
    }

    /// Whether waiting for the receiver is of use, as far as is known.
    fn is_paced(&self) -> bool {
        self.began.elapsed().as_millis() as u64 >= self.paced_from_ms.load(Ordering::Relaxed)
    }

    /// Remembers that a wait was of no use.
    fn pace_later(&self) {
        let from = self.began.elapsed() + FUTILE;
        self.paced_from_ms.store(from.as_millis() as u64, Ordering::Relaxed);
    }

    /// Sets whether the receiver takes messages.
    pub fn flows(&self, flowing: bool) {
        if self.flowing.swap(flowing, Ordering::Relaxed) != flowing {
            self.room.notify_waiters();
        }
    }

    /// Counts an entry that is about to be written to the journal.
    pub fn reserve(&self) {
        self.depth.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back `reserve`, where the journal refused.
    pub fn release(&self) {
        let before = self.depth.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "released more entries than were reserved");
        if before >= self.messages_max() {
            self.room.notify_waiters();
        }
    }

    /// Puts a durable entry at the end of its lane. It has been reserved.
    pub fn push(&self, lane: usize, mut entry: Entry) {
        if let Some(body) = &entry.body {
            let held = self.memory.fetch_add(body.len(), Ordering::Relaxed);
            if held + body.len() > self.memory_max() {
                self.memory.fetch_sub(body.len(), Ordering::Relaxed);
                entry.body = None;
            } else if held > self.memory_max() / SHARED_PART {
                entry.body = Some(Bytes::copy_from_slice(body));
            }
        }
        self.lanes[lane].push(entry);
    }

    /// Takes the head off its lane, its outcome being known.
    pub fn done(&self, lane: usize, entry: &Entry) {
        let mut line = self.lanes[lane].lock();
        let head = line.pop_front().expect("only the lane's own task takes entries off");
        self.lanes[lane].note_head(&line);
        drop(line);
        assert_eq!((head.id, head.output), (entry.id, entry.output), "an entry leaves from the head of its lane");
        self.gone(head);
    }

    /// Takes the outputs of a message that was set aside out of its lane; called by the lane's own task.
    pub fn remove(&self, lane: usize, id: u64) {
        let mut removed = Vec::new();
        let mut line = self.lanes[lane].lock();
        line.retain_mut(|entry| {
            let stays = entry.id != id;
            if !stays {
                removed.push(entry.clone());
            }
            stays
        });
        self.lanes[lane].note_head(&line);
        drop(line);
        removed.into_iter().for_each(|entry| self.gone(entry));
    }

    /// Gives back what an entry has taken that has left its lane.
    fn gone(&self, entry: Entry) {
        if let Some(body) = entry.body {
            let behind = self.is_behind();
            self.memory.fetch_sub(body.len(), Ordering::Relaxed);
            if behind && !self.is_behind() {
                self.room.notify_waiters();
            }
        }
        self.release();
    }

    /// Puts bodies read from the store to the entries at the head of a lane, in order.
    pub fn refill(&self, lane: usize, bodies: Vec<Bytes>) {
        let mut line = self.lanes[lane].lock();
        for (entry, body) in line.iter_mut().zip(bodies) {
            assert!(entry.body.is_none(), "only the lane's own task takes entries off and fills them");
            self.memory.fetch_add(body.len(), Ordering::Relaxed);
            entry.body = Some(body);
        }
    }

    /// Bytes of bodies that are worth reading ahead.
    pub fn refill_bytes(&self) -> usize {
        REFILL_BYTES.min(self.memory_max())
    }
}
