//! The results of the kills: the table, and whether the promise was kept.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{BankReport, CRASH_WINDOW, Figures, KillOptions, Stored, Verifies};
use workload::load::{Account, Counts};
use workload::machine::Machine;

/// The result of the harness. The keys down to `runs` are the contract of all benches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KillReport {
    /// Always `kill`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: KillConfig,
    /// One run.
    pub runs: [KillRun; 1],
}

/// The options of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KillConfig {
    /// Kills.
    pub rounds: usize,
    /// Inbound services.
    pub services: usize,
    /// SQL connections.
    pub connections: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Folder of the node's data; present if it was requested or the run is not clean.
    pub data: PathBuf,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KillRun {
    /// Names the run.
    pub name: &'static str,
    /// The durability of a flush of the journal: `power-fail-safe`, `emulated` or `none`, as the node reports it. It
    /// does not matter for a kill: data that a process has written survives its end.
    pub durability: String,
    /// False if the journal's medium is a timing model.
    pub real: bool,
    /// Kills.
    pub rounds: usize,
    /// Those of them while the node was recovering from the one before.
    pub killed_in_recovery: usize,
    /// The account of the messages.
    pub counts: Counts,
    /// Acknowledged messages that did not reach an interface, over all interfaces.
    pub lost: u64,
    /// Messages never acknowledged that reached some interfaces only.
    pub partial: u64,
    /// The messages in the journal afterwards.
    pub stored: Stored,
    /// The account of the transactions.
    pub sql: BankReport,
    /// The findings of `terrace verify`.
    pub verify: Verifies,
    /// Whether all was acknowledged and delivered before the harness stopped waiting.
    pub drained: bool,
    /// Whether the last node stopped on SIGTERM with success.
    pub stopped: bool,
    /// Median time from the start of the process until it is ready, after a kill; milliseconds.
    pub recovery_ms_p50: f64,
    /// The longest.
    pub recovery_ms_max: f64,
    /// Longest time from send to acknowledgement of a message: how long a commit took at worst; milliseconds.
    pub ack_ms_max: f64,
    /// The first violations, for people.
    pub examples: Vec<String>,
}

impl KillReport {
    pub(super) fn new(
        options: &KillOptions,
        account: &Account,
        sql: BankReport,
        figures: &Figures,
        data: &Path,
    ) -> KillReport {
        let millis = |quantile| figures.recovery_us.quantile(quantile) as f64 / 1000.0;
        let KillOptions { rounds, services, connections, seed, .. } = *options;
        let run = KillRun {
            name: "kill -9 under messages and SQL",
            durability: figures.durability.clone(),
            real: figures.real,
            rounds,
            killed_in_recovery: figures.killed_in_recovery,
            counts: account.counts(),
            lost: account.lost(),
            partial: account.partial(),
            stored: figures.stored,
            sql,
            verify: figures.verifies.clone(),
            drained: figures.drained,
            stopped: figures.stopped,
            recovery_ms_p50: millis(0.5),
            recovery_ms_max: millis(1.0),
            ack_ms_max: figures.ack_us_max as f64 / 1000.0,
            examples: [account.examples(), figures.verifies.examples.clone()].concat(),
        };
        KillReport {
            bench: "kill",
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            config: KillConfig { rounds, services, connections, seed, data: data.to_owned() },
            runs: [run],
        }
    }

    /// Whether the promise was kept.
    pub fn is_clean(&self) -> bool {
        let [run] = &self.runs;
        let counts = &run.counts;
        let unexcused = counts.duplicated - counts.excused;
        let faults = [
            run.lost,
            run.partial,
            unexcused,
            counts.out_of_order,
            counts.wrong,
            counts.foreign,
            counts.framing,
            counts.bad_acknowledgements,
            run.stored.missing,
            run.stored.again.abs_diff(run.stored.flagged),
            run.sql.faults(),
            run.verify.damaged,
        ];
        let loaded = counts.acknowledged > 0 && run.sql.acknowledged > 0;
        run.drained && run.stopped && loaded && faults.iter().all(|fault| *fault == 0)
    }

