//! Signing in and out.
//!
//! ```text
//!   GET /sign-in    the methods that there are, each with its form; a secret of its own in a cookie, whose token is in the form
//!   POST /sign-in   access rules --> password: few at a time, throttled by the guard --> entry in the audit, durable --> session
//!   POST /sign-out  session ends --> entry
//! ```
//!
//! A session has a secret that was not there before the sign-in, whatever cookie the browser sent: nobody can hand out one that
//! becomes another's. The text of a refusal is the same whatever was wrong.
//!
//! Another way to sign in is another [`SignInMethod`], whose proof ends in [`enter`]: a provider is `by_provider`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Extension, Request, State};
use axum::http::header::{RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use node::audit::AuditEntry;
use node::identity::oidc::{OidcProvider, OidcToken};
use node::identity::{AccessMethod, Caller, LoginError, Proof, Who};
use tokio::time::{sleep, timeout};

use crate::address;
use crate::form::{self, Fields, SignedForm, TOKEN};
use crate::gate::{self, PORT, cookie, cookie_name, proof_name, proof_of, record_failure, turned_away};
use crate::layout::{self, token_field};
use crate::provider_pages;
use crate::respond;
use crate::secret;
use crate::sessions::{ABSOLUTE_MS, SignedIn};
use crate::state::{ConsolePeer, ConsoleState};

/// How long a password waits for its turn to be checked.
const CHECK_TURN: Duration = Duration::from_secs(5);

/// A wait that a sign-in goes through here: other ports check passwords at the moment. Longer ones are the visitor's.
pub(crate) const SHORT_WAIT: Duration = Duration::from_millis(100);

/// How often it does.
pub(crate) const SHORT_WAITS: u32 = 50;

/// The refusal, whatever was wrong.
const WRONG: &str = "The user or the password is wrong, or the user may not sign in.";

/// A way to sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignInMethod {
    /// A user of the node, with a password.
    Password,
    /// A provider says who it is (OpenID Connect), where the node has one.
    Provider,
}

/// The ways to sign in, in the order of the page.
const METHODS: &[SignInMethod] = &[SignInMethod::Provider, SignInMethod::Password];

/// What the page of the sign-in shows.
#[derive(Debug, Clone, Copy)]
struct SignInForm<'a> {
    /// The token of the form.
    token: &'a str,
    /// Where it leads to.
    next: &'a str,
    /// The user that was typed.
    user: &'a str,
    /// What the provider is called, where there is one.
    provider: Option<&'a str>,
}

/// A place within the console, to go to after the sign-in.
pub(crate) fn place_within(next: &str) -> &str {
    // Browsers read `\` as `/`, and leave tabs and ends of lines out of an address.
    let is_within = next.starts_with('/') && !next.starts_with("//") && !next.contains(is_no_place);
    if is_within { next } else { "/" }
}

fn is_no_place(character: char) -> bool {
    character == '\\' || character.is_control()
}

fn form_of(method: SignInMethod, form: SignInForm<'_>) -> Markup {
    let SignInForm { token, next, user, provider } = form;
    match method {
        // A link and no form: a form may lead nowhere but to this console, and this leads to the provider.
        SignInMethod::Provider => html! {
            @if let Some(title) = provider {
                a.button.main href=(address::target(provider_pages::START, &[("next", next)])) { "Sign in with " (title) }
                p.sub { "or with a password of this node:" }
            }
        },
        SignInMethod::Password => html! {
            form.fields action="/sign-in" method="post" {
                (token_field(token))
                input type="hidden" name="next" value=(next);
                div.field {
                    label for="user" { "User" }
                    input #user name="user" value=(user) autocomplete="username" autocapitalize="none" spellcheck="false" required maxlength="255" autofocus;
                }
                div.field {
                    label for="password" { "Password" }
                    input #password name="password" type="password" autocomplete="current-password" required maxlength="1024";
                }
                button.main { "Sign in" }
            }
        },
    }
}

fn sign_in_page(form: SignInForm<'_>, wrong: Option<&str>) -> Markup {
    layout::outside(
        "Sign in",
        html! {
            div.card.stack {
                h1 { "Sign in" }
                @if let Some(wrong) = wrong { p.note.bad role="alert" { (wrong) } }
                @for method in METHODS { (form_of(*method, form)) }
            }
            p.sub { "Users are made with " code { "terrace user add" } "." }
        },
    )
}

