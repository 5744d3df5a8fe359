//! Logins by the password that a user has in a directory (LDAP, Active Directory).
//!
//! ```text
//!   Guard::log_in --> LdapLogins      a bounded number at once, fail-over from server to server, what is the matter
//!                        |                servers
//!                     LdapClient       connect, TLS, bind, search, password, groups, roles: one step after the other
//!                        |                settings (checked once), account (what an entry says), group_roles (groups to roles)
//!                   LdapConnection     one socket, one request at a time, a time for each answer
//!                        |                request (library's encoder), answer (own decoder), names (escaping, DNs)
//!                     the directory
//! ```
//!
//! Requests and filters are encoded by the crate `ldap3`. Answers are not decoded by it: its decoder buffers without a bound, recurses
//! as deep as the sender likes and panics on what it does not expect, and before TLS is up anybody on the path can be the sender.
//!
//! Invariants: an empty password is never sent, nor is a name of nobody (RFC 4513, 5.1.2: servers answer both with success); a
//! password leaves this machine inside TLS only; a user's name never is anything but a value in a filter or a DN; every answer
//! is bounded in bytes and time; what is not success of a bind is no login.
//!
//! Not here: which role somebody is then, how failures slow down, and how open sessions end ([`super::directory_login`],
//! [`super::directory_recheck`]).

mod account;
mod answer;
mod client;
mod connection;
mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod group_roles;
mod logins;
mod names;
mod request;
mod servers;
mod settings;
#[cfg(test)]
pub(crate) mod testing;

pub use account::LdapAccount;
pub use client::LdapClient;
pub use failure::{LdapError, LdapFailure, LdapStep};
pub use logins::LdapLogins;
pub use settings::{LdapService, LdapSettings, LdapSettingsError};
