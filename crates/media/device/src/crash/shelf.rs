//! The running machine: what reads see, and the recording of what was written.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use super::content::{FileId, State};
use super::image::{Image, Images};
use super::memory::MemoryHandle;
use super::moment::Moment;
use super::trace::{Action, Persist, Step};
use super::{Medium, PmemMode};
use crate::contract::{assert_name, assert_range, assert_size};
use crate::{Device, DeviceError, Durability, Operation, Shelf};

/// A shelf on a simulated machine. The essay of this module says what it simulates.
pub struct CrashShelf {
    machine: Arc<Machine>,
    /// Name operations are serial, as in a file system's journal; at most one is in flight.
    names: Mutex<()>,
}

pub(super) struct Machine {
    seed: u64,
    medium: Medium,
    recording: Mutex<Recording>,
}

/// Everything a power failure at any point can be computed from.
pub(super) struct Recording {
    /// The persistent state with which the machine started.
    base: State,
    /// What reads see.
    pub(super) live: State,
    steps: Vec<Step>,
    /// A thread's number is its place here.
    threads: Vec<ThreadId>,
    /// The last moment that was asked for: the next is probably a later one.
    moment: Option<Moment>,
    /// Instructions of persistence called so far, and the one that the machine leaves out.
    persists: usize,
    omit: Option<usize>,
    /// The operation at which the power fails, or the process is killed.
    crash_at: Option<usize>,
    kill_at: Option<usize>,
    is_off: bool,
}

impl CrashShelf {
    /// An empty shelf on a drive. The seed decides the random ones among the images; print it where a test fails.
    pub fn new(seed: u64) -> CrashShelf {
        CrashShelf::start(seed, Medium::Sectors, State::default())
    }

    /// An empty shelf on persistent memory. Its devices run the algorithm of [`crate::pmem`], instruction by instruction.
    pub fn pmem(seed: u64, mode: PmemMode) -> CrashShelf {
        CrashShelf::mistaken(seed, mode, mode)
    }

    /// The same on a machine that is mistaken for another: its devices do what `believed` needs, the medium keeps what
    /// `machine` keeps. A canary, unless the machine keeps more.
    pub fn mistaken(seed: u64, machine: PmemMode, believed: PmemMode) -> CrashShelf {
        CrashShelf::start(seed, Medium::Pmem { machine, believed }, State::default())
    }

    /// A machine that finds `base` on its medium.
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

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.machine.seed
    }

    /// How many operations have been called: writes, flushes, discards, creates, removes, renames; on persistent memory
    /// stores, write-backs of one line each, fences, syncs instead of the first three. Opening a device to write counts
    /// as the flush or sync it does; reads do not count.
    pub fn operations(&self) -> usize {
        self.machine.recording().steps.len()
    }

    /// The operations that were called, in that order.
    pub fn trace(&self) -> Vec<Step> {
        self.machine.recording().steps.clone()
    }

    /// The instructions of persistence among them, and what each was good for; those that never returned were good
    /// for nothing.
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

    /// Makes the machine leave out the `nth` instruction of persistence (its place in [`CrashShelf::persists`]): the device
    /// believes that it was done. Whatever then passes the images did not need it.
    pub fn omit(&self, nth: usize) {
        self.machine.recording().omit = Some(nth);
    }

    /// Makes the power fail during operation `operation` (0 is the first): that one and everything after it, reads too,
    /// answers [`DeviceError::PowerLost`]. What it leaves is `images(operation)`.
    pub fn crash_at(&self, operation: usize) {
        self.machine.recording().crash_at = Some(operation);
    }

    /// Kills the process before operation `operation`: that one and everything after it answers
    /// [`DeviceError::PowerLost`] and is not recorded, until [`CrashShelf::restart`]. The machine stays up: what was
    /// written can be read, and need not be persistent.
    pub fn kill_at(&self, operation: usize) {
        self.machine.recording().kill_at = Some(operation);
    }

    /// Starts a process anew. The handles of the killed one must be gone.
    pub fn restart(&self) {
        let mut recording = self.machine.recording();
        assert!(recording.is_killed(), "the process lives");
        recording.kill_at = None;
    }

    /// All points of the recording so far.
    pub fn points(&self) -> RangeInclusive<usize> {
        0..=self.operations()
    }

    /// What a power failure at `point` can leave: every image of the systematic kinds, and some random ones. Fastest when
    /// asked for one point after the other.
    ///
    /// Panics if the point is not one of [`CrashShelf::points`].
    pub fn images(&self, point: usize) -> Images {
        self.at(point, |medium, moment, steps| Images::of(self.machine.seed, medium, moment, steps, point))
    }

    /// All that a power failure at `point` can leave, provided that it is at most `most` states. Panics as
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

    /// One image again, by the numbers that an [`Image`] prints.
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

    /// The lines under a device, without the algorithm above them.
    #[cfg(test)]
    pub(super) fn lines(&self, name: &str) -> super::memory::Recorded {
        let recording = self.machine.recording();
        let file = recording.find(name).expect("the test made it");
        let bytes = recording.live.files[file].bytes();
        super::memory::Recorded::new(name, Arc::clone(&self.machine), file, bytes)
    }

    /// One name operation at a time.
    fn name_operation(&self) -> MutexGuard<'_, ()> {
        // Guards no data.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    pub(super) fn recording(&self) -> MutexGuard<'_, Recording> {
        // A panic under this lock is an assert of a caller's error, before anything changed.
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an operation: its call and its return are two moments, so that operations of several threads overlap.
    pub(super) fn perform(
        &self,
        name: &str,
        action: impl FnOnce(&Recording) -> Result<Action, DeviceError>,
    ) -> Result<(), DeviceError> {
        let called = self.recording().call(name, action)?;
        self.recording().return_from(called)
    }
}

impl Recording {
    pub(super) fn check_power(&self) -> Result<(), DeviceError> {
        if self.is_off || self.is_killed() { Err(DeviceError::PowerLost) } else { Ok(()) }
    }

    fn is_killed(&self) -> bool {
        self.kill_at.is_some_and(|operation| self.steps.len() >= operation)
    }

    fn thread(&mut self) -> usize {
        let current = std::thread::current().id();
        self.threads.iter().position(|thread| *thread == current).unwrap_or_else(|| {
            self.threads.push(current);
            self.threads.len() - 1
        })
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
        let action = action(self)?;
        let thread = self.thread();
        let mut step = Step::new(name, action, thread);
        if step.instruction().is_some() {
            step.is_omitted = self.omit == Some(self.persists);
            self.persists += 1;
        }
        let index = self.steps.len();
        if self.crash_at == Some(index) {
            self.is_off = true;
        } else {
            step.prepare(&mut self.live);
            step.apply(&mut self.live);
        }
        self.steps.push(step);
        if self.is_off { Err(DeviceError::PowerLost) } else { Ok(index) }
    }

    fn return_from(&mut self, index: usize) -> Result<(), DeviceError> {
        // Another thread's operation may have been the one at which the power failed.
        if self.is_off {
            return Err(DeviceError::PowerLost);
        }
        self.steps[index].returned = Some(self.steps.len());
        Ok(())
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
        // A fence of ours says nothing about what a killed process stored; a sync does.
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
