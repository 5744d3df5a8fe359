//! The interface engine: HL7 v2 messages in, routed, transformed, durable, out.
//!
//! ```text
//!                  production (folder of text files)
//!                      |            |           |
//! service/ --frames--> engine: intake (rules, transforms of lang) --record--> message log --journal--> durable
//!    ^                                                                           |
//!    +------------------------- acknowledgement <--------------------------------+--> queue --> operation/ --> receivers
//!                                                                                       ^            |
//!                                                              recovery (at the start) -+   outcomes <--+
//! ```
//!
//! It promises: a message is acknowledged only after it and all of its outputs are persistent; every output is sent, in
//! order, until the receiver acknowledges it or it is marked failed by the reply table, which the status shows; no
//! output is delivered twice, except those in flight at a crash; nothing is lost.
//!
//! It deliberately knows no message structures and runs no scripts.

#![forbid(unsafe_code)]

pub mod access;
pub mod arrivals;
pub mod duplicates;
pub mod engine;
pub mod error;
pub mod figures;
mod folder;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod generations;
pub mod history;
pub mod intake;
pub mod lang;
pub mod message_log;
pub mod operation;
mod patience;
pub mod plan;
pub mod production;
pub mod queue;
pub mod record;
pub mod recovery;
pub mod repair;
pub mod rows;
pub mod running;
pub mod service;
mod tail;
pub mod timestamp;
pub mod todo;
pub mod transfer;
pub mod trial;

pub use error::InteropError;
