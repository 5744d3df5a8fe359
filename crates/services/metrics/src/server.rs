//! The listener: a thread of its own, from the first moment of a node, so that health is answered while a store is being opened.
//!
//! ```text
//!   start --Starting--> serve --Serving--> ends --Ending--> stop
//!            healthz 200         all of it         healthz 200
//!            readyz 503                            readyz 503
//!            metrics 503                           metrics 200
//!
//!   listener --Door--> connection --TLS?--> TimedIo --HTTP/1.1--> exchange, one for each request
//! ```
//!
//! Invariants: a socket is bounded before a byte of it is read; each wait for a peer has a time; a head over [`HEAD_BYTES_MAX`] is refused and
//! no body is read; figures are gathered on threads that may block, a few at most, and never on one that serves messages.

mod exchange;
mod logins;
#[cfg(test)]
mod tests;
mod timed_io;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use node::identity::{AccessRules, Guard};
use node::{
    Admission, Audit, Bounds, CountedIo, Descriptors, Door, Permit, Policy, Reason, Renewal, TlsInForce, TlsOptions,
    socket,
};
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::MetricsError;
use crate::snapshot::Snapshots;
use logins::ScrapeOrigin;
use timed_io::TimedIo;

/// Most bytes of the head of a request: the least that the protocol's library allows.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Threads that may gather figures at a time; they take turns.
const GATHERING_THREADS: usize = 4;

/// The first byte of a TLS handshake, which is none of HTTP.
const HANDSHAKE_BYTE: u8 = 0x16;

/// How long the server waits for its peers.
#[derive(Debug, Clone, Copy)]
pub struct MetricsTimes {
    /// For the first byte, where it decides between TLS and none, and for the handshake. Default 10 s.
    pub handshake: Duration,
    /// For a request, from the end of the one before: scrapers keep connections between scrapes. Default 2 min.
    pub request: Duration,
    /// For a peer to take bytes of a response. Default 10 s.
    pub silence: Duration,
    /// For connections when the server stops. Default 2 s.
    pub grace: Duration,
}

impl Default for MetricsTimes {
    fn default() -> MetricsTimes {
        let seconds = Duration::from_secs;
        MetricsTimes { handshake: seconds(10), request: seconds(120), silence: seconds(10), grace: seconds(2) }
    }
}

/// Options of the server.
#[derive(Clone)]
pub struct MetricsOptions {
    /// Address to listen on. Default 127.0.0.1:9464; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether peers on this machine need no token. Default yes.
    pub trust: bool,
    /// TLS. Default none. If it is not required, a port takes connections with and without it.
    pub tls: Option<TlsOptions>,
    /// Most connections at a time. Default 16.
    pub connections_max: usize,
    /// Most connections from one address (IPv4, or the first 64 bits of IPv6). Default half of the connections.
    pub connections_per_address: Option<usize>,
    /// The admission that this service shares with the other services of the node. Default: a node with this service alone.
    pub admission: Arc<Admission>,
    /// The access rules until the node has its own. Default: none.
    pub access: AccessRules,
    /// How long it waits for its peers.
    pub times: MetricsTimes,
    /// Called with the text if the listener panicked: nothing can be scraped any more. Default: it is logged.
    pub failed: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for MetricsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Everything that settings decide, for comparisons of effective settings.
        f.debug_struct("MetricsOptions")
            .field("listen", &self.listen)
            .field("trust", &self.trust)
            .field("tls", &self.tls)
            .field("connections", &(self.connections_max, self.connections_per_address))
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

impl Default for MetricsOptions {
    fn default() -> MetricsOptions {
        MetricsOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
            trust: true,
            tls: None,
            connections_max: 16,
            connections_per_address: None,
            admission: Admission::new(Descriptors::current(), 0),
            access: AccessRules::default(),
            times: MetricsTimes::default(),
            failed: Arc::new(|why| tracing::error!(why, "metrics are not served any more until the next start")),
        }
    }
}

