//! The result of the matrix: every run as in T4's own result, and for each row what its rounds come to, beside the published
//! figures. As one JSON object for scripts and as a table for people.
//!
//! A missing figure is null in the JSON and a `-` in the table, never a number.

use std::fmt::Write as _;

use ::node::status::ModelStatus;
use serde::Serialize;

use super::Outcome;
use super::rows::{BASE, MatrixMedium};
use workload::machine::{FileSystem, Machine};
use workload::t4::published::{Published, TESTS};
use workload::t4::{Quantiles, Report, Run, model_in_words};
use workload::table::{Table, grouped};

/// Everything about one matrix.
#[derive(Clone, Debug, Serialize)]
pub struct MatrixReport {
    /// Always `t4`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// What it ran on.
    pub machine: Machine,
    /// What was run.
    pub config: MatrixConfig,
    /// Every round of every row that ran, in the order of rows.
    pub runs: Vec<Run>,
    /// What they come to.
    pub rows: Vec<MatrixRow>,
    /// Whether every run was clean.
    pub clean: bool,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MatrixConfig {
    /// Inbound services.
    pub services: usize,
    /// Messages for each.
    pub messages_per_service: usize,
    /// At most 6 seconds of sending for each run.
    pub quick: bool,
    /// Seed of the messages.
    pub seed: u64,
    /// How outputs are stored.
    pub bodies: &'static str,
    /// How often each row ran.
    pub rounds: usize,
    /// The file system below the models.
    pub modelled_on: FileSystem,
    /// The file system of the unmodelled row.
    pub disk: FileSystem,
    /// The machine's load in the minute before.
    pub load_average: Option<f64>,
    /// What makes this another thing than the published tests.
    pub differs: Vec<String>,
}

/// One row; figures are the median over its rounds, null where it did not run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MatrixRow {
    /// Its name.
    pub name: &'static str,
    /// The modelled medium and how many of it.
    pub model: Option<String>,
    /// Why it was refused, where it was.
    pub refused: Option<String>,
    /// Rounds that ran.
    pub rounds: usize,
    /// Messages a second.
    pub inbound_per_s: Option<f64>,
    /// The least and the most of the rounds.
    pub inbound_per_s_range: Option<(f64, f64)>,
    /// To the row on the Optane SSD, the median of the rounds' ratios.
    pub ratio: Option<f64>,
    /// Time to the acknowledgement, microseconds.
    pub ack_us: Option<Quantiles>,
    /// Processor time of the node for a message, microseconds.
    pub server_cpu_us_per_inbound: Option<f64>,
    /// Share of the machine's processors that node and load used together.
    pub busy: Option<f64>,
    /// Writes of the journal.
    pub journal_writes_per_s: Option<f64>,
    /// What a flush is worth, as the node says.
    pub durability: Option<String>,
    /// False where the medium is modelled, as the node says.
    pub real: Option<bool>,
    /// The timing models of the last round, far memory's among them, and how many accesses took the host longer than they say.
    pub models: Vec<ModelStatus>,
    /// What the node said of its calibration, first round.
    pub calibration: Vec<String>,
    /// The published tests of the same.
    pub published: Vec<Published>,
    /// The best of them to test 1: other processors.
    pub published_ratio_to_test_1: Option<f64>,
    /// The best of them to test 3: the same processors.
    pub published_ratio_to_test_3: Option<f64>,
}

/// A row while it is measured.
pub(super) struct Measured {
    row: MatrixMedium,
    reports: Vec<(usize, Report)>,
    calibration: Vec<String>,
    refused: Option<String>,
}

impl Measured {
    pub(super) fn new(row: MatrixMedium) -> Measured {
        Measured { row, reports: Vec::new(), calibration: Vec::new(), refused: None }
    }

    pub(super) fn add(&mut self, round: usize, outcome: Outcome) {
        match outcome {
            Outcome::Refused(why) => self.refused = Some(why),
            Outcome::Ran(mut report, calibration) => {
                for run in &mut report.runs {
                    run.name = format!("{}, round {}", self.row.name, round + 1);
                    // Of the same medium, where there is one; else the best of all, as in any run of T4.
                    if let Some(test) = self.row.published().last() {
                        run.published_inbound_per_s = test.inbound_per_s;
                    }
                }
                if self.calibration.is_empty() {
                    self.calibration = calibration;
                }
                self.reports.push((round, *report));
            }
        }
    }

    fn runs(&self) -> impl Iterator<Item = &Run> + Clone {
        self.reports.iter().flat_map(|(_, report)| &report.runs)
    }

    /// The rate of a round, if it ran.
    fn rate(&self, round: usize) -> Option<f64> {
        let (_, report) = self.reports.iter().find(|(of, _)| *of == round)?;
        report.runs.first().map(|run| run.inbound_per_s)
    }

