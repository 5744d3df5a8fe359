//! [`Space`]: which pages are in use; the data devices ([`devices`]), the superblock, the allocation map.
//!
//! # Three answers to "is this page in use"
//!
//! ```text
//!   taken    may not be given out        in memory only
//!   map      in use by the state as it is now: what the next checkpoint will write
//!   checkpointed  in use by the state of the last checkpoint
//!
//!               allocate          attach             free               checkpoint cleared and no snapshot left
//!   taken   0 ------------> 1                   1 ----------------------------------> 0
//!   map     0        (uncommitted: 0) --------> 1 ------------> 0
//!   checkpointed  0                 when a checkpoint begins: = map
//! ```
//!
//! A page that the last checkpoint has in use, or that a snapshot may still read, is not given out again when it is freed: a crash
//! would go back to a state that needs it. The map that is written does not count it any more, for after a crash, when the
//! state is that of the checkpoint, nobody needs it and no snapshot lives. A page that came and went since the last checkpoint began waits for
//! snapshots only.
//!
//! Whoever keeps what a freed run holds for its own old readers, in memory, calls [`mark_pending_free`](Space::mark_pending_free) when the state lets
//! go of it and [`free`](Space::free) when the last reader has: the map does not count it in between.
//!
//! *Uncommitted* runs are allocated for something that no applied record refers to yet. The map does not count them, so that a
//! crash gives them back; [`attach`](Space::attach) puts them into the state.
//!
//! # Invariants
//!
//! 1. `map` is a part of `taken`.
//! 2. A page that is free in `checkpointed` is named by nothing durable: whoever has it may write it in place at any time.
//! 3. A checkpoint holds every map page that differs from the last checkpoint's. Devices made since then are empty on the medium and are
//!    counted by the superblock of the checkpoint that writes their map.
//!
//! # What it does not do
//!
//! It does not know what pages hold, and moves none: devices are never given back. Runs of several pages are placed first-fit
//! on multiples of their class (the next power of two), up to 1 MiB.

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

/// Pages as [`Space::usage`] counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of all devices.
    pub(crate) pages: u64,
    /// In use by the state as it is now.
    pub(crate) used: u64,
    /// Freed, and waiting for a checkpoint or for snapshots.
    pub(crate) waiting: u64,
}

/// Which pages are in use.
#[derive(Debug)]
pub(crate) struct Space {
    data_devices: Arc<DataDevices>,
    geometry: Geometry,
    state: Mutex<State>,
    /// Held by whoever makes a device, so that one is made at a time.
    growing: Mutex<()>,
}

#[derive(Debug)]
struct State {
    devices: Vec<Maps>,
    /// For each class the first device that may have room.
    first: [usize; CLASSES],
    /// Pages that can be given out, of all devices.
    free: u64,
    /// Map pages that differ from the last checkpoint's: device, number.
    changed: BTreeSet<(u32, u32)>,
    freed: VecDeque<Freed>,
    /// Of the next checkpoint.
    checkpoint: u64,
    /// The last checkpoint that is over.
    over: u64,
    /// The record that is being applied.
    applying: Lsn,
    /// What was freed at or before this is needed by no snapshot.
    horizon: Lsn,
}

/// The maps of one device.
#[derive(Debug)]
struct Maps {
    taken: Bitmap,
    map: Bitmap,
    checkpointed: Bitmap,
    /// For each class the first word that may have room.
    first: [usize; CLASSES],
}

#[derive(Clone, Copy, Debug)]
struct Freed {
    first: PageId,
    pages: u32,
    lsn: Lsn,
    /// The checkpoint that must be over; none for what no checkpoint had.
    checkpoint: Option<u64>,
}

/// The part of a checkpoint that is the map.
#[derive(Debug)]
pub(crate) struct CheckpointMap {
    /// Number of the checkpoint.
    pub(crate) checkpoint: u64,
    /// Devices whose map counts from here on.
    pub(crate) devices: u32,
    /// Map pages that changed, sealed.
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
    /// The space of a store that has been made or restored: reads the maps of the first `devices`.
    ///
    /// Of a map page that does not verify all pages count as in use, which harms nobody: some of them are lost space until the
    /// store is repaired.
    ///
    /// Errors: [`StoreError::Corrupt`] where a device is missing; [`StoreError::Device`].
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

    /// Takes a run of `pages` within one device, on a multiple of its class, into the state.
    ///
    /// Errors: [`StoreError::Full`] where no device has room and none can be made: nothing changed, try again later;
    /// [`StoreError::Poisoned`]; [`StoreError::Refused`] for a run larger than 1 MiB; [`StoreError::Device`].
    pub(crate) fn allocate(&self, pages: u32) -> Result<PageId, StoreError> {
        let first = self.allocate_uncommitted(pages)?;
        self.attach(first, pages);
        Ok(first)
    }

