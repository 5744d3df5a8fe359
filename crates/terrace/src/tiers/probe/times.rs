//! Samples of one operation, and rates of many threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

/// How long one figure is measured.
pub const TURN: Duration = Duration::from_millis(150);

/// Operations sampled at most.
const SAMPLES: usize = 2000;

/// Percentiles of one operation.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// `write and flush 4096 B`.
    pub operation: String,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
}

/// Samples an operation for a while; `operation` gets the number of the sample.
pub fn sample<E>(name: &str, limit: Duration, mut operation: impl FnMut(usize) -> Result<(), E>) -> Result<Latency, E> {
    let begin = Instant::now();
    let mut times = Vec::with_capacity(SAMPLES);
    // The first meets cold caches and page faults of its own.
    operation(0)?;
    while times.len() < SAMPLES && (begin.elapsed() < limit || times.len() < 20) {
        let start = Instant::now();
        operation(times.len() + 1)?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    Ok(Latency { operation: name.to_owned(), p50_ns: at(0.5), p99_ns: at(0.99) })
}

/// Runs `turn(state)` on threads for [`TURN`] and adds up what each call answers; per second. `prepare(thread)` makes a
/// thread's state before the time runs.
pub fn rate<S, E: Send>(
    threads: usize,
    prepare: impl Fn(usize) -> Result<S, E> + Sync,
    turn: impl Fn(&mut S) -> Result<u64, E> + Sync,
) -> Result<f64, E> {
    let (barrier, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (barrier, stop, prepare, turn) = (&barrier, &stop, &prepare, &turn);
        let run = move |thread: usize| {
            let state = prepare(thread);
            barrier.wait();
            let mut state = state?;
            let (begin, mut done) = (Instant::now(), 0u64);
            loop {
                done += turn(&mut state)?;
                if stop.load(Ordering::Relaxed) {
                    return Ok(done as f64 / begin.elapsed().as_secs_f64());
                }
            }
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        barrier.wait();
        std::thread::sleep(TURN);
        stop.store(true, Ordering::Relaxed);
        handles.into_iter().map(|handle| handle.join().expect("a measuring thread does not panic")).sum()
    })
}

/// A small generator of offsets: splitmix64 (Steele, Lea, Flood, OOPSLA 2014). Measuring needs speed, not quality.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
    }
}
