//! A shelf on a medium of a chosen size, which can be full: for tests of what runs out of space.
//!
//! ```text
//!   QuotaShelf::new(inner, bytes)        as much space as the medium has, for all devices together
//!     .set_bytes(bytes)                  others take some of it, or give it back
//! ```
//!
//! A device takes all of its space when it is created; a sparse one takes blocks of [`BLOCK_BYTES`] as they are written or reserved, and
//! gives them back when they are discarded. What does not fit fails with [`DeviceError::Full`], as on a file system: a write poisons its
//! handle, a reservation does not.
//!
//! Around devices that exist already it counts the blocks of sparse ones that are not zeros, so that a crash image can be taken over. The
//! space of a removed device is free at once, also while a handle is left.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::contract::{assert_range, assert_range_of};
use crate::poison::Poison;
use crate::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, Extent, Shelf};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// See the head comment of this file.
#[derive(Debug)]
pub struct QuotaShelf {
    inner: Arc<dyn Shelf>,
    medium: Arc<QuotaMedium>,
}

#[derive(Debug)]
struct QuotaMedium {
    number: u64,
    state: Mutex<QuotaState>,
}

#[derive(Debug)]
struct QuotaState {
    /// Bytes of the medium.
    bytes: u64,
    /// Bytes that are taken.
    taken: u64,
    devices: BTreeMap<String, Taken>,
}

/// The space of a device.
#[derive(Debug)]
enum Taken {
    Whole(u64),
    /// Which blocks have space.
    Sparse(Vec<bool>),
}

impl Taken {
    fn bytes(&self) -> u64 {
        match self {
            Taken::Whole(bytes) => *bytes,
            Taken::Sparse(blocks) => blocks.iter().filter(|has_space| **has_space).count() as u64 * BLOCK,
        }
    }
}

impl QuotaShelf {
    /// A medium of this size. Devices that exist have all of their space.
    ///
    /// Errors: those of the shelf.
    pub fn new(inner: Arc<dyn Shelf>, bytes: u64) -> Result<QuotaShelf, DeviceError> {
        QuotaShelf::around(inner, bytes, |_| false)
    }

    /// As [`new`](QuotaShelf::new), around devices some of which are sparse.
    ///
    /// Errors: those of the shelf and of reading its devices.
    pub fn around(
        inner: Arc<dyn Shelf>,
        bytes: u64,
        is_sparse: impl Fn(&str) -> bool,
    ) -> Result<QuotaShelf, DeviceError> {
        let mut devices = BTreeMap::new();
        for name in inner.list()? {
            let device = inner.open_read_only(&name)?;
            let taken = if is_sparse(&name) { Taken::Sparse(written(&*device)?) } else { Taken::Whole(device.len()) };
            devices.insert(name, taken);
        }
        let taken = devices.values().map(Taken::bytes).sum();
        let state = Mutex::new(QuotaState { bytes, taken, devices });
        // Numbers that no file system has.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(QuotaShelf { inner, medium: Arc::new(QuotaMedium { number, state }) })
    }

    /// Changes the size of the medium: what others take of it is not there.
    pub fn set_bytes(&self, bytes: u64) {
        self.medium.state().bytes = bytes;
    }

    /// Bytes that all devices take.
    pub fn taken_bytes(&self) -> u64 {
        self.medium.state().taken
    }

    fn make(
        &self,
        name: &str,
        taken: Taken,
        make: impl FnOnce() -> Result<Arc<dyn Device>, DeviceError>,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        // Held meanwhile: nobody else takes the space.
        let mut state = self.medium.state();
        let bytes = taken.bytes();
        state.check(name, bytes)?;
        let device = make()?;
        state.taken += bytes;
        state.devices.insert(name.to_owned(), taken);
        drop(state);
        Ok(self.wrap(name, device))
    }

    fn wrap(&self, name: &str, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        let medium = self.medium.clone();
        Arc::new(QuotaDevice { name: name.to_owned(), inner, medium, poison: Poison::default() })
    }
}

/// Which blocks of a device are not zeros.
fn written(device: &dyn Device) -> Result<Vec<bool>, DeviceError> {
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
    let mut has_content = |number: u64| {
        device.read(number * BLOCK, &mut block)?;
        Ok(block.iter().any(|byte| *byte != 0))
    };
    (0..device.len() / BLOCK).map(&mut has_content).collect()
}

impl QuotaMedium {
    fn state(&self) -> MutexGuard<'_, QuotaState> {
        // The counts are consistent after any panic: they change together, after all checks.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaState {
    /// Errors: [`DeviceError::Full`].
    fn check(&self, name: &str, bytes: u64) -> Result<(), DeviceError> {
        if self.taken + bytes > self.bytes {
            return Err(DeviceError::Full { name: name.to_owned(), bytes });
        }
        Ok(())
    }

    /// Takes or frees the blocks of a range of a sparse device; of another one there is nothing to do.
    fn change(&mut self, name: &str, offset: u64, bytes: u64, has_space: bool) -> Result<(), DeviceError> {
        let Some(Taken::Sparse(blocks)) = self.devices.get(name) else { return Ok(()) };
        // Of a discard only whole blocks.
        let (first, end) = match has_space {
            true => (offset / BLOCK, (offset + bytes).div_ceil(BLOCK)),
            false => (offset.div_ceil(BLOCK), (offset + bytes) / BLOCK),
        };
        let range = first as usize..end.max(first) as usize;
        let differ = blocks[range.clone()].iter().filter(|block| **block != has_space).count() as u64 * BLOCK;
        if has_space {
            self.check(name, differ)?;
            self.taken += differ;
        } else {
            self.taken -= differ;
        }
        if let Some(Taken::Sparse(blocks)) = self.devices.get_mut(name) {
            blocks[range].fill(has_space);
        }
        Ok(())
    }
}

