//! `cargo xtask`: the development tool of Terrace. `tidy` checks the rules of CONTRIBUTING.md, `ci` runs every check,
//! `fuzz` runs the parsers with random bytes.
//!
//! It is written in Rust, so a fresh clone needs only the toolchain. It imports no crate of the workspace: it runs them
//! through cargo.
#![forbid(unsafe_code)]

mod ci;
mod fuzz;
mod tidy;

use anyhow::Context;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const HELP: &str = "usage: cargo xtask <command>

  tidy    the coding rules: sizes, layers, head comments, docs, links, words (--mend: replaces quoted files)
  ci      every check: fmt, tidy, clippy, test, doc, fuzz, deny, release build, scripts/test-*.sh
  fuzz    random and mutated input for every parser: cargo xtask fuzz [--seconds S] [TARGET]
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one command. Returns true if it found no fault.
fn run(arguments: &[String]) -> anyhow::Result<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tidy", "--mend"] => tidy::run::mend(&root()?),
        ["tidy"] => tidy::run::run(&root()?),
        ["ci"] => ci::run(&root()?),
        ["fuzz", rest @ ..] => fuzz::run(&root()?, rest),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        [other, ..] => anyhow::bail!("no such command: {other}\n\n{HELP}"),
    }
}

/// The root of the checkout of the current folder.
fn root() -> anyhow::Result<PathBuf> {
    let output = Command::new("git").args(["rev-parse", "--show-toplevel"]).output().context("git is needed")?;
    anyhow::ensure!(
        output.status.success(),
        "run this inside a checkout: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}