/// A cookie of the console.
pub(crate) fn cookie_header(
    state: &ConsoleState,
    tls: bool,
    (suffix, value): (&str, &str),
    seconds: u64,
) -> HeaderValue {
    let name = cookie_name(state, tls);
    let secure = if tls { "; Secure" } else { "" };
    let text = format!("{name}{suffix}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("terrace=; Max-Age=0"))
}

/// Of the cookie of who is not signed in yet.
const BEFORE: &str = "-before";

/// How long the page of the sign-in may lie open.
const BEFORE_SECONDS: u64 = 3_600;

/// The page, with a new secret.
pub(crate) fn fresh_page(
    state: &ConsoleState,
    peer: ConsolePeer,
    (next, user): (&str, &str),
    wrong: Option<&str>,
) -> Response {
    let Ok(before) = secret::draw() else {
        return respond::problem(503, "the system returned no random bytes").into_response();
    };
    let status = if wrong.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    let (token, title) = (secret::form_token(&before), state.options.guard.provider().map(OidcProvider::title));
    let form = SignInForm { token: &token, next: place_within(next), user, provider: title.as_deref() };
    let page = sign_in_page(form, wrong);
    let mut response = respond::page(status, page);
    response.headers_mut().append(SET_COOKIE, cookie_header(state, peer.tls, (BEFORE, &before), BEFORE_SECONDS));
    response
}

/// `GET /sign-in`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    Extension(peer): Extension<ConsolePeer>,
    fields: Fields,
) -> Response {
    if let Err(refusal) = state.options.guard.admit(peer.visit(), Who::Unnamed) {
        return turned_away(&state, &refusal).await;
    }
    fresh_page(&state, peer, (fields.get("next").unwrap_or("/"), ""), None)
}

/// `POST /sign-in`
pub(crate) async fn enter_by_password(
    State(state): State<Arc<ConsoleState>>,
    Extension(peer): Extension<ConsolePeer>,
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    let fields = match form::read(request).await {
        Ok(fields) => fields,
        Err(refusal) => return refusal,
    };
    let before = cookie(&headers, &format!("{}{BEFORE}", cookie_name(&state, peer.tls)));
    let (next, user) = (fields.text("next"), fields.get("user").unwrap_or_default());
    if !before.is_some_and(|before| secret::is_form_token(&before, fields.text(TOKEN))) {
        return fresh_page(&state, peer, (next, user), Some("The page was too old: please sign in again."));
    }
    if let Err(refusal) = state.options.guard.admit_by(peer.visit(), user, AccessMethod::Password) {
        return turned_away(&state, &refusal).await;
    }
    match checked(&state, user, fields.text("password"), peer).await {
        Ok(caller) => {
            enter(&state, Entering { caller, next, lasts_ms: ABSOLUTE_MS, token: None }, peer, &headers).await
        }
        Err(LoginError::Wait(time)) => {
            let text = format!("Too many failed sign-ins: try again in {} s.", time.as_secs() + 1);
            let mut response = fresh_page(&state, peer, (next, user), Some(&text));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(time.as_secs() + 1));
            response
        }
        Err(LoginError::Memory | LoginError::TooMany | LoginError::Unchecked) => {
            respond::problem(503, "the password cannot be checked now: try again in a moment").into_response()
        }
        Err(error @ (LoginError::Refused(_) | LoginError::Scram(_))) => {
            let proof = if state.options.guard.is_of_directory(user) { "ldap" } else { "password" };
            record_failure(&state, (user, proof), peer, &error).await;
            fresh_page(&state, peer, (next, user), Some(WRONG))
        }
    }
}

/// Checks a password, when it is its turn.
async fn checked(state: &ConsoleState, user: &str, password: &str, peer: ConsolePeer) -> Result<Caller, LoginError> {
    let (guard, begun) = (&state.options.guard, Instant::now());
    // A directory that is slow holds up nobody whose password is here.
    let is_of_directory = guard.is_of_directory(user);
    let mut waits = 0;
    let checked = loop {
        let turn = match is_of_directory {
            true => None,
            false => match timeout(CHECK_TURN, state.checks.acquire()).await {
                Ok(Ok(turn)) => Some(turn),
                _ => return Err(LoginError::Memory),
            },
        };
        let checked = guard.log_in(user, password, Some(peer.address.ip())).await;
        // Who waits has no turn.
        drop(turn);
        match checked {
            Err(LoginError::Wait(time)) if time <= SHORT_WAIT && waits < SHORT_WAITS => sleep(time).await,
            checked => break checked,
        }
        waits += 1;
    };
    if matches!(checked, Err(LoginError::Refused(_))) {
        guard.pause_refused(begun).await;
    }
    checked
}

