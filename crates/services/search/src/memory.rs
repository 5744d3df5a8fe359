//! Memory of what searches find, from where it is found until it is written as the bytes of a response.
//!
//! ```text
//!   SearchMemory    of all searches of a node
//!      ^  a MiB at a time
//!   MemoryUse       of one search: lists of documents, buckets, hits; bounded by itself too
//! ```
//!
//! JSON in memory takes many times what it takes as a text: an object of one number has some 200 bytes. So it is counted as it is in memory
//! ([`value_bytes`]), while it is made and not when it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::error::SearchError;

/// How much a search takes of the node's memory at a time: searches of little do not wait for each other's counts.
const STEP_BYTES: u64 = 1 << 20;

/// A key of an object with its value: the text's place, its hash, and its place in the table.
const ENTRY_BYTES: usize = size_of::<Value>() + size_of::<String>() + 16;

/// Memory that all searches of a node have.
#[derive(Debug)]
pub struct SearchMemory {
    bytes: u64,
    left: AtomicU64,
}

impl SearchMemory {
    /// So many bytes.
    pub fn new(bytes: u64) -> Arc<SearchMemory> {
        Arc::new(SearchMemory { bytes, left: AtomicU64::new(bytes) })
    }

    /// Bytes that no search has.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

/// Memory that one search has. It is given back when this is dropped.
#[derive(Debug)]
pub struct MemoryUse {
    of_all: Option<Arc<SearchMemory>>,
    most: u64,
    used: AtomicU64,
    /// What of it was taken from the memory of all.
    held: AtomicU64,
}

impl Default for MemoryUse {
    /// Without a bound.
    fn default() -> MemoryUse {
        MemoryUse::new(None, u64::MAX)
    }
}

impl MemoryUse {
    /// Memory of a search that may have so many bytes at most, of all there is.
    pub fn new(of_all: Option<Arc<SearchMemory>>, most: u64) -> MemoryUse {
        MemoryUse { of_all, most, used: AtomicU64::new(0), held: AtomicU64::new(0) }
    }

    /// Takes memory. Errors: the search, or all of them, would have more than they may; then none is taken.
    pub fn take(&self, bytes: u64) -> Result<(), SearchError> {
        let taken = self.taken(bytes);
        taken.inspect_err(|_| self.give(bytes))
    }

    /// Takes memory, if there is so much.
    pub fn try_take(&self, bytes: u64) -> bool {
        self.take(bytes).is_ok()
    }

    fn taken(&self, bytes: u64) -> Result<(), SearchError> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if used > self.most {
            return Err(too_much(&format!("what this search finds takes more than [{}] bytes of memory", self.most)));
        }
        let Some(all) = &self.of_all else { return Ok(()) };
        while used > self.held.load(Ordering::Relaxed) {
            let more = (used - self.held.load(Ordering::Relaxed)).next_multiple_of(STEP_BYTES);
            let taken = all.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(more));
            if taken.is_err() {
                let bytes = all.bytes;
                return Err(too_much(&format!("what all searches find takes more than [{bytes}] bytes of memory")));
            }
            self.held.fetch_add(more, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes the memory of a value. Errors: as for [`take`](MemoryUse::take).
    pub fn take_value(&self, value: &Value) -> Result<(), SearchError> {
        self.take(value_bytes(value) as u64)
    }

    /// What was taken and not given back.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Gives back what was taken.
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for MemoryUse {
    fn drop(&mut self) {
        if let Some(all) = &self.of_all {
            all.left.fetch_add(*self.held.get_mut(), Ordering::Relaxed);
        }
    }
}

fn too_much(what: &str) -> SearchError {
    SearchError::new(429, "circuit_breaking_exception", format!("[request] Data too large: {what}"))
}

/// Memory of a value with all that is in it, about.
pub fn value_bytes(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.capacity(),
        Value::Array(values) => {
            let spare = values.capacity() - values.len();
            values.iter().map(value_bytes).sum::<usize>() + spare * size_of::<Value>()
        }
        Value::Object(object) => {
            let entries = object
                .iter()
                .map(|(key, value)| ENTRY_BYTES - size_of::<Value>() + key.capacity() + value_bytes(value));
            // Room for a third more, as objects grow by doubling.
            entries.sum::<usize>() + object.len() * ENTRY_BYTES / 3
        }
    };
    size_of::<Value>() + inside
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_counts_as_it_is_in_memory_and_not_as_it_is_written() {
        for (value, least, most) in [
            (json!(1), 24, 100),
            (json!("a".repeat(1_000)), 1_000, 1_200),
            (json!(vec![1; 1_000]), 24_000, 100_000),
            (json!({"value": 1.5}), 100, 400),
            (json!({"a": {"b": {"c": 1}}}), 300, 1_200),
        ] {
            let bytes = value_bytes(&value);
            assert!((least..most).contains(&bytes), "{bytes}: {value}");
        }
    }

    #[test]
    fn a_search_has_no_more_than_it_may_nor_more_than_the_others_leave() {
        let all = SearchMemory::new(10 << 20);
        let one = MemoryUse::new(Some(Arc::clone(&all)), 6 << 20);
        one.take(5 << 20).expect("there is room");
        let error = one.take(2 << 20).expect_err("more than one may");
        assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"));
        let other = MemoryUse::new(Some(Arc::clone(&all)), 6 << 20);
        other.take(4 << 20).expect("there is room");
        assert_eq!(other.take(2 << 20).expect_err("more than is left").status, 429);
        assert!(!other.try_take(2 << 20) && other.used() == 4 << 20, "what is refused is not taken");
        other.give(4 << 20);
        drop((one, other));
        assert_eq!(all.left(), 10 << 20, "all is given back");
        MemoryUse::default().take(u64::MAX / 2).expect("no bound");
    }
}
