//! Compares the images with a machine model: every possible state after a power failure of a small machine with caches,
//! buffers and a medium, found by trying all of its possible steps, must be among the images; and every image must be
//! such a state.
//!
//! ```text
//!   ADR     thread -- store --> cache line -- any time, or written back by a fence --> medium
//!                  -- past the cache --> buffer -- any time, at the latest at the thread's fence --> medium
//!   eADR    thread -- store --> store buffer, in order -- any time, at the latest at the fence --> cache = medium
//!   pages   thread -- store --> page cache -- word by word, any time, at the latest at a sync --> medium
//! ```

use std::collections::BTreeSet;
use std::sync::mpsc;

use super::memory::Recorded;
use super::{CrashShelf, PmemMode};
use crate::pmem::{LINE_BYTES, Lines};
use crate::{BLOCK_BYTES, Shelf, WORD_BYTES};

/// Three lines of which the first two words are used.
const PLACES: [usize; 6] = [0, 1, 8, 9, 16, 17];
const WORDS_PER_LINE: usize = LINE_BYTES / WORD_BYTES;

/// The values of the places: zero, or the number of the operation that stored there.
type Words = [u8; PLACES.len()];

#[derive(Clone, Copy, Debug)]
enum Op {
    /// To one place, or also to the next one if they are adjacent.
    Store {
        place: usize,
        two: bool,
        past_cache: bool,
    },
    WriteBack {
        place: usize,
    },
    Fence,
    Sync,
}

impl Op {
    fn places(self) -> Vec<usize> {
        match self {
            Op::Store { place, two, .. } if two && place.is_multiple_of(2) => vec![place, place + 1],
            Op::Store { place, .. } => vec![place],
            _ => Vec::new(),
        }
    }
}

/// One state of the machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    medium: Words,
    /// The content that reads see; differs from the medium if a line or page is dirty.
    cache: Words,
    /// For each thread: places and values of stores past the cache in progress; and (eADR) ordinary stores on the way
    /// to the cache.
    past: Vec<BTreeSet<(usize, u8)>>,
    queue: Vec<Vec<(usize, u8)>>,
    /// For each thread: lines, with their content at that time, for which its next fence waits.
    asked: Vec<Vec<(usize, Words)>>,
}

fn line(place: usize) -> usize {
    PLACES[place] / WORDS_PER_LINE
}

impl State {
    fn new() -> State {
        let zero = [0; PLACES.len()];
        let none = || vec![Vec::new(); 2];
        State {
            medium: zero,
            cache: zero,
            past: vec![BTreeSet::new(); 2],
            queue: vec![Vec::new(); 2],
            asked: vec![Vec::new(), Vec::new()],
        }
        .with_queue(none())
    }

    fn with_queue(mut self, queue: Vec<Vec<(usize, u8)>>) -> State {
        self.queue = queue;
        self
    }

    fn write_line(&mut self, of: usize, content: &Words) {
        (0..PLACES.len()).filter(|place| line(*place) == of).for_each(|place| self.medium[place] = content[place]);
    }

    /// The steps that the machine may take on its own.
    fn moves(&self, mode: PmemMode) -> Vec<State> {
        let mut out = Vec::new();
        let mut to = |change: &dyn Fn(&mut State)| {
            let mut next = self.clone();
            change(&mut next);
            out.push(next);
        };
        for thread in 0..2 {
            for (place, value) in &self.past[thread] {
                to(&|next| {
                    next.past[thread].remove(&(*place, *value));
                    next.medium[*place] = *value;
                    next.cache[*place] = *value;
                });
            }
            if let Some((place, value)) = self.queue[thread].first() {
                to(&|next| {
                    next.queue[thread].remove(0);
                    next.cache[*place] = *value;
                    next.medium[*place] = *value;
                });
            }
        }
        match mode {
            PmemMode::Adr => (0..3).for_each(|line| to(&|next| next.write_line(line, &self.cache))),
            PmemMode::Eadr => {}
            PmemMode::Pages => (0..PLACES.len()).for_each(|place| to(&|next| next.medium[place] = self.cache[place])),
        }
        out
    }
}

