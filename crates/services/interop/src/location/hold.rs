//! One node for each data directory: flock(2) on a file of it, which the system releases however the process ends.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use device::DeviceError;

use crate::error::InteropError;

/// The lock's file name, below the data directory. It holds the process number of the node that runs there.
const LOCK: &str = "node.lock";

/// A data directory that is one node's, until this is dropped.
#[derive(Debug)]
pub struct Hold {
    _file: File,
}

impl Hold {
    /// Makes the data directory where it is absent, durably, and takes it.
    ///
    /// # Errors
    /// `Device` with `Busy` where another node runs on it; `File`.
    pub fn take(data: &Path) -> Result<Hold, InteropError> {
        device::os::make_directory(data).map_err(InteropError::file("make", data))?;
        let path = data.join(LOCK);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(InteropError::file("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Whoever holds it may not have written its number yet.
                let holder = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(DeviceError::Busy { shelf: data.display().to_string(), holder }.into());
            }
            Err(TryLockError::Error(source)) => return Err(InteropError::File { action: "lock", path, source }),
        }
        // Advice for whoever comes second: a full disk has no room for it, and what is queued must go out all the same.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Hold { _file: file })
    }

    /// Waits until the node that runs on a data directory has ended, at most for `patience`; false where it still runs then. A node that
    /// another process has started there meanwhile is not waited for.
    ///
    /// # Errors
    /// `File` where the lock cannot be read.
    pub fn wait_for_end(data: &Path, patience: Duration) -> Result<bool, InteropError> {
        const PAUSE: Duration = Duration::from_millis(10);
        let path = data.join(LOCK);
        let mut first = None;
        for _ in 0..patience.as_millis() / PAUSE.as_millis() {
            let mut file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
                opened => opened.map_err(InteropError::file("open", &path))?,
            };
            let mut holder = String::new();
            file.read_to_string(&mut holder).map_err(InteropError::file("read", &path))?;
            let ended = match file.try_lock_shared() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => *first.get_or_insert_with(|| holder.clone()) != holder,
                Err(TryLockError::Error(source)) => return Err(InteropError::File { action: "lock", path, source }),
            };
            if ended {
                return Ok(true);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(false)
    }
}
