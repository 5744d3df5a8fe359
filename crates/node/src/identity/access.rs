//! [`AccessRules`]: who may come in from where, for every port, as `pg_hba.conf` says it for PostgreSQL.
//!
//! ```text
//!   connection: port, address, who it says it is, TLS or not
//!        |
//!   rule 1, rule 2, ..    the first that matches decides: how it has to prove who it is, or that it may not come
//!        |
//!   no rule matches       it may not come
//! ```
//!
//! Pure: [`apply`] decides from its parameters alone. A node without rules leaves everything to the settings of its
//! ports. Rules narrow what these allow; the one thing that they add is `trust`, for this machine only.
//!
//! Who a connection is may show late (a token, a certificate). Until then [`Who::Unnamed`] asks whether anybody at all
//! might come in from there: a rule that names roles counts, unless it rejects them.
//!
//! Not here: logins, the log and the audit ([`super::Guard`]), and what somebody who came in may do
//! ([`super::RightsView`]).

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;

use super::role::{LOCAL_NAME, check_name};
use super::token::shown_name;
use crate::peers::{Network, NetworkError};

/// Most rules: each is looked at for each connection.
pub const RULES_MAX: usize = 1_000;

/// The ports that a rule is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessPort {
    /// All of them.
    #[default]
    All,
    /// PostgreSQL's protocol.
    Sql,
    /// HTTP of search.
    Search,
    /// The console.
    Console,
    /// NBD.
    Volumes,
    /// Services of messages over MLLP.
    Mllp,
    /// Metrics and health over HTTP.
    Metrics,
}

impl AccessPort {
    /// Its name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            AccessPort::All => "all",
            AccessPort::Sql => "sql",
            AccessPort::Search => "search",
            AccessPort::Console => "console",
            AccessPort::Volumes => "volumes",
            AccessPort::Mllp => "mllp",
            AccessPort::Metrics => "metrics",
        }
    }

    /// What a rule for it may demand.
    fn methods(self) -> &'static [AccessMethod] {
        use AccessMethod::{Allow, Certificate, Oidc, Password, Reject, Scram, Token, Trust};
        match self {
            AccessPort::All | AccessPort::Mllp => &[Allow, Reject],
            AccessPort::Sql => &[Allow, Reject, Password, Scram, Certificate, Trust],
            AccessPort::Search => &[Allow, Reject, Password, Token, Certificate, Trust],
            AccessPort::Console => &[Allow, Reject, Password, Oidc, Token],
            AccessPort::Volumes => &[Allow, Reject, Certificate],
            AccessPort::Metrics => &[Allow, Reject, Token, Trust],
        }
    }
}

/// What a connection has to do that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessMethod {
    /// What the settings of the port demand.
    Allow,
    /// It is refused.
    Reject,
    /// A password; over SQL by SCRAM, or, with a directory, as it is.
    Password,
    /// A password by SCRAM, also where a directory checks other passwords.
    Scram,
    /// A login at the provider (OIDC).
    Oidc,
    /// A token.
    Token,
    /// A client certificate of a role.
    Certificate,
    /// Nothing: it is from this machine.
    Trust,
}

impl AccessMethod {
    /// Its name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            AccessMethod::Allow => "allow",
            AccessMethod::Reject => "reject",
            AccessMethod::Password => "password",
            AccessMethod::Scram => "scram",
            AccessMethod::Oidc => "oidc",
            AccessMethod::Token => "token",
            AccessMethod::Certificate => "certificate",
            AccessMethod::Trust => "trust",
        }
    }

    /// Whether a connection that proves itself by `method` does what is demanded: more than nothing is never too much.
    pub fn takes(self, method: AccessMethod) -> bool {
        matches!(self, AccessMethod::Allow | AccessMethod::Trust) || self == method
    }
}

/// Whether a rule is for connections without TLS too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessTls {
    /// With and without.
    #[default]
    Any,
    /// With TLS only.
    Required,
}

/// From where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AccessAddress {
    /// From everywhere.
    All,
    /// From this machine: over a unix socket, or from a loopback address.
    Local,
    /// From an address or a network.
    Network(Network),
}

impl AccessAddress {
    /// Whether an address is in it; `None`: a unix socket. An IPv4 address over an IPv6 socket counts as IPv4.
    fn contains(self, address: Option<IpAddr>) -> bool {
        match (self, address) {
            (AccessAddress::All, _) => true,
            (AccessAddress::Local, None) => true,
            (AccessAddress::Local, Some(address)) => address.to_canonical().is_loopback(),
            (AccessAddress::Network(network), Some(address)) => network.contains(address),
            (AccessAddress::Network(_), None) => false,
        }
    }

