//! Samples of one operation, and rates of many threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

/// How long one turn of a figure is measured.
pub const TURN: Duration = Duration::from_millis(80);

/// Turns of a rate: the fewest that have a middle and show that they differ.
const TURNS: usize = 3;

/// Operations sampled at most.
const SAMPLES: usize = 2000;

/// A figure: the middle of several measurements of it, and between which two the others lie.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// The middle.
    pub median: f64,
    /// A quarter of them is below; the least of three.
    pub low: f64,
    /// A quarter of them is above; the most of three.
    pub high: f64,
}

impl Measured {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Measured {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Measured { median: values[last / 2], low: values[last / 4], high: values[(3 * last).div_ceil(4)] }
    }

    /// How many times the low one the high one is.
    pub fn spread(&self) -> f64 {
        self.high / self.low.max(f64::MIN_POSITIVE)
    }
}

/// Percentiles of one operation.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// `write and flush 4096 B`.
    pub operation: String,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Medians of the first, the second and the last third of the samples.
    pub thirds: Measured,
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
    let third = |part: &[f64]| Measured::of(part.to_vec()).median;
    let thirds = Measured::of(times.chunks(times.len().div_ceil(3)).map(third).collect());
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    Ok(Latency { operation: name.to_owned(), p50_ns: at(0.5), p99_ns: at(0.99), thirds })
}

/// Runs `turn(state)` on threads, several times for [`TURN`], and adds up the results of the calls; per second.
/// `prepare(thread)` makes a thread's state before the time runs.
pub fn rate<S, E: Send>(
    threads: usize,
    prepare: impl Fn(usize) -> Result<S, E> + Sync,
    turn: impl Fn(&mut S) -> Result<u64, E> + Sync,
) -> Result<Measured, E> {
    let rates = (0..TURNS).map(|_| rate_once(threads, &prepare, &turn)).collect::<Result<Vec<f64>, E>>()?;
    Ok(Measured::of(rates))
}

fn rate_once<S, E: Send>(
    threads: usize,
    prepare: &(impl Fn(usize) -> Result<S, E> + Sync),
    turn: &(impl Fn(&mut S) -> Result<u64, E> + Sync),
) -> Result<f64, E> {
    let (barrier, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (barrier, stop) = (&barrier, &stop);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_middle_of_its_measurements_and_knows_how_far_they_lie_apart() {
        let of = |values: &[f64]| Measured::of(values.to_vec());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Measured { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(of(&[9.0, 5.0, 1.0, 4.0, 6.0]), Measured { median: 5.0, low: 4.0, high: 6.0 });
        assert_eq!(of(&[2.0]).spread(), 1.0);
        assert_eq!(of(&[4.0, 2.0, 3.0]).spread(), 2.0);
    }
}
