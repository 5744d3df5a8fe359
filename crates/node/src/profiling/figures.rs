//! [`NodeCounters`]: what the store has counted and the threads have used since the recording began, as figures of a profile.

use std::collections::BTreeMap;

use journal::{COMMIT_CLASSES, GroupCommits};
use profile::{CacheUse, Committers, CpuUse, JournalUse, NodeFigures, NodeHour, NodeUse, WriteBacks};
use store::Store;

use super::threads::{self, ThreadTimes};

/// Seconds between two looks at the times of threads, and at how many run.
const TIMES_S: u64 = 10;
const RUNNABLE_S: u64 = 1;
/// Different numbers of threads that are told apart: further ones count as the last.
const RUNNABLE_MAX: u32 = 256;

/// Counters at one moment.
#[derive(Clone, Default)]
struct Counters {
    metrics: store::Metrics,
    commits: GroupCommits,
    dirty: Vec<(u64, u64)>,
}

impl Counters {
    fn of(store: &Store) -> Counters {
        Counters {
            metrics: store.metrics(),
            commits: store.journal().group_commits(),
            dirty: store.checkpoint_dirty_bytes().classes,
        }
    }

    fn hits(&self) -> u64 {
        let cache = &self.metrics.cache;
        cache.near_hits + cache.far_hits + cache.inner_hits
    }
}

/// See the module's text.
pub(super) struct NodeCounters {
    store: Store,
    begun_s: u64,
    far_bytes: u64,
    begun: Counters,
    threads: ThreadTimes,
    runnable: BTreeMap<u32, u64>,
    times_due_s: u64,
    runnable_due_s: u64,
    hours: Vec<NodeHour>,
    /// At the begin of the present hour, with the times of threads then.
    hour: (Counters, Vec<CpuUse>),
    hour_runnable: u32,
}

impl NodeCounters {
    /// Counts from now on.
    pub(super) fn begin(store: &Store, begun_s: u64, far_bytes: u64) -> NodeCounters {
        let begun = Counters::of(store);
        NodeCounters {
            store: store.clone(),
            begun_s,
            far_bytes,
            hour: (begun.clone(), Vec::new()),
            begun,
            threads: ThreadTimes::begin(),
            runnable: BTreeMap::new(),
            times_due_s: TIMES_S,
            runnable_due_s: 0,
            hours: vec![NodeHour::default()],
            hour_runnable: 0,
        }
    }

    /// Looks at the threads, if it is time; and begins another hour where the recorder has, whose intervals are so long.
    pub(super) fn tick(&mut self, now_s: u64, interval_s: u64) {
        if now_s >= self.runnable_due_s {
            self.runnable_due_s = now_s + RUNNABLE_S;
            let many = threads::runnable().min(RUNNABLE_MAX);
            *self.runnable.entry(many).or_default() += 1;
            self.hour_runnable = self.hour_runnable.max(many);
        }
        if now_s >= self.times_due_s {
            self.times_due_s = now_s + TIMES_S;
            self.threads.look();
        }
        let begin_s = now_s / interval_s * interval_s;
        if self.hours.last().is_some_and(|hour| hour.begin_s < begin_s) {
            self.threads.look();
            self.close_hour(interval_s);
            self.hours.push(NodeHour { begin_s, ..NodeHour::default() });
        }
    }

    /// Puts into the last hour what it had, and brings hours together that the recorder has.
    fn close_hour(&mut self, interval_s: u64) {
        let now = (Counters::of(&self.store), self.threads.cpu());
        let last = self.last_hour(&now);
        self.hours.pop();
        let mut hours: Vec<NodeHour> = Vec::new();
        for mut hour in self.hours.drain(..).chain([last]) {
            hour.begin_s = hour.begin_s / interval_s * interval_s;
            match hours.last_mut().filter(|before| before.begin_s == hour.begin_s) {
                Some(before) => before.merge(&hour),
                None => hours.push(hour),
            }
        }
        (self.hours, self.hour, self.hour_runnable) = (hours, now, 0);
    }

