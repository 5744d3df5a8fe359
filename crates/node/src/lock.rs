//! One node for each data directory: flock(2) on a file of it, which the system releases however the process ends.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::DeviceError;

use crate::error::NodeError;

/// The lock's file name, below the data directory. It holds the process number of the node that runs there.
const LOCK: &str = "node.lock";

/// A data directory that belongs to this process, until this is dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    data: PathBuf,
    _file: File,
}

impl DirectoryLock {
    /// Makes the data directory where it is absent, durably, and locks it.
    ///
    /// # Errors
    /// `Device` with `Busy` where another process has it; `File`.
    pub fn acquire(data: &Path) -> Result<DirectoryLock, NodeError> {
        device::os::make_directory(data).map_err(NodeError::file("make", data))?;
        let path = data.join(LOCK);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(NodeError::file("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The holder may not have written its number yet.
                let holder = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(DeviceError::Busy { shelf: data.display().to_string(), holder }.into());
            }
            Err(TryLockError::Error(source)) => return Err(NodeError::File { action: "lock", path, source }),
        }
        // Information for a second process. It is not essential: if the disk is full, the node must start without it,
        // so that queued messages are sent.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(DirectoryLock { data: data.to_owned(), _file: file })
    }

    /// As [`acquire`](DirectoryLock::acquire), for a process that stays: it waits up to two seconds, since a command that looks at a stopped
    /// node (`terrace volume status` in a monitoring script) has the lock for a moment, and must not keep a node from starting.
    ///
    /// # Errors
    /// As `acquire`.
    pub fn acquire_to_serve(data: &Path) -> Result<DirectoryLock, NodeError> {
        const TRIES: u32 = 100;
        const PAUSE: Duration = Duration::from_millis(20);
        for _ in 0..TRIES {
            match DirectoryLock::acquire(data) {
                Err(NodeError::Device(DeviceError::Busy { .. })) => std::thread::sleep(PAUSE),
                other => return other,
            }
        }
        DirectoryLock::acquire(data)
    }

    /// Locks a data directory to read it; none where it may only be read, and no lock can be written there.
    ///
    /// # Errors
    /// `Device` with `Busy` where another process has it.
    pub fn acquire_to_read(data: &Path) -> Result<Option<DirectoryLock>, NodeError> {
        match DirectoryLock::acquire(data) {
            Ok(lock) => Ok(Some(lock)),
            Err(NodeError::File { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Waits until the node that runs on a data directory has ended, at most for `patience`; false where it still runs then. A
    /// node that another process has started there meanwhile is not waited for.
    ///
    /// # Errors
    /// `File` where the lock cannot be read.
    pub fn wait_for_end(data: &Path, patience: Duration) -> Result<bool, NodeError> {
        const PAUSE: Duration = Duration::from_millis(10);
        let path = data.join(LOCK);
        let mut first = None;
        for _ in 0..patience.as_millis() / PAUSE.as_millis() {
            let mut file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
                opened => opened.map_err(NodeError::file("open", &path))?,
            };
            let mut holder = String::new();
            file.read_to_string(&mut holder).map_err(NodeError::file("read", &path))?;
            let ended = match file.try_lock_shared() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => *first.get_or_insert_with(|| holder.clone()) != holder,
                Err(TryLockError::Error(source)) => return Err(NodeError::File { action: "lock", path, source }),
            };
            if ended {
                return Ok(true);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_is_one_nodes_and_made_with_its_ancestors() {
        let home = tempfile::tempdir().expect("a folder");
        let data = home.path().join("a/b");
        let lock = DirectoryLock::acquire(&data).expect("it is free");
        let refused = DirectoryLock::acquire(&data).expect_err("it is locked");
        let holder = Some(std::process::id());
        assert!(
            matches!(&refused, NodeError::Device(DeviceError::Busy { holder: h, .. }) if *h == holder),
            "{refused}"
        );
        drop(lock);
        DirectoryLock::acquire(&data).expect("it is free again");
    }

    #[test]
    fn a_command_that_has_the_lock_for_a_moment_does_not_keep_a_node_from_starting() {
        let home = tempfile::tempdir().expect("a folder");
        let short = DirectoryLock::acquire(home.path()).expect("it is free");
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| DirectoryLock::acquire_to_serve(home.path()));
            std::thread::sleep(Duration::from_millis(100));
            drop(short);
            let lock = starting.join().expect("no panic").expect("it waited");
            assert!(DirectoryLock::acquire_to_serve(home.path()).is_err(), "a node stays");
            drop(lock);
        });
    }
}
