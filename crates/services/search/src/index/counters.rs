//! [`Counters`]: what an index has done since it was opened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// The most groups of searches of an index that are counted: a search can name any.
const GROUPS_MAX: usize = 1_000;

/// Counts since the index was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Documents stored.
    pub indexed: AtomicU64,
    /// Documents deleted.
    pub deleted: AtomicU64,
    /// Microseconds that storing took.
    pub index_us: AtomicU64,
    /// Searches.
    pub searches: AtomicU64,
    /// Microseconds that searching took.
    pub search_us: AtomicU64,
    /// Refreshes.
    pub refreshes: AtomicU64,
    /// Microseconds that refreshing took.
    pub refresh_us: AtomicU64,
    /// Persisted states.
    pub persists: AtomicU64,
    /// Reads by id, and those that found a document.
    pub gets: AtomicU64,
    /// See `gets`.
    pub found: AtomicU64,
    /// Merges asked for.
    pub merges: AtomicU64,
    /// Updates that changed nothing.
    pub noops: AtomicU64,
    /// Flushes asked for, and the persisted states that they made.
    pub flushes: AtomicU64,
    /// See `flushes`.
    pub flush_persists: AtomicU64,
    /// Searches, and the microseconds they took, by the groups that they name.
    groups: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl Counters {
    /// Counts a search in its groups; those beyond the first thousand names are not counted.
    pub fn add_groups(&self, names: &[String], took: Duration) {
        if names.is_empty() {
            return;
        }
        let mut groups = self.groups.lock();
        for name in names {
            if groups.len() < GROUPS_MAX || groups.contains_key(name) {
                let (searches, micros) = groups.entry(name.clone()).or_default();
                *searches += 1;
                *micros += took.as_micros() as u64;
            }
        }
    }

    /// Searches, and the microseconds they took, by group.
    pub fn groups(&self) -> BTreeMap<String, (u64, u64)> {
        self.groups.lock().clone()
    }

    /// Adds to a count.
    pub fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}
