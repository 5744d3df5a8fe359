//! The interface engine: HL7 v2 messages in, routed, transformed, durable, out.
//!
//! ```text
//!                  production (folder of text files)
//!                      |            |           |
//! service/ --frames--> engine: intake (rules, transforms of lang) --record--> ledger --journal--> durable
//!    ^                                                                           |
//!    +------------------------- acknowledgement <--------------------------------+--> queue --> operation/ --> receivers
//!                                                                                       ^            |
//!                                                              recovery (at the start) -+   fates <--+
//! ```
//!
//! What it promises: a message is acknowledged only after it and all that is to be sent of it are persistent; every
//! output is delivered, in order, until the receiver acknowledges it or the reply table gives it up visibly; nothing is
//! delivered twice but for what was in flight at a crash; nothing is lost.
//!
//! What it deliberately does not do: know message structures, or run scripts.

#![forbid(unsafe_code)]

pub mod clock;
pub mod duplicates;
pub mod engine;
pub mod error;
mod folder;
#[doc(hidden)]
pub mod fuzzing;
pub mod history;
pub mod intake;
pub mod lang;
pub mod ledger;
pub mod location;
pub mod node;
pub mod operation;
pub mod production;
pub mod queue;
pub mod record;
pub mod recovery;
pub mod repair;
pub mod rows;
pub mod service;
mod supervise;
pub mod upkeep;

pub use error::InteropError;
