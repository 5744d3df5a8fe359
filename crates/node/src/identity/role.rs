//! [`Role`]: a user, a group or a service account, as in PostgreSQL one kind of thing; and what proves who one is.
//!
//! Not here: who is a member of what, and rights ([`super::directory`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::IdentityError;
use super::hashing::PasswordHash;
use super::scram::{PASSWORD_BYTES_MAX, Verifier};
use super::token::ApiToken;

/// Most bytes of a name, as of PostgreSQL's identifiers.
const NAME_BYTES_MAX: usize = 63;

/// Fewest characters of a password: NIST SP 800-63B, 3.1.1.2, beside slowed-down logins.
const PASSWORD_CHARACTERS: usize = 8;

/// The number of a role; never used twice, so a right never passes to a new role with an old name. PostgreSQL's OID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoleId(pub u32);

impl RoleId {
    /// Everyone: not a role, but what is granted to it all have.
    pub const PUBLIC: RoleId = RoleId(0);

    /// The node's own role: root, and the user that the node runs as, at its control socket.
    pub const LOCAL: RoleId = RoleId(10);

    /// The directory (LDAP), as who granted memberships; it is no role.
    pub const LDAP: RoleId = RoleId(11);

    /// The provider of logins (OIDC), as who granted memberships; it is no role.
    pub const OIDC: RoleId = RoleId(12);

    /// The first number of a role that somebody made; PostgreSQL's first OID for users.
    pub const FIRST: RoleId = RoleId(16384);
}

/// The name of [`RoleId::LOCAL`].
pub const LOCAL_NAME: &str = "terrace_local";

/// Whether a character is shown as nothing or as a blank, or turns the direction of what follows, among those that
/// SASLprep leaves as they are or maps to nothing. Two names that look the same must not be two roles.
fn is_hidden(character: char) -> bool {
    matches!(
        u32::from(character),
        0xad | 0x34f
            | 0x61c
            | 0x115f..=0x1160
            | 0x17b4..=0x17b5
            | 0x180b..=0x180f
            | 0x200b..=0x200f
            | 0x2028..=0x202e
            | 0x2060..=0x206f
            | 0x2800
            | 0x3164
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xffa0
            | 0xfff9..=0xfffc
            | 0xe0000..=0xe0fff
    )
}

/// Checks the name of a role or of a token.
///
/// Errors: [`IdentityError::Name`]: empty, longer than 63 bytes, with control or hidden characters, with blanks at its
/// ends, with a `:` (it ends the name in HTTP's logins), not as SASLprep (RFC 4013) writes it, or reserved however it is
/// written (`public`, `none`, `node`, `pg_...`, `terrace_...`).
pub fn check_name(name: &str) -> Result<(), IdentityError> {
    let lower = name.to_ascii_lowercase();
    let why = match lower.as_str() {
        "" => "it is empty",
        _ if name.len() > NAME_BYTES_MAX => "it is longer than 63 bytes",
        _ if name.chars().any(char::is_control) => "it contains control characters",
        _ if name.chars().any(is_hidden) => "it contains hidden characters",
        _ if name.trim() != name => "it begins or ends with a blank",
        _ if name.contains(':') => "it contains a colon",
        _ if stringprep::saslprep(name).map_or(true, |prepared| prepared != name) => {
            "SASLprep (RFC 4013) writes it in another way, or does not allow it"
        }
        "public" | "none" | "node" => "it is reserved",
        _ if lower.starts_with("pg_") => "names that begin with pg_ are reserved",
        _ if lower.starts_with("terrace_") => "names that begin with terrace_ are reserved",
        _ => return Ok(()),
    };
    Err(IdentityError::Name { name: name.chars().take(NAME_BYTES_MAX).collect(), why })
}

/// Most bytes of a name in a certificate: a URI may be long.
const CERTIFICATE_NAME_BYTES_MAX: usize = 512;

/// Checks a name that client certificates are to have: it is compared with theirs byte by byte.
///
/// Errors: [`IdentityError::Name`].
pub(super) fn check_certificate_name(name: &str) -> Result<(), IdentityError> {
    let why = match name {
        "" => "it is empty",
        _ if name.len() > CERTIFICATE_NAME_BYTES_MAX => "it is longer than 512 bytes",
        _ if name.chars().any(char::is_control) => "it contains control characters",
        _ if name.trim() != name => "it begins or ends with a blank",
        _ => return Ok(()),
    };
    Err(IdentityError::Name { name: name.chars().take(NAME_BYTES_MAX).collect(), why })
}

