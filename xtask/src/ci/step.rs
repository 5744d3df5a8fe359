//! One step: a command with its log, its verdict and its line.

use super::tally::Tally;
use anyhow::Context;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Most lines of a failed step that are shown; its log has the rest.
const SHOWN_LINES_MAX: usize = 60;

/// What a step that is asked to end gets before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// Lines behind an error or a panic that are shown with it: the place, or both sides of a comparison.
const LINES_BEHIND: usize = 3;

/// What a step came to.
pub(crate) struct Outcome {
    /// Whether the step as a whole held.
    pub(crate) ok: bool,
    /// The cases inside it, none for a tool that has no cases.
    pub(crate) cases: Tally,
    /// Something a reader should know although the step held.
    pub(crate) note: Option<String>,
    /// Everything the tool printed.
    pub(crate) log: String,
}

impl Outcome {
    /// A step that could not be run.
    pub(crate) fn broken(error: &anyhow::Error) -> Outcome {
        Outcome { ok: false, cases: Tally::default(), note: Some(format!("{error:#}")), log: String::new() }
    }
}

/// Where the steps run and leave their logs.
pub(crate) struct Place {
    /// The checkout.
    pub(crate) root: PathBuf,
    /// One log a step.
    pub(crate) logs: PathBuf,
    /// A step that takes longer is ended and has failed: a hang must not cost the closing line.
    pub(crate) time_max: Duration,
}

impl Place {
    /// Runs `command` in the checkout without input; its output goes to the step's log.
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

/// Waits for the child: whether it succeeded, or none if it had to be ended. It is asked first, so that scripts can end
/// what they started.
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

/// Runs a step, prints its line, and answers with the step and its cases as one tally.
pub(crate) fn step(place: &Place, name: &str, run: impl FnOnce(&Place) -> anyhow::Result<Outcome>) -> Tally {
    let start = Instant::now();
    let outcome = run(place).unwrap_or_else(|error| Outcome::broken(&error));
    print!("{}", report(name, start.elapsed(), &outcome, &place.logs));
    let mut tally = outcome.cases;
    tally += Tally { passed: usize::from(outcome.ok), failed: usize::from(!outcome.ok) };
    tally
}

/// The line of a step, and for a failed one what its log says about why.
fn report(name: &str, took: Duration, outcome: &Outcome, logs: &Path) -> String {
    let verdict = if outcome.ok { "[ok]  " } else { "[FAIL]" };
    let mut line = format!("{verdict}  {name:<28} {:>7.1} s", took.as_secs_f64());
    if outcome.cases != Tally::default() {
        line += &format!("   {} cases", outcome.cases.passed + outcome.cases.failed);
    }
    if let Some(note) = &outcome.note {
        line += &format!("   {note}");
    }
    if !outcome.ok && !outcome.log.is_empty() {
        line += &format!("   log: {}", logs.join(format!("{name}.log")).display());
        for shown in telling_lines(&outcome.log) {
            line += &format!("\n        {shown}");
        }
    }
    line + "\n"
}

/// The lines of a failed log that say why: failed cases; errors and panics with the lines behind them that tell what and
/// where; else its end.
fn telling_lines(log: &str) -> Vec<&str> {
    let lines: Vec<&str> = log.lines().collect();
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

    /// A place with a folder of its own, since tests run at once; it goes when the folder is dropped.
    fn place() -> (tempfile::TempDir, Place) {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let logs = folder.path().to_owned();
        (folder, Place { root: logs.clone(), logs, time_max: Duration::from_secs(60) })
    }

    fn shell(place: &Place, script: &str) -> anyhow::Result<Outcome> {
        let (ok, log) = place.run("shell", Command::new("sh").args(["-c", script]))?;
        Ok(Outcome { ok, cases: Tally::of_cargo(&log), note: None, log })
    }

    #[test]
    fn a_step_counts_itself_and_its_cases() {
        let script = "echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored' >&2; exit 1";
        let (_folder, place) = place();
        assert_eq!(step(&place, "cases", |place| shell(place, script)), Tally { passed: 3, failed: 3 });
        assert_eq!(step(&place, "none", |place| shell(place, "true")), Tally { passed: 1, failed: 0 });
    }

    #[test]
    fn a_step_that_cannot_run_has_failed() {
        let missing = |place: &Place| place.run("gone", &mut Command::new("no-such-program")).map(|_| unreachable!());
        let (_folder, place) = place();
        assert_eq!(step(&place, "gone", missing), Tally { passed: 0, failed: 1 });
    }

    #[test]
    fn a_step_that_hangs_is_ended_and_has_failed() {
        let (_folder, place) = place();
        let impatient = Place { time_max: Duration::ZERO, ..place };
        assert_eq!(step(&impatient, "hangs", |place| shell(place, "exec sleep 600")), Tally { passed: 0, failed: 1 });
    }

    #[test]
    fn a_failed_step_shows_errors_with_their_place_and_else_the_end() {
        assert_eq!(telling_lines("a\nerror: b\n  --> c\n\nd\n"), ["error: b", "  --> c"]);
        let panic = "test x ... FAILED\ntest y ... ok\nthread 'x' panicked at a.rs:1:\nsides differ\n left: 1\nright: 2\nnote\n";
        let told = ["test x ... FAILED", "thread 'x' panicked at a.rs:1:", "sides differ", " left: 1", "right: 2"];
        assert_eq!(telling_lines(panic), told);
        assert_eq!(telling_lines("a\nb\n"), ["a", "b"]);
    }
}
