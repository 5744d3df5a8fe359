//! One step: a command with its log, its result and its line.

use super::tally::{Tally, skips_of_cargo};
use anyhow::Context;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The largest number of lines that are shown of a failed step. The log has all lines.
const SHOWN_LINES_MAX: usize = 60;

/// Time between SIGTERM and SIGKILL for a step that takes too long.
const GRACE: Duration = Duration::from_secs(10);

/// Lines after an error or a panic that are shown with it: the place, or both sides of a comparison.
const LINES_BEHIND: usize = 3;

/// The result of a step.
pub(crate) struct Outcome {
    /// Whether the step as a whole passed.
    pub(crate) ok: bool,
    /// The cases of the step; empty for a tool without cases.
    pub(crate) cases: Tally,
    /// The cases that did not run, each with its reason.
    pub(crate) skips: Vec<String>,
    /// Information about the step that is shown even if it passed.
    pub(crate) note: Option<String>,
    /// The whole output of the tool.
    pub(crate) log: String,
}

impl Outcome {
    /// The result of a tool without cases.
    pub(crate) fn of_tool(ok: bool, log: String) -> Outcome {
        Outcome { ok, cases: Tally::default(), skips: Vec::new(), note: None, log }
    }

    /// The result of tests that cargo ran with `--show-output`. If no test ran, a filter is wrong, and the step has
    /// failed.
    pub(crate) fn of_tests(ok: bool, log: String) -> Outcome {
        let skips = skips_of_cargo(&log);
        let cases = Tally::of_cargo(&log, &skips);
        let none = ok && cases.is_empty() && skips.is_empty();
        Outcome { ok: ok && !none, cases, skips, note: none.then(|| "no test ran".to_owned()), log }
    }

    /// A step that did nothing because something was missing.
    pub(crate) fn skipped(why: &str, log: String) -> Outcome {
        Outcome { skips: vec![why.to_owned()], ..Outcome::of_tool(true, log) }
    }

    /// A step that could not be run.
    pub(crate) fn broken(error: &anyhow::Error) -> Outcome {
        Outcome { note: Some(format!("{error:#}")), ..Outcome::of_tool(false, String::new()) }
    }

    /// Whether no part of the step ran. Such a step has not passed.
    fn is_skipped(&self) -> bool {
        self.ok && self.cases.is_empty() && !self.skips.is_empty()
    }

    /// The step and its cases as one tally.
    fn tally(&self) -> Tally {
        let mut tally = self.cases;
        tally.skipped = self.skips.len();
        tally +=
            Tally { passed: usize::from(self.ok && !self.is_skipped()), failed: usize::from(!self.ok), skipped: 0 };
        tally
    }
}

/// The folders in which steps run and write their logs.
pub(crate) struct Place {
    /// The checkout.
    pub(crate) root: PathBuf,
    /// The folder of the logs, one for each step.
    pub(crate) logs: PathBuf,
    /// A step that takes longer is ended and has failed: after a hang, ci still prints its closing line.
    pub(crate) time_max: Duration,
}

