//! The message log: the only writer of the engine's records. It wakes the acknowledgements when records are durable.
//!
//! ```text
//! connections --submit--> [journal buffer] --group commit, by the journal--> durable --> applied: rows, by the store
//!                                |                                              |
//!                                +-- on persistent memory:                      | observed by
//!                                    commit at once, on this thread             v
//!                                                                          hand-over (a task)
//!      acknowledgement <--- woken in LSN order ---------------------------------+
//!      queues of the operations, in LSN order <---------------------------------+
//! lanes --record_outcome--> gathered, written with the next commit (or after OUTCOME_DELAY)
//! ```
//!
//! Invariants:
//! 1. `submit` resolves only after the record is persistent; entries reach queues only then, and in LSN order.
//! 2. Outcomes are not waited for: a crash within `OUTCOME_DELAY` of a delivery may deliver that message again (the one
//!    window in which the engine may deliver twice), never lose one. While the medium is full outcomes cannot be written,
//!    and that window is as long as it stays full.
//! 3. On persistent memory a submission commits itself, and includes the gathered outcomes in the same write: a commit
//!    there takes less time than waking a thread for it. The hand-over then writes only the outcomes that are left.
//! 4. After a failure of the journal or the pages, or a panic of a thread that the node needs, every waiting and later
//!    submission is refused with the reason, and `failed` returns it. Reads continue.
//! 5. No sender waits for rows: durable messages become visible to readers a little later
//!    ([`store::Store::wait_visible`]).
//!
//! The hand-over is a task of the runtime that serves the sockets, so that the connections and lanes that it wakes are
//! woken from inside: one wake-up from outside for each batch, not one for each message and output.
//!
//! It does not decide on messages, and it does not read.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use device::{Distribution, Noted, supervise};
use journal::JournalError;
use node::task::supervised;
use store::{Lsn, Store, StoreError};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::queue::{Entry, Queue};
use crate::record::{self, Delivery, Switch};
use crate::tail::{TailEvent, TailHub};

/// How long an outcome may wait for a commit that other work causes before it causes one itself. It bounds the window in
/// which a crash makes a delivery happen twice; shorter means more flushes on an idle node.
const OUTCOME_DELAY: Duration = Duration::from_millis(5);

/// The same while the medium is full.
const FULL_DELAY: Duration = Duration::from_secs(1);

/// Outcomes written in one record at most.
const OUTCOMES_PER_RECORD: usize = 4_096;

/// Where an entry goes once its record is durable.
#[derive(Debug)]
pub struct Destination {
    /// The operation's queue.
    pub queue: Arc<Queue>,
    /// The lane in it.
    pub lane: usize,
    /// The entry; its id is set when the record has one.
    pub entry: Entry,
}

/// Why a record was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The medium has no room. Later submissions may succeed.
    #[error("the disk is full")]
    Full,
    /// The journal cannot grow just now. Later submissions may succeed.
    #[error("the journal cannot grow")]
    Unavailable,
    /// The record is larger than the journal takes, or the message or an output than the store does.
    #[error("the message, with its outputs, is larger than the store takes")]
    TooLarge,
    /// The node is stopping.
    #[error("the journal is closed")]
    Closed,
    /// The journal or the pages failed, and nothing is stored any more until the node is started again.
    #[error("nothing is stored any more: {0}")]
    Failed(Arc<str>),
}

/// A record of this log that is not known to be durable.
struct Waiting {
    lsn: Lsn,
    destinations: Vec<Destination>,
    /// Who waits for it; nobody waits for outcomes.
    durable: Option<oneshot::Sender<Lsn>>,
    /// When it was appended, if it is a message.
    since: Option<std::time::Instant>,
    /// Message and output of each outcome in it, where somebody watches.
    outcomes: Vec<(u64, u16)>,
}

impl Waiting {
    /// A record that brings nothing to a queue.
    fn bare(lsn: Lsn, durable: Option<oneshot::Sender<Lsn>>) -> Waiting {
        Waiting { lsn, destinations: Vec::new(), durable, since: None, outcomes: Vec::new() }
    }

