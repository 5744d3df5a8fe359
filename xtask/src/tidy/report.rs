//! Findings, the table of rules, and the run over them.

use super::rules;
use super::tree::Tree;
use anyhow::Context;
use std::fmt;
use std::path::Path;

/// One thing to mend.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the root.
    pub(crate) path: String,
    /// Line from 1.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) what: String,
    /// How to mend it.
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

/// A rule looks at the whole tree and answers with what it found.
pub(crate) type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule with its name.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("size", rules::size::check),
    ("layers", rules::layers::check),
    ("essays", rules::essays::check),
    ("documented", rules::documented::check),
    ("markers", rules::markers::check),
    ("links", rules::links::check),
    ("quotes", rules::quotes::check),
    ("text", rules::text::check),
    ("spawns", rules::spawns::check),
    ("unsafety", rules::unsafety::check),
    ("manifests", rules::manifests::check),
    ("architecture", rules::architecture::check),
    ("words", rules::words::check),
    ("faults", rules::faults::check),
];

/// All findings of all rules over `tree`, sorted by path and line.
pub(crate) fn check_all(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|(_, rule)| rule(tree)).collect();
    findings.sort();
    findings
}

/// Loads the checkout at `root`, prints every finding and a closing line; answers whether there was none.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let tree = Tree::load(root)?;
    let findings = check_all(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} rules, {} findings", tree.files.len(), RULES.len(), findings.len());
    Ok(findings.is_empty())
}

/// Writes the quotes of every page anew; the rest is for people to mend.
pub(crate) fn mend(root: &Path) -> anyhow::Result<bool> {
    let tree = Tree::load(root)?;
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        let mended = rules::quotes::mend(&tree, &file.text).text;
        if mended != file.text {
            std::fs::write(root.join(&file.path), mended).with_context(|| format!("cannot write {}", file.path))?;
            println!("{}: quotes written anew", file.path);
        }
    }
    Ok(true)
}

/// For the tests of the rules: the findings of one rule over a small tree, one a line, without the advice.
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

    #[test]
    fn the_tree_is_tidy() {
        let root = crate::root().expect("the tests run inside the checkout");
        let findings = check_all(&Tree::load(&root).expect("git lists the checkout"));
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
    }
}
