//! Profiles of a node that runs: how soon it uses the same pages again, and what its journal, checkpoints and threads do meanwhile.
//!
//! ```text
//!   store's AccessTap --sampled hashes, counts--> Recording, a thread of low rank --> profile::Recorder --> profiles/NAME.tprof.part
//!   journal, checkpoints, /proc/self/task --figures-->           |                                     stop --> profiles/NAME.tprof
//!                                                          ProfileReport        for requests and the status
//! ```
//!
//! One recording at a time. It ends when its time is over, by request, with the node, or when it cannot be written; then the node goes on.
//! What a process that was killed has left is made a profile by the next start, and says that it was interrupted.
//!
//! Invariants: no page number, key or byte of a message is in a profile, and the salt of its hashes is stored nowhere. Files are in the folder
//! `profiles` of the data directory, under names without a path: a request chooses no place. Memory is bounded ([`MEMORY_BYTES_MAX`]), the
//! rate of accesses that are recorded too ([`SAMPLED_A_SECOND`]); what is beyond it is left out of the sample, page by page.

mod by_structure;
mod figures;
mod files;
mod pace;
mod recording;
#[cfg(test)]
mod tests;
mod threads;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use device::supervise;
use serde::{Deserialize, Serialize};
use store::Store;

pub use by_structure::StructureStatus;
pub use files::{PIECE_BYTES, PROFILES_MAX, ProfileFile};
pub use pace::SAMPLED_A_SECOND;

use crate::clock::Clock;
use crate::error::NodeError;
use files::ProfileFolder;
use recording::Recording;

/// The word that requests begin with.
pub const REQUEST: &str = "profile";

/// Memory of a recording at most, bytes.
pub const MEMORY_BYTES_MAX: u64 = 16 << 20;

/// The longest recording, seconds: 31 days.
pub const SECONDS_MAX: u64 = 31 * 24 * 3600;

/// What stays free on the file system of the data directory beside a profile, at least, bytes.
pub const SPARE_BYTES: u64 = 256 << 20;

/// Fetches at a time: with more, the oldest one has to begin anew.
const FETCHES_MAX: usize = 16;

/// Largest numbers of keys that fit into the memory.
const KEYS_MAX: usize = 16 << 10;
const STREAM_KEYS_MAX: usize = 64 << 10;

/// A request about profiles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum ProfileRequest {
    /// Starts a recording.
    Start(StartRecording),
    /// Ends it, and writes its profile.
    Stop,
    /// What is recorded, and which profiles there are.
    Status,
    /// A piece of a profile.
    Read {
        /// The profile.
        name: String,
        /// Where the piece begins, bytes.
        offset: u64,
        /// The number that came with the first piece; none for that.
        #[serde(default)]
        fetch: Option<u64>,
    },
    /// Removes a profile.
    Remove {
        /// The profile.
        name: String,
    },
}

/// A recording that is to be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecording {
    /// Its name: 1 to 64 of `a-z A-Z 0-9 - _ .`, and no `.` at its begin; none: one with the time.
    pub name: Option<String>,
    /// How long, seconds; 1 to [`SECONDS_MAX`].
    pub seconds: u64,
    /// The largest size of the profile, bytes; at least 2 MiB.
    pub limit_bytes: u64,
    /// Keys of the sample of reuse distances; up to 16,384.
    pub keys: usize,
    /// Keys of the sampled stream; up to 65,536.
    pub stream_keys: usize,
}

/// What has become of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordingState {
    /// It goes on.
    Running,
    /// What a process that ended has left is being made a profile.
    Recovering,
    /// Its profile is there.
    Complete,
    /// The process ended before it did; there is a profile of what was saved until then.
    Interrupted,
    /// There is no profile; the reason says what was left.
    Failed,
}

/// The page cache with more memory, by the recorded reuse.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MoreMemory {
    /// Near and far memory together, bytes.
    pub bytes: u64,
    /// Part of all accesses that an LRU cache of that size finds, 0 to 1.
    pub hit_ratio: f64,
}

/// A recording, for people and programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordingStatus {
    /// Its name.
    pub name: String,
    /// What has become of it.
    pub state: RecordingState,
    /// Why it ended or failed, in words; empty while it runs.
    pub why: String,
    /// When it began, microseconds since 1970.
    pub begun_us: i64,
    /// How long it has recorded, seconds.
    pub seconds: u64,
    /// How long it is to record, seconds.
    pub for_seconds: u64,
    /// Accesses to pages of the page cache.
    pub accesses: u64,
    /// Of those, the ones in the stream.
    pub sampled: u64,
    /// Part of all pages that is sampled, 0 to 1.
    pub rate: f64,
    /// Sampled accesses that were lost.
    pub dropped: u64,
    /// Pages that are left out since they alone would fill the sample.
    pub left_out: u64,
    /// Bytes of the pages that were used: an estimate.
    pub touched_bytes: u64,
    /// Memory that it takes, bytes: about.
    pub memory_bytes: u64,
    /// Part of the accesses that the page cache found in memory meanwhile, as it counted itself, 0 to 1; none without an access.
    pub measured_hit_ratio: Option<f64>,
    /// What it would find with its memory, and with more; empty until there is something to say.
    pub more_memory: Vec<MoreMemory>,
    /// Each structure, once there is something to say.
    #[serde(default)]
    pub structures: Vec<StructureStatus>,
}