    /// The report as one JSON object, ended by a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data with text keys");
        text.push('\n');
        text
    }

    /// The report as a table; with violations and the command to repeat the run if there are any.
    pub fn to_text(&self) -> String {
        let ([run], KillConfig { services, connections, seed, .. }) = (&self.runs, &self.config);
        let mut out = String::new();
        let _ = writeln!(
            out,
            "kill -9 under load, {services} services, 4 interfaces, {connections} SQL connections, seed {seed}\n"
        );
        for (what, figure) in run.figures() {
            let _ = writeln!(out, "  {what:<48}{figure:>12}");
        }
        let window = CRASH_WINDOW.as_millis();
        let _ =
            writeln!(out, "  {:<48}{:>9} ms", "oldest delivery repeated after a kill", run.counts.oldest_excused_ms);
        let _ = writeln!(out, "  {:<48}{window:>9} ms", "  allowed");
        let _ = writeln!(out, "  {:<48}{:>9.1} ms", "acknowledgement, longest", run.ack_ms_max);
        let _ = writeln!(out, "  {:<48}{:>9.1} ms", "recovery, median", run.recovery_ms_p50);
        let _ = writeln!(out, "  {:<48}{:>9.1} ms", "recovery, longest", run.recovery_ms_max);
        if self.is_clean() {
            let _ = writeln!(
                out,
                "\nEvery acknowledged message reached every receiver, in order; every acknowledged transaction is there, whole;\n\
                 `terrace verify` found nothing wrong."
            );
        } else {
            self.list_faults(&mut out);
        }
        out
    }

    fn list_faults(&self, out: &mut String) {
        let ([run], KillConfig { rounds, seed, data, .. }) = (&self.runs, &self.config);
        for example in &run.examples {
            let _ = writeln!(out, "  fault: {example}");
        }
        let drained = if run.drained { "" } else { "; the queues did not drain" };
        let stopped = if run.stopped { "" } else { "; the node did not stop cleanly" };
        let _ = writeln!(
            out,
            "\nTHE PROMISE IS BROKEN{drained}{stopped}. The node's data is in {}; repeat with\n  \
             terrace bench kill --rounds {rounds} --seed {seed}",
            data.display()
        );
    }
}

