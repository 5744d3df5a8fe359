//! [`DataDevices`]: the devices of the pages, read and written by runs.
//!
//! A run lies in one device. This module does not interpret pages: the reader verifies the checksum. A write is
//! persistent after a [`flush`](DataDevices::flush) that begins after the write has returned; a flush includes only
//! devices that were written since their last one. The first write or flush that fails poisons the store; reads
//! continue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{Device, DeviceError, Shelf};
use encryption::Sealer;
use parking_lot::{Mutex, RwLock};

use crate::StoreError;
use crate::damage::Quarantine;
use crate::page::PageId;
use crate::page::encrypted::seal_bytes;
use crate::space::geometry::Geometry;
use crate::space::poison::Poison;

/// Bytes read and written since opening, and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataDeviceStats {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes of one device.
    pub flushes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    device: Arc<dyn Device>,
    is_written: AtomicBool,
}

/// The data devices of a store.
#[derive(Debug)]
pub(crate) struct DataDevices {
    shelf: Arc<dyn Shelf>,
    geometry: Geometry,
    slots: RwLock<Vec<Arc<Slot>>>,
    poison: Poison,
    counters: Counters,
    is_watched: AtomicBool,
    /// Pages written since watching began.
    watched: Mutex<BTreeSet<PageId>>,
    quarantine: Quarantine,
    sealer: Option<Arc<Sealer>>,
}

/// The name of a data device.
pub(crate) fn device_name(device: u32) -> String {
    format!("pages-{device:04}")
}

/// The number of the data device with that name.
pub(crate) fn device_number(name: &str) -> Option<u32> {
    let number: u32 = name.strip_prefix("pages-")?.parse().ok()?;
    (device_name(number) == name).then_some(number)
}

impl DataDevices {
    /// Opens all existing data devices.
    ///
    /// Errors: [`StoreError::Corrupt`] if one is missing between others or has another size, [`StoreError::Device`].
    pub(crate) fn open(
        shelf: Arc<dyn Shelf>,
        geometry: Geometry,
        poison: Poison,
        writable: bool,
    ) -> Result<DataDevices, StoreError> {
        let mut numbers: Vec<u32> = shelf.list()?.iter().filter_map(|name| device_number(name)).collect();
        numbers.sort_unstable();
        let mut slots = Vec::new();
        for (expected, number) in (0..).zip(numbers) {
            if number != expected {
                let why = format!("{} is missing, but {} exists", device_name(expected), device_name(number));
                return Err(StoreError::Corrupt(why.into()));
            }
            let name = device_name(number);
            let device = if writable { shelf.open(&name)? } else { shelf.open_read_only(&name)? };
            if device.len() != geometry.device_bytes() {
                let why = format!("{name} has {} bytes instead of {}", device.len(), geometry.device_bytes());
                return Err(StoreError::Corrupt(why.into()));
            }
            slots.push(Arc::new(Slot { device, is_written: AtomicBool::new(false) }));
        }
        Ok(DataDevices {
            shelf,
            geometry,
            slots: RwLock::new(slots),
            poison,
            counters: Counters::default(),
            is_watched: AtomicBool::new(false),
            watched: Mutex::default(),
            quarantine: Quarantine::default(),
            sealer: None,
        })
    }

    /// The same, whose pages are encrypted.
    pub(crate) fn with_sealer(self, sealer: Option<Arc<Sealer>>) -> DataDevices {
        DataDevices { sealer, ..self }
    }

    /// What encrypts the pages of trees, and extents.
    pub(crate) fn sealer(&self) -> Option<&Sealer> {
        self.sealer.as_deref()
    }

    /// The same, to keep.
    pub(crate) fn shared_sealer(&self) -> Option<Arc<Sealer>> {
        self.sealer.clone()
    }

    /// The longest run of a value's bytes.
    pub(crate) fn extent_bytes_max(&self) -> usize {
        self.geometry.run_bytes_max() - seal_bytes(self.sealer())
    }

    /// The pages that are known to be damaged.
    pub(crate) fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    /// Sizes.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The number of devices.
    pub(crate) fn count(&self) -> u32 {
        self.slots.read().len() as u32
    }

