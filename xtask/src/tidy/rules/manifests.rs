//! Manifests and layout of a package: lints are inherited, there is one integration-test binary, and no module has a
//! name without a meaning.
//!
//! Cargo builds and links each file directly under `tests/` as a binary of its own. One `tests/main.rs` with its
//! modules in the same folder needs `autotests = false` and one `[[test]]`; modules in a subfolder need nothing.

use crate::tidy::report::Finding;
use crate::tidy::tree::{Package, Tree};

/// Names that do not describe the content.
const DRAWERS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

/// Reports packages with their own lints or several test binaries, and modules with a name without a meaning.
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
            let mend = "name the module after its content";
            findings.push(Finding::new(&file.path, 1, format!("a module named {drawer}"), mend));
        }
    }
    findings
}

/// Whether the manifest has `[lints] workspace = true`, on two lines or as one key.
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
    let declared = package.manifest.text.matches("[[test]]").count();
    let off = package.manifest.text.lines().any(|line| line.starts_with("autotests = false"));
    let count = if off { declared } else { binaries.len() };
    let extra = binaries.get(1).filter(|_| count > 1)?.1;
    let what = format!("{count} integration-test binaries in {}", package.name);
    Some(Finding::new(&extra.path, 1, what, "declare one [[test]] with autotests = false, or use tests/main/*.rs"))
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
            (
                "crates/b/Cargo.toml",
                "name = \"b\"\nautotests = false # why\n[[test]]\nname = \"main\"\n[lints]\nworkspace = true\n",
            ),
            ("crates/b/tests/main.rs", ""),
            ("crates/b/tests/more.rs", ""),
        ];
        assert!(found(check, &files).is_empty());
    }
}
