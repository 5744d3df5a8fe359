//! From a workload, a server and dated prices to the few mixes of media that are worth a choice.
//!
//! ```text
//!   workload.rs   profiles -> the worst minute, commits, processor time       server.rs, supply.rs   slots, lanes, bays; media for them
//!   mixes.rs      all mixes that fit      settings.rs   terrace.toml of each, checked by placement
//!   served.rs     the page cache of each, simulated
//!   load.rs, rate.rs    busy times, queues, what binds     replay.rs   the worst minute on the timing models: tails
//!   cost.rs       US dollars: low, expected, high; or which medium has no price
//!   choose.rs     the Pareto set, its knee, the cheapest within the target, prices at which that changes
//!   sizing.rs     a workload of four numbers, in place of a profile
//!   verify.rs     a plan beside the real page cache
//!   planning.rs   these in order          answer.rs, sure.rs -> report.rs -> text.rs
//! ```
//!
//! Everything but reading profiles is pure: prices, the month and the load are given to it; the same input gives the same plan. Nothing is
//! known about prices without a file of them (ADR 0010), and a mix with a medium without a price is never taken for a cheap one.

mod answer;
mod beside;
mod bounds;
mod choose;
mod cost;
mod load;
mod mixes;
mod parts;
mod planning;
mod rate;
mod replay;
pub mod report;
mod served;
mod server;
mod settings;
pub mod sizing;
mod supply;
mod sure;
pub mod target;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_bounds;
#[cfg(test)]
mod tests_of_offers;
pub mod text;
mod verify;
mod workload;

pub use choose::{BreakEven, Choice, Flip, PRICE_FACTORS, RatedMix, choose};
pub use cost::{MediumCost, MediumShare, MixCost, PriceList, UsdRange};
pub use load::{LoadStation, Predicted, closed, open};
pub use mixes::{FarPart, FarUse, JournalPart, MIXES_MAX, Mix, NearPart};
pub use planning::{PlanRequest, PlannedMix, Planning};
pub use rate::Query;
pub use report::PlanReport;
pub use server::{Instance, Server, parse_owned};
pub use settings::{CacheBytes, SettingsFor};
pub use supply::Supply;
pub use target::Target;
pub use verify::{VerifyConfig, VerifyReport, VerifyRun};
pub use workload::{Commits, ProfileSource, Shortness, Workload};
