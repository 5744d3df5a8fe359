//! Who may do what on a node: one identity for all ports.
//!
//! ```text
//!   SQL   search   NBD   control socket   ..
//!     |      |      |       |
//!     +------+--Guard-------+     logins in, a Caller out; may(caller, action, object)     guard, throttle
//!                 |
//!             RightsView          all rights at one version, resolved; decides              view, caller
//!                 |
//!             Directory           roles, memberships, privileges, owners                    directory, role
//!                 |               changes by who may, with what follows                     change, applying, cascade
//!             node.identity       a tree of the node's store                                identity_store
//!
//!   proofs: scram, hashing (argon2id), token          what is asked: action, object
//!   passwords that a directory checks: ldap, directory_login, directory_recheck, directory_ends, directory_roles
//!   logins by a provider (OpenID Connect): oidc, oidc_login
//!   who may come in from where, before any proof: access (the rules), admitting (the guard asks them)
//! ```
//!
//! Invariants: a port decides nothing itself, it names an [`Action`] and an [`Object`] and asks; a change of roles or
//! rights is durable before anybody sees it, and changes the version that open sessions compare; the last
//! administrator who can log in cannot be removed, locked, expired or left without a proof.
//!
//! It deliberately knows no port and no statement, and records nothing in the audit: a [`Grant`] says whether its use
//! must be recorded, and logins and changes return what there is to record.

mod access;
mod action;
mod admitting;
mod applying;
mod bits;
mod caller;
mod cascade;
mod change;
mod change_rate;
mod directory;
mod directory_ends;
mod directory_login;
mod directory_recheck;
mod directory_roles;
mod error;
mod guard;
mod guarded_directory;
mod guarded_provider;
mod hashing;
mod identity_store;
pub mod ldap;
mod login_error;
mod mock_secret;
mod object;
pub mod oidc;
mod oidc_login;
mod promoting;
mod proof_lists;
mod proof_rules;
mod requests;
mod role;
mod role_counts;
pub mod scram;
mod secret_place;
#[cfg(test)]
mod tests;
mod throttle;
mod token;
mod view;

pub use access::{
    AccessAddress, AccessDecision, AccessMethod, AccessPort, AccessRefusal, AccessRule, AccessRuleError, AccessRules,
    AccessTls, RULES_MAX, Who,
};
pub use action::{Action, ActionSet};
pub use admitting::Visit;
pub use applying::{BREAK_GLASS_US_MAX, apply};
pub use caller::{Caller, Proof};
pub use change::{CredentialChange, IdentityChange, MembershipPart, Privileges};
pub use change_rate::ChangedTooFast;
pub use directory::{DefaultPrivilege, Directory, MemberKey, Membership, PrivilegeKey, PrivilegeOptions, RowWrite};
pub use directory_recheck::DirectoryWatch;
pub use error::IdentityError;
pub use guard::{Guard, ScramLogin, TICK};
pub use guarded_directory::{DirectoryEvent, DirectoryRecorder};
pub use hashing::PasswordHash;
pub use identity_store::{IMPORTED_GROUP, IdentityStore, Import, ImportedUser, ObjectChange, TREE};
pub use login_error::{LdapRefusal, LoginError, LoginRefusal, OidcRefusal};
pub use object::{Object, ObjectKind, ObjectPattern, PART_BYTES_MAX};
pub use oidc_login::{OidcEntered, OidcFailure, log_in_by_provider};
pub use requests::{IdentityRequest, REQUEST, RoleReport, answer, check};
pub use role::{
    AttributeChange, Attributes, Credentials, LOCAL_NAME, LdapUser, OidcUser, Role, RoleId, check_name, check_password,
};
pub use role_counts::Connected;
pub use secret_place::SecretPlace;
pub use throttle::{Attempt, LoginEvent, LoginThrottle, Turn, WAIT_MS_MAX};
pub use token::{ApiToken, TokenDigest, draw, shown_name};
pub use view::{Denied, Grant, RightsView, Via};