impl Place {
    /// Runs `command` in the checkout without input. Its output goes to the log of the step.
    pub(crate) fn run(&self, name: &str, command: &mut Command) -> anyhow::Result<(bool, String)> {
        let path = self.logs.join(format!("{name}.log"));
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let errors = log.try_clone().context("cannot share the log")?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.current_dir(&self.root).stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let ok = wait(&mut child.with_context(|| format!("cannot run {program}"))?, self.time_max)?;
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let ok = ok.with_context(|| format!("{program} took more than {} s", self.time_max.as_secs()))?;
        Ok((ok, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// The folder that is kept between runs: `$TERRACE_CACHE`, by default a folder of the user's cache.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    if let Some(cache) = std::env::var_os("TERRACE_CACHE") {
        return Ok(PathBuf::from(cache));
    }
    let home = std::env::var_os("HOME").context("set HOME or TERRACE_CACHE: tools and figures are kept there")?;
    Ok(PathBuf::from(home).join(".cache/terrace"))
}

/// Waits for the child. Returns whether it succeeded, or `None` if it took too long and was ended. The child gets
/// SIGTERM first, so that a script can end the processes it started.
fn wait(child: &mut Child, time_max: Duration) -> anyhow::Result<Option<bool>> {
    let start = Instant::now();
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a step")? {
            return Ok((!asked).then_some(status.success()));
        }
        if !asked && start.elapsed() > time_max {
            asked = true;
            Command::new("kill").arg(child.id().to_string()).status().context("cannot run kill")?;
        } else if asked && start.elapsed() > time_max + GRACE {
            child.kill().context("cannot end a step")?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a step, prints its line, and returns the step and its cases as one tally.
pub(crate) fn step(place: &Place, name: &str, run: impl FnOnce(&Place) -> anyhow::Result<Outcome>) -> Tally {
    let start = Instant::now();
    let outcome = run(place).unwrap_or_else(|error| Outcome::broken(&error));
    print!("{}", report(name, start.elapsed(), &outcome, &place.logs));
    outcome.tally()
}

/// The line of a step, and for a failed step the lines of its log that explain the failure.
fn report(name: &str, took: Duration, outcome: &Outcome, logs: &Path) -> String {
    let verdict = match outcome.ok {
        _ if outcome.is_skipped() => "[skip]",
        true => "[ok]  ",
        false => "[FAIL]",
    };
    let mut line = format!("{verdict}  {name:<28} {:>7.1} s", took.as_secs_f64());
    if !outcome.cases.is_empty() {
        line += &format!("   {} cases", outcome.cases.passed + outcome.cases.failed);
    }
    if let Some(note) = &outcome.note {
        line += &format!("   {note}");
    }
    let shown = !outcome.ok && !outcome.log.is_empty();
    if shown {
        line += &format!("   log: {}", logs.join(format!("{name}.log")).display());
    }
    for skip in &outcome.skips {
        line += &format!("\n        skipped: {skip}");
    }
    for telling in shown.then(|| telling_lines(&outcome.log)).into_iter().flatten() {
        line += &format!("\n        {telling}");
    }
    line + "\n"
}

/// The lines of a failed log that explain the failure: failed cases, and errors and panics with the lines after them,
/// which give the cause and the place. Without such lines, it returns the end of the log. The output of passed tests is
/// left out, because some of them panic on purpose.
fn telling_lines(log: &str) -> Vec<&str> {
    let mut passed = false;
    let lines = log.lines().filter(|line| {
        passed = *line == "successes:" || passed && *line != "failures:" && !line.starts_with("test result: ");
        !passed
    });
    let lines: Vec<&str> = lines.collect();
    let mut told = Vec::new();
    let mut behind = 0;
    for line in &lines {
        let fails = line.ends_with("FAILED") || line.starts_with("FAIL");
        let explains = line.starts_with("error") || line.contains("panicked at");
        behind = if explains { LINES_BEHIND } else { behind };
        if fails || explains {
            told.push(*line);
        } else if behind > 0 && !line.trim().is_empty() {
            told.push(*line);
            behind -= 1;
        } else {
            behind = 0;
        }
    }
    if told.is_empty() {
        told = lines[lines.len().saturating_sub(SHOWN_LINES_MAX / 2)..].to_vec();
    }
    told.truncate(SHOWN_LINES_MAX);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place with its own folder, because tests run at the same time. The folder is removed when it is dropped.
    fn place() -> (tempfile::TempDir, Place) {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let logs = folder.path().to_owned();
        (folder, Place { root: logs.clone(), logs, time_max: Duration::from_secs(60) })
    }

    fn shell(place: &Place, script: &str) -> anyhow::Result<Outcome> {
        let (ok, log) = place.run("shell", Command::new("sh").args(["-c", script]))?;
        Ok(if log.is_empty() { Outcome::of_tool(ok, log) } else { Outcome::of_tests(ok, log) })
    }

    fn tally(passed: usize, failed: usize, skipped: usize) -> Tally {
        Tally { passed, failed, skipped }
    }

    #[test]
    fn a_step_counts_itself_and_its_cases() {
        let script = "echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored' >&2; exit 1";
        let (_folder, place) = place();
        assert_eq!(step(&place, "cases", |place| shell(place, script)), tally(3, 3, 0));
        assert_eq!(step(&place, "none", |place| shell(place, "true")), tally(1, 0, 0));
    }

    #[test]
    fn a_step_that_was_skipped_is_not_counted_as_passed_and_says_why() {
        let skipped = Outcome::skipped("no python3", String::new());
        assert_eq!(skipped.tally(), tally(0, 0, 1));
        let line = report("clients", Duration::ZERO, &skipped, Path::new("logs"));
        assert_eq!(line, "[skip]  clients                          0.0 s\n        skipped: no python3\n");
        let part = Outcome { cases: tally(4, 0, 0), ..Outcome::skipped("go (no toolchain)", String::new()) };
        assert_eq!(part.tally(), tally(5, 0, 1));
        assert!(report("drivers", Duration::ZERO, &part, Path::new("logs")).starts_with("[ok] "));
    }

    #[test]
    fn tests_of_which_none_ran_have_failed() {
        let of = |passed: usize| Outcome::of_tests(true, format!("test result: ok. {passed} passed; 0 failed;\n"));
        assert!(of(1).ok);
        assert!(!of(0).ok);
    }

    #[test]
    fn a_step_that_cannot_run_has_failed() {
        let missing = |place: &Place| place.run("gone", &mut Command::new("no-such-program")).map(|_| unreachable!());
        let (_folder, place) = place();
        assert_eq!(step(&place, "gone", missing), tally(0, 1, 0));
    }

    #[test]
    fn a_step_that_hangs_is_ended_and_has_failed() {
        let (_folder, place) = place();
        let impatient = Place { time_max: Duration::ZERO, ..place };
        assert_eq!(step(&impatient, "hangs", |place| shell(place, "exec sleep 600")), tally(0, 1, 0));
    }

    #[test]
    fn a_failed_step_shows_errors_with_their_place_and_else_the_end() {
        assert_eq!(telling_lines("a\nerror: b\n  --> c\n\nd\n"), ["error: b", "  --> c"]);
        let panic = "test x ... FAILED\ntest y ... ok\nthread 'x' panicked at a.rs:1:\nsides differ\n left: 1\nright: 2\nnote\n";
        let told = ["test x ... FAILED", "thread 'x' panicked at a.rs:1:", "sides differ", " left: 1", "right: 2"];
        assert_eq!(telling_lines(panic), told);
        assert_eq!(telling_lines("a\nb\n"), ["a", "b"]);
        let shown = "test a ... ok\ntest b ... FAILED\n\nsuccesses:\n\n---- a stdout ----\nthread 'a' panicked at a.rs:1:\non purpose\n\n\
                     successes:\n    a\n\nfailures:\n\n---- b stdout ----\nthread 'b' panicked at b.rs:2:\nwhy\n\ntest result: FAILED.\n";
        assert_eq!(telling_lines(shown), ["test b ... FAILED", "thread 'b' panicked at b.rs:2:", "why"]);
    }
}
