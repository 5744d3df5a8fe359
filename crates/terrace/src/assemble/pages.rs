//! A shelf seen in pages: its devices take offsets and lengths in multiples of 4096, whatever they could take themselves.
//!
//! For the calibration at a node's start, which leaves out accesses that a device's block does not allow. A journal
//! writes batches of kilobytes and reads segments; whether the host is fast enough for a single line of 64 bytes does
//! not decide whether a node may run.

use std::sync::Arc;

use device::{Device, DeviceError, Durability, Shelf, WrappedShelf};

/// See the module's text.
pub(super) fn in_pages(shelf: Arc<dyn Shelf>) -> Arc<dyn Shelf> {
    Arc::new(WrappedShelf::new(shelf, |device| Arc::new(Paged(device))))
}

#[derive(Debug)]
struct Paged(Arc<dyn Device>);

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
