//! Traces of other programs, as profiles.
//!
//! ```text
//!   file -> lines.rs    lines or records, each of bounded length, with its number
//!        -> a parser    one line -> a request, nothing, or what is wrong with it       pure
//!        -> convert.rs  requests of blocks -> pages; of objects -> objects
//!        -> Recorder    the profile
//! ```
//!
//! A trace is read once, from its begin to its end, in bounded memory. Each format names what it lacks; that goes into the profile.
//!
//! Invariant: a line is a request, or known to be none, or reported as bad with its number. Nothing is guessed.

mod block;
mod convert;
mod csv;
mod formats;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod lines;
mod objects;
mod parser;
mod records;
#[cfg(test)]
mod tests;

pub use convert::{ImportOptions, Imported, import};
pub use formats::TraceFormat;
pub use parser::{Request, RequestKind};
