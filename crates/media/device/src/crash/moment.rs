//! What is certain and what is uncertain, at one point of a recording.
//!
//! ```text
//!   an operation's bytes, divided into pieces of one unit each; a unit consists of atoms
//!
//!     sectors    unit 512 bytes, one atom
//!     memory     unit 64 bytes (a line), eight atoms (words)
//!
//!   free piece      each of its atoms may be present or not
//!   queued piece    its atoms follow all earlier atoms of the same queue: a prefix of the queue is present
//!
//!                  ordinary stores            stores past the cache    become certain by
//!     sectors      free                       -                        a flush of the device
//!     ADR          a queue for each line      free                     write-back, then a fence of the same thread; a sync
//!     eADR         a queue for each thread    free                     a fence of the same thread; a sync
//!     pages        free                       free                     a sync of their page
//! ```
//!
//! A moment only moves forward, event by event: the return of an operation precedes the call of the next. Moving it is
//! cheap, so the recording keeps the last requested one.
//!
//! When an atom becomes certain, an older uncertain atom of the same place is discarded if its operation had returned
//! before the newer one was called: it can no longer appear.

use std::collections::HashMap;

use super::content::{FileId, State};
use super::trace::{Action, Persist, Step};
use super::{Medium, PmemMode};
use crate::pmem::LINE_BYTES;
use crate::{BLOCK_BYTES, SECTOR_BYTES, WORD_BYTES};

impl Medium {
    fn unit_bytes(self) -> u64 {
        match self {
            Medium::Sectors => SECTOR_BYTES as u64,
            Medium::Pmem { .. } => LINE_BYTES as u64,
        }
    }

    pub(super) fn atom_bytes(self) -> u64 {
        match self {
            Medium::Sectors => SECTOR_BYTES as u64,
            Medium::Pmem { .. } => WORD_BYTES as u64,
        }
    }
}

/// The pieces of one queue become persistent in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Queue {
    Line(FileId, u64),
    Thread(usize),
}

/// The part of one operation in one unit.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) step: usize,
    thread: usize,
    file: FileId,
    /// Offset of the unit.
    pub(super) unit: u64,
    /// The uncertain atoms of the unit, one bit each.
    pub(super) atoms: u8,
    /// `None` for a free piece.
    pub(super) queue: Option<Queue>,
    /// Written back by its thread: the next fence makes it certain.
    is_asked: bool,
}

/// The known state of the medium while the operation passed to [`Moment::advance`] is in flight.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    medium: Medium,
    /// The point in the recording.
    point: usize,
    /// How many operations have been called: one more than the point, but not more than there are.
    called: usize,
    /// The content of every image.
    pub(super) persistent: State,
    /// Pieces that an image may contain, in the order of their calls.
    pub(super) pieces: Vec<Piece>,
    /// Operations on names in flight.
    pub(super) names: Vec<usize>,
    /// Operations whose return has an effect and has not been processed.
    open: Vec<usize>,
    pub(super) persists: Vec<Persist>,
}

impl Moment {
    pub(super) fn new(medium: Medium, base: &State) -> Moment {
        Moment {
            medium,
            point: 0,
            called: 0,
            persistent: base.clone(),
            pieces: Vec::new(),
            names: Vec::new(),
            open: Vec::new(),
            persists: Vec::new(),
        }
    }

    /// Whether it can still be moved to `point`.
    pub(super) fn is_before(&self, point: usize) -> bool {
        self.point <= point
    }

    /// Moves to the moment at which operation `point` has been called and has not returned.
    pub(super) fn advance(&mut self, steps: &[Step], point: usize) {
        assert!(self.is_before(point), "a moment moves forward");
        for next in self.called..=point {
            self.see_returns(steps, next);
            if next < steps.len() {
                self.call(steps, next);
            }
        }
        self.see_returns(steps, point);
        self.point = point;
        self.called = steps.len().min(point + 1);
    }

    fn see_returns(&mut self, steps: &[Step], point: usize) {
        let (mut returned, open) = self.open.iter().partition::<Vec<_>, _>(|step| steps[**step].is_complete_at(point));
        self.open = open;
        returned.sort_by_key(|step| (steps[*step].returned, *step));
        returned.into_iter().for_each(|step| self.see_return(steps, step));
    }

