//! [`RecentWrites`]: the keys that were written recently, so that the first of two committers wins.
//!
//! ```text
//!   keys    hash of (tree, key) -> LSN of the last transaction that wrote it
//!   trees   tree -> LSN of the last transaction that wrote to it         for transactions that drop a tree
//!   log     LSN -> its hashes, oldest first                              to forget them in that order
//!   spilled LSN -> sorted hashes of a spilled transaction                searched, not entered one by one
//! ```
//!
//! Keys are represented by a hash of 64 bits. Two keys with the same hash cause a false conflict: the second
//! transaction runs again, and nothing wrong is stored.
//!
//! Invariant: this contains every write with which a transaction with an open snapshot S could conflict (all writes
//! after S).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::TreeId;
use crate::write_set::{WHOLE, WriteSet, hash};
use crate::writes::WriteBuffer;

#[derive(Debug, Default)]
struct WrittenKeys {
    lsn: u64,
    keys: Vec<u64>,
    runs: Vec<Arc<Vec<u64>>>,
}

impl WrittenKeys {
    fn count(&self) -> usize {
        self.keys.len() + self.runs.iter().map(|run| run.len()).sum::<usize>()
    }
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(crate) struct RecentWrites {
    keys: HashMap<u64, u64, FixedState>,
    trees: HashMap<TreeId, u64, FixedState>,
    log: VecDeque<WrittenKeys>,
    spilled: VecDeque<(u64, Arc<Vec<u64>>)>,
    newest: u64,
    /// Hashes in the log.
    hashes: usize,
}

impl RecentWrites {
    /// Whether no transaction that committed after `snapshot` wrote a key of this write set.
    pub(crate) fn allows(&self, snapshot: u64, write_set: &WriteSet) -> bool {
        if self.newest <= snapshot {
            return true;
        }
        let newer = |lsn: &u64| *lsn > snapshot;
        let written = |key: u64| self.is_newer(snapshot, key);
        let lost = write_set.keys.iter().any(|key| written(*key))
            || write_set.trees.iter().any(|tree| written(hash(*tree, WHOLE)))
            || write_set.dropped.iter().any(|tree| self.trees.get(tree).is_some_and(newer))
            || write_set.runs.iter().any(|run| self.meets_run(run, snapshot));
        !lost
    }

    /// Whether no transaction that committed after `snapshot` wrote a key of this write buffer, which keeps its hashes. Takes
    /// as long as there are keys that others have written since, or as the buffer has: whichever are fewer.
    pub(crate) fn allows_renewal(&self, snapshot: u64, writes: &WriteBuffer) -> bool {
        if self.newest <= snapshot {
            return true;
        }
        let newer = |lsn: &u64| *lsn > snapshot;
        let is_dropped = |tree: TreeId| self.is_newer(snapshot, hash(tree, WHOLE));
        let lost = writes.trees().any(is_dropped)
            || writes.dropped().any(|tree| self.trees.get(&tree).is_some_and(newer))
            || match self.has_more_since(snapshot, writes.hash_count()) {
                true => {
                    writes.hashes().any(|key| self.is_newer(snapshot, key))
                        || writes.sorted_hashes().any(|own| self.meets_run(own, snapshot))
                }
                false => self
                    .since(snapshot)
                    .any(|written| writes.meets(&written.keys) || written.runs.iter().any(|run| writes.meets(run))),
            };
        !lost
    }

    fn since(&self, snapshot: u64) -> impl Iterator<Item = &WrittenKeys> {
        self.log.iter().rev().take_while(move |written| written.lsn > snapshot)
    }

    /// Whether more keys than this were written after `snapshot`. Takes no longer than that number says.
    fn has_more_since(&self, snapshot: u64, mut count: usize) -> bool {
        self.since(snapshot).any(|written| {
            let left = count.checked_sub(written.count().max(1));
            count = left.unwrap_or(0);
            left.is_none()
        })
    }

