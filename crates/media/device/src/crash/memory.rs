//! Persistent memory of the simulated machine: the device is the real one, its lines are a recording.
//!
//! ```text
//!   MemoryHandle        checks the power before and after every call
//!     PmemDevice        the real algorithm: its stores, write-backs and fences
//!       Recorded        records each of them as an operation; a write-back of a range is one for each line
//! ```
//!
//! Without power the lines do nothing and report nothing, because instructions cannot fail. The handle returns the
//! error.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::PmemMode;
use super::content::FileId;
use super::machine::Machine;
use super::trace::Action;
use crate::pmem::{Domain, Granularity, Lines, Lost, PmemDevice, lines_of};
use crate::{Device, DeviceError, Durability};

/// The lines of one device.
pub(super) struct Recorded {
    name: String,
    machine: Arc<Machine>,
    file: FileId,
    bytes: u64,
}

impl Recorded {
    pub(super) fn new(name: &str, machine: Arc<Machine>, file: FileId, bytes: u64) -> Recorded {
        Recorded { name: name.into(), machine, file, bytes }
    }

    fn perform(&self, action: Action) {
        // Without power nothing happens; the handle above reports it.
        let _ = self.machine.perform(&self.name, |_| Ok(action));
    }

    fn record_store(&self, offset: u64, data: &[u8], past_cache: bool) {
        self.perform(Action::Store { file: self.file, offset, data: data.into(), past_cache });
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Lines for Recorded {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn load(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Lost> {
        self.machine.recording().live.files[self.file].read(offset, buffer);
        Ok(())
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<(), Lost> {
        self.record_store(offset, data, false);
        Ok(())
    }

    fn store_past_cache(&self, offset: u64, data: &[u8]) -> Result<(), Lost> {
        self.record_store(offset, data, true);
        Ok(())
    }

    fn write_back(&self, offset: u64, bytes: u64) -> Result<(), Lost> {
        lines_of(offset, bytes).for_each(|line| self.perform(Action::WriteBack { file: self.file, line }));
        Ok(())
    }

    fn fence(&self) {
        self.perform(Action::Fence);
    }

    fn sync(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.perform(Action::Sync { file: self.file, offset, bytes });
        Ok(())
    }
}

/// A device with the power switch.
pub(super) struct MemoryHandle {
    machine: Arc<Machine>,
    device: PmemDevice<Recorded>,
}

impl MemoryHandle {
    pub(super) fn new(
        name: &str,
        machine: Arc<Machine>,
        (file, bytes): (FileId, u64),
        believed: PmemMode,
        writable: bool,
    ) -> MemoryHandle {
        let lines = Recorded::new(name, Arc::clone(&machine), file, bytes);
        let mapping = match believed {
            PmemMode::Adr => (Granularity::Line, Domain::Adr),
            PmemMode::Eadr => (Granularity::Line, Domain::Eadr),
            PmemMode::Pages => (Granularity::Page, Domain::Unknown),
        };
        MemoryHandle { machine, device: PmemDevice::new(name, lines, mapping, Durability::Emulated, writable) }
    }

    /// Runs a call, unless the power is off; its result counts only if the power is still on afterwards.
    fn powered<T>(&self, call: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        self.machine.recording().check_power()?;
        let result = call();
        self.machine.recording().check_power()?;
        result
    }
}

impl fmt::Debug for MemoryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

impl Device for MemoryHandle {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn block_bytes(&self) -> u32 {
        self.device.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.device.atom_bytes()
    }

    fn is_inline(&self) -> bool {
        self.device.is_inline()
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.powered(|| self.device.deep_flush())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.powered(|| self.device.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.powered(|| self.device.write(offset, data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.powered(|| self.device.flush())
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.powered(|| self.device.write_flush(offset, data))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.powered(|| self.device.discard(offset, bytes))
    }

    fn durability(&self) -> Durability {
        self.device.durability()
    }
}
