//! [`Upkeep`]: the thread for what may come later: checkpoints, bringing copies up to date, scrubs.
//!
//! ```text
//!   each turn   a checkpoint, if the journals are half full
//!               a step for a copy that is being brought up to date     \  both together no faster than
//!               a region of a scrub, if one is due                     /  upkeep_bytes_per_second
//! ```
//!
//! A step that fails for a reason outside the copy (its sources cannot be read) is tried again after a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::supervise;
use parking_lot::Mutex;

use crate::checkpoint;
use crate::core::Core;
use crate::error::VolumeError;
use crate::options::Threads;
use crate::resync::{self, Step};
use crate::scrub;
use crate::thin;

/// The thread looks at least this often; it is woken when the journals become half full.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Upkeep {
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Upkeep {
    /// Starts the thread, if the volume has threads.
    pub(crate) fn start(core: &Arc<Core>) -> Result<Upkeep, VolumeError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut thread = None;
        if core.options.threads == Threads::Background {
            let (work, stop, failed) = (core.clone(), stop.clone(), core.clone());
            let run = move || run(&work, &stop);
            let panicked = move |why: &str| {
                tracing::error!(why, "the volume serves no longer");
                failed.close();
            };
            thread = Some(supervise::thread("volume-upkeep", run, panicked).map_err(VolumeError::Thread)?);
        }
        Ok(Upkeep { core: core.clone(), stop, thread: Mutex::new(thread) })
    }

    /// There is something to do.
    pub(crate) fn wake(&self) {
        self.core.progress.tick();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.lock().take() {
            // A panic has been reported by then.
            let _ = thread.join();
        }
    }
}

/// What the thread remembers.
struct Turn {
    /// Where the scrub stands; `None` if none is running.
    scrub: Option<u64>,
    scrub_ended: Instant,
    /// No step before this.
    not_before: Instant,
    /// The copy of the last step.
    copy: u8,
    /// When the media of a thin volume were looked at.
    looked: Instant,
}

/// The copy of the next step: in turn among those that are not up to date, so that no copy holds up another one; of those that are, and
/// wait for others to join with them, any.
fn next_syncing(core: &Core, last: u8) -> Option<u8> {
    let syncing = core.syncing();
    let is_behind = |number: &u8| core.copy(*number).is_some_and(|copy| !copy.is_ready.load(Ordering::Acquire));
    let behind = || syncing.iter().filter(is_behind);
    behind().find(|number| *number > last).or_else(|| behind().next()).or_else(|| syncing.iter().next())
}

fn run(core: &Core, stop: &AtomicBool) {
    let now = Instant::now();
    let mut turn = Turn { scrub: None, scrub_ended: now, not_before: now, copy: 0, looked: now };
    while !stop.load(Ordering::Acquire) && core.check().is_ok() {
        supervise::rehearse("volume-upkeep");
        let seen = core.progress.ticks();
        thin::look_in_turn(core, &mut turn.looked);
        if checkpoint::is_due(core) && !core.is_frozen() {
            if let Err(error) = checkpoint::checkpoint(core) {
                tracing::warn!(%error, "a checkpoint of the volume has failed");
                core.progress.wait(core.progress.ticks(), RETRY);
            }
            continue;
        }
        let now = Instant::now();
        let has_worked = now >= turn.not_before && work(core, &mut turn, now);
        if !has_worked {
            let pause = turn.not_before.saturating_duration_since(now).clamp(Duration::from_millis(1), PAUSE);
            core.progress.wait(seen, pause);
        }
    }
}

/// Does a step; returns whether there may be more to do at once.
fn work(core: &Core, turn: &mut Turn, now: Instant) -> bool {
    let bytes = if let Some(number) = next_syncing(core, turn.copy) {
        turn.copy = number;
        match resync::step(core, number) {
            Ok(Step::Copied { bytes, .. }) => bytes,
            Ok(Step::Joined) => {
                tracing::info!(copy = number, "a copy of the volume is in sync again");
                0
            }
            // Looking at the media has reported it.
            Err(VolumeError::NoSpace) => {
                turn.not_before = now + RETRY;
                0
            }
            Err(error) => {
                tracing::warn!(copy = number, %error, "bringing a copy of the volume up to date has stopped");
                turn.not_before = now + RETRY;
                0
            }
        }
    } else {
        let is_due = core.options.scrub_interval.is_some_and(|interval| now >= turn.scrub_ended + interval);
        if turn.scrub.is_none() && !is_due {
            return false;
        }
        let region = turn.scrub.unwrap_or(0);
        if region >= core.tables.geometry.regions() {
            core.metrics.scrubs.fetch_add(1, Ordering::Relaxed);
            (turn.scrub, turn.scrub_ended) = (None, now);
            return false;
        }
        turn.scrub = Some(region + 1);
        scrub::region(core, region).map_or(0, |found| found.bytes)
    };
    turn.not_before = turn.not_before.max(
        now + Duration::from_nanos(
            (bytes as u128 * 1_000_000_000 / u128::from(core.options.upkeep_bytes_per_second.max(1))) as u64,
        ),
    );
    bytes == 0
}
