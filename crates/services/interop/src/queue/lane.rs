//! A strict line of entries, and what its task is to do and does with the one at its head.
//!
//! Invariant: only the lane's own task takes entries off and fills in their bodies. Whoever wants one set aside gives an order, which
//! the task carries out between two tries: never while a message is sent and its answer is not known.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hl7::charset::Charset;
use tokio::sync::{Notify, oneshot};

use super::REFILL_ENTRIES;
use super::progress::{LaneEvent, LaneProgress};

/// One output waiting for its delivery.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The message.
    pub id: u64,
    /// Which of its outputs.
    pub output: u16,
    /// When the message came in, microseconds since 1970.
    pub received_us: i64,
    /// The charset of the output where it declares none.
    pub charset: Option<Charset>,
    /// The message to send; `None` = read it from the store.
    pub body: Option<Bytes>,
}

/// A strict line of entries.
#[derive(Debug, Default)]
pub struct Lane {
    entries: Mutex<VecDeque<Entry>>,
    ready: Notify,
    /// When the message at the head was received, for readers without the lock; 0: nothing waits.
    head_us: AtomicI64,
    progress: Mutex<LaneProgress>,
    /// What it is to set aside, and whether its task has ended.
    set_asides: Mutex<SetAsides>,
    set_aside_ordered: Notify,
}

/// An order to set a message aside. The lane's task carries it out between two tries: what was sent has its answer then.
#[derive(Debug)]
pub struct SetAsideOrder {
    /// The message.
    pub id: u64,
    /// Who gave the order.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Gets what became of it; dropped where the task ends.
    pub answer: oneshot::Sender<Result<SetAsideDone, SetAsideRefusal>>,
}

/// A message was set aside, durably.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAsideDone {
    /// How many of its outputs.
    pub outputs: usize,
    /// When, microseconds since 1970.
    pub at_us: i64,
}

/// Why a message was not set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetAsideRefusal {
    /// It is not in the lane, or no more: its outcome is known.
    NotThere,
    /// That could not be stored: it stays where it is.
    NotStored(String),
}

#[derive(Debug, Default)]
struct SetAsides {
    orders: Vec<SetAsideOrder>,
    is_closed: bool,
}

/// Orders of a lane that wait at most. More are refused: each is carried out within one try.
const SET_ASIDES_MAX: usize = 1_000;

impl Lane {
    pub(super) fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        // The guarded code only moves entries; a panic elsewhere cannot leave the line half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an entry at the end.
    pub(super) fn push(&self, entry: Entry) {
        let mut line = self.lock();
        line.push_back(entry);
        if line.len() == 1 {
            self.note_head(&line);
        }
        drop(line);
        self.ready.notify_one();
    }

    /// Notes the new head, for readers without the lock that the caller has.
    pub(super) fn note_head(&self, line: &VecDeque<Entry>) {
        self.head_us.store(line.front().map_or(0, |entry| entry.received_us), Ordering::Relaxed);
    }

    /// When the message at the head was received, microseconds since 1970; none where nothing waits. Takes no lock.
    pub(super) fn head_us(&self) -> Option<i64> {
        Some(self.head_us.load(Ordering::Relaxed)).filter(|us| *us != 0)
    }

    /// Something has happened to the message at the head.
    pub fn note(&self, event: LaneEvent, now_us: i64) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).apply(event, now_us);
    }

    /// What it does at present.
    pub fn progress(&self) -> LaneProgress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_asides(&self) -> MutexGuard<'_, SetAsides> {
        self.set_asides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Orders its task to set a message aside; false where no task carries it out any more, or too many wait.
    pub fn order_set_aside(&self, order: SetAsideOrder) -> bool {
        let mut set_asides = self.set_asides();
        if set_asides.is_closed || set_asides.orders.len() >= SET_ASIDES_MAX {
            return false;
        }
        set_asides.orders.push(order);
        drop(set_asides);
        self.set_aside_ordered.notify_one();
        true
    }

    /// Resolves once an order was given.
    pub async fn set_aside_ordered(&self) {
        self.set_aside_ordered.notified().await;
    }

    /// The orders to carry out, for its task.
    pub fn take_set_asides(&self) -> Vec<SetAsideOrder> {
        std::mem::take(&mut self.set_asides().orders)
    }

    /// Its task ends: orders are carried out no more, and whoever waits for one learns it.
    pub fn close_set_asides(&self) {
        let mut set_asides = self.set_asides();
        set_asides.is_closed = true;
        set_asides.orders.clear();
    }

    /// The outputs of a message that wait here.
    pub fn outputs_of(&self, id: u64) -> Vec<u16> {
        self.lock().iter().filter(|entry| entry.id == id).map(|entry| entry.output).collect()
    }

    /// How many entries are ahead of one; none where it is not here.
    pub fn ahead_of(&self, id: u64, output: u16) -> Option<usize> {
        self.lock().iter().position(|entry| (entry.id, entry.output) == (id, output))
    }

    /// The first entries, `max` at most: message, output, and when the message came in.
    pub fn first(&self, max: usize) -> Vec<(u64, u16, i64)> {
        self.lock().iter().take(max).map(|entry| (entry.id, entry.output, entry.received_us)).collect()
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

    /// The entries at the head whose bodies are in the journal only, up to the first that is in memory.
    pub fn unread(&self) -> Vec<(u64, u16)> {
        let line = self.lock();
        let unread = line.iter().take_while(|entry| entry.body.is_none());
        unread.take(REFILL_ENTRIES).map(|entry| (entry.id, entry.output)).collect()
    }

    /// The entries at the head whose bodies are in memory: `max` at most, of `bytes` together, and the first in any case.
    pub fn held(&self, max: usize, bytes: usize) -> Vec<(Entry, Bytes)> {
        let mut room = bytes;
        let line = self.lock();
        let held = line.iter().map_while(|entry| Some((entry.clone(), entry.body.clone()?)));
        let fits = held.take(max).enumerate().map_while(|(at, (entry, body))| {
            let fits = at == 0 || body.len() <= room;
            room = room.saturating_sub(body.len());
            fits.then_some((entry, body))
        });
        fits.collect()
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
