//! The options of the server: where it listens, who may use it, and how much of everything it takes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node::identity::Guard;
use node::{Admission, Audit, Bounds, Descriptors, TlsError, TlsOptions};

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
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
    #[error("the system returned no random bytes")]
    Randomness,
}

/// How many requests of a class there are at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneBounds {
    /// Those that run, each on a thread; one more of a role of which none runs.
    pub running: usize,
    /// Those that wait for their turn; further ones are refused (429), first those of the role that has most of them.
    pub waiting: usize,
}

/// How long the server waits for its peers.
#[derive(Debug, Clone, Copy)]
pub struct HttpTimes {
    /// For the first byte, where it decides between TLS and none, and for the handshake. Default 10 s.
    pub handshake: Duration,
    /// For the head of a request, from its first byte to its last. Default 10 s.
    pub head: Duration,
    /// For the next request on a connection. Default 5 min: clients keep connections, and one that is closed at the moment of
    /// a request is an error for them.
    pub idle: Duration,
    /// For the next bytes of a body, and for a peer to take bytes of a response. Default 30 s.
    pub silence: Duration,
    /// For a whole body. Default 5 min.
    pub body: Duration,
    /// For the running requests when the server stops; then they are cancelled, and have the same time again. Default 5 s.
    pub grace: Duration,
}

impl Default for HttpTimes {
    fn default() -> HttpTimes {
        let seconds = Duration::from_secs;
        HttpTimes {
            handshake: seconds(10),
            head: seconds(10),
            idle: seconds(300),
            silence: seconds(30),
            body: seconds(300),
            grace: seconds(5),
        }
    }
}

/// Options of the server.
#[derive(Clone)]
pub struct HttpOptions {
    /// Address to listen on. Default 127.0.0.1:9200; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Logs users in. Default none, for embedders: then peers on this machine are the node's own role, and there are no others.
    pub guard: Option<Arc<Guard>>,
    /// Where failed logins are recorded. Default: nowhere.
    pub audit: Option<Arc<Audit>>,
    /// Whether peers on this machine are trusted that send no proof. Default no. Without `guard` they always are.
    pub trust: bool,
    /// The role of those who are trusted. Default the node's own, an administrator.
    pub trusted: Option<String>,
    /// TLS. Default none. If it is not required, a port takes connections with and without it.
    pub tls: Option<TlsOptions>,
    /// Most connections at a time. Default 256.
    pub connections_max: usize,
    /// Most connections from one address (IPv4, or the first 64 bits of IPv6). Default half of the connections.
    pub connections_per_address: Option<usize>,
    /// The admission that this service shares with the other services of the node. Default: a node with this service
    /// alone.
    pub admission: Arc<Admission>,
    /// Most bytes of a body, compressed or not. Default 100 MiB, as Elasticsearch's `http.max_content_length`.
    pub body_bytes_max: usize,
    /// Most bytes of the bodies of all requests that are read or run, and as many again of responses that are not read yet. Default 256 MiB.
    pub bodies_bytes: usize,
    /// Searches and other reads. Default: running half as many again as there are cores, and one; 128 wait.
    pub reads: LaneBounds,
    /// Changes of documents and indices. Default: running one for each core, at least 2; 128 wait.
    pub writes: LaneBounds,
    /// Cheap requests about the node and its tasks, which are answered under load too. Default: 2 run, 32 wait.
    pub light: LaneBounds,
    /// Requests by query, merges of indices, and those that wait for tasks. Default: 16 run, 32 wait.
    pub long: LaneBounds,
    /// How long it waits for its peers.
    pub times: HttpTimes,
    /// Called with the text if the listener panicked: nothing can connect any more, and the node should fail. Default: it is
    /// logged.
    pub failed: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Everything that settings decide, for comparisons of effective settings.
        f.debug_struct("HttpOptions")
            .field("listen", &self.listen)
            .field("has_users", &self.guard.is_some())
            .field("trust", &(self.trust, &self.trusted))
            .field("tls", &self.tls)
            .field("connections_max", &self.connections_max)
            .field("connections_per_address", &self.connections_per_address)
            .field("body_bytes_max", &self.body_bytes_max)
            .field("bodies_bytes", &self.bodies_bytes)
            .field("lanes", &(self.reads, self.writes, self.light, self.long))
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        HttpOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 9200)),
            guard: None,
            audit: None,
            trust: false,
            trusted: None,
            tls: None,
            connections_max: 256,
            connections_per_address: None,
            admission: Admission::new(Descriptors::current(), 0),
            body_bytes_max: 100 << 20,
            bodies_bytes: 256 << 20,
            reads: LaneBounds { running: cores * 3 / 2 + 1, waiting: 128 },
            writes: LaneBounds { running: cores.max(2), waiting: 128 },
            light: LaneBounds { running: 2, waiting: 32 },
            long: LaneBounds { running: 16, waiting: 32 },
            times: HttpTimes::default(),
            failed: Arc::new(|why| tracing::error!(why, "search failed")),
        }
    }
}

impl HttpOptions {
    /// The bounds of connections.
    pub(super) fn sockets(&self) -> Bounds {
        Bounds::of(self.connections_max, self.connections_per_address)
    }

    /// Refuses options with which anyone from other machines could use the service, or nobody could.
    pub fn check(&self) -> Result<(), HttpError> {
        let refused = |text: &str| Err(HttpError::Options(text.to_owned()));
        if !self.listen.ip().is_loopback() && self.guard.is_none() {
            return refused("search that listens beyond this machine needs a user: name at least one");
        }
        if !self.listen.ip().is_loopback() && self.tls.as_ref().is_none_or(|tls| !tls.required) {
            return refused(
                "search that listens beyond this machine needs TLS: set a certificate and a key, and require it",
            );
        }
        let lanes = [self.reads, self.writes, self.light, self.long];
        if self.connections_max == 0 || self.body_bytes_max == 0 || lanes.iter().any(|lane| lane.running == 0) {
            return refused("search needs at least one connection, one byte of a body and one request of each class");
        }
        if self.body_bytes_max > self.bodies_bytes {
            return refused("the bodies of all requests may take less memory than one body may");
        }
        Ok(())
    }
}
