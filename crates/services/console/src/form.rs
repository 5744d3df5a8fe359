//! Fields of a request: of its query, and of a form that a visitor sent, which is checked to be one of the visitor's own pages.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Form, FromRequest, FromRequestParts, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::Response;

use crate::gate::Visitor;
use crate::options::FORM_BYTES_MAX;
use crate::respond;
use crate::secret;
use crate::state::ConsoleState;

/// Fields at most.
const FIELDS_MAX: usize = 500;

/// The content type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

/// The field that has the token of a form.
pub(crate) const TOKEN: &str = "token";

/// Fields, in the order that they were sent in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    /// The first value of a field, without blanks around it; none where it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim());
        found.filter(|value| !value.is_empty())
    }

    /// The first value of a field, as it is.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// All values of a field.
    pub(crate) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The fields of a request's query.
impl FromRequestParts<Arc<ConsoleState>> for Fields {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ConsoleState>) -> Result<Fields, Response> {
        match Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) {
            Ok(Query(fields)) if fields.len() <= FIELDS_MAX => Ok(Fields(fields)),
            _ => Err(respond::problem(400, "the query cannot be read").into_response()),
        }
    }
}

fn is_form(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with(FORM))
}

/// A request whose form, if it has one, has come in whole. Errors: the answer to one that is too long, or ended early.
pub(crate) async fn arrived(request: Request) -> Result<Request, Response> {
    if !is_form(&request) {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    match axum::body::to_bytes(body, FORM_BYTES_MAX).await {
        Ok(body) => Ok(Request::from_parts(parts, Body::from(body))),
        Err(_) => {
            let text = format!("a form has {FORM_BYTES_MAX} bytes at most");
            Err(respond::problem(413, &text).into_response())
        }
    }
}

/// Reads the fields of a form.
pub(crate) async fn read(request: Request) -> Result<Fields, Response> {
    if !is_form(&request) {
        return Err(respond::problem(415, "a form is application/x-www-form-urlencoded").into_response());
    }
    let body = arrived(request).await?.into_body();
    let Ok(body) = axum::body::to_bytes(body, FORM_BYTES_MAX).await else {
        return Err(respond::problem(400, "the form cannot be read").into_response());
    };
    // Browsers escape what is no ASCII: other bytes would be read as marks of what they were.
    if !body.is_ascii() {
        return Err(respond::problem(400, "the form cannot be read").into_response());
    }
    let whole = Request::post("/").header(CONTENT_TYPE, FORM).body(Body::from(body));
    let fields = match whole {
        Ok(whole) => Form::<Vec<(String, String)>>::from_request(whole, &()).await.ok().map(|Form(fields)| fields),
        Err(_) => None,
    };
    match fields {
        Some(fields) if fields.len() <= FIELDS_MAX => Ok(Fields(fields)),
        _ => Err(respond::problem(400, "the form cannot be read").into_response()),
    }
}

/// A form with the token of the visitor's session.
#[derive(Debug)]
pub(crate) struct SignedForm {
    /// Who sent it.
    pub(crate) visitor: Visitor,
    /// What is in it.
    pub(crate) fields: Fields,
}

impl FromRequest<Arc<ConsoleState>> for SignedForm {
    type Rejection = Response;

    async fn from_request(request: Request, state: &Arc<ConsoleState>) -> Result<SignedForm, Response> {
        let (mut parts, body) = request.into_parts();
        let visitor = Visitor::from_request_parts(&mut parts, state).await?;
        let fields = read(Request::from_parts(parts, body)).await?;
        let is_own = visitor.secret.as_deref().is_some_and(|secret| secret::is_form_token(secret, fields.text(TOKEN)));
        if !is_own {
            let text = "the form is not one of this session's pages: load the page again, and send it from there";
            return Err(respond::problem(403, text).into_response());
        }
        Ok(SignedForm { visitor, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn fields(kind: &str, body: impl Into<axum::body::Body>) -> Result<Vec<(String, String)>, u16> {
        let request = Request::builder().header(CONTENT_TYPE, kind).body(body.into()).expect("a request");
        read(request).await.map(|fields| fields.0).map_err(|response| response.status().as_u16())
    }

    #[tokio::test]
    async fn forms_are_read_as_browsers_send_them_and_bounded() {
        let form = FORM;
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let read = fields(form, "a=1+2&a=%C3%BC&text=l1%0D%0Al2&empty=").await;
        assert_eq!(read, Ok(vec![pair("a", "1 2"), pair("a", "\u{fc}"), pair("text", "l1\r\nl2"), pair("empty", "")]));
        assert_eq!(fields("multipart/form-data", "").await, Err(415));
        assert_eq!(fields(form, "a".repeat(FORM_BYTES_MAX + 1)).await, Err(413));
        assert_eq!(fields(form, "a=1&".repeat(FIELDS_MAX + 1)).await, Err(400));
        assert_eq!(fields(form, vec![0xff, 0xfe]).await, Err(400));
    }
}
