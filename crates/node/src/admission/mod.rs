//! Admission: which connections are accepted, how much of an unfinished frame may be in memory, and what was refused and why.
//!
//! ```text
//!   Admission, one of a node ---- door ----> Door, one of a service ---- accept ----> Permit, one of a connection
//!      state (those inside)                     counts, bounds                          ended, prove, hold, release
//!      memory (of their frames)
//! ```
//!
//! `state` and `memory`, which are pure, make the decisions; here are the lock, the clock and the sockets.
//!
//! Invariants: a dropped permit releases its place and its memory; a permit that was requested to end counts as
//! released; the code here waits only for memory, or for another connection to accept.

mod frame;
mod memory;
mod refusals;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use device::sockets::SocketName;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::connections::{ConnectionRegistry, OpenConnection, RemoteEnd};
use crate::descriptors::{self, Descriptors};
use crate::peers::{self, Network};
use memory::MemoryBounds;
use refusals::RefusalLog;
use state::{Arrival, Newcomer, Origin, State, Ticket};

pub use memory::{FREE_BYTES, STEP_BYTES};
pub use refusals::Reason;

/// Memory that unfinished frames of all services may take where no setting bounds it: 16 messages of the usual bound.
pub const FRAME_BYTES: u64 = 256 << 20;

/// Pause after the system refused to accept, for want of descriptors or memory: some may be given back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a connection that waits for memory checks whether another one is to make room for it.
const LOOK: Duration = Duration::from_millis(500);

/// How many connections a service has at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// All of them.
    pub sockets: usize,
    /// Of one address: an IPv4 address, or the first 64 bits of an IPv6 address.
    pub of_address: usize,
}

impl Bounds {
    /// So many, and half of them, rounded up, from one address where no setting bounds it.
    pub fn of(sockets: usize, of_address: Option<usize>) -> Bounds {
        Bounds { sockets, of_address: of_address.unwrap_or(sockets.div_ceil(2)).min(sockets) }
    }
}

/// The settings for new connections of a service.
#[derive(Debug, Clone)]
pub struct Policy {
    /// How many.
    pub bounds: Bounds,
    /// From where; from everywhere where it is empty.
    pub peers: Vec<Network>,
}

/// The state that all services of a node share. See the module's text.
#[derive(Debug)]
pub struct Admission {
    descriptors: Descriptors,
    frame_bytes: u64,
    began: Instant,
    inner: Mutex<Inner>,
    /// Rung when memory was given back.
    freed: Notify,
    connections: Arc<ConnectionRegistry>,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    services: Vec<Service>,
    /// How each connection is requested to end.
    ends: HashMap<Ticket, watch::Sender<Option<Reason>>>,
    /// By the number of its connection.
    guests_of: HashMap<u64, Ticket>,
}

#[derive(Debug)]
struct Service {
    kind: &'static str,
    name: String,
    /// Doors there are; none once it is no longer served.
    doors: usize,
    bounds: Bounds,
    log: RefusalLog,
}

impl Admission {
    /// Of a process that may have so many descriptors; unfinished frames of all services together take `frame_bytes`, and a
    /// message for each service.
    pub fn new(descriptors: Descriptors, frame_bytes: u64) -> Arc<Admission> {
        let (began, inner, freed) = (Instant::now(), Mutex::default(), Notify::new());
        Arc::new(Admission { descriptors, frame_bytes, began, inner, freed, connections: Arc::default() })
    }

    /// The connections that are open, of all services.
    pub fn connections(&self) -> &Arc<ConnectionRegistry> {
        &self.connections
    }

    /// Ends a connection from outside: its socket at once; its place is free. Its owner ends it as at the end of the stream.
    ///
    /// # Errors
    /// Those of the system, where its socket cannot be ended; its owner was requested to end all the same. One that the node has opened and
    /// whose socket is not known: nothing ends it.
    pub fn close(&self, connection: &OpenConnection) -> io::Result<()> {
        {
            let mut inner = self.inner();
            let guest = inner.guests_of.get(&connection.id()).copied();
            if let Some(ticket) = guest {
                inner.state.sent_away(ticket);
                self.send_away(&mut inner, ticket, Reason::Closed);
            }
        }
        if connection.is_outgoing() && !connection.has_socket() {
            return Err(io::Error::other("the system did not tell its descriptor when it was opened"));
        }
        connection.shut_down()?;
        if connection.is_outgoing() {
            // Whoever has it notices at its next use, which may be late: it has ended now.
            self.connections.remove(connection.id());
        }
        Ok(())
    }

