//! The states in which a power failure can leave the medium, one by one.

use std::fmt;
use std::sync::Arc;

use super::content::State;
use super::moment::Moment;
use super::plan::{Chosen, Keep, Pending, plan};
use super::trace::Step;
use super::{Medium, mix};

/// The images of one point, made one by one; from [`CrashShelf::images`](super::CrashShelf::images) and [`CrashShelf::every_image`](super::CrashShelf::every_image).
pub struct Images {
    origin: Arc<Origin>,
    persistent: State,
    plan: std::iter::Enumerate<std::vec::IntoIter<(Keep, Chosen)>>,
}

/// The common properties of the images of a point.
struct Origin {
    seed: u64,
    medium: Medium,
    point: usize,
    in_flight: Option<String>,
    pending: Pending,
}

impl Images {
    pub(super) fn of(seed: u64, medium: Medium, moment: &Moment, steps: &[Step], point: usize) -> Images {
        let pending = Pending::of(moment, steps, medium);
        let plan = plan(mix(seed, point, 0), medium, &pending);
        Images::new(Origin { seed, medium, point, in_flight: None, pending }, moment, steps, plan)
    }

    /// Every possible image; `None` if there are too many.
    pub(super) fn every(
        seed: u64,
        medium: Medium,
        moment: &Moment,
        steps: &[Step],
        point: usize,
        most: u64,
    ) -> Option<Images> {
        let pending = Pending::of(moment, steps, medium);
        let states = pending.states().filter(|states| *states <= most)?;
        let plan = (0..states).map(|nth| (Keep::Nth(nth), pending.nth(nth))).collect();
        Some(Images::new(Origin { seed, medium, point, in_flight: None, pending }, moment, steps, plan))
    }

    fn new(origin: Origin, moment: &Moment, steps: &[Step], plan: Vec<(Keep, Chosen)>) -> Images {
        let in_flight = steps.get(origin.point).map(Step::to_string);
        let origin = Arc::new(Origin { in_flight, ..origin });
        Images { origin, persistent: moment.persistent.clone(), plan: plan.into_iter().enumerate() }
    }
}

impl Iterator for Images {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        let (index, (keep, chosen)) = self.plan.next()?;
        let mut state = self.persistent.clone();
        self.origin.pending.apply(&chosen, self.origin.medium, &mut state);
        Some(Image { origin: Arc::clone(&self.origin), index, keep, kept: chosen.count(), state })
    }
}

/// One possible state of the medium. Its `Display` describes the content and how to reproduce it.
#[derive(Clone)]
pub struct Image {
    origin: Arc<Origin>,
    index: usize,
    keep: Keep,
    kept: usize,
    state: State,
}

impl Image {
    /// The start state of a machine with this image: seed, medium and content.
    pub(super) fn after(&self) -> (u64, Medium, &State) {
        let Origin { seed, medium, point, .. } = *self.origin;
        (mix(seed, point, self.index), medium, &self.state)
    }

    /// The operation during which the power failed.
    pub fn point(&self) -> usize {
        self.origin.point
    }

    /// Its number among the images of its point.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { seed, medium, point, in_flight, pending } = &*self.origin;
        let during = in_flight.as_deref().unwrap_or("nothing");
        write!(f, "{medium}, seed {seed}, image({point}, {}): power failed during {during}; ", self.index)?;
        if pending.is_empty() {
            return f.write_str("nothing was un-flushed");
        }
        pending.describe(&self.keep, f)?;
        write!(f, " ({} of {} {})", self.kept, pending.atoms(), medium.atoms())?;
        write!(f, "; {} un-flushed:", pending.operations().len())?;
        // The last ones matter most; a long list is not helpful.
        let shown = pending.operations().len().saturating_sub(8);
        pending.operations()[shown..].iter().try_for_each(|operation| write!(f, " [{operation}]"))
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