    /// The row as reported; `base` is the one that ratios are to.
    fn finish(&self, base: &Measured, cores: usize) -> MatrixRow {
        let of = |value: fn(&Run) -> f64| median(self.runs().map(value).collect());
        let rates = || self.runs().map(|run| run.inbound_per_s);
        let ratios = self.reports.iter().filter_map(|(round, _)| Some(self.rate(*round)? / base.rate(*round)?));
        let cpu = |run: &Run| run.server_cpu_us_per_inbound + run.load_cpu_us_per_inbound;
        let busy = self.runs().map(|run| cpu(run) * run.inbound_per_s / 1e6 / cores as f64);
        let published: Vec<Published> = self.row.published().copied().collect();
        let best = published.last().map(|test| test.inbound_per_s);
        MatrixRow {
            name: self.row.name,
            model: Some(self.row.what.modelled())
                .filter(|all| !all.is_empty())
                .map(|all| all.iter().map(|m| format!("{} x {}", m.modules, m.medium)).collect::<Vec<_>>().join(", ")),
            refused: self.refused.clone(),
            rounds: self.reports.len(),
            inbound_per_s: of(|run| run.inbound_per_s),
            inbound_per_s_range: rates().reduce(f64::min).zip(rates().reduce(f64::max)),
            ratio: median(ratios.collect()),
            ack_us: self.ack_us(),
            server_cpu_us_per_inbound: of(|run| run.server_cpu_us_per_inbound),
            busy: median(busy.collect()),
            journal_writes_per_s: of(|run| run.journal_writes_per_s),
            durability: self.runs().next().map(|run| run.durability.clone()),
            real: self.runs().next().map(|run| run.real),
            models: self.runs().last().map(|run| run.models.clone()).unwrap_or_default(),
            calibration: self.calibration.clone(),
            published_ratio_to_test_1: published.last().map(|test| test.ratio),
            published_ratio_to_test_3: best.map(|rate| rate / TESTS[2].inbound_per_s),
            published,
        }
    }

    fn ack_us(&self) -> Option<Quantiles> {
        let of = |value: fn(&Quantiles) -> f64| median(self.runs().map(|run| value(&run.ack_us)).collect());
        Some(Quantiles { p50: of(|us| us.p50)?, p99: of(|us| us.p99)?, p999: of(|us| us.p999)? })
    }
}

/// The middle, or the mean of the two in the middle; none of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        even if even % 2 == 0 => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

impl MatrixReport {
    /// Puts the figures together.
    pub(super) fn new(machine: Machine, config: MatrixConfig, measured: Vec<Measured>) -> MatrixReport {
        let base = measured.iter().find(|row| row.row.name == BASE).expect("the base is one of the rows");
        let rows = measured.iter().map(|row| row.finish(base, machine.cores)).collect();
        let clean = measured.iter().flat_map(|row| &row.reports).all(|(_, report)| report.is_clean());
        let runs = measured.iter().flat_map(|row| row.runs().cloned()).collect();
        let version = env!("CARGO_PKG_VERSION");
        let mut report = MatrixReport { bench: "t4", version, machine, config, runs, rows, clean };
        report.config.differs = report.differences();
        report
    }

