//! Why a login was refused or failed: one kind for the log and the audit, one for who tried.

use std::time::Duration;

use super::scram::ScramError;

/// Why a login was refused; for the log and the audit, never for who tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// There is no such role, token or name in a certificate.
    Unknown,
    /// The password is wrong.
    WrongPassword,
    /// The role may not log in: it is a group, locked or expired.
    NotAllowed,
    /// The proof came too late, or the role or its password was changed meanwhile.
    Outdated,
    /// The directory that checks the password did not let it in.
    Ldap(LdapRefusal),
    /// The provider of logins did not let it in.
    Oidc(OidcRefusal),
}

/// Why a login by a provider (OIDC) was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OidcRefusal {
    /// No login waits for what the browser brought: it is another browser's, was used, or is too old.
    State,
    /// The provider does not say who it is, or what it says is not right: the log has the reason.
    Provider,
    /// There is no role of this name, and none is made by itself.
    Unknown,
    /// The role has another proof here, such as a password.
    OtherProof,
    /// The role is of another person at the provider.
    OtherSubject,
    /// The user is in no group that lets users in.
    NoGroup,
    /// The provider cannot be asked, or what it says cannot be stored. It is not the user's failure.
    Away,
}

/// Why the directory of a user did not let it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LdapRefusal {
    /// It has no entry of this name.
    Unknown,
    /// The password is wrong.
    WrongPassword,
    /// The account is locked, disabled or expired there.
    Locked,
    /// The entry has this name in other letters: type it as the directory writes it.
    OtherName,
    /// The user is not known here, and in no group that lets users in.
    NoGroup,
    /// It cannot be asked, or what it says cannot be stored. It is not the user's failure.
    Away,
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// Too early after failures: try again after this time.
    #[error("too many failed logins: try again in {} s", .0.as_secs() + 1)]
    Wait(Duration),
    /// Who it is was not proven. The text is the same whatever the reason.
    #[error("the login failed: the user or what proves it is wrong")]
    Refused(LoginRefusal),
    /// The role has as many connections as it may.
    #[error("too many connections of this role")]
    TooMany,
    /// There is no memory to check a password: whether it is right is not known.
    #[error("the login cannot be checked now: try again")]
    Memory,
    /// The check was not made: the node is stopping.
    #[error("the login cannot be checked: the node is stopping")]
    Unchecked,
    /// What the client sent is not SCRAM.
    #[error(transparent)]
    Scram(ScramError),
}
