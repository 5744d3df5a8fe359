//! The tasks of a node every few seconds: it detects troubles, removes messages beyond the retention, checks the clock.
//!
//! ```text
//!   every INTERVAL, and at once when a message finds the medium full
//!     detect    facts -> troubles -> what began and ended, in the log
//!     prune     beyond the retention; where the medium is full and `on_full` allows it, what is done, the oldest first, until there is room
//!     audit     its oldest entries, beyond its own retention
//!     room?     no refusal for a while, and the store would take a record: the medium is full no more
//! ```

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use node::Audit;
use node::identity::Guard;
use node::identity::oidc::OidcProvider;
use node::timekeeping::Timekeeping;
use node::trouble::{Change, Matter, Trouble, Troubles, VolumeTroubles};
use tokio::sync::watch;

use super::operations::RunningOperations;
use super::{OnFull, Options, lock};
use crate::engine::Engine;
use crate::error::InteropError;
use crate::rows::prune::{Pruned, Pruner};

/// How often it is done. Troubles show in the status at once: that detects them too.
const INTERVAL: Duration = Duration::from_secs(5);

/// The free space that the store needs before the medium no longer counts as full: most messages, with their outputs.
const ROOM_BYTES: u64 = 256 << 10;

/// Transactions that give messages up for one refusal at most, each for about as much as was refused: should that not make room, as where
/// others fill the disk, not all of the history goes for it.
const ROUNDS: u32 = 8;

/// Why messages are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressure {
    /// Retention alone.
    Retention,
    /// One was refused, since the medium is full.
    Full,
    /// An embedder wants all to go that a full medium could make go.
    All,
}

/// See the module's text.
pub(super) struct Housekeeping {
    engine: Arc<Engine>,
    operations: Arc<RunningOperations>,
    data: PathBuf,
    on_full: OnFull,
    /// Messages, or entries of the audit, are removed for their age.
    has_age: bool,
    /// Held while a pass is under way.
    pruner: Mutex<Pruner>,
    audit: Arc<Audit>,
    guard: Arc<Guard>,
    time: Mutex<Timekeeping>,
    troubles: Mutex<Troubles>,
    /// Services that cannot work, with the reason.
    without: Mutex<Vec<(&'static str, String)>>,
    /// Report what is the matter with volumes.
    watched: Mutex<Vec<Box<VolumeTroubles>>>,
    stop: watch::Receiver<bool>,
}

impl Housekeeping {
    /// Of a node that starts.
    pub(super) fn new(
        engine: &Arc<Engine>,
        operations: &Arc<RunningOperations>,
        options: &Options,
        (pruner, time, audit, guard): (Pruner, Timekeeping, &Arc<Audit>, &Arc<Guard>),
        stop: watch::Receiver<bool>,
    ) -> Arc<Housekeeping> {
        Arc::new(Housekeeping {
            engine: Arc::clone(engine),
            operations: Arc::clone(operations),
            data: options.data.clone(),
            on_full: options.on_full,
            has_age: options.retention.age.is_some() || options.audit.keep.is_some(),
            pruner: Mutex::new(pruner),
            audit: Arc::clone(audit),
            guard: Arc::clone(guard),
            time: Mutex::new(time),
            troubles: Mutex::default(),
            without: Mutex::default(),
            watched: Mutex::default(),
            stop,
        })
    }

