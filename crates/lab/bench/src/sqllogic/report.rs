//! The results of the scripts: as tables for people, as one JSON object for scripts.
//!
//! Records are counted, each once: passed, failed, skipped (it is for other engines), or not drawn (the run takes a share).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::reasons::Kind;
use workload::machine::Machine;
use workload::table::{Table, grouped};

/// Counts of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// As expected.
    pub passed: u64,
    /// Otherwise.
    pub failed: u64,
    /// For other engines, according to the script.
    pub skipped: u64,
    /// Not in the share of this run.
    pub not_drawn: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.not_drawn += other.not_drawn;
    }

    fn cells(self) -> [String; 5] {
        let ran = self.passed + self.failed;
        let share = if ran == 0 { "-".into() } else { share(self.passed, ran) };
        [self.passed, self.failed, self.skipped, self.not_drawn]
            .map(|count| grouped(count as f64))
            .into_iter()
            .chain([share])
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_default()
    }
}

/// A percentage that is 100 only for all of them.
fn share(passed: u64, ran: u64) -> String {
    let hundredths = passed * 10_000 / ran;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Records that fail for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// Its cause.
    pub kind: Kind,
    /// The reason.
    pub reason: String,
    /// How many.
    pub records: u64,
    /// One of them: file and line, the query, the result.
    pub example: String,
}

/// Everything about one run.
#[derive(Clone, Debug, Serialize)]
pub struct SqllogicReport {
    /// Always `sqllogic`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The seed with which the share was drawn.
    pub seed: u64,
    /// Scripts of a folder.
    pub files: usize,
    /// Queries of a script.
    pub queries: usize,
    /// How long it took.
    pub seconds: f64,
    /// Records of all scripts that ran.
    pub total: Counts,
    /// By script.
    pub scripts: BTreeMap<String, Counts>,
    /// By reason, most records first.
    pub failures: Vec<Failures>,
}

impl SqllogicReport {
    /// Whether every failure has a known reason.
    pub fn is_clean(&self) -> bool {
        self.failures.iter().all(|failures| failures.kind != Kind::New)
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "sqllogictest: {} scripts; seed {}, {} scripts of a folder, {} queries of a script; {:.0} s\n",
            self.scripts.len(),
            self.seed,
            self.files,
            self.queries,
            self.seconds
        );
        let headings = ["records of", "passed", "failed", "skipped", "not drawn", "% passed"];
        let row = |table: &mut Table, name: &str, counts: Counts| {
            table.row(std::iter::once(name.to_owned()).chain(counts.cells()).collect());
        };
        let mut table = Table::new(&headings);
        for (script, counts) in &self.scripts {
            row(&mut table, script, *counts);
        }
        let _ = writeln!(text, "{table}");
        let mut folders: BTreeMap<&str, Counts> = BTreeMap::new();
        for (script, counts) in &self.scripts {
            folders.entry(folder(script)).or_default().add(*counts);
        }
        let mut table = Table::new(&headings);
        for (folder, counts) in folders {
            row(&mut table, folder, counts);
        }
        row(&mut table, "all", self.total);
        let _ = writeln!(text, "{table}");
        if !self.failures.is_empty() {
            let mut table = Table::new(&["failed", "why", "reason"]);
            for failures in &self.failures {
                let reason = failures.reason.clone();
                table.row(vec![grouped(failures.records as f64), failures.kind.name().into(), reason]);
            }
            let _ = writeln!(text, "{table}");
            let _ = writeln!(text, "One of each:");
            for failures in &self.failures {
                let _ = writeln!(text, "  {}\n    {}", failures.reason, failures.example);
            }
        }
        text
    }
}

/// A script's folder; scripts at the top are `select`.
fn folder(script: &str) -> &str {
    let parts: Vec<&str> = script.split('/').collect();
    match parts[..] {
        [_] => "select",
        [folder, _] => folder,
        _ => &script[..parts[0].len() + 1 + parts[1].len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_of_them_are_100_percent() {
        assert_eq!(share(99_999, 100_000), "99.99");
        assert_eq!(share(5, 5), "100.00");
    }

    #[test]
    fn a_folder_is_at_most_two_levels() {
        for (script, name) in
            [("select1.test", "select"), ("evidence/in1.test", "evidence"), ("index/in/10/slt_1.test", "index/in")]
        {
            assert_eq!(folder(script), name);
        }
    }
}
