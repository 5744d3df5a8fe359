//! [`RestRequest`] and [`RestResponse`]: what passes between the server, which knows sockets, and the handlers, which know
//! indices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use node::identity::Caller;
use serde_json::Value;

use crate::error::SearchError;
use crate::memory::MemoryUse;

/// Methods of HTTP that the API uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RestMethod {
    /// Reads; may have a body.
    Get,
    /// As `GET`, without the body of the response.
    Head,
    /// Sends.
    Post,
    /// Puts.
    Put,
    /// Deletes; may have a body.
    Delete,
}

/// A request that was read as a whole.
#[derive(Clone, Debug)]
pub struct RestRequest {
    /// The method.
    pub method: RestMethod,
    /// Segments of the path, each decoded; empty ones are left out.
    pub path: Vec<String>,
    /// Parameters of the query string, decoded; of a repeated one the last.
    pub parameters: BTreeMap<String, String>,
    /// The body, not compressed.
    pub body: Bytes,
    /// Who sends it.
    pub caller: Caller,
    /// The name that the client gave the request (`X-Opaque-Id`), shown with its task.
    pub opaque_id: Option<String>,
    /// Set when the client has gone away, or the server ends: stop.
    pub cancelled: Arc<AtomicBool>,
}

impl RestRequest {
    /// A parameter's value.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// A parameter that is true or false; one without a value is true. Errors: it is neither.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, SearchError> {
        match self.parameter(name) {
            None => Ok(None),
            Some("" | "true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(SearchError::argument(format!(
                "Failed to parse value [{other}] as only [true] or [false] are allowed."
            ))),
        }
    }

    /// A parameter that is a number. Errors: it is none.
    pub fn number(&self, name: &str) -> Result<Option<u64>, SearchError> {
        self.parameter(name)
            .map(|text| {
                text.parse().map_err(|_| {
                    SearchError::argument(format!("Failed to parse int parameter [{name}] with value [{text}]"))
                })
            })
            .transpose()
    }

    /// The body as JSON; `None` if it is empty. Errors: it is no JSON, or an object of it has a key twice.
    pub fn json(&self) -> Result<Option<Value>, SearchError> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        crate::strict::value(&self.body)
            .map(Some)
            .map_err(|error| SearchError::body(format!("the body of the request cannot be read: {error}")))
    }

    /// Whether nobody waits for the response any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// The body of a response.
#[derive(Clone, Debug)]
pub enum RestBody {
    /// JSON; the server leaves out what `filter_path` does not name, and sets it in lines for `pretty`.
    Json(Value),
    /// JSON that is ready to be sent.
    RawJson(Vec<u8>),
    /// Plain text, as the `_cat` requests answer.
    Text(String),
}

/// A response.
#[derive(Clone, Debug)]
pub struct RestResponse {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: RestBody,
    /// Headers besides those that the server adds.
    pub headers: Vec<(&'static str, String)>,
    /// Memory that the body takes, where that is counted: it is held until the bytes of the response are made.
    pub memory: Option<Arc<MemoryUse>>,
}

impl RestResponse {
    /// JSON with this status.
    pub fn json(status: u16, body: Value) -> RestResponse {
        RestResponse { status, body: RestBody::Json(body), headers: Vec::new(), memory: None }
    }

    /// Plain text with this status.
    pub fn text(status: u16, body: impl Into<String>) -> RestResponse {
        RestResponse { status, body: RestBody::Text(body.into()), headers: Vec::new(), memory: None }
    }

    /// JSON that is ready to be sent, with this status.
    pub fn raw_json(status: u16, body: Vec<u8>) -> RestResponse {
        RestResponse { status, body: RestBody::RawJson(body), headers: Vec::new(), memory: None }
    }

    /// The same, with the memory that it takes.
    #[must_use]
    pub fn within(self, memory: Arc<MemoryUse>) -> RestResponse {
        RestResponse { memory: Some(memory), ..self }
    }
}

impl From<SearchError> for RestResponse {
    fn from(error: SearchError) -> RestResponse {
        RestResponse::json(error.status, error.to_json())
    }
}

/// Answers every request with the reason why search does not work (503).
#[derive(Clone, Debug)]
pub struct Unavailable {
    /// The reason.
    pub reason: String,
}

impl RestHandler for Unavailable {
    fn respond(&self, _: &RestRequest) -> RestResponse {
        let reason = format!("blocked by: [SERVICE_UNAVAILABLE] search does not work on this node: {}", self.reason);
        SearchError::new(503, "cluster_block_exception", reason).into()
    }
}

/// What answers requests. It blocks: the server calls it on threads for that.
pub trait RestHandler: Send + Sync + 'static {
    /// Answers a request.
    fn respond(&self, request: &RestRequest) -> RestResponse;

    /// The most bytes of the body that a request may send; asked before a byte of it is read, so `request` has none yet. It decides
    /// in instructions, as the threads of connections do it. Errors: the refusal of one that may not do what it asks for.
    fn admit(&self, request: &RestRequest) -> Result<usize, RestResponse> {
        let _ = request;
        Ok(usize::MAX)
    }

    /// Whether a write of a few documents takes only instructions: it waits for no device. The server then answers it
    /// without another thread; what waits nevertheless gives the thread's connections away.
    fn is_inline(&self) -> bool {
        false
    }
}