    /// What became durable with it.
    fn events(&self, now: std::time::Instant) -> impl Iterator<Item = TailEvent> {
        let lsn = self.lsn.0;
        let took = |since: std::time::Instant| now.saturating_duration_since(since).as_micros();
        let message = self.since.map(|since| TailEvent::Message { id: lsn, took_us: took(since) as u64 });
        message.into_iter().chain(self.outcomes.iter().map(move |(id, output)| TailEvent::Outcome {
            lsn,
            id: *id,
            output: *output,
        }))
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    outcomes: Vec<Delivery>,
    /// The hand-over will look at the outcomes by itself, before one of them has waited for longer than it may.
    outcomes_due: bool,
    /// The last try to write outcomes found the medium full.
    full: bool,
    closing: bool,
    /// The newest message, and the bytes of all since the start.
    ingested: (u64, u64),
}

/// See the module's text.
pub struct MessageLog {
    store: Store,
    state: Mutex<State>,
    /// A record is on its way that the hand-over must know of; the observer of the journal asks it, since most batches
    /// of a node that serves SQL contain none. Set before the record is appended, cleared under `state`.
    waits: Arc<AtomicBool>,
    /// Wakes the hand-over: records have become durable, an outcome waits, the log is closed, or it has failed.
    work: Arc<Notify>,
    /// Held while durable entries go to the queues, so that two threads cannot overtake each other.
    hand_over: Mutex<()>,
    /// Every durable entry before this has gone to its queue.
    handed_over: AtomicU64,
    /// The newest record known to be durable; 0 = none since the start.
    committed: AtomicU64,
    failed: watch::Sender<Option<Arc<str>>>,
    /// How long records of messages took from their append until they were durable, and how many became so together.
    commits: (Distribution, Distribution),
    tails: Arc<TailHub>,
}

impl std::fmt::Debug for MessageLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageLog").field("durable", &self.store.durable()).finish_non_exhaustive()
    }
}

/// A thread that panics while committing must not leave connections waiting without end.
struct PanicGuard<'a>(&'a MessageLog);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&"a programming error stopped a committing thread");
            self.0.abandon();
        }
    }
}

impl MessageLog {
    /// A message log over an open store; `start` makes it commit.
    pub fn new(store: Store) -> Arc<Self> {
        let handed_over = store.durable().0;
        Arc::new(Self {
            store,
            state: Mutex::default(),
            waits: Arc::default(),
            work: Arc::default(),
            hand_over: Mutex::new(()),
            handed_over: AtomicU64::new(handed_over),
            committed: AtomicU64::new(0),
            failed: watch::Sender::new(None),
            commits: Default::default(),
            tails: Arc::default(),
        })
    }

