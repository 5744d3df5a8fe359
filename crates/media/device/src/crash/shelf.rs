//! The running machine: the content that reads see, and the recording of the writes.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::content::{FileId, State};
use super::image::{Image, Images};
use super::machine::{Machine, Recording};
use super::memory::MemoryHandle;
use super::moment::Moment;
use super::trace::{Action, Persist, Step};
use super::{Medium, PmemMode};
use crate::contract::{assert_name, assert_range, assert_size};
use crate::{Device, DeviceError, Durability, Operation, Shelf};

/// A shelf on a simulated machine. The head comment of this module describes the simulation.
pub struct CrashShelf {
    machine: Arc<Machine>,
    /// Name operations are serial, as in a file system's journal; at most one is in flight.
    names: Mutex<()>,
}

impl CrashShelf {
    /// An empty shelf on a drive. The seed determines the random images; print it when a test fails.
    pub fn new(seed: u64) -> CrashShelf {
        CrashShelf::start(seed, Medium::Sectors, State::default())
    }

    /// An empty shelf on persistent memory. Its devices run the algorithm of [`crate::pmem`], instruction by instruction.
    pub fn pmem(seed: u64, mode: PmemMode) -> CrashShelf {
        CrashShelf::mistaken(seed, mode, mode)
    }

    /// A shelf on a machine that is mistaken for another: its devices use the algorithm for `believed`, the medium
    /// keeps what `machine` keeps. A canary, unless the machine keeps more.
    pub fn mistaken(seed: u64, machine: PmemMode, believed: PmemMode) -> CrashShelf {
        CrashShelf::start(seed, Medium::Pmem { machine, believed }, State::default())
    }

    /// A machine that starts with `base` on its medium.
    pub(super) fn start(seed: u64, medium: Medium, base: State) -> CrashShelf {
        let recording = Recording {
            live: base.clone(),
            base,
            steps: Vec::new(),
            threads: Vec::new(),
            moment: None,
            persists: 0,
            omit: None,
            crash_at: None,
            kill_at: None,
            is_off: false,
        };
        let machine = Machine { seed, medium, recording: Mutex::new(recording) };
        CrashShelf { machine: Arc::new(machine), names: Mutex::new(()) }
    }

    /// The seed that was passed to it.
    pub fn seed(&self) -> u64 {
        self.machine.seed
    }

    /// The number of operations called so far: writes, flushes, discards, creates, removes, renames; on persistent
    /// memory stores, write-backs of one line each, fences and syncs instead of the first three. Opening a device for
    /// writing counts as the flush or sync that it does; reads do not count.
    pub fn operations(&self) -> usize {
        self.machine.recording().steps.len()
    }

    /// The operations, in the order of their calls.
    pub fn trace(&self) -> Vec<Step> {
        self.machine.recording().steps.clone()
    }

    /// The instructions of persistence among them, with the effect of each; those that never returned had no effect.
    pub fn persists(&self) -> Vec<Persist> {
        let recording = self.machine.recording();
        let mut moment = Moment::new(self.machine.medium, &recording.base);
        moment.advance(&recording.steps, recording.steps.len());
        let atoms: HashMap<usize, usize> =
            moment.persists.iter().map(|persist| (persist.step, persist.atoms)).collect();
        let steps = recording.steps.iter().enumerate();
        let persist = |(step, taken): (usize, &Step)| {
            let atoms = atoms.get(&step).copied().unwrap_or(0);
            taken.instruction().map(|instruction| Persist { instruction, step, atoms })
        };
        steps.filter_map(persist).collect()
    }

    /// Makes the machine leave out the `nth` instruction of persistence (its index in [`CrashShelf::persists`]): to the
    /// device it appears to succeed. If all images still pass, the instruction was not needed.
    pub fn omit(&self, nth: usize) {
        self.machine.recording().omit = Some(nth);
    }

    /// Makes the power fail during operation `operation` (0 is the first): that one and everything after it, including
    /// reads, returns [`DeviceError::PowerLost`]. The resulting states are `images(operation)`.
    pub fn crash_at(&self, operation: usize) {
        self.machine.recording().crash_at = Some(operation);
    }

