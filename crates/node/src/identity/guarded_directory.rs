//! [`GuardedDirectory`]: the directory (LDAP) of a guard, and who records what it changes.

use std::fmt;

use super::ldap::LdapLogins;

/// What a directory changed of a user here; it is done, and recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryEvent {
    /// The roles of its groups, all of them, became its memberships.
    Roles(Vec<String>),
    /// Its sessions have ended, for this reason.
    SessionsEnded(String),
}

/// Records what a directory changed of a user, by its name.
pub type DirectoryRecorder = dyn Fn(&str, DirectoryEvent) + Send + Sync;

/// The directory of a guard.
pub(super) struct GuardedDirectory {
    pub(super) logins: LdapLogins,
    pub(super) record: Box<DirectoryRecorder>,
}

impl fmt::Debug for GuardedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedDirectory").field("logins", &self.logins).finish_non_exhaustive()
    }
}
