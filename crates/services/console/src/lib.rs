//! The console: pages in a browser that show a node and administer it, and the same as JSON for programs.
//!
//! ```text
//!   listener --Door--> connection --TLS?--> HTTP/1.1 --> answer: bounds, origin, headers of every response      server, answer
//!                                                           |
//!              assets <-------------------------------- router -----------------> api: JSON, openapi.json
//!                                                           |
//!   cookie or token --gate--> Visitor --> pages: Production, Messages, Message, Operation, Media, Try, ..       sessions, sign_in, by_provider
//!                                           |
//!   ticker, once a second --> live: a stream for each tab      Admin --> the node: rights, masking, audit       admin
//! ```
//!
//! Pages are made here and work without a script, but for what is live: fragments come over one stream of events for each tab, and all
//! tabs share one collection of figures. The reasons are in decision 0030.
//!
//! Invariants: a page decides nothing about rights, it asks [`Admin`] with the caller; every text from outside is escaped where it is
//! written (maud does); nothing is loaded from another host, and no script or style is within a page; what changes something comes from
//! a page of this console and has the token of its session; no number of visitors, tabs or requests takes more than its bound.
//!
//! It knows no message store, no production, no volumes, no SQL and no index: the program passes them in as [`Admin`]. It does not edit a production:
//! that is text in a folder.

#![forbid(unsafe_code)]

mod address;
pub mod admin;
mod admin_error;
mod answer;
mod api;
mod api_work;
mod assets;
mod body;
mod by_provider;
pub mod connections;
mod csv;
mod error;
mod form;
mod format;
mod gate;
mod hl7_names;
mod layout;
pub mod lending;
mod live;
mod message_query;
mod once;
pub mod operator;
mod options;
mod origin;
mod pages;
pub mod profile_admin;
mod provider_pages;
mod query_text;
mod rates;
mod resends;
mod respond;
mod routes;
mod secret;
mod server;
mod sessions;
mod sign_in;
mod sign_in_places;
mod state;
pub mod tail_admin;
mod ticker;
pub mod transfer_admin;
pub mod watch;

pub use admin::{Admin, AdminError};
pub use api::OPENAPI;
pub use connections::ConnectionAdmin;
pub use error::ConsoleError;
pub use lending::{SearchSource, SqlSource};
pub use operator::OperatorAdmin;
pub use options::ConsoleOptions;
pub use profile_admin::ProfileAdmin;
pub use provider_pages::CALLBACK as PROVIDER_CALLBACK;
pub use routes::{DOOR_EXAMPLES, PAGE_EXAMPLES};
pub use server::ConsoleServer;
pub use tail_admin::TailAdmin;
pub use transfer_admin::TransferAdmin;
pub use watch::WatchAdmin;
