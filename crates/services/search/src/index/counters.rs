//! [`Counters`]: what an index has done since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl Counters {
    /// Adds to a count.
    pub fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}
