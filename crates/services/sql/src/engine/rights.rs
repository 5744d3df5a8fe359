//! Statements about roles and rights: what PostgreSQL 16 means by them, as changes of the node's one identity.
//!
//! ```text
//!   tokens --parser, parse_privileges--> RightsStatement --changes, privileges, objects--> IdentityChange --> identity
//! ```
//!
//! | file | content |
//! |---|---|
//! | [`statement`] | a parsed statement, as data |
//! | [`parser`], [`parse_privileges`], [`tokens`] | from tokens to statements |
//! | [`changes`], [`privileges`], [`objects`] | from statements to changes of the identity |
//! | [`run`], [`failures`] | within a session's transaction; errors |
//! | [`shown`] | a text without its passwords |
//!
//! It deliberately decides nothing: who may make a change is the identity's to say.

pub(crate) mod changes;
mod failures;
mod objects;
mod parse_privileges;
pub(crate) mod parser;
pub(crate) mod privileges;
pub(crate) mod run;
pub(crate) mod shown;
pub(crate) mod statement;
#[cfg(test)]
mod tests;
mod tokens;
