//! Flushed stores on the 100 series compared with stores that are not flushed on the 200 series: the published
//! comparison, computed from the figures of the catalogue.
//!
//! Published (FIO, sequential writes, PMDK 1.11.1): 12 x 128 GB of the 100 series on 48 cores, *flushed* (ADR), and 8 x
//! 256 GB of the 200 series on 56 cores, *not flushed* (eADR). The 200 series had up to 50 % more bandwidth with 1 and
//! 2 threads and 24 % less with many; scaled to 12 modules (times 1.5) at most 14.3 % more. Neither the size of a write
//! nor the instructions are published.
//!
//! # Possible meanings of "flushed" and "not flushed"
//!
//! ```text
//!   flushed       clwb   the wording of the publication: an explicit flush of the line, then a fence
//!                 nt     libpmem for 256 bytes and more on ADR: past the cache, then a fence (MOVNT_THRESHOLD)
//!   not flushed   none   the wording of the publication: left in the cache
//!                 nt     libpmem 1.11 for 256 bytes and more, on eADR too: its other path was never chosen
//!                        (github.com/pmem/pmdk, issue 5364)
//! ```
//!
//! Every pair is a [`Reading`]; none is fitted to the result. The results, checked by the tests (ratio 200 / 100
//! series):
//!
//! ```text
//!   flushed  not flushed  bytes   1 or 2 threads   behind from   24 % less at   48 threads   x 1.5
//!   clwb     none           256             2.70            12             16         0.40    0.60
//!   nt       none           256             1.73             6              9         0.30    0.45
//!   nt       none          4096             0.85             1              2         0.42    0.63
//!   nt       nt             256             1.09            27              -         0.99    1.48
//!   nt       nt            4096             1.41             -              -         1.16    1.74
//!   published                               1.50             ?              ?         0.76    1.14
//! ```
//!
//! The published shape appears if the publication is taken literally and a write is one access unit: ahead with few
//! threads, a crossover, behind with many. The literal reading is at -24 % and, times 1.5, at +14 % with 16 threads;
//! the publication does not state its largest number of threads. Two things do not appear: the height with few threads
//! (clwb on Cascade Lake was measured slower than the publication implies), and a loss that stops at 24 %: with more
//! than 16 threads, the lines that the cache evicts cost the 200 series more. Past the cache on both sides there is
//! hardly a loss. Sequential clwb is derived from random clwb (rule 3 of the model), since it was not measured.

use super::{Access, Model};
use crate::CatalogueError;
use crate::medium::{Direction, Medium, Pattern, Store};

/// Largest number of threads compared: the cores of the machine with the 200 series.
pub const THREADS_MAX: u32 = 56;

/// Number of threads that counts as "many": the cores of the machine with the 100 series, the largest number for which
/// both had a core each.
pub const THREADS_MANY: u32 = 48;

/// The ratio of 12 modules to 8 modules, as the publication estimates it.
pub const ESTIMATE: f64 = 1.5;

/// The published changes, as ratios of the 200 to the 100 series: the maximum with 1 or 2 threads, with many, and with
/// many at the estimate of 12 modules.
pub const PUBLISHED: (f64, f64, f64) = (1.50, 0.76, 1.143);

/// One reading of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// How the 100 series stored.
    pub flushed: Store,
    /// How the 200 series stored.
    pub unflushed: Store,
    /// Bytes of a write.
    pub bytes: u64,
}

impl Reading {
    /// The literal reading, at the size of an access unit.
    pub const LITERAL: Reading = Reading { flushed: Store::Clwb, unflushed: Store::Cached, bytes: 256 };

    /// The plausible readings: literal, libpmem on ADR, and libpmem 1.11 on both; at the access unit, and at 1024 bytes
    /// and more, where the curves end.
    pub const ALL: [Reading; 5] = [
        Reading::LITERAL,
        Reading { flushed: Store::Nt, unflushed: Store::Cached, bytes: 256 },
        Reading { flushed: Store::Nt, unflushed: Store::Cached, bytes: 4096 },
        Reading { flushed: Store::Nt, unflushed: Store::Nt, bytes: 256 },
        Reading { flushed: Store::Nt, unflushed: Store::Nt, bytes: 4096 },
    ];
}

