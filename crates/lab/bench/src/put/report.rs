//! The result of put: as one JSON object for scripts, as tables for people.
//!
//! The JSON keys are a contract (`bench, version, machine, config, runs, against`): keys may be added, never renamed.

use std::fmt::Write as _;

use serde::Serialize;

use super::Turn;
use crate::persist::Ratio;
use workload::histogram::Histogram;
use workload::machine::Machine;
use workload::table::{Table, grouped};

/// Everything about one run of the bench.
#[derive(Clone, Debug, Serialize)]
pub struct PutReport {
    /// Always `put`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: PutConfig,
    /// The figures.
    pub runs: Vec<PutRun>,
    /// The store against the two others.
    pub against: Vec<Against>,
}

/// The options of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PutConfig {
    /// Length of a turn.
    pub seconds_per_turn: f64,
    /// Turns of each engine.
    pub rounds: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// The journal's medium, in the device's words.
    pub journal: String,
    /// The machine's load in the minute before.
    pub load_average: Option<f64>,
}

/// One engine by so many committers, all its turns together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PutRun {
    /// `raw`, `journal` or `store`.
    pub name: &'static str,
    /// The durability of a flush in the journal's place.
    pub durability: &'static str,
    /// Whether that place is a real medium, not a model.
    pub real: bool,
    /// How many wait for their puts at once.
    pub committers: usize,
    /// Puts in a second.
    pub puts_per_s: f64,
    /// Half of the puts took at most so many microseconds.
    pub p50_us: f64,
    /// 99 of 100 did.
    pub p99_us: f64,
    /// 999 of 1,000 did.
    pub p999_us: f64,
    /// Processor time of the whole process for a put, microseconds; the committers are included.
    pub cpu_us_per_put: f64,
}

/// Puts a second of the store over those of another, in turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// The other one.
    pub name: &'static str,
    /// How many committers.
    pub committers: usize,
    /// The median of the rounds.
    pub median: f64,
    /// A quarter of the rounds is below.
    pub low: f64,
    /// A quarter is above.
    pub high: f64,
}

/// Engines' turns: committers, name, one for each round.
type Measured = (usize, &'static str, Vec<Turn>);

impl PutReport {
    pub(super) fn new(
        machine: Machine,
        config: PutConfig,
        durability: &'static str,
        measured: &[Measured],
    ) -> PutReport {
        let runs = measured.iter().map(|measured| PutRun::of(measured, durability)).collect();
        let mut against = Vec::new();
        for (committers, name, turns) in measured.iter().filter(|(_, name, _)| *name != "store") {
            let store = measured.iter().find(|(count, name, _)| count == committers && *name == "store");
            if let Some((_, _, store)) = store {
                let rate = |turn: &Turn| turn.puts as f64 / turn.seconds;
                let ratio = Ratio::among(store.iter().zip(turns).map(|(a, b)| rate(a) / rate(b).max(1.0)).collect());
                let Ratio { median, low, high } = ratio;
                against.push(Against { name, committers: *committers, median, low, high });
            }
        }
        PutReport { bench: "put", version: env!("CARGO_PKG_VERSION"), machine, config, runs, against }
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let config = &self.config;
        let _ = writeln!(
            text,
            "durable puts of {} bytes under random keys of {}, {} rounds of {} s in turns; journal on {}\n",
            config.value_bytes, config.key_bytes, config.rounds, config.seconds_per_turn, config.journal
        );
        let headings = ["committers", "", "puts/s", "p50 us", "p99 us", "p999 us", "us CPU a put"];
        let mut table = Table::new(&headings);
        for run in &self.runs {
            table.row(vec![
                run.committers.to_string(),
                run.name.to_owned(),
                grouped(run.puts_per_s),
                format!("{:.0}", run.p50_us),
                format!("{:.0}", run.p99_us),
                format!("{:.0}", run.p999_us),
                format!("{:.1}", run.cpu_us_per_put),
            ]);
        }
        let _ = writeln!(text, "{table}");
        let mut table = Table::new(&["committers", "store over", "median", "quartiles"]);
        for against in &self.against {
            table.row(vec![
                against.committers.to_string(),
                against.name.to_owned(),
                format!("{:.2}", against.median),
                format!("{:.2} to {:.2}", against.low, against.high),
            ]);
        }
        let _ = writeln!(text, "{table}");
        let durability = self.runs.first().map_or("none", |run| run.durability);
        let _ = writeln!(text, "durability: {durability}; {}, {} processors", self.machine.cpu, self.machine.cores);
        let _ = writeln!(
            text,
            "raw: one writer, all committers' bytes in one write and flush; a put of it waits for no other."
        );
        text
    }
}

impl PutRun {
    fn of((committers, name, turns): &Measured, durability: &'static str) -> PutRun {
        let mut latency = Histogram::default();
        turns.iter().for_each(|turn| latency.add(&turn.latency));
        let us = |quantile| latency.quantile(quantile) as f64 / 1e3;
        let puts = turns.iter().map(|turn| turn.puts).sum::<u64>() as f64;
        PutRun {
            name,
            durability,
            real: durability != "emulated",
            committers: *committers,
            puts_per_s: puts / turns.iter().map(|turn| turn.seconds).sum::<f64>(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            cpu_us_per_put: turns.iter().map(|turn| turn.cpu_ns).sum::<f64>() / 1e3 / puts.max(1.0),
        }
    }
}
