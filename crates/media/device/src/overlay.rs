//! A shelf read through a layer of memory: writes stay in the layer, and the shelf below never changes.
//!
//! ```text
//!   read     block in the layer? --yes--> layer         write, discard  -> layer
//!                 | no                                   create          -> layer
//!                 v                                      remove, rename  -> the layer's list of names
//!           the shelf below (opened read-only)
//! ```
//!
//! Used to inspect the data of a stopped program: recovery runs as usual, and the medium stays unchanged. The layer
//! takes as much memory as is written, in blocks of [`BLOCK_BYTES`], and is dropped with the shelf. The shelf below
//! must not change meanwhile: hold its lock, or ensure that no process writes.
//!
//! Devices have blocks of [`WORD_BYTES`], so that data in any unit can be read and continued.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::contract::{assert_name, assert_range_of, assert_size};
use crate::{BLOCK_BYTES, Device, DeviceError, Durability, Operation, Shelf, WORD_BYTES};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// See the head comment of this file.
pub struct OverlayShelf {
    below: Arc<dyn Shelf>,
    /// All names; the value is `None` until the device is opened.
    names: Mutex<BTreeMap<String, Option<Arc<Layered>>>>,
}

impl OverlayShelf {
    /// A layer over `below`, which is only ever opened for reading.
    ///
    /// Errors: those of [`Shelf::list`].
    pub fn new(below: Arc<dyn Shelf>) -> Result<OverlayShelf, DeviceError> {
        let names = below.list()?.into_iter().map(|name| (name, None)).collect();
        Ok(OverlayShelf { below, names: Mutex::new(names) })
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Option<Arc<Layered>>>> {
        // A panic under this lock is an assertion of a caller's error, before anything changed.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str, writable: bool) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        let mut names = self.names();
        let place = names.get_mut(name).ok_or_else(|| DeviceError::NotFound { name: name.into() })?;
        let layered = match place {
            Some(layered) => Arc::clone(layered),
            None => {
                let below = self.below.open_read_only(name)?;
                let layered = Arc::new(Layered { len: below.len(), below: Some(below), blocks: RwLock::default() });
                Arc::clone(place.insert(layered))
            }
        };
        Ok(Arc::new(Handle { name: name.into(), layered, writable }))
    }
}

impl fmt::Debug for OverlayShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OverlayShelf").field(&self.below).finish()
    }
}

impl Shelf for OverlayShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        assert_size(bytes);
        let mut names = self.names();
        if names.contains_key(name) {
            return Err(DeviceError::AlreadyExists { name: name.into() });
        }
        let layered = Layered { len: bytes, below: None, blocks: RwLock::default() };
        names.insert(name.into(), Some(Arc::new(layered)));
        drop(names);
        self.find(name, true)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.find(name, true)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.find(name, false)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        Ok(self.names().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        assert_name(name);
        self.names().remove(name).map(drop).ok_or_else(|| DeviceError::NotFound { name: name.into() })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        assert_name(to);
        // Opened by its old name, which the shelf below still has.
        drop(self.find(from, false)?);
        let mut names = self.names();
        if names.contains_key(to) {
            return Err(DeviceError::AlreadyExists { name: to.into() });
        }
        let place = names.remove(from).ok_or_else(|| DeviceError::NotFound { name: from.into() })?;
        names.insert(to.into(), place);
        Ok(())
    }
}

struct Layered {
    len: u64,
    below: Option<Arc<dyn Device>>,
    /// Indexed by block number.
    blocks: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl Layered {
    /// A block of the device below; zeros if there is none.
    fn block_below(&self, number: u64) -> Result<Box<[u8]>, DeviceError> {
        let mut block = vec![0; BLOCK_BYTES].into_boxed_slice();
        if let Some(below) = &self.below {
            below.read(number * BLOCK, &mut block)?;
        }
        Ok(block)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        let end = offset + buffer.len() as u64;
        let aligned = offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
        let untouched = blocks.range(offset / BLOCK..end.div_ceil(BLOCK)).next().is_none();
        if aligned
            && untouched
            && let Some(below) = &self.below
        {
            return below.read(offset, buffer);
        }
        for (number, within, part) in parts(offset, buffer.len()) {
            match blocks.get(&number) {
                Some(block) => buffer[part.clone()].copy_from_slice(&block[within..within + part.len()]),
                None => {
                    let block = self.block_below(number)?;
                    buffer[part.clone()].copy_from_slice(&block[within..within + part.len()]);
                }
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        for (number, within, part) in parts(offset, data.len()) {
            let block = match blocks.entry(number) {
                std::collections::btree_map::Entry::Occupied(block) => block.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => place.insert(self.block_below(number)?),
            };
            block[within..within + part.len()].copy_from_slice(&data[part]);
        }
        Ok(())
    }
}

/// A range divided by blocks: the block, the offset in it, and the part of the buffer.
fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < bytes).then(|| {
            let at = offset + done as u64;
            let within = (at % BLOCK) as usize;
            let part = done..bytes.min(done + BLOCK_BYTES - within);
            done = part.end;
            (at / BLOCK, within, part)
        })
    })
}

