//! The results of the time under load: the samples as a table, and whether everything was flat.

use std::fmt::Write as _;

use serde::Serialize;

use super::SoakOptions;
use crate::under_load::Ended;
use workload::load::{Account, Counts};
use workload::machine::Machine;
use workload::table::{Table, grouped};

/// How far the last third may lie above the second one.
const SLOPE: f64 = 1.05;
/// The permitted addition to it: a segment of the journal, or a batch of dirty pages, bytes.
const STEP_BYTES: f64 = (64 << 20) as f64;
/// The same of descriptors: the journal's next segment, and a client.
const STEP_DESCRIPTORS: f64 = 8.0;
/// Lines of the table that is printed; the JSON has every sample.
const LINES: usize = 20;

/// The result. The keys down to `runs` are the contract of all benches.
#[derive(Clone, Debug, Serialize)]
pub struct SoakReport {
    /// Always `soak`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: SoakConfig,
    /// One run.
    pub runs: [SoakRun; 1],
}

/// The options of the run.
#[derive(Clone, Debug, Serialize)]
pub struct SoakConfig {
    /// Seconds.
    pub seconds: f64,
    /// Messages a second, over all services.
    pub messages_per_s: f64,
    /// Seed of the run.
    pub seed: u64,
}

/// One moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Since the start.
    pub seconds: f64,
    /// Acknowledged since the sample before, a second.
    pub messages_per_s: f64,
    /// From when a message was due until it was acknowledged, median, milliseconds.
    pub ack_ms_p50: f64,
    /// 99 of 100.
    pub ack_ms_p99: f64,
    /// 999 of 1,000.
    pub ack_ms_p999: f64,
    /// The longest time of a small write with its flush, outside the node; milliseconds.
    pub medium_ms_max: f64,
    /// Memory of the node.
    pub resident_bytes: u64,
    /// Its open descriptors.
    pub descriptors: u64,
    /// The space of its folder on the disk.
    pub disk_bytes: u64,
    /// Processors kept busy by it.
    pub cpu_cores: f64,
    /// Transactions of SQL since the sample before.
    pub transactions: u64,
    /// Queries of the history since the sample before.
    pub queries: u64,
}

/// The run.
#[derive(Clone, Debug, Serialize)]
pub struct SoakRun {
    /// Names the run.
    pub name: &'static str,
    /// The account of the messages.
    pub counts: Counts,
    /// Acknowledged messages that did not reach an interface.
    pub lost: u64,
    /// Whether all was acknowledged and delivered in the end.
    pub drained: bool,
    /// From SIGTERM to the end of the process, milliseconds.
    pub stop_ms: f64,
    /// Whether it ended with success.
    pub stopped_well: bool,
    /// The values that grew: name, mean of the second third, mean of the last third.
    pub grew: Vec<(&'static str, f64, f64)>,
    /// Every sample.
    pub samples: Vec<Sample>,
}

impl SoakReport {
    pub(super) fn new(options: &SoakOptions, samples: Vec<Sample>, account: &Account, ended: Ended) -> SoakReport {
        SoakReport {
            bench: "soak",
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            config: SoakConfig {
                seconds: options.time.as_secs_f64(),
                messages_per_s: options.messages_per_s,
                seed: options.seed,
            },
            runs: [SoakRun {
                name: "messages and SQL for a long time",
                counts: account.counts(),
                lost: account.lost(),
                drained: ended.drained,
                stop_ms: ended.stop.as_secs_f64() * 1e3,
                stopped_well: ended.stopped_well,
                grew: growth(&samples),
                samples,
            }],
        }
    }

    /// Whether nothing grew and nothing was lost.
    pub fn is_clean(&self) -> bool {
        let [run] = &self.runs;
        let counts = &run.counts;
        let faults = [run.lost, counts.duplicated, counts.out_of_order, counts.wrong, counts.foreign, counts.refused];
        run.drained && run.stopped_well && run.grew.is_empty() && faults.iter().all(|fault| *fault == 0)
    }

    /// The report as one JSON object, ended by a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data with text keys");
        text.push('\n');
        text
    }

