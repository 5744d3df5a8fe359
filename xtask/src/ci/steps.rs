//! The steps of ci in their order: the quick ones run first.

use super::cost::BuildCost;
use super::step::{Outcome, Place, cache, step};
use super::tally::{Tally, skips_of_script};
use super::{deny, features};
use crate::tidy;
use anyhow::Context;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Seconds for each fuzz target in ci; `cargo xtask fuzz --seconds` runs longer.
const FUZZ_SECONDS: &str = "5";

/// The largest duration of a step. The longest step builds DataFusion, which takes about a quarter of an hour on 2
/// cores; slow machines may take several times that.
const STEP_TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// Runs every step. Returns true if all steps and all their cases passed.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let place = Place { root: root.to_owned(), logs: target.join("ci"), time_max: STEP_TIME_MAX };
    std::fs::create_dir_all(&place.logs).with_context(|| format!("cannot make {}", place.logs.display()))?;

    let (mut sum, mut cost) = (Tally::default(), BuildCost::default());
    sum += step(&place, "fmt", |place| tool(place, "fmt", &["fmt", "--all", "--check"]));
    sum += step(&place, "tidy", tidy_step);
    sum += step(&place, "features", features::run);
    sum += step(&place, "clippy", |place| {
        build(place, &mut cost, "clippy", &["clippy", "--workspace", "--all-targets"], &["--", "-D", "warnings"])
    });
    // The programs without the fuzzing features, as users build them: the whole workspace enables these features.
    sum += step(&place, "without-fuzzing", |place| {
        let what = ["clippy", "--package", "terrace", "--package", "bench"];
        build(place, &mut cost, "without-fuzzing", &what, &["--", "-D", "warnings"])
    });
    // Users also build the interface engine without SQL.
    sum += step(&place, "without-sql", |place| {
        let what = ["clippy", "--package", "terrace", "--no-default-features"];
        build(place, &mut cost, "without-sql", &what, &["--", "-D", "warnings"])
    });
    // The dev profile is optimised enough for the crash simulations, and it checks overflows and debug assertions.
    sum += step(&place, "test-build", |place| {
        build(place, &mut cost, "test-build", &["test", "--workspace", "--no-run"], &[])
    });
    sum += step(&place, "test", test);
    sum += step(&place, "crash", crash);
    sum += step(&place, "doc", |place| doc(place, &mut cost));
    // The programs are built with the profile of the tests, with assertions. With other packages or another profile,
    // cargo would choose other features, and build sql or even DataFusion a second time.
    sum += step(&place, "build", |place| build(place, &mut cost, "build", &["build", "--workspace"], &[]));
    let built = target.join("debug");
    sum += step(&place, "fuzz", |place| fuzz(place, &built.join("fuzz")));
    sum += step(&place, "deny", deny::policy);
    sum += step(&place, "advisories", deny::advisories);
    for script in scripts(root)? {
        let name = script.trim_end_matches(".sh").to_owned();
        sum += step(&place, &name, |place| system_script(place, &script, &built.join("terrace")));
    }
    if let Some(report) = cost.report() {
        print!("{report}");
        if let Err(error) = cache().and_then(|cache| BuildCost::keep(&report, root, &cache)) {
            println!("the figures cannot be saved: {error:#}");
        }
    }
    if sum.skipped > 0 {
        println!("{} skipped, which the closing line does not count", sum.skipped);
    }
    println!("{sum}");
    Ok(sum.failed == 0)
}

fn tool(place: &Place, name: &str, arguments: &[&str]) -> anyhow::Result<Outcome> {
    let (ok, log) = place.run(name, Command::new("cargo").args(arguments))?;
    Ok(Outcome::of_tool(ok, log))
}

/// Runs a cargo command that builds `what`, with the arguments `behind` for the tool, and adds its cost.
fn build(place: &Place, cost: &mut BuildCost, name: &str, what: &[&str], behind: &[&str]) -> anyhow::Result<Outcome> {
    let mut command = Command::new("cargo");
    command.args(what).args(["--locked", "--timings"]).args(behind);
    let (ok, log) = cost.cargo(place, name, &mut command)?;
    Ok(Outcome::of_tool(ok, log))
}

/// Runs all tests and shows their output, which names the skipped tests.
fn test(place: &Place) -> anyhow::Result<Outcome> {
    let arguments = ["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"];
    let (ok, log) = place.run("test", Command::new("cargo").args(arguments))?;
    Ok(Outcome::of_tests(ok, log))
}