/// Both series at a number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Threads.
    pub threads: u32,
    /// GB/s of 12 modules of the 100 series, flushed.
    pub series_100: f64,
    /// GB/s of 8 modules of the 200 series, not flushed.
    pub series_200: f64,
}

impl Point {
    /// The 200 series over the 100 series.
    pub fn ratio(&self) -> f64 {
        self.series_200 / self.series_100
    }

    /// The same at the estimate of 12 modules.
    pub fn ratio_estimated(&self) -> f64 {
        self.ratio() * ESTIMATE
    }
}

/// The published properties, of the curve computed here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The best ratio with 1 or 2 threads.
    pub few: f64,
    /// The first number of threads from which the 200 series stays behind.
    pub crossover: Option<u32>,
    /// The first number of threads with a ratio as low as the published one with many threads.
    pub as_published: Option<u32>,
    /// The ratio with [`THREADS_MANY`].
    pub many: f64,
    /// The same at the estimate of 12 modules.
    pub many_estimated: f64,
}

/// Both series with 1 to [`THREADS_MAX`] threads.
///
/// Errors: those of [`Model::of`], if the built-in media lost a curve.
pub fn curve(reading: Reading) -> Result<Vec<Point>, CatalogueError> {
    let series_100 = Model::of(&Medium::find("dcpmm100-128g")?, 12)?;
    let series_200 = Model::of(&Medium::find("pmem200-256g")?, 8)?;
    let write = |store| {
        let (direction, pattern, bytes) = (Direction::Write, Pattern::Sequential, reading.bytes);
        Access { direction, pattern, store, bytes, overlapped: false }
    };
    let point = |threads| Point {
        threads,
        series_100: series_100.bandwidth(&write(reading.flushed), threads),
        series_200: series_200.bandwidth(&write(reading.unflushed), threads),
    };
    Ok((1..=THREADS_MAX).map(point).collect())
}

/// The published properties of `points` (from [`curve`]).
pub fn shape(points: &[Point]) -> Shape {
    let few = points.iter().filter(|point| point.threads <= 2).map(Point::ratio).fold(0.0, f64::max);
    let behind = points.iter().rev().take_while(|point| point.ratio() < 1.0).last();
    let low = points.iter().find(|point| point.ratio() <= PUBLISHED.1 + 0.005);
    let many = points.iter().rfind(|point| point.threads <= THREADS_MANY).map_or(0.0, Point::ratio);
    let (crossover, as_published) = (behind.map(|point| point.threads), low.map(|point| point.threads));
    Shape { few, crossover, as_published, many, many_estimated: many * ESTIMATE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_of_each_reading_is_what_the_essay_says() {
        let expected = [
            (2.70, Some(12), Some(16), 0.40),
            (1.73, Some(6), Some(9), 0.30),
            (0.85, Some(1), Some(2), 0.42),
            (1.09, Some(27), None, 0.99),
            (1.41, None, None, 1.16),
        ];
        for (reading, (few, crossover, as_published, many)) in Reading::ALL.into_iter().zip(expected) {
            let shape = shape(&curve(reading).expect("built-in media"));
            assert!((shape.few - few).abs() < 0.006 && (shape.many - many).abs() < 0.006, "{reading:?}: {shape:?}");
            assert_eq!((shape.crossover, shape.as_published), (crossover, as_published), "{reading:?}: {shape:?}");
        }
    }

    #[test]
    fn taken_by_its_word_the_published_shape_comes_out_ahead_then_behind() {
        let points = curve(Reading::LITERAL).expect("built-in media");
        assert_eq!(points.len() as u32, THREADS_MAX);
        assert!(points[..2].iter().all(|point| point.ratio() >= PUBLISHED.0), "ahead with 1 and 2 threads");
        assert!(points[47].ratio() <= PUBLISHED.1, "behind with many");
        // At the number of threads with the published loss, the estimate for 12 modules also equals the published one.
        assert!((points[15].ratio_estimated() - PUBLISHED.2).abs() < 0.01, "{:?}", points[15]);
    }
}
