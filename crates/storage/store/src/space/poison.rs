//! [`Poison`]: once something that must be persistent could not be written, nothing is changed any more.
//!
//! One for each store, shared by whoever writes: there is no other way to poison it. The first cause stays. Reads do not ask it.
//! Setting it wakes every waiter.

use std::fmt::{self, Debug, Display};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use device::DeviceError;

use crate::StoreError;

/// Whether the store is poisoned, and why. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Poison {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    cause: OnceLock<Arc<str>>,
    /// Pages or images could not grow when that was tried last, for want of a file descriptor.
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
    /// What is called once it is poisoned, by the thread that does it: it must be quick, and take no lock that is held while something
    /// is written. Said once.
    pub(crate) fn on_poison(&self, wake: impl Fn() + Send + Sync + 'static) {
        let said = self.shared.wake.set(Box::new(wake));
        assert!(said.is_ok(), "who is to be woken is said once");
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

    /// A device was made, or not; answers it. What is missing is remembered until one is made.
    ///
    /// Errors: [`StoreError::Full`] where there is no room, and no descriptor; [`StoreError::Device`].
    pub(crate) fn made<T>(&self, device: Result<T, DeviceError>) -> Result<T, StoreError> {
        self.lacks(matches!(device, Err(DeviceError::NoDescriptors { .. })));
        device.map_err(|error| match error {
            DeviceError::Full { .. } => StoreError::Full(error.to_string().into()),
            other => other.into(),
        })
    }

    /// Says whether growing waits for a descriptor; the log says when that changes.
    pub(crate) fn lacks(&self, lacks: bool) {
        if self.shared.lacks_descriptor.swap(lacks, Ordering::AcqRel) != lacks {
            let missing = if lacks { "wait for a file descriptor" } else { "wait for a file descriptor no more" };
            tracing::error!("new pages {missing}");
        }
    }

    /// Whether the last device could not be made for want of a descriptor.
    pub(crate) fn lacks_descriptor(&self) -> bool {
        self.shared.lacks_descriptor.load(Ordering::Acquire)
    }

    /// The store is closed: its places may be another's, and nobody may write there any more.
    pub(crate) fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
    }

    /// Why, if so.
    pub(crate) fn cause(&self) -> Option<Arc<str>> {
        self.shared.cause.get().cloned()
    }

    /// Poisons the store, if that has not happened yet; answers the error to give.
    pub(crate) fn set(&self, cause: &dyn Display) -> StoreError {
        let cause = self.shared.cause.get_or_init(|| {
            let cause = cause.to_string();
            tracing::error!(%cause, "the store is poisoned: it refuses updates until it is opened again");
            cause.into()
        });
        // Each time: whoever came to wait since sees the cause.
        self.shared.wake.get().into_iter().for_each(|wake| wake());
        StoreError::Poisoned { cause: cause.clone() }
    }
}
