//! features: crates that `terrace` and `terrace-lab` share are built once, because both programs use them with the same
//! features.
//!
//! Cargo unites the features of the packages it builds together. If the features of a crate differ between the two
//! programs, a build of `terrace` and then of `bench` (as in the README) builds this crate and all its dependents
//! twice. One feature of regex-automata once caused a second build of DataFusion.

use super::step::{Outcome, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The two programs, as packages.
const PACKAGES: [&str; 2] = ["terrace", "bench"];

/// Packages with their versions, and the feature sets they are built with. A package has more than one set if build
/// scripts use others.
type Features = BTreeMap<String, BTreeSet<String>>;

/// Runs the step.
pub(crate) fn run(place: &Place) -> anyhow::Result<Outcome> {
    let mut trees = Vec::new();
    for package in PACKAGES {
        let arguments =
            ["tree", "--locked", "--edges", "no-dev", "--prefix", "none", "--format", "{p}|{f}", "--package"];
        let (ok, log) = place.run("features", Command::new("cargo").args(arguments).arg(package))?;
        if !ok {
            return Ok(Outcome::of_tool(false, log));
        }
        trees.push(features(&log));
    }
    let log = differences(&trees[0], &trees[1]).join("\n");
    Ok(Outcome::of_tool(log.is_empty(), log))
}

/// Reads the output of `cargo tree`: package, bar, features.
fn features(tree: &str) -> Features {
    let mut features = Features::new();
    for (package, set) in tree.lines().filter_map(|line| line.split_once('|')) {
        // A package that was shown before has a mark after its features.
        features.entry(package.to_owned()).or_default().insert(set.trim_end_matches(" (*)").to_owned());
    }
    features
}

fn differences(one: &Features, other: &Features) -> Vec<String> {
    let shared = one.iter().filter_map(|(package, set)| Some((package, set, other.get(package)?)));
    let differ = shared.filter(|(_, set, others)| set != others);
    let [first, second] = PACKAGES;
    differ
        .map(|(package, set, others)| {
            let texts = [set, others].map(|sets| sets.iter().map(String::as_str).collect::<Vec<_>>().join(" and "));
            format!("error: {package} is built twice: {first} has {}; {second} has {}", texts[0], texts[1])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_package_with_other_features_is_named_and_one_that_is_not_shared_passes() {
        let one = "a v1.0.0|std\nb v1.0.0|x,y\nb v1.0.0|x,y (*)\nc v1.0.0|\n";
        assert_eq!(differences(&features(one), &features("b v1.0.0|x,y\na v1.0.0|std\nd v2.0.0|z\n")), [""; 0]);
        let found = differences(&features(one), &features("b v1.0.0|x\nc v1.0.0| (*)\n"));
        assert_eq!(found, ["error: b v1.0.0 is built twice: terrace has x,y; bench has x"]);
    }
}
