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
//! `docs/language.md` describes the language for its users. The rules for the code:
//!
//! - **Pure.** No I/O, no clock, no randomness: all inputs of a run are in [`Context`].
//! - **A fault is found when the file is loaded**, if possible; its report contains file, line, column, and a hint.
//! - **A run error never contains contents of a message**: it names file, line, path, table.
//! - **Values are raw content.** Copied values stay unchanged byte for byte; only a literal is escaped, for the
//!   delimiters of the message.
//! - **Every run ends.** A loop goes over the segments that existed when it began, calls cannot form a cycle, and a run
//!   may have an allowance of time; its output is bounded in bytes and segments.
//!
//! It is deliberately no programming language. There are no user functions with arguments, no arithmetic, no regular
//! expressions, no structures; tasks that need them belong in a service, not in a transform.

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

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

#[cfg(test)]
mod tests;

pub use allowance::Allowance;
pub use context::{Context, Outcome, RunError, RunProblem};
pub use diagnostic::{Diagnostic, Source};
pub(crate) use diagnostic::{diagnose, suggest};
pub use rules::{Decision, Rules, Send, Verdict};
pub use table::{Table, Tables};
pub use transforms::{TransformId, Transforms};