    /// Starts the hand-over on the runtime of the caller. It ends after `close`, when nothing waits.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(self: &Arc<Self>) -> Result<JoinHandle<()>, StoreError> {
        if !self.store.is_inline() {
            let (waits, work) = (Arc::clone(&self.waits), Arc::clone(&self.work));
            self.store.start_flusher(move || {
                if waits.load(Ordering::SeqCst) {
                    work.notify_one();
                }
            })?;
        }
        let (message_log, failing) = (Arc::clone(self), Arc::clone(self));
        Ok(supervised("hand-over", message_log.hand_over_when_durable(), move |why| {
            failing.fail(&why);
            failing.abandon();
        }))
    }

    /// Starts a task that the node needs: its panic fails the node.
    pub(crate) fn supervise(
        self: &Arc<Self>,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        let message_log = Arc::clone(self);
        supervised(name, work, move |why| message_log.fail(&why))
    }

    /// Who watches what becomes durable.
    pub(crate) fn tails(&self) -> &Arc<TailHub> {
        &self.tails
    }

    /// Message and output of each outcome, where somebody watches. Called with `state` locked: who begins to watch waits for a `barrier`, by
    /// which what was appended without them is durable.
    fn watched(&self, deliveries: &[Delivery]) -> Vec<(u64, u16)> {
        match self.tails.is_open() {
            true => deliveries.iter().map(|delivery| (delivery.id, delivery.output)).collect(),
            false => Vec::new(),
        }
    }

    /// The store, for reading.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The id of the newest message submitted, and the bytes of all records of messages since the start.
    pub fn ingested(&self) -> (u64, u64) {
        self.lock().ingested
    }

    /// How long records of messages took from their append until they were known to be durable; and how many became so together.
    pub fn commits(&self) -> (Noted, Noted) {
        (self.commits.0.noted(), self.commits.1.noted())
    }

    /// Every entry of a record before this has entered its queue: an entry before it that is in no queue is done.
    pub fn handed_over(&self) -> Lsn {
        Lsn(self.handed_over.load(Ordering::Acquire))
    }

    /// Returns when readers see all that is durable by now; after a failure, all that they will.
    ///
    /// # Errors
    /// The store's.
    pub fn wait_visible(&self) -> Result<(), StoreError> {
        match self.committed.load(Ordering::Acquire) {
            0 => Ok(()),
            newest => match self.store.wait_visible(Lsn(newest)) {
                // Reads continue with the applied records; the others wait for the next start.
                Err(StoreError::Poisoned { .. }) => Ok(()),
                visible => visible,
            },
        }
    }

    /// When and why the node failed.
    pub fn failed(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.failed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a message record. The receiver gives its id once it is durable, and is dropped if the journal fails first.
    ///
    /// # Errors
    /// `Refusal`; nothing is stored then and the reserved entries are released.
    pub fn submit(&self, payload: Bytes, destinations: Vec<Destination>) -> Result<oneshot::Receiver<Lsn>, Refusal> {
        let (durable, receiver) = oneshot::channel();
        let mut state = self.lock();
        let bytes = payload.len() as u64;
        let appended = self.check_open(&state).and_then(|()| self.append(record::KIND_MESSAGE, payload));
        match appended {
            Ok(lsn) => {
                state.ingested = (lsn.0, state.ingested.1 + bytes);
                let since = Some(std::time::Instant::now());
                let (durable, outcomes) = (Some(durable), Vec::new());
                state.waiting.push_back(Waiting { lsn, destinations, durable, since, outcomes });
                self.appended(state, lsn);
                Ok(receiver)
            }
            Err(refusal) => {
                drop(state);
                destinations.iter().for_each(|d| d.queue.release());
                Err(refusal)
            }
        }
    }

    /// Resolves once all that was submitted before is durable; `None` where it is already.
    ///
    /// # Errors
    /// `Failed`: the waiting records were not made durable, and no caller waits any more that could report it.
    pub fn barrier(&self) -> Result<Option<oneshot::Receiver<Lsn>>, Refusal> {
        let (durable, receiver) = oneshot::channel();
        let mut state = self.lock();
        self.check()?;
        let Some(lsn) = state.waiting.back().map(|waiting| waiting.lsn) else { return Ok(None) };
        state.waiting.push_back(Waiting::bare(lsn, Some(durable)));
        Ok(Some(receiver))
    }

    /// Records what became of an output, with the next commit.
    pub fn record_outcome(&self, delivery: Delivery) {
        let mut state = self.lock();
        state.outcomes.push(delivery);
        if !std::mem::replace(&mut state.outcomes_due, true) {
            drop(state);
            self.work.notify_one();
        }
    }

    /// Records what a person decided about outputs; resolves once it is durable.
    ///
    /// # Errors
    /// `Refusal`.
    pub fn record_durably(&self, deliveries: &[Delivery]) -> Result<oneshot::Receiver<Lsn>, Refusal> {
        self.append_waited(record::KIND_DELIVERIES, record::encode_deliveries(deliveries).into(), deliveries)
    }

    /// Records an operation suspended or resumed, with the next commit.
    ///
    /// # Errors
    /// `Refusal`.
    pub fn switch(&self, switch: &Switch) -> Result<oneshot::Receiver<Lsn>, Refusal> {
        self.append_waited(record::KIND_OPERATION, record::encode_switch(switch).into(), &[])
    }

    /// Appends a record of no message, for which the caller waits.
    fn append_waited(
        &self,
        kind: u8,
        payload: Bytes,
        deliveries: &[Delivery],
    ) -> Result<oneshot::Receiver<Lsn>, Refusal> {
        let (durable, receiver) = oneshot::channel();
        let mut state = self.lock();
        self.check_open(&state)?;
        let lsn = self.append(kind, payload)?;
        let outcomes = self.watched(deliveries);
        state.waiting.push_back(Waiting { outcomes, ..Waiting::bare(lsn, Some(durable)) });
        self.appended(state, lsn);
        Ok(receiver)
    }

    /// Makes the appended records durable: at once on this thread, or soon by the journal.
    fn appended(&self, state: MutexGuard<'_, State>, lsn: Lsn) {
        let _guard = PanicGuard(self);
        // Moved here so that a panic lets go of the lock before the guard takes it.
        let mut state = state;
        if !self.store.is_inline() {
            // The first record of a batch takes the outcomes with it; later ones are written by the hand-over.
            if state.waiting.len() == 1 {
                self.write_outcomes(&mut state);
            }
            drop(state);
            return self.store.flush_soon();
        }
        let last = self.write_outcomes(&mut state).unwrap_or(lsn);
        drop(state);
        self.commit_here(last);
    }

    /// Called with `state` locked, until the record is among those that wait.
    fn append(&self, kind: u8, payload: Bytes) -> Result<Lsn, Refusal> {
        self.waits.store(true, Ordering::SeqCst);
        self.store.append(kind, payload).map_err(|error| {
            let journal = if let StoreError::Journal(journal) = &error { Some(&**journal) } else { None };
            match (&error, journal) {
                // Giving up messages would bring no descriptor back.
                (StoreError::Full(_), _) if self.store.lacks_descriptor() => Refusal::Unavailable,
                (StoreError::Full(_), _) => Refusal::Full,
                (StoreError::Refused(_), _) | (_, Some(JournalError::TooLarge { .. })) => Refusal::TooLarge,
                (_, Some(JournalError::Device(error))) => {
                    tracing::error!(%error, "the journal cannot grow");
                    Refusal::Unavailable
                }
                _ => {
                    self.fail(&error);
                    self.check().err().unwrap_or(Refusal::Closed)
                }
            }
        })
    }

    /// Whether something may be submitted.
    fn check_open(&self, state: &State) -> Result<(), Refusal> {
        self.check()?;
        if state.closing { Err(Refusal::Closed) } else { Ok(()) }
    }

    /// Errors: `Failed`.
    fn check(&self) -> Result<(), Refusal> {
        self.failed.borrow().as_ref().map_or(Ok(()), |cause| Err(Refusal::Failed(Arc::clone(cause))))
    }

    /// Whether the node has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// Resolves once the message log has failed; never, if it does not.
    pub async fn until_failed(&self) {
        // The sender lives as long as the message log does.
        let _ = self.failed.subscribe().wait_for(Option::is_some).await;
    }

    /// Refuses new work; the hand-over ends once the present records are committed.
    pub fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// From here on nothing is stored any more: every waiting submission fails, and the store is poisoned. The first reason
    /// stays.
    pub fn fail(&self, error: &dyn std::fmt::Display) {
        let first = self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                *failed = Some(error.to_string().into());
            }
            first
        });
        if first {
            tracing::error!(%error, "the node has failed: nothing is acknowledged or delivered any more, reads go on");
            self.store.fail(error);
            self.work.notify_one();
        }
    }

    /// Drops what waits: the dropped channel ends each wait.
    fn abandon(&self) {
        self.lock().waiting.clear();
    }

    /// Commits on this thread, and hands over.
    fn commit_here(&self, last: Lsn) {
        match self.store.commit(last) {
            Ok(()) => {
                self.hand_over();
                // No observer wakes the hand-over, which may wait for this record to end.
                if self.lock().closing {
                    self.work.notify_one();
                }
            }
            Err(error) => {
                self.fail(&error);
                self.abandon();
            }
        }
    }

    /// Hands over whenever records have become durable, and writes outcomes in time, until the log is closed or fails.
    async fn hand_over_when_durable(self: Arc<Self>) {
        let mut due = None;
        loop {
            let outcomes_due = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.work.notified() => {}
                () = outcomes_due => {}
            }
            supervise::rehearse("hand-over");
            if let Err(error) = self.store.check_journal() {
                self.fail(&error);
            }
            if self.has_failed() {
                return self.abandon();
            }
            self.hand_over();
            match self.look_at_outcomes(due) {
                Some(next) => due = next,
                None => return,
            }
        }
    }

    /// Writes the outcomes if the time has come: no message took them along. Returns when to look again, if there
    /// are any left; `None` when the log is closed and nothing waits.
    fn look_at_outcomes(&self, due: Option<Instant>) -> Option<Option<Instant>> {
        let now = Instant::now();
        let mut state = self.lock();
        let is_due = due.is_some_and(|at| at <= now);
        let mut written = None;
        if is_due || state.closing {
            written = self.write_outcomes(&mut state);
        }
        if state.closing && state.waiting.is_empty() && written.is_none() {
            return None;
        }
        state.outcomes_due = !state.outcomes.is_empty();
        let delay = if state.full { FULL_DELAY } else { OUTCOME_DELAY };
        let due = if is_due || written.is_some() { None } else { due };
        let due = state.outcomes_due.then(|| due.unwrap_or(now + delay));
        drop(state);
        match written {
            Some(last) if self.store.is_inline() => self.commit_here(last),
            Some(_) => self.store.flush_soon(),
            None => {}
        }
        Some(due)
    }

    /// Appends the gathered outcomes; the LSN of the last record written.
    fn write_outcomes(&self, state: &mut State) -> Option<Lsn> {
        let outcomes = std::mem::take(&mut state.outcomes);
        let mut last = None;
        let was_full = std::mem::take(&mut state.full);
        for (written, group) in outcomes.chunks(OUTCOMES_PER_RECORD).enumerate() {
            match self.append(record::KIND_DELIVERIES, record::encode_deliveries(group).into()) {
                Ok(lsn) => {
                    state.waiting.push_back(Waiting { outcomes: self.watched(group), ..Waiting::bare(lsn, None) });
                    last = Some(lsn);
                }
                Err(refusal) => {
                    // Kept for the next commit: on a full disk deliveries go on, and their outcomes are written once there is room.
                    if !was_full {
                        tracing::warn!(%refusal, "outcomes of deliveries cannot be written yet");
                    }
                    state.full = true;
                    state.outcomes = outcomes[written * OUTCOMES_PER_RECORD..].to_vec();
                    break;
                }
            }
        }
        last
    }

    /// Resolves acknowledgements and fills queues for durable records, in LSN order.
    fn hand_over(&self) {
        let _order = self.hand_over.lock().unwrap_or_else(PoisonError::into_inner);
        let durable = self.store.durable();
        let ready: Vec<Waiting> = {
            let mut state = self.lock();
            let count = state.waiting.partition_point(|w| w.lsn < durable);
            let ready = state.waiting.drain(..count).collect();
            if state.waiting.is_empty() {
                self.waits.store(false, Ordering::SeqCst);
            }
            ready
        };
        if let Some(newest) = ready.last() {
            self.committed.fetch_max(newest.lsn.0, Ordering::AcqRel);
        }
        let (now, mut messages) = (std::time::Instant::now(), 0);
        for since in ready.iter().filter_map(|waiting| waiting.since) {
            messages += 1;
            self.commits.0.note(1, 0, now.saturating_duration_since(since));
        }
        if messages > 0 {
            self.commits.1.note_value(messages);
        }
        if self.tails.is_open() {
            let events: Vec<TailEvent> = ready.iter().flat_map(|waiting| waiting.events(now)).collect();
            self.tails.push(&events);
        }
        for waiting in ready {
            for mut destination in waiting.destinations {
                destination.entry.id = waiting.lsn.0;
                destination.queue.push(destination.lane, destination.entry);
            }
            // A connection that went away no longer listens; the message is stored and goes out all the same.
            if let Some(durable) = waiting.durable {
                let _ = durable.send(waiting.lsn);
            }
        }
        self.handed_over.store(durable.0, Ordering::Release);
    }
}
