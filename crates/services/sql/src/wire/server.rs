//! The listener: accepts the connections that the node's admission allows, and ends them when the server stops.
//!
//! A connection without a login can lose its place to another one, and waits for no place: whether there is a place for
//! one more session is checked, and reported, after the login.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use device::supervise::caught;
use node::identity::Guard;
use node::{Admission, CountedIo, Door, Permit, Policy, Reason, Renewal, SharedSocket, TlsInForce, socket};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio::time::error::Elapsed;

use super::connection::Connection;
use super::connection_error::ConnectionError;
use super::error_response::ErrorResponse;
use super::figures::SqlFigures;
use super::login::{self, Entered};
use super::reader::SqlReader;
use super::registry::Registry;
use super::server_options::{WireError, WireOptions};
use super::server_state::ServerState;
use super::session_thread;
use super::session_thread::GRACE as GRACE_OF_SESSION;
use crate::Engine;

/// The time that connections get to end by themselves before they are cut off: twice the time of a session, which is
/// asked to end and then cut off.
const GRACE: Duration = GRACE_OF_SESSION.saturating_mul(2);

/// A running server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    registry: Arc<Registry>,
    admission: Arc<Admission>,
    listener: JoinHandle<()>,
    renewal: Renewal,
    figures: Arc<SqlFigures>,
    reader: SqlReader,
}

impl Server {
    /// Starts to listen, on the runtime of the caller.
    pub async fn start(engine: Arc<Engine>, guard: Arc<Guard>, options: WireOptions) -> Result<Server, WireError> {
        options.check()?;
        let (renewal, renewed) = Renewal::first(options.tls.clone())?;
        let listen = |error| WireError::Listen { address: options.listen, error };
        let listener = node::service_manager::listen("sql", options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = watch::channel(false);
        let registry = Arc::new(Registry::default());
        let admission = Arc::clone(&options.admission);
        let door = admission.door("sql", "sql", options.sockets());
        let sink = engine.store.clone();
        let figures = Arc::<SqlFigures>::default();
        let (registered, counted) = (Arc::clone(&registry), Arc::clone(&figures));
        let shared = ServerState { engine, options, registry: registered, figures: counted, guard, stop: stopped };
        let shared = Arc::new(shared);
        let reader = SqlReader::new(Arc::clone(&shared));
        let listener = tokio::spawn(async move {
            if let Err(why) = caught(accept(listener, door, renewed, shared)).await {
                sink.fail(&format_args!("the listener of SQL panicked: {why}"));
            }
        });
        Ok(Server { address, stop, registry, admission, listener, renewal, figures, reader })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The admission that decides which connections are accepted.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// The handle that puts another certificate in force.
    pub fn renewal(&self) -> Renewal {
        self.renewal.clone()
    }

    /// What clients have asked for since the start.
    pub fn figures(&self) -> &Arc<SqlFigures> {
        &self.figures
    }

    /// Runs statements that read for callers of other ports of this process.
    pub fn reader(&self) -> SqlReader {
        self.reader.clone()
    }

    /// Accepts no more connections, ends running statements with SQLSTATE 57014, notifies the clients and closes.
    pub async fn stop(self) {
        // This fails only if the listener has already ended.
        let _ = self.stop.send(true);
        self.registry.terminate_all();
        let _ = self.listener.await;
    }
}

/// How often clients are looked for that have disconnected.
const LOOKS: Duration = Duration::from_millis(250);

async fn accept(
    listener: TcpListener,
    door: Door,
    certificate: watch::Receiver<Option<TlsInForce>>,
    shared: Arc<ServerState>,
) {
    let mut stop = shared.stop.clone();
    let mut connections = JoinSet::new();
    let mut rights = shared.guard.changed();
    let policy = || Policy { bounds: shared.options.sockets(), peers: Vec::new() };
    let no_place = no_place();
    let mut looks = tokio::time::interval(LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (socket, peer, permit) = tokio::select! {
            accepted = door.accept_or_tell(&listener, policy, &no_place) => accepted,
            _ = stop.changed() => break,
            // The guard lives as long as this task.
            _ = rights.changed() => {
                shared.registry.end_revoked(&shared.guard.view());
                continue;
            }
            _ = looks.tick() => {
                shared.registry.end_abandoned();
                continue;
            }
            Some(ended) = connections.join_next() => {
                // A panic is a fault of this program. It ends its own connection and transaction, and no other.
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection ended by a panic");
                }
                continue;
            }
        };
        let (shared, tls) = (Arc::clone(&shared), certificate.borrow().clone());
        connections.spawn(async move { connection(socket, (peer, permit), tls, &shared).await });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::warn!("connections did not end in time; they are cut off");
        connections.shutdown().await;
    }
}

/// What a client reads for which there is no place: as PostgreSQL, before its first message is read.
fn no_place() -> BytesMut {
    let response = ErrorResponse::new("53300", "sorry, too many clients already")
        .with_hint("All connections are taken, or all that one address may have: close some, or set connections and connections_per_address in [sql].");
    let mut bytes = BytesMut::new();
    // It is a text of ours, and the buffer grows.
    let _ = response.reply(true).encode(&mut bytes);
    bytes
}

/// One connection, from its first byte to its last.
async fn connection(
    socket: TcpStream,
    (peer, mut permit): (SocketAddr, Permit),
    tls: Option<TlsInForce>,
    shared: &Arc<ServerState>,
) {
    // Without these options replies are slower, and a peer that has disappeared is noticed late.
    let _ = socket::prepare(&socket);
    let socket = SharedSocket::new(socket);
    let counted = CountedIo::new(socket.clone(), permit.connection());
    let mut connection = Connection::new(Box::new(counted), shared.options.message_bytes_max);
    let opened = open(&mut connection, (peer, &mut permit), tls, shared).await;
    let ended = match opened {
        Ok(Ok(Some(entered))) => {
            return session_thread::serve((connection, socket), entered, shared, (peer, permit)).await;
        }
        Ok(Ok(None)) => Err(ConnectionError::Closed),
        Ok(Err(broken)) => Err(broken),
        Err(_) => {
            permit.note(Reason::Handshake, &format!("{peer}: no login in time"));
            let response = ErrorResponse::new("57014", "canceling authentication due to timeout");
            Err(ConnectionError::fatal(response))
        }
    };
    connection.end(ended, peer, GRACE_OF_SESSION).await;
}

/// Runs the login, within its time. It ends if the connection loses its place to another one, and when the server
/// stops.
async fn open(
    connection: &mut Connection,
    (peer, permit): (SocketAddr, &mut Permit),
    tls: Option<TlsInForce>,
    shared: &Arc<ServerState>,
) -> Result<Result<Option<Entered>, ConnectionError>, Elapsed> {
    // A separate receiver, because the login has the permit.
    let (mut ending, mut stop) = (permit.ending(), shared.stop.clone());
    let login = login::log_in(connection, (peer, permit), tls, shared);
    tokio::select! {
        opened = tokio::time::timeout(shared.options.login, login) => opened,
        _ = ending.ended() => Ok(Err(ConnectionError::Closed)),
        _ = stop.wait_for(|stop| *stop) => Ok(Err(ConnectionError::Closed)),
    }
}
