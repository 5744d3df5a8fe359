//! From a measured workload to the mix of media that it needs.
//!
//! ```text
//! command    `terrace profile import | show | cache`
//!   evidence what others have reported and measured, with sources and dates
//!   page     a plan as one page of HTML
//!   prices   files of prices: their age, and importers of what providers publish
//! plan_command  `terrace plan`; bench: `terrace bench plan`, predictions beside the real page cache
//!   mix      from a profile, a server and prices to the mixes that are worth a choice
//!   import   traces of other programs -> a profile
//!   show     a profile as text and JSON; show_node: what only a node has
//!   simulate the store's page cache over the sampled stream, at any size
//! ```
//!
//! The file and the reuse distances are those of the crate [`profile`], which a node records with too.
//!
//! Invariants: what a profile lacks is named in it, never filled in; results depend on the input and a seed alone; memory is bounded by
//! settings, not by the length of a trace (except with `--exact`, which says so).
#![forbid(unsafe_code)]

mod bench;
pub mod command;
pub mod error;
pub mod evidence;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod host;
pub mod import;
pub mod mix;
mod output;
pub mod page;
pub mod plan_command;
mod price_age;
pub mod prices;
pub mod show;
mod show_node;
pub mod simulate;

pub use bench::BenchPlanArgs;
pub use command::ProfileCommand;
pub use error::PlanError;
pub use evidence::EvidenceArgs;
pub use host::Host;
pub use page::PageArgs;
pub use plan_command::{MakePlanArgs, PlanArgs, PlanSubcommand};
pub use prices::PricesArgs;
pub use profile;
pub use profile::{generate, hash, reuse};
