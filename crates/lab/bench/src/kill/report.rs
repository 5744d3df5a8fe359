//! What the kills left: the table, and whether the promise was kept.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{CRASH_WINDOW, Figures, KillOptions, Stored};
use crate::load::{Account, Counts};

/// The result of the harness.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KillReport {
    /// Kills.
    pub rounds: usize,
    /// Those of them while the node was recovering from the one before.
    pub killed_in_recovery: usize,
    /// Inbound services.
    pub services: usize,
    /// Seed of the run.
    pub seed: u64,
    /// The account of the load.
    pub counts: Counts,
    /// Acknowledged messages that did not reach an interface, over all interfaces.
    pub lost: u64,
    /// Messages never acknowledged that reached some interfaces only.
    pub partial: u64,
    /// What the journal holds afterwards.
    pub stored: Stored,
    /// Whether all was acknowledged and delivered before the harness stopped waiting.
    pub drained: bool,
    /// Whether the last node stopped on SIGTERM with success.
    pub stopped: bool,
    /// Median time from the start of the process until it is ready, after a kill; milliseconds.
    pub recovery_ms_p50: f64,
    /// The longest.
    pub recovery_ms_max: f64,
    /// Longest time from send to acknowledgement: how long a commit took at worst; milliseconds.
    pub ack_ms_max: f64,
    /// Folder of the node's data; there if it was asked for or the run is not clean.
    pub data: PathBuf,
    /// The first violations, for people.
    pub examples: Vec<String>,
}

impl KillReport {
    pub(super) fn new(options: &KillOptions, account: &Account, figures: &Figures, data: &Path) -> KillReport {
        let millis = |quantile| figures.recovery_us.quantile(quantile) as f64 / 1000.0;
        KillReport {
            rounds: options.rounds,
            killed_in_recovery: figures.killed_in_recovery,
            services: options.services,
            seed: options.seed,
            counts: account.counts(),
            lost: account.lost(),
            partial: account.partial(),
            stored: figures.stored,
            drained: figures.drained,
            stopped: figures.stopped,
            recovery_ms_p50: millis(0.5),
            recovery_ms_max: millis(1.0),
            ack_ms_max: figures.ack_us_max as f64 / 1000.0,
            data: data.to_owned(),
            examples: account.examples(),
        }
    }

    /// Whether the promise was kept.
    pub fn is_clean(&self) -> bool {
        let counts = &self.counts;
        let unexcused = counts.duplicated - counts.excused;
        let faults = [
            self.lost,
            self.partial,
            unexcused,
            counts.out_of_order,
            counts.wrong,
            counts.foreign,
            counts.framing,
            counts.bad_acknowledgements,
            self.stored.missing,
            self.stored.again.abs_diff(self.stored.flagged),
        ];
        self.drained && self.stopped && counts.acknowledged > 0 && faults.iter().all(|fault| *fault == 0)
    }

    /// The report as one JSON object, ended by a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data with text keys");
        text.push('\n');
        text
    }

    /// The report as a table; with violations and the command to repeat the run if there are any.
    pub fn to_text(&self) -> String {
        let counts = &self.counts;
        let mut out = String::new();
        let _ = writeln!(out, "kill -9 under load, {} services, 4 interfaces, seed {}\n", self.services, self.seed);
        let window = CRASH_WINDOW.as_millis();
        for (what, figure) in [
            ("rounds", self.rounds as u64),
            ("  killed in recovery", self.killed_in_recovery as u64),
            ("acknowledged", counts.acknowledged),
            ("delivered", counts.delivered),
            ("lost (must be 0)", self.lost),
            ("out of order (must be 0)", counts.out_of_order),
            ("wrong content (must be 0)", counts.wrong),
            ("unacknowledged, delivered in part (must be 0)", self.partial),
            ("duplicates without excuse (must be 0)", counts.duplicated - counts.excused),
            ("other faults (must be 0)", counts.foreign + counts.framing + counts.bad_acknowledgements),
            ("acknowledged, not in the journal (must be 0)", self.stored.missing),
            ("duplicates of crash windows and resends", counts.excused),
            ("messages sent again by their senders", counts.resends),
            ("  of these stored already", self.stored.again),
            ("  of these flagged as duplicates (must be all)", self.stored.flagged),
            ("messages given up by their senders", counts.given_up),
            ("refused for the time being", counts.refused),
        ] {
            let _ = writeln!(out, "  {what:<48}{figure:>12}");
        }
        let _ = writeln!(out, "  {:<48}{:>9} ms", "oldest delivery repeated after a kill", counts.oldest_excused_ms);
        let _ = writeln!(out, "  {:<48}{window:>9} ms", "  allowed");
        let _ = writeln!(out, "  {:<48}{:>9.1} ms", "acknowledgement, longest", self.ack_ms_max);
        let _ = writeln!(out, "  {:<48}{:>9.1} ms", "recovery, median", self.recovery_ms_p50);
        let _ = writeln!(out, "  {:<48}{:>9.1} ms", "recovery, longest", self.recovery_ms_max);
        if self.is_clean() {
            let _ = writeln!(out, "\nEvery acknowledged message reached every receiver, in order.");
        } else {
            for example in &self.examples {
                let _ = writeln!(out, "  fault: {example}");
            }
            let (rounds, seed) = (self.rounds, self.seed);
            let drained = if self.drained { "" } else { "; the queues did not drain" };
            let stopped = if self.stopped { "" } else { "; the node did not stop cleanly" };
            let _ = writeln!(
                out,
                "\nTHE PROMISE IS BROKEN{drained}{stopped}. The node's data is in {}; repeat with\n  \
                 terrace bench kill --rounds {rounds} --seed {seed}",
                self.data.display()
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(account: &Account, drained: bool) -> KillReport {
        let figures = Figures { drained, stopped: true, ..Figures::default() };
        KillReport::new(&KillOptions::default(), account, &figures, Path::new("/data"))
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
            assert!(!report.examples.is_empty(), "violation {number}");
        }
    }
}
