//! [`Visitor`]: who a request is from, by the cookie of a session or by a token.
//!
//! ```text
//!   Authorization: Bearer TOKEN   --> Guard::token        for programs; has no cookie, so no page can send it
//!   cookie                        --> SessionTable        and what proved it still holds, and the access rules let it come
//!   neither                       --> a page: to sign-in; anything else: 401
//! ```
//!
//! All of it is asked for each request: a role that is locked, a password that is changed, a rule that is loaded count at once.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use node::OpenConnection;
use node::audit::AuditEntry;
use node::identity::{AccessDecision, AccessMethod, AccessRefusal, Caller, Guard, LoginError, Proof, Who};
use tokio::sync::Notify;

use crate::respond;
use crate::secret::{self, SecretDigest};
use crate::state::{ConsolePeer, ConsoleState};

/// The name of the console in the audit and in the settings.
pub(crate) const PORT: &str = "console";

/// Paths whose requests a page makes by itself: they are no sign of a person, and keep no session.
const BY_ITSELF: &str = "/live/";

/// Told when somebody on the connection has proven who it is.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionProof {
    proven: Arc<Notify>,
    connection: Arc<OpenConnection>,
}

impl ConnectionProof {
    pub(crate) fn new(connection: &Arc<OpenConnection>) -> ConnectionProof {
        ConnectionProof { proven: Arc::default(), connection: Arc::clone(connection) }
    }

    /// Somebody has.
    fn note(&self, caller: &Caller) {
        self.connection.proven_as(caller.session());
        self.proven.notify_one();
    }

    /// Waits for that.
    pub(crate) async fn proven(&self) {
        self.proven.notified().await;
    }
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// Who.
    pub(crate) caller: Caller,
    /// The role's name.
    pub(crate) name: String,
    /// The secret of its session; none of a token.
    pub(crate) secret: Option<String>,
}

impl Visitor {
    /// The token of its forms; none where it has no session, and no forms.
    pub(crate) fn form_token(&self) -> Option<String> {
        self.secret.as_deref().map(secret::form_token)
    }
}

/// The name of the cookie: a `__Host-` one cannot be set by another host, and needs TLS.
pub(crate) fn cookie_name(state: &ConsoleState, tls: bool) -> String {
    let prefix = if tls { "__Host-" } else { "" };
    format!("{prefix}terrace-{}", state.port)
}

/// The value of a cookie, if it was sent once.
pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
    let mut found = all.flat_map(|header| header.split(';')).filter_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then(|| value.to_owned())
    });
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// What proves a role by its password or the provider, hashed: another password, or another person there, is another proof.
pub(crate) fn proof_of(guard: &Guard, caller: &Caller) -> SecretDigest {
    let view = guard.view();
    let own = view.directory().roles().get(&caller.session());
    let proofs = own.map(|role| (&role.credentials.scram, &role.credentials.hash, &role.credentials.oidc));
    secret::sha256(&serde_json::to_vec(&proofs).unwrap_or_default())
}

/// Whether a session is still one: for a stream, which has asked before.
pub(crate) fn still_holds(state: &ConsoleState, visitor: &Visitor, peer: ConsolePeer) -> bool {
    let guard = &state.options.guard;
    let is_open = visitor.secret.as_deref().is_none_or(|secret| {
        let digest = secret::digest(secret);
        let found = digest.and_then(|digest| state.sessions.lock().look(&digest, state.now_ms()));
        found.is_some_and(|found| found.proof == proof_of(guard, &visitor.caller))
    });
    // The rules may demand another proof by now.
    let method = method_of(&visitor.caller);
    let comes = match guard.decide_role(peer.visit(), &visitor.name) {
        AccessDecision::Comes(demanded) => demanded.takes(method),
        AccessDecision::Rejected(_) | AccessDecision::NoRule => false,
    };
    is_open && guard.view().holds(&visitor.caller).is_ok() && comes
}

async fn by_token(state: &ConsoleState, token: &str, peer: ConsolePeer) -> Result<Visitor, Response> {
    let guard = &state.options.guard;
    if let Err(refusal) = guard.admit(peer.visit(), Who::Unnamed) {
        return Err(turned_away(state, &refusal).await);
    }
    let address = peer.address.ip();
    let caller = match guard.token(token, Some(address)) {
        Ok(caller) => caller,
        Err(error) => {
            record_failure(state, ("(token)", "token"), peer, &error).await;
            return Err(respond::problem(401, "the token is wrong, or its role may not log in").into_response());
        }
    };
    if let Err(refusal) = guard.admit_caller(peer.visit(), &caller, AccessMethod::Token) {
        return Err(turned_away(state, &refusal).await);
    }
    let name = guard.view().name(caller.session()).unwrap_or_default().to_owned();
    Ok(Visitor { caller, name, secret: None })
}

/// What a caller proved itself by, for the audit.
pub(crate) fn proof_name(caller: &Caller) -> &'static str {
    match caller.proof() {
        Proof::Ldap(_) => "ldap",
        Proof::Oidc(_) => "oidc",
        Proof::Token(_) => "token",
        _ => "password",
    }
}

