//! One writer per directory: flock(2) on the file `lock`, which the system releases however the process ends.
//!
//! The file contains the process number of the holder, for the error message of a second process. It is for information
//! only; the lock itself decides. The file is never removed: otherwise two processes could lock two files of the same
//! name.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::system_error::failed;
use crate::os::PRIVATE_FILE;
use crate::{DeviceError, Operation};

/// The name of the lock file, which no device may have.
pub(crate) const LOCK_NAME: &str = "lock";

/// Held while it lives; the shelf and all its writable devices share it.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `directory`, or returns which process has it.
    pub(crate) fn take(directory: &Path) -> Result<Lock, DeviceError> {
        let path = directory.join(LOCK_NAME);
        let name = || path.display().to_string();
        let io = |source| failed(Operation::Open, &name(), 0, source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE_FILE)
            .open(&path)
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DeviceError::Busy { shelf: directory.display().to_string(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        // For information only, as described above: a full disk has no space for it, but its stored data must be
        // accessible all the same.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Lock { _file: file })
    }
}

/// The process number in the lock file; `None` if the holder has not written it yet.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    // A number has at most ten digits; any further content is ignored.
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