    /// Whether all of it is this machine.
    fn is_local(self) -> bool {
        match self {
            AccessAddress::All => false,
            AccessAddress::Local => true,
            AccessAddress::Network(network) => network.is_loopback(),
        }
    }
}

impl TryFrom<String> for AccessAddress {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<AccessAddress, NetworkError> {
        match text.as_str() {
            "all" => Ok(AccessAddress::All),
            "local" => Ok(AccessAddress::Local),
            text => text.parse().map(AccessAddress::Network),
        }
    }
}

/// A rule: `[[access]]` of the settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// For which port. Default: all.
    #[serde(default)]
    pub port: AccessPort,
    /// For which roles: names, or `+NAME` for the members of a role. Default: all, and those who have none.
    #[serde(default)]
    pub roles: Vec<String>,
    /// From where.
    pub address: AccessAddress,
    /// Whether only with TLS. Default: with and without.
    #[serde(default)]
    pub tls: AccessTls,
    /// What is demanded.
    pub method: AccessMethod,
}

/// A rule that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("access rule {number}: {problem}")]
pub struct AccessRuleError {
    /// Which one, from 1.
    pub number: usize,
    /// The fault in it.
    pub problem: String,
}

/// The rules of a node, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRules(Vec<AccessRule>);

impl AccessRules {
    /// Rules that can work.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn new(rules: Vec<AccessRule>) -> Result<AccessRules, AccessRuleError> {
        for (at, rule) in rules.iter().enumerate() {
            let number = at + 1;
            let problem = if at == RULES_MAX { Some(format!("there are more than {RULES_MAX}")) } else { fault(rule) };
            if let Some(problem) = problem {
                return Err(AccessRuleError { number, problem });
            }
        }
        Ok(AccessRules(rules))
    }

    /// Whether there are none: then the settings of the ports decide alone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them has this method.
    pub fn has(&self, method: AccessMethod) -> bool {
        self.0.iter().any(|rule| rule.method == method)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether anybody at all might come in from there: what a port asks before there are roles to ask about.
    pub fn admit_anybody(&self, port: AccessPort, address: Option<IpAddr>, tls: bool) -> bool {
        matches!(apply(self, &Knock { port, address, who: Who::Unnamed, tls }), AccessDecision::Comes(_))
    }
}

/// Why a rule cannot work.
fn fault(rule: &AccessRule) -> Option<String> {
    let AccessRule { port, roles, address, method, .. } = rule;
    if !port.methods().contains(method) {
        let known: Vec<_> = port.methods().iter().map(|method| method.name()).collect();
        let (port, method, known) = (port.name(), method.name(), known.join(", "));
        return Some(format!("port `{port}` has no method `{method}`: it has {known}"));
    }
    if *method == AccessMethod::Trust && !address.is_local() {
        return Some("`trust` is for this machine only: set `address = \"local\"`".to_owned());
    }
    if *port == AccessPort::Mllp && !roles.is_empty() {
        return Some("senders over MLLP have no role: leave `roles` out".to_owned());
    }
    let is_name = |name: &str| name == LOCAL_NAME || check_name(name).is_ok();
    let wrong = roles.iter().find(|role| !is_name(role.strip_prefix('+').unwrap_or(role)));
    wrong.map(|role| format!("`{role}` is no name of a role"))
}

/// Who a connection says it is.
#[derive(Clone, Copy)]
pub enum Who<'a> {
    /// A role of this name, proven or not, and whether it is a member of another one.
    Role(&'a str, &'a dyn Fn(&str) -> bool),
    /// It has not said yet.
    Unnamed,
    /// A device, which has no role.
    Device,
}

impl fmt::Debug for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Role(name, _) => write!(f, "Role({name})"),
            Who::Unnamed => f.write_str("Unnamed"),
            Who::Device => f.write_str("Device"),
        }
    }
}

/// A connection that wants to come in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Knock<'a> {
    /// Where.
    pub(super) port: AccessPort,
    /// From where; `None`: over a unix socket.
    pub(super) address: Option<IpAddr>,
    /// Who it is.
    pub(super) who: Who<'a>,
    /// Whether it is over TLS.
    pub(super) tls: bool,
}

/// What the rules say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    /// It may come, and has to do this; [`AccessMethod::Allow`] where there are no rules.
    Comes(AccessMethod),
    /// A rule rejects it, by its number from 1.
    Rejected(usize),
    /// No rule matches.
    NoRule,
}

