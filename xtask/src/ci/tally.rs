//! Counts the passed, failed and skipped cases in the output of a tool.
//!
//! A case prints a line `skipped: WHY` if something was missing (a file system, a corpus, a permission) and it tested
//! nothing, or only a part. It is reported with its reason and counts as neither passed nor failed. libtest counts such
//! a test as passed, and shows its output only with `--show-output`.

use std::fmt;
use std::ops::AddAssign;

/// Cases, or cases and steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// The number of passed cases.
    pub(crate) passed: usize,
    /// The number of failed cases.
    pub(crate) failed: usize,
    /// The number of cases that did not run, or not in full.
    pub(crate) skipped: usize,
}

impl Tally {
    /// The sum of cargo's `test result:` lines; the tests of `skips` are taken out of the passed ones.
    pub(crate) fn of_cargo(log: &str, skips: &[String]) -> Tally {
        let mut sum = Tally { skipped: skips.len(), ..Tally::default() };
        // Only at the start of a line: a test may print the result line of another run (as the tests of this file do),
        // with an indent.
        for line in log.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            // "ok. 3 passed; 0 failed; 0 ignored; ...": a dot separates the result from the first count.
            let counts = line.split(['.', ';']).map(str::trim);
            for count in counts {
                match count.split_once(' ') {
                    Some((number, "passed")) => sum.passed += number.parse::<usize>().unwrap_or(0),
                    Some((number, "failed")) => sum.failed += number.parse::<usize>().unwrap_or(0),
                    _ => {}
                }
            }
        }
        sum.passed = sum.passed.saturating_sub(sum.skipped);
        sum
    }

    /// Whether no case ran, for any reason.
    pub(crate) fn is_empty(self) -> bool {
        self.passed + self.failed == 0
    }

    /// The closing line of a script, `N passed, N failed`: the last one it printed, or `None`.
    pub(crate) fn of_script(log: &str) -> Option<Tally> {
        let closing = |line: &str| {
            let (passed, failed) = line.trim().strip_suffix(" failed")?.split_once(" passed, ")?;
            Some(Tally { passed: passed.parse().ok()?, failed: failed.parse().ok()?, skipped: 0 })
        };
        log.lines().rev().find_map(closing)
    }
}

/// The passed tests of a cargo log that printed `skipped: WHY`, as `TEST: WHY`, each once. Failed tests that print such
/// a line count as failed.
pub(crate) fn skips_of_cargo(log: &str) -> Vec<String> {
    let mut skips: Vec<String> = Vec::new();
    let (mut passed, mut test, mut noted) = (false, "", false);
    for line in log.lines() {
        let begun = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
        match (line, begun) {
            ("successes:", _) => passed = true,
            ("failures:", _) => passed = false,
            (_, Some(name)) => (test, noted) = (name, false),
            _ if line.starts_with("test result: ") => passed = false,
            _ if passed && !noted => {
                if let Some(why) = line.strip_prefix("skipped: ") {
                    skips.push(format!("{test}: {why}"));
                    noted = true;
                }
            }
            _ => {}
        }
    }
    skips
}

/// The skips of a script: its lines `skipped: WHY`.
pub(crate) fn skips_of_script(log: &str) -> Vec<String> {
    log.lines().filter_map(|line| line.strip_prefix("skipped: ")).map(str::to_owned).collect()
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The closing line. It does not include skipped cases: they are reported before it.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_test_binaries_are_summed() {
        let log = "test a ... ok\ntest result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; finished in 0.04s\n\
                   test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured\n";
        assert_eq!(Tally::of_cargo(log, &[]), Tally { passed: 15, failed: 2, skipped: 0 });
        assert_eq!(Tally::of_cargo("error: could not compile\n", &[]), Tally::default());
        let quoted = "        test result: FAILED. 3 passed; 2 failed\ntest result: ok. 1 passed; 0 failed\n";
        assert_eq!(Tally::of_cargo(quoted, &[]), Tally { passed: 1, failed: 0, skipped: 0 });
    }

    /// The output of libtest (Rust 1.95) with `--show-output`: `b` was skipped, `c` failed.
    const SHOWN: &str = "running 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... FAILED\n\nsuccesses:\n\n\
                         ---- a stdout ----\nskipped no line of the form\n\n---- b stdout ----\nskipped: no /dev/shm\nskipped: twice\n\n\n\
                         successes:\n    a\n    b\n\nfailures:\n\n---- c stdout ----\nskipped: x\nthread 'c' panicked at c.rs:1:\n\n\n\
                         failures:\n    c\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";

    #[test]
    fn a_test_that_was_skipped_is_named_and_not_counted_as_passed() {
        let skips = skips_of_cargo(SHOWN);
        assert_eq!(skips, ["b: no /dev/shm"]);
        assert_eq!(Tally::of_cargo(SHOWN, &skips), Tally { passed: 1, failed: 1, skipped: 1 });
    }

    #[test]
    fn a_script_is_counted_by_its_last_closing_line() {
        let log = "1 passed, 0 failed\nmore\n7 passed, 2 failed\nbye\n";
        assert_eq!(Tally::of_script(log), Some(Tally { passed: 7, failed: 2, skipped: 0 }));
        assert_eq!(Tally::of_script("all passed, none failed\n"), None);
    }

    #[test]
    fn the_closing_line_reads_back_as_itself() {
        let tally = Tally { passed: 3, failed: 4, skipped: 0 };
        assert_eq!(Tally::of_script(&tally.to_string()), Some(tally));
    }

    #[test]
    fn what_is_skipped_is_not_in_the_closing_line() {
        assert_eq!(Tally { passed: 3, failed: 4, skipped: 5 }.to_string(), "3 passed, 4 failed");
    }
}
