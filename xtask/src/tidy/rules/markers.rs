//! Markers: the tree has no unfinished code, and no disabled tests.
//!
//! The words are assembled from halves, so that the rule does not find them in this file.

use super::links::prose;
use crate::tidy::report::Finding;
use crate::tidy::scan::words;
use crate::tidy::tree::Tree;

/// Macros and attributes that are searched in code.
const IN_CODE: &[&str] =
    &[concat!("to", "do!"), concat!("unimple", "mented!"), concat!("d", "bg!"), concat!("#[ig", "nore")];

/// Words that are searched in comments.
const IN_COMMENTS: &[&str] = &[concat!("FIX", "ME"), concat!("X", "XX"), concat!("TO", "DO"), concat!("HA", "CK")];

/// How git begins and ends the lines of a merge that nobody has finished.
const OF_MERGES: &[&str] = &[concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];

/// Reports each marker.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mend = "finish it, or refuse the case with a clear error and document it as missing";
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        for marker in IN_CODE {
            for (at, _) in source.code.match_indices(marker).filter(|(at, _)| starts_word(&source.code, *at)) {
                findings.push(Finding::new(&file.path, source.line_of(at), format!("leftover {marker}"), mend));
            }
        }
        for marker in IN_COMMENTS {
            for at in words(&source.comments, marker) {
                findings.push(Finding::new(&file.path, source.line_of(at), format!("leftover {marker}"), mend));
            }
        }
    }
    for file in tree.files.iter().filter(|file| file.has_extension(&["toml", "sh", "py", "md"])) {
        // Code in Markdown may quote other texts, so only the prose is checked.
        let lines = if file.has_extension(&["md"]) { prose(&file.text) } else { numbered(&file.text) };
        for (line, text) in lines {
            for marker in IN_COMMENTS.iter().filter(|marker| words(&text, marker).next().is_some()) {
                findings.push(Finding::new(&file.path, line, format!("leftover {marker}"), mend));
            }
        }
    }
    for file in &tree.files {
        for (line, text) in numbered(&file.text) {
            if OF_MERGES.iter().any(|marker| text.starts_with(marker)) {
                findings.push(Finding::new(
                    &file.path,
                    line,
                    "an unfinished merge".to_owned(),
                    "keep the right side, or both",
                ));
            }
        }
    }
    findings
}

fn numbered(text: &str) -> Vec<(usize, String)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect()
}

fn starts_word(code: &str, at: usize) -> bool {
    !code[..at].chars().next_back().is_some_and(crate::tidy::scan::is_word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn an_unfinished_merge_is_found_in_any_file() {
        for marker in OF_MERGES {
            assert_eq!(
                found(check, &[("scripts/a.txt", &format!("one\n{marker}HEAD\n"))]),
                ["scripts/a.txt:2: an unfinished merge"]
            );
        }
        assert_eq!(found(check, &[("scripts/a.txt", "a <<<<<<< b\n=======\n")]), [""; 0]);
    }

    #[test]
    fn every_marker_is_found() {
        for marker in IN_CODE {
            assert_eq!(found(check, &[("a.rs", &format!("\n{marker}"))]), [format!("a.rs:2: leftover {marker}")]);
        }
        for marker in IN_COMMENTS {
            let files = [("a.rs", format!("// {marker}: later")), ("b.md", format!("{marker}\n"))];
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            assert_eq!(
                found(check, &files),
                [format!("a.rs:1: leftover {marker}"), format!("b.md:1: leftover {marker}")]
            );
        }
    }

    #[test]
    fn markers_in_literals_and_inside_words_pass() {
        let text = format!("let a = \"{}()\"; my{}(); // {}ED\n", IN_CODE[0], IN_CODE[0], IN_COMMENTS[0]);
        let quoted = format!("`{}`\n", IN_COMMENTS[1]);
        assert!(found(check, &[("a.rs", &text), ("b.md", &quoted)]).is_empty());
    }
}
