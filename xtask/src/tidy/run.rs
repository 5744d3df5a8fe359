//! The table of rules, and the function that runs them.

use super::report::{Finding, Rule};
use super::rules;
use super::tree::Tree;
use anyhow::Context;
use std::path::Path;

/// Every rule with its name.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("size", rules::size::check),
    ("layers", rules::layers::check),
    ("cycles", rules::cycles::check),
    ("types", rules::types::check_names),
    ("impls", rules::types::check_impls),
    ("head-comments", rules::head_comments::check),
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

/// Loads the checkout at `root`, and prints every finding and a closing line. Returns true if there was no finding.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let tree = Tree::load(root)?;
    let findings = check_all(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} rules, {} findings", tree.files.len(), RULES.len(), findings.len());
    Ok(findings.is_empty())
}

/// Replaces the quoted files in every Markdown page. Findings of other rules need a manual correction.
pub(crate) fn mend(root: &Path) -> anyhow::Result<bool> {
    let tree = Tree::load(root)?;
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        let mended = rules::quotes::mend(&tree, &file.text).text;
        if mended != file.text {
            std::fs::write(root.join(&file.path), mended).with_context(|| format!("cannot write {}", file.path))?;
            println!("{}: quotes replaced", file.path);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = crate::root().expect("the tests run inside the checkout");
        let findings = check_all(&Tree::load(&root).expect("git lists the checkout"));
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
    }
}
