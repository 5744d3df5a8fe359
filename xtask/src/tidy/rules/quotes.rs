//! Quotes: a Markdown code block that names a file has exactly the content of that file.
//!
//! ````text
//!   ```toml file=path/from/the/root.toml
//!   kind = "mllp"
//!   ```
//! ````
//!
//! A reader copies the text that the tests run. `cargo xtask tidy --mend` replaces blocks that differ.

use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// Reports each block that differs from its file, and each name of a missing file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        let mended = mend(tree, &file.text);
        for (line, path) in mended.missing {
            findings.push(Finding::new(
                &file.path,
                line,
                format!("there is no file {path}"),
                "name a file of the tree",
            ));
        }
        for line in mended.stale {
            let mend = "run cargo xtask tidy --mend";
            findings.push(Finding::new(&file.path, line, "the block differs from the file it names", mend));
        }
    }
    findings
}

/// A Markdown page with replaced quotes.
pub(crate) struct Mended {
    /// The whole page.
    pub(crate) text: String,
    /// Lines of the blocks that differed.
    stale: Vec<usize>,
    /// Lines of the blocks that name a missing file.
    missing: Vec<(usize, String)>,
}

/// Replaces the quotes of `text`.
pub(crate) fn mend(tree: &Tree, text: &str) -> Mended {
    let mut mended = Mended { text: String::new(), stale: Vec::new(), missing: Vec::new() };
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        mended.text += &format!("{line}\n");
        let path = line.strip_prefix("```").and_then(|info| info.split_once("file=")).map(|(_, path)| path.trim());
        let Some(path) = path else { continue };
        let mut quoted = String::new();
        for (_, line) in lines.by_ref().take_while(|(_, line)| *line != "```") {
            quoted += &format!("{line}\n");
        }
        match tree.file(path) {
            None => mended.missing.push((index + 1, path.to_owned())),
            Some(file) => {
                if file.text != quoted {
                    mended.stale.push(index + 1);
                }
                quoted.clone_from(&file.text);
            }
        }
        mended.text += &format!("{quoted}```\n");
    }
    mended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn blocks_that_differ_from_their_file_are_found_and_mended() {
        let page = "a\n```toml file=x.toml\nold\n```\nb\n```sh file=gone.sh\n```\n";
        let files = [("a.md", page), ("x.toml", "new\n")];
        let expected = ["a.md:6: there is no file gone.sh", "a.md:2: the block differs from the file it names"];
        assert_eq!(found(check, &files), expected);
        let mended = mend(&Tree::of(&files), page).text;
        assert_eq!(mended, page.replace("old", "new"));
    }

    #[test]
    fn blocks_that_hold_their_file_and_blocks_without_one_pass() {
        let page = "```toml file=x.toml\nnew\n```\n```text\nfree\n```\n";
        assert!(found(check, &[("a.md", page), ("x.toml", "new\n")]).is_empty());
    }
}