/// All states that the machine may reach on its own.
fn closure(states: BTreeSet<State>, mode: PmemMode) -> BTreeSet<State> {
    let mut open: Vec<State> = states.iter().cloned().collect();
    let mut all = states;
    while let Some(state) = open.pop() {
        for next in state.moves(mode) {
            if all.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    all
}

/// The states while and after an operation: `(in flight or done, done)`.
fn step(
    states: &BTreeSet<State>,
    mode: PmemMode,
    thread: usize,
    number: u8,
    op: Op,
) -> (BTreeSet<State>, BTreeSet<State>) {
    let map = |states: &BTreeSet<State>, change: &dyn Fn(&mut State)| {
        let changed = states.iter().map(|state| {
            let mut next = state.clone();
            change(&mut next);
            next
        });
        closure(changed.collect(), mode)
    };
    let mut during = states.clone();
    let mut now = states.clone();
    match op {
        Op::Store { past_cache, .. } => {
            for place in op.places() {
                now = map(&now, &|state| match (mode, past_cache) {
                    (PmemMode::Adr | PmemMode::Eadr, true) => {
                        // A newer store of the same thread replaces an older one in the buffer.
                        state.past[thread].retain(|(older, _)| *older != place);
                        state.past[thread].insert((place, number));
                    }
                    (PmemMode::Eadr, false) => state.queue[thread].push((place, number)),
                    (PmemMode::Adr, false) | (PmemMode::Pages, _) => state.cache[place] = number,
                });
                during.extend(now.iter().cloned());
            }
        }
        Op::WriteBack { place } if mode == PmemMode::Adr => {
            now = map(&now, &|state| state.asked[thread].push((line(place), state.cache)));
        }
        Op::WriteBack { .. } => {}
        // Of all reachable states, only those remain for which the instruction's condition is true.
        Op::Fence => {
            let done = |state: &&State| state.past[thread].is_empty() && state.queue[thread].is_empty();
            now = now.iter().filter(done).cloned().collect();
            now = map(&now, &|state| {
                for (line, then) in std::mem::take(&mut state.asked[thread]) {
                    let current = state.cache;
                    // Written with its content at that time, unless it has been written since.
                    let is_newer = (0..PLACES.len())
                        .filter(|place| self::line(*place) == line)
                        .any(|place| state.medium[place] > then[place]);
                    if !is_newer {
                        state.write_line(line, &then);
                    }
                    state.cache = current;
                }
            });
        }
        // A thread that signalled a store to this one has thereby emptied its store buffer, but not its stores past the
        // cache.
        Op::Sync => {
            let done = |state: &&State| state.past[thread].is_empty() && state.queue.iter().all(Vec::is_empty);
            now = now.iter().filter(done).cloned().collect();
            now = map(&now, &|state| state.medium = state.cache);
        }
    }
    (during, now)
}

/// Threads that execute one operation at a time, on request.
struct Crew {
    orders: Vec<mpsc::Sender<(Op, u8)>>,
    done: mpsc::Receiver<()>,
}

fn perform(lines: &Recorded, op: Op, number: u8) {
    let at = |place: usize| (PLACES[place] * WORD_BYTES) as u64;
    match op {
        Op::Store { place, past_cache, .. } => {
            let data = vec![number; op.places().len() * WORD_BYTES];
            let stored =
                if past_cache { lines.store_past_cache(at(place), &data) } else { lines.store(at(place), &data) };
            stored.expect("nothing is lost here");
        }
        Op::WriteBack { place } => lines.write_back(at(place), 1).expect("nothing is lost here"),
        Op::Fence => lines.fence(),
        Op::Sync => lines.sync(0, BLOCK_BYTES as u64).expect("syncs"),
    }
}

fn words(shelf: &CrashShelf) -> Words {
    let mut bytes = [0; BLOCK_BYTES];
    shelf.open_read_only("a").expect("opens").read(0, &mut bytes).expect("reads");
    PLACES.map(|word| bytes[word * WORD_BYTES])
}

/// Checks every point of a program.
fn compare(mode: PmemMode, program: &[(usize, Op)]) {
    let shelf = CrashShelf::pmem(1, mode);
    shelf.create("a", BLOCK_BYTES as u64).expect("creates");
    let lines = shelf.lines("a");
    let first = shelf.operations();
    std::thread::scope(|scope| {
        let (finish, done) = mpsc::channel();
        let mut crew = Crew { orders: Vec::new(), done };
        for _ in 0..2 {
            let (order, orders) = mpsc::channel();
            let (lines, finish) = (&lines, finish.clone());
            scope.spawn(move || {
                for (op, number) in orders {
                    perform(lines, op, number);
                    finish.send(()).expect("somebody waits");
                }
            });
            crew.orders.push(order);
        }
        for (number, (thread, op)) in program.iter().enumerate() {
            crew.orders[*thread].send((*op, number as u8 + 1)).expect("the thread lives");
            crew.done.recv().expect("it answers");
        }
    });
    let mut states = closure(BTreeSet::from([State::new()]), mode);
    for (number, (thread, op)) in program.iter().enumerate() {
        let (during, after) = step(&states, mode, *thread, number as u8 + 1, *op);
        let possible: BTreeSet<Words> = during.iter().map(|state| state.medium).collect();
        let images = shelf.every_image(first + number, 1 << 16).expect("few states");
        let found: BTreeSet<Words> = images.map(|image| words(&image.shelf())).collect();
        assert_eq!(found, possible, "{mode:?}, during {number} of {program:?}");
        states = after;
    }
    let possible: BTreeSet<Words> = states.iter().map(|state| state.medium).collect();
    let images = shelf.every_image(shelf.operations(), 1 << 16).expect("few states");
    let found: BTreeSet<Words> = images.map(|image| words(&image.shelf())).collect();
    assert_eq!(found, possible, "{mode:?}, after {program:?}");
}

/// A random program. Threads have separate lines, and a line is stored to either through the cache or past it: mixing
/// the two has no guaranteed result, and machines differ.
fn program(random: &mut fastrand::Rng) -> Vec<(usize, Op)> {
    let owner = [random.usize(..2), random.usize(..2), random.usize(..2)];
    let past = [random.bool(), random.bool(), random.bool()];
    let ops = (0..random.usize(1..9)).map(|_| {
        let place = random.usize(..PLACES.len());
        let line = line(place);
        match random.u8(..8) {
            0..=3 => (owner[line], Op::Store { place, two: random.bool(), past_cache: past[line] }),
            4..=5 => (owner[line], Op::WriteBack { place }),
            6 => (random.usize(..2), Op::Fence),
            _ => (random.usize(..2), if random.u8(..3) == 0 { Op::Sync } else { Op::Fence }),
        }
    });
    ops.collect()
}

#[test]
fn the_images_of_a_point_are_exactly_the_states_that_a_machine_can_be_in() {
    for seed in 0..1000 {
        let program = program(&mut fastrand::Rng::with_seed(seed));
        for mode in [PmemMode::Adr, PmemMode::Eadr, PmemMode::Pages] {
            compare(mode, &program);
        }
    }
}