/// Checks a new password. Errors: [`IdentityError::Password`].
pub fn check_password(password: &str, name: &str) -> Result<(), IdentityError> {
    let why = match password {
        _ if password.chars().count() < PASSWORD_CHARACTERS => "it has fewer than 8 characters",
        _ if password.len() > PASSWORD_BYTES_MAX => "it is longer than 1,024 bytes",
        _ if password.eq_ignore_ascii_case(name) => "it is the name of the role",
        _ => return Ok(()),
    };
    Err(IdentityError::Password(why))
}

/// What a role is, apart from what it may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Attributes {
    /// Whether it has all administration (SQL's SUPERUSER). As in PostgreSQL, members of the role do not inherit it:
    /// they use SET ROLE.
    pub administrator: bool,
    /// Whether it may log in: SQL's LOGIN. Users do, groups do not.
    pub login: bool,
    /// Whether it has the rights of roles that it becomes a member of (SQL's INHERIT), unless a grant says otherwise.
    pub inherit: bool,
    /// How many connections it may have at once; `None`: any number.
    pub connection_limit: Option<u32>,
    /// From when on it may not log in and its sessions end, in microseconds since 1970; `None`: never.
    pub until_us: Option<i64>,
    /// Why it is locked; `None`: it is not.
    pub locked: Option<String>,
    /// Whether a program uses it and not a person.
    pub service_account: bool,
    /// Whether it may do nothing until it has changed its password.
    pub must_change_password: bool,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes {
            administrator: false,
            login: false,
            inherit: true,
            connection_limit: None,
            until_us: None,
            locked: None,
            service_account: false,
            must_change_password: false,
        }
    }
}

impl Attributes {
    /// Those of a user.
    pub fn user() -> Attributes {
        Attributes { login: true, ..Attributes::default() }
    }

    /// Whether it may log in at a moment.
    pub fn may_log_in(&self, now_us: i64) -> bool {
        self.login && self.locked.is_none() && self.until_us.is_none_or(|until| now_us < until)
    }
}

/// A change of one attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttributeChange {
    /// [`Attributes::administrator`].
    Administrator(bool),
    /// [`Attributes::login`].
    Login(bool),
    /// [`Attributes::inherit`].
    Inherit(bool),
    /// [`Attributes::connection_limit`].
    ConnectionLimit(Option<u32>),
    /// [`Attributes::until_us`].
    Until(Option<i64>),
    /// [`Attributes::locked`].
    Locked(Option<String>),
    /// [`Attributes::service_account`].
    ServiceAccount(bool),
    /// [`Attributes::must_change_password`].
    MustChangePassword(bool),
}

impl Attributes {
    /// Changes one of them.
    pub fn set(&mut self, change: AttributeChange) {
        match change {
            AttributeChange::Administrator(administrator) => self.administrator = administrator,
            AttributeChange::Login(login) => self.login = login,
            AttributeChange::Inherit(inherit) => self.inherit = inherit,
            AttributeChange::ConnectionLimit(limit) => self.connection_limit = limit,
            AttributeChange::Until(until_us) => self.until_us = until_us,
            AttributeChange::Locked(why) => self.locked = why,
            AttributeChange::ServiceAccount(is) => self.service_account = is,
            AttributeChange::MustChangePassword(must) => self.must_change_password = must,
        }
    }
}

/// How a role came to have its password in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LdapUser {
    /// Somebody made it: it may log in whatever groups it is in.
    ByHand,
    /// It was made at its first login, for a group that it is in: it may log in as long as it is in such a group.
    Created,
}

/// That a provider of logins (OpenID Connect) says who is a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OidcUser {
    /// Whether it was made at its first login, for a group that it is in: then it may log in as long as it is in such a group.
    pub by_group: bool,
    /// Who it is at the provider, which never gives that to another person; `None`: who first logs in under the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// What proves that somebody is a role.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Credentials {
    /// For logins by SCRAM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scram: Option<Verifier>,
    /// For passwords that come as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<PasswordHash>,
    /// A directory checks its password; then it has none here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ldap: Option<LdapUser>,
    /// A provider says who it is; then it has no password, here or in a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcUser>,
    /// For programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<ApiToken>,
    /// Names in client certificates of an authority that a port trusts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// Users of this machine, at the control socket.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uids: Vec<u32>,
}

