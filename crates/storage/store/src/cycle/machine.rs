//! The order of a write cycle as a state machine: pure, no I/O, no clock.
//!
//! ```text
//!   Reserve -> Fresh ... -> Images ... -> FlushFresh -> Seal -> Flag -> Home ... -> FlushHome -> Clear -> Over
//!              chunks       chunks                              |        chunks
//!                                                               from here on this cycle's state is what a crash goes back to
//! ```
//!
//! | step | must be persistent ahead of it | why |
//! |---|---|---|
//! | Flag | fresh pages, images and table | a flagged batch is restored, and its pages refer to the fresh ones |
//! | Home | the flag | a page half written at home is mended from the batch |
//! | Clear | home | a cleared batch is not restored |
//! | the next cycle's Images | the clear mark | they overwrite the batch |
//!
//! Each of these is a flush; leaving out any is noticed by `tests`. A step that fails is not tried again, but for Reserve,
//! which fails before anything is written.

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make room for the batch.
    Reserve,
    /// Write fresh runs home, from this one on, up to that one.
    Fresh(usize, usize),
    /// Write images into the batch, from this one on, up to that one.
    Images(usize, usize),
    /// Make the fresh pages persistent.
    FlushFresh,
    /// Write the table, make the batch persistent.
    Seal,
    /// Flag the batch, persistently.
    Flag,
    /// Write changed pages home, from this one on, up to that one.
    Home(usize, usize),
    /// Make them persistent.
    FlushHome,
    /// Clear the batch, persistently.
    Clear,
    /// Release what waited for the cycle.
    Over,
}

/// How far one cycle has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    step: Step,
    fresh: usize,
    images: usize,
    is_done: bool,
}

impl Machine {
    /// A cycle of so many fresh runs and images.
    pub(crate) fn new(fresh: usize, images: usize) -> Machine {
        assert!(images > 0, "a batch holds the superblock");
        Machine { step: Step::Reserve, fresh, images, is_done: false }
    }

    /// What is to be done; none when all is.
    pub(crate) fn step(&self) -> Option<Step> {
        (!self.is_done).then_some(self.step)
    }

    /// Says that the step was done; of runs or images, the next writes at most `chunk`.
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
            Step::Seal => Step::Flag,
            Step::Flag => Step::Home(0, chunk.min(self.images)),
            Step::Home(_, to) if to < self.images => Step::Home(to, (to + chunk).min(self.images)),
            Step::Home(..) => Step::FlushHome,
            Step::FlushHome => Step::Clear,
            Step::Clear => Step::Over,
            Step::Over => {
                self.is_done = true;
                Step::Over
            }
        };
    }

    /// How much of the writing is done, of how much, in pages and runs.
    pub(crate) fn progress(&self) -> (usize, usize) {
        let total = self.fresh + 2 * self.images;
        let done = match self.step {
            Step::Reserve => 0,
            Step::Fresh(from, _) => from,
            Step::Images(from, _) => self.fresh + from,
            Step::FlushFresh | Step::Seal | Step::Flag => self.fresh + self.images,
            Step::Home(from, _) => self.fresh + self.images + from,
            Step::FlushHome | Step::Clear | Step::Over => total,
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
    fn every_cycle_does_every_step_in_the_one_order_that_survives_a_crash() {
        use Step::{Clear, Flag, FlushFresh, FlushHome, Fresh, Home, Images, Over, Reserve, Seal};
        #[rustfmt::skip]
        let expected = [
            Reserve, Fresh(0, 2), Fresh(2, 3), Images(0, 2), Images(2, 4), FlushFresh, Seal, Flag, Home(0, 2), Home(2, 4),
            FlushHome, Clear, Over,
        ];
        assert_eq!(steps(3, 4, 2), expected);
        let smallest = [Reserve, Images(0, 1), FlushFresh, Seal, Flag, Home(0, 1), FlushHome, Clear, Over];
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
            let of_home = |step: &Step| if let Step::Home(a, b) = step { Some((*a, *b)) } else { None };
            assert_eq!(ranges(&all, of_fresh), (0..fresh).collect::<Vec<_>>());
            assert_eq!(ranges(&all, of_images), (0..images).collect::<Vec<_>>());
            assert_eq!(ranges(&all, of_home), (0..images).collect::<Vec<_>>());
        }
    }
}
