//! The order of a draft's segments, and the way to those of a name: for drafts that are long, or whose segments come
//! and go.
//!
//! ```text
//! run 0: [0 1 2 3]  MSH 1, PID 1, OBX 2   <-->   run 1: [4 9 5 6]  OBX 3, NTE 1   <-->   ...
//! ```
//!
//! The numbers are those of slots and never change; 9 was inserted behind 4. Runs are linked, and count the names in
//! them, so that a run without a name, or before its nth segment, is passed by. With runs as long as the square root of
//! the whole, inserting, taking out and finding the nth segment of a name cost that square root.
//!
//! Invariants: every slot that is not deleted is in exactly one run, the one in `run_of`; slot 0, the header, is the
//! first of run 0.

use std::iter::successors;

use crate::SegmentName;

/// Runs are not shorter than this at first: reading so few numbers takes almost no time.
const SHORTEST: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Order {
    runs: Vec<Run>,
    /// The run of each slot.
    run_of: Vec<u32>,
    last: usize,
    /// A run that grows beyond it is cut in two.
    longest: usize,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Run {
    slots: Vec<u32>,
    names: Vec<(SegmentName, usize)>,
    next: Option<usize>,
    previous: Option<usize>,
}

impl Run {
    fn count(&self, name: SegmentName) -> usize {
        self.names.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    fn add(&mut self, name: SegmentName) {
        match self.names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => self.names.push((name, 1)),
        }
    }

    fn subtract(&mut self, name: SegmentName) {
        let at = self.names.iter().position(|(known, _)| *known == name).expect("the name was counted");
        self.names[at].1 -= 1;
        if self.names[at].1 == 0 {
            self.names.swap_remove(at);
        }
    }

    fn position(&self, slot: u32) -> usize {
        self.slots.iter().position(|&known| known == slot).expect("`run_of` says that it stands here")
    }
}

impl Order {
    /// Slots in the order of their numbers, with these names.
    pub(super) fn new(names: impl ExactSizeIterator<Item = SegmentName>) -> Order {
        let len = names.len();
        let length = len.isqrt().max(SHORTEST);
        let mut order = Order { runs: Vec::new(), run_of: Vec::with_capacity(len), last: 0, longest: 2 * length, len };
        for (slot, name) in names.enumerate() {
            if slot % length == 0 {
                let at = order.runs.len();
                if let Some(previous) = order.runs.last_mut() {
                    previous.next = Some(at);
                }
                order.runs.push(Run { previous: at.checked_sub(1), ..Run::default() });
            }
            let run = order.runs.last_mut().expect("there is one for the first slot");
            run.slots.push(slot as u32);
            run.add(name);
            order.run_of.push(order.runs.len() as u32 - 1);
        }
        order.last = order.runs.len() - 1;
        order
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts the next slot number beside another, before or after it.
    pub(super) fn insert(&mut self, name: SegmentName, beside: u32, after: bool) {
        let slot = self.run_of.len() as u32;
        let at = self.run_of[beside as usize] as usize;
        let run = &mut self.runs[at];
        let position = run.position(beside) + usize::from(after);
        run.slots.insert(position, slot);
        run.add(name);
        self.run_of.push(at as u32);
        self.len += 1;
    }

    /// Puts the next slot number last.
    pub(super) fn push(&mut self, name: SegmentName) {
        let slot = self.run_of.len() as u32;
        let run = &mut self.runs[self.last];
        run.slots.push(slot);
        run.add(name);
        self.run_of.push(self.last as u32);
        self.len += 1;
    }

    /// Cuts the run of a slot in two, if it has become too long. `name` returns the name of each slot.
    pub(super) fn cut(&mut self, slot: u32, name: impl Fn(u32) -> SegmentName) {
        let at = self.run_of[slot as usize] as usize;
        if self.runs[at].slots.len() <= self.longest {
            return;
        }
        let new = self.runs.len();
        let run = &mut self.runs[at];
        let slots = run.slots.split_off(self.longest / 2);
        let mut half = Run { next: run.next.replace(new), previous: Some(at), ..Run::default() };
        for &slot in &slots {
            run.subtract(name(slot));
            half.add(name(slot));
            self.run_of[slot as usize] = new as u32;
        }
        half.slots = slots;
        match half.next {
            Some(next) => self.runs[next].previous = Some(new),
            None => self.last = new,
        }
        self.runs.push(half);
    }

    pub(super) fn remove(&mut self, slot: u32, name: SegmentName) {
        let run = &mut self.runs[self.run_of[slot as usize] as usize];
        let position = run.position(slot);
        run.slots.remove(position);
        run.subtract(name);
        self.len -= 1;
    }

    pub(super) fn rename(&mut self, slot: u32, from: SegmentName, to: SegmentName) {
        let run = &mut self.runs[self.run_of[slot as usize] as usize];
        run.subtract(from);
        run.add(to);
    }

    /// All slots in order.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.runs_from(0).flat_map(|run| run.slots.iter().copied())
    }

    /// The slots behind one.
    pub(super) fn behind(&self, slot: u32) -> impl Iterator<Item = u32> {
        let run = &self.runs[self.run_of[slot as usize] as usize];
        let rest = run.slots[run.position(slot) + 1..].iter().copied();
        let runs = run.next.into_iter().flat_map(|next| self.runs_from(next));
        rest.chain(runs.flat_map(|run| run.slots.iter().copied()))
    }

    /// Slots in order, without those of runs in which no slot has the name.
    pub(super) fn near(&self, name: SegmentName) -> impl Iterator<Item = u32> {
        self.runs_from(0).filter(move |run| run.count(name) > 0).flat_map(|run| run.slots.iter().copied())
    }

    /// Slots of the run in which the `nth` slot (from 1) of a name is, and which of that run's it is.
    pub(super) fn nth(&self, name: SegmentName, nth: usize) -> Option<(&[u32], usize)> {
        let mut before = 0;
        for run in self.runs_from(0) {
            let count = run.count(name);
            if nth <= before + count {
                return Some((&run.slots, nth - before));
            }
            before += count;
        }
        None
    }

    /// Slots of the last run in which a slot has the name.
    pub(super) fn last(&self, name: SegmentName) -> Option<&[u32]> {
        let backwards = successors(Some(&self.runs[self.last]), |run| run.previous.map(|at| &self.runs[at]));
        backwards.into_iter().find(|run| run.count(name) > 0).map(|run| &run.slots[..])
    }

    /// How many slots have the name.
    pub(super) fn count(&self, name: SegmentName) -> usize {
        self.runs.iter().map(|run| run.count(name)).sum()
    }

    fn runs_from(&self, at: usize) -> impl Iterator<Item = &Run> {
        successors(self.runs.get(at), |run| run.next.map(|next| &self.runs[next]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [SegmentName; 3] = [SegmentName::new(*b"OBX"), SegmentName::new(*b"NTE"), SegmentName::new(*b"ZPD")];

    /// Random comings and goings in very short runs, against a vector.
    #[test]
    fn an_order_says_what_a_vector_of_slots_and_names_says() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut names: Vec<SegmentName> = (0..rng.usize(1..200)).map(|_| NAMES[rng.usize(..3)]).collect();
            let mut slots: Vec<u32> = (0..names.len() as u32).collect();
            let mut order = Order::new(names.iter().copied());
            order.longest = rng.usize(2..10);
            for _ in 0..rng.usize(1..200) {
                let (at, name) = (rng.usize(..slots.len()), NAMES[rng.usize(..3)]);
                let (slot, new) = (slots[at], names.len() as u32);
                match rng.u8(..5) {
                    0 | 1 => {
                        let after = rng.bool();
                        names.push(name);
                        order.insert(name, slot, after);
                        order.cut(new, |slot| names[slot as usize]);
                        slots.insert(at + usize::from(after), new);
                    }
                    2 => {
                        names.push(name);
                        order.push(name);
                        order.cut(new, |slot| names[slot as usize]);
                        slots.push(new);
                    }
                    3 if slots.len() > 1 => {
                        order.remove(slot, names[slot as usize]);
                        slots.remove(at);
                    }
                    _ => {
                        order.rename(slot, names[slot as usize], name);
                        names[slot as usize] = name;
                    }
                }
            }
            assert_eq!(order.all().collect::<Vec<_>>(), slots, "seed {seed}");
            assert_eq!(order.len(), slots.len());
            let at = rng.usize(..slots.len());
            assert_eq!(order.behind(slots[at]).collect::<Vec<_>>(), slots[at + 1..], "seed {seed}");
            for name in NAMES {
                let is = |slot: &u32| names[*slot as usize] == name;
                let named: Vec<u32> = slots.iter().copied().filter(is).collect();
                assert_eq!(order.count(name), named.len(), "seed {seed}");
                assert_eq!(order.near(name).filter(is).collect::<Vec<_>>(), named, "seed {seed}");
                assert_eq!(order.last(name).and_then(|run| run.iter().copied().rfind(is)), named.last().copied());
                for nth in 1..=named.len() + 1 {
                    let found = order.nth(name, nth);
                    let found = found.and_then(|(run, nth)| run.iter().copied().filter(is).nth(nth - 1));
                    assert_eq!(found, named.get(nth - 1).copied(), "seed {seed}, number {nth}");
                }
            }
        }
    }
}
