//! Loads on mirrored volumes: the published runs of a hyper-converged cluster, at the scale of one machine.
//!
//! ```text
//! command       `terrace bench fleet`
//! measure       each load on volumes and bare devices in turns, in-process and over NBD
//!   media       the volumes: copies on their media, caches, models
//!   server      the other process, which exports them
//!   drive       threads that keep requests in progress, time and check them
//!     load, blocks, tally       what is asked for, what blocks contain, what is counted
//! published     the figures beside ours
//! report, text, diskspd         JSON, text, and DISKSPD's formats
//! ```
//!
//! Invariants: every block is written before it is measured, and what is read is checked against what was acknowledged; latencies of threads
//! are merged, never averaged; a figure states its path, its durability and whether a medium was modelled; ratios are of runs a moment
//! apart.
//!
//! Not here: other NBD servers and clients (fio, qemu), kills and faults, and copies on other machines.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod command;
pub mod diskspd;
pub mod drive;
pub mod load;
pub mod measure;
pub mod media;
pub mod published;
pub mod report;
pub mod server;
pub mod tally;
mod text;

pub use command::FleetArgs;
