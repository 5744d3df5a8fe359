//! [`Space`]: which pages are in use; it comprises the data devices ([`devices`]), the superblock and the allocation
//! map.
//!
//! # Three states of a page
//!
//! ```text
//!   taken         must not be allocated; in memory only
//!   map           in use by the current state: the next checkpoint will write it
//!   checkpointed  in use by the state of the last checkpoint
//!
//!               allocate          attach             free               checkpoint cleared and no snapshot left
//!   taken   0 ------------> 1                   1 ----------------------------------> 0
//!   map     0        (uncommitted: 0) --------> 1 ------------> 0
//!   checkpointed  0                 when a checkpoint begins: = map
//! ```
//!
//! A freed page is not allocated again while the last checkpoint uses it, or while a snapshot may still read it: after
//! a crash the store would return to a state that needs it. The written map no longer counts it: after a crash the
//! state is that of the checkpoint, which does not need the page, and no snapshot exists. A page that was allocated and
//! freed since the last checkpoint began waits for snapshots only.
//!
//! A caller that keeps the content of a freed run in memory for its own old readers calls
//! [`mark_pending_free`](Space::mark_pending_free) when the state no longer contains the run, and [`free`](Space::free)
//! when the last reader has ended: the map does not count the run in between.
//!
//! *Uncommitted* runs are allocated for data to which no applied record refers yet. The map does not count them, so a
//! crash frees them; [`attach`](Space::attach) adds them to the state.
//!
//! # Invariants
//!
//! 1. `map` is a subset of `taken`.
//! 2. Nothing durable refers to a page that is free in `checkpointed`: its owner may write it in place at any time.
//! 3. A checkpoint contains every map page that differs from the last checkpoint's. Devices created since then are
//!    empty on the medium; the superblock of the checkpoint that writes their map counts them.
//!
//! # What it does not do
//!
//! The space does not read pages, and moves none: devices are never removed. Runs of several pages are
//! placed first-fit on multiples of their class (the next power of two), up to 1 MiB.

pub(crate) mod bitmap;
pub(crate) mod devices;
pub(crate) mod geometry;
pub(crate) mod map;
pub(crate) mod poison;
pub(crate) mod superblock;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use device::AlignedBuffer;
use journal::Lsn;
use parking_lot::Mutex;

use crate::StoreError;
use crate::damage::Quarantined;
use crate::page::PageId;
use bitmap::Bitmap;
use devices::{DataDevices, device_name};
use geometry::Geometry;

/// Sizes of runs: 1, 2, 4 ... 256 pages, which is 1 MiB of the smallest pages.
const CLASSES: usize = 9;

/// Counts of pages for [`Space::usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Pages of all devices.
    pub(crate) pages: u64,
    /// Pages in use by the current state.
    pub(crate) used: u64,
    /// Pages that were freed, and wait for a checkpoint or for snapshots.
    pub(crate) waiting: u64,
}

/// Which pages are in use.
#[derive(Debug)]
pub(crate) struct Space {
    data_devices: Arc<DataDevices>,
    geometry: Geometry,
    state: Mutex<State>,
    /// Held by a thread that creates a device, so that one is created at a time.
    growing: Mutex<()>,
}

#[derive(Debug)]
struct State {
    devices: Vec<Maps>,
    /// For each class the first device that may have space.
    first: [usize; CLASSES],
    /// Pages of all devices that can be allocated.
    free: u64,
    /// Map pages that differ from the last checkpoint's: device, number.
    changed: BTreeSet<(u32, u32)>,
    freed: VecDeque<Freed>,
    /// Number of the next checkpoint.
    checkpoint: u64,
    /// Number of the last completed checkpoint.
    over: u64,
    /// The record that is being applied.
    applying: Lsn,
    /// No snapshot needs pages that were freed at or before this.
    horizon: Lsn,
}

/// The maps of one device.
#[derive(Debug)]
struct Maps {
    taken: Bitmap,
    map: Bitmap,
    checkpointed: Bitmap,
    /// For each class the first word that may have space.
    first: [usize; CLASSES],
}

#[derive(Clone, Copy, Debug)]
struct Freed {
    first: PageId,
    pages: u32,
    lsn: Lsn,
    /// The checkpoint that must be over; `None` for pages that no checkpoint contained.
    checkpoint: Option<u64>,
}

/// The allocation map's part of a checkpoint.
#[derive(Debug)]
pub(crate) struct CheckpointMap {
    /// Number of the checkpoint.
    pub(crate) checkpoint: u64,
    /// Number of devices whose map counts from here on.
    pub(crate) devices: u32,
    /// Changed map pages, sealed.
    pub(crate) pages: Vec<(PageId, Vec<u8>)>,
}

