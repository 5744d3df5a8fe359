//! `[ldap]` of terrace.toml: the directory that checks passwords of users who have none here. What can work is decided by
//! `node::identity::ldap`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use interop::production::units::Span;
use node::identity::ldap::{LdapService, LdapSettings};
use serde::Deserialize;

use super::one_or_more::{OneOrMore, secret};

/// `[ldap]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LdapTable {
    /// The servers, in the order in which they are asked.
    url: OneOrMore,
    /// TLS on connections of `ldap://`. Default yes.
    #[serde(default = "yes")]
    starttls: bool,
    /// A PEM file with the authorities of the servers' certificates.
    authority: Option<PathBuf>,
    /// The service account.
    bind_dn: Option<String>,
    /// Where its password is.
    bind_password: Option<String>,
    /// The name by which users bind.
    user_dn: Option<String>,
    /// Where users are searched.
    base: Option<String>,
    /// What finds them. Default `(uid={user})`.
    filter: Option<String>,
    /// The attribute with their name.
    user_attribute: Option<String>,
    /// The attribute with their groups.
    group_attribute: Option<String>,
    /// Where groups are searched.
    group_base: Option<String>,
    /// What finds those of a user. Default `(member={dn})`.
    group_filter: Option<String>,
    /// Groups, and the roles that they are.
    #[serde(default)]
    roles: BTreeMap<String, OneOrMore>,
    /// Users that are not known become roles. Default no.
    #[serde(default)]
    create: bool,
    /// For a connection, and for each answer. Default 5 s.
    timeout: Option<Span>,
    /// Logins at once. Default 8.
    binds: Option<usize>,
    /// How often open sessions are asked about. Default 60 s.
    recheck: Option<Span>,
}

impl fmt::Debug for LdapTable {
    /// Without anything that may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LdapTable").field("url", &self.url).finish_non_exhaustive()
    }
}

fn yes() -> bool {
    true
}

impl LdapTable {
    /// The settings of the node.
    ///
    /// # Errors
    /// Keys that do not go together.
    pub fn settings(&self) -> anyhow::Result<LdapSettings> {
        let table = self.clone();
        let password = table.bind_password.as_deref().map(|text| secret("ldap.bind_password", text)).transpose()?;
        let service = match (table.bind_dn, password) {
            (Some(dn), Some(password)) => Some(LdapService { dn, password }),
            (None, None) => None,
            (Some(_), None) => anyhow::bail!("ldap.bind_dn needs ldap.bind_password"),
            (None, Some(_)) => anyhow::bail!("ldap.bind_password needs ldap.bind_dn"),
        };
        anyhow::ensure!(
            service.is_some() || table.recheck.is_none(),
            "ldap.recheck has no effect without ldap.bind_dn: nothing can be asked about users without their passwords"
        );
        let default = LdapSettings::default();
        Ok(LdapSettings {
            urls: table.url.all(),
            starttls: table.starttls,
            authority: table.authority,
            service,
            user_dn: table.user_dn,
            base: table.base,
            filter: table.filter.unwrap_or(default.filter),
            user_attribute: table.user_attribute,
            group_attribute: table.group_attribute,
            group_base: table.group_base,
            group_filter: table.group_filter.unwrap_or(default.group_filter),
            roles: table.roles.into_iter().map(|(group, roles)| (group, roles.all())).collect(),
            create: table.create,
            timeout: table.timeout.map_or(default.timeout, |span| span.0),
            binds: table.binds.unwrap_or(default.binds),
            recheck: table.recheck.map_or(default.recheck, |span| span.0),
        })
    }
}
