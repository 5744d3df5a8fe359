//! PostgreSQL's wire protocol, version 3, in front of the engine.
//!
//! ```text
//!   server              listens, counts connections, ends them
//!     login             TLS, cancel requests, SCRAM-SHA-256, startup parameters   server_options, registry, activity
//!     session_thread    each session on a thread of its own, behind its socket
//!     serve             simple and extended protocol, COPY
//!       codec           pgwire's messages from bytes and back      frame_guard, connection, error_response, reply_text
//!       value           between PostgreSQL's layouts and Arrow     oid, parameter
//!       copy            COPY's text, csv and binary formats
//!     reader            one statement that reads, for another port of the process
//!     catalog           pg_catalog and the functions for queries of the catalogs
//! ```
//!
//! Messages, their layouts and the OIDs of types are pgwire's. Its loop over a socket, its handlers and its values are
//! not used; docs/adr/0014-sql.md has the reasons. The guard and COPY's data are pure and total, and fuzzed, as is
//! SCRAM, which is the node's (`node::identity::scram`).

mod activity;
mod catalog;
mod codec;
mod connection;
mod connection_error;
mod copy;
mod error_response;
mod figures;
mod frame_guard;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod login;
mod oid;
mod option_words;
mod parameter;
mod reader;
mod registry;
mod reply_text;
mod serve;
mod server;
mod server_options;
mod server_state;
mod session_thread;
#[cfg(test)]
mod tests;
mod value;

pub use figures::SqlFigures;
pub use node::identity::scram::{ScramError, Verifier, new_secret};
pub use reader::{ReadAnswer, ReadBounds, ReadRefusal, SqlReader};
pub use server::Server;
pub use server_options::{WireError, WireOptions};

use node::identity::scram;
pub(crate) use pgwire::api::results::FieldFormat as Format;
/// Messages to the client.
use pgwire::messages::PgWireBackendMessage as Reply;
/// Messages from the client.
use pgwire::messages::PgWireFrontendMessage as Message;
