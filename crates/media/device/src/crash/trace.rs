//! The recording: what was asked, in the order in which it was called, and when it returned.

use std::fmt;
use std::sync::Arc;

use super::content::{Content, FileId, State};
use crate::{Operation, SECTOR_BYTES};

/// What an operation changes.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Write { file: FileId, offset: u64, data: Arc<[u8]> },
    Discard { file: FileId, offset: u64, bytes: u64 },
    Flush { file: FileId },
    Create { file: FileId, bytes: u64 },
    Remove,
    Rename { to: String },
}

/// One operation of the recording.
#[derive(Clone, Debug)]
pub struct Step {
    /// The device's name when it was opened, or the name that the operation changes.
    name: String,
    pub(super) action: Action,
    /// How many operations had been called when this one returned; none if it never did.
    pub(super) returned: Option<usize>,
}

impl Step {
    pub(super) fn new(name: &str, action: Action) -> Step {
        Step { name: name.into(), action, returned: None }
    }

    /// What was asked.
    pub fn operation(&self) -> Operation {
        match self.action {
            Action::Write { .. } => Operation::Write,
            Action::Discard { .. } => Operation::Discard,
            Action::Flush { .. } => Operation::Flush,
            Action::Create { .. } => Operation::Create,
            Action::Remove => Operation::Remove,
            Action::Rename { .. } => Operation::Rename,
        }
    }

    /// Of which device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it had returned before operation `point` was called.
    pub(super) fn is_complete_at(&self, point: usize) -> bool {
        self.returned.is_some_and(|returned| returned <= point)
    }

    /// How many sectors it writes; 0 if it is no write.
    pub(super) fn sectors(&self) -> usize {
        match &self.action {
            Action::Write { data, .. } => data.len() / SECTOR_BYTES,
            Action::Discard { bytes, .. } => *bytes as usize / SECTOR_BYTES,
            _ => 0,
        }
    }

    /// Applies it whole. A created device's bytes must be in `state` already, see [`Step::prepare`].
    pub(super) fn apply(&self, state: &mut State) {
        match &self.action {
            Action::Write { .. } | Action::Discard { .. } => self.apply_sectors(state, |_| true),
            Action::Flush { .. } => {}
            Action::Create { file, .. } => {
                state.names.insert(self.name.clone(), *file);
            }
            Action::Remove => {
                state.names.remove(&self.name);
            }
            Action::Rename { to } => {
                if let Some(file) = state.names.remove(&self.name) {
                    state.names.insert(to.clone(), file);
                }
            }
        }
    }

    /// Applies those sectors of a write that `keep` wants, counted from its first.
    pub(super) fn apply_sectors(&self, state: &mut State, mut keep: impl FnMut(usize) -> bool) {
        const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
        for index in (0..self.sectors()).filter(|index| keep(*index)) {
            let at = index * SECTOR_BYTES;
            match &self.action {
                Action::Write { file, offset, data } => {
                    state.files[*file].write(offset + at as u64, &data[at..at + SECTOR_BYTES]);
                }
                Action::Discard { file, offset, .. } => state.files[*file].write(offset + at as u64, &ZEROS),
                _ => {}
            }
        }
    }

    /// Gives a created device its zeros, under no name yet.
    pub(super) fn prepare(&self, state: &mut State) {
        if let Action::Create { file, bytes } = self.action {
            assert_eq!(file, state.files.len(), "devices are numbered in the order of their creation");
            state.files.push(Content::zeroed(bytes));
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation(), self.name)?;
        match &self.action {
            Action::Write { offset, data, .. } => write!(f, " {offset}+{}", data.len()),
            Action::Discard { offset, bytes, .. } => write!(f, " {offset}+{bytes}"),
            Action::Create { bytes, .. } => write!(f, " {bytes}"),
            Action::Rename { to } => write!(f, " {to}"),
            Action::Flush { .. } | Action::Remove => Ok(()),
        }
    }
}

/// What is certain and what is not, at one point of a recording.
pub(super) struct Moment {
    /// What every image holds.
    pub(super) persistent: State,
    /// The operations that an image may hold, wholly or in part, in the order of their call.
    pub(super) pending: Vec<usize>,
}

impl Moment {
    /// Replays a recording that started from `base` up to `point`.
    pub(super) fn at(base: &State, steps: &[Step], point: usize) -> Moment {
        let mut moment = Moment { persistent: base.clone(), pending: Vec::new() };
        let called = steps.len().min(point.saturating_add(1));
        for (index, step) in steps[..called].iter().enumerate() {
            step.prepare(&mut moment.persistent);
            let complete = step.is_complete_at(point);
            match &step.action {
                Action::Write { .. } | Action::Discard { .. } => moment.pending.push(index),
                Action::Flush { file } if complete => moment.flush(steps, index, *file),
                Action::Flush { .. } => {}
                Action::Create { .. } | Action::Remove | Action::Rename { .. } if complete => {
                    step.apply(&mut moment.persistent);
                }
                Action::Create { .. } | Action::Remove | Action::Rename { .. } => moment.pending.push(index),
            }
        }
        moment
    }

    /// A returned flush: the writes to its device that had returned when it was called become persistent.
    fn flush(&mut self, steps: &[Step], flush: usize, flushed: FileId) {
        let Moment { persistent, pending } = self;
        pending.retain(|index| {
            let step = &steps[*index];
            let covered = match step.action {
                Action::Write { file, .. } | Action::Discard { file, .. } => {
                    file == flushed && step.is_complete_at(flush)
                }
                _ => false,
            };
            if covered {
                step.apply(persistent);
            }
            !covered
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    /// A recording on one device of two blocks: which block is written (none is a flush), and how many operations had been
    /// called when it returned.
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
                Step { returned: *returned, ..Step::new("a", action) }
            })
            .collect();
        Moment::at(&base, &steps, point).pending
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
