//! deny: cargo-deny checks licences, bans, sources and advisories of the dependencies, with the settings of deny.toml.
//!
//! cargo-deny is installed once into the cache folder. The check of advisories fetches a database from GitHub. It is a
//! step of its own, and is skipped if the database cannot be fetched.

use super::step::{Outcome, Place, cache};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of cargo-deny. It is pinned so that a new release does not change the results.
const VERSION: &str = "0.20.2";

/// The message of cargo-deny if it cannot fetch the advisory database.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// Checks licences, bans and sources.
pub(crate) fn policy(place: &Place) -> anyhow::Result<Outcome> {
    check(place, "deny", &["licenses", "bans", "sources"])
}

/// Checks advisories.
pub(crate) fn advisories(place: &Place) -> anyhow::Result<Outcome> {
    let outcome = check(place, "advisories", &["advisories"])?;
    if !outcome.ok && outcome.log.contains(NO_DATABASE) {
        return Ok(Outcome::skipped("the database of advisories cannot be fetched from GitHub", outcome.log));
    }
    Ok(outcome)
}

fn check(place: &Place, name: &str, what: &[&str]) -> anyhow::Result<Outcome> {
    let (ok, log) = place.run(name, Command::new(installed(place)?).arg("check").args(what))?;
    Ok(Outcome::of_tool(ok, log))
}

/// Returns the path of the tool in the cache folder. Builds it if it is not there.
fn installed(place: &Place) -> anyhow::Result<PathBuf> {
    let cache = cache()?.join("tools");
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
