//! Findings, and the type of a rule.

use super::tree::Tree;
use std::fmt;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the root of the checkout.
    pub(crate) path: String,
    /// Line number, from 1.
    pub(crate) line: usize,
    /// The violation.
    pub(crate) what: String,
    /// How to correct it.
    pub(crate) mend: &'static str,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>, mend: &'static str) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into(), mend }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.what, self.mend)
    }
}

/// A rule reads the whole tree and returns its findings.
pub(crate) type Rule = fn(&Tree) -> Vec<Finding>;

/// For the tests of the rules: the findings of one rule over a small tree, one on a line, without the correction.
#[cfg(test)]
pub(crate) fn found(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    let findings = rule(&Tree::of(files));
    findings.iter().map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_with_the_way_to_mend_it() {
        let finding = Finding::new("a.rs", 3, "too long", "split it");
        assert_eq!(finding.to_string(), "a.rs:3: too long: split it");
    }
}
