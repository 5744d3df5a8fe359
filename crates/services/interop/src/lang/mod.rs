//! The declared language: transforms and routing rules as text files, checked when loaded, compiled, then run.
//!
//! ```text
//! transforms/NAME.hl7t --+                  +--> Transforms::run(message draft) -> Send | Skip
//! rules/NAME.rules ------+--> parse --> compile
//! tables/NAME.csv -------+                  +--> Rules::decide(message) -> where to, and why
//!
//!   text    scan      parse       compile       machine
//!          (bytes)   (syntax)   (program: flat operations, resolved indices)
//! ```
//!
//! `docs/language.md` is the language for its users. What holds here:
//!
//! - **Pure.** No I/O, no clock, no randomness: what a run may know stands in [`Context`].
//! - **A fault is found when the file is loaded**, if it can be, and says file, line, column, and what to do.
//! - **A run error never carries what a message holds**: it names file, line, path, table.
//! - **Values are raw content.** What is copied stays byte for byte; only a literal is escaped, for the delimiters of
//!   the message at hand.
//! - **Every run ends.** Loops go over what there was when they began, calls cannot form a cycle, and a run may be given
//!   an allowance of time; what it makes is bounded in bytes and segments.
//!
//! What it deliberately is not: a programming language. There are no user functions with arguments, no arithmetic, no
//! regular expressions, no structures; what needs them is a service's work, not a transform's.

mod allowance;
mod compile;
mod content;
mod context;
mod diagnostic;
mod index;
mod machine;
mod number;
mod parse;
mod program;
mod rules;
mod scan;
mod syntax;
mod table;
mod time;
mod transforms;

#[doc(hidden)]
pub mod fuzzing;

#[cfg(test)]
mod tests;

pub use allowance::Allowance;
pub use context::{Context, Outcome, Problem, RunError};
pub use diagnostic::{Diagnostic, Source};
pub(crate) use diagnostic::{diagnose, suggest};
pub use rules::{Decision, Rules, Send, Verdict};
pub use table::{Table, Tables};
pub use transforms::{TransformId, Transforms};
