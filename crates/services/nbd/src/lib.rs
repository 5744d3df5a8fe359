//! NBD: devices for clients elsewhere, and exports of servers elsewhere as devices.
//!
//! ```text
//!   qemu, fio, nbdcopy, kernels                            a journal, a volume: any user of a Device
//!              | unix socket, TCP, TLS                                |
//!              v                                                      v
//!   server     exports, sessions, limits                   client     copies of unflushed writes, new connections
//!              |         \                                 /          |
//!              |          +-- protocol: pure, both sides --+          | unix socket, TCP, TLS
//!              v                                                      v
//!   Device     memory, files, a volume                     this server, nbdkit, qemu-nbd
//! ```
//!
//! `terrace volume` exports volumes with it, and uses it for copies on other nodes. `examples/serve.rs` serves a device, `examples/use.rs` uses an export. `docs/nbd.md` is for
//! users.
//!
//! # Modules
//!
//! * [`protocol`]: numbers, negotiation, requests and replies as pure functions
//! * [`server`]: exports devices
//! * [`client`]: makes a device of an export
//! * [`uri`]: addresses of exports
//! * [`tls`]: certificates of both sides
//! * [`error`]: the errors, named by what the caller can do
//!
//! Invariants: an acknowledged write with FUA, and everything acknowledged before a flush, is as persistent as the
//! device makes it, whichever session sent it; one client's memory is bounded, and no client waits for another one. A flush of the client succeeds only on a connection that held every write before it.
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
pub use server::{EpochGate, Export, NbdServer, ServerOptions, ServerRights};
pub use tls::{ClientTls, ServerTls};
pub use uri::{Endpoint, NbdUri};