    /// The same without taking it into the state: a crash gives it back until it is [attached](Space::attach).
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

    /// Sees to it that so many pages can be given out, if not as one run: makes devices where that takes some. To be asked before
    /// something becomes durable that will need them.
    ///
    /// Errors: [`StoreError::Full`] where no device can be made, [`StoreError::Poisoned`], [`StoreError::Device`].
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

    /// Takes an uncommitted run into the state. Panics where it is no uncommitted run.
    pub(crate) fn attach(&self, first: PageId, pages: u32) {
        let (device, place) = self.geometry.place(first);
        let mut state = self.state.lock();
        let maps = &mut state.devices[device as usize];
        assert!(maps.taken.is_used(place, pages), "page {} is not allocated", first);
        maps.map.take(place, pages);
        state.touch(self.geometry, device, place, pages);
    }

    /// Takes a run out of the state, as of the record that is being applied, and keeps it from being given out until it is
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

    /// Gives up a run, or a part of one, as of the record that is being applied. Uncommitted and pending runs wait for no snapshot.
    /// What is damaged stays in use: nobody shall write there.
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
            // Out of the last checkpoint, that checkpoint may still be on its way, and what a crash goes back to is the one ahead of it.
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

    /// Says which record is being applied: what is freed from here on is needed by snapshots before it.
    pub(crate) fn applying(&self, lsn: Lsn) {
        self.state.lock().applying = lsn;
    }

    /// Says that no snapshot needs what was freed at or before `horizon`, which only grows. Call it beside each checkpoint, and
    /// when an old snapshot ends.
    pub(crate) fn set_horizon(&self, horizon: Lsn) {
        let mut state = self.state.lock();
        if horizon > state.horizon {
            state.horizon = horizon;
            state.release(self.geometry);
        }
    }

    /// Begins a checkpoint: the state as it is now is what the checkpoint writes. To be called while nothing is applied.
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

    /// Says that a checkpoint is over: its state is the one on the data devices, whatever happens.
    pub(crate) fn checkpoint_over(&self, checkpoint: u64) {
        let mut state = self.state.lock();
        state.over = checkpoint;
        state.release(self.geometry);
    }

    /// Whether a run was in use at the last checkpoint: it may be read by whoever reads that state on the data devices.
    #[cfg(test)]
    pub(crate) fn is_in_checkpoint(&self, first: PageId, pages: u32) -> bool {
        let (device, place) = self.geometry.place(first);
        !self.state.lock().devices[device as usize].checkpointed.is_free(place, pages)
    }

    /// Size of a page.
    pub(crate) fn page_bytes(&self) -> u64 {
        u64::from(self.geometry.page_bytes)
    }

    /// How full it is.
    pub(crate) fn usage(&self) -> Usage {
        let state = self.state.lock();
        let used: u64 = state.devices.iter().map(|maps| u64::from(maps.map.used())).sum();
        let waiting = state.freed.iter().map(|freed| u64::from(freed.pages)).sum();
        Usage { pages: state.devices.len() as u64 * u64::from(self.geometry.device_pages), used, waiting }
    }

    /// Pages that can be given out.
    pub(crate) fn available(&self) -> u64 {
        self.state.lock().free
    }

    /// The map of each device, as the state is now.
    #[cfg(test)]
    pub(crate) fn maps(&self) -> Vec<Bitmap> {
        self.state.lock().devices.iter().map(|maps| maps.map.clone()).collect()
    }
}

impl Maps {
    /// What is damaged goes to `changed`: the next checkpoint writes it anew.
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
                let why = format!("{place} is no page of the allocation map: what it is of counts as in use");
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
            // A run of a larger class may begin further ahead.
            let word = place as usize / 64 / (1_usize << class).div_ceil(64) * (1_usize << class).div_ceil(64);
            maps.first[class] = maps.first[class].min(word);
            self.first[class] = self.first[class].min(device as usize);
        }
    }

    /// Notes which map pages a change of a run concerns.
    fn touch(&mut self, geometry: Geometry, device: u32, place: u32, pages: u32) {
        let nth = |place: u32| place / 64 / geometry.map_words() as u32;
        self.changed.extend((nth(place)..=nth(place + pages - 1)).map(|nth| (device, nth)));
    }

    /// Gives out again what waits for no checkpoint and for no snapshot. Entries lose their checkpoint once it is over.
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
