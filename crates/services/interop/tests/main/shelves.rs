//! A shelf whose flushes wait until the test lets them go.

use std::sync::{Arc, Condvar, Mutex};

use device::{Device, DeviceError, Durability, Shelf};

#[derive(Debug, Default)]
struct Gate {
    /// Whether flushes wait, and how many do.
    state: Mutex<(bool, usize)>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.1 += 1;
        while state.0 {
            state = self.opened.wait(state).expect("nobody panics with it");
        }
        state.1 -= 1;
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct HeldShelf {
    inner: Arc<dyn Shelf>,
    gate: Arc<Gate>,
}

impl HeldShelf {
    pub(crate) fn new(inner: Arc<dyn Shelf>) -> HeldShelf {
        HeldShelf { inner, gate: Arc::default() }
    }

    /// From now on flushes wait.
    pub(crate) fn hold(&self) {
        self.gate.state.lock().expect("nobody panics with it").0 = true;
    }

    /// Lets them go on.
    pub(crate) fn release(&self) {
        self.gate.state.lock().expect("nobody panics with it").0 = false;
        self.gate.opened.notify_all();
    }

    /// How many flushes wait.
    pub(crate) fn waiting(&self) -> usize {
        self.gate.state.lock().expect("nobody panics with it").1
    }

    fn wrap(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Held { inner, gate: Arc::clone(&self.gate) })
    }
}

impl Shelf for HeldShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.wrap(self.inner.create(name, bytes)?))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.wrap(self.inner.open(name)?))
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

#[derive(Debug)]
struct Held {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl Device for Held {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(offset, data)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.gate.pass();
        self.inner.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }
    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}
