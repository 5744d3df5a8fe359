//! Who a request is from: Basic authentication, a token, or trust in this machine; the node's [`Guard`] decides.
//!
//! ```text
//!   Authorization: Basic ...  --> known? --yes--> caller
//!                                   |no
//!                                   +--> a turn, Guard::log_in (a thread, or the directory) --> known for a minute --> caller
//!                                                                         --> 401, or 429 with the time to wait
//!   ApiKey ..., Bearer ...    --> Guard::token  --> caller
//!   none, where it is trusted --> Guard::trusted, or the node's own role
//!   none, with a certificate  --> Guard::certificate, where an access rule demands one
//! ```
//!
//! The access rules are asked before a password is checked, and for each request: who may come in from where
//! (`node::identity::AccessRules`).
//!
//! Checking a password takes thousands of rounds of hashing, on purpose. A right one is therefore remembered for a while after the
//! check, as a keyed hash under a key that exists only in this process, and only as long as no right and no role changes. Wrong
//! ones are not remembered: the guard makes who guesses wait, and they take turns here, few at a time.
//!
//! Trust in this machine is no trust in the pages that a browser on it shows, and a browser sends a password that it knows with the
//! requests of any page: a request of a page of another site is refused, whoever it is from, and one without a password also if it has
//! an `Origin` at all, or asks for a host by another name than this machine's.
//!
//! A connection counts for the role of its last request, against the role's limit of connections.

use std::collections::HashMap;
use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use node::Audit;
use node::audit::AuditEntry;
use node::identity::{
    AccessDecision, AccessMethod, AccessPort, AccessRefusal, Caller, Connected, Guard, LOCAL_NAME, LoginError, RoleId,
    Visit, Who,
};
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::time::{Instant, sleep};

use super::lanes::{RequestLane, TurnAsker, TurnOwner};
use super::options::{HttpError, HttpOptions, LaneBounds};
use crate::error::SearchError;
use crate::rest::message::RestResponse;

/// How long a right password is remembered after it was checked.
const KNOWN: Duration = Duration::from_secs(60);

/// How many right passwords are remembered.
const KNOWN_MAX: usize = 1024;

/// Passwords that are checked at a time.
const CHECKS: LaneBounds = LaneBounds { running: 2, waiting: 64 };

/// Passwords that a directory checks at a time. They have turns of their own: a directory that is slow or away must not hold up
/// users whose passwords are here.
const DIRECTORY_CHECKS: LaneBounds = LaneBounds { running: 16, waiting: 64 };

/// A wait that a login goes through here: other ports check passwords at the moment. Longer ones are the client's.
const SHORT_WAIT: Duration = Duration::from_millis(100);

/// How often it does.
const SHORT_WAITS: u32 = 50;

/// What a right password is remembered under.
type KnownKey = [u8; 32];

/// What is remembered of a right password.
struct KnownLogin {
    caller: Caller,
    /// The guard's version before the check.
    version: u64,
    checked: Instant,
}

/// From where requests come.
#[derive(Clone, Debug)]
pub(super) struct HttpOrigin {
    pub(super) peer: SocketAddr,
    /// The names in the client's certificate, none without one. `None`: there is no TLS.
    pub(super) tls: Option<Arc<[String]>>,
}

impl HttpOrigin {
    fn visit(&self) -> Visit {
        Visit { port: AccessPort::Search, address: Some(self.peer.ip()), tls: self.tls.is_some() }
    }
}

/// Decides who requests are from.
pub(super) struct HttpLogins {
    guard: Option<Arc<Guard>>,
    audit: Option<Arc<Audit>>,
    trust: bool,
    /// The role of those who are trusted; none for the node's own.
    trusted: Option<String>,
    key: hmac::Key,
    known: Mutex<HashMap<KnownKey, KnownLogin>>,
    checks: Arc<RequestLane>,
    directory_checks: Arc<RequestLane>,
}

