//! Targets that a measurement states, and whether they were met. A missed one ends the command with exit code 1.
//!
//! A figure that is no number meets no target. The targets are defined in each report, not here.

use std::fmt;

use serde::Serialize;

/// On which side of the wanted figure the found one is to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// At it or below.
    AtMost,
    /// At it or above.
    AtLeast,
}

/// A target and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The measured value, with its unit.
    pub what: String,
    /// The side.
    pub bound: Bound,
    /// The target value.
    pub wanted: f64,
    /// The measured value.
    pub found: f64,
    /// Whether it is met.
    pub met: bool,
}

impl Target {
    /// `found` is to be `wanted` or less.
    pub fn at_most(what: impl Into<String>, found: f64, wanted: f64) -> Target {
        Target { what: what.into(), bound: Bound::AtMost, wanted, found, met: found <= wanted }
    }

    /// `found` is to be `wanted` or more.
    pub fn at_least(what: impl Into<String>, found: f64, wanted: f64) -> Target {
        Target { what: what.into(), bound: Bound::AtLeast, wanted, found, met: found >= wanted }
    }

    /// `met` or `MISSED`.
    pub fn verdict(&self) -> &'static str {
        if self.met { "met" } else { "MISSED" }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.bound {
            Bound::AtMost => "at most",
            Bound::AtLeast => "at least",
        };
        write!(f, "{}: {:.2}, target {side} {}: {}", self.what, self.found, self.wanted, self.verdict())
    }
}

/// A line for each target that is missed.
pub fn missed(targets: &[Target]) -> impl Iterator<Item = String> + '_ {
    targets.iter().filter(|target| !target.met).map(|target| format!("target missed: {target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_on_its_side_and_never_by_what_is_no_number() {
        for (target, met) in [
            (Target::at_most("x", 2.0, 2.0), true),
            (Target::at_most("x", 2.1, 2.0), false),
            (Target::at_least("x", 6.0, 6.0), true),
            (Target::at_least("x", 5.9, 6.0), false),
            (Target::at_most("x", f64::NAN, 2.0), false),
            (Target::at_least("x", f64::NAN, 2.0), false),
        ] {
            assert_eq!(target.met, met, "{target}");
        }
        let all = [Target::at_most("ours over theirs", 0.8, 0.7), Target::at_least("x", 7.0, 6.0)];
        assert_eq!(
            missed(&all).collect::<Vec<_>>(),
            ["target missed: ours over theirs: 0.80, target at most 0.7: MISSED"]
        );
    }
}
