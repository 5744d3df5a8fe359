//! Who a request is from: a token, or trust in this machine; the node's [`Guard`] decides.
//!
//! ```text
//!   Authorization: Bearer ...         --> access rules --> Guard::token --> access rules --> caller
//!   none, from this machine, trusted  --> the node's own role, unless a page in a browser may have sent it
//!   none, otherwise                   --> 401, or 403 where the access rules refuse the address
//! ```
//!
//! The access rules are asked for each request. Refusals have an entry in the audit, under the bound of failed logins.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use node::audit::AuditEntry;
use node::identity::{
    AccessDecision, AccessMethod, AccessPort, AccessRefusal, Action, Caller, Guard, LOCAL_NAME, LoginError, Object,
    Visit, Who,
};

use super::Served;

/// From where a request comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScrapeOrigin {
    pub(super) peer: SocketAddr,
    /// Whether it is over TLS.
    pub(super) is_secure: bool,
}

impl ScrapeOrigin {
    pub(super) fn visit(&self) -> Visit {
        Visit { port: AccessPort::Metrics, address: Some(self.peer.ip()), tls: self.is_secure }
    }

    pub(super) fn is_here(&self) -> bool {
        self.peer.ip().to_canonical().is_loopback()
    }
}

/// A refusal, before it is a response.
#[derive(Debug)]
pub(super) struct ScrapeRefusal {
    pub(super) status: u16,
    pub(super) text: String,
    /// Seconds after which it may be tried again.
    pub(super) retry_after: Option<u64>,
}

impl ScrapeRefusal {
    pub(super) fn new(status: u16, text: impl Into<String>) -> ScrapeRefusal {
        ScrapeRefusal { status, text: text.into(), retry_after: None }
    }
}

/// Whether anybody may come in from there: asked for each request, before it says who it is. Errors: the refusal, which is recorded.
pub(super) async fn admit(served: &Served, from: ScrapeOrigin) -> Result<(), ScrapeRefusal> {
    match served.guard.admit(from.visit(), Who::Unnamed) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(turned_away(served, &refusal).await),
    }
}

/// Who may read the figures. Errors: the refusal.
pub(super) async fn reader(
    served: &Served,
    headers: &HeaderMap,
    from: ScrapeOrigin,
    trusts: bool,
) -> Result<Caller, ScrapeRefusal> {
    let given = headers.get(AUTHORIZATION).map(|header| header.to_str().unwrap_or("?"));
    let caller = match given {
        Some(given) => by_token(served, given, from).await?,
        None => without_token(served, headers, from, trusts)?,
    };
    // Its role's limit of connections counts, for as long as this request takes.
    let _connected = served.guard.connect(&caller).map_err(|error| login_refusal(&error))?;
    match served.guard.may(&caller, Action::NodeMetrics, Object::Node) {
        Ok(_) => Ok(caller),
        Err(denied) => Err(ScrapeRefusal::new(403, denied.to_string())),
    }
}

async fn by_token(served: &Served, given: &str, from: ScrapeOrigin) -> Result<Caller, ScrapeRefusal> {
    let (scheme, token) = given.trim().split_once(' ').unwrap_or((given, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(ScrapeRefusal::new(401, "only tokens are known here: Authorization: Bearer TOKEN"));
    }
    let address = from.peer.ip();
    let caller = match served.guard.token(token.trim(), Some(address)) {
        Ok(caller) => caller,
        Err(error) => {
            failed(served, &served.guard, address, &error).await;
            return Err(login_refusal(&error));
        }
    };
    match served.guard.admit_caller(from.visit(), &caller, AccessMethod::Token) {
        Ok(()) => Ok(caller),
        Err(refusal) => Err(turned_away(served, &refusal).await),
    }
}

fn without_token(
    served: &Served,
    headers: &HeaderMap,
    from: ScrapeOrigin,
    trusts: bool,
) -> Result<Caller, ScrapeRefusal> {
    let is_trusted = match served.guard.decide_role(from.visit(), LOCAL_NAME) {
        AccessDecision::Comes(AccessMethod::Allow) => trusts,
        AccessDecision::Comes(AccessMethod::Trust) => true,
        // Another role may come in from there, and has to say that it is one.
        AccessDecision::Comes(_) | AccessDecision::Rejected(_) | AccessDecision::NoRule => false,
    };
    if !is_trusted || !from.is_here() {
        return Err(ScrapeRefusal::new(401, "a token is needed: Authorization: Bearer TOKEN"));
    }
    if is_of_page(headers) {
        let text = "a request without a token must ask for localhost or an address, and not be of a page in a browser";
        return Err(ScrapeRefusal::new(403, text));
    }
    Ok(Caller::node())
}

/// The answer to somebody whom the access rules refuse, which is recorded.
async fn turned_away(served: &Served, refusal: &AccessRefusal) -> ScrapeRefusal {
    if let Some(left_out) = refusal.recorded {
        let user = refusal.user.as_deref().unwrap_or_default();
        record(served, AuditEntry::failed_login("metrics", user, refusal.host(), refusal.to_string(), left_out)).await;
    }
    ScrapeRefusal::new(403, refusal.to_string())
}

/// Records that somebody did not prove who it is.
async fn failed(served: &Served, guard: &Arc<Guard>, from: IpAddr, error: &LoginError) {
    let LoginError::Refused(why) = error else { return };
    let Some(left_out) = guard.failure_to_record() else { return };
    let entry = AuditEntry::failed_login("metrics", "(token)", from.to_string(), format!("{why:?}"), left_out);
    record(served, entry).await;
}

async fn record(served: &Served, entry: AuditEntry) {
    // It is refused with an entry and without.
    if let Err(error) = served.audit.write(entry).await {
        tracing::warn!(%error, "a failed login is not in the audit");
    }
}

/// What a client is told of a login that failed: never why, but when to try again.
fn login_refusal(error: &LoginError) -> ScrapeRefusal {
    let retry =
        |status, seconds| ScrapeRefusal { retry_after: Some(seconds), ..ScrapeRefusal::new(status, error.to_string()) };
    match error {
        LoginError::Wait(time) => retry(429, time.as_secs().saturating_add(1)),
        LoginError::TooMany => retry(429, 1),
        LoginError::Memory | LoginError::Unchecked => retry(503, 1),
        LoginError::Refused(_) | LoginError::Scram(_) => ScrapeRefusal::new(401, "the token is refused"),
    }
}

/// Whether a page in a browser may have sent the request. The name of a page can be made to mean this machine; an address and
/// `localhost` cannot be the name of a page.
fn is_of_page(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_here = host.is_empty()
        || host.parse::<SocketAddr>().is_ok()
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || host.rsplit_once(':').map_or(host, |(name, _)| name).eq_ignore_ascii_case("localhost");
    headers.contains_key(ORIGIN) || headers.contains_key(HeaderName::from_static("sec-fetch-site")) || !is_here
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn pages_are_told_from_programs() {
        for (host, other, of_page) in [
            ("localhost:9464", None, false),
            ("127.0.0.1:9464", None, false),
            ("[::1]:9464", None, false),
            ("page.example:9464", None, true),
            ("localhost:9464", Some("origin"), true),
            ("localhost:9464", Some("sec-fetch-site"), true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().expect("a header"));
            if let Some(name) = other {
                headers.insert(HeaderName::from_static(name), "https://page.example".parse().expect("a header"));
            }
            assert_eq!(is_of_page(&headers), of_page, "{host} {other:?}");
        }
    }
}
