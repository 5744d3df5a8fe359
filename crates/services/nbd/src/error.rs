//! The errors of this crate, named by what the caller can do about them.

use std::io;
use std::path::PathBuf;

use crate::protocol::asking::AskingError;

/// Why an NBD server or client cannot do what was requested.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The address cannot be listened on. Choose another, or end who uses it.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address or the path.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// TCP beyond this machine without TLS. Configure TLS, or state that plaintext is wanted.
    #[error("{address} can be reached from other machines, and there is no TLS: set certificates, or plaintext = true")]
    Plaintext {
        /// The address.
        address: String,
    },
    /// An export of that name exists. Choose another name.
    #[error("an export {name} exists already")]
    AlreadyExported {
        /// The name.
        name: String,
    },
    /// The name cannot be one of an export.
    #[error("{name:?} is no name of an export: 1 to 200 bytes, without @ and control characters")]
    Name {
        /// The name.
        name: String,
    },
    /// There is no export of that name.
    #[error("no export {name}")]
    NoExport {
        /// The name.
        name: String,
    },
    /// Sessions of an export did not end in time; they were cut off, and a request may still be in its device.
    #[error("{sessions} sessions of {name} did not end in time; the device is still working for them")]
    StillBusy {
        /// The export.
        name: String,
        /// How many.
        sessions: usize,
    },
    /// A certificate or a key cannot be used. Put another file there.
    #[error("{}: {problem}", .file.display())]
    Tls {
        /// The file.
        file: PathBuf,
        /// The fault in it.
        problem: String,
    },
    /// The address of an export is none.
    #[error(
        "{address}: {problem}; for example nbd://host:10809/name, nbds://host/name, nbd+unix:///name?socket=/run/a.sock"
    )]
    Address {
        /// The address.
        address: String,
        /// The fault in it.
        problem: String,
    },
    /// The server cannot be reached. Start it, or wait.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server refused, or speaks another protocol.
    #[error("{address}: {source}")]
    Refused {
        /// The address.
        address: String,
        /// Why.
        source: AskingError,
    },
    /// The export cannot be a device. Use another one.
    #[error("{address} cannot be a device: {problem}")]
    NotADevice {
        /// The address.
        address: String,
        /// Why.
        problem: String,
    },
    /// A higher epoch is in force: another owner has taken the export. Step down; this epoch never works again.
    #[error("{address}: the server refuses epoch {epoch}: {text}")]
    Superseded {
        /// The address.
        address: String,
        /// The epoch that is over.
        epoch: u64,
        /// The server's text.
        text: String,
    },
    /// The server does not confirm that it enforces epochs: nothing there keeps an older owner from writing.
    #[error("{address} does not confirm epochs: it cannot be raised")]
    Unfenced {
        /// The address.
        address: String,
    },
    /// The client has given the device up. Connect again, and run recovery.
    #[error("the client has ended: connect again, and run recovery")]
    Ended,
    /// A thread or a runtime cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}
