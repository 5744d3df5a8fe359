//! What can go wrong in the engine, named by what the caller can do about it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::lang::Diagnostic;

/// Errors of the interface engine. No message carries patient data: they go to logs and terminals.
#[derive(Debug, thiserror::Error)]
pub enum InteropError {
    /// The production's files are wrong: correct them. Every problem found is listed.
    #[error("the production has {} problem(s):\n\n{}", .0.len(), .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
    Production(Vec<Diagnostic>),
    /// An address cannot be listened on: choose another or end who holds it.
    #[error(
        "service {service}: cannot listen on {address}: {source}; choose another port or end the program that holds it"
    )]
    Listen {
        /// Name of the service.
        service: String,
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A certificate or key cannot be used: correct the file.
    #[error("{file}: {problem}", file = .file.display())]
    Tls {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file or socket of the node cannot be used: see the cause.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The journal failed. After `Poisoned` the node has to be started again.
    #[error("journal: {0}")]
    Journal(#[from] journal::JournalError),
    /// The store failed. After `Poisoned` the node has to be started again.
    #[error("store: {0}")]
    Store(#[from] store::StoreError),
    /// What the node needs to keep its promises is damaged: run `terrace repair`, which shows what can be done, or restore.
    #[error(
        "{what} cannot be read: {source}. Nothing is sent or taken, so that no acknowledged message is left out and none \
         overtakes another. `terrace repair` shows what can be mended and what would be given up; with --backup it takes \
         what is missing from there"
    )]
    AtStake {
        /// What it is.
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
    /// No node has kept data here: name the right directory.
    #[error("no node keeps its data in {path}; name its directory with --data", path = .path.display())]
    NoData {
        /// The directory asked for.
        path: PathBuf,
    },
    /// The settings point away from what there is: point them back, or move its files.
    #[error(
        "this node's {what} lies in {noted}, and the settings now place it in {wanted}. Put the old place back into the \
         settings; or, with the node stopped, move all files of the old place to the new one (not `lock`), and start again"
    )]
    Elsewhere {
        /// The journal, the write image journal or the pages.
        what: &'static str,
        /// Where it lies.
        noted: String,
        /// Where the settings want it.
        wanted: String,
    },
    /// Something was made and is not there: mount its medium.
    #[error(
        "this node's {what} was in {noted} and is not there. Is its medium mounted? If it is lost for good, bring back a \
         backup of all the node's data; to begin with nothing, remove {note} and what is left of the journal, the images and \
         the pages", note = .note.display()
    )]
    Missing {
        /// The journal, the write image journal or the pages.
        what: &'static str,
        /// Where it was.
        noted: String,
        /// The file that says so.
        note: PathBuf,
    },
    /// The journal or the pages lie in the memory of the node's process: ask the node (`terrace status`) instead.
    #[error(
        "this node's data lies in memory (tier {tier}), which nobody but the node can read, and which ends with it"
    )]
    InMemory {
        /// The tier.
        tier: String,
    },
    /// The note of where everything lies cannot be read: restore it.
    #[error("{path} cannot be read ({problem}): it says where the journal and the pages lie; restore it, or write it anew", path = .path.display())]
    Note {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A medium that the settings name cannot be used: change the settings or the medium.
    #[error("a medium of the settings: {0}")]
    Medium(String),
    /// No message has this id (or it is older than what is kept).
    #[error("no message {id} is stored here; `terrace message list` shows what is")]
    NoMessage {
        /// The id asked for.
        id: u64,
    },
    /// Nothing of this name: the message lists what there is.
    #[error("no {what} is called `{name}`; there are: {known}")]
    NoSuch {
        /// Kind of thing.
        what: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// No node runs on this data directory: start one, or check the path.
    #[error("no node answers on {path}: {source}; start one with `terrace serve`, or name its directory with --data", path = .path.display())]
    NoNode {
        /// The control socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What was asked cannot be done: says why, and what to do.
    #[error("{0}")]
    Refused(String),
    /// The running node refused a request, or answered what cannot be read.
    #[error("the node answered: {0}")]
    NodeRefused(String),
    /// The node is stopping, or stopped after its journal failed.
    #[error("the node is stopping")]
    Stopping,
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
