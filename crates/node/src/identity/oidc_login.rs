//! Logins by a provider (OpenID Connect): who the provider says it is becomes a caller.
//!
//! ```text
//!   browser comes back --OidcProvider::finish--> name, subject, roles --> the role: made, or followed --> Caller
//! ```
//!
//! Invariants: a role that has another proof here is never proven by the provider, whatever that says of the name; a role is of one
//! person at the provider (`sub`), whatever names people have there later. Who is in no group any more loses what its groups gave,
//! though it is not let in. Who failed learns nothing but that it failed.
//!
//! An attempt counts for the throttle as a token does, by its address, if the provider refused what the browser brought. It counts for
//! nobody if no login waits for it (a page of any site can make a browser come back so, and nobody guesses 256 bits), if the provider
//! could not judge it, and if the provider has proven who it is and only the node does not let it in: none of these is a guess, and all
//! people of a hospital may have one address.
//!
//! The provider is not asked again about a session: it has an end ([`OidcEntered::session`]), and the role's lock, end or loss of this
//! proof counts at once, as for every caller.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::caller::{Caller, Proof};
use super::change::IdentityChange;
use super::directory_roles;
use super::error::IdentityError;
use super::guard::{Begun, Guard};
use super::guarded_directory::DirectoryEvent;
use super::guarded_provider::GuardedProvider;
use super::login_error::{LoginError, LoginRefusal, OidcRefusal};
use super::oidc::{OidcError, OidcIdentity, OidcReturn, OidcToken};
use super::role::{Role, RoleId};
use super::throttle::PENDING_MS;

/// Somebody whom the provider has proven.
#[derive(Debug, Clone)]
pub struct OidcEntered {
    /// Who.
    pub caller: Caller,
    /// Where in the port the browser wanted to go.
    pub back_to: String,
    /// How long the login counts; then the provider has to be asked again.
    pub session: Duration,
    /// The token, for a sign-out at the provider.
    pub token: Option<OidcToken>,
}

/// A login by the provider that failed.
#[derive(Debug, Clone)]
pub struct OidcFailure {
    /// Who it would have been, if the provider said it.
    pub user: Option<String>,
    /// Why.
    pub error: LoginError,
}

/// Finishes a login by what a browser brought back from the provider.
///
/// # Errors
/// [`OidcFailure`].
pub async fn log_in_by_provider(
    guard: &Arc<Guard>,
    came: OidcReturn<'_>,
    from: Option<IpAddr>,
) -> Result<OidcEntered, OidcFailure> {
    let nobody = |error| OidcFailure { user: None, error };
    let begun = guard.begin(None, from).map_err(nobody)?;
    let refused = LoginRefusal::Oidc;
    let Some(own) = guard.provider.get().cloned() else {
        return Err(nobody(begun.refused(refused(OidcRefusal::State))));
    };
    let identity = match own.provider.finish(came).await {
        Ok(identity) => identity,
        Err(OidcError::State) => return Err(nobody(begun.unjudged_by(refused(OidcRefusal::State)))),
        Err(OidcError::Refused(_)) => return Err(nobody(begun.refused(refused(OidcRefusal::Provider)))),
        Err(OidcError::Away(_) | OidcError::Randomness) => {
            return Err(nobody(begun.unjudged_by(refused(OidcRefusal::Away))));
        }
    };
    let user = identity.user.clone();
    let entered = enter(guard, &own, begun, identity).await;
    entered.map_err(|error| OidcFailure { user: Some(user), error })
}

async fn enter(
    guard: &Arc<Guard>,
    own: &Arc<GuardedProvider>,
    begun: Begun,
    identity: OidcIdentity,
) -> Result<OidcEntered, LoginError> {
    let creates = own.provider.settings().create;
    if let Err(why) = admitted(guard, &identity, creates) {
        if why == LoginRefusal::Oidc(OidcRefusal::NoGroup) {
            left(guard, own, &identity).await;
        }
        return Err(begun.unjudged_by(why));
    }
    if let Err(error) = follow(guard, own, &identity, creates).await {
        tracing::error!(user = identity.user, %error, "what the provider says of a user cannot be stored");
        return Err(begun.unjudged_by(LoginRefusal::Oidc(OidcRefusal::Away)));
    }
    if begun.age_ms() > PENDING_MS {
        return Err(begun.refused(LoginRefusal::Outdated));
    }
    let view = guard.view();
    let Some((id, role)) = guard.role(&view, &identity.user).filter(|(_, role)| is_of(role, &identity)) else {
        return Err(begun.refused(LoginRefusal::Outdated));
    };
    let caller = begun.entered(id, role, Proof::Oidc(Arc::from(identity.subject.as_str())))?;
    let OidcIdentity { back_to, token, .. } = identity;
    Ok(OidcEntered { caller, back_to, session: own.provider.settings().session, token })
}

