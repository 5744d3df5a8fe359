//! tidy: a test of the coding rules that the compiler does not check.
//!
//! Rules without a failing test are soon ignored. So each rule of CONTRIBUTING.md that a program can check is a file
//! under `rules/`. A rule is a function from the [tree](tree::Tree) to findings `path:line: what: how to mend`. A list
//! of exceptions may only become shorter: an entry that is no longer needed is a finding too.

pub(crate) mod modules;
pub(crate) mod report;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod tree;
