//! [`ExtentPool`]: extents of equal size on the devices of an index, which are added as they are needed.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encryption::{SEAL_BYTES, data_key_of};
use store::cache::tap::{AccessTap, SEGMENTS};

use super::sealing::{FileSeals, IndexSealing, NUMBER_BYTES, Seal};
use super::{Device, FileMemory, Mutex, Shelf, StoreError};

/// The unit in which files get space. The files of a segment are some ten, so a small segment takes 640 KiB until it is merged.
pub(super) const EXTENT_BYTES: usize = 64 << 10;

/// Size of a device, in bytes: one gigabyte of files needs 16 descriptors.
const DEVICE_BYTES: u64 = 64 << 20;

/// Extents of a device.
const OF_DEVICE: u32 = (DEVICE_BYTES / EXTENT_BYTES as u64) as u32;

/// The number of an extent, through all devices.
pub(super) type Place = u32;

/// An extent of a file: where, and the checksum of its bytes as they are stored (those beyond the end of the file are zeros, which are
/// encrypted with the others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileExtent {
    /// Which extent.
    pub(super) place: Place,
    /// CRC-32C.
    pub(super) checksum: u32,
}

/// On which shelf a file lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileTier {
    /// The first one, or the only one.
    #[default]
    Fast,
    /// That of large files.
    Capacity,
}

/// The form of a sealed file in the table.
const SEALED_VERSION: u8 = 1;

/// Bytes of place and checksum in the table.
const ENTRY_BYTES: usize = 8;

/// Where the bytes of a file lie.
#[derive(Clone, Debug, Default)]
pub(super) struct FileExtents {
    /// On which shelf.
    pub(super) tier: FileTier,
    /// Its length, in bytes.
    pub(super) len: usize,
    /// Its extents, in order.
    pub(super) extents: Vec<FileExtent>,
    /// Their seals, if they are encrypted.
    pub(super) seals: Option<FileSeals>,
}

impl FileExtents {
    /// The same file on a shelf, without a byte so far.
    pub(super) fn begun_again(&self, tier: FileTier) -> FileExtents {
        FileExtents { tier, seals: self.seals.as_ref().map(FileSeals::begun_again), ..FileExtents::default() }
    }

    /// `len` u64, then for each extent its place and its checksum, u32 each, little-endian. A sealed file begins with a version, has its
    /// number behind the length, and the seal of each extent behind its checksum.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.seals.as_ref().map(|_| SEALED_VERSION));
        out.extend_from_slice(&(self.len as u64).to_le_bytes());
        self.seals.iter().for_each(|seals| out.extend_from_slice(seals.number()));
        for (at, extent) in self.extents.iter().enumerate() {
            out.extend_from_slice(&extent.place.to_le_bytes());
            out.extend_from_slice(&extent.checksum.to_le_bytes());
            let seal = self.seals.as_ref().and_then(|seals| seals.seals().get(at));
            seal.into_iter().for_each(|seal| out.extend_from_slice(seal));
        }
        out
    }

    /// `None` if these are not the bytes of a file's extents; those of a file in clear are none of a store that seals, nor the reverse.
    pub(super) fn decode(bytes: &[u8], tier: FileTier, sealing: Option<(&IndexSealing, &Path)>) -> Option<FileExtents> {
        let Some((sealing, path)) = sealing else {
            let (len, rest) = bytes.split_first_chunk::<8>()?;
            let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else { return None };
            return FileExtents::whole(*len, tier, entries.iter().map(extent_of).collect(), None);
        };
        let (&SEALED_VERSION, rest) = bytes.split_first()? else { return None };
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk::<NUMBER_BYTES>()?;
        let (entries, []) = rest.as_chunks::<{ ENTRY_BYTES + SEAL_BYTES }>() else { return None };
        let parts = entries.iter().map(|entry| Some((extent_of(entry.first_chunk()?), *entry.last_chunk()?)));
        let (extents, seals): (Vec<FileExtent>, Vec<Seal>) = parts.collect::<Option<Vec<_>>>()?.into_iter().unzip();
        FileExtents::whole(*len, tier, extents, Some(sealing.known(path, *number, seals)))
    }

    /// The numbers of the data keys that the extents of a sealed file are encrypted with. `None`: it is no sealed file.
    pub(super) fn data_keys(bytes: &[u8]) -> Option<impl Iterator<Item = u32>> {
        let (&SEALED_VERSION, rest) = bytes.split_first()? else { return None };
        let (_, rest) = rest.split_first_chunk::<{ 8 + NUMBER_BYTES }>()?;
        let (entries, []) = rest.as_chunks::<{ ENTRY_BYTES + SEAL_BYTES }>() else { return None };
        Some(entries.iter().map(|entry| data_key_of(entry.last_chunk().expect("an entry ends with a seal"))))
    }

    /// `None` if it has not as many extents as its length needs.
    fn whole(len: [u8; 8], tier: FileTier, extents: Vec<FileExtent>, seals: Option<FileSeals>) -> Option<FileExtents> {
        let len = usize::try_from(u64::from_le_bytes(len)).ok()?;
        (extents.len() == len.div_ceil(EXTENT_BYTES)).then_some(FileExtents { tier, len, extents, seals })
    }
}