struct Handle {
    name: String,
    layered: Arc<Layered>,
    writable: bool,
}

impl Handle {
    fn may(&self, operation: Operation) -> Result<(), DeviceError> {
        if self.writable { Ok(()) } else { Err(DeviceError::ReadOnly { operation, name: self.name.clone() }) }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayDevice").field("name", &self.name).field("writable", &self.writable).finish()
    }
}

impl Device for Handle {
    fn len(&self) -> u64 {
        self.layered.len
    }

    fn block_bytes(&self) -> u32 {
        WORD_BYTES as u32
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        assert_range_of(self.len(), WORD_BYTES as u64, offset, buffer.len() as u64);
        self.layered.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range_of(self.len(), WORD_BYTES as u64, offset, data.len() as u64);
        self.may(Operation::Write)?;
        self.layered.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.may(Operation::Flush)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range_of(self.len(), WORD_BYTES as u64, offset, bytes);
        self.may(Operation::Discard)?;
        // In pieces: a range may be as large as a device.
        let zeros = vec![0; BLOCK_BYTES];
        let mut at = offset;
        while at < offset + bytes {
            let piece = (offset + bytes - at).min(BLOCK);
            self.layered.write(at, &zeros[..piece as usize])?;
            at += piece;
        }
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryShelf;

    fn content(shelf: &dyn Shelf, name: &str) -> Vec<u8> {
        let device = shelf.open_read_only(name).expect("it is there");
        let mut bytes = vec![0; device.len() as usize];
        device.read(0, &mut bytes).expect("it reads");
        bytes
    }

    #[test]
    fn what_is_written_is_read_back_and_what_lies_below_never_changes() {
        let below = Arc::new(MemoryShelf::new());
        let device = below.create("a", 4 * BLOCK).expect("room");
        device.write(0, &vec![1; 4 * BLOCK_BYTES]).expect("it writes");
        below.create("gone", BLOCK).expect("room");
        let shelf = OverlayShelf::new(below.clone()).expect("it lists");
        let over = shelf.open("a").expect("it is there");
        over.write(BLOCK - 8, &[2; 16]).expect("it writes");
        over.discard(2 * BLOCK, BLOCK + 8).expect("it discards");
        over.flush().expect("nothing to do");
        let mut expected = vec![1; 4 * BLOCK_BYTES];
        expected[BLOCK_BYTES - 8..BLOCK_BYTES + 8].fill(2);
        expected[2 * BLOCK_BYTES..3 * BLOCK_BYTES + 8].fill(0);
        assert_eq!(content(&shelf, "a"), expected, "also by another handle");
        let mut part = [0; 24];
        over.read(BLOCK - 16, &mut part).expect("it reads");
        assert_eq!(part, [[1; 8], [2; 8], [2; 8]].concat()[..], "across a block's edge");
        shelf.create("new", BLOCK).expect("memory").write(0, &[3; BLOCK_BYTES]).expect("it writes");
        shelf.remove("gone").expect("it was there");
        shelf.rename("a", "b").expect("the name is free");
        assert_eq!(shelf.list().expect("it lists"), ["b", "new"]);
        assert_eq!((content(&shelf, "b"), content(&shelf, "new")), (expected, vec![3; BLOCK_BYTES]));
        assert!(matches!(shelf.open("a"), Err(DeviceError::NotFound { .. })));
        assert!(matches!(shelf.create("b", BLOCK), Err(DeviceError::AlreadyExists { .. })));
        let reading = shelf.open_read_only("b").expect("it is there");
        assert!(matches!(reading.write(0, &[0; 8]), Err(DeviceError::ReadOnly { .. })));
        assert_eq!(below.list().expect("it lists"), ["a", "gone"]);
        assert_eq!(content(&*below, "a"), vec![1; 4 * BLOCK_BYTES]);
    }
}