    /// Whether every message of every run arrived once, in order, as expected, and all objects are stored.
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// The report as one JSON object, ended by a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data with text keys");
        text.push('\n');
        text
    }

    fn differences(&self) -> Vec<String> {
        let cores = self.machine.cores;
        let FileSystem { kind, source } = &self.config.modelled_on;
        let mut differs = vec![
            format!("{cores} processors for node, senders, receivers and checks together; published 44 and 48 cores"),
            format!("the media are models on {kind} ({source}), and nothing there survives a loss of power"),
            "a modelled wait under 20 us is spun: it is in the node's processor time, where a real SSD would leave the \
             processor to others"
                .to_owned(),
            "every node has a page cache and a write image journal; where a row does not place them they are memory and the node's \
             data folder"
                .to_owned(),
            "SATA and NVMe are drives with figures in the catalogue (S4500, P4510); no such test was published".to_owned(),
        ];
        if let Some(load) = self.config.load_average.filter(|load| *load > 0.25 * cores as f64) {
            differs.push(format!("the machine was not quiet: load average {load:.1} before the run"));
        }
        differs
    }

    /// The report as tables and what they mean.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let (machine, config) = (&self.machine, &self.config);
        let _ = writeln!(
            out,
            "T4 by medium of the journal: {} services x {} messages{}, {} rounds a row\nTerrace {} on {}, {} processors\n",
            config.services,
            grouped(config.messages_per_service as f64),
            if config.quick { ", at most 6 s of sending" } else { "" },
            config.rounds,
            self.version,
            machine.cpu,
            machine.cores
        );
        let _ = writeln!(out, "{}", self.table());
        for row in &self.rows {
            if let Some(why) = &row.refused {
                let all = if row.rounds == 0 { "refused" } else { "refused in some rounds" };
                let _ = writeln!(out, "{}: {all}: {why}", row.name);
            }
            for line in row.calibration.iter().cloned().chain(row.models.iter().map(model_in_words)) {
                let _ = writeln!(out, "{}: {line}", row.name);
            }
        }
        for example in self.runs.iter().flat_map(|run| run.examples.iter().map(move |example| (&run.name, example))) {
            let _ = writeln!(out, "{}: fault: {}", example.0, example.1);
        }
        out.push('\n');
        self.meaning(&mut out);
        let _ = writeln!(out, "\nWhat differs here:");
        for line in &config.differs {
            let _ = writeln!(out, "  - {line}");
        }
        out
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            "",
            "inbound/s",
            "least",
            "most",
            "ratio",
            "publ./s",
            "to 1",
            "to 3",
            "ACK p50 ms",
            "p99",
            "p999",
            "CPU us",
            "busy",
            "writes/s",
            "durability",
        ]);
        let show = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let ms = |row: &MatrixRow, of: fn(&Quantiles) -> f64| show(row.ack_us.as_ref().map(|us| of(us) / 1e3), 2);
        for row in &self.rows {
            let published: Vec<String> = row.published.iter().map(|test| grouped(test.inbound_per_s)).collect();
            let state = match (&row.durability, row.real) {
                (None, _) => "refused: see below".to_owned(),
                (Some(durability), Some(true)) => format!("{durability}, real"),
                (Some(durability), _) => format!("{durability}, modelled"),
            };
            table.row(vec![
                row.name.to_owned(),
                row.inbound_per_s.map_or_else(|| "-".to_owned(), grouped),
                row.inbound_per_s_range.map_or_else(|| "-".to_owned(), |(least, _)| grouped(least)),
                row.inbound_per_s_range.map_or_else(|| "-".to_owned(), |(_, most)| grouped(most)),
                show(row.ratio, 2),
                if published.is_empty() { "-".to_owned() } else { published.join(" ") },
                show(row.published_ratio_to_test_1, 2),
                show(row.published_ratio_to_test_3, 2),
                ms(row, |us| us.p50),
                ms(row, |us| us.p99),
                ms(row, |us| us.p999),
                show(row.server_cpu_us_per_inbound, 1),
                row.busy.map_or_else(|| "-".to_owned(), |busy| format!("{:.0} %", busy * 100.0)),
                row.journal_writes_per_s.map_or_else(|| "-".to_owned(), grouped),
                state,
            ]);
        }
        table
    }

    /// What the ratios say and what they do not.
    fn meaning(&self, out: &mut String) {
        let to_1 = |test: usize| TESTS[test].ratio;
        let medium_alone = TESTS[3].inbound_per_s / TESTS[2].inbound_per_s;
        let _ = writeln!(
            out,
            "What the ratios mean:\n\
             \x20 - Published, to test 1: {:.2} / {:.2} (Memory Mode) / {:.2} (DRAM only) / {:.2} (App Direct).\n\
             \x20 - From test 1 to test 3 the processors changed (44 to 48 cores, the next generation) and the journal's medium did\n\
             \x20   not: that is {:.2}. Only from test 3 to test 4 did the medium change: {medium_alone:.2}, the column `to 3`.\n\
             \x20 - Ours (`ratio`) are to the row on the Optane SSD. Our processors are the same in every row: hold our App Direct\n\
             \x20   against {medium_alone:.2}. It cannot show {:.2}, and a ratio near that would not reproduce it.",
            to_1(0),
            to_1(1),
            to_1(2),
            to_1(3),
            to_1(2),
            to_1(3),
        );
        let row = |name: &str| self.rows.iter().find(|row| row.name == name);
        let app_direct = row("journal on App Direct").and_then(|row| row.ratio);
        if let (Some(ratio), Some(busy)) = (app_direct, row(BASE).and_then(|row| row.busy)) {
            let _ = writeln!(
                out,
                "\x20 - Ours: {ratio:.2} against {medium_alone:.2}. On the Optane SSD node and load use {:.0} % of the processors: {}",
                busy * 100.0,
                if busy > 0.8 {
                    "they are the\n    limit, so that a faster journal shows in the time to the acknowledgement more than in the rate."
                } else {
                    "the rest\n    waits, or other work on the machine has it."
                }
            );
        }
    }
}

#[cfg(test)]
mod tests;