    fn call(&mut self, steps: &[Step], index: usize) {
        let step = &steps[index];
        step.prepare(&mut self.persistent);
        match &step.action {
            Action::Write { .. } | Action::Discard { .. } => self.cut(index, step, |_| None),
            Action::Store { file, past_cache, .. } => {
                let Medium::Pmem { machine, .. } = self.medium else { unreachable!("a drive has no stores") };
                let thread = step.thread;
                self.cut(index, step, |unit| match machine {
                    _ if *past_cache => None,
                    PmemMode::Adr => Some(Queue::Line(*file, unit)),
                    PmemMode::Eadr => Some(Queue::Thread(thread)),
                    PmemMode::Pages => None,
                });
            }
            Action::WriteBack { file, line } => self.write_back(index, step, (*file, *line)),
            Action::Create { .. } | Action::Remove | Action::Rename { .. } => {
                self.names.push(index);
                self.open.push(index);
            }
            Action::Flush { .. } | Action::Fence | Action::Sync { .. } => self.open.push(index),
        }
    }

    /// Divides an operation into pieces.
    fn cut(&mut self, index: usize, step: &Step, queue: impl Fn(u64) -> Option<Queue>) {
        let (unit_bytes, atom_bytes) = (self.medium.unit_bytes(), self.medium.atom_bytes());
        let (file, offset, bytes) = step.range().expect("it writes");
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let unit = at / unit_bytes * unit_bytes;
            let until = end.min(unit + unit_bytes);
            let (from, to) = ((at - unit) / atom_bytes, (until - unit) / atom_bytes);
            let atoms = ((1_u16 << to) - (1 << from)) as u8;
            let queue = queue(unit);
            self.pieces.push(Piece { step: index, thread: step.thread, file, unit, atoms, queue, is_asked: false });
            at = until;
        }
    }

    /// Rule 3 of [`crate::pmem`]'s lines: a write-back covers the earlier stores of its own thread to the line, with
    /// the next fence.
    fn write_back(&mut self, index: usize, step: &Step, line: (FileId, u64)) {
        let mut atoms = 0;
        for piece in &mut self.pieces {
            let covered = (piece.file, piece.unit) == line && piece.thread == step.thread && piece.queue.is_some();
            if covered && !piece.is_asked && !step.is_omitted {
                piece.is_asked = true;
                atoms += piece.atoms.count_ones() as usize;
            }
        }
        self.note(index, step, atoms);
    }

    fn note(&mut self, index: usize, step: &Step, atoms: usize) {
        let instruction = step.instruction().expect("it makes persistent");
        self.persists.push(Persist { instruction, step: index, atoms });
    }

    fn see_return(&mut self, steps: &[Step], index: usize) {
        let step = &steps[index];
        let machine = match self.medium {
            Medium::Sectors => None,
            Medium::Pmem { machine, .. } => Some(machine),
        };
        let before = |piece: &Piece| steps[piece.step].is_complete_at(index);
        let atoms = match &step.action {
            Action::Create { .. } | Action::Remove | Action::Rename { .. } => {
                step.apply(&mut self.persistent);
                self.names.retain(|name| *name != index);
                return;
            }
            _ if step.is_omitted => 0,
            Action::Flush { file } => self.make_certain(steps, |piece| piece.file == *file && before(piece)),
            Action::Fence => self.make_certain(steps, |piece| {
                let by_cache = match machine {
                    Some(PmemMode::Adr) => piece.is_asked,
                    Some(PmemMode::Eadr) => true,
                    Some(PmemMode::Pages) | None => return false,
                };
                piece.thread == step.thread && (piece.queue.is_none() || by_cache)
            }),
            Action::Sync { file, offset, bytes } => {
                let page = BLOCK_BYTES as u64;
                let pages = offset / page * page..(offset + bytes).next_multiple_of(page);
                self.make_certain(steps, |piece| {
                    // Stores of another thread past the cache are still in that thread's core.
                    let reachable =
                        machine == Some(PmemMode::Pages) || piece.queue.is_some() || piece.thread == step.thread;
                    piece.file == *file && pages.contains(&piece.unit) && reachable && before(piece)
                })
            }
            _ => unreachable!("only these have an effect when they return"),
        };
        self.note(index, step, atoms);
    }

    /// Makes pieces persistent, and with a queued piece all before it. Returns the number of atoms.
    fn make_certain(&mut self, steps: &[Step], selected: impl Fn(&Piece) -> bool) -> usize {
        let mut last_of: HashMap<Queue, usize> = HashMap::new();
        for (place, piece) in self.pieces.iter().enumerate() {
            if let Some(queue) = piece.queue
                && selected(piece)
            {
                last_of.insert(queue, place);
            }
        }
        let mut place = 0;
        let (certain, rest): (Vec<Piece>, Vec<Piece>) =
            std::mem::take(&mut self.pieces).into_iter().partition(|piece| {
                place += 1;
                match piece.queue {
                    Some(queue) => last_of.get(&queue).is_some_and(|last| place - 1 <= *last),
                    None => selected(piece),
                }
            });
        self.pieces = rest;
        for piece in &certain {
            piece.apply(self.medium, steps, &mut self.persistent);
        }
        self.forget(steps, &certain);
        certain.iter().map(|piece| piece.atoms.count_ones() as usize).sum()
    }

    /// Discards pieces that can no longer appear, because a newer one of the same place is persistent.
    fn forget(&mut self, steps: &[Step], certain: &[Piece]) {
        if self.pieces.is_empty() {
            return;
        }
        let mut newest: HashMap<(FileId, u64), [Option<usize>; 8]> = HashMap::new();
        for piece in certain {
            let atoms = newest.entry((piece.file, piece.unit)).or_default();
            (0..8).filter(|atom| piece.atoms >> atom & 1 == 1).for_each(|atom| atoms[atom] = Some(piece.step));
        }
        for piece in &mut self.pieces {
            let Some(newest) = newest.get(&(piece.file, piece.unit)) else { continue };
            for (atom, newest) in newest.iter().enumerate() {
                if newest.is_some_and(|newest| newest > piece.step && steps[piece.step].is_complete_at(newest)) {
                    piece.atoms &= !(1 << atom);
                }
            }
        }
        self.pieces.retain(|piece| piece.atoms != 0);
    }
}

