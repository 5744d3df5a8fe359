//! The cost of building: processor seconds of the steps that build, and the crates that take the most time.
//!
//! ```text
//!   build: 1204 processor seconds (clippy 310, test 894); by crate, in seconds of cargo's timings:
//!     datafusion 96.1   sql 88.0   ...
//! ```
//!
//! The seconds are the processor time that the system accounts to ended children. The crates come from cargo's own
//! report (`--timings`), which measures elapsed time: a crate that shares busy processors takes longer, so these
//! numbers are only a ranking. A wrapper of rustc could measure processor time for each crate. But cargo compares the
//! wrapper too, and would build everything again.
//!
//! A step that built nothing is left out. This module does not compare figures with a limit: it appends them to a file.

use super::step::Place;
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// The number of crates that are shown, beginning with the slowest.
const CRATES_SHOWN: usize = 12;

/// The unit of `/proc/self/stat`: USER_HZ, 100 on each architecture that Terrace is built for (proc(5), "clock ticks").
const TICKS_A_SECOND: f64 = 100.0;

/// The text before the path in cargo's message about its report.
const REPORT: &str = "Timing report saved to ";

/// The builds of all steps so far.
#[derive(Debug, Default)]
pub(crate) struct BuildCost {
    /// Processor seconds by step, in order.
    steps: Vec<(String, f64)>,
    /// Seconds by crate.
    crates: BTreeMap<String, f64>,
}

impl BuildCost {
    /// Runs cargo with `--timings` and adds the cost of its build. Returns whether it succeeded, and its output.
    pub(crate) fn cargo(&mut self, place: &Place, name: &str, command: &mut Command) -> anyhow::Result<(bool, String)> {
        let before = children_seconds()?;
        let (ok, log) = place.run(name, command)?;
        let seconds = children_seconds()? - before;
        let path = log.lines().find_map(|line| line.trim().strip_prefix(REPORT));
        // A build that failed early has no report.
        if let Some(path) = path {
            let report = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
            // Each build writes a report with the time in its name. They are removed, or they would fill the folder.
            std::fs::remove_file(path).with_context(|| format!("cannot remove {path}"))?;
            self.add(name, seconds, &built(&report)?);
        }
        Ok((ok, log))
    }

    fn add(&mut self, step: &str, seconds: f64, built: &[(String, f64)]) {
        if built.is_empty() {
            return;
        }
        self.steps.push((step.to_owned(), seconds));
        for (name, took) in built {
            *self.crates.entry(name.clone()).or_default() += took;
        }
    }

    /// The figures as two lines, or `None` if nothing was built.
    pub(crate) fn report(&self) -> Option<String> {
        if self.steps.is_empty() {
            return None;
        }
        let total: f64 = self.steps.iter().map(|(_, seconds)| seconds).sum();
        let steps: Vec<String> = self.steps.iter().map(|(name, seconds)| format!("{name} {seconds:.0}")).collect();
        let mut crates: Vec<(&String, &f64)> = self.crates.iter().collect();
        crates.sort_by(|one, other| other.1.total_cmp(one.1));
        let most: Vec<String> =
            crates.iter().take(CRATES_SHOWN).map(|(name, seconds)| format!("{name} {seconds:.1}")).collect();
        Some(format!(
            "build: {total:.0} processor seconds ({}); by crate, in seconds of cargo's timings:\n  {}\n",
            steps.join(", "),
            most.join("   ")
        ))
    }

    /// Appends the figures to `build-cost.txt` in the cache folder, with the commit that was built.
    pub(crate) fn keep(report: &str, root: &Path, cache: &Path) -> anyhow::Result<()> {
        let commit = Command::new("git").args(["log", "-1", "--format=%h of %cs"]).current_dir(root).output();
        let commit = commit.context("git is needed")?.stdout;
        let file = cache.join("build-cost.txt");
        std::fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
        let kept = std::fs::OpenOptions::new().create(true).append(true).open(&file);
        let mut kept = kept.with_context(|| format!("cannot write {}", file.display()))?;
        write!(kept, "commit {}{report}", String::from_utf8_lossy(&commit))?;
        Ok(())
    }
}

