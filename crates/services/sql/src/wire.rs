//! PostgreSQL's wire protocol, version 3, in front of the engine.
//!
//! ```text
//!   server       listens, counts connections, ends them
//!     login      TLS, cancel requests, SCRAM-SHA-256, startup parameters       message, scram, options, registry
//!     serve      simple and extended protocol, COPY                            message, reply
//!       value    between PostgreSQL's layouts and Arrow                        oid, parameter
//!       copy     COPY's text, csv and binary formats
//!     catalog    pg_catalog and what the catalogs' queries need
//! ```
//!
//! Reading messages, SCRAM and COPY's data is pure and total, and fuzzed. Messages are read here and not by a library of
//! the protocol, because whoever can connect, logged in or not, decides what is in them: a frame is cut out whole, bounded,
//! and never read beyond.

mod base64;
mod catalog;
mod connection;
mod copy;
mod fault;
pub mod fuzzing;
mod login;
mod message;
mod oid;
mod options;
mod parameter;
mod registry;
mod reply;
mod scram;
mod serve;
mod server;
#[cfg(test)]
mod tests;
mod value;

pub use options::{TlsOptions, WireError, WireOptions};
pub use scram::{ScramError, Verifier};
pub use server::Server;
