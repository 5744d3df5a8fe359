//! [`Freeze`]: once something that must be persistent could not be written, nothing is changed any more.
//!
//! One for each store, shared by whoever writes. The first cause stays. Reads do not ask it.

use std::fmt::Display;
use std::sync::{Arc, OnceLock};

use crate::StoreError;

/// Whether updates are frozen, and why. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freeze {
    cause: Arc<OnceLock<Arc<str>>>,
}

impl Freeze {
    /// Errors: [`StoreError::Frozen`] from the first call of [`freeze`](Freeze::freeze) on.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.cause.get().map_or(Ok(()), |cause| Err(StoreError::Frozen { cause: cause.clone() }))
    }

    /// Why, if so.
    pub(crate) fn cause(&self) -> Option<Arc<str>> {
        self.cause.get().cloned()
    }

    /// Freezes, if that has not happened yet; answers the error to give.
    pub(crate) fn freeze(&self, cause: &dyn Display) -> StoreError {
        let cause = self.cause.get_or_init(|| {
            let cause = cause.to_string();
            tracing::error!(%cause, "updates are frozen");
            cause.into()
        });
        StoreError::Frozen { cause: cause.clone() }
    }
}
