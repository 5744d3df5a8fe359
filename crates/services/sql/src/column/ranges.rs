//! [`Ranges`]: which segments may hold a primary key, in memory.
//!
//! ```text
//!   segment 3   [a ........ f]                 ordered by first key; each entry knows which of it and those
//!   segment 1         [c ............... p]    before it reaches furthest, so that a search from the right
//!   segment 9                   [k .. n]       ends where none can reach the key any more
//! ```
//!
//! An entry says nothing about what a view sees: a segment may have been rolled back, or be newer than the view. Who finds one
//! here asks the tree of segments whether it is there. The other way round everything is here: what the store held when it was
//! opened is read at the first question, and whoever writes a segment enters it first.

use std::sync::Arc;

use super::descriptor::Descriptor;

/// A segment of a table with a primary key.
#[derive(Clone, Debug)]
struct Entry {
    segment: u32,
    descriptor: Arc<Descriptor>,
    /// Which of this entry and those before it has the largest last key.
    furthest: usize,
}

impl Entry {
    fn first(&self) -> &[u8] {
        self.descriptor.keys.first().map_or(&[], Vec::as_slice)
    }

    fn last(&self) -> &[u8] {
        self.descriptor.keys.last().map_or(&[], Vec::as_slice)
    }
}

/// See the file's essay.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    entries: Vec<Entry>,
    /// What was stored before is here.
    pub(crate) is_complete: bool,
}

impl Ranges {
    /// Adds segments; those that are here stay as they are.
    pub(crate) fn enter(&mut self, segments: impl IntoIterator<Item = (u32, Arc<Descriptor>)>) {
        for (segment, descriptor) in segments {
            let known = self.entries.iter().any(|entry| entry.segment == segment);
            if !known && !descriptor.keys.is_empty() {
                self.entries.push(Entry { segment, descriptor, furthest: 0 });
            }
        }
        self.entries.sort_by(|a, b| a.first().cmp(b.first()));
        self.find_furthest();
    }

    /// Takes segments away.
    pub(crate) fn remove(&mut self, segments: &[u32]) {
        self.entries.retain(|entry| !segments.contains(&entry.segment));
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

    /// The segments with keys around or between two keys, both inclusive.
    pub(crate) fn meeting(&self, from: &[u8], to: &[u8]) -> Vec<(u32, Arc<Descriptor>)> {
        let end = self.entries.partition_point(|entry| entry.first() <= to);
        let reaching = self.entries[..end].iter().rev();
        let reaching = reaching.take_while(|entry| self.entries[entry.furthest].last() >= from);
        let meeting = reaching.filter(|entry| entry.last() >= from);
        meeting.map(|entry| (entry.segment, entry.descriptor.clone())).collect()
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
            let mut ranges = Ranges::default();
            let mut all = Vec::new();
            for segment in 0..random.u32(..20) {
                let from = random.u8(..100);
                let width = if random.bool() { 5 } else { 60 };
                let to = from + random.u8(..width);
                all.push((segment, from, to));
                let descriptor = Descriptor { rows: 1, keys: vec![vec![from], vec![to]], columns: Vec::new() };
                ranges.enter([(segment, Arc::new(descriptor))]);
            }
            let gone: Vec<u32> = all.iter().map(|(segment, _, _)| *segment).filter(|_| random.u8(..4) == 0).collect();
            ranges.remove(&gone);
            all.retain(|(segment, _, _)| !gone.contains(segment));
            let from = random.u8(..160);
            let to = from + random.u8(..30);
            let mut found: Vec<u32> = ranges.meeting(&[from], &[to]).into_iter().map(|(segment, _)| segment).collect();
            found.sort_unstable();
            let meets = all.iter().filter(|(_, first, last)| *first <= to && *last >= from);
            let expected: Vec<u32> = meets.map(|(segment, _, _)| *segment).collect();
            assert_eq!(found, expected, "seed {seed}: {from} to {to} among {all:?}");
        }
    }
}