/// The answer to a request, except to one for a piece.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileReport {
    /// The recording that runs, or the last one since the node started.
    pub recording: Option<RecordingStatus>,
    /// The profiles that are there.
    pub files: Vec<ProfileFile>,
}

/// A piece of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfilePiece {
    /// The size of the whole, bytes.
    pub bytes: u64,
    /// The piece, base64; empty at the end.
    pub piece: String,
    /// The number of the fetch, for the next pieces.
    pub fetch: u64,
}

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProfileAnswer {
    /// A piece.
    Piece(ProfilePiece),
    /// Everything else.
    Report(Box<ProfileReport>),
}

/// See the module's text.
#[derive(Debug)]
pub struct Profiling {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    folder: ProfileFolder,
    store: Store,
    clock: Clock,
    state: Mutex<State>,
    /// Wakes the thread that records.
    wake: Condvar,
    /// The node ends: long writes do so too.
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    recording: Option<RecordingStatus>,
    /// Why the thread is to end.
    end: Option<&'static str>,
    /// Fetches that have begun, the last ones: their numbers, and the profiles.
    fetches: VecDeque<(u64, String)>,
}

impl Profiling {
    /// Takes up what a process that ended has left. Recordings begin by request only.
    pub fn start(data: &Path, store: &Store, clock: Clock) -> Arc<Profiling> {
        let folder = ProfileFolder::of(data);
        let shared = Shared {
            folder,
            store: store.clone(),
            clock,
            state: Mutex::default(),
            wake: Condvar::new(),
            stop: Arc::default(),
        };
        let profiling = Arc::new(Profiling { shared: Arc::new(shared), thread: Mutex::new(None) });
        let parts = profiling.shared.folder.left_parts();
        if !parts.is_empty() {
            profiling.recover(parts);
        }
        profiling
    }

    /// Does what is requested. A stop waits until the profile is written.
    ///
    /// # Errors
    /// `Refused`: one runs already, none runs, a name or a size is impossible, there is no room; `File`.
    pub fn handle(&self, request: ProfileRequest) -> Result<ProfileAnswer, NodeError> {
        match request {
            ProfileRequest::Start(start) => self.begin(start)?,
            ProfileRequest::Stop => self.stop()?,
            ProfileRequest::Status => {}
            ProfileRequest::Read { name, offset, fetch } => {
                return self.read(&name, offset, fetch).map(ProfileAnswer::Piece);
            }
            ProfileRequest::Remove { name } => {
                if self.is_busy() && self.recording().is_some_and(|recording| recording.name == name) {
                    return Err(refused("it is being recorded: `terrace profile stop` ends that"));
                }
                self.shared.folder.remove(&name)?;
            }
        }
        Ok(ProfileAnswer::Report(Box::new(self.report()?)))
    }

    /// The recording that runs, or the last one since the node started.
    pub fn recording(&self) -> Option<RecordingStatus> {
        self.shared.lock().recording.clone()
    }

    /// Ends a recording with the node: what was recorded becomes a profile, at once or at the next start.
    pub fn end(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join("the node was stopped");
    }

    /// A piece. One behind the begin needs the number of a fetch that has begun there: so each fetch has its entry in the audit.
    fn read(&self, name: &str, offset: u64, fetch: Option<u64>) -> Result<ProfilePiece, NodeError> {
        let number = match offset {
            0 => {
                let drawn =
                    profile::hash::Salt::secret().map_err(NodeError::file("read", Path::new("/dev/urandom")))?;
                drawn.keys().0
            }
            _ => {
                let state = self.shared.lock();
                let begun = state.fetches.iter().find(|(number, of)| Some(*number) == fetch && of == name);
                begun.map(|(number, _)| *number).ok_or_else(|| refused("a fetch begins with the first byte"))?
            }
        };
        let (bytes, piece) = self.shared.folder.read(name, offset)?;
        if offset == 0 {
            let mut state = self.shared.lock();
            state.fetches.push_back((number, name.to_owned()));
            if state.fetches.len() > FETCHES_MAX {
                state.fetches.pop_front();
            }
        }
        Ok(ProfilePiece { bytes, piece, fetch: number })
    }

    fn report(&self) -> Result<ProfileReport, NodeError> {
        Ok(ProfileReport { recording: self.recording(), files: self.shared.folder.list()? })
    }

    fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        let busy = |recording: &RecordingStatus| {
            matches!(recording.state, RecordingState::Running | RecordingState::Recovering)
        };
        state.recording.as_ref().is_some_and(busy)
    }

    fn begin(&self, start: StartRecording) -> Result<(), NodeError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_busy() {
            let text = "one is being recorded already, or made of what was left: `terrace profile status` shows it, `terrace profile stop` ends it";
            return Err(refused(text));
        }
        start.check()?;
        if let Some(ended) = thread.take() {
            // Its status says how it ended.
            drop(ended.join());
        }
        let recording = Recording::begin(&self.shared, &start)?;
        {
            let mut state = self.shared.lock();
            (state.end, state.recording) = (None, Some(recording.status()));
        }
        let (run, failed) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let panicked = move |why: &str| failed.failed(why);
        let started = supervise::thread("profile", move || recording.run(&run), panicked);
        *thread = Some(started.map_err(|error| {
            self.shared.failed(&format!("the system starts no thread: {error}"));
            refused("the system starts no thread")
        })?);
        Ok(())
    }

    fn stop(&self) -> Result<(), NodeError> {
        if !self.is_busy() {
            return Err(refused("nothing is being recorded"));
        }
        self.join("it was stopped");
        Ok(())
    }

    fn join(&self, why: &'static str) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.lock().end = Some(why);
        self.shared.wake.notify_all();
        if let Some(thread) = thread.take() {
            // A panic has its line in the log, and is in the status.
            drop(thread.join());
        }
    }

    /// Makes what was left a profile, on a thread.
    fn recover(&self, parts: Vec<PathBuf>) {
        self.shared.lock().recording = parts.first().map(|part| RecordingStatus::recovering(part));
        let (run, failed) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let panicked = move |why: &str| failed.failed(why);
        let started = supervise::thread("profile", move || parts.iter().for_each(|part| run.recover(part)), panicked);
        match started {
            Ok(started) => *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(started),
            Err(error) => self.shared.failed(&format!("the system starts no thread: {error}")),
        }
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recording has failed: the node goes on without it.
    fn failed(&self, why: &str) {
        self.store.access_tap().stop();
        self.store.access_tap().clear();
        tracing::warn!(why, "the recording of a profile ended");
        if let Some(recording) = &mut self.lock().recording {
            (recording.state, recording.why) = (RecordingState::Failed, why.to_owned());
        }
    }

    fn recover(&self, part: &Path) {
        let name = files::name_of_part(part);
        self.lock().recording = Some(RecordingStatus::recovering(part));
        let recovered = self.folder.recover(part, &self.stop);
        let mut state = self.lock();
        let Some(recording) = &mut state.recording else { return };
        match recovered {
            Ok(summary) => {
                let why = format!(
                    "the process ended while it was recorded; {name} has the {} min until it was last saved",
                    summary.seconds / 60
                );
                tracing::warn!(why, "a profile was interrupted");
                let reuse = summary.cached().reuse;
                *recording = RecordingStatus {
                    state: RecordingState::Interrupted,
                    why,
                    seconds: summary.seconds,
                    accesses: reuse.accesses,
                    sampled: summary.stream_entries,
                    rate: summary.stream_rate,
                    touched_bytes: summary.touched_bytes,
                    begun_us: summary.node.as_ref().map_or(0, |node| node.begun_s as i64 * 1_000_000),
                    ..recording.clone()
                };
            }
            Err(error) => {
                let why = format!("what an interrupted recording has left cannot be made a profile: {error}");
                tracing::warn!(why, "a profile was interrupted");
                (recording.state, recording.why) = (RecordingState::Failed, why);
            }
        }
    }
}

impl RecordingStatus {
    fn recovering(part: &Path) -> RecordingStatus {
        let name = files::name_of_part(part);
        RecordingStatus { state: RecordingState::Recovering, name, ..RecordingStatus::empty() }
    }

    fn empty() -> RecordingStatus {
        RecordingStatus {
            name: String::new(),
            state: RecordingState::Running,
            why: String::new(),
            begun_us: 0,
            seconds: 0,
            for_seconds: 0,
            accesses: 0,
            sampled: 0,
            rate: 1.0,
            dropped: 0,
            left_out: 0,
            touched_bytes: 0,
            memory_bytes: 0,
            measured_hit_ratio: None,
            more_memory: Vec::new(),
            structures: Vec::new(),
        }
    }
}

impl StartRecording {
    /// Of so many seconds, with the defaults.
    pub fn of(seconds: u64) -> StartRecording {
        let limit_bytes = profile::FILE_BYTES_DEFAULT;
        StartRecording { name: None, seconds, limit_bytes, keys: KEYS_MAX, stream_keys: STREAM_KEYS_MAX }
    }

    fn check(&self) -> Result<(), NodeError> {
        if let Some(name) = &self.name {
            files::check_name(name)?;
        }
        if !(1..=SECONDS_MAX).contains(&self.seconds) {
            return Err(refused("a recording takes 1 s to 31 days"));
        }
        if !(2 << 20..=64 << 30).contains(&self.limit_bytes) {
            return Err(refused("a profile has 2 MiB to 64 GiB at most"));
        }
        if !(64..=KEYS_MAX).contains(&self.keys) || !(64..=STREAM_KEYS_MAX).contains(&self.stream_keys) {
            return Err(refused("a sample has 64 to 16384 keys, and its stream 64 to 65536"));
        }
        Ok(())
    }
}

fn refused(why: impl Into<String>) -> NodeError {
    NodeError::Refused(why.into())
}
