//! The settings of a directory, as they are written, and checked: what cannot work, and what would send a password in clear, is
//! refused before anything is listened on, with the key that is wrong.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ClientConfig;

use super::group_roles::GroupRoles;
use super::names::{self, DistinguishedName, LdapTemplate};
use crate::identity::role::{LOCAL_NAME, check_name};
use crate::identity::secret_place::SecretPlace;
use crate::tls;

/// Most servers: each may take a timeout before the next is tried.
const SERVERS_MAX: usize = 8;

/// Times for a connection, and for an answer.
const TIMEOUT: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

/// Times between rechecks of open sessions.
const RECHECK: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);

/// Logins at once.
const BINDS: std::ops::RangeInclusive<usize> = 1..=256;

/// The account by which the node itself reads a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdapService {
    /// Its name: a DN, or what else the directory takes for one.
    pub dn: String,
    /// Its password.
    pub password: SecretPlace,
}

/// The settings of a directory, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdapSettings {
    /// Servers in the order in which they are asked: `ldaps://HOST[:PORT]` or `ldap://HOST[:PORT]`.
    pub urls: Vec<String>,
    /// Whether TLS begins on connections of `ldap://` (StartTLS). Without it only this machine may be the server.
    pub starttls: bool,
    /// A PEM file with the authorities of the servers' certificates; needed with TLS.
    pub authority: Option<PathBuf>,
    /// The account by which users are found. Without it there is `user_dn`, and open sessions are not asked about.
    pub service: Option<LdapService>,
    /// The name by which a user binds, with `{user}`. Without it the entry is searched first.
    pub user_dn: Option<String>,
    /// Where users are searched. Needed unless `user_dn` is a DN.
    pub base: Option<String>,
    /// The filter that finds the one entry of `{user}`.
    pub filter: String,
    /// The attribute that has the user's name exactly as it is a role's. Needed for `create`.
    pub user_attribute: Option<String>,
    /// An attribute of the user's entry with the DNs of its groups; `None`: it is not read.
    pub group_attribute: Option<String>,
    /// Where groups are searched; `None`: they are not.
    pub group_base: Option<String>,
    /// The filter that finds the groups of `{user}` or of `{dn}`.
    pub group_filter: String,
    /// Groups (DNs; or names, below `group_base`) and the roles that their members are members of.
    pub roles: BTreeMap<String, Vec<String>>,
    /// Whether a user who is not known here, but is in one of these groups, may log in and becomes a role.
    pub create: bool,
    /// How long a connection and each answer may take. 100 ms to 60 s.
    pub timeout: Duration,
    /// How many logins ask the directory at once. 1 to 256.
    pub binds: usize,
    /// How often open sessions are asked about, with the service account. 1 s to 1 day.
    pub recheck: Duration,
}

impl Default for LdapSettings {
    fn default() -> LdapSettings {
        LdapSettings {
            urls: Vec::new(),
            starttls: true,
            authority: None,
            service: None,
            user_dn: None,
            base: None,
            filter: "(uid={user})".to_owned(),
            user_attribute: None,
            group_attribute: None,
            group_base: None,
            group_filter: "(member={dn})".to_owned(),
            roles: BTreeMap::new(),
            create: false,
            timeout: Duration::from_secs(5),
            binds: 8,
            recheck: Duration::from_secs(60),
        }
    }
}

/// A setting that cannot work: correct it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ldap.{key}: {problem}")]
pub struct LdapSettingsError {
    /// The key.
    pub key: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

fn wrong(key: &'static str, problem: impl Into<String>) -> LdapSettingsError {
    LdapSettingsError { key, problem: problem.into() }
}

/// How a connection to a server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LdapSecurity {
    /// TLS from the first byte.
    Tls,
    /// TLS after a request in clear.
    StartTls,
    /// None: the server is on this machine.
    Clear,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LdapServer {
    /// As the settings name it.
    pub(super) url: String,
    /// Its name or address.
    pub(super) host: String,
    /// Its port.
    pub(super) port: u16,
    /// How the connection is protected.
    pub(super) security: LdapSecurity,
}

impl LdapServer {
    fn parse(url: &str, starttls: bool) -> Result<LdapServer, String> {
        let lower = url.to_ascii_lowercase();
        let (security, rest, port) = if lower.starts_with("ldaps://") {
            (LdapSecurity::Tls, &url[8..], 636)
        } else if lower.starts_with("ldap://") {
            (if starttls { LdapSecurity::StartTls } else { LdapSecurity::Clear }, &url[7..], 389)
        } else {
            return Err(format!("`{url}` begins with neither ldaps:// nor ldap://"));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, after) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').ok_or_else(|| format!("`{url}` has no host"))?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let port = match after.strip_prefix(':') {
            Some(digits) => digits.parse().ok().filter(|port| *port != 0),
            None => after.is_empty().then_some(port),
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
        let Some(port) = port.filter(|_| !host.is_empty() && host.bytes().all(is_host)) else {
            return Err(format!("`{url}` is not SCHEME://HOST or SCHEME://HOST:PORT"));
        };
        let host = host.to_owned();
        if security == LdapSecurity::Clear && !is_here(&host) {
            return Err(format!(
                "`{url}` is beyond this machine and without TLS: everybody on the network path could read the passwords. Use \
                 ldaps://, or leave out `starttls = false`"
            ));
        }
        Ok(LdapServer { url: url.to_owned(), host, port, security })
    }
}

/// Whether a host is this machine for sure: a loopback address, or the name that means one.
fn is_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|own| own.to_canonical().is_loopback())
}

