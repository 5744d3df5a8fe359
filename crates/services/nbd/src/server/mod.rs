//! The server: exports devices over unix sockets, TCP and TLS.
//!
//! ```text
//!   listeners --admission--> connection: negotiation --> session on a worker
//!                                                          transmission   receive, submit, send
//!                                                          work, pieces   requests inside the device
//!   exports   device, locks, limits, epoch, sessions       outbox, pool   replies and buffers
//!   rights    who a connection is, and what it may open    recorder       what is opened, for the audit
//! ```
//!
//! Invariants: a session has no thread of its own, and while it waits no buffer; a client's requests, memory and time for
//! negotiation are bounded, and others do not wait for it; an export ends only after what its sessions have begun; with
//! rights nothing about an export shows, and nothing is done with it, without them, an open session's included.
//!
//! Devices are called on the worker's thread. One that waits for a medium inside [`device::Device::submit`] belongs
//! behind [`Threaded`], so that other sessions go on. Files and volumes do not: they wait by themselves
//! ([`device::Device::waits_by_itself`]).

mod connection;
mod export;
mod limiter;
mod mailbox;
mod origin;
mod outbox;
mod pieces;
mod pool;
mod range_locks;
mod recorder;
mod registry;
mod rights;
mod threaded;
mod transmission;
mod work;
mod workers;

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use node::{Admission, Bounds, Door, Network, Permit, Policy};
use parking_lot::{Mutex, RwLock};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use self::connection::Shared;
use self::origin::Origin;
use self::registry::Registry;
use self::rights::Rights;
use self::workers::Worker;
use crate::error::NbdError;
use crate::protocol::negotiation::TlsPolicy;
use crate::socket::Socket;
use crate::tls::ServerTls;

pub use self::export::{EpochGate, Export, ExportStatus};
pub use self::limiter::Limits;
pub use self::rights::ServerRights;
pub use self::threaded::Threaded;

/// Send buffer of a session's socket: replies of a queue of 64 reads of 4 KiB are sent by one call. Linux doubles it, and
/// takes no more than `net.core.wmem_max`.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// Mode of a unix socket: only the user of this process may open it.
const SOCKET_MODE: u32 = 0o600;

/// Mode of a unix socket that all users of this machine may open, where there are rights.
const SHARED_SOCKET_MODE: u32 = 0o666;

/// The least time between two looks at all sessions.
const REVISE_PAUSE: Duration = Duration::from_millis(50);

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Threads for sessions. Default: one for each processor, at most 8.
    pub workers: usize,
    /// Connections at a time. Default: 4,096, of one address as many.
    pub bounds: Bounds,
    /// From where connections over TCP may come; empty: from everywhere. Default: empty.
    pub peers: Vec<Network>,
    /// Time for negotiation, with TLS. Default: 10 s.
    pub handshake: Duration,
    /// Memory of all sessions for requests and replies, beyond 256 KiB for each. Default: 512 MiB.
    pub memory: u64,
    /// How long a client may hold memory for which others wait and neither take its replies nor send the rest of its write. Default: 10 s.
    pub stall: Duration,
    /// Certificates. Default: none.
    pub tls: Option<ServerTls>,
    /// Whether TCP beyond this machine is allowed without TLS. Default: false.
    pub plaintext: bool,
    /// Who may open what. Default: none, and who can connect may do everything.
    pub rights: Option<ServerRights>,
    /// Whether all users of this machine may open the unix socket. It has no effect without rights. Default: false.
    pub shared_socket: bool,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            workers: std::thread::available_parallelism().map_or(1, usize::from).min(8),
            bounds: Bounds::of(4096, None),
            peers: Vec::new(),
            handshake: Duration::from_secs(10),
            memory: 512 << 20,
            stall: Duration::from_secs(10),
            tls: None,
            plaintext: false,
            rights: None,
            shared_socket: false,
        }
    }
}

/// A running server. Dropping it ends it at once; [`NbdServer::stop`] lets sessions end what they have begun.
pub struct NbdServer {
    registry: Arc<Registry>,
    workers: Arc<[Worker]>,
    shared: Shared,
    options: ServerOptions,
    admission: Arc<Admission>,
    failed: Arc<dyn Fn(&str) + Send + Sync>,
    stop: watch::Sender<bool>,
    sockets: Mutex<Vec<PathBuf>>,
}

impl fmt::Debug for NbdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdServer").field("exports", &self.registry.names()).finish_non_exhaustive()
    }
}

