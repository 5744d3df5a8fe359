//! Which bytes of the device belong to no part, and the runs of a part that return to them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Free ranges by their start. Neighbours are always joined.
#[derive(Debug)]
pub(super) struct FreeSpace {
    ranges: BTreeMap<u64, u64>,
}

impl FreeSpace {
    pub(super) fn all(range: Range<u64>) -> FreeSpace {
        FreeSpace { ranges: BTreeMap::from([(range.start, range.end)]) }
    }

    /// Removes a range, which is free.
    pub(super) fn take(&mut self, run: &Range<u64>) {
        let (&start, &end) = self.ranges.range(..=run.start).next_back().expect("a run of a part was free before");
        assert!(run.end <= end, "runs of parts do not overlap");
        self.ranges.remove(&start);
        if start < run.start {
            self.ranges.insert(start, run.start);
        }
        if run.end < end {
            self.ranges.insert(run.end, end);
        }
    }

    /// Takes `bytes` in at most `most` runs: the smallest range that has all of them, else the largest ones.
    pub(super) fn allocate(&mut self, bytes: u64, most: usize) -> Option<Vec<Range<u64>>> {
        let whole = self.ranges.iter().filter(|(start, end)| *end - *start >= bytes);
        if let Some((&start, _)) = whole.min_by_key(|(start, end)| *end - *start) {
            let run = start..start + bytes;
            self.take(&run);
            return Some(vec![run]);
        }
        let mut ranges: Vec<Range<u64>> = self.ranges.iter().map(|(start, end)| *start..*end).collect();
        ranges.sort_by_key(|range| std::cmp::Reverse(range.end - range.start));
        let mut left = bytes;
        let mut runs = Vec::new();
        for range in ranges.into_iter().take(most) {
            let taken = left.min(range.end - range.start);
            runs.push(range.start..range.start + taken);
            left -= taken;
            if left == 0 {
                runs.iter().for_each(|run| self.take(run));
                return Some(runs);
            }
        }
        None
    }

    fn give_back(&mut self, run: &Range<u64>) {
        let (mut start, mut end) = (run.start, run.end);
        if let Some((&before, &until)) = self.ranges.range(..start).next_back() {
            assert!(until <= start, "a run is given back once");
            if until == start {
                self.ranges.remove(&before);
                start = before;
            }
        }
        if let Some(after) = self.ranges.remove(&end) {
            end = after;
        }
        self.ranges.insert(start, end);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }
}

/// The runs of a part, shared by the directory and the handles. The last one that lets go of a removed part gives them back.
#[derive(Debug)]
pub(super) struct Runs {
    list: Vec<Range<u64>>,
    is_given_back: AtomicBool,
    free: Arc<Mutex<FreeSpace>>,
}

impl Runs {
    pub(super) fn new(list: Vec<Range<u64>>, free: &Arc<Mutex<FreeSpace>>) -> Arc<Runs> {
        Arc::new(Runs { list, is_given_back: AtomicBool::new(false), free: Arc::clone(free) })
    }

    pub(super) fn list(&self) -> &[Range<u64>] {
        &self.list
    }

    pub(super) fn give_back_at_end(&self) {
        self.is_given_back.store(true, Ordering::Release);
    }

    pub(super) fn keep_at_end(&self) {
        self.is_given_back.store(false, Ordering::Release);
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if self.is_given_back.load(Ordering::Acquire) {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            self.list.iter().for_each(|run| free.give_back(run));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_never_given_to_two_and_all_of_it_comes_back() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut free = FreeSpace::all(10..1010);
        let mut held: Vec<Vec<Range<u64>>> = Vec::new();
        for _ in 0..5_000 {
            if random.bool() {
                let wanted = random.u64(1..120);
                let before = free.bytes();
                match free.allocate(wanted, 8) {
                    Some(runs) => {
                        assert_eq!(runs.iter().map(|run| run.end - run.start).sum::<u64>(), wanted);
                        held.push(runs);
                    }
                    None => assert_eq!(free.bytes(), before, "nothing is taken by halves"),
                }
            } else if !held.is_empty() {
                let runs = held.swap_remove(random.usize(..held.len()));
                runs.iter().for_each(|run| free.give_back(run));
            }
            let mut all: Vec<Range<u64>> = held.iter().flatten().cloned().collect();
            all.sort_by_key(|run| run.start);
            assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "no byte belongs to two");
            let taken: u64 = all.iter().map(|run| run.end - run.start).sum();
            assert_eq!(free.bytes() + taken, 1000);
        }
        held.drain(..).flatten().for_each(|run| free.give_back(&run));
        assert_eq!(free.ranges, BTreeMap::from([(10, 1010)]), "neighbours are joined");
    }
}