/// Decides about a connection: the first rule that matches it.
pub(super) fn apply(rules: &AccessRules, knock: &Knock<'_>) -> AccessDecision {
    if rules.is_empty() {
        return AccessDecision::Comes(AccessMethod::Allow);
    }
    match rules.0.iter().position(|rule| matches(rule, knock)) {
        None => AccessDecision::NoRule,
        Some(at) => match rules.0[at].method {
            AccessMethod::Reject => AccessDecision::Rejected(at + 1),
            method => AccessDecision::Comes(method),
        },
    }
}

fn matches(rule: &AccessRule, knock: &Knock<'_>) -> bool {
    let is_of_port = rule.port == AccessPort::All || rule.port == knock.port;
    let is_of_role = match knock.who {
        _ if rule.roles.is_empty() => true,
        Who::Role(name, is_member) => rule.roles.iter().any(|role| match role.strip_prefix('+') {
            Some(group) => group == name || is_member(group),
            None => role == name,
        }),
        // It may turn out to be one of them.
        Who::Unnamed => rule.method != AccessMethod::Reject,
        Who::Device => false,
    };
    let is_secure = knock.tls || rule.tls == AccessTls::Any;
    is_of_port && is_of_role && is_secure && rule.address.contains(knock.address)
}

/// Why a connection may not come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRefusal {
    /// The rule, from 1; `None`: no rule matches, or what it proves itself by is not what the rule demands.
    pub rule: Option<usize>,
    /// Who it said it is.
    pub user: Option<String>,
    /// From where; `None`: over a unix socket.
    pub address: Option<IpAddr>,
    /// Whether it is over TLS.
    pub tls: bool,
    /// If it has an entry in the audit: how many refusals and failed logins before it had none.
    pub recorded: Option<u64>,
}

impl AccessRefusal {
    /// The refusal as PostgreSQL words it; `more` stands behind the user, such as `, database "x"`.
    pub fn worded(&self, more: &str) -> String {
        let what = match self.rule {
            Some(_) => "an access rule rejects the connection for",
            None => "no access rule for",
        };
        let user = self.user.as_deref().map(|user| format!(", user \"{}\"", shown_name(user))).unwrap_or_default();
        let tls = if self.tls { "TLS on" } else { "TLS off" };
        format!("{what} host \"{}\"{user}{more}, {tls}", self.host())
    }

    /// From where, in words.
    pub fn host(&self) -> String {
        self.address.map_or_else(|| "[local]".to_owned(), |address| address.to_canonical().to_string())
    }
}

impl fmt::Display for AccessRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.worded(""))
    }
}

impl std::error::Error for AccessRefusal {}

#[cfg(test)]
mod tests {
    use AccessDecision::{Comes, NoRule, Rejected};
    use AccessMethod::{Allow, Certificate, Password, Token, Trust};
    use AccessPort::{Mllp, Search, Sql, Volumes};

    use super::*;

    fn rule((port, roles, address, tls, method): (AccessPort, &str, &str, AccessTls, AccessMethod)) -> AccessRule {
        let roles = roles.split_whitespace().map(str::to_owned).collect();
        let address = AccessAddress::try_from(address.to_owned()).expect("an address");
        AccessRule { port, roles, address, tls, method }
    }

    type Parts = (AccessPort, &'static str, &'static str, AccessTls, AccessMethod);

    fn rules(rules: &[Parts]) -> AccessRules {
        AccessRules::new(rules.iter().copied().map(rule).collect()).expect("they can work")
    }

