//! Selects the images of a point.
//!
//! Systematic images come first, because small counter-examples are readable: nothing kept, everything kept, each
//! un-flushed operation alone, all but one, each torn from both ends, each queue cut, one atom missing, one atom extra.
//! Then random ones: subsets of operations, of units, of atoms. If there are few states, all of them.
//!
//! Every choice is a request; the medium's rules determine its result: of a queue, as much as was requested without a
//! gap. Choices with the same result are made once. For one un-flushed 4 KiB write on sectors this gives 24 images.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use super::content::State;
use super::moment::{Moment, Queue};
use super::trace::Step;
use super::{Medium, mix};

/// Random images of each kind at every point; a test that needs more runs with more seeds.
const RANDOM_IMAGES: usize = 8;

/// Random images of each kind if there are three kinds.
const RANDOM_IMAGES_OF_THREE: usize = 4;

/// The largest number of places at which one write is torn, or a queue is cut: all of a 4 KiB write on sectors. Odd, so
/// that the middle is one.
const CUTS_MAX: usize = 7;

/// The largest number of queues that are cut at one point.
const QUEUES_MAX: usize = 8;

/// If there are at most this many states, all of them are made.
const FEW_STATES: u64 = 32;

/// The un-flushed operations to keep; identified by their index.
#[derive(Clone, Debug)]
pub(super) enum Keep {
    None,
    All,
    Only(usize),
    AllBut(usize),
    /// These atoms of one operation, and all or none of the others.
    Torn {
        operation: usize,
        atoms: Range<usize>,
        others: bool,
    },
    /// One operation without one atom, and all or none of the others.
    Without {
        operation: usize,
        atom: usize,
        others: bool,
    },
    /// So many atoms of one queue, and all or none of the others.
    Cut {
        queue: usize,
        atoms: usize,
        others: bool,
    },
    /// Each operation whole or not, at random.
    RandomOperations(u64),
    /// Each unit of an operation whole or not.
    RandomUnits(u64),
    /// Each atom or not.
    RandomAtoms(u64),
    /// One of all states.
    Nth(u64),
}

/// The atoms that are kept.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Chosen(Vec<bool>);

impl Chosen {
    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|kept| **kept).count()
    }
}

/// One un-flushed operation.
pub(super) struct PendingOperation {
    index: usize,
    step: Step,
    atoms: Range<usize>,
}

impl fmt::Display for PendingOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}", self.index, self.step)
    }
}

/// The smallest unit that is kept or not: some bytes of an operation, or a whole operation on names.
struct Atom {
    /// Its offset, and the unit of the operation in which it lies.
    place: Option<(u64, usize)>,
    is_queued: bool,
}

/// The uncertain atoms at a point.
pub(super) struct Pending {
    operations: Vec<PendingOperation>,
    atoms: Vec<Atom>,
    /// The atoms of each queue, in order.
    queues: Vec<Vec<usize>>,
}

impl Pending {
    pub(super) fn of(moment: &Moment, steps: &[Step], medium: Medium) -> Pending {
        let mut pending = Pending { operations: Vec::new(), atoms: Vec::new(), queues: Vec::new() };
        let mut queues: BTreeMap<Queue, Vec<usize>> = BTreeMap::new();
        let mut pieces = moment.pieces.iter().peekable();
        let mut indices: Vec<usize> = moment.pieces.iter().map(|piece| piece.step).collect();
        indices.extend(&moment.names);
        indices.sort_unstable();
        indices.dedup();
        for index in indices {
            let first = pending.atoms.len();
            let mut unit = 0;
            while let Some(piece) = pieces.next_if(|piece| piece.step == index) {
                for at in piece.places(medium) {
                    if let Some(queue) = piece.queue {
                        queues.entry(queue).or_default().push(pending.atoms.len());
                    }
                    pending.atoms.push(Atom { place: Some((at, unit)), is_queued: piece.queue.is_some() });
                }
                unit += 1;
            }
            if first == pending.atoms.len() {
                pending.atoms.push(Atom { place: None, is_queued: false });
            }
            let step = steps[index].clone();
            pending.operations.push(PendingOperation { index, step, atoms: first..pending.atoms.len() });
        }
        pending.queues = queues.into_values().collect();
        pending
    }

    pub(super) fn is_empty(&self) -> bool {
        self.atoms.is_empty()
    }

    pub(super) fn atoms(&self) -> usize {
        self.atoms.len()
    }

    pub(super) fn operations(&self) -> &[PendingOperation] {
        &self.operations
    }

