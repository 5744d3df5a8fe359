//! `cargo xtask fuzz`: passes its arguments to the program in crates/lab/fuzz. With `--coverage` it runs cargo-fuzz
//! instead.
//!
//! The program needs only the pinned toolchain. Coverage-guided runs (folder `fuzz/`) reach deeper inputs, but they
//! need a nightly toolchain and cargo-fuzz, and this command does not install them.

use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds for each target of a coverage-guided run, without `--seconds`.
const COVERAGE_SECONDS: &str = "30";

/// Runs the fuzzer. Returns true if no input failed.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<bool> {
    if arguments.contains(&"--coverage") {
        return coverage(root, arguments);
    }
    // The whole workspace is selected. With the package alone, cargo would choose other features and build DataFusion a
    // second time.
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--workspace", "--bin", "fuzz"]).current_dir(root);
    anyhow::ensure!(build.status().context("cannot run cargo")?.success(), "the fuzzer cannot be built");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new(target.join("debug/fuzz"));
    command.args(arguments).current_dir(root);
    Ok(command.status().context("cannot run the fuzzer")?.success())
}

/// Builds and runs the targets of `fuzz/` with libFuzzer: the named ones, or all.
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
