//! What a node measures, for who watches it: OpenMetrics text over HTTP, whether the process lives, and whether it takes messages.
//!
//! ```text
//!   parts of the node --Source, at most once a second--> Samples --exposition--> GET /metrics     a table of names: `table`
//!   troubles of the node ------------------------------------------------------> GET /readyz      200, or 503 with the reasons
//!                                                                                GET /healthz     200: the process lives
//!                                     server: a thread of its own, bounds, TLS, tokens, access rules
//!   Samples, every ten seconds --alerts: rules, one message on, one off--> webhooks, mail, programs
//!                              --history: rings of a year--------------> the node's store
//! ```
//!
//! It is a crate of its own, beside the console: scraping must work where no console runs, and health is asked before a store is open.
//!
//! Invariants: a scrape takes nothing of the threads that serve messages, and all scrapers of one second share one gathering; names and
//! labels are those of [`table`], and the values of labels are names of the configuration or words of the program, never ids, never
//! bytes of a message; their number is bounded.
//!
//! Not here, on purpose: what the figures mean for a part of the node. The program that puts a node together has the sources.

#![forbid(unsafe_code)]

pub mod alerts;
#[cfg(test)]
mod crash_bed;
mod error;
mod exposition;
pub mod history;
mod samples;
mod server;
mod snapshot;
pub mod table;

pub use error::MetricsError;
pub use exposition::Exposition;
pub use samples::{SAMPLES_MAX, Samples};
pub use server::{MetricsOptions, MetricsServer, MetricsTimes, Served};
pub use snapshot::{Snapshots, Source};
