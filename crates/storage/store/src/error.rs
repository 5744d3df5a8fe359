//! What can go wrong, named by what the caller can do about it.

use std::sync::Arc;

use device::DeviceError;
use journal::JournalError;

/// Why the store refused. Cheap to clone: many waiters may be told of one failure.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another transaction that committed after this one began changed the same key: run the transaction again.
    #[error("a transaction that committed first changed the same row; run this one again")]
    Conflict,
    /// Updates are frozen: the journal or the data pages could not be written. Reads go on; reopen to run recovery.
    #[error("updates are frozen, nothing acknowledged is lost: {cause}; mend the cause and start again")]
    Frozen {
        /// The first failure.
        cause: Arc<str>,
    },
    /// No room on the medium. Nothing was changed; later tries may succeed.
    #[error("no room: {0}")]
    Full(Arc<str>),
    /// What was stored is damaged, and where. Restore from a backup.
    #[error("damaged: {0}")]
    Corrupt(Arc<str>),
    /// A key or value is larger than the store takes, or a tree does not exist: a mistake of the caller.
    #[error("{0}")]
    Refused(Arc<str>),
    /// The snapshot is older than what old versions may take of memory: begin anew.
    #[error("the snapshot is too old: its old versions exceeded the limit; begin a new one")]
    TooOld,
    /// The journal refused.
    #[error(transparent)]
    Journal(Arc<JournalError>),
    /// A device refused.
    #[error(transparent)]
    Device(Arc<DeviceError>),
}

impl From<JournalError> for StoreError {
    fn from(error: JournalError) -> StoreError {
        StoreError::Journal(Arc::new(error))
    }
}

impl From<DeviceError> for StoreError {
    fn from(error: DeviceError) -> StoreError {
        StoreError::Device(Arc::new(error))
    }
}
