//! Locks of ranges of a device whose blocks are larger than what clients may write.
//!
//! A write of a part of a block reads the block, changes the part, and writes the block. A write of the rest of the
//! block that comes between would be lost, although it was acknowledged. So the first kind locks its blocks alone, and
//! writes of whole blocks lock theirs beside each other:
//!
//! ```text
//!   whole blocks   shared      beside other shared locks, which the contract of devices allows
//!   parts          exclusive   beside nothing that overlaps
//! ```
//!
//! Invariants: of two locks that overlap and are not both shared, one waits; a lock never overtakes one that waits and
//! overlaps, so every lock is granted in the end. Reads take none: the bytes around a part are rewritten as they were.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::mailbox::{Event, Mailbox};

/// The number of a lock.
pub(super) type Ticket = usize;

/// The locks of one export.
#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    inner: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<Ticket>,
    /// Exclusive ones, held or waiting: without any, nobody can be in the way of a shared one.
    exclusive: usize,
    order: u64,
}

#[derive(Debug)]
struct Entry {
    range: Range<u64>,
    is_exclusive: bool,
    order: u64,
    /// How many are in its way: it waits as long as there are any.
    blockers: usize,
    /// Who waits for it; `None` if it is held.
    waits: Option<(Arc<Mailbox>, u32)>,
}

impl Entry {
    #[inline]
    fn is_in_the_way_of(&self, other: &Entry) -> bool {
        (self.is_exclusive || other.is_exclusive)
            && self.order < other.order
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

impl RangeLocks {
    /// Locks `range` for the request in `slot`. Returns whether it is held already; otherwise `mailbox` gets an event.
    #[inline]
    pub(super) fn lock(
        &self,
        range: Range<u64>,
        is_exclusive: bool,
        mailbox: &Arc<Mailbox>,
        slot: u32,
    ) -> (Ticket, bool) {
        let mut inner = self.inner.lock();
        inner.order += 1;
        let mut entry = Entry { range, is_exclusive, order: inner.order, blockers: 0, waits: None };
        if is_exclusive || inner.exclusive > 0 {
            entry.blockers = inner.entries.iter().flatten().filter(|other| other.is_in_the_way_of(&entry)).count();
        }
        let is_held = entry.blockers == 0;
        if !is_held {
            entry.waits = Some((Arc::clone(mailbox), slot));
        }
        inner.exclusive += usize::from(is_exclusive);
        let ticket = inner.free.pop().unwrap_or_else(|| {
            inner.entries.push(None);
            inner.entries.len() - 1
        });
        inner.entries[ticket] = Some(entry);
        (ticket, is_held)
    }

    /// Gives a lock back, held or waited for.
    #[inline]
    pub(super) fn unlock(&self, ticket: Ticket) {
        let mut inner = self.inner.lock();
        let entry = inner.entries[ticket].take().expect("a lock is given back once");
        inner.free.push(ticket);
        if inner.free.len() == inner.entries.len() {
            // Places that a crowd has left behind would be looked at by everybody who comes later.
            (inner.entries, inner.free) = (Vec::new(), Vec::new());
        }
        let had_exclusive = inner.exclusive > 0;
        inner.exclusive -= usize::from(entry.is_exclusive);
        if had_exclusive {
            inner.unblock(&entry);
        }
    }
}

impl Table {
    /// A lock is no longer in the way of others; grants those that had nothing else in theirs. Each is looked at once: with many that wait
    /// for one block, to look for what is in the way of each would take the square of that, under the lock of all.
    fn unblock(&mut self, gone: &Entry) {
        for entry in self.entries.iter_mut().flatten().filter(|entry| gone.is_in_the_way_of(entry)) {
            entry.blockers -= 1;
            if entry.blockers == 0
                && let Some((mailbox, slot)) = entry.waits.take()
            {
                mailbox.put(Event::Locked(slot));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Locks in turns: `s` shared or `x` exclusive with a range, `-` to give one back by its position in the script;
    /// behind `=` the positions that are held afterwards.
    fn play(script: &[&str]) {
        let locks = RangeLocks::default();
        let mailbox = Arc::new(Mailbox::default());
        let mut tickets = Vec::new();
        let mut held = std::collections::BTreeSet::new();
        for line in script {
            let (event, expected) = line.split_once(" = ").expect("what is held");
            let numbers: Vec<u64> = event[1..].split_whitespace().map(|word| word.parse().expect("a number")).collect();
            if event.starts_with('-') {
                let position = numbers[0] as usize;
                held.remove(&position);
                locks.unlock(tickets[position]);
            } else {
                let position = tickets.len();
                let range = numbers[0]..numbers[1];
                let (ticket, is_held) = locks.lock(range, event.starts_with('x'), &mailbox, position as u32);
                tickets.push(ticket);
                if is_held {
                    held.insert(position);
                }
            }
            let mut events = Vec::new();
            mailbox.take(&mut events);
            held.extend(events.iter().map(|event| match event {
                Event::Locked(slot) => *slot as usize,
                other => panic!("{other:?}"),
            }));
            let all: Vec<String> = held.iter().map(ToString::to_string).collect();
            assert_eq!(all.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn shared_locks_lie_beside_each_other_and_exclusive_ones_beside_nothing() {
        play(&[
            "s 0 8 = 0",
            "s 4 12 = 0 1",
            "x 8 9 = 0 1",
            "x 20 30 = 0 1 3",
            "s 25 26 = 0 1 3",
            "- 1 = 0 2 3",
            "- 3 = 0 2 4",
            "- 2 = 0 4",
        ]);
    }

    #[test]
    fn nobody_overtakes_a_lock_that_waits() {
        play(&["s 0 8 = 0", "x 0 8 = 0", "s 0 8 = 0", "x 4 5 = 0", "- 0 = 1", "- 1 = 2", "- 2 = 3", "- 3 = "]);
    }

    #[test]
    fn a_lock_that_is_given_up_while_it_waits_lets_those_behind_it_go_on() {
        play(&["s 0 8 = 0", "x 0 8 = 0", "s 0 8 = 0", "- 1 = 0 2"]);
    }

    #[test]
    fn a_crowd_at_one_block_is_granted_in_its_order_and_leaves_nothing_behind() {
        // To look at what is in the way of each of them, for each that ends, would take minutes.
        let (locks, mailbox) = (RangeLocks::default(), Arc::new(Mailbox::default()));
        let tickets: Vec<_> = (0..10_000).map(|slot| locks.lock(0..4096, true, &mailbox, slot)).collect();
        for (slot, (ticket, is_held)) in tickets.into_iter().enumerate() {
            let mut events = Vec::new();
            mailbox.take(&mut events);
            let is_granted = matches!(events[..], [Event::Locked(granted)] if granted as usize == slot);
            assert!(if slot == 0 { is_held } else { is_granted && !is_held }, "{slot}: {events:?}");
            locks.unlock(ticket);
        }
        assert_eq!(locks.inner.lock().entries.len(), 0);
    }
}
