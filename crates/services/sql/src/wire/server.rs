//! The listener: takes connections in that the node's admission lets in, and ends them when it is told to.
//!
//! Who has not logged in can lose its place to another, and waits for nobody's: that there is no place for one more session is
//! found out, and told, after the login.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use device::supervise::caught;
use node::{Admission, Door, Permit, Policy, Reason, socket};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::error::Elapsed;
use tokio_rustls::TlsAcceptor;

use super::apart::{self, GRACE as GRACE_OF_SESSION};
use super::connection::{Broken, Connection};
use super::fault::Fault;
use super::login::{self, Entered};
use super::options::{WireError, WireOptions};
use super::registry::Registry;
use super::scram::Mock;
use crate::Engine;

/// What connections get to end in order before they are cut off: twice what a session gets, which is told, and then cut off.
const GRACE: Duration = GRACE_OF_SESSION.saturating_mul(2);

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    pub(super) options: WireOptions,
    pub(super) registry: Arc<Registry>,
    pub(super) mock: Mock,
    pub(super) stop: watch::Receiver<bool>,
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    registry: Arc<Registry>,
    admission: Arc<Admission>,
    listener: JoinHandle<()>,
    renewal: Renewal,
}

/// Renews the certificate of a server that runs.
#[derive(Clone)]
pub struct Renewal {
    options: WireOptions,
    certificate: watch::Sender<Option<TlsAcceptor>>,
}

impl std::fmt::Debug for Renewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}

impl Renewal {
    /// Whether there is TLS.
    pub fn is_needed(&self) -> bool {
        self.options.tls.is_some()
    }

    /// Reads certificate and key again; they are in force for connections to come once the answer is called.
    ///
    /// Errors: [`WireError::Tls`]; nothing changes.
    pub fn read(&self) -> Result<impl FnOnce() + Send + use<>, WireError> {
        let (acceptor, certificate) = (load(&self.options)?, self.certificate.clone());
        Ok(move || _ = certificate.send_replace(acceptor))
    }
}

impl Server {
    /// Starts to listen, on the runtime that this is called in.
    pub async fn start(engine: Arc<Engine>, options: WireOptions) -> Result<Server, WireError> {
        options.check()?;
        let (certificate, renewed) = watch::channel(load(&options)?);
        let listen = |error| WireError::Listen { address: options.listen, error };
        let listener = TcpListener::bind(options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = watch::channel(false);
        let registry = Arc::new(Registry::default());
        let mock = options.mock_secret.map_or_else(Mock::new, |secret| Ok(Mock::of(secret)))?;
        let admission = Arc::clone(&options.admission);
        let door = admission.door("sql", "sql", options.sockets());
        let (tls, sink) = (options.clone(), engine.store.clone());
        let shared = Shared { engine, options, registry: Arc::clone(&registry), mock, stop: stopped };
        let listener = tokio::spawn(async move {
            if let Err(why) = caught(accept(listener, door, renewed, Arc::new(shared))).await {
                sink.fail(&format_args!("the listener of SQL panicked: {why}"));
            }
        });
        Ok(Server { address, stop, registry, admission, listener, renewal: Renewal { options: tls, certificate } })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What decides on who may connect.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// The way to put another certificate in force.
    pub fn renewal(&self) -> Renewal {
        self.renewal.clone()
    }

    /// Takes no more connections, ends what runs with SQLSTATE 57014, tells the clients and closes.
    pub async fn stop(self) {
        // Only a listener that is gone already does not hear it.
        let _ = self.stop.send(true);
        self.registry.terminate_all();
        let _ = self.listener.await;
    }
}

fn load(options: &WireOptions) -> Result<Option<TlsAcceptor>, WireError> {
    Ok(options.tls.as_ref().map(|tls| tls.load()).transpose()?.map(TlsAcceptor::from))
}

async fn accept(
    listener: TcpListener,
    door: Door,
    certificate: watch::Receiver<Option<TlsAcceptor>>,
    shared: Arc<Shared>,
) {
    let mut stop = shared.stop.clone();
    let mut connections = JoinSet::new();
    let policy = || Policy { bounds: shared.options.sockets(), peers: Vec::new() };
    loop {
        let (socket, peer, permit) = tokio::select! {
            accepted = door.accept(&listener, policy) => accepted,
            _ = stop.changed() => break,
            Some(ended) = connections.join_next() => {
                // A panic is a fault of ours; it ends the connection that it came in, and its transaction, and no other.
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection ended by a panic");
                }
                continue;
            }
        };
        let (shared, acceptor) = (Arc::clone(&shared), certificate.borrow().clone());
        connections.spawn(async move { connection(socket, (peer, permit), acceptor, &shared).await });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::warn!("connections did not end in time and are cut off");
        connections.shutdown().await;
    }
}

/// One connection, from its first byte to its last.
async fn connection(
    socket: TcpStream,
    (peer, mut permit): (SocketAddr, Permit),
    acceptor: Option<TlsAcceptor>,
    shared: &Arc<Shared>,
) {
    // Without these options answers are slower, and a peer that is gone is noticed late.
    let _ = socket::prepare(&socket);
    let mut connection = Connection::new(Box::new(socket), shared.options.message_bytes_max);
    let opened = open(&mut connection, (peer, &mut permit), acceptor, shared).await;
    let ended = match opened {
        Ok(Ok(Some(entered))) => return apart::serve(connection, entered, shared, (peer, permit)).await,
        Ok(Ok(None)) => Err(Broken::Closed),
        Ok(Err(broken)) => Err(broken),
        Err(_) => {
            permit.note(Reason::Handshake, &format!("{peer}: no login in time"));
            let fault = Fault::new("57014", "canceling authentication due to timeout");
            Err(Broken::fatal(fault))
        }
    };
    end(&mut connection, ended, peer).await;
}

/// Tells the client why its connection ends, and ends it.
pub(super) async fn end(connection: &mut Connection, ended: Result<(), Broken>, peer: SocketAddr) {
    let mut last = None;
    match ended {
        Ok(()) | Err(Broken::Closed) => {}
        Err(Broken::Io(error)) => tracing::debug!(%peer, %error, "connection lost"),
        Err(Broken::Fatal(fault)) => {
            tracing::debug!(%peer, code = fault.code, "connection ended");
            last = Some(fault.reply(true));
        }
    }
    // A client that does not read cannot hold this up for ever, and one that is gone cannot be told.
    let _ = tokio::time::timeout(GRACE_OF_SESSION, async {
        if let Some(last) = last {
            let _ = connection.reply(last).await;
        }
        connection.close().await;
    })
    .await;
}

/// The login, within its time. A connection that loses its place to another meanwhile is over, and so are all on stop.
async fn open(
    connection: &mut Connection,
    (peer, permit): (SocketAddr, &mut Permit),
    acceptor: Option<TlsAcceptor>,
    shared: &Arc<Shared>,
) -> Result<Result<Option<Entered>, Broken>, Elapsed> {
    // Its own, since the login has the permit.
    let (mut ending, mut stop) = (permit.ending(), shared.stop.clone());
    let login = login::log_in(connection, (peer, permit), acceptor, shared);
    tokio::select! {
        opened = tokio::time::timeout(shared.options.login, login) => opened,
        _ = ending.ended() => Ok(Err(Broken::Closed)),
        _ = stop.wait_for(|stop| *stop) => Ok(Err(Broken::Closed)),
    }
}
