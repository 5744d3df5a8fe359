//! Who else says who users are: the directory (LDAP) and the provider of logins (OIDC) of the settings, given to the guard, and what
//! they change of users, entered into the audit.

use std::sync::Arc;

use node::Audit;
use node::audit::AuditEntry;
use node::identity::ldap::{LdapClient, LdapLogins};
use node::identity::oidc::OidcProvider;
use node::identity::{DirectoryEvent, DirectoryRecorder, Guard};

use super::Options;
use crate::error::InteropError;

/// Logins by the password of a directory, and by a provider, as far as the settings name them. Errors: a setting that cannot work.
pub(super) fn use_sources(guard: &Arc<Guard>, options: &Options, audit: &Arc<Audit>) -> Result<(), InteropError> {
    if let Some(settings) = &options.ldap {
        let client = LdapClient::new(settings, options.clock.clone());
        let client = client.map_err(|error| InteropError::Refused(error.to_string()))?;
        guard.use_directory(LdapLogins::new(client), recorder("identity.directory", Arc::clone(audit)));
    }
    if let Some(settings) = &options.oidc {
        let provider = OidcProvider::new(settings.clone(), options.clock.clone());
        let provider = provider.map_err(|error| InteropError::Refused(error.to_string()))?;
        guard.use_provider(provider, recorder("identity.provider", Arc::clone(audit)));
    }
    Ok(())
}

/// Records in the audit what somebody else changed of users here: it is done with an entry and without.
fn recorder(action: &'static str, audit: Arc<Audit>) -> Box<DirectoryRecorder> {
    Box::new(move |user, event| {
        let entry = AuditEntry::new(action, format!("role {user}"));
        let entry = match event {
            DirectoryEvent::Roles(roles) => entry.with_long("roles", &roles.join(", ")),
            DirectoryEvent::SessionsEnded(why) => entry.with("sessions_ended", why),
        };
        // Each of them: who is not known here causes none, and where a group is renamed many come together.
        if let Err(error) = audit.record(entry) {
            tracing::warn!(%error, action, "what was changed of a user from elsewhere is not in the audit");
        }
    })
}
