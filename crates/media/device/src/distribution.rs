//! [`Distribution`]: how long things took, or how large they were, noted by many threads without a lock.
//!
//! ```text
//!   thread --its shard--> class of the value: count + 1;  sum + value;  bytes + n      three additions, of lines that other threads rarely write
//!   reader --all shards--> classes, sum and bytes, added up
//! ```
//!
//! Classes are as wide as a sixteenth of their power of two, so a value is reported at most 6.3 % too large. A shard is made when the first
//! thread needs it: 4 KB. Noting took 5 ns of a thread before there was a sum, 9 ns where two threads do nothing else (a virtual EPYC, 2
//! processors; a look at its clock takes 32 ns).
//!
//! What it does not do: a reader sees no single moment. Counts only grow, so the difference of two reads is what came in between.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Bits of a time that tell classes apart.
const BITS: u32 = 4;
/// The largest value that is told apart: over a minute in nanoseconds, 64 GiB in bytes.
const LARGEST: u64 = (1 << 36) - 1;
const CLASSES: usize = class_of(LARGEST) + 1;

/// See the module's text. Threads share its shards where there are more of them than `SHARDS`: eight are more than the threads that serve
/// one volume at a time.
#[derive(Debug)]
pub struct Distribution<const SHARDS: usize = 8> {
    shards: [OnceLock<Box<Shard>>; SHARDS],
}

#[derive(Debug)]
struct Shard {
    sum: AtomicU64,
    bytes: AtomicU64,
    operations: AtomicU64,
    counts: [AtomicU64; CLASSES],
}

impl Shard {
    fn new() -> Box<Shard> {
        let zero = || AtomicU64::new(0);
        Box::new(Shard {
            sum: zero(),
            bytes: zero(),
            operations: zero(),
            counts: [const { AtomicU64::new(0) }; CLASSES],
        })
    }
}

/// What was noted since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// `[value, how many]`: the largest value of a class (for times: nanoseconds), and how often it was noted; only classes that were.
    pub classes: Vec<(u64, u64)>,
    /// All values added up.
    pub sum: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// What [`Distribution::count`] counted.
    pub operations: u64,
}

impl Noted {
    /// How many values were noted.
    pub fn count(&self) -> u64 {
        self.classes.iter().map(|(_, times)| times).sum()
    }

    /// How many of them were in classes that end at `bound` or below: those up to `bound`, less at most the ones that are smaller by no more
    /// than a sixteenth.
    pub fn up_to(&self, bound: u64) -> u64 {
        self.classes.iter().take_while(|(largest, _)| *largest <= bound).map(|(_, times)| times).sum()
    }
}

const fn class_of(value: u64) -> usize {
    if value < 1 << BITS {
        return value as usize;
    }
    let power = u64::BITS - 1 - value.leading_zeros();
    let within = (value >> (power - BITS)) & ((1 << BITS) - 1);
    (((power - BITS + 1) as usize) << BITS) + within as usize
}

/// The largest value of a class.
fn largest_of(class: usize) -> u64 {
    let (power, within) = (class >> BITS, (class & ((1 << BITS) - 1)) as u64);
    match power {
        0 => within,
        _ => ((((1 << BITS) + within + 1) << (power - 1)) - 1).min(LARGEST),
    }
}

