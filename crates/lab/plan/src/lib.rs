//! From a measured workload to the mix of media that it needs.
//!
//! ```text
//! command    `terrace profile import | show | cache`
//!   evidence what others have reported and measured, with sources and dates
//!   page     a plan as one page of HTML
//!   prices   files of prices: their age, and importers of what providers publish
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
pub mod evidence;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod generate;
pub mod hash;
pub mod import;
pub mod mix;
mod output;
pub mod page;
pub mod prices;
pub mod profile;
pub mod reuse;
pub mod show;
pub mod simulate;

pub use command::ProfileCommand;
pub use error::PlanError;
pub use evidence::EvidenceArgs;
pub use page::PageArgs;
pub use prices::PricesArgs;
