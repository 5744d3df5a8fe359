//! Which tokens and verifiers of passwords a role may have.
//!
//! Nobody asks a directory or a provider about a token: of a role that its groups made it would count as long as it lasts, whatever
//! becomes of the person. So it has an end. And what the verifiers of passwords may cost.

use super::error::IdentityError;
use super::hashing::PasswordHash;
use super::role::{Credentials, LdapUser, check_name};
use super::scram::Verifier;
use super::token::ApiToken;

/// Whether a token can be one of a role.
pub(super) fn check_token(own: &Credentials, token: &ApiToken) -> Result<(), IdentityError> {
    check_name(&token.name)?;
    if own.tokens.iter().any(|other| other.name == token.name) {
        return Err(IdentityError::Invalid(format!("the role has a token named {}", token.name)));
    }
    let by_provider = own.oidc.as_ref().is_some_and(|own| own.by_group);
    let by_directory = own.ldap == Some(LdapUser::Created);
    if token.until_us.is_none() && (by_provider || by_directory) {
        let who = if by_provider { "the provider of logins" } else { "the directory" };
        let text =
            format!("{who} made this role by its groups, and is not asked about a token: give it an end (--days)");
        return Err(IdentityError::Invalid(text));
    }
    Ok(())
}

/// Whether such proofs of a password may be set: each login pays for them, and answers for the name take that long, so it is an
/// administrator's decision if that is more than with those made here.
pub(super) fn check_costs(
    by_administrator: bool,
    scram: Option<&Verifier>,
    hash: Option<&PasswordHash>,
) -> Result<(), IdentityError> {
    let is_costly = scram.is_some_and(Verifier::is_costly) || hash.is_some_and(PasswordHash::is_outdated);
    if is_costly && !by_administrator {
        let text = "only administrators set a verifier of more than 4096 iterations, or a hash of other parameters than those made here";
        return Err(IdentityError::Denied(text.into()));
    }
    Ok(())
}
