//! [`Blocks`]: a cache of blocks of files, of a fixed size; the least recently used block goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of a block; a file's last one is shorter.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;

/// Names a file as it was at one time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    pub(crate) path: String,
    pub(crate) size: u64,
    /// Microseconds since 1970 of the last change.
    pub(crate) changed: i64,
    pub(crate) tag: Option<String>,
}

/// The cache. Shared by all external tables of a node.
#[derive(Debug)]
pub struct Blocks {
    limit: u64,
    inner: Mutex<Inner>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    blocks: HashMap<(Version, u64), (Bytes, u64)>,
    bytes: u64,
    clock: u64,
}

impl Blocks {
    /// An empty cache of at most so many bytes.
    pub fn new(limit: u64) -> Blocks {
        Blocks { limit, inner: Mutex::default(), hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// Blocks found, and blocks that had to be read, so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    pub(crate) fn get(&self, version: &Version, number: u64) -> Option<Bytes> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let found = inner.blocks.get_mut(&(version.clone(), number)).map(|(bytes, used)| {
            *used = now;
            bytes.clone()
        });
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(crate) fn put(&self, version: &Version, number: u64, bytes: Bytes) {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let entry = (bytes.clone(), inner.clock);
        if let Some((old, _)) = inner.blocks.insert((version.clone(), number), entry) {
            inner.bytes -= old.len() as u64;
        }
        inner.bytes += bytes.len() as u64;
        while inner.bytes > self.limit {
            // Blocks are a mebibyte: a cache of gigabytes has some thousands of them, and one search goes with each reading.
            let oldest = inner.blocks.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some((old, _)) = oldest.and_then(|key| inner.blocks.remove(&key)) else { break };
            inner.bytes -= old.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(path: &str, changed: i64) -> Version {
        Version { path: path.into(), size: 3, changed, tag: None }
    }

    #[test]
    fn the_least_recently_used_block_goes_first() {
        let blocks = Blocks::new(10);
        let a = version("a", 1);
        for number in 0..3 {
            blocks.put(&a, number, Bytes::from_static(b"abc"));
        }
        assert!(blocks.get(&a, 0).is_some());
        blocks.put(&a, 3, Bytes::from_static(b"abc"));
        let there: Vec<bool> = (0..4).map(|number| blocks.get(&a, number).is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
    }

    #[test]
    fn a_file_that_changed_is_another_file() {
        let blocks = Blocks::new(10);
        blocks.put(&version("a", 1), 0, Bytes::from_static(b"old"));
        assert_eq!(blocks.get(&version("a", 2), 0), None);
        assert_eq!(blocks.counts(), (0, 1));
    }
}
