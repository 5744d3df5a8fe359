//! A shelf on one device: named parts of it, so that a journal or a store can lie on a volume, or on any other single device.
//!
//! ```text
//!   device   | slot A | slot B | journal-0 | journal-1 | pages ....... | journal-0 | free ............. |
//!              directory, twice  parts: each one run of bytes, or several
//! ```
//!
//! The directory lists the parts and their runs. A change of a name writes the whole directory to slot A, flushes, then does the same
//! with slot B, and only then returns: see `directory` for the bytes, and for what each pair of slots means when it is opened.
//!
//! Invariants:
//! * A name operation that has returned is in both slots, so damage to one of them loses nothing.
//! * A crash inside one leaves the directory before it or the one after it; the first opening makes the slots equal.
//! * Runs of parts never overlap, and never touch the slots; a directory in which they do is refused.
//! * A part reads as zeros before it is written: its runs are zeroed and flushed before its name is written.
//! * The runs of a removed part are used again only after its last handle is dropped.
//!
//! All parts share one device, so a flush of one is a flush of all, and a failure that poisons one poisons all: open the device and
//! the shelf again. One process at a time may change a shelf; what locks the device below locks it. Data is not checksummed here,
//! the directory is.

mod directory;
mod part;
mod space;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::directory::{Directory, SlotContent, slot_bytes};
use self::part::PartDevice;
use self::space::{FreeSpace, Runs};
use crate::contract::{assert_name, assert_size};
use crate::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Operation, Shelf};

/// Runs that one part may consist of: space in more pieces than this counts as full.
const RUNS_MAX: usize = 64;

/// Named parts of one device; see the head comment of this module.
pub struct DeviceShelf {
    name: String,
    device: Arc<dyn Device>,
    slot_bytes: u64,
    state: Mutex<ShelfState>,
    free: Arc<Mutex<FreeSpace>>,
    writable: bool,
}

/// What the directory says, with the handles' share of the space.
struct ShelfState {
    generation: u64,
    parts: BTreeMap<String, Arc<Runs>>,
}

impl DeviceShelf {
    /// Smallest device that can hold a shelf, in bytes: two slots, and as much again.
    pub const BYTES_MIN: u64 = 4 * directory::SLOT_BYTES_MIN;

    /// Makes an empty shelf of a device; `name` is what errors call it. What the device contained is lost. A crash inside leaves the
    /// device without a shelf, or with an empty one.
    ///
    /// Errors: [`DeviceError::Full`] if the device is smaller than [`BYTES_MIN`](Self::BYTES_MIN); those of writing.
    pub fn format(name: &str, device: &Arc<dyn Device>) -> Result<(), DeviceError> {
        let bytes = device.len();
        if bytes < DeviceShelf::BYTES_MIN {
            return Err(DeviceError::Full { name: name.into(), bytes: DeviceShelf::BYTES_MIN });
        }
        let slot = slot_bytes(bytes);
        // Both are made unreadable first: otherwise a crash could leave an old directory beside the new one.
        device.write(0, &AlignedBuffer::zeroed(BLOCK_BYTES))?;
        device.write(slot, &AlignedBuffer::zeroed(BLOCK_BYTES))?;
        device.flush()?;
        let empty = Directory { generation: 1, parts: BTreeMap::new() };
        let encoded = empty.encode(bytes).expect("an empty directory fits every slot");
        device.write_flush(0, &encoded)?;
        device.write_flush(slot, &encoded)
    }

    /// Whether the device contains a shelf, damaged or not.
    ///
    /// Errors: those of reading.
    pub fn is_on(device: &Arc<dyn Device>) -> Result<bool, DeviceError> {
        if device.len() < DeviceShelf::BYTES_MIN {
            return Ok(false);
        }
        let slots = directory::read_slots(device)?;
        Ok(slots.iter().any(|slot| !matches!(slot, SlotContent::Blank)))
    }

    /// Opens the shelf for reading and writing. It flushes the device first, so that everything it shows is persistent, and makes
    /// the slots equal if a crash or damage left them different.
    ///
    /// Errors: [`DeviceError::NoShelf`], [`DeviceError::Damaged`] if both slots are; those of reading, writing and flushing.
    pub fn open(name: &str, device: Arc<dyn Device>) -> Result<DeviceShelf, DeviceError> {
        device.flush()?;
        let (directory, is_whole) = DeviceShelf::find(name, &device)?;
        let shelf = DeviceShelf::with(name, device, &directory, true);
        if !is_whole {
            shelf.write(&directory)?;
        }
        Ok(shelf)
    }

    /// Opens the shelf for reading, even while another process changes it: the directory is read again for each call.
    ///
    /// Errors: [`DeviceError::NoShelf`], [`DeviceError::Damaged`]; those of reading.
    pub fn open_read_only(name: &str, device: Arc<dyn Device>) -> Result<DeviceShelf, DeviceError> {
        let (directory, _) = DeviceShelf::find(name, &device)?;
        Ok(DeviceShelf::with(name, device, &directory, false))
    }

    fn with(name: &str, device: Arc<dyn Device>, directory: &Directory, writable: bool) -> DeviceShelf {
        let slot_bytes = slot_bytes(device.len());
        let mut free = FreeSpace::all(2 * slot_bytes..device.len());
        for run in directory.parts.values().flatten() {
            free.take(run);
        }
        let free = Arc::new(Mutex::new(free));
        let parts = directory.parts.iter().map(|(name, runs)| (name.clone(), Runs::new(runs.clone(), &free)));
        let state = Mutex::new(ShelfState { generation: directory.generation, parts: parts.collect() });
        DeviceShelf { name: name.into(), device, slot_bytes, state, free, writable }
    }