    fn free(&self) -> impl Iterator<Item = usize> {
        (0..self.atoms.len()).filter(|atom| !self.atoms[*atom].is_queued)
    }

    /// The number of states, if it fits 64 bits.
    pub(super) fn states(&self) -> Option<u64> {
        let queued =
            self.queues.iter().try_fold(1_u64, |product, queue| product.checked_mul(queue.len() as u64 + 1))?;
        self.free().try_fold(queued, |product, _| product.checked_mul(2))
    }

    /// One of all states: a number whose digits are the lengths of the queues' prefixes and the free atoms.
    pub(super) fn nth(&self, mut nth: u64) -> Chosen {
        let mut chosen = vec![false; self.atoms.len()];
        for queue in &self.queues {
            let states = queue.len() as u64 + 1;
            queue[..(nth % states) as usize].iter().for_each(|atom| chosen[*atom] = true);
            nth /= states;
        }
        for atom in self.free() {
            chosen[atom] = nth % 2 == 1;
            nth /= 2;
        }
        Chosen(chosen)
    }

    pub(super) fn apply(&self, chosen: &Chosen, medium: Medium, state: &mut State) {
        for operation in &self.operations {
            for atom in operation.atoms.clone().filter(|atom| chosen.0[*atom]) {
                match self.atoms[atom].place {
                    Some((at, _)) => operation.step.apply_bytes(state, at, medium.atom_bytes()),
                    None => operation.step.apply(state),
                }
            }
        }
    }

    /// The result of a request.
    fn choose(&self, keep: &Keep) -> Chosen {
        if let Keep::Nth(nth) = keep {
            return self.nth(*nth);
        }
        let mut chosen = self.wish(keep);
        for (number, queue) in self.queues.iter().enumerate() {
            let wished = match keep {
                Keep::Cut { queue, atoms, .. } if *queue == number => *atoms,
                Keep::RandomAtoms(seed) | Keep::RandomUnits(seed) => {
                    fastrand::Rng::with_seed(mix(*seed, number, 1)).usize(..=queue.len())
                }
                _ => queue.iter().take_while(|atom| chosen[**atom]).count(),
            };
            queue.iter().enumerate().for_each(|(place, atom)| chosen[*atom] = place < wished);
        }
        Chosen(chosen)
    }

    fn wish(&self, keep: &Keep) -> Vec<bool> {
        let seed = match keep {
            Keep::RandomOperations(seed) | Keep::RandomUnits(seed) | Keep::RandomAtoms(seed) => *seed,
            _ => 0,
        };
        let mut random = fastrand::Rng::with_seed(seed);
        // Anything between almost nothing and almost everything.
        let chance = random.f64();
        let mut wished = Vec::with_capacity(self.atoms.len());
        for (place, operation) in self.operations.iter().enumerate() {
            let mut coin = random.f64() < chance;
            let mut last_unit = None;
            for (number, atom) in operation.atoms.clone().enumerate() {
                wished.push(match keep {
                    Keep::None => false,
                    Keep::All => true,
                    Keep::Only(only) => place == *only,
                    Keep::AllBut(but) => place != *but,
                    Keep::Torn { operation, atoms, .. } if place == *operation => atoms.contains(&number),
                    Keep::Without { operation, atom, .. } if place == *operation => number != *atom,
                    Keep::Torn { others, .. } | Keep::Without { others, .. } | Keep::Cut { others, .. } => *others,
                    Keep::RandomOperations(_) => coin,
                    Keep::RandomUnits(_) => {
                        let unit = self.atoms[atom].place.map(|(_, unit)| unit);
                        if last_unit.replace(unit) != Some(unit) {
                            coin = random.f64() < chance;
                        }
                        coin
                    }
                    Keep::RandomAtoms(_) => random.f64() < chance,
                    Keep::Nth(_) => unreachable!("has no wish"),
                });
            }
        }
        wished
    }

    /// Describes it as text.
    pub(super) fn describe(&self, keep: &Keep, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = |others: &bool| if *others { "all" } else { "none" };
        let named = |place: &usize| &self.operations[*place];
        match keep {
            Keep::None => f.write_str("kept none"),
            Keep::All => f.write_str("kept all"),
            Keep::Only(place) => write!(f, "kept only {}", named(place)),
            Keep::AllBut(place) => write!(f, "kept all but {}", named(place)),
            Keep::Torn { operation, atoms, others: rest } => {
                write!(f, "kept atoms {atoms:?} of {}, {} of the others", named(operation), others(rest))
            }
            Keep::Without { operation, atom, others: rest } => {
                write!(f, "kept {} without atom {atom}, {} of the others", named(operation), others(rest))
            }
            Keep::Cut { queue, atoms, others: rest } => {
                write!(f, "kept the first {atoms} atoms of queue {queue}, {} of the others", others(rest))
            }
            Keep::RandomOperations(seed) => write!(f, "kept a random subset of operations ({seed:#x})"),
            Keep::RandomUnits(seed) => write!(f, "kept a random subset of units ({seed:#x})"),
            Keep::RandomAtoms(seed) => write!(f, "kept a random subset of atoms ({seed:#x})"),
            Keep::Nth(nth) => write!(f, "kept state {nth}"),
        }
    }
}