impl Maps {
    fn new(geometry: Geometry, device: u32) -> Maps {
        let mut map = Bitmap::new(geometry.device_pages);
        map.take(0, geometry.reserved(device));
        Maps { taken: map.clone(), checkpointed: map.clone(), map, first: [0; CLASSES] }
    }
}

fn class_of(pages: u32) -> usize {
    pages.next_power_of_two().trailing_zeros() as usize
}

impl Space {
    /// The space of a store that was created or restored: reads the maps of the first `devices`.
    ///
    /// If a map page does not verify, all its pages count as in use, which is harmless: some of them are lost space
    /// until the store is repaired.
    ///
    /// Errors: [`StoreError::Corrupt`] if a device is missing; [`StoreError::Device`].
    pub(crate) fn open(data_devices: Arc<DataDevices>, devices: u32, checkpoint: u64) -> Result<Space, StoreError> {
        let geometry = data_devices.geometry();
        if devices > data_devices.count() {
            let why = format!("{} of {devices} data devices is missing", device_name(data_devices.count()));
            return Err(StoreError::Corrupt(why.into()));
        }
        let mut state = State {
            devices: Vec::new(),
            first: [0; CLASSES],
            free: 0,
            changed: BTreeSet::new(),
            freed: VecDeque::new(),
            checkpoint: checkpoint + 1,
            over: checkpoint,
            applying: Lsn::ZERO,
            horizon: Lsn::ZERO,
        };
        for device in 0..data_devices.count() {
            if device < devices {
                let maps = Maps::read(&data_devices, device, &mut state.changed)?;
                state.free += u64::from(geometry.device_pages - maps.taken.used());
                state.devices.push(maps);
            } else {
                state.add_device(geometry);
            }
        }
        Ok(Space { data_devices, geometry, state: Mutex::new(state), growing: Mutex::new(()) })
    }

    /// Allocates a run of `pages` within one device, on a multiple of its class, and adds it to the state.
    ///
    /// Errors: [`StoreError::Full`] if no device has space and none can be created: nothing changed, retry later;
    /// [`StoreError::Poisoned`]; [`StoreError::Refused`] for a run larger than 1 MiB; [`StoreError::Device`].
    pub(crate) fn allocate(&self, pages: u32) -> Result<PageId, StoreError> {
        let first = self.allocate_uncommitted(pages)?;
        self.attach(first, pages);
        Ok(first)
    }

    /// As [`allocate`](Space::allocate), but does not add the run to the state: a crash frees it until it is
    /// [attached](Space::attach).
    ///
    /// Errors: as for [`allocate`](Space::allocate).
    pub(crate) fn allocate_uncommitted(&self, pages: u32) -> Result<PageId, StoreError> {
        if pages == 0 || pages > self.geometry.run_pages_max() {
            let why = format!("a run has 1 to {} pages, not {pages}", self.geometry.run_pages_max());
            return Err(StoreError::Refused(why.into()));
        }
        loop {
            let seen = {
                let mut state = self.state.lock();
                if let Some(first) = state.take(self.geometry, pages) {
                    return Ok(first);
                }
                state.devices.len()
            };
            let _one = self.growing.lock();
            if self.state.lock().devices.len() == seen {
                self.data_devices.grow()?;
                self.state.lock().add_device(self.geometry);
            }
        }
    }

    /// Ensures that so many pages can be allocated, though not as one run: creates devices if necessary. Called before
    /// a record becomes durable that will need them.
    ///
    /// Errors: [`StoreError::Full`] if no device can be created, [`StoreError::Poisoned`], [`StoreError::Device`].
    pub(crate) fn reserve(&self, pages: u64) -> Result<(), StoreError> {
        while self.state.lock().free < pages {
            let _one = self.growing.lock();
            if self.state.lock().free < pages {
                self.data_devices.grow()?;
                self.state.lock().add_device(self.geometry);
            }
        }
        Ok(())
    }

    /// Adds an uncommitted run to the state. Panics if it is not an uncommitted run.
    pub(crate) fn attach(&self, first: PageId, pages: u32) {
        let (device, place) = self.geometry.place(first);
        let mut state = self.state.lock();
        let maps = &mut state.devices[device as usize];
        assert!(maps.taken.is_used(place, pages), "page {} is not allocated", first);
        maps.map.take(place, pages);
        state.touch(self.geometry, device, place, pages);
    }