impl Shelf for QuotaShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.make(name, Taken::Whole(bytes), || self.inner.create(name, bytes))
    }

    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.make(name, Taken::Whole(bytes), || self.inner.create_unwritten(name, bytes))
    }

    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        let blocks = vec![false; (bytes / BLOCK) as usize];
        self.make(name, Taken::Sparse(blocks), || self.inner.create_unwritten(name, bytes))
    }

    fn medium(&self) -> Option<u64> {
        Some(self.medium.number)
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        let state = self.medium.state();
        Ok(Some(state.bytes.saturating_sub(state.taken)))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.wrap(name, self.inner.open(name)?))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.wrap(name, self.inner.open_read_only(name)?))
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        let mut state = self.medium.state();
        self.inner.remove(name)?;
        let freed = state.devices.remove(name).map_or(0, |taken| taken.bytes());
        state.taken -= freed;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        let mut state = self.medium.state();
        self.inner.rename(from, to)?;
        if let Some(taken) = state.devices.remove(from) {
            state.devices.insert(to.to_owned(), taken);
        }
        Ok(())
    }
}

struct QuotaDevice {
    name: String,
    inner: Arc<dyn Device>,
    medium: Arc<QuotaMedium>,
    poison: Poison,
}

impl QuotaDevice {
    fn take(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.medium.state().change(&self.name, offset, bytes, true)
    }
}

impl fmt::Debug for QuotaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuotaDevice").field(&self.inner).finish()
    }
}

impl Device for QuotaDevice {
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

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.poison.guard(&self.name, || self.inner.deep_flush())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range_of(self.len(), self.block_bytes().into(), offset, data.len() as u64);
        self.poison.guard(&self.name, || {
            self.take(offset, data.len() as u64)?;
            self.inner.write(offset, data)
        })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.poison.guard(&self.name, || self.inner.flush())
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range_of(self.len(), self.block_bytes().into(), offset, data.len() as u64);
        self.poison.guard(&self.name, || {
            self.take(offset, data.len() as u64)?;
            self.inner.write_flush(offset, data)
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range_of(self.len(), self.block_bytes().into(), offset, bytes);
        self.poison.guard_discard(&self.name, || {
            self.inner.discard(offset, bytes)?;
            self.medium.state().change(&self.name, offset, bytes, false)
        })
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        let state = self.medium.state();
        let Some(Taken::Sparse(blocks)) = state.devices.get(&self.name) else {
            return self.inner.extents(offset, bytes);
        };
        assert_range(self.len(), offset, bytes);
        let blocks = &blocks[(offset / BLOCK) as usize..((offset + bytes) / BLOCK) as usize];
        let extent = |run: &[bool]| Extent { bytes: run.len() as u64 * BLOCK, has_space: run[0] };
        Ok(blocks.chunk_by(|one, next| one == next).map(extent).collect())
    }

    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range(self.len(), offset, bytes);
        self.poison.check(&self.name)?;
        self.take(offset, bytes)
    }

    fn allocated_bytes(&self) -> Result<u64, DeviceError> {
        let state = self.medium.state();
        Ok(state.devices.get(&self.name).map_or(self.inner.len(), Taken::bytes))
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryShelf;

    #[test]
    fn a_sparse_device_takes_what_is_written_or_reserved_and_gives_back_what_is_discarded() {
        let shelf = QuotaShelf::new(Arc::new(MemoryShelf::new()), 10 * BLOCK).expect("it lists");
        shelf.create("whole", 6 * BLOCK).expect("room");
        let sparse = shelf.create_sparse("sparse", 100 * BLOCK).expect("it takes nothing");
        assert_eq!((shelf.taken_bytes(), sparse.allocated_bytes().expect("known")), (6 * BLOCK, 0));
        sparse.write(5 * BLOCK, &[1; 2 * BLOCK_BYTES]).expect("room");
        sparse.reserve(6 * BLOCK, 2 * BLOCK).expect("room");
        assert_eq!(
            (shelf.free_bytes().expect("known"), sparse.allocated_bytes().expect("known")),
            (Some(BLOCK), 3 * BLOCK)
        );
        let refused = sparse.reserve(50 * BLOCK, 2 * BLOCK);
        assert!(matches!(refused, Err(DeviceError::Full { .. })), "{refused:?}");
        sparse.write(7 * BLOCK, &[2; BLOCK_BYTES]).expect("a reservation that failed poisons nothing");
        sparse.discard(5 * BLOCK, 2 * BLOCK).expect("it discards");
        let expected = [(2, false), (1, true), (1, false)];
        let expected = expected.map(|(blocks, has_space)| Extent { bytes: blocks * BLOCK, has_space });
        assert_eq!(sparse.extents(5 * BLOCK, 4 * BLOCK).expect("known"), expected);
        assert_eq!(shelf.free_bytes().expect("known"), Some(3 * BLOCK));
        let again = QuotaShelf::around(shelf.inner.clone(), 10 * BLOCK, |name| name == "sparse").expect("it reads");
        assert_eq!(again.taken_bytes(), 7 * BLOCK, "what has content");
        shelf.set_bytes(7 * BLOCK);
        let refused = sparse.write(20 * BLOCK, &[3; BLOCK_BYTES]);
        assert!(matches!(refused, Err(DeviceError::Full { .. })), "{refused:?}");
        assert!(matches!(sparse.flush(), Err(DeviceError::Poisoned { .. })), "a write that failed poisons");
        shelf.remove("whole").expect("it is there");
        assert_eq!(shelf.free_bytes().expect("known"), Some(6 * BLOCK));
        shelf.create("b", 7 * BLOCK).expect_err("no room");
    }
}
