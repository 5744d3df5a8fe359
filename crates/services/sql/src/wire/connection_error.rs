//! [`ConnectionError`]: why a connection ends.

use std::io;

use super::error_response::ErrorResponse;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// The client has disconnected.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The client is sent this error and disconnected.
    #[error("{}", .0.message)]
    Fatal(Box<ErrorResponse>),
    /// The client sent Terminate, or disconnected between two messages.
    #[error("closed")]
    Closed,
}

impl ConnectionError {
    /// The client is sent this error and disconnected.
    pub(super) fn fatal(response: ErrorResponse) -> ConnectionError {
        ConnectionError::Fatal(Box::new(response))
    }
}
