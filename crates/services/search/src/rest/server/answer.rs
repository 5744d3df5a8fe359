//! From a handler's response to bytes: what of it, in which form, with which headers.
//!
//! ```text
//!   RestResponse --filter_path--> --pretty--> bytes --gzip, from 1 KiB on--> response with its headers
//! ```
//!
//! Rendering a large response takes long: it is done on the thread of its request.

use std::collections::BTreeMap;
use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue,
};
use hyper::http::request::Parts as RequestHead;
use hyper::{HeaderMap, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::filter_path::PathFilter;
use crate::error::SearchError;
use crate::rest::message::{RestBody, RestResponse};

/// A response as the protocol sends it.
pub(super) type HttpResponse = Response<Full<Bytes>>;

/// Bodies of more bytes than this are compressed for clients that can read it.
const GZIP_FROM_BYTES: usize = 1024;

/// Methods that there are.
pub(super) const METHODS: &str = "GET,HEAD,POST,PUT,DELETE,OPTIONS";

/// Versions of the API whose media types are answered with the same.
const COMPATIBLE: [u8; 3] = [7, 8, 9];

/// The form that a client wants responses in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AnswerForm {
    pretty: bool,
    filter: Option<PathFilter>,
    /// The version in the media type, where the client accepts the type with one.
    compatible: Option<u8>,
    gzip: bool,
    /// Only the head is sent.
    is_head: bool,
}

impl AnswerForm {
    /// The form where nothing else was asked for.
    pub(super) fn usual(method: &Method) -> AnswerForm {
        AnswerForm { is_head: method == Method::HEAD, ..AnswerForm::default() }
    }

    /// Reads the form. Errors: there is no such form here.
    pub(super) fn read(head: &RequestHead, parameters: &BTreeMap<String, String>) -> Result<AnswerForm, RestResponse> {
        let headers = &head.headers;
        let parameter = |name: &str| parameters.get(name).map(String::as_str);
        if let Some(format) = parameter("format").filter(|format| !["", "json", "text"].contains(format)) {
            return Err(refused(406, &format!("format [{format}] is not supported")));
        }
        let accept = text(headers, &ACCEPT);
        let types = || accept.split(',').map(MediaType::read).filter(|one| !one.name.is_empty());
        if types().next().is_some() && types().all(|one| one.is_binary()) {
            return Err(refused(406, &format!("Accept header [{accept}] is not supported")));
        }
        let compatible =
            types().filter(|one| one.name.starts_with("application/vnd.elasticsearch+")).find_map(|one| one.version);
        if compatible.is_some_and(|version| !COMPATIBLE.contains(&version)) {
            let reason = format!("Accept version must be one of {COMPATIBLE:?}, but was [{accept}]");
            return Err(SearchError::new(400, "media_type_header_exception", reason).into());
        }
        Ok(AnswerForm {
            pretty: parameter("pretty").is_some_and(|pretty| pretty != "false"),
            filter: parameter("filter_path").map(PathFilter::parse).transpose()?.flatten(),
            compatible,
            gzip: accepts_gzip(text(headers, &ACCEPT_ENCODING)),
            ..AnswerForm::usual(&head.method)
        })
    }

    /// The response in this form.
    pub(super) fn render(&self, response: RestResponse) -> HttpResponse {
        let is_text = matches!(response.body, RestBody::Text(_));
        let mut body = match response.body {
            RestBody::Text(text) => text.into_bytes(),
            RestBody::RawJson(bytes) if self.filter.is_none() && !self.pretty => bytes,
            // It was made here, so it can be read; if it cannot, it is sent as it is.
            RestBody::RawJson(bytes) => serde_json::from_slice(&bytes).map_or(bytes, |value| self.json(value)),
            RestBody::Json(value) => self.json(value),
        };
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("x-elastic-product"), HeaderValue::from_static("Elasticsearch"));
        headers.insert(CONTENT_TYPE, self.content_type(is_text));
        if self.gzip && body.len() > GZIP_FROM_BYTES {
            body = packed(&body).unwrap_or_default();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        for (name, value) in response.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.insert(name, value);
            }
        }
        let body = if self.is_head { Bytes::new() } else { Bytes::from(body) };
        let mut rendered = Response::new(Full::new(body));
        *rendered.status_mut() = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        *rendered.headers_mut() = headers;
        rendered
    }

    fn json(&self, value: Value) -> Vec<u8> {
        let value = match &self.filter {
            Some(filter) => filter.apply(value),
            None => value,
        };
        // Writing values into memory cannot fail.
        let mut bytes = if self.pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }
            .unwrap_or_default();
        if self.pretty {
            bytes.push(b'\n');
        }
        bytes
    }

    fn content_type(&self, is_text: bool) -> HeaderValue {
        let versioned = self.compatible.filter(|_| !is_text);
        let versioned =
            versioned.map(|version| format!("application/vnd.elasticsearch+json;compatible-with={version}"));
        let versioned = versioned.and_then(|text| HeaderValue::try_from(text).ok());
        let plain = if is_text { "text/plain; charset=UTF-8" } else { "application/json" };
        versioned.unwrap_or(HeaderValue::from_static(plain))
    }
}

