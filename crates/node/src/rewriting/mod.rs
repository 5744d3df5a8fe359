//! Rewriting in a node: what older data keys have encrypted is written anew in the background, at a rate, until nothing needs them.
//!
//! ```text
//!   terrace encryption rewrite --control socket--> RewriteRequest --> Rewriting: a thread
//!                                                                       | index files, by who has them        OtherFiles
//!                                                                       | pages, values, journal              Store::rewrite
//!   DATA/encryption.rewrite    what is being done and the place up to which it is durable: the next start goes on there
//! ```
//!
//! Invariants: one thread at a time rewrites; that it runs is durable before it begins, and a start of the node goes on with it; a place is
//! in the file only if all before it is durable, and its key is sealed there. The file decides nothing: a data key is retired only after
//! everything was read. What was stopped or has failed goes on at its place when it is requested again; only one that is complete begins anew.
//!
//! What it does not do: retire the old keys, which is done at rest.

mod record;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::{os, supervise};
use serde::{Deserialize, Serialize};
use store::{RewriteOptions, RewritePlace, RewriteProgress, Store};

use crate::audit::{Audit, AuditEntry, AuditOutcome};
use crate::clock::Clock;
use crate::error::NodeError;

use record::{FILE, RecordFile, SealedPlace, read};
pub use record::{RewriteState, RewriteStatus, recorded};

/// The word that the request begins with.
pub const REQUEST: &str = "encryption-rewrite";

/// The rate where nothing is said: a disk is busy with it for a part of its time.
pub const BYTES_PER_SECOND: u64 = 32 << 20;

/// The least rate that can be set: a page of the largest kind in a second, and some.
pub const BYTES_PER_SECOND_MIN: u64 = 128 << 10;

/// How often the file gets a newer place, at most.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// How long it waits until it tries again what has no space, or is kept by something else.
const WAIT: Duration = Duration::from_millis(500);

/// A request about rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RewriteRequest {
    /// Begin, or change the rate of what runs.
    Start {
        /// Bytes a second that are read and written for it.
        bytes_per_second: u64,
        /// Give up the journal of older keys that only `[journal] keep` holds.
        #[serde(default)]
        drops_kept_journal: bool,
    },
    /// End it; what was rewritten stays.
    Stop,
    /// How far it has come.
    Status,
}

/// Told how many bytes were read and written since; ends the work.
pub type OnBytes<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Writes anew the files outside the store that another data key than the newest one, of this number, encrypts. Errors: what could not be.
pub type OtherFiles = dyn Fn(u32, OnBytes<'_>) -> Result<ControlFlow<()>, String> + Send + Sync;

/// What is known of the last rewrite.
#[derive(Clone, Debug)]
struct RewriteRecord {
    status: RewriteStatus,
    place: Option<RewritePlace>,
}

/// Rewriting of a node that runs.
pub struct Rewriting {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Rewriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rewriting").field("data", &self.shared.data).finish_non_exhaustive()
    }
}

struct Shared {
    data: PathBuf,
    store: Store,
    files: Box<OtherFiles>,
    audit: Arc<Audit>,
    clock: Clock,
    state: Mutex<State>,
    /// Wakes the thread that waits for its rate.
    wake: Condvar,
}

/// Why the thread is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A request.
    Request,
    /// The node ends: the next start goes on.
    Node,
}

struct State {
    record: Option<RewriteRecord>,
    /// Why the thread is to end: the first reason counts.
    end: Option<End>,
    /// The node ends: nothing begins any more.
    is_closing: bool,
    saved: Instant,
}

impl State {
    fn rate(&self) -> u64 {
        self.record.as_ref().map_or(BYTES_PER_SECOND, |record| record.status.bytes_per_second).max(1)
    }
}

/// When the next bytes are due, at a rate.
struct Pace {
    due: Instant,
    rate: u64,
}

