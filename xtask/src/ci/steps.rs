//! The steps of ci, in order: the quick ones first, each a few lines.

use super::deny;
use super::step::{Outcome, Place, step};
use super::tally::Tally;
use crate::tidy;
use anyhow::Context;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Seconds each fuzz target gets here; long runs are `cargo xtask fuzz --seconds`.
const FUZZ_SECONDS: &str = "5";

/// The longest step builds DataFusion, in about a quarter of an hour on 2 cores; slow machines get some times that.
const STEP_TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// Runs every step; answers whether all of them and all of their cases held.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let place = Place { root: root.to_owned(), logs: target.join("ci"), time_max: STEP_TIME_MAX };
    std::fs::create_dir_all(&place.logs).with_context(|| format!("cannot make {}", place.logs.display()))?;

    let mut sum = Tally::default();
    sum += step(&place, "fmt", |place| cargo(place, "fmt", &["fmt", "--all", "--check"]));
    sum += step(&place, "tidy", tidy_step);
    sum += step(&place, "clippy", |place| {
        cargo(place, "clippy", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
    });
    // An interface engine alone is a program that users build.
    sum += step(&place, "without-sql", |place| {
        let arguments = ["clippy", "--package", "terrace", "--no-default-features", "--locked", "--", "-D", "warnings"];
        cargo(place, "without-sql", &arguments)
    });
    // The dev profile: optimised enough for the crash simulations, with overflow and debug assertions on.
    sum += step(&place, "test", |place| cargo(place, "test", &["test", "--workspace", "--locked", "--no-fail-fast"]));
    sum += step(&place, "crash", crash);
    sum += step(&place, "doc", doc);
    sum += step(&place, "fuzz", |place| {
        cargo(place, "fuzz", &["run", "--quiet", "--locked", "--package", "fuzz", "--", "--seconds", FUZZ_SECONDS])
    });
    sum += step(&place, "deny", deny::run);
    // The scripts take the binary as it was tested, with its assertions: building DataFusion a second time, optimised, would
    // double the time on a new machine and check nothing more.
    sum += step(&place, "build", |place| {
        cargo(place, "build", &["build", "--locked", "--package", "terrace", "--package", "bench"])
    });
    let binary = target.join("debug/terrace");
    for script in scripts(root)? {
        let name = script.trim_end_matches(".sh").to_owned();
        sum += step(&place, &name, |place| system_script(place, &script, &binary));
    }
    println!("{sum}");
    Ok(sum.failed == 0)
}

fn cargo(place: &Place, name: &str, arguments: &[&str]) -> anyhow::Result<Outcome> {
    let (ok, log) = place.run(name, Command::new("cargo").args(arguments))?;
    Ok(Outcome { ok, cases: Tally::of_cargo(&log), note: None, log })
}

/// The crash and model tests of the journal once more, with a seed nobody has tried.
fn crash(place: &Place) -> anyhow::Result<Outcome> {
    // The hasher of the standard library is seeded by the system: a draw without another dependency.
    let seed = std::hash::RandomState::new().build_hasher().finish();
    let arguments = ["test", "--locked", "--package", "journal", "--test", "main", "--", "crash::", "model::"];
    let (ok, log) = place.run("crash", Command::new("cargo").args(arguments).env("SEED", seed.to_string()))?;
    Ok(Outcome { ok, cases: Tally::of_cargo(&log), note: Some(format!("seed {seed}")), log })
}

/// Documentation is read with private items, so links to them are welcome.
const RUSTDOC_FLAGS: &str = "-D warnings -A rustdoc::private_intra_doc_links";

fn doc(place: &Place) -> anyhow::Result<Outcome> {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
    let (ok, log) = place.run("doc", Command::new("cargo").args(arguments).env("RUSTDOCFLAGS", RUSTDOC_FLAGS))?;
    Ok(Outcome { ok, cases: Tally::default(), note: None, log })
}

fn tidy_step(place: &Place) -> anyhow::Result<Outcome> {
    let findings = tidy::run::check_all(&tidy::tree::Tree::load(&place.root)?);
    let log: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    std::fs::write(place.logs.join("tidy.log"), &log).context("cannot write the log")?;
    Ok(Outcome { ok: findings.is_empty(), cases: Tally::default(), note: None, log })
}

/// The system tests of the checkout, by name: `scripts/test-*.sh` (how they behave: scripts/README.md).
fn scripts(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join("scripts");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).context("cannot list scripts")? {
        names.push(entry.context("cannot list scripts")?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name.starts_with("test-") && name.ends_with(".sh"));
    names.sort();
    Ok(names)
}

/// One script: it gets the binary as `TERRACE`, and must close with its counts.
fn system_script(place: &Place, script: &str, binary: &Path) -> anyhow::Result<Outcome> {
    anyhow::ensure!(binary.exists(), "not run: there is no binary");
    let mut command = Command::new("bash");
    command.arg(format!("scripts/{script}")).env("TERRACE", binary);
    let (ok, log) = place.run(script.trim_end_matches(".sh"), &mut command)?;
    Ok(judge(ok, log))
}

/// A script held if it exits with 0, closes with its counts, and none failed; what it skipped is shown.
fn judge(exited_well: bool, log: String) -> Outcome {
    let counted = Tally::of_script(&log);
    let skipped = log.lines().find(|line| line.starts_with("skipped")).map(str::to_owned);
    let note = if counted.is_none() { Some("no closing line `N passed, N failed`".to_owned()) } else { skipped };
    let ok = exited_well && counted.is_some_and(|tally| tally.failed == 0);
    Outcome { ok, cases: counted.unwrap_or_default(), note, log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_holds_only_with_a_closing_line_without_failures_and_exit_code_0() {
        for (exited_well, log, held) in [
            (true, "3 passed, 0 failed\n", true),
            (true, "skipped: no python3\n0 passed, 0 failed\n", true),
            (true, "3 passed, 1 failed\n", false),
            (false, "3 passed, 0 failed\n", false),
            (true, "done\n", false),
        ] {
            assert_eq!(judge(exited_well, log.to_owned()).ok, held, "log: {log}");
        }
    }

    #[test]
    fn what_a_script_skipped_is_noted() {
        let outcome = judge(true, "skipped: no python3\n0 passed, 0 failed\n".to_owned());
        assert_eq!(outcome.note.as_deref(), Some("skipped: no python3"));
    }
}
