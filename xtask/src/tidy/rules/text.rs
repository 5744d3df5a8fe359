//! Text: source is ASCII, and no file has a path of a developer's machine.
//!
//! ASCII prevents look-alike and invisible characters in code. Fixtures are exempt: some of them test HL7 in other
//! character sets. The folders are assembled from halves, so that the rule does not find them in this file.

use crate::tidy::report::Finding;
use crate::tidy::tree::{Tree, is_fixture};

/// Extensions of source files.
const SOURCES: &[&str] = &["rs", "toml", "sh", "py", "md", "rules", "hl7t", "csv", "yml"];

/// Folders that exist only on a developer's machine.
const FOLDERS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// Reports each line that is not ASCII, and each path of a machine.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !is_fixture(&file.path)) {
        let source = file.has_extension(SOURCES) || file.path == ".ci/run";
        for (index, line) in file.text.lines().enumerate() {
            if let Some(character) = line.chars().find(|c| source && !c.is_ascii()) {
                let what = format!("{:?} (U+{:04X}) is not ASCII", character, character as u32);
                findings.push(Finding::new(&file.path, index + 1, what, "write it in ASCII, in code as an escape"));
            }
            if let Some(folder) = FOLDERS.iter().find(|folder| names_folder(line, folder)) {
                let what = format!("a path under {folder} exists on one machine only");
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    what,
                    "make it relative to the checkout, or a variable",
                ));
            }
        }
    }
    findings
}

/// Whether `folder` begins an absolute path in `line`.
fn names_folder(line: &str, folder: &str) -> bool {
    let starts = line.match_indices(folder).map(|(at, _)| line[..at].chars().next_back());
    starts.into_iter().any(|before| !before.is_some_and(|c| c.is_alphanumeric() || "_.-~}".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn other_characters_and_machine_paths_are_found() {
        let text = format!("\u{2014}\n\"{}x\"\n", FOLDERS[0]);
        let found = found(check, &[("a.rs", &text)]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], "a.rs:1: '\u{2014}' (U+2014) is not ASCII");
        assert_eq!(found[1], format!("a.rs:2: a path under {} exists on one machine only", FOLDERS[0]));
    }

    #[test]
    fn fixtures_and_paths_relative_to_something_pass() {
        let text = format!("let a = \"target{0}x ..{0}y {{}}{0}\";", FOLDERS[0]);
        assert!(found(check, &[("tests/fixtures/a.hl7", "\u{e9}"), ("a.rs", &text)]).is_empty());
    }
}
