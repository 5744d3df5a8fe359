//! The published figures of ADR against eADR, and ours beside them.
//!
//! Source: a paper's FIO experiment (sequential write, PMDK 1.11.1). 100 series: Cascade Lake, 48 cores, 12 modules of 128 GiB,
//! stores flushed by line, then a fence. 200 series: Ice Lake, 56 cores, 8 modules of 256 GiB, stores not flushed; its
//! "12-module estimate" is the bandwidth times 1.5. The figures themselves are `persistence::PUBLISHED`.

use catalogue::medium::Store;
use catalogue::model::persistence::{PUBLISHED, Reading};
use serde::Serialize;

use super::models::{ModelCompared, SERIES_100, SERIES_200};

/// Threads whose rows are given; the curves have all.
pub(super) const SHOWN: [u32; 11] = [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 56];

/// One reading of the publication: our curves, and what it states of its own, of ours. Changes are of the 200 series to the 100
/// series, percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// How the 100 series stored: `clwb` or `ntstore`.
    pub flushed: &'static str,
    /// How the 200 series stored: `none` or `ntstore`.
    pub unflushed: &'static str,
    /// Bytes of a write.
    pub block_bytes: u64,
    /// Whether these are the words of the publication.
    pub literal: bool,
    /// The most that the second is ahead with 1 or 2 threads.
    pub few_percent: f64,
    /// Published: +50.
    pub few_percent_published: f64,
    /// With 48 threads.
    pub many_percent: f64,
    /// Published, with a number of threads that it does not say: -24.
    pub many_percent_published: f64,
    /// With 48 threads, times 1.5 for 12 modules.
    pub many_of_12_percent: f64,
    /// Published: at most +14.3.
    pub many_of_12_percent_published: f64,
    /// The first number of threads from which on the second stays behind.
    pub crossover_threads: Option<u32>,
    /// The first number of threads at which it is as far behind as published.
    pub as_published_threads: Option<u32>,
    /// What the medium may write for each byte that leaves the caches on its own, 48 threads: the best bandwidth of stores past
    /// the cache over this one.
    pub implied_amplification: Option<f64>,
    /// The most that accounted time and the model's formula are apart.
    pub gap_percent: f64,
    /// By threads from 1: GB/s of the 100 series, GB/s of the 200 series.
    pub gb_per_s: Vec<(f64, f64)>,
}

impl Comparison {
    pub(super) fn of(compared: &ModelCompared) -> Comparison {
        let ModelCompared { reading, shape, .. } = compared;
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        Comparison {
            flushed: store_key(reading.flushed),
            unflushed: store_key(reading.unflushed),
            block_bytes: reading.bytes,
            literal: *reading == Reading::LITERAL,
            few_percent: percent(shape.few),
            few_percent_published: percent(PUBLISHED.0),
            many_percent: percent(shape.many),
            many_percent_published: percent(PUBLISHED.1),
            many_of_12_percent: percent(shape.many_estimated),
            many_of_12_percent_published: percent(PUBLISHED.2),
            crossover_threads: shape.crossover,
            as_published_threads: shape.as_published,
            implied_amplification: compared.implied_amplification,
            gap_percent: compared.gap_percent,
            gb_per_s: compared.points.iter().map(|point| (point.series_100, point.series_200)).collect(),
        }
    }

    /// The result of the comparison of shapes, as text.
    pub(super) fn in_words(&self) -> String {
        let place = match (self.crossover_threads, self.as_published_threads) {
            (Some(1), _) => "behind from the first thread on: the shape does not come out".to_owned(),
            (Some(from), Some(at)) => {
                format!("ahead, behind from {from} threads, {:.0} % at {at}", self.many_percent_published)
            }
            (Some(from), None) => format!("ahead, behind from {from} threads, never by as much as published"),
            (None, _) => "ahead throughout: the shape does not come out".to_owned(),
        };
        if self.literal { format!("{place} (the publication's words)") } else { place }
    }
}

/// The key of a way of storing.
pub(super) fn store_key(store: Store) -> &'static str {
    match store {
        Store::Nt => "ntstore",
        Store::Clwb => "clwb",
        Store::Cached => "none",
    }
}

/// The differences between the models' rows and the publication.
pub(super) fn differs() -> Vec<String> {
    vec![
        format!(
            "the platforms ({} and {}) are models: bandwidth by threads as perma-bench measured it on other machines, not \
             modules; the 12 modules are scaled from 6 measured ones",
            SERIES_100.name, SERIES_200.name
        ),
        "the size of a write and the instructions are not published: every reading is shown, none is fitted".to_owned(),
        "the processors differ with the platforms, published and modelled: the change is not the flush alone"
            .to_owned(),
    ]
}
