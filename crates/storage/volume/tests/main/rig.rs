//! A volume on faulty shelves around memory: what each copy answers is a script, and what lies on each medium can be seen and damaged.

use std::fmt;
use std::sync::{Arc, Mutex};

use device::faulty::{Fault, FaultyShelf, Rule};
use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, MemoryShelf, Operation, Shelf};
use volume::superblock::{SUPERBLOCK, Superblock};
use volume::{CopyState, NewVolume, Options, Place, Step, Volume, VolumeError};

use crate::support::{IS_ENCRYPTED, at, new_volume, options, read_block, tagged};

/// The copies of a volume.
pub(crate) struct Rig {
    pub(crate) media: Vec<Arc<MemoryShelf>>,
    pub(crate) faults: Vec<Arc<FaultyShelf>>,
    pub(crate) blocks: u64,
}

impl Rig {
    /// Makes a volume and opens it.
    pub(crate) fn fresh(copies: u8, min_copies: u8, blocks: u64) -> (Rig, Volume) {
        let media: Vec<Arc<MemoryShelf>> = (0..copies).map(|_| Arc::new(MemoryShelf::new())).collect();
        let faults = media.iter().map(|medium| Arc::new(FaultyShelf::new(medium.clone()))).collect();
        let rig = Rig { media, faults, blocks };
        let new = NewVolume { min_copies: Some(min_copies), ..new_volume(blocks) };
        Volume::create(&rig.places(), &new, &options(1)).expect("creates");
        let volume = rig.open(2);
        (rig, volume)
    }

    /// As [`fresh`](Rig::fresh); every block has its number as its tag, in place.
    pub(crate) fn filled(copies: u8, min_copies: u8, blocks: u64) -> (Rig, Volume) {
        let (rig, volume) = Rig::fresh(copies, min_copies, blocks);
        (0..blocks).for_each(|block| volume.write(at(block), &tagged(block)).expect("writes"));
        volume.checkpoint().expect("checkpoints");
        (rig, volume)
    }

    pub(crate) fn place(&self, copy: usize) -> Place {
        Place::on(self.faults[copy].clone())
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        (0..self.faults.len()).map(|copy| self.place(copy)).collect()
    }

    /// Opens all copies; copy 0 is read as long as it works.
    pub(crate) fn open(&self, owner: u64) -> Volume {
        self.open_some(&[0, 1, 2][..self.faults.len()], owner).expect("opens")
    }

    pub(crate) fn open_some(&self, copies: &[usize], owner: u64) -> Result<Volume, VolumeError> {
        let places = copies.iter().map(|copy| self.place(*copy)).collect();
        Volume::open(places, Options { prefer: Some(0), ..options(owner) })
    }

    /// The copy writes nothing any more.
    pub(crate) fn fail(&self, copy: usize) {
        self.faults[copy].inject(Rule::from(Operation::Write, 1, Fault::Eio));
    }

    /// Counts the writes of a copy to the blocks in place, and changes nothing: the bit lies after the end of each.
    pub(crate) fn count_writes(&self, copy: usize) {
        self.faults[copy].heal();
        let nothing = Fault::BitFlip { byte: usize::MAX, bit: 0 };
        self.faults[copy].inject(Rule::from(Operation::Write, 1, nothing).on("data-0"));
    }

    /// The two slots of a superblock on the medium; they are equal.
    pub(crate) fn superblock(&self, copy: usize) -> Superblock {
        let slot = |slot| Superblock::decode(&self.medium_block(copy, SUPERBLOCK, slot)).expect("a version");
        let (first, second) = (slot(0).expect("a slot"), slot(1).expect("a slot"));
        assert_eq!(first, second, "a change is durable when both slots are");
        first
    }

    /// A block of a device as it is on the medium.
    pub(crate) fn medium_block(&self, copy: usize, device: &str, block: u64) -> Vec<u8> {
        let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
        let device = self.media[copy].open(device).expect("a device");
        device.read(at(block), &mut bytes).expect("reads");
        bytes.to_vec()
    }

    /// Inverts a bit on the medium.
    pub(crate) fn rot(&self, copy: usize, device: &str, block: u64) {
        let mut bytes = AlignedBuffer::from(&self.medium_block(copy, device, block)[..]);
        bytes[100] ^= 4;
        let device = self.media[copy].open(device).expect("a device");
        device.write_flush(at(block), &bytes).expect("writes");
    }

    /// After a checkpoint: every copy has in place what the volume has, block by block; where blocks are encrypted, all the same.
    pub(crate) fn assert_equal(&self, volume: &Volume) {
        volume.checkpoint().expect("checkpoints");
        for block in 0..self.blocks {
            let content = read_block(volume, block).expect("reads");
            let is_empty = content.iter().all(|byte| *byte == 0);
            let expected = if IS_ENCRYPTED { self.medium_block(0, "data-0", block) } else { content };
            for copy in 0..self.media.len() {
                let is_equal = self.medium_block(copy, "data-0", block) == expected || (IS_ENCRYPTED && is_empty);
                assert!(is_equal, "block {block} of copy {copy} differs");
            }
        }
        let status = volume.status();
        assert!(status.copies.iter().all(|copy| copy.state == CopyState::InSync), "{status:?}");
        let scrubbed = volume.scrub().expect("scrubs");
        assert_eq!((scrubbed.repaired, scrubbed.damaged), (0, 0));
    }
}

/// Brings a copy up to date; returns how many blocks were copied.
pub(crate) fn resync(volume: &Volume, copy: u8) -> u64 {
    let mut copied = 0;
    // More steps than a volume of these tests has regions.
    for _ in 0..1000 {
        match volume.resync_step(copy).expect("a step") {
            Step::Copied { bytes, .. } => copied += bytes / BLOCK_BYTES as u64,
            Step::Joined => return copied,
        }
    }
    panic!("the copy never joins");
}

pub(crate) fn state(volume: &Volume, copy: usize) -> CopyState {
    volume.status().copies[copy].state
}

type Trap = Arc<Mutex<Option<(String, Box<dyn FnOnce() + Send>)>>>;

/// A shelf that once, before a write to one of its devices, calls something: what another thread would do just then.
pub(crate) struct TrapShelf {
    inner: Arc<dyn Shelf>,
    trap: Trap,
}

impl TrapShelf {
    pub(crate) fn new(inner: Arc<dyn Shelf>) -> TrapShelf {
        TrapShelf { inner, trap: Trap::default() }
    }

    pub(crate) fn before_write(&self, device: &str, call: impl FnOnce() + Send + 'static) {
        *self.trap.lock().expect("no panic") = Some((device.to_owned(), Box::new(call)));
    }

    fn wrap(&self, name: &str, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(TrapDevice { name: name.to_owned(), inner, trap: self.trap.clone() })
    }
}

impl fmt::Debug for TrapShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TrapShelf").field(&self.inner).finish()
    }
}

impl Shelf for TrapShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.wrap(name, self.inner.create(name, bytes)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.wrap(name, self.inner.open(name)?))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open_read_only(name)
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

struct TrapDevice {
    name: String,
    inner: Arc<dyn Device>,
    trap: Trap,
}

impl fmt::Debug for TrapDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TrapDevice").field(&self.inner).finish()
    }
}

impl Device for TrapDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.inner.atom_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let call = self.trap.lock().expect("no panic").take_if(|(name, _)| *name == self.name);
        // The lock is free again: the call may write here too.
        if let Some((_, call)) = call {
            call();
        }
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}
