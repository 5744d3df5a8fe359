//! Sequential writes by threads on a real mapping of this machine: stores past the cache, stores written back, and stores
//! left in the caches.
//!
//! ```text
//! one shared mapping   | region of thread 1 | region of thread 2 | ...      each larger than the last cache
//!                       -->  store, fence; store, fence; ...                around and around in its own region
//! ```
//!
//! A turn is one way of storing, one block, one number of threads; the turns of all go around several times, so that a
//! slow moment of the machine hits all of them, and the median turn is reported. Bandwidth is measured without reading
//! the clock for each block; latency in turns of its own, with one thread, and a reading of the clock before and after
//! each block.
//!
//! Not measured: persistence. The mapping is DRAM, and the cost of writing bytes out of a processor is not the cost of
//! a persistent medium that accepts them.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Context;
use device::AlignedBuffer;
use device::pmem::bare::{Bare, Stores};

use super::clock::Latency;
use workload::histogram::Histogram;
use workload::interrupt;

/// Blocks, bytes.
pub(super) const BLOCKS: [usize; 3] = [256, 512, 4096];
/// Ways of storing.
pub(super) const WAYS: [Stores; 3] = [Stores::PastCache, Stores::WrittenBack, Stores::Plain];
/// Blocks between two looks at the clock, in a turn for bandwidth.
const STRIDE: usize = 256;

/// The options of the measurement.
pub(super) struct StoresPlan {
    /// Numbers of threads, rising.
    pub(super) threads: Vec<usize>,
    /// Bytes of each thread's region, a multiple of 4096.
    pub(super) region: usize,
    /// How often each turn is taken.
    pub(super) rounds: usize,
    /// How long a turn takes.
    pub(super) turn: Duration,
}

/// The result of one way, block and number of threads.
#[derive(Clone, Debug)]
pub(super) struct StoresRow {
    pub(super) how: Stores,
    pub(super) block: usize,
    pub(super) threads: usize,
    /// The median turn's.
    pub(super) bytes_per_s: f64,
    /// The slowest turn's and the fastest one's.
    pub(super) range: (f64, f64),
    /// Of one block with its fence; with one thread.
    pub(super) latency: Option<Latency>,
}

/// Measures all of it, in a file for each thread, made beside `file` and removed at once.
pub(super) fn measure(file: &Path, plan: &StoresPlan) -> anyhow::Result<Vec<StoresRow>> {
    let most = plan.threads.iter().copied().max().unwrap_or(1);
    let own = |thread: usize| {
        let file = file.with_extension(thread.to_string());
        let bare = Bare::on_file(&file, plan.region).with_context(|| format!("mapping {}", file.display()))?;
        // The mapping keeps it until it is dropped.
        std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        anyhow::Ok(bare)
    };
    let mut bares = (0..most).map(own).collect::<anyhow::Result<Vec<Bare>>>()?;
    let mut cases = Vec::new();
    for how in WAYS {
        for block in BLOCKS {
            cases.extend(plan.threads.iter().map(|threads| (how, block, *threads)));
        }
    }
    let mut rates = vec![Vec::new(); cases.len()];
    let mut latencies = vec![Histogram::default(); cases.len()];
    for round in 0..plan.rounds {
        for (at, (how, block, threads)) in cases.iter().copied().enumerate() {
            interrupt::check()?;
            // Not from the start each time, so that data left in the caches by the last turn is elsewhere.
            let start = (round * plan.region / plan.rounds).next_multiple_of(4096) % plan.region;
            let walk = Walk { how, block, region: plan.region, start };
            rates[at].push(walk.rate(&mut bares[..threads], plan.turn));
            if threads == 1 {
                walk.latency(&mut bares[0], plan.turn, &mut latencies[at]);
            }
        }
    }
    let row = |(at, (how, block, threads)): (usize, (Stores, usize, usize))| {
        let mut rates = std::mem::take(&mut rates[at]);
        rates.sort_by(f64::total_cmp);
        StoresRow {
            how,
            block,
            threads,
            bytes_per_s: rates[rates.len() / 2],
            range: (rates[0], rates[rates.len() - 1]),
            latency: (threads == 1).then(|| Latency::of(&latencies[at])),
        }
    };
    Ok(cases.into_iter().enumerate().map(row).collect())
}

/// A way through the regions.
#[derive(Clone, Copy)]
struct Walk {
    how: Stores,
    block: usize,
    region: usize,
    start: usize,
}

impl Walk {
    /// Stores with a thread for each mapping for so long; bytes a second of all of them.
    fn rate(self, bares: &mut [Bare], time: Duration) -> f64 {
        let barrier = Barrier::new(bares.len());
        std::thread::scope(|scope| {
            let workers: Vec<_> = bares
                .iter_mut()
                .map(|bare| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let data = self.data();
                        let mut offset = self.start;
                        barrier.wait();
                        let begun = Instant::now();
                        let mut bytes = 0;
                        while begun.elapsed() < time {
                            for _ in 0..STRIDE {
                                self.one(bare, offset, &data);
                                offset = (offset + self.block) % self.region;
                            }
                            bytes += STRIDE * self.block;
                        }
                        bytes as f64 / begun.elapsed().as_secs_f64()
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("storing does not panic")).sum()
        })
    }

    /// Stores with one thread for so long, each block timed, in nanoseconds.
    fn latency(self, bare: &mut Bare, time: Duration, latency: &mut Histogram) {
        let data = self.data();
        let mut offset = self.start;
        let begun = Instant::now();
        while begun.elapsed() < time {
            for _ in 0..STRIDE {
                let before = Instant::now();
                self.one(bare, offset, &data);
                latency.record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
                offset = (offset + self.block) % self.region;
            }
        }
    }

    #[inline]
    fn one(self, bare: &mut Bare, offset: usize, data: &[u8]) {
        bare.store(self.how, offset, data);
        if self.how != Stores::Plain {
            bare.fence();
        }
    }

    fn data(self) -> AlignedBuffer {
        AlignedBuffer::from(&vec![0x5a; self.block][..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_block_and_number_of_threads_gives_a_row_and_one_thread_its_latency() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = StoresPlan { threads: vec![1, 2], region: 1 << 16, rounds: 2, turn: Duration::from_micros(200) };
        let rows = measure(&folder.path().join("stores"), &plan).expect("measured");
        assert_eq!(rows.len(), WAYS.len() * BLOCKS.len() * 2);
        for row in rows {
            assert!(row.range.0 <= row.bytes_per_s && row.bytes_per_s <= row.range.1 && row.range.0 > 0.0, "{row:?}");
            assert_eq!(row.latency.is_some(), row.threads == 1, "{row:?}");
            assert!(row.latency.is_none_or(|latency| latency.p50 <= latency.p99 && latency.p99 <= latency.p999));
        }
    }
}
