//! ci: runs every check in one command and prints one closing line.
//!
//! ```text
//!   [ok]    fmt                          0.9 s
//!   [ok]    test                       131.2 s   412 cases
//!   [FAIL]  doc                         14.0 s   log: target/ci/doc.log
//!   [skip]  test-clients                 0.1 s
//!           skipped: no python3
//!   1 skipped, which the closing line does not count
//!   413 passed, 1 failed
//! ```
//!
//! The closing line sums test cases and steps. A failed step does not end the run: the results of the others are useful
//! too. Each step writes the output of its tool to its own log. A failed step shows the lines that explain the failure,
//! and the path of the log. A step that lacks something (a tool, a permission, a corpus) is skipped and reported with
//! the reason. It counts as neither passed nor failed.
//!
//! This module contains no checks of its own: the tools and tests make them.

mod cost;
mod deny;
mod features;
mod step;
mod steps;
mod tally;

pub(crate) use steps::run;
