//! The message log: the only writer of the engine's records. It wakes the acknowledgements when records are durable.
//!
//! ```text
//! connections --submit--> [journal buffer] --commit (two threads, group commit)--> durable --> applied: rows, by the store
//!                                |                     |
//!                                +-- on persistent memory: commit at once, on this thread
//!                                                      |
//!      acknowledgement <--- woken in LSN order --------+------> queues of the operations, in LSN order
//! lanes --record_outcome--> gathered, written with the next commit (or after OUTCOME_DELAY)
//! ```
//!
//! Invariants:
//! 1. `submit` resolves only after the record is persistent; entries reach queues only then, and in LSN order.
//! 2. Outcomes are not waited for: a crash within `OUTCOME_DELAY` of a delivery may deliver that message again (the one
//!    window in which the engine may deliver twice), never lose one. While the medium is full outcomes cannot be written,
//!    and that window is as long as it stays full.
//! 3. On persistent memory a submission commits itself, and includes the gathered outcomes in the same write: a commit
//!    there takes less time than waking a thread for it. The committing threads then write only the outcomes that are
//!    left.
//! 4. After a failure of the journal or the pages, or a panic of a thread that the node needs, every waiting and later
//!    submission is refused with the reason, and `failed` returns it. Reads continue.
//!
//! 5. No sender waits for rows: durable messages become visible to readers a little later
//!    ([`store::Store::wait_visible`]).
//!
//! It does not decide on messages, and it does not read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use device::supervise;
use journal::JournalError;
use node::task::supervised;
use store::{Lsn, Store, StoreError};
use tokio::sync::{oneshot, watch};

use crate::queue::{Entry, Queue};
use crate::record::{self, Delivery, Switch};

/// How long an outcome may wait for a commit that other work causes before it causes one itself. It bounds the window in
/// which a crash makes a delivery happen twice; shorter means more flushes on an idle node.
const OUTCOME_DELAY: Duration = Duration::from_millis(5);

/// The same while the medium is full.
const FULL_DELAY: Duration = Duration::from_secs(1);

/// Outcomes written in one record at most.
const OUTCOMES_PER_RECORD: usize = 4_096;

/// Committing threads: while one waits for the medium the other gathers and writes the next group.
const COMMITTERS: usize = 2;

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

struct Waiting {
    lsn: Lsn,
    destinations: Vec<Destination>,
    durable: oneshot::Sender<Lsn>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    outcomes: Vec<Delivery>,
    /// The last try to write outcomes found the medium full.
    full: bool,
    /// End of the log up to which a committer has taken responsibility.
    claimed: Option<Lsn>,
    closing: bool,
    /// A committer has been woken and has not read yet: it will find later submissions too. A wake-up costs a system
    /// call, and there would be one for each message.
    woken: bool,
    /// A committer sleeps no longer than an outcome may wait: it needs no waking for one.
    dozing: bool,
    /// The newest message, and the bytes of all since the start.
    ingested: (u64, u64),
}