    /// Decides about a user; `?`: not named yet, `-`: a device. `ann` is in the group `ward`.
    fn decide(rules: &AccessRules, port: AccessPort, user: &str, address: &str, tls: bool) -> AccessDecision {
        let is_member = |group: &str| user == "ann" && group == "ward";
        let who = match user {
            "?" => Who::Unnamed,
            "-" => Who::Device,
            name => Who::Role(name, &is_member),
        };
        let address = (address != "unix").then(|| address.parse().expect("an address"));
        apply(rules, &Knock { port, address, who, tls })
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_none_is_a_refusal() {
        let (any, required) = (AccessTls::Any, AccessTls::Required);
        let rules = rules(&[
            (AccessPort::All, "eve", "all", any, AccessMethod::Reject),
            (Sql, "", "local", any, Trust),
            (Sql, "ann +ops", "10.0.0.0/8", required, Password),
            (Sql, "+ward", "fd00::/8", any, Allow),
            (Search, "robot", "10.0.0.0/8", required, Token),
            (Search, "", "10.1.0.0/16", any, AccessMethod::Reject),
            (Search, "", "10.0.0.0/8", required, Password),
            (Volumes, "", "10.0.0.7", any, Certificate),
            (Volumes, "", "local", any, Allow),
            (Mllp, "", "10.2.0.0/16", any, Allow),
        ]);
        let table: &[(AccessPort, &str, &str, bool, AccessDecision)] = &[
            (Sql, "ann", "127.0.0.1", false, Comes(Trust)),
            (Sql, "ann", "::1", false, Comes(Trust)),
            (Sql, "ann", "::ffff:127.0.0.1", false, Comes(Trust)),
            (Sql, "eve", "127.0.0.1", false, Rejected(1)),
            (Sql, "ann", "10.0.0.1", true, Comes(Password)),
            (Sql, "ann", "::ffff:10.0.0.1", true, Comes(Password)),
            (Sql, "ann", "10.0.0.1", false, NoRule),
            (Sql, "ann", "11.0.0.1", true, NoRule),
            (Sql, "ops", "10.0.0.1", true, Comes(Password)),
            (Sql, "bob", "10.0.0.1", true, NoRule),
            (Sql, "ward", "fd00::1", false, Comes(Allow)),
            (Sql, "ann", "fd00::1", false, Comes(Allow)),
            (Sql, "bob", "fd00::1", false, NoRule),
            (Search, "robot", "10.1.0.1", true, Comes(Token)),
            (Search, "ann", "10.1.0.1", true, Rejected(6)),
            (Search, "ann", "10.2.0.1", true, Comes(Password)),
            (Search, "eve", "10.2.0.1", true, Rejected(1)),
            // Who has not said who it is may turn out to be the robot, and is not eve yet.
            (Search, "?", "10.1.0.1", true, Comes(Token)),
            (Search, "?", "10.1.0.1", false, Rejected(6)),
            (Search, "?", "192.0.2.1", true, NoRule),
            (Volumes, "ann", "10.0.0.7", true, Comes(Certificate)),
            (Volumes, "ann", "10.0.0.8", true, NoRule),
            (Volumes, "ann", "unix", false, Comes(Allow)),
            (Volumes, "eve", "unix", false, Rejected(1)),
            (Mllp, "-", "10.2.3.4", false, Comes(Allow)),
            (Mllp, "-", "10.3.3.4", false, NoRule),
        ];
        for (port, user, address, tls, decision) in table {
            assert_eq!(decide(&rules, *port, user, address, *tls), *decision, "{port:?} {user} {address} {tls}");
        }
    }

    #[test]
    fn without_rules_the_settings_of_the_ports_decide() {
        for port in [Sql, Search, Volumes, Mllp] {
            for (user, address) in [("ann", "192.0.2.1"), ("?", "::1"), ("-", "unix")] {
                assert_eq!(decide(&AccessRules::default(), port, user, address, false), Comes(Allow));
            }
        }
    }

    #[test]
    fn rules_that_cannot_work_are_refused_by_their_number() {
        let any = AccessTls::Any;
        let right: Parts = (Sql, "", "local", any, Trust);
        for (wrong, why) in [
            ((Sql, "", "all", any, Trust), "this machine only"),
            ((Sql, "", "10.0.0.0/8", any, Trust), "this machine only"),
            ((Sql, "", "0.0.0.0/0", any, Trust), "this machine only"),
            (
                (Sql, "", "all", any, Token),
                "port `sql` has no method `token`: it has allow, reject, password, scram, certificate, trust",
            ),
            ((AccessPort::All, "", "all", any, Password), "port `all` has no method `password`"),
            ((Mllp, "ann", "all", any, Allow), "have no role"),
            ((Sql, "+", "all", any, Allow), "`+` is no name of a role"),
        ] {
            let told = AccessRules::new(vec![rule(right), rule(wrong)]).expect_err("it cannot work").to_string();
            assert!(told.starts_with("access rule 2: ") && told.contains(why), "{told}");
        }
        for local in ["local", "127.0.0.1", "127.0.0.0/8", "::1"] {
            assert!(AccessRules::new(vec![rule((Sql, "", local, any, Trust))]).is_ok(), "{local}");
        }
        let many = vec![rule(right); RULES_MAX + 1];
        assert!(AccessRules::new(many.clone()).is_err() && AccessRules::new(many[1..].to_vec()).is_ok());
    }

    #[test]
    fn a_refusal_says_what_was_looked_for_and_not_which_rule() {
        let mut refusal = AccessRefusal {
            rule: None,
            user: Some("ann".to_owned()),
            address: Some("::ffff:10.0.0.1".parse().expect("an address")),
            tls: false,
            recorded: None,
        };
        let more = ", database \"terrace\"";
        assert_eq!(
            refusal.worded(more),
            "no access rule for host \"10.0.0.1\", user \"ann\", database \"terrace\", TLS off"
        );
        (refusal.rule, refusal.tls, refusal.address, refusal.user) = (Some(7), true, None, None);
        assert_eq!(refusal.to_string(), "an access rule rejects the connection for host \"[local]\", TLS on");
    }
}