/// Runs each fuzz target for some seconds.
fn fuzz(place: &Place, program: &Path) -> anyhow::Result<Outcome> {
    anyhow::ensure!(program.exists(), "not run: the program could not be built");
    let (ok, log) = place.run("fuzz", Command::new(program).args(["--seconds", FUZZ_SECONDS]))?;
    Ok(Outcome::of_tool(ok, log))
}

/// Runs the crash and model tests of the journal again with a new seed.
fn crash(place: &Place) -> anyhow::Result<Outcome> {
    // The system seeds the hasher of the standard library: this draws a random number without another dependency.
    let seed = std::hash::RandomState::new().build_hasher().finish();
    let arguments =
        ["test", "--locked", "--package", "journal", "--test", "main", "--", "--show-output", "crash::", "model::"];
    let (ok, log) = place.run("crash", Command::new("cargo").args(arguments).env("SEED", seed.to_string()))?;
    let outcome = Outcome::of_tests(ok, log);
    let note = outcome.note.as_ref().map_or(format!("seed {seed}"), |note| format!("seed {seed}; {note}"));
    Ok(Outcome { note: Some(note), ..outcome })
}

/// The documentation includes private items, so links to private items are allowed.
const RUSTDOC_FLAGS: &str = "-D warnings -A rustdoc::private_intra_doc_links";

fn doc(place: &Place, cost: &mut BuildCost) -> anyhow::Result<Outcome> {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked", "--timings"];
    let (ok, log) =
        cost.cargo(place, "doc", Command::new("cargo").args(arguments).env("RUSTDOCFLAGS", RUSTDOC_FLAGS))?;
    Ok(Outcome::of_tool(ok, log))
}

fn tidy_step(place: &Place) -> anyhow::Result<Outcome> {
    let findings = tidy::run::check_all(&tidy::tree::Tree::load(&place.root)?);
    let log: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    std::fs::write(place.logs.join("tidy.log"), &log).context("cannot write the log")?;
    Ok(Outcome::of_tool(findings.is_empty(), log))
}

/// The system tests of the checkout by name: `scripts/test-*.sh` (scripts/README.md has their rules).
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

/// Runs one script. It gets the path of the binary as `TERRACE`, and its last line must have its counts.
fn system_script(place: &Place, script: &str, binary: &Path) -> anyhow::Result<Outcome> {
    anyhow::ensure!(binary.exists(), "not run: there is no binary");
    let mut command = Command::new("bash");
    command.arg(format!("scripts/{script}")).env("TERRACE", binary);
    let (ok, log) = place.run(script.trim_end_matches(".sh"), &mut command)?;
    Ok(judge(ok, log))
}

/// A script passed if it exits with 0, its last line has its counts, none failed, and it either ran a case or gives a
/// reason for a skip.
fn judge(exited_well: bool, log: String) -> Outcome {
    let counted = Tally::of_script(&log);
    let (cases, skips) = (counted.unwrap_or_default(), skips_of_script(&log));
    let idle = cases.is_empty() && skips.is_empty();
    let note = match counted {
        None => Some("no closing line `N passed, N failed`"),
        Some(_) if idle => Some("it ran no case and gave no reason: a line `skipped: WHY` is missing"),
        Some(_) => None,
    };
    let ok = exited_well && note.is_none() && cases.failed == 0;
    Outcome { ok, cases, skips, note: note.map(str::to_owned), log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_holds_only_with_a_closing_line_without_failures_and_exit_code_0() {
        for (exited_well, log, held) in [
            (true, "3 passed, 0 failed\n", true),
            (true, "skipped: no python3\n0 passed, 0 failed\n", true),
            (true, "0 passed, 0 failed\n", false),
            (true, "3 passed, 1 failed\n", false),
            (false, "3 passed, 0 failed\n", false),
            (true, "done\n", false),
        ] {
            assert_eq!(judge(exited_well, log.to_owned()).ok, held, "log: {log}");
        }
    }

    #[test]
    fn what_a_script_skipped_is_reported() {
        let outcome =
            judge(true, "skipped: go (no toolchain)\nok a\nskipped: java (no JDK)\n1 passed, 0 failed\n".to_owned());
        assert_eq!(outcome.skips, ["go (no toolchain)", "java (no JDK)"]);
    }
}
