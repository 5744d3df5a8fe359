//! [`Sequencer`]: sequence numbers, and the order in which committed operations reach the index.
//!
//! Requests commit in any order, and the index must take operations in the order of their numbers: of two on one id the later one
//! counts. A request reserves its numbers, commits, and completes them; what is complete below every number that is still
//! reserved is ready. Pure: no lock, no I/O.

use std::collections::BTreeMap;

/// See the head comment of this file. `T` is what a request hands over for its numbers.
#[derive(Debug)]
pub(super) struct Sequencer<T> {
    next: u64,
    /// By first number: reserved (`None`) or complete.
    open: BTreeMap<u64, Option<T>>,
}

impl<T> Sequencer<T> {
    /// Continues at `next`.
    pub(super) fn new(next: u64) -> Sequencer<T> {
        Sequencer { next, open: BTreeMap::new() }
    }

    /// Reserves `count` numbers, at least one; returns the first.
    pub(super) fn reserve(&mut self, count: u64) -> u64 {
        let first = self.next;
        self.next += count.max(1);
        self.open.insert(first, None);
        first
    }

    /// Gives a reservation up: its numbers are used for nothing. The last one's are reserved again.
    pub(super) fn abandon(&mut self, first: u64) {
        self.open.remove(&first);
        if self.open.range(first..).next().is_none() {
            self.next = first;
        }
    }

    /// What a reservation was for is durable.
    pub(super) fn complete(&mut self, first: u64, work: T) {
        self.open.insert(first, Some(work));
    }

    /// What can be applied now, in order.
    pub(super) fn take_ready(&mut self) -> Vec<T> {
        let mut ready = Vec::new();
        while let Some(entry) = self.open.first_entry() {
            if entry.get().is_none() {
                break;
            }
            ready.extend(entry.remove());
        }
        ready
    }

    /// Every number below it was taken as ready, or was used for nothing.
    pub(super) fn watermark(&self) -> u64 {
        self.open.first_key_value().map_or(self.next, |(first, _)| *first)
    }

    /// The highest number that was given out; `None` if none was.
    pub(super) fn highest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_ready_in_the_order_of_its_numbers_whatever_the_order_of_commits() {
        let mut sequencer = Sequencer::new(10);
        let (a, b, c) = (sequencer.reserve(2), sequencer.reserve(1), sequencer.reserve(3));
        assert_eq!((a, b, c, sequencer.watermark()), (10, 12, 13, 10));
        sequencer.complete(c, "c");
        assert!(sequencer.take_ready().is_empty());
        sequencer.complete(a, "a");
        assert_eq!(sequencer.take_ready(), ["a"]);
        assert_eq!(sequencer.watermark(), 12);
        sequencer.abandon(b);
        assert_eq!(sequencer.take_ready(), ["c"]);
        assert_eq!((sequencer.watermark(), sequencer.highest()), (16, Some(15)));
        let last = sequencer.reserve(5);
        sequencer.abandon(last);
        assert_eq!(sequencer.reserve(1), 16, "numbers of the last reservation are used again");
    }
}
