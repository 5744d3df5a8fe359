//! Outbound operations: a task for each lane takes the head of its lane, sends it, waits for its outcome, and
//! continues.
//!
//! ```text
//!            +------------------------------ next --------------------------------+
//!            v                                                                     |
//!   head of the lane --> attempt --> Answer --> reply::decide --> Complete / Fail -+--> written to the message log
//!            ^                                       |
//!            +------- pause, same message -----------+--> Suspend: the head stays until it is resumed
//!
//!   between two tries: orders to set a message aside --> durable --> it leaves the lane, the next goes on
//! ```
//!
//! Invariants:
//! 1. One message outstanding a lane, or one group that is answered in order (files); the head leaves only when its outcome is
//!    known. Order holds through any failure.
//! 2. A socket is closed if an answer on it was missing, belonged to another message or could not be read, so that a
//!    late answer cannot match a later message.
//! 3. A message is sent again only where its outcome is unknown or the reply table has `retry`.
//! 4. Once the node has failed nothing more is sent: its outcome could not be recorded.
//! 5. A message is set aside only between two tries, and leaves the lane when that is durable. So one that was sent has its answer, or
//!    is known not to have one; and whatever the moment of a crash, the next one is not sent ahead of one that is not set aside.
//! 6. Nothing is sent while there is a [hindrance](crate::queue::hindrance): it is looked for before each try. One that time ends is looked
//!    for again every `LOOK`, so that a clock that is set counts too.
//! 7. Log lines contain operation, message id and codes; never bytes of a message.

mod acknowledged;
mod attempt;
mod file;
mod mllp;
pub mod reply;
mod set_aside;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::{Lsn, Store};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::error::InteropError;
use crate::message_log::MessageLog;
use crate::patience::{FOLDER_PATIENCE, all_within};
use crate::production::{Production, settings};
use crate::queue::hindrance::{Hindrance, Reached, RequiredOperation};
use crate::queue::progress::{ConnectionState, LaneEvent};
use crate::queue::{Entry, Orders, Queue, Suspension};
use crate::record::{Delivery, DeliveryOutcome, Switch};
use crate::rows::Reader;
use attempt::Sender;
use node::Clock;
use node::task::session;
use reply::{Answer, Next, Tries};

/// Bytes of the messages that an operation takes at a time, at most; one that is larger goes alone.
const GROUP_BYTES: usize = 4 << 20;

/// How often a hindrance is looked for again that ends with time or with another operation.
const LOOK: Duration = Duration::from_secs(1);

/// What a try does with its lane.
#[derive(Clone, Copy)]
struct Step<'a> {
    /// Notes a step, for the status.
    note: &'a (dyn Fn(LaneEvent) + Sync),
    /// Whether the orders of the time when the try began still hold: asked again after what takes long.
    may_send: &'a (dyn Fn() -> bool + Sync),
}

/// The parameters of a lane's task.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Where outcomes are written, and bodies read that were left in the journal.
    pub message_log: Arc<MessageLog>,
    /// Has the other operations.
    pub engine: Arc<Engine>,
    /// The time of day.
    pub clock: Clock,
    /// Set when the node stops.
    pub stop: watch::Receiver<bool>,
}

/// Starts one task a lane.
pub fn start(queue: &Arc<Queue>, surroundings: &Surroundings) -> Vec<tokio::task::JoinHandle<()>> {
    (0..queue.lanes().len())
        .map(|lane| {
            let task = Lane {
                queue: Arc::clone(queue),
                lane,
                orders: queue.orders(),
                around: surroundings.clone(),
                tries: Tries::default(),
                sender: None,
                is_connected: false,
            };
            session("lane", task.run())
        })
        .collect()
}

/// Makes the folders of a production's file operations, when it is loaded. Without its folder an operation waits for it: one whose file
/// system hangs keeps neither a node from starting nor another operation from its folder.
pub async fn make_folders(production: &Production) {
    let mut works = Vec::new();
    for operation in &production.operations {
        if let settings::OperationSettings::File(settings) = &operation.settings {
            let (name, folder, settings) = (&operation.name, &settings.folder, settings.clone());
            works.push(((name, folder), move || file::make_folder(&settings)));
        }
    }
    for ((operation, folder), made) in all_within(FOLDER_PATIENCE, works).await {
        if let Err(error) = made.and_then(|made| made) {
            let folder = folder.display();
            tracing::warn!(operation, %folder, %error, "the folder of an operation cannot be made; its messages wait");
        }
    }
}

