//! [`MetricsError`]: why the service cannot start.

use std::io;
use std::net::SocketAddr;

use node::TlsError;

/// The service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address cannot be listened on: choose another one, or end what listens there.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
    /// The options cannot be used: change them.
    #[error("{0}")]
    Options(String),
    /// Certificate or key cannot be used: put another file there.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system cannot start a thread or a runtime.
    #[error("the thread of metrics cannot start: {0}")]
    Thread(io::Error),
}
