//! NBD: devices for clients elsewhere.
//!
//! ```text
//!   qemu, fio, nbdcopy, kernels
//!              | unix socket, TCP, TLS
//!              v
//!   server     exports, sessions, limits
//!              |         \
//!              |          +-- protocol      pure: bytes in, steps out, for the side of a client too
//!              v
//!   Device     memory, files, a volume
//! ```
//!
//! Not there yet: a client that makes a device of an export (its negotiation and its reading of replies are, in [`protocol`]), and a
//! command of `terrace`. `examples/serve.rs` serves a device.
//!
//! # Modules
//!
//! * [`protocol`]: numbers, negotiation, requests and replies as pure functions
//! * [`server`]: exports devices
//! * [`tls`]: certificates of both sides
//! * [`error`]: the errors, named by what the caller can do
//!
//! Invariants: an acknowledged write with FUA, and everything acknowledged before a flush, is as persistent as the
//! device makes it, whichever session sent it; one client's memory is bounded, and no client waits for another one.
//!
//! Left out: the negotiation before 2013 ("oldstyle"), extended headers, resizing.

#![forbid(unsafe_code)]

pub mod client;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod protocol;
pub mod server;
mod socket;
pub mod tls;
pub mod uri;

pub use client::{ClientOptions, ClientStatus, NbdDevice};
pub use error::NbdError;
pub use server::{EpochGate, Export, NbdServer, ServerOptions};
pub use tls::{ClientTls, ServerTls};
pub use uri::{Endpoint, NbdUri};
