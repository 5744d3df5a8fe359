//! [`stoppable`]: a shelf whose devices refuse to be read and written once the work on them is to end.
//!
//! A backup is copied, then read again, page by page and segment by segment: each of these is an operation of a device. So a stop ends all of
//! it within one, wherever it is.

use std::io;
use std::sync::Arc;

use device::{Device, DeviceError, Durability, Operation, Shelf, WrappedShelf};

/// Whether the work is to end.
pub type Stopped = Arc<dyn Fn() -> bool + Send + Sync>;

/// The devices of `inner`, until `stopped`.
pub(crate) fn stoppable(inner: Arc<dyn Shelf>, stopped: &Stopped) -> Arc<dyn Shelf> {
    let stopped = Arc::clone(stopped);
    Arc::new(WrappedShelf::new(inner, move |inner| Arc::new(StoppableDevice { inner, stopped: Arc::clone(&stopped) })))
}

struct StoppableDevice {
    inner: Arc<dyn Device>,
    stopped: Stopped,
}

impl std::fmt::Debug for StoppableDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StoppableDevice").field(&self.inner).finish()
    }
}

impl StoppableDevice {
    /// Without the number of an error of the system: it is not damage of what was to be read.
    fn go_on(&self, operation: Operation, offset: u64) -> Result<&dyn Device, DeviceError> {
        if (self.stopped)() {
            let source = io::Error::other("it was given up: the node stops, or nobody waits for it any more");
            return Err(DeviceError::Io { operation, name: "a backup".to_owned(), offset, source });
        }
        Ok(&*self.inner)
    }
}

impl Device for StoppableDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.inner.atom_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.go_on(Operation::Read, offset)?.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.go_on(Operation::Write, offset)?.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.go_on(Operation::Flush, 0)?.flush()
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.go_on(Operation::Write, offset)?.write_flush(offset, data)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.go_on(Operation::Discard, offset)?.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.go_on(Operation::Write, offset)?.write_zeroes(offset, bytes, free)
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}
