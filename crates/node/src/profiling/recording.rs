//! [`Recording`]: the thread that takes sampled accesses from the store and makes a profile of them.
//!
//! ```text
//!   every 50 ms   drain the tap -> Recorder; pace: fewer pages where there are too many accesses
//!   every s       threads that run, the status;  trees that are new get their structure
//!   every 5 min   what is known is saved in the part, durable; room on the disk is looked at
//! ```
//!
//! The thread has a low priority: where processors are short, it waits, and accesses that find their buffer full are lost and counted.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::supervise;
use profile::hash::Salt;
use profile::{Lack, Origin, ProfileError, Recorder, RecorderOptions};
use store::Store;
use store::cache::tap::{AccessTap, BESIDE, EXTERNAL, INNER, OTHER, SEGMENTS, VOLUMES};

use super::by_structure;
use super::figures::NodeCounters;
use super::pace::Pace;
use super::{MoreMemory, RecordingState, RecordingStatus, Shared, StartRecording, refused};
use crate::error::NodeError;

const TICK: Duration = Duration::from_millis(50);
const SECOND_US: u64 = 1_000_000;
/// When what is known is saved first, and how often from then on.
const FIRST_SAVE_US: u64 = 10 * SECOND_US;
const SAVE_US: u64 = 300 * SECOND_US;
/// The largest part of which the end of a node makes a profile.
const WHOLE_AT_END_BYTES_MAX: u64 = 64 << 20;
/// How often the curve of the status is made.
const CURVE_US: u64 = 10 * SECOND_US;
/// Of recordings with many intervals it takes longer to make.
const CURVE_LONG_US: u64 = 60 * SECOND_US;

/// Structures that are told apart. The first three and the last two are the store's own numbers.
const NAMES: [&str; 11] = [
    "inner pages",
    "external files",
    "node",
    "messages",
    "message indexes",
    "queues",
    "tables",
    "column segments",
    "documents",
    "search segments",
    "volumes",
];
const _: () = assert!(INNER == 0 && EXTERNAL == 1 && OTHER == 2 && SEGMENTS == 9 && VOLUMES == 10);

/// Trees by the begin of their names.
const TREES: &[(&str, u8)] = &[
    ("hl7.messages", 3),
    ("hl7.by_", 4),
    ("hl7.marks", 4),
    ("hl7.", 5),
    ("sql.rows.", 6),
    ("sql.index.", 6),
    ("columns.", 7),
    ("search.", 8),
];

/// The structure of a tree of that name.
pub(super) fn structure_of(tree: &str) -> u8 {
    TREES.iter().find(|(begin, _)| tree.starts_with(begin)).map_or(OTHER, |(_, structure)| *structure)
}

/// See the module's text.
pub(super) struct Recording {
    recorder: Recorder,
    store: Store,
    counters: NodeCounters,
    pace: Pace,
    begun: Instant,
    status: RecordingStatus,
    cache_bytes: u64,
    accesses: u64,
    dropped: u64,
    left_out: u64,
    saved_us: u64,
    save_due_us: u64,
    second_due_us: u64,
    curve_due_us: u64,
    unknown: Vec<u32>,
}

impl Recording {
    /// Begins to record. Errors: `Refused`: there is no room, there is a profile of that name; `File`.
    pub(super) fn begin(shared: &Shared, start: &StartRecording) -> Result<Recording, NodeError> {
        let begun_us = shared.clock.now_us();
        let name = start
            .name
            .clone()
            .unwrap_or_else(|| shared.clock.timestamp(begun_us).strftime("profile-%Y%m%dT%H%M%SZ").to_string());
        shared.folder.prepare(&name, start.limit_bytes)?;
        let part = shared.folder.part(&name);
        let salt = Salt::secret().map_err(NodeError::file("read", std::path::Path::new("/dev/urandom")))?;
        let store = &shared.store;
        let trees = store.tree_names()?;
        let mut options = RecorderOptions::new(salt, &NAMES, store.page_bytes(), shared.folder.path());
        (options.keys, options.stream_keys, options.file_bytes) = (start.keys, start.stream_keys, start.limit_bytes);
        (options.part, options.beside) = (Some(part.clone()), BESIDE.to_vec());
        options.guard = shared.folder.guard(&shared.stop);
        let recorder = Recorder::new(options).map_err(|error| match error {
            ProfileError::Io(error) => NodeError::file("make", &part)(error),
            error => refused(error.to_string()),
        })?;
        let far_bytes = store.far_cache_bytes();
        let status = RecordingStatus { name, begun_us, for_seconds: start.seconds, ..RecordingStatus::empty() };
        let recording = Recording {
            recorder,
            store: store.clone(),
            counters: NodeCounters::begin(store, (begun_us / 1_000_000).max(0) as u64, far_bytes),
            pace: Pace::default(),
            begun: Instant::now(),
            status,
            cache_bytes: store.cache_bytes() + far_bytes,
            accesses: 0,
            dropped: 0,
            left_out: 0,
            saved_us: 0,
            save_due_us: FIRST_SAVE_US,
            second_due_us: 0,
            curve_due_us: SECOND_US,
            unknown: Vec::new(),
        };
        let tap = store.access_tap();
        tap.start(salt, u64::MAX);
        for (tree, number) in trees {
            tap.set_tree(number, structure_of(&tree));
        }
        Ok(recording)
    }