impl NbdServer {
    /// Starts the workers. `failed` gets the text of a panic of a worker or a listener, after which the server is of no
    /// use.
    ///
    /// # Errors
    /// [`NbdError::Tls`], [`NbdError::Thread`].
    pub fn start(
        options: ServerOptions,
        admission: &Arc<Admission>,
        failed: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<NbdServer, NbdError> {
        let registry = Arc::new(Registry::new(options.memory, options.stall));
        let failed: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(failed);
        let workers = (0..options.workers.max(1)).map(|number| workers::start(number, Arc::clone(&failed)));
        let workers = workers.collect::<Result<Vec<_>, _>>()?.into();
        let policy = match &options.tls {
            None => TlsPolicy::Off,
            Some(tls) if tls.required => TlsPolicy::Required,
            Some(_) => TlsPolicy::Offered,
        };
        let tls = Arc::new(RwLock::new(options.tls.as_ref().map(ServerTls::load).transpose()?));
        let rights = options.rights.as_ref().map(Rights::new);
        let shared = Shared { registry: Arc::clone(&registry), tls, policy, handshake: options.handshake, rights };
        let (admission, stop) = (Arc::clone(admission), watch::Sender::new(false));
        let sockets = Mutex::default();
        let server = NbdServer { registry, workers, shared, options, admission, failed, stop, sockets };
        if let Some(rights) = server.shared.rights.clone() {
            server.watch_rights(rights);
        }
        Ok(server)
    }

    /// Puts changed rights in force for the open sessions, and enters what they open into the audit.
    fn watch_rights(&self, rights: Arc<Rights>) {
        if let Some(work) = rights.recorder().and_then(recorder::Recorder::work) {
            self.listen("nbd-audit", async move {
                work.await;
                Ok(())
            });
        }
        let (registry, mut changed) = (Arc::clone(&self.registry), rights.guard.changed());
        self.listen("nbd-rights", async move {
            while changed.changed().await.is_ok() {
                registry.revise(&rights.guard.view());
                tokio::time::sleep(REVISE_PAUSE).await;
            }
            Ok(())
        });
    }

    /// Listens on a TCP address; returns it with the port that the system chose, if it was 0.
    ///
    /// # Errors
    /// [`NbdError::Plaintext`], [`NbdError::Listen`].
    pub fn listen_tcp(&self, address: SocketAddr) -> Result<SocketAddr, NbdError> {
        let is_protected = self.shared.policy == TlsPolicy::Required;
        if !address.ip().is_loopback() && !is_protected && !self.options.plaintext {
            return Err(NbdError::Plaintext { address: address.to_string() });
        }
        let failed = |source| NbdError::Listen { address: address.to_string(), source };
        let listener = node::service_manager::listen_without_runtime("volumes", address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let (bounds, peers) = (self.options.bounds, self.options.peers.clone());
        let seats = self.seats();
        let door = self.door();
        self.listen("nbd-tcp", async move {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let policy = || Policy { bounds, peers: peers.clone() };
                let (stream, address, permit) = door.accept(&listener, policy).await;
                if node::socket::prepare(&stream).is_ok() {
                    seats.sit(stream.into_std()?, permit, move |stream| {
                        let socket = Socket::Tcp(tokio::net::TcpStream::from_std(stream)?);
                        Ok((socket, Origin::Tcp(address.ip())))
                    });
                }
            }
        });
        Ok(bound)
    }

    /// Listens on a unix socket, which only the user of this process may open unless it is shared. A socket there that nobody listens on is
    /// replaced; another file is not.
    ///
    /// # Errors
    /// [`NbdError::Listen`].
    pub fn listen_unix(&self, path: &Path) -> Result<(), NbdError> {
        let failed = |source| NbdError::Listen { address: path.display().to_string(), source };
        let is_left_over = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
            && std::os::unix::net::UnixStream::connect(path).is_err();
        if is_left_over {
            std::fs::remove_file(path).map_err(failed)?;
        }
        let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
        self.sockets.lock().push(path.to_owned());
        let is_shared = self.options.shared_socket && self.shared.rights.is_some();
        let mode = if is_shared { SHARED_SOCKET_MODE } else { SOCKET_MODE };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        // All clients of a unix socket are one origin.
        let bounds = Bounds { of_address: self.options.bounds.sockets, ..self.options.bounds };
        let seats = self.seats();
        let door = self.door();
        self.listen("nbd-unix", async move {
            let listener = UnixListener::from_std(listener)?;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let Some(permit) = door.admit_local(&stream, bounds) else { continue };
                        let _ = socket2::SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES);
                        let take = |stream| {
                            let stream = tokio::net::UnixStream::from_std(stream)?;
                            let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                            Ok((Socket::Unix(stream), Origin::Local(uid)))
                        };
                        seats.sit(stream.into_std()?, permit, take);
                    }
                    Err(error) => door.not_accepted(&error).await,
                }
            }
        });
        Ok(())
    }

    /// Runs a listener, or another task of the server, on the first worker until the server stops.
    fn listen(&self, name: &'static str, accept: impl Future<Output = std::io::Result<()>> + Send + 'static) {
        let mut stop = self.stop.subscribe();
        let failed = Arc::clone(&self.failed);
        let told = Arc::clone(&self.failed);
        let _inside = self.workers[0].handle.enter();
        let work = async move {
            tokio::select! {
                ended = accept => if let Err(error) = ended {
                    told(&format!("the listener {name} ended: {error}"));
                },
                _ = stop.wait_for(|stop| *stop) => {}
            }
        };
        node::task::supervised(name, work, move |why| failed(why));
    }

    fn door(&self) -> Door {
        self.admission.door("nbd", "nbd", self.options.bounds)
    }

    fn seats(&self) -> Seats {
        Seats { workers: Arc::clone(&self.workers), shared: self.shared.clone() }
    }

    /// Exports a device.
    ///
    /// # Errors
    /// [`NbdError::Name`], [`NbdError::AlreadyExported`]; [`NbdError::StillBusy`]: the device has requests of an export of this name that
    /// was removed.
    pub fn add(&self, export: Export) -> Result<(), NbdError> {
        self.registry.add(export)
    }

    /// Ends an export: nobody opens it any more; requests that have begun are completed and replied to, later ones get
    /// `ESHUTDOWN`, and after `patience` sessions are cut off. When it returns `Ok`, nothing of it is in the device.
    ///
    /// # Errors
    /// [`NbdError::NoExport`]; [`NbdError::StillBusy`]: the device has not completed requests for a long time. Nobody opens the export any
    /// more then; the next call waits for the same requests.
    pub async fn remove(&self, name: &str, patience: Duration) -> Result<(), NbdError> {
        let exports = self.registry.take(name);
        if exports.is_empty() {
            return Err(NbdError::NoExport { name: name.to_owned() });
        }
        let mut left = 0;
        for export in &exports {
            left += export.close(patience).await;
        }
        self.registry.forget_left(name);
        if left == 0 { Ok(()) } else { Err(NbdError::StillBusy { name: name.to_owned(), sessions: left }) }
    }

    /// Puts other limits of an export in force at once, also for its open sessions.
    ///
    /// # Errors
    /// [`NbdError::NoExport`].
    pub fn limit(&self, name: &str, limits: Limits) -> Result<(), NbdError> {
        let export = self.registry.get(name).ok_or_else(|| NbdError::NoExport { name: name.to_owned() })?;
        export.limit(limits);
        Ok(())
    }

    /// Reads certificates, authorities and revocations again. New connections use them once the returned function was
    /// called; open ones keep theirs.
    ///
    /// # Errors
    /// [`NbdError::Tls`]; nothing changes.
    pub fn renew(&self) -> Result<impl FnOnce() + Send + use<>, NbdError> {
        let acceptor = self.options.tls.as_ref().map(ServerTls::load).transpose()?;
        let tls = Arc::clone(&self.shared.tls);
        Ok(move || *tls.write() = acceptor)
    }

    /// What each export has done.
    pub fn status(&self) -> Vec<ExportStatus> {
        self.registry.status()
    }

    /// Accepts nobody any more, and ends all exports as [`NbdServer::remove`] does.
    ///
    /// # Errors
    /// [`NbdError::StillBusy`], for the first export of which it is true.
    pub async fn stop(self, patience: Duration) -> Result<(), NbdError> {
        self.stop.send_replace(true);
        let mut result = Ok(());
        for name in self.registry.names() {
            match self.remove(&name, patience).await {
                // It was removed, and its last session has ended meanwhile.
                Err(NbdError::NoExport { .. }) => {}
                removed => result = result.and(removed),
            }
        }
        result
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for path in self.sockets.lock().drain(..) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where accepted connections go.
struct Seats {
    workers: Arc<[Worker]>,
    shared: Shared,
}

impl Seats {
    /// Serves a connection on a worker, whose event loop has to know its socket.
    fn sit<T: Send + 'static>(
        &self,
        stream: T,
        permit: Permit,
        register: impl FnOnce(T) -> std::io::Result<(Socket, Origin)> + Send + 'static,
    ) {
        let seat = workers::seat(&self.workers);
        let (shared, pool) = (self.shared.clone(), Arc::clone(&seat.worker().pool));
        let handle = seat.worker().handle.clone();
        let _inside = handle.enter();
        node::task::session("nbd", async move {
            match register(stream) {
                Ok(socket) => connection::serve(shared, socket, permit, pool).await,
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
            drop(seat);
        });
    }
}
