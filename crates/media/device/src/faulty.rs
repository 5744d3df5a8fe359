//! A script of faults around any shelf: faults of drives, file systems and cables, at a chosen operation.
//!
//! ```text
//!   FaultyShelf::new(inner)                     counts every operation, changes nothing
//!     .inject(Rule::nth(Write, 3, Fault::Eio))  the third write fails, and its device is poisoned
//!     .inject(Rule::from(Create, 2, Fault::NoSpace))
//! ```
//!
//! Each rule counts the operations of its kind (and, if given, of its device) since it was injected. If several rules
//! match one operation, the first injected one applies. Handles follow the contract: a failed write, flush or discard
//! poisons them, even if the fault left the inner device intact.
//!
//! With a crash shelf inside, [`Fault::Lost`] on a flush tests the tests: an engine that loses one flush must be
//! detected by some crash image, or the images are too weak.
//!
//! After a *failed* flush, the state of a real medium is unknown sector by sector. This wrapper leaves the inner device
//! unchanged. Put it around a crash shelf: the engine must be able to reopen all images of that moment.
//!
//! It adds no delays and no loss of power; nothing here is random.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::contract::assert_range_of;
use crate::poison::Poison;
use crate::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, Extent, Operation, Shelf};

/// A fault. Not every fault is possible for every operation; a [`Rule`] with an impossible combination panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any operation fails with `EIO` and changes nothing.
    Eio,
    /// A create, a write, a flush or a discard fails with [`DeviceError::Full`] and changes nothing.
    NoSpace,
    /// A create or an open fails with [`DeviceError::NoDescriptors`] and changes nothing.
    NoDescriptors,
    /// A write stores its first `bytes` (rounded down to blocks), then fails with `EIO`.
    Short {
        /// How many bytes are stored.
        bytes: usize,
    },
    /// A write, a flush or a discard returns success and does nothing: a lost write, a lying flush.
    Lost,
    /// A write goes to, or a read comes from, another place, `blocks` further on (modulo the device), and returns
    /// success.
    Misdirected {
        /// Distance in [`BLOCK_BYTES`].
        blocks: u64,
    },
    /// One bit is inverted in the bytes that a read returns or a write stores; no bit if it lies after their end.
    BitFlip {
        /// The byte of the transfer.
        byte: usize,
        /// Its bit, 0 to 7.
        bit: u8,
    },
}

impl Fault {
    fn fits(self, operation: Operation) -> bool {
        use Operation::{Create, Discard, Flush, Open, Read, Write};
        match self {
            Fault::Eio => true,
            Fault::NoSpace => matches!(operation, Create | Write | Flush | Discard),
            Fault::NoDescriptors => matches!(operation, Create | Open),
            Fault::Short { .. } => operation == Write,
            Fault::Lost => matches!(operation, Write | Flush | Discard),
            Fault::Misdirected { .. } | Fault::BitFlip { .. } => matches!(operation, Read | Write),
        }
    }
}

/// When a fault happens.
#[derive(Clone, Debug)]
pub struct Rule {
    operation: Operation,
    name: Option<String>,
    first: u64,
    times: u64,
    fault: Fault,
}

impl Rule {
    /// Only the `nth` such operation; 1 is the next one.
    pub fn nth(operation: Operation, nth: u64, fault: Fault) -> Rule {
        Rule::new(operation, nth, 1, fault)
    }

    /// The `nth` such operation and all after it.
    pub fn from(operation: Operation, nth: u64, fault: Fault) -> Rule {
        Rule::new(operation, nth, u64::MAX, fault)
    }

    fn new(operation: Operation, first: u64, times: u64, fault: Fault) -> Rule {
        assert!(fault.fits(operation), "a {operation} cannot suffer {fault:?}");
        assert!(first > 0, "the first operation is number 1");
        Rule { operation, name: None, first, times, fault }
    }

    /// Counts and affects only operations on the device of this name (the name under which it was opened).
    pub fn on(mut self, name: &str) -> Rule {
        self.name = Some(name.into());
        self
    }
}

