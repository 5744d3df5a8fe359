//! [`ReservedShelf`]: another shelf that leaves some of its medium's space to others.
//!
//! The files of indices can be made again, and what else lies on the medium cannot: messages, documents, the journal. A new device of
//! an index that would take the last of the space is refused, and the index is behind its documents until there is space.

use std::sync::Arc;

use device::{Device, DeviceError, Shelf};

/// See the head comment of this file.
#[derive(Debug)]
pub struct ReservedShelf {
    inner: Arc<dyn Shelf>,
    reserve: u64,
}

impl ReservedShelf {
    /// A shelf that leaves `reserve` bytes free. Where the free space is unknown, nothing is refused.
    pub fn new(inner: Arc<dyn Shelf>, reserve: u64) -> ReservedShelf {
        ReservedShelf { inner, reserve }
    }

    fn has_room(&self, name: &str, bytes: u64) -> Result<(), DeviceError> {
        match self.inner.free_bytes()? {
            Some(free) if free < self.reserve.saturating_add(bytes) => {
                Err(DeviceError::Full { name: name.to_owned(), bytes })
            }
            _ => Ok(()),
        }
    }
}

impl Shelf for ReservedShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.has_room(name, bytes)?;
        self.inner.create(name, bytes)
    }

    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.has_room(name, bytes)?;
        self.inner.create_unwritten(name, bytes)
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        Ok(self.inner.free_bytes()?.map(|free| free.saturating_sub(self.reserve)))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open(name)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open_read_only(name)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.rename(from, to)
    }
}