impl HttpLogins {
    pub(super) fn new(options: &HttpOptions) -> Result<HttpLogins, HttpError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| HttpError::Randomness)?;
        Ok(HttpLogins {
            guard: options.guard.clone(),
            audit: options.audit.clone(),
            trust: options.trust || options.guard.is_none(),
            trusted: options.trusted.clone(),
            key,
            known: Mutex::default(),
            checks: RequestLane::new(CHECKS),
            directory_checks: RequestLane::new(DIRECTORY_CHECKS),
        })
    }

    /// Who sends a request. Errors: the response with the refusal.
    pub(super) async fn caller(
        &self,
        headers: &HeaderMap,
        from: &HttpOrigin,
        path: &str,
    ) -> Result<Caller, RestResponse> {
        let Some(guard) = &self.guard else { return self.trusted(headers, from.peer, path) };
        let given = headers.get(AUTHORIZATION).and_then(|header| header.to_str().ok());
        let Some(given) = given else { return self.without_header(guard, headers, from, path).await };
        let (scheme, proof) = given.trim().split_once(' ').unwrap_or((given, ""));
        if scheme.eq_ignore_ascii_case("apikey") || scheme.eq_ignore_ascii_case("bearer") {
            return self.by_token(guard, proof.trim(), from, path).await;
        }
        let Some((user, password)) = basic(given) else {
            return Err(unauthorized(&format!(
                "unable to read the credentials for REST request [{path}]: Basic, ApiKey and Bearer are known"
            )));
        };
        if let Err(refusal) = guard.admit_by(from.visit(), &user, AccessMethod::Password) {
            return Err(self.turned_away(&refusal).await);
        }
        self.by_password(guard, (user, password), from.peer.ip(), path).await
    }

    /// A request that only its connection can say something about: a certificate, or trust in this machine.
    async fn without_header(
        &self,
        guard: &Arc<Guard>,
        headers: &HeaderMap,
        from: &HttpOrigin,
        path: &str,
    ) -> Result<Caller, RestResponse> {
        match by_certificate(guard, from) {
            Ok(Some(caller)) => return Ok(caller),
            Ok(None) => {}
            Err((name, error)) => {
                self.failed((name, "certificate"), from.peer.ip(), &error).await;
                return Err(refusal(&error, || "with the provided certificate".to_owned(), path));
            }
        }
        let role = self.trusted.as_deref().unwrap_or(LOCAL_NAME);
        match guard.decide_role(from.visit(), role) {
            AccessDecision::Comes(AccessMethod::Allow) => return self.trusted(headers, from.peer, path),
            AccessDecision::Comes(AccessMethod::Trust) => return self.without_proof(headers, from.peer, path),
            _ => {}
        }
        // It may say later who it is, if anybody may come from there.
        match guard.admit(from.visit(), Who::Unnamed) {
            Ok(_) => Err(missing(path)),
            Err(refusal) => Err(self.turned_away(&refusal).await),
        }
    }

    async fn by_token(
        &self,
        guard: &Arc<Guard>,
        token: &str,
        from: &HttpOrigin,
        path: &str,
    ) -> Result<Caller, RestResponse> {
        if let Err(refusal) = guard.admit(from.visit(), Who::Unnamed) {
            return Err(self.turned_away(&refusal).await);
        }
        let address = from.peer.ip();
        let caller = match guard.token(token, Some(address)) {
            Ok(caller) => caller,
            Err(error) => {
                self.failed(("(token)", "token"), address, &error).await;
                return Err(refusal(&error, || "with the provided token".to_owned(), path));
            }
        };
        match guard.admit_caller(from.visit(), &caller, AccessMethod::Token) {
            Ok(()) => Ok(caller),
            Err(refusal) => Err(self.turned_away(&refusal).await),
        }
    }

    /// The answer to somebody whom the access rules refuse, which is recorded.
    async fn turned_away(&self, refusal: &AccessRefusal) -> RestResponse {
        if let Some(left_out) = refusal.recorded {
            let user = refusal.user.as_deref().unwrap_or_default();
            self.record(AuditEntry::failed_login("search", user, refusal.host(), refusal.to_string(), left_out)).await;
        }
        SearchError::new(403, "security_exception", refusal.to_string()).into()
    }

    fn trusted(&self, headers: &HeaderMap, peer: SocketAddr, path: &str) -> Result<Caller, RestResponse> {
        if self.trust { self.without_proof(headers, peer, path) } else { Err(missing(path)) }
    }

    /// Somebody on this machine, who proves nothing.
    fn without_proof(&self, headers: &HeaderMap, peer: SocketAddr, path: &str) -> Result<Caller, RestResponse> {
        if !peer.ip().to_canonical().is_loopback() {
            return Err(missing(path));
        }
        if is_of_page(headers) {
            let reason = "a request without a user and a password must ask for localhost or an address, and not be of a page in \
                          a browser";
            return Err(SearchError::new(403, "security_exception", reason).into());
        }
        match self.guard.as_ref().zip(self.trusted.as_deref()) {
            None => Ok(Caller::node()),
            Some((guard, role)) => {
                let who = || format!("user [{role}]");
                guard.trusted(role, peer.ip()).map_err(|error| refusal(&error, who, path))
            }
        }
    }

    async fn by_password(
        &self,
        guard: &Arc<Guard>,
        (user, password): (String, String),
        from: IpAddr,
        path: &str,
    ) -> Result<Caller, RestResponse> {
        let key = self.key_of(&user, &password, from);
        if let Some(caller) = self.known(guard, &key) {
            return Ok(caller);
        }
        let lane = if guard.is_of_directory(&user) { &self.directory_checks } else { &self.checks };
        // Addresses take turns: one that tries many passwords does not hold up the logins of others.
        let owner = TurnOwner::Address(from.to_canonical());
        let asker = TurnAsker { role: owner, operation: "", since: std::time::Instant::now() };
        let Some(turn) = lane.turn(asker).await else {
            return Err(SearchError::busy("too many passwords are being checked").into());
        };
        let (mut waits, begun) = (0, std::time::Instant::now());
        let error = loop {
            // Another request may have had it checked meanwhile.
            if let Some(caller) = self.known(guard, &key) {
                return Ok(caller);
            }
            let version = guard.version();
            match guard.log_in(&user, &password, Some(from)).await {
                Ok(caller) => {
                    self.remember(key, KnownLogin { caller: caller.clone(), version, checked: Instant::now() });
                    return Ok(caller);
                }
                Err(LoginError::Wait(time)) if time <= SHORT_WAIT && waits < SHORT_WAITS => sleep(time).await,
                Err(error) => break error,
            }
            waits += 1;
        };
        drop(turn);
        if matches!(error, LoginError::Refused(_)) {
            guard.pause_refused(begun).await;
        }
        self.failed((&user, "password"), from, &error).await;
        Err(refusal(&error, || format!("user [{user}]"), path))
    }

    /// Records that who claimed to be `user` did not prove it by `proof`.
    async fn failed(&self, (user, proof): (&str, &str), from: IpAddr, error: &LoginError) {
        let LoginError::Refused(why) = error else { return };
        let Some(left_out) = self.guard.as_ref().and_then(|guard| guard.failure_to_record()) else { return };
        let entry = AuditEntry::failed_login("search", user, from.to_string(), format!("{why:?}"), left_out);
        self.record(entry.with("proof", proof)).await;
    }

    async fn record(&self, entry: AuditEntry) {
        let Some(audit) = &self.audit else { return };
        // It is refused with an entry and without.
        if let Err(error) = audit.write(entry).await {
            tracing::warn!(%error, "a failed login is not in the audit");
        }
    }

    /// Counts a connection for the caller of its request. Errors: the role has as many as it may.
    pub(super) fn count(&self, counted: &CountedRole, caller: &Caller, path: &str) -> Result<(), RestResponse> {
        let (Some(guard), role) = (&self.guard, caller.session()) else { return Ok(()) };
        let mut counted = counted.0.lock();
        if counted.as_ref().is_some_and(|(counts, _)| *counts == role) {
            return Ok(());
        }
        // The place of the role before is free in any case.
        *counted = None;
        let who = || format!("user [{}]", guard.view().name(role).unwrap_or("unknown"));
        let connected = guard.connect(caller).map_err(|error| refusal(&error, who, path))?;
        *counted = Some((role, connected));
        Ok(())
    }

    /// Returns when a caller may not use the node any more.
    pub(super) async fn revoked(&self, caller: &Caller) {
        let Some(guard) = &self.guard else { return pending().await };
        let mut changed = guard.changed();
        while guard.view().holds(caller).is_ok() {
            if changed.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    fn key_of(&self, user: &str, password: &str, from: IpAddr) -> KnownKey {
        let mut text = hmac::Context::with_key(&self.key);
        // The length ends the name: no name and password are those of others moved by some letters.
        text.update(&(user.len() as u64).to_le_bytes());
        text.update(user.as_bytes());
        text.update(&from.to_canonical().to_string().len().to_le_bytes());
        text.update(from.to_canonical().to_string().as_bytes());
        text.update(password.as_bytes());
        let mut key = KnownKey::default();
        key.copy_from_slice(text.sign().as_ref());
        key
    }

    fn known(&self, guard: &Guard, key: &KnownKey) -> Option<Caller> {
        let known = self.known.lock();
        let holds = |login: &&KnownLogin| login.checked.elapsed() < KNOWN && login.version == guard.version();
        known.get(key).filter(holds).map(|login| login.caller.clone())
    }

    fn remember(&self, key: KnownKey, login: KnownLogin) {
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, other| other.checked.elapsed() < KNOWN && other.version == login.version);
        }
        if known.len() >= KNOWN_MAX {
            let oldest = known.iter().min_by_key(|(_, login)| login.checked).map(|(key, _)| *key);
            oldest.map(|key| known.remove(&key));
        }
        known.insert(key, login);
    }
}

