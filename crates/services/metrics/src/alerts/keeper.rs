//! [`AlertKeeper`]: looks at the figures every ten seconds, and does what the [`AlertBook`] says.
//!
//! ```text
//!   thread "alerts": Snapshots --> conditions --> AlertBook --> KeptAlerts (first), then a line for each channel
//!                                                                     |
//!                                            one task for each channel: messages in order, tried again for a quarter of an hour
//! ```
//!
//! Invariants: the state is durable before a message goes out, so a restart tells nothing twice that was told; it may leave out one that was
//! on its way, which `terrace alert list` shows as told. Messages of a channel keep their order; a channel that is away holds up no other.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use node::Clock;
use parking_lot::Mutex;
use store::{Store, StoreError};
use tokio::sync::{mpsc, watch};

use super::book::{AlertAction, AlertBook, AlertEvent, AlertKey, AlertNote, AlertNotice, AlertState, Silence};
use super::condition::Look;
use super::deliver::deliver;
use super::kept::KeptAlerts;
use super::rules::AlertRules;
use crate::samples::Samples;
use crate::snapshot::Snapshots;
use crate::table;

/// How often the figures are looked at.
const INTERVAL: Duration = Duration::from_secs(10);

/// Messages that wait for a channel; further ones are noted and dropped.
const WAITING_MAX: usize = 1_000;

/// Pauses between tries of a message.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// Threads that run commands and look at figures.
const THREADS: usize = 4;

struct Shared {
    book: Mutex<(AlertBook, Look)>,
    kept: KeptAlerts,
    clock: Clock,
    snapshots: Arc<Snapshots>,
}

/// See the module's text.
pub struct AlertKeeper {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    /// Messages of silences go out by the thread as well.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for AlertKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertKeeper").finish_non_exhaustive()
    }
}

impl AlertKeeper {
    /// Starts to look, with what was kept in the store.
    ///
    /// # Errors
    /// The system cannot start a thread; what was kept cannot be read.
    pub fn start(
        rules: AlertRules,
        store: Store,
        clock: Clock,
        snapshots: Arc<Snapshots>,
    ) -> Result<Arc<AlertKeeper>, String> {
        let kept = KeptAlerts::of(store);
        let state = kept.state().map_err(|error| error.to_string())?;
        let book = Mutex::new((AlertBook::new(rules, state), Look::default()));
        let shared = Arc::new(Shared { book, kept, clock, snapshots });
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS)
            .thread_name("alerts")
            .build()
            .map_err(|error| error.to_string())?;
        let looking = Arc::clone(&shared);
        let work = move || {
            runtime.block_on(look_on(looking, stopped));
            runtime.shutdown_background();
        };
        let failed = |why: &str| tracing::error!(why, "alerts are not watched any more until the next start");
        let thread = device::supervise::thread("alerts", work, failed).map_err(|error| error.to_string())?;
        Ok(Arc::new(AlertKeeper { shared, stop, thread: Mutex::new(Some(thread)) }))
    }

    /// Puts other rules in force.
    pub fn replace(&self, rules: AlertRules) {
        self.shared.book.lock().0.replace(rules);
    }

    /// The state now.
    pub fn state(&self) -> AlertState {
        self.shared.book.lock().0.state().clone()
    }

    /// The newest lines of the history, newest first.
    ///
    /// # Errors
    /// The store's.
    pub fn history(&self, most: usize) -> Result<Vec<AlertNote>, StoreError> {
        self.shared.kept.notes(most)
    }

    /// Silences alerts; durable when it returns. Returns the number of the silence.
    ///
    /// # Errors
    /// The store's: then it is not in force.
    pub fn silence(&self, silence: Silence) -> Result<u64, StoreError> {
        self.change(AlertEvent::Silenced(silence))?;
        Ok(self.state().next)
    }

    /// Ends a silence; durable when it returns. Returns whether there was one.
    ///
    /// # Errors
    /// The store's: then it stays in force.
    pub fn unsilence(&self, number: u64) -> Result<bool, StoreError> {
        let was = self.state().silences.iter().any(|silence| silence.number == number);
        self.change(AlertEvent::Unsilenced(number))?;
        Ok(was)
    }

    /// An event that tells nobody anything.
    fn change(&self, event: AlertEvent) -> Result<(), StoreError> {
        let now_us = self.shared.clock.now_us();
        let mut book = self.shared.book.lock();
        let mut next = book.0.clone();
        let actions = next.apply(event, now_us);
        self.shared.keep(&actions, next.state())?;
        book.0 = next;
        Ok(())
    }

    /// Adds how many alerts are on, by rule.
    pub fn collect(&self, samples: &mut Samples) {
        let book = self.shared.book.lock();
        for rule in &book.0.rules().rules {
            let is_on =
                |(key, firing): &(&AlertKey, &super::book::Firing)| key.rule == rule.name && firing.began_us.is_some();
            let on = book.0.state().firing.iter().filter(is_on).count();
            samples.gauge(table::ALERTS_FIRING, &[&rule.name], on as f64);
        }
    }

    /// Ends the watch. Messages that wait for a channel are not sent any more.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.lock().take() {
            // Its panic was reported.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn keep(&self, actions: &[AlertAction], state: &AlertState) -> Result<(), StoreError> {
        let notes: Vec<AlertNote> = actions
            .iter()
            .filter_map(|action| match action {
                AlertAction::Note(note) => Some(note.clone()),
                AlertAction::Tell(..) | AlertAction::Save => None,
            })
            .collect();
        let saves = actions.contains(&AlertAction::Save);
        if notes.is_empty() && !saves { Ok(()) } else { self.kept.write(&notes, saves.then_some(state)) }
    }

    /// Looks at the figures once. Blocks. Returns whom to tell what.
    fn look(&self) -> Vec<(String, AlertNotice)> {
        let (samples, now_us) = (self.snapshots.samples(), self.clock.now_us());
        let mut book = self.book.lock();
        let (book, look) = &mut *book;
        let mut holds = BTreeMap::new();
        for rule in &book.rules().rules.clone() {
            let found = rule.condition.holds(&samples, &rule.schedule, now_us, look);
            for (subject, text) in found {
                let key = AlertKey { rule: rule.name.clone(), subject };
                let counts = rule.only.is_empty() || rule.only.contains(&key.subject);
                // Outside of its hours nothing begins; what is on goes on until it is over.
                if counts && (rule.schedule.contains(now_us) || book.state().firing.contains_key(&key)) {
                    holds.insert(key, text);
                }
            }
        }
        let mut next = book.clone();
        let actions = next.apply(AlertEvent::Looked(holds), now_us);
        if let Err(error) = self.keep(&actions, next.state()) {
            // A store that takes nothing is what alerts are for: who is to be told is told, and after a restart once more.
            tracing::warn!(%error, "alerts cannot be kept");
        }
        *book = next;
        let told = actions.into_iter().filter_map(|action| match action {
            AlertAction::Tell(channel, notice) => Some((channel, notice)),
            AlertAction::Note(_) | AlertAction::Save => None,
        });
        told.collect()
    }

    /// Notes that a message did not go out.
    fn not_told(&self, channel: &str, notice: &AlertNotice, why: &str) {
        let AlertKey { rule, subject } = notice.key.clone();
        tracing::error!(channel, rule, subject, why, "an alert was not told");
        let text = format!("{channel}: {why}");
        let note = AlertNote { at_us: self.clock.now_us(), what: "not told".to_owned(), rule, subject, text };
        if let Err(error) = self.kept.write(&[note], None) {
            tracing::warn!(%error, "alerts cannot be kept");
        }
    }
}

