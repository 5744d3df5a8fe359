//! The results of the attacks: a line for each, and the broken promises.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::{ACK_MAX, AdversaryOptions, DESCRIPTORS, Target};
use crate::under_load::{Ended, WorkBeside};
use workload::load::{Account, Counts};
use workload::machine::Machine;
use workload::process::ProcessSize;
use workload::table::{Table, grouped};

/// How long a node may take to end, whatever runs.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The result. The keys down to `runs` are the contract of all benches.
#[derive(Clone, Debug, Serialize)]
pub struct AdversaryReport {
    /// Always `adversary`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: AdversaryConfig,
    /// The load alone, then one for each attack.
    pub runs: Vec<AdversaryRun>,
    /// The account in the end.
    pub totals: Totals,
}

/// The options of the run.
#[derive(Clone, Debug, Serialize)]
pub struct AdversaryConfig {
    /// Smaller attacks.
    pub quick: bool,
    /// Seed of the run.
    pub seed: u64,
    /// Descriptors that the node could have.
    pub descriptors: u64,
    /// Folder of the node's data; present if it was requested or a promise was broken.
    pub data: PathBuf,
}

/// One attack.
#[derive(Clone, Debug, Serialize)]
pub struct AdversaryRun {
    /// Names the attack.
    pub name: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// Messages of the load acknowledged meanwhile.
    pub acknowledged: u64,
    /// From when such a message was due until it was acknowledged: median, milliseconds.
    pub ack_ms_p50: f64,
    /// 99 of 100.
    pub ack_ms_p99: f64,
    /// The longest.
    pub ack_ms_max: f64,
    /// The longest time of a small write with its flush, outside the node; milliseconds.
    pub medium_ms_max: f64,
    /// The node's peak of memory, bytes.
    pub peak_bytes: u64,
    /// Its memory at rest, bytes.
    pub rest_bytes: u64,
    /// Its descriptors afterwards.
    pub descriptors: u64,
    /// The broken promises.
    pub broken: Vec<String>,
}

/// The end of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    /// The account of the load.
    pub counts: Counts,
    /// Acknowledged messages that did not reach an interface.
    pub lost: u64,
    /// Whether all was acknowledged and delivered.
    pub drained: bool,
    /// From SIGTERM to the end of the process, with statements running; milliseconds.
    pub stop_ms: f64,
    /// Whether it ended with success.
    pub stopped_well: bool,
}

impl Totals {
    pub(super) fn new(account: &Account, ended: Ended) -> Totals {
        Totals {
            counts: account.counts(),
            lost: account.lost(),
            drained: ended.drained,
            stop_ms: ended.stop.as_secs_f64() * 1e3,
            stopped_well: ended.stopped_well,
        }
    }

    /// The broken promises.
    fn broken(&self) -> Vec<String> {
        let Counts { duplicated, out_of_order, wrong, foreign, framing, bad_acknowledgements, .. } = self.counts;
        let mut broken = Vec::new();
        for (what, count) in [
            ("lost", self.lost),
            ("duplicated", duplicated - self.counts.excused),
            ("out of order", out_of_order),
            ("wrong", wrong),
            ("foreign", foreign),
            ("framing", framing),
            ("bad acknowledgements", bad_acknowledgements),
        ] {
            if count > 0 {
                broken.push(format!("messages {what}: {count}"));
            }
        }
        if !self.drained {
            broken.push("not everything acknowledged was delivered".to_owned());
        }
        if !self.stopped_well {
            broken.push("the node did not end with success".to_owned());
        }
        if self.stop_ms > STOP_MAX.as_secs_f64() * 1e3 {
            broken.push(format!("it took {:.1} s to end; {} are allowed", self.stop_ms / 1e3, STOP_MAX.as_secs()));
        }
        broken
    }
}