/// The role that a connection counts for, until it ends.
#[derive(Debug, Default)]
pub(super) struct CountedRole(Mutex<Option<(RoleId, Connected)>>);

/// Errors: a page in a browser sends it that is not of this service: browsers say so in `Sec-Fetch-Site` and `Origin`.
pub(super) fn refuse_other_sites(headers: &HeaderMap) -> Result<(), RestResponse> {
    let text = |name: HeaderName| headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or("?").trim());
    let host = text(HOST).next().unwrap_or_default();
    let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host));
    let mut sites = text(HeaderName::from_static("sec-fetch-site"));
    if text(ORIGIN).all(is_own) && sites.all(|site| matches!(site, "same-origin" | "none")) {
        return Ok(());
    }
    let reason = "a request of a page of another site is refused (its Origin is not this service, or its Sec-Fetch-Site is neither \
                  same-origin nor none): pages in browsers may not use this service";
    Err(SearchError::new(403, "security_exception", reason).into())
}

/// The caller of the certificate that TLS verified, where an access rule demands one of its role. Errors: the certificate's name,
/// and why it is of nobody who may come, where a rule demands one from there.
fn by_certificate<'f>(guard: &Arc<Guard>, from: &'f HttpOrigin) -> Result<Option<Caller>, (&'f str, LoginError)> {
    // Where no rule demands one, requests without another proof are no failed logins.
    if !guard.access().has(AccessMethod::Certificate) {
        return Ok(None);
    }
    let names: Vec<&str> = from.tls.as_deref().unwrap_or_default().iter().map(String::as_str).collect();
    let Some(first) = names.first() else { return Ok(None) };
    let is_demanded = guard.decide(from.visit(), Who::Unnamed) == AccessDecision::Comes(AccessMethod::Certificate);
    let caller = match guard.certificate(&names, Some(from.peer.ip())) {
        Ok(caller) => caller,
        Err(error) if is_demanded => return Err((first, error)),
        Err(_) => return Ok(None),
    };
    let view = guard.view();
    let name = view.name(caller.session()).unwrap_or_default();
    let decision = guard.decide_role(from.visit(), name);
    Ok((decision == AccessDecision::Comes(AccessMethod::Certificate)).then_some(caller))
}