    pub(super) fn status(&self) -> RecordingStatus {
        self.status.clone()
    }

    /// Records all accesses from now on, however many there are.
    #[cfg(test)]
    pub(super) fn without_pace(&mut self) {
        self.pace = Pace::of(u64::MAX / SECOND_US / 3600);
    }

    /// Ends it, as the thread does; returns whether something was lost.
    #[cfg(test)]
    pub(super) fn finish_for_tests(mut self, shared: &Shared) -> Result<bool, ProfileError> {
        self.take()?;
        self.store.access_tap().stop();
        self.describe();
        let lost = self.dropped + self.left_out > 0;
        self.recorder.finish_as(&shared.folder.whole(&self.status.name)).map(|_| lost)
    }

    /// Saves what was recorded until now, as the thread does.
    #[cfg(test)]
    pub(super) fn save_for_tests(&mut self) -> Result<(), ProfileError> {
        self.take()?;
        self.describe();
        self.recorder.save()
    }

    /// Records until it is over, and writes the profile.
    pub(super) fn run(mut self, shared: &Shared) {
        supervise::lower_priority();
        supervise::rehearse("profile");
        let ended = self.record(shared);
        let tap = self.store.clone();
        let tap = tap.access_tap();
        tap.stop();
        let ended = ended.and_then(|why| self.leave_large(shared, why));
        let taken = ended.and_then(|why| self.take().map(|()| why).map_err(|error| error.to_string()));
        tap.clear();
        let (name, saved_us) = (self.status.name.clone(), self.saved_us);
        let written = taken.and_then(|why| {
            self.update_status(shared, true);
            self.describe();
            let path = shared.folder.whole(&name);
            self.recorder.finish_as(&path).map(|_| why).map_err(|error| error.to_string())
        });
        match written {
            Ok(why) => {
                let mut state = shared.lock();
                if let Some(recording) = &mut state.recording {
                    (recording.state, recording.why) = (RecordingState::Complete, why.to_owned());
                }
                tracing::info!(profile = name, why, "a profile was written");
            }
            Err(why) => {
                let left = format!(
                    "{why}; what was saved {} min after its begin becomes a profile when the node starts again",
                    minutes(saved_us)
                );
                shared.failed(&left);
            }
        }
    }

