//! Calibration: target times of a model against achieved times, for every figure, printed before anything is measured
//! on it.
//!
//! ```text
//!   timed       the wrapped device, real threads: p50 and p99 of each operation against the model's time
//!   accounted   the budget, simulated threads on virtual time: every figure and every point of every curve of the medium's
//!               file for this number of modules, also those that take more processors than the host has
//! ```
//!
//! A row is good within 10 % of its target; one that is not contains the reason. A target that the device below cannot
//! reach by itself is refused: a model slows down, it never speeds up.
//!
//! Calibration does not decide what runs on a model that missed its targets; a program that prints figures of it also
//! prints this table.

mod accounted;
mod timed;

use std::fmt;
use std::sync::Arc;

use ::device::Shelf;

pub use accounted::bandwidth;

use crate::medium::Medium;
use crate::model::Model;
use crate::{CatalogueError, Timing};

/// Deviation up to which a row is good, in percent.
pub const TOLERANCE: f64 = 10.0;

/// The extent of the measurements in real time.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Operations of each row and thread; 1 or more. Default 2000.
    pub operations: u32,
    /// Size of the temporary device; a multiple of 4096, at least 64 KiB. Default 16 MiB. An operation uses as much as
    /// is needed for random accesses (4096 places), so that small ones stay in the host's cache: the host's own misses
    /// must not be measured.
    pub bytes: u64,
    /// The largest number of real threads; default: the processors of the host. Rows are measured with 1 and with this
    /// many.
    pub threads: u32,
    /// Seed of the random offsets. Default 1.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, |processors| processors.get() as u32);
        Options { operations: 2000, bytes: 16 << 20, threads, seed: 1 }
    }
}

/// The quantity of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Nanoseconds of one operation.
    Time,
    /// GB/s (1e9) of all threads together.
    Bandwidth,
    /// Operations per second of all threads together.
    Rate,
}

/// One target and the achieved value.
#[derive(Clone, Debug)]
pub struct Row {
    /// In real time, or accounted.
    pub timed: bool,
    /// The operation.
    pub operation: String,
    /// Bytes of one operation; 0 for a flush.
    pub bytes: u64,
    /// Threads, real or simulated.
    pub threads: u32,
    /// The quantity of the numbers.
    pub quantity: Quantity,
    /// The target.
    pub target: f64,
    /// The achieved value: for times the median.
    pub achieved: f64,
    /// The time of the device below, if it was measured: the median.
    pub native: Option<f64>,
    /// The 99th percentile, for times.
    pub p99: Option<f64>,
    /// Why it misses the target, if it does.
    pub why: Option<String>,
}

impl Row {
    /// Deviation of the achieved value from the target, in percent of the target.
    pub fn deviation(&self) -> f64 {
        (self.achieved / self.target - 1.0) * 100.0
    }

    /// Whether it is within the tolerance.
    pub fn is_good(&self) -> bool {
        self.deviation().abs() <= TOLERANCE
    }
}

/// All rows of a medium.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The medium.
    pub medium: String,
    /// Its modules.
    pub modules: u32,
    /// In the order of their measurement.
    pub rows: Vec<Row>,
    /// Skipped rows, with the reasons.
    pub left_out: Vec<String>,
}

impl Calibration {
    /// Rows within the tolerance.
    pub fn good(&self) -> usize {
        self.rows.iter().filter(|row| row.is_good()).count()
    }

    /// Largest deviation of the accounted rows, in percent.
    pub fn worst_accounted(&self) -> f64 {
        self.rows.iter().filter(|row| !row.timed).map(|row| row.deviation().abs()).fold(0.0, f64::max)
    }
}

/// Measures `model` of `medium`: accounted rows, and with [`Timing::Timed`] rows in real time on a temporary device on
/// `inner`.
///
/// Errors: [`CatalogueError::HostTooSlow`] with the first operation for which the device below takes longer than the
/// model;
/// [`CatalogueError::Device`].
pub fn calibrate(
    inner: &Arc<dyn Shelf>,
    medium: &Medium,
    model: &Model,
    timing: &Timing,
    options: Options,
) -> Result<Calibration, CatalogueError> {
    let mut calibration =
        Calibration { medium: medium.name.clone(), modules: model.modules(), rows: Vec::new(), left_out: Vec::new() };
    if let Timing::Timed = timing {
        timed::measure(inner, model, options, &mut calibration)?;
    }
    accounted::check(medium, model, &mut calibration);
    Ok(calibration)
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "calibration of {} x {} (emulated)", self.medium, self.modules)?;
        writeln!(
            f,
            "{:9}  {:28} {:>7} {:>7} {:>14} {:>12} {:>12} {:>8} {:>9}",
            "time", "operation", "bytes", "threads", "target", "achieved", "p99", "off by", "host"
        )?;
        for row in &self.rows {
            let time = if row.timed { "timed" } else { "accounted" };
            let (unit, digits) = match row.quantity {
                Quantity::Time => ("ns", 0),
                Quantity::Bandwidth => ("GB/s", 3),
                Quantity::Rate => ("op/s", 0),
            };
            let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
            let (p99, native) = (shown(row.p99), shown(row.native));
            let why = row.why.as_deref().map_or_else(String::new, |why| format!("  {why}"));
            writeln!(
                f,
                "{time:9}  {:28} {:>7} {:>7} {:>9.digits$} {unit:4} {:>12.digits$} {p99:>12} {:>+7.1}% {native:>9}{why}",
                row.operation,
                row.bytes,
                row.threads,
                row.target,
                row.achieved,
                row.deviation()
            )?;
        }
        for left_out in &self.left_out {
            writeln!(f, "left out: {left_out}")?;
        }
        write!(f, "{} of {} within {TOLERANCE} % of the target", self.good(), self.rows.len())
    }
}
