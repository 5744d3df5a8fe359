//! Words: each concept has one word. The table of banned synonyms is in docs/glossary.md, where people read it too.
//!
//! The table under the heading "Banned synonyms" has rows `| say | not this, nor that |`. The rule checks names and
//! comments of Rust files and the prose of Markdown files. It does not check literals, or code in Markdown: they may
//! quote other texts. The glossary and the decision records are exempt, because they compare the words of other
//! systems.

use super::links::prose;
use crate::tidy::report::Finding;
use crate::tidy::tree::{File, Tree};

const GLOSSARY: &str = "docs/glossary.md";

/// A banned phrase as a list of words, and its replacement.
struct Ban {
    phrase: Vec<String>,
    say: String,
}

/// Reports each use of a banned synonym.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(glossary) = tree.file(GLOSSARY) else {
        return vec![Finding::new(GLOSSARY, 1, "there is no glossary", "write one, with its table of banned synonyms")];
    };
    let bans = bans(&glossary.text);
    let mut findings = Vec::new();
    if bans.is_empty() {
        findings.push(Finding::new(
            GLOSSARY,
            1,
            "no banned synonyms",
            "keep the table below the heading Banned synonyms",
        ));
    }
    for file in tree.files.iter().filter(|file| file.path != GLOSSARY && !file.path.starts_with("docs/adr/")) {
        for (line, text) in readable(file) {
            let words = words_of(&text);
            for ban in bans.iter().filter(|ban| words.windows(ban.phrase.len()).any(|window| window == ban.phrase)) {
                let what = format!("\"{}\" is a banned synonym of \"{}\"", ban.phrase.join(" "), ban.say);
                findings.push(Finding::new(&file.path, line, what, "use the glossary's word"));
            }
        }
    }
    findings
}

/// The lines of a file that are our own words.
fn readable(file: &File) -> Vec<(usize, String)> {
    match &file.source {
        Some(source) => {
            let lines = source.code.lines().zip(source.comments.lines()).enumerate();
            lines.map(|(index, (code, comment))| (index + 1, format!("{code} {comment}"))).collect()
        }
        None if file.has_extension(&["md"]) => prose(&file.text),
        None => Vec::new(),
    }
}

fn bans(glossary: &str) -> Vec<Ban> {
    let table = glossary.lines().skip_while(|line| !line.ends_with("Banned synonyms")).skip(1);
    let rows = table.take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with('|')).skip(2);
    let mut bans = Vec::new();
    for row in rows {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (Some(say), Some(not)) = (cells.next(), cells.next()) else { continue };
        for phrase in not.split(',') {
            bans.push(Ban { phrase: words_of(phrase), say: say.to_owned() });
        }
    }
    bans.retain(|ban| !ban.phrase.is_empty());
    bans
}

/// Lower-case words, split at the humps of CamelCase and at every character that is no letter or digit. A character
/// that separates words (any but a blank, `_` and `-`) is a word of its own, so that no phrase matches across it.
fn words_of(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous_lower = false;
    for character in text.chars() {
        let hump = character.is_uppercase() && previous_lower;
        if hump || !character.is_alphanumeric() {
            words.push(String::new());
        }
        if character.is_alphanumeric() {
            words.last_mut().expect("there is always a last word").extend(character.to_lowercase());
        } else if !" _-".contains(character) {
            words.extend([character.to_string(), String::new()]);
        }
        previous_lower = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    const TABLE: &str = "# Glossary\n## Banned synonyms\n\n| say | not |\n|---|---|\n| journal | wal, redo log |\n";

    #[test]
    fn banned_words_in_names_comments_and_prose_are_found() {
        let files = [
            (GLOSSARY, TABLE),
            ("a.rs", "struct WalReader;\n// the redo log\nlet wal_bytes = 1;\n"),
            ("b.md", "A redo-log.\n"),
        ];
        let expected = [
            "a.rs:1: \"wal\" is a banned synonym of \"journal\"",
            "a.rs:2: \"redo log\" is a banned synonym of \"journal\"",
            "a.rs:3: \"wal\" is a banned synonym of \"journal\"",
            "b.md:1: \"redo log\" is a banned synonym of \"journal\"",
        ];
        assert_eq!(found(check, &files), expected);
    }

    #[test]
    fn other_words_literals_and_decision_records_pass() {
        let files = [
            (GLOSSARY, TABLE),
            ("a.rs", "let wall = \"wal\"; // redo the log, redo. Log\n"),
            ("b.md", "`wal` walrus\n"),
            ("docs/adr/1.md", "their WAL"),
        ];
        assert!(found(check, &files).is_empty());
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(found(check, &[(GLOSSARY, "# Glossary\n")]), ["docs/glossary.md:1: no banned synonyms"]);
    }
}