impl Rewriting {
    /// Goes on with what was being rewritten when the node ended. `files` writes the files of services anew.
    ///
    /// # Errors
    /// `Refused`: the file cannot be read, or the system starts no thread; the node goes on without.
    pub fn start(
        data: &Path,
        store: &Store,
        audit: &Arc<Audit>,
        clock: Clock,
        files: Box<OtherFiles>,
    ) -> (Arc<Rewriting>, Result<(), NodeError>) {
        let read = read(data);
        let (record, read) = match read {
            Ok(file) => {
                let opened = |place: SealedPlace| place.open(store.sealer()?);
                let record =
                    |file: RecordFile| RewriteRecord { status: file.status, place: file.place.and_then(opened) };
                (file.map(record), Ok(()))
            }
            Err(error) => (None, Err(error)),
        };
        let is_running = record.as_ref().is_some_and(|record| record.status.state == RewriteState::Running);
        let state = State { record, end: None, is_closing: false, saved: Instant::now() };
        let shared = Shared {
            data: data.to_owned(),
            store: store.clone(),
            files,
            audit: Arc::clone(audit),
            clock,
            state: Mutex::new(state),
            wake: Condvar::new(),
        };
        let rewriting = Rewriting { shared: Arc::new(shared), thread: Mutex::new(None) };
        let begun = if is_running { rewriting.begin() } else { Ok(()) };
        (Arc::new(rewriting), read.and(begun))
    }

    /// Does what is requested; returns how far it has come then, `None` if there never was a rewrite. It may wait for a page.
    ///
    /// # Errors
    /// `Refused`: the store is not encrypted, the rate is too small, nothing runs that could be stopped; `File`.
    pub fn handle(&self, request: RewriteRequest) -> Result<Option<RewriteStatus>, NodeError> {
        match request {
            RewriteRequest::Status => {}
            RewriteRequest::Start { bytes_per_second, drops_kept_journal } => {
                self.request(bytes_per_second, drops_kept_journal)?;
            }
            RewriteRequest::Stop => {
                if !self.is_running() {
                    return Err(NodeError::Refused("nothing is being rewritten".to_owned()));
                }
                self.join(End::Request);
                if self.is_running() {
                    // The node ended it first: the next start goes on.
                    return Err(NodeError::Stopping);
                }
            }
        }
        Ok(self.shared.lock().record.as_ref().map(|record| record.status.clone()))
    }

    /// Ends the thread; what was being rewritten goes on at the next start.
    pub fn end(&self) {
        self.shared.lock().is_closing = true;
        self.join(End::Node);
    }

    fn is_running(&self) -> bool {
        let record = &self.shared.lock().record;
        record.as_ref().is_some_and(|record| record.status.state == RewriteState::Running)
    }

    fn request(&self, bytes_per_second: u64, drops_kept_journal: bool) -> Result<(), NodeError> {
        let shared = &self.shared;
        let Some(sealer) = shared.store.sealer() else {
            return Err(NodeError::Refused(format!("{} is not encrypted: it has no keys", shared.data.display())));
        };
        if bytes_per_second < BYTES_PER_SECOND_MIN {
            return Err(NodeError::Refused(format!("the rate is at least {BYTES_PER_SECOND_MIN} bytes a second")));
        }
        let is_more = |status: &RewriteStatus| status.state == RewriteState::Running && !status.drops_kept_journal;
        if drops_kept_journal && shared.lock().record.as_ref().is_some_and(|record| is_more(&record.status)) {
            // It goes on at its place, with that.
            self.join(End::Request);
        }
        {
            let mut state = shared.lock();
            if state.is_closing {
                return Err(NodeError::Stopping);
            }
            if let Some(record) = &mut state.record
                && record.status.state == RewriteState::Running
            {
                record.status.bytes_per_second = bytes_per_second;
                let record = record.clone();
                // It may wait for the rate before.
                shared.wake.notify_all();
                return shared.save(&mut state, record);
            }
            // One that was stopped, or has failed, goes on where it was.
            let place = state.record.take();
            let record = RewriteRecord {
                status: RewriteStatus {
                    state: RewriteState::Running,
                    data_key: sealer.mark().id,
                    bytes_per_second,
                    drops_kept_journal,
                    begun_us: shared.clock.now_us(),
                    part: String::new(),
                    pages: 0,
                    pages_total: 0,
                    renewed: 0,
                    values: 0,
                    file_bytes: 0,
                    waits: None,
                    why: None,
                },
                place: place.and_then(|record| record.place),
            };
            shared.save(&mut state, record)?;
            state.end = None;
        }
        self.begin()
    }

