//! A shelf whose devices are slowed to the figures of another medium.
//!
//! ```text
//!   operation ---> budget: deadline ---> the same on the device below ---> wait for the deadline ---> answer
//! ```
//!
//! The time of the device below is part of the modelled time, not added to it. If it takes longer than the model, the
//! operation ends late; that is counted in the budget's [`Traffic`](crate::budget::Traffic), and
//! [`calibrate`](crate::calibrate()) refuses such a medium before a run.
//!
//! Invariants:
//! 1. The bytes and the errors are those of the device below; an operation that fails returns without waiting.
//! 2. A write is complete only when its time has passed: the contract's order of calls is kept.
//! 3. It reports [`Durability::Emulated`], whatever lies below.
//! 4. It is inline if the device below is and the medium is addressed by loads and stores.
//!
//! Creating, opening, listing and discarding take their native time (discarding on addressed media takes the time of a
//! write, because it is implemented as one): no figures of these were published.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::device::{BLOCK_BYTES, Device, DeviceError, Durability, Extent, Shelf};

use crate::budget::{Budget, Request};
use crate::clock::{self, Timing};
use crate::medium::Direction;
use crate::model::Model;

/// Numbers the places of devices, over all shelves.
static NEXT_PLACE: AtomicU64 = AtomicU64::new(0);

/// The common part of a shelf and its devices.
#[derive(Debug)]
struct Modelled {
    model: Model,
    budget: Arc<Budget>,
    timing: Timing,
}

/// Devices of another shelf, with the timing of a model.
#[derive(Debug)]
pub struct ModelShelf {
    inner: Arc<dyn Shelf>,
    modelled: Arc<Modelled>,
}

impl ModelShelf {
    /// Devices of `inner` with the timing of `model` within `budget`, which all shelves on the same modules share.
    /// Shelves that share a budget must have the same timing; otherwise the times are meaningless.
    pub fn new(inner: Arc<dyn Shelf>, model: Model, budget: Arc<Budget>, timing: Timing) -> ModelShelf {
        ModelShelf { inner, modelled: Arc::new(Modelled { model, budget, timing }) }
    }

    /// The budget, with its counters.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.modelled.budget
    }

    /// The model it applies.
    pub fn model(&self) -> &Model {
        &self.modelled.model
    }

    fn slowed(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(ModelDevice::from_parts(inner, Arc::clone(&self.modelled)))
    }
}

impl Shelf for ModelShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.slowed(self.inner.create(name, bytes)?))
    }

    fn medium(&self) -> Option<u64> {
        self.inner.medium()
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        self.inner.free_bytes()
    }

    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.slowed(self.inner.create_unwritten(name, bytes)?))
    }

    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.slowed(self.inner.create_sparse(name, bytes)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.slowed(self.inner.open(name)?))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.slowed(self.inner.open_read_only(name)?))
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

/// Memory that is accessed by pointers and not as a device, with the timing of a model: code that copies to or from it
/// calls [`ModelMemory::access`], which waits.
#[derive(Debug)]
pub struct ModelMemory {
    modelled: Modelled,
    place: u64,
}

impl ModelMemory {
    /// Memory as slow as `model` within `budget`.
    pub fn new(model: Model, budget: Arc<Budget>, timing: Timing) -> ModelMemory {
        let place = NEXT_PLACE.fetch_add(1, Ordering::Relaxed);
        ModelMemory { modelled: Modelled { model, budget, timing }, place }
    }

    /// The model it applies.
    pub fn model(&self) -> &Model {
        &self.modelled.model
    }

    /// Runs `work`, which reads or writes `bytes` bytes at `offset`, and returns when the modelled time has passed.
    pub fn access<T>(&self, direction: Direction, offset: u64, bytes: u64, work: impl FnOnce() -> T) -> T {
        let request = Request::new(self.place, direction, offset, bytes);
        let Modelled { model, budget, timing } = &self.modelled;
        match timing {
            Timing::Accounted(clock) => {
                let done = work();
                clock.advance_to(budget.take(model, clock::queue(), clock.now(), &request));
                done
            }
            Timing::Timed => {
                let deadline = budget.take(model, clock::queue(), budget.now(), &request);
                let done = work();
                let late = clock::wait_until(budget.moment(deadline));
                if !late.is_zero() {
                    budget.note_late(late.as_nanos() as f64);
                }
                done
            }
        }
    }

