//! [`AlertKeeper`]: looks at the figures every ten seconds, and does what the [`AlertBook`] says.
//!
//! ```text
//!   thread "alerts": Snapshots --> conditions --> AlertBook --> Keeping (first), then a line for each channel
//!                                                                  |
//!                                           one task for each channel: messages in order, tried again for a day, or
//!                                           for an hour where the channel refuses them
//! ```
//!
//! Invariants: a message is durable before it goes out, and until its channel has taken it: a restart loses none, and sends again only one
//! whose answer had not arrived, under its old number. Where the store takes nothing, who is to be told is told all the same. Messages of a
//! channel keep their order; a channel that hangs holds up no other, nor the looks.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self as mpsc_of_threads, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use node::Clock;
use parking_lot::Mutex;
use store::{Store, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::book::{
    AlertAction, AlertBook, AlertEvent, AlertKey, AlertNote, AlertNotice, AlertState, NoticeKind, Outgoing, Silence,
};
use super::condition::Look;
use super::deliver::deliver;
use super::keeping::Keeping;
use super::kept::{AlertChange, KeptAlerts};
use super::rules::{AlertRules, CHANNELS_MAX};
use super::untaken::UntakenMessage;
use crate::samples::Samples;
use crate::snapshot::Snapshots;
use crate::table;

/// Messages in the line of a channel: more than the book lets wait.
const WAITING_MAX: usize = 1_000;

/// Pauses between tries of a message; the last one again and again.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// So long after it was made a message is given up, microseconds ...
const TRIED_US: i64 = 24 * 3_600 * 1_000_000;

/// ... and one that its channel refuses, as it will again: others wait behind it.
const REFUSED_US: i64 = 3_600 * 1_000_000;

/// How long the end of the watch is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads at most: a command, a look-up of a name and the readings of two files for each channel, and the look at the figures.
const THREADS: usize = 4 * CHANNELS_MAX + 8;

/// After so many looks an alert of before the start may end: not all parts of a node are known at once.
const SETTLED: u32 = 2;

/// How long a trial of a channel may take: as long as a channel may be given, and some more.
const TRIAL: Duration = Duration::from_secs(150);

struct Shared {
    /// Held by whoever changes the book, while that is being kept.
    changing: Mutex<()>,
    book: Mutex<AlertBook>,
    look: Mutex<(Look, u32)>,
    rules: watch::Sender<Arc<AlertRules>>,
    keeping: Keeping,
    kept: KeptAlerts,
    clock: Clock,
    snapshots: Arc<Snapshots>,
    node: String,
}

/// See the module's text.
pub struct AlertKeeper {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    /// Held while a channel is tried: one trial at a time.
    trying: Mutex<()>,
    sockets: Handle,
    /// Its sender goes with the thread.
    ended: Mutex<mpsc_of_threads::Receiver<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for AlertKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertKeeper").finish_non_exhaustive()
    }
}

