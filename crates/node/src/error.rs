//! The errors of a node, named by what the caller can do about them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Errors of what the services of a node share. None contains stored data: they go to logs and terminals.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The process may have too few descriptors: raise its limit.
    #[error(
        "this process may have {limit} descriptors (files and sockets) open, and a node needs {least} at least: raise the \
         limit (`ulimit -n`, or LimitNOFILE= of its systemd unit)"
    )]
    Descriptors {
        /// The present value.
        limit: u64,
        /// The required value.
        least: u64,
    },
    /// The system does not report or set how many descriptors there may be: see the cause.
    #[error("the limit of descriptors cannot be read or raised: {0}")]
    Limit(io::Error),
    /// A socket that the service manager passed on cannot be used: correct its socket unit.
    #[error(
        "the service manager passed socket {number} {name}, which cannot be used: {problem}; a node takes TCP sockets that listen \
             (`ListenStream=` with an address and a port, `Accept=no`)"
    )]
    PassedSocket {
        /// Its number.
        number: i32,
        /// Its name, where it has one.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The service manager cannot be told how the node is: correct NOTIFY_SOCKET.
    #[error("the service manager cannot be reached by NOTIFY_SOCKET: {source}")]
    ServiceManager {
        /// The system's error.
        source: io::Error,
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
    /// A device failed, or another process has it.
    #[error("device: {0}")]
    Device(#[from] device::DeviceError),
    /// No node has kept data here: name the right directory.
    #[error("no node keeps its data in {path}; name its directory with --data", path = .path.display())]
    NoData {
        /// The requested directory.
        path: PathBuf,
    },
    /// The settings name another place than that of the existing data: change them back, or move the files.
    #[error(
        "this node's {what} lies in {recorded}, and the settings now place it in {wanted}. Put the old place back into the \
         settings; or, with the node stopped, move all files of the old place to the new one (not `lock`), and start again"
    )]
    Elsewhere {
        /// The journal, the write image journal or the pages.
        what: &'static str,
        /// Where it lies.
        recorded: String,
        /// Where the settings want it.
        wanted: String,
    },
    /// Something was made and is not there: mount its medium.
    #[error(
        "this node's {what} was in {recorded} and is not there. Is its medium mounted? If it is lost for good, bring back a \
         backup of all the node's data; to begin with nothing, remove {file} and what is left of the journal, the images and \
         the pages", file = .file.display()
    )]
    Missing {
        /// The journal, the write image journal or the pages.
        what: &'static str,
        /// Where it was.
        recorded: String,
        /// The placement file.
        file: PathBuf,
    },
    /// The journal or the pages are in the memory of the node's process: request them from the node (`terrace status`)
    /// instead.
    #[error(
        "this node's data lies in memory (tier {tier}), which only the node itself can read, and which ends with it"
    )]
    InMemory {
        /// The tier.
        tier: String,
    },
    /// The journal or the pages lie on an export or a volume: start the node, and request them from it.
    #[error(
        "this node's data lies on tier {tier} ({kind}), which only the node itself can read. Queries go to it while it runs (`terrace serve`); \
         a volume is checked by `terrace volume scrub`"
    )]
    OnlyByNode {
        /// The tier.
        tier: String,
        /// Its kind.
        kind: String,
    },
    /// The placement file cannot be read: restore it.
    #[error("{path} cannot be read ({problem}): it records where the journal and the pages lie; restore it, or write it anew", path = .path.display())]
    PlacementFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A medium that the settings name cannot be used: change the settings or the medium.
    #[error("a medium of the settings: {0}")]
    Medium(String),
    /// No node runs on this data directory: start one, or check the path.
    #[error("no node answers on {path}: {source}; start one with `terrace serve`, or name its directory with --data", path = .path.display())]
    NoNode {
        /// The control socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The running node refused a request, or sent a response that cannot be read.
    #[error("the node answered: {0}")]
    NodeRefused(String),
    /// The audit takes no entry, so that what needed one was not done: the text has the reason.
    #[error("{0}")]
    Audit(#[from] AuditRefused),
    /// Roles and rights were not read or changed: the text has the reason.
    #[error("{0}")]
    Identity(#[from] crate::identity::IdentityError),
    /// Keys of an encrypted data directory: the text has the reason.
    #[error(transparent)]
    Encryption(#[from] encryption::EncryptionError),
    /// The request cannot be fulfilled: the text has the reason, and what to do.
    #[error("{0}")]
    Refused(String),
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopping,
}

impl NodeError {
    /// For `map_err` on file operations.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn kept(reserve: u64) -> String {
    if reserve == 0 { String::new() } else { format!("; {reserve} more are kept for what administrators do") }
}

/// Why an entry was not written. What needed it must not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditRefused {
    /// The bound of the settings is reached: raise it, or let older entries be removed.
    #[error(
        "the audit is full ({bytes} of {max} bytes{}), and nothing is read or changed without an entry: export it, then raise \
         [audit] max_bytes or set keep_days, and start the node again", kept(*reserve)
    )]
    Full {
        /// Bytes of its entries.
        bytes: u64,
        /// The bound.
        max: u64,
        /// Bytes behind it that administrators still have.
        reserve: u64,
    },
    /// The medium has no room: free some.
    #[error("the medium has no room for an entry of the audit, and nothing is read or changed without one: {0}")]
    NoRoom(Arc<str>),
    /// The audit cannot be written until the node is started again, or repaired.
    #[error("the audit cannot be written, and nothing is read or changed without an entry: {0}")]
    Failed(Arc<str>),
}
