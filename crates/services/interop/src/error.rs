//! The errors of the engine, named by what the caller can do about them.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use node::NodeError;

use crate::lang::Diagnostic;

/// Errors of the interface engine. No message carries patient data: they go to logs and terminals.
#[derive(Debug, thiserror::Error)]
pub enum InteropError {
    /// The production's files are wrong: correct them. Every problem found is listed.
    #[error("the production has {} problem(s):\n\n{}", .0.len(), .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
    Production(Vec<Diagnostic>),
    /// An address cannot be listened on: choose another or end the program that holds it.
    #[error(
        "service {service}: cannot listen on {address}: {source}; choose another port or end the program that holds it"
    )]
    Listen {
        /// Name of the service.
        service: String,
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A certificate or key cannot be used: correct the file.
    #[error("{file}: {problem}", file = .file.display())]
    Tls {
        /// The file.
        file: PathBuf,
        /// The fault in it.
        problem: String,
    },
    /// A file or socket of the node cannot be used: see the cause.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    File {
        /// The attempted operation.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The journal failed. After `Poisoned` the node has to be started again.
    #[error("journal: {0}")]
    Journal(#[from] journal::JournalError),
    /// The store failed. After `Poisoned` the node has to be started again.
    #[error("store: {0}")]
    Store(#[from] store::StoreError),
    /// Data that the node needs to keep its promises is damaged: run `terrace repair`, which shows what can be
    /// repaired, or restore.
    #[error(
        "{what} cannot be read: {source}. Nothing is sent or taken, so that no acknowledged message is left out and none \
         overtakes another. `terrace repair` shows what can be mended and what would be given up; with --backup it takes \
         what is missing from there"
    )]
    AtStake {
        /// The damaged data.
        what: String,
        /// Why.
        source: Box<InteropError>,
    },
    /// The device below the journal failed.
    #[error("device: {0}")]
    Device(#[from] device::DeviceError),
    /// A record of another version, or of none: use the release that wrote it.
    #[error("journal record of kind {kind} is not of a version this release reads; use the release that wrote it")]
    UnknownRecord {
        /// The record's kind byte.
        kind: u8,
    },
    /// A file that is read cannot be taken: get it once more from where it was made.
    #[error("the file is damaged at byte {offset}: {what}; nothing behind it can be read. Make or copy it anew")]
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// No message has this id (or it is older than what is kept).
    #[error("no message {id} is stored here; `terrace message list` shows what is")]
    NoMessage {
        /// The requested id.
        id: u64,
    },
    /// No such name: the text lists the existing ones.
    #[error("no {what} is called `{name}`; there are: {known}")]
    NoSuch {
        /// Kind of thing.
        what: &'static str,
        /// The requested name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The node itself: its data directory, its media, its control socket.
    #[error(transparent)]
    Node(NodeError),
    /// The request cannot be fulfilled: the text has the reason, and what to do.
    #[error("{0}")]
    Refused(String),
    /// Whoever asks has no right to it: the text says which one, and nothing about what it is on.
    #[error("{0}")]
    Denied(String),
    /// The node is stopping, or stopped after its journal failed.
    #[error("the node is stopping")]
    Stopping,
}

/// An error that both have is the same error to a caller, whichever crate it comes from.
impl From<NodeError> for InteropError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::File { action, path, source } => Self::File { action, path, source },
            NodeError::Journal(error) => Self::Journal(error),
            NodeError::Store(error) => Self::Store(error),
            NodeError::Device(error) => Self::Device(error),
            NodeError::Refused(text) => Self::Refused(text),
            NodeError::Stopping => Self::Stopping,
            other => Self::Node(other),
        }
    }
}

impl InteropError {
    /// For `map_err` where damage keeps a node from starting.
    pub fn at_stake(what: impl Into<String>) -> impl FnOnce(Self) -> Self {
        let what = what.into();
        move |error| match error {
            damaged @ (Self::Store(store::StoreError::Corrupt(_)) | Self::NoMessage { .. }) => {
                Self::AtStake { what, source: Box::new(damaged) }
            }
            other => other,
        }
    }

    /// For `map_err` on file operations.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