/// Processor seconds (user and system) of all ended children that were waited for, and of their children.
fn children_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    // The second field is the program's name in parentheses and may contain any character. The 16th and 17th fields are
    // the times of the children.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(13));
    let ticks: Vec<f64> = fields.into_iter().flatten().take(2).filter_map(|field| field.parse().ok()).collect();
    ensure!(ticks.len() == 2, "/proc/self/stat has another form: {stat}");
    Ok(ticks.iter().sum::<f64>() / TICKS_A_SECOND)
}

/// Reads the built packages from cargo's report (cargo 1.95): names, one entry for each unit, and seconds.
///
/// The report is an HTML page whose script has the units as JSON, one field on a line. Units that were not built again
/// have a duration of 0.
fn built(report: &str) -> anyhow::Result<Vec<(String, f64)>> {
    let (_, units) = report.split_once("const UNIT_DATA = [").context("cargo's report has no UNIT_DATA")?;
    let (units, _) = units.split_once("\n];").context("UNIT_DATA of cargo's report has no end")?;
    let field = |line: &str, name: &str| {
        let value = line.trim().strip_prefix(name)?.trim_end_matches(',').trim_matches('"').to_owned();
        Some(value)
    };
    let names = units.lines().filter_map(|line| field(line, "\"name\": "));
    let durations = units.lines().filter_map(|line| field(line, "\"duration\": ")?.parse::<f64>().ok());
    let built: Vec<(String, f64)> = names.zip(durations).collect();
    let units = units.lines().filter(|line| line.trim().starts_with("\"i\": ")).count();
    ensure!(built.len() == units, "cargo's report has another form: {units} units, {} read", built.len());
    Ok(built.into_iter().filter(|(_, seconds)| *seconds > 0.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened from a report of cargo 1.95.
    const PAGE: &str = r#"
const UNIT_DATA = [
  {
    "i": 0,
    "name": "sql",
    "target": "",
    "start": 0.08,
    "duration": 2.5,
    "sections": [["frontend", {"start": 0.0, "end": 1.0}]]
  },
  {
    "i": 1,
    "name": "bytes",
    "start": 0.0,
    "duration": 0.0,
    "sections": null
  },
  {
    "i": 2,
    "name": "sql",
    "start": 3.0,
    "duration": 1.0,
    "sections": null
  }
];
const CONCURRENCY_DATA = [
"#;

    #[test]
    fn what_cargo_built_is_read_from_its_report_and_what_was_there_is_left_out() {
        assert_eq!(built(PAGE).expect("a report"), [("sql".to_owned(), 2.5), ("sql".to_owned(), 1.0)]);
        assert!(built(&PAGE.replace("\"duration\"", "\"took\"")).is_err());
        assert!(built("<html>").is_err());
    }

    #[test]
    fn the_report_names_the_crates_that_took_most_and_nothing_built_has_no_report() {
        let mut cost = BuildCost::default();
        cost.add("clippy", 0.1, &[]);
        assert_eq!(cost.report(), None);
        cost.add("test", 20.4, &[("bytes".to_owned(), 1.0), ("sql".to_owned(), 2.5)]);
        cost.add("build", 3.0, &[("sql".to_owned(), 2.0)]);
        let wanted = "build: 23 processor seconds (test 20, build 3); by crate, in seconds of cargo's timings:\n  \
                      sql 4.5   bytes 1.0\n";
        assert_eq!(cost.report().as_deref(), Some(wanted));
    }

    #[test]
    fn figures_are_appended_in_a_folder_that_need_not_be_there() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let cache = folder.path().join("a/b");
        for report in ["build: 1\n", "build: 2\n"] {
            BuildCost::keep(report, Path::new(env!("CARGO_MANIFEST_DIR")), &cache).expect("kept");
        }
        let kept = std::fs::read_to_string(cache.join("build-cost.txt")).expect("written");
        assert!(kept.contains("build: 1\n") && kept.ends_with("build: 2\n"), "{kept}");
    }

    #[test]
    fn processor_time_of_children_is_counted_once_they_ended() {
        let before = children_seconds().expect("read");
        // The shell works for some tenths of a second; the counter has a resolution of ten milliseconds.
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().expect("sh runs").success());
        assert!(children_seconds().expect("read") > before);
    }
}
