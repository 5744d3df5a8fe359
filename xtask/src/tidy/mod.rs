//! tidy: the house rules that a compiler does not check, as a test.
//!
//! A written rule without a failing test decays, so each rule of CONTRIBUTING.md that text can decide is a file under
//! `rules/`. Each rule is a function from the [tree](tree::Tree) to findings `path:line: what: how to mend`.
//! A rule has no list of exceptions but one that may only shrink: an entry that nothing needs any more is a finding itself.

pub(crate) mod modules;
pub(crate) mod report;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod tree;