struct Lane {
    queue: Arc<Queue>,
    lane: usize,
    orders: watch::Receiver<Orders>,
    around: Surroundings,
    tries: Tries,
    /// The sender and the settings it was made from.
    sender: Option<Sender>,
    /// Its connection counts in the figures of the operation.
    is_connected: bool,
}

/// A lane that panics must not disappear unnoticed with its messages waiting: it is suspended, and the status shows it.
impl Drop for Lane {
    fn drop(&mut self) {
        self.count_connection(false);
        if std::thread::panicking() {
            tracing::error!(
                operation = self.queue.name,
                "a programming error stopped this operation; restart the node and report it"
            );
            self.queue.break_down(self.around.clock.now_us());
        }
        self.queue.lanes()[self.lane].close_set_asides();
    }
}

impl Lane {
    async fn run(mut self) {
        loop {
            let orders = self.orders.borrow_and_update().clone();
            let line = Arc::clone(&self.queue.lanes()[self.lane]);
            if *self.around.stop.borrow() {
                return;
            }
            if self.around.message_log.has_failed() {
                // The outcome of a message sent now could not be recorded, so the message would be sent again after the
                // next start.
                line.close_set_asides();
                let _ = self.around.stop.wait_for(|stop| *stop).await;
                return;
            }
            if self.set_aside().await {
                // Orders may have changed meanwhile.
                continue;
            }
            let hindrance = self.hindrance(&orders);
            let is_closed = hindrance.as_ref().is_some_and(Hindrance::closes);
            if is_closed || (orders.retired && line.is_empty()) {
                // Nothing more is expected, but a message taken in before the reload may still come.
                self.sender = None;
                self.count_connection(false);
            }
            let (is_free, rests) = (hindrance.is_none(), is_closed || orders.suspended.is_some() || orders.retired);
            let looks = orders.suspended.is_none() && (!is_free || orders.operation.settings.schedule().is_some());
            let entry = tokio::select! {
                biased;
                entry = line.head(), if is_free => Some(entry),
                _ = self.orders.changed() => continue,
                () = line.set_aside_ordered() => continue,
                () = self.queue.connection_wanted(), if !rests => None,
                () = tokio::time::sleep(LOOK), if looks => continue,
                () = self.around.message_log.until_failed() => continue,
                _ = self.around.stop.wait_for(|stop| *stop) => return,
            };
            let Some(entry) = entry else {
                self.connect(&orders).await;
                continue;
            };
            // Orders given before the entry came hold for it: after a suspension was confirmed nothing is sent.
            if self.may_send(&orders) {
                self.deliver(&orders, entry).await;
            }
        }
    }

    /// Why nothing is sent now. Where that is for want of another operation's connection, that one is asked to try.
    fn hindrance(&self, orders: &Orders) -> Option<Hindrance> {
        let now_us = self.around.clock.now_us();
        let is_empty = || self.queue.lanes()[self.lane].is_empty();
        orders.hindrance(now_us, |name| {
            let plan = self.around.engine.plan();
            let other = plan.queues.iter().find(|queue| queue.name == name)?;
            let required = other.required(now_us);
            if !matches!(required, RequiredOperation::Rests(_) | RequiredOperation::Tries(Reached::Connected))
                && !is_empty()
            {
                other.want_connection();
            }
            Some(required)
        })
    }

    /// Connects, for operations that wait for it; nothing where another lane does, or the pause after a failed try is not over.
    async fn connect(&mut self, orders: &Orders) {
        if !self.queue.begins_to_connect() {
            return;
        }
        self.renew_sender(orders);
        let Some(sender) = self.sender.as_mut() else { return };
        let connected = sender.connect(&orders.operation).await;
        let is_connected = sender.is_connected();
        self.count_connection(is_connected);
        let state = if connected.is_ok() { ConnectionState::Connected } else { ConnectionState::Down };
        self.note(LaneEvent::Connection(state));
        self.queue.tried_to_connect(connected.map_or_else(Reached::Down, |()| Reached::Connected));
    }