    /// The directory that holds, and whether both slots contain it.
    fn find(name: &str, device: &Arc<dyn Device>) -> Result<(Directory, bool), DeviceError> {
        if device.len() < DeviceShelf::BYTES_MIN {
            return Err(DeviceError::NoShelf { name: name.into() });
        }
        let slots = directory::read_slots(device)?;
        directory::choose(slots).map_err(|what| match what {
            Some(what) => DeviceError::Damaged { name: name.into(), what },
            None => DeviceError::NoShelf { name: name.into() },
        })
    }

    fn write(&self, directory: &Directory) -> Result<(), DeviceError> {
        let full = || DeviceError::Full { name: format!("the directory of {}", self.name), bytes: self.slot_bytes };
        let encoded = directory.encode(self.device.len()).ok_or_else(full)?;
        self.device.write_flush(0, &encoded)?;
        self.device.write_flush(self.slot_bytes, &encoded)
    }

    fn state(&self) -> MutexGuard<'_, ShelfState> {
        // A panic under this lock is an assertion of a caller's error, before anything changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the directory contains now, for a shelf that is read while another process changes it.
    fn refresh(&self) -> Result<(), DeviceError> {
        if self.writable {
            return Ok(());
        }
        let (directory, _) = DeviceShelf::find(&self.name, &self.device)?;
        let mut state = self.state();
        state.generation = directory.generation;
        // Runs of a read-only shelf return to no free space.
        state.parts = directory.parts.into_iter().map(|(name, runs)| (name, Runs::new(runs, &self.free))).collect();
        Ok(())
    }

    /// Changes the parts, in memory once they are on the device.
    fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Arc<Runs>>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut state = self.state();
        let mut parts = state.parts.clone();
        change(&mut parts)?;
        let listed = parts.iter().map(|(name, runs)| (name.clone(), runs.list().to_vec()));
        let directory = Directory { generation: state.generation + 1, parts: listed.collect() };
        self.write(&directory)?;
        *state = ShelfState { generation: directory.generation, parts };
        Ok(())
    }

    fn check_writable(&self, operation: Operation, name: &str) -> Result<(), DeviceError> {
        if self.writable { Ok(()) } else { Err(DeviceError::ReadOnly { operation, name: name.into() }) }
    }

    fn part(&self, name: &str, writable: bool) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        let runs = self.state().parts.get(name).cloned();
        let runs = runs.ok_or_else(|| DeviceError::NotFound { name: name.into() })?;
        Ok(Arc::new(PartDevice::new(name, Arc::clone(&self.device), runs, writable)))
    }

    fn make(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        assert_size(bytes);
        self.check_writable(Operation::Create, name)?;
        let exists = || DeviceError::AlreadyExists { name: name.into() };
        if self.state().parts.contains_key(name) {
            return Err(exists());
        }
        let runs = self.free.lock().unwrap_or_else(PoisonError::into_inner).allocate(bytes, RUNS_MAX);
        let runs = runs.ok_or_else(|| DeviceError::Full { name: name.into(), bytes })?;
        let runs = Runs::new(runs, &self.free);
        // From here on an error, or a name that somebody else made meanwhile, drops the runs, which gives them back.
        runs.give_back_at_end();
        for run in runs.list() {
            // Not freed: the space of a part is reserved, and a hole in the device below would not be.
            self.device.write_zeroes(run.start, run.end - run.start, false)?;
        }
        self.device.flush()?;
        self.change(|parts| match parts.insert(name.into(), Arc::clone(&runs)) {
            Some(_) => Err(exists()),
            None => Ok(()),
        })?;
        runs.keep_at_end();
        self.part(name, true)
    }
}

impl fmt::Debug for DeviceShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(
            f,
            "DeviceShelf {{ on: {}, generation: {}, parts: {:?} }}",
            self.name,
            state.generation,
            state.parts.keys()
        )
    }
}

impl Shelf for DeviceShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.make(name, bytes)
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        Ok(Some(self.free.lock().unwrap_or_else(PoisonError::into_inner).bytes()))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.check_writable(Operation::Open, name)?;
        let part = self.part(name, true)?;
        self.device.deep_flush()?;
        Ok(part)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.refresh()?;
        self.part(name, false)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.refresh()?;
        Ok(self.state().parts.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        assert_name(name);
        self.check_writable(Operation::Remove, name)?;
        let mut removed = None;
        self.change(|parts| {
            removed = Some(parts.remove(name).ok_or_else(|| DeviceError::NotFound { name: name.into() })?);
            Ok(())
        })?;
        if let Some(runs) = removed {
            runs.give_back_at_end();
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        assert_name(from);
        assert_name(to);
        self.check_writable(Operation::Rename, from)?;
        self.change(|parts| {
            if parts.contains_key(to) {
                return Err(DeviceError::AlreadyExists { name: to.into() });
            }
            let runs = parts.remove(from).ok_or_else(|| DeviceError::NotFound { name: from.into() })?;
            parts.insert(to.into(), runs);
            Ok(())
        })
    }
}
