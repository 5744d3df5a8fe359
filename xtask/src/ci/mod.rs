//! ci: every check there is, in one command, with one closing line.
//!
//! ```text
//!   [ok]    fmt                          0.9 s
//!   [ok]    test                       131.2 s   412 cases
//!   [FAIL]  doc                         14.0 s   log: target/ci/doc.log
//!   413 passed, 1 failed
//! ```
//!
//! The closing line sums test cases and steps. A failed step does not end the run: the rest is worth knowing too. Each
//! step writes what its tool said to a log of its own; a failed step shows the lines that matter and names the log.
//!
//! Nothing here decides what is right: tools and tests do.

mod deny;
mod step;
mod steps;
mod tally;

pub(crate) use steps::run;