    /// Whether a key was written by a transaction that committed after `snapshot`.
    pub(crate) fn is_newer(&self, snapshot: u64, key: u64) -> bool {
        let newer = |lsn: &u64| *lsn > snapshot;
        if !newer(&self.newest) {
            return false;
        }
        self.keys.get(&key).is_some_and(newer)
            || self.spilled.iter().any(|(lsn, keys)| newer(lsn) && keys.binary_search(&key).is_ok())
    }

    /// Iterates over the shorter of the two sets.
    fn meets_run(&self, run: &[u64], snapshot: u64) -> bool {
        let newer = |lsn: u64| lsn > snapshot;
        let known = if self.keys.len() < run.len() {
            self.keys.iter().any(|(key, lsn)| newer(*lsn) && run.binary_search(key).is_ok())
        } else {
            run.iter().any(|key| self.keys.get(key).is_some_and(|lsn| newer(*lsn)))
        };
        let sorted = |a: &[u64], b: &[u64]| a.iter().any(|key| b.binary_search(key).is_ok());
        let meets = |other: &[u64]| if run.len() < other.len() { sorted(run, other) } else { sorted(other, run) };
        known || self.spilled.iter().any(|(lsn, other)| newer(*lsn) && meets(other))
    }

    /// Enters a write set that was appended at `lsn`.
    pub(crate) fn enter(&mut self, lsn: u64, write_set: WriteSet) {
        let WriteSet { keys, runs, trees, .. } = write_set;
        self.newest = lsn;
        self.keys.extend(keys.iter().map(|key| (*key, lsn)));
        self.trees.extend(trees.iter().map(|tree| (*tree, lsn)));
        self.spilled.extend(runs.iter().map(|run| (lsn, run.clone())));
        let written = WrittenKeys { lsn, keys, runs };
        self.hashes += written.count();
        self.log.push_back(written);
    }

    /// Forgets the writes with which no snapshot from `oldest` on can conflict.
    pub(crate) fn forget(&mut self, oldest: u64) {
        if oldest >= self.newest {
            self.keys.clear();
            self.trees.clear();
            self.log.clear();
            self.spilled.clear();
            self.hashes = 0;
            return;
        }
        while let Some(written) = self.log.pop_front_if(|written| written.lsn <= oldest) {
            self.hashes -= written.count();
            for key in &written.keys {
                if self.keys.get(key).is_some_and(|lsn| *lsn == written.lsn) {
                    self.keys.remove(key);
                }
            }
            self.spilled.drain(..written.runs.len());
        }
    }