    fn begin(&self) -> Result<(), NodeError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = thread.take() {
            // Its record says that it has ended.
            drop(ended.join());
        }
        let (run, failed) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let work = move || run.run();
        let panicked = move |why: &str| failed.ended(RewriteState::Failed, Some(why.to_owned()));
        let started = supervise::thread("encryption rewrite", work, panicked);
        *thread = Some(started.map_err(|error| {
            let why = format!("the system starts no thread: {error}");
            self.shared.ended(RewriteState::Failed, Some(why.clone()));
            NodeError::Refused(why)
        })?);
        Ok(())
    }

    fn join(&self, end: End) {
        {
            let mut state = self.shared.lock();
            state.end.get_or_insert(end);
        }
        self.shared.wake.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic has its entry.
            drop(thread.join());
        }
    }
}

impl Drop for Rewriting {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a record durable, and the one that is shown.
    fn save(&self, state: &mut State, record: RewriteRecord) -> Result<(), NodeError> {
        let path = self.data.join(FILE);
        let sealed = |place: &RewritePlace| Some(SealedPlace::of(place, self.store.sealer()?));
        let file = RecordFile { status: record.status.clone(), place: record.place.as_ref().and_then(sealed) };
        let text = serde_json::to_vec(&file).expect("plain data becomes JSON");
        state.record = Some(record);
        state.saved = Instant::now();
        os::replace_file(&path, &text).map_err(NodeError::file("write", &path))
    }

    fn run(&self) {
        match self.rewrite() {
            Ok((true, None)) => self.ended(RewriteState::Complete, None),
            Ok((true, Some(why))) => {
                // All of the store is done: the next one looks at everything again.
                if let Some(record) = &mut self.lock().record {
                    record.place = None;
                }
                self.ended(RewriteState::Failed, Some(why));
            }
            Ok((false, _)) => {
                // Copied: the lock must not be held any more.
                let end = self.lock().end;
                // If the node ends it is running, as the file says.
                if end == Some(End::Request) {
                    self.ended(RewriteState::Stopped, None);
                }
            }
            // The next start goes on: the store is being closed, or has failed.
            Err(_) if self.lock().end == Some(End::Node) => {}
            Err(why) => self.ended(RewriteState::Failed, Some(why)),
        }
    }

    /// Records how it ended, in the audit too.
    fn ended(&self, ended: RewriteState, why: Option<String>) {
        let mut state = self.lock();
        let Some(mut record) = state.record.clone() else { return };
        let data_key = record.status.data_key;
        (record.status.state, record.status.why, record.status.waits) = (ended, why.clone(), None);
        if ended == RewriteState::Complete {
            record.place = None;
        }
        if let Err(error) = self.save(&mut state, record) {
            tracing::error!(%error, "how rewriting ended was not recorded: the next start begins it again");
        }
        drop(state);
        let entry = AuditEntry::new("encryption.rewrite-end", "").with("data_key", data_key.to_string());
        let entry = match (ended, &why) {
            (RewriteState::Failed, Some(why)) => {
                tracing::error!(data_key, %why, "what older data keys have encrypted was not all written anew");
                entry.ended(AuditOutcome::Failed, why.clone())
            }
            _ => {
                tracing::info!(data_key, state = ?ended, "writing anew what older data keys have encrypted has ended");
                entry.with("state", format!("{ended:?}").to_lowercase())
            }
        };
        if let Err(error) = self.audit.record(entry) {
            tracing::warn!(%error, "the audit has no entry of how rewriting ended");
        }
    }

