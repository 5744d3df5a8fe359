//! Memory of what searches find, from where it is found until it is written as the bytes of a response.
//!
//! ```text
//!   SearchMemory    of all searches of a node: who finds too little of it waits for a turn
//!      ^  a MiB at a time
//!   MemoryUse       of one search: lists of documents, buckets, hits; bounded by itself too
//!   MemoryHold      what the library takes for a while, which does not say how much it is: as much as it may
//! ```
//!
//! JSON in memory takes many times what it takes as a text: an object of one number has some 200 bytes. So it is counted as it is in memory
//! ([`value_bytes`]), while it is made and not when it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use node::identity::RoleId;
use serde_json::{Map, Value};

use crate::error::SearchError;

mod shared;
#[cfg(test)]
mod tests;

use shared::{MemoryAsker, too_much};
pub use shared::{MemoryPatience, SearchMemory};

/// How much a search takes of the node's memory at a time: searches of little do not wait for each other's counts.
const STEP_BYTES: u64 = 1 << 20;

/// A key of an object with its value: the text's place, its hash, and its place in the table.
const ENTRY_BYTES: usize = size_of::<Value>() + size_of::<String>() + 16;

/// Memory that one search has. It is given back when this is dropped.
#[derive(Debug)]
pub struct MemoryUse {
    of_all: Option<(Arc<SearchMemory>, MemoryAsker)>,
    /// None: it does not wait.
    patience: Option<MemoryPatience>,
    most: u64,
    used: AtomicU64,
    /// What of it was taken from the memory of all.
    held: AtomicU64,
}

/// Memory that a search has beside what it counts, until this is dropped.
#[derive(Debug)]
pub struct MemoryHold<'a> {
    of: &'a MemoryUse,
    bytes: u64,
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
        let of_all = of_all.map(|all| {
            let asker = all.asker();
            (all, asker)
        });
        MemoryUse { of_all, patience: None, most, used: AtomicU64::new(0), held: AtomicU64::new(0) }
    }

    /// The same, of a search of this role, which waits where the memory of all is taken.
    #[must_use]
    pub fn waiting(mut self, owner: Option<RoleId>, patience: MemoryPatience) -> MemoryUse {
        if let Some((_, asker)) = &mut self.of_all {
            asker.owner = owner;
        }
        self.patience = Some(patience);
        self
    }

    /// The same, of a part of another search: what both hold is that one's, so that neither waits for the other.
    #[must_use]
    pub fn part_of(mut self, number: Option<u64>) -> MemoryUse {
        if let (Some((_, asker)), Some(number)) = (&mut self.of_all, number) {
            asker.number = number;
        }
        self
    }

    /// The number of its search in the memory of all.
    pub fn number(&self) -> Option<u64> {
        self.of_all.as_ref().map(|(_, asker)| asker.number)
    }

    /// Takes memory; waits if others have it.
    ///
    /// Errors: the search, or all of them, would have more than they may; then none is taken.
    pub fn take(&self, bytes: u64) -> Result<(), SearchError> {
        self.taken(bytes, self.patience.as_ref()).inspect_err(|_| self.give(bytes))
    }

    /// Takes memory that the search has for a while, and that does not count as what it finds; waits if others have it.
    ///
    /// Errors: all searches would have more than they may.
    pub fn hold(&self, bytes: u64) -> Result<MemoryHold<'_>, SearchError> {
        if let Some((all, asker)) = self.of_all.as_ref().filter(|_| bytes > 0) {
            all.take(*asker, bytes, self.patience.as_ref())?;
        }
        Ok(MemoryHold { of: self, bytes })
    }

    /// The most that one search should hold: half of what all have, so that another one can hold as much.
    pub fn most_held(&self) -> u64 {
        self.of_all.as_ref().map_or(u64::MAX, |(all, _)| all.bytes() / 2)
    }

    /// Takes memory, if there is so much now.
    pub fn try_take(&self, bytes: u64) -> bool {
        self.taken(bytes, None).inspect_err(|_| self.give(bytes)).is_ok()
    }

    fn taken(&self, bytes: u64, patience: Option<&MemoryPatience>) -> Result<(), SearchError> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if used > self.most {
            return Err(too_much(&format!("what this search finds takes more than [{}] bytes of memory", self.most)));
        }
        let Some((all, asker)) = &self.of_all else { return Ok(()) };
        while used > self.held.load(Ordering::Relaxed) {
            let more = (used - self.held.load(Ordering::Relaxed)).next_multiple_of(STEP_BYTES);
            all.take(*asker, more, patience)?;
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
        if let Some((all, asker)) = &self.of_all {
            all.give(*asker, *self.held.get_mut());
        }
    }
}

impl MemoryHold<'_> {
    /// Gives back what is more than so much.
    pub fn keep(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        if let Some((all, asker)) = &self.of.of_all {
            all.give(*asker, less);
        }
        self.bytes -= less;
    }
}

impl Drop for MemoryHold<'_> {
    fn drop(&mut self) {
        self.keep(0);
    }
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
        Value::Object(object) => object_bytes(object),
    };
    size_of::<Value>() + inside
}

/// Memory of a source and of the object that is read of it, at most, about: each value and each key stands behind one of these marks.
pub fn source_bytes(source: &[u8]) -> usize {
    let count = |marks: &[u8]| source.iter().filter(|byte| marks.contains(byte)).count();
    2 * source.len() + count(b":") * (ENTRY_BYTES * 4 / 3 + 1) + count(b",[{") * 2 * size_of::<Value>()
}

/// Memory of what is in an object, about.
pub fn object_bytes(object: &Map<String, Value>) -> usize {
    let entries =
        object.iter().map(|(key, value)| ENTRY_BYTES - size_of::<Value>() + key.capacity() + value_bytes(value));
    // Room for a third more, as objects grow by doubling.
    entries.sum::<usize>() + object.len() * ENTRY_BYTES / 3
}
