//! [`Latencies`]: how long things took, noted by many threads without a lock.
//!
//! ```text
//!   thread --its shard--> class of the time: count + 1;  bytes + n        two additions, of a line that other threads rarely write
//!   reader --all shards--> classes and bytes, summed
//! ```
//!
//! Classes are as wide as a sixteenth of their power of two, so a time is reported at most 6.3 % too long. A shard is made when the first
//! thread needs it. Noting takes 5 ns of a thread, 9 ns where two threads do nothing else (a virtual EPYC, 2 processors; a look at its clock
//! takes 32 ns).
//!
//! What it does not do: a reader sees no single moment. Counts only grow, so the difference of two reads is what came in between.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Bits of a time that tell classes apart.
const BITS: u32 = 4;
/// The longest time that is told apart, in nanoseconds: over a minute.
const LONGEST_NS: u64 = (1 << 36) - 1;
const CLASSES: usize = class_of(LONGEST_NS) + 1;
/// More than there are threads that serve one volume at a time; beyond it threads share.
const SHARDS: usize = 8;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    shards: [OnceLock<Box<Shard>>; SHARDS],
}

#[derive(Debug)]
struct Shard {
    bytes: AtomicU64,
    counts: [AtomicU64; CLASSES],
}

/// What was noted since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// `[ns, how many]`: the longest time of a class, and how often it was noted; only classes that were.
    pub classes: Vec<(u64, u64)>,
    /// Bytes that were moved.
    pub bytes: u64,
}

const fn class_of(ns: u64) -> usize {
    if ns < 1 << BITS {
        return ns as usize;
    }
    let power = u64::BITS - 1 - ns.leading_zeros();
    let within = (ns >> (power - BITS)) & ((1 << BITS) - 1);
    (((power - BITS + 1) as usize) << BITS) + within as usize
}

/// The longest time of a class.
fn longest_of(class: usize) -> u64 {
    let (power, within) = (class >> BITS, (class & ((1 << BITS) - 1)) as u64);
    match power {
        0 => within,
        _ => ((((1 << BITS) + within + 1) << (power - 1)) - 1).min(LONGEST_NS),
    }
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The shard of this thread, in all of them: threads take turns.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

impl Latencies {
    /// Notes `times` things that took as long and moved `bytes` bytes together.
    pub(crate) fn note(&self, times: u64, bytes: u64, took: Duration) {
        let shard = self.shards[shard()].get_or_init(|| {
            Box::new(Shard { bytes: AtomicU64::new(0), counts: [const { AtomicU64::new(0) }; CLASSES] })
        });
        let ns = u64::try_from(took.as_nanos()).unwrap_or(LONGEST_NS).min(LONGEST_NS);
        shard.counts[class_of(ns)].fetch_add(times, Ordering::Relaxed);
        shard.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All that was noted.
    pub(crate) fn noted(&self) -> Noted {
        let shards: Vec<&Shard> = self.shards.iter().filter_map(|shard| shard.get().map(|shard| &**shard)).collect();
        let sum = |of: &dyn Fn(&Shard) -> u64| shards.iter().map(|shard| of(shard)).sum();
        let count = |class: usize| sum(&|shard| shard.counts[class].load(Ordering::Relaxed));
        let classes = (0..CLASSES).map(|class| (longest_of(class), count(class))).filter(|(_, count)| *count > 0);
        Noted { classes: classes.collect(), bytes: sum(&|shard| shard.bytes.load(Ordering::Relaxed)) }
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
                let longest = longest_of(class);
                assert!(longest >= ns && longest - ns <= ns / 16, "{ns}: {longest}");
                assert!(former.is_none_or(|former| former <= class), "{ns}");
                assert_eq!(class_of(longest), class, "{ns}");
                former = Some(class);
            }
        }
        assert_eq!((class_of(LONGEST_NS), longest_of(CLASSES - 1)), (CLASSES - 1, LONGEST_NS));
    }

    #[test]
    fn what_many_threads_note_is_all_there_and_a_time_without_end_is_the_longest() {
        let latencies = Latencies::default();
        std::thread::scope(|scope| {
            for thread in 0..12 {
                let latencies = &latencies;
                scope.spawn(move || (0..1_000).for_each(|_| latencies.note(2, 8, Duration::from_nanos(thread % 3))));
            }
        });
        assert_eq!(latencies.noted(), Noted { classes: vec![(0, 8_000), (1, 8_000), (2, 8_000)], bytes: 96_000 });
        latencies.note(1, 0, Duration::MAX);
        assert_eq!(latencies.noted().classes.last(), Some(&(LONGEST_NS, 1)));
    }
}