fn missing(path: &str) -> RestResponse {
    unauthorized(&format!("missing authentication credentials for REST request [{path}]"))
}

/// What a client is told of a login that failed: never why, but when to try again.
fn refusal(error: &LoginError, who: impl Fn() -> String, path: &str) -> RestResponse {
    let retry = |status: u16, kind: &'static str, time: Duration| {
        let reason = format!("unable to authenticate {} for REST request [{path}]: {error}", who());
        let mut response = RestResponse::from(SearchError::new(status, kind, reason));
        response.headers.push(("Retry-After", time.as_secs().saturating_add(1).to_string()));
        response
    };
    match error {
        // Clients of Elasticsearch try again at 429; at 401 they give up, though the password may be right.
        LoginError::Wait(time) => retry(429, "es_rejected_execution_exception", *time),
        LoginError::TooMany => retry(429, "es_rejected_execution_exception", SHORT_WAIT),
        LoginError::Memory | LoginError::Unchecked => retry(503, "security_exception", SHORT_WAIT),
        LoginError::Refused(_) | LoginError::Scram(_) => {
            unauthorized(&format!("unable to authenticate {} for REST request [{path}]", who()))
        }
    }
}

/// User and password of a header.
fn basic(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.trim().split_once(' ')?;
    let decoded = BASE64.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Whether a page in a browser may have sent the request.
fn is_of_page(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // The name of a page can be made to mean this machine; an address and `localhost` cannot be the name of a page.
    let is_here = host.is_empty()
        || host.parse::<SocketAddr>().is_ok()
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || host.rsplit_once(':').map_or(host, |(name, _)| name).eq_ignore_ascii_case("localhost");
    headers.contains_key(ORIGIN) || !is_here
}

fn unauthorized(reason: &str) -> RestResponse {
    let mut response = RestResponse::from(SearchError::new(401, "security_exception", reason));
    for scheme in ["Basic realm=\"terrace\"", "Bearer realm=\"terrace\"", "ApiKey"] {
        response.headers.push(("WWW-Authenticate", scheme.to_owned()));
    }
    response
}

#[cfg(test)]
mod tests {
    use node::identity::{AttributeChange, IdentityChange};

    use super::*;

    #[test]
    fn the_header_is_read_as_rfc_7617_says() {
        let read = |header: &str| basic(header);
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read("Basic YW5uOnNlY3JldA=="), pair("ann", "secret"));
        assert_eq!(read("basic  YW5uOmE6Yg== "), pair("ann", "a:b"));
        for wrong in ["", "Basic", "Bearer YW5uOnNlY3JldA==", "Basic ***", "Basic YW5u"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pages_are_told_from_programs() {
        for (host, origin, of_page) in [
            ("localhost:9200", None, false),
            ("127.0.0.1:9200", None, false),
            ("[::1]:9200", None, false),
            ("[::1]", None, false),
            ("page.example:9200", None, true),
            ("localhost:9200", Some("https://page.example"), true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().expect("a header"));
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().expect("a header"));
            }
            assert_eq!(is_of_page(&headers), of_page, "{host} {origin:?}");
        }
    }

    /// A guard with the user `ann`, whose password is `a long secret`.
    fn guard() -> Arc<Guard> {
        crate::rights::testing::guard_with(&[("ann", "a long secret")])
    }

    #[tokio::test]
    async fn right_passwords_are_checked_again_once_a_role_changes_and_wrong_ones_each_time() {
        let guard = guard();
        let options = HttpOptions { guard: Some(Arc::clone(&guard)), ..HttpOptions::default() };
        let logins = HttpLogins::new(&options).expect("there is randomness");
        let from = HttpOrigin { peer: SocketAddr::from(([127, 0, 0, 1], 1)), tls: None };
        let log_in = async |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, format!("Basic {}", BASE64.encode(text)).parse().expect("a header"));
            logins.caller(&headers, &from, "/").await.map_err(|refused| refused.status)
        };
        let ann = guard.view().directory().named("ann").expect("there");
        for _ in 0..3 {
            assert_eq!(log_in("ann:a long secret").await.map(|caller| caller.session()), Ok(ann));
        }
        assert_eq!(logins.known.lock().len(), 1);
        assert_eq!(log_in("ann:wrong").await, Err(401));
        assert_eq!(log_in("bob:a long secret").await, Err(401));
        let changes = vec![AttributeChange::Locked(Some("she left".to_owned()))];
        let locked = IdentityChange::Set { role: "ann".to_owned(), changes };
        guard.change(&Caller::node(), &[locked]).expect("locked");
        assert_eq!(log_in("ann:a long secret").await, Err(401), "what was remembered does not count any more");
    }
}
