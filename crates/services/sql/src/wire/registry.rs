//! The connections that are logged in, by process number: what a cancel request looks for, and `pg_stat_activity`.
//!
//! A request names the number and the secret that only its client was told; a wrong one is left unanswered, as PostgreSQL
//! does, so that nothing can be tried out. Secrets are compared in constant time, and all connections can be cancelled at
//! once, neither of which pgwire's registry does.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pgwire::messages::ProtocolVersion;
use pgwire::messages::startup::SecretKey;
use tokio::sync::{Notify, watch};

use super::activity::{Activity, Doing};
use super::scram::{self, ScramError};
use crate::Canceller;

/// Bytes of a secret of protocol 3.0, which allows no other number.
const SECRET_BYTES: usize = 4;

/// Bytes of a secret of protocol 3.2, as PostgreSQL's (`MAX_CANCEL_KEY_LENGTH`).
const LONG_SECRET_BYTES: usize = 32;

#[derive(Debug)]
struct Entry {
    secret: SecretKey,
    canceller: Canceller,
    notify: Arc<Notify>,
    activity: Arc<Activity>,
    terminated: watch::Sender<bool>,
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
    /// The server stops.
    stopping: bool,
    entries: HashMap<i32, Entry>,
}

/// A connection's place among them; leaves it when dropped.
#[derive(Debug)]
pub(super) struct Registered {
    registry: Arc<Registry>,
    /// Its process number.
    pub(super) process: i32,
    /// Its secret.
    pub(super) secret: SecretKey,
    /// Told when it shall cancel.
    pub(super) notify: Arc<Notify>,
    /// What it is doing.
    pub(super) activity: Arc<Activity>,
    /// It shall end.
    pub(super) terminated: watch::Receiver<bool>,
}

impl Registry {
    /// Takes a connection in that speaks this version.
    pub(super) fn register(
        self: &Arc<Registry>,
        canceller: Canceller,
        activity: Activity,
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
            terminated: sender,
        };
        inner.entries.insert(process, entry);
        Ok(Registered { registry: Arc::clone(self), process, secret, notify, activity, terminated })
    }

    /// Cancels what a connection does, if the secret is its.
    pub(super) fn cancel(&self, process: i32, secret: &SecretKey) {
        if let Some(entry) = self.inner.lock().entries.get(&process)
            && scram::same(&entry.secret.to_bytes(), &secret.to_bytes())
        {
            entry.cancel();
        }
    }

    /// Cancels what a connection does, for somebody who is logged in. Answers whether there is such a connection.
    pub(super) fn cancel_process(&self, process: i32) -> bool {
        self.inner.lock().entries.get(&process).map(Entry::cancel).is_some()
    }

    /// Ends a connection, for somebody who is logged in. Answers whether there is such a connection.
    pub(super) fn terminate(&self, process: i32) -> bool {
        self.inner.lock().entries.get(&process).map(Entry::terminate).is_some()
    }

    /// Ends all connections, and those that are about to log in.
    pub(super) fn terminate_all(&self) {
        let mut inner = self.inner.lock();
        inner.stopping = true;
        inner.entries.values().for_each(Entry::terminate);
    }

    /// What all connections do, by process number.
    pub(super) fn activities(&self) -> Vec<(i32, Doing)> {
        let inner = self.inner.lock();
        let mut all: Vec<_> = inner.entries.iter().map(|(process, entry)| (*process, entry.activity.now())).collect();
        all.sort_by_key(|(process, _)| *process);
        all
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.inner.lock().entries.remove(&self.process);
    }
}
