//! Head comments: every Rust file begins with a comment (`//!`) that describes the file.

use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// The smallest number of words of a head comment: a shorter one adds nothing to the name of the file.
const WORDS_MIN: usize = 5;

/// Reports files without a head comment, and head comments of a word or two.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mend = "open the file with //!: what it is, its invariants, what it leaves out";
    let mut findings = Vec::new();
    for (file, _) in tree.rust() {
        let top = file.text.lines().skip_while(|line| line.trim().is_empty() || line.starts_with("#!"));
        let head: Vec<&str> = top.map_while(|line| line.strip_prefix("//!")).collect();
        let words = head.iter().flat_map(|line| line.split_whitespace()).count();
        if words == 0 {
            findings.push(Finding::new(&file.path, 1, "no head comment", mend));
        } else if words < WORDS_MIN {
            findings.push(Finding::new(&file.path, 1, format!("a head comment of {words} words"), mend));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn a_missing_or_empty_head_comment_is_found() {
        let files = [("a.rs", "// comment\nfn f() {}\n"), ("b.rs", "//! (skeleton)\n")];
        assert_eq!(found(check, &files), ["a.rs:1: no head comment", "b.rs:1: a head comment of 1 words"]);
    }

    #[test]
    fn a_head_comment_passes_also_below_an_inner_attribute() {
        let files = [("a.rs", "#![no_main]\n//! One target of the coverage-guided runs.\n"), ("b.md", "text")];
        assert!(found(check, &files).is_empty());
    }
}
