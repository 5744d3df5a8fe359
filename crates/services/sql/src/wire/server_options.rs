//! The options of the server: where it listens, and who may log in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node::{Admission, Bounds, Descriptors, TlsError, TlsOptions};

use super::scram::{ScramError, Verifier};

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
    /// The system returned no random bytes.
    #[error(transparent)]
    Randomness(#[from] ScramError),
}

/// Options of the server.
#[derive(Debug, Clone)]
pub struct WireOptions {
    /// Address to listen on. Default 127.0.0.1:5432; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The users that may log in, with the verifiers of their passwords. Default none.
    pub users: BTreeMap<String, Verifier>,
    /// Whether users may log in without a password from this machine. Default no.
    pub trust: bool,
    /// TLS. Default none.
    pub tls: Option<TlsOptions>,
    /// Most connections at a time. Default 100, as PostgreSQL's.
    pub connections_max: usize,
    /// Most connections from one address (IPv4, or the first 64 bits of IPv6). Default half of the connections.
    pub connections_per_address: Option<usize>,
    /// The admission that this service shares with the other services of the node. Default: a node with this service
    /// alone.
    pub admission: Arc<Admission>,
    /// Users for whom the last of these connections is kept. Default none: then it is kept for connections from this
    /// machine.
    pub administrators: BTreeSet<String>,
    /// Most bytes of a message from a client, and of a row of COPY. Default 64 MiB.
    pub message_bytes_max: usize,
    /// Time to log in, TLS included. Default 60 s, as PostgreSQL's.
    pub login: Duration,
    /// Name of the database. Default `terrace`.
    pub database: String,
    /// The secret from which the challenges of users that do not exist are computed. Keep it as long as the users: with
    /// a new secret, a restart reveals which users exist. Default: a random one at each start.
    pub mock_secret: Option<[u8; 32]>,
}

impl Default for WireOptions {
    fn default() -> WireOptions {
        WireOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 5432)),
            users: BTreeMap::new(),
            trust: false,
            tls: None,
            connections_max: 100,
            connections_per_address: None,
            admission: Admission::new(Descriptors::current(), 0),
            administrators: BTreeSet::new(),
            message_bytes_max: 64 << 20,
            login: Duration::from_secs(60),
            database: "terrace".into(),
            mock_secret: None,
        }
    }
}

/// Sockets beyond the number of sessions: for cancel requests, for logins in progress, and for reporting that all
/// connections are taken. Half of them may be of one address.
const SPARE: usize = 16;

impl WireOptions {
    /// The bounds of logged-in connections.
    pub(super) fn sessions(&self) -> Bounds {
        Bounds::of(self.connections_max, self.connections_per_address)
    }

    /// The bounds of logged-in connections for this user: the last connection is kept for administrators. Named
    /// administrators can get it even if their address has reached its own limit.
    pub(super) fn sessions_of(&self, user: &str, peer: SocketAddr) -> Bounds {
        let all = self.sessions();
        let is_administrator = match self.administrators.is_empty() {
            true => peer.ip().is_loopback(),
            false => self.administrators.contains(user),
        };
        match is_administrator {
            true if self.administrators.is_empty() => all,
            true => Bounds { of_address: all.sockets, ..all },
            false => Bounds { sockets: (all.sockets - 1).max(1), ..all },
        }
    }

    /// The bounds of connections, logged in or not.
    pub(super) fn sockets(&self) -> Bounds {
        let Bounds { sockets, of_address } = self.sessions();
        Bounds { sockets: sockets + SPARE, of_address: of_address + SPARE / 2 }
    }

    /// Refuses options with which no user could log in, or anyone from other machines could.
    pub(super) fn check(&self) -> Result<(), WireError> {
        if self.users.is_empty() {
            let text = "no user can log in to SQL: name at least one user";
            return Err(WireError::Options(text.into()));
        }
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
        let near = SocketAddr::from(([127, 0, 0, 1], 1));
        let far = SocketAddr::from(([192, 0, 2, 1], 1));
        let mut options = WireOptions { connections_max: 10, ..WireOptions::default() };
        let places = |options: &WireOptions, user, peer| options.sessions_of(user, peer).sockets;
        assert_eq!((places(&options, "ann", near), places(&options, "ann", far)), (10, 9));
        options.administrators.insert("root".into());
        assert_eq!((places(&options, "ann", near), places(&options, "root", far)), (9, 10));
        assert_eq!(options.sessions_of("root", far).of_address, 10);
        options.connections_max = 1;
        assert_eq!(places(&options, "ann", near), 1);
    }
}
