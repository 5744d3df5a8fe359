//! Links: the target of every relative link in a Markdown file is a file, a folder or a heading of the tree.
//!
//! The rule reads inline links `[text](target)` and definitions `[label]: target`, outside code. It does not check
//! addresses with a scheme: the tree cannot control whether other sites are available.

use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// Reports each link without a target.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        for (line, target) in links(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            if !path.is_empty() && !tree.paths.contains(&path) {
                let what = format!("dead link {target}");
                findings.push(Finding::new(&file.path, line, what, "there is no such file or folder"));
            } else if !anchor.is_empty() && !tree.file(&path).is_some_and(|file| has_anchor(&file.text, anchor)) {
                findings.push(Finding::new(
                    &file.path,
                    line,
                    format!("dead link {target}"),
                    "there is no such heading",
                ));
            }
        }
    }
    findings
}

/// `target` relative to the folder of `from`; the root itself is "".
fn resolve(from: &str, target: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("/")
}

/// The lines of a Markdown text outside fenced code, with spaces in place of inline code, numbered from 1.
pub(crate) fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let parts = line.split('`').enumerate();
            let kept = parts.map(|(part, text)| if part % 2 == 0 { text.to_owned() } else { " ".repeat(text.len()) });
            lines.push((index + 1, kept.collect::<Vec<_>>().join("`")));
        }
    }
    lines
}

fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            if let Some(end) = line[at..].find(')') {
                let target = line[at + 2..at + end].split_whitespace().next().unwrap_or("");
                found.push((number, target.to_owned()));
            }
        }
        let definition = line.split_once("]: ").filter(|(label, _)| label.starts_with('[') && !label.contains("]("));
        found.extend(definition.map(|(_, target)| (number, target.trim().to_owned())));
    }
    found
}

/// Whether a heading of `text` has this anchor, by the rule of GitHub: lower case, words joined by `-`, other signs
/// dropped.
fn has_anchor(text: &str, anchor: &str) -> bool {
    let mut fenced = false;
    text.lines().any(|line| {
        fenced ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) else { return false };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).eq(anchor.chars())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn links_to_nothing_are_found() {
        let text = "# A b\n[x](gone.md)\n[y](#c)\n[z](../README.md#a-c)\n\n[d]: nowhere\n";
        let files = [("docs/a.md", text), ("README.md", "# A b\n")];
        let expected =
            ["2: dead link gone.md", "3: dead link #c", "4: dead link ../README.md#a-c", "6: dead link nowhere"];
        assert_eq!(found(check, &files), expected.map(|line| format!("docs/a.md:{line}")));
    }

    #[test]
    fn links_that_lead_somewhere_and_links_in_code_pass() {
        let text = "# How `x` works, 2nd\n[a](../README.md#a-b) [b](../docs/) [c](#how-x-works-2nd) [d](https://x.y/z#q) `[e](no)`\n\
                    ```\n[f](no)\n```\n";
        assert!(found(check, &[("docs/a.md", text), ("README.md", "## A b\n")]).is_empty());
    }
}
