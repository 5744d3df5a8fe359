//! [`SearchError`]: every refusal in the shape that clients of the Elasticsearch API read: a status, a type, a reason.

use serde_json::{Value, json};
use store::StoreError;

/// The text of the library's error that carries the end of a search through it.
pub(crate) const STOPPED: &str = "the search was stopped";

/// The type of the error of a search that was cancelled.
pub(crate) const CANCELLED: &str = "task_cancelled_exception";

/// The type of the error where a thread of the library that indexes documents ended by a panic, or before by another error.
pub(crate) const INDEXING_ENDED: &str = "indexing_ended_exception";

/// Why a request was refused. Cheap to make; the message is for the person who sent the request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct SearchError {
    /// HTTP status.
    pub status: u16,
    /// The type of the error, as clients compare it (`index_not_found_exception`).
    pub kind: &'static str,
    /// What is wrong, and with what.
    pub reason: String,
    /// The index that it is about.
    pub index: Option<String>,
}

impl SearchError {
    /// An error with this status and type.
    pub fn new(status: u16, kind: &'static str, reason: impl Into<String>) -> SearchError {
        SearchError { status, kind, reason: reason.into(), index: None }
    }

    /// An argument of the request is wrong: correct the request.
    pub fn argument(reason: impl Into<String>) -> SearchError {
        SearchError::new(400, "illegal_argument_exception", reason)
    }

    /// The body or a part of it cannot be read.
    pub fn parsing(reason: impl Into<String>) -> SearchError {
        SearchError::new(400, "parsing_exception", reason)
    }

    /// The body is not JSON, or not of the form that is needed.
    pub fn body(reason: impl Into<String>) -> SearchError {
        SearchError::new(400, "parse_exception", reason)
    }

    /// A mapping or a document's field is wrong.
    pub fn mapping(reason: impl Into<String>) -> SearchError {
        SearchError::new(400, "mapper_parsing_exception", reason)
    }

    /// A part of the Elasticsearch API that is not built here.
    pub fn unsupported(what: impl std::fmt::Display) -> SearchError {
        SearchError::new(400, "unsupported_operation_exception", format!("{what} is not supported"))
    }

    /// There is no such index.
    pub fn no_index(name: &str) -> SearchError {
        SearchError::new(404, "index_not_found_exception", format!("no such index [{name}]")).of(name)
    }

    /// More is asked for now than there is memory or time for: repeat later.
    pub fn busy(reason: impl Into<String>) -> SearchError {
        SearchError::new(429, "es_rejected_execution_exception", reason)
    }

    /// Nobody wants the response any more.
    pub fn cancelled() -> SearchError {
        SearchError::new(400, CANCELLED, "the search was cancelled")
    }

    /// A version or sequence number is not the one that was named.
    pub fn conflict(reason: impl Into<String>) -> SearchError {
        SearchError::new(409, "version_conflict_engine_exception", reason)
    }

    /// The node cannot do it, for a reason that is not the request's.
    pub fn internal(reason: impl Into<String>) -> SearchError {
        SearchError::new(500, "internal_server_error", reason)
    }

    /// With the index that it is about.
    #[must_use]
    pub fn of(mut self, index: &str) -> SearchError {
        self.index = Some(index.to_owned());
        self
    }

    /// The error's own object, as it stands in an item of a bulk response.
    pub fn cause(&self) -> Value {
        let mut cause = json!({"type": self.kind, "reason": self.reason});
        if let Some(index) = &self.index {
            cause["index"] = json!(index);
            if self.kind == "index_not_found_exception" {
                cause["index_uuid"] = json!("_na_");
                cause["resource.type"] = json!("index_or_alias");
                cause["resource.id"] = json!(index);
            }
        }
        cause
    }

    /// The whole body of the response.
    pub fn to_json(&self) -> Value {
        let cause = self.cause();
        let mut error = json!({"root_cause": [cause]});
        for (name, value) in cause.as_object().into_iter().flatten() {
            error[name] = value.clone();
        }
        json!({"error": error, "status": self.status})
    }
}

impl From<StoreError> for SearchError {
    fn from(error: StoreError) -> SearchError {
        match &error {
            StoreError::Full(_) => SearchError::new(429, "disk_full_exception", error.to_string()),
            StoreError::Conflict => SearchError::conflict(error.to_string()),
            StoreError::Refused(_) => SearchError::argument(error.to_string()),
            StoreError::Poisoned { .. } => SearchError::new(503, "node_failed_exception", error.to_string()),
            _ => SearchError::internal(error.to_string()),
        }
    }
}

impl From<tantivy::TantivyError> for SearchError {
    fn from(error: tantivy::TantivyError) -> SearchError {
        use tantivy::TantivyError as Tantivy;
        match error {
            Tantivy::InvalidArgument(reason) => SearchError::argument(reason),
            Tantivy::AggregationError(reason) => SearchError::argument(reason.to_string()),
            Tantivy::InternalError(text) if text == STOPPED => SearchError::cancelled(),
            Tantivy::ErrorInThread(reason) => SearchError::new(500, INDEXING_ENDED, format!("the index: {reason}")),
            Tantivy::FieldNotFound(field) => SearchError::argument(format!("there is no field [{field}]")),
            other => SearchError::internal(format!("the index: {other}")),
        }
    }
}
