//! The states in which a power failure can leave the medium, one by one.
//!
//! Systematic first, because small counter-examples are the readable ones: nothing kept, everything kept, each un-flushed
//! operation alone, all but one, each write torn at sector boundaries from both ends. Then random ones: subsets of
//! whole operations, and subsets of sectors. For one un-flushed 4 KiB write that makes 24 images.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::content::State;
use super::shelf::{CrashShelf, Recording};
use super::trace::{Moment, Step};

/// Random images of each of the two kinds at every point; a test wants more? It runs with more seeds.
const RANDOM_IMAGES: usize = 8;

/// Most places at which one write is torn; all seven of a 4 KiB write.
const CUTS_MAX: usize = 8;

/// What is kept of the un-flushed operations; they are named by their place among them.
#[derive(Clone, Debug)]
enum Keep {
    None,
    All,
    Only(usize),
    AllBut(usize),
    /// These sectors of one write, and all or none of the others.
    Torn {
        write: usize,
        sectors: Range<usize>,
        others: bool,
    },
    /// Each operation whole or not, by the toss of a coin.
    RandomOperations(u64),
    /// Each sector or not, by the toss of a coin.
    RandomSectors(u64),
}

/// The images of one point, made one by one; from [`CrashShelf::images`].
pub struct Images {
    seed: u64,
    point: usize,
    in_flight: Option<String>,
    persistent: State,
    pending: Arc<[(usize, Step)]>,
    plan: std::iter::Enumerate<std::vec::IntoIter<Keep>>,
}

impl Images {
    pub(super) fn of(seed: u64, recording: &Recording, point: usize) -> Images {
        let Moment { persistent, pending } = Moment::at(&recording.base, &recording.steps, point);
        let pending: Arc<[(usize, Step)]> =
            pending.into_iter().map(|index| (index, recording.steps[index].clone())).collect();
        let in_flight = recording.steps.get(point).map(Step::to_string);
        let plan = plan(seed, point, &pending).into_iter().enumerate();
        Images { seed, point, in_flight, persistent, pending, plan }
    }
}

impl Iterator for Images {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        let (index, keep) = self.plan.next()?;
        let mut state = self.persistent.clone();
        keep.apply(&self.pending, &mut state);
        let pending = Arc::clone(&self.pending);
        let in_flight = self.in_flight.clone();
        Some(Image { seed: self.seed, point: self.point, index, in_flight, pending, keep, state })
    }
}

/// One state in which the medium may be found. Displays what it holds and how to get it again.
#[derive(Clone)]
pub struct Image {
    seed: u64,
    point: usize,
    index: usize,
    in_flight: Option<String>,
    pending: Arc<[(usize, Step)]>,
    keep: Keep,
    state: State,
}

impl Image {
    /// The machine after its power came back: a fresh shelf that holds this image, all of it persistent.
    pub fn shelf(&self) -> CrashShelf {
        CrashShelf::start(mix(self.seed, self.point, self.index), self.state.clone())
    }

    /// The operation during which the power failed.
    pub fn point(&self) -> usize {
        self.point
    }

    /// Its number among the images of its point.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Image { seed, point, index, .. } = self;
        let during = self.in_flight.as_deref().unwrap_or("nothing");
        write!(f, "seed {seed}, image({point}, {index}): power failed during {during}; ")?;
        if self.pending.is_empty() {
            return f.write_str("nothing was un-flushed");
        }
        let named =
            |place: &usize| self.pending.get(*place).map_or(String::new(), |(at, step)| format!("#{at} {step}"));
        match &self.keep {
            Keep::None => write!(f, "kept none"),
            Keep::All => write!(f, "kept all"),
            Keep::Only(place) => write!(f, "kept only {}", named(place)),
            Keep::AllBut(place) => write!(f, "kept all but {}", named(place)),
            Keep::Torn { write, sectors, others } => {
                let others = if *others { "all" } else { "none" };
                write!(f, "kept sectors {sectors:?} of {}, {others} of the others", named(write))
            }
            Keep::RandomOperations(seed) => write!(f, "kept a random subset of operations ({seed:#x})"),
            Keep::RandomSectors(seed) => write!(f, "kept a random subset of sectors ({seed:#x})"),
        }?;
        write!(f, "; {} un-flushed:", self.pending.len())?;
        // The last ones are those that matter; a long list helps nobody.
        let shown = self.pending.len().saturating_sub(8);
        self.pending[shown..].iter().try_for_each(|(at, step)| write!(f, " [#{at} {step}]"))
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which images to make.
fn plan(seed: u64, point: usize, pending: &[(usize, Step)]) -> Vec<Keep> {
    let count = pending.len();
    let mut plan = vec![Keep::None];
    if count > 0 {
        plan.push(Keep::All);
    }
    if count > 1 {
        plan.extend((0..count).map(Keep::Only));
    }
    if count > 2 {
        plan.extend((0..count).map(Keep::AllBut));
    }
    for (place, (_, step)) in pending.iter().enumerate() {
        tear(place, step.sectors(), count > 1, &mut plan);
    }
    let mut seeds = fastrand::Rng::with_seed(mix(seed, point, 0));
    if count > 2 {
        plan.extend((0..RANDOM_IMAGES).map(|_| Keep::RandomOperations(seeds.u64(..))));
    }
    if pending.iter().any(|(_, step)| step.sectors() > 1) {
        plan.extend((0..RANDOM_IMAGES).map(|_| Keep::RandomSectors(seeds.u64(..))));
    }
    plan
}

/// Tears one write: its head alone and its tail alone at each cut, beside all and beside none of the others.
fn tear(write: usize, sectors: usize, has_others: bool, plan: &mut Vec<Keep>) {
    let cuts = sectors.saturating_sub(1).min(CUTS_MAX);
    for cut in 0..cuts {
        // Spread evenly, the first and the last boundary included.
        let at = if cuts == 1 { 1 } else { 1 + cut * (sectors - 2) / (cuts - 1) };
        for kept in [0..at, at..sectors] {
            plan.push(Keep::Torn { write, sectors: kept.clone(), others: true });
            if has_others {
                plan.push(Keep::Torn { write, sectors: kept, others: false });
            }
        }
    }
}

impl Keep {
    fn apply(&self, pending: &[(usize, Step)], state: &mut State) {
        let seed = match self {
            Keep::RandomOperations(seed) | Keep::RandomSectors(seed) => *seed,
            _ => 0,
        };
        let mut random = fastrand::Rng::with_seed(seed);
        // Anything between nearly nothing and nearly everything.
        let chance = random.f64();
        for (place, (_, step)) in pending.iter().enumerate() {
            let whole = match self {
                Keep::None => false,
                Keep::All => true,
                Keep::Only(only) => place == *only,
                Keep::AllBut(but) => place != *but,
                Keep::Torn { write, sectors, .. } if place == *write => {
                    step.apply_sectors(state, |index| sectors.contains(&index));
                    false
                }
                Keep::Torn { others, .. } => *others,
                Keep::RandomSectors(_) if step.sectors() > 0 => {
                    step.apply_sectors(state, |_| random.f64() < chance);
                    false
                }
                Keep::RandomOperations(_) | Keep::RandomSectors(_) => random.f64() < chance,
            };
            if whole {
                step.apply(state);
            }
        }
    }
}

/// A seed of its own for every point and image (SplitMix64's finaliser, Steele et al., OOPSLA 2014).
fn mix(seed: u64, point: usize, index: usize) -> u64 {
    let mut z = seed ^ (point as u64).rotate_left(32) ^ index as u64;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
