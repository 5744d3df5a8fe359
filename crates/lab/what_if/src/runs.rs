//! [`Run`] and [`Summed`]: what runs of the command achieved and used.

use serde::Serialize;

use crate::delay::RequestCounts;
use crate::figures::Achieved;
use crate::probe::middle;

/// Latencies as the file system sees them, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the requests took no longer.
    pub p50: f64,
    /// 99 % took no longer.
    pub p99: f64,
}

/// What a run used.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it did.
    pub achieved: Achieved,
    /// Processor time of the machine without the path, seconds.
    pub cpu_s: f64,
    /// Processor time of the path, seconds.
    pub path_cpu_s: f64,
    /// From start to end.
    pub seconds: f64,
    /// The requests that reached the device, where that is ours.
    pub counts: Option<RequestCounts>,
}

/// The runs of one place with one delay, in the order of the rounds.
pub type Runs = Vec<Run>;

/// Runs of one place with one delay, as one: medians, latencies merged.
#[derive(Clone, Debug)]
pub struct Summed {
    /// The median rate.
    pub rate: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The smallest and the largest rate.
    pub range: (f64, f64),
    /// The median of the latencies that the command printed, microseconds.
    pub command_latency_us: Option<f64>,
    /// Processor time of the machine without the path, of one run, seconds.
    pub cpu_s: f64,
    /// Processor time of the path, of one run, seconds.
    pub path_cpu_s: f64,
    /// Of one run.
    pub seconds: f64,
    /// Latencies as the file system sees them.
    pub latency_us: Option<Latency>,
    /// Requests of all runs: reads, writes, flushes, for each unit of the rate.
    pub per_unit: Option<[f64; 3]>,
}

/// Several runs as one.
pub fn summed(runs: &[Run]) -> Summed {
    let of = |what: fn(&Run) -> f64| middle(runs.iter().map(what).collect());
    let rates = runs.iter().map(|run| run.achieved.rate);
    let range = (rates.clone().fold(f64::INFINITY, f64::min), rates.fold(0.0, f64::max));
    let latencies: Vec<f64> = runs.iter().filter_map(|run| run.achieved.latency_us).collect();
    let mut counts = RequestCounts::default();
    for run in runs {
        let Some(more) = &run.counts else { continue };
        counts.latency_ns.add(&more.latency_ns);
        counts.reads += more.reads;
        counts.writes += more.writes;
        counts.flushes += more.flushes;
    }
    let us = |quantile| counts.latency_ns.quantile(quantile) as f64 / 1e3;
    let has_any = counts.latency_ns.count() > 0;
    let done: f64 = runs.iter().map(|run| run.achieved.rate * run.seconds).sum();
    Summed {
        rate: of(|run| run.achieved.rate),
        unit: runs.first().map_or("", |run| run.achieved.unit),
        range,
        command_latency_us: (!latencies.is_empty()).then(|| middle(latencies)),
        cpu_s: of(|run| run.cpu_s),
        path_cpu_s: of(|run| run.path_cpu_s),
        seconds: of(|run| run.seconds),
        latency_us: has_any.then(|| Latency { p50: us(0.5), p99: us(0.99) }),
        per_unit: has_any.then(|| [counts.reads, counts.writes, counts.flushes].map(|count| count as f64 / done)),
    }
}
