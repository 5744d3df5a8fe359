//! The MLLP service: accepts connections, takes frames, sends acknowledgements.
//!
//! ```text
//! accept -> access rules, admission: is there a place? -> connection, which must keep a minimum pace
//! ```
//!
//! Invariants:
//! 1. Frames of one connection are taken in order and answered in order; several frames in one read are committed
//!    together (up to `PIPELINE`), none is lost.
//! 2. An answer is written only after the record is durable. If the node fails, messages are refused with the reason,
//!    and the connection stays; if the node stops first, the connection closes without an answer.
//! 3. A connection holds at most one message over the size bound plus one read in memory, and all connections together what
//!    the service's `frame_memory` and the node's allow.
//! 4. A reload does not touch connections: each message uses the plan in force, and each frame the limits of the settings in force
//!    when it begins.
//! 5. Outside the service's schedule a connection is closed before a byte of it is read, and one that is open when it closes, after the answers to
//!    the frames that were read: the sender sees that it is disconnected, keeps its messages and tries again. Nothing is refused by an
//!    acknowledgement, on which a sender could give a message up. The socket stays bound.
//! 6. Log lines name the service, the peer and counts; never bytes of a message. The number of log lines is bounded,
//!    whatever peers do.

mod connection;
mod pace;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node::Reason;
use node::task::session;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::engine::Engine;
use crate::error::InteropError;
use crate::plan::PlannedService;
use crate::production::{Service, settings};

use connection::Connection;

/// Frames taken from one connection before their answers are written: bounds the messages in flight of one sender.
const PIPELINE: usize = 64;

/// Read ahead while a message waits for room: enough to see that the sender has closed.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// A peer that does not read its answers for this long is disconnected.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// How often the schedule is looked at: by the clock, which can be set.
const LOOK: Duration = Duration::from_secs(1);

/// A peer over TLS gets so long to hear that the connection ends.
const CLOSING: Duration = Duration::from_secs(10);

/// The state that connections of one listener share; `service` changes at a reload.
#[derive(Debug)]
pub struct Listening {
    /// The socket's address, the port resolved.
    pub address: SocketAddr,
    service: watch::Sender<Arc<PlannedService>>,
    stop: watch::Sender<bool>,
}

impl Listening {
    /// Puts another version of the service in force, for connections there are and to come.
    pub fn replace(&self, service: Arc<PlannedService>) {
        self.service.send_replace(service);
    }

    /// The present service.
    pub fn service(&self) -> Arc<PlannedService> {
        Arc::clone(&self.service.borrow())
    }

    /// Stops listening; connections end after the message they are at.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Binds the service's address; nothing is accepted before `serve`.
///
/// # Errors
/// `Listen`.
pub async fn bind(service: &Service, address: SocketAddr) -> Result<TcpListener, InteropError> {
    node::service_manager::listen(&service.name, address).await.map_err(|source| InteropError::Listen {
        service: service.name.clone(),
        address,
        source,
    })
}

/// Accepts connections until stopped.
pub fn serve(engine: Arc<Engine>, service: Arc<PlannedService>, listener: TcpListener) -> io::Result<Listening> {
    let address = listener.local_addr()?;
    let (stop, mut stopped) = watch::channel(false);
    let door = engine.admission.door("mllp", &service.name, settings_of(&service).policy().bounds);
    let service = watch::Sender::new(service);
    let listening = Listening { address, service: service.clone(), stop };
    let message_log = Arc::clone(&engine.message_log);
    let closed = watch_schedule(&engine, &service, &stopped);
    message_log.supervise("mllp", async move {
        loop {
            let policy = || settings_of(&service.borrow()).policy();
            let admits = |peer| {
                let service = service.borrow();
                engine.access.get().is_none_or(|gate| gate.admits(&service.name, peer, service.tls.is_some()))
            };
            let (socket, peer, permit) = tokio::select! {
                accepted = door.accept_if(&listener, policy, admits) => accepted,
                _ = stopped.wait_for(|stop| *stop) => return,
            };
            device::supervise::rehearse("mllp-listener");
            if *closed.borrow() {
                permit.note(Reason::Schedule, &peer.to_string());
                continue;
            }
            let watched = Watched { service: service.subscribe(), closed: closed.clone(), stop: stopped.clone() };
            let connection = Connection::new(&engine, watched, (peer, permit));
            let open = Open::new(&engine);
            session("mllp", async move {
                let _open = open;
                connection.start(socket).await;
            });
        }
    });
    Ok(listening)
}

/// What a connection looks at besides its peer.
struct Watched {
    service: watch::Receiver<Arc<PlannedService>>,
    /// It is outside its schedule.
    closed: watch::Receiver<bool>,
    stop: watch::Receiver<bool>,
}

/// Starts a task that says whether a service is outside its schedule.
fn watch_schedule(
    engine: &Arc<Engine>,
    service: &watch::Sender<Arc<PlannedService>>,
    stopped: &watch::Receiver<bool>,
) -> watch::Receiver<bool> {
    let (clock, mut service, mut stopped) = (engine.clock.clone(), service.subscribe(), stopped.clone());
    let words = move |service: &Service| {
        settings_of(service).schedule.as_ref().and_then(|schedule| schedule.words(clock.now_us()))
    };
    let (closed, watched) = watch::channel(words(&service.borrow_and_update()).is_some());
    engine.message_log.supervise("mllp-schedule", async move {
        loop {
            let current = Arc::clone(&service.borrow_and_update());
            let now = words(&current);
            if closed.send_if_modified(|is_closed| std::mem::replace(is_closed, now.is_some()) != now.is_some()) {
                let state = now.as_deref().unwrap_or("open by its schedule");
                tracing::info!(service = current.name, state, "the schedule of the service");
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = service.changed() => {}
                _ = stopped.wait_for(|stop| *stop) => return,
            }
        }
    });
    watched
}

fn settings_of(service: &Service) -> &settings::MllpService {
    match &service.settings {
        settings::ServiceSettings::Mllp(mllp) => mllp,
        settings::ServiceSettings::File(_) => unreachable!("an MLLP listener belongs to an MLLP service"),
    }
}

/// Counts a connection for as long as it lives, however it ends.
struct Open(Arc<Engine>);

impl Open {
    fn new(engine: &Arc<Engine>) -> Self {
        engine.connections.send_modify(|open| *open += 1);
        Self(Arc::clone(engine))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.send_modify(|open| *open -= 1);
    }
}
