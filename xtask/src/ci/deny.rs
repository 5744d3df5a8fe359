//! deny: licences, bans, sources and advisories of what we link, by cargo-deny and deny.toml.
//!
//! cargo-deny is installed once into the cache folder. Advisories need a database that is fetched from GitHub; where it
//! cannot be fetched, the rest is still checked and the step says that advisories were not.

use super::step::{Outcome, Place};
use super::tally::Tally;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version the step is written for; pinned so that a new release does not change what passes.
const VERSION: &str = "0.20.2";

/// What cargo-deny prints when it cannot get the advisory database.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// The step.
pub(crate) fn run(place: &Place) -> anyhow::Result<Outcome> {
    let tool = installed(place)?;
    let check = |name: &str, what: &[&str]| place.run(name, Command::new(&tool).arg("check").args(what));
    let (ok, log) = check("deny", &["licenses", "bans", "sources"])?;
    if !ok {
        return Ok(Outcome { ok, cases: Tally::default(), note: None, log });
    }
    let (ok, log) = check("deny", &["advisories"])?;
    if !ok && log.contains(NO_DATABASE) {
        let note = "licences, bans, sources ok; advisories skipped: the database could not be fetched from GitHub";
        return Ok(Outcome { ok: true, cases: Tally::default(), note: Some(note.to_owned()), log });
    }
    Ok(Outcome { ok, cases: Tally::default(), note: None, log })
}

/// The tool in the cache folder, built there if it is not there yet.
fn installed(place: &Place) -> anyhow::Result<PathBuf> {
    let cache = cache()?;
    let tool = cache.join("bin/cargo-deny");
    if is_version(&tool) {
        return Ok(tool);
    }
    let mut install = Command::new("cargo");
    install.args(["install", "--locked", "--version", VERSION, "cargo-deny", "--root"]).arg(&cache);
    let (ok, log) = place.run("deny-install", &mut install)?;
    let end = log.lines().last().unwrap_or("").trim();
    anyhow::ensure!(ok, "cargo-deny {VERSION} cannot be installed (is crates.io within reach?): {end}");
    Ok(tool)
}

fn is_version(tool: &Path) -> bool {
    let output = Command::new(tool).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-deny {VERSION}"))
}

/// `$TERRACE_CACHE/tools`, by default in the user's cache folder.
fn cache() -> anyhow::Result<PathBuf> {
    if let Some(cache) = std::env::var_os("TERRACE_CACHE") {
        return Ok(PathBuf::from(cache).join("tools"));
    }
    let home = std::env::var_os("HOME").context("set HOME or TERRACE_CACHE: cargo-deny is kept there")?;
    Ok(PathBuf::from(home).join(".cache/terrace/tools"))
}