/// The images to make, in order.
pub(super) fn plan(seed: u64, medium: Medium, pending: &Pending) -> Vec<(Keep, Chosen)> {
    let mut seeds = fastrand::Rng::with_seed(seed);
    let mut wishes = vec![Keep::None, Keep::All];
    match pending.states() {
        Some(states) if states <= FEW_STATES => wishes.extend((0..states).map(Keep::Nth)),
        _ => many(medium, pending, &mut seeds, &mut wishes),
    }
    let mut seen = HashSet::new();
    let chosen = wishes.into_iter().map(|keep| (pending.choose(&keep), keep));
    chosen.filter(|(chosen, _)| seen.insert(chosen.clone())).map(|(chosen, keep)| (keep, chosen)).collect()
}

fn many(medium: Medium, pending: &Pending, seeds: &mut fastrand::Rng, wishes: &mut Vec<Keep>) {
    let count = pending.operations.len();
    let has_others = count > 1;
    wishes.extend((0..count).map(Keep::Only));
    wishes.extend((0..count).map(Keep::AllBut));
    for (place, operation) in pending.operations.iter().enumerate() {
        tear(place, operation.atoms.len(), has_others, wishes);
        if matches!(medium, Medium::Pmem { .. }) {
            single(place, operation.atoms.len(), has_others, seeds, wishes);
        }
    }
    let first = if pending.queues.len() > QUEUES_MAX { seeds.usize(..pending.queues.len()) } else { 0 };
    for queue in (0..pending.queues.len().min(QUEUES_MAX)).map(|queue| (first + queue) % pending.queues.len()) {
        for atoms in cuts(pending.queues[queue].len()) {
            wishes.push(Keep::Cut { queue, atoms, others: true });
            wishes.push(Keep::Cut { queue, atoms, others: false });
        }
    }
    if medium == Medium::Sectors {
        if count > 2 {
            wishes.extend((0..RANDOM_IMAGES).map(|_| Keep::RandomOperations(seeds.u64(..))));
        }
        wishes.extend((0..RANDOM_IMAGES).map(|_| Keep::RandomAtoms(seeds.u64(..))));
        return;
    }
    for _ in 0..RANDOM_IMAGES_OF_THREE {
        wishes.extend(has_others.then(|| Keep::RandomOperations(seeds.u64(..))));
        wishes.push(Keep::RandomUnits(seeds.u64(..)));
        wishes.push(Keep::RandomAtoms(seeds.u64(..)));
    }
}

/// Evenly spaced, including the first and the last boundary.
fn cuts(atoms: usize) -> impl Iterator<Item = usize> {
    let cuts = atoms.saturating_sub(1).min(CUTS_MAX);
    (0..cuts).map(move |cut| if cuts == 1 { 1 } else { 1 + cut * (atoms - 2) / (cuts - 1) })
}

/// Tears one operation: its head alone and its tail alone at each cut, with all and with none of the others.
fn tear(operation: usize, atoms: usize, has_others: bool, wishes: &mut Vec<Keep>) {
    for at in cuts(atoms) {
        for kept in [0..at, at..atoms] {
            wishes.push(Keep::Torn { operation, atoms: kept.clone(), others: true });
            if has_others {
                wishes.push(Keep::Torn { operation, atoms: kept, others: false });
            }
        }
    }
}

/// One word missing, one word alone: the first, the last, and a random one.
fn single(operation: usize, atoms: usize, has_others: bool, seeds: &mut fastrand::Rng, wishes: &mut Vec<Keep>) {
    for atom in [0, atoms - 1, seeds.usize(..atoms)] {
        wishes.push(Keep::Without { operation, atom, others: true });
    }
    let atom = seeds.usize(..atoms);
    wishes.push(Keep::Torn { operation, atoms: atom..atom + 1, others: false });
    if has_others {
        wishes.push(Keep::Torn { operation, atoms: atom..atom + 1, others: true });
    }
}
