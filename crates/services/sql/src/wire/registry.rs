//! The connections that are logged in, by process number: what a cancel request looks for.
//!
//! A request names the number and the secret that only its client was told; a wrong one is left unanswered, as PostgreSQL
//! does, so that nothing can be tried out. Secrets are compared in constant time, and all connections can be cancelled at
//! once, neither of which pgwire's registry does.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pgwire::messages::ProtocolVersion;
use pgwire::messages::startup::SecretKey;
use tokio::sync::Notify;

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
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(super) struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: i32,
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
}

impl Registry {
    /// Takes a connection in that speaks this version.
    pub(super) fn register(
        self: &Arc<Registry>,
        canceller: Canceller,
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
        inner.entries.insert(process, Entry { secret: secret.clone(), canceller, notify: Arc::clone(&notify) });
        Ok(Registered { registry: Arc::clone(self), process, secret, notify })
    }

    /// Cancels what a connection does, if the secret is its.
    pub(super) fn cancel(&self, process: i32, secret: &SecretKey) {
        if let Some(entry) = self.inner.lock().entries.get(&process)
            && scram::same(&entry.secret.to_bytes(), &secret.to_bytes())
        {
            entry.canceller.cancel();
            entry.notify.notify_waiters();
        }
    }

    /// Cancels what all connections do.
    pub(super) fn cancel_all(&self) {
        for entry in self.inner.lock().entries.values() {
            entry.canceller.cancel();
            entry.notify.notify_waiters();
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.inner.lock().entries.remove(&self.process);
    }
}
