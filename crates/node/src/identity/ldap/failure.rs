//! Why a directory did not say that somebody is who they say: the step, the reason, and what an operator does about it.

use std::fmt;

/// A step of a login at a directory, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LdapStep {
    /// The connection to the server.
    Connect,
    /// TLS, and the server's certificate.
    Tls,
    /// The login of the service account.
    Bind,
    /// The search for the user's entry.
    Search,
    /// The user's password.
    Password,
    /// The search for the user's groups.
    Groups,
    /// What the groups are here.
    Roles,
}

impl fmt::Display for LdapStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LdapStep::Connect => "connect",
            LdapStep::Tls => "tls",
            LdapStep::Bind => "bind",
            LdapStep::Search => "search",
            LdapStep::Password => "password",
            LdapStep::Groups => "groups",
            LdapStep::Roles => "roles",
        })
    }
}

/// What kind of failure it is: what the node makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LdapFailure {
    /// The server cannot be asked now: another one may be.
    Away,
    /// The settings do not fit the directory: an operator corrects them. Another server would say the same.
    Settings,
    /// There is no entry of that name.
    NoEntry,
    /// The password is wrong, or the directory lets nobody in by it at present.
    WrongPassword,
}

/// Why a step failed. It contains no password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{server}: {step}: {reason}")]
pub struct LdapError {
    /// Which server, as the settings name it.
    pub server: String,
    /// Where it failed.
    pub step: LdapStep,
    /// What kind it is.
    pub failure: LdapFailure,
    /// Why, with the server's words where it said some.
    pub reason: String,
}

impl LdapError {
    /// What an operator does about it.
    pub fn next(&self) -> &'static str {
        match (self.step, self.failure) {
            (LdapStep::Connect, _) => {
                "check host and port of ldap.url, the name server, and the firewall between this machine and the directory"
            }
            (LdapStep::Tls, _) => {
                "check that ldap.authority is the authority of the server's certificate, that the certificate names the host \
                 of ldap.url and has not expired, and that the server speaks TLS there (ldaps:// on 636, StartTLS on 389)"
            }
            (LdapStep::Bind, LdapFailure::Settings) => {
                "check ldap.bind_dn and its password; the account must not be locked or expired"
            }
            (LdapStep::Search, LdapFailure::NoEntry) => {
                "check the name, ldap.base and ldap.filter; the service account needs the right to read the entry"
            }
            (LdapStep::Search, LdapFailure::Settings) => {
                "check ldap.base and ldap.filter, which has to find one entry for a name; the service account needs the right to read it"
            }
            (LdapStep::Password, LdapFailure::WrongPassword) => {
                "check the password, and in the directory whether the account is locked, disabled or expired"
            }
            (LdapStep::Password, LdapFailure::Settings) => "check ldap.user_dn and the server's rules for simple binds",
            (LdapStep::Groups, LdapFailure::Settings) => {
                "check ldap.group_base, ldap.group_filter and ldap.group_attribute, and the right to read groups"
            }
            (LdapStep::Roles, _) => "check [ldap.roles] and `terrace role list`",
            (_, _) => {
                "look at the log of the directory server: it did not answer as LDAP demands, or not in time (ldap.timeout)"
            }
        }
    }
}
