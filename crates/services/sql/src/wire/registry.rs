//! The connections that are logged in, by process number: what a cancel request looks for.
//!
//! A request names the number and the secret that only its client was told; a wrong one is left unanswered, as PostgreSQL
//! does, so that nothing can be tried out.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::scram::{self, ScramError};
use crate::Canceller;

/// Bytes of a secret: protocol 3.0 has four.
const SECRET_BYTES: usize = 4;

#[derive(Debug)]
struct Entry {
    secret: [u8; SECRET_BYTES],
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
    last: u32,
    entries: HashMap<u32, Entry>,
}

/// A connection's place among them; leaves it when dropped.
#[derive(Debug)]
pub(super) struct Registered {
    registry: Arc<Registry>,
    /// Its process number.
    pub(super) process: u32,
    /// Its secret.
    pub(super) secret: [u8; SECRET_BYTES],
    /// Told when it shall cancel.
    pub(super) notify: Arc<Notify>,
}

impl Registry {
    /// Takes a connection in.
    pub(super) fn register(self: &Arc<Registry>, canceller: Canceller) -> Result<Registered, ScramError> {
        let mut secret = [0; SECRET_BYTES];
        scram::random(&mut secret)?;
        let notify = Arc::new(Notify::new());
        let mut inner = self.inner.lock();
        loop {
            inner.last = inner.last.wrapping_add(1) & (i32::MAX as u32);
            if inner.last != 0 && !inner.entries.contains_key(&inner.last) {
                break;
            }
        }
        let process = inner.last;
        inner.entries.insert(process, Entry { secret, canceller, notify: Arc::clone(&notify) });
        Ok(Registered { registry: Arc::clone(self), process, secret, notify })
    }

    /// Cancels what a connection does, if the secret is its.
    pub(super) fn cancel(&self, process: u32, secret: &[u8]) {
        if let Some(entry) = self.inner.lock().entries.get(&process)
            && scram::same(&entry.secret, secret)
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
