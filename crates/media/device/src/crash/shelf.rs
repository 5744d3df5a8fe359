//! The running machine: what reads see, and the recording of what was written.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::content::{FileId, State};
use super::image::{Image, Images};
use super::trace::{Action, Step};
use crate::contract::{assert_name, assert_range, assert_size};
use crate::{Device, DeviceError, Durability, Operation, Shelf};

/// A shelf on a simulated machine. The essay of this module says what it simulates.
pub struct CrashShelf {
    machine: Arc<Machine>,
    /// Name operations are serial, as in a file system's journal; at most one is in flight.
    names: Mutex<()>,
}

struct Machine {
    seed: u64,
    recording: Mutex<Recording>,
}

/// Everything a power failure at any point can be computed from.
pub(super) struct Recording {
    /// The persistent state with which the machine started.
    pub(super) base: State,
    /// What reads see.
    live: State,
    pub(super) steps: Vec<Step>,
    /// The operation at which the power fails, and whether it has.
    crash_at: Option<usize>,
    is_off: bool,
}

impl CrashShelf {
    /// An empty shelf. The seed decides the random ones among the images; print it where a test fails.
    pub fn new(seed: u64) -> CrashShelf {
        CrashShelf::start(seed, State::default())
    }

    /// A machine that finds `base` on its medium.
    pub(super) fn start(seed: u64, base: State) -> CrashShelf {
        let live = base.clone();
        let recording = Recording { base, live, steps: Vec::new(), crash_at: None, is_off: false };
        let machine = Machine { seed, recording: Mutex::new(recording) };
        CrashShelf { machine: Arc::new(machine), names: Mutex::new(()) }
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.machine.seed
    }

    /// How many operations have been called: writes, flushes, discards, creates, removes, renames (opening a device to
    /// write counts as the flush it does; reads do not count).
    pub fn operations(&self) -> usize {
        self.machine.recording().steps.len()
    }

    /// The operations that were called, in that order.
    pub fn trace(&self) -> Vec<Step> {
        self.machine.recording().steps.clone()
    }

    /// Makes the power fail during operation `operation` (0 is the first): that one and everything after it, reads too,
    /// answers [`DeviceError::PowerLost`]. What it leaves is `images(operation)`.
    pub fn crash_at(&self, operation: usize) {
        self.machine.recording().crash_at = Some(operation);
    }

    /// All points of the recording so far.
    pub fn points(&self) -> RangeInclusive<usize> {
        0..=self.operations()
    }

    /// What a power failure at `point` can leave: every image of the systematic kinds, and some random ones.
    ///
    /// Panics if the point is not one of [`CrashShelf::points`].
    pub fn images(&self, point: usize) -> Images {
        assert!(self.points().contains(&point), "point {point} is beyond the recording");
        let recording = self.machine.recording();
        Images::of(self.machine.seed, &recording, point)
    }

    /// One image again, by the numbers that an [`Image`] prints.
    pub fn image(&self, point: usize, index: usize) -> Option<Image> {
        self.images(point).nth(index)
    }

    fn open_as(&self, name: &str, writable: bool) -> Result<CrashDevice, DeviceError> {
        assert_name(name);
        let recording = self.machine.recording();
        recording.check_power()?;
        let file = recording.find(name)?;
        let bytes = recording.live.files[file].bytes();
        Ok(CrashDevice { name: name.into(), machine: Arc::clone(&self.machine), file, bytes, writable })
    }

    /// One name operation at a time.
    fn name_operation(&self) -> MutexGuard<'_, ()> {
        // Guards no data.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    fn recording(&self) -> MutexGuard<'_, Recording> {
        // A panic under this lock is an assert of a caller's error, before anything changed.
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an operation: its call and its return are two moments, so that operations of several threads overlap.
    fn perform(
        &self,
        name: &str,
        action: impl FnOnce(&Recording) -> Result<Action, DeviceError>,
    ) -> Result<(), DeviceError> {
        let called = self.recording().call(name, action)?;
        self.recording().return_from(called)
    }
}

impl Recording {
    fn check_power(&self) -> Result<(), DeviceError> {
        if self.is_off { Err(DeviceError::PowerLost) } else { Ok(()) }
    }

    fn find(&self, name: &str) -> Result<FileId, DeviceError> {
        self.live.names.get(name).copied().ok_or_else(|| DeviceError::NotFound { name: name.into() })
    }

    fn check_free(&self, name: &str) -> Result<(), DeviceError> {
        match self.live.names.contains_key(name) {
            true => Err(DeviceError::AlreadyExists { name: name.into() }),
            false => Ok(()),
        }
    }

    fn call(
        &mut self,
        name: &str,
        action: impl FnOnce(&Recording) -> Result<Action, DeviceError>,
    ) -> Result<usize, DeviceError> {
        self.check_power()?;
        let step = Step::new(name, action(self)?);
        let index = self.steps.len();
        if self.crash_at == Some(index) {
            self.is_off = true;
        } else {
            step.prepare(&mut self.live);
            step.apply(&mut self.live);
        }
        self.steps.push(step);
        self.check_power()?;
        Ok(index)
    }

    fn return_from(&mut self, index: usize) -> Result<(), DeviceError> {
        // Another thread's operation may have been the one at which the power failed.
        self.check_power()?;
        self.steps[index].returned = Some(self.steps.len());
        Ok(())
    }
}

impl fmt::Debug for CrashShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CrashShelf {{ seed: {}, operations: {} }}", self.seed(), self.operations())
    }
}

impl Shelf for CrashShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        assert_size(bytes);
        let serial = self.name_operation();
        self.machine.perform(name, |recording| {
            recording.check_free(name)?;
            Ok(Action::Create { file: recording.live.files.len(), bytes })
        })?;
        drop(serial);
        Ok(Arc::new(self.open_as(name, true)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        let device = self.open_as(name, true)?;
        device.flush()?;
        Ok(Arc::new(device))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(self.open_as(name, false)?))
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        let recording = self.machine.recording();
        recording.check_power()?;
        Ok(recording.live.names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        assert_name(name);
        let _serial = self.name_operation();
        self.machine.perform(name, |recording| recording.find(name).map(|_| Action::Remove))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        assert_name(from);
        assert_name(to);
        let _serial = self.name_operation();
        self.machine.perform(from, |recording| {
            recording.check_free(to)?;
            recording.find(from)?;
            Ok(Action::Rename { to: to.into() })
        })
    }
}

/// A handle. It needs no poison: the only thing that fails here is the power, and that is final.
struct CrashDevice {
    name: String,
    machine: Arc<Machine>,
    file: FileId,
    bytes: u64,
    writable: bool,
}

impl CrashDevice {
    fn change(&self, operation: Operation, action: Action) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly { operation, name: self.name.clone() });
        }
        self.machine.perform(&self.name, |_| Ok(action))
    }
}

impl fmt::Debug for CrashDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashDevice").field("name", &self.name).field("writable", &self.writable).finish()
    }
}

impl Device for CrashDevice {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, buffer.len() as u64);
        let recording = self.machine.recording();
        recording.check_power()?;
        recording.live.files[self.file].read(offset, buffer);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, data.len() as u64);
        self.change(Operation::Write, Action::Write { file: self.file, offset, data: data.into() })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.change(Operation::Flush, Action::Flush { file: self.file })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, bytes);
        self.change(Operation::Discard, Action::Discard { file: self.file, offset, bytes })
    }

    fn durability(&self) -> Durability {
        Durability::Emulated
    }
}
