//! [`GuardedProvider`]: the provider of logins (OIDC) of a guard, and who records what it changes.

use std::fmt;

use super::guarded_directory::DirectoryRecorder;
use super::oidc::OidcProvider;

/// The provider of a guard.
pub(super) struct GuardedProvider {
    pub(super) provider: OidcProvider,
    pub(super) record: Box<DirectoryRecorder>,
}

impl fmt::Debug for GuardedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedProvider").field("provider", &self.provider).finish_non_exhaustive()
    }
}
