//! The connections that a node has open now, of every port, and those that it has opened itself: who, since when, how much; and the way to
//! end one of them.
//!
//! ```text
//!   Door --accept--> Permit ---------+                     +--> list      for who may see the status of the node
//!   operation, volume --connect--> OutgoingConnection -----+--> OpenConnection, in the ConnectionRegistry
//!                        counts: relaxed atomics           +--> close     shutdown(2) from outside: its owner reads the end
//! ```
//!
//! Invariants: a connection is in the list from before its first byte is read until its place is given back, however it ends; the
//! registry's lock is taken when one comes, goes, is listed or closed, and never for a message: what is counted are atomics, and a
//! role is a number. Nothing that a peer has sent is kept here, and what is shown of a statement is asked for from its owner
//! ([`ConnectionActivity`]) when somebody lists it. As many as the doors let in, and one for each lane and each export in use: no bound of its own.
//!
//! Closing ends exactly one: nothing that was acknowledged is taken back, and what was not is as if the peer had gone away. An owner has
//! nothing to do for it but what it does at the end of a stream; one that waits for something else hears [`crate::admission::Ending`].
//!
//! Not here: who may list and close (the program, at the control socket), and connections that end by themselves within seconds:
//! to directories, providers of logins, mail servers and webhooks.

mod counted;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use device::sockets::SocketName;
use serde::{Deserialize, Serialize};

use crate::clock::monotonic;
use crate::identity::RoleId;

pub use counted::CountedIo;

/// Microseconds of a millisecond.
const MS_US: i64 = 1_000;

/// The kind of a connection that an operation has opened.
pub const OPERATION_KIND: &str = "operation";

/// The kind of a connection to an export elsewhere, on which a copy of a volume or a tier lies.
pub const EXPORT_KIND: &str = "export";

/// All kinds, as `--port` takes them: of listeners, and of connections that the node has opened.
pub const KINDS: &[&str] =
    &["mllp", "sql", "search", "console", "metrics", "nbd", "control", OPERATION_KIND, EXPORT_KIND];

/// The other end.
#[derive(Clone, Debug)]
pub enum RemoteEnd {
    /// An address of a network.
    Peer(SocketAddr),
    /// This machine, over a unix socket.
    Machine,
    /// Where the node has connected to, as its settings have it.
    Named(Arc<str>),
}

impl fmt::Display for RemoteEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteEnd::Peer(address) => address.fmt(f),
            RemoteEnd::Machine => f.write_str("this machine"),
            RemoteEnd::Named(name) => f.write_str(name),
        }
    }
}

/// What a connection does at a moment, as its owner knows it: it may quote what its client has sent, and is asked for only for who may
/// see that.
pub trait ConnectionActivity: Send + Sync + fmt::Debug {
    /// Its state in a word, and the statement that runs or was the last.
    fn doing(&self) -> (&'static str, String);
}

/// A connection that is open. See the module's text.
pub struct OpenConnection {
    id: u64,
    kind: &'static str,
    service: String,
    remote: RemoteEnd,
    name: Option<SocketName>,
    /// By [`monotonic`], milliseconds.
    opened_ms: u64,
    last_ms: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    requests: AtomicU64,
    /// 0: nobody has proven who it is.
    role: AtomicU32,
    is_secure: AtomicBool,
    is_closing: AtomicBool,
    /// The user of the machine, of a connection over a unix socket.
    user: OnceLock<String>,
    /// What it is about: an export.
    about: OnceLock<String>,
    activity: OnceLock<Arc<dyn ConnectionActivity>>,
}

impl fmt::Debug for OpenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConnection").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}

fn now_ms() -> u64 {
    u64::try_from(monotonic().as_millis()).unwrap_or(u64::MAX)
}

impl OpenConnection {
    /// Its number: counted from the start of the node, and of no other one since.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The kind of its port, one of [`KINDS`].
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The service of it.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The other end.
    pub fn remote(&self) -> &RemoteEnd {
        &self.remote
    }

    /// The role that its peer has proven to be; none before.
    pub fn role(&self) -> Option<RoleId> {
        Some(RoleId(self.role.load(Ordering::Relaxed))).filter(|role| *role != RoleId::PUBLIC)
    }

    /// Whether the node has opened it.
    pub fn is_outgoing(&self) -> bool {
        matches!(self.kind, OPERATION_KIND | EXPORT_KIND)
    }

    /// Reads the clock: some 45 ns (2026-11-27), beside the system call that has moved the bytes.
    fn touch(&self) {
        self.last_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// So many bytes came in.
    pub fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        self.touch();
    }

    /// So many bytes went out.
    pub fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        self.touch();
    }