    fn last_hour(&self, (now, cpu): &(Counters, Vec<CpuUse>)) -> NodeHour {
        let (before, cpu_before) = &self.hour;
        let seconds = |component: &str| {
            cpu_before.iter().find(|used| used.component == component).map_or(0.0, |used| used.seconds)
        };
        NodeHour {
            begin_s: self.hours.last().map_or(0, |hour| hour.begin_s),
            records: now.metrics.journal.records - before.metrics.journal.records,
            record_bytes: now.metrics.journal.payload_bytes - before.metrics.journal.payload_bytes,
            flushes: now.metrics.journal.batches - before.metrics.journal.batches,
            hits: now.hits() - before.hits(),
            misses: now.metrics.cache.misses - before.metrics.cache.misses,
            checkpoints: now.metrics.checkpoints.checkpoints - before.metrics.checkpoints.checkpoints,
            runnable_max: self.hour_runnable,
            cpu: cpu
                .iter()
                .map(|used| CpuUse {
                    component: used.component.clone(),
                    seconds: (used.seconds - seconds(&used.component)).max(0.0),
                })
                .collect(),
        }
    }

    /// Whether the system counts the time of threads.
    pub(super) fn knows_times(&self) -> bool {
        self.threads.is_known()
    }

    /// Flushes of the journal so far.
    pub(super) fn flushes(&self) -> u64 {
        self.store.journal().stats().batches - self.begun.metrics.journal.batches
    }

    /// Part of the accesses that the page cache found in memory.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        let now = Counters::of(&self.store);
        let hits = now.hits() - self.begun.hits();
        let all = hits + now.metrics.cache.misses - self.begun.metrics.cache.misses;
        (all > 0).then(|| hits as f64 / all as f64)
    }

    /// All of it, with what the tap has lost and left out.
    pub(super) fn figures(&mut self, dropped: u64, left_out: u64) -> NodeFigures {
        self.threads.look();
        let now = Counters::of(&self.store);
        let (journal, before) = (&now.metrics.journal, &self.begun.metrics.journal);
        let (written, written_before) = (&now.metrics.checkpoints, &self.begun.metrics.checkpoints);
        let (cache, cache_before) = (&now.metrics.cache, &self.begun.metrics.cache);
        let image_bytes = written.image_bytes - written_before.image_bytes;
        let mut hours = self.hours.clone();
        hours.pop();
        hours.push(self.last_hour(&(now.clone(), self.threads.cpu())));
        let node = NodeUse {
            is_interrupted: false,
            begun_s: self.begun_s,
            dropped,
            left_out,
            cache: CacheUse {
                near_bytes: self.store.cache_bytes(),
                far_bytes: self.far_bytes,
                near_hits: cache.near_hits + cache.inner_hits - cache_before.near_hits - cache_before.inner_hits,
                far_hits: cache.far_hits - cache_before.far_hits,
                misses: cache.misses - cache_before.misses,
            },
            checkpoint_dirty: since(&now.dirty, &self.begun.dirty),
            image_bytes,
            journal_written_bytes: journal.written_bytes - before.written_bytes,
            journal_write_us: (journal.write_ns - before.write_ns) / 1000,
            cpu_waits: if self.knows_times() { self.threads.waits() } else { Vec::new() },
            processors: std::thread::available_parallelism().map_or(1, |many| many.get() as u32),
            hours,
        };
        let waiting = classes(&now.commits.batch_records, &self.begun.commits.batch_records);
        NodeFigures {
            node,
            write_backs: WriteBacks {
                checkpoints: written.checkpoints - written_before.checkpoints,
                bytes: image_bytes + written.data_bytes - written_before.data_bytes,
            },
            journal: JournalUse {
                records: journal.records - before.records,
                bytes: journal.payload_bytes - before.payload_bytes,
                flushes: journal.batches - before.batches,
                record_bytes: classes(&now.commits.record_bytes, &self.begun.commits.record_bytes),
            },
            committers: Committers {
                waiting: waiting.into_iter().map(|(many, times)| (many as u32, times)).collect(),
                runnable: self.runnable.iter().map(|(many, times)| (*many, *times)).collect(),
            },
            cpu: if self.knows_times() { self.threads.cpu() } else { Vec::new() },
        }
    }
}

/// What has come to each class.
fn classes(now: &[u64; COMMIT_CLASSES], before: &[u64; COMMIT_CLASSES]) -> Vec<(u64, u64)> {
    let since = now.iter().zip(before).map(|(now, before)| now - before).enumerate();
    since.filter(|(_, times)| *times > 0).map(|(class, times)| (GroupCommits::largest(class), times)).collect()
}

/// The same of lists of classes.
fn since(now: &[(u64, u64)], before: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let before: BTreeMap<u64, u64> = before.iter().copied().collect();
    let since = now.iter().map(|(largest, times)| (*largest, times - before.get(largest).copied().unwrap_or_default()));
    since.filter(|(_, times)| *times > 0).collect()
}