/// A shelf whose operations fail according to a script.
#[derive(Debug)]
pub struct FaultyShelf {
    inner: Arc<dyn Shelf>,
    script: Arc<Script>,
}

#[derive(Debug, Default)]
struct Script {
    rules: Mutex<Vec<Counted>>,
}

#[derive(Debug)]
struct Counted {
    rule: Rule,
    seen: u64,
    hits: u64,
}

impl FaultyShelf {
    /// Wraps a shelf; without rules it behaves like the inner shelf.
    pub fn new(inner: Arc<dyn Shelf>) -> FaultyShelf {
        FaultyShelf { inner, script: Arc::new(Script::default()) }
    }

    /// Adds a rule. It counts from now on, also for devices that are already open.
    pub fn inject(&self, rule: Rule) {
        self.script.rules().push(Counted { rule, seen: 0, hits: 0 });
    }

    /// Removes all rules. Poisoned handles stay poisoned.
    pub fn heal(&self) {
        self.script.rules().clear();
    }

    /// How many operations the rules have affected: a test that injects a fault checks that it occurred.
    pub fn hits(&self) -> u64 {
        self.script.rules().iter().map(|counted| counted.hits).sum()
    }

    fn wrap(&self, name: &str, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        let script = Arc::clone(&self.script);
        Arc::new(FaultyDevice { name: name.into(), inner, script, poison: Poison::default() })
    }

    /// Runs an operation on names, for which the only faults are errors.
    fn on_names<T>(
        &self,
        operation: Operation,
        name: &str,
        bytes: u64,
        run: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match self.script.next(operation, name) {
            Some(fault) => Err(error_of(fault, operation, name, 0, bytes)),
            None => run(),
        }
    }
}

impl Script {
    fn rules(&self) -> MutexGuard<'_, Vec<Counted>> {
        // The counters are consistent after any panic.
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the operation; returns the fault that applies to it.
    fn next(&self, operation: Operation, name: &str) -> Option<Fault> {
        let mut fault = None;
        for Counted { rule, seen, hits } in self.rules().iter_mut() {
            if rule.operation != operation || rule.name.as_deref().is_some_and(|wanted| wanted != name) {
                continue;
            }
            *seen += 1;
            let is_hit = *seen >= rule.first && *seen - rule.first < rule.times;
            if is_hit && fault.is_none() {
                *hits += 1;
                fault = Some(rule.fault);
            }
        }
        fault
    }
}

/// The error of a failing fault.
fn error_of(fault: Fault, operation: Operation, name: &str, offset: u64, bytes: u64) -> DeviceError {
    match fault {
        Fault::NoSpace => DeviceError::Full { name: name.into(), bytes },
        Fault::NoDescriptors => DeviceError::NoDescriptors { name: name.into() },
        _ => {
            let source = std::io::Error::from_raw_os_error(libc::EIO);
            DeviceError::Io { operation, name: name.into(), offset, source }
        }
    }
}

