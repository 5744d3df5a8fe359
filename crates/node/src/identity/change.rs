//! [`IdentityChange`]: what can be done to roles and rights, as data. What each does, and who may, is [`super::applying`].

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::Action;
use super::hashing::PasswordHash;
use super::object::{ObjectKind, ObjectPattern};
use super::role::{AttributeChange, Attributes, Role};
use super::scram::Verifier;
use super::token::ApiToken;

/// A change of a role's credentials.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialChange {
    /// Another password, in the forms that logins need; none of them takes it away.
    Password {
        /// For SCRAM.
        scram: Option<Verifier>,
        /// For passwords that come as they are.
        hash: Option<PasswordHash>,
        /// Whether the role must change it at its next login.
        must_change: bool,
    },
    /// From now on the directory checks the password; the one here, if there was one, is gone.
    Ldap,
    /// From now on the provider of logins says who it is, beginning with who next logs in under the name; a password is gone.
    Oidc,
    /// A new token.
    AddToken(ApiToken),
    /// Revokes the token of this name.
    DropToken(String),
    /// The names in client certificates, all of them.
    Certificates(Vec<String>),
    /// The users of this machine, all of them.
    Uids(Vec<u32>),
    /// One more name in client certificates.
    AddCertificate(String),
    /// A name in client certificates that no longer counts.
    DropCertificate(String),
    /// One more user of this machine.
    AddUid(u32),
    /// A user of this machine that no longer counts.
    DropUid(u32),
}

/// The privileges that a GRANT or REVOKE is about.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Privileges {
    /// What.
    pub actions: Vec<Action>,
    /// On what.
    pub object: ObjectPattern,
    /// On which columns; none: the whole object.
    pub columns: Vec<String>,
    /// To or from whom: the name of a role, or `public`.
    pub grantee: String,
}

/// A part of a membership, for REVOKE ... OPTION FOR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MembershipPart {
    /// All of it.
    All,
    /// ADMIN OPTION.
    Admin,
    /// INHERIT OPTION.
    Inherit,
    /// SET OPTION.
    Set,
}

/// What is done to roles and rights.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityChange {
    /// CREATE ROLE.
    Create(Role),
    /// ALTER ROLE: all attributes, as they are to be.
    Alter {
        /// Which role.
        role: String,
        /// Its attributes from now on.
        attributes: Attributes,
    },
    /// ALTER ROLE: some attributes.
    Set {
        /// Which role.
        role: String,
        /// What of it.
        changes: Vec<AttributeChange>,
    },
    /// ALTER ROLE ... RENAME.
    Rename {
        /// Which role.
        role: String,
        /// Its new name.
        to: String,
    },
    /// Changes credentials.
    Credential {
        /// Whose.
        role: String,
        /// Which.
        change: CredentialChange,
    },
    /// DROP ROLE, with its memberships and rights. What it granted to others stands in the way without `cascade`; what
    /// it owns always does.
    Drop {
        /// Which role.
        role: String,
        /// Whether what it granted ends too.
        cascade: bool,
    },
    /// GRANT role TO member; replaces an earlier membership.
    Join {
        /// The role.
        role: String,
        /// Who becomes a member.
        member: String,
        /// ADMIN OPTION.
        admin: bool,
        /// INHERIT OPTION; by default the member's INHERIT attribute.
        inherit: Option<bool>,
        /// SET OPTION.
        set: bool,
    },
    /// REVOKE role FROM member.
    Leave {
        /// The role.
        role: String,
        /// The member.
        member: String,
        /// What of it.
        part: MembershipPart,
        /// Whether memberships that depend on it end too.
        cascade: bool,
    },
    /// What the directory (LDAP) says of a user: the roles of its groups, all of them. The node makes this change, and nobody else.
    DirectoryRoles {
        /// The user.
        user: String,
        /// The names of the roles.
        roles: Vec<String>,
        /// Whether the user's role is made where it is not there.
        create: bool,
    },
    /// What a provider of logins (OIDC) says of who logs in. The node makes this change, and nobody else.
    ProviderUser {
        /// The user.
        user: String,
        /// Who it is at the provider.
        subject: String,
        /// The names of the roles of its groups, all of them.
        roles: Vec<String>,
        /// Whether the user's role is made where it is not there.
        create: bool,
    },
    /// GRANT.
    Grant {
        /// What on what to whom.
        privileges: Privileges,
        /// WITH GRANT OPTION.
        grant_option: bool,
    },
    /// REVOKE.
    Revoke {
        /// What on what from whom.
        privileges: Privileges,
        /// GRANT OPTION FOR: only the option.
        option_only: bool,
        /// Whether what depends on it ends too.
        cascade: bool,
    },
    /// Takes a right for a time.
    BreakGlass {
        /// Which.
        action: Action,
        /// On what.
        object: ObjectPattern,
        /// Until when, in microseconds since 1970.
        until_us: i64,
        /// Why.
        reason: String,
    },
    /// ALTER DEFAULT PRIVILEGES.
    Default {
        /// Of objects that this role creates.
        creator: String,
        /// In which schema; `None`: in all.
        schema: Option<String>,
        /// Of what kind.
        kind: ObjectKind,
        /// What.
        actions: Vec<Action>,
        /// To whom.
        grantee: String,
        /// With which grant option; `None` revokes.
        grant_option: Option<bool>,
    },
    /// ALTER ... OWNER TO.
    Own {
        /// The object.
        object: ObjectPattern,
        /// Its owner from now on.
        owner: String,
    },
    /// REASSIGN OWNED.
    Reassign {
        /// Of whom.
        from: String,
        /// To whom.
        to: String,
    },
}

/// Fields that hold secrets, or what a secret can be guessed from.
const SECRETS: &[&str] = &["scram", "hash", "digest"];

impl IdentityChange {
    /// As JSON, for people and for the audit: of secrets only that they are there.
    pub fn without_secrets(&self) -> Value {
        let mut shown = json!(self);
        hide(&mut shown);
        shown
    }
}

fn hide(shown: &mut Value) {
    match shown {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| {
            if SECRETS.contains(&name.as_str()) && !value.is_null() {
                *value = json!("hidden");
            } else {
                hide(value);
            }
        }),
        Value::Array(values) => values.iter_mut().for_each(hide),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_are_in_a_change() {
        let mut shown = json!({"create": {"credentials": {"scram": "SCRAM-SHA-256$x", "hash": null,
            "tokens": [{"name": "ci", "digest": "aa", "last": "zz"}]}}});
        hide(&mut shown);
        let credentials =
            json!({"scram": "hidden", "hash": null, "tokens": [{"name": "ci", "digest": "hidden", "last": "zz"}]});
        assert_eq!(shown, json!({"create": {"credentials": credentials}}));
    }
}
