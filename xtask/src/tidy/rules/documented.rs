//! Documented: every `pub` item and field has a doc comment.
//!
//! rustc's `missing_docs` checks only the exports of a library. This rule reads the text, so it covers binaries and
//! private modules too. Re-exports are documented at their definition, modules by their head comment, and flattened
//! fields by the fields of their type. Test code is not checked.

use crate::tidy::report::Finding;
use crate::tidy::scan::is_word;
use crate::tidy::tree::Tree;

/// The kinds of item, and the words that may be between `pub` and the kind; `const` is both.
const KINDS: &[&str] = &["fn", "struct", "enum", "trait", "const", "static", "type", "union", "macro"];
const QUALIFIERS: &[&str] = &["unsafe", "async", "const", "extern"];

/// Reports each undocumented item.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in
        tree.rust().filter(|(file, _)| !file.path.contains("/tests/") && !file.path.contains("/tests.rs"))
    {
        let skipped = source.test_lines();
        let raw: Vec<&str> = file.text.lines().collect();
        for (index, line) in source.code.lines().enumerate() {
            let Some(item) = public_item(line.trim_start()) else { continue };
            let in_tests = skipped.iter().any(|range| range.contains(&(index + 1)));
            if !in_tests && !is_documented(&raw[..index]) {
                let what = format!("pub {item} is not documented");
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    what,
                    "document its meaning, unit, range, default, errors",
                ));
            }
        }
    }
    findings
}

/// The public item that a line of code declares: `fn name`, `struct Name`, `field name`.
fn public_item(line: &str) -> Option<String> {
    let name = |text: &str| text.chars().take_while(|c| is_word(*c)).collect::<String>();
    let declared = line.strip_prefix("pub ")?;
    // The ABI of an extern function is a literal: an empty pair of quotes here.
    let words: Vec<&str> = declared.split_whitespace().filter(|word| !word.contains('"')).collect();
    let qualifies = |at: usize| QUALIFIERS.contains(&words[at]) && words.get(at + 1).is_some_and(|next| is_item(next));
    let first = (0..words.len()).find(|at| !qualifies(*at))?;
    if KINDS.contains(&words[first]) {
        return Some(format!("{} {}", words[first], name(words.get(first + 1).unwrap_or(&""))));
    }
    let field = name(declared);
    let typed = declared[field.len()..].starts_with(':') && !declared[field.len()..].starts_with("::");
    (typed && !field.is_empty()).then(|| format!("field {field}"))
}

fn is_item(word: &str) -> bool {
    KINDS.contains(&word) || QUALIFIERS.contains(&word)
}

/// Whether the lines above an item end with a doc comment, apart from attributes.
fn is_documented(above: &[&str]) -> bool {
    let mut inside_attribute = false;
    for line in above.iter().rev().map(|line| line.trim()) {
        if inside_attribute {
            inside_attribute = !line.starts_with("#[");
        } else if ["///", "#[doc", "#[command(flatten)]", "#[serde(flatten)]"]
            .iter()
            .any(|start| line.starts_with(start))
        {
            return true;
        } else if line.starts_with("#[") || line.starts_with("//") {
            continue;
        } else if line == ")]" || line == "]" {
            inside_attribute = true;
        } else {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn undocumented_items_and_fields_are_found() {
        let text = "//! E\n\npub const async fn f() {}\n#[derive(Debug)]\npub struct S {\n    pub a: u8,\n}\npub const LIMIT: u8 = 1;\n";
        let expected = ["3: pub fn f", "5: pub struct S", "6: pub field a", "8: pub const LIMIT"];
        let expected: Vec<String> = expected.iter().map(|line| format!("a.rs:{line} is not documented")).collect();
        assert_eq!(found(check, &[("a.rs", text)]), expected);
    }

    #[test]
    fn documented_private_reexported_and_test_items_pass() {
        let text = "/// Doc.\n#[cfg_attr(\n    a,\n    b\n)]\npub fn f() {}\npub use a::b;\npub mod c;\npub(crate) fn g() {}\n\
                    #[cfg(test)]\nmod tests {\n    pub fn h() {}\n}\nstatic S: &str = \"\npub fn i() {}\";\n";
        let flattened = "/// Doc.\npub struct S {\n    #[command(flatten)]\n    pub place: Place,\n}\n";
        let files = [("a.rs", text), ("b.rs", flattened), ("crates/a/tests/main.rs", "pub fn j() {}")];
        assert!(found(check, &files).is_empty());
    }
}