    /// Removes a run from the state, as of the record that is being applied, and prevents its reuse until it is
    /// [freed](Space::free).
    pub(crate) fn mark_pending_free(&self, first: PageId, pages: u32) {
        if self.data_devices.quarantine().holds(first, pages) {
            return;
        }
        let (device, place) = self.geometry.place(first);
        let mut state = self.state.lock();
        state.devices[device as usize].map.give(place, pages);
        state.touch(self.geometry, device, place, pages);
    }

    /// Frees a run, or a part of one, as of the record that is being applied. Uncommitted and pending runs wait for no
    /// snapshot. Damaged pages stay in use, so that they are never written again.
    pub(crate) fn free(&self, first: PageId, pages: u32) {
        if self.data_devices.quarantine().holds(first, pages) {
            return;
        }
        let (device, place) = self.geometry.place(first);
        let mut state = self.state.lock();
        let (next, over) = (state.checkpoint, state.over);
        let maps = &mut state.devices[device as usize];
        if maps.map.is_free(place, pages) {
            let is_in_checkpoint = !maps.checkpointed.is_free(place, pages);
            // The page is not in the last checkpoint. But that checkpoint may still be running, and a crash then
            // returns to the previous one.
            let checkpoint = if is_in_checkpoint { next } else { next - 1 };
            match checkpoint > over {
                true => state.freed.push_back(Freed { first, pages, lsn: Lsn::ZERO, checkpoint: Some(checkpoint) }),
                false => state.give(self.geometry, first, pages),
            }
            return;
        }
        maps.map.give(place, pages);
        let is_in_checkpoint = !maps.checkpointed.is_free(place, pages);
        let (lsn, checkpoint) = (state.applying, is_in_checkpoint.then_some(state.checkpoint));
        state.touch(self.geometry, device, place, pages);
        state.freed.push_back(Freed { first, pages, lsn, checkpoint });
    }

    /// Sets the record that is being applied: snapshots before it need the pages that are freed from now on.
    pub(crate) fn applying(&self, lsn: Lsn) {
        self.state.lock().applying = lsn;
    }

    /// Records that no snapshot needs pages that were freed at or before `horizon`, which only increases. Call it with
    /// each checkpoint, and when an old snapshot ends.
    pub(crate) fn set_horizon(&self, horizon: Lsn) {
        let mut state = self.state.lock();
        if horizon > state.horizon {
            state.horizon = horizon;
            state.release(self.geometry);
        }
    }

    /// Begins a checkpoint: the checkpoint writes the current state. Called while nothing is applied.
    pub(crate) fn begin_checkpoint(&self, applied: Lsn) -> CheckpointMap {
        let mut state = self.state.lock();
        let State { devices, changed, checkpoint, .. } = &mut *state;
        let mut pages = Vec::new();
        for (device, nth) in std::mem::take(changed) {
            let maps = &mut devices[device as usize];
            maps.checkpointed.copy_words(
                &maps.map,
                nth as usize * self.geometry.map_words(),
                self.geometry.map_words(),
            );
            pages.push(map::encode(self.geometry, device, nth, &maps.map, applied.0));
        }
        let begun = CheckpointMap { checkpoint: *checkpoint, devices: devices.len() as u32, pages };
        *checkpoint += 1;
        begun
    }

    /// Records that a checkpoint is over: from now on its state is the one on the data devices.
    pub(crate) fn checkpoint_over(&self, checkpoint: u64) {
        let mut state = self.state.lock();
        state.over = checkpoint;
        state.release(self.geometry);
    }

    /// Whether a run was in use at the last checkpoint: readers of that state on the data devices may read it.
    #[cfg(test)]
    pub(crate) fn is_in_checkpoint(&self, first: PageId, pages: u32) -> bool {
        let (device, place) = self.geometry.place(first);
        !self.state.lock().devices[device as usize].checkpointed.is_free(place, pages)
    }

    /// Size of a page, bytes.
    pub(crate) fn page_bytes(&self) -> u64 {
        u64::from(self.geometry.page_bytes)
    }

    /// Pages of a data device.
    pub(crate) fn device_pages(&self) -> u64 {
        u64::from(self.geometry.device_pages)
    }

    /// The current usage.
    pub(crate) fn usage(&self) -> Usage {
        let state = self.state.lock();
        let used: u64 = state.devices.iter().map(|maps| u64::from(maps.map.used())).sum();
        let waiting = state.freed.iter().map(|freed| u64::from(freed.pages)).sum();
        Usage { pages: state.devices.len() as u64 * u64::from(self.geometry.device_pages), used, waiting }
    }

    /// Pages that can be allocated.
    pub(crate) fn available(&self) -> u64 {
        self.state.lock().free
    }

