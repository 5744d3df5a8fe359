//! From a measured workload to the mix of media that it needs.
//!
//! ```text
//! command    `terrace profile import | show | cache`
//! plan_command  `terrace plan`
//!   mix      from a profile, a server and prices to the mixes that are worth a choice
//!   import   traces of other programs -> a profile
//!   profile  what a workload used: counts, reuse by hour, the sampled stream; a file that contains no key and no message
//!   show     a profile as text and JSON
//!   simulate the store's page cache over the sampled stream, at any size
//!   reuse    exact and sampled reuse distances, miss-ratio curves
//! generate   streams with a known shape, for tests
//! hash       salted hashes
//! ```
//!
//! Invariants: what a profile lacks is named in it, never filled in; results depend on the input and a seed alone; memory is bounded by
//! settings, not by the length of a trace (except with `--exact`, which says so).
#![forbid(unsafe_code)]

pub mod command;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod generate;
pub mod hash;
pub mod import;
pub mod mix;
pub mod plan_command;
pub mod profile;
pub mod reuse;
pub mod show;
pub mod simulate;

pub use command::ProfileCommand;
pub use error::PlanError;
pub use plan_command::{MakePlanArgs, PlanArgs, PlanSubcommand};