impl KillRun {
    fn figures(&self) -> Vec<(&'static str, u64)> {
        let (counts, sql) = (&self.counts, &self.sql);
        vec![
            ("rounds", self.rounds as u64),
            ("  killed in recovery", self.killed_in_recovery as u64),
            ("verified, running", self.verify.running),
            ("verified, as it lies", self.verify.files),
            ("  found damaged (must be 0)", self.verify.damaged),
            ("messages acknowledged", counts.acknowledged),
            ("  delivered", counts.delivered),
            ("  lost (must be 0)", self.lost),
            ("  out of order (must be 0)", counts.out_of_order),
            ("  wrong content (must be 0)", counts.wrong),
            ("  unacknowledged, delivered in part (must be 0)", self.partial),
            ("  duplicates without excuse (must be 0)", counts.duplicated - counts.excused),
            ("  other faults (must be 0)", counts.foreign + counts.framing + counts.bad_acknowledgements),
            ("  acknowledged, not in the journal (must be 0)", self.stored.missing),
            ("  duplicates of crash windows and resends", counts.excused),
            ("  sent again by their senders", counts.resends),
            ("    of these stored already", self.stored.again),
            ("    of these flagged as duplicates (must be all)", self.stored.flagged),
            ("  given up by their senders", counts.given_up),
            ("  refused for the time being", counts.refused),
            ("transactions acknowledged", sql.acknowledged),
            ("  lost (must be 0)", sql.compared.lost),
            ("  half there (must be 0)", sql.compared.half),
            ("  there and never committed (must be 0)", sql.compared.foreign),
            ("  wrong sums of all balances (must be 0)", sql.wrong_sums),
            ("  looked at, times", sql.looks),
            ("  in doubt after a kill, and there whole", sql.compared.found),
            ("  in doubt after a kill, and not there", sql.compared.absent),
            ("  refused: another one was faster", sql.refused),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::BankCompared;
    use super::*;

    fn report(account: &Account, drained: bool) -> KillReport {
        with_sql(account, BankReport { acknowledged: 1, ..BankReport::default() }, Verifies::default(), drained)
    }

    fn with_sql(account: &Account, sql: BankReport, verifies: Verifies, drained: bool) -> KillReport {
        let figures = Figures { drained, stopped: true, verifies, ..Figures::default() };
        KillReport::new(&KillOptions::default(), account, sql, &figures, Path::new("/data"))
    }

    fn account() -> Account {
        let mut account = Account::new(1, 1, Duration::from_millis(10));
        account.send(0, 0);
        account.acknowledge(0, 0);
        account
    }

    #[test]
    fn a_kept_promise_is_clean_with_excused_duplicates() {
        let mut account = account();
        account.deliver(0, 0, 0, 1);
        account.kill(2..=2);
        account.deliver(0, 0, 0, 3);
        assert_eq!(account.counts().excused, 1);
        assert!(report(&account, true).is_clean());
        assert!(!report(&account, false).is_clean(), "queues that do not drain are a violation");
    }

    #[test]
    fn each_violation_is_broken_promise_with_the_command_to_repeat_it() {
        let violations: [fn(&mut Account); 7] = [
            |_| (), // never delivered
            |account| (0..2).for_each(|_| account.deliver(0, 0, 0, 1)),
            |account| account.foreign(0, "something"),
            |account| account.wrong(0, || "bytes".to_owned()),
            |account| account.framing(|| "junk".to_owned()),
            |account| account.bad_acknowledgement(0, 0, b""),
            |account| {
                account.send(0, 1);
                account.acknowledge(0, 1);
                account.deliver(0, 0, 1, 1);
                account.deliver(0, 0, 0, 1);
            },
        ];
        for (number, violate) in violations.into_iter().enumerate() {
            let mut account = account();
            if (2..6).contains(&number) {
                account.deliver(0, 0, 0, 1);
            }
            violate(&mut account);
            let report = report(&account, true);
            assert!(!report.is_clean(), "violation {number}");
            assert!(report.to_text().contains("terrace bench kill --rounds 50 --seed 1"), "{number}");
            assert!(!report.runs[0].examples.is_empty(), "violation {number}");
        }
    }

    #[test]
    fn a_fault_of_sql_or_of_a_verification_is_a_broken_promise_and_so_is_sql_without_a_transaction() {
        let mut account = account();
        account.deliver(0, 0, 0, 1);
        let sound = BankReport { acknowledged: 1, ..BankReport::default() };
        let compared = |compared| BankReport { compared, ..sound };
        let damaged = Verifies { damaged: 1, ..Verifies::default() };
        for (sql, verifies) in [
            (BankReport::default(), Verifies::default()),
            (compared(BankCompared { lost: 1, ..BankCompared::default() }), Verifies::default()),
            (compared(BankCompared { half: 1, ..BankCompared::default() }), Verifies::default()),
            (compared(BankCompared { foreign: 1, ..BankCompared::default() }), Verifies::default()),
            (BankReport { wrong_sums: 1, ..sound }, Verifies::default()),
            (sound, damaged),
        ] {
            let report = with_sql(&account, sql, verifies, true);
            assert!(!report.is_clean(), "{sql:?}");
            assert!(report.to_text().contains("THE PROMISE IS BROKEN"), "{sql:?}");
        }
        let in_doubt = compared(BankCompared { found: 1, absent: 1, ..BankCompared::default() });
        assert!(with_sql(&account, in_doubt, Verifies::default(), true).is_clean());
    }

    #[test]
    fn the_json_has_the_keys_of_the_contract() {
        let text = report(&account(), true).to_json();
        let json: serde_json::Value = serde_json::from_str(&text).expect("our own JSON");
        for key in ["bench", "version", "machine", "config"] {
            assert!(!json[key].is_null(), "{key}");
        }
        for key in ["name", "durability", "real", "rounds", "lost", "sql", "verify"] {
            assert!(!json["runs"][0][key].is_null(), "{key}");
        }
        assert_eq!(json["runs"][0]["sql"]["lost"], 0);
    }
}