    /// Counters since opening.
    pub(crate) fn stats(&self) -> DataDeviceStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { reads, read_bytes, writes, written_bytes, flushes } = &self.counters;
        DataDeviceStats {
            reads: read(reads),
            read_bytes: read(read_bytes),
            writes: read(writes),
            written_bytes: read(written_bytes),
            flushes: read(flushes),
        }
    }

    /// Whether there are some, and all of them take only instructions; see [`Device::is_inline`]. The first one has to be made yet
    /// where there is none.
    pub(crate) fn is_inline(&self) -> bool {
        let slots = self.slots.read();
        !slots.is_empty() && slots.iter().all(|slot| slot.device.is_inline())
    }

    /// Free space for further devices, bytes, if the shelf reports it.
    ///
    /// Errors: [`StoreError::Device`].
    pub(crate) fn free_bytes(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.shelf.free_bytes()?)
    }

    /// Creates one more device, empty and persistent; returns its number.
    ///
    /// Errors: [`StoreError::Full`] (nothing changed), [`StoreError::Poisoned`], [`StoreError::Device`].
    pub(crate) fn grow(&self) -> Result<u32, StoreError> {
        self.poison.check()?;
        let number = self.count();
        if number >= self.geometry.devices_max() {
            return Err(StoreError::Full("page numbers are used up: make a store with larger pages".into()));
        }
        let name = device_name(number);
        let device = match self.shelf.create_unwritten(&name, self.geometry.device_bytes()) {
            // An earlier attempt returned an error but had taken effect.
            Err(DeviceError::AlreadyExists { .. }) => self.shelf.open(&name),
            other => other,
        };
        let device = self.poison.made(device)?;
        self.slots.write().push(Arc::new(Slot { device, is_written: AtomicBool::new(false) }));
        Ok(number)
    }

    fn slot(&self, first: PageId, bytes: usize) -> Result<Arc<Slot>, StoreError> {
        let (number, place) = self.geometry.place(first);
        let pages = (bytes / self.geometry.page_bytes as usize) as u64;
        assert!(bytes.is_multiple_of(self.geometry.page_bytes as usize), "{bytes} bytes are no whole pages");
        assert!(u64::from(place) + pages <= u64::from(self.geometry.device_pages), "a run lies in one device");
        let slot = self.slots.read().get(number as usize).cloned();
        slot.ok_or_else(|| {
            let why = format!("page {} would lie in {}, which does not exist", first, device_name(number));
            StoreError::Corrupt(why.into())
        })
    }

    /// Reads whole pages from `first` on.
    ///
    /// Errors: [`StoreError::Device`], [`StoreError::Corrupt`] if there is no such page.
    pub(crate) fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError> {
        let slot = self.slot(first, buffer.len())?;
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(slot.device.read(self.geometry.offset(first), buffer)?)
    }

    /// Writes whole pages from `first` on.
    ///
    /// Errors: [`StoreError::Poisoned`], also at the first failure of a device; [`StoreError::Corrupt`] as for reading.
    pub(crate) fn write(&self, first: PageId, bytes: &[u8]) -> Result<(), StoreError> {
        self.poison.check()?;
        let slot = self.slot(first, bytes.len())?;
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if self.is_watched.load(Ordering::Acquire) {
            let pages = (bytes.len() / self.geometry.page_bytes as usize) as u32;
            self.watched.lock().extend((first.0..first.0 + pages).map(PageId));
        }
        slot.device.write(self.geometry.offset(first), bytes).map_err(|error| self.poison.set(&error))?;
        // Not earlier: a flush that runs during the write must not clear the mark.
        slot.is_written.store(true, Ordering::Release);
        Ok(())
    }

    /// Begins to record which pages are written; returns `false` if they are already being recorded. Writes in progress
    /// may be missed: call it while no checkpoint runs, or before a moment between checkpoints.
    pub(crate) fn watch(&self) -> bool {
        let began = !self.is_watched.swap(true, Ordering::AcqRel);
        if began {
            self.watched.lock().clear();
        }
        began
    }

    /// Stops recording.
    pub(crate) fn unwatch(&self) {
        self.is_watched.store(false, Ordering::Release);
    }

    /// Returns the recorded pages, and clears the record.
    pub(crate) fn take_watched(&self) -> BTreeSet<PageId> {
        std::mem::take(&mut *self.watched.lock())
    }

    /// Adds pages to the record again.
    pub(crate) fn note_watched(&self, pages: BTreeSet<PageId>) {
        self.watched.lock().extend(pages);
    }

    /// Makes every write that has returned persistent.
    ///
    /// Errors: [`StoreError::Poisoned`], also at the first failure of a device.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.poison.check()?;
        let slots = self.slots.read().clone();
        for slot in slots.iter().filter(|slot| slot.is_written.swap(false, Ordering::AcqRel)) {
            self.counters.flushes.fetch_add(1, Ordering::Relaxed);
            slot.device.flush().map_err(|error| self.poison.set(&error))?;
        }
        Ok(())
    }
}

impl crate::cache::BackingStore for DataDevices {
    fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError> {
        DataDevices::read(self, first, buffer)
    }

    fn write(&self, first: PageId, bytes: &[u8]) -> Result<(), StoreError> {
        DataDevices::write(self, first, bytes)
    }

    fn flush(&self) -> Result<(), StoreError> {
        DataDevices::flush(self)
    }

    fn sealer(&self) -> Option<&Sealer> {
        DataDevices::sealer(self)
    }

    fn is_one_run(&self, first: PageId, last: PageId) -> bool {
        first <= last && self.geometry.place(first).0 == self.geometry.place(last).0
    }

    fn place(&self, page: PageId) -> String {
        let (device, offset) = (self.geometry.place(page).0, self.geometry.offset(page));
        format!("page {page} ({} at {offset})", device_name(device))
    }
}
