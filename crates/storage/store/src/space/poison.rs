//! [`Poison`]: after a failure to write something that must be persistent, nothing is changed any more.
//!
//! There is one for each store, shared by all writers, and no other way to poison the store. The first cause stays.
//! Reads do not check it. Setting it wakes every waiter.

use std::fmt::{self, Debug, Display};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use device::DeviceError;

use crate::StoreError;

/// Whether the store is poisoned, and why. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Poison {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    cause: OnceLock<Arc<str>>,
    /// The last attempt to grow pages or images failed because no file descriptor was free.
    lacks_descriptor: AtomicBool,
    is_closed: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poison").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl Poison {
    /// Sets the function that is called once the store is poisoned, by the thread that poisons it. It must be fast, and
    /// take no lock that is held during a write. Called once.
    pub(crate) fn on_poison(&self, wake: impl Fn() + Send + Sync + 'static) {
        let said = self.shared.wake.set(Box::new(wake));
        assert!(said.is_ok(), "the waker is set once");
    }

    /// Errors: [`StoreError::Poisoned`] from the first call of [`set`](Poison::set) or [`close`](Poison::close) on.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.shared.cause.get() {
            Some(cause) => Err(StoreError::Poisoned { cause: cause.clone() }),
            None if self.shared.is_closed.load(Ordering::Acquire) => {
                Err(StoreError::Poisoned { cause: "the store is closed".into() })
            }
            None => Ok(()),
        }
    }

    /// Records whether a device could be created, and returns it. A lack of descriptors is remembered until one is
    /// created.
    ///
    /// Errors: [`StoreError::Full`] if there is no space, or no descriptor; [`StoreError::Device`].
    pub(crate) fn made<T>(&self, device: Result<T, DeviceError>) -> Result<T, StoreError> {
        self.lacks(matches!(device, Err(DeviceError::NoDescriptors { .. })));
        device.map_err(|error| match error {
            DeviceError::Full { .. } => StoreError::Full(error.to_string().into()),
            other => other.into(),
        })
    }

    /// Sets whether growing waits for a descriptor; logs each change.
    pub(crate) fn lacks(&self, lacks: bool) {
        if self.shared.lacks_descriptor.swap(lacks, Ordering::AcqRel) != lacks {
            let missing = if lacks { "wait for a file descriptor" } else { "no longer wait for a file descriptor" };
            tracing::error!("new pages {missing}");
        }
    }

    /// Whether the last device could not be created for lack of a descriptor.
    pub(crate) fn lacks_descriptor(&self) -> bool {
        self.shared.lacks_descriptor.load(Ordering::Acquire)
    }

    /// The store is closed: its places may belong to another store, so nothing may be written there any more.
    pub(crate) fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
    }

    /// The cause, if it is poisoned.
    pub(crate) fn cause(&self) -> Option<Arc<str>> {
        self.shared.cause.get().cloned()
    }

    /// Poisons the store, if it is not poisoned yet; returns the error for the caller.
    pub(crate) fn set(&self, cause: &dyn Display) -> StoreError {
        let cause = self.shared.cause.get_or_init(|| {
            let cause = cause.to_string();
            tracing::error!(%cause, "the store is poisoned: it refuses updates until it is opened again");
            cause.into()
        });
        // Each time: threads that began to wait since then see the cause.
        self.shared.wake.get().into_iter().for_each(|wake| wake());
        StoreError::Poisoned { cause: cause.clone() }
    }
}
