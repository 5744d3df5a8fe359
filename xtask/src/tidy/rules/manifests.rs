//! Manifests and layout of a package: lints inherited, one integration-test binary, no drawer for everything.
//!
//! Each file under `tests/` links a binary of its own; one `tests/main.rs` with modules links once.

use crate::tidy::report::Finding;
use crate::tidy::tree::{Package, Tree};

/// Names that say nothing about what is inside.
const DRAWERS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

/// Fires on packages with lints of their own or several test binaries, and on modules named as drawers.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages() {
        if package.folder != "fuzz" && !inherits_lints(&package.manifest.text) {
            let mend = "write [lints] workspace = true";
            findings.push(Finding::new(&package.manifest.path, 1, "the workspace's lints are not inherited", mend));
        }
        findings.extend(test_binaries(tree, &package));
    }
    for (file, _) in tree.rust() {
        if let Some(drawer) = DRAWERS.iter().find(|name| file.path.split(['/', '.']).any(|part| part == **name)) {
            let mend = "name the module after what it is about";
            findings.push(Finding::new(&file.path, 1, format!("a module named {drawer}"), mend));
        }
    }
    findings
}

/// Whether the manifest says `[lints] workspace = true`, on two lines or as one key.
fn inherits_lints(manifest: &str) -> bool {
    let lines: Vec<&str> = manifest.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.windows(2).any(|pair| pair == ["[lints]", "workspace = true"]) || lines.contains(&"lints.workspace = true")
}

fn test_binaries(tree: &Tree, package: &Package) -> Option<Finding> {
    let folder = format!("{}/tests/", package.folder);
    let tests = tree.files.iter().filter_map(|file| file.path.strip_prefix(&folder).map(|name| (name, file)));
    // A binary is tests/NAME.rs or tests/NAME/main.rs.
    let binaries: Vec<_> = tests
        .filter(|(name, _)| {
            (name.ends_with(".rs") && !name.contains('/'))
                || (name.ends_with("/main.rs") && name.matches('/').count() == 1)
        })
        .collect();
    let extra = binaries.get(1)?.1;
    let what = format!("{} integration-test binaries in {}", binaries.len(), package.name);
    Some(Finding::new(&extra.path, 1, what, "make them modules of one tests/main.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn own_lints_several_binaries_and_drawers_are_found() {
        let files = [
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n[lints.rust]\nx = 1\n"),
            ("crates/a/tests/main.rs", ""),
            ("crates/a/tests/more.rs", ""),
            ("crates/a/src/utils.rs", ""),
        ];
        let expected = [
            "crates/a/Cargo.toml:1: the workspace's lints are not inherited",
            "crates/a/tests/more.rs:1: 2 integration-test binaries in a",
            "crates/a/src/utils.rs:1: a module named utils",
        ];
        assert_eq!(found(check, &files), expected);
    }

    #[test]
    fn inherited_lints_and_one_binary_with_modules_pass() {
        let files = [
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"),
            ("crates/a/tests/main.rs", ""),
            ("crates/a/tests/main/more.rs", ""),
            ("crates/a/tests/replay/more.rs", ""),
        ];
        assert!(found(check, &files).is_empty());
    }
}