/// The name by which a user binds.
#[derive(Debug)]
pub(super) struct UserName {
    /// With `{user}`.
    pub(super) template: LdapTemplate,
    /// Whether it is a DN: the name of the user's entry.
    pub(super) is_dn: bool,
}

/// Checked settings.
#[derive(Debug)]
pub(super) struct CheckedSettings {
    pub(super) servers: Vec<LdapServer>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) service: Option<LdapService>,
    pub(super) user_name: Option<UserName>,
    pub(super) base: Option<String>,
    pub(super) filter: LdapTemplate,
    pub(super) user_attribute: Option<String>,
    pub(super) group_attribute: Option<String>,
    pub(super) group_base: Option<String>,
    pub(super) group_filter: LdapTemplate,
    pub(super) roles: GroupRoles,
    pub(super) create: bool,
    pub(super) timeout: Duration,
    pub(super) binds: usize,
    pub(super) recheck: Duration,
}

impl LdapSettings {
    /// Checks that they can work, and reads the files that they name.
    ///
    /// # Errors
    /// The first key that cannot.
    pub(super) fn checked(&self) -> Result<CheckedSettings, LdapSettingsError> {
        let servers = self.servers()?;
        let tls = self.tls(&servers)?;
        let (service, user_name) = (self.service()?, self.user_name()?);
        if service.is_none() && user_name.is_none() {
            return Err(wrong(
                "bind_dn",
                "it is missing: users are found by bind_dn and its password, or bind by user_dn",
            ));
        }
        let base = self.base.as_deref().map(|base| dn("base", base)).transpose()?;
        if user_name.as_ref().is_none_or(|name| !name.is_dn) && base.is_none() {
            return Err(wrong("base", "it is missing: users are searched below it, unless ldap.user_dn is a DN"));
        }
        let filter = filter("filter", &self.filter, &["user"])?;
        if !filter.has("user") {
            return Err(wrong("filter", "it has no {user}: it would find the same entry for everybody"));
        }
        let group_base = self.group_base.as_deref().map(|base| dn("group_base", base)).transpose()?;
        let group_filter = self::filter("group_filter", &self.group_filter, &["user", "dn"])?;
        if !group_filter.has("user") && !group_filter.has("dn") {
            return Err(wrong("group_filter", "it has neither {dn} nor {user}: everybody would be in all groups"));
        }
        let user_attribute =
            self.user_attribute.as_deref().map(|name| attribute("user_attribute", name)).transpose()?;
        let group_attribute =
            self.group_attribute.as_deref().map(|name| attribute("group_attribute", name)).transpose()?;
        let roles = self.group_roles(group_base.as_deref())?;
        if !roles.is_empty() && group_attribute.is_none() && group_base.is_none() {
            return Err(wrong(
                "roles",
                "nothing says how groups are found: set ldap.group_attribute or ldap.group_base",
            ));
        }
        if self.create && (user_attribute.is_none() || roles.is_empty()) {
            return Err(wrong(
                "create",
                "it needs ldap.user_attribute, and a group in [ldap.roles] that lets users in",
            ));
        }
        self.bounds()?;
        let Self { create, timeout, binds, recheck, .. } = *self;
        Ok(CheckedSettings {
            servers,
            tls,
            service,
            user_name,
            base,
            filter,
            user_attribute,
            group_attribute,
            group_base,
            group_filter,
            roles,
            create,
            timeout,
            binds,
            recheck,
        })
    }

    fn bounds(&self) -> Result<(), LdapSettingsError> {
        if !TIMEOUT.contains(&self.timeout) {
            return Err(wrong("timeout", "it is 100ms to 60s"));
        }
        if !RECHECK.contains(&self.recheck) {
            return Err(wrong("recheck", "it is 1s to 1d"));
        }
        if !BINDS.contains(&self.binds) {
            return Err(wrong("binds", "it is 1 to 256"));
        }
        Ok(())
    }

