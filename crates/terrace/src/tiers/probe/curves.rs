//! Bandwidth against threads, for memory and for mapped files.
//!
//! Stores go into a mapping through `device::pmem::bare`, the simplest loop; reads sum the values.

use std::fmt;
use std::path::Path;

use device::AlignedBuffer;
use device::pmem::bare::{Bare, Stores};
use serde::Serialize;

use super::times::{Measured, rate};

/// Bytes that one turn of a thread moves before it looks at the clock.
const TURN_BYTES: usize = 256 << 10;

/// One line of a table, one curve of a medium.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Curve {
    /// `read` or `write`.
    pub operation: &'static str,
    /// `sequential` or `random`.
    pub pattern: &'static str,
    /// `nt`, `clwb`, `none`; empty for reads.
    pub store: &'static str,
    /// Bytes of one access.
    pub bytes: usize,
    /// Threads of each point.
    pub threads: Vec<usize>,
    /// The sum of all threads, 1e9 bytes a second.
    pub gb_per_s: Vec<f64>,
    /// The turns that each of them is the middle of.
    pub turns: Vec<Measured>,
}

impl Curve {
    /// Bytes a second of each number of threads become points.
    fn at(self, threads: &[usize], rates: Vec<Measured>) -> Curve {
        let scaled =
            |rate: Measured| Measured { median: rate.median / 1e9, low: rate.low / 1e9, high: rate.high / 1e9 };
        let turns: Vec<Measured> = rates.into_iter().map(scaled).collect();
        Curve { threads: threads.to_vec(), gb_per_s: turns.iter().map(|turn| turn.median).collect(), turns, ..self }
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = if self.store.is_empty() { "" } else { " " };
        write!(f, "{} {}{gap}{} {} B", self.operation, self.pattern, self.store, self.bytes)
    }
}

/// The measured reads: pattern and length.
const READS: [(&str, usize); 5] =
    [("sequential", 64), ("sequential", 256), ("sequential", 4096), ("random", 64), ("random", 256)];

/// The measured stores.
const WRITES: [(&str, &str, usize); 8] = [
    ("sequential", "none", 256),
    ("sequential", "none", 1024),
    ("sequential", "nt", 256),
    ("sequential", "nt", 1024),
    ("random", "none", 256),
    ("random", "nt", 256),
    ("random", "clwb", 64),
    ("random", "clwb", 256),
];

/// Where accesses go next.
struct Walk {
    at: usize,
    random: Option<fastrand::Rng>,
    step: usize,
    bytes: usize,
}

impl Walk {
    fn new(pattern: &str, step: usize, bytes: usize, thread: usize) -> Walk {
        let random = (pattern == "random").then_some(fastrand::Rng::with_seed(thread as u64 + 1));
        Walk { at: 0, random, step, bytes }
    }

    fn next(&mut self) -> usize {
        let places = self.bytes / self.step;
        let place = match &mut self.random {
            Some(random) => random.usize(..places),
            None => {
                self.at = (self.at + 1) % places;
                self.at
            }
        };
        place * self.step
    }
}

/// Reads, of whatever `open` makes for a thread and `read` reads from.
pub fn reads<S>(
    bytes: usize,
    counts: &[usize],
    open: impl Fn(usize) -> anyhow::Result<S> + Sync,
    read: impl Fn(&mut S, usize, usize) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Vec<Curve>> {
    let one = |(pattern, length): (&'static str, usize)| {
        let turn = |(state, walk): &mut (S, Walk)| {
            for _ in 0..TURN_BYTES / length {
                let at = walk.next();
                read(state, at, length)?;
            }
            Ok::<u64, anyhow::Error>(TURN_BYTES as u64)
        };
        let at = |threads: &usize| {
            rate(*threads, |thread| Ok((open(thread)?, Walk::new(pattern, length, bytes, thread))), turn)
        };
        let rates = counts.iter().map(at).collect::<anyhow::Result<Vec<Measured>>>()?;
        let curve = Curve { operation: "read", pattern, bytes: length, ..Curve::default() };
        Ok(curve.at(counts, rates))
    };
    READS.into_iter().map(one).collect()
}

/// Stores, each thread into a file of its own in `folder`, which is gone again before it is stored to. `begin` is called
/// on each thread first.
pub fn writes(
    folder: &Path,
    bytes: usize,
    counts: &[usize],
    begin: impl Fn() -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Vec<Curve>> {
    // Threads share the size, so that many of them do not fill the medium.
    let each = (bytes / counts.iter().max().copied().unwrap_or(1)).max(1 << 20) / 4096 * 4096;
    let open = |thread: usize| {
        begin()?;
        let path = folder.join(format!("store-{thread}"));
        let bare = Bare::on_file(&path, each)?;
        std::fs::remove_file(&path)?;
        Ok::<_, anyhow::Error>(bare)
    };
    let one = |(pattern, store, length): (&'static str, &'static str, usize)| {
        let how = match store {
            "nt" => Stores::PastCache,
            "clwb" => Stores::WrittenBack,
            _ => Stores::Plain,
        };
        let prepare =
            |thread: usize| Ok((open(thread)?, Walk::new(pattern, length, each, thread), AlignedBuffer::zeroed(4096)));
        let turn = |(bare, walk, data): &mut (Bare, Walk, AlignedBuffer)| {
            for _ in 0..TURN_BYTES / length {
                bare.store(how, walk.next(), &data[..length]);
                if how != Stores::Plain {
                    bare.fence();
                }
            }
            Ok::<u64, anyhow::Error>(TURN_BYTES as u64)
        };
        let rates =
            counts.iter().map(|threads| rate(*threads, prepare, turn)).collect::<anyhow::Result<Vec<Measured>>>()?;
        let curve = Curve { operation: "write", pattern, store, bytes: length, ..Curve::default() };
        Ok(curve.at(counts, rates))
    };
    WRITES.into_iter().map(one).collect()
}
