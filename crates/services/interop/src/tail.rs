//! [`TailHub`]: tells who watches messages what becomes durable, in the order of the journal.
//!
//! ```text
//!   hand-over --batch of records--> TailHub --> TailFeed: a ring of numbers  --take--> who watches: reads rows, sends lines
//!                                          \--> TailFeed (full): counts what it leaves out
//! ```
//!
//! Invariants: without a tail the flow of messages pays for one load of an atomic a batch; with tails, for their numbers in bounded
//! rings. Nothing waits for who watches: what a full ring has no room for is counted, and the place of it in the stream is known. An
//! event is pushed when its record is durable, once, in the order of the journal.
//!
//! Not here: rows, rights and lines (`running::tail`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Events of one ring, 200 KB: about a second of a node that works hard.
const EVENTS_MAX: usize = 8_192;

/// What became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailEvent {
    /// A message, which took so many microseconds from its append.
    Message { id: u64, took_us: u64 },
    /// The outcome of an output, by the record at `lsn`.
    Outcome { lsn: u64, id: u64, output: u16 },
}

impl TailEvent {
    /// The position of its record.
    pub(crate) fn lsn(self) -> u64 {
        match self {
            TailEvent::Message { id, .. } => id,
            TailEvent::Outcome { lsn, .. } => lsn,
        }
    }
}

/// Events in their order, and how many that came behind the last of them were left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TailBatch {
    pub(crate) events: VecDeque<TailEvent>,
    pub(crate) left_out: u64,
}

/// The feed of one who watches.
#[derive(Debug, Default)]
pub(crate) struct TailFeed {
    ring: Mutex<TailBatch>,
    news: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain data: a panic elsewhere does not make it wrong.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TailFeed {
    fn push(&self, events: &[TailEvent]) {
        let mut ring = lock(&self.ring);
        let room = match ring.left_out {
            0 => EVENTS_MAX.saturating_sub(ring.events.len()).min(events.len()),
            // What is left out is behind the last event: none may follow until they were taken.
            _ => 0,
        };
        ring.events.extend(&events[..room]);
        ring.left_out += (events.len() - room) as u64;
        drop(ring);
        self.news.notify_one();
    }

    /// All that there is; nothing where there is nothing.
    pub(crate) fn take(&self) -> TailBatch {
        std::mem::take(&mut *lock(&self.ring))
    }

    /// Waits until there is something. Nothing is lost when it is dropped while it waits.
    pub(crate) async fn news(&self) {
        loop {
            let news = self.news.notified();
            {
                let ring = lock(&self.ring);
                if !ring.events.is_empty() || ring.left_out > 0 {
                    return;
                }
            }
            news.await;
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct TailHub {
    open: AtomicUsize,
    feeds: Mutex<Vec<Arc<TailFeed>>>,
}

impl TailHub {
    /// Whether anybody watches.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    /// How many watch.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Watches from now on: what is appended from now on is in the feed.
    pub(crate) fn watch(self: &Arc<TailHub>) -> OpenTail {
        let feed = Arc::<TailFeed>::default();
        lock(&self.feeds).push(Arc::clone(&feed));
        self.open.fetch_add(1, Ordering::SeqCst);
        OpenTail { hub: Arc::clone(self), feed }
    }

    /// These became durable, in this order.
    pub(crate) fn push(&self, events: &[TailEvent]) {
        if !events.is_empty() {
            lock(&self.feeds).iter().for_each(|feed| feed.push(events));
        }
    }
}

/// A feed, as long as this is there.
#[derive(Debug)]
pub(crate) struct OpenTail {
    hub: Arc<TailHub>,
    pub(crate) feed: Arc<TailFeed>,
}

impl Drop for OpenTail {
    fn drop(&mut self) {
        self.hub.open.fetch_sub(1, Ordering::SeqCst);
        lock(&self.hub.feeds).retain(|feed| !Arc::ptr_eq(feed, &self.feed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(ids: std::ops::Range<u64>) -> Vec<TailEvent> {
        ids.map(|id| TailEvent::Message { id, took_us: 1 }).collect()
    }

    #[tokio::test]
    async fn a_feed_that_is_full_counts_what_it_leaves_out_behind_its_last_event() {
        let hub = Arc::<TailHub>::default();
        assert!(!hub.is_open());
        let (slow, quick) = (hub.watch(), hub.watch());
        assert!(hub.is_open());
        let all = EVENTS_MAX as u64;
        hub.push(&messages(1..all));
        assert_eq!(quick.feed.take().events.len() as u64, all - 1);
        // One more has room; the other nine have not, and nothing may come behind them.
        hub.push(&messages(all..all + 10));
        hub.push(&messages(all + 10..all + 11));
        slow.feed.news().await;
        let batch = slow.feed.take();
        assert_eq!((batch.events.len() as u64, batch.left_out), (all, 10));
        assert_eq!(batch.events.back().map(|event| event.lsn()), Some(all));
        assert_eq!(quick.feed.take(), TailBatch { events: messages(all..all + 11).into(), left_out: 0 });
        hub.push(&messages(90_000..90_001));
        assert_eq!(slow.feed.take(), TailBatch { events: messages(90_000..90_001).into(), left_out: 0 });
        drop((slow, quick));
        assert!(!hub.is_open() && lock(&hub.feeds).is_empty());
    }
}
