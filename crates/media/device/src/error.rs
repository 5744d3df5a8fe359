//! The errors of devices and shelves, named by what the caller can do about them.

use std::fmt;
use std::io;

/// The operation of a device or a shelf that failed; also the unit that the simulators count and script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`crate::Shelf::create`]
    Create,
    /// [`crate::Shelf::open`] and [`crate::Shelf::open_read_only`], and opening the shelf itself
    Open,
    /// [`crate::Shelf::list`]
    List,
    /// [`crate::Shelf::remove`]
    Remove,
    /// [`crate::Shelf::rename`]
    Rename,
    /// [`crate::Device::read`]
    Read,
    /// [`crate::Device::write`], and the write of [`crate::Device::write_flush`]
    Write,
    /// [`crate::Device::flush`], and the flush of [`crate::Device::write_flush`]
    Flush,
    /// [`crate::Device::discard`]
    Discard,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::List => "list",
            Operation::Remove => "remove",
            Operation::Rename => "rename",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
        })
    }
}

/// Why a device or a shelf refused.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no device with that name.
    #[error("no device named {name}")]
    NotFound {
        /// The requested name.
        name: String,
    },
    /// The name is in use; choose another or remove that device first.
    #[error("a device named {name} already exists")]
    AlreadyExists {
        /// The requested name.
        name: String,
    },
    /// No space is left (or a quota is reached). Free some and try again; nothing was left behind by a failed create.
    #[error("no space left for {name}{}: free some and try again", Wanted(*.bytes))]
    Full {
        /// The device.
        name: String,
        /// How many bytes were requested; 0 if the system did not report which write it refused.
        bytes: u64,
    },
    /// The process, or the machine, has no free file descriptor (`EMFILE`, `ENFILE`). Nothing was changed: retry,
    /// descriptors may be released. If the error persists, raise the limit.
    #[error("no file descriptor is free for {name}: raise the limit of open files (ulimit -n, LimitNOFILE)")]
    NoDescriptors {
        /// The device or shelf.
        name: String,
    },
    /// Another process has the shelf open for writing. Stop it, or open read-only.
    #[error("{shelf} is in use by {}; stop it, or open read-only", Holder(*.holder))]
    Busy {
        /// The shelf.
        shelf: String,
        /// The process that has it open, if known.
        holder: Option<u32>,
    },
    /// The device or shelf was opened read-only.
    #[error("cannot {operation} {name}: it was opened read-only")]
    ReadOnly {
        /// The refused operation.
        operation: Operation,
        /// The device or shelf.
        name: String,
    },
    /// The file with that name was not created by [`crate::Shelf::create`].
    #[error("{name} is not a device: {bytes} bytes is not a positive multiple of 4096; move it elsewhere")]
    NotADevice {
        /// The name.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// There is no shelf on the device. Format it, if its content is not needed.
    #[error("{name} contains no shelf: format it, if its content is not needed")]
    NoShelf {
        /// The device.
        name: String,
    },
    /// A shelf is not complete without its write-back cache, and the one that was given is not that cache, or an older state of it:
    /// its last writes are elsewhere. Attach that cache, or give up this copy and fill it from the others.
    #[error(
        "{name} needs its write-back cache, and {why}: attach that cache, or replace this copy and fill it from the others"
    )]
    WrongCache {
        /// The shelf.
        name: String,
        /// What was found instead.
        why: String,
    },
    /// What the device says about its own content is damaged. Restore it from a copy.
    #[error("{name} is damaged: {what}; restore it from a copy")]
    Damaged {
        /// The device or shelf.
        name: String,
        /// What is damaged, and how.
        what: String,
    },
    /// The medium does not support the operation.
    #[error("{name} cannot {operation}: the medium under it does not support it")]
    Unsupported {
        /// The refused operation.
        operation: Operation,
        /// The device.
        name: String,
    },
    /// An earlier write or flush on this handle failed: it is unknown what is persistent. Reopen, and run recovery.
    #[error("{name} refuses changes after a failed write or flush: reopen it and run recovery")]
    Poisoned {
        /// The device.
        name: String,
    },
    /// The medium has lost these bytes: a read consumed poison. Restore the range from a copy; writing all of it makes it
    /// readable again.
    #[error(
        "{name} has lost {bytes} bytes at {offset}: the medium reports an uncorrectable error; restore them from a copy"
    )]
    Lost {
        /// The device.
        name: String,
        /// Where the lost range starts.
        offset: u64,
        /// Its length: the medium's unit of loss, not the requested length.
        bytes: u64,
    },
    /// There is no persistent memory under the shelf, or it cannot be mapped as such. Mount the file system that the
    /// text describes, or select an alternative ([`crate::pmem::Absent`]).
    #[error(
        "{name} is not on persistent memory: {why}; make an fsdax namespace (ndctl create-namespace -m fsdax), put XFS or \
         ext4 on it and mount that with -o dax=always, or choose page granularity or emulation"
    )]
    NotPersistentMemory {
        /// The shelf, or the device.
        name: String,
        /// The reason of the refusal.
        why: String,
    },
    /// Memory is not available. Request less, free some, or use another node's.
    #[error("{name} takes {}, which is not available: {source}; make it smaller, or free memory of the machine", Gibibytes(*.bytes))]
    NoMemory {
        /// The use of the memory.
        name: String,
        /// The requested size.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The power failed. Only the crash simulator returns this.
    #[error("the simulated power failed")]
    PowerLost,
    /// The operating system or the medium reported an error.
    #[error("cannot {operation} {name} at {offset}: {source}")]
    Io {
        /// The failed operation.
        operation: Operation,
        /// The device or shelf.
        name: String,
        /// Byte offset in the device; 0 if there is none.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
}

impl DeviceError {
    /// Returns the same error with the current name of the device: a handle is not notified of a rename.
    pub fn named(mut self, now: &str) -> DeviceError {
        match &mut self {
            DeviceError::NotFound { name }
            | DeviceError::AlreadyExists { name }
            | DeviceError::Full { name, .. }
            | DeviceError::NoDescriptors { name }
            | DeviceError::ReadOnly { name, .. }
            | DeviceError::NotADevice { name, .. }
            | DeviceError::NoShelf { name }
            | DeviceError::WrongCache { name, .. }
            | DeviceError::Damaged { name, .. }
            | DeviceError::Unsupported { name, .. }
            | DeviceError::Poisoned { name }
            | DeviceError::Lost { name, .. }
            | DeviceError::NotPersistentMemory { name, .. }
            | DeviceError::NoMemory { name, .. }
            | DeviceError::Io { name, .. } => now.clone_into(name),
            DeviceError::Busy { .. } | DeviceError::PowerLost => {}
        }
        self
    }

    /// Sets the requested size, if the error is a lack of space.
    pub(crate) fn wanting(self, wanted: u64) -> DeviceError {
        match self {
            DeviceError::Full { name, .. } => DeviceError::Full { name, bytes: wanted },
            other => other,
        }
    }
}

/// " (4096 bytes wanted)" or nothing.
struct Wanted(u64);

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 { write!(f, " ({} bytes wanted)", self.0) } else { Ok(()) }
    }
}

