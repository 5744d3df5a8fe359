//! [`AdminError`]: why a node, or a service beside the console, does not answer a request of a page.

/// Why a request is not answered. The text is for who asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The caller has no right to it: somebody has to grant it.
    #[error("{0}")]
    Denied(String),
    /// There is no such thing, or none that the caller may know of.
    #[error("{0}")]
    Absent(String),
    /// It cannot be done so: ask for something else.
    #[error("{0}")]
    Refused(String),
    /// The node cannot do it now.
    #[error("{0}")]
    Unavailable(String),
}