impl AlertKeeper {
    /// Starts to look, with what was kept in the store; messages are from `node`, by the name that people know it by.
    ///
    /// # Errors
    /// The system cannot start a thread; what was kept cannot be read.
    pub fn start(
        rules: AlertRules,
        store: Store,
        clock: Clock,
        snapshots: Arc<Snapshots>,
        node: String,
    ) -> Result<Arc<AlertKeeper>, String> {
        let kept = KeptAlerts::of(store);
        let (state, outgoing) = kept.state().map_err(|error| error.to_string())?;
        let rules = Arc::new(rules);
        let book = Mutex::new(AlertBook::new(Arc::clone(&rules), state, outgoing));
        let keeping = Keeping::start(kept.clone())?;
        let (rules, _) = watch::channel(rules);
        let (changing, look) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { changing, book, look, rules, keeping, kept, clock, snapshots, node });
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS)
            .thread_name("alerts")
            .build()
            .map_err(|error| error.to_string())?;
        let sockets = runtime.handle().clone();
        let looking = Arc::clone(&shared);
        let (running, ended) = mpsc_of_threads::channel::<()>();
        let work = move || {
            let _running = running;
            runtime.block_on(look_on(looking, stopped));
            runtime.shutdown_background();
        };
        let failed =
            |why: &str| tracing::error!(why, "alerts are not watched any more until the next start: report it");
        let thread = device::supervise::thread("alerts", work, failed).map_err(|error| error.to_string())?;
        let (ended, thread) = (Mutex::new(ended), Mutex::new(Some(thread)));
        Ok(Arc::new(AlertKeeper { shared, stop, trying: Mutex::default(), sockets, ended, thread }))
    }

    /// Puts other rules in force, with the next look.
    pub fn replace(&self, rules: AlertRules) {
        self.shared.rules.send_replace(Arc::new(rules));
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<AlertRules> {
        Arc::clone(&self.shared.rules.borrow())
    }

    /// The state now.
    pub fn state(&self) -> AlertState {
        self.shared.book.lock().state().clone()
    }

    /// How many messages wait for a channel to take them, by channel.
    pub fn waiting(&self) -> BTreeMap<String, usize> {
        let mut waiting = BTreeMap::new();
        for outgoing in self.shared.book.lock().outgoing().values() {
            *waiting.entry(outgoing.channel.clone()).or_default() += 1;
        }
        waiting
    }

    /// The newest lines of the history, newest first.
    ///
    /// # Errors
    /// The store's.
    pub fn history(&self, most: usize) -> Result<Vec<AlertNote>, StoreError> {
        self.shared.kept.notes(most)
    }

    /// Silences alerts; durable when it returns. Returns the number of the silence. It blocks.
    ///
    /// # Errors
    /// There are too many, or it cannot be kept: then it is not in force.
    pub fn silence(&self, silence: Silence) -> Result<u64, String> {
        let before = self.state().last_silence;
        self.shared.change(AlertEvent::Silenced(silence))?;
        let number = self.state().last_silence;
        match number > before {
            true => Ok(number),
            false => Err("there are too many silences: end one first (`terrace alert unsilence`)".to_owned()),
        }
    }

    /// Ends a silence; durable when it returns. Returns whether there was one. It blocks.
    ///
    /// # Errors
    /// It cannot be kept: then the silence stays in force.
    pub fn unsilence(&self, number: u64) -> Result<bool, String> {
        let was = self.state().silences.iter().any(|silence| silence.number == number);
        self.shared.change(AlertEvent::Unsilenced(number))?;
        Ok(was)
    }

    /// Sends a trial message to a channel, once, past those that wait. It blocks for as long as the channel may take.
    ///
    /// # Errors
    /// There is no such channel, or another one is being tried; why it did not take the message.
    pub fn test(&self, channel: &str) -> Result<(), String> {
        let _one = self.trying.try_lock().ok_or("somebody else tries a channel: try again in a moment")?;
        let rules = self.rules();
        let to = rules.channels.get(channel).cloned();
        let to = to.ok_or_else(|| format!("there is no channel `{channel}`: `terrace alert rules` shows them"))?;
        let (now_us, node) = (self.shared.clock.now_us(), self.shared.node.clone());
        let notice = AlertNotice {
            id: 0,
            kind: NoticeKind::Test,
            key: AlertKey { rule: "test".to_owned(), subject: channel.to_owned() },
            when: String::new(),
            text: "somebody tries this channel: nothing is the matter".to_owned(),
            since_us: now_us,
            at_us: now_us,
        };
        let (done, answer) = mpsc_of_threads::channel();
        self.sockets.spawn(async move {
            // Who has asked may have gone away.
            let _ = done.send(deliver(&to, &notice, &node).await.map_err(|untaken| untaken.why));
        });
        answer.recv_timeout(TRIAL).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => Err(format!("no answer yet after {} s", TRIAL.as_secs())),
            RecvTimeoutError::Disconnected => Err("the channel was not tried: the node is stopping".to_owned()),
        })
    }

    /// Adds how many alerts are on, by rule, and how many messages wait, by channel.
    pub fn collect(&self, samples: &mut Samples) {
        let rules = self.rules();
        let state = self.state();
        for rule in &rules.rules {
            let on = state.firing.iter().filter(|(key, firing)| key.rule == rule.name && firing.began_us.is_some());
            samples.gauge(table::ALERTS_FIRING, &[&rule.name], on.count() as f64);
        }
        let waiting = self.waiting();
        for channel in rules.channels.keys() {
            samples.gauge(table::ALERTS_WAITING, &[channel], waiting.get(channel).copied().unwrap_or(0) as f64);
        }
    }

    /// Ends the watch. Messages that wait for a channel go out after the next start. It blocks, for ten seconds at most for the watch and as long
    /// again where the store takes nothing.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        if self.ended.lock().recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the watch of alerts does not end: it is left behind");
        } else if let Some(thread) = self.thread.lock().take() {
            // Its panic was reported.
            let _ = thread.join();
        }
        self.shared.keeping.stop();
    }
}

