//! Counting: what a tool printed, as cases passed and failed.

use std::fmt;
use std::ops::AddAssign;

/// Cases, or cases and steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// How many held.
    pub(crate) passed: usize,
    /// How many did not.
    pub(crate) failed: usize,
}

impl Tally {
    /// The sum of cargo's `test result:` lines.
    pub(crate) fn of_cargo(log: &str) -> Tally {
        let mut sum = Tally::default();
        for line in log.lines().filter_map(|line| line.trim().strip_prefix("test result: ")) {
            // "ok. 3 passed; 0 failed; 0 ignored; ..." -- the verdict and the first count share a part.
            let counts = line.split(['.', ';']).map(str::trim);
            for count in counts {
                match count.split_once(' ') {
                    Some((number, "passed")) => sum.passed += number.parse::<usize>().unwrap_or(0),
                    Some((number, "failed")) => sum.failed += number.parse::<usize>().unwrap_or(0),
                    _ => {}
                }
            }
        }
        sum
    }

    /// The closing line of a script, `N passed, N failed`: the last one it printed, none if it printed none.
    pub(crate) fn of_script(log: &str) -> Option<Tally> {
        let closing = |line: &str| {
            let (passed, failed) = line.trim().strip_suffix(" failed")?.split_once(" passed, ")?;
            Some(Tally { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
        };
        log.lines().rev().find_map(closing)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

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
        assert_eq!(Tally::of_cargo(log), Tally { passed: 15, failed: 2 });
        assert_eq!(Tally::of_cargo("error: could not compile\n"), Tally::default());
    }

    #[test]
    fn a_script_is_counted_by_its_last_closing_line() {
        let log = "1 passed, 0 failed\nmore\n7 passed, 2 failed\nbye\n";
        assert_eq!(Tally::of_script(log), Some(Tally { passed: 7, failed: 2 }));
        assert_eq!(Tally::of_script("all passed, none failed\n"), None);
    }

    #[test]
    fn the_closing_line_reads_back_as_itself() {
        let tally = Tally { passed: 3, failed: 4 };
        assert_eq!(Tally::of_script(&tally.to_string()), Some(tally));
    }
}
