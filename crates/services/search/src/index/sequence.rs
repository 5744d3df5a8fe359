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
    /// By first number: reserved (`None`) or complete, with the bytes that it takes.
    open: BTreeMap<u64, Option<(T, u64)>>,
    /// Bytes of what is complete.
    waiting: u64,
}

impl<T> Sequencer<T> {
    /// Continues at `next`.
    pub(super) fn new(next: u64) -> Sequencer<T> {
        Sequencer { next, open: BTreeMap::new(), waiting: 0 }
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

    /// What a reservation was for is durable; the work takes so many bytes until it is taken.
    pub(super) fn complete(&mut self, first: u64, work: T, bytes: u64) {
        self.open.insert(first, Some((work, bytes)));
        self.waiting += bytes;
    }

    /// What can be applied now, in order.
    pub(super) fn take_ready(&mut self) -> Vec<T> {
        let mut ready = Vec::new();
        while let Some(entry) = self.open.first_entry() {
            if entry.get().is_none() {
                break;
            }
            if let Some((work, bytes)) = entry.remove() {
                self.waiting -= bytes;
                ready.push(work);
            }
        }
        ready
    }

    /// Every number below it was taken as ready, or was used for nothing.
    pub(super) fn watermark(&self) -> u64 {
        self.open.first_key_value().map_or(self.next, |(first, _)| *first)
    }

    /// Every number below it is complete, taken or not, or was used for nothing.
    pub(super) fn complete_below(&self) -> u64 {
        self.open.iter().find(|(_, work)| work.is_none()).map_or(self.next, |(first, _)| *first)
    }

    /// Bytes of what is complete and was not taken.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting
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
        sequencer.complete(c, "c", 5);
        assert!(sequencer.take_ready().is_empty());
        sequencer.complete(a, "a", 2);
        assert_eq!((sequencer.complete_below(), sequencer.waiting_bytes()), (12, 7));
        assert_eq!(sequencer.take_ready(), ["a"]);
        assert_eq!(sequencer.watermark(), 12);
        sequencer.abandon(b);
        assert_eq!(sequencer.take_ready(), ["c"]);
        assert_eq!((sequencer.watermark(), sequencer.highest()), (16, Some(15)));
        assert_eq!((sequencer.complete_below(), sequencer.waiting_bytes()), (16, 0));
        let last = sequencer.reserve(5);
        sequencer.abandon(last);
        assert_eq!(sequencer.reserve(1), 16, "numbers of the last reservation are used again");
    }
}
