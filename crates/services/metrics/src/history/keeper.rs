//! [`HistoryKeeper`]: the thread that looks at the figures every ten seconds and writes them to the [`HistoryStore`].
//!
//! It waits for a medium as long as that takes: an interval that passes meanwhile is missing, and nobody else waits.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use node::Clock;
use parking_lot::{Condvar, Mutex};
use store::Store;

use super::series::SeriesReader;
use super::stored::HistoryStore;
use crate::snapshot::Snapshots;

/// How often.
const INTERVAL: Duration = Duration::from_secs(10);

/// How long its end is waited for: a row that a medium does not take is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module's text.
pub struct HistoryKeeper {
    history: Arc<HistoryStore>,
    stop: Mutex<Option<mpsc::Sender<()>>>,
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for HistoryKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryKeeper").finish_non_exhaustive()
    }
}

impl HistoryKeeper {
    /// Starts to look.
    ///
    /// # Errors
    /// What was kept cannot be read; the system cannot start a thread.
    pub fn start(store: Store, clock: Clock, snapshots: Arc<Snapshots>) -> Result<Arc<HistoryKeeper>, String> {
        let history = Arc::new(HistoryStore::open(store).map_err(|error| error.to_string())?);
        let (stop, stopped) = mpsc::channel();
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let (writes, ends, fails) = (Arc::clone(&history), Arc::clone(&ended), Arc::clone(&ended));
        let work = move || {
            keep(&writes, &clock, &snapshots, &stopped);
            end(&ends);
        };
        let failed = move |why: &str| {
            tracing::error!(why, "the history of figures is not kept any more until the next start: report it");
            end(&fails);
        };
        let thread = device::supervise::thread("history", work, failed).map_err(|error| error.to_string())?;
        Ok(Arc::new(HistoryKeeper { history, stop: Mutex::new(Some(stop)), ended, thread: Mutex::new(Some(thread)) }))
    }

    /// What was kept.
    pub fn history(&self) -> &HistoryStore {
        &self.history
    }

    /// Ends it; it blocks for ten seconds at most.
    pub fn stop(&self) {
        self.stop.lock().take();
        let mut has_ended = self.ended.0.lock();
        while !*has_ended {
            if self.ended.1.wait_for(&mut has_ended, PATIENCE).timed_out() {
                tracing::warn!("the store does not take the history of figures: its last row is given up");
                return;
            }
        }
        drop(has_ended);
        if let Some(thread) = self.thread.lock().take() {
            // Its panic was reported.
            let _ = thread.join();
        }
    }
}

fn end(ended: &(Mutex<bool>, Condvar)) {
    *ended.0.lock() = true;
    ended.1.notify_all();
}

fn keep(history: &HistoryStore, clock: &Clock, snapshots: &Snapshots, stopped: &mpsc::Receiver<()>) {
    let (mut reader, mut fails) = (SeriesReader::default(), false);
    loop {
        device::supervise::rehearse("history");
        let (samples, at_us) = (snapshots.samples(), clock.now_us());
        let values = reader.read(&samples, at_us);
        match history.write(&values, at_us) {
            Ok(()) => fails = false,
            Err(error) if !fails => {
                tracing::warn!(%error, "the history of figures is not kept for now");
                fails = true;
            }
            Err(_) => {}
        }
        if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::super::rows::HistoryRange;
    use super::*;
    use crate::samples::Samples;
    use crate::table;

    #[test]
    fn a_node_keeps_its_figures_from_its_first_moment_and_ends_at_once() {
        let source: Box<crate::Source> = Box::new(|samples: &mut Samples| {
            samples.gauge(table::QUEUE_MESSAGES, &["lab"], 12.0);
        });
        let store = Store::in_memory(Options::default()).expect("memory");
        let clock = Clock::fixed(1_000_000_000_000);
        let keeper = HistoryKeeper::start(store, clock, Snapshots::new(vec![source])).expect("it starts");
        while keeper.history().series().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        keeper.stop();
        let points = keeper.history().points("waiting.lab", HistoryRange::Hour, 1_000_000_000_000);
        let points = points.expect("it can be read").expect("it is known");
        assert_eq!(points.iter().map(|point| point.mean).collect::<Vec<_>>(), [12.0]);
    }
}