    /// So many requests, messages or statements were begun on it.
    pub fn began(&self, requests: u64) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }

    /// It is over TLS.
    pub fn secured(&self) {
        self.is_secure.store(true, Ordering::Relaxed);
    }

    /// Its peer has proven to be this role; of HTTP, with the last request.
    pub fn proven_as(&self, role: RoleId) {
        self.role.store(role.0, Ordering::Relaxed);
    }

    /// It is of a user of this machine, in words. The first one counts.
    pub fn of_user(&self, user: impl FnOnce() -> String) {
        self.user.get_or_init(user);
    }

    /// What it is about, in words: names of settings, nothing that a peer made up. The first one counts.
    pub fn about(&self, text: &str) {
        // It has been said already.
        let _ = self.about.set(text.to_owned());
    }

    /// Has what it does at a moment. The first one counts.
    pub fn does(&self, activity: Arc<dyn ConnectionActivity>) {
        // It has one already.
        let _ = self.activity.set(activity);
    }

    /// The connection for people and programs at a time. `name_of`: the name of a role; `shows`: whether what somebody with this role
    /// does may be seen.
    pub fn line(
        &self,
        now_us: i64,
        name_of: impl FnOnce(RoleId) -> Option<String>,
        shows: impl FnOnce(RoleId) -> bool,
    ) -> ConnectionLine {
        let now_ms = now_ms();
        let at_us = |ms: u64| {
            let age = i64::try_from(now_ms.saturating_sub(ms)).unwrap_or(i64::MAX / MS_US);
            now_us.saturating_sub(age.saturating_mul(MS_US))
        };
        let role = self.role();
        let activity = self.activity.get().filter(|_| role.is_some_and(shows)).map(|activity| activity.doing());
        ConnectionLine {
            id: self.id,
            port: self.kind.to_owned(),
            service: self.service.clone(),
            outgoing: self.is_outgoing(),
            remote: self.remote.to_string(),
            user: self.user.get().cloned(),
            role: role.map(|role| name_of(role).unwrap_or_else(|| format!("role {}", role.0))),
            tls: self.is_secure.load(Ordering::Relaxed),
            since_us: at_us(self.opened_ms),
            idle_since_us: at_us(self.last_ms.load(Ordering::Relaxed)),
            received_bytes: self.received.load(Ordering::Relaxed),
            sent_bytes: self.sent.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            about: self.about.get().cloned(),
            closing: self.is_closing.load(Ordering::Relaxed),
            state: activity.as_ref().map(|(state, _)| (*state).to_owned()),
            statement: activity.map(|(_, statement)| statement).filter(|text| !text.is_empty()),
        }
    }

    /// Whether it can be ended from outside: it has a socket by a name that is known.
    pub(crate) fn has_socket(&self) -> bool {
        self.name.is_some()
    }

    /// Ends its socket from outside. Returns false where that was closed already, or it has none.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn shut_down(&self) -> std::io::Result<bool> {
        self.is_closing.store(true, Ordering::Relaxed);
        self.name.map_or(Ok(false), SocketName::shut_down)
    }
}

/// A connection, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLine {
    /// Its number, which `close` takes.
    pub id: u64,
    /// The kind of its port, one of [`KINDS`].
    pub port: String,
    /// The service, operation or volume.
    pub service: String,
    /// Whether the node has opened it; otherwise it came in.
    pub outgoing: bool,
    /// The address of the other end.
    pub remote: String,
    /// The user of this machine, of a connection over a unix socket.
    #[serde(default)]
    pub user: Option<String>,
    /// The role that it has proven to be; of HTTP, by its last request.
    #[serde(default)]
    pub role: Option<String>,
    /// Whether it is over TLS.
    pub tls: bool,
    /// When it was opened, microseconds since 1970.
    pub since_us: i64,
    /// When bytes last went in or out, microseconds since 1970.
    pub idle_since_us: i64,
    /// Bytes that came in, inside TLS.
    pub received_bytes: u64,
    /// Bytes that went out, inside TLS.
    pub sent_bytes: u64,
    /// Messages, statements or requests.
    pub requests: u64,
    /// What it is about: the export of NBD.
    #[serde(default)]
    pub about: Option<String>,
    /// Somebody has closed it, and what it has begun has not ended yet.
    #[serde(default)]
    pub closing: bool,
    /// SQL, for who may see it: the state of the session.
    #[serde(default)]
    pub state: Option<String>,
    /// SQL, for who may see it: the statement that runs or was the last.
    #[serde(default)]
    pub statement: Option<String>,
}

/// The connections of a node. See the module's text.
#[derive(Debug, Default)]
pub struct ConnectionRegistry {
    open: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    last: u64,
    open: BTreeMap<u64, Arc<OpenConnection>>,
}

