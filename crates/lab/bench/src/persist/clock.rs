//! Latencies in nanoseconds, and the cost of their measurement.
//!
//! The clock is read before and after each operation, and both readings are part of its latency: about 20 to 40 ns on
//! current processors, which is a tenth of what storing a line takes. So the cost is measured in the same run, and
//! every figure is given both ways.

use std::time::Instant;

use serde::Serialize;

use workload::histogram::Histogram;

/// Latency of one operation as measured, the clock's own cost in it; nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the operations took at most this.
    pub p50: f64,
    /// 99 of 100 did.
    pub p99: f64,
    /// 999 of 1000 did.
    pub p999: f64,
}

impl Latency {
    /// Of values in nanoseconds.
    pub(super) fn of(histogram: &Histogram) -> Latency {
        let at = |quantile| histogram.quantile(quantile) as f64;
        Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

/// The time of two readings of the clock with nothing between them: the median of many, in nanoseconds.
pub(super) fn cost_ns() -> f64 {
    let mut costs: Vec<u128> = (0..10_001)
        .map(|_| {
            let before = Instant::now();
            before.elapsed().as_nanos()
        })
        .collect();
    costs.sort_unstable();
    costs[costs.len() / 2] as f64
}

/// `latency` without the clock in it, at least a nanosecond.
pub(super) fn less(latency_ns: f64, clock_ns: f64) -> f64 {
    (latency_ns - clock_ns).max(1.0)
}