/// The same for the access rules.
fn method_of(caller: &Caller) -> AccessMethod {
    match caller.proof() {
        Proof::Oidc(_) => AccessMethod::Oidc,
        Proof::Token(_) => AccessMethod::Token,
        _ => AccessMethod::Password,
    }
}

/// Records that who claimed to be `user` did not prove it by `proof`, as far as a flood of such leaves room.
pub(crate) async fn record_failure(
    state: &ConsoleState,
    (user, proof): (&str, &str),
    peer: ConsolePeer,
    error: &LoginError,
) {
    let LoginError::Refused(why) = error else { return };
    let Some(left_out) = state.options.guard.failure_to_record() else { return };
    let address = peer.address.ip().to_string();
    let entry = AuditEntry::failed_login(PORT, user, address, format!("{why:?}"), left_out);
    record(state, entry.with("proof", proof)).await;
}

/// The answer to somebody whom the access rules refuse, which is recorded.
pub(crate) async fn turned_away(state: &ConsoleState, refusal: &AccessRefusal) -> Response {
    if let Some(left_out) = refusal.recorded {
        let user = refusal.user.as_deref().unwrap_or_default();
        record(state, AuditEntry::failed_login(PORT, user, refusal.host(), refusal.to_string(), left_out)).await;
    }
    respond::problem(403, &refusal.to_string()).into_response()
}

async fn record(state: &ConsoleState, entry: AuditEntry) {
    // It is refused with an entry and without.
    if let Err(error) = state.options.audit.write(entry).await {
        tracing::warn!(%error, "a failed login is not in the audit");
    }
}

/// Who has the session of a cookie.
async fn by_session(state: &ConsoleState, parts: &Parts, peer: ConsolePeer) -> Result<Option<Visitor>, Response> {
    let Some(secret) = cookie(&parts.headers, &cookie_name(state, peer.tls)) else { return Ok(None) };
    let Some(digest) = secret::digest(&secret) else { return Ok(None) };
    let now_ms = state.now_ms();
    let found = match parts.uri.path().starts_with(BY_ITSELF) {
        true => state.sessions.lock().look(&digest, now_ms),
        false => state.sessions.lock().find(&digest, now_ms),
    };
    let Some(signed_in) = found else { return Ok(None) };
    let guard = &state.options.guard;
    if guard.view().holds(&signed_in.caller).is_err() || proof_of(guard, &signed_in.caller) != signed_in.proof {
        state.sessions.lock().close(&digest);
        return Ok(None);
    }
    if let Err(refusal) = guard.admit_caller(peer.visit(), &signed_in.caller, method_of(&signed_in.caller)) {
        return Err(turned_away(state, &refusal).await);
    }
    let name = guard.view().name(signed_in.caller.session()).unwrap_or_default().to_owned();
    Ok(Some(Visitor { caller: signed_in.caller, name, secret: Some(secret) }))
}

impl FromRequestParts<Arc<ConsoleState>> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ConsoleState>) -> Result<Visitor, Response> {
        let Some(peer) = parts.extensions.get::<ConsolePeer>().copied() else {
            return Err(respond::problem(500, "the connection of the request is not known").into_response());
        };
        let bearer = parts.headers.get(AUTHORIZATION).map(|header| header.to_str().unwrap_or_default().to_owned());
        let found = match bearer {
            Some(given) => match given.split_once(' ') {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                    Some(by_token(state, token.trim(), peer).await?)
                }
                _ => {
                    return Err(
                        respond::problem(401, "the console knows Bearer tokens and sessions only").into_response()
                    );
                }
            },
            None => by_session(state, parts, peer).await?,
        };
        let Some(visitor) = found else {
            // Nobody may come from there: that is said before anything else.
            if let Err(refusal) = state.options.guard.admit(peer.visit(), Who::Unnamed) {
                return Err(turned_away(state, &refusal).await);
            }
            let path = parts.uri.path();
            if path.starts_with("/api/") || path.starts_with(BY_ITSELF) {
                return Err(
                    respond::problem(401, "sign in, or send a token: Authorization: Bearer TOKEN").into_response()
                );
            }
            let next = parts.uri.path_and_query().map_or("/", |path| path.as_str());
            return Err(respond::to_sign_in(if parts.method == Method::GET { next } else { "/" }));
        };
        if let Some(proof) = parts.extensions.get::<ConnectionProof>() {
            proof.note(&visitor.caller);
        }
        Ok(visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_read_if_it_is_there_once() {
        let of = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, header.parse().expect("a header"));
            cookie(&headers, "terrace-1")
        };
        assert_eq!(of("a=b; terrace-1=x; c=d").as_deref(), Some("x"));
        assert_eq!(of("terrace-1=x").as_deref(), Some("x"));
        for wrong in ["", "terrace-11=x", "terrace-1=x; terrace-1=y", "xterrace-1=x", "terrace-1"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
