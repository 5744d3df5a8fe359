//! `cargo xtask fuzz`: hands its arguments to the runner in crates/lab/fuzz; `--coverage` runs cargo-fuzz instead.
//!
//! The runner needs nothing but the pinned toolchain. Coverage-guided runs (folder `fuzz/`) find deeper inputs, but need
//! a nightly toolchain and cargo-fuzz, which are not installed from here.

use anyhow::Context;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds each target of a coverage-guided run gets unless `--seconds` says otherwise.
const COVERAGE_SECONDS: &str = "30";

/// Runs the fuzzer; answers whether every input held.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<bool> {
    if arguments.contains(&"--coverage") {
        return coverage(root, arguments);
    }
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--package", "fuzz", "--"]).args(arguments).current_dir(root);
    Ok(command.status().context("cannot run cargo")?.success())
}

/// Builds and runs the targets of `fuzz/` under libFuzzer, those named or all.
fn coverage(root: &Path, arguments: &[&str]) -> anyhow::Result<bool> {
    let nightly = Command::new("cargo").args(["+nightly", "--version"]).stderr(Stdio::null()).output();
    anyhow::ensure!(
        nightly.is_ok_and(|output| output.status.success()),
        "--coverage needs nightly: rustup toolchain install nightly"
    );
    let cargo_fuzz = Command::new("cargo").args(["fuzz", "--version"]).stderr(Stdio::null()).output();
    anyhow::ensure!(
        cargo_fuzz.is_ok_and(|output| output.status.success()),
        "--coverage needs cargo-fuzz: cargo install cargo-fuzz"
    );

    let seconds = arguments.iter().position(|word| *word == "--seconds").and_then(|at| arguments.get(at + 1));
    let seconds = format!("-max_total_time={}", seconds.unwrap_or(&COVERAGE_SECONDS));
    let named: Vec<&str> =
        arguments.iter().copied().filter(|word| !word.starts_with('-') && word.parse::<u64>().is_err()).collect();
    let listed = Command::new("cargo")
        .args(["+nightly", "fuzz", "list"])
        .current_dir(root)
        .output()
        .context("cannot list targets")?;
    anyhow::ensure!(listed.status.success(), "cargo fuzz list: {}", String::from_utf8_lossy(&listed.stderr).trim());
    let mut held = true;
    for target in
        String::from_utf8_lossy(&listed.stdout).lines().filter(|target| named.is_empty() || named.contains(target))
    {
        let mut command = Command::new("cargo");
        command.args(["+nightly", "fuzz", "run", target, "--", &seconds]).current_dir(root);
        held &= command.status().context("cannot run cargo fuzz")?.success();
    }
    Ok(held)
}