    /// The door of a service, by its kind and name. The counts of one that was there before go on.
    pub fn door(self: &Arc<Admission>, kind: &'static str, name: &str, bounds: Bounds) -> Door {
        let mut inner = self.inner();
        let known = inner.services.iter().position(|service| service.kind == kind && service.name == name);
        let service = known.unwrap_or_else(|| {
            let (name, log) = (name.to_owned(), RefusalLog::default());
            inner.services.push(Service { kind, name, doors: 0, bounds, log });
            inner.services.len() - 1
        });
        inner.services[service].doors += 1;
        inner.services[service].bounds = bounds;
        Door { admission: Arc::clone(self), service }
    }

    /// Logs when the limit of descriptors is too low for all services at their bounds. `outgoing`: connections that
    /// the node itself may open.
    pub fn check(&self, outgoing: usize) {
        let sockets: usize = self.inner().services.iter().filter(|s| s.doors > 0).map(|s| s.bounds.sockets).sum();
        let Descriptors { limit, reserved } = self.descriptors;
        let open = descriptors::open().unwrap_or(0);
        let needed = open + reserved + (sockets + outgoing) as u64;
        if needed > limit {
            tracing::warn!(
                limit,
                needed,
                open,
                reserved,
                sockets,
                outgoing,
                "fewer descriptors than all services at their bounds need: connections will be refused before that; raise the \
                 limit (`ulimit -n`, or LimitNOFILE= of the systemd unit) or lower `connections`"
            );
        }
    }

