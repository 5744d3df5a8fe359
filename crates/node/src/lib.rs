//! What every service of a node shares: descriptors, sockets from outside, and memory of messages that are not whole yet.
//!
//! ```text
//!   listener --accept--> Door of a service --Permit--> connection
//!                             |                  |        admission: who is let in, whose place is taken for it,
//!                             +---- Admission ---+        how much of an unfinished frame may be read, what was refused
//!                                       |
//!                                  Descriptors            what the process may have open, and what is left to storage
//! ```
//!
//! Invariants: a socket that somebody else opened is bounded, by service and by address, before a byte of it is read;
//! descriptors are left to storage, whatever comes over the network; what is refused is counted, and logged in few lines.
//!
//! What it deliberately does not do: know a protocol. A service says when a connection has shown what it is for.

#![forbid(unsafe_code)]

pub mod admission;
pub mod descriptors;
pub mod error;
pub mod peers;
pub mod socket;

pub use admission::{Admission, AdmissionStatus, Bounds, Door, DoorStatus, Permit, Policy, Reason};
pub use descriptors::Descriptors;
pub use error::NodeError;
pub use peers::Network;
