//! The order of a checkpoint as a state machine: pure, no I/O, no clock.
//!
//! ```text
//!   Reserve -> Fresh ... -> Images ... -> FlushFresh -> Seal -> Commit -> InPlace ... -> FlushInPlace -> Invalidate -> Over
//!              chunks       chunks                              |        chunks
//!                                                                from here on a crash restores this checkpoint's state
//! ```
//!
//! | step | must be persistent before it | reason |
//! |---|---|---|
//! | Commit | fresh pages, images and table | a committed batch is restored, and its pages refer to the fresh ones |
//! | InPlace | the commit mark | a page that a crash leaves half written on the data devices is repaired from the batch |
//! | Invalidate | the pages in place | an invalid batch is not restored |
//! | the next checkpoint's Images | the invalid mark | they overwrite the batch |
//!
//! Each of these requires a flush; `tests` detects if any is left out. A step that fails is not repeated, except
//! Reserve, which fails before anything is written.

/// The next step of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make space for the batch.
    Reserve,
    /// Write fresh runs in place, from the first index to the second.
    Fresh(usize, usize),
    /// Write images into the batch, from the first index to the second.
    Images(usize, usize),
    /// Make the fresh pages persistent.
    FlushFresh,
    /// Write the table, make the batch persistent.
    Seal,
    /// Commit the batch, persistently.
    Commit,
    /// Write changed pages in place, from the first index to the second.
    InPlace(usize, usize),
    /// Make them persistent.
    FlushInPlace,
    /// Invalidate the batch, persistently.
    Invalidate,
    /// Release what waited for the end of the checkpoint.
    Over,
}

/// The progress of one checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    step: Step,
    fresh: usize,
    images: usize,
    is_done: bool,
}

impl Machine {
    /// A checkpoint of this many fresh runs and images.
    pub(crate) fn new(fresh: usize, images: usize) -> Machine {
        assert!(images > 0, "a batch holds the superblock");
        Machine { step: Step::Reserve, fresh, images, is_done: false }
    }

    /// The next step; `None` when all are done.
    pub(crate) fn step(&self) -> Option<Step> {
        (!self.is_done).then_some(self.step)
    }

    /// Marks the step as done; a next step that writes runs or images writes at most `chunk`.
    pub(crate) fn done(&mut self, chunk: usize) {
        assert!(chunk > 0, "a step writes something");
        self.step = match self.step {
            Step::Reserve if self.fresh > 0 => Step::Fresh(0, chunk.min(self.fresh)),
            Step::Reserve => Step::Images(0, chunk.min(self.images)),
            Step::Fresh(_, to) if to < self.fresh => Step::Fresh(to, (to + chunk).min(self.fresh)),
            Step::Fresh(..) => Step::Images(0, chunk.min(self.images)),
            Step::Images(_, to) if to < self.images => Step::Images(to, (to + chunk).min(self.images)),
            Step::Images(..) => Step::FlushFresh,
            Step::FlushFresh => Step::Seal,
            Step::Seal => Step::Commit,
            Step::Commit => Step::InPlace(0, chunk.min(self.images)),
            Step::InPlace(_, to) if to < self.images => Step::InPlace(to, (to + chunk).min(self.images)),
            Step::InPlace(..) => Step::FlushInPlace,
            Step::FlushInPlace => Step::Invalidate,
            Step::Invalidate => Step::Over,
            Step::Over => {
                self.is_done = true;
                Step::Over
            }
        };
    }

    /// How much is written, and of how much, in pages and runs.
    pub(crate) fn progress(&self) -> (usize, usize) {
        let total = self.fresh + 2 * self.images;
        let done = match self.step {
            Step::Reserve => 0,
            Step::Fresh(from, _) => from,
            Step::Images(from, _) => self.fresh + from,
            Step::FlushFresh | Step::Seal | Step::Commit => self.fresh + self.images,
            Step::InPlace(from, _) => self.fresh + self.images + from,
            Step::FlushInPlace | Step::Invalidate | Step::Over => total,
        };
        (done, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(fresh: usize, images: usize, chunk: usize) -> Vec<Step> {
        let mut machine = Machine::new(fresh, images);
        let mut steps = Vec::new();
        let mut before = 0;
        while let Some(step) = machine.step() {
            let (done, total) = machine.progress();
            assert!(before <= done && done <= total, "progress only grows");
            before = done;
            steps.push(step);
            machine.done(chunk);
        }
        assert_eq!(machine.progress().0, fresh + 2 * images);
        steps
    }

    #[test]
    fn every_checkpoint_does_every_step_in_the_one_order_that_survives_a_crash() {
        use Step::{Commit, FlushFresh, FlushInPlace, Fresh, Images, InPlace, Invalidate, Over, Reserve, Seal};
        #[rustfmt::skip]
        let expected = [
            Reserve, Fresh(0, 2), Fresh(2, 3), Images(0, 2), Images(2, 4), FlushFresh, Seal, Commit, InPlace(0, 2), InPlace(2, 4),
            FlushInPlace, Invalidate, Over,
        ];
        assert_eq!(steps(3, 4, 2), expected);
        let smallest = [Reserve, Images(0, 1), FlushFresh, Seal, Commit, InPlace(0, 1), FlushInPlace, Invalidate, Over];
        assert_eq!(steps(0, 1, 8), smallest);
    }

    #[test]
    fn every_run_and_every_image_is_written_exactly_once_to_each_place() {
        let ranges = |all: &[Step], of: fn(&Step) -> Option<(usize, usize)>| -> Vec<usize> {
            all.iter().filter_map(of).flat_map(|(from, to)| from..to).collect()
        };
        for (fresh, images, chunk) in (0..5).flat_map(|f| (1..7).flat_map(move |i| (1..9).map(move |c| (f, i, c)))) {
            let all = steps(fresh, images, chunk);
            let of_fresh = |step: &Step| if let Step::Fresh(a, b) = step { Some((*a, *b)) } else { None };
            let of_images = |step: &Step| if let Step::Images(a, b) = step { Some((*a, *b)) } else { None };
            let of_in_place = |step: &Step| if let Step::InPlace(a, b) = step { Some((*a, *b)) } else { None };
            assert_eq!(ranges(&all, of_fresh), (0..fresh).collect::<Vec<_>>());
            assert_eq!(ranges(&all, of_images), (0..images).collect::<Vec<_>>());
            assert_eq!(ranges(&all, of_in_place), (0..images).collect::<Vec<_>>());
        }
    }
}
