//! [`Snapshots`]: figures are gathered at most once a second, for all scrapers together.
//!
//! Invariants: one gathering at a time, whoever asks and goes away again; a gathering blocks, so it is called where that may be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::exposition::Exposition;
use crate::samples::Samples;
use crate::table;

/// How long a snapshot counts as the present.
const FRESH: Duration = Duration::from_secs(1);

/// Adds the figures of a part of the node. It may block for some milliseconds, and must not wait for a medium.
pub type Source = dyn Fn(&mut Samples) + Send + Sync;

/// See the module's text.
pub struct Snapshots {
    sources: Vec<Box<Source>>,
    last: Mutex<Option<(Instant, Exposition)>>,
}

impl std::fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshots").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl Snapshots {
    /// Gathers from these.
    pub fn new(sources: Vec<Box<Source>>) -> Arc<Snapshots> {
        Arc::new(Snapshots { sources, last: Mutex::new(None) })
    }

    /// The figures of now.
    pub fn samples(&self) -> Samples {
        let began = Instant::now();
        let mut samples = Samples::default();
        self.sources.iter().for_each(|source| source(&mut samples));
        let dropped = samples.dropped() as f64;
        samples.gauge(table::METRICS_DROPPED_SAMPLES, &[], dropped);
        samples.gauge(table::METRICS_GATHER_SECONDS, &[], began.elapsed().as_secs_f64());
        samples
    }

    /// The figures as text: those of now, or of a moment of the last second.
    pub fn exposition(&self) -> Exposition {
        let mut last = self.last.lock();
        if let Some((_, exposition)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return exposition.clone();
        }
        let exposition = Exposition::of(self.samples());
        *last = Some((Instant::now(), exposition.clone()));
        exposition
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn scrapers_of_one_moment_share_one_gathering() {
        let gathered = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&gathered);
        let snapshots = Snapshots::new(vec![Box::new(move |samples| {
            let times = counted.fetch_add(1, Ordering::Relaxed) + 1;
            samples.gauge(table::QUEUE_MESSAGES, &["out"], times as f64);
        })]);
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| (0..50).for_each(|_| _ = snapshots.exposition()));
            }
        });
        let most = began.elapsed().as_secs() + 1;
        let times = gathered.load(Ordering::Relaxed);
        assert!((1..=most).contains(&times), "{times} gatherings in {most} s");
    }
}