    /// Rewrites until nothing needs an older key, or until it is to end; what could not be rewritten.
    fn rewrite(&self) -> Result<(bool, Option<String>), String> {
        let Some(sealer) = self.store.sealer() else { return Err("the store is not encrypted".to_owned()) };
        let mut pace = Pace { due: Instant::now(), rate: self.lock().rate() };
        loop {
            let data_key = sealer.mark().id;
            self.show(|status| {
                status.data_key = data_key;
                status.part = "index files".to_owned();
            });
            let files = (self.files)(data_key, &mut |bytes| {
                self.show(|status| status.file_bytes += bytes);
                self.pace(&mut pace, bytes)
            });
            let left = match files {
                Ok(ControlFlow::Break(())) => return Ok((false, None)),
                Ok(ControlFlow::Continue(())) => None,
                Err(why) => Some(format!("index files: {why}")),
            };
            let options = self.options();
            let mut bytes = 0;
            let done = self.store.rewrite(options, &mut |progress| {
                self.come_to(progress);
                let new = progress.bytes - std::mem::replace(&mut bytes, progress.bytes);
                match &progress.waits {
                    None => self.pace(&mut pace, new),
                    Some(_) => self.sleep(WAIT, None),
                }
            });
            let done = done.map_err(|error| error.to_string())?;
            if !done.is_complete || sealer.mark().id == data_key {
                return Ok((done.is_complete, left));
            }
        }
    }

    /// Where it goes on, and what it gives up.
    fn options(&self) -> RewriteOptions {
        let state = self.lock();
        let record = state.record.as_ref();
        RewriteOptions {
            from: record.and_then(|record| record.place.clone()),
            drops_kept_journal: record.is_some_and(|record| record.status.drops_kept_journal),
            ..RewriteOptions::default()
        }
    }

    fn show(&self, change: impl FnOnce(&mut RewriteStatus)) {
        if let Some(record) = &mut self.lock().record {
            change(&mut record.status);
        }
    }

    /// Shows how far the store has come, and records the place now and then.
    fn come_to(&self, progress: &RewriteProgress) {
        let mut state = self.lock();
        let is_due = state.saved.elapsed() >= SAVE_EVERY;
        let Some(record) = &mut state.record else { return };
        let status = &mut record.status;
        status.part = if progress.is_at_journal { "journal" } else { "pages" }.to_owned();
        (status.pages, status.pages_total) = (progress.pages, progress.pages_total);
        (status.renewed, status.values) = (progress.renewed, progress.values);
        status.waits = progress.waits.as_deref().map(str::to_owned);
        if progress.place.is_some() {
            record.place.clone_from(&progress.place);
        }
        if !is_due {
            return;
        }
        let record = record.clone();
        if let Err(error) = self.save(&mut state, record) {
            tracing::warn!(%error, "how far rewriting has come is not recorded: after a crash it begins at an earlier place");
        }
    }

    /// Returns when so many bytes may be used; ends the work if it is to end.
    fn pace(&self, pace: &mut Pace, bytes: u64) -> ControlFlow<()> {
        // What was not used is not saved up.
        pace.due = pace.due.max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / pace.rate as f64);
        loop {
            let (now, rate) = (Instant::now(), self.lock().rate());
            if rate != pace.rate {
                let left = pace.due.saturating_duration_since(now).mul_f64(pace.rate as f64 / rate as f64);
                *pace = Pace { due: now + left, rate };
            }
            let ahead = pace.due.saturating_duration_since(now);
            // A sleep is not shorter than some of the system's.
            if ahead < Duration::from_millis(5) {
                return self.sleep(Duration::ZERO, None);
            }
            self.sleep(ahead, Some(rate))?;
        }
    }

    /// Sleeps, until it is to end, or the rate is another one than that given.
    fn sleep(&self, pause: Duration, rate: Option<u64>) -> ControlFlow<()> {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        loop {
            if state.end.is_some() {
                return ControlFlow::Break(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || rate.is_some_and(|rate| rate != state.rate()) {
                return ControlFlow::Continue(());
            }
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
