//! Sizes: a file has at most 600 lines, a function at most 70.
//!
//! The limits are those of code bases that developers call readable: 0 to 11 % of their files have more than 600 lines;
//! of code bases that developers call hard to understand, it is 30 to 40 %. 70 lines fit on one screen, and are the
//! limit of TigerBeetle (docs/TIGER_STYLE.md).

use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// The largest number of lines of a file, with its tests.
const FILE_LINES_MAX: usize = 600;

/// The largest number of lines of a function, from `fn` to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Reports files and functions that are too long.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["rs", "py", "sh"])) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            let what = format!("{lines} lines, at most {FILE_LINES_MAX}");
            findings.push(Finding::new(&file.path, lines, what, "split it by phase; move tests to their own file"));
        }
    }
    for (file, source) in tree.rust() {
        for (name, first, last) in source.functions() {
            let lines = last - first + 1;
            if lines > FUNCTION_LINES_MAX {
                let what = format!("fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
                findings.push(Finding::new(&file.path, first, what, "give its phases names"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn long_files_and_functions_are_found() {
        let file = "\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(found(check, &[("a.rs", &file)]), ["a.rs:601: 601 lines, at most 600"]);
        let function = format!("\nfn f() {{\n{}}}\n", "g();\n".repeat(FUNCTION_LINES_MAX - 1));
        assert_eq!(found(check, &[("a.rs", &function)]), ["a.rs:2: fn f has 71 lines, at most 70"]);
    }

    #[test]
    fn sizes_at_the_limit_pass() {
        let file = "\n".repeat(FILE_LINES_MAX);
        let function = format!("fn f() {{\n{}}}\n", "g();\n".repeat(FUNCTION_LINES_MAX - 2));
        assert!(found(check, &[("a.rs", &file), ("b.rs", &function), ("c.md", &file.repeat(2))]).is_empty());
    }
}
