//! The published comparison on models: 12 modules of the 100 series with flushed stores (ADR) against 8 of the 200 series with
//! stores that are not flushed (eADR), sequential writes, by threads.
//!
//! ```text
//! accounted   1 to 56 simulated threads on virtual time: the same on every machine, every time
//! timed       as many threads as the host has, waiting for the model: only where the host's own stores are not slower
//! ```
//!
//! The publication states neither the size of a write nor the instructions, so each plausible reading of it is computed
//! (`catalogue::model::persistence` lists them with their reasons), none is fitted, and the result of each is printed
//! beside the published figures.
//!
//! Not done: more modules than were measured (the model scales them, and reports that), reads beside the writes.

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use catalogue::medium::{Direction, Pattern, Store};
use catalogue::model::Access;
use catalogue::model::persistence::{self, Point, Reading, Shape, THREADS_MAX};
use catalogue::{Budget, Medium, Model, ModelShelf, Timing, calibrate};
use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{AlignedBuffer, Device, Shelf};

use super::clock::{Latency, less};
use workload::histogram::Histogram;
use workload::interrupt;

/// The platforms: medium, modules, in words.
pub(super) const SERIES_100: Series = Series { medium: "dcpmm100-128g", modules: 12, name: "100 series 12 x 128 GB" };
pub(super) const SERIES_200: Series = Series { medium: "pmem200-256g", modules: 8, name: "200 series 8 x 256 GB" };
/// Sizes of writes in real time: an access unit, and a page.
const TIMED_BLOCKS: [usize; 2] = [256, 4096];
/// Bytes of each thread's device in real time.
const TIMED_BYTES: u64 = 4 << 20;
/// A row is refused if more of its writes were late: then the host was measured, and not the model.
const LATE_MOST: f64 = 0.05;

/// One platform.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) medium: &'static str,
    pub(super) modules: u32,
    pub(super) name: &'static str,
}

impl Series {
    fn model(self) -> anyhow::Result<Model> {
        Ok(Model::of(&Medium::find(self.medium)?, self.modules)?)
    }
}

/// One reading of the publication, accounted.
#[derive(Clone, Debug)]
pub(super) struct ModelCompared {
    pub(super) reading: Reading,
    /// With 1 to 56 threads.
    pub(super) points: Vec<Point>,
    pub(super) shape: Shape,
    /// The most that accounted and computed bandwidth are apart, percent.
    pub(super) gap_percent: f64,
    /// Bandwidth of stores past the cache at their best, over that of the 200 series not flushed with many threads: what the
    /// medium may write for each byte, if nothing else holds it back. None where the 200 series stores past the cache.
    pub(super) implied_amplification: Option<f64>,
}

/// One row in real time.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    pub(super) series: Series,
    pub(super) block: usize,
    pub(super) threads: usize,
    /// The model's figure, GB/s.
    pub(super) target: f64,
    /// The model's time of one write, nanoseconds.
    pub(super) target_ns: f64,
    /// The result, or the reason why there is none.
    pub(super) result: Result<Achieved, String>,
}

/// Figures in real time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Achieved {
    pub(super) gb_per_s: f64,
    pub(super) latency: Latency,
    /// Bytes that the medium would write for each byte.
    pub(super) amplification: f64,
}

/// Computes all readings.
pub(super) fn compare() -> anyhow::Result<Vec<ModelCompared>> {
    let (first, second) = (SERIES_100.model()?, SERIES_200.model()?);
    let mut compared = Vec::new();
    for reading in Reading::ALL {
        interrupt::check()?;
        let accounted =
            |model: &Model, store, threads| calibrate::bandwidth(model, &write(store, reading.bytes), threads);
        let points: Vec<Point> = (1..=THREADS_MAX)
            .map(|threads| Point {
                threads,
                series_100: accounted(&first, reading.flushed, threads),
                series_200: accounted(&second, reading.unflushed, threads),
            })
            .collect();
        let computed = persistence::curve(reading)?;
        let apart = |a: f64, b: f64| (a / b - 1.0).abs() * 100.0;
        let gap_percent = points
            .iter()
            .zip(&computed)
            .map(|(ours, formula)| {
                apart(ours.series_100, formula.series_100).max(apart(ours.series_200, formula.series_200))
            })
            .fold(0.0, f64::max);
        let implied_amplification = (reading.unflushed == Store::Cached).then(|| {
            let past = write(Store::Nt, reading.bytes);
            let best = (1..=THREADS_MAX).map(|threads| second.bandwidth(&past, threads)).fold(0.0, f64::max);
            best / points[persistence::THREADS_MANY as usize - 1].series_200
        });
        let shape = persistence::shape(&points);
        compared.push(ModelCompared { reading, points, shape, gap_percent, implied_amplification });
    }
    Ok(compared)
}

fn write(store: Store, bytes: u64) -> Access {
    Access { direction: Direction::Write, pattern: Pattern::Sequential, store, bytes, overlapped: false }
}

/// Both platforms in real time, stores past the cache, on emulated persistent memory in `folder`.
pub(super) fn in_real_time(
    folder: &Path,
    threads: &[usize],
    turn: Duration,
    clock_ns: f64,
) -> anyhow::Result<Vec<Timed>> {
    let inner: Arc<dyn Shelf> = Arc::new(PmemShelf::open(folder, PmemOptions { absent: Absent::Emulate })?);
    let most = threads.iter().copied().max().unwrap_or(1);
    for thread in 0..most {
        inner.create(&format!("region-{thread}"), TIMED_BYTES)?;
    }
    let mut rows = Vec::new();
    for block in TIMED_BLOCKS {
        for threads in threads.iter().copied() {
            let native = run(&inner, threads, block, turn)?;
            for series in [SERIES_100, SERIES_200] {
                let model = series.model()?;
                let access = write(Store::Nt, block as u64);
                let count = u32::try_from(threads)?;
                let (target, target_ns) = (model.bandwidth(&access, count), model.among(&access, count));
                let result = if native.1.p50 > target_ns {
                    Err(format!(
                        "refused: the model says {target_ns:.0} ns a write, this host alone takes {:.0} ns (p50)",
                        native.1.p50
                    ))
                } else {
                    modelled(&inner, model, threads, block, turn)?
                };
                let result = result.and_then(|achieved| within(achieved, target_ns, clock_ns));
                rows.push(Timed { series, block, threads, target, target_ns, result });
            }
        }
    }
    Ok(rows)
}