impl Shared {
    /// An event that tells nobody anything; kept when it returns. Errors: it could not be kept, and did not happen.
    fn change(&self, event: AlertEvent) -> Result<(), String> {
        let _one = self.changing.lock();
        let before = self.book.lock().clone();
        let mut next = before.clone();
        let actions = next.apply(event, self.clock.now_us());
        if let Err(why) = self.keeping.keep(AlertChange::of(&actions, next.state())) {
            // What is pending must not count later either.
            let undone = AlertChange { state: Some(before.state().clone()), ..AlertChange::default() };
            let _ = self.keeping.keep(undone);
            return Err(why);
        }
        *self.book.lock() = next;
        Ok(())
    }

    /// What holds now, by rule and subject, with what cannot be over yet.
    fn holds(&self, rules: &AlertRules, book: &AlertBook, now_us: i64) -> BTreeMap<AlertKey, String> {
        let mut holds = BTreeMap::new();
        if rules.rules.is_empty() {
            return holds;
        }
        let samples = self.snapshots.samples();
        let mut look = self.look.lock();
        let (look, looks) = &mut *look;
        *looks = looks.saturating_add(1);
        look.begin(now_us);
        let has_begun = |key: &AlertKey| book.state().firing.get(key).is_some_and(|firing| firing.began_us.is_some());
        for rule in &rules.rules {
            let is_within = rule.schedule.contains(now_us);
            for (subject, text) in rule.condition.holds(&samples, &rule.schedule, now_us, look) {
                let key = AlertKey { rule: rule.name.clone(), subject };
                let counts = rule.only.is_empty() || rule.only.contains(&key.subject);
                // Outside of its hours nothing begins, nor does what waits to begin; what is on goes on until it is over.
                if counts && (is_within || has_begun(&key)) {
                    holds.insert(key, text);
                }
            }
            for (key, firing) in book.state().firing.iter().filter(|(key, _)| key.rule == rule.name) {
                let is_open = rule.condition.is_open(&samples, &key.subject, firing.since_us, (now_us, look));
                if (is_within || has_begun(key)) && (*looks <= SETTLED || is_open) {
                    holds.entry(key.clone()).or_insert_with(|| firing.text.clone());
                }
            }
        }
        holds
    }

    /// Looks at the figures once. Blocks. Returns whom to tell what.
    fn look(&self) -> Vec<Outgoing> {
        let (rules, now_us) = (Arc::clone(&self.rules.borrow()), self.clock.now_us());
        // Not locked meanwhile: one of the figures is how many alerts are on.
        let before = self.book.lock().clone();
        let holds = self.holds(&rules, &before, now_us);
        let _one = self.changing.lock();
        let mut next = self.book.lock().clone();
        next.replace(rules);
        let actions = next.apply(AlertEvent::Looked(holds), now_us);
        if let Err(why) = self.keeping.keep(AlertChange::of(&actions, next.state())) {
            // A store that takes nothing is what alerts are for: who is to be told is told.
            tracing::warn!(why, "alerts are not kept yet");
        }
        *self.book.lock() = next;
        let told = actions.into_iter().filter_map(|action| match action {
            AlertAction::Tell(outgoing) => Some(outgoing),
            AlertAction::Drop(_) | AlertAction::Note(_) | AlertAction::Save => None,
        });
        told.collect()
    }

