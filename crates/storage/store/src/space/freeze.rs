//! [`Freeze`]: once something that must be persistent could not be written, nothing is changed any more.
//!
//! One for each store, shared by whoever writes: there is no other way to freeze. The first cause stays. Reads do not ask it.
//! Whoever else would wait for ever is woken by it.

use std::fmt::{self, Debug, Display};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use device::DeviceError;

use crate::StoreError;

/// Whether updates are frozen, and why. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freeze {
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
        f.debug_struct("Freeze").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl Freeze {
    /// What is called once it is frozen, by whoever froze it: it must be quick, and take no lock that is held while something
    /// is written. Said once.
    pub(crate) fn on_freeze(&self, wake: impl Fn() + Send + Sync + 'static) {
        let said = self.shared.wake.set(Box::new(wake));
        assert!(said.is_ok(), "who is to be woken is said once");
    }

    /// Errors: [`StoreError::Frozen`] from the first call of [`freeze`](Freeze::freeze) or [`close`](Freeze::close) on.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.shared.cause.get() {
            Some(cause) => Err(StoreError::Frozen { cause: cause.clone() }),
            None if self.shared.is_closed.load(Ordering::Acquire) => {
                Err(StoreError::Frozen { cause: "the store is closed".into() })
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

    /// Freezes, if that has not happened yet; answers the error to give.
    pub(crate) fn freeze(&self, cause: &dyn Display) -> StoreError {
        let cause = self.shared.cause.get_or_init(|| {
            let cause = cause.to_string();
            tracing::error!(%cause, "updates are frozen");
            cause.into()
        });
        // Each time: whoever came to wait since sees the cause.
        self.shared.wake.get().into_iter().for_each(|wake| wake());
        StoreError::Frozen { cause: cause.clone() }
    }
}