/// "512.0 GiB".
struct Gibibytes(u64);

impl fmt::Display for Gibibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} GiB", self.0 as f64 / f64::from(1 << 30))
    }
}

/// "process 17" or "another process".
struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_do() {
        let name = || "journal-1".to_owned();
        let eio = io::Error::from_raw_os_error(libc::EIO);
        let cases = [
            (
                DeviceError::Full { name: name(), bytes: 4096 },
                "no space left for journal-1 (4096 bytes wanted): free some and try again",
            ),
            (DeviceError::Full { name: name(), bytes: 0 }, "no space left for journal-1: free some and try again"),
            (
                DeviceError::NoDescriptors { name: name() },
                "no file descriptor is free for journal-1: raise the limit of open files (ulimit -n, LimitNOFILE)",
            ),
            (
                DeviceError::Busy { shelf: "data".into(), holder: Some(17) },
                "data is in use by process 17; stop it, or open read-only",
            ),
            (
                DeviceError::Busy { shelf: "data".into(), holder: None },
                "data is in use by another process; stop it, or open read-only",
            ),
            (
                DeviceError::Poisoned { name: name() },
                "journal-1 refuses changes after a failed write or flush: reopen it and run recovery",
            ),
            (
                DeviceError::Io { operation: Operation::Flush, name: name(), offset: 8192, source: eio },
                "cannot flush journal-1 at 8192: Input/output error (os error 5)",
            ),
            (
                DeviceError::NoMemory {
                    name: "far memory on tier cxl".into(),
                    bytes: 3 << 39,
                    source: io::ErrorKind::OutOfMemory.into(),
                },
                "far memory on tier cxl takes 1536.0 GiB, which is not available: out of memory; make it smaller, or free memory of \
                 the machine",
            ),
        ];
        for (error, message) in cases {
            assert_eq!(error.to_string(), message);
        }
    }
}