    /// A message was taken, or is given up. Blocks.
    fn done(&self, outgoing: &Outgoing, failed: Option<String>) {
        let Outgoing { channel, notice } = outgoing;
        let AlertKey { rule, subject } = &notice.key;
        if let Some(why) = &failed {
            tracing::error!(channel, rule, subject, why, "an alert was not told");
        }
        let _one = self.changing.lock();
        let mut next = self.book.lock().clone();
        let actions = next.apply(AlertEvent::Done(notice.id, failed), self.clock.now_us());
        if let Err(why) = self.keeping.keep(AlertChange::of(&actions, next.state())) {
            tracing::warn!(why, "that an alert was told is not kept yet");
        }
        *self.book.lock() = next;
    }
}

async fn look_on(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut channels: HashMap<String, mpsc::Sender<Outgoing>> = HashMap::new();
    let mut rules = shared.rules.subscribe();
    let mut told: Vec<Outgoing> = shared.book.lock().outgoing().values().cloned().collect();
    loop {
        for outgoing in std::mem::take(&mut told) {
            let line = channels.entry(outgoing.channel.clone()).or_insert_with(|| {
                let (line, waiting) = mpsc::channel(WAITING_MAX);
                // It ends with the runtime, or when the line does.
                node::task::session("alert-channel", send_in_order(Arc::clone(&shared), waiting));
                line
            });
            if let Err(error) = line.try_send(outgoing) {
                // Its task has panicked: kept as it is, the message goes out after the next start, and others by another task.
                let outgoing = error.into_inner();
                tracing::error!(channel = outgoing.channel, "an alert goes out after the next start only");
                channels.remove(&outgoing.channel);
            }
        }
        let every = rules.borrow_and_update().every;
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            // Without a sender there is nobody who could change them.
            Ok(()) = rules.changed() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let looking = Arc::clone(&shared);
        let look = tokio::task::spawn_blocking(move || {
            device::supervise::rehearse("alerts");
            looking.look()
        });
        told = tokio::select! {
            told = look => told.unwrap_or_else(|error| {
                tracing::error!(%error, "a look at the figures panicked; the next one is soon: report it");
                Vec::new()
            }),
            _ = stop.wait_for(|stop| *stop) => return,
        };
        for Outgoing { channel, notice } in &told {
            let (rule, subject, text) = (&notice.key.rule, &notice.key.subject, &notice.text);
            tracing::warn!(channel, rule, subject, text, kind = ?notice.kind, "alert");
        }
    }
}

/// Sends the messages of a channel in their order.
async fn send_in_order(shared: Arc<Shared>, mut waiting: mpsc::Receiver<Outgoing>) {
    while let Some(outgoing) = waiting.recv().await {
        let failed = try_on(&shared, &outgoing).await.err();
        let shared = Arc::clone(&shared);
        // It fails only if that panicked, which is in the log.
        let _ = tokio::task::spawn_blocking(move || shared.done(&outgoing, failed)).await;
    }
}

/// Sends a message, again and again. Errors: why it is given up.
async fn try_on(shared: &Shared, outgoing: &Outgoing) -> Result<(), String> {
    let Outgoing { channel: name, notice } = outgoing;
    let mut rules = shared.rules.subscribe();
    let mut tries = 0;
    loop {
        let channel = rules.borrow_and_update().channels.get(name).cloned();
        let Some(channel) = channel else { return Err("there is no such channel any more".to_owned()) };
        let tried = deliver(&channel, notice, &shared.node).await;
        let Err(UntakenMessage { why, is_final }) = tried else { return Ok(()) };
        let most_us = if is_final { REFUSED_US } else { TRIED_US };
        if shared.clock.now_us().saturating_sub(notice.at_us) >= most_us {
            return Err(why);
        }
        tracing::warn!(channel = name, why, tries, "an alert was not told yet; trying again");
        let pause = PAUSES.get(tries).or(PAUSES.last()).copied().unwrap_or_default();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // Perhaps its channel was set right.
            Ok(()) = rules.changed() => {}
        }
        tries += 1;
    }
}

#[cfg(test)]
mod tests;
