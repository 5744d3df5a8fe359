//! A shelf whose devices hang for a while: what a drive, a cable or another node does that does not answer and does not fail.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex};

use device::{Device, DeviceError, Durability, Shelf};

/// What is closed while devices hang.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    hanging: Mutex<Option<String>>,
    opened: Condvar,
}

impl Gate {
    /// From now on calls on devices whose names begin so wait. The empty string means all.
    pub(crate) fn hang(&self, prefix: &str) {
        *self.hanging.lock().expect("no panic") = Some(prefix.to_owned());
    }

    pub(crate) fn release(&self) {
        *self.hanging.lock().expect("no panic") = None;
        self.opened.notify_all();
    }

    fn pass(&self, name: &str) {
        let mut hanging = self.hanging.lock().expect("no panic");
        // A segment of a journal was a spare device when it was opened.
        let name = if name.starts_with("spare-") { "journal" } else { name };
        while hanging.as_ref().is_some_and(|prefix| name.starts_with(prefix.as_str())) {
            hanging = self.opened.wait(hanging).expect("no panic");
        }
    }
}

/// A shelf behind a gate; its devices are neither inline nor volatile, as those of drives.
#[derive(Debug)]
pub(crate) struct HangingShelf {
    inner: Arc<dyn Shelf>,
    pub(crate) gate: Arc<Gate>,
}

impl HangingShelf {
    pub(crate) fn new(inner: Arc<dyn Shelf>) -> HangingShelf {
        HangingShelf { inner, gate: Arc::default() }
    }

    fn wrap(&self, name: &str, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(HangingDevice { name: name.to_owned(), inner, gate: self.gate.clone() })
    }
}

impl Shelf for HangingShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.gate.pass(name);
        Ok(self.wrap(name, self.inner.create(name, bytes)?))
    }

    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.gate.pass(name);
        Ok(self.wrap(name, self.inner.create_sparse(name, bytes)?))
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        self.inner.free_bytes()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.gate.pass(name);
        Ok(self.wrap(name, self.inner.open(name)?))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.gate.pass(name);
        self.inner.open_read_only(name)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.gate.pass(name);
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.gate.pass(from);
        self.inner.rename(from, to)
    }
}

struct HangingDevice {
    name: String,
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl fmt::Debug for HangingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HangingDevice").field(&self.inner).finish()
    }
}

impl Device for HangingDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.gate.pass(&self.name);
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.gate.pass(&self.name);
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.gate.pass(&self.name);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.gate.pass(&self.name);
        self.inner.discard(offset, bytes)
    }

    fn durability(&self) -> Durability {
        Durability::Emulated
    }
}