    /// The task.
    pub(super) async fn run(self: Arc<Self>) {
        let mut stop = self.stop.clone();
        loop {
            let pressed = tokio::select! {
                () = tokio::time::sleep(INTERVAL) => false,
                () = self.engine.pressed.notified() => true,
                () = self.engine.message_log.until_failed(), if !self.engine.message_log.has_failed() => false,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            device::supervise::rehearse("housekeeping");
            self.detect_troubles();
            if self.engine.message_log.has_failed() {
                continue;
            }
            if let Err(error) = self.prune(if pressed { Pressure::Full } else { Pressure::Retention }).await {
                tracing::error!(%error, "messages beyond the retention could not be removed");
            }
            self.tend_audit().await;
            if !pressed {
                self.check_room().await;
            }
            self.save_time();
        }
    }

    /// Writes the time to the data directory.
    pub(super) fn save_time(&self) {
        lock(&self.time).save_or_log(&self.data);
    }

    /// Detects troubles; logs those that began or ended since the last time. Returns the present ones.
    pub(super) fn detect_troubles(&self) -> Vec<Trouble> {
        let message_log = &self.engine.message_log;
        let store = message_log.store();
        if let Some(cause) = store.poisoned()
            && !message_log.has_failed()
        {
            message_log.fail(&cause);
        }
        let mut facts = Vec::new();
        if let Some(cause) = message_log.failed().borrow().as_ref() {
            facts.push((Matter::Failed, cause.to_string()));
        }
        let broken: Vec<String> =
            self.operations.queues().iter().filter(|q| q.is_broken()).map(|q| q.name.clone()).collect();
        if !broken.is_empty() {
            facts.push((Matter::Operation, format!("a programming error stopped operation {}", broken.join(", "))));
        }
        let without = lock(&self.without).iter().map(|(name, reason)| format!("{name}: {reason}")).collect::<Vec<_>>();
        if !without.is_empty() {
            facts.push((Matter::Service, without.join("; ")));
        }
        let of_volumes: Vec<String> = lock(&self.watched).iter().flat_map(|troubles| troubles()).collect();
        if !of_volumes.is_empty() {
            facts.push((Matter::Volume, of_volumes.join("; ")));
        }
        if store.lacks_descriptor() {
            facts.push((Matter::Descriptors, "the store waits for a file descriptor, to grow".to_owned()));
        }
        let waits = store.waits_for_room().filter(|_| !store.lacks_descriptor());
        if waits.is_some() || self.engine.is_full.load(Ordering::Acquire) {
            facts.push((Matter::Full, self.fullness(waits.as_deref())));
        }
        if let Some(reason) = self.guard.lacks_rights() {
            facts.push((Matter::Identity, reason));
        }
        if let Some(reason) = self.guard.directory_trouble() {
            facts.push((Matter::Directory, reason));
        }
        if let Some(reason) = self.guard.provider().and_then(OidcProvider::trouble) {
            facts.push((Matter::Provider, reason));
        }
        let broken_glass = self.guard.broken_glass();
        if !broken_glass.is_empty() {
            facts.push((Matter::BreakGlass, broken_glass.join("; ")));
        }
        if let Some(reason) = self.audit.trouble() {
            facts.push((Matter::Audit, reason));
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
            // Both are errors: a search for the one finds when it was over, whatever the log's level.
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

    /// See [`RunningProduction::watch_troubles`](super::RunningProduction::watch_troubles).
    pub(super) fn watch_troubles(&self, troubles: Box<VolumeTroubles>) {
        lock(&self.watched).push(troubles);
    }

    /// The node goes on without a service.
    pub(super) fn goes_on_without(&self, service: &'static str, reason: String) {
        lock(&self.without).push((service, reason));
        self.detect_troubles();
    }

    fn fullness(&self, waits: Option<&str>) -> String {
        let counters = &self.engine.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let refused = read(&counters.full);
        let done = match self.on_full {
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
        ahead_us.filter(|_| self.has_age)
    }

    /// Takes the clock for right: an operator has confirmed it.
    pub(super) fn confirm_clock(&self) -> Result<(), InteropError> {
        let mut time = lock(&self.time);
        time.confirm(&self.engine.clock.reading());
        time.save(&self.data)?;
        drop(time);
        self.detect_troubles();
        Ok(())
    }

    /// Whether there is room again, after no sender was refused for a while.
    async fn check_room(self: &Arc<Self>) {
        let lacks = self.engine.message_log.store().lacks_descriptor();
        if !lacks && !self.engine.is_full.load(Ordering::Acquire) {
            return;
        }
        let this = Arc::clone(self);
        // It may make a segment of the journal.
        let room = tokio::task::spawn_blocking(move || this.engine.message_log.store().try_room(ROOM_BYTES)).await;
        if matches!(room, Ok(Ok(()))) {
            self.engine.is_full.store(false, Ordering::Release);
        }
        self.detect_troubles();
    }

    /// Removes the messages that the retention lets go and that are done; where the medium is full and the settings
    /// allow it, of all that are done the oldest, until there is room. Nothing where that is under way already.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn prune(self: &Arc<Self>, pressure: Pressure) -> Result<Pruned, InteropError> {
        let this = Arc::clone(self);
        let pass = move || this.prune_here(pressure);
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

    /// Removes entries of the audit that need not be kept.
    async fn tend_audit(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let tend = move || {
            let trusted_us = lock(&this.time).at(&this.engine.clock.reading()).trusted_us;
            this.audit.tend(trusted_us, &|| *this.stop.borrow())
        };
        match tokio::task::spawn_blocking(tend).await {
            Ok(Ok(0)) => {}
            Ok(Ok(entries)) => tracing::info!(entries, "entries of the audit removed"),
            Ok(Err(error)) => tracing::error!(%error, "entries of the audit beyond its retention could not be removed"),
            Err(_) => tracing::error!("removing entries of the audit panicked; the next pass goes on where it was"),
        }
    }

    fn prune_here(&self, pressure: Pressure) -> Result<Pruned, InteropError> {
        let mut pruner = match self.pruner.try_lock() {
            Ok(pruner) => pruner,
            // A pass panicked: its committed removals are done, the others are done now.
            Err(TryLockError::Poisoned(pruner)) => pruner.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(Pruned::default()),
        };
        let pressed = pressure != Pressure::Retention;
        if pressed {
            self.make_room();
        }
        let refused = match pressure {
            Pressure::Full => self.engine.wanted.swap(0, Ordering::Relaxed).max(ROOM_BYTES),
            Pressure::Retention | Pressure::All => 0,
        };
        let (wanted, rounds) = match (pressure, self.on_full) {
            (Pressure::Retention, _) | (_, OnFull::Refuse) => (None, None),
            (Pressure::Full, OnFull::Prune) => (Some(refused), Some(Cell::new(0))),
            (Pressure::All, OnFull::Prune) => (Some(u64::MAX), None),
        };
        let ends = || *self.stop.borrow() || rounds.as_ref().is_some_and(|rounds| self.has_room(refused, rounds));
        let taken = self.engine.message_log.ingested();
        let trusted_us = lock(&self.time).at(&self.engine.clock.reading()).trusted_us;
        let pruned = pruner.pass(taken, trusted_us, wanted, &ends);
        drop(pruner);
        if let Ok(pruned) = &pruned {
            let counters = &self.engine.counters;
            let counter = if wanted.is_some() { &counters.pruned_full } else { &counters.pruned };
            counter.fetch_add(pruned.messages, Ordering::Relaxed);
        }
        if pressed {
            self.make_room();
        }
        pruned
    }

    /// Whether giving messages up ends: there is room, or it went on for long enough.
    fn has_room(&self, wanted: u64, rounds: &Cell<u32>) -> bool {
        let done = rounds.replace(rounds.get() + 1);
        if done > 0 {
            self.make_room();
        }
        done >= ROUNDS || self.engine.message_log.store().try_room(wanted).is_ok()
    }

    /// Has the store write its pages, so that the journal behind them can be given back, and freed pages be used.
    fn make_room(&self) {
        if let Err(error) = self.engine.message_log.store().checkpoint() {
            tracing::warn!(%error, "no room could be made");
        }
    }
}