    /// Has a sender of the settings in force.
    fn renew_sender(&mut self, orders: &Orders) {
        if self.sender.as_ref().is_none_or(|sender| !sender.made_from(&orders.operation)) {
            self.sender = Some(Sender::new(&orders.operation, self.around.engine.admission.connections()));
        }
    }

    /// One try of the head of the lane, with the deliveries behind it if the operation takes several at a time, and the
    /// reaction to its result.
    async fn deliver(&mut self, orders: &Orders, entry: Entry) {
        device::supervise::rehearse("lane");
        let body = match self.body(&entry).await {
            Ok(body) => body,
            Err(error) => {
                // The store cannot give the body back: nothing later is sent over its head.
                self.suspend(&entry, &format!("the message cannot be read again: {error}"));
                return;
            }
        };
        self.renew_sender(orders);
        // Taken out while it works: what is asked meanwhile is of the lane.
        let mut sender = self.sender.take().expect("made just now");
        let mut group = vec![(entry, body)];
        if sender.group() > 1 {
            let held = self.queue.lanes()[self.lane].held(sender.group(), GROUP_BYTES);
            // Its head is this entry: only this task takes entries off.
            group = if held.is_empty() { group } else { held };
        }
        let line = Arc::clone(&self.queue.lanes()[self.lane]);
        let clock = self.around.clock.clone();
        let note = move |event| line.note(event, clock.now_us());
        note(LaneEvent::Taken { id: group[0].0.id });
        let began = Instant::now();
        let may_send = || self.may_send(orders);
        let step = Step { note: &note, may_send: &may_send };
        let answers = sender.attempt(&orders.operation, &group, step).await;
        let (after, is_connected) = (began.elapsed(), sender.is_connected());
        self.sender = Some(sender);
        self.count_connection(is_connected);
        if let Some(first) = answers.first() {
            self.queue.note_reached(first.connection());
        }
        // Without an answer nothing was sent: what forbade it is looked at now.
        for ((entry, _), answer) in group.iter().zip(&answers) {
            self.queue.figures.answered(answer.code(), after);
            if group.len() > 1 {
                note(LaneEvent::Taken { id: entry.id });
            }
            note(LaneEvent::Answered(answer.noted(self.around.clock.now_us())));
            self.conclude(orders, entry, answer).await;
        }
    }

    /// Whether a message may be sent under these orders: none came since, the node has not failed, and there is no hindrance.
    fn may_send(&self, orders: &Orders) -> bool {
        let is_ended = *self.around.stop.borrow() || self.around.message_log.has_failed();
        !self.orders.has_changed().unwrap_or(false) && !is_ended && self.hindrance(orders).is_none()
    }

    /// Notes whether it has a connection.
    fn count_connection(&mut self, is_connected: bool) {
        if std::mem::replace(&mut self.is_connected, is_connected) != is_connected {
            self.queue.figures.connects(is_connected);
        }
    }

    /// The reaction to an answer.
    async fn conclude(&mut self, orders: &Orders, entry: &Entry, answer: &Answer) {
        let next = reply::decide(&orders.operation.settings, answer, &mut self.tries);
        self.queue.flows(matches!(next, Next::Complete { .. } | Next::Fail { .. }));
        match next {
            Next::Complete { detail, warn } => {
                if warn {
                    tracing::warn!(
                        operation = self.queue.name,
                        id = entry.id,
                        reply = detail,
                        "delivered, with a warning by the reply table"
                    );
                }
                self.queue.counters.delivered.fetch_add(1, Ordering::Relaxed);
                self.finish(entry, DeliveryOutcome::Delivered, detail);
            }
            Next::Fail { detail } => {
                tracing::error!(
                    operation = self.queue.name,
                    id = entry.id,
                    reason = detail,
                    "given up; `terrace message resend` sends it again"
                );
                self.queue.counters.failed.fetch_add(1, Ordering::Relaxed);
                self.finish(entry, DeliveryOutcome::Failed, detail);
            }
            Next::Retry { pause, reason } => {
                self.queue.counters.retried.fetch_add(1, Ordering::Relaxed);
                self.queue.figures.tries_again(answer.code());
                if self.tries.worth_a_line() {
                    tracing::warn!(
                        operation = self.queue.name,
                        id = entry.id,
                        tries = self.tries.count(),
                        waiting = self.queue.depth(),
                        reason,
                        "not delivered; trying again"
                    );
                }
                let pause_us = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
                self.note(LaneEvent::Pausing { pause_us });
                self.pause(pause).await;
            }
            Next::Suspend { reason } => self.suspend(entry, &reason),
        }
    }

