//! What a node does every few seconds: looks whether something is the matter, removes messages that need not be kept, keeps an
//! eye on the clock.
//!
//! ```text
//!   every UPKEEP, and at once when a message finds the medium full
//!     look      facts -> troubles -> what began and ended, in the log
//!     prune     beyond the retention; where the medium is full and `on_full` says so, all that is done
//!     room?     no refusal for a while, and the store would take a record: the medium is full no more
//! ```

use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use super::troubles::{Change, Matter, Trouble};
use super::{Node, OnFull, lock};
use crate::error::InteropError;
use crate::rows::prune::Pruned;

/// How often a node looks.
const UPKEEP: Duration = Duration::from_secs(5);

/// What the store must have room for before the medium counts as full no more: most messages, with their outputs.
const ROOM_BYTES: u64 = 256 << 10;

impl Node {
    /// The task.
    pub(super) async fn upkeep(self: Arc<Self>) {
        let mut stop = self.stop.subscribe();
        loop {
            let pressed = tokio::select! {
                () = tokio::time::sleep(UPKEEP) => false,
                () = self.engine.pressed.notified() => true,
                () = self.engine.ledger.until_failed(), if !self.engine.ledger.has_failed() => false,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            device::supervise::rehearse("upkeep");
            self.look();
            if self.engine.ledger.has_failed() {
                continue;
            }
            if let Err(error) = self.prune(pressed).await {
                tracing::error!(%error, "messages beyond the retention could not be removed");
            }
            if !pressed {
                self.look_for_room().await;
            }
            lock(&self.time).save_or_say(&self.options.data);
        }
    }

    /// Looks what is the matter; what began or ended since the last time goes to the log. Those that there are.
    pub(super) fn look(&self) -> Vec<Trouble> {
        let ledger = &self.engine.ledger;
        let store = ledger.store();
        if let Some(cause) = store.poisoned()
            && !ledger.has_failed()
        {
            ledger.fail(&cause);
        }
        let mut facts = Vec::new();
        if let Some(cause) = ledger.failed().borrow().as_ref() {
            facts.push((Matter::Failed, cause.to_string()));
        }
        let broken: Vec<String> = self.queues().iter().filter(|q| q.is_broken()).map(|q| q.name.clone()).collect();
        if !broken.is_empty() {
            facts.push((Matter::Operation, format!("a programming error stopped operation {}", broken.join(", "))));
        }
        if store.lacks_descriptor() {
            facts.push((Matter::Descriptors, "the store waits for a file descriptor, to grow".to_owned()));
        }
        let waits = store.waits_for_room().filter(|_| !store.lacks_descriptor());
        if waits.is_some() || self.engine.is_full.load(Ordering::Acquire) {
            facts.push((Matter::Full, self.fullness(waits.as_deref())));
        }
        if let Some(ahead_us) = self.age_in_doubt() {
            let days = ahead_us / 86_400_000_000;
            let minutes = ahead_us / 60_000_000 % 1_440;
            let reason = format!(
                "the clock is {days} days and {minutes} minutes ahead of the time that has passed; nothing is removed for its age by that"
            );
            facts.push((Matter::Clock, reason));
        }
        let mut troubles = lock(&self.troubles);
        for change in troubles.apply(facts, self.engine.clock.now_us()) {
            // Both are errors: who looks for one finds when it was over, whatever the log's level.
            match change {
                Change::Began(Trouble { matter, reason, next, .. }) => {
                    tracing::error!(trouble = matter.name(), reason, next, "trouble begins");
                }
                Change::Ended(Trouble { matter, reason, .. }) => {
                    tracing::error!(trouble = matter.name(), reason, "trouble is over");
                }
            }
        }
        troubles.list()
    }

    fn fullness(&self, waits: Option<&str>) -> String {
        let counters = &self.engine.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let refused = read(&counters.full);
        let done = match self.options.on_full {
            OnFull::Refuse => "nothing is given up for it (on_full = refuse)".to_owned(),
            OnFull::Prune => {
                format!("{} delivered ones were given up for it (on_full = prune)", read(&counters.pruned_full))
            }
        };
        let why = waits.unwrap_or("no room for more messages");
        format!("{why}; {refused} messages were refused since the start, {done}")
    }

    /// How far the clock is ahead, where ages count and it is not believed.
    fn age_in_doubt(&self) -> Option<i64> {
        let ahead_us = lock(&self.time).at(&self.engine.clock.reading()).ahead_us;
        ahead_us.filter(|_| self.options.retention.age.is_some())
    }

    /// Somebody says that the clock is right.
    pub(super) fn confirm_clock(&self) -> Result<(), InteropError> {
        let mut time = lock(&self.time);
        time.confirm(&self.engine.clock.reading());
        time.save(&self.options.data)?;
        drop(time);
        self.look();
        Ok(())
    }

    /// Whether there is room again, after nobody was refused for a while.
    async fn look_for_room(self: &Arc<Self>) {
        let lacks = self.engine.ledger.store().lacks_descriptor();
        if !lacks && !self.engine.is_full.load(Ordering::Acquire) {
            return;
        }
        let node = Arc::clone(self);
        // It may make a segment of the journal.
        let room = tokio::task::spawn_blocking(move || node.engine.ledger.store().try_room(ROOM_BYTES)).await;
        if matches!(room, Ok(Ok(()))) {
            self.engine.is_full.store(false, Ordering::Release);
        }
        self.look();
    }

    /// Removes the messages that the retention lets go and that are done; where the medium is full (`pressed`) and the settings
    /// say so, all that are done. Nothing where that is under way already.
    ///
    /// # Errors
    /// The store's.
    pub async fn prune(self: &Arc<Self>, pressed: bool) -> Result<Pruned, InteropError> {
        let node = Arc::clone(self);
        let pass = move || node.prune_here(pressed);
        let pruned = tokio::task::spawn_blocking(pass).await.unwrap_or_else(|failed| {
            if failed.is_panic() {
                tracing::error!("removing old messages panicked; the next pass goes on where it was");
            }
            Err(InteropError::Stopping)
        })?;
        if pruned.messages > 0 {
            tracing::info!(messages = pruned.messages, held = pruned.held, "messages removed");
        }
        Ok(pruned)
    }

    fn prune_here(&self, pressed: bool) -> Result<Pruned, InteropError> {
        let mut pruner = match self.pruner.try_lock() {
            Ok(pruner) => pruner,
            // A pass panicked: what it had committed is done, the rest is done now.
            Err(TryLockError::Poisoned(pruner)) => pruner.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(Pruned::default()),
        };
        if pressed {
            self.make_room();
        }
        let gives_up = pressed && self.options.on_full == OnFull::Prune;
        let taken = self.engine.ledger.taken();
        let trusted_us = lock(&self.time).at(&self.engine.clock.reading()).trusted_us;
        let pruned = pruner.pass(taken, trusted_us, gives_up, &|| *self.stop.borrow());
        drop(pruner);
        if let Ok(pruned) = &pruned {
            let counters = &self.engine.counters;
            let counter = if gives_up { &counters.pruned_full } else { &counters.pruned };
            counter.fetch_add(pruned.messages, Ordering::Relaxed);
        }
        if pressed {
            self.make_room();
        }
        pruned
    }

    /// Has the store write its pages, so that the journal behind them can be given back, and freed pages be used.
    fn make_room(&self) {
        if let Err(error) = self.engine.ledger.store().checkpoint() {
            tracing::warn!(%error, "no room could be made");
        }
    }
}