thread_local! {
    static TURN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A number of this thread, of which shards are a remainder: threads take turns.
fn turn() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    TURN.with(|turn| {
        if turn.get() == usize::MAX {
            turn.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        turn.get()
    })
}

impl<const SHARDS: usize> Default for Distribution<SHARDS> {
    fn default() -> Self {
        Distribution { shards: [const { OnceLock::new() }; SHARDS] }
    }
}

impl<const SHARDS: usize> Distribution<SHARDS> {
    fn shard(&self) -> &Shard {
        self.shards[turn() % SHARDS].get_or_init(Shard::new)
    }

    /// Notes `times` things that took as long each and moved `bytes` bytes together.
    pub fn note(&self, times: u64, bytes: u64, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(LARGEST).min(LARGEST);
        let shard = self.shard();
        shard.counts[class_of(ns)].fetch_add(times, Ordering::Relaxed);
        shard.sum.fetch_add(ns.wrapping_mul(times), Ordering::Relaxed);
        if bytes > 0 {
            shard.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes a value that is no time; those over 64 GiB count as that.
    pub fn note_value(&self, value: u64) {
        let value = value.min(LARGEST);
        let shard = self.shard();
        shard.counts[class_of(value)].fetch_add(1, Ordering::Relaxed);
        shard.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts something that moved `bytes` bytes, whether or not its time is noted; returns how many this thread's shard had counted before:
    /// who times only some of them chooses by that.
    pub fn count(&self, bytes: u64) -> u64 {
        let shard = self.shard();
        if bytes > 0 {
            shard.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        shard.operations.fetch_add(1, Ordering::Relaxed)
    }

    /// All that was noted.
    pub fn noted(&self) -> Noted {
        let shards: Vec<&Shard> = self.shards.iter().filter_map(|shard| shard.get().map(|shard| &**shard)).collect();
        let sum = |of: &dyn Fn(&Shard) -> &AtomicU64| {
            shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
        };
        let classes = (0..CLASSES).map(|class| (largest_of(class), sum(&|shard| &shard.counts[class])));
        Noted {
            classes: classes.filter(|(_, count)| *count > 0).collect(),
            sum: sum(&|shard| &shard.sum),
            bytes: sum(&|shard| &shard.bytes),
            operations: sum(&|shard| &shard.operations),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_class_whose_longest_is_at_most_a_sixteenth_longer() {
        let mut former = None;
        for power in 0..36 {
            for ns in [(1u64 << power) - 1, 1 << power, (1 << power) + (1 << power) / 3, (2 << power) - 1] {
                let class = class_of(ns);
                let longest = largest_of(class);
                assert!(longest >= ns && longest - ns <= ns / 16, "{ns}: {longest}");
                assert!(former.is_none_or(|former| former <= class), "{ns}");
                assert_eq!(class_of(longest), class, "{ns}");
                former = Some(class);
            }
        }
        assert_eq!((class_of(LARGEST), largest_of(CLASSES - 1)), (CLASSES - 1, LARGEST));
    }

    #[test]
    fn what_many_threads_note_is_all_there_and_a_time_without_end_is_the_longest() {
        let times = Distribution::<8>::default();
        std::thread::scope(|scope| {
            for thread in 0..12 {
                let times = &times;
                scope.spawn(move || (0..1_000).for_each(|_| times.note(2, 8, Duration::from_nanos(thread % 3))));
            }
        });
        let classes = vec![(0, 8_000), (1, 8_000), (2, 8_000)];
        assert_eq!(times.noted(), Noted { classes, sum: 24_000, bytes: 96_000, operations: 0 });
        times.note(1, 0, Duration::MAX);
        assert_eq!(times.noted().classes.last(), Some(&(LARGEST, 1)));
    }

    #[test]
    fn what_is_counted_is_exact_although_only_some_of_it_is_timed() {
        let times = Distribution::<2>::default();
        let mut timed = 0;
        for _ in 0..100 {
            if times.count(4).is_multiple_of(16) {
                timed += 1;
                times.note(1, 0, Duration::from_nanos(7));
            }
        }
        let noted = times.noted();
        assert_eq!((noted.operations, noted.bytes, noted.count(), timed), (100, 400, 7, 7));
        assert_eq!(noted.sum, 49);
    }

    #[test]
    fn a_bound_has_all_values_below_it_but_those_of_the_class_that_it_divides() {
        let sizes = Distribution::<1>::default();
        for value in [100, 1_000, 1_010, 1_100, u64::MAX] {
            sizes.note_value(value);
        }
        let noted = sizes.noted();
        // 1,000 is in the class from 992 to 1,023.
        let found: Vec<u64> = [99, 103, 1_000, 1_023, 2_000, u64::MAX].map(|bound| noted.up_to(bound)).to_vec();
        assert_eq!(found, [0, 1, 1, 3, 4, 5]);
    }
}