/// Somebody who has proven who it is, whichever way.
#[derive(Debug)]
pub(crate) struct Entering<'a> {
    /// Who.
    pub(crate) caller: Caller,
    /// Where it goes to.
    pub(crate) next: &'a str,
    /// How long the session lasts at most, if shorter than others.
    pub(crate) lasts_ms: u64,
    /// The token of a login by a provider.
    pub(crate) token: Option<OidcToken>,
}

/// Begins a session of somebody, and goes to `next`.
pub(crate) async fn enter(
    state: &ConsoleState,
    Entering { caller, next, lasts_ms, token }: Entering<'_>,
    peer: ConsolePeer,
    headers: &HeaderMap,
) -> Response {
    let guard = &state.options.guard;
    let name = cookie_name(state, peer.tls);
    let proof = proof_of(guard, &caller);
    let entry = AuditEntry::new("login", "").by_role(PORT, &caller, &guard.view()).with("proof", proof_name(&caller));
    // Who signs in and out without end does not fill the audit.
    if let Err(error) = state.options.audit.write_bounded(entry).await {
        let text = format!("nobody can sign in while the audit takes no entry: {error}");
        return respond::problem(503, &text).into_response();
    }
    let Ok(secret) = secret::draw() else {
        return respond::problem(503, "the system returned no random bytes").into_response();
    };
    let Some(digest) = secret::digest(&secret) else {
        return respond::problem(500, "the session cannot be made").into_response();
    };
    // The session that the browser had, if any, ends: it may be another's.
    if let Some(former) = cookie(headers, &name).and_then(|former| secret::digest(&former)) {
        state.sessions.lock().close(&former);
    }
    let present = guard.present(&caller).map(Arc::new);
    state.sessions.lock().open(digest, SignedIn { caller, proof, lasts_ms, token, _present: present }, state.now_ms());
    let mut response = respond::see(place_within(next));
    let all = response.headers_mut();
    all.append(SET_COOKIE, cookie_header(state, peer.tls, ("", &secret), ABSOLUTE_MS.min(lasts_ms) / 1_000));
    all.append(SET_COOKIE, cookie_header(state, peer.tls, (BEFORE, ""), 0));
    response
}

/// `POST /sign-out`
pub(crate) async fn leave(
    State(state): State<Arc<ConsoleState>>,
    Extension(peer): Extension<ConsolePeer>,
    form: SignedForm,
) -> Response {
    let digest = form.visitor.secret.as_deref().and_then(secret::digest);
    let closed = digest.and_then(|digest| state.sessions.lock().close(&digest));
    let mut place = None;
    if let Some(SignedIn { caller, token, .. }) = closed {
        let provider = state.options.guard.provider().filter(|_| matches!(caller.proof(), Proof::Oidc(_)));
        place = provider.and_then(|own| Some((own.title(), own.sign_out_place(token.as_ref())?)));
        let entry = AuditEntry::new("logout", "").by_role(gate::PORT, &caller, &state.options.guard.view());
        // It has ended with an entry and without.
        if let Err(error) = state.options.audit.write_bounded(entry).await {
            tracing::warn!(%error, "a sign-out is not in the audit");
        }
    }
    let mut response = match place {
        Some((title, place)) => provider_pages::signed_out(&title, &place),
        None => respond::see("/sign-in"),
    };
    response.headers_mut().append(SET_COOKIE, cookie_header(&state, peer.tls, ("", ""), 0));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_no_other_site() {
        for (next, expected) in [
            ("/messages?q=1", "/messages?q=1"),
            ("", "/"),
            ("//evil.example", "/"),
            ("https://evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/x\r\nSet-Cookie: a=b", "/"),
            ("/\t/evil.example", "/"),
            ("/\u{b}/evil.example", "/"),
        ] {
            assert_eq!(place_within(next), expected, "{next}");
        }
    }

    #[test]
    fn the_page_names_what_was_wrong_once_and_keeps_no_password() {
        let mut form = SignInForm { token: "t", next: "/x", user: "<ann>", provider: None };
        let page = sign_in_page(form, Some(WRONG)).into_string();
        assert!(!page.contains("Sign in with"));
        assert!(page.contains(WRONG) && page.contains("&lt;ann&gt;") && page.contains(r#"value="/x""#));
        assert_eq!(page.matches("type=\"password\"").count(), 1);
        form.provider = Some("<Clinic>");
        let page = sign_in_page(form, None).into_string();
        assert!(page.contains(r#"href="/sign-in/oidc?next=%2Fx">Sign in with &lt;Clinic&gt;</a>"#), "{page}");
    }
}