impl MetricsOptions {
    fn bounds(&self) -> Bounds {
        Bounds::of(self.connections_max, self.connections_per_address)
    }

    /// Refuses options with which anyone from other machines could read figures on the way, or nobody at all.
    ///
    /// # Errors
    /// [`MetricsError::Options`].
    pub fn check(&self) -> Result<(), MetricsError> {
        let refused = |text: &str| Err(MetricsError::Options(text.to_owned()));
        if !self.listen.ip().is_loopback() && self.tls.as_ref().is_none_or(|tls| !tls.required) {
            return refused(
                "metrics that are served beyond this machine need TLS: set a certificate and a key, and require it",
            );
        }
        if self.connections_max == 0 || self.connections_per_address == Some(0) {
            return refused("metrics need at least one connection");
        }
        Ok(())
    }
}

/// What a node that has started serves.
pub struct Served {
    /// Logs callers in, and decides what they may.
    pub guard: Arc<Guard>,
    /// Where refusals are recorded.
    pub audit: Arc<Audit>,
    /// The figures.
    pub snapshots: Arc<Snapshots>,
    /// Why the node takes no messages, in one line each; empty: it does.
    pub hindrances: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// How far the node is.
#[derive(Clone)]
enum Phase {
    /// Its store is being opened.
    Starting,
    /// It runs.
    Serving(Arc<Served>),
    /// It is being stopped.
    Ending(Arc<Served>),
}

/// What all connections share.
struct MetricsShared {
    options: MetricsOptions,
    phase: RwLock<Phase>,
    stop: watch::Receiver<bool>,
}

/// A running server.
pub struct MetricsServer {
    address: SocketAddr,
    shared: Arc<MetricsShared>,
    stop: watch::Sender<bool>,
    renewal: Renewal,
    thread: JoinHandle<()>,
}

impl fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl MetricsServer {
    /// Starts to listen, on a thread of its own.
    ///
    /// # Errors
    /// The options cannot be used, TLS cannot be loaded, or the address cannot be listened on.
    pub fn start(options: MetricsOptions) -> Result<MetricsServer, MetricsError> {
        options.check()?;
        let (renewal, in_force) = Renewal::first(options.tls.clone())?;
        let listen = |error| MetricsError::Listen { address: options.listen, error };
        let listener = std::net::TcpListener::bind(options.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(GATHERING_THREADS)
            .thread_name("metrics")
            .build()
            .map_err(MetricsError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let door = options.admission.door("metrics", "metrics", options.bounds());
        let failed = Arc::clone(&options.failed);
        let shared = Arc::new(MetricsShared { options, phase: RwLock::new(Phase::Starting), stop: stopped });
        let serving = Arc::clone(&shared);
        let serve = move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => accept(listener, door, in_force, &serving).await,
                    Err(error) => tracing::error!(%error, "metrics cannot be served"),
                }
            });
            // What still gathers figures is not waited for: it holds nothing that the node needs to end.
            runtime.shutdown_background();
        };
        let thread =
            device::supervise::thread("metrics", serve, move |why| failed(why)).map_err(MetricsError::Thread)?;
        Ok(MetricsServer { address, shared, stop, renewal, thread })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The handle that puts another certificate in force.
    pub fn renewal(&self) -> Renewal {
        self.renewal.clone()
    }

    /// From now on the figures of a node that has started are served.
    pub fn serve(&self, served: Served) {
        *self.shared.phase.write() = Phase::Serving(Arc::new(served));
    }

    /// From now on the node is not ready: it is being stopped. Figures are still served.
    pub fn ends(&self) {
        let mut phase = self.shared.phase.write();
        if let Phase::Serving(served) = &*phase {
            *phase = Phase::Ending(Arc::clone(served));
        }
    }

    /// Ends all connections; blocks until they are, for a few seconds at most. Nothing of the node is held any more then.
    pub fn stop(self) {
        self.stop.send_replace(true);
        // Its panic was reported.
        let _ = self.thread.join();
        *self.shared.phase.write() = Phase::Starting;
    }
}

