//! When a checkpoint begins, how fast it runs, and when the applier must wait: pure functions of the load.
//!
//! ```text
//!   dirty bytes, journal bytes
//!     |  max      ------------------------------------  the applier waits
//!     |  due      --------------------- a checkpoint begins, or a running one hurries
//!     |            /|        /|
//!     |          /  |      /  |         in between: after `interval`, spread over half of it
//!     +----------------------------------> time
//! ```
//!
//! A checkpoint that writes everything at once delays the device for commits and reads. One that spreads its writes
//! over half of the interval leaves most of the device to them.

use std::time::Duration;

/// When checkpoints run, and how much may accumulate between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Longest time from one checkpoint to the next while there is something to write. Default 30 s.
    pub interval: Duration,
    /// Bytes of journal since the last checkpoint began that start a checkpoint. It bounds what a recovery redoes.
    /// Default 256 MiB.
    pub journal_bytes: u64,
    /// Bytes of journal at which the applier waits for the checkpoint. Default four times `journal_bytes`.
    pub journal_bytes_max: u64,
    /// Dirty bytes in the cache that start a checkpoint. Default 64 MiB.
    pub dirty_bytes: u64,
    /// Dirty bytes in the cache at which the applier waits. Default 128 MiB.
    pub dirty_bytes_max: u64,
}

impl Default for CheckpointOptions {
    fn default() -> CheckpointOptions {
        CheckpointOptions {
            interval: Duration::from_secs(30),
            journal_bytes: 256 << 20,
            journal_bytes_max: 1 << 30,
            dirty_bytes: 64 << 20,
            dirty_bytes_max: 128 << 20,
        }
    }
}

/// Limit of the dirty bytes for every cache size. A disk of 100 MB/s writes that much, and its images, in 80 s. The
/// write image journal needs as much space, and one or two descriptors for each of its devices.
const DIRTY_BYTES_LIMIT: u64 = 4 << 30;

impl CheckpointOptions {
    /// The defaults for a cache of this size: a checkpoint begins when a quarter of it is dirty, the limit is a half;
    /// at most 2 and 4 GiB.
    pub fn for_cache(cache_bytes: u64) -> CheckpointOptions {
        let dirty_bytes_max = (cache_bytes / 2).min(DIRTY_BYTES_LIMIT);
        CheckpointOptions { dirty_bytes: dirty_bytes_max / 2, dirty_bytes_max, ..CheckpointOptions::default() }
    }
}

/// What has accumulated since the last checkpoint began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Dirty bytes in the cache.
    pub(crate) dirty_bytes: u64,
    /// Bytes of journal applied since.
    pub(crate) journal_bytes: u64,
}

/// How urgent it is to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Nothing has to be written yet.
    None,
    /// A checkpoint may run slowly.
    Leisure,
    /// A checkpoint must run as fast as it can.
    Hurry,
    /// The applier waits.
    Stop,
}

/// The urgency of a checkpoint at this time after the last one began.
pub(crate) fn urgency(options: &CheckpointOptions, load: Load, since: Duration) -> Urgency {
    if load.dirty_bytes >= options.dirty_bytes_max || load.journal_bytes >= options.journal_bytes_max {
        Urgency::Stop
    } else if load.dirty_bytes >= options.dirty_bytes || load.journal_bytes >= options.journal_bytes {
        Urgency::Hurry
    } else if since >= options.interval && load != Load::default() {
        Urgency::Leisure
    } else {
        Urgency::None
    }
}

/// The most threads that write in place in parallel. Measured with puts of 1 KiB under random keys by 128 committers,
/// in turns on a virtual disk, 2026-11-22: see docs/adr/0012.
pub(crate) const THREADS: usize = 8;

/// How many threads write in place in parallel: one while little is dirty, most when the applier is about to wait.
/// Writes in place wait in the same device queue as those of the journal, so unnecessary ones delay commits.
pub(crate) fn threads(options: &CheckpointOptions, load: Load) -> usize {
    let way = |is: u64, due: u64, max: u64| {
        if is < max { is.saturating_sub(due) as f64 / max.saturating_sub(due).max(1) as f64 } else { 1.0 }
    };
    let dirty = way(load.dirty_bytes, options.dirty_bytes, options.dirty_bytes_max);
    let journal = way(load.journal_bytes, options.journal_bytes, options.journal_bytes_max);
    1 + (dirty.max(journal) * (THREADS - 1) as f64).round() as usize
}

/// Longest pause between two steps: urgency is checked again after it.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long to pause after `done` of `total`, so that a checkpoint takes half of the interval.
pub(crate) fn pause(options: &CheckpointOptions, done: usize, total: usize, elapsed: Duration) -> Duration {
    let share = done as f64 / total.max(1) as f64;
    options.interval.div_f64(2.0).mul_f64(share).saturating_sub(elapsed).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_begins_a_checkpoint_and_each_maximum_makes_the_applier_wait() {
        let options = CheckpointOptions {
            interval: Duration::from_secs(10),
            journal_bytes: 100,
            journal_bytes_max: 200,
            dirty_bytes: 10,
            dirty_bytes_max: 20,
        };
        let cases = [
            (0, 0, 100, Urgency::None),
            (1, 0, 9, Urgency::None),
            (1, 0, 10, Urgency::Leisure),
            (0, 1, 10, Urgency::Leisure),
            (10, 0, 0, Urgency::Hurry),
            (0, 100, 0, Urgency::Hurry),
            (19, 199, 60, Urgency::Hurry),
            (20, 0, 0, Urgency::Stop),
            (0, 200, 0, Urgency::Stop),
        ];
        for (dirty_bytes, journal_bytes, seconds, expected) in cases {
            let load = Load { dirty_bytes, journal_bytes };
            assert_eq!(urgency(&options, load, Duration::from_secs(seconds)), expected, "{load:?} after {seconds} s");
        }
    }

    #[test]
    fn threads_grow_from_one_where_a_checkpoint_is_due_to_the_most_where_the_applier_waits() {
        let options = CheckpointOptions {
            journal_bytes: 100,
            journal_bytes_max: 800,
            dirty_bytes: 0,
            dirty_bytes_max: 70,
            ..CheckpointOptions::default()
        };
        let cases =
            [(0, 0, 1), (10, 0, 2), (0, 100, 1), (0, 200, 2), (10, 400, 4), (69, 0, 8), (70, 0, 8), (900, 9000, 8)];
        for (dirty_bytes, journal_bytes, expected) in cases {
            let load = Load { dirty_bytes, journal_bytes };
            assert_eq!(threads(&options, load), expected, "{load:?}");
        }
        let equal = CheckpointOptions { dirty_bytes: 70, ..options };
        for (dirty_bytes, expected) in [(69, 1), (70, 8), (71, 8)] {
            let load = Load { dirty_bytes, journal_bytes: 0 };
            assert_eq!(threads(&equal, load), expected, "no way between due and the limit: {load:?}");
        }
    }

    #[test]
    fn a_leisurely_checkpoint_takes_half_the_interval_and_is_never_slowed_when_it_is_late() {
        let options = CheckpointOptions { interval: Duration::from_secs(10), ..CheckpointOptions::default() };
        let mut clock = Duration::ZERO;
        for done in 0..=1000 {
            loop {
                let pause = pause(&options, done, 1000, clock);
                assert!(pause <= PAUSE_MAX);
                if pause.is_zero() {
                    break;
                }
                clock += pause;
            }
        }
        assert_eq!(clock, Duration::from_secs(5));
        assert_eq!(pause(&options, 500, 1000, Duration::from_secs(3)), Duration::ZERO, "late");
    }
}
