//! Responses before they are finished: pages, JSON, ways to other pages, refusals.
//!
//! A refusal is a value of the response, which `answer` writes for who asked: a page for people, problem+json for programs.

use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::Markup;

use crate::address;

/// Something that was not done: as a page for people, as problem+json for programs.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

/// A refusal with a status and the text for who asked.
pub(crate) fn problem(status: u16, text: &str) -> Refusal {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Refusal { status, text: text.to_owned() }
}

impl Refusal {
    /// As a response that is written for who asked later.
    pub(crate) fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A page.
pub(crate) fn page(status: StatusCode, markup: Markup) -> Response {
    let mut response = (status, markup.into_string()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// JSON.
pub(crate) fn json_of(value: &impl serde::Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// To another page of ours, by GET.
pub(crate) fn see(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let place = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, place);
    response
}

/// To sign-in, and then to `next`.
pub(crate) fn to_sign_in(next: &str) -> Response {
    if next == "/" { see("/sign-in") } else { see(&format!("/sign-in?next={}", address::in_query(next))) }
}
