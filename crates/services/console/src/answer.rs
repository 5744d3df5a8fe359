//! The frame of every response: what is asked before a route is, and the headers that all have.
//!
//! ```text
//!   method? --> asset? --> a change: of a page of ours? --> its form, read --> a turn; of a sign-in, a place --> route, in its time
//!      --> headers: policy of contents, no store
//! ```
//!
//! Invariant: nobody who is waited for has a turn: forms are read before it, and other bodies and sign-ins have places of their own.
//!
//! The policy of contents lets a page load from this console only, run no script and use no style that is within it, send forms nowhere
//! else, and be within no other page.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::FutureExt as _;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::time::timeout;

use crate::assets;
use crate::form;
use crate::layout;
use crate::options::{REQUEST_TIME, TURN_TIME};
use crate::origin;
use crate::respond::{Refusal, page, problem};
use crate::state::{ConsolePeer, ConsoleState};

/// See the module's text.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // A page of ours says where a form comes from, and another site learns nothing.
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=(), usb=()"),
];

/// Where passwords are sent.
const SIGN_IN: &str = "/sign-in";

/// Content type of problems (RFC 9457).
const PROBLEM: &str = "application/problem+json";

/// Answers a request.
pub(crate) async fn answer(state: &Arc<ConsoleState>, router: Router, request: Request) -> Response {
    let for_program = wants_json(request.uri().path(), request.headers());
    let is_head = request.method() == Method::HEAD;
    let work = AssertUnwindSafe(routed(state, router, request)).catch_unwind();
    let response = match timeout(REQUEST_TIME, work).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!("a request of the console ended by a panic, and no other; report it");
            problem(500, "a fault of the program ended the request, and the node's log has the text").into_response()
        }
        Err(_) => problem(503, "the request took too long, and was ended").into_response(),
    };
    let response = finished(response, for_program);
    if is_head { response.map(|_| Body::empty()) } else { response }
}

fn wants_json(path: &str, headers: &HeaderMap) -> bool {
    path.starts_with("/api/") || path.starts_with("/live/") || headers.contains_key(AUTHORIZATION)
}

async fn routed(state: &Arc<ConsoleState>, router: Router, request: Request) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && request.method() != Method::POST {
        return problem(405, "the console knows GET, HEAD and POST").into_response();
    }
    if request.uri().path().starts_with("/assets/") {
        return asset(request.uri().path(), request.headers());
    }
    // A program has no cookie that a page of another site could use.
    if !is_read && !request.headers().contains_key(AUTHORIZATION) && !origin::is_own_page(request.headers()) {
        let text = "a change is taken from a page of this console only (Origin, Sec-Fetch-Site), or with a token: \
                    Authorization: Bearer TOKEN";
        return problem(403, text).into_response();
    }
    let request = match form::arrived(request).await {
        Ok(request) => request,
        Err(refusal) => return refusal,
    };
    let (_turn, _place) = match waits(&request) {
        Some(address) => {
            let Some(place) = state.sign_ins.take(address) else {
                return problem(503, "too many sign-ins wait: try again in a moment").into_response();
            };
            (None, Some(place))
        }
        None => match timeout(TURN_TIME, state.requests.acquire()).await {
            Ok(Ok(turn)) => (Some(turn), None),
            _ => return problem(503, "too many requests run: try again in a moment").into_response(),
        },
    };
    device::supervise::rehearse("console-request");
    match TowerToHyperService::new(router).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// From where a request comes that waits for others, and so takes no turn from them: a sign-in by a password.
fn waits(request: &Request) -> Option<IpAddr> {
    let is_one = request.method() == Method::POST && request.uri().path() == SIGN_IN;
    let peer = request.extensions().get::<ConsolePeer>().filter(|_| is_one)?;
    Some(peer.address.ip())
}

/// An asset by its path.
fn asset(path: &str, headers: &HeaderMap) -> Response {
    let Some(asset) = assets::find(path) else { return problem(404, "there is no such file").into_response() };
    let accepts = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let takes_gzip = accepts.flat_map(|value| value.split(',')).any(|one| one.trim().split(';').next() == Some("gzip"));
    let packed = asset.packed.clone().filter(|_| takes_gzip);
    let is_packed = packed.is_some();
    let body: Bytes = packed.unwrap_or_else(|| asset.plain.clone());
    let mut response = Response::new(Body::from(body));
    let all = response.headers_mut();
    all.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    all.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    all.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed {
        all.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Writes a refusal for who asked, and the headers that all responses have.
fn finished(mut response: Response, for_program: bool) -> Response {
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        response = refused(&refusal, for_program);
    } else if response.status().is_client_error() && !response.headers().contains_key(CONTENT_TYPE) {
        // The router's own: no such route, no such method.
        let text = match response.status() {
            StatusCode::NOT_FOUND => "there is no such page",
            StatusCode::METHOD_NOT_ALLOWED => "the page does not take requests of this method",
            _ => "the request cannot be read",
        };
        response = refused(&problem(response.status().as_u16(), text), for_program);
    }
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn refused(refusal: &Refusal, for_program: bool) -> Response {
    let Refusal { status, text } = refusal;
    let mut response = if for_program {
        let body = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("refused"),
            "status": status.as_u16(),
            "detail": text,
        });
        let mut response = (*status, body.to_string()).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        response
    } else {
        page(*status, layout::refusal(*status, text))
    };
    if *status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer realm=\"terrace\"");
        response.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, scheme);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::respond::see;

    #[test]
    fn every_response_has_the_headers_that_bound_what_a_page_may_do() {
        for response in [page(StatusCode::OK, maud::html! { "x" }), problem(404, "<b>").into_response(), see("/x")] {
            let response = finished(response, false);
            for (name, value) in HEADERS {
                assert_eq!(response.headers()[&name], value);
            }
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        }
        assert!(POLICY.contains("default-src 'self'") && !POLICY.contains("unsafe"));
        let asset = finished(asset(assets::path("console.js"), &HeaderMap::new()), false);
        assert!(asset.headers()[CACHE_CONTROL].to_str().expect("text").contains("immutable"));
    }

    #[tokio::test]
    async fn a_refusal_is_a_page_for_people_and_a_problem_for_programs_and_its_text_is_escaped() {
        let text = async |for_program| {
            let response = finished(problem(403, "no <script>").into_response(), for_program);
            let kind = response.headers()[CONTENT_TYPE].to_str().expect("text").to_owned();
            let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
            (kind, String::from_utf8(body.to_vec()).expect("text"))
        };
        let (kind, body) = text(false).await;
        assert!(kind.starts_with("text/html") && body.contains("no &lt;script&gt;") && !body.contains("no <script>"));
        let (kind, body) = text(true).await;
        assert!(kind == PROBLEM && body.contains(r#""detail":"no <script>""#), "{body}");
    }

    #[test]
    fn an_asset_is_compressed_for_who_takes_that() {
        let of = |accepts: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, accepts.parse().expect("a header"));
            asset(assets::path("htmx.js"), &headers).headers().contains_key(CONTENT_ENCODING)
        };
        assert!(of("br, gzip;q=0.5") && !of("br") && !of("identity"));
        assert_eq!(asset("/assets/x", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
    }
}
