//! The runs in the manner of DISKSPD, for scripts that read its results: as text, and as XML.
//!
//! ```text
//!   Results                        text: one section for each run
//!     System, Profile                input parameters
//!     TimeSpan  (one for each run)   processors, total / read / write tables, percentiles
//! ```
//!
//! Names of elements and tables are those of DISKSPD's results (microsoft/diskspd on GitHub); the sentences are ours. Each run is a time
//! span; each thread has one target, the volume. Units are DISKSPD's: MiB, milliseconds, percent.
//!
//! Left out: what there is none of here (affinity, file cache, throughput limits, think time, per-processor groups).

mod text;
mod xml;

pub use text::to_text;
pub use xml::to_xml;

use crate::tally::{Latencies, Window};

/// Percentiles of the table, with their names.
const PERCENTILES: [(&str, f64); 15] = [
    ("min", 0.0),
    ("25th", 25.0),
    ("50th", 50.0),
    ("75th", 75.0),
    ("90th", 90.0),
    ("95th", 95.0),
    ("99th", 99.0),
    ("3-nines", 99.9),
    ("4-nines", 99.99),
    ("5-nines", 99.999),
    ("6-nines", 99.9999),
    ("7-nines", 99.99999),
    ("8-nines", 99.999999),
    ("9-nines", 99.9999999),
    ("max", 100.0),
];

/// The rows of the percentile table: name, percentile, milliseconds; nothing where there were no such requests.
fn percentiles(latencies: &Latencies) -> impl Iterator<Item = (&'static str, f64, Option<f64>)> {
    PERCENTILES.iter().map(move |(name, percentile)| {
        let ns = match *percentile {
            0.0 => latencies.shortest(),
            percentile => latencies.quantile(percentile / 100.0),
        };
        (*name, *percentile, (latencies.count() > 0).then(|| ns as f64 / 1e6))
    })
}

/// The standard deviation of requests per second, over whole seconds.
fn deviation(windows: &[Window], of: impl Fn(&Window) -> u64) -> f64 {
    let count = windows.len().max(1) as f64;
    let mean = windows.iter().map(&of).sum::<u64>() as f64 / count;
    let squares = windows.iter().map(|window| (of(window) as f64 - mean).powi(2)).sum::<f64>();
    (squares / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_table_rises_from_the_shortest_to_the_longest() {
        let mut latencies = Latencies::default();
        (1..=100_000u64).for_each(|ns| latencies.record(ns * 1_000));
        let rows: Vec<_> = percentiles(&latencies).collect();
        assert_eq!((rows.len(), rows[0].0, rows[14].0), (15, "min", "max"));
        let times: Vec<f64> = rows.iter().map(|row| row.2.expect("there are some")).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!((times[0] - 0.001).abs() < 1e-4 && (times[2] - 50.0).abs() < 0.1 && (times[14] - 100.0).abs() < 0.1);
        assert!(percentiles(&Latencies::default()).all(|row| row.2.is_none()));
    }

    #[test]
    fn the_deviation_is_over_seconds() {
        let windows = [2, 4, 4, 4, 5, 5, 7, 9].map(|reads| Window { reads, writes: 1 });
        assert_eq!(deviation(&windows, |window| window.reads), 2.0);
        assert_eq!(deviation(&windows, |window| window.writes), 0.0);
        assert_eq!(deviation(&[], |window| window.reads), 0.0);
    }
}
