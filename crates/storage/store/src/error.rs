//! What can go wrong, named by what the caller can do about it.

use std::sync::Arc;

use device::{DeviceError, Operation};
use journal::JournalError;

use crate::damage::Damage;
use crate::page_id::PageId;

/// Why the store refused. Cheap to clone: many waiters may be told of one failure.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another transaction that committed after this one began changed the same key: run the transaction again.
    #[error("a transaction that committed first changed the same row; run this one again")]
    Conflict,
    /// The store is poisoned: the journal or the data pages could not be written. Reads go on; reopen to run recovery.
    #[error(
        "updates are refused after a failure, nothing acknowledged is lost: {cause}; mend the cause and start again"
    )]
    Poisoned {
        /// The first failure.
        cause: Arc<str>,
    },
    /// No room on the medium, or no file descriptor for more of it ([`crate::Store::lacks_descriptor`]). Nothing was changed;
    /// later tries may succeed.
    #[error("no room: {0}")]
    Full(Arc<str>),
    /// What was stored is damaged, and where. Everything else goes on; `terrace repair` shows what can be done, or restore
    /// from a backup.
    #[error("damaged: {0}")]
    Corrupt(Damage),
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
    /// By what can be done: what is missing may come back.
    fn from(error: JournalError) -> StoreError {
        match error {
            JournalError::Full { .. } | JournalError::NoDescriptors => StoreError::Full(error.to_string().into()),
            other => StoreError::Journal(Arc::new(other)),
        }
    }
}

impl From<DeviceError> for StoreError {
    /// A descriptor may come back, and is only missing where something is made or opened. Whether a full medium left everything
    /// as it was only the place knows that asked.
    fn from(error: DeviceError) -> StoreError {
        match error {
            DeviceError::NoDescriptors { .. } => StoreError::Full(error.to_string().into()),
            other => StoreError::Device(Arc::new(other)),
        }
    }
}

/// Errors of the system that say that the medium does not give bytes back: EIO, EILSEQ, EBADMSG and EUCLEAN (a file system's own
/// checksum), ENODATA, EREMOTEIO. Others may pass, and are no damage.
const UNREADABLE: [i32; 6] = [5, 61, 74, 84, 117, 121];

impl StoreError {
    /// What a closed store answers.
    pub(crate) fn closed() -> StoreError {
        StoreError::Refused("the store is closed; open it again".into())
    }

    /// The error of a page that was to be read: bytes that the medium does not give back are damage of that page.
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