    /// The budget, with its counters.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.modelled.budget
    }
}

/// One device, with the timing of a model.
#[derive(Debug)]
pub struct ModelDevice {
    inner: Arc<dyn Device>,
    modelled: Arc<Modelled>,
    place: u64,
}

impl ModelDevice {
    /// `inner` with the timing of `model` within `budget`.
    pub fn new(inner: Arc<dyn Device>, model: Model, budget: Arc<Budget>, timing: Timing) -> ModelDevice {
        ModelDevice::from_parts(inner, Arc::new(Modelled { model, budget, timing }))
    }

    fn from_parts(inner: Arc<dyn Device>, modelled: Arc<Modelled>) -> ModelDevice {
        // Only a unique number.
        let place = NEXT_PLACE.fetch_add(1, Ordering::Relaxed);
        ModelDevice { inner, modelled, place }
    }

    /// Runs `work`, and ends at `price(now)`, or later if the work itself takes longer.
    fn priced(
        &self,
        price: impl FnOnce(&Modelled, f64) -> f64,
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let modelled = &*self.modelled;
        match &modelled.timing {
            Timing::Accounted(clock) => {
                work()?;
                clock.advance_to(price(modelled, clock.now()));
            }
            Timing::Timed => {
                let budget = &modelled.budget;
                let deadline = price(modelled, budget.now());
                work()?;
                let late = clock::wait_until(budget.moment(deadline));
                if !late.is_zero() {
                    budget.note_late(late.as_nanos() as f64);
                }
            }
        }
        Ok(())
    }

    /// The deadline of an access that begins now.
    fn access(&self, direction: Direction, offset: u64, bytes: u64) -> impl FnOnce(&Modelled, f64) -> f64 {
        let place = self.place;
        move |modelled, now| {
            let request = Request::new(place, direction, offset, bytes);
            modelled.budget.take(&modelled.model, clock::queue(), now, &request)
        }
    }
}

/// The time of a flush.
fn flushed(modelled: &Modelled, now: f64) -> f64 {
    now + modelled.model.flush()
}

impl Device for ModelDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    /// A drive has blocks, also one that is modelled on memory.
    fn block_bytes(&self) -> u32 {
        let inner = self.inner.block_bytes();
        if self.modelled.model.kind().is_addressed() { inner } else { inner.max(BLOCK_BYTES as u32) }
    }

    fn atom_bytes(&self) -> u32 {
        self.inner.atom_bytes()
    }

    fn is_inline(&self) -> bool {
        self.modelled.model.kind().is_addressed() && self.inner.is_inline()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let price = self.access(Direction::Read, offset, buffer.len() as u64);
        self.priced(price, || self.inner.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let price = self.access(Direction::Write, offset, data.len() as u64);
        self.priced(price, || self.inner.write(offset, data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.priced(flushed, || self.inner.flush())
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.priced(flushed, || self.inner.deep_flush())
    }

    /// One command including its flush: drives can write through, and memory has no other kind of write.
    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let price = self.access(Direction::Write, offset, data.len() as u64);
        self.priced(price, || self.inner.write_flush(offset, data))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if !self.modelled.model.kind().is_addressed() {
            return self.inner.discard(offset, bytes);
        }
        let price = self.access(Direction::Write, offset, bytes);
        self.priced(price, || self.inner.discard(offset, bytes))
    }

    /// A matter of the file system: nothing goes to the medium.
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.inner.extents(offset, bytes)
    }

    /// As [`extents`](Device::extents).
    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.reserve(offset, bytes)
    }

    fn allocated_bytes(&self) -> Result<u64, DeviceError> {
        self.inner.allocated_bytes()
    }

    fn durability(&self) -> Durability {
        Durability::Emulated
    }
}
