//! The fuzzer as a program: the canaries must be found, and their artifacts must replay.

use std::path::Path;
use std::process::{Command, Output};

fn fuzz(folder: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_fuzz")).args(arguments).current_dir(folder).output();
    output.expect("the fuzzer was built with this test")
}

/// Runs a canary until it fails, then its artifact; returns the output of the first run.
fn finds_and_replays(target: &str) -> String {
    let folder = tempfile::tempdir().expect("the temporary directory can be written");
    let found = fuzz(folder.path(), &[target, "--seconds", "600", "--seed", "11"]);
    let printed = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(1), "printed: {printed}");
    let command = printed.lines().find_map(|line| line.split_once("cargo xtask fuzz ")).map(|(_, command)| command);
    let replay: Vec<&str> = command.expect("the replay command is printed").split_whitespace().collect();
    assert!(!fuzz(folder.path(), &replay).status.success(), "the artifact does not replay: {replay:?}");
    printed
}

#[test]
fn a_planted_panic_is_found_and_replays() {
    let printed = finds_and_replays("canary");
    assert!(printed.contains("FAIL canary: the planted fault was found"), "printed: {printed}");
}

#[test]
fn a_planted_abort_takes_its_process_along_and_still_leaves_its_input() {
    let printed = finds_and_replays("canary-abort");
    assert!(printed.contains("running seed 11 again"), "printed: {printed}");
}

#[test]
fn an_unknown_target_is_refused_with_the_names_there_are() {
    let folder = tempfile::tempdir().expect("the temporary directory can be written");
    let refused = fuzz(folder.path(), &["no-such"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no target no-such; there are: "));
}

#[test]
fn every_target_has_a_coverage_guided_wrapper() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the checkout has the folder fuzz");
    for target in fuzz::targets::TARGETS {
        let wrapper = std::fs::read_to_string(root.join(format!("fuzz_targets/{}.rs", target.name)));
        let wrapper = wrapper.unwrap_or_else(|error| panic!("no wrapper for {}: {error}", target.name));
        assert!(wrapper.contains(&format!("try_one(\"{}\", data)", target.name)), "the wrapper of {}", target.name);
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{} in the manifest", target.name);
    }
}
