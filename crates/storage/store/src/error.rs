//! The errors of the store, named by what the caller can do about them.

use std::sync::Arc;

use device::{DeviceError, Operation};
use journal::JournalError;

use crate::damage::Damage;
use crate::page_id::PageId;

/// Why the store refused. Cheap to clone: many waiters may receive the same failure.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another transaction that committed after this one began changed the same key: run the transaction again.
    #[error("a transaction that committed first changed the same row; run this one again")]
    Conflict,
    /// The store is poisoned: the journal or the data pages could not be written. Reads continue; reopen to run
    /// recovery.
    #[error(
        "updates are refused after a failure, nothing acknowledged is lost: {cause}; repair the cause and start again"
    )]
    Poisoned {
        /// The first failure.
        cause: Arc<str>,
    },
    /// No space on the medium, or no file descriptor for more of it ([`crate::Store::lacks_descriptor`]). Nothing was
    /// changed; a later attempt may succeed.
    #[error("no room: {0}")]
    Full(Arc<str>),
    /// Stored data is damaged, with its place. Everything else continues; `terrace repair` shows what can be done, or
    /// restore from a backup.
    #[error("damaged: {0}")]
    Corrupt(Damage),
    /// A key or value is larger than the store accepts, or a tree does not exist: an error of the caller.
    #[error("{0}")]
    Refused(Arc<str>),
    /// The snapshot needs more old versions than their memory may contain: begin again.
    #[error(
        "the snapshot is too old: more was changed since it began than the memory of old versions can keep; start again, or raise \
         `versions` in terrace.toml"
    )]
    TooOld,
    /// The journal refused.
    #[error(transparent)]
    Journal(Arc<JournalError>),
    /// A device refused.
    #[error(transparent)]
    Device(Arc<DeviceError>),
}

impl From<JournalError> for StoreError {
    /// Maps errors by what the caller can do: space and descriptors may become available again.
    fn from(error: JournalError) -> StoreError {
        match error {
            JournalError::Full { .. } | JournalError::NoDescriptors => StoreError::Full(error.to_string().into()),
            other => StoreError::Journal(Arc::new(other)),
        }
    }
}

impl From<DeviceError> for StoreError {
    /// A descriptor may become available, and is needed only for creating or opening. Whether a full medium left
    /// everything unchanged depends on the call, so it is not mapped here.
    fn from(error: DeviceError) -> StoreError {
        match error {
            DeviceError::NoDescriptors { .. } => StoreError::Full(error.to_string().into()),
            other => StoreError::Device(Arc::new(other)),
        }
    }
}

/// Errors of the system that mean that the medium cannot read the bytes: EIO, EILSEQ, EBADMSG and EUCLEAN (a file
/// system's own checksum), ENODATA, EREMOTEIO. Other errors may be temporary and are not damage.
const UNREADABLE: [i32; 6] = [5, 61, 74, 84, 117, 121];

impl StoreError {
    /// The error of a closed store.
    pub(crate) fn closed() -> StoreError {
        StoreError::Refused("the store is closed; open it again".into())
    }

    /// The error of reading a page: bytes that the medium cannot read are damage of that page.
    pub(crate) fn of_reading(self, first: PageId, pages: u32) -> StoreError {
        let is_lost = match &self {
            StoreError::Device(error) => match &**error {
                DeviceError::Lost { .. } => true,
                DeviceError::Io { operation: Operation::Read, source, .. } => {
                    source.raw_os_error().is_some_and(|code| UNREADABLE.contains(&code))
                }
                _ => false,
            },
            _ => false,
        };
        match is_lost {
            true => {
                StoreError::Corrupt(Damage::unreadable(first, pages, format!("page {first} cannot be read: {self}")))
            }
            false => self,
        }
    }
}