    /// The report as a table.
    pub fn to_text(&self) -> String {
        let [run] = &self.runs;
        let SoakConfig { seconds, messages_per_s, seed } = self.config;
        let mut out = format!(
            "{} messages/s and SQL for {:.1} minutes, seed {seed}\n\n",
            grouped(messages_per_s),
            seconds / 60.0
        );
        let mut table = Table::new(&[
            "minute",
            "messages/s",
            "ACK p50 ms",
            "p99",
            "p99.9",
            "medium",
            "memory MiB",
            "descriptors",
            "disk MiB",
            "cores",
            "SQL/s",
        ]);
        let mut last = 0.0;
        for (at, sample) in run.samples.iter().enumerate() {
            let per_s = (sample.transactions + sample.queries) as f64 / (sample.seconds - last).max(1e-9);
            last = sample.seconds;
            if at % run.samples.len().div_ceil(LINES).max(1) == 0 || at + 1 == run.samples.len() {
                table.row(sample.cells(per_s));
            }
        }
        let _ = writeln!(out, "{table}");
        let counts = &run.counts;
        let _ = writeln!(
            out,
            "{} acknowledged, {} delivered, {} lost, {} duplicated, {} out of order, {} wrong; stopped in {:.0} ms",
            grouped(counts.acknowledged as f64),
            grouped(counts.delivered as f64),
            run.lost,
            counts.duplicated,
            counts.out_of_order,
            counts.wrong,
            run.stop_ms
        );
        for (what, before, after) in &run.grew {
            let _ = writeln!(out, "NOT FLAT: {what} grew from {} to {}", grouped(*before), grouped(*after));
        }
        if self.is_clean() {
            out += "Memory, descriptors and disk are flat; every message arrived once and in order.\n";
        }
        out
    }
}

impl Sample {
    fn cells(&self, sql_per_s: f64) -> Vec<String> {
        vec![
            format!("{:.1}", self.seconds / 60.0),
            grouped(self.messages_per_s),
            format!("{:.1}", self.ack_ms_p50),
            format!("{:.1}", self.ack_ms_p99),
            format!("{:.1}", self.ack_ms_p999),
            format!("{:.1}", self.medium_ms_max),
            (self.resident_bytes >> 20).to_string(),
            self.descriptors.to_string(),
            (self.disk_bytes >> 20).to_string(),
            format!("{:.2}", self.cpu_cores),
            grouped(sql_per_s),
        ]
    }
}

/// The values of which the last third of the samples has more than the second third.
fn growth(samples: &[Sample]) -> Vec<(&'static str, f64, f64)> {
    let third = samples.len() / 3;
    let (second, last) = (&samples[third..2 * third], &samples[2 * third..]);
    if second.is_empty() {
        return Vec::new();
    }
    let mean = |samples: &[Sample], figure: fn(&Sample) -> u64| {
        samples.iter().map(|sample| figure(sample) as f64).sum::<f64>() / samples.len() as f64
    };
    let mut grew = Vec::new();
    let mut judge = |name, figure: fn(&Sample) -> u64, step: f64| {
        let (before, after) = (mean(second, figure), mean(last, figure));
        if after > before * SLOPE + step {
            grew.push((name, before, after));
        }
    };
    judge("memory", |sample| sample.resident_bytes, STEP_BYTES);
    judge("descriptors", |sample| sample.descriptors, STEP_DESCRIPTORS);
    judge("disk", |sample| sample.disk_bytes, STEP_BYTES);
    grew
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: usize, bytes: u64, descriptors: u64) -> Sample {
        Sample { seconds: at as f64, resident_bytes: bytes, disk_bytes: bytes, descriptors, ..Sample::default() }
    }

    #[test]
    fn what_grows_after_the_first_third_is_named_and_what_fills_up_is_not() {
        let fills_up: Vec<Sample> = (0..90).map(|at| sample(at, (at.min(20) as u64) << 30, 50)).collect();
        assert_eq!(growth(&fills_up), []);
        let leaks: Vec<Sample> = (0..90).map(|at| sample(at, (at as u64) << 24, at as u64)).collect();
        let names: Vec<&str> = growth(&leaks).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["memory", "descriptors", "disk"]);
        assert_eq!(growth(&leaks[..2]), []);
    }
}
