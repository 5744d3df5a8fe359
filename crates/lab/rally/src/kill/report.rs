//! The results of the kills under bulk requests: the table, and whether the promise was kept.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use workload::machine::Machine;

use super::{Compared, KillFigures, SearchKillOptions, again};

/// The result of the harness. The keys down to `runs` are the contract of all benches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchKillReport {
    /// Always `kill`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: SearchKillConfig,
    /// One run.
    pub runs: [SearchKillRun; 1],
}

/// The options of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchKillConfig {
    /// Kills.
    pub rounds: usize,
    /// Writers.
    pub writers: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Folder of the node's data; present if it was requested or the run is not clean.
    pub data: PathBuf,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchKillRun {
    /// Names the run.
    pub name: &'static str,
    /// The durability of a flush of the journal, as the node reports it. It does not matter for a kill: data that a process has
    /// written survives its end.
    pub durability: String,
    /// False if the journal's medium is a timing model.
    pub real: bool,
    /// Kills.
    pub rounds: usize,
    /// Those of them while the node was recovering from the one before.
    pub killed_in_recovery: usize,
    /// Changes of documents acknowledged.
    pub acknowledged: u64,
    /// Changes refused.
    pub refused: u64,
    /// Documents at the end.
    pub documents: u64,
    /// How often all documents were compared.
    pub comparisons: u64,
    /// What that found.
    pub compared: Compared,
    /// Calls of `terrace verify`.
    pub verified: u64,
    /// Those that found damage.
    pub damaged: u64,
    /// Whether the last node stopped on SIGTERM with success.
    pub stopped: bool,
    /// Median time from the start of the process until searches are served, after a kill; milliseconds.
    pub recovery_ms_p50: f64,
    /// The longest.
    pub recovery_ms_max: f64,
    /// The first violations, for people.
    pub examples: Vec<String>,
}

impl SearchKillReport {
    pub(super) fn new(options: &SearchKillOptions, figures: &KillFigures, data: &Path) -> SearchKillReport {
        let SearchKillOptions { rounds, writers, seed, .. } = *options;
        let millis = |quantile| figures.recovery_us.quantile(quantile) as f64 / 1000.0;
        let run = SearchKillRun {
            name: "kill -9 under bulk requests",
            durability: figures.durability.clone(),
            real: figures.real,
            rounds,
            killed_in_recovery: figures.killed_in_recovery,
            acknowledged: figures.acknowledged,
            refused: figures.refused,
            documents: figures.live,
            comparisons: figures.comparisons,
            compared: figures.compared,
            verified: figures.verified,
            damaged: figures.damaged,
            stopped: figures.stopped,
            recovery_ms_p50: millis(0.5),
            recovery_ms_max: millis(1.0),
            examples: figures.examples.clone(),
        };
        SearchKillReport {
            bench: "kill",
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            config: SearchKillConfig { rounds, writers, seed, data: data.to_owned() },
            runs: [run],
        }
    }

    /// Whether the promise was kept.
    pub fn is_clean(&self) -> bool {
        let [run] = &self.runs;
        run.stopped && run.acknowledged > 0 && run.damaged == 0 && run.compared.faults() == 0
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data becomes JSON")
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let [run] = &self.runs;
        let compared = &run.compared;
        let mut out = format!("Kill, search: Terrace {}, seed {}\n\n", self.version, self.config.seed);
        for (name, value) in [
            ("rounds", run.rounds as u64),
            ("  killed in recovery", run.killed_in_recovery as u64),
            ("changes of documents acknowledged", run.acknowledged),
            ("  refused", run.refused),
            ("documents at the end", run.documents),
            ("comparisons of all documents", run.comparisons),
            ("  lost (must be 0)", compared.lost),
            ("  bulks half there (must be 0)", compared.half),
            ("  never sent, or replaced before (must be 0)", compared.foreign),
            ("  of a wrong version (must be 0)", compared.wrong_version),
            ("  not found by a search as they are (must be 0)", compared.not_searched),
            ("  bulks in doubt after a kill, and there whole", compared.found),
            ("  bulks in doubt after a kill, and not there", compared.absent),
            ("files verified", run.verified),
            ("  found damaged (must be 0)", run.damaged),
        ] {
            let _ = writeln!(out, "  {name:<52}{value:>9}");
        }
        let _ = writeln!(out, "  {:<52}{:>9.1} ms", "recovery, median", run.recovery_ms_p50);
        let _ = writeln!(out, "  {:<52}{:>9.1} ms", "recovery, longest", run.recovery_ms_max);
        if self.is_clean() {
            out.push_str("\nEvery acknowledged document is there with its last version, by id and by search.\n");
        } else {
            for example in &run.examples {
                let _ = writeln!(out, "  fault: {example}");
            }
            let stopped = if run.stopped { "" } else { "; the node did not stop cleanly" };
            let _ = writeln!(out, "\nTHE PROMISE IS BROKEN{stopped}. {}", again(&self.config, &self.config.data));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> KillFigures {
        KillFigures { acknowledged: 1, stopped: true, ..KillFigures::default() }
    }

    fn report(figures: &KillFigures) -> SearchKillReport {
        SearchKillReport::new(&SearchKillOptions::default(), figures, Path::new("/data"))
    }

    #[test]
    fn each_violation_is_a_broken_promise_with_the_command_to_repeat_it_and_so_is_a_run_without_a_change() {
        let kept = Compared { found: 1, absent: 1, ..Compared::default() };
        assert!(report(&KillFigures { compared: kept, ..figures() }).is_clean());
        let faults: [fn(&mut KillFigures); 8] = [
            |figures| figures.compared.lost = 1,
            |figures| figures.compared.half = 1,
            |figures| figures.compared.foreign = 1,
            |figures| figures.compared.wrong_version = 1,
            |figures| figures.compared.not_searched = 1,
            |figures| figures.damaged = 1,
            |figures| figures.stopped = false,
            |figures| figures.acknowledged = 0,
        ];
        for (number, violate) in faults.into_iter().enumerate() {
            let mut broken = figures();
            violate(&mut broken);
            let report = report(&broken);
            assert!(!report.is_clean(), "violation {number}");
            let text = report.to_text();
            assert!(text.contains("terrace bench kill --search --rounds 50 --seed 1"), "{text}");
        }
    }

    #[test]
    fn the_json_has_the_keys_of_the_contract() {
        let json: serde_json::Value = serde_json::from_str(&report(&figures()).to_json()).expect("our own JSON");
        for key in ["bench", "version", "machine", "config"] {
            assert!(!json[key].is_null(), "{key}");
        }
        for key in ["name", "durability", "real", "rounds", "compared"] {
            assert!(!json["runs"][0][key].is_null(), "{key}");
        }
    }
}
