//! The logged-in connections by process number, for cancel requests and `pg_stat_activity`.
//!
//! A cancel request contains the number and the secret, which only the connection's own client received. As in
//! PostgreSQL, a wrong secret gets no answer, so secrets cannot be probed. Secrets are compared in constant time, and
//! all connections can be cancelled at once; pgwire's registry does neither.

use std::collections::HashMap;
use std::sync::Arc;

use node::SharedSocket;
use node::identity::{Caller, RightsView, RoleId};
use parking_lot::Mutex;
use pgwire::messages::ProtocolVersion;
use pgwire::messages::startup::SecretKey;
use tokio::sync::{Notify, watch};

use super::activity::{Activity, Doing};
use super::scram::{self, ScramError};
use crate::Canceller;

/// Bytes of a secret in protocol 3.0, which allows no other number.
const SECRET_BYTES: usize = 4;

/// Bytes of a secret in protocol 3.2, as PostgreSQL's (`MAX_CANCEL_KEY_LENGTH`).
const LONG_SECRET_BYTES: usize = 32;

#[derive(Debug)]
struct Entry {
    secret: SecretKey,
    canceller: Canceller,
    notify: Arc<Notify>,
    activity: Arc<Activity>,
    caller: Caller,
    terminated: watch::Sender<bool>,
    /// Once the session reads it.
    socket: Option<SharedSocket>,
}

impl Entry {
    fn cancel(&self) {
        self.canceller.cancel();
        self.notify.notify_waiters();
    }

    fn terminate(&self) {
        self.terminated.send_replace(true);
        self.canceller.terminate();
        self.notify.notify_waiters();
    }
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(super) struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: i32,
    /// Whether the server is stopping.
    stopping: bool,
    entries: HashMap<i32, Entry>,
}

/// A connection's entry in the registry; dropping it removes the entry.
#[derive(Debug)]
pub(super) struct Registered {
    registry: Arc<Registry>,
    /// The connection's process number.
    pub(super) process: i32,
    /// The connection's secret.
    pub(super) secret: SecretKey,
    /// Notified when the statement is to be cancelled.
    pub(super) notify: Arc<Notify>,
    /// The connection's activity.
    pub(super) activity: Arc<Activity>,
    /// Whether the connection is to end.
    pub(super) terminated: watch::Receiver<bool>,
}

impl Registry {
    /// Adds a connection of this protocol version.
    pub(super) fn register(
        self: &Arc<Registry>,
        canceller: Canceller,
        (activity, caller): (Activity, Caller),
        version: ProtocolVersion,
    ) -> Result<Registered, ScramError> {
        let long = version == ProtocolVersion::PROTOCOL3_2;
        let mut secret = vec![0; if long { LONG_SECRET_BYTES } else { SECRET_BYTES }];
        scram::random(&mut secret)?;
        let secret = SecretKey::Bytes(secret.into());
        let notify = Arc::new(Notify::new());
        let mut inner = self.inner.lock();
        loop {
            inner.last = inner.last.checked_add(1).unwrap_or(1);
            if !inner.entries.contains_key(&inner.last) {
                break;
            }
        }
        let process = inner.last;
        let (activity, (sender, terminated)) = (Arc::new(activity), watch::channel(inner.stopping));
        let entry = Entry {
            secret: secret.clone(),
            canceller,
            notify: Arc::clone(&notify),
            activity: Arc::clone(&activity),
            caller,
            terminated: sender,
            socket: None,
        };
        inner.entries.insert(process, entry);
        Ok(Registered { registry: Arc::clone(self), process, secret, notify, activity, terminated })
    }

    /// Cancels a connection's statement, if the secret is right.
    pub(super) fn cancel(&self, process: i32, secret: &SecretKey) {
        if let Some(entry) = self.inner.lock().entries.get(&process)
            && scram::same(&entry.secret.to_bytes(), &secret.to_bytes())
        {
            entry.cancel();
        }
    }

    /// Cancels a connection's statement for another logged-in user. Returns whether there is such a connection.
    pub(super) fn cancel_process(&self, process: i32) -> bool {
        self.inner.lock().entries.get(&process).map(Entry::cancel).is_some()
    }

    /// Ends a connection for another logged-in user. Returns whether there is such a connection.
    pub(super) fn terminate(&self, process: i32) -> bool {
        self.inner.lock().entries.get(&process).map(Entry::terminate).is_some()
    }

    /// Ends the connections whose login no longer holds: the role was dropped, locked or has expired.
    pub(super) fn end_revoked(&self, view: &RightsView) {
        let inner = self.inner.lock();
        inner.entries.values().filter(|entry| view.holds(&entry.caller).is_err()).for_each(Entry::terminate);
    }

    /// Ends the sessions of clients that have disconnected: one that computes, or waits until its client reads, does not see that itself.
    /// To be called again and again.
    pub(super) fn end_abandoned(&self) {
        let inner = self.inner.lock();
        let is_left = |entry: &&Entry| entry.socket.as_ref().is_some_and(SharedSocket::is_left);
        inner.entries.values().filter(is_left).for_each(Entry::terminate);
    }

    /// The role that logged in to a connection.
    pub(super) fn role_of(&self, process: i32) -> Option<RoleId> {
        self.inner.lock().entries.get(&process).map(|entry| entry.caller.session())
    }

    /// Ends all connections, and those in their login.
    pub(super) fn terminate_all(&self) {
        let mut inner = self.inner.lock();
        inner.stopping = true;
        inner.entries.values().for_each(Entry::terminate);
    }

    /// The activities of all connections, by process number.
    pub(super) fn activities(&self) -> Vec<(i32, RoleId, Doing)> {
        let inner = self.inner.lock();
        let of = |(process, entry): (&i32, &Entry)| (*process, entry.caller.session(), entry.activity.now());
        let mut all: Vec<_> = inner.entries.iter().map(of).collect();
        all.sort_by_key(|(process, ..)| *process);
        all
    }
}

impl Registered {
    /// From now on the session ends when the client of this socket disconnects.
    pub(super) fn reads(&self, socket: SharedSocket) {
        if let Some(entry) = self.registry.inner.lock().entries.get_mut(&self.process) {
            entry.socket = Some(socket);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.inner.lock().entries.remove(&self.process);
    }
}