impl Piece {
    /// The offsets of its atoms.
    pub(super) fn places(&self, medium: Medium) -> impl Iterator<Item = u64> {
        let (unit, atoms, bytes) = (self.unit, self.atoms, medium.atom_bytes());
        (0..8).filter(move |atom| atoms >> atom & 1 == 1).map(move |atom| unit + atom * bytes)
    }

    fn apply(&self, medium: Medium, steps: &[Step], state: &mut State) {
        let step = &steps[self.step];
        self.places(medium).for_each(|at| step.apply_bytes(state, at, medium.atom_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::content::Content;

    /// A recording on one device of two blocks: which block is written (`None` for a flush), and how many operations
    /// had been called when it returned.
    fn pending(steps: &[(Option<u64>, Option<usize>)], point: usize) -> Vec<usize> {
        let base = State { names: Default::default(), files: vec![Content::zeroed(2 * BLOCK_BYTES as u64)] };
        let steps: Vec<Step> = steps
            .iter()
            .map(|(block, returned)| {
                let action = match block {
                    Some(block) => {
                        let offset = block * BLOCK_BYTES as u64;
                        Action::Write { file: 0, offset, data: vec![1; BLOCK_BYTES].into() }
                    }
                    None => Action::Flush { file: 0 },
                };
                Step { returned: *returned, ..Step::new("a", action, 0) }
            })
            .collect();
        let uncertain = |moment: &Moment| {
            let mut steps: Vec<usize> = moment.pieces.iter().map(|piece| piece.step).collect();
            steps.dedup();
            steps
        };
        let mut at_once = Moment::new(Medium::Sectors, &base);
        at_once.advance(&steps, point);
        assert!(!at_once.is_before(point.wrapping_sub(1)) || point == 0, "returns that were seen stay seen");
        let mut by_and_by = Moment::new(Medium::Sectors, &base);
        (0..=point).for_each(|point| by_and_by.advance(&steps, point));
        assert_eq!(uncertain(&at_once), uncertain(&by_and_by));
        uncertain(&at_once)
    }

    #[test]
    fn a_flush_covers_the_writes_that_had_returned_when_it_was_called_and_only_once_it_has_returned() {
        // write 0 returns, write 1 is still running when flush 2 is called, and returns before it.
        let overlap = [(Some(0), Some(1)), (Some(1), Some(3)), (None, Some(3))];
        assert_eq!(pending(&overlap, 2), [0, 1], "the flush is in flight");
        assert_eq!(pending(&overlap, 3), [1], "the flush has returned");
        // The same with a flush that another operation overlaps: it counts from the first point after its return.
        let slow = [(Some(0), Some(1)), (None, Some(3)), (Some(1), Some(3)), (None, None)];
        assert_eq!(pending(&slow, 2), [0, 2]);
        assert_eq!(pending(&slow, 3), [2]);
        assert_eq!(pending(&slow, 4), [2], "the last flush never returned");
    }
}
