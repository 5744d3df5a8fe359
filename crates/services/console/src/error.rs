//! Why the console cannot start.

use std::net::SocketAddr;

use node::TlsError;

/// See the module's text.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The address cannot be listened on: change it, or end what listens there.
    #[error(
        "the console cannot listen on {address}: {error}; choose another address, or end the program that holds it"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The options cannot be used: change them.
    #[error("{0}")]
    Options(String),
    /// Certificate or key cannot be used: put another file there.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