/// See the module's text.
pub struct MessageLog {
    store: Store,
    state: Mutex<State>,
    work: Condvar,
    /// Held while durable entries go to the queues, so that two committers cannot overtake each other.
    hand_over: Mutex<()>,
    /// Every durable entry before this has gone to its queue.
    handed_over: AtomicU64,
    /// The newest record known to be durable; 0 = none since the start.
    committed: AtomicU64,
    failed: watch::Sender<Option<Arc<str>>>,
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
            work: Condvar::new(),
            hand_over: Mutex::new(()),
            handed_over: AtomicU64::new(handed_over),
            committed: AtomicU64::new(0),
            failed: watch::Sender::new(None),
        })
    }

    /// Starts the committing threads. They end after `close`.
    pub fn start(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        (0..COMMITTERS)
            .map(|n| {
                let (message_log, failing) = (Arc::clone(self), Arc::clone(self));
                let panicked = move |why: &str| failing.fail(&why);
                supervise::thread(&format!("commit-{n}"), move || message_log.commit_loop(), panicked)
                    .expect("the system has room for a thread at start-up")
            })
            .collect()
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

    /// The store, for reading.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The id of the newest message submitted, and the bytes of all records of messages since the start.
    pub fn ingested(&self) -> (u64, u64) {
        self.lock().ingested
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

    /// Writes a message record, given in parts. The receiver gives its id once it is durable, and is dropped if the journal fails first.
    ///
    /// # Errors
    /// `Refusal`; nothing is stored then and the reserved entries are released.
    pub fn submit(&self, payload: &[&[u8]], destinations: Vec<Destination>) -> Result<oneshot::Receiver<Lsn>, Refusal> {
        let (durable, receiver) = oneshot::channel();
        let mut state = self.lock();
        let appended = self.check_open(&state).and_then(|()| self.append(record::KIND_MESSAGE, payload));
        match appended {
            Ok(lsn) => {
                let bytes = payload.iter().map(|part| part.len() as u64).sum::<u64>();
                state.ingested = (lsn.0, state.ingested.1 + bytes);
                state.waiting.push_back(Waiting { lsn, destinations, durable });
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
        state.waiting.push_back(Waiting { lsn, destinations: Vec::new(), durable });
        Ok(Some(receiver))
    }

    /// Records what became of an output, with the next commit.
    pub fn record_outcome(&self, delivery: Delivery) {
        let mut state = self.lock();
        state.outcomes.push(delivery);
        // Where submissions commit themselves, waking a committer for each would cost more than the commit.
        if state.outcomes.len() == 1 && !(self.store.is_inline() && state.dozing) {
            self.wake(state);
        }
    }

    /// Records an operation suspended or resumed, with the next commit.
    ///
    /// # Errors
    /// `Refusal`.
    pub fn switch(&self, switch: &Switch) -> Result<oneshot::Receiver<Lsn>, Refusal> {
        let (durable, receiver) = oneshot::channel();
        let mut state = self.lock();
        self.check_open(&state)?;
        let lsn = self.append(record::KIND_OPERATION, &[&record::encode_switch(switch)])?;
        state.waiting.push_back(Waiting { lsn, destinations: Vec::new(), durable });
        self.appended(state, lsn);
        Ok(receiver)
    }

    /// Makes the appended records durable: at once on this thread, or soon by a committer.
    fn appended(&self, state: MutexGuard<'_, State>, lsn: Lsn) {
        if !self.store.is_inline() {
            return self.wake(state);
        }
        let _guard = PanicGuard(self);
        // Moved here so that a panic lets go of the lock before the guard takes it.
        let mut state = state;
        let last = if state.outcomes.is_empty() { lsn } else { self.write_outcomes(&mut state).unwrap_or(lsn) };
        state.claimed = state.claimed.max(Some(last));
        drop(state);
        self.commit(last);
    }

    /// Wakes a committer.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.woken, true) {
            drop(state);
            self.work.notify_one();
        }
    }

    fn append(&self, kind: u8, payload: &[&[u8]]) -> Result<Lsn, Refusal> {
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

    /// Refuses new work, commits the present records, and ends the committing threads.
    pub fn close(&self) {
        self.lock().closing = true;
        self.work.notify_all();
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
            self.work.notify_all();
        }
    }

    /// Drops what waits: the dropped channel ends each wait.
    fn abandon(&self) {
        self.lock().waiting.clear();
    }

    fn commit_loop(&self) {
        let _guard = PanicGuard(self);
        while let Some(last) = self.next_group() {
            supervise::rehearse("commit");
            if !self.commit(last) {
                return;
            }
        }
    }

    /// Makes everything up to a record durable and sends it on its way; `false` where the journal has failed.
    fn commit(&self, last: Lsn) -> bool {
        if let Err(error) = self.store.commit(last) {
            self.fail(&error);
            self.abandon();
            return false;
        }
        self.committed.fetch_max(last.0, Ordering::AcqRel);
        self.hand_over();
        true
    }

    /// Waits for records to commit and claims them; `None` when closed or failed.
    fn next_group(&self) -> Option<Lsn> {
        let mut state = self.lock();
        loop {
            state.woken = false;
            if self.failed.borrow().is_some() {
                // Another thread may have failed: this one ends what waits.
                state.waiting.clear();
                return None;
            }
            let unclaimed = state.waiting.back().map(|w| w.lsn).filter(|lsn| state.claimed.is_none_or(|c| *lsn > c));
            if unclaimed.is_some() || (state.closing && !state.outcomes.is_empty()) {
                let last = self.write_outcomes(&mut state).or(unclaimed);
                state.claimed = last.or(state.claimed);
                return last;
            }
            if state.closing {
                return None;
            }
            if state.outcomes.is_empty() {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                let delay = if state.full { FULL_DELAY } else { OUTCOME_DELAY };
                // On a full medium it sleeps longer, and there may be room before it looks.
                state.dozing = !state.full;
                let (next, waited) = self.work.wait_timeout(state, delay).unwrap_or_else(PoisonError::into_inner);
                state = next;
                state.dozing = false;
                if waited.timed_out()
                    && !state.outcomes.is_empty()
                    && let Some(last) = self.write_outcomes(&mut state)
                {
                    state.claimed = Some(last);
                    return Some(last);
                }
            }
        }
    }

    /// Appends the gathered outcomes; the LSN of the last record written.
    fn write_outcomes(&self, state: &mut State) -> Option<Lsn> {
        let outcomes = std::mem::take(&mut state.outcomes);
        let mut last = None;
        let was_full = std::mem::take(&mut state.full);
        for (written, group) in outcomes.chunks(OUTCOMES_PER_RECORD).enumerate() {
            match self.append(record::KIND_DELIVERIES, &[&record::encode_deliveries(group)]) {
                Ok(lsn) => last = Some(lsn),
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
            state.waiting.drain(..count).collect()
        };
        for waiting in ready {
            for mut destination in waiting.destinations {
                destination.entry.id = waiting.lsn.0;
                destination.queue.push(destination.lane, destination.entry);
            }
            // A connection that went away no longer listens; the message is stored and goes out all the same.
            let _ = waiting.durable.send(waiting.lsn);
        }
        self.handed_over.store(durable.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use node::task::session;

    use super::*;
    use crate::rows::Rows;

    #[tokio::test]
    async fn a_panic_of_a_task_that_the_node_needs_fails_it_and_one_of_a_session_ends_that_alone() {
        let options = store::Options { interpreter: Some(Arc::new(Rows)), ..store::Options::default() };
        let message_log = MessageLog::new(Store::in_memory(options).expect("memory"));
        session("peer", async { panic!("of a session") }).await.expect("it was caught");
        assert!(!message_log.has_failed());
        message_log.supervise("housekeeping", async { panic!("number {}", 7) }).await.expect("it was caught");
        let cause = message_log.failed().borrow().clone().expect("it has failed");
        assert_eq!(&*cause, "the task housekeeping panicked: number 7");
        assert_eq!(message_log.store().poisoned().as_deref(), Some("the task housekeeping panicked: number 7"));
    }
}
