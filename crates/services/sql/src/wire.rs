//! PostgreSQL's wire protocol, version 3, in front of the engine.
//!
//! ```text
//!   server       listens, counts connections, ends them
//!     login      TLS, cancel requests, SCRAM-SHA-256, startup parameters       scram, options, registry, activity
//!     apart      each session on a thread of its own, behind its socket
//!     serve      simple and extended protocol, COPY
//!       codec    pgwire's messages from bytes and back                         guard, connection
//!       value    between PostgreSQL's layouts and Arrow                        oid, parameter
//!       copy     COPY's text, csv and binary formats
//!     catalog    pg_catalog and what the catalogs' queries need
//! ```
//!
//! Messages, their layouts and the numbers of types are pgwire's. Its loop over a socket, its handlers and its values are
//! not used; why not is in docs/adr/0014-sql.md. The guard, SCRAM and COPY's data are pure and total, and fuzzed.

mod activity;
mod apart;
mod catalog;
mod codec;
mod connection;
mod copy;
mod fault;
pub mod fuzzing;
mod guard;
mod login;
mod oid;
mod options;
mod parameter;
mod registry;
mod scram;
mod serve;
mod server;
#[cfg(test)]
mod tests;
mod value;

pub use options::{TlsOptions, WireError, WireOptions};
pub use scram::{ScramError, Verifier, new_secret};
pub use server::{Renewal, Server};

pub(crate) use pgwire::api::results::FieldFormat as Format;
/// What it is sent.
use pgwire::messages::PgWireBackendMessage as Reply;
/// What a client sends.
use pgwire::messages::PgWireFrontendMessage as Message;