impl ConnectionRegistry {
    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        // Plain data: a panic elsewhere does not make it wrong.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one; whoever adds it removes it.
    pub(crate) fn add(
        &self,
        (kind, service): (&'static str, &str),
        remote: RemoteEnd,
        name: Option<SocketName>,
    ) -> Arc<OpenConnection> {
        let opened_ms = now_ms();
        let mut table = self.table();
        table.last += 1;
        let connection = Arc::new(OpenConnection {
            id: table.last,
            kind,
            service: service.to_owned(),
            remote,
            name,
            opened_ms,
            last_ms: AtomicU64::new(opened_ms),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            role: AtomicU32::new(RoleId::PUBLIC.0),
            is_secure: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            user: OnceLock::new(),
            about: OnceLock::new(),
            activity: OnceLock::new(),
        });
        table.open.insert(connection.id, Arc::clone(&connection));
        connection
    }

    pub(crate) fn remove(&self, id: u64) {
        self.table().open.remove(&id);
    }

    /// A connection that the node has just opened itself, for an operation or an export.
    pub fn outgoing(
        self: &Arc<ConnectionRegistry>,
        (kind, service): (&'static str, &str),
        remote: &str,
        socket: &impl AsFd,
    ) -> OutgoingConnection {
        // Without a name it cannot be closed from outside, and is listed all the same.
        let name = SocketName::of(socket).ok();
        let connection = self.add((kind, service), RemoteEnd::Named(remote.into()), name);
        OutgoingConnection { registry: Arc::clone(self), connection }
    }

    /// A connection; none where it has ended.
    pub fn find(&self, id: u64) -> Option<Arc<OpenConnection>> {
        self.table().open.get(&id).cloned()
    }

    /// All of them, or those of a kind, in the order in which they came.
    pub fn list(&self, kind: Option<&str>) -> Vec<Arc<OpenConnection>> {
        let table = self.table();
        table.open.values().filter(|one| kind.is_none_or(|kind| one.kind == kind)).cloned().collect()
    }
}

/// A connection that the node has opened, in the list as long as this is there.
#[derive(Debug)]
pub struct OutgoingConnection {
    registry: Arc<ConnectionRegistry>,
    connection: Arc<OpenConnection>,
}

impl OutgoingConnection {
    /// What is known of it.
    pub fn connection(&self) -> &Arc<OpenConnection> {
        &self.connection
    }
}

impl Drop for OutgoingConnection {
    fn drop(&mut self) {
        self.registry.remove(self.connection.id);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[derive(Debug)]
    struct Queries;

    impl ConnectionActivity for Queries {
        fn doing(&self) -> (&'static str, String) {
            ("active", "SELECT secret".to_owned())
        }
    }

    #[test]
    fn what_is_counted_is_shown_and_a_statement_only_to_who_may_see_that_role() {
        let registry = Arc::new(ConnectionRegistry::default());
        let peer = RemoteEnd::Peer("10.1.2.3:4".parse().expect("an address"));
        let one = registry.add(("sql", "sql"), peer, None);
        one.does(Arc::new(Queries));
        let name = |_| Some("ann".to_owned());
        // Nobody has proven anything: there is no role whose statements could be seen.
        assert_eq!(one.line(9_000_000, name, |_| true).statement, None);
        one.proven_as(RoleId::LOCAL);
        one.received(5);
        one.sent(7);
        one.began(1);
        one.secured();
        let hidden = one.line(9_000_000, name, |_| false);
        assert_eq!((hidden.state.as_deref(), hidden.statement.as_deref()), (None, None));
        assert_eq!((hidden.received_bytes, hidden.sent_bytes, hidden.requests, hidden.tls), (5, 7, 1, true));
        assert_eq!((hidden.remote.as_str(), hidden.role.as_deref()), ("10.1.2.3:4", Some("ann")));
        let shown = one.line(9_000_000, name, |role| role == RoleId::LOCAL);
        assert_eq!(shown.statement.as_deref(), Some("SELECT secret"));
        registry.remove(one.id());
        assert!(registry.list(None).is_empty() && registry.find(one.id()).is_none());
    }

    #[test]
    fn an_outgoing_connection_is_in_the_list_while_it_lives_and_is_ended_from_outside() {
        let registry = Arc::new(ConnectionRegistry::default());
        let (mut left, mut right) = UnixStream::pair().expect("two sockets");
        let outgoing = registry.outgoing((OPERATION_KIND, "lab"), "lab:2575", &left);
        let id = outgoing.connection().id();
        assert_eq!(registry.list(Some(OPERATION_KIND)).len(), 1);
        assert!(registry.list(Some("mllp")).is_empty());
        assert!(registry.find(id).expect("it is open").shut_down().expect("a descriptor"));
        let mut some = [0; 4];
        assert_eq!((left.read(&mut some).expect("the end"), right.read(&mut some).expect("the end")), (0, 0));
        drop(outgoing);
        assert!(registry.find(id).is_none());
        let next = registry.outgoing((OPERATION_KIND, "lab"), "lab:2575", &left);
        assert!(next.connection().id() > id, "no number is given twice");
    }
}