    /// With the node only what is small is written as a whole: the node must not wait for more. What is large is saved, and the next start
    /// makes a profile of it. Errors: in words.
    fn leave_large(&mut self, shared: &Shared, why: &'static str) -> Result<&'static str, String> {
        // It has ended long writes of the recording itself, which are over.
        let with_node = shared.stop.swap(false, Ordering::Relaxed);
        if !with_node || self.recorder.written_bytes() <= WHOLE_AT_END_BYTES_MAX {
            return Ok(why);
        }
        self.take().map_err(|error| error.to_string())?;
        self.describe();
        self.recorder.save().map_err(|error| error.to_string())?;
        self.saved_us = self.now_us();
        Err(why.to_owned())
    }

    /// Until the time is over or somebody ends it: why it ended. Errors: in words.
    fn record(&mut self, shared: &Shared) -> Result<&'static str, String> {
        loop {
            let end = {
                let state = shared.lock();
                let waits = |state: &mut super::State| state.end.is_none();
                let waited = shared.wake.wait_timeout_while(state, TICK, waits);
                waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.end
            };
            self.take().map_err(|error| error.to_string())?;
            let now_us = self.now_us();
            self.counters.tick(now_us / SECOND_US, self.recorder.interval_s());
            if now_us >= self.second_due_us {
                self.second_due_us = now_us + SECOND_US;
                self.name_trees();
                self.update_status(shared, false);
                shared.folder.check_room().map_err(|error| error.to_string())?;
            }
            if now_us >= self.save_due_us {
                self.save_due_us = now_us + SAVE_US;
                self.describe();
                self.recorder.save().map_err(|error| error.to_string())?;
                self.saved_us = now_us;
            }
            if let Some(why) = end {
                return Ok(why);
            }
            if now_us / SECOND_US >= self.status.for_seconds {
                return Ok("its time was over");
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// Takes what the tap has.
    fn take(&mut self) -> Result<(), ProfileError> {
        let store = self.store.clone();
        let tap: &AccessTap = store.access_tap();
        let drained = tap.drain();
        let now_us = self.now_us();
        let threshold = self.recorder.threshold();
        for access in drained.sampled {
            self.pace.count(access.hash);
            if access.hash < threshold {
                self.recorder.sample(access)?;
            }
        }
        // Behind the sampled ones, whose times are earlier.
        for (structure, counts) in (0u8..).zip(drained.counts).take(NAMES.len()) {
            if !BESIDE.contains(&structure) {
                self.accesses += counts.reads + counts.writes;
            }
            self.recorder.count(now_us, structure, counts);
        }
        // Each read of a volume is one of its devices.
        self.recorder.device_reads(SEGMENTS, drained.device_reads[usize::from(SEGMENTS)]);
        self.dropped += drained.dropped;
        self.unknown.extend(drained.unknown);
        let slower = self.pace.at(now_us, threshold, drained.dropped);
        self.left_out += slower.leave_out.into_iter().filter(|hash| tap.leave_out(*hash)).count() as u64;
        if let Some(threshold) = slower.threshold {
            self.recorder.lower(threshold);
        }
        tap.lower(self.recorder.threshold());
        Ok(())
    }

    /// Gives the structures of new trees.
    fn name_trees(&mut self) {
        if self.unknown.is_empty() {
            return;
        }
        // A tree without a name is being made or was dropped: it is asked about once.
        let names = self.store.tree_names().unwrap_or_default();
        for tree in self.unknown.drain(..) {
            let name = names.iter().find(|(_, number)| *number == tree).map_or("", |(name, _)| name);
            self.store.access_tap().set_tree(tree, structure_of(name));
        }
    }

    /// What the profile says beside the accesses.
    fn describe(&mut self) {
        let figures = self.counters.figures(self.dropped, self.left_out);
        let origin = Origin {
            kind: "node".to_owned(),
            made_by: concat!("terrace ", env!("CARGO_PKG_VERSION")).to_owned(),
            keys: "page".to_owned(),
            bad_lines: 0,
            other_requests: 0,
            flushes: Some(self.counters.flushes()),
            times_back: 0,
        };
        let mut lacks = Vec::new();
        if !self.counters.knows_times() {
            lacks.push(Lack::Cpu);
        }
        self.recorder.set_about(origin, &lacks, figures);
    }

    /// Puts the status where requests find it.
    fn update_status(&mut self, shared: &Shared, is_last: bool) {
        let now_us = self.now_us();
        let (_, touched) = self.recorder.touched();
        if now_us >= self.curve_due_us || is_last {
            self.curve_due_us = now_us + if now_us > 48 * 3600 * SECOND_US { CURVE_LONG_US } else { CURVE_US };
            self.status.more_memory = more_memory(&self.recorder, self.cache_bytes, touched as u64);
            self.status.structures = by_structure::report(&self.recorder, self.cache_bytes, &NAMES);
        }
        self.status = RecordingStatus {
            seconds: now_us / SECOND_US,
            accesses: self.accesses,
            sampled: self.recorder.stream_entries(),
            rate: self.recorder.threshold() as f64 / 2f64.powi(64),
            dropped: self.dropped,
            left_out: self.left_out,
            touched_bytes: touched as u64,
            memory_bytes: (self.recorder.memory_bytes() + self.pace.memory_bytes() + AccessTap::memory_bytes()) as u64,
            measured_hit_ratio: self.counters.hit_ratio(),
            ..self.status.clone()
        };
        shared.lock().recording = Some(self.status.clone());
    }
}

fn minutes(us: u64) -> u64 {
    us / SECOND_US / 60
}

/// What the cache would find as it is, and with its memory doubled, until more does not help.
fn more_memory(recorder: &Recorder, cache_bytes: u64, touched_bytes: u64) -> Vec<MoreMemory> {
    let reuse = recorder.reuse();
    if reuse.accesses == 0 {
        return Vec::new();
    }
    let curve = reuse.curve();
    let at = |bytes: u64| MoreMemory { bytes, hit_ratio: 1.0 - curve.miss_ratio(bytes) };
    let mut sizes = vec![at(cache_bytes)];
    while let Some(last) = sizes.last().copied() {
        let next = last.bytes.saturating_mul(2);
        if sizes.len() == 6 || last.bytes >= touched_bytes.max(1) {
            break;
        }
        sizes.push(at(next));
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_services_have_their_structures_and_all_others_are_the_nodes() {
        let trees = [
            "hl7.messages",
            "hl7.by_time",
            "hl7.marks",
            "hl7.pending",
            "sql.rows.7",
            "columns.7.chunks",
            "search.ab.docs",
            "node.audit",
            "",
        ];
        let names = trees.map(|tree| NAMES[usize::from(structure_of(tree))]);
        let wanted = [
            "messages",
            "message indexes",
            "message indexes",
            "queues",
            "tables",
            "column segments",
            "documents",
            "node",
            "node",
        ];
        assert_eq!(names, wanted);
    }
}
