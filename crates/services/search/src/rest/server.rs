//! The HTTP server: connections, and on each of them requests one after the other, which a [`RestHandler`] answers.
//!
//! ```text
//!   listener --Door--> connection --TLS?--> PulsedIo --HTTP/1.1--> exchange, one for each request
//!                         |                    |                      |-- logins    who it is from
//!                         |                    +-- pulse: its times   |-- body      read, bounded, unpacked
//!                         +-- Permit: its place                       |-- lanes     its turn among those of its class
//!                                                                     |-- held      memory of the response until it is read
//!                                                                     +-- answer    the form of the response, filter_path
//! ```
//!
//! Invariants: a socket is bounded before a byte of it is read; each wait for a peer has a time; a request beyond a bound is
//! refused with the error that clients of Elasticsearch know, and not queued without end; the handler is called on threads that
//! may block, and when [`HttpServer::stop`] has returned it is not called any more.
//!
//! Not here, on purpose: HTTP/2, compression other than gzip, CORS (no page in a browser may use the API), and chunked
//! responses: a response is made whole.

mod answer;
mod body;
mod exchange;
mod figures;
mod filter_path;
mod held;
mod lanes;
mod logins;
mod options;
mod pulse;
mod target;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use node::{
    Admission, CountedIo, Door, Permit, Policy, Reason, Renewal, SharedSocket, TlsInForce, certificate, socket,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::message::RestHandler;
use body::BodyBudget;
use exchange::{ConnectionState, HEAD_BYTES_MAX, HttpShared, StopStage};
use held::HeldResponses;
use lanes::{ConnectionUse, RequestLanes};
use logins::{CountedRole, HttpLogins, HttpOrigin};
use pulse::{ConnectionPulse, PulsedIo};

pub use figures::SearchFigures;
pub use options::{HttpError, HttpOptions, HttpTimes, LaneBounds};

/// How long a cancelled request may go on before the server ends without it.
const CANCELLED_MAX: Duration = Duration::from_secs(60);

/// The first byte of a TLS handshake, which is none of HTTP.
const HANDSHAKE_BYTE: u8 = 0x16;

/// A running server.
pub struct HttpServer {
    address: SocketAddr,
    stop: watch::Sender<StopStage>,
    shared: Arc<HttpShared>,
    listener: JoinHandle<()>,
    renewal: Renewal,
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl HttpServer {
    /// Starts to listen, on the runtime of the caller.
    ///
    /// # Errors
    /// The options cannot be used, TLS cannot be loaded, or the address cannot be listened on.
    pub async fn start(handler: Arc<dyn RestHandler>, options: HttpOptions) -> Result<HttpServer, HttpError> {
        options.check()?;
        let (renewal, certificate) = Renewal::first(options.tls.clone())?;
        let listen = |error| HttpError::Listen { address: options.listen, error };
        let listener = node::service_manager::listen("search", options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = watch::channel(StopStage::Serving);
        let door = options.admission.door("search", "search", options.sockets());
        let shared = Arc::new(HttpShared {
            handler,
            lanes: RequestLanes::new(&options),
            logins: HttpLogins::new(&options)?,
            bodies: BodyBudget::new(&options),
            responses: HeldResponses::new(options.bodies_bytes),
            figures: Arc::default(),
            stop: stopped,
            options,
        });
        let failed = Arc::clone(&shared.options.failed);
        let accept = accept(listener, door, certificate, Arc::clone(&shared));
        let listener = node::task::supervised("search-listener", accept, move |why| failed(why));
        Ok(HttpServer { address, stop, shared, listener, renewal })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The admission that decides which connections are accepted.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.shared.options.admission
    }

    /// What clients have asked for since the start.
    pub fn figures(&self) -> &Arc<SearchFigures> {
        &self.shared.figures
    }

    /// The handle that puts another certificate in force.
    pub fn renewal(&self) -> Renewal {
        self.renewal.clone()
    }

    /// Accepts no more connections and requests, lets those that run end for a while ([`HttpTimes::grace`]), then cancels them.
    /// When it returns, the handler is not called any more.
    pub async fn stop(self) {
        self.stop.send_replace(StopStage::Ending);
        let mut listener = self.listener;
        if timeout(self.shared.options.times.grace, &mut listener).await.is_err() {
            self.stop.send_replace(StopStage::Cancelling);
            // The listener ends within the same time again. This fails only if it panicked, which was reported.
            let _ = listener.await;
        }
        self.stop.send_replace(StopStage::Cancelling);
        if timeout(CANCELLED_MAX, self.shared.lanes.ended()).await.is_err() {
            tracing::error!("requests of search did not end in time, though they were cancelled");
        }
    }
}

async fn accept(
    listener: TcpListener,
    door: Door,
    in_force: watch::Receiver<Option<TlsInForce>>,
    shared: Arc<HttpShared>,
) {
    let mut stop = shared.stop.clone();
    let mut connections = JoinSet::new();
    let policy = || Policy { bounds: shared.options.sockets(), peers: Vec::new() };
    loop {
        let (socket, peer, permit) = tokio::select! {
            accepted = door.accept(&listener, policy) => accepted,
            _ = stop.changed() => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection ended by a panic");
                }
                continue;
            }
        };
        let (shared, tls) = (Arc::clone(&shared), in_force.borrow().clone());
        connections.spawn(async move { connection(socket, (peer, permit), tls, &shared).await });
    }
    drop(listener);
    let grace = shared.options.times.grace;
    let ended = async { while connections.join_next().await.is_some() {} };
    // Some time to end, and the same again once they are cancelled.
    if timeout(grace * 2, ended).await.is_err() {
        tracing::warn!("connections of search did not end in time; they are cut off");
        // Not waited for: one whose write waits for the journal ends with that.
        connections.abort_all();
    }
}

/// One connection, from its first byte to its last.
async fn connection(
    socket: TcpStream,
    (peer, permit): (SocketAddr, Permit),
    tls: Option<TlsInForce>,
    shared: &Arc<HttpShared>,
) {
    // Without these options responses are slower, and a peer that has disappeared is noticed late.
    let _ = socket::prepare(&socket);
    let from = HttpOrigin { peer, tls: None };
    let Some(tls) = tls else {
        let socket = SharedSocket::new(socket);
        return serve(socket.clone(), socket, (from, permit), shared).await;
    };
    let (mut ending, mut stop) = (permit.ending(), shared.stop.clone());
    let handshake = async {
        let is_plain = !is_handshake(&socket).await?;
        if is_plain && shared.options.tls.as_ref().is_none_or(|tls| tls.required) {
            return Err(std::io::Error::other("it does not use TLS, which is required"));
        }
        let socket = SharedSocket::new(socket);
        Ok(match is_plain {
            true => Opened::Plain(socket),
            false => Opened::Secured(Box::new(tls.acceptor.accept(socket.clone()).await?), socket),
        })
    };
    let opened = tokio::select! {
        opened = timeout(shared.options.times.handshake, handshake) => opened,
        _ = ending.ended() => return,
        _ = stop.wait_for(|stage| *stage > StopStage::Serving) => return,
    };
    match opened {
        Ok(Ok(Opened::Plain(socket))) => serve(socket.clone(), socket, (from, permit), shared).await,
        Ok(Ok(Opened::Secured(secured, socket))) => {
            let shown = secured.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let names = shown.map(|own| certificate::names(own)).unwrap_or_default();
            let from = HttpOrigin { peer, tls: Some(names.into()) };
            permit.connection().secured();
            serve(secured, socket, (from, permit), shared).await;
        }
        Ok(Err(error)) => permit.note(Reason::Handshake, &format!("{peer}: {error}")),
        Err(_) => permit.note(Reason::Handshake, &format!("{peer}: no handshake in time")),
    }
}

/// A socket whose kind is known.
enum Opened {
    Plain(SharedSocket),
    /// With the socket below it.
    Secured(Box<tokio_rustls::server::TlsStream<SharedSocket>>, SharedSocket),
}

/// Whether the peer begins with a TLS handshake.
async fn is_handshake(socket: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0];
    Ok(socket.peek(&mut first).await? == 1 && first[0] == HANDSHAKE_BYTE)
}