async fn accept(
    listener: TcpListener,
    door: Door,
    in_force: watch::Receiver<Option<TlsInForce>>,
    shared: &Arc<MetricsShared>,
) {
    let mut stop = shared.stop.clone();
    let mut connections = JoinSet::new();
    let policy = || Policy { bounds: shared.options.bounds(), peers: Vec::new() };
    loop {
        device::supervise::rehearse("metrics");
        let (socket, peer, permit) = tokio::select! {
            accepted = door.accept(&listener, policy) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection of metrics ended by a panic");
                }
                continue;
            }
        };
        let (shared, tls) = (Arc::clone(shared), in_force.borrow().clone());
        connections.spawn(async move { connection(socket, (peer, permit), tls, &shared).await });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(shared.options.times.grace, ended).await.is_err() {
        connections.abort_all();
    }
}

/// One connection, from its first byte to its last.
async fn connection(
    socket: TcpStream,
    (peer, permit): (SocketAddr, Permit),
    tls: Option<TlsInForce>,
    shared: &Arc<MetricsShared>,
) {
    // Without these options a peer that has disappeared is noticed late.
    let _ = socket::prepare(&socket);
    let from = |is_secure| ScrapeOrigin { peer, is_secure };
    let Some(tls) = tls else { return serve(socket, (from(false), permit), shared).await };
    let (mut ending, mut stop) = (permit.ending(), shared.stop.clone());
    let handshake = async {
        let mut first = [0];
        let is_plain = socket.peek(&mut first).await? != 1 || first[0] != HANDSHAKE_BYTE;
        if is_plain && shared.options.tls.as_ref().is_none_or(|tls| tls.required) {
            return Err(std::io::Error::other("it does not use TLS, which is required"));
        }
        Ok(if is_plain { Err(socket) } else { Ok(tls.acceptor.accept(socket).await?) })
    };
    let opened = tokio::select! {
        opened = timeout(shared.options.times.handshake, handshake) => opened,
        _ = ending.ended() => return,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    match opened {
        Ok(Ok(Ok(secured))) => {
            permit.connection().secured();
            serve(secured, (from(true), permit), shared).await;
        }
        Ok(Ok(Err(plain))) => serve(plain, (from(false), permit), shared).await,
        Ok(Err(error)) => permit.note(Reason::Handshake, &format!("{peer}: {error}")),
        Err(_) => permit.note(Reason::Handshake, &format!("{peer}: no handshake in time")),
    }
}

/// Serves the requests of a connection until one side ends it.
async fn serve<S>(socket: S, (from, mut permit): (ScrapeOrigin, Permit), shared: &Arc<MetricsShared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (proven, connection) = (Arc::new(Notify::new()), Arc::clone(permit.connection()));
    let socket = CountedIo::new(socket, &connection);
    let service = service_fn(|request| {
        let (shared, proven) = (Arc::clone(shared), Arc::clone(&proven));
        connection.began(1);
        async move {
            let (response, is_proven) = exchange::answer(&shared, from, &request).await;
            if is_proven {
                proven.notify_one();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let times = shared.options.times;
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(times.request).max_buf_size(HEAD_BYTES_MAX);
    let io = TokioIo::new(TimedIo::new(socket, times.silence));
    let mut served = std::pin::pin!(protocol.serve_connection(io, service));
    let (mut ending, mut stop, mut is_last) = (permit.ending(), shared.stop.clone(), false);
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if ended.is_err_and(|error| error.is_timeout()) {
                    permit.note(Reason::Idle, &from.peer.to_string());
                }
                return;
            }
            _ = ending.ended() => return,
            _ = stop.wait_for(|stop| *stop), if !is_last => {
                is_last = true;
                served.as_mut().graceful_shutdown();
            }
            () = proven.notified() => permit.prove(),
        }
    }
}
