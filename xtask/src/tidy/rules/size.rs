//! Sizes: a file has at most 600 lines, a function at most 70.
//!
//! The limits are those of code bases that people call readable: 0 to 11 % of their files are over 600 lines, against
//! 30 to 40 % of those called hard to enter; 70 lines is one screen, and TigerBeetle's limit (docs/TIGER_STYLE.md).

use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// Most lines of a file, tests included.
const FILE_LINES_MAX: usize = 600;

/// Most lines of a function, from `fn` to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Fires on long files and long functions.
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