    /// The map of each device in the current state.
    #[cfg(test)]
    pub(crate) fn maps(&self) -> Vec<Bitmap> {
        self.state.lock().devices.iter().map(|maps| maps.map.clone()).collect()
    }
}

impl Maps {
    /// Reads the maps of a device. Damaged map pages are added to `changed`: the next checkpoint writes them again.
    fn read(data_devices: &DataDevices, device: u32, changed: &mut BTreeSet<(u32, u32)>) -> Result<Maps, StoreError> {
        let geometry = data_devices.geometry();
        let mut maps = Maps::new(geometry, device);
        let mut buffer = AlignedBuffer::zeroed(geometry.page_bytes as usize);
        for nth in 0..geometry.maps() {
            let page = geometry.map_page(device, nth);
            let is_read = match data_devices.read(page, &mut buffer).map_err(|error| error.of_reading(page, 1)) {
                Ok(()) => map::decode(geometry, device, nth, &buffer, &mut maps.map),
                Err(StoreError::Corrupt(_)) => false,
                Err(error) => return Err(error),
            };
            if !is_read {
                let words = std::iter::repeat_n(u64::MAX, geometry.map_words());
                maps.map.set_words(nth as usize * geometry.map_words(), words);
                changed.insert((device, nth));
                let place = crate::cache::BackingStore::place(data_devices, page);
                let why =
                    format!("{place} is not a page of the allocation map: all pages of its range count as in use");
                data_devices.quarantine().note(Quarantined { page, pages: 1, tree: "(allocation map)".into(), why });
            }
        }
        maps.taken = maps.map.clone();
        maps.checkpointed = maps.map.clone();
        Ok(maps)
    }
}

impl State {
    fn add_device(&mut self, geometry: Geometry) {
        let device = self.devices.len() as u32;
        let maps = Maps::new(geometry, device);
        self.free += u64::from(geometry.device_pages - maps.taken.used());
        self.devices.push(maps);
        self.changed.extend((0..geometry.maps()).map(|nth| (device, nth)));
    }

    fn take(&mut self, geometry: Geometry, pages: u32) -> Option<PageId> {
        let class = class_of(pages);
        for (device, maps) in self.devices.iter_mut().enumerate().skip(self.first[class]) {
            if let Some(place) = maps.taken.find(pages, maps.first[class]) {
                maps.taken.take(place, pages);
                maps.first[class] = place as usize / 64;
                self.first[class] = device;
                self.free -= u64::from(pages);
                return Some(geometry.page(device as u32, place));
            }
            maps.first[class] = usize::MAX / 2;
        }
        self.first[class] = self.devices.len();
        None
    }

    fn give(&mut self, geometry: Geometry, first: PageId, pages: u32) {
        let (device, place) = geometry.place(first);
        let maps = &mut self.devices[device as usize];
        maps.taken.give(place, pages);
        self.free += u64::from(pages);
        for class in 0..CLASSES {
            // A run of a larger class may begin earlier.
            let word = place as usize / 64 / (1_usize << class).div_ceil(64) * (1_usize << class).div_ceil(64);
            maps.first[class] = maps.first[class].min(word);
            self.first[class] = self.first[class].min(device as usize);
        }
    }

    /// Records the map pages that a change of a run affects.
    fn touch(&mut self, geometry: Geometry, device: u32, place: u32, pages: u32) {
        let nth = |place: u32| place / 64 / geometry.map_words() as u32;
        self.changed.extend((nth(place)..=nth(place + pages - 1)).map(|nth| (device, nth)));
    }

    /// Makes pages available that wait for no checkpoint and no snapshot. Entries lose their checkpoint once it is
    /// over.
    fn release(&mut self, geometry: Geometry) {
        let (horizon, over) = (self.horizon, self.over);
        let mut waiting = VecDeque::new();
        for mut freed in std::mem::take(&mut self.freed) {
            freed.checkpoint = freed.checkpoint.filter(|checkpoint| *checkpoint > over);
            if freed.checkpoint.is_none() && freed.lsn <= horizon {
                self.give(geometry, freed.first, freed.pages);
            } else {
                waiting.push_back(freed);
            }
        }
        self.freed = waiting;
    }
}

impl crate::cache::PageAllocator for Space {
    fn run_bytes_max(&self) -> usize {
        self.geometry.run_bytes_max()
    }

    fn allocate(&self, pages: u32) -> Result<PageId, StoreError> {
        Space::allocate(self, pages)
    }

    fn free(&self, first: PageId, pages: u32) {
        Space::free(self, first, pages);
    }
}