    /// Kills the process before operation `operation`: that one and everything after it returns
    /// [`DeviceError::PowerLost`] and is not recorded, until [`CrashShelf::restart`]. The machine stays up: written
    /// bytes can be read, but need not be persistent.
    pub fn kill_at(&self, operation: usize) {
        self.machine.recording().kill_at = Some(operation);
    }

    /// Starts a new process. The handles of the killed one must have been dropped.
    pub fn restart(&self) {
        let mut recording = self.machine.recording();
        assert!(recording.is_killed(), "the process lives");
        recording.kill_at = None;
    }

    /// All points of the recording so far.
    pub fn points(&self) -> RangeInclusive<usize> {
        0..=self.operations()
    }

    /// The possible states after a power failure at `point`: every image of the systematic kinds, and some random ones.
    /// Fastest if the points are requested in ascending order.
    ///
    /// Panics if the point is not one of [`CrashShelf::points`].
    pub fn images(&self, point: usize) -> Images {
        self.at(point, |medium, moment, steps| Images::of(self.machine.seed, medium, moment, steps, point))
    }

    /// All possible states after a power failure at `point`, if there are at most `most`. Panics as
    /// [`CrashShelf::images`] does.
    pub fn every_image(&self, point: usize, most: u64) -> Option<Images> {
        self.at(point, |medium, moment, steps| Images::every(self.machine.seed, medium, moment, steps, point, most))
    }

    fn at<T>(&self, point: usize, look: impl FnOnce(Medium, &Moment, &[Step]) -> T) -> T {
        let medium = self.machine.medium;
        let mut recording = self.machine.recording();
        assert!(point <= recording.steps.len(), "point {point} is beyond the recording");
        let kept = recording.moment.take().filter(|moment| moment.is_before(point));
        let mut moment = kept.unwrap_or_else(|| Moment::new(medium, &recording.base));
        moment.advance(&recording.steps, point);
        let result = look(medium, &moment, &recording.steps);
        recording.moment = Some(moment);
        result
    }

    /// Reproduces one image, by the numbers that an [`Image`] prints.
    pub fn image(&self, point: usize, index: usize) -> Option<Image> {
        self.images(point).nth(index)
    }

    fn open_as(&self, name: &str, writable: bool) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        let recording = self.machine.recording();
        recording.check_power()?;
        let file = recording.find(name)?;
        let bytes = recording.live.files[file].bytes();
        drop(recording);
        let machine = Arc::clone(&self.machine);
        Ok(match self.machine.medium {
            Medium::Sectors => Arc::new(CrashDevice { name: name.into(), machine, file, bytes, writable }),
            Medium::Pmem { believed, .. } => {
                Arc::new(MemoryHandle::new(name, machine, (file, bytes), believed, writable))
            }
        })
    }

    /// The lines of a device, without the algorithm above them.
    #[cfg(test)]
    pub(super) fn lines(&self, name: &str) -> super::memory::Recorded {
        let recording = self.machine.recording();
        let file = recording.find(name).expect("the test made it");
        let bytes = recording.live.files[file].bytes();
        super::memory::Recorded::new(name, Arc::clone(&self.machine), file, bytes)
    }

    /// One name operation at a time.
    fn name_operation(&self) -> MutexGuard<'_, ()> {
        // The mutex contains no data.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Image {
    /// The machine after its power is back: a new shelf with this image, all of it persistent, on the same medium.
    pub fn shelf(&self) -> CrashShelf {
        let (seed, medium, state) = self.after();
        CrashShelf::start(seed, medium, state.clone())
    }
}

impl fmt::Debug for CrashShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let medium = self.machine.medium;
        write!(f, "CrashShelf {{ {medium}, seed: {}, operations: {} }}", self.seed(), self.operations())
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
        self.open_as(name, true)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        let device = self.open_as(name, true)?;
        // A fence of this process does not affect the stores of a killed process; a sync does.
        device.deep_flush()?;
        Ok(device)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.open_as(name, false)
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

/// A handle. It needs no poison: only the power can fail here, and that is final.
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