impl fmt::Debug for Credentials {
    /// Shows which there are, and no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("scram", &self.scram.is_some())
            .field("hash", &self.hash.is_some())
            .field("ldap", &self.ldap)
            .field("oidc", &self.oidc)
            .field("tokens", &self.tokens.len())
            .field("certificates", &self.certificates)
            .field("uids", &self.uids)
            .finish()
    }
}

impl Credentials {
    /// Both forms of a password. Errors: [`IdentityError::Password`], those of [`PasswordHash::of`].
    pub fn set_password(&mut self, name: &str, password: &str) -> Result<(), IdentityError> {
        check_password(password, name)?;
        self.scram = Some(Verifier::of(password).map_err(|_| IdentityError::Randomness)?);
        self.hash = Some(PasswordHash::of(password)?);
        Ok(())
    }

    /// Whether anything here proves it for ever: a password, a certificate, a user of the machine, a token without end. A directory,
    /// and a provider of logins, is another machine's: it may be away when the last administrator needs it.
    pub fn are_lasting(&self) -> bool {
        let token = self.tokens.iter().any(|token| token.until_us.is_none());
        self.scram.is_some() || self.hash.is_some() || token || !self.certificates.is_empty() || !self.uids.is_empty()
    }
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// What it is.
    pub attributes: Attributes,
    /// What proves it.
    #[serde(default)]
    pub credentials: Credentials,
}

impl Role {
    /// Whether it is an administrator who can log in now and for ever, as long as nobody changes it.
    pub fn is_standing_administrator(&self) -> bool {
        let own = &self.attributes;
        let can_log_in = own.login && own.locked.is_none() && own.until_us.is_none() && own.connection_limit != Some(0);
        own.administrator && can_log_in && self.credentials.are_lasting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_empty_and_long_names_are_refused() {
        for name in ["", "public", "none", "pg_read_all_data", "terrace_local", "a\nb", &"x".repeat(64)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["Public", "NONE", "node", "Node", "PG_monitor", "Terrace_x"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["ann", "Ann Smith", "m\u{fc}ller", "publics", "nodes", "\u{5d0}\u{5d1}", &"x".repeat(63)] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn names_that_look_like_another_or_cannot_be_sent_are_refused() {
        let decomposed = "mu\u{308}ller";
        let hidden = ["a\u{ad}n", "a\u{200b}n", "a\u{202e}n", "a\u{2066}n", "a\u{115f}n", "a\u{2800}n", "a\u{e0041}n"];
        let others = [decomposed, " ann", "ann ", "ann\u{a0}", "a:n", "\u{ff41}nn", "\u{212a}im", "\u{5d0}a"];
        for name in hidden.iter().chain(&others) {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn every_proof_without_an_end_keeps_an_administrator_and_no_other_does() {
        let none = Credentials::default;
        for (credentials, expected) in [
            (none(), false),
            (Credentials { ldap: Some(LdapUser::ByHand), ..none() }, false),
            (Credentials { oidc: Some(OidcUser::default()), ..none() }, false),
            (Credentials { certificates: vec!["ann.example".into()], ..none() }, true),
            (Credentials { uids: vec![1_000], ..none() }, true),
        ] {
            let attributes = Attributes { administrator: true, ..Attributes::user() };
            let role = Role { name: "ann".into(), attributes, credentials };
            assert_eq!(role.is_standing_administrator(), expected, "{role:?}");
        }
    }

    #[test]
    fn a_role_is_read_as_it_is_stored_and_its_debug_form_has_no_secret() {
        let mut role = Role { name: "ann".into(), attributes: Attributes::user(), credentials: Credentials::default() };
        assert!(role.credentials.set_password("ann", "ANN").is_err() && role.credentials.scram.is_none());
        role.credentials.set_password("ann", "a long password").expect("it is allowed");
        let stored = serde_json::to_string(&role).expect("it is JSON");
        assert_eq!(serde_json::from_str::<Role>(&stored).expect("it is one"), role);
        let shown = format!("{role:?}");
        assert!(!shown.contains("SCRAM") && !shown.contains("argon2"), "{shown}");
    }
}