    /// How many keys its write sets have.
    pub(crate) fn hashes(&self) -> usize {
        self.hashes
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::record::Op;

    fn of(keys: &[u64]) -> WriteSet {
        WriteSet { keys: keys.to_vec(), trees: vec![TreeId(9)], ..WriteSet::default() }
    }

    fn run(keys: &[u64]) -> WriteSet {
        WriteSet { runs: vec![Arc::new(keys.to_vec())], trees: vec![TreeId(9)], ..WriteSet::default() }
    }

    #[test]
    fn the_first_committer_of_a_key_wins() {
        let mut recent = RecentWrites::default();
        recent.enter(10, of(&[1, 2]));
        recent.enter(20, of(&[3]));
        for (snapshot, keys, allowed) in
            [(5, 1, false), (10, 1, true), (10, 3, false), (5, 4, true), (20, 3, true), (9, 2, false)]
        {
            assert_eq!(recent.allows(snapshot, &of(&[keys])), allowed, "snapshot {snapshot}, key {keys}");
            assert_eq!(recent.allows(snapshot, &run(&[keys])), allowed, "snapshot {snapshot}, run of key {keys}");
        }
    }

    #[test]
    fn a_spilled_transaction_conflicts_like_any_other() {
        let mut recent = RecentWrites::default();
        recent.enter(10, run(&[1, 5, 9]));
        assert!(!recent.allows(5, &of(&[5])) && recent.allows(5, &of(&[6])) && recent.allows(10, &of(&[5])));
        assert!(!recent.allows(5, &run(&[2, 9])) && recent.allows(5, &run(&[2, 8])));
        recent.enter(20, of(&[7]));
        recent.forget(10);
        assert!(recent.allows(5, &of(&[5])), "forgotten below the oldest snapshot");
        assert!(!recent.allows(10, &of(&[7])));
    }

    #[test]
    fn dropping_a_tree_conflicts_with_writing_to_it() {
        let mut recent = RecentWrites::default();
        recent.enter(10, of(&[1]));
        let drops = WriteSet { keys: vec![hash(TreeId(9), WHOLE)], dropped: vec![TreeId(9)], ..WriteSet::default() };
        assert!(!recent.allows(5, &drops) && recent.allows(10, &drops));
        recent.enter(20, drops);
        assert!(!recent.allows(15, &of(&[77])), "a write to a tree dropped meanwhile");
        assert!(recent.allows(20, &of(&[77])));
    }

    #[test]
    fn a_snapshot_is_renewed_unless_another_transaction_wrote_a_key_of_this_one() {
        let key = |byte: u8| Bytes::from(vec![byte]);
        let own = |keys: &[u8]| {
            let mut writes = WriteBuffer::default();
            writes.set(TreeId(9), key(keys[0]), Op::Delete);
            writes.keep_hashes();
            keys[1..].iter().for_each(|byte| writes.set(TreeId(9), key(*byte), Op::Delete));
            writes
        };
        let hashes = |keys: &[u8]| keys.iter().map(|byte| hash(TreeId(9), &key(*byte))).collect::<Vec<_>>();
        let mut recent = RecentWrites::default();
        recent.enter(10, of(&hashes(&[1, 2])));
        let mut spilled = hashes(&[3]);
        spilled.sort_unstable();
        recent.enter(20, run(&spilled));
        for (snapshot, keys, allowed) in [
            (5, &[7, 1][..], false),
            (5, &[2, 7], false),
            (10, &[1, 2], true),
            (10, &[7, 3], false),
            (20, &[1, 2, 3], true),
            (0, &[7, 8], true),
            // More keys than the others have written.
            (5, &[7, 8, 9, 1], false),
            (5, &[7, 8, 9, 3], false),
            (5, &[7, 8, 9, 4], true),
            (10, &[7, 1, 2, 4], true),
        ] {
            assert_eq!(recent.allows_renewal(snapshot, &own(keys)), allowed, "snapshot {snapshot}, keys {keys:?}");
        }
        let mut counted = own(&[7]);
        counted.count_as_changed(TreeId(9), [&[1_u8][..]]);
        counted.keep_hashes();
        for (snapshot, allowed) in [(5, false), (10, true)] {
            assert_eq!(recent.allows_renewal(snapshot, &counted), allowed, "snapshot {snapshot}, counted keys");
        }
        let mut undone = own(&[7]);
        let savepoint = undone.savepoint();
        undone.set(TreeId(9), key(1), Op::Delete);
        assert!(!recent.allows_renewal(5, &undone));
        undone.rollback_to(savepoint);
        undone.release(savepoint);
        assert!(recent.allows_renewal(5, &undone), "what was undone does not count");
        // What is undone no more takes no memory.
        let before = undone.bytes();
        for _ in 0..3 {
            let savepoint = undone.savepoint();
            undone.set(TreeId(9), key(7), Op::Put(Bytes::from_static(b"1")));
            undone.release(savepoint);
        }
        assert_eq!(undone.bytes(), before + 1);
        recent.enter(
            30,
            WriteSet { keys: vec![hash(TreeId(9), WHOLE)], dropped: vec![TreeId(9)], ..WriteSet::default() },
        );
        assert!(!recent.allows_renewal(20, &own(&[7])), "its tree was dropped");
    }

    #[test]
    fn forgetting_keeps_what_is_newer() {
        let mut recent = RecentWrites::default();
        recent.enter(10, of(&[1]));
        recent.enter(20, of(&[1]));
        recent.forget(10);
        assert!(!recent.allows(10, &of(&[1])));
        recent.forget(20);
        assert_eq!(recent.len(), 0);
    }
}