fn extent_of([a, b, c, d, e, f, g, h]: &[u8; ENTRY_BYTES]) -> FileExtent {
    FileExtent { place: u32::from_le_bytes([*a, *b, *c, *d]), checksum: u32::from_le_bytes([*e, *f, *g, *h]) }
}

/// The devices of an index.
pub(super) struct ExtentPool {
    shelf: Arc<dyn Shelf>,
    name: String,
    /// Distinct from those of all other pools of the process.
    number: u64,
    memory: Arc<FileMemory>,
    /// Whoever records a profile.
    tap: Arc<AccessTap>,
    state: Mutex<PoolState>,
}

/// Pools so far.
static POOLS: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct PoolState {
    devices: Vec<Arc<dyn Device>>,
    free: BTreeSet<Place>,
    /// Extents of removed files that the table in the store may still name.
    removed: BTreeSet<Place>,
    /// Devices written since the last flush.
    written: BTreeSet<usize>,
    /// Devices that failed: nothing more is written to them until the next start.
    retired: BTreeSet<usize>,
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl ExtentPool {
    pub(super) fn open(
        shelf: Arc<dyn Shelf>,
        (name, memory, tap): (&str, &Arc<FileMemory>, &Arc<AccessTap>),
        in_use: &[FileExtent],
    ) -> Result<ExtentPool, StoreError> {
        let mut state = PoolState::default();
        let present: BTreeSet<String> = shelf.list()?.into_iter().collect();
        while present.contains(&device_name(name, state.devices.len())) {
            let device = shelf.open(&device_name(name, state.devices.len()))?;
            state.add(device);
        }
        for extent in in_use {
            // A place beyond the devices is found when the extent is read.
            state.free.remove(&extent.place);
        }
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        let (name, memory, tap) = (name.to_owned(), Arc::clone(memory), Arc::clone(tap));
        Ok(ExtentPool { shelf, name, number, memory, tap, state: Mutex::new(state) })
    }

    pub(super) fn remove_devices(shelf: &dyn Shelf, name: &str) -> Result<(), StoreError> {
        let present: BTreeSet<String> = shelf.list()?.into_iter().collect();
        for number in (0..)
            .take_while(|number| present.contains(&device_name(name, *number)))
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            shelf.remove(&device_name(name, number))?;
        }
        Ok(())
    }

    /// Writes the bytes of an extent at the end of a file, and empties the buffer.
    pub(super) fn append(&self, file: &mut FileExtents, buffer: &mut Vec<u8>) -> io::Result<()> {
        file.len += buffer.len();
        buffer.resize(EXTENT_BYTES, 0);
        let (place, device) = {
            let mut state = self.state.lock();
            let place = match state.free.pop_first() {
                Some(place) => place,
                None => {
                    let name = device_name(&self.name, state.devices.len());
                    // One before it was lost: its files are made again, and so are those here.
                    if self.shelf.list().map_err(failed)?.contains(&name) {
                        self.shelf.remove(&name).map_err(failed)?;
                    }
                    let device = self.shelf.create_unwritten(&name, DEVICE_BYTES).map_err(failed)?;
                    state.add(device);
                    state.free.pop_first().expect("a new device has free extents")
                }
            };
            let number = (place / OF_DEVICE) as usize;
            state.written.insert(number);
            (place, Arc::clone(&state.devices[number]))
        };
        let sealed = file.seals.as_mut().map(|seals| seals.seal_next(buffer));
        let stored = sealed.as_deref().unwrap_or(buffer);
        let checksum = checksum(stored);
        file.extents.push(FileExtent { place, checksum });
        self.memory.cache.put((self.number, place), checksum, buffer);
        if let Err(error) = device.write(offset(place), stored) {
            self.state.lock().retire((place / OF_DEVICE) as usize);
            return Err(failed(error));
        }
        buffer.clear();
        Ok(())
    }

    /// Reads a range of a file. Errors: the medium's, and an extent that is not what was written.
    pub(super) fn read(&self, file: &FileExtents, range: Range<usize>) -> io::Result<Vec<u8>> {
        if range.end > file.len || range.start > range.end {
            return Err(failed(format!("bytes {range:?} of a file of {} bytes", file.len)));
        }
        let mut out = Vec::with_capacity(range.len());
        let mut buffer = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let position = at / EXTENT_BYTES;
            let extent = file.extents[position];
            let first = at % EXTENT_BYTES;
            let last = (first + range.end - at).min(EXTENT_BYTES);
            at += last - first;
            let key = (self.number, extent.place);
            if let Some(bytes) = self.memory.cache.get(key, extent.checksum) {
                out.extend_from_slice(&bytes[first..last]);
                continue;
            }
            self.tap.device_read(SEGMENTS, EXTENT_BYTES as u64);
            buffer.resize(EXTENT_BYTES, 0);
            let device = self.state.lock().devices.get((extent.place / OF_DEVICE) as usize).cloned();
            let device =
                device.ok_or_else(|| failed(format!("extent {} lies on a device that is missing", extent.place)))?;
            device.read(offset(extent.place), &mut buffer).map_err(failed)?;
            if checksum(&buffer) != extent.checksum {
                return Err(self.damaged(extent.place, ""));
            }
            if let Some(seals) = &file.seals {
                let opened = seals.open(position, &mut buffer);
                opened.map_err(|fault| self.damaged(extent.place, format_args!(": {fault}")))?;
            }
            self.memory.cache.put(key, extent.checksum, &buffer);
            out.extend_from_slice(&buffer[first..last]);
        }
        Ok(out)
    }

    /// The error of an extent that is not what was written.
    fn damaged(&self, place: Place, why: impl std::fmt::Display) -> io::Error {
        let (at, number) = (offset(place), place / OF_DEVICE);
        failed(format!("extent at {at} of device {}-{number} is damaged{why}", self.name))
    }

    /// A file is no longer there; its extents are kept until [`free`](ExtentPool::free). Those of a device that was lost are not: a new
    /// device of that number has other files in them by then.
    pub(super) fn remove(&self, extents: &[FileExtent]) {
        let mut state = self.state.lock();
        let end = state.devices.len() as Place * OF_DEVICE;
        state.removed.extend(extents.iter().map(|extent| extent.place).filter(|place| *place < end));
    }

    /// Extents that can be used.
    #[cfg(test)]
    pub(super) fn free_so_far(&self) -> usize {
        self.state.lock().free.len()
    }

    /// The extents removed so far.
    pub(super) fn removed_so_far(&self) -> BTreeSet<Place> {
        self.state.lock().removed.clone()
    }

    /// Nothing names these extents any more.
    pub(super) fn free(&self, extents: &BTreeSet<Place>) {
        let mut state = self.state.lock();
        for place in extents {
            state.removed.remove(place);
            if !state.retired.contains(&((place / OF_DEVICE) as usize)) {
                state.free.insert(*place);
            }
        }
    }

    /// No file is there any more: what failed devices had not made persistent does not matter.
    pub(super) fn forget_failures(&self) {
        let mut state = self.state.lock();
        let PoolState { written, retired, .. } = &mut *state;
        written.retain(|number| !retired.contains(number));
    }

    /// Makes everything written so far persistent.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        let written: Vec<(usize, Arc<dyn Device>)> = {
            let mut state = self.state.lock();
            let numbers = std::mem::take(&mut state.written);
            numbers.into_iter().map(|number| (number, Arc::clone(&state.devices[number]))).collect()
        };
        for (number, device) in &written {
            if let Err(error) = device.flush() {
                let mut state = self.state.lock();
                // None of them counts as flushed; the failed one never will.
                state.written.extend(written.iter().map(|(number, _)| *number));
                state.retire(*number);
                return Err(error.into());
            }
        }
        Ok(())
    }
}

impl PoolState {
    /// A device refuses everything after a failed write or flush.
    fn retire(&mut self, number: usize) {
        self.retired.insert(number);
        self.free.retain(|place| (*place / OF_DEVICE) as usize != number);
    }

    fn add(&mut self, device: Arc<dyn Device>) {
        let first = self.devices.len() as u32 * OF_DEVICE;
        self.free.extend(first..first + OF_DEVICE);
        self.devices.push(device);
    }
}

fn device_name(name: &str, number: usize) -> String {
    format!("{name}-{number}")
}

fn offset(place: Place) -> u64 {
    u64::from(place % OF_DEVICE) * EXTENT_BYTES as u64
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
