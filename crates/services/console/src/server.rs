//! The listener and its connections: TLS or none, then HTTP/1.1, each request to `answer`.
//!
//! ```text
//!   listener --Door--> connection --handshake, in its time--> HTTP/1.1: heads in their time --> answer
//! ```
//!
//! Invariants: a socket is bounded before a byte of it is read; each wait for a peer has a time; a connection on which nobody has proven
//! who it is makes room for another one; when [`ConsoleServer::stop`] has returned, no request runs any more.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use node::{CountedIo, Door, Permit, Policy, Reason, Renewal, TlsInForce, socket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::admin::Admin;
use crate::answer;
use crate::error::ConsoleError;
use crate::gate::ConnectionProof;
use crate::options::{ConsoleOptions, GRACE, PEER_TIME};
use crate::routes;
use crate::state::{ConsolePeer, ConsoleState};
use crate::ticker::Ticker;

/// The first byte of a TLS handshake, which is none of HTTP.
const HANDSHAKE_BYTE: u8 = 0x16;

/// Most bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// A running console.
pub struct ConsoleServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    listener: JoinHandle<()>,
    ticker: JoinHandle<()>,
    renewal: Renewal,
}

impl std::fmt::Debug for ConsoleServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ConsoleServer {
    /// Starts to listen, on the runtime of the caller.
    ///
    /// # Errors
    /// The options cannot be used, TLS cannot be loaded, or the address cannot be listened on.
    pub async fn start(admin: Arc<dyn Admin>, options: ConsoleOptions) -> Result<ConsoleServer, ConsoleError> {
        options.check()?;
        let (renewal, certificate) = Renewal::first(options.tls.clone())?;
        let listen = |error| ConsoleError::Listen { address: options.listen, error };
        let listener = TcpListener::bind(options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = watch::channel(false);
        let door = options.admission.door("console", "console", options.sockets());
        let failed = Arc::clone(&options.failed);
        let (ticker, snapshot) = Ticker::start(Arc::clone(&admin), stopped.clone(), Arc::clone(&failed));
        let state = ConsoleState::new(admin, options, address.port(), (snapshot, stopped));
        let router = routes::router(&state);
        let accept = accept(listener, door, certificate, (state, router));
        let listener = node::task::supervised("console-listener", accept, move |why| failed(why));
        Ok(ConsoleServer { address, stop, listener, ticker, renewal })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The handle that puts another certificate in force.
    pub fn renewal(&self) -> Renewal {
        self.renewal.clone()
    }

    /// Accepts no more connections and requests, and ends streams; requests that run may end for a while.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // These fail only if they panicked, which was reported.
        let _ = self.listener.await;
        let _ = self.ticker.await;
    }
}

async fn accept(
    listener: TcpListener,
    door: Door,
    in_force: watch::Receiver<Option<TlsInForce>>,
    (state, router): (Arc<ConsoleState>, Router),
) {
    let mut stop = state.stop.clone();
    let mut connections = JoinSet::new();
    let policy = || Policy { bounds: state.options.sockets(), peers: Vec::new() };
    loop {
        let (socket, peer, permit) = tokio::select! {
            accepted = door.accept(&listener, policy) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection of the console ended by a panic");
                }
                continue;
            }
        };
        let (state, router, tls) = (Arc::clone(&state), router.clone(), in_force.borrow().clone());
        connections.spawn(async move { connection((socket, peer, permit), tls, (&state, router)).await });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, ended).await.is_err() {
        connections.abort_all();
        while connections.join_next().await.is_some() {}
    }
}

/// One connection, from its first byte to its last.
async fn connection(
    (socket, peer, permit): (TcpStream, SocketAddr, Permit),
    tls: Option<TlsInForce>,
    served: (&Arc<ConsoleState>, Router),
) {
    // Without these options a peer that has disappeared is noticed late.
    let _ = socket::prepare(&socket);
    let Some(tls) = tls else {
        return serve(socket, ConsolePeer { address: peer, tls: false }, permit, served).await;
    };
    let (mut ending, mut stop) = (permit.ending(), served.0.stop.clone());
    let handshake = async {
        let mut first = [0];
        let is_plain = socket.peek(&mut first).await? == 0 || first[0] != HANDSHAKE_BYTE;
        if is_plain && served.0.options.tls.as_ref().is_none_or(|tls| tls.required) {
            return Err(std::io::Error::other("it does not use TLS, which is required"));
        }
        if is_plain {
            Ok(OpenedSocket::Plain(socket))
        } else {
            Ok(OpenedSocket::Secured(Box::new(tls.acceptor.accept(socket).await?)))
        }
    };
    let opened = tokio::select! {
        opened = timeout(PEER_TIME, handshake) => opened,
        _ = ending.ended() => return,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    match opened {
        Ok(Ok(OpenedSocket::Plain(socket))) => {
            serve(socket, ConsolePeer { address: peer, tls: false }, permit, served).await;
        }
        Ok(Ok(OpenedSocket::Secured(socket))) => {
            permit.connection().secured();
            serve(socket, ConsolePeer { address: peer, tls: true }, permit, served).await;
        }
        Ok(Err(error)) => permit.note(Reason::Handshake, &format!("{peer}: {error}")),
        Err(_) => permit.note(Reason::Handshake, &format!("{peer}: no handshake in time")),
    }
}

/// A socket whose kind is known.
enum OpenedSocket {
    Plain(TcpStream),
    Secured(Box<tokio_rustls::server::TlsStream<TcpStream>>),
}

/// Serves the requests of a connection until one side ends it.
async fn serve<S>(socket: S, peer: ConsolePeer, mut permit: Permit, (state, router): (&Arc<ConsoleState>, Router))
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (proof, connection) = (ConnectionProof::new(permit.connection()), Arc::clone(permit.connection()));
    let socket = CountedIo::new(socket, &connection);
    let service = service_fn(|request: Request<Incoming>| {
        let (state, router, proof) = (Arc::clone(state), router.clone(), proof.clone());
        connection.began(1);
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(proof);
            Ok::<_, Infallible>(answer::answer(&state, router, request).await)
        }
    });
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(PEER_TIME).max_buf_size(HEAD_BYTES_MAX);
    let mut served = std::pin::pin!(protocol.serve_connection(TokioIo::new(socket), service));
    let (mut ending, mut stop, mut is_last) = (permit.ending(), state.stop.clone(), false);
    loop {
        tokio::select! {
            // Peers that end their connections, and those that send no HTTP, are nothing to report.
            _ = served.as_mut() => return,
            _ = ending.ended() => return,
            _ = stop.wait_for(|stop| *stop), if !is_last => {
                is_last = true;
                served.as_mut().graceful_shutdown();
            }
            () = proof.proven() => permit.prove(),
        }
    }
}