async fn look_on(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut channels: HashMap<String, mpsc::Sender<AlertNotice>> = HashMap::new();
    loop {
        device::supervise::rehearse("alerts");
        let looking = Arc::clone(&shared);
        let told = tokio::task::spawn_blocking(move || looking.look()).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a look at the figures panicked; the next one is in ten seconds: report it");
            Vec::new()
        });
        for (channel, notice) in told {
            let (rule, subject, text) = (&notice.key.rule, &notice.key.subject, &notice.text);
            tracing::warn!(channel, rule, subject, text, kind = ?notice.kind, "alert");
            let line = channels.entry(channel.clone()).or_insert_with(|| {
                let (line, waiting) = mpsc::channel(WAITING_MAX);
                // It ends with the runtime, or when the line does.
                node::task::session("alert-channel", tell(Arc::clone(&shared), channel.clone(), waiting));
                line
            });
            if let Err(error) = line.try_send(notice.clone()) {
                shared.not_told(&channel, &notice, &error.to_string());
                channels.remove(&channel);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Sends the messages of a channel in their order.
async fn tell(shared: Arc<Shared>, name: String, mut waiting: mpsc::Receiver<AlertNotice>) {
    while let Some(notice) = waiting.recv().await {
        let mut tries = 0;
        loop {
            let channel = shared.book.lock().0.rules().channels.get(&name).cloned();
            let Some(channel) = channel else {
                shared.not_told(&name, &notice, "there is no such channel any more");
                break;
            };
            let Err(why) = deliver(&channel, &notice).await else { break };
            let Some(pause) = PAUSES.get(tries) else {
                shared.not_told(&name, &notice, &why);
                break;
            };
            tracing::warn!(channel = name, why, tries, "an alert was not told yet; trying again");
            tokio::time::sleep(*pause).await;
            tries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    fn until(what: &str, probe: impl Fn() -> bool) {
        let began = Instant::now();
        while !probe() {
            assert!(began.elapsed() < Duration::from_secs(120), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn an_alert_goes_out_by_a_program_once_and_is_kept_over_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("told");
        let text = format!(
            "[channels.file]\ncommand = ['/bin/sh', '-c', 'cat >> \"{0}\"; echo >> \"{0}\"']\n[[alert]]\nname = 'still'\nwhen = \
             'suspended'\nchannels = ['file']\n",
            file.display()
        );
        let rules = AlertRules::read(&text).expect("rules");
        let store = Store::in_memory(store::Options::default()).expect("memory");
        let stands = Arc::new(AtomicBool::new(true));
        let told = || std::fs::read_to_string(&file).unwrap_or_default();
        let start = || {
            let stands = Arc::clone(&stands);
            let source: Box<crate::Source> = Box::new(move |samples: &mut Samples| {
                samples.flag(table::OPERATION_SUSPENDED, &["lab"], stands.load(Ordering::Relaxed));
            });
            AlertKeeper::start(rules.clone(), store.clone(), Clock::system(), Snapshots::new(vec![source]))
                .expect("it starts")
        };
        let keeper = start();
        until("it is told", || told().contains("\"kind\":\"on\""));
        keeper.stop();
        let keeper = start();
        let state = keeper.state();
        assert_eq!(state.firing.values().map(|firing| firing.told.len()).sum::<usize>(), 1);
        stands.store(false, Ordering::Relaxed);
        until("its end is told", || told().contains("\"kind\":\"off\""));
        keeper.stop();
        assert_eq!(told().lines().count(), 2, "{}", told());
        let whats: Vec<String> = keeper.history(9).expect("kept").into_iter().map(|note| note.what).collect();
        assert_eq!(whats, ["off", "on"]);
        let mut samples = Samples::default();
        keeper.collect(&mut samples);
        assert_eq!(samples.value("terrace_alerts_firing", &["still"]), Some(0.0));
    }
}
