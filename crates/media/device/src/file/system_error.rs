//! Errors of the system, named by what the caller can do about them.

use std::io;

use crate::{DeviceError, Operation};

/// Converts a system error, named by what the caller can do about it.
pub(crate) fn failed(operation: Operation, name: &str, offset: u64, source: io::Error) -> DeviceError {
    let name = name.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => DeviceError::NotFound { name },
        io::ErrorKind::AlreadyExists => DeviceError::AlreadyExists { name },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DeviceError::Full { name, bytes: 0 },
        _ if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => DeviceError::NoDescriptors { name },
        _ => DeviceError::Io { operation, name, offset, source },
    }
}