/// Whether a role is known to be of this person at the provider.
fn is_of(role: &Role, identity: &OidcIdentity) -> bool {
    role.credentials.oidc.as_ref().is_some_and(|own| own.subject.as_ref() == Some(&identity.subject))
}

/// Whether who the provider says it is may come in. Errors: why not.
fn admitted(guard: &Guard, identity: &OidcIdentity, creates: bool) -> Result<(), LoginRefusal> {
    let refused = |why| Err(LoginRefusal::Oidc(why));
    let (view, in_group) = (guard.view(), !identity.roles.is_empty());
    let Some((_, role)) = guard.role(&view, &identity.user) else {
        // The node's own role has a name that no claim may have.
        return match creates {
            true if in_group => Ok(()),
            true => refused(OidcRefusal::NoGroup),
            false => refused(OidcRefusal::Unknown),
        };
    };
    let Some(own) = &role.credentials.oidc else { return refused(OidcRefusal::OtherProof) };
    if own.subject.as_ref().is_some_and(|subject| *subject != identity.subject) {
        return refused(OidcRefusal::OtherSubject);
    }
    if own.by_group && !in_group {
        return refused(OidcRefusal::NoGroup);
    }
    if role.attributes.may_log_in(guard.now_us()) { Ok(()) } else { Err(LoginRefusal::NotAllowed) }
}

/// Takes from a user who is in no group any more what its groups gave: its open sessions and tokens lose it too.
async fn left(guard: &Arc<Guard>, own: &Arc<GuardedProvider>, identity: &OidcIdentity) {
    if !guard.role(&guard.view(), &identity.user).is_some_and(|(_, role)| is_of(role, identity)) {
        return;
    }
    if let Err(error) = follow(guard, own, identity, false).await {
        tracing::error!(user = identity.user, %error, "what the groups of a user gave cannot be taken from it");
    }
}

/// Gives a user the memberships that its groups are, and makes its role where that is wanted. Nothing is written if nothing is different.
async fn follow(
    guard: &Arc<Guard>,
    own: &Arc<GuardedProvider>,
    identity: &OidcIdentity,
    create: bool,
) -> Result<(), IdentityError> {
    let roles: Vec<String> = identity.roles.iter().cloned().collect();
    let (view, user) = (guard.view(), &identity.user);
    for role in directory_roles::missing(view.directory(), &roles) {
        tracing::warn!(user, role, "a group is a role that is not there: `terrace role create` makes it");
    }
    for role in directory_roles::withheld(view.directory(), user, &roles) {
        tracing::error!(
            user,
            role,
            "a group is an administrator, and is withheld: others can become this user by a membership that no administrator made"
        );
    }
    let is_same = guard.role(&view, user).is_some_and(|(id, role)| {
        let is_bound = role.credentials.oidc.as_ref().is_some_and(|own| own.subject.is_some());
        is_bound && directory_roles::are_given(view.directory(), id, RoleId::OIDC, &roles)
    });
    if is_same {
        return Ok(());
    }
    let subject = identity.subject.clone();
    let change = IdentityChange::ProviderUser { user: user.clone(), subject, roles: roles.clone(), create };
    let changing = Arc::clone(guard);
    let changed = tokio::task::spawn_blocking(move || changing.change(&Caller::node(), &[change])).await;
    changed.unwrap_or(Err(IdentityError::Busy))?;
    tracing::info!(user, roles = roles.join(", "), "the provider changed what a user is, or is a member of");
    (own.record)(user, DirectoryEvent::Roles(roles));
    Ok(())
}