    /// Everything, for people and programs.
    pub fn status(&self) -> AdmissionStatus {
        let inner = self.inner();
        let Inner { state, services, .. } = &*inner;
        // One pass: connections wait for this lock, and metrics ask each second.
        let mut inside = vec![(0, 0, 0); services.len()];
        for guest in state.guests.values() {
            let (open, proven, held) = &mut inside[guest.service];
            *open += 1;
            *proven += usize::from(guest.proven);
            *held += guest.frame.map_or(0, |frame| frame.bytes);
        }
        let doors = services.iter().enumerate().filter_map(|(at, service)| {
            let (open, proven, held) = inside[at];
            (service.doors > 0 || open > 0).then(|| DoorStatus {
                kind: service.kind.to_owned(),
                service: service.name.clone(),
                open,
                proven,
                bound: service.bounds.sockets,
                of_address: service.bounds.of_address,
                frame_bytes: held,
                refused: service.log.counts(true),
                ended: service.log.counts(false),
            })
        });
        let Descriptors { limit, reserved } = self.descriptors;
        AdmissionStatus {
            descriptors_limit: limit,
            descriptors_reserved: reserved,
            descriptors_open: descriptors::open(),
            frame_bytes: state.held(None),
            frame_bytes_max: self.frame_bytes,
            doors: doors.collect(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Plain data: a panic elsewhere does not make it wrong.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Requests a connection to end.
    fn send_away(&self, inner: &mut Inner, ticket: Ticket, reason: Reason) {
        if let Some(end) = inner.ends.get(&ticket) {
            end.send_replace(Some(reason));
        }
        if let Some(service) = inner.state.guests.get(&ticket).map(|guest| guest.service) {
            self.note(inner, service, reason, "");
        }
    }

    /// Counts, and logs now and then.
    fn note(&self, inner: &mut Inner, service: usize, reason: Reason, cause: &str) {
        let Service { kind, name, log, .. } = &mut inner.services[service];
        if let Some(times) = log.count(reason, self.now()) {
            let text = reason.text();
            tracing::warn!(kind, service = name, times, cause, "{text}");
        }
    }
}

/// A connection that has just been accepted.
struct Incoming {
    origin: Origin,
    /// Its descriptor; none where that is not bounded.
    number: Option<RawFd>,
    remote: RemoteEnd,
    /// By what it is closed; none where the system does not say.
    name: Option<SocketName>,
}

/// Where connections of one service come in.
#[derive(Debug)]
pub struct Door {
    admission: Arc<Admission>,
    service: usize,
}

impl Door {
    /// The next connection that is let in. `policy` is called for each. To be called again and again; nothing is lost when it is
    /// dropped while it waits.
    pub async fn accept(&self, listener: &TcpListener, policy: impl Fn() -> Policy) -> (TcpStream, SocketAddr, Permit) {
        self.accept_with(listener, policy, |_| true, b"").await
    }

    /// The same; who finds no place is told so by these bytes, where its socket takes them at once.
    pub async fn accept_or_tell(
        &self,
        listener: &TcpListener,
        policy: impl Fn() -> Policy,
        no_place: &[u8],
    ) -> (TcpStream, SocketAddr, Permit) {
        self.accept_with(listener, policy, |_| true, no_place).await
    }

    /// The same for peers for which `admits` holds. Others take no place, and nobody loses one for them.
    pub async fn accept_if(
        &self,
        listener: &TcpListener,
        policy: impl Fn() -> Policy,
        admits: impl Fn(SocketAddr) -> bool,
    ) -> (TcpStream, SocketAddr, Permit) {
        self.accept_with(listener, policy, admits, b"").await
    }

    async fn accept_with(
        &self,
        listener: &TcpListener,
        policy: impl Fn() -> Policy,
        admits: impl Fn(SocketAddr) -> bool,
        no_place: &[u8],
    ) -> (TcpStream, SocketAddr, Permit) {
        loop {
            match listener.accept().await {
                Ok((socket, peer)) => {
                    let Policy { bounds, peers } = policy();
                    if !peers::allowed(&peers, peer.ip()) {
                        self.note(Reason::Peer, &peer.to_string());
                        continue;
                    }
                    if !admits(peer) {
                        self.note(Reason::Access, &peer.to_string());
                        continue;
                    }
                    let incoming = Incoming {
                        origin: Origin::of(peer.ip()),
                        number: Some(socket.as_raw_fd()),
                        remote: RemoteEnd::Peer(peer),
                        name: SocketName::of(&socket).ok(),
                    };
                    if let Some(permit) = self.let_in(incoming, bounds) {
                        return (socket, peer, permit);
                    }
                    // Of tokio's own socket nobody knows yet that it can be written to.
                    if let (false, Ok(mut socket)) = (no_place.is_empty(), socket.into_std()) {
                        let _ = socket.write(no_place);
                    }
                }
                Err(error) => self.not_accepted(&error).await,
            }
        }
    }

    /// Takes a connection over the file system in, if there is a place. Such a one may have any descriptor: a peer that can open
    /// the node's socket may also end the node.
    pub fn admit_local(&self, socket: &impl AsFd, bounds: Bounds) -> Option<Permit> {
        let name = SocketName::of(socket).ok();
        self.let_in(Incoming { origin: Origin::Machine, number: None, remote: RemoteEnd::Machine, name }, bounds)
    }

    /// What to do when the system could not accept: it is counted, and where it is for want of something that others may give
    /// back, a moment passes first.
    pub async fn not_accepted(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        self.note(Reason::System, &error.to_string());
        if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }

    fn let_in(&self, incoming: Incoming, bounds: Bounds) -> Option<Permit> {
        let (admission, service) = (&self.admission, self.service);
        let Incoming { origin, number, remote, name } = incoming;
        let tight = number.is_some_and(|number| !admission.descriptors.spares(number));
        let mut inner = admission.inner();
        inner.services[service].bounds = bounds;
        match inner.state.comes(Newcomer { service, origin, tight }, bounds, admission.now()) {
            Arrival::Refused(reason) => {
                admission.note(&mut inner, service, reason, &remote.to_string());
                None
            }
            Arrival::Inside { ticket, instead_of } => {
                if let Some(other) = instead_of {
                    admission.send_away(&mut inner, other, Reason::Newcomer);
                }
                let (end, heard) = watch::channel(None);
                inner.ends.insert(ticket, end);
                let Service { kind, name: own, .. } = &inner.services[service];
                let connection = admission.connections.add((kind, own), remote, name);
                inner.guests_of.insert(connection.id(), ticket);
                let (admission, ending) = (Arc::clone(admission), Ending(heard));
                Some(Permit { admission, service, ticket, ending, connection, proven: false, holding: false })
            }
        }
    }

    fn note(&self, reason: Reason, cause: &str) {
        self.admission.note(&mut self.admission.inner(), self.service, reason, cause);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.admission.inner().services[self.service].doors -= 1;
    }
}

/// Hears that a connection has to end.
#[derive(Debug, Clone)]
pub struct Ending(watch::Receiver<Option<Reason>>);

impl Ending {
    /// As [`Permit::ended`].
    pub async fn ended(&mut self) -> Reason {
        loop {
            if let Some(reason) = *self.0.borrow_and_update() {
                return reason;
            }
            if self.0.changed().await.is_err() {
                // Nothing is left that could request it to end.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// A connection's place. Given back when it is dropped, which has to be after its socket was closed.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    service: usize,
    ticket: Ticket,
    ending: Ending,
    connection: Arc<OpenConnection>,
    proven: bool,
    /// It requested memory since it last gave some back.
    holding: bool,
}

impl Permit {
    /// Returns when the connection has to end at once: another needs its place or its memory. That is counted already.
    pub async fn ended(&mut self) -> Reason {
        self.ending.ended().await
    }

    /// What is known and counted of the connection, for the list of them.
    pub fn connection(&self) -> &Arc<OpenConnection> {
        &self.connection
    }

    /// Hears the same, where the permit is in use.
    pub fn ending(&self) -> Ending {
        self.ending.clone()
    }

    /// The connection is proven, and keeps its place from now on.
    pub fn prove(&mut self) {
        if !self.proven {
            // Without bounds there is nothing that could be reached.
            self.proven = self.admission.inner().state.proves(self.ticket, None).is_ok();
        }
    }

    /// As `prove`, where fewer may stay than may try.
    ///
    /// # Errors
    /// The bound that is reached. It is counted as a refusal.
    pub fn enter(&mut self, bounds: Bounds) -> Result<(), Reason> {
        let mut inner = self.admission.inner();
        let entered = inner.state.proves(self.ticket, Some(bounds));
        match entered {
            Ok(()) => self.proven = true,
            Err(reason) => self.admission.note(&mut inner, self.service, reason, ""),
        }
        entered
    }

    /// Counts that the connection ends, or is refused after all, and why.
    pub fn note(&self, reason: Reason, cause: &str) {
        self.admission.note(&mut self.admission.inner(), self.service, reason, cause);
    }

    /// Whether a line may be logged about what its peer sends: all connections of a service together get a few. How many were
    /// left out since the last one.
    pub fn line(&self) -> Option<u64> {
        self.admission.inner().services[self.service].log.line(self.admission.now())
    }

    /// Waits until the unfinished frame of this connection may have `bytes` in memory, of at most `of_service` for its service.
    /// Nothing is lost when it is dropped while it waits.
    ///
    /// # Errors
    /// It has to end meanwhile, as with `ended`.
    pub async fn hold(&mut self, bytes: u64, of_service: u64) -> Result<(), Reason> {
        let bounds = MemoryBounds { of_service, of_node: self.admission.frame_bytes };
        self.holding = true;
        loop {
            let mut freed = std::pin::pin!(self.admission.freed.notified());
            // From here on a release is heard.
            freed.as_mut().enable();
            {
                let mut inner = self.admission.inner();
                let now = self.admission.now();
                if inner.state.holds(self.ticket, bytes, bounds, now) {
                    return Ok(());
                }
                if let Some(other) = inner.state.makes_room(self.ticket, bounds, now) {
                    self.admission.send_away(&mut inner, other, Reason::Memory);
                }
            }
            // Whether a connection is to make room changes with time too.
            let _ = tokio::time::timeout(LOOK, freed).await;
            if let Some(reason) = *self.ending.0.borrow() {
                return Err(reason);
            }
        }
    }

    /// The frame is complete: the sender is not responsible for the time that it takes from now on.
    pub fn whole(&mut self) {
        if self.holding {
            self.admission.inner().state.whole(self.ticket);
        }
    }

    /// The frame is no longer in memory.
    pub fn release(&mut self) {
        if self.holding {
            self.holding = false;
            self.admission.inner().state.releases(self.ticket);
            self.admission.freed.notify_waiters();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut inner = self.admission.inner();
        inner.state.leaves(self.ticket);
        inner.ends.remove(&self.ticket);
        inner.guests_of.remove(&self.connection.id());
        drop(inner);
        self.admission.connections.remove(self.connection.id());
        if self.holding {
            self.admission.freed.notify_waiters();
        }
    }
}

/// Admission, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdmissionStatus {
    /// Descriptors that the process may have open.
    pub descriptors_limit: u64,
    /// Of them, kept from sockets that others open.
    pub descriptors_reserved: u64,
    /// Of them, open; none where the system does not report it.
    pub descriptors_open: Option<u64>,
    /// Bytes of unfinished frames, except short ones.
    pub frame_bytes: u64,
    /// Bytes that they may hold, and a message for each service.
    pub frame_bytes_max: u64,
    /// Each service's connections.
    pub doors: Vec<DoorStatus>,
}

/// The connections of a service, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DoorStatus {
    /// One of [`KINDS`](crate::connections::KINDS).
    pub kind: String,
    /// Its name.
    pub service: String,
    /// Open now.
    pub open: usize,
    /// Of them, those that have sent a message or logged in.
    pub proven: usize,
    /// How many there may be.
    pub bound: usize,
    /// How many of one address.
    pub of_address: usize,
    /// Bytes of its unfinished frames, except short ones.
    pub frame_bytes: u64,
    /// Refused since the start, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Ended by us since the start, by reason.
    pub ended: BTreeMap<String, u64>,
}
