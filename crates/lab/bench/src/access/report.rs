//! The result of access: as one JSON object for scripts, as tables for people.
//!
//! The JSON keys are a contract (`bench, version, machine, config, runs, reads`): keys may be added, never renamed. `runs` has the pairs
//! of refusals and the loads.

use std::fmt::Write as _;

use serde::Serialize;

use super::AccessOptions;
use super::cost::LEAST;
use super::reads::ReadsRun;
use super::timing::{LIMIT, TimingRun};
use crate::turns::{CostRun, table};
use workload::machine::{Machine, load_average};
use workload::table::{Table, grouped};

/// Everything about one run of the bench.
#[derive(Clone, Debug, Serialize)]
pub struct AccessReport {
    /// Always `access`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: AccessConfig,
    /// The figures.
    pub runs: Vec<AccessRun>,
    /// Reads in the audit, if they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadsRun>,
}

/// The options of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccessConfig {
    /// Samples of each request of a pair.
    pub samples: usize,
    /// Pairs of turns.
    pub pairs: usize,
    /// Seconds of a turn of queries.
    pub seconds_per_turn: f64,
    /// Services of T4, and messages to each.
    pub t4: (usize, usize),
    /// What the side without rights is.
    pub without: String,
    /// How logins were kept from being slowed down.
    pub logins: &'static str,
    /// Whether the programs were optimised.
    pub optimised: bool,
    /// The seed.
    pub seed: u64,
    /// The machine's load at the end.
    pub load_average: Option<f64>,
}

/// One line of figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AccessRun {
    /// A pair of refusals.
    Timing(TimingRun),
    /// A load with and without rights.
    Cost(CostRun),
}

impl AccessReport {
    pub(super) fn new(
        options: &AccessOptions,
        timing: Vec<TimingRun>,
        cost: Vec<CostRun>,
        reads: Option<ReadsRun>,
    ) -> AccessReport {
        let without = match &options.against {
            Some(program) => format!("{}, without rights", program.display()),
            None => "the same program: who has all rights, no mask; audited as the other side".to_owned(),
        };
        let config = AccessConfig {
            samples: options.samples,
            pairs: options.pairs,
            seconds_per_turn: options.turn.as_secs_f64(),
            t4: options.t4,
            without,
            logins: "each from an address of 127.0.0.0/8 of its own: the slowing-down is on, and has no failure to count",
            optimised: !cfg!(debug_assertions),
            seed: options.seed,
            load_average: load_average(),
        };
        let runs = timing.into_iter().map(AccessRun::Timing).chain(cost.into_iter().map(AccessRun::Cost));
        AccessReport {
            bench: "access",
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            config,
            runs: runs.collect(),
            reads,
        }
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// Whether every read is in the audit: what does not hang on the machine's speed.
    pub fn is_clean(&self) -> bool {
        self.reads.as_ref().is_none_or(ReadsRun::holds)
    }

    /// The targets that were missed, a line each.
    pub fn missed(&self) -> Vec<String> {
        let line = |run: &AccessRun| match run {
            AccessRun::Timing(run) if !run.within => Some(format!(
                "target missed: {}: the medians differ by {:.1} %, at most {LIMIT} % are allowed: MISSED",
                run.name, run.difference.median
            )),
            AccessRun::Cost(run) if !run.holds => Some(format!(
                "target missed: {}: {:.3} of the rate without, at least {LEAST} is wanted: MISSED",
                run.name, run.ratio.median
            )),
            _ => None,
        };
        self.runs.iter().filter_map(line).collect()
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.put_timing(&mut text);
        self.put_cost(&mut text);
        if let Some(run) = &self.reads {
            put_reads(&mut text, run);
        }
        let (machine, config) = (&self.machine, &self.config);
        let optimised = if config.optimised { "" } else { "; not optimised: the figures say nothing" };
        let _ = write!(text, "{}, {} processors, seed {}{optimised}", machine.cpu, machine.cores, config.seed);
        text
    }

    fn put_timing(&self, text: &mut String) {
        let mut table = Table::new(&[
            "pairs that must not be told apart",
            "first us",
            "second us",
            "difference %",
            "95 %",
            "within 2 %",
        ]);
        for run in &self.runs {
            let AccessRun::Timing(run) = run else { continue };
            table.row(vec![
                run.name.clone(),
                format!("{:.0}", run.first_us),
                format!("{:.0}", run.second_us),
                format!("{:+.2}", run.difference.median),
                format!("{:+.2} to {:+.2}", run.difference.low, run.difference.high),
                match (run.within, run.is_sure) {
                    (true, true) => "yes".to_owned(),
                    (true, false) => "yes, not surely".to_owned(),
                    (false, _) => "NO".to_owned(),
                },
            ]);
        }
        if !table.is_empty() {
            let _ = writeln!(text, "{table}");
            let _ = writeln!(
                text,
                "{} samples of each, in random order; logins {}\n",
                self.config.samples, self.config.logins
            );
        }
    }

    fn put_cost(&self, text: &mut String) {
        let costs = self.runs.iter().filter_map(|run| match run {
            AccessRun::Cost(run) => Some(run),
            AccessRun::Timing(_) => None,
        });
        let table = table(costs, LEAST);
        if !table.is_empty() {
            let _ = writeln!(text, "{table}");
            let _ = writeln!(text, "{} pairs of turns; without: {}\n", self.config.pairs, self.config.without);
        }
    }
}

fn put_reads(text: &mut String, run: &ReadsRun) {
    let _ = writeln!(
        text,
        "{} bodies read by {} users in {:.0} s beside {} messages (99 of 100 acknowledged within {:.0} ms):\n\
         {} without an entry, {} entries too many, {} entries later than the answer; the audit has {} entries, its chain {}\n",
        grouped(run.reads as f64),
        run.users,
        run.seconds,
        grouped(run.inbound as f64),
        run.ack_ms_p99,
        run.missing,
        run.extra,
        run.late,
        grouped(run.entries as f64),
        if run.chain.is_empty() { "holds".to_owned() } else { format!("is broken: {}", run.chain) },
    );
}
