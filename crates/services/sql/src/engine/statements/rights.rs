//! Statements about roles and rights: what PostgreSQL 16 means by them, as changes of the node's one identity.
//!
//! ```text
//!   RightsStatement --changes, privileges, objects--> IdentityChange --run--> the identity, in the session's transaction
//! ```
//!
//! | file | content |
//! |---|---|
//! | [`changes`], [`privileges`], [`objects`] | the changes of a statement in a [`situation`] |
//! | [`run`] | runs it in a session's transaction |
//! | [`failures`] | the identity's errors as PostgreSQL's |
//!
//! It deliberately decides nothing: who may make a change is the identity's to say.

mod changes;
mod failures;
mod objects;
mod privileges;
pub(crate) mod run;
mod situation;
