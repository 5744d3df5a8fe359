//! The guard's part of [`super::access`]: it has the rules in force, knows members, logs refusals and says which of them
//! the audit gets.
//!
//! Invariant: refusals have a line in the log and an entry in the audit under the bound of failed logins, so who knocks
//! without end fills neither.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use super::access::{self, AccessDecision, AccessMethod, AccessPort, AccessRefusal, AccessRules, Knock, Who};
use super::caller::Caller;
use super::guard::Guard;
use super::token::shown_name;

/// A connection that wants to come in, before or after it has said who it is.
#[derive(Debug, Clone, Copy)]
pub struct Visit {
    /// Where.
    pub port: AccessPort,
    /// From where; `None`: over a unix socket.
    pub address: Option<IpAddr>,
    /// Whether it is over TLS.
    pub tls: bool,
}

impl Guard {
    /// Puts rules in force. Who is inside stays: a port asks for each connection, search for each request.
    pub fn set_access(&self, rules: AccessRules) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// The rules in force.
    pub fn access(&self) -> Arc<AccessRules> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the rules say of somebody who has not said who it is, or of a device; nothing is logged.
    pub fn decide(&self, visit: Visit, who: Who<'_>) -> AccessDecision {
        let Visit { port, address, tls } = visit;
        access::apply(&self.access(), &Knock { port, address, who, tls })
    }

    /// What the rules say of a role, or of a name that no role has; nothing is logged.
    pub fn decide_role(&self, visit: Visit, user: &str) -> AccessDecision {
        if self.access().is_empty() {
            return AccessDecision::Comes(AccessMethod::Allow);
        }
        let view = self.view();
        let id = |name: &str| view.directory().named(name).ok();
        let own = id(user);
        let is_member = |group: &str| own.zip(id(group)).is_some_and(|(own, group)| view.belongs_to(own, group));
        self.decide(visit, Who::Role(user, &is_member))
    }

    /// Lets in who has not said who it is, as far as saying so, or a device. Returns what is demanded.
    ///
    /// Errors: the refusal, which was logged.
    pub fn admit(&self, visit: Visit, who: Who<'_>) -> Result<AccessMethod, AccessRefusal> {
        match self.decide(visit, who) {
            AccessDecision::Comes(method) => Ok(method),
            AccessDecision::Rejected(rule) => Err(self.turned_away(visit, None, Some(rule))),
            AccessDecision::NoRule => Err(self.turned_away(visit, None, None)),
        }
    }

    /// Lets in who says that it is `user`. Returns what it has to prove that by.
    ///
    /// Errors: the refusal, which was logged.
    pub fn admit_role(&self, visit: Visit, user: &str) -> Result<AccessMethod, AccessRefusal> {
        match self.decide_role(visit, user) {
            AccessDecision::Comes(method) => Ok(method),
            AccessDecision::Rejected(rule) => Err(self.turned_away(visit, Some(user), Some(rule))),
            AccessDecision::NoRule => Err(self.turned_away(visit, Some(user), None)),
        }
    }

    /// Lets in who says that it is `user` and proves it by `method`.
    ///
    /// Errors: the refusal, which was logged, also where the rule demands another proof.
    pub fn admit_by(&self, visit: Visit, user: &str, method: AccessMethod) -> Result<(), AccessRefusal> {
        match self.admit_role(visit, user)?.takes(method) {
            true => Ok(()),
            false => Err(self.turned_away(visit, Some(user), None)),
        }
    }

    /// The same for a caller who has proven who it is.
    ///
    /// Errors: those of [`admit_by`](Guard::admit_by).
    pub fn admit_caller(&self, visit: Visit, caller: &Caller, method: AccessMethod) -> Result<(), AccessRefusal> {
        let view = self.view();
        self.admit_by(visit, view.name(caller.session()).unwrap_or_default(), method)
    }

    fn turned_away(&self, visit: Visit, user: Option<&str>, rule: Option<usize>) -> AccessRefusal {
        let Visit { port, address, tls } = visit;
        let recorded = self.failure_to_record();
        let refusal = AccessRefusal { rule, user: user.map(str::to_owned), address, tls, recorded };
        let user = user.map(shown_name);
        if let Some(left_out) = recorded {
            let (port, user, from) = (port.name(), user.unwrap_or("-"), refusal.host());
            let rule = rule.map_or_else(|| "none matches".to_owned(), |rule| rule.to_string());
            tracing::warn!(port, user, from, tls, rule, left_out, "the access rules refused a connection");
        }
        refusal
    }
}