/// Refuses a result that is not within the tolerance of calibrations: it measured the host's own work, and not the
/// model.
fn within(achieved: Achieved, target_ns: f64, clock_ns: f64) -> Result<Achieved, String> {
    let took = less(achieved.latency.p50, clock_ns);
    if (took / target_ns - 1.0).abs() * 100.0 <= calibrate::TOLERANCE {
        return Ok(achieved);
    }
    Err(format!(
        "refused: the model says {target_ns:.0} ns a write, with this host's own work it takes {took:.0} ns (p50)"
    ))
}

fn modelled(
    inner: &Arc<dyn Shelf>,
    model: Model,
    threads: usize,
    block: usize,
    turn: Duration,
) -> anyhow::Result<Result<Achieved, String>> {
    let budget = Budget::new(&model);
    let shelf: Arc<dyn Shelf> = Arc::new(ModelShelf::new(inner.clone(), model, budget.clone(), Timing::Timed));
    let (gb_per_s, latency) = run(&shelf, threads, block, turn)?;
    let traffic = budget.traffic();
    let late = traffic.late as f64 / traffic.accesses.max(1) as f64;
    if late > LATE_MOST {
        return Ok(Err(format!("refused: the host was late in {:.0} % of the writes", late * 100.0)));
    }
    Ok(Ok(Achieved { gb_per_s, latency, amplification: traffic.amplification() }))
}

/// Writes with so many threads for so long, each around and around in its own device; GB/s of all, latency of the first.
fn run(shelf: &Arc<dyn Shelf>, threads: usize, block: usize, time: Duration) -> anyhow::Result<(f64, Latency)> {
    interrupt::check()?;
    let devices: Vec<Arc<dyn Device>> =
        (0..threads).map(|thread| shelf.open(&format!("region-{thread}"))).collect::<Result<_, _>>()?;
    let barrier = Barrier::new(threads);
    let results: Vec<anyhow::Result<(f64, Histogram)>> = std::thread::scope(|scope| {
        let workers: Vec<_> = devices
            .iter()
            .map(|device| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let data = AlignedBuffer::from(&vec![0x5a; block][..]);
                    let mut latency = Histogram::default();
                    let mut offset = 0;
                    barrier.wait();
                    let begun = Instant::now();
                    while begun.elapsed() < time {
                        let before = Instant::now();
                        device.write_flush(offset, &data)?;
                        latency.record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
                        offset = (offset + block as u64) % TIMED_BYTES;
                    }
                    let bytes = latency.count() as f64 * block as f64;
                    Ok((bytes / begun.elapsed().as_nanos() as f64, latency))
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("writing does not panic")).collect()
    });
    let mut all = Histogram::default();
    let mut rate = 0.0;
    for result in results {
        let (gb_per_s, latency) = result?;
        rate += gb_per_s;
        all.add(&latency);
    }
    Ok((rate, Latency::of(&all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accounted_curves_are_the_same_every_time_and_within_the_tolerance_of_the_formula() {
        let (first, second) = (compare().expect("computed"), compare().expect("computed"));
        for (one, other) in first.iter().zip(&second) {
            assert_eq!(one.points, other.points, "{:?}", one.reading);
            assert!(one.gap_percent < calibrate::TOLERANCE, "{:?}: {} % apart", one.reading, one.gap_percent);
        }
    }

    #[test]
    fn taken_by_its_word_the_publication_has_the_second_platform_ahead_with_few_threads_and_behind_with_many() {
        let compared = compare().expect("computed");
        let literal = compared.iter().find(|compared| compared.reading == Reading::LITERAL).expect("among them");
        assert!(literal.shape.few > 1.0 && literal.shape.many < 1.0, "{:?}", literal.shape);
        assert!(literal.shape.crossover.is_some_and(|threads| (3..THREADS_MAX).contains(&threads)));
        assert!(literal.implied_amplification.is_some_and(|amplification| amplification > 1.0));
    }

    #[test]
    fn a_row_outside_the_tolerance_is_refused_with_both_figures() {
        let at = |p50| Achieved { gb_per_s: 1.0, latency: Latency { p50, p99: p50, p999: p50 }, amplification: 1.0 };
        assert!(within(at(1_100.0), 1_000.0, 20.0).is_ok());
        let why = within(at(271.0), 182.0, 20.0).expect_err("251 ns are too long");
        assert!(why.contains("182 ns") && why.contains("251 ns"), "{why}");
    }

    #[test]
    fn in_real_time_a_row_has_figures_or_says_why_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows = in_real_time(folder.path(), &[1, 2], Duration::from_micros(500), 20.0).expect("measured");
        assert_eq!(rows.len(), TIMED_BLOCKS.len() * 2 * 2);
        for row in rows {
            match row.result {
                Ok(achieved) => assert!(achieved.gb_per_s > 0.0 && achieved.amplification >= 1.0, "{achieved:?}"),
                Err(why) => assert!(why.contains("host"), "{why}"),
            }
        }
    }
}