    fn servers(&self) -> Result<Vec<LdapServer>, LdapSettingsError> {
        if !(1..=SERVERS_MAX).contains(&self.urls.len()) {
            return Err(wrong("url", format!("it names 1 to {SERVERS_MAX} servers")));
        }
        let parse = |url: &String| LdapServer::parse(url, self.starttls).map_err(|why| wrong("url", why));
        self.urls.iter().map(parse).collect()
    }

    fn tls(&self, servers: &[LdapServer]) -> Result<Option<Arc<ClientConfig>>, LdapSettingsError> {
        let is_needed = servers.iter().any(|server| server.security != LdapSecurity::Clear);
        let file = match (&self.authority, is_needed) {
            (Some(file), true) => file,
            (None, false) => return Ok(None),
            (None, true) => {
                return Err(wrong(
                    "authority",
                    "it is missing: without the authority of the servers' certificates anybody could be the directory. The \
                     system's are in a file such as /etc/ssl/certs/ca-certificates.crt",
                ));
            }
            (Some(_), false) => return Err(wrong("authority", "it has no effect: no server is reached over TLS")),
        };
        Ok(Some(Arc::new(tls::client_config(file).map_err(|error| wrong("authority", error.to_string()))?)))
    }

    fn service(&self) -> Result<Option<LdapService>, LdapSettingsError> {
        let Some(service) = &self.service else { return Ok(None) };
        // A name such as `svc@example.org` is no DN, and Active Directory takes it.
        if service.dn.trim().is_empty() || service.dn.len() > names::DN_BYTES_MAX {
            return Err(wrong("bind_dn", "it is empty, or longer than 4,096 bytes"));
        }
        service.password.read().map_err(|why| wrong("bind_password", why))?;
        Ok(Some(service.clone()))
    }

    fn user_name(&self) -> Result<Option<UserName>, LdapSettingsError> {
        let Some(text) = &self.user_dn else { return Ok(None) };
        let template = LdapTemplate::parse(text, &["user"]).map_err(|why| wrong("user_dn", why))?;
        if !template.has("user") {
            return Err(wrong("user_dn", "it has no {user}: everybody would be the same user"));
        }
        let is_dn = template.contains('=');
        if is_dn {
            let example = template.filled(&[("user", "x")], names::in_dn);
            DistinguishedName::parse(&example).map_err(|why| wrong("user_dn", why))?;
        }
        Ok(Some(UserName { template, is_dn }))
    }

    fn group_roles(&self, group_base: Option<&str>) -> Result<GroupRoles, LdapSettingsError> {
        for role in self.roles.values().flatten() {
            if role == LOCAL_NAME || check_name(role).is_err() {
                return Err(wrong("roles", format!("`{role}` is no name of a role that a group can be")));
            }
        }
        let base = group_base.map(DistinguishedName::parse).transpose().map_err(|why| wrong("group_base", why))?;
        GroupRoles::new(&self.roles, base).map_err(|why| wrong("roles", why))
    }
}

fn dn(key: &'static str, text: &str) -> Result<String, LdapSettingsError> {
    DistinguishedName::parse(text).map_err(|why| wrong(key, why))?;
    Ok(text.to_owned())
}

fn filter(key: &'static str, text: &str, known: &[&str]) -> Result<LdapTemplate, LdapSettingsError> {
    let template = LdapTemplate::parse(text, known).map_err(|why| wrong(key, why))?;
    let example = template.filled(&[("user", "x"), ("dn", "cn=x")], names::in_filter);
    match ldap3::parse_filter(&example) {
        Ok(_) if example.starts_with('(') => Ok(template),
        _ => Err(wrong(key, "it is no filter, such as (uid={user})")),
    }
}

