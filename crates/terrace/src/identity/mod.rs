//! `terrace user` and `terrace role`: the users, groups and rights of a running node.
//!
//! ```text
//!   terrace user ..., role ...  --  `identity {...}` over the control socket  -->  node::identity
//! ```
//!
//! They need a node that runs: a stopped one has nobody who decides and records what is changed. Who sends a request is its user on
//! this machine; root and the user that the node runs as are the node's own role, an administrator. With `TERRACE_TOKEN` in the
//! environment it is the token's role.

mod args;
mod commands;
mod ldap;
mod oidc;
mod prompt;
mod sending;

pub use args::{RoleCommand, UserCommand};
pub use commands::{Elsewhere, role, user};
#[cfg(feature = "sql")]
pub use prompt::new_password;
