//! Signing in by a provider (OpenID Connect).
//!
//! ```text
//!   GET /sign-in/oidc            from a page of ours, or typed --> a login begins; its secret in a cookie --> to the provider
//!   GET /sign-in/oidc/callback   state, code, and the cookie --> log_in_by_provider --> access rules --> `sign_in::enter`
//!   POST /sign-out               ends the session here; a page leads to the sign-out there
//! ```
//!
//! The browser comes back from another site, so its cookie is `SameSite=Lax`; without the cookie of the browser that began, a state and a
//! code are worth nothing. Where the browser goes in the end is kept on the node, and is a place within the console. Who failed is told
//! the same whatever the reason, except that it has to begin again or wait.
//!
//! A page leads to the provider by a link and not by a form: the policy of contents (`form-action`) stays as strict as it is.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::header::{RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use node::identity::oidc::{OidcError, OidcReturn};
use node::identity::{
    AccessMethod, LoginError, LoginRefusal, OidcEntered, OidcFailure, OidcRefusal, Who, log_in_by_provider,
};
use tokio::time::sleep;

use crate::form::Fields;
use crate::gate::{cookie, cookie_name, record_failure, turned_away};
use crate::origin;
use crate::respond;
use crate::sessions::ABSOLUTE_MS;
use crate::sign_in::{Entering, SHORT_WAIT, SHORT_WAITS, cookie_header, enter, fresh_page, place_within};
use crate::state::{ConsolePeer, ConsoleState};

/// Of the cookie of a login that has begun.
const BEGUN: &str = "-oidc";

/// How long it is kept: as long as the node waits.
const BEGUN_SECONDS: u64 = 600;

/// The refusal, whatever was wrong.
const WRONG: &str = "You cannot sign in this way. Whoever administers this node finds the reason in its log and audit.";

/// A login that is not one of this browser, or is too old.
const BEGIN_AGAIN: &str = "The sign-in was not finished: it took too long, was finished before, or began in another browser or at another \
                           address of this console. Please begin again.";

/// The provider cannot be asked.
const AWAY: &str = "The provider cannot be asked now. Try again in a moment, or sign in with a password of this node.";

/// A page of the sign-in that says why it was not done.
fn page_saying(state: &ConsoleState, peer: ConsolePeer, status: StatusCode, text: &str) -> Response {
    let mut response = fresh_page(state, peer, ("/", ""), Some(text));
    *response.status_mut() = status;
    response
}

/// `GET /sign-in/oidc`
pub(crate) async fn start(
    State(state): State<Arc<ConsoleState>>,
    Extension(peer): Extension<ConsolePeer>,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let guard = &state.options.guard;
    if let Err(refusal) = guard.admit(peer.visit(), Who::Unnamed) {
        return turned_away(&state, &refusal).await;
    }
    let Some(provider) = guard.provider() else {
        return respond::problem(404, "this node has no provider of logins ([oidc])").into_response();
    };
    // Another site begins no login here.
    if origin::is_of_another_site(&headers) {
        return respond::see("/sign-in");
    }
    let next = place_within(fields.get("next").unwrap_or("/"));
    match provider.begin(Some(peer.address.ip()), next).await {
        Ok(begun) => {
            let mut response = respond::see(&begun.redirect);
            let kept = cookie_header(&state, peer.tls, (BEGUN, &begun.secret), BEGUN_SECONDS);
            response.headers_mut().append(SET_COOKIE, kept);
            response
        }
        Err(OidcError::Randomness) => respond::problem(503, "the system returned no random bytes").into_response(),
        Err(_) => page_saying(&state, peer, StatusCode::SERVICE_UNAVAILABLE, AWAY),
    }
}

/// `GET /sign-in/oidc/callback`
pub(crate) async fn come_back(
    State(state): State<Arc<ConsoleState>>,
    Extension(peer): Extension<ConsolePeer>,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let guard = &state.options.guard;
    if let Err(refusal) = guard.admit(peer.visit(), Who::Unnamed) {
        return turned_away(&state, &refusal).await;
    }
    if guard.provider().is_none() {
        return respond::problem(404, "this node has no provider of logins ([oidc])").into_response();
    }
    let secret = cookie(&headers, &format!("{}{BEGUN}", cookie_name(&state, peer.tls))).unwrap_or_default();
    let came = OidcReturn {
        state: fields.text("state"),
        secret: &secret,
        code: fields.get("code"),
        error: fields.get("error"),
        issuer: fields.get("iss"),
    };
    let (mut response, is_used) = match logged_in(&state, came, peer).await {
        Ok(entered) => (entering(&state, entered, peer, &headers).await, true),
        Err(failure) => {
            let waits = matches!(failure.error, LoginError::Wait(_));
            let is_other = matches!(failure.error, LoginError::Refused(LoginRefusal::Oidc(OidcRefusal::State)));
            (failed(&state, &failure, peer).await, !waits && !is_other)
        }
    };
    if is_used {
        response.headers_mut().append(SET_COOKIE, cookie_header(&state, peer.tls, (BEGUN, ""), 0));
    }
    response
}

/// Finishes a login; goes through short waits here.
async fn logged_in(state: &ConsoleState, came: OidcReturn<'_>, peer: ConsolePeer) -> Result<OidcEntered, OidcFailure> {
    let mut waits = 0;
    loop {
        match log_in_by_provider(&state.options.guard, came, Some(peer.address.ip())).await {
            Err(OidcFailure { error: LoginError::Wait(time), .. }) if time <= SHORT_WAIT && waits < SHORT_WAITS => {
                sleep(time).await;
            }
            ended => return ended,
        }
        waits += 1;
    }
}

/// Begins the session of who was proven, if the access rules let it come this way.
async fn entering(state: &ConsoleState, entered: OidcEntered, peer: ConsolePeer, headers: &HeaderMap) -> Response {
    let OidcEntered { caller, back_to, session, token } = entered;
    if let Err(refusal) = state.options.guard.admit_caller(peer.visit(), &caller, AccessMethod::Oidc) {
        return turned_away(state, &refusal).await;
    }
    let lasts_ms = u64::try_from(session.as_millis()).unwrap_or(ABSOLUTE_MS);
    enter(state, Entering { caller, next: &back_to, lasts_ms, token }, peer, headers).await
}

/// The answer to a login that failed, which is recorded.
async fn failed(state: &ConsoleState, failure: &OidcFailure, peer: ConsolePeer) -> Response {
    let user = failure.user.as_deref().unwrap_or("(oidc)");
    record_failure(state, (user, "oidc"), peer, &failure.error).await;
    match &failure.error {
        LoginError::Wait(time) => {
            let seconds = time.as_secs() + 1;
            let text = format!("Too many failed sign-ins: load this page again in {seconds} s.");
            let mut response = page_saying(state, peer, StatusCode::TOO_MANY_REQUESTS, &text);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            response
        }
        LoginError::Refused(LoginRefusal::Oidc(OidcRefusal::State)) => {
            page_saying(state, peer, StatusCode::UNAUTHORIZED, BEGIN_AGAIN)
        }
        LoginError::Refused(LoginRefusal::Oidc(OidcRefusal::Away)) => {
            page_saying(state, peer, StatusCode::SERVICE_UNAVAILABLE, AWAY)
        }
        _ => page_saying(state, peer, StatusCode::UNAUTHORIZED, WRONG),
    }
}