    fn finish(&mut self, entry: &Entry, outcome: DeliveryOutcome, detail: String) {
        self.tries = Tries::default();
        let at_us = self.around.clock.now_us();
        if outcome == DeliveryOutcome::Delivered {
            self.queue.figures.delivered(at_us);
        }
        // Recorded before it leaves the line, so that the oldest id still waited for is never ahead of the outcomes.
        let (id, output, by) = (entry.id, entry.output, String::new());
        self.around.message_log.record_outcome(Delivery { id, output, outcome, at_us, detail, by });
        self.queue.done(self.lane, entry);
        self.note(LaneEvent::Gone);
    }

    /// Notes a step for the status.
    fn note(&self, event: LaneEvent) {
        self.queue.lanes()[self.lane].note(event, self.around.clock.now_us());
    }

    /// Waits, but not past a change of orders (`resume` means "try now") or the end of the node.
    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = self.orders.changed() => self.tries.start_over(),
            () = self.queue.lanes()[self.lane].set_aside_ordered() => {}
            () = self.around.message_log.until_failed() => {}
            _ = self.around.stop.wait_for(|stop| *stop) => {}
        }
    }

    fn suspend(&mut self, entry: &Entry, reason: &str) {
        tracing::error!(
            operation = self.queue.name,
            id = entry.id,
            reason,
            "suspended; `terrace operation resume` goes on"
        );
        self.tries = Tries::default();
        let at_us = self.around.clock.now_us();
        let suspension = Suspension { since_us: at_us, reason: reason.into() };
        self.queue.order(|orders| (orders.suspended, orders.started_until_us) = (Some(suspension), None));
        let (operation, reason) = (self.queue.name.clone(), reason.to_owned());
        let switch = Switch { operation, suspended: true, until_us: None, at_us, reason };
        if let Err(refusal) = self.around.message_log.switch(&switch) {
            tracing::warn!(operation = self.queue.name, %refusal, "the suspension is not stored; a restart ends it");
        }
    }

    /// The body to send: from memory, or from the store, together with those behind it.
    async fn body(&self, entry: &Entry) -> Result<Bytes, InteropError> {
        if let Some(body) = &entry.body {
            return Ok(body.clone());
        }
        let message_log = Arc::clone(&self.around.message_log);
        let wanted = self.queue.lanes()[self.lane].unread();
        let bytes = self.queue.refill_bytes();
        let read = tokio::task::spawn_blocking(move || read_bodies(message_log.store(), &wanted, bytes));
        let bodies = read.await.unwrap_or(Err(InteropError::Stopping))?;
        let first = bodies.first().cloned().ok_or(InteropError::NoMessage { id: entry.id })?;
        self.queue.refill(self.lane, bodies);
        Ok(first)
    }
}

/// The bodies of outputs, in their order: all wanted, or as many as make up `bytes`, or those before one that cannot be read
/// (it is reported when it is the head).
fn read_bodies(store: &Store, wanted: &[(u64, u16)], bytes: usize) -> Result<Vec<Bytes>, InteropError> {
    let mut bodies = Vec::new();
    match gather(store, wanted, bytes, &mut bodies) {
        Err(error) if bodies.is_empty() => Err(error),
        _ => Ok(bodies),
    }
}

fn gather(store: &Store, wanted: &[(u64, u16)], bytes: usize, bodies: &mut Vec<Bytes>) -> Result<(), InteropError> {
    // They are durable, or they would not be in a queue; their rows may be a moment behind.
    if let Some((newest, _)) = wanted.last() {
        store.wait_visible(Lsn(*newest))?;
    }
    let reader = Reader::new(store);
    let mut held = 0;
    for (id, output) in wanted {
        if held >= bytes {
            break;
        }
        let (stored, _) = reader.inbound(*id)?.ok_or(InteropError::NoMessage { id: *id })?;
        let body = Bytes::copy_from_slice(&reader.output(*id, *output, &stored.raw)?.body);
        held += body.len();
        bodies.push(body);
    }
    Ok(())
}
