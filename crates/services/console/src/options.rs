//! The options of the console: where it listens, and how much of everything it takes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node::identity::Guard;
use node::{Admission, Audit, Bounds, TlsOptions};

use crate::error::ConsoleError;

/// How long the console waits for its peers: for a handshake, and for the head of a request or the next one.
pub(crate) const PEER_TIME: Duration = Duration::from_secs(30);

/// How long a request may take, but for streams.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(60);

/// How long a request waits for its turn.
pub(crate) const TURN_TIME: Duration = Duration::from_secs(5);

/// How long requests may go on when the console stops.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// Most bytes of a form.
pub(crate) const FORM_BYTES_MAX: usize = 256 << 10;

/// See the module's text.
#[derive(Clone)]
pub struct ConsoleOptions {
    /// Address to listen on. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS; a must beyond this machine.
    pub tls: Option<TlsOptions>,
    /// Most connections at a time, 1 or more. Default 256.
    pub connections_max: usize,
    /// Most connections from one address (IPv4, or the first 64 bits of IPv6). Default half of the connections.
    pub connections_per_address: Option<usize>,
    /// Most tabs that are live at a time, 1 or more. Default 100.
    pub tabs_max: usize,
    /// Most requests that run at a time, 1 or more. Default 32.
    pub requests_max: usize,
    /// Signs visitors in, and decides.
    pub guard: Arc<Guard>,
    /// Where sign-ins are recorded.
    pub audit: Arc<Audit>,
    /// The admission that this service shares with the other services of the node.
    pub admission: Arc<Admission>,
    /// Called with the text if the listener or the ticker panicked: the node should fail.
    pub failed: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for ConsoleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Everything that settings decide, for comparisons of effective settings.
        f.debug_struct("ConsoleOptions")
            .field("listen", &self.listen)
            .field("tls", &self.tls)
            .field("connections_max", &self.connections_max)
            .field("connections_per_address", &self.connections_per_address)
            .field("tabs_max", &self.tabs_max)
            .finish_non_exhaustive()
    }
}

impl ConsoleOptions {
    /// The bounds of connections.
    pub(crate) fn sockets(&self) -> Bounds {
        Bounds::of(self.connections_max, self.connections_per_address)
    }

    /// Refuses options with which passwords could be read on their way, or nobody could connect.
    ///
    /// # Errors
    /// `Options`.
    pub fn check(&self) -> Result<(), ConsoleError> {
        if !self.listen.ip().is_loopback() && self.tls.as_ref().is_none_or(|tls| !tls.required) {
            return Err(ConsoleError::Options(
                "a console that listens beyond this machine needs TLS: set a certificate and a key, and require it"
                    .to_owned(),
            ));
        }
        if self.connections_max == 0 || self.tabs_max == 0 || self.requests_max == 0 {
            return Err(ConsoleError::Options(
                "a console needs at least one connection, one tab and one request".to_owned(),
            ));
        }
        Ok(())
    }
}