impl AdversaryRun {
    pub(super) fn new(
        name: &'static str,
        beside: &WorkBeside<()>,
        size: ProcessSize,
        target: &Target,
        took: Duration,
        broken: Vec<String>,
    ) -> AdversaryRun {
        let latency = &beside.latency;
        let ms = |quantile| latency.quantile(quantile) as f64 / 1e6;
        AdversaryRun {
            name,
            seconds: took.as_secs_f64(),
            acknowledged: latency.count(),
            ack_ms_p50: ms(0.5),
            ack_ms_p99: ms(0.99),
            ack_ms_max: ms(1.0),
            medium_ms_max: beside.medium.as_secs_f64() * 1e3,
            peak_bytes: size.peak_bytes,
            rest_bytes: target.rest_bytes,
            descriptors: size.descriptors,
            broken,
        }
    }
}

impl AdversaryReport {
    pub(super) fn new(
        options: &AdversaryOptions,
        runs: Vec<AdversaryRun>,
        totals: Totals,
        data: &Path,
    ) -> AdversaryReport {
        AdversaryReport {
            bench: "adversary",
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            config: AdversaryConfig {
                quick: options.quick,
                seed: options.seed,
                descriptors: DESCRIPTORS,
                data: data.to_owned(),
            },
            runs,
            totals,
        }
    }

    /// Whether everything held.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.broken.is_empty()) && self.totals.broken().is_empty()
    }

    /// The report as one JSON object, ended by a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data with text keys");
        text.push('\n');
        text
    }

    /// The report as a table; with what broke and the command to repeat the run, if anything did.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "a node with {DESCRIPTORS} descriptors, a steady load, and one attack after the other; seed {}\n\n",
            self.config.seed
        );
        let mut table = Table::new(&[
            "",
            "s",
            "acknowledged",
            "ACK p50 ms",
            "p99",
            "longest",
            "medium",
            "peak MiB",
            "descriptors",
            "held",
        ]);
        for run in &self.runs {
            table.row(vec![
                run.name.to_owned(),
                format!("{:.1}", run.seconds),
                grouped(run.acknowledged as f64),
                format!("{:.1}", run.ack_ms_p50),
                format!("{:.1}", run.ack_ms_p99),
                format!("{:.1}", run.ack_ms_max),
                format!("{:.1}", run.medium_ms_max),
                (run.peak_bytes >> 20).to_string(),
                run.descriptors.to_string(),
                if run.broken.is_empty() { "yes" } else { "NO" }.to_owned(),
            ]);
        }
        let _ = writeln!(out, "{table}");
        let totals = &self.totals;
        let _ = writeln!(
            out,
            "{} acknowledged, {} delivered, {} lost; the node ended {:.0} ms after SIGTERM",
            grouped(totals.counts.acknowledged as f64),
            grouped(totals.counts.delivered as f64),
            totals.lost,
            totals.stop_ms
        );
        for run in &self.runs {
            for broken in &run.broken {
                let _ = writeln!(out, "  broken: {}: {broken}", run.name);
            }
        }
        for broken in totals.broken() {
            let _ = writeln!(out, "  broken: in the end: {broken}");
        }
        if self.is_clean() {
            let limit = ACK_MAX.as_secs();
            let _ = writeln!(
                out,
                "No other client was blocked: 99 of 100 acknowledgements took less than {limit} s throughout, and two of the \
                 longest flushes of the medium itself at that time."
            );
        } else {
            let quick = if self.config.quick { " --quick" } else { "" };
            let (seed, data) = (self.config.seed, self.config.data.display());
            let _ = writeln!(
                out,
                "Data and log are in {data}; repeat with\n  terrace bench adversary{quick} --seed {seed}"
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_lost_or_a_slow_end_breaks_the_promise() {
        let well = Totals { counts: Counts::default(), lost: 0, drained: true, stop_ms: 100.0, stopped_well: true };
        assert_eq!(well.broken(), Vec::<String>::new());
        for (totals, expected) in [
            (Totals { lost: 3, ..well.clone() }, "messages lost: 3"),
            (Totals { stop_ms: 9_000.0, ..well.clone() }, "it took 9.0 s to end; 5 are allowed"),
            (Totals { drained: false, ..well.clone() }, "not everything acknowledged was delivered"),
            (Totals { stopped_well: false, ..well }, "the node did not end with success"),
        ] {
            assert_eq!(totals.broken(), [expected]);
        }
    }
}
