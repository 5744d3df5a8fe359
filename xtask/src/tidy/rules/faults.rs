//! Faults: every row of docs/faults.md names a test, and every named test exists.
//!
//! The last cell of a row has names in backquotes: a test function (`name`) or a script (`scripts/name.sh`).

use crate::tidy::report::Finding;
use crate::tidy::scan::words;
use crate::tidy::tree::Tree;
use std::collections::BTreeSet;

const FAULTS: &str = "docs/faults.md";

/// Reports rows without a test, and names of tests that do not exist.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file(FAULTS) else {
        return vec![Finding::new(FAULTS, 1, "there is no table of faults", "write fault, detection, reaction, test")];
    };
    let functions = functions(tree);
    let mut findings = Vec::new();
    for (index, row) in file.text.lines().enumerate().filter(|(_, line)| is_row(line)) {
        let cell = row.trim().trim_end_matches('|').rsplit('|').next().unwrap_or("");
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            findings.push(Finding::new(
                FAULTS,
                index + 1,
                "a fault without a test",
                "name the test in the last column",
            ));
        }
        for name in names.iter().filter(|name| !functions.contains(**name) && !tree.paths.contains(**name)) {
            let what = format!("there is no test {name}");
            findings.push(Finding::new(FAULTS, index + 1, what, "name a test that exists as `fn name`"));
        }
    }
    findings
}

/// Whether the line is a row of a table, and neither its head nor the line below the head.
fn is_row(line: &str) -> bool {
    line.starts_with('|') && !line.starts_with("|-") && !line.starts_with("| fault |")
}

/// The names of all functions of the tree.
fn functions(tree: &Tree) -> BTreeSet<&str> {
    let name = |rest: &str| rest.trim_start().chars().take_while(|c| crate::tidy::scan::is_word(*c)).count();
    let sources = tree.rust().flat_map(|(_, source)| words(&source.code, "fn").map(|at| &source.code[at + 2..]));
    sources.map(|rest| &rest.trim_start()[..name(rest)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    const HEAD: &str = "| fault | detection | reaction | test |\n|---|---|---|---|\n";

    #[test]
    fn rows_without_a_test_and_tests_that_do_not_exist_are_found() {
        let table = format!("{HEAD}| torn write | a | b | `gone` |\n| full | a | b | soon |\n");
        let expected = ["docs/faults.md:3: there is no test gone", "docs/faults.md:4: a fault without a test"];
        assert_eq!(found(check, &[(FAULTS, &table)]), expected);
    }

    #[test]
    fn rows_whose_tests_exist_pass() {
        let table = format!("{HEAD}| torn write | a | b | `a_torn_write_is_cut`, `scripts/kill.sh` |\n");
        let files = [(FAULTS, table.as_str()), ("a.rs", "fn a_torn_write_is_cut() {}"), ("scripts/kill.sh", "")];
        assert!(found(check, &files).is_empty());
    }
}
