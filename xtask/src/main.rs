//! `cargo xtask`: Terrace's own tool. `tidy` checks the house rules, `ci` runs every check there is, `fuzz` feeds the
//! parsers random bytes.
//!
//! It is written in the project's language so that a fresh clone needs nothing but the toolchain. It knows no crate
//! of ours: it starts them through cargo.
#![forbid(unsafe_code)]

mod ci;
mod fuzz;
mod tidy;

use anyhow::Context;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const HELP: &str = "usage: cargo xtask <command>

  tidy    the house rules: sizes, layers, essays, docs, links, words (--mend: writes quoted files anew)
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

/// Runs one command; answers whether it found everything in order.
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

/// The root of the checkout this runs in.
fn root() -> anyhow::Result<PathBuf> {
    let output = Command::new("git").args(["rev-parse", "--show-toplevel"]).output().context("git is needed")?;
    anyhow::ensure!(
        output.status.success(),
        "run this inside a checkout: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}
