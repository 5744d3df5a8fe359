//! Memory of one NUMA node.
//!
//! Latency is a chain of lines, each holding the place of the next, so that no read can begin before the one before it is
//! done: in random order, and one after the other. Stores that go past the cache need a mapping; it is a file without a
//! name in memory (`/dev/shm`), which comes from the same node.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use catalogue::provision::{Machine, machine};
use serde::Serialize;

use super::curves::{Curve, reads, writes};
use super::times::{Measured, TURN};

/// The results for a node.
#[derive(Debug, Clone, Serialize)]
pub struct Memory {
    /// Which; none where the machine has one.
    pub node: Option<u32>,
    /// How much there is of it in all, in bytes.
    pub bytes: u64,
    /// A read that needs the one before it, anywhere.
    pub random_ns: Measured,
    /// A read of the next line that needs the one before it.
    pub sequential_ns: Measured,
    /// Bandwidth.
    pub curves: Vec<Curve>,
}

/// Words of 8 bytes in a line.
const WORDS: usize = 8;

/// Where memory takes the place of files.
const SHM: &str = "/dev/shm";

/// Measures `bytes` of memory.
pub fn measure(node: Option<u32>, bytes: usize, threads: &[usize]) -> anyhow::Result<Memory> {
    // The policy belongs to a thread: a thread for it, so that the caller's memory stays where it was.
    std::thread::scope(|scope| scope.spawn(|| measure_here(node, bytes, threads)).join().expect("it does not panic"))
}

fn bind(node: Option<u32>) -> anyhow::Result<()> {
    match node {
        None => Ok(()),
        Some(node) => device::os::allocate_on(node).with_context(|| {
            format!("memory cannot be taken from node {node}: set_mempolicy is refused; run it outside the container")
        }),
    }
}

fn measure_here(node: Option<u32>, bytes: usize, threads: &[usize]) -> anyhow::Result<Memory> {
    bind(node)?;
    if !device::os::file_system(Path::new(SHM)).is_ok_and(|found| found.name() == "tmpfs") {
        bail!("{SHM} is no tmpfs: stores past the cache cannot be measured; mount one there");
    }
    let shm = tempfile::Builder::new().prefix("terrace-probe-").tempdir_in(SHM).context("no room in /dev/shm")?;
    let lines = bytes / 64;
    let (random_ns, sequential_ns) = (chase(&chain(lines, true)), chase(&chain(lines, false)));
    let open = |_| {
        bind(node)?;
        Ok(vec![1u64; bytes / 8 / threads.iter().max().copied().unwrap_or(1)])
    };
    let share = bytes / threads.iter().max().copied().unwrap_or(1) / 4096 * 4096;
    let mut curves = reads(share, threads, open, |words: &mut Vec<u64>, at, length| {
        black_box(words[at / 8..(at + length) / 8].iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)));
        Ok(())
    })?;
    curves.extend(writes(shm.path(), bytes, threads, || bind(node))?);
    let of = |kind: &&machine::Node| node.is_none_or(|node| kind.id == node);
    let all = Machine::read(Path::new("/"))?.nodes.iter().filter(of).map(|node| node.bytes).sum::<u64>();
    Ok(Memory { node, bytes: all, random_ns, sequential_ns, curves })
}

/// Lines, the first word of each the place of the next, all in one circle.
fn chain(lines: usize, shuffled: bool) -> Vec<usize> {
    let mut words = vec![0usize; lines * WORDS];
    let mut order: Vec<usize> = (0..lines).collect();
    if shuffled {
        let mut random = fastrand::Rng::with_seed(1);
        for at in (1..lines).rev() {
            order.swap(at, random.usize(..at + 1));
        }
    }
    for at in 0..lines {
        words[order[at] * WORDS] = order[(at + 1) % lines] * WORDS;
    }
    words
}

/// Nanoseconds for each step along a chain: the median of several stretches.
fn chase(words: &[usize]) -> Measured {
    const STEPS: usize = 20_000;
    let (mut at, mut times, begin) = (0, Vec::new(), Instant::now());
    while times.len() < 5 || begin.elapsed() < TURN {
        let start = Instant::now();
        for _ in 0..STEPS {
            at = words[at];
        }
        times.push(start.elapsed().as_nanos() as f64 / STEPS as f64);
    }
    black_box(at);
    Measured::of(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_through_every_line_once_before_it_comes_back() {
        for shuffled in [false, true] {
            let words = chain(1000, shuffled);
            let mut seen = vec![false; 1000];
            let mut at = 0;
            for _ in 0..1000 {
                assert!(!std::mem::replace(&mut seen[at / WORDS], true), "a line twice");
                at = words[at];
            }
            assert_eq!(at, 0);
        }
    }
}
