//! The options of the server: where it listens, and how many may connect. Who may log in is the guard's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node::{Admission, Bounds, Descriptors, TlsError, TlsOptions};

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The address cannot be listened on: change it, or end what listens there.
    #[error("cannot listen on {address}: {error}")]
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

/// Options of the server.
#[derive(Debug, Clone)]
pub struct WireOptions {
    /// Address to listen on. Default 127.0.0.1:5432; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether users may log in without a password from this machine. Default no.
    pub trust: bool,
    /// TLS. Default none.
    pub tls: Option<TlsOptions>,
    /// Most connections at a time. Default 100, as PostgreSQL's.
    pub connections_max: usize,
    /// Most connections from one address (IPv4, or the first 64 bits of IPv6). Default nine of ten connections: one program's pool of them
    /// is what most servers of SQL have as their clients.
    pub connections_per_address: Option<usize>,
    /// The admission that this service shares with the other services of the node. Default: a node with this service
    /// alone.
    pub admission: Arc<Admission>,
    /// Most bytes of a message from a client, and of a row of COPY. Default 64 MiB.
    pub message_bytes_max: usize,
    /// Time to log in, TLS included. Default 60 s, as PostgreSQL's.
    pub login: Duration,
    /// Name of the database. Default `terrace`.
    pub database: String,
}

impl Default for WireOptions {
    fn default() -> WireOptions {
        WireOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 5432)),
            trust: false,
            tls: None,
            connections_max: 100,
            connections_per_address: None,
            admission: Admission::new(Descriptors::current(), 0),
            message_bytes_max: 64 << 20,
            login: Duration::from_secs(60),
            database: "terrace".into(),
        }
    }
}

/// Sockets beyond the number of sessions: for cancel requests, for logins in progress, and for reporting that all
/// connections are taken. Half of them may be of one address.
const SPARE: usize = 16;

impl WireOptions {
    /// The bounds of logged-in connections.
    pub(super) fn sessions(&self) -> Bounds {
        let of_address = self.connections_per_address.unwrap_or(self.connections_max - self.connections_max / 10);
        Bounds::of(self.connections_max, Some(of_address))
    }

    /// The bounds of logged-in connections for one of them: the last connection is kept for administrators, who can get
    /// it even if their address has reached its own limit.
    pub(super) fn sessions_of(&self, is_administrator: bool) -> Bounds {
        let all = self.sessions();
        match is_administrator {
            true => Bounds { of_address: all.sockets, ..all },
            false => Bounds { sockets: (all.sockets - 1).max(1), ..all },
        }
    }

    /// The bounds of connections, logged in or not.
    pub(super) fn sockets(&self) -> Bounds {
        let Bounds { sockets, of_address } = self.sessions();
        Bounds { sockets: sockets + SPARE, of_address: of_address + SPARE / 2 }
    }

    /// Refuses options with which passwords would cross a network in clear.
    pub(super) fn check(&self) -> Result<(), WireError> {
        if !self.listen.ip().is_loopback() && self.tls.as_ref().is_none_or(|tls| !tls.required) {
            let text = "SQL that listens beyond this machine needs TLS: set a certificate and a key, and require it";
            return Err(WireError::Options(text.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_is_for_administrators() {
        let mut options = WireOptions { connections_max: 10, ..WireOptions::default() };
        assert_eq!((options.sessions_of(false).sockets, options.sessions_of(true).sockets), (9, 10));
        assert_eq!(options.sessions_of(true).of_address, 10);
        options.connections_max = 1;
        assert_eq!(options.sessions_of(false).sockets, 1);
    }
}
