//! A shelf seen in pages: its devices take offsets and lengths in multiples of 4096, whatever they could take themselves.
//!
//! For the calibration at a node's start, which leaves out what a device's block does not allow. What a journal does to its
//! medium is to write batches of kilobytes and to read segments; whether the host is fast enough for a single line of 64 bytes
//! does not decide whether a node may run.

use std::sync::Arc;

use device::{Device, DeviceError, Durability, Shelf};

/// See the module's text.
#[derive(Debug)]
pub(super) struct Pages(pub(super) Arc<dyn Shelf>);

#[derive(Debug)]
struct Paged(Arc<dyn Device>);

fn paged(device: Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(Paged(device))
}

impl Shelf for Pages {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.0.create(name, bytes).map(paged)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.0.open(name).map(paged)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.0.open_read_only(name).map(paged)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.0.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.0.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.0.rename(from, to)
    }
}

/// The block is the contract's default of 4096; all else is the device's.
impl Device for Paged {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn atom_bytes(&self) -> u32 {
        self.0.atom_bytes()
    }

    fn is_inline(&self) -> bool {
        self.0.is_inline()
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.0.deep_flush()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.0.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.0.write_flush(offset, data)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.0.discard(offset, bytes)
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }
}