impl Shelf for FaultyShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        let inner = self.on_names(Operation::Create, name, bytes, || self.inner.create(name, bytes))?;
        Ok(self.wrap(name, inner))
    }

    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        let inner = self.on_names(Operation::Create, name, bytes, || self.inner.create_sparse(name, bytes))?;
        Ok(self.wrap(name, inner))
    }

    fn medium(&self) -> Option<u64> {
        self.inner.medium()
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        self.inner.free_bytes()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        let inner = self.on_names(Operation::Open, name, 0, || self.inner.open(name))?;
        Ok(self.wrap(name, inner))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        let inner = self.on_names(Operation::Open, name, 0, || self.inner.open_read_only(name))?;
        Ok(self.wrap(name, inner))
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.on_names(Operation::List, "", 0, || self.inner.list())
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.on_names(Operation::Remove, name, 0, || self.inner.remove(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.on_names(Operation::Rename, from, 0, || self.inner.rename(from, to))
    }
}

struct FaultyDevice {
    name: String,
    inner: Arc<dyn Device>,
    script: Arc<Script>,
    poison: Poison,
}

impl FaultyDevice {
    fn error(&self, fault: Fault, operation: Operation, offset: u64, bytes: usize) -> DeviceError {
        error_of(fault, operation, &self.name, offset, bytes as u64)
    }

    /// The place of a misdirected transfer of `bytes`: still inside the device.
    fn misdirect(&self, offset: u64, bytes: usize, blocks: u64) -> u64 {
        let places = self.len() - bytes as u64 + u64::from(self.block_bytes());
        (offset + blocks % places * BLOCK_BYTES as u64) % places
    }

    fn write_faultily(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let Some(fault) = self.script.next(Operation::Write, &self.name) else {
            return self.inner.write(offset, data);
        };
        match fault {
            Fault::Eio | Fault::NoSpace | Fault::NoDescriptors => {
                Err(self.error(fault, Operation::Write, offset, data.len()))
            }
            Fault::Short { bytes } => {
                let block = self.block_bytes() as usize;
                let whole = bytes.min(data.len()) / block * block;
                self.inner.write(offset, &data[..whole])?;
                Err(self.error(fault, Operation::Write, offset, data.len()))
            }
            Fault::Lost => Ok(()),
            Fault::Misdirected { blocks } => self.inner.write(self.misdirect(offset, data.len(), blocks), data),
            Fault::BitFlip { byte, bit } => {
                let mut flipped = AlignedBuffer::from(data);
                flip(&mut flipped, byte, bit);
                self.inner.write(offset, &flipped)
            }
        }
    }

    fn flush_faultily(&self, flush: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        self.poison.guard(&self.name, || match self.script.next(Operation::Flush, &self.name) {
            None => flush(),
            Some(Fault::Lost) => Ok(()),
            Some(fault) => Err(self.error(fault, Operation::Flush, 0, 0)),
        })
    }

    fn read_faultily(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        match self.script.next(Operation::Read, &self.name) {
            None => self.inner.read(offset, buffer),
            Some(Fault::Misdirected { blocks }) => {
                self.inner.read(self.misdirect(offset, buffer.len(), blocks), buffer)
            }
            Some(Fault::BitFlip { byte, bit }) => {
                self.inner.read(offset, buffer)?;
                flip(buffer, byte, bit);
                Ok(())
            }
            Some(fault) => Err(self.error(fault, Operation::Read, offset, buffer.len())),
        }
    }
}

fn flip(data: &mut [u8], byte: usize, bit: u8) {
    if let Some(byte) = data.get_mut(byte) {
        *byte ^= 1 << (bit & 7);
    }
}

impl fmt::Debug for FaultyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultyDevice").field(&self.inner).finish()
    }
}

impl Device for FaultyDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.inner.atom_bytes()
    }

    fn is_inline(&self) -> bool {
        self.inner.is_inline()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        assert_range_of(self.len(), self.block_bytes().into(), offset, buffer.len() as u64);
        self.read_faultily(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range_of(self.len(), self.block_bytes().into(), offset, data.len() as u64);
        self.poison.guard(&self.name, || self.write_faultily(offset, data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flush_faultily(|| self.inner.flush())
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.flush_faultily(|| self.inner.deep_flush())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range_of(self.len(), self.block_bytes().into(), offset, bytes);
        self.poison.guard_discard(&self.name, || match self.script.next(Operation::Discard, &self.name) {
            None => self.inner.discard(offset, bytes),
            Some(Fault::Lost) => Ok(()),
            Some(fault) => Err(error_of(fault, Operation::Discard, &self.name, offset, bytes)),
        })
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.inner.extents(offset, bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.poison.check(&self.name)?;
        self.inner.reserve(offset, bytes)
    }

    fn allocated_bytes(&self) -> Result<u64, DeviceError> {
        self.inner.allocated_bytes()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}