/// A refusal in the short form that Elasticsearch has for faults of the protocol.
pub(super) fn refused(status: u16, error: &str) -> RestResponse {
    RestResponse::json(status, json!({"error": error, "status": status}))
}

/// The answer to OPTIONS: which methods there are.
pub(super) fn options() -> HttpResponse {
    let mut response = AnswerForm::default().render(RestResponse::text(200, ""));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
    response
}

/// Whether a body of this type is read. Errors: the response with the refusal.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), RestResponse> {
    let given = text(headers, &CONTENT_TYPE);
    let known = [
        "application/json",
        "application/x-ndjson",
        "application/vnd.elasticsearch+json",
        "application/vnd.elasticsearch+x-ndjson",
    ];
    let read = MediaType::read(given);
    if known.contains(&read.name.as_str()) && read.version.is_none_or(|version| COMPATIBLE.contains(&version)) {
        return Ok(());
    }
    Err(match given {
        "" => refused(406, "Content-Type header is missing"),
        given => refused(406, &format!("Content-Type header [{given}] is not supported")),
    })
}

/// A media type of a header.
struct MediaType {
    name: String,
    /// `compatible-with`
    version: Option<u8>,
}

impl MediaType {
    fn read(text: &str) -> MediaType {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let version = parts.find_map(|part| part.strip_prefix("compatible-with="));
        MediaType { name, version: version.map(|version| version.parse().unwrap_or(0)) }
    }

    /// Whether it is one of the forms that are not built here.
    fn is_binary(&self) -> bool {
        ["yaml", "cbor", "smile"].iter().any(|form| self.name.ends_with(form))
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

/// Whether `Accept-Encoding` names gzip, and not with quality 0.
fn accepts_gzip(header: &str) -> bool {
    header.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip") || name == "*");
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map(|quality| quality.parse::<f32>());
        is_gzip && quality.is_none_or(|quality| quality.is_ok_and(|quality| quality > 0.0))
    })
}

fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(headers: &[(HeaderName, &'static str)], query: &[(&str, &str)]) -> Result<AnswerForm, u16> {
        let (mut head, ()) = hyper::Request::new(()).into_parts();
        head.headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let parameters = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        AnswerForm::read(&head, &parameters).map_err(|refused| refused.status)
    }

    #[test]
    fn the_version_of_the_accepted_type_is_answered() {
        for (accept, expected) in [
            ("application/json", Ok("application/json")),
            ("*/*", Ok("application/json")),
            ("text/html, application/yaml", Ok("application/json")),
            (
                "application/vnd.elasticsearch+json; compatible-with=8",
                Ok("application/vnd.elasticsearch+json;compatible-with=8"),
            ),
            (
                "application/vnd.elasticsearch+json;compatible-with=9,text/plain",
                Ok("application/vnd.elasticsearch+json;compatible-with=9"),
            ),
            ("application/vnd.elasticsearch+json; compatible-with=5", Err(400)),
            ("application/yaml", Err(406)),
        ] {
            let form = form(&[(ACCEPT, accept)], &[]);
            let shown = form.as_ref().map(|form| form.content_type(false)).map_err(|status| *status);
            assert_eq!(shown, expected.map(HeaderValue::from_static), "{accept}");
        }
        assert_eq!(form(&[], &[("format", "yaml")]), Err(406));
        assert!(form(&[], &[("format", "json")]).is_ok());
    }

    #[test]
    fn bodies_have_a_type_that_is_read() {
        for (content_type, known) in [
            ("application/json", true),
            ("application/json; charset=UTF-8", true),
            ("application/x-ndjson", true),
            ("application/vnd.elasticsearch+json; compatible-with=8", true),
            ("application/vnd.elasticsearch+x-ndjson;compatible-with=8", true),
            ("application/vnd.elasticsearch+json; compatible-with=3", false),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            let headers = [(CONTENT_TYPE, HeaderValue::from_static(content_type))].into_iter().collect();
            assert_eq!(check_content_type(&headers).is_ok(), known, "{content_type}");
        }
    }

    #[test]
    fn gzip_is_sent_where_it_is_accepted() {
        for (header, accepted) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("*", true),
            ("", false),
            ("br", false),
        ] {
            assert_eq!(accepts_gzip(header), accepted, "{header}");
        }
    }
}
