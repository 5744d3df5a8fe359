//! From mixes of media to the few that are worth a choice: what each costs, how fast it is, and which of them no other one beats.
//!
//! ```text
//!   shares of a mix, dated prices           ->  cost.rs      US dollars: low, expected, high; or which medium has no price
//!   where accesses are served, models,
//!   processor time, sessions or a rate      ->  load.rs      time of an operation, rate, what binds
//!   all mixes                               ->  choose.rs    the Pareto set, its knee, the cheapest within the target, prices at which that changes
//! ```
//!
//! Everything here is pure: prices, the present month and the load are given to it. Nothing is known about prices without a file of them
//! (ADR 0010), and a mix with a medium without a price is never taken for a cheap one.

mod choose;
mod cost;
mod load;
pub mod report;

pub use choose::{BreakEven, Choice, Flip, PRICE_FACTORS, RatedMix, choose};
pub use cost::{MediumCost, MediumShare, MixCost, Month, PriceList, UsdRange};
pub use load::{Demand, Operation, Predicted, Station, closed, open};
