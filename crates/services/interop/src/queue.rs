//! The queue in front of an operation: bounded, in lanes, each lane strictly in order.
//!
//! ```text
//!             key of the message -> lane           one connection a lane,
//! ledger ---> lane 0: [ 7 ][ 9 ][12 ] ----------->  one message outstanding
//!       \---> lane 1: [ 8 ][10 ][11 ] ----------->
//! ```
//!
//! Invariants:
//! 1. Entries enter in the order of their journal records (the ledger pushes in LSN order), and leave a lane from the
//!    head only, after their fate is known. So order by key holds whatever fails.
//! 2. An entry is durable before it enters: what is sent has been persisted.
//! 3. Memory is bounded: beyond `memory` bytes the body is left in the journal and read again when its turn comes.
//! 4. `depth` counts entries accepted and not yet done; services stop reading while it is at the bound. Connections that
//!    were past the check may overshoot by one message each; nothing is dropped for the bound's sake.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, watch};

use crate::production::{self, settings};

/// One output waiting for its delivery.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The message.
    pub id: u64,
    /// Which of its outputs.
    pub output: u16,
    /// The MLLP frame to send; `None` = read it from the journal.
    pub frame: Option<Bytes>,
}

/// A strict line of entries.
#[derive(Debug, Default)]
pub struct Lane {
    entries: Mutex<VecDeque<Entry>>,
    ready: Notify,
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        // The guarded code only moves entries; a panic elsewhere cannot leave the line half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an entry and returns the head, leaving it in the line.
    pub async fn head(&self) -> Entry {
        loop {
            if let Some(entry) = self.lock().front() {
                return entry.clone();
            }
            self.ready.notified().await;
        }
    }

    /// Entries in the line.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id at the head: nothing older waits in this line.
    pub fn oldest(&self) -> Option<u64> {
        self.lock().front().map(|entry| entry.id)
    }
}

/// What an operation's lanes are told: its settings, and whether it stands still.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Settings with what was prepared from them.
    pub operation: Arc<production::Operation>,
    /// Suspended: the head stays where it is.
    pub suspended: bool,
    /// No longer in the production: ends when its lines are empty.
    pub retired: bool,
}

/// Figures of one operation since the node started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Outputs delivered.
    pub delivered: AtomicU64,
    /// Outputs given up on.
    pub failed: AtomicU64,
    /// Tries that were followed by another.
    pub retried: AtomicU64,
}

/// The queue of one operation.
#[derive(Debug)]
pub struct Queue {
    /// The operation's name.
    pub name: String,
    lanes: Vec<Arc<Lane>>,
    depth: AtomicUsize,
    memory: AtomicUsize,
    bounds: Mutex<settings::Queue>,
    room: Notify,
    orders: watch::Sender<Orders>,
    /// Figures since the start.
    pub counters: Counters,
}

impl Queue {
    /// An empty queue with as many lanes as the settings ask for.
    pub fn new(operation: Arc<production::Operation>, suspended: bool) -> Self {
        let lanes = operation.settings.order().lanes.max(1);
        let bounds = operation.settings.queue();
        Self {
            name: operation.name.clone(),
            lanes: (0..lanes).map(|_| Arc::default()).collect(),
            depth: AtomicUsize::new(0),
            memory: AtomicUsize::new(0),
            bounds: Mutex::new(bounds),
            room: Notify::new(),
            orders: watch::Sender::new(Orders { operation, suspended, retired: false }),
            counters: Counters::default(),
        }
    }

    fn bounds(&self) -> settings::Queue {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lanes, for the tasks that serve them.
    pub fn lanes(&self) -> &[Arc<Lane>] {
        &self.lanes
    }

    /// The lane for messages whose key hashes to `hash`.
    pub fn lane_of(&self, hash: u64) -> usize {
        usize::try_from(hash % self.lanes.len() as u64).expect("smaller than the number of lanes")
    }

    /// A receiver of orders.
    pub fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    /// Changes the orders, waking every lane.
    pub fn order(&self, change: impl FnOnce(&mut Orders)) {
        self.orders.send_modify(change);
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner) = self.orders.borrow().operation.settings.queue();
        self.room.notify_waiters();
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

    /// Waits until the queue is below its bound.
    pub async fn room(&self) {
        loop {
            let notified = self.room.notified();
            if self.depth() < self.bounds().messages {
                return;
            }
            notified.await;
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
        if before >= self.bounds().messages {
            self.room.notify_waiters();
        }
    }

    /// Puts a durable entry at the end of its lane. It has been reserved.
    pub fn push(&self, lane: usize, mut entry: Entry) {
        if let Some(frame) = &entry.frame {
            let held = self.memory.fetch_add(frame.len(), Ordering::Relaxed);
            if held + frame.len() > self.bounds().memory.as_usize() {
                self.memory.fetch_sub(frame.len(), Ordering::Relaxed);
                entry.frame = None;
            }
        }
        let lane = &self.lanes[lane];
        lane.lock().push_back(entry);
        lane.ready.notify_one();
    }

    /// Takes the head off its lane, its fate being known.
    pub fn done(&self, lane: usize, entry: &Entry) {
        let head = self.lanes[lane].lock().pop_front().expect("only the lane's own task takes entries off");
        assert_eq!((head.id, head.output), (entry.id, entry.output), "an entry leaves from the head of its lane");
        if let Some(frame) = head.frame {
            self.memory.fetch_sub(frame.len(), Ordering::Relaxed);
        }
        self.release();
    }
}
