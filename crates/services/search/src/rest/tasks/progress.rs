//! [`Progress`]: how far a request by query is, and how fast it may go.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::error::SearchError;
use crate::rest::message::RestRequest;

/// How often a wait looks whether the task is to end or to go faster.
const LOOK: Duration = Duration::from_millis(20);

/// See the head comment of this file. What is counted is durable.
#[derive(Debug)]
pub(in crate::rest) struct Progress {
    pub(in crate::rest) total: AtomicU64,
    pub(in crate::rest) created: AtomicU64,
    pub(in crate::rest) updated: AtomicU64,
    pub(in crate::rest) deleted: AtomicU64,
    pub(in crate::rest) batches: AtomicU64,
    pub(in crate::rest) conflicts: AtomicU64,
    pub(in crate::rest) noops: AtomicU64,
    pub(in crate::rest) retries: AtomicU64,
    throttled_millis: AtomicU64,
    throttled_until_millis: AtomicU64,
    /// Bits of documents for each second; infinite for no bound.
    per_second: AtomicU32,
    /// Keys that the kind of request shows besides those of all.
    shows: &'static [&'static str],
}

/// The documents of a second that a request by query may handle; infinite for no bound. Errors: it is not above 0, and not -1.
pub(in crate::rest) fn per_second(request: &RestRequest) -> Result<Option<f32>, SearchError> {
    let Some(text) = request.parameter("requests_per_second") else { return Ok(None) };
    match text.parse::<f32>() {
        Ok(-1.0) => Ok(Some(f32::INFINITY)),
        Ok(number) if number > 0.0 => Ok(Some(number)),
        _ => Err(SearchError::argument(
            "[requests_per_second] must be a float greater than 0. Use -1 to disable throttling.",
        )),
    }
}

/// A counter goes up.
pub(in crate::rest) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// What a counter has.
pub(in crate::rest) fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Progress {
    /// Nothing is done yet; `shows` are the counters (`created`, `updated`) that the kind of request shows.
    pub(in crate::rest) fn new(per_second: f32, shows: &'static [&'static str]) -> Progress {
        Progress {
            total: AtomicU64::default(),
            created: AtomicU64::default(),
            updated: AtomicU64::default(),
            deleted: AtomicU64::default(),
            batches: AtomicU64::default(),
            conflicts: AtomicU64::default(),
            noops: AtomicU64::default(),
            retries: AtomicU64::default(),
            throttled_millis: AtomicU64::default(),
            throttled_until_millis: AtomicU64::default(),
            per_second: AtomicU32::new(per_second.to_bits()),
            shows,
        }
    }

    /// From now on so many documents a second.
    pub(in crate::rest) fn rethrottle(&self, per_second: f32) {
        self.per_second.store(per_second.to_bits(), Ordering::Relaxed);
    }

    fn per_second(&self) -> f32 {
        f32::from_bits(self.per_second.load(Ordering::Relaxed))
    }

    /// Waits as long as a batch of so many documents, which began at `since`, must take. Ends early when it is cancelled.
    pub(in crate::rest) fn throttle(&self, documents: u64, since: Instant, cancelled: &AtomicBool) {
        let began = Instant::now();
        loop {
            let least = documents as f64 / f64::from(self.per_second());
            let left = Duration::try_from_secs_f64(least).unwrap_or(Duration::MAX).saturating_sub(since.elapsed());
            if left.is_zero() || cancelled.load(Ordering::Relaxed) {
                break;
            }
            self.throttled_until_millis.store(left.as_millis() as u64, Ordering::Relaxed);
            std::thread::sleep(left.min(LOOK));
        }
        self.throttled_until_millis.store(0, Ordering::Relaxed);
        add(&self.throttled_millis, began.elapsed().as_millis() as u64);
    }

    /// The counters as responses show them.
    pub(in crate::rest) fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        let mut put = |name: &str, value: Value| drop(shown.insert(name.to_owned(), value));
        put("total", json!(count(&self.total)));
        for (name, counter) in [("updated", &self.updated), ("created", &self.created)] {
            if self.shows.contains(&name) {
                put(name, json!(count(counter)));
            }
        }
        put("deleted", json!(count(&self.deleted)));
        put("batches", json!(count(&self.batches)));
        put("version_conflicts", json!(count(&self.conflicts)));
        put("noops", json!(count(&self.noops)));
        put("retries", json!({"bulk": count(&self.retries), "search": 0}));
        put("throttled_millis", json!(count(&self.throttled_millis)));
        let per_second = self.per_second();
        put("requests_per_second", json!(if per_second.is_finite() { per_second } else { -1.0 }));
        put("throttled_until_millis", json!(count(&self.throttled_until_millis)));
        shown
    }
}
