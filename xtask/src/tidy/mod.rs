//! tidy: the house rules that a compiler does not check, as a test.
//!
//! A written rule without a failing test decays, so each rule of CONTRIBUTING.md that text can decide is a file under
//! `rules/`. Each rule is a function from the [tree](tree::Tree) to findings `path:line: what: how to mend`.
//! There are no exceptions lists: a rule that needs one is the wrong rule.

pub(crate) mod report;
pub(crate) mod rules;
pub(crate) mod scan;
pub(crate) mod tree;
