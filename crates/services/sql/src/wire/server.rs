//! The listener: takes connections in, up to a number, and ends them when it is told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::connection::{Broken, Connection};
use super::fault::Fault;
use super::login;
use super::options::{WireError, WireOptions};
use super::registry::Registry;
use super::scram::Mock;
use super::serve::Serving;
use crate::Engine;

/// What connections get to end in order before they are cut off.
const GRACE: Duration = Duration::from_secs(10);

/// Pause after the system refused to accept, for want of file numbers for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    listener: JoinHandle<()>,
}

impl Server {
    /// Starts to listen, on the runtime that this is called in.
    pub async fn start(engine: Arc<Engine>, options: WireOptions) -> Result<Server, WireError> {
        options.check()?;
        let acceptor = options.tls.as_ref().map(|tls| tls.load()).transpose()?.map(TlsAcceptor::from);
        let listen = |error| WireError::Listen { address: options.listen, error };
        let listener = TcpListener::bind(options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = watch::channel(false);
        let registry = Arc::new(Registry::default());
        let mock = Mock::new()?;
        let shared = Shared { engine, options, registry: Arc::clone(&registry), mock, stop: stopped };
        let listener = tokio::spawn(accept(listener, acceptor, Arc::new(shared)));
        Ok(Server { address, stop, registry, listener })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, ends what runs with SQLSTATE 57014, tells the clients and closes.
    pub async fn stop(self) {
        // Only a listener that is gone already does not hear it.
        let _ = self.stop.send(true);
        self.registry.cancel_all();
        let _ = self.listener.await;
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(shared.options.connections_max));
    let mut stop = shared.stop.clone();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
            Some(ended) = connections.join_next() => {
                // A panic is a fault of ours; it ends the connection that it came in, and its transaction, and no other.
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection ended by a panic");
                }
                continue;
            }
        };
        match accepted {
            Ok((socket, peer)) => {
                let place = Arc::clone(&places).try_acquire_owned().ok();
                let (shared, acceptor) = (Arc::clone(&shared), acceptor.clone());
                connections.spawn(async move {
                    let has_place = place.is_some();
                    connection(socket, peer, acceptor, &shared, has_place).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
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
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    shared: &Arc<Shared>,
    has_place: bool,
) {
    // Small answers should not wait for each other; without it they are only slower.
    let _ = socket.set_nodelay(true);
    let mut connection = Connection::new(Box::new(socket), shared.options.message_bytes_max);
    let limit = shared.options.login;
    let opened = tokio::time::timeout(limit, login::log_in(&mut connection, peer, acceptor, shared, has_place)).await;
    let ended = match opened {
        Ok(Ok(Some(entered))) => Serving::new(&mut connection, entered, shared).run().await,
        Ok(Ok(None)) => Err(Broken::Closed),
        Ok(Err(broken)) => Err(broken),
        Err(_) => {
            let fault = Fault::new("57014", "canceling authentication due to timeout");
            Err(Broken::fatal(fault))
        }
    };
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
    let _ = tokio::time::timeout(GRACE, async {
        if let Some(last) = last {
            let _ = connection.reply(last).await;
        }
        connection.close().await;
    })
    .await;
}