fn attribute(key: &'static str, name: &str) -> Result<String, LdapSettingsError> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if name.is_empty() || name.len() > 128 || !name.bytes().all(is_name) {
        return Err(wrong(key, format!("`{name}` is not the name of an attribute")));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str, starttls: bool) -> Result<(String, u16, LdapSecurity), String> {
        LdapServer::parse(url, starttls).map(|server| (server.host, server.port, server.security))
    }

    #[test]
    fn servers_are_read_and_clear_ones_beyond_this_machine_are_refused() {
        use LdapSecurity::{Clear, StartTls, Tls};
        for (url, starttls, host, port, security) in [
            ("ldaps://dc1.example.org", true, "dc1.example.org", 636, Tls),
            ("LDAPS://dc1.example.org:3269/", false, "dc1.example.org", 3269, Tls),
            ("ldap://dc1", true, "dc1", 389, StartTls),
            ("ldap://[2001:db8::1]:1389", true, "2001:db8::1", 1389, StartTls),
            ("ldap://localhost:389", false, "localhost", 389, Clear),
            ("ldap://127.0.0.9", false, "127.0.0.9", 389, Clear),
            ("ldap://[::1]", false, "::1", 389, Clear),
        ] {
            assert_eq!(server(url, starttls), Ok((host.to_owned(), port, security)), "{url}");
        }
        for url in ["ldap://dc1", "ldap://10.0.0.1", "ldap://localhost.example.org", "ldap://[2001:db8::1]"] {
            let refused = server(url, false).expect_err(url);
            assert!(refused.contains("beyond this machine and without TLS"), "{refused}");
        }
        for url in
            ["", "dc1", "http://dc1", "ldap://", "ldaps://dc1:0", "ldaps://dc1:x", "ldaps://a b", "ldaps://u@dc1"]
        {
            assert!(server(url, true).is_err(), "{url}");
        }
    }

    fn by_user() -> LdapSettings {
        LdapSettings {
            urls: vec!["ldap://127.0.0.1".into()],
            starttls: false,
            user_dn: Some("uid={user},ou=people,dc=x".into()),
            ..LdapSettings::default()
        }
    }

    fn variable(name: &str) -> SecretPlace {
        SecretPlace::Variable(name.to_owned())
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_their_key() {
        assert!(by_user().checked().is_ok());
        let text = |text: &str| Some(text.to_owned());
        let roles = |group: &str, role: &str| BTreeMap::from([(group.to_owned(), vec![role.to_owned()])]);
        let nowhere = SecretPlace::File("/nonexistent/password".into());
        type Change = Box<dyn FnOnce(&mut LdapSettings)>;
        let cases: Vec<(&str, Change)> = vec![
            ("url", Box::new(|own| own.urls.clear())),
            ("url", Box::new(|own| own.urls = vec!["ldap://localhost".into(); 9])),
            ("authority", Box::new(|own| own.urls = vec!["ldaps://dc1".into()])),
            ("authority", Box::new(|own| own.authority = Some("ca.pem".into()))),
            ("user_dn", Box::new(|own| own.user_dn = Some("uid=ann,dc=x".into()))),
            ("user_dn", Box::new(|own| own.user_dn = Some("uid={user".into()))),
            ("user_dn", Box::new(|own| own.user_dn = Some("uid={user},dc".into()))),
            ("base", Box::new(|own| own.user_dn = Some("{user}@example.org".into()))),
            ("bind_dn", Box::new(|own| own.user_dn = None)),
            ("bind_dn", Box::new(|own| own.service = Some(LdapService { dn: " ".into(), password: variable("PATH") }))),
            (
                "bind_password",
                Box::new(move |own| own.service = Some(LdapService { dn: "cn=svc,dc=x".into(), password: nowhere })),
            ),
            (
                "bind_password",
                Box::new(|own| {
                    let password = variable("TERRACE_NO_SUCH_VARIABLE");
                    own.service = Some(LdapService { dn: "cn=svc,dc=x".into(), password });
                }),
            ),
            (
                "base",
                Box::new(|own| {
                    own.service = Some(LdapService { dn: "cn=svc,dc=x".into(), password: variable("PATH") });
                    own.user_dn = None;
                }),
            ),
            ("base", Box::new(move |own| own.base = text("people"))),
            ("filter", Box::new(|own| own.filter = "(uid=ann)".into())),
            ("filter", Box::new(|own| own.filter = "uid={user}".into())),
            ("group_filter", Box::new(|own| own.group_filter = "(objectClass=group)".into())),
            ("group_base", Box::new(move |own| own.group_base = Some("groups".into()))),
            ("user_attribute", Box::new(move |own| own.user_attribute = Some("uid)".into()))),
            ("roles", Box::new(move |own| own.roles = roles("cn=a,dc=x", "a"))),
            (
                "roles",
                Box::new(move |own| {
                    own.group_attribute = Some("memberOf".into());
                    own.roles = roles("doctors", "doctors");
                }),
            ),
            (
                "roles",
                Box::new(move |own| {
                    own.group_attribute = Some("memberOf".into());
                    own.roles = roles("cn=a,dc=x", LOCAL_NAME);
                }),
            ),
            ("create", Box::new(|own| own.create = true)),
            ("timeout", Box::new(|own| own.timeout = Duration::ZERO)),
            ("recheck", Box::new(|own| own.recheck = Duration::from_millis(10))),
            ("binds", Box::new(|own| own.binds = 0)),
        ];
        for (at, (key, change)) in cases.into_iter().enumerate() {
            let mut settings = by_user();
            change(&mut settings);
            let error = settings.checked().expect_err(key);
            assert_eq!(error.key, key, "case {at}: {error}");
        }
    }
}
