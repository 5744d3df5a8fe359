//! [`KeyRanges`]: finds in memory which row groups may contain a primary key.
//!
//! ```text
//!   row group 3   [a ........ f]                 ordered by first key; each entry stores which of it and those
//!   row group 1         [c ............... p]    before it reaches furthest, so a search from the right
//!   row group 9                   [k .. n]       ends where no entry can reach the key any more
//! ```
//!
//! An entry does not show what a view sees: its row group may have been rolled back, or be newer than the view. So the
//! caller also looks up the row group in the tree of row groups. But every row group of the store has an entry: those
//! stored before the store was opened are read at the first search, and a writer adds the entry before it writes the
//! row group.

use std::sync::Arc;

use super::metadata::RowGroupMetadata;

/// A row group of a table with a primary key.
#[derive(Clone, Debug)]
struct Entry {
    row_group: u32,
    metadata: Arc<RowGroupMetadata>,
    /// The index of the entry with the largest last key, among this one and those before it.
    furthest: usize,
}

impl Entry {
    fn first(&self) -> &[u8] {
        self.metadata.keys.first().map_or(&[], Vec::as_slice)
    }

    fn last(&self) -> &[u8] {
        self.metadata.keys.last().map_or(&[], Vec::as_slice)
    }
}

/// The ranges of one table; see the head of this file.
#[derive(Debug, Default)]
pub(crate) struct KeyRanges {
    entries: Vec<Entry>,
    /// Whether the row groups that were stored before are included.
    pub(crate) is_complete: bool,
}

impl KeyRanges {
    /// Adds row groups; existing entries stay unchanged.
    pub(crate) fn enter(&mut self, row_groups: impl IntoIterator<Item = (u32, Arc<RowGroupMetadata>)>) {
        for (row_group, metadata) in row_groups {
            let known = self.entries.iter().any(|entry| entry.row_group == row_group);
            if !known && !metadata.keys.is_empty() {
                self.entries.push(Entry { row_group, metadata, furthest: 0 });
            }
        }
        self.entries.sort_by(|a, b| a.first().cmp(b.first()));
        self.find_furthest();
    }

    /// Removes row groups.
    pub(crate) fn remove(&mut self, row_groups: &[u32]) {
        self.entries.retain(|entry| !row_groups.contains(&entry.row_group));
        self.find_furthest();
    }

    fn find_furthest(&mut self) {
        let mut furthest = 0;
        for at in 0..self.entries.len() {
            if self.entries[at].last() > self.entries[furthest].last() {
                furthest = at;
            }
            self.entries[at].furthest = furthest;
        }
    }

    /// The row groups with keys around or between two keys, both inclusive.
    pub(crate) fn meeting(&self, from: &[u8], to: &[u8]) -> Vec<(u32, Arc<RowGroupMetadata>)> {
        let end = self.entries.partition_point(|entry| entry.first() <= to);
        let reaching = self.entries[..end].iter().rev();
        let reaching = reaching.take_while(|entry| self.entries[entry.furthest].last() >= from);
        let meeting = reaching.filter(|entry| entry.last() >= from);
        meeting.map(|entry| (entry.row_group, entry.metadata.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_what_going_through_all_finds() {
        let seed = u64::from(std::process::id());
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let mut ranges = KeyRanges::default();
            let mut all = Vec::new();
            for row_group in 0..random.u32(..20) {
                let from = random.u8(..100);
                let width = if random.bool() { 5 } else { 60 };
                let to = from + random.u8(..width);
                all.push((row_group, from, to));
                let metadata = RowGroupMetadata { rows: 1, keys: vec![vec![from], vec![to]], columns: Vec::new() };
                ranges.enter([(row_group, Arc::new(metadata))]);
            }
            let gone: Vec<u32> =
                all.iter().map(|(row_group, _, _)| *row_group).filter(|_| random.u8(..4) == 0).collect();
            ranges.remove(&gone);
            all.retain(|(row_group, _, _)| !gone.contains(row_group));
            let from = random.u8(..160);
            let to = from + random.u8(..30);
            let mut found: Vec<u32> =
                ranges.meeting(&[from], &[to]).into_iter().map(|(row_group, _)| row_group).collect();
            found.sort_unstable();
            let meets = all.iter().filter(|(_, first, last)| *first <= to && *last >= from);
            let expected: Vec<u32> = meets.map(|(row_group, _, _)| *row_group).collect();
            assert_eq!(found, expected, "seed {seed}: {from} to {to} among {all:?}");
        }
    }
}