/// Serves the requests of a connection until one side ends it; `below` is its TCP socket.
async fn serve<S>(socket: S, below: SharedSocket, (from, mut permit): (HttpOrigin, Permit), shared: &Arc<HttpShared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pulse = ConnectionPulse::new(permit.connection());
    let (counted, used) = (CountedRole::default(), ConnectionUse::default());
    let of = Arc::new(ConnectionState { pulse: Arc::clone(&pulse), counted, used });
    let socket = CountedIo::new(socket, permit.connection());
    let service = service_fn(|request| {
        let (shared, of, from) = (Arc::clone(shared), Arc::clone(&of), from.clone());
        async move { Ok::<_, Infallible>(exchange::answer(&shared, &from, &of, request).await) }
    });
    let io = TokioIo::new(PulsedIo { socket, pulse: Arc::clone(&pulse) });
    // The times of a connection are those of its pulse.
    let mut protocol = http1::Builder::new();
    protocol.header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX);
    let mut served = std::pin::pin!(protocol.serve_connection(io, service));
    let times = shared.options.times;
    let mut look = interval(pulse::period(&times));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut ending, mut stop, mut is_last) = (permit.ending(), shared.stop.clone(), false);
    loop {
        let mut ticked = false;
        tokio::select! {
            // Peers that end their connections, and those that send no HTTP, are nothing to report.
            _ = served.as_mut() => return,
            _ = ending.ended() => return,
            _ = stop.wait_for(|stage| *stage > StopStage::Serving), if !is_last => {
                is_last = true;
                served.as_mut().graceful_shutdown();
            }
            () = pulse.proven() => permit.prove(),
            _ = look.tick() => {
                ticked = true;
                if let Some(reason) = pulse.overdue(&times) {
                    permit.note(reason, &from.peer.to_string());
                    return;
                }
                // A request that is not there yet is not waited for.
                if is_last && pulse.is_in_head() {
                    return;
                }
            }
        }
        if ticked && pulse.is_ahead() && below.is_left() {
            return;
        }
    }
}
