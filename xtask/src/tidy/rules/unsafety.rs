//! Unsafety: unsafe code is only in crates/media/device; every other crate forbids it.

use crate::tidy::report::Finding;
use crate::tidy::scan::words;
use crate::tidy::tree::Tree;

/// The only folder that may have unsafe code.
const ALLOWED: &str = "crates/media/device/";

/// The keyword. The tests below join it with code, so that a search finds no code here.
const KEYWORD: &str = "unsafe";

/// Reports the keyword in other folders, and crate roots in other folders that do not forbid it.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let roots: Vec<String> = tree.packages().iter().map(|package| package.folder.clone()).collect();
    for (file, source) in tree.rust().filter(|(file, _)| !file.path.starts_with(ALLOWED)) {
        for at in words(&source.code, KEYWORD) {
            let mend = "move it behind a safe interface in crates/media/device";
            findings.push(Finding::new(&file.path, source.line_of(at), "unsafe outside crates/media/device", mend));
        }
        let root = roots
            .iter()
            .any(|folder| ["lib.rs", "main.rs"].iter().any(|name| file.path == format!("{folder}/src/{name}")));
        if root && !source.code.contains("#![forbid(unsafe_code)]") {
            let mend = "write #![forbid(unsafe_code)] below its head comment";
            findings.push(Finding::new(&file.path, 1, "the crate does not forbid unsafe code", mend));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn unsafe_code_and_crates_that_allow_it_are_found() {
        let code = format!("fn f() {{\n    {KEYWORD} {{ g() }}\n}}\n");
        let files = [("crates/a/Cargo.toml", "name = \"a\"\n"), ("crates/a/src/lib.rs", &code)];
        let expected = [
            "crates/a/src/lib.rs:2: unsafe outside crates/media/device",
            "crates/a/src/lib.rs:1: the crate does not forbid unsafe code",
        ];
        assert_eq!(found(check, &files), expected);
    }

    #[test]
    fn the_device_crate_and_crates_that_forbid_it_pass() {
        let code = format!("{KEYWORD} fn f() {{}}");
        let files = [
            ("crates/a/Cargo.toml", "name = \"a\"\n"),
            ("crates/a/src/main.rs", "#![forbid(unsafe_code)] // no unsafe here\n"),
            ("crates/media/device/Cargo.toml", "name = \"device\"\n"),
            ("crates/media/device/src/lib.rs", &code),
        ];
        assert!(found(check, &files).is_empty());
    }
}
